//! The engine joins transport, links and volume into transfers.
//!
//! How to read it: [`copy`] is what `farhaul cp` and `farhaul sync` call. It finds the far end (`connect/`), which yields an
//! `Established` session: a secret and links. `session/` runs it: a thread per flow, and one that speaks with the peer;
//! `copy/` has readers, writers and what they say to each other. [`Progress`] can be watched meanwhile, [`Report`] comes
//! out at the end. [`stream`] is for programs that move something else than files by the same session.
#![forbid(unsafe_code)]

pub mod connect;
mod copy;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod options;
pub mod session;
pub mod stream;
mod testing;

pub use connect::{DaemonTarget, SshTarget, keygen};
pub use copy::clean::{CLEAN_SCHEMA, CleanFailure, CleanJob, CleanReport, CleanedFile, clean};
pub use copy::endpoint::serve_endpoint;
pub use copy::job::{CopyJob, Location, copy};
pub use copy::report::{Action, FailedEntry, NotTakenEntry, REPORT_SCHEMA, Report, SpreadFigures};
pub use copy::retry::{FailedRun, Retry};
pub use copy::verify::{Difference, Finding, VERIFY_SCHEMA, VerifyJob, VerifyReport, verify};
pub use copy::{Direction, Request, ServerPolicy, SessionSummary, admit, serve};
pub use error::{Error, ExitCode};
pub use farhaul_net::Fault;
pub use farhaul_volume::{Algorithm, FilterError, RuleList, Separator, escape, is_unprintable, unescape};
pub use options::{
    DeleteOptions, DeleteWhen, ManifestOptions, Overwrite, SelectOptions, SpreadOptions, SyncOptions,
    TransferOptions, Verify,
};
pub use session::budget::{Budget, Charge, Full, MemoryLimits};
pub use session::contained::contained;
pub use session::cpus::{CpuList, disk_threads, flows_for_cores};
pub use session::figures::{CpuChoice, PathFigures, Stage};
pub use session::options::{
    Cipher, FLOWS_MAX, MEMORY_MIN, NetworkOptions, PathAddresses, Policy, RateOptions,
};
pub use session::progress::Progress;
pub use session::report::SessionReport;
pub use session::secret::Secret;
pub use testing::Testing;
