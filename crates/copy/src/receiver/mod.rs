//! The receiving end of a transfer: it decides which entries it wants, writes the content that arrives, and
//! names each file when the file is whole.
//!
//! One thread, the caller's, converses with the sender: it reads the manifest and all other messages, decides
//! on each entry, and ends the session when nothing is left to do ([`CopyReceiver::converse`]). Content is read
//! and written by other threads, which [`start_threads`] starts:
//!
//! - *write* threads check the pieces of complete blocks, write them, and name files (`writer.rs`). They get
//!   blocks from the session, and complete files of several pieces from [`ReceiverQueues::complete`], into which
//!   the writers themselves and the conversing thread put them.
//! - *settle* threads wait until the disk has whole files, then name them (`settlement.rs`). They get these from
//!   the writers.
//! - *check* threads, if files are checked before they get their names, have that done and name them
//!   (`checking.rs`). They get these from the settling threads and from the writers.
//! - *compare* threads compute digests of files that are there, and take renamed files over (`comparison.rs`).
//!   They get these from the conversing thread, through [`ReceiverQueues::digest`].
//! - *patch* threads tell the sender of old content (`patches.rs`), for the conversing thread
//!   ([`ReceiverQueues::patch`]), and copy files that cannot be linked (`link_creation.rs`), for whoever settles
//!   the file ([`ReceiverQueues::link_copies`]).
//! - *checkpoint* syncs large files every few seconds (`writer.rs`).
//! - *names* sends the list of what is wanted, if there is one.
//!
//! Two more run only when they are needed: one lists the destination (`renames.rs`), one syncs its file
//! systems at the end (`durability.rs`). A thread sends its messages to the sender itself. When it has settled
//! something it wakes the conversing thread, since the session may end then.
//!
//! The threads share tables, each a type of its own with its lock inside: `directory_tree.rs`,
//! `hard_links.rs`, a file itself in `incoming_file.rs`, and in `receiver/` `files.rs` (with
//! `open_partials.rs`), `target_tree/partials.rs`, `untold_count.rs`, `ambiguous_directories.rs`,
//! `told_chunks.rs`, `moves.rs`, `entry_notes.rs`, `warnings.rs` and `durability.rs`. The other files there say
//! what the receiver does with them: `entries.rs` with an entry that arrives, `outcomes.rs` when it is known
//! what has become of it. No lock is held outside its table, and no table asks another one while it holds its
//! own, so the locks need no order. The order in which two tables are asked matters only at the end of a
//! session, in [`CopyReceiver::finish_if_done`].
//!
//! Always true: an entry stays in a table until it is in its place or has failed, and the sender has been told
//! so. A directory gets its mode and time after the last of its entries is done. A manifest that breaks the
//! rules ends the session before anything that breaks them is created.

mod ambiguous_directories;
mod backups;
mod checking;
mod comparison;
mod deletion;
mod dry_run;
mod durability;
mod earlier_files;
mod entries;
mod entry_notes;
mod files;
mod link_creation;
mod moves;
mod name_failures;
mod note_delivery;
mod open_partials;
mod outcomes;
mod partial_opening;
mod patches;
mod queues;
mod renames;
mod settlement;
mod source_request;
mod target_tree;
mod told_chunks;
mod untold_count;
mod warnings;

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd};
use farhaul_handover::Held as _;
use farhaul_handover::permit::{Guarded, for_good};
use farhaul_session::crew::{Crew, together};
use farhaul_session::messages::{EndFigures, senseless, unexpected};
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep};
use farhaul_volume::{Filter, PartialRequest, RelPath};
use farhaul_words::{Code, Error, Misbehaviour};

