//! A job: a transfer that the service owns, from the moment it is accepted to the one state that it ends in.
//!
//! `spec.rs` has the document that asks for one, `options.rs` who may ask for what in it,
//! `state.rs` what it can be and become, `failure.rs` why it has failed, `id.rs` how it is told apart.

mod failure;
mod id;
mod labels;
mod options;
mod spec;
mod state;
mod times;

pub use failure::JobFailure;
pub use id::JobId;
pub use labels::Labels;
pub(crate) use options::UsedOption;
pub use options::{JOB_OPTIONS, JobOption, OptionRule};
pub use spec::{JOB_SCHEMA, JobKind, JobOptions, JobSpec, RepeatRule, RetryRule, SelectRules};
pub use state::{JobState, JobStep, StepRefusal};
pub use times::{FinishBy, JobSpan};
