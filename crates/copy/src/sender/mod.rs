//! The sending end of a transfer: it scans, announces entries, and reads what the receiver wants, until every
//! entry is accounted for.
//!
//! One thread scans and announces entries, some read (see `read_queue/mod.rs`), and the caller's thread talks to
//! the receiver. An entry is outstanding from its announcement until the receiver has said what became of it.
//! Their number is bounded, and so is the memory for a tree of any size.
//!
//! The threads share tables, each with its lock inside: `table.rs`, `renewal_ids.rs`, `directories.rs` and
//! `names.rs` in `sender/`, and the read queue. The scan asks the queue and the control stream for room while
//! it holds the table, so neither of these may ask the table. The others are never held together.
//!
//! Always true: no file is read before the receiver has asked for it, and no reader waits for a single
//! answer.

pub(super) mod announcement;
mod directories;
mod link_ids;
mod names;
mod notes;
mod outstanding_entries;
mod renewal;
mod renewal_ids;
mod table;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_session::crew::together;
use farhaul_session::exchange::{arrived_bytes, unacknowledged_bytes};
use farhaul_session::messages::{EndFigures, senseless, unexpected};
use farhaul_session::producer_token::ProducerToken;
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep};
use farhaul_volume::{
    AttributeKinds, EntryKind, FoundAttributes, HardLinkTrust, RelPath, ScanOptions, Scanner, Source,
    SourceRef, SpecialSources, leads_out,
};
use farhaul_words::{Code, EntryAction, Error, Misbehaviour};

use self::directories::DirectoryRecords;
pub(crate) use self::link_ids::LINKS_BYTES_MAX;
use self::names::RequestedNames;
pub(crate) use self::names::{NAMES_BYTES_MAX, NAMES_MAX};
use self::outstanding_entries::OutstandingEntries;
use self::renewal_ids::Renewals;
use self::table::{EntryTable, ResendSource, SendRequest};
use super::conversation::Conversation;
use super::end_summary::EndSummary;
use super::failures::Failure;
use super::manifest::{EntryFate, ManifestLog, ManifestRecord};
use super::messages::{CopyMessage, Decision, Decoder, EntryContent, decode_spread};
use super::owners::OwnerNames;
use super::read_queue::{PeerChunk, ReadQueue};
use super::receipt::ReceiptExchange;
use super::report::{DeletionStop, FailedAction, SpreadFigures};
use super::report_lists::ReportLists;
use super::request::CopyRequest;
use super::resolution::{Confinement, far_scan};
use crate::entry_events::{count_renamed, count_there, done};
use crate::options::{BackupOptions, DeleteWhen, FileOptions, SourceRoot, SyncOptions, TransferOptions};

/// The source of a transfer.
pub(crate) enum CopySource {
    Scan(Box<ScanPlan>),
    /// A request whose further sources the receiver still has to name.
    Awaited(Box<AwaitedRequest>),
    /// Standard input, under this name.
    Pipe {
        name: RelPath,
    },
}

/// A request whose sources are not all named yet, and the confinement of all of them.
pub(crate) struct AwaitedRequest {
    pub(crate) confinement: Confinement,
    pub(crate) request: CopyRequest,
}

impl AwaitedRequest {
    /// Completes the request with the rest of its sources.
    fn open(self, more: Vec<Vec<u8>>, budget: &Budget) -> Result<ScanPlan, Error> {
        let AwaitedRequest { confinement, mut request } = self;
        if more.len() as u64 != request.more_paths {
            return Err(Error::from(Misbehaviour::NamesOutOfOrder));
        }
        request.paths.extend(more);
        far_scan(&confinement, &request, budget)
    }
}

/// The sources to scan, and how.
pub(crate) struct ScanPlan {
    sources: Vec<Source>,
    pub(crate) options: ScanOptions,
    /// The receiver first names what it wants.
    pub(crate) awaits_names: bool,
    /// Set if the receiver removes surplus entries, so that it has to know everything that exists.
    delete: Option<DeleteWhen>,
    /// The memory that the sources take.
    _kept: Charge,
}