use self::ambiguous_directories::AmbiguousDirectories;
use self::backups::MadeBackups;
use self::comparison::UndecidedEntry;
use self::durability::{FileSystems, RunningSync};
pub(crate) use self::entry_notes::EntryNotes;
use self::files::IncomingFiles;
use self::moves::Moves;
use self::queues::ReceiverQueues;
use self::renames::Renames;
pub(crate) use self::settlement::{WholeFile, finish_small};
pub(crate) use self::source_request::SourceRequest;
use self::target_tree::TargetTree;
use self::told_chunks::ChunkWindow;
pub(crate) use self::told_chunks::ToldChunks;
use self::untold_count::UntoldCount;
use self::warnings::Warnings;
use super::content_check::TransferCheck;
use super::conversation::Conversation;
use super::destination::TargetDirectory;
use super::directory_tree::DirectoryTree;
use super::end_summary::EndSummary;
use super::failures::is_vanished;
use super::hard_links::HardLinks;
use super::incoming_entry::IncomingEntry;
use super::manifest::{EntryFate, ManifestRecord};
use super::messages::{CopyMessage, Decoder, RENEWAL, encode_spread};
use super::name_clashes::TopNames;
use super::owners::OwnerRules;
use super::receipt::ReceiptExchange;
use super::receive_rules::ReceiveRules;
use super::report::{FailedAction, SpreadFigures};
use super::report_lists::ReportLists;
use super::surplus::{ConflictRule, Surplus};
use super::writer;
use crate::options::{DeleteOptions, DeleteWhen, SourceRoot, compares_content};

/// The place that the transfer's entries go to: a directory as it was opened, or inside the receiver a
/// [`TargetTree`], which knows the rules for what is there.
pub(crate) enum Destination<Tree = Box<TargetDirectory>> {
    Tree(Tree),
    /// Standard output takes one file.
    Pipe,
    /// Nowhere: everything is checked and counted, nothing is kept.
    Null,
}

impl Destination {
    /// Sets whom the entries are to belong to.
    pub(crate) fn set_owners(&mut self, owners: OwnerRules) {
        if let Destination::Tree(target) = self {
            target.owners = owners;
        }
    }
}

/// Runs the receiving end to its end.
pub(crate) fn run(
    dialogue: &mut Dialogue,
    destination: Destination,
    (rules, check): (ReceiveRules, Option<TransferCheck>),
    wanted: SourceRequest<'_>,
    writers: usize,
) -> (EndSummary, Option<Error>) {
    // Nothing is ever sent through this; it is closed when the threads are to end.
    let (running, over) = crossbeam_channel::bounded(0);
    let (names, more_paths) = (wanted.names, wanted.more_paths);
    dialogue.obey_gate();
    let _guarded = Guarded::thread();
    let receiver = CopyReceiver::new(dialogue, destination, (rules, check), wanted, over);
    // On success, everything has been written when this is called.
    let end_threads = || drop(running);
    let ended = together(&receiver.shared.request, end_threads, |crew| {
        start_threads(crew, &receiver, writers)?;
        if names.is_some() || more_paths.is_some() {
            crew.start("names", || receiver.ask_for(more_paths, names))?;
        }
        receiver.converse(dialogue)
    });
    let end = match ended {
        Ok(theirs) => (receiver.end(dialogue, theirs), None),
        Err(error) => (receiver.end(dialogue, EndFigures::default()), Some(error)),
    };
    // What nothing could go on with is removed now.
    for_good(|| drop(receiver));
    end
}

/// The most threads that read and digest old versions. Without deltas there is one thread, which reports the
/// chunks that an earlier run has left, and copies files to which a link cannot be made.
const PATCHERS_MAX: usize = 2;

/// Starts the threads that every transfer needs.
fn start_threads<'env>(
    crew: &Crew<'_, 'env>,
    receiver: &'env CopyReceiver,
    writers: usize,
) -> Result<(), Error> {
    start_writers(crew, receiver, writers)?;
    let comparers = if receiver.reads_existing_files() { writers } else { 0 };
    for _ in 0..comparers {
        crew.start("compare", || comparison::run(receiver))?;
    }
    let patchers = if receiver.rules.delta { writers.min(PATCHERS_MAX) } else { 1 };
    for _ in 0..patchers {
        crew.start("patch", || patches::run(receiver))?;
    }
    crew.start("checkpoint", || writer::checkpoints(receiver))
}

