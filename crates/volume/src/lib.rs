//! Files as a transfer needs them: found by a scan, read and written in chunks, digested, and safe against
//! paths and contents that a peer has chosen.
//!
//! A sender uses `scan` (with `filter`) and `source_file`; a receiver opens a `root` and writes with
//! `small_file` (small files as a whole) or `partial` (large files, which their `journal` makes resumable).
//! Both use `digest` and the blocks of `farhaul_blocks`.
//!
//! Always true: nothing here knows of packets or peers. Every path below a [`Root`] is a checked [`RelPath`].
//! No symbolic link leads out of a root, and only operations that say so follow one at all. The only `unsafe`
//! is in the user look-up of `passwd` and the system calls of `sys`.

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they look at"))]

mod attributes;
mod backup;
mod change;
mod clone;
mod delta;
mod digest;
mod dir;
mod direct_io;
mod entry;
mod error;
mod extra_digests;
mod filter;
mod fixed_entries;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod generated_source;
mod glob;
mod inode_numbers;
mod io_choice;
mod io_load;
mod journal;
mod kept_directories;
mod leftovers;
mod lent_file;
mod links;
mod metadata;
mod mount;
mod multiset;
mod name_trial;
mod own_files;
mod own_names;
mod partial;
#[expect(unsafe_code, reason = "the C library's look-up of a user")]
mod passwd;
mod precision;
mod predecessor;
mod ranges;
mod rel_path;
mod removal;
mod room;
mod root;
mod scan;
mod small_file;
mod source_file;
mod sparse_file;
#[expect(unsafe_code, reason = "the raw system calls, each with its reason")]
mod sys;
mod temp_file;
mod writeback;

pub use attributes::{AttributeKinds, Attributes, FoundAttributes};
pub use backup::{EntryBackup, KeepOutcome, OldName, make_backup_directories};
pub use clone::clone_file;
pub use delta::{Marks, PIECE, Patch, write_patch};
pub use digest::{ChunkCv, Digest, FileTree, chunk_cv, whole_digest};
pub use dir::{NameError, name_error};
pub use entry::{Entry, EntryKind, FileKind, FileTime, Metadata, SpecialNode};
pub use error::{Error, PartialError};
pub use extra_digests::{Algorithm, Hashers};
pub use filter::{Filter, FilterError, FilterSide, RULES_BYTES_MAX, RULES_MAX, RuleList, Separator};
pub use generated_source::GeneratedSource;
pub use glob::{GlobAllowance, GlobBase, expand, expand_home, is_pattern, stands_for};
pub use journal::PartialRequest;
pub use kept_directories::is_out_of_descriptors;
pub use leftovers::{Leftover, LeftoverFile, find_leftovers};
pub use lent_file::LentFile;
pub use links::leads_out;
pub use metadata::{OwnerWish, is_about_metadata, umask};
pub use mount::Border;
pub use multiset::Multiset;
pub use partial::{InPlace, Partial, PatchOutcome, Resume, SourceIdentity, SourceState};
pub use passwd::{group_id, group_name, user_id, user_name};
pub use precision::{Precision, are_within, coarser};
pub use predecessor::Predecessor;
pub use ranges::ChunkMap;
pub use rel_path::{RelPath, RelPathError};
pub use removal::{Departure, Removal, RemovalKeeper, RemovalOutcome};
pub use root::{ProbeNames, Root, is_way_out};
pub use scan::{
    HardLinkTrust, ScanItem, ScanOptions, Scanner, Selection, SizeLimits, Source, SourceRef, SpecialSources,
};
pub use small_file::{TempFile, UnnamedFile, WriteOptions, write_new, write_whole};
pub use source_file::{Digests, SourceFile, is_changed};

/// Bytes of a chunk: the part of a large file that is read, digested, sent and written at once.
pub const CHUNK: u64 = 1 << 20;
