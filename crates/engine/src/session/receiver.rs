//! The receiving end of a transfer: it decides what it wants, writes what comes, and puts each file under its name when
//! it is whole.
//!
//! Threads: the caller's handles the manifest and everything that the sender says; writers take complete blocks
//! (`writer.rs`). An entry stays in the table until it is in its place or has failed, and the sender is told which.
//!
//! Always true: a directory gets its mode and time after the last of its entries is done; whatever breaks the rules of
//! the manifest ends the session before anything of it is created.

mod comparing;
mod deleting;
mod entries;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use farhaul_store::{Filter, RelPath, Request};

use self::comparing::Comparing;
use self::entries::Made;
use super::destination::Target;
use super::end::End;
use super::failures::{Failures, plain};
use super::links::Links;
use super::shared::Shared;
use super::supervisor::{Step, Supervisor};
use super::surplus::{Conflicts, Surplus};
use super::tree::{Directory, Tree};
use super::writer::{self, Incoming};
use crate::error::Error;
use crate::messages::{Decision, EndFigures, ManifestEntry, Message};
use crate::options::{DeleteOptions, DeleteWhen, Overwrite, SyncOptions, TransferOptions, Verify};

/// What becomes of the transfer's entries.
pub(crate) enum Destination {
    Tree(Target),
    /// Standard output takes one file.
    Pipe,
    /// Nowhere: everything is checked and counted, nothing is kept.
    Null,
}

/// How files are received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) overwrite: Overwrite,
    pub(crate) verify: Verify,
    pub(crate) durable: bool,
    pub(crate) dry_run: bool,
    /// None for a copy.
    pub(crate) sync: Option<SyncOptions>,
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
            sync: options.sync,
            mode_mask: if strip_setuid { 0o1777 } else { 0o7777 },
        }
    }
}

/// What of the source is wanted.
pub(crate) struct Wanted<'a> {
    pub(crate) filter: Filter,
    /// What the sender is to be asked for, if it is by name.
    pub(crate) names: Option<&'a [Vec<u8>]>,
}

/// State that the receiving end's threads share.
pub(crate) struct Receiver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) destination: Destination,
    pub(crate) rules: Rules,
    /// What it excludes at the receiver is not deleted.
    protection: Filter,
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
    deleted: AtomicU64,
    bytes_resumed: AtomicU64,
    /// Content bytes that a dry run would have moved.
    bytes_listed: AtomicU64,
}

/// What only the conversing thread knows.
struct Conversation {
    next_id: u64,
    entries_done: bool,
    finish_sent: bool,
    replies: Vec<Message>,
    locked: Vec<Waiting>,
    /// Files whose content is being compared, by their id.
    comparing: HashMap<u64, Comparing>,
    /// What the destination has too much, if that is to be deleted.
    surplus: Option<Surplus>,
    /// Something of the source could not be listed.
    listing_failed: bool,
    /// In whose places there are directories.
    blocked: Vec<Comparing>,
    /// To the threads that digest.
    compare: crossbeam_channel::Sender<(u64, RelPath)>,
}

impl Conversation {
    fn new(receiver: &Receiver, compare: crossbeam_channel::Sender<(u64, RelPath)>) -> Conversation {
        let conflicts = |delete: DeleteOptions| match delete.when {
            DeleteWhen::Before => Conflicts::Surplus,
            DeleteWhen::After => Conflicts::Keep,
        };
        // In a dry run the destination may be missing.
        let is_there = matches!(&receiver.destination, Destination::Tree(target) if target.prefix.is_none());
        Conversation {
            next_id: 0,
            entries_done: false,
            finish_sent: false,
            replies: Vec::new(),
            locked: Vec::new(),
            comparing: HashMap::new(),
            surplus: receiver
                .delete_options()
                .filter(|_| is_there)
                .map(|delete| Surplus::new(conflicts(delete))),
            listing_failed: false,
            blocked: Vec::new(),
            compare,
        }
    }

    /// The comparison, if it goes by the manifest.
    fn surplus_after(&mut self, delete: Option<DeleteOptions>) -> Option<&mut Surplus> {
        self.surplus.as_mut().filter(|_| delete.is_some_and(|delete| delete.when == DeleteWhen::After))
    }
}

/// A large file whose partial another transfer still holds.
struct Waiting {
    entry: ManifestEntry,
    path: RelPath,
    parent: Option<u64>,
    deadline: Instant,
    /// Asks the holder for it, should that have lost its peer.
    _request: Option<Request>,
}

const LOCK: &str = "no thread panics while it holds the receiver's tables";

