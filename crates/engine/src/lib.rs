//! The engine joins transport, links and store into transfers.
//!
//! How to read it: [`copy`] is what `farhaul cp` and `farhaul sync` call. It finds the far end (`bootstrap/`), which yields an
//! `Established` session: a secret and links. `session/` runs it: a thread per flow, readers or writers, and one
//! thread that speaks the control messages of `messages.rs`. [`Progress`] can be watched meanwhile, [`Report`] comes
//! out at the end.
#![forbid(unsafe_code)]

pub mod bootstrap;
mod cipher;
mod codec;
mod copy;
mod endpoint;
mod error;
pub mod hello;
mod messages;
mod options;
mod progress;
mod report;
pub mod session;
mod trailer;

pub use bootstrap::{DaemonTarget, SshTarget, keygen};
pub use copy::{CopyJob, Location, copy};
pub use endpoint::serve_endpoint;
pub use error::{Error, ExitCode};
pub use farhaul_store::{FilterError, RuleList, Separator};
pub use options::{
    Cipher, DeleteOptions, DeleteWhen, FLOWS_MAX, MEMORY_MIN, Overwrite, PathAddresses, Policy, RateOptions,
    SelectOptions, SyncOptions, TransferOptions, Verify,
};
pub use progress::Progress;
pub use report::{FailedEntry, REPORT_SCHEMA, Report, Stage};
