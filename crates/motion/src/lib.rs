//! Delay and rate that move by themselves, as those of radio links and satellites do. Simulator and lab share
//! these processes.
//!
//! How to read it: `delay.rs` says when a packet arrives, `rate.rs` what a bottleneck can carry, `words.rs`
//! how both are written on a command line; `random.rs` is the random generator.
//!
//! Always true: everything here is pure arithmetic. Time is an argument, and the same seed gives the same
//! values.
//!
//! Does not know: clocks, packets, links.

#![forbid(unsafe_code)]

mod delay;
mod error;
mod random;
mod rate;
mod words;

pub use delay::{DelayMotion, DelayProcess};
pub use error::Error;
pub use random::SplitMix64;
pub use rate::{RateMotion, ServiceCurve, TraceFile};
pub use words::{DELAY_FORMS, RATE_FORMS};

/// The direction in which a packet crosses a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkDirection {
    /// From the sender of the data.
    Forward,
    /// To the sender of the data.
    Back,
}

impl LinkDirection {
    /// The seed of this direction, from the seed of the link.
    pub fn seed(self, seed: u64) -> u64 {
        seed ^ match self {
            LinkDirection::Forward => 1,
            LinkDirection::Back => 2,
        }
    }
}
