//! What the two ends of a copy say to each other on the session's control stream, as values and as bytes.
//!
//! The first byte of a message is its code. Paths share a prefix with the path before, so a tree's manifest costs
//! little more than its names. docs/reference/wire.md has the table.
//!
//! Always true: decoding never panics.

mod decode;
mod encode;
mod entry_sort;
#[cfg(feature = "planted-bug")]
mod planted_fault;
#[cfg(test)]
mod tests;

use farhaul_volume::{Attributes, Border, ChunkCv, Digests, FileTime, SpecialNode};

use crate::failures::Failure;

pub(crate) use self::decode::{Decoder, decode_spread};
pub(crate) use self::encode::{Encoder, encode_spread};
pub(crate) use self::entry_sort::EntrySort;

/// Chunk ranges in one `Have`; what does not fit is sent again.
pub(crate) const RANGES_MAX: usize = 4096;
/// Added to an entry's kind: attributes follow.
const ATTRIBUTES: u8 = 0x40;
/// An entry that is announced again has this added to its id each time.
pub(crate) const RENEWAL: u64 = 1 << 48;

/// One entry of the manifest. Ids count up from 0 in the order of sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestEntry {
    pub(crate) id: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) mtime_secs: i64,
    pub(crate) mtime_nanos: u32,
    pub(crate) what: EntryContent,
    /// Of files and directories, if they are asked for.
    pub(crate) attributes: Attributes,
}

impl ManifestEntry {
    /// What its names and attributes take in memory.
    pub(crate) fn names_bytes(&self) -> usize {
        // An attribute of nothing takes two bytes on the way and two vectors here.
        const PAIR: usize = size_of::<(Vec<u8>, Vec<u8>)>();
        let target = if let EntryContent::Symlink { target } = &self.what { target.len() } else { 0 };
        let pairs = self.attributes.iter().map(|(name, value)| PAIR + name.len() + value.len());
        self.path.len() + target + pairs.sum::<usize>()
    }

    pub(crate) fn mtime(&self) -> FileTime {
        FileTime { secs: self.mtime_secs, nanos: self.mtime_nanos }
    }