impl ScanPlan {
    pub(crate) fn new(sources: Vec<Source>, options: &TransferOptions) -> Result<ScanPlan, Error> {
        let delete = options.sync.and_then(|sync| sync.delete).map(|delete| delete.when);
        let awaits_names = options.select.by_name;
        for required in options.select.required()? {
            if let Some(source) = sources.iter().find(|source| !source.has(&required)) {
                let place = farhaul_text::escape(source.path.as_os_str().as_encoded_bytes());
                let what = format!("nothing was done: {required} is not in {place}, and `require` names it");
                return Err(Error::new(Code::RequiredMissing, what));
            }
        }
        let nodes = SpecialSources { pipes: options.files.specials, devices: options.files.devices };
        let hard_links = match options.files.hard_links {
            None => HardLinkTrust::Known,
            Some(true) => HardLinkTrust::All,
            Some(false) => HardLinkTrust::None,
        };
        let mut select = options.select.scan()?;
        // What was kept by earlier runs is no part of the tree, should the source have it, too.
        let is_content = sources.iter().any(|source| source.dest.is_empty());
        let kept = options.backup.as_ref().and_then(BackupOptions::own_directory);
        if let Some(kept) = kept.filter(|_| is_content) {
            select.filter = select.filter.hiding(&kept);
        }
        let scan = ScanOptions { follow: options.files.follow, nodes, hard_links, ..select };
        Ok(ScanPlan { sources, options: scan, awaits_names, delete, _kept: Charge::default() })
    }

    /// The number of sources, each of which is sent under a name of its own.
    pub(crate) fn source_count(&self) -> usize {
        self.sources.len()
    }

    /// Keeps the charge for its sources.
    pub(crate) fn keeping(self, kept: Charge) -> ScanPlan {
        ScanPlan { _kept: kept, ..self }
    }

    /// Where the single source lies.
    pub(crate) fn root(&self) -> Option<SourceRoot> {
        let [source] = &self.sources[..] else { return None };
        let (file_system, inode) = source.identity().ok()?;
        Some(SourceRoot { file_system, inode })
    }

    fn scanner(&self) -> Scanner {
        Scanner::new(self.sources.clone(), self.options.clone())
    }
}

/// How files are read.
#[derive(Debug)]
pub(crate) struct ReadPlan {
    pub(crate) readers: usize,
    /// The most large files that are read at a time.
    pub(crate) lanes: usize,
    pub(crate) digests: bool,
    /// Chunks are read one after the other, and holes as zeros.
    pub(crate) in_order: bool,
    /// Nothing is sent; the plan is only reported.
    pub(crate) dry_run: bool,
    /// Files are followed until they have not grown for this long.
    pub(crate) growth: Option<Duration>,
    pub(crate) taking: MetadataSelection,
    /// The options of a sync. `None` for a copy, in which the receiver neither removes nor renames anything.
    pub(crate) sync: Option<SyncOptions>,
    /// How the receiver keeps what it replaces; `None` if it does not.
    pub(crate) backup: Option<BackupOptions>,
    /// The owners that the receiver is told.
    pub(crate) owners: OwnerNames,
}

/// The parts of an entry that are sent with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetadataSelection {
    pub(crate) attributes: AttributeKinds,
    pub(crate) files: FileOptions,
    /// This process serves several clients.
    is_daemon: bool,
}

impl MetadataSelection {
    pub(crate) fn new(files: FileOptions, is_daemon: bool) -> MetadataSelection {
        MetadataSelection { attributes: files.attributes(is_daemon), files, is_daemon }
    }

