//! The end that has the files: one thread receives the client's messages, other threads answer them.
//!
//! How to read it: [`serve`] begins. `Server::hear` turns messages into tasks (`work.rs`). `Worker` does
//! them, and packs what it reads into blocks (`pieces.rs`).
//!
//! Always true: nothing is written. A small answer never waits for a bulk answer, neither for its thread nor
//! for its memory. Whatever the client asks for, what is kept for it is bounded.

use std::fs::File;
use std::io::{IoSliceMut, Read as _};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farhaul_blocks::Block;
use farhaul_connect::hello::Refusal;
use farhaul_connect::{EstablishedSession, PathPrefixes};
use farhaul_copy::open_root;
use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Resource};
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::exchange::{BlockClass, LoadedBlock, Outlet};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::panic_guard::contained;
use farhaul_session::report::SessionFigures;
use farhaul_session::request::Request;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_session::test_hooks::TestHooks;
use farhaul_volume::{Hashers, Root};
use farhaul_words::{Code, Error, Failure, Misbehaviour, SessionReport};

use super::files::{OpenedFile, ServedFile, ServedFiles};
use super::messages::{FileRange, ReadMessage};
use super::pieces::{AnswerBlock, AnswerPiece};
use super::read_scope::{ReadScope, advise, identity};
use super::record_stream::RecordStream;
use super::request::ReadRequest;
use super::work::{DigestTask, Operation, OperationPart, Task, TaskPriority, WorkItem, WorkQueues};

/// Answers of at most this many bytes, all ranges of an operation together, go ahead of the others.
pub const SMALL_MAX: u64 = 64 << 10;
/// How many bytes of a stream go ahead of other answers.
const STREAM_START: u64 = 64 << 10;
/// Ranges that are no further apart than this are read together: reading the bytes between them costs less
/// than a second call, from memory as well as from a fast disk (docs/design/data-path.md).
const GAP_MAX: u64 = 16 << 10;
/// The most ranges that are read together, and the most bytes, with those between the ranges.
const GROUP_MAX: usize = 256;
const GROUP_BYTES_MAX: u64 = 512 << 10;
/// No file has content at this offset, and the system refuses to read there.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// How many bytes a task reads before the next task has its turn.
const TURN: u64 = 1 << 20;
/// How many bytes are digested before the next task has its turn.
const DIGEST_TURN: u64 = 8 << 20;
/// Answers are collected in a block until it has this many bytes. If blocks or the path are scarce, they are
/// collected until it is nearly full.
const PACK_BYTES: usize = 64 << 10;
/// The number of blocks that are kept for small answers.
const RESERVE: usize = 8;
/// The credit at the peer that is kept for small answers.
const URGENT_RESERVE: u32 = 4;
/// The number of threads of each kind, if the session may have them.
const WORKERS: usize = 4;
/// The most bytes of hints that are followed at a time.
const ADVICE_MAX: u64 = 256 << 20;
/// The most bytes of blocks that a session may have at a daemon, whatever its client asks for.
const CLIENT_MEMORY_MAX: u64 = 1 << 30;

/// The rules of a daemon.
#[derive(Debug, Clone)]
pub struct ReadServerPolicy {
    /// Nothing outside of this directory is read.
    pub root: PathBuf,
    /// Faults at this end, for tests.
    pub testing: TestHooks,
}

/// How a served session has ended.
#[derive(Debug)]
pub struct ReadOutcome {
    /// The session's report.
    pub report: SessionReport,
    /// Why it ended early, if it did.
    pub error: Option<Error>,
    /// The number of operations that were answered.
    pub answered: u64,
}

/// Serves reads until the client has no more: at a daemon within the client's rights, over ssh everything
/// that the user may read.
pub fn serve(
    established: EstablishedSession,
    policy: Option<&ReadServerPolicy>,
    handle: &Handle,
) -> ReadOutcome {
    let asked = ReadRequest::of(&established.opening).map_err(Refusal::into_error);
    let within = asked.as_ref().ok().and_then(|request| request.within.clone());
    let scope = match (policy, &established.guest) {
        (None, _) => ReadScope::over_ssh(within.as_ref()),
        (Some(policy), Some(guest)) => {
            let allowed = &guest.allowed;
            let within = PathPrefixes::both(allowed.within(), within.as_ref());
            open_root(&policy.root, allowed).and_then(|root| ReadScope::below(root, within))
        }
        // A daemon serves no client whose rights it has not judged, so this does not happen.
        (Some(_), None) => {
            Err(Error::new(Code::Forbidden, "nobody is served here without a key that this daemon knows"))
        }
    };
    let testing = policy.map(|policy| policy.testing);
    // A request that was not understood may have named directories.
    let scope = asked.and(scope);
    serve_on(scope, established, testing, handle)
}

