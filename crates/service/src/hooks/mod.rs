//! What is told to others when a job begins, goes on and ends: programs of this host, and addresses that take
//! webhooks.
//!
//! How to read it: `config.rs` says which programs are run when; `message.rs` is the JSON that either kind is
//! given; `batch.rs` collects what became of files; `program.rs` runs a program; `webhook/` delivers a
//! message by HTTP.
//!
//! Nothing here knows the store of jobs: who calls says what happened, and keeps what came of it.

mod batch;
mod config;
mod message;
mod program;
pub mod webhook;

pub use batch::{BatchBounds, HookBatch, HookBatcher};
pub use config::{Hook, HookMoment};
pub use message::{ErrorWords, FileResult, FileWords, HookMessage, JobWords, MESSAGE_SCHEMA};
pub use program::{Program, ProgramEnd, ProgramStop, run};
