//! Turns the scan's entries into messages and outstanding entries, as fast as the receiver keeps up.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use farhaul_handover::Held as _;
use farhaul_session::producer_token::ProducerToken;
use farhaul_volume::{
    Attributes, CHUNK, Entry, EntryKind, FileTime, RelPath, ScanItem, Scanner, Selection, SourceRef,
};
use farhaul_words::{Error, Event, Misbehaviour, Stage};

use super::super::chunked_file::FileJob;
use super::super::failures::{self, Failure};
use super::super::manifest::{EntryFate, ManifestRecord};
use super::super::messages::{CopyMessage, EntryContent, ManifestEntry, Presence};
use super::super::report::FailedAction;
use super::super::sender::{CopySender, CopySource, ScanPlan};
use super::link_ids::{LinkIds, LinkPlace};
use super::outstanding_entries::Booking;
use super::table::PendingEntry;
use crate::options::DeleteWhen;

/// The most files that may be outstanding while content waits to be sent: on a slow link, content must not
/// wait behind names for long.
pub(super) const OUTSTANDING: usize = 32 << 10;
/// The most outstanding entries, unfinished directories among them, while no content waits, as in a tree that
/// has not changed. At a round trip of 200 ms that still is a million a second. The receiver allows twice as
/// many.
pub(super) const OUTSTANDING_MAX: usize = 256 << 10;
/// The most bytes of their names and attributes. The receiver allows four times as many.
pub(super) const OUTSTANDING_BYTES_MAX: usize = 64 << 20;
/// More than [`OUTSTANDING`] files may be announced only while at most this many bytes of names are unsent.
const NAMES_UNSENT_MAX: u64 = 512 << 10;
/// The number of scanned items whose messages are sent together: a lock and a wake-up for each would cost more
/// than the entry. The first entries are sent sooner.
const BATCH: usize = 64;

impl CopySender {
    pub(super) fn announce(&self, origin: CopySource, _scanning: ProducerToken) {
        match origin {
            CopySource::Pipe { name } => self.announce_pipe(name),
            CopySource::Scan(scan) => self.announce_scan(*scan),
            CopySource::Awaited(awaited) => {
                let Some(more) = self.paths.wait(|| self.shared.request.is_stopped()) else { return };
                match awaited.open(more, self.shared.request.budget()) {
                    Ok(scan) => self.announce_scan(scan),
                    // Whoever talks to the receiver refuses the request with this error.
                    Err(error) => return *self.refusal.lock().whole() = Some(error),
                }
            }
        }
        if self.shared.request.is_stopped() {
            // Not everything may have been announced.
            return;
        }
        self.table.end_entries();
        self.shared.request.handle().counts().scan_done.store(true, Relaxed);
        self.shared.send(&[CopyMessage::EntriesEnd]);
    }

    fn announce_pipe(&self, name: RelPath) {
        let kind = EntryKind::Stream { is_pipe: true };
        let (mtime, ctime) = (FileTime::now(), FileTime::default());
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let entry = Entry { kind, mode: 0o644, mtime, ctime, dev: 0, ino: 0, nlink: 1, uid, gid };
        let told = manifest_entry(0, name.as_bytes().to_vec(), &entry, EntryContent::Stream);
        let record =
            self.log.as_ref().map(|_| Box::new(ManifestRecord::of_entry(&told, EntryFate::Sent, None)));
        let booking = Booking::new(&self.outstanding, told.names_bytes(), None);
        let job = file_job(0, entry, SourceRef::standard_input(), name);
        self.table.announce(0);
        self.admit(&told, Some(job), record, booking);
        self.shared.send(&[CopyMessage::Entry(told)]);
    }

    fn announce_scan(&self, mut scan: ScanPlan) {
        if scan.awaits_names {
            let Some(names) = self.names.wait(|| self.shared.request.is_stopped()) else { return };
            match Selection::new(names) {
                Ok(only) => scan.options.only = Some(only),
                Err(error) => {
                    return self.shared.request.fail(Error::misbehaved(
                        Misbehaviour::BadName,
                        format!("it asked for a name: {error}"),
                    ));
                }
            }
        }
        if scan.delete.is_some()
            && let Some(root) = scan.root()
        {
            *self.source_root.lock().whole() = Some(root);
            self.shared.send(&[CopyMessage::SourceRoot(root)]);
        }
        if scan.delete == Some(DeleteWhen::Before) {
            self.list_ahead(scan.scanner());
        }
        self.announce_tree(scan.scanner(), scan.delete == Some(DeleteWhen::After));
    }

