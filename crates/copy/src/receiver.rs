//! The receiving end of a transfer: it decides which entries it wants, writes the content that arrives, and
//! names each file when the file is whole.
//!
//! The caller's thread handles the manifest and all messages of the sender; writers take complete blocks
//! (`writer.rs`). An entry stays in the table until it is in its place or has failed, and the sender has been
//! told so.
//!
//! The threads share tables, each a type of its own with its lock inside: `directory_tree.rs`,
//! `hard_links.rs`, a file itself in `incoming_file.rs`, and in `receiver/` `files.rs` (with
//! `open_partials.rs`), `untold_count.rs`, `partials.rs`, `ambiguous_directories.rs`, `told_chunks.rs`,
//! `moves.rs`, `entry_notes.rs` and `durability.rs`. The other files there say what the receiver does with
//! them. No lock is held outside its table, and no table asks another one while it holds its own, so the
//! locks need no order. The order in which two tables are asked matters only at the end of a session, in
//! `finish_if_done`.
//!
//! Always true: a directory gets its mode and time after the last of its entries is done. A manifest that
//! breaks the rules ends the session before anything that breaks them is created.

mod ambiguous_directories;
mod comparison;
mod deletion;
mod durability;
mod entries;
mod entry_notes;
mod files;
mod link_creation;
mod moves;
mod name_failures;
mod note_delivery;
mod open_partials;
mod partial_opening;
mod partials;
mod patches;
mod renames;
mod replacement;
mod settlement;
mod times;
mod told_chunks;
mod untold_count;
mod warnings;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use farhaul_session::crew::together;
use farhaul_session::error::{Code, Error};
use farhaul_session::events::EntryAction;
use farhaul_session::messages::{EndFigures, senseless, unexpected};
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep};
use farhaul_volume::{AttributeKinds, FileTime, Filter, Metadata, PartialRequest, RelPath, WriteOptions};

use self::ambiguous_directories::AmbiguousDirectories;
use self::comparison::{FileToRead, UndecidedEntry};
use self::durability::{FileSystems, RunningSync};
pub(crate) use self::entry_notes::EntryNotes;
use self::files::IncomingFiles;
use self::link_creation::{LinkCopy, Linked};
use self::moves::Moves;
use self::partials::Partials;
use self::renames::Renames;
pub(crate) use self::settlement::{WholeFile, finish_small};
use self::told_chunks::ChunkWindow;
pub(crate) use self::told_chunks::ToldChunks;
use self::untold_count::UntoldCount;
use self::warnings::Warnings;
use super::Terms;
use super::conversation::Conversation;
use super::destination::TargetDirectory;
use super::directory_tree::{DirectoryTree, UnfinishedDirectory};
use super::end_summary::EndSummary;
use super::failures::{Failure, Failures};
use super::hard_links::{HardLinks, LinkTargetOutcome};
use super::incoming_entry::IncomingEntry;
use super::incoming_file::IncomingFile;
use super::manifest::{EntryFate, ManifestRecord};
use super::messages::{CopyMessage, Decoder, EntryContent, RENEWAL, encode_spread};
use super::name_clashes::TopNames;
use super::not_set_entries::NotSetEntries;
use super::receipt::ReceiptExchange;
use super::replacements::ReplacementNotes;
use super::report::{FailedAction, SpreadFigures};
use super::skipped_entries::SkippedEntries;
use super::surplus::{ConflictRule, Surplus};
use super::vanished_entries::{VanishedEntries, is_vanished};
use super::writer;
use crate::entry_events::{done, failed};
use crate::options::{
    DeleteOptions, DeleteWhen, Durability, FileOptions, SyncOptions, TransferOptions, VerifyMode,
    compares_content,
};

/// The place that the transfer's entries go to.
pub(crate) enum Destination {
    Tree(Box<TargetDirectory>),
    /// Standard output takes one file.
    Pipe,
    /// Nowhere: everything is checked and counted, nothing is kept.
    Null,
}

