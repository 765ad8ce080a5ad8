//! The kernel's FUSE protocol, as far as a read-only file system needs it: requests as values, answers as bytes.
//!
//! Always true: decoding never panics, whatever the bytes are.
//! From: linux/fuse.h, version 7.31 of the protocol. All numbers are in the byte order of the host.

use std::time::Duration;

use farhaul::read::{ListEntry, PathKind};

/// The bytes in front of each request and each answer.
pub(crate) const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;
/// The most bytes of a request: names and numbers; nobody writes.
pub(crate) const REQUEST_MAX: usize = 128 << 10;
/// The most bytes that one read may ask for.
pub(crate) const READ_MAX: u32 = 1 << 20;

const ASYNC_READ: u32 = 1;
const DO_READDIRPLUS: u32 = 1 << 13;
const PARALLEL_DIROPS: u32 = 1 << 18;
const MAX_PAGES: u32 = 1 << 22;
const CACHE_SYMLINKS: u32 = 1 << 23;
/// The least that must be asked for to hear of writes.
const WRITE_MIN: u32 = 4096;
const BACKGROUND_MAX: u16 = 64;
const CONGESTED_AT: u16 = 48;
const PAGE: u32 = 4096;

/// The kernel keeps the pages of an earlier open.
pub(crate) const KEEP_CACHE: u32 = 1 << 1;
/// The kernel keeps the names of a directory.
pub(crate) const CACHE_DIR: u32 = 1 << 3;

/// A request of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its number, which the answer has, too.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) what: Operation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    },
    Lookup {
        name: Vec<u8>,
    },
    /// Takes back this many answers that have named the node. It has no answer.
    Forget {
        forgotten: Vec<(u64, u64)>,
    },
    GetAttr {
        handle: Option<u64>,
    },
    ReadLink,
    Open {
        flags: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Release {
        handle: u64,
    },
    OpenDir,
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    ReleaseDir {
        handle: u64,
    },
    StatFs,
    /// A process that waits for this request has got a signal. It has no answer.
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// A change.
    Change,
    /// What this file system does not have.
    Unknown,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (first, rest) = self.0.split_at_checked(LEN)?;
        self.0 = rest;
        first.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Bytes up to a zero.
    fn name(&mut self) -> Option<Vec<u8>> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        Some(self.0[..end].to_vec())
    }
}

/// Reads a request; `None` if it makes no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<Request> {
    let mut fields = Fields(bytes);
    let (_len, code, unique, node) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
    let _caller: [u8; IN_HEADER - 24] = fields.take()?;
    let what = match code {
        1 => Operation::Lookup { name: fields.name()? },
        2 => Operation::Forget { forgotten: vec![(node, fields.u64()?)] },
        3 => {
            let (flags, _, handle) = (fields.u32()?, fields.u32()?, fields.u64()?);
            Operation::GetAttr { handle: (flags & 1 != 0).then_some(handle) }
        }
        5 => Operation::ReadLink,
        14 => Operation::Open { flags: fields.u32()? },
        15 => {
            let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
            Operation::Read { handle, offset, size }
        }
        17 => Operation::StatFs,
        18 => Operation::Release { handle: fields.u64()? },
        26 => {
            let (major, minor) = (fields.u32()?, fields.u32()?);
            let (max_readahead, flags) = (fields.u32()?, fields.u32()?);
            Operation::Init { major, minor, max_readahead, flags }
        }
        27 => Operation::OpenDir,
        28 | 44 => {
            let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
            Operation::ReadDir { handle, offset, size, plus: code == 44 }
        }
        29 => Operation::ReleaseDir { handle: fields.u64()? },
        36 => Operation::Interrupt { unique: fields.u64()? },
        38 => Operation::Destroy,
        42 => {
            let (count, _) = (fields.u32()?, fields.u32()?);
            let mut forgotten = Vec::new();
            for _ in 0..count {
                forgotten.push((fields.u64()?, fields.u64()?));
            }
            Operation::Forget { forgotten }
        }
        // SETATTR, SYMLINK to LINK, WRITE, SETXATTR, REMOVEXATTR, CREATE, FALLOCATE, RENAME2, COPY_FILE_RANGE.
        4 | 6 | 8..=13 | 16 | 21 | 24 | 35 | 43 | 45 | 47 => Operation::Change,
        _ => Operation::Unknown,
    };
    Some(Request { unique, node, what })
}