/// Starts the writers and the threads that settle what these have written. The settling threads end when the
/// last writer has gone, after they have emptied the queue, since only the writers hold its sending end.
fn start_writers<'env>(
    crew: &Crew<'_, 'env>,
    receiver: &'env CopyReceiver,
    writers: usize,
) -> Result<(), Error> {
    let to_check = receiver.check.as_ref().map(|check| start_checks(crew, receiver, check)).transpose()?;
    let (to_settle, whole_files) = settlement::queue();
    for _ in 0..settlement::THREADS {
        let (whole_files, to_check) = (whole_files.clone(), to_check.clone());
        crew.start("settle", move || settlement::run(receiver, &whole_files, to_check.as_ref()))?;
    }
    if let Destination::Tree(target) = &receiver.destination {
        for missing in &target.earlier.missing {
            receiver.warnings.add(format!("{missing} is not there, so nothing is taken from it"));
        }
    }
    // A pipe takes the content in its order.
    let writers = if matches!(receiver.destination, Destination::Pipe) { 1 } else { writers };
    for _ in 0..writers {
        let (to_settle, to_check) = (to_settle.clone(), to_check.clone());
        crew.start("write", move || writer::run(receiver, &to_settle, to_check.as_ref()))?;
    }
    Ok(())
}

/// Starts the threads that have files checked. They end when the last writer and the last settling thread have
/// gone, as only these hold the sending end.
fn start_checks<'env>(
    crew: &Crew<'_, 'env>,
    receiver: &'env CopyReceiver,
    check: &'env TransferCheck,
) -> Result<ChannelEnd<WholeFile>, Error> {
    let (to_check, whole_files) = checking::queue();
    for _ in 0..checking::threads(check) {
        let whole_files = whole_files.clone();
        crew.start("check", move || checking::run(receiver, check, &whole_files))?;
    }
    Ok(to_check)
}

/// The state that the receiving end's threads share.
pub(crate) struct CopyReceiver {
    pub(crate) shared: Arc<Conversation>,
    pub(crate) destination: Destination<TargetTree>,
    pub(crate) rules: ReceiveRules,
    /// Looks at each file before it gets its name.
    check: Option<TransferCheck>,
    pub(crate) queues: ReceiverQueues,
    /// Closed when the threads are to end.
    pub(crate) over: Channel<Infallible>,
    /// Entries that this filter excludes at the receiver are not deleted.
    protection: Filter,
    pub(crate) files: IncomingFiles,
    pub(crate) untold: UntoldCount,
    window: Arc<ChunkWindow>,
    file_systems: FileSystems,
    tree: DirectoryTree,
    links: HardLinks,
    ambiguous_directories: AmbiguousDirectories,
    made_backups: MadeBackups,
    /// The destination's file system has refused a hard link.
    lacks_links: AtomicBool,
    lists: ReportLists,
    warnings: Arc<Warnings>,
    counts: Counts,
    pub(crate) notes: EntryNotes,
    receipt: Option<Arc<ReceiptExchange>>,
    is_client: bool,
    moves: Moves,
    /// Links to files that could not have their places.
    unplaced_links: Mutex<Vec<IncomingEntry>>,
    /// Where the source lies, for the report.
    source_root: Mutex<Option<SourceRoot>>,
}