/// The far end of a read within this host: of everything that its user can read, or of what lies below a
/// directory.
pub(crate) fn serve_here(established: EstablishedSession, below: Option<Root>) -> ReadOutcome {
    let scope = below.map_or(ReadScope::User { expands: false }, ReadScope::Root);
    serve_on(Ok(scope), established, None, &Handle::new())
}

fn serve_on(
    scope: Result<ReadScope, Error>,
    established: EstablishedSession,
    testing: Option<TestHooks>,
    handle: &Handle,
) -> ReadOutcome {
    handle.begin();
    let served = contained(|| run(scope, established, testing, handle)).flatten();
    let served = served.unwrap_or_else(|error| ReadOutcome {
        report: SessionReport::default(),
        error: Some(error),
        answered: 0,
    });
    handle.end(served.error.is_none(), served.error.as_ref());
    served
}

fn run(
    scope: Result<ReadScope, Error>,
    mut established: EstablishedSession,
    testing: Option<TestHooks>,
    handle: &Handle,
) -> Result<ReadOutcome, Error> {
    let network = &mut established.opening.network;
    if let Some(testing) = testing {
        // The client alone does not decide how much of this host's memory it may use.
        network.memory_bytes = network.memory_bytes.min(CLIENT_MEMORY_MAX);
        network.testing = testing;
    }
    let network = network.clone();
    let request = ReadRequest::of(&established.opening).map_err(Refusal::into_error);
    let budget = established.session.budget.clone();
    let mut setup = established.session;
    setup.urgent_reserve = URGENT_RESERVE;
    let (_session, mut dialogue) =
        Session::start(setup, network, ContentRole::Sender, DeliveryOrder::Any, handle)?;
    let begun = request.and(scope);
    let scope = match begun {
        Ok(scope) => scope,
        Err(error) => {
            dialogue.abort(&error);
            return Ok(ended(dialogue, Err(error), 0));
        }
    };
    let server = Server::new(&dialogue, scope, &budget);
    let result = server.work(&mut dialogue, &budget);
    let answered = server.answered.load(Ordering::Relaxed);
    if let Err(error) = &result {
        dialogue.abort(error);
    }
    Ok(ended(dialogue, result, answered))
}

fn ended(dialogue: Dialogue, result: Result<(), Error>, answered: u64) -> ReadOutcome {
    let figures = SessionFigures { ours: dialogue.figures(), theirs: Default::default() };
    let bytes = farhaul_session::exchange::arrived_bytes(&dialogue.request, result.is_ok().then_some(0));
    let report = dialogue.report(&figures, bytes);
    let error = result.err();
    dialogue.close(error.as_ref());
    ReadOutcome { report, error, answered }
}

struct Server {
    request: Arc<Request>,
    scope: ReadScope,
    files: ServedFiles,
    work: WorkQueues,
    outlet: Outlet,
    /// Blocks for small answers, which bulk answers do not get.
    reserve: Mutex<Vec<Block>>,
    answered: AtomicU64,
}

impl Server {
    fn new(dialogue: &Dialogue, scope: ReadScope, budget: &Budget) -> Server {
        let request = dialogue.request.clone();
        let outlet = Outlet::new(request.clone());
        Server {
            files: ServedFiles::new(budget),
            work: WorkQueues::new(&request),
            reserve: Mutex::new((0..RESERVE).map_while(|_| outlet.try_claim()).collect()),
            outlet,
            scope,
            request,
            answered: AtomicU64::new(0),
        }
    }