    fn reason_to_skip(&self, path: &[u8], kind: &EntryKind) -> Option<&'static str> {
        match kind {
            EntryKind::Symlink { .. } if self.files.no_links => Some("a symbolic link"),
            EntryKind::Symlink { target } if self.files.safe_links && leads_out(path, target) => {
                Some("a symbolic link that leads out of what is copied")
            }
            EntryKind::Special(node) if node.is_device() && !self.files.devices => {
                Some("a device (`devices` takes it)")
            }
            EntryKind::Special(node) if !node.is_device() && !self.files.specials => {
                Some("a pipe or socket (`specials` takes it)")
            }
            EntryKind::File { .. }
            | EntryKind::Stream { .. }
            | EntryKind::Dir
            | EntryKind::Symlink { .. }
            | EntryKind::Special(_) => None,
        }
    }

    fn attributes(&self, what: &EntryContent, source: &SourceRef) -> std::io::Result<FoundAttributes> {
        match what {
            EntryContent::File { .. } | EntryContent::Directory => source.attributes(self.attributes),
            EntryContent::Stream
            | EntryContent::Symlink { .. }
            | EntryContent::HardLink { .. }
            | EntryContent::Special(_) => Ok(FoundAttributes::default()),
        }
    }
}

/// The state that the sending end's threads share.
pub(crate) struct CopySender {
    shared: Arc<Conversation>,
    table: EntryTable,
    outstanding: Arc<OutstandingEntries>,
    queue: Arc<ReadQueue>,
    /// Chunks must be sent in order and without holes, since the receiver writes to a pipe.
    in_order: bool,
    dry_run: bool,
    growth: Option<Duration>,
    taking: MetadataSelection,
    sync: Option<SyncOptions>,
    backup: Option<BackupOptions>,
    owners: OwnerNames,
    is_client: bool,
    names: RequestedNames,
    paths: RequestedNames,
    /// Why nothing can be sent of the sources that the receiver has named.
    refusal: Mutex<Option<Error>>,
    /// Where the source lies, if something may be deleted.
    source_root: Mutex<Option<SourceRoot>>,
    renewals: Renewals,
    lists: ReportLists,
    /// The client's manifest, and its records of directories whose result is not known yet.
    log: Option<Arc<ManifestLog>>,
    directories: DirectoryRecords,
    /// Names that are sent as files of their own, as their inode numbers are not believed.
    doubted_links: AtomicU64,
    /// Set if there is to be a receipt.
    receipt: Option<Arc<ReceiptExchange>>,
}

/// The counts of the sending end.
#[derive(Default)]
struct Counts {
    files: u64,
    directories: u64,
    new_directories: u64,
    /// The receiver has said how many directories there are.
    has_directories: bool,
    links: u64,
    skipped: u64,
    renames: u64,
    resumed_bytes: u64,
    renamed: bool,
    /// Content bytes that were put of files which the receiver then gave up.
    given_up: u64,
    /// Content bytes of incomplete files that the receiver keeps.
    kept: u64,
    /// Content bytes that a dry run would have sent.
    listed_bytes: u64,
}

/// The figures that the receiver has sent at its end.
#[derive(Default)]
struct ReceiverEnd {
    figures: EndFigures,
    spread: Vec<SpreadFigures>,
}

/// Runs the sending end to its end.
pub(crate) fn run(
    dialogue: &mut Dialogue,
    origin: CopySource,
    plan: ReadPlan,
    log: Option<Arc<ManifestLog>>,
    receipt: Option<Arc<ReceiptExchange>>,
) -> (EndSummary, Option<Error>) {
    let ReadPlan { readers, lanes, digests, in_order, dry_run, growth, taking, sync, backup, owners } = plan;
    let (awaits_names, awaits_paths) = match &origin {
        CopySource::Scan(scan) => (scan.awaits_names, false),
        CopySource::Awaited(awaited) => (awaited.request.options.select.by_name, true),
        CopySource::Pipe { .. } => (false, false),
    };
    let shared = Conversation::new(dialogue.request.clone());
    let queue = ReadQueue::new(shared.clone(), lanes, digests, !in_order, growth.filter(|_| !in_order));
    let queue = Arc::new(queue.signing(receipt.is_some()));
    let sender = CopySender {
        shared: shared.clone(),
        table: EntryTable::default(),
        outstanding: Arc::default(),
        queue: queue.clone(),
        in_order,
        dry_run,
        growth,
        taking,
        sync,
        backup,
        owners,
        is_client: dialogue.is_client(),
        names: RequestedNames::new(awaits_names, shared.request.budget()),
        paths: RequestedNames::new(awaits_paths, shared.request.budget()),
        refusal: Mutex::default(),
        source_root: Mutex::default(),
        renewals: Renewals::default(),
        lists: ReportLists::new(dialogue, taking.is_daemon),
        log,
        directories: DirectoryRecords::default(),
        doubted_links: AtomicU64::new(0),
        receipt,
    };
    let scanning = ProducerToken::new(&shared.request);
    let mut counts = Counts::default();
    let let_go = || {
        queue.close();
        sender.table.wake();
        sender.names.wake();
        sender.paths.wake();
    };
    let ended = together(&shared.request, let_go, |crew| {
        let sender = &sender;
        crew.start("scan", move || sender.announce(origin, scanning))?;
        for _ in 0..readers {
            crew.start("read", || queue.read())?;
        }
        sender.converse(dialogue, &mut counts)
    });
    match ended {
        Ok(theirs) => (sender.end(dialogue, &counts, Some(theirs)), None),
        Err(error) => (sender.end(dialogue, &counts, None), Some(error)),
    }
}