    /// Sends the list of what will come, ahead of any entry.
    fn list_ahead(&self, mut scanner: Scanner) {
        let mut batch = Vec::new();
        let mut is_complete = true;
        while self.shared.request.wait_while_paused() {
            let (path, presence) = match scanner.next() {
                None => break,
                Some(ScanItem::Failed { .. }) => {
                    is_complete = false;
                    continue;
                }
                // A vanished entry does not exist. A directory that vanished while it was listed may have had
                // more entries.
                Some(ScanItem::Vanished { is_open: false, .. }) => continue,
                Some(ScanItem::Vanished { path, is_open: true }) => match RelPath::try_from(path) {
                    Ok(path) => (path, Presence::DirectoryUnlisted),
                    Err(_) => {
                        is_complete = false;
                        continue;
                    }
                },
                Some(ScanItem::LeftOut { path }) => (path, Presence::Plain),
                Some(ScanItem::Unlisted { path }) => (path, Presence::DirectoryUnlisted),
                Some(ScanItem::DirEnd { path, .. }) => (path, Presence::DirectoryEnd),
                Some(ScanItem::Entry { path, entry, .. }) => match entry.kind {
                    EntryKind::Dir => (path, Presence::Directory),
                    EntryKind::File { .. }
                    | EntryKind::Stream { .. }
                    | EntryKind::Symlink { .. }
                    | EntryKind::Special(_) => (path, Presence::Plain),
                },
            };
            batch.push(CopyMessage::Present { path: path.into_bytes(), presence });
            if batch.len() >= BATCH {
                self.shared.send(&std::mem::take(&mut batch));
            }
        }
        // The receiver must not take a list that broke off for a complete one.
        let is_complete = is_complete && !self.shared.request.is_stopped();
        batch.push(CopyMessage::PresentEnd { is_complete });
        self.shared.send(&batch);
    }

    /// Announces the entries. `says_all`: name also the entries that exist but are not sent.
    fn announce_tree(&self, mut scanner: Scanner, says_all: bool) {
        let meter = self.shared.request.meter(Stage::Scan);
        let mut tree = TreeAnnouncement {
            sender: self,
            says_all,
            next_id: 0,
            directories: Vec::new(),
            links: LinkIds::default(),
            batch: Vec::new(),
        };
        let mut unsent = 0;
        while self.shared.request.wait_while_paused() {
            let Some(item) = meter.time(|| scanner.next()) else { break };
            let first_id = tree.next_id;
            tree.take(item);
            self.doubted_links.store(scanner.doubted_links(), Relaxed);
            unsent += 1;
            let is_early = tree.next_id > first_id && tree.next_id.is_power_of_two();
            if unsent >= BATCH || is_early {
                tree.send_batch();
                unsent = 0;
            }
        }
        tree.send_batch();
    }

    /// Books an entry other than a directory as outstanding.
    fn admit(
        &self,
        entry: &ManifestEntry,
        job: Option<Arc<FileJob>>,
        record: Option<Box<ManifestRecord>>,
        booking: Booking,
    ) {
        let size = entry.size();
        let (job, as_file) = match entry.what {
            EntryContent::HardLink { .. } => (None, job),
            _ => (job, None),
        };
        let unread = job.is_some().then(|| ProducerToken::new(&self.shared.request));
        let pending = PendingEntry::new(size, job, unread, record, booking).or_file(as_file);
        self.table.admit(entry.id, pending);
        if matches!(entry.what, EntryContent::File { .. } | EntryContent::Stream) {
            self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
            self.shared.request.handle().counts().bytes_total.fetch_add(size, Relaxed);
        }
    }

    fn may_announce(&self, files: usize) -> bool {
        let has_time = || !self.queue.is_waiting() && self.shared.request.unsent() <= NAMES_UNSENT_MAX;
        // If only directories are outstanding, there are at most as many as a path has levels, and waiting
        // would not finish any.
        files == 0 || self.outstanding.has_room() && (files < OUTSTANDING || has_time())
    }
}

