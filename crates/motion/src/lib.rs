//! Delay and rate that move by themselves, as those of radio links and satellites do: the processes that simulator and lab
//! have in common.
//!
//! How to read it: `delay.rs` says when a packet arrives, `rate.rs` what a bottleneck can carry, `random.rs` throws the dice.
//!
//! Always true: everything here is pure arithmetic. Time is an argument, and the same seed gives the same values.
//!
//! Does not know: clocks, packets, links.

#![forbid(unsafe_code)]

mod delay;
mod random;
mod rate;

pub use delay::{Motion, Moving};
pub use random::Random;
pub use rate::{RateMotion, Service, TraceFile};