impl CopySender {
    /// Talks to the receiver until that has finished.
    fn converse(&self, dialogue: &mut Dialogue, counts: &mut Counts) -> Result<ReceiverEnd, Error> {
        let (mut decoder, mut watched) = (Decoder::default(), Vec::new());
        loop {
            match dialogue.step()? {
                DialogueStep::Finish(figures) => {
                    let spread = decode_spread(&figures.of_service).map_err(senseless)?;
                    self.finish(dialogue)?;
                    return Ok(ReceiverEnd { figures, spread });
                }
                DialogueStep::Message(bytes) => {
                    let message = decoder.decode(bytes).map_err(senseless)?;
                    self.handle(message, counts)?;
                }
                DialogueStep::Idle => match self.refusal.lock().whole().take() {
                    Some(error) => {
                        dialogue.abort(&error);
                        return Err(error);
                    }
                    None => self.look_after(&mut watched),
                },
            }
        }
    }

    fn handle(&self, message: CopyMessage, counts: &mut Counts) -> Result<(), Error> {
        match message {
            CopyMessage::Deleted { .. }
            | CopyMessage::NotDeleted { .. }
            | CopyMessage::Left { .. }
            | CopyMessage::DeletionStopped { .. }
                if !self.may_delete() =>
            {
                Err(Error::from(Misbehaviour::UnaskedDeletion))
            }
            CopyMessage::Renamed { .. } if !self.sync.is_some_and(|sync| sync.detect_renames) => {
                Err(Error::from(Misbehaviour::UnaskedRenaming))
            }
            // No word may go on for ever: of these there are only so many for each entry.
            CopyMessage::NotSet { .. } | CopyMessage::Replaced { .. } | CopyMessage::Parted { .. }
                if !self.table.take_note() =>
            {
                Err(unexpected(message.name()))
            }
            // What is deleted may be kept, too, and of that there is any number.
            CopyMessage::BackedUp { .. } if !self.may_delete() && !self.table.take_note() => {
                Err(unexpected(message.name()))
            }
            // These come once.
            CopyMessage::Placed { .. } if counts.renamed => Err(unexpected("placed")),
            CopyMessage::DirectoriesDone { .. } if counts.has_directories => {
                Err(unexpected("directories-done"))
            }
            CopyMessage::BackedUp { path } => {
                let Some(backup) = &self.backup else { return Err(Error::from(Misbehaviour::UnaskedBackup)) };
                self.lists.add_backup(&path, backup, self.dry_run);
                Ok(())
            }
            CopyMessage::Decide { id, decision } => self.decide(id, decision, counts),
            CopyMessage::Unchanged { first, count } => {
                let Some(end) = first.checked_add(count) else { return Err(unknown(u64::MAX)) };
                (first..end).try_for_each(|id| self.leave(id, EntryFate::Unchanged, counts))
            }
            CopyMessage::Done { id } => self.done(id, counts),
            CopyMessage::Failed { id, path, failure } => self.failed(id, &path, &failure, counts),
            CopyMessage::NotSet { path, reason } => {
                self.lists.add_not_set(&path, &reason);
                Ok(())
            }
            CopyMessage::Placed { name } => {
                counts.renamed = true;
                if let Some(log) = &self.log {
                    log.set_renamed(&name);
                }
                Ok(())
            }
            CopyMessage::Renamed { id, from } => self.renamed(id, from, counts),
            CopyMessage::Digests { id, digests } => self.table.note_digests(id, digests),
            CopyMessage::DirectoriesDone { count, new } => {
                counts.has_directories = true;
                counts.directories = counts.directories.saturating_add(count);
                counts.new_directories = counts.new_directories.saturating_add(new.unwrap_or(count));
                Ok(())
            }
            CopyMessage::AsFile { id } => self.announce_link(id),
            CopyMessage::Again { id, chunk } => self.again(id, chunk),
            CopyMessage::Marks { id, chunk, marks } => self.told_of(id, chunk, PeerChunk::Marks(marks)),
            CopyMessage::Kept { id, chunk, cv } => self.told_of(id, chunk, PeerChunk::Kept(cv)),
            CopyMessage::MarksEnd { id } => self.marks_end(id),
            CopyMessage::Names { names, is_last } => self.names.take(names, is_last),
            CopyMessage::Paths { paths, is_last } => self.paths.take(paths, is_last),
            CopyMessage::Deleted { path } => {
                self.lists.add_deleted(&path, self.dry_run);
                if let (Some(log), false) = (&self.log, self.dry_run) {
                    log.add(ManifestRecord::of_path(&path, EntryFate::Deleted));
                }
                Ok(())
            }
            CopyMessage::Left { path, border } => {
                self.lists.add_left(&path, border, self.dry_run);
                Ok(())
            }
            CopyMessage::Replaced { path, was, by } => {
                self.lists.add_replaced(&path, was, by, self.dry_run);
                Ok(())
            }
            CopyMessage::Parted { path } => {
                self.lists.add_parted(&path, self.dry_run);
                Ok(())
            }
            CopyMessage::DeletionStopped { cause, entries, of, names } => {
                self.lists.stop_deletion(DeletionStop::new(cause, (entries, of), &names));
                Ok(())
            }
            CopyMessage::NotDeleted { path, failure } => {
                self.fail(&path, &failure, FailedAction::Delete, None);
                Ok(())
            }
            CopyMessage::Receipt { statement, reason } => self.sign(&statement, &reason),
            other => Err(unexpected(other.name())),
        }
    }