    /// Reads the client's messages to the end, while other threads work.
    fn work(&self, dialogue: &mut Dialogue, budget: &Budget) -> Result<(), Error> {
        let mut threads = budget.nothing_of(Resource::Threads);
        // One thread of each kind is needed; the others start if the budget allows.
        let mut count = 2 * WORKERS as u64;
        while threads.set(count).is_err() && count > 2 {
            count -= 1;
        }
        std::thread::scope(|scope| {
            for number in 0..count as usize {
                let priority =
                    if number.is_multiple_of(2) { TaskPriority::Small } else { TaskPriority::Bulk };
                let name = if priority == TaskPriority::Small { "read-small" } else { "read-bulk" };
                let body = move || self.request.work(|| Worker::new(self, priority).run());
                let thread = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, body);
                if let Err(error) = thread {
                    if number < 2 {
                        self.work.end();
                        return Err(Error::no_thread(error));
                    }
                    break;
                }
            }
            let result = contained(|| self.converse(dialogue)).flatten();
            self.work.end();
            result
        })
    }

    fn converse(&self, dialogue: &mut Dialogue) -> Result<(), Error> {
        loop {
            match dialogue.step()? {
                DialogueStep::Message(bytes) => self.hear(ReadMessage::decode(bytes).map_err(senseless)?)?,
                DialogueStep::Finish(_) => {
                    dialogue.finish();
                    return Ok(());
                }
                DialogueStep::Idle => {}
            }
        }
    }

    fn hear(&self, message: ReadMessage) -> Result<(), Error> {
        match message {
            ReadMessage::Open { file, path } => {
                let open = self.files.add(file, path)?;
                self.work.add(TaskPriority::Small, vec![Task::Open { file, open }])
            }
            ReadMessage::Close { file } => self.files.close(file),
            ReadMessage::Read { op, file, first, ranges } => self.read(op, file, first, ranges),
            ReadMessage::Advise { file, ranges } => {
                let open = self.files.get(file)?;
                self.work.add(TaskPriority::Bulk, vec![Task::Advise { open, ranges }])
            }
            ReadMessage::Stat { op, path, follow } => {
                let op = self.work.op(op);
                self.work.add(TaskPriority::Small, vec![Task::Stat { op, path, follow }])
            }
            ReadMessage::List { op, path, depth, room } => {
                let op = self.work.op(op);
                op.add_room(room);
                self.work.add(
                    TaskPriority::Bulk,
                    vec![Task::List(Box::new(RecordStream::of_directory(op, path, depth)))],
                )
            }
            ReadMessage::Find { op, pattern, room } => {
                let op = self.work.op(op);
                op.add_room(room);
                self.work.add(
                    TaskPriority::Bulk,
                    vec![Task::List(Box::new(RecordStream::of_pattern(op, pattern)))],
                )
            }
            ReadMessage::More { op, room } => {
                self.work.more(op, room);
                Ok(())
            }
            ReadMessage::Digest { op, file, range, algorithm } => {
                let (op, open) = (self.work.op(op), self.files.get(file)?);
                let digesting = DigestTask { algorithm, hashers: Hashers::new(&[algorithm]), done: 0 };
                let task = Task::Digest { op, open, range, digesting: Box::new(digesting) };
                self.work.add(TaskPriority::Bulk, vec![task])
            }
            ReadMessage::Cancel { op } => {
                self.work.cancel(op);
                Ok(())
            }
            other => Err(unexpected(other.name())),
        }
    }

    fn read(&self, op: u64, file: u64, first: u64, ranges: Vec<FileRange>) -> Result<(), Error> {
        let (op, open) = (self.work.op(op), self.files.get(file)?);
        let mut parts = Vec::with_capacity(ranges.len());
        let mut bytes = 0u64;
        for (index, range) in (0u64..).zip(ranges) {
            let number = first.checked_add(index);
            let (Some(number), Some(_)) = (number, range.offset.checked_add(range.len)) else {
                return Err(Error::misbehaved(
                    Misbehaviour::ImpossibleRange,
                    format!("it asks for {} bytes from {} on", range.len, range.offset),
                ));
            };
            bytes = bytes.saturating_add(range.len);
            parts.push(OperationPart { number, range, at: 0 });
        }
        let priority = if bytes <= SMALL_MAX { TaskPriority::Small } else { TaskPriority::Bulk };
        let read = |parts| Task::Read { op: op.clone(), open: open.clone(), parts };
        self.work.add(priority, group_near(parts).into_iter().map(read).collect())
    }

    fn say(&self, message: &ReadMessage) {
        self.request.send_encoded(|out| message.encode(out));
    }

    /// Returns whether no more answers are wanted; the client may leave while an answer waits for its turn.
    fn is_over(&self) -> bool {
        self.work.is_over() || self.request.is_stopped()
    }

    /// Ends the operation with this failure.
    fn fail(&self, op: &Operation, failure: Failure) {
        if self.work.cancel(op.number) {
            self.say(&ReadMessage::Failed { op: op.number, failure });
        }
    }
}

