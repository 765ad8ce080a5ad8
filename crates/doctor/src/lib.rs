//! Says why a host is slow, and what to do about it.
//!
//! How to read it: [`host`] is the one port through which everything is read, so that a recording stands for a
//! machine. `case` makes network cards, disks and mounts of it. [`check`] has the table of checks, each a pure function
//! of a case and a [`target`]. [`Diagnosis`] runs them all. [`remedy`] changes what findings propose, measures, and takes
//! back. [`limit`] explains the limits that a transfer's report names. `page` writes the page of all of this.
//! [`path`] judges what tests of a path have measured, and [`hops`] looks for several ways.
//!
//! Nothing is changed but by [`remedy`].
#![deny(unsafe_code)]

mod case;
pub mod check;
mod diagnosis;
mod error;
pub mod hops;
pub mod host;
pub mod limit;
pub mod page;
pub mod path;
pub mod remedy;
#[allow(unsafe_code)]
mod sys;
pub mod target;

pub use case::Case;
pub use diagnosis::{Diagnosis, Found, commands, read_everything};
pub use error::Error;