    /// The receiver has signed for everything that it has. If that is what was sent, this end signs, too.
    fn sign(&self, statement: &[u8], reason: &str) -> Result<(), Error> {
        let Some(receipt) = &self.receipt else { return Err(unexpected("receipt")) };
        if !self.table.is_done() {
            return Err(Error::from(Misbehaviour::FinishedTooEarly));
        }
        let tally = self.log.as_ref().and_then(|log| log.tally());
        receipt.hear(statement, reason, tally.as_ref())?;
        let failed = self.shared.request.handle().counts().failed.load(Relaxed);
        self.shared.send(&[receipt.say(tally.as_ref(), failed)]);
        Ok(())
    }

    fn may_delete(&self) -> bool {
        self.sync.is_some_and(|sync| sync.delete.is_some())
    }

    fn decide(&self, id: u64, decision: Decision, counts: &mut Counts) -> Result<(), Error> {
        if decision == Decision::Keep {
            return self.leave(id, EntryFate::Kept, counts);
        }
        if decision == Decision::Listed {
            if !self.dry_run {
                return Err(Error::from(Misbehaviour::UnaskedListing));
            }
            let Some(mut pending) = self.table.remove(id) else { return Err(unknown(id)) };
            counts.files += 1;
            counts.listed_bytes = counts.listed_bytes.saturating_add(pending.size);
            self.note(&mut pending, EntryFate::WouldSend);
            if let Some(job) = pending.job {
                self.shared
                    .request
                    .handle()
                    .tell_detail(|| done(&job.path, EntryAction::Sent { bytes: job.size }, true));
            }
            return Ok(());
        }
        match self.table.decide(id, decision)? {
            SendRequest::Comparison(job, digest) => self.queue.push_compare(job, digest),
            SendRequest::Stream(job, unread) => self.queue.push_stream(job, Some(unread)),
            SendRequest::Whole(job, unread) => self.queue.push_wanted(job, Some(unread)),
            SendRequest::Large(large, resumed) => {
                counts.resumed_bytes = counts.resumed_bytes.saturating_add(resumed);
                self.shared.request.handle().counts().found(resumed);
                self.queue.push_large(large);
            }
        }
        Ok(())
    }

