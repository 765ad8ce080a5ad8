//! The sending end of a transfer: scan, announce, read what the receiver wants, until everything is accounted for.
//!
//! Threads: one scans and announces entries, some read (see `read_queue.rs`), and the caller's speaks with the
//! receiver. An entry is outstanding from its announcement until the receiver has said what became of it; their number
//! is bounded, and so is the memory of a tree of any size.
//!
//! Always true: no file is read before the receiver has asked for it; the reading never waits for a single answer.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farhaul_store::{Entry, Kind, ScanItem, ScanOptions, Scanner, Selection, Source, SourceRef, Time};

use super::end::End;
use super::failures::{Failures, plain};
use super::read_queue::{FileJob, Large, ReadQueue};
use super::shared::Shared;
use super::supervisor::{Step, Supervisor};
use super::unread::Unread;
use crate::error::Error;
use crate::messages::{Decision, EndFigures, ManifestEntry, Message, Presence, What};
use crate::options::{DeleteWhen, TransferOptions};

/// Files announced and not yet accounted for: at 200 ms of round trip still 160,000 a second.
const OUTSTANDING_MAX: usize = 32 << 10;
/// Files with several links that are remembered; beyond it, a further link is sent as a file of its own.
const LINKS_MAX: usize = 1 << 20;
/// A chunk that arrives damaged is sent again this often before its file fails.
const AGAIN_MAX: u32 = 3;

/// Names that a receiver may ask for, and their bytes together.
pub(crate) const NAMES_MAX: usize = 1 << 20;
pub(crate) const NAMES_BYTES_MAX: usize = 32 << 20;

/// What is to be sent.
pub(crate) enum Origin {
    Scan(Box<Scan>),
    /// Standard input, under this name.
    Pipe {
        name: Vec<u8>,
    },
}

/// What is listed, and how.
pub(crate) struct Scan {
    sources: Vec<Source>,
    pub(crate) options: ScanOptions,
    /// The receiver says first which names it wants.
    pub(crate) awaits_names: bool,
    /// The receiver has to know what there is, so as to remove the rest.
    delete: Option<DeleteWhen>,
}

impl Scan {
    pub(crate) fn new(sources: Vec<Source>, options: &TransferOptions) -> Result<Scan, Error> {
        let delete = options.sync.and_then(|sync| sync.delete).map(|delete| delete.when);
        let awaits_names = options.select.by_name;
        Ok(Scan { sources, options: options.select.scan()?, awaits_names, delete })
    }

    fn scanner(&self) -> Scanner {
        Scanner::new(self.sources.clone(), self.options.clone())
    }
}

/// Names that have come so far.
#[derive(Default)]
struct Names {
    names: Vec<Vec<u8>>,
    bytes: usize,
    /// Whether any are expected, and whether all are here.
    is_awaited: bool,
    is_complete: bool,
}

struct Pending {
    size: u64,
    job: Option<Arc<FileJob>>,
    large: Option<Arc<Large>>,
    again: u32,
    /// Its digest has been asked for.
    compared: bool,
    /// Until the receiver has decided.
    unread: Option<Unread>,
}

#[derive(Default)]
struct Table {
    pending: HashMap<u64, Pending>,
    entries_done: bool,
}

/// How the files are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPlan {
    pub(crate) readers: usize,
    pub(crate) digests: bool,
    /// One chunk after the other, holes as zeros.
    pub(crate) in_order: bool,
    /// Nothing is sent, only said.
    pub(crate) dry_run: bool,
}

/// State that the sending end's threads share.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    table: Mutex<Table>,
    room: Condvar,
    queue: Arc<ReadQueue>,
    /// The content comes from standard input.
    is_pipe: bool,
    /// Chunks must leave in order and without holes: the receiver writes to a pipe.
    in_order: bool,
    dry_run: bool,
    names: Mutex<Names>,
    failures: Failures,
    counts: Mutex<Counts>,
}

/// What the sending end counted.
#[derive(Default)]
struct Counts {
    files: u64,
    directories: u64,
    links: u64,
    skipped: u64,
    deleted: u64,
    resumed_bytes: u64,
    /// Of files that a dry run would have sent.
    listed_bytes: u64,
}

