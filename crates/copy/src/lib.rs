//! Copies a tree of files from one end of a session to the other.
//!
//! `job.rs` is for `farhaul cp` and `farhaul sync`, with `location_checks.rs`; `serve.rs` is for the far
//! end, `daemon_to_daemon.rs` for two daemons that copy for a client. The sending end is `sender/mod.rs` with
//! `read_queue/mod.rs`; the receiving end is `receiver/mod.rs` (with what is in `receiver/`), `writer.rs`,
//! `incoming_file.rs`, `destination.rs`, `roots.rs`, `directory_tree.rs`, `hard_links.rs` and, for a sync,
//! `surplus.rs`. The ends' messages are in `messages/mod.rs`; `conversation.rs` sends them. `verify/mod.rs` and
//! `clean.rs` need no session.
#![forbid(unsafe_code)]

mod bounded_list;
mod chunked_file;
pub(crate) mod clean;
mod confines;
mod connection;
mod content_check;
mod conversation;
mod copy_outcome;
mod daemon_to_daemon;
mod deletion_guard;
mod destination;
mod directory_tree;
pub(crate) mod end_summary;
mod entry_events;
mod failure_digest;
pub(crate) mod failures;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hard_links;
mod incoming_entry;
mod incoming_file;
mod interruptible_io;
pub(crate) mod job;
mod location_checks;
mod location_spec;
pub(crate) mod manifest;
pub(crate) mod messages;
mod name_clashes;
mod options;
mod output_file;
mod owners;
mod read_queue;
pub(crate) mod receipt;
mod receive_rules;
mod receiver;
pub(crate) mod report;
mod report_lists;
pub(crate) mod request;
mod resolution;
pub(crate) mod retry;
mod roots;
mod sender;
mod serve;
mod stream_arrival;
mod surplus;
pub(crate) mod trailer;
pub(crate) mod verify;
mod writer;

pub use clean::{CLEAN_SCHEMA, CleanFailure, CleanJob, CleanReport, CleanedFile, clean};
pub use confines::{ConfinedPath, Confines};
pub use connection::CopyConnection;
pub use content_check::{CheckLimits, CheckVerdict, ContentCheck, ReceiverCheck, UncheckedFile};
pub use daemon_to_daemon::{BetweenJob, DelegatedCopy, DrivingDaemon};
#[doc(hidden)]
pub use interruptible_io::{GivenUp, InterruptibleOutput};
pub use job::{CopyJob, JobConfines, Location, check, copy, spread_of};
pub use location_checks::receipt_is_possible;
pub use manifest::{ManifestCopy, is_manifest_result};
pub use options::{
    BackupOptions, DeleteLimit, DeleteOptions, DeleteWhen, Durability, EarlierOptions, FileOptions,
    IntegrityOptions, ManifestOptions, OverwriteMode, SelectOptions, SourceRoot, SpreadOptions, SyncOptions,
    TransferOptions, VerifyMode,
};
pub use owners::OwnerOptions;
pub use receipt::{
    CheckedReceipt, RECEIPT_SCHEMA, Receipt, ReceiptOptions, SignedStatement, Statement, StatementSide,
    manifest_root,
};
pub use report::{
    DeletionStop, DeletionStopCause, FailedAction, FailedEntry, NotSetEntry, REPORT_SCHEMA, Report,
    SkippedEntry, SpreadFigures, VanishedEntry,
};
pub use retry::{FailedRun, RetrySelection};
pub use verify::{Difference, Finding, VERIFY_SCHEMA, VerifyJob, VerifyReport, verify};

use std::sync::Arc;

pub(crate) use copy_outcome::CopyOutcome;
pub(crate) use destination::{is_null, last_component, with_slash_if_home};
pub(crate) use failures::plain;
pub use location_spec::{HostSpec, LocationSpec};
pub(crate) use name_clashes::are_written_distinct;
pub(crate) use receiver::Destination;
pub use request::{CopyDirection, CopyRequest, admit, admit_within};
pub(crate) use resolution::{DestinationWish, local_origin, local_target};
pub use resolution::{earlier_path, open_root};
pub(crate) use sender::{AwaitedRequest, CopySource, NAMES_BYTES_MAX, NAMES_MAX, ScanPlan};
pub(crate) use serve::serve_here;
pub use serve::{CopyObserver, CopyServerPolicy, NoCopyObserver, SessionSummary, serve};