/// The header of an answer with `len` bytes behind it; `error` is 0 or an errno.
pub(crate) fn answer_header(unique: u64, error: i32, len: usize) -> [u8; OUT_HEADER] {
    let mut header = [0; OUT_HEADER];
    let len = u32::try_from(OUT_HEADER + len).unwrap_or(u32::MAX);
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&(-error).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// The answer to the first request.
pub(crate) fn init(minor: u32, max_readahead: u32, flags: u32) -> Vec<u8> {
    let ours = ASYNC_READ | DO_READDIRPLUS | PARALLEL_DIROPS | MAX_PAGES | CACHE_SYMLINKS;
    let mut out = Vec::with_capacity(64);
    for number in [7, minor.min(31), max_readahead, flags & ours] {
        out.extend_from_slice(&number.to_ne_bytes());
    }
    out.extend_from_slice(&BACKGROUND_MAX.to_ne_bytes());
    out.extend_from_slice(&CONGESTED_AT.to_ne_bytes());
    out.extend_from_slice(&WRITE_MIN.to_ne_bytes());
    out.extend_from_slice(&1_u32.to_ne_bytes());
    out.extend_from_slice(&u16::try_from(READ_MAX / PAGE).unwrap_or(u16::MAX).to_ne_bytes());
    out.resize(64, 0);
    out
}

/// The attributes of an entry, as they are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) inode: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

fn mode(entry: &ListEntry) -> u32 {
    let kind = match entry.kind {
        PathKind::File => 0o100_000,
        PathKind::Directory => 0o040_000,
        PathKind::Symlink => 0o120_000,
        PathKind::Fifo => 0o010_000,
        PathKind::Socket => 0o140_000,
        PathKind::CharDevice => 0o020_000,
        PathKind::BlockDevice => 0o060_000,
    };
    kind | entry.mode & 0o7777
}

fn put_attributes(out: &mut Vec<u8>, entry: &ListEntry, shown: Shown) {
    let identity = &entry.identity;
    let (mtime, ctime) = (identity.mtime, identity.ctime);
    for number in [shown.inode, identity.size, identity.size.div_ceil(512)] {
        out.extend_from_slice(&number.to_ne_bytes());
    }
    // The far end does not say when a file was last read.
    for secs in [mtime.secs, mtime.secs, ctime.secs] {
        out.extend_from_slice(&secs.to_ne_bytes());
    }
    let links = u32::try_from(entry.links).unwrap_or(u32::MAX);
    for number in
        [mtime.nanos, mtime.nanos, ctime.nanos, mode(entry), links, shown.uid, shown.gid, 0, PAGE, 0]
    {
        out.extend_from_slice(&number.to_ne_bytes());
    }
}

/// The answer to a question for attributes, which are good for so long.
pub(crate) fn attributes(entry: &ListEntry, shown: Shown, good: Duration) -> Vec<u8> {
    let mut out = Vec::with_capacity(104);
    out.extend_from_slice(&good.as_secs().to_ne_bytes());
    out.extend_from_slice(&u64::from(good.subsec_nanos()).to_ne_bytes());
    put_attributes(&mut out, entry, shown);
    out
}

/// The answer to a lookup: a node, and its attributes.
pub(crate) fn put_entry(out: &mut Vec<u8>, node: u64, entry: &ListEntry, shown: Shown, good: Duration) {
    for number in [node, 0, good.as_secs(), good.as_secs()] {
        out.extend_from_slice(&number.to_ne_bytes());
    }
    for nanos in [good.subsec_nanos(); 2] {
        out.extend_from_slice(&nanos.to_ne_bytes());
    }
    put_attributes(out, entry, shown);
}

/// The answer that there is no such name, which is good for so long.
pub(crate) fn no_entry(good: Duration) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    for number in [0, 0, good.as_secs(), 0] {
        out.extend_from_slice(&number.to_ne_bytes());
    }
    out.extend_from_slice(&good.subsec_nanos().to_ne_bytes());
    out.resize(128, 0);
    out
}

pub(crate) fn opened(handle: u64, flags: u32) -> Vec<u8> {
    let mut out = handle.to_ne_bytes().to_vec();
    out.extend_from_slice(&u64::from(flags).to_ne_bytes());
    if cfg!(target_endian = "big") {
        out[8..].rotate_left(4);
    }
    out
}

