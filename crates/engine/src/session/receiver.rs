//! The receiving end of a transfer: it decides what it wants, writes what comes, and puts each file under its name when
//! it is whole.
//!
//! Threads: the caller's handles the manifest and everything that the sender says; writers take complete blocks
//! (`writer.rs`). An entry stays in the table until it is in its place or has failed, and the sender is told which.
//!
//! Always true: a directory gets its mode and time after the last of its entries is done; whatever breaks the rules of
//! the manifest ends the session before anything of it is created.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_store::{CHUNK, Identity, Partial, PartialError, RelPath, Time};

use super::destination::Target;
use super::end::End;
use super::failures::{Failures, plain};
use super::links::Links;
use super::shared::Shared;
use super::supervisor::{Step, Supervisor};
use super::tree::{Directory, Tree};
use super::writer::{self, Incoming, Kind};
use crate::error::Error;
use crate::messages::{Decision, EndFigures, ManifestEntry, Message, What};
use crate::options::{Overwrite, TransferOptions, Verify};

/// Files that a sender may have announced and unfinished; ours stop at half of it.
const OUTSTANDING_MAX: usize = 64 << 10;
/// Larger files get a journal; what is lost of smaller ones in a crash is sent again sooner than a journal is written.
const JOURNAL_MIN: u64 = 4 << 20;
/// How long a partial file that another transfer holds is waited for: its peer may have been killed a moment ago.
const LOCK_WAIT: Duration = Duration::from_secs(15);

/// What becomes of the transfer's entries.
pub(crate) enum Destination {
    Tree(Target),
    /// Standard output takes one file.
    Pipe,
}

/// How files are received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) overwrite: Overwrite,
    pub(crate) verify: Verify,
    pub(crate) durable: bool,
    pub(crate) dry_run: bool,
    /// Mode bits that may be set.
    pub(crate) mode_mask: u32,
}

impl Rules {
    pub(crate) fn new(options: &TransferOptions, strip_setuid: bool) -> Rules {
        let strip_setuid = strip_setuid || !options.keep_setuid;
        Rules {
            overwrite: options.overwrite,
            verify: options.verify,
            durable: options.durable,
            dry_run: options.dry_run,
            mode_mask: if strip_setuid { 0o1777 } else { 0o7777 },
        }
    }
}

/// State that the receiving end's threads share.
pub(crate) struct Receiver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) destination: Destination,
    pub(crate) rules: Rules,
    pub(crate) files: Mutex<HashMap<u64, Arc<Incoming>>>,
    /// Writers that have taken something out of the tables and not told the sender yet.
    pub(crate) settling: AtomicU64,
    tree: Mutex<Tree>,
    links: Mutex<Links>,
    failures: Failures,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    links: AtomicU64,
    directories: AtomicU64,
    skipped: AtomicU64,
    bytes_resumed: AtomicU64,
    /// Content bytes that a dry run would have moved.
    bytes_listed: AtomicU64,
}

/// What only the conversing thread knows.
#[derive(Default)]
struct Conversation {
    next_id: u64,
    entries_done: bool,
    finish_sent: bool,
    replies: Vec<Message>,
    /// Large files whose partial another transfer still holds.
    locked: Vec<(ManifestEntry, RelPath, Option<u64>, Instant)>,
}

const LOCK: &str = "no thread panics while it holds the receiver's tables";