/// Runs the sending end to its end.
pub(crate) fn run(supervisor: &mut Supervisor, origin: Origin, plan: ReadPlan) -> (End, Option<Error>) {
    let ReadPlan { readers, digests, in_order, dry_run } = plan;
    let is_awaited = matches!(&origin, Origin::Scan(scan) if scan.awaits_names);
    let shared = supervisor.shared.clone();
    let queue = Arc::new(ReadQueue::new(shared.clone(), digests));
    let sender = Sender {
        shared: shared.clone(),
        table: Mutex::default(),
        room: Condvar::new(),
        queue: queue.clone(),
        is_pipe: matches!(origin, Origin::Pipe { .. }),
        in_order,
        dry_run,
        names: Mutex::new(Names { is_awaited, ..Names::default() }),
        failures: Failures::default(),
        counts: Mutex::default(),
    };
    let scanning = Unread::new(&shared);
    let ended = std::thread::scope(|scope| {
        let sender = &sender;
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let failed = || Error::io("cannot start a thread");
        named("scan")
            .spawn_scoped(scope, move || sender.shared.cpu.count(|| sender.announce(origin, scanning)))
            .map_err(failed())?;
        for _ in 0..readers {
            let queue = queue.clone();
            let work = move || sender.shared.cpu.count(|| queue.read());
            named("read").spawn_scoped(scope, work).map_err(failed())?;
        }
        let ended = sender.converse(supervisor);
        if let Err(error) = &ended {
            shared.set_goodbye(error.to_string());
            shared.stop();
        }
        queue.close();
        sender.room.notify_all();
        ended
    });
    match ended {
        Ok(theirs) => (sender.end(supervisor, theirs), None),
        Err(error) => (sender.end(supervisor, EndFigures::default()), Some(error)),
    }
}

impl Sender {
    // ---- announcing --------------------------------------------------------------------------------------------

    fn announce(&self, origin: Origin, _scanning: Unread) {
        match origin {
            Origin::Pipe { name } => self.announce_pipe(name),
            Origin::Scan(scan) => self.announce_scan(*scan),
        }
        self.table.lock().expect(LOCK).entries_done = true;
        self.shared.progress.scan_done.store(true, Relaxed);
        self.shared.send(&[Message::EntriesEnd]);
    }