    /// Accounts for an entry that has failed at the receiver.
    fn failed(&self, id: u64, path: &[u8], failure: &Failure, counts: &mut Counts) -> Result<(), Error> {
        let (mut record, mut is_here) = (None, false);
        // The news of this failure may have crossed the news that the file has changed.
        for id in [id].into_iter().chain(self.renewals.take(id)) {
            let Some(pending) = self.table.remove(id) else { continue };
            is_here = true;
            let given_up = pending.job.as_ref().map_or(0, |job| job.put.give_up());
            counts.given_up = counts.given_up.saturating_add(given_up);
            if let Some(large) = pending.large() {
                large.cancel();
                // A receiver that has refused the content has removed it.
                counts.kept += if failure.code == Code::ContentRefused { 0 } else { large.bytes_kept() };
            }
            record = pending.record.or(record);
        }
        if !is_here {
            self.table.fail_directory(id)?;
        }
        let record = record.or_else(|| self.directories.take(id));
        self.fail(path, failure, FailedAction::Copy, record);
        Ok(())
    }

    /// Accounts for an entry of which the receiver wants nothing.
    fn leave(&self, id: u64, fate: EntryFate, counts: &mut Counts) -> Result<(), Error> {
        let Some(mut pending) = self.table.remove(id) else { return Err(unknown(id)) };
        counts.skipped += 1;
        self.note(&mut pending, fate);
        count_there(&self.shared.request, pending.size, u64::from(pending.job.is_some()), self.dry_run);
        Ok(())
    }