/// How files are received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveRules {
    pub(crate) files: FileOptions,
    pub(crate) verify: VerifyMode,
    pub(crate) durable: bool,
    pub(crate) durable_each: bool,
    pub(crate) dry_run: bool,
    /// Ask only for the differences of a file that is there in another version.
    pub(crate) delta: bool,
    /// The options of a sync; `None` for a copy.
    pub(crate) sync: Option<SyncOptions>,
    /// The kinds of extended attributes that are made as they are at the sender.
    pub(crate) attributes: AttributeKinds,
    /// This end receives for a client of this host's daemon, not for the user that it runs as.
    pub(crate) is_daemon: bool,
    /// Mode bits that may be set.
    pub(crate) mode_mask: u32,
}

impl ReceiveRules {
    pub(crate) fn new(options: &TransferOptions, terms: &Terms) -> ReceiveRules {
        let is_daemon = terms.strip_setuid;
        let (files, verify) = (options.files, options.integrity.verify);
        let strip_setuid = is_daemon || !files.keep_setuid;
        let durable = if options.dry_run { Durability::No } else { options.integrity.durable };
        ReceiveRules {
            files,
            attributes: files.attributes(is_daemon),
            is_daemon,
            verify,
            durable: durable != Durability::No,
            durable_each: durable == Durability::File,
            dry_run: options.dry_run,
            // Without digests nobody would notice two marks that are equal by chance.
            delta: files.delta == Some(true) && verify != VerifyMode::Transit,
            sync: options.sync,
            mode_mask: if strip_setuid { 0o1777 } else { 0o7777 } & !terms.mask,
        }
    }

    /// The part of a source's mode that is to be set; `None` if modes are not preserved.
    pub(crate) fn mode(&self, mode: u32) -> Option<u32> {
        (!self.files.no_perms).then_some(mode & self.mode_mask)
    }

    /// The modification time that is to be set; `None` if times are not preserved.
    pub(crate) fn mtime(&self, mtime: FileTime) -> Option<FileTime> {
        (!self.files.no_times).then_some(mtime)
    }

    /// The same for a directory.
    pub(crate) fn directory_mtime(&self, mtime: FileTime) -> Option<FileTime> {
        self.mtime(mtime).filter(|_| !self.files.omit_dir_times)
    }
}

/// The request to the source.
pub(crate) struct SourceRequest<'a> {
    pub(crate) filter: Filter,
    /// The names to request from the sender, if there is a list of names.
    pub(crate) names: Option<&'a [Vec<u8>]>,
    /// Further sources for which the request had no room.
    pub(crate) more_paths: Option<&'a [Vec<u8>]>,
    pub(crate) notes: EntryNotes,
    /// Set if there is to be a receipt.
    pub(crate) receipt: Option<Arc<ReceiptExchange>>,
}

/// State that the receiving end's threads share.
pub(crate) struct CopyReceiver {
    pub(crate) shared: Arc<Conversation>,
    pub(crate) destination: Destination,
    pub(crate) rules: ReceiveRules,
    /// Entries that this filter excludes at the receiver are not deleted.
    protection: Filter,
    pub(crate) files: IncomingFiles,
    pub(crate) untold: UntoldCount,
    window: Arc<ChunkWindow>,
    file_systems: FileSystems,
    partials: Partials,
    tree: DirectoryTree,
    links: HardLinks,
    ambiguous_directories: AmbiguousDirectories,
    failures: Failures,
    vanished: VanishedEntries,
    warnings: Warnings,
    /// Sends links that cannot be made to the threads that copy the file instead.
    link_copies: crossbeam_channel::Sender<LinkCopy>,
    replacements: ReplacementNotes,
    skipped: SkippedEntries,
    not_set: NotSetEntries,
    counts: Counts,
    pub(crate) notes: EntryNotes,
    receipt: Option<Arc<ReceiptExchange>>,
    is_client: bool,
    moves: Moves,
    /// The name of the single source at its own end, if it has another name here.
    original_name: OnceLock<Vec<u8>>,
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    links: AtomicU64,
    directories: AtomicU64,
    skipped: AtomicU64,
    deleted: AtomicU64,
    renames: AtomicU64,
    bytes_resumed: AtomicU64,
    /// Content bytes of failed files that stay for a later run.
    bytes_kept: AtomicU64,
    /// Content bytes that a dry run would have moved.
    bytes_listed: AtomicU64,
}