    fn announce_pipe(&self, name: Vec<u8>) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let entry = ManifestEntry {
            id: 0,
            path: name,
            mode: 0o644,
            mtime_secs: now.as_secs() as i64,
            mtime_nanos: now.subsec_nanos(),
            what: What::Stream,
        };
        let unread = Some(Unread::new(&self.shared));
        let pending = Pending { size: 0, job: None, large: None, again: 0, compared: false, unread };
        self.table.lock().expect(LOCK).pending.insert(0, pending);
        self.shared.progress.files_total.store(1, Relaxed);
        self.shared.send(&[Message::Entry(entry)]);
    }

    fn announce_scan(&self, mut scan: Scan) {
        if scan.awaits_names {
            let Some(names) = self.wait_for_names() else { return };
            match Selection::new(names) {
                Ok(only) => scan.options.only = Some(only),
                Err(error) => {
                    return self.shared.fail(Error::Misbehaved(format!("it asked for a name: {error}")));
                }
            }
        }
        if scan.delete == Some(DeleteWhen::Before) {
            self.list_ahead(scan.scanner());
        }
        self.announce_tree(scan.scanner(), scan.delete == Some(DeleteWhen::After));
    }

    /// None when the session ends first.
    fn wait_for_names(&self) -> Option<Vec<Vec<u8>>> {
        let mut names = self.names.lock().expect(LOCK);
        while !names.is_complete {
            if self.shared.is_stopped() {
                return None;
            }
            (names, _) = self.room.wait_timeout(names, Duration::from_millis(100)).expect(LOCK);
        }
        Some(std::mem::take(&mut names.names))
    }

    /// Says what there will be, without sending anything of it.
    fn list_ahead(&self, mut scanner: Scanner) {
        let mut batch = Vec::new();
        let mut is_complete = true;
        while !self.shared.is_stopped() {
            let (path, presence) = match scanner.next() {
                None => break,
                Some(ScanItem::Failed { .. }) => {
                    is_complete = false;
                    continue;
                }
                Some(ScanItem::LeftOut { path }) => (path, Presence::Plain),
                Some(ScanItem::DirEnd { path, .. }) => (path, Presence::DirectoryEnd),
                Some(ScanItem::Entry { path, entry, .. }) => match entry.kind {
                    Kind::Dir => (path, Presence::Directory),
                    Kind::File { .. } | Kind::Symlink { .. } | Kind::Special => (path, Presence::Plain),
                },
            };
            batch.push(Message::Present { path: path.into_bytes(), presence });
            if batch.len() >= 64 {
                self.shared.send(&std::mem::take(&mut batch));
            }
        }
        batch.push(Message::PresentEnd { is_complete });
        self.shared.send(&batch);
    }

    /// `says_all`: also that something is there which is not sent.
    fn announce_tree(&self, mut scanner: Scanner, says_all: bool) {
        let meter = self.shared.meters.meter("scan");
        let mut next_id = 0;
        let mut directories = Vec::new();
        let mut links: HashMap<(u64, u64), u64> = HashMap::new();
        // Entries are sent a few dozen at a time: a lock and a wake-up each would cost more than the entry.
        let mut batch = Vec::new();
        let mut unsent = 0;
        while !self.shared.is_stopped() {
            let Some(item) = meter.time(|| scanner.next()) else { break };
            match item {
                ScanItem::Failed { path, error } => {
                    let reason = format!("cannot read: {}", plain(&error));
                    self.failures.add(&path, &reason);
                    self.shared.progress.failed.fetch_add(1, Relaxed);
                    batch.push(Message::SourceFailed { path, reason });
                }
                ScanItem::LeftOut { path } => {
                    batch.extend(says_all.then(|| Message::LeftOut { path: path.into_bytes() }));
                }
                ScanItem::DirEnd { .. } => {
                    if let Some(id) = directories.pop() {
                        batch.push(Message::DirectoryEnd { id });
                    }
                }
                ScanItem::Entry { path, mut entry, handle } => {
                    if let (true, Kind::File { sparse, .. }) = (self.in_order, &mut entry.kind) {
                        *sparse = false;
                    }
                    let Some(what) = describe(&entry, &mut links, next_id) else {
                        self.shared.progress.notice(format!("skipped {path}: not a file, directory or link"));
                        batch.extend(says_all.then(|| Message::LeftOut { path: path.into_bytes() }));
                        continue;
                    };
                    if what == What::Directory {
                        directories.push(next_id);
                    } else {
                        self.admit(next_id, &what, entry.clone(), handle, path.to_string(), &mut batch);
                    }
                    batch.push(Message::Entry(manifest_entry(
                        next_id,
                        path.as_bytes().to_vec(),
                        &entry,
                        what,
                    )));
                    next_id += 1;
                }
            }
            unsent += 1;
            if unsent >= 64 || next_id < 64 {
                self.shared.send(&batch);
                batch.clear();
                unsent = 0;
            }
        }
        self.shared.send(&batch);
    }

    /// Books an entry as outstanding; waits while too many are.
    fn admit(
        &self,
        id: u64,
        what: &What,
        entry: Entry,
        handle: SourceRef,
        path: String,
        batch: &mut Vec<Message>,
    ) {
        let size = if let What::File { size, .. } = *what { size } else { 0 };
        let job = matches!(what, What::File { .. })
            .then(|| Arc::new(FileJob { id, size, entry, source: handle, path }));
        let mut table = self.table.lock().expect(LOCK);
        if table.pending.len() >= OUTSTANDING_MAX {
            // The receiver cannot answer what it has not seen.
            drop(table);
            self.shared.send(batch);
            batch.clear();
            table = self.table.lock().expect(LOCK);
            while table.pending.len() >= OUTSTANDING_MAX && !self.shared.is_stopped() {
                (table, _) = self.room.wait_timeout(table, Duration::from_millis(100)).expect(LOCK);
            }
        }
        let unread = job.is_some().then(|| Unread::new(&self.shared));
        table.pending.insert(id, Pending { size, job, large: None, again: 0, compared: false, unread });
        if matches!(what, What::File { .. }) {
            self.shared.progress.files_total.fetch_add(1, Relaxed);
            self.shared.progress.bytes_total.fetch_add(size, Relaxed);
        }
    }

    // ---- conversing --------------------------------------------------------------------------------------------

    /// Speaks with the receiver until it has finished; returns its figures.
    fn converse(&self, supervisor: &mut Supervisor) -> Result<EndFigures, Error> {
        loop {
            match supervisor.step()? {
                Step::Message(Message::Finish(figures)) => {
                    self.finish(supervisor)?;
                    return Ok(figures);
                }
                Step::Message(message) => self.handle(message, &mut self.counts.lock().expect(LOCK))?,
                Step::Idle => {}
            }
        }
    }

    fn handle(&self, message: Message, counts: &mut Counts) -> Result<(), Error> {
        match message {
            Message::Decide { id, decision } => self.decide(id, decision, counts),
            Message::Done { id } => self.done(id, counts),
            Message::Failed { id, path, reason } => {
                if let Some(pending) = self.remove(id)
                    && let Some(large) = pending.large
                {
                    large.cancel();
                }
                self.failures.add(&path, &reason);
                self.shared.progress.failed.fetch_add(1, Relaxed);
                Ok(())
            }
            Message::DirectoriesDone { count } => {
                counts.directories += count;
                Ok(())
            }
            Message::Again { id, chunk } => self.again(id, chunk),
            Message::Names { names, is_last } => self.take_names(names, is_last),
            Message::Deleted { path } => {
                counts.deleted += 1;
                tell_deleted(&self.shared, &path, self.dry_run);
                Ok(())
            }
            Message::NotDeleted { path, reason } => {
                self.failures.add(&path, &reason);
                self.shared.progress.failed.fetch_add(1, Relaxed);
                Ok(())
            }
            other => Err(Error::Misbehaved(format!("unexpected message {}", other.name()))),
        }
    }

    fn take_names(&self, more: Vec<Vec<u8>>, is_last: bool) -> Result<(), Error> {
        let mut names = self.names.lock().expect(LOCK);
        names.bytes += more.iter().map(Vec::len).sum::<usize>();
        if !names.is_awaited || names.is_complete {
            return Err(Error::Misbehaved("it asked for names out of order".into()));
        }
        if names.names.len() + more.len() > NAMES_MAX || names.bytes > NAMES_BYTES_MAX {
            return Err(Error::Misbehaved("it asked for more names than are allowed".into()));
        }
        names.names.extend(more);
        names.is_complete = is_last;
        drop(names);
        self.room.notify_all();
        Ok(())
    }

    fn decide(&self, id: u64, decision: Decision, counts: &mut Counts) -> Result<(), Error> {
        if decision == Decision::Skip {
            let Some(pending) = self.remove(id) else { return Err(unknown(id)) };
            counts.skipped += 1;
            self.shared.progress.bytes_skipped.fetch_add(pending.size, Relaxed);
            self.shared.progress.bytes_done.fetch_add(pending.size, Relaxed);
            self.shared.progress.files_done.fetch_add(1, Relaxed);
            return Ok(());
        }
        if decision == Decision::Listed {
            let Some(pending) = self.remove(id) else { return Err(unknown(id)) };
            counts.files += 1;
            counts.listed_bytes += pending.size;
            if let Some(job) = pending.job {
                self.shared.progress.notice(format!("would send {} ({} bytes)", job.path, job.size));
            }
            return Ok(());
        }
        let mut table = self.table.lock().expect(LOCK);
        let Some(pending) = table.pending.get_mut(&id) else { return Err(unknown(id)) };
        if let Decision::Compare(digest) = decision {
            // It is compared once, before it is sent.
            let (true, Some(job)) = (pending.unread.is_some() && !pending.compared, pending.job.clone())
            else {
                return Err(unknown(id));
            };
            pending.compared = true;
            drop(table);
            self.queue.push_compare(job, digest);
            return Ok(());
        }
        let unread = pending.unread.take();
        let Some(job) = pending.job.clone() else {
            if !self.is_pipe || id != 0 || self.queue.has_pipe() {
                return Err(unknown(id));
            }
            drop(table);
            self.queue.push_pipe(id, unread);
            return Ok(());
        };
        let have = if let Decision::Have(ranges) = decision { ranges } else { Vec::new() };
        let chunks = job.size.div_ceil(farhaul_store::CHUNK);
        if have.iter().any(|&(first, count)| first.checked_add(count).is_none_or(|end| end > chunks)) {
            return Err(Error::Misbehaved(format!("chunks beyond the end of file {id}")));
        }
        if job.is_whole() {
            drop(table);
            self.queue.push_whole(job, unread);
            return Ok(());
        }
        let resumed = Large::bytes_of(&have, job.size);
        counts.resumed_bytes += resumed;
        self.shared.progress.bytes_done.fetch_add(resumed, Relaxed);
        let large = Arc::new(Large::new(job, have, unread));
        pending.large = Some(large.clone());
        drop(table);
        self.queue.push_large(large);
        Ok(())
    }

    fn done(&self, id: u64, counts: &mut Counts) -> Result<(), Error> {
        let Some(pending) = self.remove(id) else { return Err(unknown(id)) };
        if let Some(job) = &pending.job {
            self.shared.progress.detail(|| job.path.clone());
        }
        if pending.job.is_some() || id == 0 && self.queue.has_pipe() {
            counts.files += 1;
            self.shared.progress.files_done.fetch_add(1, Relaxed);
        } else {
            counts.links += 1;
        }
        Ok(())
    }

    /// A piece arrived damaged although its packets were authentic (memory, or a cipher-less path): send it again.
    fn again(&self, id: u64, chunk: u64) -> Result<(), Error> {
        let mut table = self.table.lock().expect(LOCK);
        let Some(pending) = table.pending.get_mut(&id) else { return Err(unknown(id)) };
        pending.again += 1;
        let (too_often, job, large) = (pending.again > AGAIN_MAX, pending.job.clone(), pending.large.clone());
        drop(table);
        let chunks = job.as_ref().map_or(0, |job| job.size.div_ceil(farhaul_store::CHUNK));
        if job.is_some() && chunk >= chunks {
            return Err(Error::Misbehaved(format!("chunk {chunk} lies beyond file {id}")));
        }
        if too_often || job.is_none() {
            let reason = "its content arrived damaged and cannot be sent again".to_string();
            self.shared.send(&[Message::FileFailed { id, reason }]);
        } else if let Some(large) = large {
            self.queue.push_again(large, chunk);
        } else if let Some(job) = job {
            self.queue.push_whole(job, Some(Unread::new(&self.shared)));
        }
        Ok(())
    }

    fn remove(&self, id: u64) -> Option<Pending> {
        let mut table = self.table.lock().expect(LOCK);
        let pending = table.pending.remove(&id);
        if table.pending.len() == OUTSTANDING_MAX / 2 {
            self.room.notify_all();
        }
        pending
    }

    fn finish(&self, supervisor: &Supervisor) -> Result<(), Error> {
        {
            let table = self.table.lock().expect(LOCK);
            if !table.entries_done || !table.pending.is_empty() {
                return Err(Error::Misbehaved(
                    "the receiver says that it has finished, but it has not".into(),
                ));
            }
        }
        self.shared.send(&[Message::Finish(supervisor.figures())]);
        self.shared.flush(Duration::from_secs(3));
        Ok(())
    }

    fn end(&self, supervisor: &Supervisor, theirs: EndFigures) -> End {
        let counts = self.counts.lock().expect(LOCK);
        End {
            files: counts.files,
            directories: counts.directories,
            links: counts.links,
            skipped: counts.skipped,
            deleted: counts.deleted,
            bytes: self.shared.content_acked.load(Relaxed) + counts.listed_bytes,
            bytes_resumed: counts.resumed_bytes,
            failures: self.failures.take(),
            ours: supervisor.figures(),
            theirs,
        }
    }
}

