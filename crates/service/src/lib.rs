//! The transfer service: jobs that outlive the terminal, their history, caps, and an API for all of it.
#![forbid(unsafe_code)]

mod access;
mod api;
mod clock;
mod history;
mod hub;
mod job;
mod node;
mod scheduler;
mod store;

pub use job::{
    FinishBy, JOB_SCHEMA, JobId, JobOptions, JobSpec, Kind, Labels, Repeat, RetryRule, SelectRules, Span,
    State, Step,
};