/// The state of the conversing thread alone.
struct ConversationState {
    next_id: u64,
    /// The names of sources that have arrived.
    names: TopNames,
    entries_done: bool,
    finish_sent: bool,
    replies: Vec<CopyMessage>,
    /// Large files whose partial files another transfer holds.
    locked: Vec<WaitingPartial>,
    /// Large files that wait until others are whole.
    postponed: VecDeque<IncomingEntry>,
    /// Files whose content is being compared, by their ids.
    comparing: HashMap<u64, UndecidedEntry>,
    /// The surplus at the destination, if that is to be deleted.
    surplus: Option<Surplus>,
    /// True if a part of the source could not be listed.
    listing_failed: bool,
    /// Entries in whose places there are directories.
    blocked: Vec<IncomingEntry>,
    /// Surplus directories of which, in a dry run, something would stay.
    staying_directories: HashSet<RelPath>,
    /// The files that the destination has under other names, if renames are looked for.
    renames: Option<Renames>,
    /// The final sync, once everything is there.
    sync: Option<RunningSync>,
    queues: Queues,
}

/// Queues to the threads that compute digests (`compare`), and to those that look at old versions (`patch`).
struct Queues {
    compare: crossbeam_channel::Sender<FileToRead>,
    patch: crossbeam_channel::Sender<Arc<IncomingFile>>,
}

impl ConversationState {
    fn new(receiver: &CopyReceiver, queues: Queues) -> ConversationState {
        let conflicts = |delete: DeleteOptions| match delete.when {
            DeleteWhen::Before => ConflictRule::Surplus,
            DeleteWhen::After => ConflictRule::Keep,
        };
        // In a dry run the destination may not exist.
        let is_there = matches!(&receiver.destination, Destination::Tree(target) if target.prefix.is_none());
        ConversationState {
            next_id: 0,
            names: TopNames::default(),
            entries_done: false,
            finish_sent: false,
            replies: Vec::new(),
            locked: Vec::new(),
            postponed: VecDeque::new(),
            comparing: HashMap::new(),
            surplus: receiver
                .delete_options()
                .filter(|_| is_there)
                .map(|delete| Surplus::new(conflicts(delete), &receiver.shared.budget)),
            listing_failed: false,
            blocked: Vec::new(),
            staying_directories: HashSet::new(),
            renames: receiver
                .rules
                .sync
                .filter(|sync| sync.detect_renames && is_there)
                .map(|_| Renames::default()),
            sync: None,
            queues,
        }
    }

    /// The comparison, if it goes by the manifest.
    fn surplus_after(&mut self, delete: Option<DeleteOptions>) -> Option<&mut Surplus> {
        self.surplus.as_mut().filter(|_| delete.is_some_and(|delete| delete.when == DeleteWhen::After))
    }
}

/// A large file whose partial file is still held by another transfer.
struct WaitingPartial {
    item: IncomingEntry,
    deadline: Instant,
    /// Asks the other transfer to give the partial file up if it has lost its peer.
    _request: Option<PartialRequest>,
}

/// The most threads that read and digest old versions. Without deltas there is one thread, which reports the
/// chunks that an earlier run has left, and copies files to which a link cannot be made.
const PATCHERS_MAX: usize = 2;

