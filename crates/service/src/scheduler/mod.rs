//! Who runs, and when: pure functions of jobs, limits and the clock.
//!
//! `calendar.rs` says when a job that repeats runs next, `backoff.rs` when one that failed is tried again, `choice.rs` which of
//! those that wait get a place, `queue.rs` where one stands that was moved, `deadline.rs` how fast one has to be.
//!
//! Always true: nothing in here reads a clock, a file or a lock.

pub(crate) mod backoff;
pub(crate) mod calendar;
pub(crate) mod choice;
pub(crate) mod deadline;
pub(crate) mod queue;
