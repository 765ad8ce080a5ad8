//! The sending end of a transfer: scan, announce, read what the receiver wants, until everything is accounted for.
//!
//! Threads: one scans and announces entries, some read (see `read_queue.rs`), and the caller's speaks with the
//! receiver. An entry is outstanding from its announcement until the receiver has said what became of it; their number
//! is bounded, and so is the memory of a tree of any size.
//!
//! Always true: no file is read before the receiver has asked for it; the reading never waits for a single answer.

mod notes;
mod renewal;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farhaul_store::{
    AttributeKinds, Attributes, Entry, Kind, RelPath, ScanItem, ScanOptions, Scanner, Selection, Source,
    SourceRef, Time, leads_out,
};

use self::notes::Links;
use super::end::End;
use super::exchange::arrived_bytes;
use super::failures::{Failures, plain};
use super::large::{FileJob, Large};
use super::read_queue::ReadQueue;
use super::shared::Shared;
use super::supervisor::{Step, Supervisor};
use super::unread::Unread;
use crate::error::Error;
use crate::manifest::{Fate, Log, Record};
use crate::messages::{Decision, EndFigures, ManifestEntry, Message, Presence, What};
use crate::options::{DeleteWhen, TransferOptions};
use crate::report::Action;

/// Files announced and not yet accounted for while content waits to be sent, which on a slow link must not lie behind names for long.
const OUTSTANDING: usize = 32 << 10;
/// The same while none does, as in a tree that has not changed: at 200 ms of round trip still a million a second.
const OUTSTANDING_MAX: usize = 256 << 10;
/// Names that have not been sent yet, in bytes, when more may be announced although so many files are outstanding.
const NAMES_UNSENT_MAX: u64 = 512 << 10;
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
        let scan = ScanOptions { follow: options.follow, ..options.select.scan()? };
        Ok(Scan { sources, options: scan, awaits_names, delete })
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
    /// For the manifest, if there is one.
    record: Option<Box<Record>>,
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
    /// Large files that are read at a time.
    pub(crate) lanes: usize,
    pub(crate) digests: bool,
    /// One chunk after the other, holes as zeros.
    pub(crate) in_order: bool,
    /// Nothing is sent, only said.
    pub(crate) dry_run: bool,
    /// Files are followed until they have not grown for so long.
    pub(crate) growth: Option<Duration>,
    pub(crate) taking: Taking,
    /// The receiver writes a manifest.
    pub(crate) tells_skipped: bool,
}

/// What of the entries is taken along.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taking {
    pub(crate) attributes: AttributeKinds,
    pub(crate) specials: bool,
    pub(crate) devices: bool,
    pub(crate) safe_links: bool,
}

impl Taking {
    pub(crate) fn new(options: &TransferOptions, is_daemon: bool) -> Taking {
        Taking {
            attributes: AttributeKinds::chosen(options.xattrs, options.acls, is_daemon, options.keep_setuid),
            specials: options.specials,
            devices: options.devices,
            safe_links: options.safe_links,
        }
    }

    fn reason_to_skip(&self, path: &[u8], kind: &Kind) -> Option<&'static str> {
        match kind {
            Kind::Symlink { target } if self.safe_links && leads_out(path, target) => {
                Some("a symbolic link that leads out of what is copied")
            }
            Kind::Special(node) if node.is_device() && !self.devices => Some("a device (--devices takes it)"),
            Kind::Special(node) if !node.is_device() && !self.specials => {
                Some("a pipe or socket (--specials takes it)")
            }
            Kind::File { .. } | Kind::Dir | Kind::Symlink { .. } | Kind::Special(_) => None,
        }
    }

    fn attributes(&self, what: &What, source: &SourceRef) -> std::io::Result<Attributes> {
        match what {
            What::File { .. } | What::Directory => source.attributes(self.attributes),
            What::Stream | What::Symlink { .. } | What::HardLink { .. } | What::Special(_) => {
                Ok(Attributes::new())
            }
        }
    }
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
    growth: Option<Duration>,
    taking: Taking,
    tells_skipped: bool,
    names: Mutex<Names>,
    /// Under which id a file that has changed is announced again.
    renewals: Mutex<HashMap<u64, u64>>,
    failures: Failures,
    counts: Mutex<Counts>,
    /// The client's manifest, and its lines for directories whose end has not been told.
    log: Option<Arc<Log>>,
    directories: Mutex<HashMap<u64, Box<Record>>>,
}