impl CopyReceiver {
    fn new(
        dialogue: &Dialogue,
        destination: Destination,
        (rules, check): (ReceiveRules, Option<TransferCheck>),
        wanted: SourceRequest<'_>,
        over: Channel<Infallible>,
    ) -> CopyReceiver {
        let shared = Conversation::new(dialogue.request.clone());
        let deletes_excluded = rules.delete().is_some_and(|delete| delete.excluded);
        let warnings = Arc::default();
        let filter = if deletes_excluded { wanted.filter.unprotecting() } else { wanted.filter };
        let protection = match &destination {
            Destination::Tree(directory) => backups::protecting(filter, directory, rules.delete()),
            Destination::Pipe | Destination::Null => filter,
        };
        let is_kept = matches!(destination, Destination::Tree(_));
        CopyReceiver {
            destination: match destination {
                Destination::Tree(directory) => {
                    Destination::Tree(TargetTree::new(*directory, rules, &warnings))
                }
                Destination::Pipe => Destination::Pipe,
                Destination::Null => Destination::Null,
            },
            rules,
            // What is not kept gets no name.
            check: check.filter(|_| is_kept),
            queues: ReceiverQueues::default(),
            over,
            protection,
            files: IncomingFiles::within(shared.request.budget()),
            untold: UntoldCount::default(),
            window: Arc::default(),
            file_systems: FileSystems::default(),
            tree: DirectoryTree::within(shared.request.budget()),
            links: HardLinks::within(shared.request.budget()),
            ambiguous_directories: AmbiguousDirectories::default(),
            made_backups: MadeBackups::within(shared.request.budget()),
            lacks_links: AtomicBool::new(false),
            lists: ReportLists::new(dialogue, rules.is_daemon),
            warnings,
            counts: Counts::default(),
            notes: wanted.notes,
            receipt: wanted.receipt,
            is_client: dialogue.is_client(),
            moves: Moves::within(shared.request.budget()),
            unplaced_links: Mutex::default(),
            source_root: Mutex::default(),
            shared,
        }
    }

    /// Whether files may have to be read that the destination has already.
    fn reads_existing_files(&self) -> bool {
        compares_content(&self.rules.files, self.rules.sync.as_ref())
            || self.rules.sync.is_some_and(|sync| sync.detect_renames)
            || self.notes.reads_unchanged()
            || matches!(&self.destination, Destination::Tree(target) if !target.earlier.roots.is_empty())
    }
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    links: AtomicU64,
    directories: AtomicU64,
    new_directories: AtomicU64,
    skipped: AtomicU64,
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
    /// Links that the sender is to announce as files, by their ids.
    becoming_files: HashMap<u64, IncomingEntry>,
    /// Files whose content is being compared, by their ids.
    comparing: HashMap<u64, UndecidedEntry>,
    /// The surplus at the destination, if that is to be deleted.
    surplus: Option<Surplus>,
    /// Whether what is surplus may go, once that is decided.
    may_delete: Option<bool>,
    /// The list that comes ahead of the entries has ended.
    list_ahead_done: bool,
    /// True if a part of the source could not be listed.
    listing_failed: bool,
    /// Entries that wait until the directories in their places are deleted.
    blocked: Vec<IncomingEntry>,
    /// Surplus directories of which, in a dry run, something would stay.
    staying_directories: HashSet<RelPath>,
    /// The files that the destination has under other names, if renames are looked for.
    renames: Option<Renames>,
    /// The final sync, once everything is there.
    sync: Option<RunningSync>,
}

/// A large file whose partial file is still held by another transfer.
struct WaitingPartial {
    item: IncomingEntry,
    deadline: Instant,
    /// Asks the other transfer to give the partial file up if it has lost its peer.
    _request: Option<PartialRequest>,
}

impl ConversationState {
    fn new(receiver: &CopyReceiver) -> ConversationState {
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
            becoming_files: HashMap::new(),
            comparing: HashMap::new(),
            surplus: receiver.rules.delete().filter(|_| is_there).map(|delete| {
                let surplus = Surplus::new(conflicts(delete), receiver.shared.request.budget());
                surplus.counting(delete.is_judged())
            }),
            may_delete: None,
            list_ahead_done: false,
            listing_failed: false,
            blocked: Vec::new(),
            staying_directories: HashSet::new(),
            renames: receiver
                .rules
                .sync
                .filter(|sync| sync.detect_renames && is_there)
                .map(|_| Renames::default()),
            sync: None,
        }
    }

    /// The comparison, if it goes by the manifest.
    fn surplus_after(&mut self, delete: Option<DeleteOptions>) -> Option<&mut Surplus> {
        self.surplus.as_mut().filter(|_| delete.is_some_and(|delete| delete.when == DeleteWhen::After))
    }
}

