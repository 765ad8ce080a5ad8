//! The facts of a file, directory, link or special file, for the manifest and as the system tells them.

use std::time::SystemTime;

use rustix::fs::{self, FileType, Stat};

/// A point in time of a file: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    pub secs: i64,
    /// Below 1,000,000,000; [`FileTime::new`] sees to it.
    pub nanos: u32,
}

impl FileTime {
    /// A time from numbers of any origin: nanoseconds beyond a second are cut.
    pub fn new(secs: i64, nanos: u32) -> FileTime {
        FileTime { secs, nanos: nanos.min(999_999_999) }
    }

    /// The current time.
    pub fn now() -> FileTime {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        FileTime::new(now.as_secs().try_into().unwrap_or(0), now.subsec_nanos())
    }
}

/// The kind of an entry, with what only this kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// `sparse`: fewer bytes are allocated than the size.
    File {
        size: u64,
        sparse: bool,
    },
    /// Content that is read to its end, wherever that is. The writer of a pipe may be silent for long.
    Stream {
        is_pipe: bool,
    },
    Dir,
    Symlink {
        target: Vec<u8>,
    },
    /// Devices, sockets, pipes: only transferred if asked for.
    Special(SpecialNode),
}

/// The kind of a special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialNode {
    Fifo,
    Socket,
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
}

impl SpecialNode {
    pub fn is_device(self) -> bool {
        matches!(self, SpecialNode::CharDevice { .. } | SpecialNode::BlockDevice { .. })
    }
}

/// An entry that the scan has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: EntryKind,
    /// Permission bits, 07777.
    pub mode: u32,
    pub mtime: FileTime,
    /// The time of the last change of content or metadata, including times and mode; programs cannot set it.
    pub ctime: FileTime,
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
}

/// The kind of an existing entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    Special(SpecialNode),
}

/// The metadata of an existing entry; symbolic links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    pub kind: FileKind,
    pub size: u64,
    /// The number of bytes that are allocated.
    pub allocated: u64,
    /// Permission bits, 07777.
    pub mode: u32,
    pub mtime: FileTime,
    pub ctime: FileTime,
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
}

impl Metadata {
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Dir
    }

    /// Makes an entry; `target` is for a symbolic link.
    pub(crate) fn entry(&self, target: Vec<u8>) -> Entry {
        let kind = match self.kind {
            FileKind::File => EntryKind::File { size: self.size, sparse: self.allocated < self.size },
            FileKind::Dir => EntryKind::Dir,
            FileKind::Symlink => EntryKind::Symlink { target },
            FileKind::Special(node) => EntryKind::Special(node),
        };
        let Metadata { mode, mtime, ctime, dev, ino, nlink, uid, gid, .. } = *self;
        Entry { kind, mode, mtime, ctime, dev, ino, nlink, uid, gid }
    }
}

// The widths of these fields differ between architectures.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
impl From<&Stat> for Metadata {
    fn from(stat: &Stat) -> Metadata {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Dir,
            FileType::Symlink => FileKind::Symlink,
            FileType::Socket => FileKind::Special(SpecialNode::Socket),
            FileType::CharacterDevice => {
                let (major, minor) = (fs::major(stat.st_rdev as _), fs::minor(stat.st_rdev as _));
                FileKind::Special(SpecialNode::CharDevice { major, minor })
            }
            FileType::BlockDevice => {
                let (major, minor) = (fs::major(stat.st_rdev as _), fs::minor(stat.st_rdev as _));
                FileKind::Special(SpecialNode::BlockDevice { major, minor })
            }
            // A FIFO, and any other kind that a system may have.
            _ => FileKind::Special(SpecialNode::Fifo),
        };
        Metadata {
            kind,
            size: stat.st_size.max(0) as u64,
            allocated: (stat.st_blocks.max(0) as u64).saturating_mul(512),
            mode: stat.st_mode as u32 & 0o7777,
            mtime: FileTime::new(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            ctime: FileTime::new(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            nlink: stat.st_nlink as u64,
            uid: stat.st_uid as u32,
            gid: stat.st_gid as u32,
        }
    }
}
