//! Decides which jobs run, when, and how fast: pure functions of jobs, limits and the clock.
//!
//! `calendar.rs` says when a repeating job runs next, `backoff.rs` when a failed job is tried again,
//! `choice.rs` which queued jobs start, `queue.rs` which position a moved job gets, `deadline.rs` how fast a
//! job must go, and `promises.rs` which deadlines can be kept.
//!
//! Always true: nothing in here reads a clock, a file or a lock.

pub(crate) mod backoff;
pub(crate) mod calendar;
pub(crate) mod choice;
pub(crate) mod deadline;
pub(crate) mod promises;
pub(crate) mod queue;