/// What the sending end counted.
#[derive(Default)]
struct Counts {
    files: u64,
    directories: u64,
    links: u64,
    skipped: u64,
    deleted: u64,
    renames: u64,
    resumed_bytes: u64,
    renamed: bool,
    /// Content bytes put of files that the receiver has given up.
    given_up: u64,
    /// Of files that a dry run would have sent.
    listed_bytes: u64,
}

/// Runs the sending end to its end.
pub(crate) fn run(
    supervisor: &mut Supervisor,
    origin: Origin,
    plan: ReadPlan,
    log: Option<Arc<Log>>,
) -> (End, Option<Error>) {
    let ReadPlan { readers, lanes, digests, in_order, dry_run, growth, taking, tells_skipped } = plan;
    let is_awaited = matches!(&origin, Origin::Scan(scan) if scan.awaits_names);
    let shared = supervisor.shared.clone();
    let queue =
        Arc::new(ReadQueue::new(shared.clone(), lanes, digests, !in_order, growth.filter(|_| !in_order)));
    let sender = Sender {
        shared: shared.clone(),
        table: Mutex::default(),
        room: Condvar::new(),
        queue: queue.clone(),
        is_pipe: matches!(origin, Origin::Pipe { .. }),
        in_order,
        dry_run,
        growth,
        taking,
        tells_skipped,
        names: Mutex::new(Names { is_awaited, ..Names::default() }),
        renewals: Mutex::default(),
        failures: Failures::new(supervisor.is_client()),
        counts: Mutex::default(),
        log,
        directories: Mutex::default(),
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
        Ok(theirs) => (sender.end(supervisor, Some(theirs)), None),
        Err(error) => (sender.end(supervisor, None), Some(error)),
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
            attributes: Attributes::new(),
        };
        let unread = Some(Unread::new(&self.shared));
        let record = self.log.as_ref().map(|_| Box::new(Record::of_entry(&entry, Fate::Sent, None)));
        let pending = Pending { size: 0, job: None, large: None, again: 0, compared: false, unread, record };
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
                    Kind::File { .. } | Kind::Symlink { .. } | Kind::Special(_) => (path, Presence::Plain),
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
        let mut links = Links::default();
        // Entries are sent a few dozen at a time, the first ones sooner: a lock and a wake-up each would cost more than the entry.
        let mut batch = Vec::new();
        let mut unsent = 0;
        while !self.shared.is_stopped() {
            let Some(item) = meter.time(|| scanner.next()) else { break };
            match item {
                ScanItem::Failed { path, error } => {
                    let reason = format!("cannot read: {}", plain(&error));
                    self.fail(&path, &reason, Action::Copy, None);
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
                    if let Some(why) = self.taking.reason_to_skip(path.as_bytes(), &entry.kind) {
                        self.shared.progress.notice(format!("skipped {path}: {why}"));
                        if let Some(log) = &self.log {
                            log.add(Record::of_path(path.as_bytes(), Fate::Skipped).because(why));
                        }
                        let reason = why.to_string();
                        let skipped = || Message::Skipped { path: path.as_bytes().to_vec(), reason };
                        batch.extend(self.tells_skipped.then(skipped));
                        batch.extend(says_all.then(|| Message::LeftOut { path: path.into_bytes() }));
                        continue;
                    }
                    let what = describe(&entry, &mut links, next_id, self.log.as_ref().map(|_| &path));
                    let attributes = match self.taking.attributes(&what, &handle) {
                        Ok(attributes) => attributes,
                        Err(error) => {
                            let reason = format!("cannot read its extended attributes: {}", plain(&error));
                            self.fail(path.as_bytes(), &reason, Action::Copy, None);
                            batch.push(Message::SourceFailed { path: path.as_bytes().to_vec(), reason });
                            Attributes::new()
                        }
                    };
                    let told = manifest_entry(next_id, path.as_bytes().to_vec(), &entry, what);
                    let told = ManifestEntry { attributes, ..told };
                    let record = self.log.as_ref().map(|_| {
                        let to = if let What::HardLink { to } = told.what { links.path_of(to) } else { None };
                        Box::new(Record::of_entry(&told, Fate::Sent, to))
                    });
                    if told.what == What::Directory {
                        directories.push(next_id);
                        if let Some(record) = record {
                            self.directories.lock().expect(LOCK).insert(next_id, record);
                        }
                    } else {
                        let job = matches!(told.what, What::File { .. }).then(|| {
                            let (digest, put) = Default::default();
                            Arc::new(FileJob {
                                id: next_id,
                                size: told.size(),
                                entry,
                                source: handle,
                                path,
                                is_renewed: false,
                                digest,
                                put,
                            })
                        });
                        self.admit(&told, job, record, &mut batch);
                    }
                    batch.push(Message::Entry(told));
                    next_id += 1;
                }
            }
            unsent += 1;
            if unsent >= 64 || next_id.is_power_of_two() {
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
        entry: &ManifestEntry,
        job: Option<Arc<FileJob>>,
        record: Option<Box<Record>>,
        batch: &mut Vec<Message>,
    ) {
        let size = entry.size();
        let mut table = self.table.lock().expect(LOCK);
        while !self.may_announce(table.pending.len()) && !self.shared.is_stopped() {
            if !batch.is_empty() {
                // The receiver cannot answer what it has not seen.
                drop(table);
                self.shared.send(batch);
                batch.clear();
                table = self.table.lock().expect(LOCK);
            }
            (table, _) = self.room.wait_timeout(table, Duration::from_millis(5)).expect(LOCK);
        }
        let unread = job.is_some().then(|| Unread::new(&self.shared));
        let pending = Pending { size, job, large: None, again: 0, compared: false, unread, record };
        table.pending.insert(entry.id, pending);
        if matches!(entry.what, What::File { .. }) {
            self.shared.progress.files_total.fetch_add(1, Relaxed);
            self.shared.progress.bytes_total.fetch_add(size, Relaxed);
        }
    }

    fn may_announce(&self, outstanding: usize) -> bool {
        let has_time = || !self.queue.is_waiting() && self.shared.control.lock().unsent() <= NAMES_UNSENT_MAX;
        outstanding < OUTSTANDING || outstanding < OUTSTANDING_MAX && has_time()
    }

    // ---- conversing --------------------------------------------------------------------------------------------

    /// Speaks with the receiver until it has finished; returns its figures.
    fn converse(&self, supervisor: &mut Supervisor) -> Result<EndFigures, Error> {
        let mut watched = Vec::new();
        loop {
            match supervisor.step()? {
                Step::Message(Message::Finish(figures)) => {
                    self.finish(supervisor)?;
                    return Ok(figures);
                }
                Step::Message(message) => self.handle(message, &mut self.counts.lock().expect(LOCK))?,
                Step::Idle => self.look_after(&mut watched),
            }
        }
    }

    fn handle(&self, message: Message, counts: &mut Counts) -> Result<(), Error> {
        match message {
            Message::Decide { id, decision } => self.decide(id, decision, counts),
            Message::Unchanged { first, count } => {
                let Some(end) = first.checked_add(count) else { return Err(unknown(u64::MAX)) };
                (first..end).try_for_each(|id| self.leave(id, Fate::Unchanged, counts))
            }
            Message::Done { id } => self.done(id, counts),
            Message::Failed { id, path, reason } => {
                let mut record = None;
                // It may have crossed the news that the file has changed.
                for id in [id].into_iter().chain(self.renewals.lock().expect(LOCK).remove(&id)) {
                    let Some(pending) = self.remove(id) else { continue };
                    counts.given_up = counts.given_up.saturating_add(self.give_up(&pending));
                    if let Some(large) = pending.large {
                        large.cancel();
                    }
                    record = pending.record.or(record);
                }
                let record = record.or_else(|| self.directories.lock().expect(LOCK).remove(&id));
                self.fail(&path, &reason, Action::Copy, record);
                Ok(())
            }
            Message::Placed { name } => {
                counts.renamed = true;
                if let Some(log) = &self.log {
                    log.set_renamed(&name);
                }
                Ok(())
            }
            Message::Renamed { id, from } => {
                let Some(mut pending) = self.remove(id) else { return Err(unknown(id)) };
                let Some(job) = pending.job.clone() else { return Err(unknown(id)) };
                counts.renames += 1;
                count_renamed(&self.shared, &from, &job.path, job.size, self.dry_run);
                if let Some(record) = &mut pending.record {
                    record.note = Some(from);
                }
                self.note(&mut pending, Fate::Renamed);
                Ok(())
            }
            Message::Digests { id, digests } => self.told(id, digests),
            Message::DirectoriesDone { count } => {
                counts.directories += count;
                Ok(())
            }
            Message::Again { id, chunk } => self.again(id, chunk),
            Message::Marks { id, chunk, marks } => self.marks(id, chunk, marks),
            Message::MarksEnd { id } => self.marks_end(id),
            Message::Names { names, is_last } => self.take_names(names, is_last),
            Message::Deleted { path } => {
                counts.deleted += 1;
                tell_deleted(&self.shared, &path, self.dry_run);
                if let (Some(log), false) = (&self.log, self.dry_run) {
                    log.add(Record::of_path(&path, Fate::Deleted));
                }
                Ok(())
            }
            Message::NotDeleted { path, reason } => {
                self.fail(&path, &reason, Action::Delete, None);
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
        if decision == Decision::Keep {
            return self.leave(id, Fate::Kept, counts);
        }
        if decision == Decision::Listed {
            let Some(mut pending) = self.remove(id) else { return Err(unknown(id)) };
            counts.files += 1;
            counts.listed_bytes += pending.size;
            self.note(&mut pending, Fate::WouldSend);
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
        let (have, old_chunks) = match decision {
            Decision::Have(ranges) => (ranges, 0),
            Decision::Patch { have, old_chunks } => (have, old_chunks),
            _ => (Vec::new(), 0),
        };
        if job.is_whole() {
            drop(table);
            self.queue.push_wanted(job, unread);
            return Ok(());
        }
        let resumed = Large::bytes_of(&have, job.size);
        let Some(large) = Large::new(job, &have, old_chunks, unread) else {
            return Err(Error::Misbehaved(format!("chunks that file {id} does not have")));
        };
        counts.resumed_bytes += resumed;
        self.shared.progress.bytes_done.fetch_add(resumed, Relaxed);
        let large = Arc::new(large);
        pending.large = Some(large.clone());
        drop(table);
        self.queue.push_large(large);
        Ok(())
    }

    /// Nothing of it is wanted.
    fn leave(&self, id: u64, fate: Fate, counts: &mut Counts) -> Result<(), Error> {
        let Some(mut pending) = self.remove(id) else { return Err(unknown(id)) };
        counts.skipped += 1;
        self.note(&mut pending, fate);
        self.shared.progress.bytes_skipped.fetch_add(pending.size, Relaxed);
        self.shared.progress.bytes_done.fetch_add(pending.size, Relaxed);
        self.shared.progress.files_done.fetch_add(1, Relaxed);
        Ok(())
    }

    /// What the receiver says of a file that has failed meanwhile is of no more use.
    fn marks(&self, id: u64, chunk: u64, marks: Vec<u8>) -> Result<(), Error> {
        match self.large(id) {
            Some(large) if !self.queue.push_patch(&large, chunk, marks) => {
                Err(Error::Misbehaved(format!("marks that do not fit chunk {chunk} of file {id}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn marks_end(&self, id: u64) -> Result<(), Error> {
        match self.large(id) {
            Some(large) if !self.queue.end_patches(&large) => {
                Err(Error::Misbehaved(format!("the marks of file {id} ended twice")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn large(&self, id: u64) -> Option<Arc<Large>> {
        self.table.lock().expect(LOCK).pending.get(&id)?.large.clone()
    }

    fn done(&self, id: u64, counts: &mut Counts) -> Result<(), Error> {
        let Some(mut pending) = self.remove(id) else {
            // Of directories only a manifest is told.
            let record = self.directories.lock().expect(LOCK).remove(&id);
            let (Some(log), Some(record)) = (&self.log, record) else { return Err(unknown(id)) };
            log.add(*record);
            return Ok(());
        };
        self.note(&mut pending, Fate::Sent);
        if let Some(job) = &pending.job {
            self.shared.progress.detail(|| job.path.to_string());
        }
        self.renewals.lock().expect(LOCK).retain(|_, renewed| *renewed != id);
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
            self.queue.push_whole_again(job);
        }
        Ok(())
    }

    fn remove(&self, id: u64) -> Option<Pending> {
        let mut table = self.table.lock().expect(LOCK);
        let pending = table.pending.remove(&id);
        if table.pending.len() == OUTSTANDING / 2 {
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

    /// What of a failed entry's content was put, at most: standard input is all that there is.
    fn give_up(&self, entry: &Pending) -> u64 {
        match &entry.job {
            Some(job) => job.put.give_up(),
            None if self.is_pipe => u64::MAX,
            None => 0,
        }
    }

    /// `theirs` have come if the end is a good one.
    fn end(&self, supervisor: &Supervisor, theirs: Option<EndFigures>) -> End {
        let counts = self.counts.lock().expect(LOCK);
        End {
            files: counts.files,
            directories: counts.directories,
            links: counts.links,
            skipped: counts.skipped,
            deleted: counts.deleted,
            renames: counts.renames,
            bytes: arrived_bytes(&self.shared, theirs.as_ref().map(|_| counts.given_up))
                + counts.listed_bytes,
            bytes_matched: self.shared.content_matched.load(Relaxed),
            bytes_resumed: counts.resumed_bytes,
            renamed: counts.renamed,
            failures: self.failures.take(),
            ours: supervisor.figures(),
            theirs: theirs.unwrap_or_default(),
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

/// A file that was there under another name.
pub(crate) fn count_renamed(shared: &Shared, from: &[u8], path: &RelPath, size: u64, dry_run: bool) {
    shared.progress.bytes_skipped.fetch_add(size, Relaxed);
    shared.progress.bytes_done.fetch_add(size, Relaxed);
    shared.progress.files_done.fetch_add(1, Relaxed);
    let line = |does: &str| format!("{does} {} -> {path}", farhaul_store::escape(from));
    if dry_run {
        shared.progress.notice(line("would rename"));
    } else {
        shared.progress.detail(|| line("renamed"));
    }
}

fn unknown(id: u64) -> Error {
    Error::Misbehaved(format!("entry {id} is not outstanding"))
}

/// `path` is given if hard links have to know it.
fn describe(entry: &Entry, links: &mut Links, id: u64, path: Option<&RelPath>) -> What {
    match &entry.kind {
        Kind::Dir => What::Directory,
        Kind::Symlink { target } => What::Symlink { target: target.clone() },
        Kind::Special(node) => What::Special(*node),
        Kind::File { size, sparse } => {
            let linked = entry.nlink > 1;
            if linked {
                match links.ids.get(&(entry.dev, entry.ino)) {
                    Some(&to) => return What::HardLink { to },
                    None if links.ids.len() < LINKS_MAX => {
                        links.ids.insert((entry.dev, entry.ino), id);
                        links.paths.extend(path.map(|path| (id, path.as_bytes().to_vec())));
                    }
                    None => {}
                }
            }
            What::File { size: *size, inode: entry.ino, device: entry.dev, sparse: *sparse, linked }
        }
    }
}

fn manifest_entry(id: u64, path: Vec<u8>, entry: &Entry, what: What) -> ManifestEntry {
    let Time { secs, nanos } = entry.mtime;
    let attributes = Attributes::new();
    ManifestEntry { id, path, mode: entry.mode, mtime_secs: secs, mtime_nanos: nanos, what, attributes }
}
