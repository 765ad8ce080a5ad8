//! The memory that holds content on its way: a fixed number of blocks, and a file on disk for those that wait
//! too long to stay in memory.
//!
//! How to read it: a [`BlockPool`] hands out [`Block`]s, which return to it when they are dropped. An
//! [`Overflow`] is the file that blocks are moved to: an [`OverflowReservation`] reserves room in it, and a
//! [`ParkedBlock`] is a block in it. [`last_level_cache_bytes`] says how much the processor's cache holds,
//! [`page_use()`] which pages pools lie in.
//!
//! Always true: the size of a pool is the most memory that it takes; no block has two owners. The only
//! `unsafe` is the memory of `pool`.
//!
//! Does not know: what is in a block, and the files of users. The overflow is a file without a name, where
//! the system keeps temporary files.

#![deny(unsafe_code)]

mod cache;
mod overflow;
mod page_use;
#[expect(unsafe_code, reason = "the mapping that the blocks are parts of, and hints to the processor")]
mod pool;

pub use cache::last_level_cache_bytes;
pub use overflow::{Overflow, OverflowReservation, ParkedBlock};
pub use page_use::{PageUse, page_use};
pub use pool::{Block, BlockPool, FillPattern};
