//! Moves big data between machines at the speed of the link: files and trees, or a program's own data.
//!
//! # Files
//!
//! [`copy()`], [`sync`] and [`verify()`] do what `farhaul cp`, `farhaul sync` and `farhaul verify` do. `run`
//! waits for the end; `start` returns a [`copy::RunningTransfer`], whose [`Handle`] shows, controls and stops it:
//! [`Handle::snapshot`], [`Handle::events`], [`Handle::set_rate`], [`Handle::pause`], [`Handle::cancel`].
//! `examples/tree.rs` copies a tree and prints its progress.
//!
//! Locations may also be values, and options have groups; everything that is left out has its default:
//!
//! ```no_run
//! use farhaul::copy::{CopyJob, Location, Transfer};
//! use farhaul::target::DaemonTarget;
//!
//! let daemon = DaemonTarget { host: "archive".into(), ..DaemonTarget::default() };
//! let destination = Location::Daemon { target: daemon, path: b"/data/run7".to_vec() };
//! let mut job = CopyJob::new([Location::Local("run7/".into())], destination);
//! job.options.network.rate_bps = Some(10_000_000_000);
//! let report = Transfer::of(job).run()?;
//! println!("{} files", report.files);
//! # Ok::<(), farhaul::copy::TransferFailure<farhaul::copy::Report>>(())
//! ```
//!
//! # In a program's own loop
//!
//! [`Handle::events`] returns a reader of what happens. Its descriptor
//! ([`as_fd`](events::EventReader::as_fd)) is readable while an event waits, so that a loop over descriptors
//! can watch it beside others; [`take`](events::EventReader::take) never waits.
//!
//! # What it does not do
//!
//! No terminal is opened: a connection that would have to ask for something fails with an error that says for what,
//! unless its target allows [`Prompts`](target::Prompts). A fault of this crate is an error
//! ([`FH-BUG`](errors::Code::Bug)) of the call in which it shows, and never a panic of the program.
//!
//! # After a fork
//!
//! A child that was forked has a copy of everything here, and must use none of it: the sessions are its parent's.
//! Calls on them fail with [`FH-FORKED`](errors::Code::Forked) at once, and dropping them in the child does nothing.
//! A child may make new ones. The kernel wipes the secrets of sessions in a child, and a child does not have the
//! memory of blocks at all.
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
//! use farhaul::stream::{StreamOptions, StreamTarget, connect_to_send};
//! use farhaul::target::DaemonTarget;
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
//! At the other end, a program with a [`StreamListener`](stream::StreamListener):
//!
//! ```no_run
//! use farhaul::stream::{AcceptedStream, ListenOptions, StreamListener};
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
mod job_document;
mod transfer;

pub use farhaul_session::Handle;
pub use farhaul_words::Error;
pub use transfer::{copy, sync, verify};

/// Copies, syncs and verifications: what they are made of and what they report.
pub mod copy {
    pub use farhaul_copy::{
        CopyJob, DeletionStop, DeletionStopCause, Difference, FailedAction, FailedEntry, FailedRun, Finding,
        HostSpec, Location, LocationSpec, NotSetEntry, Receipt, ReceiptOptions, Report, RetrySelection,
        SignedStatement, SkippedEntry, SpreadFigures, Statement, StatementSide, VanishedEntry, VerifyJob,
        VerifyReport,
    };
    pub use farhaul_words::SessionReport;

    pub use crate::transfer::{ReportVerdict, RunningTransfer, Transfer, TransferFailure, Verification};
}

/// The documents that ask for a copy, a sync, a verification, a read or a stream: JSON objects, as bindings and the service's jobs
/// have them.
pub mod document {
    pub use farhaul_api::{JobKind, JobSpan};

    pub use crate::job_document::{
        BackupRules, Connection, EarlierRules, JobOptions, ListenDocument, ReadDocument, SelectRules,
        StreamDocument, TransferDocument, VerifyDocument, bytes, location, read,
    };
}

/// The options of a transfer, in groups.
pub mod options {
    pub use farhaul_copy::{
        BackupOptions, DeleteLimit, DeleteOptions, DeleteWhen, Durability, EarlierOptions, FileOptions,
        IntegrityOptions, ManifestOptions, OverwriteMode, OwnerOptions, SelectOptions, SpreadOptions,
        SyncOptions, TransferOptions, VerifyMode,
    };
    pub use farhaul_session::{
        CpuList, InterfaceName, NetworkOptions, PathAddresses, RateOptions, SessionLimits,
    };
    pub use farhaul_volume::Algorithm;
    pub use farhaul_words::{Cipher, Policy};
}