/// The announcement of a tree, as far as it has come.
struct TreeAnnouncement<'a> {
    sender: &'a CopySender,
    /// Name also the entries that exist but are not sent.
    says_all: bool,
    next_id: u64,
    /// The directories that are open, from the outermost to the one that is being listed.
    directories: Vec<(u64, Arc<Booking>)>,
    links: LinkIds,
    /// Messages that are not sent yet.
    batch: Vec<CopyMessage>,
}

impl TreeAnnouncement<'_> {
    fn take(&mut self, item: ScanItem) {
        match item {
            ScanItem::Failed { path, error } => {
                let failure = match error.kind() {
                    // Only the entry's name is at fault.
                    ErrorKind::AlreadyExists => Failure::of(&error),
                    _ => Failure::cannot("read", &error),
                };
                self.fail(path, failure);
            }
            ScanItem::Vanished { path, is_open } => {
                self.fail(path.clone(), failures::vanished());
                if is_open {
                    self.leave_out(path);
                }
            }
            ScanItem::LeftOut { path } => self.leave_out(path.into_bytes()),
            ScanItem::Unlisted { path } => {
                self.sender.shared.request.handle().tell_detail(|| Event::NotEntered {
                    path: path.to_string(),
                    reason: "something is mounted there".into(),
                });
                self.leave_out(path.into_bytes());
            }
            ScanItem::DirEnd { .. } => {
                if let Some((id, _)) = self.directories.pop() {
                    self.batch.push(CopyMessage::DirectoryEnd { id });
                }
            }
            ScanItem::Entry { path, entry, handle } => self.entry(path, entry, handle),
        }
    }

    fn entry(&mut self, path: RelPath, mut entry: Entry, source: SourceRef) {
        let sender = self.sender;
        if let (true, EntryKind::File { sparse, .. }) = (sender.in_order, &mut entry.kind) {
            *sparse = false;
        }
        if let Some(why) = sender.taking.reason_to_skip(path.as_bytes(), &entry.kind) {
            return self.skip(path, why);
        }
        let id = self.next_id;
        let what = describe(&entry, &mut self.links, id, &path, sender.log.is_some());
        let Some(attributes) = self.attributes(&path, &entry, &what, &source) else { return };
        let told = manifest_entry(id, path.as_bytes().to_vec(), &entry, what);
        let owner = match told.what {
            // The file that it links to has it.
            EntryContent::HardLink { .. } => None,
            _ => sender.owners.of(entry.uid, entry.gid),
        };
        let told = ManifestEntry { attributes, owner, ..told };
        let record = sender.log.as_ref().map(|_| {
            let to =
                if let EntryContent::HardLink { to } = told.what { self.links.path_of(to) } else { None };
            Box::new(ManifestRecord::of_entry(&told, EntryFate::Sent, to))
        });
        self.wait_for_room();
        let above = self.directories.last().map(|(_, above)| above.clone());
        let booking = Booking::new(&sender.outstanding, told.names_bytes(), above);
        if told.what == EntryContent::Directory {
            self.directories.push((id, Arc::new(booking)));
            if let Some(record) = record {
                sender.directories.add(id, record);
            }
        } else {
            let has_content = matches!(told.what, EntryContent::File { .. } | EntryContent::Stream);
            let is_link = matches!(told.what, EntryContent::HardLink { .. });
            let job = (has_content || is_link).then(|| file_job(id, entry, source, path));
            sender.admit(&told, job, record, booking);
        }
        self.batch.push(CopyMessage::Entry(told));
        self.next_id += 1;
    }

    /// Reads the attributes of an entry. Returns `None` if the entry has vanished; then that is reported.
    fn attributes(
        &mut self,
        path: &RelPath,
        entry: &Entry,
        what: &EntryContent,
        source: &SourceRef,
    ) -> Option<Attributes> {
        let error = match self.sender.taking.attributes(what, source) {
            Ok(found) => {
                if let Some(why) = found.left_out {
                    self.not_read(path, format!("cannot read its extended attributes: {why}"));
                }
                return Some(found.taken);
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::NotFound {
            let Failure { reason, .. } = Failure::cannot("read its extended attributes", &error);
            self.not_read(path, reason);
            return Some(Attributes::new());
        }
        if *what == EntryContent::Directory {
            // The listing of the directory reports this itself.
            return Some(Attributes::new());
        }
        if matches!(what, EntryContent::File { linked: true, .. }) {
            self.links.forget(entry);
        }
        self.fail(path.as_bytes().to_vec(), failures::vanished());
        None
    }

    /// Reports an entry that lacks some of its metadata, as they cannot be read or sent.
    fn not_read(&mut self, path: &RelPath, reason: String) {
        self.sender.lists.add_not_set(path.as_bytes(), &reason);
        self.batch.push(CopyMessage::NotSet { path: path.as_bytes().to_vec(), reason });
    }

    /// Reports an entry that is not sent, since it cannot be read or has vanished.
    fn fail(&mut self, path: Vec<u8>, failure: Failure) {
        self.sender.fail(&path, &failure, FailedAction::Copy, None);
        self.batch.push(CopyMessage::SourceFailed { path, failure });
    }

    /// Reports an entry of a kind that was not asked for.
    fn skip(&mut self, path: RelPath, why: &str) {
        self.sender.lists.add_skipped(path.as_bytes(), why);
        if let Some(log) = &self.sender.log {
            log.add(ManifestRecord::of_path(path.as_bytes(), EntryFate::Skipped).because(why));
        }
        if !self.sender.is_client {
            let reason = why.to_string();
            self.batch.push(CopyMessage::Skipped { path: path.as_bytes().to_vec(), reason });
        }
        self.leave_out(path.into_bytes());
    }

    /// Tells a receiver that deletes of an entry that exists but is not sent.
    fn leave_out(&mut self, path: Vec<u8>) {
        if self.says_all {
            self.batch.push(CopyMessage::LeftOut { path });
        }
    }

    /// Waits while too many entries are outstanding. Then lets the receiver speak of the next entry.
    fn wait_for_room(&mut self) {
        let (sender, id) = (self.sender, self.next_id);
        let may_announce = |entries| sender.may_announce(entries) || sender.shared.request.is_stopped();
        // The receiver cannot answer for entries that it has not seen, so the batch is sent before the wait.
        let send_batch = (!self.batch.is_empty()).then_some(|| self.send_batch());
        sender.table.announce_when(id, may_announce, send_batch);
    }

    fn send_batch(&mut self) {
        self.sender.shared.send(&self.batch);
        self.batch.clear();
    }
}

fn file_job(id: u64, entry: Entry, source: SourceRef, path: RelPath) -> Arc<FileJob> {
    let size = if let EntryKind::File { size, .. } = entry.kind { size } else { 0 };
    let (digest, put, streamed) = Default::default();
    Arc::new(FileJob { id, size, entry, source, path, is_renewed: false, digest, put, streamed })
}

/// Describes an entry for its message. `keeps_paths`: remember the paths of linked files for hard links in
/// the manifest.
fn describe(entry: &Entry, links: &mut LinkIds, id: u64, path: &RelPath, keeps_paths: bool) -> EntryContent {
    match &entry.kind {
        EntryKind::Dir => EntryContent::Directory,
        EntryKind::Stream { .. } => EntryContent::Stream,
        EntryKind::Symlink { target } => EntryContent::Symlink { target: target.clone() },
        EntryKind::Special(node) => EntryContent::Special(*node),
        EntryKind::File { size, sparse } => {
            let linked = match (entry.nlink > 1).then(|| links.place(entry, id, path, keeps_paths)) {
                Some(LinkPlace::After(to)) => return EntryContent::HardLink { to },
                Some(LinkPlace::First) => true,
                Some(LinkPlace::Alone) | None => false,
            };
            file(entry, *size, *sparse, linked)
        }
    }
}

pub(super) fn file(entry: &Entry, size: u64, sparse: bool, linked: bool) -> EntryContent {
    let ctime = if size > CHUNK { entry.ctime } else { FileTime::default() };
    EntryContent::File { size, inode: entry.ino, device: entry.dev, ctime, sparse, linked }
}

pub(super) fn manifest_entry(id: u64, path: Vec<u8>, entry: &Entry, what: EntryContent) -> ManifestEntry {
    let FileTime { secs, nanos } = entry.mtime;
    let attributes = Attributes::new();
    let (mode, owner) = (entry.mode, None);
    ManifestEntry { id, path, mode, mtime_secs: secs, mtime_nanos: nanos, what, attributes, owner }
}
