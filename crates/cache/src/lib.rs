//! Keeps chunks of far files on this host's disk, for the next time that somebody reads them.
//!
//! How to read it: a [`Cache`] (`cache.rs`) is a directory. A chunk is asked for by its [`ChunkAddress`]
//! (`address.rs`), or by the digest of its content. `directory.rs` has the calls of the system, `order.rs` says which
//! chunks go first, `sweep.rs` removes them, `records.rs` knows the files that they are of.
//!
//! Always true: a chunk that is returned is the content that was put under its address, byte for byte. The BLAKE3 digest
//! that is the chunk's own name is checked when this process first reads it, whenever its file has changed, and whenever
//! a part of it has to come from the disk. So nothing has to be synced: whatever a crash, a power cut or a full disk
//! leaves is found or is missing, never wrong. The directory belongs to the user and nobody else can enter it.
//!
//! The directory is its own index, so nothing has to be rebuilt:
//!
//! | path | is |
//! | --- | --- |
//! | `v1/chunks/xx/DIGEST` | a chunk; its name is the digest of its content, its times are its place in the order |
//! | `v1/places/xx/ADDRESS` | a symbolic link, the target of which is the digest of the chunk at this address, and a check |
//! | `v1/files/xx/RECORD` | a version of a file of which chunks were put here |
//! | `v1/pins/xx/RECORD` | the name of files that stay |
//! | `v1/sums/xx/ADDRESS` | a symbolic link, the target of which is the digest of a whole file, and a check |
//! | `v1/ghosts` | chunks that had to go lately |
//! | `v1/new/NAME` | something that is being written |
//! | `v1/lock` | locked by the process that removes chunks |
//!
//! Does not know: who reads, how chunks come here, and what is in them.
#![forbid(unsafe_code)]

mod address;
mod cache;
mod directory;
mod ghosts;
mod order;
mod records;
mod sweep;
mod verified;

pub use address::{CHUNK, ChunkAddress, FileVersion, Place};
pub use cache::{Cache, CacheUsage, Cleaned, FaultyChunk};
pub use directory::CacheError;
pub use records::{CachedFile, HeldPart};

#[cfg(test)]
mod tests;
