//! The transfer service: jobs that outlive the terminal, their history, caps, and an API for all of it.
//!
//! How to read it: [`serve()`] is what `farhaul serve` calls, [`Client`] how the command line asks it. `job` says what a job is, `store`
//! keeps it, `scheduler` decides about it, `node` does it, `access` says who may, `api` is how it is asked for.
#![forbid(unsafe_code)]

mod access;
mod api;
pub mod audit;
mod caps;
mod client;
mod clock;
pub mod config;
mod drain;
mod history;
mod hooks;
mod host;
mod hub;
mod job;
mod metrics;
mod node;
pub mod notify;
mod page;
mod scheduler;
mod serve;
pub mod state_dir;
mod store;
mod watch;

pub use access::{Reach, Scope};
pub use api::Problem;
pub use client::{Address, Client, Told};
pub use clock::Clock;
pub use hooks::webhook::{Network, Url, Webhook, Webhooks};
pub use hooks::{Bounds, Hook, When};
pub use job::{
    FinishBy, JOB_OPTIONS, JOB_SCHEMA, JobId, JobOption, JobOptions, JobSpec, Kind, Labels, Repeat,
    RetryRule, Rule, SelectRules, Span, State,
};
pub use node::{Identity, Kept, Peer, Settings, WatchSpec};
pub use scheduler::choice::Places;
pub use serve::{ServiceConfig, default_sockets, default_state, serve};
pub use watch::After;
