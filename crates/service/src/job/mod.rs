//! A job: a transfer that the service owns, from the moment when it is accepted until it reaches its final
//! state.
//!
//! `spec.rs` has the document that asks for a job, `head.rs` the part of it that lists show, `options.rs` says
//! who may use which option in it, `state.rs` has the states of a job and the steps between them, `deeds.rs`
//! what can be done with it, `failure.rs` says why an attempt failed, `id.rs` names jobs.

mod deeds;
mod failure;
mod head;
mod id;
mod labels;
mod options;
mod spec;
mod state;
mod times;

pub use deeds::JobDeed;
pub use failure::JobFailure;
pub(crate) use head::JobHead;
pub use id::JobId;
pub(crate) use labels::LABELS_MAX;
pub use labels::Labels;
pub(crate) use options::UsedOption;
pub use options::{JOB_OPTIONS, JobOption, OptionRule};
pub(crate) use spec::RetryRule;
pub use spec::{
    BackupRules, EarlierRules, JOB_SCHEMA, JobKind, JobOptions, JobSpec, PRIORITY_MAX, RepeatRule,
    RetryOptions, SelectRules,
};
pub use state::{JobState, JobStep, Resumption, StepRefusal};
pub use times::{FinishBy, JobSpan};