/// Runs the receiving end to its end.
pub(crate) fn run(
    supervisor: &mut Supervisor,
    destination: Destination,
    rules: Rules,
    wanted: Wanted<'_>,
    writers: usize,
) -> (End, Option<Error>) {
    let shared = supervisor.shared.clone();
    let writers = if matches!(destination, Destination::Pipe) { 1 } else { writers };
    let (finish, finishing) = crossbeam_channel::unbounded();
    let (open, over) = crossbeam_channel::bounded(0);
    let delete = rules.sync.and_then(|sync| sync.delete);
    let is_excluded_too = delete.is_some_and(|delete| delete.excluded);
    let (compare, compared) = crossbeam_channel::unbounded();
    let receiver = Receiver {
        shared: shared.clone(),
        destination,
        rules,
        protection: if is_excluded_too { wanted.filter.unprotecting() } else { wanted.filter },
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
            let (finish, finishing, over) = (finish.clone(), finishing.clone(), over.clone());
            let write = move || writer::run(receiver, &finish, &finishing, &over);
            let work = move || receiver.shared.cpu.count(write);
            std::thread::Builder::new()
                .name("write".into())
                .spawn_scoped(scope, work)
                .map_err(Error::io("cannot start a thread"))?;
        }
        let comparers = if rules.sync.is_some_and(|sync| sync.checksum) { writers } else { 0 };
        for _ in 0..comparers {
            let (compared, over) = (compared.clone(), over.clone());
            let work = move || receiver.shared.cpu.count(|| comparing::run(receiver, &compared, &over));
            std::thread::Builder::new()
                .name("compare".into())
                .spawn_scoped(scope, work)
                .map_err(Error::io("cannot start a thread"))?;
        }
        std::thread::Builder::new()
            .name("checkpoint".into())
            .spawn_scoped(scope, move || receiver.shared.cpu.count(|| writer::checkpoints(receiver, &over)))
            .map_err(Error::io("cannot start a thread"))?;
        if let Some(names) = wanted.names {
            std::thread::Builder::new()
                .name("names".into())
                .spawn_scoped(scope, || receiver.ask_for(names))
                .map_err(Error::io("cannot start a thread"))?;
        }
        let ended = receiver.converse(supervisor, &finish, compare);
        // That ends the writers; on success everything has been written already.
        drop(open);
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
        compare: crossbeam_channel::Sender<(u64, RelPath)>,
    ) -> Result<EndFigures, Error> {
        let mut conversation = Conversation::new(self, compare);
        loop {
            match supervisor.step()? {
                Step::Message(Message::Finish(theirs)) if conversation.finish_sent => {
                    return Ok(theirs);
                }
                Step::Message(Message::PresentEnd { is_complete }) => {
                    self.delete_surplus(is_complete, supervisor, &mut conversation);
                }
                Step::Message(message) => {
                    self.handle(message, &mut conversation, finish)?;
                    if conversation.replies.len() >= 256 {
                        self.shared.send(&std::mem::take(&mut conversation.replies));
                    }
                }
                Step::Idle => {
                    if supervisor.peer_seems_gone() {
                        self.make_room_for_another()?;
                    } else {
                        self.retry_locked(&mut conversation)?;
                    }
                    self.shared.send(&std::mem::take(&mut conversation.replies));
                    self.finish_if_done(supervisor, &mut conversation);
                }
            }
        }
    }

    /// A peer that seems gone may have come again as another transfer, which then waits for the files that this one
    /// holds. It gets them.
    fn make_room_for_another(&self) -> Result<(), Error> {
        let files: Vec<_> = self.files.lock().expect(LOCK).values().cloned().collect();
        if files.iter().any(|file| file.is_requested()) {
            return Err(Error::Lost {
                what: "the peer fell silent, and another transfer has taken over its files".into(),
                hint: None,
            });
        }
        Ok(())
    }

    fn finish_if_done(&self, supervisor: &mut Supervisor, conversation: &mut Conversation) {
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
        self.delete_surplus(!conversation.listing_failed, supervisor, conversation);
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
            deleted: self.counts.deleted.load(Relaxed),
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
                self.note_end(conversation)?;
                self.finish_directories(done);
                Ok(())
            }
            Message::LeftOut { path } => self.note_left_out(&path, conversation),
            Message::Present { path, presence } => self.present(&path, presence, conversation),
            Message::Compared { id, is_same } => self.compared(id, is_same, conversation),
            Message::SourceFailed { path, reason } => {
                conversation.listing_failed = true;
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
                self.free_places(conversation)
            }
            other => Err(Error::Misbehaved(format!("unexpected message {}", other.name()))),
        }
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
            if let Err(error) = target.root.set_meta(&directory.path, directory.mode, Some(directory.mtime)) {
                let reason = format!("cannot set mode and time: {}", plain(&error));
                self.fail(directory.id, &directory.path, &reason);
            }
        }
    }
}