/// Runs the receiving end to its end.
pub(crate) fn run(
    dialogue: &mut Dialogue,
    destination: Destination,
    rules: ReceiveRules,
    wanted: SourceRequest<'_>,
    writers: usize,
) -> (EndSummary, Option<Error>) {
    let shared = Conversation::new(dialogue.request.clone());
    let writers = if matches!(destination, Destination::Pipe) { 1 } else { writers };
    let (finish, finishing) = crossbeam_channel::unbounded();
    // Closed when the threads are to end.
    let (running, over) = crossbeam_channel::bounded(0);
    let delete = rules.sync.and_then(|sync| sync.delete);
    let deletes_excluded = delete.is_some_and(|delete| delete.excluded);
    let (compare, compare_tasks) = crossbeam_channel::unbounded();
    let (patch, patch_tasks) = crossbeam_channel::unbounded();
    let (link_copies, link_copy_tasks) = crossbeam_channel::unbounded();
    let receiver = CopyReceiver {
        shared: shared.clone(),
        destination,
        rules,
        protection: if deletes_excluded { wanted.filter.unprotecting() } else { wanted.filter },
        files: IncomingFiles::within(&shared.budget),
        untold: UntoldCount::default(),
        window: Arc::default(),
        file_systems: FileSystems::default(),
        partials: Partials::default(),
        tree: DirectoryTree::within(&shared.budget),
        links: HardLinks::within(&shared.budget),
        ambiguous_directories: AmbiguousDirectories::default(),
        failures: Failures::new(dialogue.is_client() && !rules.is_daemon),
        vanished: VanishedEntries::new(dialogue.is_client()),
        warnings: Warnings::default(),
        link_copies,
        replacements: ReplacementNotes::default(),
        skipped: SkippedEntries::new(dialogue.is_client()),
        not_set: NotSetEntries::new(dialogue.is_client()),
        counts: Counts::default(),
        notes: wanted.notes,
        receipt: wanted.receipt,
        is_client: dialogue.is_client(),
        moves: Moves::within(&shared.budget),
        original_name: OnceLock::new(),
    };
    // On success, everything has been written when this is called.
    let end_threads = || drop(running);
    let ended = together(&shared, end_threads, |crew| {
        let receiver = &receiver;
        let (whole, settled) = settlement::queue();
        for _ in 0..settlement::THREADS {
            let settled = settled.clone();
            crew.start("settle", move || settlement::run(receiver, &settled))?;
        }
        for _ in 0..writers {
            let (finish, finishing, over) = (finish.clone(), finishing.clone(), over.clone());
            let whole = whole.clone();
            crew.start("write", move || writer::run(receiver, &finish, &finishing, &whole, &over))?;
        }
        // The settling threads end when the last writer has gone, after they have emptied the queue.
        drop((whole, settled));
        let is_reading = compares_content(&rules.files, rules.sync.as_ref())
            || rules.sync.is_some_and(|sync| sync.detect_renames)
            || receiver.notes.reads_unchanged();
        let comparers = if is_reading { writers } else { 0 };
        for _ in 0..comparers {
            let (compare_tasks, over) = (compare_tasks.clone(), over.clone());
            crew.start("compare", move || comparison::run(receiver, &compare_tasks, &over))?;
        }
        let patchers = if rules.delta { writers.min(PATCHERS_MAX) } else { 1 };
        for _ in 0..patchers {
            let (patch_tasks, copies, over) = (patch_tasks.clone(), link_copy_tasks.clone(), over.clone());
            crew.start("patch", move || patches::run(receiver, &patch_tasks, &copies, &over))?;
        }
        let is_over = over.clone();
        crew.start("checkpoint", move || writer::checkpoints(receiver, &is_over))?;
        if wanted.names.is_some() || wanted.more_paths.is_some() {
            crew.start("names", || receiver.ask_for(wanted.more_paths, wanted.names))?;
        }
        receiver.converse(dialogue, &finish, Queues { compare, patch })
    });
    match ended {
        Ok(theirs) => (receiver.end(dialogue, theirs), None),
        Err(error) => (receiver.end(dialogue, EndFigures::default()), Some(error)),
    }
}

impl CopyReceiver {
    fn converse(
        &self,
        dialogue: &mut Dialogue,
        finish: &crossbeam_channel::Sender<Arc<IncomingFile>>,
        queues: Queues,
    ) -> Result<EndFigures, Error> {
        let (mut decoder, mut conversation) = (Decoder::default(), ConversationState::new(self, queues));
        loop {
            let step = match conversation.finish_sent {
                false => dialogue.step()?,
                true => dialogue.step_after_finish()?,
            };
            match step {
                DialogueStep::Finish(theirs) if conversation.finish_sent => return Ok(theirs),
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Message(bytes) => match decoder.decode(bytes).map_err(senseless)? {
                    CopyMessage::PresentEnd { is_complete } => {
                        self.delete_surplus(is_complete, dialogue, &mut conversation);
                    }
                    message => {
                        self.handle(message, &mut conversation, finish)?;
                        if conversation.replies.len() >= 256 {
                            self.answer(&mut conversation.replies);
                            // Large files before these may be whole by now, long before all entries have been
                            // decided.
                            self.go_on_opening(&mut conversation)?;
                        }
                    }
                },
                DialogueStep::Idle => {
                    self.warn(dialogue);
                    if dialogue.peer_seems_gone() {
                        self.yield_to_newer_transfer()?;
                    } else {
                        self.retry_locked(&mut conversation)?;
                        self.go_on_opening(&mut conversation)?;
                        self.go_on_renaming(&mut conversation)?;
                    }
                    self.answer(&mut conversation.replies);
                    self.finish_if_done(dialogue, &mut conversation)?;
                }
            }
        }
    }