    /// Bytes of content, as far as they are known ahead.
    pub(crate) fn size(&self) -> u64 {
        if let EntryContent::File { size, .. } = self.what { size } else { 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryContent {
    File {
        size: u64,
        inode: u64,
        device: u64,
        /// When anything of it was last changed. Only of a file of more than one chunk, of which parts may be kept.
        ctime: FileTime,
        sparse: bool,
        /// Later entries may be hard links to this one.
        linked: bool,
    },
    /// A file whose size is known only at its end (a pipe).
    Stream,
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    HardLink {
        to: u64,
    },
    Special(SpecialNode),
}

/// How an entry is there, when entries are listed ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Anything but a directory.
    Plain,
    /// A directory, whose entries come next.
    Directory,
    /// Of that directory nothing more comes.
    DirectoryEnd,
    /// Of that directory nothing more is said, though there may be more in it.
    DirectoryUnlisted,
}

/// What the receiver wants of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// All of it.
    Send,
    /// All but these chunk ranges (first, count), which an earlier run brought.
    Have(Vec<(u64, u64)>),
    /// All but what an earlier run brought; and of the chunks below `old_chunks` only what differs from what is here: its values and
    /// marks follow ([`CopyMessage::Kept`], [`CopyMessage::Marks`]).
    Patch { have: Vec<(u64, u64)>, old_chunks: u64 },
    /// Nothing: what is there may not be overwritten, whatever it is.
    Keep,
    /// It would be sent, but this is a dry run.
    Listed,
    /// Whether all of it depends on whether its content has this digest.
    Compare([u8; 32]),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CopyMessage {
    // Sender to receiver.
    Entry(ManifestEntry),
    /// Everything below the directory `id` has been listed.
    DirectoryEnd {
        id: u64,
    },
    /// The sender could not read something; kept for the receiver's report.
    SourceFailed {
        path: Vec<u8>,
        failure: Failure,
    },
    /// All chunks of file `id` have been sent; `size` matters for streams.
    /// `chunks` is how many there are, those of earlier runs included; holes have none.
    FileEnd {
        id: u64,
        size: u64,
        chunks: u64,
    },
    /// File `id` cannot be completed: it changed or could not be read.
    FileFailed {
        id: u64,
        failure: Failure,
    },
    /// File `id` has changed: what came of it is void, and it is announced again, under an id that no entry has.
    Renewed {
        id: u64,
        entry: ManifestEntry,
    },
    /// The scan is over.
    EntriesEnd,
    /// There is something of this name, which is not sent: it is no reason to remove what the receiver has. Of the directory whose
    /// entries are being listed: nothing more of them is said, though there may be some. Only said when something may be removed.
    LeftOut {
        path: Vec<u8>,
    },
    /// Ahead of the entries: what there will be, in their order, so that the rest can be removed first.
    Present {
        path: Vec<u8>,
        presence: Presence,
    },
    /// All of that has been said; without an error, so that it is all that there is.
    PresentEnd {
        is_complete: bool,
    },
    /// What came of [`Decision::Compare`].
    Compared {
        id: u64,
        is_same: bool,
    },
    /// The chunk has the value of [`CopyMessage::Kept`]: it is not sent.
    Same {
        id: u64,
        chunk: u64,
    },
    // Receiver to sender.
    Decide {
        id: u64,
        decision: Decision,
    },
    /// The entry is in its place.
    Done {
        id: u64,
    },
    Failed {
        id: u64,
        path: Vec<u8>,
        failure: Failure,
    },
    /// The chunk's digest did not match: send it again.
    Again {
        id: u64,
        chunk: u64,
    },
    /// What there is in the place of a chunk (see [`farhaul_volume::Marks`]).
    Marks {
        id: u64,
        chunk: u64,
        marks: Vec<u8>,
    },
    /// An earlier run has brought this chunk, with this value, when the source was in another state. Answered by [`CopyMessage::Same`] or
    /// by the chunk.
    Kept {
        id: u64,
        chunk: u64,
        cv: ChunkCv,
    },
    /// Chunks of which nothing was said are wanted whole.
    MarksEnd {
        id: u64,
    },
    /// Entries that are there already, so many from this one on: nothing of them is wanted.
    Unchanged {
        first: u64,
        count: u64,
    },
    /// Directories that got their mode and time; sent once, before `Finish`.
    DirectoriesDone {
        count: u64,
    },
    /// This was too much and has been removed (in a dry run: would be).
    Deleted {
        path: Vec<u8>,
    },
    /// This was too much and is still there.
    NotDeleted {
        path: Vec<u8>,
        failure: Failure,
    },
    /// This was too much, and stays since it is mounted.
    Left {
        path: Vec<u8>,
        border: Border,
    },
    /// What was there has made room (in a dry run: would) for an entry of another sort.
    Replaced {
        path: Vec<u8>,
        was: EntrySort,
        by: EntrySort,
    },
    /// For the receiver's manifest: what is there and is not taken.
    Skipped {
        path: Vec<u8>,
        reason: String,
    },
    /// Before anything is decided: the single source is called so here.
    Placed {
        name: Vec<u8>,
    },
    /// The entry is in its place: its content was there as `from`.
    Renamed {
        id: u64,
        from: Vec<u8>,
    },
    /// For the sender's manifest, before `Done` or `Unchanged`: what the sender cannot know of file `id`.
    Digests {
        id: u64,
        digests: Digests,
    },
    // Either way.
    /// The content of the entry is there (from the sender: comes), and its mode, times or attributes could
    /// not be set (read). What becomes of it else is said besides.
    NotSet {
        path: Vec<u8>,
        reason: String,
    },
    /// What this end has signed (JSON), or why it has signed nothing: the receiver's when all is there and synced, then the sender's.
    Receipt {
        statement: Vec<u8>,
        reason: String,
    },
    // Receiver to sender.
    /// Names that are asked for, before anything else is; the last of such messages says that there are no more.
    Names {
        names: Vec<Vec<u8>>,
        is_last: bool,
    },
    /// Sources that the request had no room for, before anything else is said; the last of such messages says that there are no more.
    Paths {
        paths: Vec<Vec<u8>>,
        is_last: bool,
    },
}

impl CopyMessage {
    /// For errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            CopyMessage::Entry(_) => "entry",
            CopyMessage::DirectoryEnd { .. } => "directory-end",
            CopyMessage::SourceFailed { .. } => "source-failed",
            CopyMessage::FileEnd { .. } => "file-end",
            CopyMessage::FileFailed { .. } => "file-failed",
            CopyMessage::Renewed { .. } => "renewed",
            CopyMessage::EntriesEnd => "entries-end",
            CopyMessage::LeftOut { .. } => "left-out",
            CopyMessage::Present { .. } => "present",
            CopyMessage::PresentEnd { .. } => "present-end",
            CopyMessage::Compared { .. } => "compared",
            CopyMessage::Deleted { .. } => "deleted",
            CopyMessage::NotDeleted { .. } => "not-deleted",
            CopyMessage::Left { .. } => "left",
            CopyMessage::Replaced { .. } => "replaced",
            CopyMessage::Skipped { .. } => "skipped",
            CopyMessage::Placed { .. } => "placed",
            CopyMessage::Renamed { .. } => "renamed",
            CopyMessage::Digests { .. } => "digests",
            CopyMessage::Names { .. } => "names",
            CopyMessage::Paths { .. } => "paths",
            CopyMessage::Receipt { .. } => "receipt",
            CopyMessage::Decide { .. } => "decide",
            CopyMessage::Done { .. } => "done",
            CopyMessage::Failed { .. } => "failed",
            CopyMessage::NotSet { .. } => "not-set",
            CopyMessage::Again { .. } => "again",
            CopyMessage::Marks { .. } => "marks",
            CopyMessage::MarksEnd { .. } => "marks-end",
            CopyMessage::Kept { .. } => "kept",
            CopyMessage::Same { .. } => "same",
            CopyMessage::DirectoriesDone { .. } => "directories-done",
            CopyMessage::Unchanged { .. } => "unchanged",
        }
    }
}