    /// Takes what the receiver has told of a chunk; it is ignored if the file has failed meanwhile.
    fn told_of(&self, id: u64, chunk: u64, theirs: PeerChunk) -> Result<(), Error> {
        match self.table.large(id) {
            Some(large) if !self.queue.push_told(&large, chunk, theirs) => Err(Error::misbehaved(
                Misbehaviour::ToldUnfitting,
                format!("what it told does not fit chunk {chunk} of file {id}"),
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn marks_end(&self, id: u64) -> Result<(), Error> {
        match self.table.large(id) {
            Some(large) if !self.queue.end_patches(&large) => Err(Error::misbehaved(
                Misbehaviour::MarksEndedTwice,
                format!("the marks of file {id} ended twice"),
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Accounts for an entry that is in its place.
    fn done(&self, id: u64, counts: &mut Counts) -> Result<(), Error> {
        let Some(mut pending) = self.table.remove(id) else {
            // The result of a directory is only sent for a manifest.
            let record = self.directories.take(id);
            let (Some(log), Some(record)) = (&self.log, record) else { return Err(unknown(id)) };
            log.add(ManifestRecord { fate: EntryFate::sent(self.dry_run), ..*record });
            return Ok(());
        };
        if pending.is_unsent() && !self.dry_run {
            let what = format!("it says that file {id} is in its place, whose content was not sent");
            return Err(Error::misbehaved(Misbehaviour::UnexpectedMessage, what));
        }
        self.note(&mut pending, EntryFate::sent(self.dry_run));
        if let Some(job) = &pending.job {
            self.shared
                .request
                .handle()
                .tell_detail(|| done(&job.path, EntryAction::Sent { bytes: job.size }, false));
        }
        self.renewals.done(id);
        if pending.job.is_some() {
            counts.files += 1;
            self.shared.request.handle().counts().files_done.fetch_add(1, Relaxed);
        } else {
            counts.links += 1;
        }
        Ok(())
    }

    /// Accounts for a file that the receiver had under the name `from`.
    fn renamed(&self, id: u64, from: Vec<u8>, counts: &mut Counts) -> Result<(), Error> {
        let Some(mut pending) = self.table.remove(id) else { return Err(unknown(id)) };
        let Some(job) = pending.job.clone() else { return Err(unknown(id)) };
        counts.renames += 1;
        count_renamed(&self.shared.request, &from, &job.path, job.size, self.dry_run);
        if let Some(record) = &mut pending.record {
            record.note = Some(from);
        }
        self.note(&mut pending, EntryFate::Renamed);
        Ok(())
    }

    /// Sends a piece again that arrived damaged although its packets were authentic (bad memory, or a path
    /// without a cipher).
    fn again(&self, id: u64, chunk: u64) -> Result<(), Error> {
        let Some(ResendSource { job, large, is_too_often }) = self.table.again(id)? else { return Ok(()) };
        let job = job.filter(|job| !job.is_stream());
        let chunks = job.as_ref().map_or(0, |job| job.size.div_ceil(farhaul_volume::CHUNK));
        if job.is_some() && chunk >= chunks {
            return Err(Error::misbehaved(
                Misbehaviour::ChunkBeyondFile,
                format!("chunk {chunk} lies beyond file {id}"),
            ));
        }
        if is_too_often || job.is_none() {
            let failure = Failure::new(Code::Damaged, "its content arrived damaged and cannot be sent again");
            self.shared.send(&[CopyMessage::FileFailed { id, failure }]);
        } else if let Some(large) = large {
            self.queue.push_again(large, chunk);
        } else if let Some(job) = job {
            self.queue.push_whole_again(job);
        }
        Ok(())
    }

    fn finish(&self, dialogue: &Dialogue) -> Result<(), Error> {
        if !self.table.is_done() {
            return Err(Error::from(Misbehaviour::FinishedTooEarly));
        }
        self.warn_of_doubted_links(dialogue);
        dialogue.finish();
        Ok(())
    }

    fn warn_of_doubted_links(&self, dialogue: &Dialogue) {
        let count = self.doubted_links.load(Relaxed);
        if count > 0 {
            dialogue.warn(format!(
                "the source says of {count} names that they are hard links, but its file system is not known to keep inode                  numbers (FUSE, some network file systems): each is a file of its own; `hard-links` takes names with one                  inode number as one file, `no-hard-links` says that they are none"
            ));
        }
    }

    /// Makes the summary; `theirs` is `None` if the session broke off.
    fn end(&self, dialogue: &Dialogue, counts: &Counts, theirs: Option<ReceiverEnd>) -> EndSummary {
        let given_up = theirs.as_ref().map(|_| counts.given_up);
        // If the receiver has not told its end, it may lack what it has not acknowledged.
        let unacknowledged = if theirs.is_none() { unacknowledged_bytes(&self.shared.request) } else { 0 };
        let theirs = theirs.unwrap_or_default();
        EndSummary {
            files: counts.files,
            directories: counts.directories,
            new_directories: counts.new_directories,
            links: counts.links,
            skipped: counts.skipped,
            source_root: *self.source_root.lock().whole(),
            renames: counts.renames,
            bytes: arrived_bytes(&self.shared.request, given_up).saturating_add(counts.listed_bytes),
            bytes_matched: self.shared.request.counts().content_matched.load(Relaxed),
            bytes_kept: (counts.kept + self.table.bytes_kept()).saturating_sub(unacknowledged),
            bytes_resumed: counts.resumed_bytes + self.queue.resumed.load(Relaxed),
            renamed: counts.renamed,
            spread: theirs.spread,
            figures: SessionFigures { ours: dialogue.figures(), theirs: theirs.figures },
            ..self.lists.take()
        }
    }
}

fn unknown(id: u64) -> Error {
    Error::misbehaved(Misbehaviour::EntryNotOutstanding, format!("entry {id} is not outstanding"))
}