    /// Sends the answers. Runs of unchanged entries become one message: with an answer each, a large tree
    /// would take round trips until the rate allows them.
    fn answer(&self, replies: &mut Vec<CopyMessage>) {
        replies.dedup_by(|next, run| match (run, next) {
            (
                CopyMessage::Unchanged { first, count },
                CopyMessage::Unchanged { first: next, count: more },
            ) if *first + *count == *next => {
                *count += *more;
                true
            }
            _ => false,
        });
        self.shared.send(replies);
        replies.clear();
    }

    /// Ends this transfer if another one waits for its files. The peer, which seems gone, has then come back
    /// in that transfer.
    fn yield_to_newer_transfer(&self) -> Result<(), Error> {
        if self.files.all().iter().any(|file| file.is_requested()) {
            return Err(Error::new(
                Code::Superseded,
                "the peer fell silent, and another transfer has taken over its files",
            ));
        }
        Ok(())
    }

    fn finish_if_done(
        &self,
        dialogue: &mut Dialogue,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        if conversation.finish_sent
            || !conversation.entries_done
            || !(conversation.locked.is_empty() && conversation.postponed.is_empty())
        {
            return Ok(());
        }
        if !self.files.is_empty() || !self.tree.is_done() {
            return Ok(());
        }
        // This check is the last one, as a file leaves the table before its writer has told the sender.
        if !self.untold.is_none() {
            return Ok(());
        }
        if self.receipt.as_ref().is_some_and(|receipt| receipt.has_said()) {
            return self.finish_signed(dialogue, conversation);
        }
        if conversation.sync.is_none() {
            self.delete_surplus(!conversation.listing_failed, dialogue, conversation);
            self.part_links();
        }
        if self.rules.durable
            && let Destination::Tree(target) = &self.destination
        {
            let sync = conversation.sync.get_or_insert_with(|| {
                // A disk that hangs must not keep the memory of a session that has been given up.
                let shared = Arc::downgrade(&self.shared);
                let tell = move || {
                    if let Some(shared) = shared.upgrade() {
                        shared.control.notify();
                    }
                };
                self.file_systems.sync(target.roots.all(), tell)
            });
            let Some(outcome) = sync.outcome() else { return Ok(()) };
            if let Err(error) = outcome {
                dialogue.abort(&error);
                return Err(error);
            }
        }
        if let Some(receipt) = &self.receipt {
            // Everything is on the disk now. The sender compares the root, and answers.
            let failed = self.shared.handle.counts().failed.load(Relaxed);
            self.shared.send(&[receipt.say(self.notes.tally().as_ref(), failed)]);
            return Ok(());
        }
        self.say_finished(dialogue, conversation);
        Ok(())
    }

    /// This end has signed; it ends when the other end has signed, too.
    fn finish_signed(&self, dialogue: &Dialogue, conversation: &mut ConversationState) -> Result<(), Error> {
        if self.receipt.as_ref().is_some_and(|receipt| receipt.has_heard()) {
            self.say_finished(dialogue, conversation);
        }
        Ok(())
    }

    fn warn(&self, dialogue: &Dialogue) {
        self.warnings.take().into_iter().for_each(|text| dialogue.warn(text));
    }

    fn say_finished(&self, dialogue: &Dialogue, conversation: &mut ConversationState) {
        // The last warnings of the threads.
        self.warn(dialogue);
        conversation.finish_sent = true;
        let count = self.counts.directories.load(Relaxed);
        self.shared.send(&[CopyMessage::DirectoriesDone { count }]);
        dialogue.say_finished(encode_spread(&self.spread_figures()));
    }

    fn end(&self, dialogue: &Dialogue, theirs: EndFigures) -> EndSummary {
        EndSummary {
            files: self.counts.files.load(Relaxed),
            directories: self.counts.directories.load(Relaxed),
            links: self.counts.links.load(Relaxed),
            skipped: self.counts.skipped.load(Relaxed),
            deleted: self.counts.deleted.load(Relaxed),
            replaced: self.replacements.replaced_count(),
            left: self.replacements.take_left(),
            renames: self.counts.renames.load(Relaxed),
            bytes: self
                .shared
                .content_written
                .load(Relaxed)
                .saturating_add(self.counts.bytes_listed.load(Relaxed)),
            bytes_resumed: self.counts.bytes_resumed.load(Relaxed),
            bytes_matched: self.shared.content_matched.load(Relaxed),
            bytes_kept: self.counts.bytes_kept.load(Relaxed) + self.unfinished_bytes(),
            renamed: self.original_name.get().is_some(),
            failures: self.failures.take(),
            vanished: self.vanished.take(),
            not_set: self.not_set.take(),
            not_taken: self.skipped.take(),
            spread: self.spread_figures(),
            figures: SessionFigures { ours: dialogue.figures(), theirs },
        }
    }

