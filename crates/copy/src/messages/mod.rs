//! The messages of a copy on the session's control stream, as values and as bytes.
//!
//! The first byte of a message is its code. A path shares a prefix with the path before it, so a tree's
//! manifest costs little more than its names. docs/reference/wire.md has the table.
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

use crate::deletion_guard::DeletionStopCause;
use crate::failures::Failure;
use crate::options::SourceRoot;
use crate::owners::EntryOwner;

pub(crate) use self::decode::{Decoder, decode_spread};
pub(crate) use self::encode::{Encoder, encode_spread};
pub(crate) use self::entry_sort::EntrySort;

/// The most chunk ranges in one `Have`; chunks in further ranges are sent again.
pub(crate) const RANGES_MAX: usize = 4096;
/// Added to an entry's kind if attributes follow.
const ATTRIBUTES: u8 = 0x40;
/// Added to an entry's kind if its owner follows.
const OWNER: u8 = 0x80;
/// Added to the id of an entry each time that it is announced again.
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
    /// The attributes of a file or directory, if they are asked for.
    pub(crate) attributes: Attributes,
    /// Its owner, if that is asked for.
    pub(crate) owner: Option<EntryOwner>,
}

impl ManifestEntry {
    /// Bytes that its names and attributes take in memory.
    pub(crate) fn names_bytes(&self) -> usize {
        // An empty attribute takes two bytes on the wire, and two vectors here.
        const PAIR: usize = size_of::<(Vec<u8>, Vec<u8>)>();
        let target = if let EntryContent::Symlink { target } = &self.what { target.len() } else { 0 };
        let pairs = self.attributes.iter().map(|(name, value)| PAIR + name.len() + value.len());
        let owner = self.owner.as_ref().map_or(0, |owner| owner.user.len() + owner.group.len());
        self.path.len() + target + owner + pairs.sum::<usize>()
    }

    pub(crate) fn mtime(&self) -> FileTime {
        FileTime { secs: self.mtime_secs, nanos: self.mtime_nanos }
    }

    /// Bytes of content, as far as they are known beforehand.
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
        /// The time of the last change of content or metadata. Only sent for a file of more than one chunk,
        /// of which an earlier run may have left a part.
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

/// How an entry exists at the source, for the list that is sent ahead of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Anything but a directory.
    Plain,
    /// A directory, whose entries come next.
    Directory,
    /// The end of that directory's entries.
    DirectoryEnd,
    /// The end of what is listed of that directory, though it may have more entries.
    DirectoryUnlisted,
}

/// The parts of a file that the receiver wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// All of it.
    Send,
    /// All but these chunk ranges (first, count), which an earlier run brought.
    Have(Vec<(u64, u64)>),
    /// All but these ranges from an earlier run; and of the chunks below `old_chunks` only what differs from
    /// the content at the receiver, whose values and marks follow ([`CopyMessage::Kept`],
    /// [`CopyMessage::Marks`]).
    Patch { have: Vec<(u64, u64)>, old_chunks: u64 },
    /// Nothing: the existing entry may not be overwritten, whatever it is.
    Keep,
    /// Nothing, as this is a dry run; the file would be sent otherwise.
    Listed,
    /// All of it, unless the content at the source has this digest.
    Compare([u8; 32]),
}

