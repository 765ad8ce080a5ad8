//! A job: a transfer that the service owns, from the moment when it is accepted until it reaches its final
//! state.
//!
//! `spec.rs` has the document that asks for a job, `head.rs` the part of it that lists show, `options.rs` says
//! who may use which option in it, `steps.rs` has the steps between the states of a job, and what can be done with
//! it. What others read of a job is in `farhaul_api`.

mod head;
mod options;
mod spec;
mod steps;

pub(crate) use head::JobHead;
pub(crate) use options::UsedOption;
pub use options::{JOB_OPTIONS, JobOption, OptionRule};
pub(crate) use spec::RetryRule;
pub use spec::{JOB_SCHEMA, JobSpec};
pub(crate) use steps::{JobStep, JobSteps, Resumption, StepRefusal};
