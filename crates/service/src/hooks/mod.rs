//! Tells others when a job begins, goes on and ends: runs programs of this host, and calls webhooks.
//!
//! How to read it: `config.rs` says which programs run when; `message.rs` is the JSON that both kinds get;
//! `batch.rs` collects results of files; `program/mod.rs` runs a program; `verify/` has programs look at files before
//! they get their names; `webhook/` delivers a message by HTTP.
//!
//! Nothing here knows the job store: the caller says what happened, and keeps the outcome.

mod batch;
mod config;
mod message;
mod program;
mod verify;
pub mod webhook;

pub use batch::{BatchBounds, HookBatch, HookBatcher};
pub use config::{Hook, HookMoment};
pub use message::{ErrorWords, FileResult, FileWords, HookMessage, JobWords, MESSAGE_SCHEMA, WatchWords};
use program::OUTPUT_MAX;
pub use program::{Program, ProgramEnd, ProgramStop, run};
pub use verify::{JobCheck, VerifyHook, VerifyHooks};
