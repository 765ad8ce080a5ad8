//! Keeps chunks of far files on this host's disk, for the next time that somebody reads them.
//!
//! How to read it: a [`Cache`] (`cache.rs`) is a directory. A chunk is asked for by its [`ChunkAddress`]
//! (`address.rs`), or by the digest of its content. `directory.rs` has the calls of the system, `sweep.rs` removes what
//! was used longest ago.
//!
//! Always true: a chunk that is returned is the content that was put under its address, byte for byte. Each read checks
//! the BLAKE3 digest that is the chunk's own name, so nothing has to be synced: whatever a crash, a power cut or a full
//! disk leaves is found or is missing, never wrong. The directory belongs to the user and nobody else can enter it.
//!
//! The directory is its own index, so nothing has to be rebuilt:
//!
//! | path | is |
//! | --- | --- |
//! | `v1/chunks/xx/DIGEST` | a chunk; its name is the digest of its content, its time is that of its last use |
//! | `v1/places/xx/ADDRESS` | a symbolic link, the target of which is the digest of the chunk at this address, and a check |
//! | `v1/new/NAME` | a chunk that somebody writes |
//! | `v1/lock` | locked by the process that removes chunks |
//!
//! Does not know: who reads, how chunks come here, and what is in them.
#![forbid(unsafe_code)]

mod address;
mod cache;
mod directory;
mod sweep;

pub use address::{CHUNK, ChunkAddress, FileVersion, Place};
pub use cache::{Cache, CacheUsage, Cleaned};
pub use directory::CacheError;

#[cfg(test)]
mod tests;