/// Groups ranges that are near one another, each group in the order of offsets.
fn group_near(mut parts: Vec<OperationPart>) -> Vec<Vec<OperationPart>> {
    parts.sort_by_key(|part| part.range.offset);
    let mut groups: Vec<Vec<OperationPart>> = Vec::new();
    // The beginning and the end of the last group.
    let (mut from, mut to) = (0, 0);
    for part in parts {
        let FileRange { offset, len } = part.range;
        let is_near = offset >= to && offset - to <= GAP_MAX && offset + len - from <= GROUP_BYTES_MAX;
        match groups.last_mut() {
            Some(group) if is_near && group.len() < GROUP_MAX => group.push(part),
            _ => {
                groups.push(vec![part]);
                from = offset;
            }
        }
        to = offset + len;
    }
    groups
}

/// A thread that works on one of the queues.
struct Worker<'a> {
    server: &'a Server,
    priority: TaskPriority,
    /// The block that answers are collected in.
    pack: Option<AnswerBlock>,
    /// The bytes between ranges that are read together, or those that are digested.
    scratch: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(server: &'a Server, priority: TaskPriority) -> Worker<'a> {
        Worker { server, priority, pack: None, scratch: Vec::new() }
    }

    fn run(mut self) {
        loop {
            match self.server.work.next(self.priority, self.pack.is_none()) {
                WorkItem::Task(task) => self.act(task),
                WorkItem::Nothing => self.put(),
                WorkItem::Over => return,
            }
        }
    }

    fn act(&mut self, task: Task) {
        let server = self.server;
        // Content that was already read does not wait for a task that may take long.
        if matches!(task, Task::Digest { .. } | Task::Advise { .. }) {
            self.put();
        }
        match task {
            Task::Open { file, ref open } => {
                let message = match open.get_or_open(&server.scope) {
                    Ok(ready) => ReadMessage::Opened { file, identity: identity(&ready.meta) },
                    Err(failure) => ReadMessage::NotOpened { file, failure },
                };
                server.say(&message);
                self.done(&task);
            }
            Task::Stat { ref op, ref path, follow } => {
                match server.scope.stat(path, follow) {
                    Ok(entry) => server.say(&ReadMessage::Stated { op: op.number, entry }),
                    Err(failure) => server.fail(op, failure),
                }
                self.done(&task);
            }
            Task::Advise { ref open, ref ranges } => {
                if let Ok(ready) = open.get_or_open(&server.scope) {
                    let mut left = ADVICE_MAX;
                    for range in ranges {
                        let len = range.len.min(left);
                        left -= len;
                        if len > 0 {
                            advise(&ready.file, range.offset, len);
                        }
                    }
                }
                self.done(&task);
            }
            Task::Read { op, open, parts } => self.read(op, open, parts),
            Task::List(listing) => self.list(listing),
            Task::Digest { op, open, range, digesting } => self.digest(op, open, range, digesting),
        }
    }

    fn done(&self, task: &Task) {
        self.server.answered.fetch_add(1, Ordering::Relaxed);
        self.server.work.done(task);
    }

    // ---- ranges ---------------------------------------------------------------------------------

    fn read(&mut self, op: Arc<Operation>, open: Arc<ServedFile>, mut parts: Vec<OperationPart>) {
        let server = self.server;
        let weight = parts.len();
        let ready = match open.get_or_open(&server.scope) {
            Ok(ready) => ready,
            Err(failure) => {
                server.fail(&op, failure);
                return self.done(&Task::Read { op, open: open.clone(), parts });
            }
        };
        // Another thread may work on the rest of a long range at the same time.
        let turn_max = TURN.min(AnswerBlock::room_of(server.outlet.block_bytes()) as u64);
        let mut is_whole = true;
        if let [part] = &mut parts[..] {
            let left = part.range.len - part.at;
            let turn = left.min(turn_max);
            // No turn begins behind the end of the file.
            let end = ready.meta.size.saturating_sub(part.range.offset);
            if turn < left && part.at + turn < end {
                let rest = OperationPart { at: part.at + turn, ..*part };
                server.work.put_back(Task::Read { op: op.clone(), open: open.clone(), parts: vec![rest] });
                is_whole = false;
            }
            part.range.len = part.at + turn;
        }
        let bytes: u64 = parts.iter().map(|part| part.range.len - part.at).sum();
        if !self.has_room(bytes as usize, parts.len()) {
            return;
        }
        let pack = self.pack.as_mut().expect("there is room");
        let before = pack.mark();
        let filled = fill(pack, &mut self.scratch, &op, ready, &parts, is_whole).and_then(|()| ready.check());
        if let Err(failure) = filled {
            pack.cut(before);
            server.fail(&op, failure);
        }
        if is_whole {
            server.answered.fetch_add(weight as u64, Ordering::Relaxed);
            server.work.done_parts(&op, weight);
        }
        self.put_if_due();
    }

    /// Returns whether there is a block with this much room; false if the session is over.
    fn has_room(&mut self, bytes: usize, pieces: usize) -> bool {
        if self.pack.as_ref().is_some_and(|pack| !pack.fits(bytes, pieces)) {
            self.put();
        }
        if self.pack.is_none() {
            self.pack = self.claim().map(AnswerBlock::new);
        }
        self.pack.is_some()
    }

    fn claim(&self) -> Option<Block> {
        let Server { outlet, reserve, .. } = self.server;
        let is_over = || self.server.is_over();
        if self.priority == TaskPriority::Bulk {
            return outlet.claim(is_over);
        }
        let kept = reserve.lock().whole().pop();
        // If a block was taken from the reserve, the reserve is refilled as soon as a block is free.
        if let Some(block) = outlet.try_claim() {
            if kept.is_none() {
                return Some(block);
            }
            reserve.lock().whole().push(block);
        }
        kept.or_else(|| outlet.claim(is_over))
    }

    /// Sends the block, unless it may wait for more. If blocks or the path are scarce, one full block carries
    /// as much as several small ones.
    fn put_if_due(&mut self) {
        let Some(pack) = &self.pack else { return };
        let outlet = &self.server.outlet;
        let is_scarce =
            self.priority == TaskPriority::Bulk && !outlet.has_room() || outlet.is_short_of_blocks();
        if pack.len() >= PACK_BYTES && !is_scarce || pack.room() < PACK_BYTES {
            self.put();
        }
    }

    fn put(&mut self) {
        let Some(pack) = self.pack.take() else { return };
        if pack.is_empty() {
            return;
        }
        let (block, len, content) = pack.close();
        let class = if self.priority == TaskPriority::Small { BlockClass::Urgent } else { BlockClass::Bulk };
        let load = LoadedBlock { class, ..LoadedBlock::new(block, len, content) };
        self.server.outlet.put(load, || self.server.is_over());
    }

    // ---- streams --------------------------------------------------------------------------------

    fn list(&mut self, mut listing: Box<RecordStream>) {
        let server = self.server;
        let op = listing.op.clone();
        let is_over = match listing.make(&server.scope) {
            Ok(is_over) => is_over,
            Err(failure) => {
                server.fail(&op, failure);
                return self.done(&Task::List(listing));
            }
        };
        // A stream has blocks of its own, as its first bytes go ahead of bulk answers.
        self.put();
        let mut has_sent_last = false;
        while !has_sent_last && (!listing.made.is_empty() || is_over) {
            let room = usize::try_from(op.room()).unwrap_or(usize::MAX);
            if room == 0 && !listing.made.is_empty() {
                break;
            }
            if !self.has_room(1, 1) {
                return;
            }
            let pack = self.pack.as_mut().expect("there is room");
            let len = room.min(listing.made.len()).min(pack.room());
            let is_last = is_over && len == listing.made.len();
            // Reading from memory cannot fail.
            let _ = listing.made.read_exact(&mut pack.space()[..len]);
            pack.push(AnswerPiece { op: op.number, range: 0, at: listing.sent, len: len as u64, is_last });
            has_sent_last = is_last;
            op.use_room(len as u64);
            let priority = self.priority;
            if listing.sent < STREAM_START {
                self.priority = TaskPriority::Small;
            }
            listing.sent += len as u64;
            self.put();
            self.priority = priority;
        }
        match has_sent_last || op.is_cancelled() {
            true => self.done(&Task::List(listing)),
            false => server.work.put_back(Task::List(listing)),
        }
    }

    // ---- digests --------------------------------------------------------------------------------

    fn digest(
        &mut self,
        op: Arc<Operation>,
        open: Arc<ServedFile>,
        range: Option<FileRange>,
        digesting: Box<DigestTask>,
    ) {
        let server = self.server;
        let mut digesting = digesting;
        let digested =
            open.get_or_open(&server.scope).and_then(|ready| self.digest_turn(ready, range, &mut digesting));
        let (bytes, is_over) = match digested {
            Ok(is_over) => (digesting.done, is_over),
            Err(failure) => {
                server.fail(&op, failure);
                return self.done(&Task::Digest { op, open: open.clone(), range, digesting });
            }
        };
        if !is_over {
            return server.work.put_back(Task::Digest { op, open, range, digesting });
        }
        let DigestTask { algorithm, hashers, done } = *digesting;
        let digest = hashers.finish().into_iter().next().map(|(_, digest)| digest).unwrap_or_default();
        if !op.is_cancelled() {
            server.say(&ReadMessage::Digested { op: op.number, bytes, digest });
        }
        let digesting = Box::new(DigestTask { algorithm, hashers: Hashers::new(&[]), done });
        self.done(&Task::Digest { op, open, range, digesting });
    }

    /// Digests further bytes; returns true at the end.
    fn digest_turn(
        &mut self,
        ready: &OpenedFile,
        range: Option<FileRange>,
        digesting: &mut DigestTask,
    ) -> Result<bool, Failure> {
        let size = ready.meta.size;
        let (from, len) = match range {
            Some(FileRange { offset, len }) => (offset, len.min(size.saturating_sub(offset))),
            None => (0, size),
        };
        self.scratch.resize(TURN as usize, 0);
        let until = digesting.done.saturating_add(DIGEST_TURN).min(len);
        while digesting.done < until {
            let want = (until - digesting.done).min(TURN) as usize;
            let read = read_at(&ready.file, &mut self.scratch[..want], from + digesting.done);
            let read = read.map_err(|error| Failure::cannot("read", &error))?;
            digesting.hashers.update(&self.scratch[..read]);
            digesting.done += read as u64;
            if read < want {
                // Files of the kernel have less content than their size says.
                ready.check()?;
                return Ok(true);
            }
        }
        ready.check()?;
        Ok(digesting.done == len)
    }
}

