//! How a transfer's threads hand blocks to one another: rings of block descriptors, and how who waits for one is woken.
//!
//! [`Ring`] joins any number of threads at either end. [`HandOver`] is a ring whose takers wait for a bell,
//! [`WaitingRoom`] is where those wait who have something for a ring that is full enough, and [`SleepNotes`]
//! how a thread sleeps that looks after several queues. [`Held`] says what becomes of a lock whose holder has
//! panicked.
//!
//! All of it is model-checked: `./x loom` goes through the orders in which the threads of `tests/loom.rs` can run, up to three switches
//! ahead of time, and the values that the memory model lets them see.
#![deny(unsafe_code)]

mod hand_over;
mod lock_result;
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