/// Far ends, and the keys by which both ends know each other.
pub mod target {
    pub use farhaul_connect::{
        Bring, Bringing, DEFAULT_PORT, DaemonTarget, KnownHosts, Prompts, PublicKey, SshMessages, SshTarget,
        ThisHost, default_identity_path, default_known_hosts_path, keygen,
    };
}

/// A program's own data.
pub mod stream {
    pub use farhaul_stream::{
        AcceptedStream, BLOCK_LEN_MAX, ClaimedBlock, ListenOptions, MESSAGE_LEN_MAX, METADATA_MAX, NextBlock,
        ReceivedBlock, StreamListener, StreamOptions, StreamReceiver, StreamSender, StreamTarget,
        accept_stdio, connect_to_receive, connect_to_send, pair,
    };
}

/// Connections of TCP through a session.
pub mod tunnel {
    pub use farhaul_tunnel::{
        Forward, Forwarder, ListenPlace, Target, Tunnel, TunnelEvent, TunnelObserver, TunnelStream,
    };
    pub use farhaul_words::Failure;
}

/// Files that stay where they are.
pub mod read {
    pub use farhaul_read::{
        Answers, Depth, Dial, FileIdentity, FileRange, KeyNames, LastingFile, LastingRemote, ListEntry,
        ListItem, PathKind, Patience, RangeQueue, RangeReader, Remote, RemoteFile, RemoteList,
    };
}

/// Names that change where they are: directories are made, entries renamed and removed.
pub mod names {
    pub use farhaul_names::{IntoDirectory, RemoteNames, RemoveExtent, RenameRule};
    pub use farhaul_volume::FileTime;
}

/// What happens in a transfer, and how it stands.
pub mod events {
    pub use farhaul_session::EventReader;
    pub use farhaul_words::{
        BlockMemory, Carrier, CpuChoice, EntryAction, Event, EventLevel, PathEnds, PathFigures, PathTraffic,
        SessionFacts, Snapshot, Stage, StageFigures, TimedEvent, TransferId, TransferState,
    };
}

/// What an [`Error`] says beside its text.
pub mod errors {
    pub use farhaul_words::{Blame, Code, ErrorDetail, ErrorDocument, ExitCode, Misbehaviour, OptionName};
}

/// What the other crates of this workspace need beyond that. It is no part of what a program can rely on.
#[doc(hidden)]
pub mod sisters {
    pub use farhaul_connect::{
        DialRequester, PathPrefixes, is_of_this_host, is_same_fingerprint, kept, no_key,
    };
    pub use farhaul_copy::{
        CLEAN_SCHEMA, CheckLimits, CheckVerdict, CheckedReceipt, CleanFailure, CleanJob, CleanReport,
        CleanedFile, Confines, ContentCheck, CopyDirection, GivenUp, InterruptibleOutput, JobConfines,
        RECEIPT_SCHEMA, REPORT_SCHEMA, ReceiverCheck, SourceRoot, UncheckedFile, VERIFY_SCHEMA,
        check as check_copy, clean as run_clean, earlier_path, is_manifest_result, manifest_root,
        receipt_is_possible, spread_of, verify as run_verify,
    };
    pub use farhaul_session::rate_cap::{
        CapMembership, CapMemberships, CapUse, RateCap, RateGuarantee, RateShares, RateUsedUp,
        WeakCapMemberships,
    };
    pub use farhaul_session::{
        Budget, FLOWS_MAX, Fault, MEMORY_MIN, MemoryLimits, ResourceLimits, TestHooks, contained,
        disk_threads, flows_for_cores,
    };
    pub use farhaul_text::{escape, is_unprintable, plain, unescape, without_mark};
    pub use farhaul_volume::{Filter, FilterError, FilterSide, RuleList, Separator, is_pattern};
    pub use farhaul_words::{amounts, misbehaviour_counts};

    pub use farhaul_fork::{Origin, PerProcess};

    pub use farhaul_diagnose::{Examination, ExaminedPeer, ExaminedWay, PeerDiagnosis, examine};

    pub use crate::endpoint::serve_endpoint;
    pub use crate::transfer::run_copy;
}