    /// Content bytes of files that the end of the session leaves unfinished.
    fn unfinished_bytes(&self) -> u64 {
        self.files.all().iter().filter_map(|file| file.partial()).map(|partial| partial.bytes_kept()).sum()
    }

    /// Closes a file that has failed. The part that can be resumed stays.
    pub(crate) fn abandon(&self, file: &IncomingFile) {
        self.keep_for_later(file.partial().map_or(0, |partial| partial.bytes_kept()));
        file.abandon();
    }

    /// Discards the part of a file for whose rest one of several directories has no room, so that the next
    /// run begins the file in another one.
    fn discard_for_another_directory(&self, file: &IncomingFile, failure: &Failure) {
        let Destination::Tree(target) = &self.destination else { return };
        if failure.code == Code::NoSpace
            && target.roots.is_spread()
            && let Some(partial) = file.partial()
            && matches!(target.roots.of(&file.item.path).metadata(&file.item.path), Ok(None))
        {
            partial.discard();
        }
    }

    pub(crate) fn keep_for_later(&self, bytes: u64) {
        self.counts.bytes_kept.fetch_add(bytes, Relaxed);
    }

    fn spread_figures(&self) -> Vec<SpreadFigures> {
        match &self.destination {
            Destination::Tree(target) => target.roots.figures(),
            Destination::Pipe | Destination::Null => Vec::new(),
        }
    }

    fn handle(
        &self,
        message: CopyMessage,
        conversation: &mut ConversationState,
        finish: &crossbeam_channel::Sender<Arc<IncomingFile>>,
    ) -> Result<(), Error> {
        match message {
            CopyMessage::Entry(entry) => self.entry(entry, conversation),
            CopyMessage::DirectoryEnd { id } => {
                let done = self.tree.end(id)?;
                self.note_end(conversation)?;
                self.finish_directories(done);
                Ok(())
            }
            CopyMessage::LeftOut { path } => self.note_left_out(&path, conversation),
            CopyMessage::Present { path, presence } => self.present(&path, presence, conversation),
            CopyMessage::Same { id, chunk } => self.same(id, chunk, &mut conversation.replies, finish),
            CopyMessage::Compared { id, is_same } => self.compared(id, is_same, conversation),
            CopyMessage::SourceFailed { path, failure } => {
                // A vanished entry does not make the listing incomplete.
                conversation.listing_failed |= !is_vanished(&failure);
                self.book_failure(&path, &failure, FailedAction::Copy);
                self.notes.add(|| ManifestRecord::of_path(&path, EntryFate::Failed).failed(&failure));
                Ok(())
            }
            CopyMessage::NotSet { path, reason } => {
                self.not_set.add(&path, &reason, &self.shared.handle);
                Ok(())
            }
            CopyMessage::Skipped { path, reason } => {
                self.skipped.add(&path, &reason, &self.shared.handle);
                self.notes.add(|| ManifestRecord::of_path(&path, EntryFate::Skipped).because(&reason));
                Ok(())
            }
            CopyMessage::FileEnd { id, size, chunks } => {
                if let Some(file) = self.files.get(id)
                    && file.expect_end(size, chunks)?
                {
                    let _ = finish.send(file);
                }
                Ok(())
            }
            CopyMessage::FileFailed { id, failure } => {
                if let Some(file) = self.files.take(id) {
                    self.abandon(&file);
                    self.settle_failure(&file, &failure);
                }
                Ok(())
            }
            CopyMessage::Renewed { id, entry } => self.renewed(id, entry, conversation),
            CopyMessage::EntriesEnd => {
                conversation.entries_done = true;
                self.shared.handle.counts().scan_done.store(true, Relaxed);
                self.free_places(conversation)
            }
            CopyMessage::Receipt { statement, reason } => match &self.receipt {
                Some(exchange) if exchange.has_said() && !conversation.finish_sent => {
                    exchange.hear(&statement, &reason, self.notes.tally().as_ref())
                }
                Some(_) | None => Err(unexpected("receipt")),
            },
            other => Err(unexpected(other.name())),
        }
    }

