//! What the manifest says of a file, directory or link, and what the system says of one that exists.

use std::time::SystemTime;

use rustix::fs::{self, FileType, Stat};

/// A point in time of a file: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    pub secs: i64,
    /// Below 1,000,000,000; [`Time::new`] sees to it.
    pub nanos: u32,
}

impl Time {
    /// A time from numbers of any origin: nanoseconds beyond a second are cut.
    pub fn new(secs: i64, nanos: u32) -> Time {
        Time { secs, nanos: nanos.min(999_999_999) }
    }

    /// What the clock says.
    pub fn now() -> Time {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Time::new(now.as_secs().try_into().unwrap_or(0), now.subsec_nanos())
    }
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `sparse` says that fewer bytes are allocated than the size.
    File {
        size: u64,
        sparse: bool,
    },
    /// Content that is read to its end, wherever that is. A pipe may be silent for long in between.
    Stream {
        is_pipe: bool,
    },
    Dir,
    Symlink {
        target: Vec<u8>,
    },
    /// Devices, sockets, pipes: transferred only when asked for.
    Special(Node),
}

/// Something in a file system that has no content of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    Fifo,
    Socket,
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
}

impl Node {
    pub fn is_device(self) -> bool {
        matches!(self, Node::CharDevice { .. } | Node::BlockDevice { .. })
    }
}

/// One thing that the scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    /// Permission bits, 07777.
    pub mode: u32,
    pub mtime: Time,
    /// When anything of it was last changed, its times and its mode among that: it cannot be put back.
    pub ctime: Time,
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
}

/// The kind of something that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    Special(Node),
}

/// What the system says of something that exists (symbolic links are not followed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub kind: FileKind,
    pub size: u64,
    /// Bytes that are allocated.
    pub allocated: u64,
    /// Permission bits, 07777.
    pub mode: u32,
    pub mtime: Time,
    pub ctime: Time,
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
}

impl Meta {
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Dir
    }

    /// The entry of this; `target` belongs to a symbolic link.
    pub(crate) fn entry(&self, target: Vec<u8>) -> Entry {
        let kind = match self.kind {
            FileKind::File => Kind::File { size: self.size, sparse: self.allocated < self.size },
            FileKind::Dir => Kind::Dir,
            FileKind::Symlink => Kind::Symlink { target },
            FileKind::Special(node) => Kind::Special(node),
        };
        let Meta { mode, mtime, ctime, dev, ino, nlink, .. } = *self;
        Entry { kind, mode, mtime, ctime, dev, ino, nlink }
    }
}

// The widths of these fields differ from one architecture to the next.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
impl From<&Stat> for Meta {
    fn from(stat: &Stat) -> Meta {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Dir,
            FileType::Symlink => FileKind::Symlink,
            FileType::Socket => FileKind::Special(Node::Socket),
            FileType::CharacterDevice => {
                let (major, minor) = (fs::major(stat.st_rdev as _), fs::minor(stat.st_rdev as _));
                FileKind::Special(Node::CharDevice { major, minor })
            }
            FileType::BlockDevice => {
                let (major, minor) = (fs::major(stat.st_rdev as _), fs::minor(stat.st_rdev as _));
                FileKind::Special(Node::BlockDevice { major, minor })
            }
            // And whatever else a system may have.
            _ => FileKind::Special(Node::Fifo),
        };
        Meta {
            kind,
            size: stat.st_size.max(0) as u64,
            allocated: (stat.st_blocks.max(0) as u64).saturating_mul(512),
            mode: stat.st_mode as u32 & 0o7777,
            mtime: Time::new(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            ctime: Time::new(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            nlink: stat.st_nlink as u64,
            uid: stat.st_uid as u32,
            gid: stat.st_gid as u32,
        }
    }
}
