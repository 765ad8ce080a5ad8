//! Moves big data between machines at the speed of the link: files and trees, or a program's own data.
//!
//! # Files
//!
//! [`copy()`], [`sync`] and [`verify()`] do what `farhaul cp`, `farhaul sync` and `farhaul verify` do. `run`
//! waits for the end; `start` returns a [`RunningTransfer`], whose [`Handle`] shows, controls and stops it:
//! [`Handle::snapshot`], [`Handle::events`], [`Handle::set_rate`], [`Handle::pause`], [`Handle::cancel`].
//! `examples/tree.rs` copies a tree and prints its progress.
//!
//! # A program's own data
//!
//! A program can send its own data, such as detector frames, columns of a table or volumes of a simulation,
//! by the transport of `farhaul cp`. A stream handles loss, rate, several flows and paths, blocked UDP and
//! lost connections as a copy does. It carries blocks of up to 1 MiB, which programs fill and read in the
//! memory that the cipher works on.
//!
//! `examples/frames.rs` moves generated detector frames between two processes. In short:
//!
//! ```no_run
//! use farhaul::{DaemonTarget, StreamOptions, StreamTarget, connect_to_send};
//!
//! let daemon = DaemonTarget { host: "archive".into(), port: 4000, ..DaemonTarget::default() };
//! let sender = connect_to_send(&StreamTarget::Daemon(daemon), StreamOptions::new("frames"))?;
//! for exposure in 0..1000_u32 {
//!     let mut block = sender.claim()?;
//!     let len = read_out_detector(block.as_mut_slice());
//!     block.set_len(len);
//!     sender.put(block, &exposure.to_le_bytes())?;
//! }
//! let report = sender.finish()?;
//! println!("{} bytes, {:.1} Mbit/s", report.bytes, report.goodput_bps / 1e6);
//! # fn read_out_detector(_: &mut [u8]) -> usize { 0 }
//! # Ok::<(), farhaul::Error>(())
//! ```
//!
//! At the other end, a program with a [`StreamListener`]:
//!
//! ```no_run
//! use farhaul::{AcceptedStream, ListenOptions, StreamListener};
//!
//! let listener = StreamListener::bind(ListenOptions { names: vec!["frames".into()], ..ListenOptions::default() })?;
//! while let AcceptedStream::Receiver(receiver) = listener.accept()? {
//!     while let Some(block) = receiver.next()? {
//!         println!("frame {:?}: {} bytes", block.metadata(), block.len());
//!         // Dropping the block tells the sender that it has been processed.
//!     }
//!     receiver.finish()?;
//! }
//! # Ok::<(), farhaul::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod endpoint;
mod transfer;

pub use endpoint::serve_endpoint;
pub use farhaul_connect::{
    DEFAULT_PORT, DaemonTarget, DialRequester, KnownHosts, PathPrefixes, PublicKey, SshMessages, SshTarget,
    ThisHost, default_identity_path, default_known_hosts_path, is_of_this_host, is_same_fingerprint, keygen,
    no_key,
};
pub use farhaul_copy::{
    BackupOptions, CLEAN_SCHEMA, CheckedReceipt, CleanFailure, CleanJob, CleanReport, CleanedFile, Confines,
    CopyDirection, CopyJob, DeleteLimit, DeleteOptions, DeleteWhen, DeletionStop, DeletionStopCause,
    Difference, Durability, EarlierOptions, FailedAction, FailedEntry, FailedRun, FileOptions, Finding,
    HostSpec, IntegrityOptions, JobConfines, Location, LocationSpec, ManifestOptions, NotSetEntry,
    OverwriteMode, OwnerOptions, RECEIPT_SCHEMA, REPORT_SCHEMA, Receipt, ReceiptOptions, Report,
    RetrySelection, SelectOptions, SignedStatement, SkippedEntry, SourceRoot, SpreadFigures, SpreadOptions,
    Statement, StatementSide, SyncOptions, TransferOptions, VERIFY_SCHEMA, VanishedEntry, VerifyJob,
    VerifyMode, VerifyReport, check as check_copy, clean as run_clean, earlier_path, is_manifest_result,
    manifest_root, receipt_is_possible, spread_of, verify as run_verify,
};
#[doc(hidden)]
pub use farhaul_copy::{
    CheckLimits, CheckVerdict, ContentCheck, GivenUp, InterruptibleOutput, ReceiverCheck, UncheckedFile,
};
pub use farhaul_read::{
    Answers, Depth, FileIdentity, FileRange, ListEntry, ListItem, PathKind, RangeQueue, RangeReader, Remote,
    RemoteFile, RemoteList,
};
pub use farhaul_session::amounts;
#[doc(hidden)]
pub use farhaul_session::rate_cap::{
    CapMembership, CapMemberships, CapUse, RateCap, RateGuarantee, RateShares, RateUsedUp, WeakCapMemberships,
};
pub use farhaul_session::{
    Blame, Budget, Carrier, Cipher, Code, CpuChoice, CpuList, EntryAction, Error, ErrorDetail, Event,
    EventLevel, EventReader, ExitCode, FLOWS_MAX, Fault, Handle, InterfaceName, MEMORY_MIN, MemoryLimits,
    Misbehaviour, NetworkOptions, PathAddresses, PathEnds, PathFigures, PathTraffic, Policy, RateOptions,
    ResourceLimits, SessionFacts, SessionLimits, SessionReport, Snapshot, StageFigures, TestHooks,
    TimedEvent, TransferId, TransferState, contained, disk_threads, flows_for_cores, misbehaviour_counts,
};
pub use farhaul_stream::{
    AcceptedStream, BLOCK_LEN_MAX, ClaimedBlock, ListenOptions, MESSAGE_LEN_MAX, METADATA_MAX, ReceivedBlock,
    StreamListener, StreamOptions, StreamReceiver, StreamSender, StreamTarget, accept_stdio,
    connect_to_receive, connect_to_send, pair,
};
#[doc(hidden)]
pub use farhaul_text::without_mark;
pub use farhaul_text::{escape, is_unprintable, plain, unescape};
pub use farhaul_volume::{Algorithm, Filter, FilterError, FilterSide, RuleList, Separator, is_pattern};
pub use transfer::{
    ReportVerdict, RunningTransfer, Transfer, TransferFailure, Verification, copy, run_copy, sync, verify,
};