/// Runs the receiving end to its end.
pub(crate) fn run(
    supervisor: &mut Supervisor,
    destination: Destination,
    rules: Rules,
    writers: usize,
) -> (End, Option<Error>) {
    let shared = supervisor.shared.clone();
    let writers = if matches!(destination, Destination::Pipe) { 1 } else { writers };
    let (finish, finishing) = crossbeam_channel::unbounded();
    let receiver = Receiver {
        shared: shared.clone(),
        destination,
        rules,
        files: Mutex::default(),
        settling: AtomicU64::new(0),
        tree: Mutex::default(),
        links: Mutex::default(),
        failures: Failures::default(),
        counts: Counts::default(),
    };
    let ended = std::thread::scope(|scope| {
        let receiver = &receiver;
        for _ in 0..writers {
            let (finish, finishing) = (finish.clone(), finishing.clone());
            let work = move || writer::run(receiver, &finish, &finishing);
            std::thread::Builder::new()
                .name("write".into())
                .spawn_scoped(scope, work)
                .map_err(Error::io("cannot start a thread"))?;
        }
        let ended = receiver.converse(supervisor, &finish);
        // The writers end with the session's flag; on success everything has been written already.
        receiver.shared.stop_writers();
        if let Err(error) = &ended {
            receiver.shared.set_goodbye(error.to_string());
            receiver.shared.stop();
        }
        ended
    });
    match ended {
        Ok(theirs) => (receiver.end(supervisor, theirs), None),
        Err(error) => (receiver.end(supervisor, EndFigures::default()), Some(error)),
    }
}

impl Receiver {
    fn converse(
        &self,
        supervisor: &mut Supervisor,
        finish: &crossbeam_channel::Sender<Arc<Incoming>>,
    ) -> Result<EndFigures, Error> {
        let mut conversation = Conversation::default();
        loop {
            match supervisor.step()? {
                Step::Message(Message::Finish(theirs)) if conversation.finish_sent => {
                    return Ok(theirs);
                }
                Step::Message(message) => {
                    self.handle(message, &mut conversation, finish)?;
                    if conversation.replies.len() >= 256 {
                        self.shared.send(&std::mem::take(&mut conversation.replies));
                    }
                }
                Step::Idle => {
                    self.retry_locked(&mut conversation)?;
                    self.shared.send(&std::mem::take(&mut conversation.replies));
                    self.finish_if_done(supervisor, &mut conversation);
                }
            }
        }
    }

    fn finish_if_done(&self, supervisor: &Supervisor, conversation: &mut Conversation) {
        if conversation.finish_sent || !conversation.entries_done || !conversation.locked.is_empty() {
            return;
        }
        if !self.files.lock().expect(LOCK).is_empty() || !self.tree.lock().expect(LOCK).is_done() {
            return;
        }
        // Looked at last: a file leaves the table before its writer has told the sender.
        if self.settling.load(Ordering::SeqCst) > 0 {
            return;
        }
        conversation.finish_sent = true;
        let count = self.counts.directories.load(Relaxed);
        self.shared.send(&[Message::DirectoriesDone { count }, Message::Finish(supervisor.figures())]);
    }

    fn end(&self, supervisor: &Supervisor, theirs: EndFigures) -> End {
        End {
            files: self.counts.files.load(Relaxed),
            directories: self.counts.directories.load(Relaxed),
            links: self.counts.links.load(Relaxed),
            skipped: self.counts.skipped.load(Relaxed),
            bytes: self.shared.content_written.load(Relaxed) + self.counts.bytes_listed.load(Relaxed),
            bytes_resumed: self.counts.bytes_resumed.load(Relaxed),
            failures: self.failures.take(),
            ours: supervisor.figures(),
            theirs,
        }
    }

    fn handle(
        &self,
        message: Message,
        conversation: &mut Conversation,
        finish: &crossbeam_channel::Sender<Arc<Incoming>>,
    ) -> Result<(), Error> {
        match message {
            Message::Entry(entry) => self.entry(entry, conversation),
            Message::DirectoryEnd { id } => {
                let done = self.tree.lock().expect(LOCK).end(id)?;
                self.finish_directories(done);
                Ok(())
            }
            Message::SourceFailed { path, reason } => {
                self.failures.add(&path, &reason);
                self.shared.progress.failed.fetch_add(1, Relaxed);
                Ok(())
            }
            Message::FileEnd { id, size, chunks } => {
                let file = self.files.lock().expect(LOCK).get(&id).cloned();
                if let Some(file) = file
                    && file.expect_end(size, chunks)
                {
                    let _ = finish.send(file);
                }
                Ok(())
            }
            Message::FileFailed { id, reason } => {
                if let Some(file) = self.take(id) {
                    file.abandon();
                    self.settle_failure(&file, &reason);
                }
                Ok(())
            }
            Message::EntriesEnd => {
                conversation.entries_done = true;
                self.shared.progress.scan_done.store(true, Relaxed);
                Ok(())
            }
            other => Err(Error::Misbehaved(format!("unexpected message {}", other.name()))),
        }
    }