/// Reads these parts into a block. `ends` is true if nothing of their ranges is left after them.
fn fill(
    pack: &mut AnswerBlock,
    scratch: &mut Vec<u8>,
    op: &Operation,
    ready: &OpenedFile,
    parts: &[OperationPart],
    ends: bool,
) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::cannot("read", &error);
    let are_all_read =
        parts.len() > 1 && read_together(pack.space(), scratch, &ready.file, parts).map_err(cannot)?;
    for part in parts {
        let want = (part.range.len - part.at) as usize;
        let len = match are_all_read {
            true => want,
            false => read_at(&ready.file, &mut pack.space()[..want], part.range.offset + part.at)
                .map_err(cannot)?,
        };
        // A range that ends early ends with the file.
        let is_last = ends || len < want;
        pack.push(AnswerPiece { op: op.number, range: part.number, at: part.at, len: len as u64, is_last });
    }
    Ok(())
}

/// Reads parts that are near one another into `space`, one behind the other, with one call; returns false if
/// that has not read everything.
fn read_together(
    space: &mut [u8],
    scratch: &mut Vec<u8>,
    file: &File,
    parts: &[OperationPart],
) -> std::io::Result<bool> {
    let from = parts[0].range.offset;
    if parts.last().is_some_and(|part| part.range.offset + part.range.len > OFFSET_MAX) {
        return Ok(false);
    }
    // The bytes between the parts are read, too, and dropped. They are fewer than those of a group.
    scratch.resize(scratch.len().max(GROUP_BYTES_MAX as usize), 0);
    let (mut rest, mut gaps, mut slices, mut to) = (space, &mut scratch[..], Vec::new(), from);
    for part in parts {
        let gap = (part.range.offset - to) as usize;
        if gap > 0 {
            let (slice, behind) = std::mem::take(&mut gaps).split_at_mut(gap);
            gaps = behind;
            slices.push(IoSliceMut::new(slice));
        }
        let (slice, behind) = std::mem::take(&mut rest).split_at_mut(part.range.len as usize);
        rest = behind;
        slices.push(IoSliceMut::new(slice));
        to = part.range.offset + part.range.len;
    }
    match rustix::io::preadv(file, &mut slices, from) {
        Ok(count) => Ok(count as u64 == to - from),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads as much as there is, up to the whole buffer.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let readable = OFFSET_MAX.saturating_sub(offset);
    let len = buffer.len().min(usize::try_from(readable).unwrap_or(usize::MAX));
    let (buffer, mut filled) = (&mut buffer[..len], 0);
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