const LOCK: &str = "no thread panics while it holds the sender's table";

/// A line for what has been removed at the other end or here.
pub(crate) fn tell_deleted(shared: &Shared, path: &[u8], dry_run: bool) {
    let path = || farhaul_store::escape(path);
    if dry_run {
        shared.progress.notice(format!("would delete {}", path()));
    } else {
        shared.progress.detail(|| format!("deleted {}", path()));
    }
}

fn unknown(id: u64) -> Error {
    Error::Misbehaved(format!("entry {id} is not outstanding"))
}

fn describe(entry: &Entry, links: &mut HashMap<(u64, u64), u64>, id: u64) -> Option<What> {
    Some(match &entry.kind {
        Kind::Dir => What::Directory,
        Kind::Symlink { target } => What::Symlink { target: target.clone() },
        Kind::Special => return None,
        Kind::File { size, sparse } => {
            let linked = entry.nlink > 1;
            if linked {
                match links.get(&(entry.dev, entry.ino)) {
                    Some(&to) => return Some(What::HardLink { to }),
                    None if links.len() < LINKS_MAX => {
                        links.insert((entry.dev, entry.ino), id);
                    }
                    None => {}
                }
            }
            What::File { size: *size, inode: entry.ino, device: entry.dev, sparse: *sparse, linked }
        }
    })
}

fn manifest_entry(id: u64, path: Vec<u8>, entry: &Entry, what: What) -> ManifestEntry {
    let Time { secs, nanos } = entry.mtime;
    ManifestEntry { id, path, mode: entry.mode, mtime_secs: secs, mtime_nanos: nanos, what }
}
