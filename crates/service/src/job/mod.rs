//! A job: a transfer that the service owns, from the moment it is accepted to the one state that it ends in.
//!
//! `spec.rs` has the document that asks for one, `options.rs` who may ask for what in it,
//! `state.rs` what it can be and become, `failure.rs` why it has failed, `id.rs` how it is told apart.

mod failure;
mod id;
mod labels;
mod moment;
mod options;
mod spec;
mod state;

pub use failure::Failure;
pub use id::JobId;
pub use labels::Labels;
pub use moment::{FinishBy, Span};
pub(crate) use options::Used;
pub use options::{JOB_OPTIONS, JobOption, Rule};
pub use spec::{JOB_SCHEMA, JobOptions, JobSpec, Kind, Repeat, RetryRule, SelectRules};
pub use state::{Refused, State, Step};