#[derive(Debug, Clone, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
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
    /// File `id` has changed: its content so far is void, and it is announced again under a new id.
    Renewed {
        id: u64,
        entry: ManifestEntry,
    },
    /// The scan is over.
    EntriesEnd,
    /// The source has an entry of this name that is not sent, so the receiver must not remove its own. With
    /// the path of the directory being listed: the rest of its entries is not listed. Only sent if something
    /// may be removed.
    LeftOut {
        path: Vec<u8>,
    },
    /// Sent ahead of the entries: one that will come, in the same order, so that the surplus can be removed
    /// first.
    Present {
        path: Vec<u8>,
        presence: Presence,
    },
    /// The end of the list ahead. It is complete if the scan met no error.
    PresentEnd {
        is_complete: bool,
    },
    /// Where the source lies; sent ahead of the entries if something may be removed.
    SourceRoot(SourceRoot),
    /// The answer to [`Decision::Compare`].
    Compared {
        id: u64,
        is_same: bool,
    },
    /// The chunk has the value of [`CopyMessage::Kept`], so it is not sent.
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
    /// The file that this link names cannot have its place: the sender announces the link's name as the file,
    /// by [`CopyMessage::Renewed`].
    AsFile {
        id: u64,
    },
    /// The chunk's digest did not match: send it again.
    Again {
        id: u64,
        chunk: u64,
    },
    /// The marks of the content at a chunk's place at the receiver (see [`farhaul_volume::Marks`]).
    Marks {
        id: u64,
        chunk: u64,
        marks: Vec<u8>,
    },
    /// An earlier run brought this chunk, with this value, when the source was in another state. The answer
    /// is [`CopyMessage::Same`] or the chunk.
    Kept {
        id: u64,
        chunk: u64,
        cv: ChunkCv,
    },
    /// No more marks come; chunks without any are wanted whole.
    MarksEnd {
        id: u64,
    },
    /// The `count` entries from `first` on are unchanged at the receiver; nothing of them is wanted.
    Unchanged {
        first: u64,
        count: u64,
    },
    /// Directories that got their mode and time; sent once, before `Finish`. `new` of them were not there
    /// before; an end without the feature [`NEW_DIRECTORIES`](crate::request::NEW_DIRECTORIES) does not say.
    DirectoriesDone {
        count: u64,
        new: Option<u64>,
    },
    /// This entry was surplus and has been removed (in a dry run: would be).
    Deleted {
        path: Vec<u8>,
    },
    /// Nothing was deleted (in a dry run: would be), since all of it together must not go.
    DeletionStopped {
        cause: DeletionStopCause,
        /// How many entries would go, and how many there are in all.
        entries: u64,
        of: u64,
        /// The first of those that would go.
        names: Vec<Vec<u8>>,
    },
    /// This entry is surplus and is still there.
    NotDeleted {
        path: Vec<u8>,
        failure: Failure,
    },
    /// This entry is surplus and stays, as it is mounted.
    Left {
        path: Vec<u8>,
        border: Border,
    },
    /// An entry has made room (in a dry run: would) for one of another sort.
    Replaced {
        path: Vec<u8>,
        was: EntrySort,
        by: EntrySort,
    },
    /// A file that was to be changed in place has other names, so it is written (in a dry run: would be) as
    /// one of its own.
    Parted {
        path: Vec<u8>,
    },
    /// What was at this path is kept (in a dry run: would be) under another name, since it is replaced or
    /// deleted.
    BackedUp {
        path: Vec<u8>,
    },
    /// For the receiver's manifest: an entry at the source that is not taken.
    Skipped {
        path: Vec<u8>,
        reason: String,
    },
    /// Sent before any decision: the single source has this name at the receiver.
    Placed {
        name: Vec<u8>,
    },
    /// The entry is in its place: its content was at the destination under the name `from`.
    Renamed {
        id: u64,
        from: Vec<u8>,
    },
    /// For the sender's manifest, before `Done` or `Unchanged`: digests of file `id` that the sender cannot
    /// compute.
    Digests {
        id: u64,
        digests: Digests,
    },
    // Either way.
    /// The content of the entry is there (from the sender: will come), but its mode, times or attributes
    /// could not be set (from the sender: read). Other messages say how the entry ends.
    NotSet {
        path: Vec<u8>,
        reason: String,
    },
    /// This end's signed statement (JSON), or why it has signed nothing. The receiver sends it when
    /// everything is there and synced, then the sender does.
    Receipt {
        statement: Vec<u8>,
        reason: String,
    },
    // Receiver to sender.
    /// Names that are asked for, before any other request; the last message of this kind says so.
    Names {
        names: Vec<Vec<u8>>,
        is_last: bool,
    },
    /// Sources for which the request had no room, before any other message; the last message of this kind
    /// says so.
    Paths {
        paths: Vec<Vec<u8>>,
        is_last: bool,
    },
}

impl CopyMessage {
    /// The message's name in errors.
    pub(crate) fn name(&self) -> &'static str {
        self.into()
    }
}
