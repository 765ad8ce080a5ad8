//! The transfer service: jobs that outlive the terminal, their history, caps, and an API for all of it.
//!
//! How to read it: [`serve()`] is what `farhaul serve` calls; the command line asks the service through a
//! [`ServiceClient`]. `job` says what a job is, `store` keeps it, `scheduler` decides when it runs, `node`
//! runs it, `access` says who may do what, `api` takes requests.
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

pub use client::{ServiceAddress, ServiceClient, ServiceEvent};
pub use clock::Clock;
pub use hooks::webhook::{AddressRules, AllowedNetwork, WebhookReceiver, WebhookSettings, WebhookUrl};
pub use hooks::{BatchBounds, Hook, HookMoment};
pub use job::{JOB_OPTIONS, JOB_SCHEMA, JobOption, JobSpec, OptionRule};
pub use node::{NodeIdentity, NodeSettings, PeerSettings, RetentionRules, WatchSpec};
pub use scheduler::choice::JobSlots;
pub use serve::{ServiceConfig, own_sockets, serve};
pub use watch::AfterAction;