impl CopyReceiver {
    /// Talks to the sender until both ends have finished.
    fn converse(&self, dialogue: &mut Dialogue) -> Result<EndFigures, Error> {
        let (mut decoder, mut conversation) = (Decoder::default(), ConversationState::new(self));
        loop {
            let step = match conversation.finish_sent {
                false => dialogue.step()?,
                true => dialogue.step_after_finish()?,
            };
            match step {
                DialogueStep::Finish(theirs) if conversation.finish_sent => return Ok(theirs),
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Message(bytes) => match decoder.decode(bytes).map_err(senseless)? {
                    CopyMessage::PresentEnd { .. } if !self.awaits_list_ahead(&conversation) => {
                        return Err(unexpected("present-end"));
                    }
                    CopyMessage::PresentEnd { is_complete } => {
                        conversation.list_ahead_done = true;
                        self.delete_surplus(is_complete, dialogue, &mut conversation);
                    }
                    message => {
                        self.handle(message, &mut conversation)?;
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
                    }
                    if !dialogue.holds_pass() {
                        continue;
                    }
                    if !dialogue.peer_seems_gone() {
                        self.retry_locked(&mut conversation)?;
                        self.go_on_opening(&mut conversation)?;
                        self.go_on_renaming(&mut conversation)?;
                        self.go_on_linking(&mut conversation)?;
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
        let are_opened = conversation.locked.is_empty() && conversation.postponed.is_empty();
        let are_placed =
            conversation.becoming_files.is_empty() && self.unplaced_links.lock().whole().is_empty();
        if conversation.finish_sent || !conversation.entries_done || !are_opened || !are_placed {
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
        // If the session has ended meanwhile, some of that was left out, and nobody must hear that all is done.
        if !self.shared.request.rest() {
            return Ok(());
        }
        if self.rules.durable
            && let Destination::Tree(target) = &self.destination
        {
            let sync = conversation.sync.get_or_insert_with(|| {
                // A disk that hangs must not keep the memory of a session that has been given up.
                let shared = Arc::downgrade(&self.shared);
                let tell = move || {
                    if let Some(shared) = shared.upgrade() {
                        shared.request.wake_dialogue();
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
            let failed = self.shared.request.handle().counts().failed.load(Relaxed);
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
        let new = self.rules.tells_new.then(|| self.counts.new_directories.load(Relaxed));
        self.shared.send(&[CopyMessage::DirectoriesDone { count, new }]);
        dialogue.say_finished(encode_spread(&self.spread_figures()));
    }

    fn end(&self, dialogue: &Dialogue, theirs: EndFigures) -> EndSummary {
        EndSummary {
            files: self.counts.files.load(Relaxed),
            directories: self.counts.directories.load(Relaxed),
            new_directories: self.counts.new_directories.load(Relaxed),
            links: self.counts.links.load(Relaxed),
            skipped: self.counts.skipped.load(Relaxed),
            source_root: *self.source_root.lock().in_any_case(),
            renames: self.counts.renames.load(Relaxed),
            bytes: self
                .shared
                .request
                .counts()
                .content_written
                .load(Relaxed)
                .saturating_add(self.counts.bytes_listed.load(Relaxed)),
            bytes_resumed: self.counts.bytes_resumed.load(Relaxed),
            bytes_matched: self.shared.request.counts().content_matched.load(Relaxed),
            bytes_kept: self.counts.bytes_kept.load(Relaxed) + self.unfinished_bytes(),
            renamed: matches!(&self.destination, Destination::Tree(target) if target.renamed.get().is_some()),
            spread: self.spread_figures(),
            figures: SessionFigures { ours: dialogue.figures(), theirs },
            ..self.lists.take()
        }
    }

    /// Content bytes of files that the end of the session leaves unfinished.
    fn unfinished_bytes(&self) -> u64 {
        self.files.all().iter().filter_map(|file| file.partial()).map(|partial| partial.bytes_kept()).sum()
    }

    fn spread_figures(&self) -> Vec<SpreadFigures> {
        match &self.destination {
            Destination::Tree(target) => target.roots.figures(),
            Destination::Pipe | Destination::Null => Vec::new(),
        }
    }

    /// Whether a list may come ahead of the entries now.
    fn awaits_list_ahead(&self, conversation: &ConversationState) -> bool {
        let is_asked_for = self.rules.delete().is_some_and(|delete| delete.when == DeleteWhen::Before);
        is_asked_for && conversation.next_id == 0 && !conversation.list_ahead_done
    }

    fn handle(&self, message: CopyMessage, conversation: &mut ConversationState) -> Result<(), Error> {
        match message {
            CopyMessage::Entry(entry) => self.entry(entry, conversation),
            CopyMessage::DirectoryEnd { id } => {
                let done = self.tree.end(id)?;
                self.note_end(conversation)?;
                self.finish_directories(done);
                Ok(())
            }
            // It comes once, ahead of the entries.
            CopyMessage::SourceRoot(_)
                if conversation.next_id > 0 || self.source_root.lock().in_any_case().is_some() =>
            {
                Err(unexpected("source-root"))
            }
            CopyMessage::SourceRoot(root) => {
                *self.source_root.lock().in_any_case() = Some(root);
                Ok(())
            }
            CopyMessage::LeftOut { path } => self.note_left_out(&path, conversation),
            CopyMessage::Present { .. } if !self.awaits_list_ahead(conversation) => {
                Err(unexpected("present"))
            }
            CopyMessage::Present { path, presence } => self.present(&path, presence, conversation),
            CopyMessage::Same { id, chunk } => self.same(id, chunk, &mut conversation.replies),
            CopyMessage::Compared { id, is_same } => self.compared(id, is_same, conversation),
            CopyMessage::SourceFailed { path, failure } => {
                // A vanished entry does not make the listing incomplete.
                conversation.listing_failed |= !is_vanished(&failure);
                self.lists.add_failed(&path, &failure, FailedAction::Copy);
                self.notes.add(|| ManifestRecord::of_path(&path, EntryFate::Failed).failed(&failure));
                Ok(())
            }
            CopyMessage::NotSet { path, reason } => {
                self.lists.add_not_set(&path, &reason);
                Ok(())
            }
            CopyMessage::Skipped { path, reason } => {
                self.lists.add_skipped(&path, &reason);
                self.notes.add(|| ManifestRecord::of_path(&path, EntryFate::Skipped).because(&reason));
                Ok(())
            }
            CopyMessage::FileEnd { id, .. } | CopyMessage::FileFailed { id, .. }
                if id % RENEWAL >= conversation.next_id =>
            {
                let what = format!("entry {id} was not announced");
                Err(Error::misbehaved(Misbehaviour::EntryNotOutstanding, what))
            }
            CopyMessage::FileEnd { id, size, chunks } => {
                if let Some(file) = self.files.get(id)
                    && file.expect_end(size, chunks)?
                {
                    self.queues.complete.put(file);
                }
                Ok(())
            }
            CopyMessage::FileFailed { id, failure } if conversation.becoming_files.contains_key(&id) => {
                self.not_a_file(id, &failure, conversation);
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
            CopyMessage::EntriesEnd if conversation.entries_done => Err(unexpected("entries-end")),
            CopyMessage::EntriesEnd => {
                conversation.entries_done = true;
                self.shared.request.handle().counts().scan_done.store(true, Relaxed);
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
}
