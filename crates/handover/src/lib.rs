//! How a transfer's threads hand blocks to one another: rings of block descriptors, and ways to wake the
//! threads that wait.
//!
//! [`Ring`] joins any number of threads at either end. [`HandOver`] is a ring whose taking threads wait for a
//! bell. In a [`WaitingRoom`], threads wait for room in a ring. With [`SleepNotes`], a thread that serves
//! several queues sleeps. [`Held`] says what to do about a lock whose holder has panicked. By [`permit`] threads
//! find out whether one of them changes something without permission.
//!
//! All of it is model-checked: `./x loom` runs the orders in which the threads of `tests/loom.rs` can run,
//! with up to three preemptions, and the values that the memory model lets them see.
#![deny(unsafe_code)]

mod hand_over;
mod lock_result;
pub mod permit;
#[expect(unsafe_code, reason = "slots of the ring that one thread at a time owns")]
mod ring;
mod sleep_notes;
mod sync;
mod waiting_room;

pub use hand_over::{Bell, HandOver};
pub use lock_result::Held;
pub use ring::Ring;
pub use sleep_notes::SleepNotes;
pub use waiting_room::WaitingRoom;