    // ---- settling ----------------------------------------------------------------------------------------------

    /// Books a file, which has left the table or never was in it, as in its place or as failed.
    pub(crate) fn settle(
        &self,
        file: &IncomingFile,
        result: Result<(), Failure>,
        replies: &mut Vec<CopyMessage>,
    ) {
        let result = self.but_for_metadata(&file.item.path, result);
        let result = self.settle_in_roots(&file.item.path, Some(file.size()), result);
        match result.and_then(|()| self.note_arrival(file, replies)) {
            Ok(()) => {
                self.counts.files.fetch_add(1, Relaxed);
                self.shared.handle.counts().files_done.fetch_add(1, Relaxed);
                let size = file.size();
                self.shared
                    .handle
                    .tell_detail(|| done(&file.item.path, EntryAction::Received { bytes: size }, false));
                self.note_replaced(&file.item, file.item.replaces);
                replies.push(CopyMessage::Done { id: file.item.id() });
                self.link_target_done(&file.item, LinkTargetOutcome::There);
                self.child_done(&file.item);
            }
            Err(failure) => {
                replies.push(self.failed(&file.item, &failure));
                self.link_target_done(&file.item, LinkTargetOutcome::Failed);
                self.child_done(&file.item);
            }
        }
    }

    /// Gives up a file that cannot be written.
    pub(crate) fn give_up(&self, file: &IncomingFile, failure: Failure, replies: &mut Vec<CopyMessage>) {
        if self.files.take(file.item.id()).is_some() {
            self.discard_for_another_directory(file, &failure);
            self.abandon(file);
            self.settle(file, Err(failure), replies);
        }
    }

    /// Books a failure that the sender has reported itself.
    fn settle_failure(&self, file: &IncomingFile, failure: &Failure) {
        let _ = self.settle_in_roots(&file.item.path, None, Ok(()));
        self.shared.send(&[self.failed(&file.item, failure)]);
        self.link_target_done(&file.item, LinkTargetOutcome::Failed);
        self.child_done(&file.item);
    }

    fn refuse(&self, item: &IncomingEntry, failure: Failure) {
        let failure = self.in_place(&item.path, failure);
        let _ = self.settle_in_roots(&item.path, None, Ok(()));
        self.fail(item, &failure);
        self.link_target_done(item, LinkTargetOutcome::Failed);
        self.child_done(item);
    }

    /// Tells the directories of the destination that a file is in its place or has failed at this end.
    fn settle_in_roots(
        &self,
        path: &RelPath,
        size: Option<u64>,
        result: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Destination::Tree(target) = &self.destination else { return result };
        let result = result.map_err(|failure| self.in_place(path, failure));
        target.roots.settle(path, size.filter(|_| result.is_ok()));
        result
    }

    /// Adds to the reason which of several directories it was.
    fn in_place(&self, path: &RelPath, failure: Failure) -> Failure {
        let Destination::Tree(target) = &self.destination else { return failure };
        match target.roots.name_of(path) {
            Some(name) => Failure { reason: format!("{} (in {name})", failure.reason), ..failure },
            None => failure,
        }
    }

    /// How the file of an entry is to be written.
    pub(crate) fn write_options(&self, target: &TargetDirectory, item: &IncomingEntry) -> WriteOptions {
        let there = || target.roots.metadata(&item.path).ok().flatten().filter(Metadata::is_file);
        item.write_options(&self.rules, || there().map(|there| there.mode))
    }

    fn fail(&self, item: &IncomingEntry, failure: &Failure) {
        let message = self.failed(item, failure);
        self.shared.send(&[message]);
    }

    fn failed(&self, item: &IncomingEntry, failure: &Failure) -> CopyMessage {
        let failure = &self.with_reason_for_no_room(&item.path, failure);
        self.notes.add(|| self.record(item, EntryFate::Failed).failed(failure));
        self.report_failed(item.id(), &item.path, failure)
    }