use farhaul_connect::{EstablishedSession, SessionKeys};
use farhaul_session::budget::{Budget, Charge, Resource};
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::cpus::disk_threads;
use farhaul_session::handle::Handle;
use farhaul_session::panic_guard::contained;
use farhaul_session::session::{Dialogue, Session};
use farhaul_session::setup::Setup;
use farhaul_words::Error;

use content_check::TransferCheck;
use manifest::ManifestLog;
use owners::{OwnerNames, OwnerRules};
use receipt::ReceiptExchange;
use receive_rules::ReceiveRules;
use sender::ReadPlan;

/// The part of this end: to send the content or to receive it.
pub(crate) enum CopySide {
    Send(CopySource),
    Receive(Destination),
}

impl CopySide {
    fn role(&self) -> ContentRole {
        match self {
            CopySide::Send(_) => ContentRole::Sender,
            CopySide::Receive(_) => ContentRole::Receiver,
        }
    }
}

/// Settings that may differ between the ends of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    pub(crate) strip_setuid: bool,
    /// Mode bits that are taken off everything that is created here.
    pub(crate) mask: u32,
    /// The most files that may be read or written at a time for the client; `None` for as many as it has
    /// directories.
    pub(crate) lanes_max: Option<usize>,
    /// The names to request from the sender.
    pub(crate) names: Option<Vec<Vec<u8>>>,
    /// Further sources for which the request has no room.
    pub(crate) more_paths: Option<Vec<Vec<u8>>>,
    /// Takes the fate of each entry, at the client's end.
    pub(crate) log: Option<Arc<ManifestLog>>,
    /// The keys that the connection has proved; a receipt is signed with them.
    pub(crate) keys: Option<SessionKeys>,
    /// Looks at each file that arrives here before it gets its name.
    pub(crate) check: ReceiverCheck,
    /// Who sends the files, for that check.
    pub(crate) sender: Option<String>,
}

/// Computes the root of the digest tree for a receipt without a manifest. Dropping it ends its thread.
struct RootOnly {
    log: Arc<ManifestLog>,
    _thread: Charge,
}

impl RootOnly {
    fn begin(budget: &Budget) -> Result<RootOnly, Error> {
        let _thread = budget.charge_of(Resource::Threads, 1)?;
        Ok(RootOnly { log: ManifestLog::of_root()?, _thread })
    }
}

impl Drop for RootOnly {
    fn drop(&mut self) {
        // Whoever wants the root has asked for it by now.
        let _ = self.log.finish(&Report::default());
    }
}

/// Runs one end of a session to its end. A panic in this thread becomes an outcome, as one in the others
/// does.
pub(crate) fn run(agreed: AgreedCopy, side: CopySide, terms: &Terms, handle: &Handle) -> CopyOutcome {
    contained(|| run_to_end(agreed, side, terms, handle)).unwrap_or_else(CopyOutcome::failed)
}

/// A session and its request, as both ends have agreed on them.
pub(crate) struct AgreedCopy {
    session: Setup,
    request: CopyRequest,
}

impl AgreedCopy {
    pub(crate) fn new(established: EstablishedSession, request: CopyRequest) -> AgreedCopy {
        let EstablishedSession { session, opening, features, .. } = established;
        AgreedCopy { session, request: request.agreed(opening.network, &features) }
    }
}

fn run_to_end(agreed: AgreedCopy, side: CopySide, terms: &Terms, handle: &Handle) -> CopyOutcome {
    let AgreedCopy { session, request } = agreed;
    let order = if request.is_in_order() { DeliveryOrder::Kept } else { DeliveryOrder::Any };
    match Session::start(session, request.options.network.clone(), side.role(), order, handle) {
        Ok((_, dialogue)) => converse(dialogue, request, side, terms),
        Err(error) => CopyOutcome::failed(error),
    }
}

