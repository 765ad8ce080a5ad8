//! The engine joins transport, links and volume into transfers.
//!
//! How to read it: [`copy`] is what `farhaul cp` and `farhaul sync` call. It finds the far end (`bootstrap/`), which yields an
//! `Established` session: a secret and links. `session/` runs it: a thread per flow, readers or writers, and one
//! thread that speaks the control messages of `messages.rs`. [`Progress`] can be watched meanwhile, [`Report`] comes
//! out at the end. [`stream`] is for programs that move something else than files by the same session.
#![forbid(unsafe_code)]

pub mod bootstrap;
mod budget;
mod cipher;
mod clean;
mod codec;
mod contained;
mod copy;
mod cpus;
mod endpoint;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hello;
mod manifest;
mod messages;
mod options;
mod progress;
mod report;
mod retry;
mod secret;
pub mod session;
pub mod stream;
mod testing;
mod trailer;
mod verify;

pub use bootstrap::{DaemonTarget, SshTarget, keygen};
pub use budget::{Budget, Charge, Full, MemoryLimits};
pub use clean::{CLEAN_SCHEMA, CleanFailure, CleanJob, CleanReport, CleanedFile, clean};
pub use contained::contained;
pub use copy::{CopyJob, Location, copy};
pub use cpus::{CpuList, disk_threads, flows_for_cores};
pub use endpoint::serve_endpoint;
pub use error::{Error, ExitCode};
pub use farhaul_net::Fault;
pub use farhaul_volume::{Algorithm, FilterError, RuleList, Separator, escape, is_unprintable, unescape};
pub use options::{
    Cipher, DeleteOptions, DeleteWhen, FLOWS_MAX, MEMORY_MIN, ManifestOptions, Overwrite, PathAddresses,
    Policy, RateOptions, SelectOptions, SpreadOptions, SyncOptions, TransferOptions, Verify,
};
pub use progress::Progress;
pub use report::{
    Action, CpuChoice, FailedEntry, NotTakenEntry, PathFigures, REPORT_SCHEMA, Report, SpreadFigures, Stage,
};
pub use retry::{FailedRun, Retry};
pub use secret::Secret;
pub use testing::Testing;
pub use verify::{Difference, Finding, VERIFY_SCHEMA, VerifyJob, VerifyReport, verify};