    /// Changes the reason of a failure for lack of room if the file system has as many files as it can have.
    /// The system has one error for both.
    fn with_reason_for_no_room(&self, path: &RelPath, failure: &Failure) -> Failure {
        let Destination::Tree(target) = &self.destination else { return failure.clone() };
        if failure.code != Code::NoSpace {
            return failure.clone();
        }
        let free = |path: &RelPath| target.roots.of(path).free_files(path).ok();
        // The parent directory may be what could not be created.
        let free = free(&path.parent().unwrap_or_default()).or_else(|| free(&RelPath::empty())).flatten();
        match free {
            Some(0) => failure.without_files(),
            Some(_) | None => failure.clone(),
        }
    }

    /// As [`CopyReceiver::failed`], for an entry that is already in the manifest.
    fn report_failed(&self, id: u64, path: &RelPath, failure: &Failure) -> CopyMessage {
        let failure = self.with_reason_for_no_room(path, failure);
        let path = self.source_path(path);
        self.book_failure(&path, &failure, FailedAction::Copy);
        CopyMessage::Failed { id, path, failure }
    }

    /// Turns a failure that is only about metadata into success, since all of the content is there, and books
    /// the metadata as not set.
    pub(crate) fn but_for_metadata<T: Default>(
        &self,
        path: &RelPath,
        result: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match result {
            Err(failure) if failure.is_about_metadata() => {
                let failure = self.in_place(path, failure);
                let path = self.source_path(path);
                self.not_set.add(&path, &failure.reason, &self.shared.handle);
                self.shared.send(&[CopyMessage::NotSet { path, reason: failure.reason }]);
                Ok(T::default())
            }
            other => other,
        }
    }

    fn book_failure(&self, path: &[u8], failure: &Failure, action: FailedAction) {
        if is_vanished(failure) {
            return self.vanished.add(path, &self.shared.handle);
        }
        self.failures.add(path, failure, action);
        self.shared.handle.counts().failed.fetch_add(1, Relaxed);
        self.shared.handle.tell_detail(|| failed(path, failure));
    }

    /// Makes the links that have waited for a file until it was in its place or had failed.
    fn link_target_done(&self, item: &IncomingEntry, outcome: LinkTargetOutcome) {
        // A file that is sent again may have lost its other names meanwhile.
        let is_again = item.id() >= RENEWAL;
        if !is_again && !matches!(item.entry.what, EntryContent::File { linked: true, .. }) {
            return;
        }
        let waiting = self.links.settle(item.id() % RENEWAL, outcome, &item.path);
        let Destination::Tree(target) = &self.destination else { return };
        for link in waiting {
            match self.make_hard_link(target, outcome, &item.path, &link) {
                Linked::Settled(made) => {
                    self.shared.send(&[self.link_reply(&link, made)]);
                    self.child_done(&link);
                }
                Linked::Copying => {}
            }
        }
    }

    fn child_done(&self, item: &IncomingEntry) {
        let done = self.tree.child_done(item.parent, item.booked);
        self.finish_directories(done);
    }

    fn finish_directories(&self, done: Vec<UnfinishedDirectory>) {
        let Destination::Tree(target) = &self.destination else { return };
        for directory in done.into_iter().filter(|directory| directory.is_made) {
            self.partials.forget(&directory.path);
            self.counts.directories.fetch_add(1, Relaxed);
            let made = match self.rules.dry_run {
                true => Ok(()),
                false => self.set_directory_metadata(target, &directory),
            };
            let made = self.but_for_metadata(&directory.path, made);
            self.note_directory(&directory, made);
        }
    }

    /// Gives a directory whose entries are done its mode, time and attributes.
    fn set_directory_metadata(
        &self,
        target: &TargetDirectory,
        directory: &UnfinishedDirectory,
    ) -> Result<(), Failure> {
        let path = &directory.path;
        if self.rules.durable {
            target.roots.all().iter().for_each(|root| self.file_systems.note(root, path));
        }
        let kinds = self.rules.attributes;
        let attributed = match kinds.is_none() || directory.mode.is_none() {
            true => Ok(()),
            false => {
                target.roots.each_with(path, |root| root.set_attributes(path, &directory.attributes, kinds))
            }
        };
        self.set_of_directory(target, path, directory.mode, directory.mtime)?;
        attributed.map_err(|error| self.cannot("set its attributes", path, &error))
    }
}