/// Runs one end of a copy, which is a request of a session, to its end.
fn converse(mut dialogue: Dialogue, request: CopyRequest, side: CopySide, terms: &Terms) -> CopyOutcome {
    let in_order = request.is_in_order();
    let part = match side {
        CopySide::Send(_) => StatementSide::Sent,
        CopySide::Receive(_) => StatementSide::Received,
    };
    let receipt = ReceiptExchange::new(&request, terms.keys.as_ref(), part).map(Arc::new);
    let is_root_only = receipt.is_some() && terms.log.is_none();
    let root_only = is_root_only.then(|| RootOnly::begin(dialogue.request.budget()));
    let root_only = match root_only.transpose() {
        Ok(root_only) => root_only,
        Err(error) => {
            dialogue.close(Some(&error));
            return CopyOutcome::failed(error);
        }
    };
    let log = terms.log.clone().or_else(|| root_only.as_ref().map(|root| root.log.clone()));
    let options = request.options;
    if matches!(&side, CopySide::Receive(Destination::Tree(_)))
        && options.files.in_place
        && terms.check.0.as_ref().is_some_and(|check| check.limits().is_some())
    {
        let error = content_check::not_in_place();
        dialogue.abort(&error);
        dialogue.close(Some(&error));
        return CopyOutcome::failed(error);
    }
    let dry_run = options.dry_run;
    // The rules that choose what is sent also protect entries at the destination from removal.
    let filter = match options.select.scan() {
        Ok(scan) => scan.filter,
        Err(error) => {
            dialogue.close(Some(&error));
            return CopyOutcome::failed(error);
        }
    };
    let lanes_max = if in_order { 1 } else { terms.lanes_max.unwrap_or(usize::MAX) };
    let lanes = options.spread.lanes().min(lanes_max);
    let threads = disk_threads().max(2 * lanes);
    let (end, error) = match side {
        CopySide::Send(origin) => {
            let readers = if in_order { 1 } else { threads };
            let digests = options.integrity.verify != VerifyMode::Transit;
            let growth = options.files.follow_growth_secs.map(std::time::Duration::from_secs);
            let taking = sender::MetadataSelection::new(options.files, terms.strip_setuid);
            let (sync, backup) = (options.sync, options.backup.clone());
            let owners = OwnerNames::new(&options.owners);
            let plan =
                ReadPlan { readers, lanes, digests, in_order, dry_run, growth, taking, sync, backup, owners };
            sender::run(&mut dialogue, origin, plan, log, receipt.clone())
        }
        CopySide::Receive(mut destination) => {
            let rules = ReceiveRules::new(&options, request.tells_new, terms);
            match OwnerRules::new(&options.owners, terms.strip_setuid) {
                Ok(owners) => destination.set_owners(owners),
                Err(error) => {
                    dialogue.abort(&error);
                    dialogue.close(Some(&error));
                    return CopyOutcome::failed(error);
                }
            }
            // A sender that signs has to know what became of each entry.
            let tells = !dialogue.is_client() || receipt.is_some();
            let notes = receiver::EntryNotes::new(options.integrity.manifest.clone(), log, tells);
            let (names, more_paths) = (terms.names.as_deref(), terms.more_paths.as_deref());
            let wish = receiver::SourceRequest { filter, names, more_paths, notes, receipt: receipt.clone() };
            let check = TransferCheck::begin(&terms.check, terms.sender.as_deref().unwrap_or_default());
            receiver::run(&mut dialogue, destination, (rules, check), wish, threads)
        }
    };
    let outcome = CopyOutcome::new(&dialogue, end, dry_run, error);
    dialogue.close(outcome.error.as_ref());
    outcome.and_receipt(receipt.as_deref()).and_manifest(root_only.as_ref().map(|root| &*root.log))
}