/// The room that an entry of a directory takes.
pub(crate) fn directory_entry_len(name: &[u8], plus: bool) -> usize {
    (if plus { 128 } else { 0 }) + (24 + name.len()).next_multiple_of(8)
}

/// An entry of a directory, behind which the next one begins at `next`.
pub(crate) fn put_directory_entry(out: &mut Vec<u8>, inode: u64, next: u64, kind: PathKind, name: &[u8]) {
    let kind: u32 = match kind {
        PathKind::Fifo => 1,
        PathKind::CharDevice => 2,
        PathKind::Directory => 4,
        PathKind::BlockDevice => 6,
        PathKind::File => 8,
        PathKind::Symlink => 10,
        PathKind::Socket => 12,
    };
    out.extend_from_slice(&inode.to_ne_bytes());
    out.extend_from_slice(&next.to_ne_bytes());
    out.extend_from_slice(&u32::try_from(name.len()).unwrap_or_default().to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(name);
    out.resize(out.len().next_multiple_of(8), 0);
}

/// The answer about room and names.
pub(crate) fn room() -> Vec<u8> {
    let mut out = vec![0; 40];
    // The far end does not say how much room it has.
    for number in [READ_MAX, 255, PAGE] {
        out.extend_from_slice(&number.to_ne_bytes());
    }
    out.resize(80, 0);
    out
}

#[cfg(test)]
mod tests {
    use farhaul::names::FileTime;
    use farhaul::read::FileIdentity;
    use proptest::prelude::*;

    use super::*;

    fn request(code: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(IN_HEADER + body.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&code.to_ne_bytes());
        bytes.extend_from_slice(&7_u64.to_ne_bytes());
        bytes.extend_from_slice(&9_u64.to_ne_bytes());
        bytes.resize(IN_HEADER, 0);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn requests_have_the_layout_of_the_kernel() {
        let of = |code, body: &[u8]| decode(&request(code, body)).map(|request| request.what);
        assert_eq!(of(1, b"name\0"), Some(Operation::Lookup { name: b"name".to_vec() }));
        assert_eq!(of(1, b"name"), None);
        let mut read = [3_u64.to_ne_bytes(), 4_u64.to_ne_bytes()].concat();
        read.extend_from_slice(&5_u32.to_ne_bytes());
        read.resize(40, 0);
        assert_eq!(of(15, &read), Some(Operation::Read { handle: 3, offset: 4, size: 5 }));
        assert_eq!(of(44, &read), Some(Operation::ReadDir { handle: 3, offset: 4, size: 5, plus: true }));
        assert_eq!(of(16, &[]), Some(Operation::Change));
        assert_eq!(of(22, &[]), Some(Operation::Unknown));
        let many = [
            2_u64.to_ne_bytes(),
            8_u64.to_ne_bytes(),
            1_u64.to_ne_bytes(),
            9_u64.to_ne_bytes(),
            2_u64.to_ne_bytes(),
        ];
        assert_eq!(of(42, &many.concat()), Some(Operation::Forget { forgotten: vec![(8, 1), (9, 2)] }));
    }

    #[test]
    fn answers_have_the_lengths_of_the_kernel() {
        let identity = FileIdentity { size: 1, mtime: FileTime::new(2, 3), ..FileIdentity::default() };
        let entry = ListEntry {
            path: Vec::new(),
            kind: PathKind::File,
            mode: 0o644,
            links: 1,
            target: Vec::new(),
            identity,
        };
        let shown = Shown { inode: 1, uid: 2, gid: 3 };
        assert_eq!(attributes(&entry, shown, Duration::from_millis(1500)).len(), 104);
        let mut out = Vec::new();
        put_entry(&mut out, 1, &entry, shown, Duration::from_secs(1));
        assert_eq!((out.len(), no_entry(Duration::ZERO).len()), (128, 128));
        assert_eq!((init(40, 0, u32::MAX).len(), opened(1, 2).len(), room().len()), (64, 16, 80));
        for name in [&b"a"[..], b"12345678", b"123456789"] {
            let mut out = Vec::new();
            put_directory_entry(&mut out, 1, 2, PathKind::File, name);
            assert_eq!(out.len(), directory_entry_len(name, false));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200), code in 0..50_u32) {
            let _ = decode(&bytes);
            let _ = decode(&request(code, &bytes));
        }
    }
}
