//! Looks at files where they are: lists, attributes, random reads and digests of files on a far host, over a
//! session that lasts as long as somebody wants to read.
//!
//! How to read it: a program holds a [`Remote`] (`remote/mod.rs`), which talks (`messages/mod.rs`) with [`serve()`]
//! at the other end (`serve.rs`). Contents come in blocks, each of which carries pieces of answers
//! (`pieces.rs`).
//!
//! Always true: nothing is written at the far end; a file that has changed since it was opened is not read
//! any further.
//!
//! Does not know: packets, and how the two ends have found each other.
#![forbid(unsafe_code)]

mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod messages;
mod pieces;
mod read_scope;
mod record_stream;
mod remote;
mod request;
mod serve;
mod work;

pub use messages::{FileIdentity, FileRange, ListEntry, PathKind};
pub use remote::{
    Answers, Depth, Dial, KeyNames, LastingFile, LastingRemote, ListItem, Patience, RangeQueue, RangeReader,
    Remote, RemoteFile, RemoteList,
};
pub use request::{SERVICE, admit, admit_within};
pub use serve::{ReadOutcome, ReadServerPolicy, serve};

#[cfg(test)]
mod tests;