/// Refuses a session whose request cannot be met, and sends `error` to the far end as the reason.
pub(crate) fn refuse(established: EstablishedSession, error: Error, handle: &Handle) -> CopyOutcome {
    let tell = || {
        let EstablishedSession { session, opening, .. } = established;
        let begun =
            Session::start(session, opening.network, ContentRole::Receiver, DeliveryOrder::Any, handle);
        if let Ok((_, mut dialogue)) = begun {
            dialogue.abort(&error);
            dialogue.close(Some(&error));
        }
    };
    if let Err(panic) = contained(tell) {
        tracing::debug!(%panic, "a refusal could not be sent");
    }
    CopyOutcome::failed(error)
}

#[cfg(test)]
mod tests {
    use farhaul_session::session::DialogueStep;
    use farhaul_words::Misbehaviour;

    use super::*;
    use crate::conversation::Conversation;
    use crate::messages::{CopyMessage, EntryContent, ManifestEntry};
    use crate::options::TransferOptions;

    /// Runs a receiver whose sender leaves once it has been told that everything has arrived.
    fn left_by(complaint: Option<Error>) -> Option<Error> {
        let folder = tempfile::tempdir().unwrap();
        let paths = vec![folder.path().as_os_str().as_encoded_bytes().to_vec()];
        let request = CopyRequest::new(CopyDirection::Push, paths, TransferOptions::default());
        let options = request.options.clone();
        let (near, far) = job::local_pair(&request).unwrap();
        let serving = std::thread::spawn(move || serve_here(far, None, ReceiverCheck::default()).error);
        let begun = Session::start(
            near.session,
            options.network,
            ContentRole::Sender,
            DeliveryOrder::Any,
            &Handle::new(),
        );
        let (_, mut sender) = begun.unwrap();
        Conversation::new(sender.request.clone()).send(&[CopyMessage::EntriesEnd]);
        while !matches!(sender.step().unwrap(), DialogueStep::Finish(_)) {}
        sender.close(complaint.as_ref());
        serving.join().unwrap()
    }

    /// A sender that announces again content that has already left by standard output.
    #[test]
    fn what_has_left_standard_output_is_not_sent_again() {
        let request = CopyRequest::new(CopyDirection::Pull, vec![b"x".to_vec()], TransferOptions::default());
        let request = CopyRequest { single_file: true, ..request };
        let (near, far) = job::local_pair(&request).unwrap();
        let network = request.options.network.clone();
        let receiving = std::thread::spawn(move || {
            let receive = CopySide::Receive(Destination::Pipe);
            run(AgreedCopy::new(near, request), receive, &Terms::default(), &Arc::default()).error
        });
        let begun =
            Session::start(far.session, network, ContentRole::Sender, DeliveryOrder::Any, &Arc::default());
        let (_, mut sender) = begun.unwrap();
        let entry = |id| ManifestEntry {
            id,
            path: b"x".to_vec(),
            mode: 0o644,
            mtime_secs: 0,
            mtime_nanos: 0,
            what: EntryContent::File {
                size: 4,
                inode: 1,
                device: 1,
                ctime: Default::default(),
                sparse: false,
                linked: false,
            },
            attributes: farhaul_volume::Attributes::new(),
            owner: None,
        };
        let again =
            CopyMessage::Renewed { id: 0, entry: ManifestEntry { path: Vec::new(), ..entry(1 << 48) } };
        Conversation::new(sender.request.clone()).send(&[CopyMessage::Entry(entry(0)), again]);
        while sender.step().is_ok() {}
        sender.close(None);
        let error = receiving.join().unwrap().unwrap();
        assert_eq!(error.misbehaviour(), Some(Misbehaviour::OutputTwice), "{error}");
    }

    #[test]
    fn a_receiver_that_has_finished_need_not_hear_it_from_the_sender() {
        let left = left_by(None);
        assert!(left.is_none(), "{left:?}");
        let left = left_by(Some(Error::misbehaved(Misbehaviour::FinishedTooEarly, "something is missing")));
        assert!(left.is_some_and(|error| error.to_string().contains("something is missing")));
    }
}