    // ---- entries -----------------------------------------------------------------------------------------------

    fn entry(&self, entry: ManifestEntry, conversation: &mut Conversation) -> Result<(), Error> {
        if entry.id != conversation.next_id || conversation.entries_done {
            return Err(Error::Misbehaved(format!("entry {} came out of order", entry.id)));
        }
        conversation.next_id += 1;
        let Destination::Tree(target) = &self.destination else {
            return self.pipe_entry(entry, conversation);
        };
        let path = target.place(&entry.path)?;
        let parent = self.tree.lock().expect(LOCK).add(&path)?;
        match &entry.what {
            What::Directory => self.directory(target, &entry, path, parent),
            What::Symlink { target: to } => {
                let made = self.symlink(target, &entry, &path, to);
                self.settle_link(&entry, &path, parent, made, conversation);
                Ok(())
            }
            What::HardLink { to } => self.hard_link(target, &entry, path, parent, *to, conversation),
            What::File { .. } | What::Stream => {
                self.shared.progress.files_total.fetch_add(1, Relaxed);
                self.file(target, entry, path, parent, conversation)
            }
        }
    }

    fn directory(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
    ) -> Result<(), Error> {
        let made = if self.rules.dry_run { Ok(()) } else { target.root.create_dir(&path) };
        let is_made = made.is_ok();
        if let Err(error) = made {
            self.fail(entry.id, &path, &format!("cannot create the directory: {}", plain(&error)));
        }
        let mtime = Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos };
        let mode = entry.mode & self.rules.mode_mask;
        self.tree.lock().expect(LOCK).open(Directory {
            id: entry.id,
            path,
            mode,
            mtime,
            is_made,
            ..Directory::below(parent)
        })
    }

    fn symlink(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: &RelPath,
        to: &[u8],
    ) -> Result<Made, String> {
        let existing = target.root.metadata(path).map_err(|error| plain(&error))?;
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err("a directory is in its place".into());
            }
            if self.keeps(existing, (entry.mtime_secs, entry.mtime_nanos)) {
                return Ok(Made::Skipped);
            }
            if target.root.read_link(path).is_ok_and(|there| there == to) {
                return Ok(Made::Skipped);
            }
        }
        if self.rules.dry_run {
            return Ok(Made::New);
        }
        let mtime = Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos };
        target
            .root
            .symlink(to, path, mtime)
            .map_err(|error| format!("cannot create the link: {}", plain(&error)))?;
        Ok(Made::New)
    }

    fn hard_link(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        to: u64,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let waiting = self.links.lock().expect(LOCK).request(to, entry.id, &path, parent)?;
        if let Some(state) = waiting {
            let made = self.make_hard_link(target, state, &path);
            self.settle_link(entry, &path, parent, made, conversation);
        }
        Ok(())
    }

    fn make_hard_link(&self, target: &Target, to: Option<RelPath>, path: &RelPath) -> Result<Made, String> {
        let Some(to) = to else { return Err("the file that it is a link to failed".into()) };
        if self.rules.dry_run {
            return Ok(Made::New);
        }
        let cannot = |error: std::io::Error| format!("cannot create the link: {}", plain(&error));
        let same = |a: &Option<farhaul_store::Meta>, b: &Option<farhaul_store::Meta>| match (a, b) {
            (Some(a), Some(b)) => (a.dev, a.ino) == (b.dev, b.ino),
            _ => false,
        };
        let (there, source) =
            (target.root.metadata(path).map_err(cannot)?, target.root.metadata(&to).map_err(cannot)?);
        let newest = source.as_ref().map_or((i64::MAX, 0), |source| (source.mtime.secs, source.mtime.nanos));
        if same(&there, &source) || there.as_ref().is_some_and(|there| self.keeps(there, newest)) {
            return Ok(Made::Skipped);
        }
        target.root.hardlink(&to, path).map_err(cannot)?;
        Ok(Made::New)
    }

    /// Whether the rule on overwriting protects what is there from something of time `theirs`.
    fn keeps(&self, existing: &farhaul_store::Meta, theirs: (i64, u32)) -> bool {
        match self.rules.overwrite {
            Overwrite::Never => true,
            Overwrite::Older => (existing.mtime.secs, existing.mtime.nanos) >= theirs,
            Overwrite::Always | Overwrite::Different => false,
        }
    }

    fn settle_link(
        &self,
        entry: &ManifestEntry,
        path: &RelPath,
        parent: Option<u64>,
        made: Result<Made, String>,
        conversation: &mut Conversation,
    ) {
        match made {
            Ok(Made::New) => {
                self.counts.links.fetch_add(1, Relaxed);
                conversation.replies.push(Message::Done { id: entry.id });
            }
            Ok(Made::Skipped) => {
                self.counts.skipped.fetch_add(1, Relaxed);
                conversation.replies.push(Message::Decide { id: entry.id, decision: Decision::Skip });
            }
            Err(reason) => self.fail(entry.id, path, &reason),
        }
        self.child_done(parent);
    }

    fn file(
        &self,
        target: &Target,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let size = if let What::File { size, .. } = entry.what { size } else { 0 };
        self.shared.progress.bytes_total.fetch_add(size, Relaxed);
        if let What::File { linked: true, .. } = entry.what {
            self.links.lock().expect(LOCK).expect(entry.id);
        }
        match self.wants(target, &entry, &path) {
            Err(reason) => self.refuse(entry.id, &path, parent, &reason),
            Ok(false) => self.skip(&entry, &path, parent, size, conversation),
            Ok(true) if self.rules.dry_run => {
                self.counts.bytes_listed.fetch_add(size, Relaxed);
                self.shared.progress.notice(format!("would receive {path} ({size} bytes)"));
                self.counts.files.fetch_add(1, Relaxed);
                conversation.replies.push(Message::Decide { id: entry.id, decision: Decision::Listed });
                self.link_target_done(entry.id, Some(&path));
                self.child_done(parent);
            }
            Ok(true) if matches!(entry.what, What::Stream) => {
                match writer::Stream::create(&target.root, &path) {
                    Ok(stream) => {
                        self.accept(entry, path, parent, Kind::Stream(stream), Decision::Send, conversation)?
                    }
                    Err(error) => {
                        self.refuse(entry.id, &path, parent, &format!("cannot create: {}", plain(&error)))
                    }
                }
            }
            Ok(true) if size <= CHUNK => {
                self.accept(entry, path, parent, Kind::Whole, Decision::Send, conversation)?;
            }
            Ok(true) => {
                let deadline = Instant::now() + LOCK_WAIT;
                self.open_partial(entry, path, parent, deadline, conversation)?;
            }
        }
        Ok(())
    }

    /// Whether the file is to be sent, by what is in its place.
    fn wants(&self, target: &Target, entry: &ManifestEntry, path: &RelPath) -> Result<bool, String> {
        let existing =
            target.root.metadata(path).map_err(|error| format!("cannot look it up: {}", plain(&error)))?;
        let Some(existing) = existing else { return Ok(true) };
        if existing.is_dir() {
            return Err("a directory is in its place".into());
        }
        let ours = (existing.mtime.secs, existing.mtime.nanos);
        let theirs = (entry.mtime_secs, entry.mtime_nanos);
        Ok(match self.rules.overwrite {
            Overwrite::Always => true,
            Overwrite::Never => false,
            Overwrite::Older => ours < theirs,
            Overwrite::Different => match entry.what {
                What::File { size, .. } => !(existing.is_file() && existing.size == size && ours == theirs),
                _ => true,
            },
        })
    }

    fn skip(
        &self,
        entry: &ManifestEntry,
        path: &RelPath,
        parent: Option<u64>,
        size: u64,
        conversation: &mut Conversation,
    ) {
        self.counts.skipped.fetch_add(1, Relaxed);
        self.shared.progress.bytes_skipped.fetch_add(size, Relaxed);
        self.shared.progress.bytes_done.fetch_add(size, Relaxed);
        self.shared.progress.files_done.fetch_add(1, Relaxed);
        conversation.replies.push(Message::Decide { id: entry.id, decision: Decision::Skip });
        self.link_target_done(entry.id, Some(path));
        self.child_done(parent);
    }

    fn open_partial(
        &self,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        deadline: Instant,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        let What::File { size, inode, device, sparse, .. } = entry.what else { return Ok(()) };
        let mtime = Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos };
        let identity = Identity { size, mtime, ino: inode, dev: device, sparse };
        let partial = match Partial::open(&target.root, &path, &identity, size >= JOURNAL_MIN) {
            Ok(partial) => partial,
            Err(PartialError::Locked) if Instant::now() < deadline => {
                conversation.locked.push((entry, path, parent, deadline));
                return Ok(());
            }
            Err(error) => {
                self.refuse(entry.id, &path, parent, &error.to_string());
                return Ok(());
            }
        };
        let have = partial.have_ranges();
        let resumed = super::read_queue::Large::bytes_of(&have, size);
        if !sparse
            && let Ok(free) = target.root.free_bytes()
            && free < size.saturating_sub(partial.allocated_bytes())
        {
            let reason = format!("no space left ({} needed, {} free)", bytes(size - resumed), bytes(free));
            partial.discard_if_empty();
            self.refuse(entry.id, &path, parent, &reason);
            return Ok(());
        }
        self.counts.bytes_resumed.fetch_add(resumed, Relaxed);
        self.shared.progress.bytes_done.fetch_add(resumed, Relaxed);
        let decision = if have.is_empty() { Decision::Send } else { Decision::Have(have) };
        self.accept(entry, path, parent, Kind::chunked(partial), decision, conversation)
    }

    fn retry_locked(&self, conversation: &mut Conversation) -> Result<(), Error> {
        for (entry, path, parent, deadline) in std::mem::take(&mut conversation.locked) {
            self.open_partial(entry, path, parent, deadline, conversation)?;
        }
        Ok(())
    }

    fn accept(
        &self,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        kind: Kind,
        decision: Decision,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let id = entry.id;
        if matches!(kind, Kind::Whole) && matches!(entry.what, What::File { size: 0, .. }) {
            // Nothing to wait for: an empty file is complete with its entry.
            let file = Incoming::new(entry, path, parent, kind);
            let written = file.write_whole(self, &[]);
            self.settle(&file, written, &mut conversation.replies);
            return Ok(());
        }
        let mut files = self.files.lock().expect(LOCK);
        if files.len() >= OUTSTANDING_MAX {
            return Err(Error::Misbehaved("it announced more files than may be outstanding".into()));
        }
        files.insert(id, Arc::new(Incoming::new(entry, path, parent, kind)));
        conversation.replies.push(Message::Decide { id, decision });
        Ok(())
    }

    fn pipe_entry(&self, entry: ManifestEntry, conversation: &mut Conversation) -> Result<(), Error> {
        let size = match entry.what {
            What::File { size, .. } => size,
            What::Stream => 0,
            _ => return Err(Error::Usage("only a single file can go to standard output".into())),
        };
        if entry.id != 0 {
            return Err(Error::Usage("only a single file can go to standard output".into()));
        }
        self.shared.progress.bytes_total.fetch_add(size, Relaxed);
        self.shared.progress.files_total.fetch_add(1, Relaxed);
        let name = RelPath::from_bytes(b"-").expect("a plain name");
        let id = entry.id;
        self.tree.lock().expect(LOCK).add(&name)?;
        if self.rules.dry_run {
            self.counts.files.fetch_add(1, Relaxed);
            self.counts.bytes_listed.fetch_add(size, Relaxed);
            conversation.replies.push(Message::Decide { id, decision: Decision::Listed });
            self.child_done(None);
            return Ok(());
        }
        let is_file = matches!(entry.what, What::File { .. });
        if is_file && size == 0 {
            let file = Incoming::new(entry, name, None, Kind::pipe());
            self.settle(&file, Ok(()), &mut conversation.replies);
            return Ok(());
        }
        self.accept(entry, name, None, Kind::pipe(), Decision::Send, conversation)?;
        // A file of one chunk comes as one piece, without a word on its end.
        if is_file
            && size <= CHUNK
            && let Some(file) = self.files.lock().expect(LOCK).get(&id)
        {
            file.expect_end(size, 1);
        }
        Ok(())
    }

    // ---- settling ----------------------------------------------------------------------------------------------

    pub(crate) fn take(&self, id: u64) -> Option<Arc<Incoming>> {
        self.files.lock().expect(LOCK).remove(&id)
    }

    /// Books a file that was in the table (or never entered it) as in its place or as failed.
    pub(crate) fn settle(&self, file: &Incoming, result: Result<(), String>, replies: &mut Vec<Message>) {
        match result {
            Ok(()) => {
                self.counts.files.fetch_add(1, Relaxed);
                self.shared.progress.files_done.fetch_add(1, Relaxed);
                self.shared.progress.detail(|| file.path.to_string());
                replies.push(Message::Done { id: file.entry.id });
                self.link_target_done(file.entry.id, Some(&file.path));
                self.child_done(file.parent);
            }
            Err(reason) => {
                replies.push(self.failed(file.entry.id, &file.path, &reason));
                self.link_target_done(file.entry.id, None);
                self.child_done(file.parent);
            }
        }
    }

    /// The sender knows of the failure already.
    fn settle_failure(&self, file: &Incoming, reason: &str) {
        self.shared.send(&[self.failed(file.entry.id, &file.path, reason)]);
        self.link_target_done(file.entry.id, None);
        self.child_done(file.parent);
    }

    fn refuse(&self, id: u64, path: &RelPath, parent: Option<u64>, reason: &str) {
        self.fail(id, path, reason);
        self.link_target_done(id, None);
        self.child_done(parent);
    }

    fn fail(&self, id: u64, path: &RelPath, reason: &str) {
        let message = self.failed(id, path, reason);
        self.shared.send(&[message]);
    }

    fn failed(&self, id: u64, path: &RelPath, reason: &str) -> Message {
        self.failures.add(path.as_bytes(), reason);
        self.shared.progress.failed.fetch_add(1, Relaxed);
        Message::Failed { id, path: path.as_bytes().to_vec(), reason: reason.to_string() }
    }

    fn link_target_done(&self, id: u64, path: Option<&RelPath>) {
        let waiting = self.links.lock().expect(LOCK).settle(id, path);
        let Destination::Tree(target) = &self.destination else { return };
        for link in waiting {
            let made = self.make_hard_link(target, path.cloned(), &link.path);
            let reply = match made {
                Ok(Made::New) => {
                    self.counts.links.fetch_add(1, Relaxed);
                    Message::Done { id: link.id }
                }
                Ok(Made::Skipped) => {
                    self.counts.skipped.fetch_add(1, Relaxed);
                    Message::Decide { id: link.id, decision: Decision::Skip }
                }
                Err(reason) => self.failed(link.id, &link.path, &reason),
            };
            self.shared.send(&[reply]);
            self.child_done(link.parent);
        }
    }

    fn child_done(&self, parent: Option<u64>) {
        let done = self.tree.lock().expect(LOCK).child_done(parent);
        self.finish_directories(done);
        self.shared.control.notify();
    }

    fn finish_directories(&self, done: Vec<Directory>) {
        let Destination::Tree(target) = &self.destination else { return };
        for directory in done.into_iter().filter(|directory| directory.is_made) {
            self.counts.directories.fetch_add(1, Relaxed);
            if self.rules.dry_run {
                continue;
            }
            if let Err(error) = target.root.set_dir_meta(&directory.path, directory.mode, directory.mtime) {
                let reason = format!("cannot set mode and time: {}", plain(&error));
                self.fail(directory.id, &directory.path, &reason);
            }
        }
    }
}

enum Made {
    New,
    Skipped,
}

/// A size for people.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
