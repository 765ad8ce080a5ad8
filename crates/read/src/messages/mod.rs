//! The messages of the two ends of a read, as values and as bytes; docs/reference/wire.md has the table.
//!
//! Always true: decoding never panics, and allocates at most a few times the bytes at hand.

use farhaul_session::codec::{
    ByteReader, Malformed, put_bytes, put_failure, put_numbers, put_signed, put_varint,
};
use farhaul_session::messages::put_message;
use farhaul_volume::{Algorithm, FileTime};
use farhaul_words::Failure;

/// The most ranges in one message: this many fit, whatever they are. A longer list takes several messages.
pub(crate) const RANGES_MAX: usize = 2048;
/// The most bytes of a path on Linux, and of the target of a symbolic link.
const PATH_MAX: usize = 4095;
/// The most bytes of a record: a path, a target or a reason, and some numbers.
const RECORD_MAX: u64 = 2 * PATH_MAX as u64 + 2048;
/// The most bytes of a digest.
const DIGEST_MAX: usize = 64;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileRange {
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// The number of its bytes.
    pub len: u64,
}

/// Shows whether a file was replaced by another one, or its content has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileIdentity {
    /// The size of the content in bytes.
    pub size: u64,
    /// When the content was last changed.
    pub mtime: FileTime,
    /// When anything about the file was last changed; nobody can set this time back.
    pub ctime: FileTime,
    /// The number of the inode in its file system.
    pub inode: u64,
    /// The number of the file system on that host.
    pub device: u64,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PathKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device that is read byte by byte.
    CharDevice,
    /// A device that is read by blocks, such as a disk.
    BlockDevice,
}

/// An entry of a directory, or of a path that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// The path below the listed directory, or as it was asked for.
    pub path: Vec<u8>,
    /// The kind of the entry.
    pub kind: PathKind,
    /// The permission bits, 07777.
    pub mode: u32,
    /// The number of hard links.
    pub links: u64,
    /// The target, if it is a symbolic link.
    pub target: Vec<u8>,
    /// Its size and times, among others.
    pub identity: FileIdentity,
}

impl PathKind {
    const ALL: [PathKind; 7] = [
        PathKind::File,
        PathKind::Directory,
        PathKind::Symlink,
        PathKind::Fifo,
        PathKind::Socket,
        PathKind::CharDevice,
        PathKind::BlockDevice,
    ];

    /// The word for it in `--json`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn number(self) -> u8 {
        PathKind::ALL.iter().position(|kind| *kind == self).unwrap_or_default() as u8
    }

    fn of_number(number: u8) -> Result<PathKind, Malformed> {
        PathKind::ALL.get(usize::from(number)).copied().ok_or(Malformed)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum ReadMessage {
    // From client to server.
    /// From now on `file` stands for what this path names at present.
    Open {
        file: u64,
        path: Vec<u8>,
    },
    /// `file` no longer stands for anything.
    Close {
        file: u64,
    },
    /// Asks for these ranges; they are the ranges `first`, `first + 1` and so on of the operation.
    Read {
        op: u64,
        file: u64,
        first: u64,
        ranges: Vec<FileRange>,
    },
    /// These ranges will be read soon.
    Advise {
        file: u64,
        ranges: Vec<FileRange>,
    },
    Stat {
        op: u64,
        path: Vec<u8>,
        follow: bool,
    },
    /// Lists a directory. The answer is a stream of records; at most `room` bytes of it may come before
    /// [`ReadMessage::More`].
    List {
        op: u64,
        path: Vec<u8>,
        depth: u64,
        room: u64,
    },
    /// Asks for the paths that match a pattern, as a stream.
    Find {
        op: u64,
        pattern: Vec<u8>,
        room: u64,
    },
    /// Gives room for `room` more bytes of a stream.
    More {
        op: u64,
        room: u64,
    },
    /// Asks for the digest of a range, or of the whole file if there is no range.
    Digest {
        op: u64,
        file: u64,
        range: Option<FileRange>,
        algorithm: Algorithm,
    },
    /// Nothing more of the operation is wanted.
    Cancel {
        op: u64,
    },

    // From server to client.
    Opened {
        file: u64,
        identity: FileIdentity,
    },
    NotOpened {
        file: u64,
        failure: Failure,
    },
    /// The operation has failed; nothing more of it comes.
    Failed {
        op: u64,
        failure: Failure,
    },
    Stated {
        op: u64,
        entry: ListEntry,
    },
    Digested {
        op: u64,
        bytes: u64,
        digest: Vec<u8>,
    },
}

impl ReadMessage {
    /// Appends the message, behind its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| self.encode_body(out));
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            ReadMessage::Open { file, path } => {
                put_numbers(out, 70, &[*file]);
                put_bytes(out, path);
            }
            ReadMessage::Close { file } => put_numbers(out, 71, &[*file]),
            ReadMessage::Read { op, file, first, ranges } => {
                put_numbers(out, 72, &[*op, *file, *first]);
                put_ranges(out, ranges);
            }
            ReadMessage::Advise { file, ranges } => {
                put_numbers(out, 73, &[*file]);
                put_ranges(out, ranges);
            }
            ReadMessage::Stat { op, path, follow } => {
                put_numbers(out, 74, &[*op, u64::from(*follow)]);
                put_bytes(out, path);
            }
            ReadMessage::List { op, path, depth, room } => {
                put_numbers(out, 75, &[*op, *depth, *room]);
                put_bytes(out, path);
            }
            ReadMessage::Find { op, pattern, room } => {
                put_numbers(out, 76, &[*op, *room]);
                put_bytes(out, pattern);
            }
            ReadMessage::More { op, room } => put_numbers(out, 77, &[*op, *room]),
            ReadMessage::Digest { op, file, range, algorithm } => {
                put_numbers(out, 78, &[*op, *file, u64::from(range.is_some())]);
                if let Some(range) = range {
                    put_varint(out, range.offset);
                    put_varint(out, range.len);
                }
                put_bytes(out, algorithm.name().as_bytes());
            }
            ReadMessage::Cancel { op } => put_numbers(out, 79, &[*op]),
            ReadMessage::Opened { file, identity } => {
                put_numbers(out, 80, &[*file]);
                put_identity(out, identity);
            }
            ReadMessage::NotOpened { file, failure } => {
                put_numbers(out, 81, &[*file]);
                put_failure(out, failure);
            }
            ReadMessage::Failed { op, failure } => {
                put_numbers(out, 82, &[*op]);
                put_failure(out, failure);
            }
            ReadMessage::Stated { op, entry } => {
                put_numbers(out, 83, &[*op]);
                put_bytes(out, &entry.path);
                put_rest(out, entry);
            }
            ReadMessage::Digested { op, bytes, digest } => {
                put_numbers(out, 84, &[*op, *bytes]);
                put_bytes(out, digest);
            }
        }
    }

    /// Decodes a code and a body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<ReadMessage, Malformed> {
        let mut reader = ByteReader(bytes);
        let message = match reader.byte()? {
            70 => ReadMessage::Open { file: reader.varint()?, path: path(&mut reader)? },
            71 => ReadMessage::Close { file: reader.varint()? },
            72 => {
                let (op, file, first) = (reader.varint()?, reader.varint()?, reader.varint()?);
                ReadMessage::Read { op, file, first, ranges: take_ranges(&mut reader)? }
            }
            73 => ReadMessage::Advise { file: reader.varint()?, ranges: take_ranges(&mut reader)? },
            74 => {
                let (op, follow) = (reader.varint()?, reader.flag()?);
                ReadMessage::Stat { op, follow, path: path(&mut reader)? }
            }
            75 => {
                let (op, depth, room) = (reader.varint()?, reader.varint()?, reader.varint()?);
                ReadMessage::List { op, depth, room, path: path(&mut reader)? }
            }
            76 => {
                let (op, room) = (reader.varint()?, reader.varint()?);
                ReadMessage::Find { op, room, pattern: path(&mut reader)? }
            }
            77 => ReadMessage::More { op: reader.varint()?, room: reader.varint()? },
            78 => {
                let (op, file) = (reader.varint()?, reader.varint()?);
                let range = match reader.flag()? {
                    true => Some(FileRange { offset: reader.varint()?, len: reader.varint()? }),
                    false => None,
                };
                let name = reader.text()?;
                let algorithm = Algorithm::from_name(&name).ok_or(Malformed)?;
                ReadMessage::Digest { op, file, range, algorithm }
            }
            79 => ReadMessage::Cancel { op: reader.varint()? },
            80 => ReadMessage::Opened { file: reader.varint()?, identity: take_identity(&mut reader)? },
            81 => ReadMessage::NotOpened { file: reader.varint()?, failure: reader.failure()? },
            82 => ReadMessage::Failed { op: reader.varint()?, failure: reader.failure()? },
            83 => {
                let (op, path) = (reader.varint()?, path(&mut reader)?);
                ReadMessage::Stated { op, entry: take_rest(&mut reader, path)? }
            }
            84 => {
                let (op, bytes) = (reader.varint()?, reader.varint()?);
                let digest = reader.bytes()?;
                if digest.len() > DIGEST_MAX {
                    return Err(Malformed);
                }
                ReadMessage::Digested { op, bytes, digest: digest.to_vec() }
            }
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    /// The name of the message, for errors.
    pub(crate) fn name(&self) -> &'static str {
        self.into()
    }
}

fn path(reader: &mut ByteReader<'_>) -> Result<Vec<u8>, Malformed> {
    let path = reader.bytes()?;
    if path.len() > PATH_MAX || path.contains(&0) {
        return Err(Malformed);
    }
    Ok(path.to_vec())
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[FileRange]) {
    put_varint(out, ranges.len() as u64);
    for range in ranges {
        put_varint(out, range.offset);
        put_varint(out, range.len);
    }
}

fn take_ranges(reader: &mut ByteReader<'_>) -> Result<Vec<FileRange>, Malformed> {
    let count = reader.varint()?;
    if count > RANGES_MAX as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| Ok(FileRange { offset: reader.varint()?, len: reader.varint()? })).collect()
}

fn put_time(out: &mut Vec<u8>, time: FileTime) {
    put_signed(out, time.secs);
    put_varint(out, u64::from(time.nanos));
}

fn take_time(reader: &mut ByteReader<'_>) -> Result<FileTime, Malformed> {
    let secs = reader.signed()?;
    Ok(FileTime::new(secs, reader.u32()?))
}

fn put_identity(out: &mut Vec<u8>, identity: &FileIdentity) {
    put_varint(out, identity.size);
    put_time(out, identity.mtime);
    put_time(out, identity.ctime);
    put_varint(out, identity.inode);
    put_varint(out, identity.device);
}

fn take_identity(reader: &mut ByteReader<'_>) -> Result<FileIdentity, Malformed> {
    Ok(FileIdentity {
        size: reader.varint()?,
        mtime: take_time(reader)?,
        ctime: take_time(reader)?,
        inode: reader.varint()?,
        device: reader.varint()?,
    })
}

fn put_rest(out: &mut Vec<u8>, entry: &ListEntry) {
    out.push(entry.kind.number());
    put_varint(out, u64::from(entry.mode));
    put_varint(out, entry.links);
    put_identity(out, &entry.identity);
    if entry.kind == PathKind::Symlink {
        put_bytes(out, &entry.target);
    }
}

fn take_rest(reader: &mut ByteReader<'_>, path: Vec<u8>) -> Result<ListEntry, Malformed> {
    let kind = PathKind::of_number(reader.byte()?)?;
    let (mode, links) = (reader.u32()?, reader.varint()?);
    let identity = take_identity(reader)?;
    let target = if kind == PathKind::Symlink { reader.bytes()? } else { &[] };
    if target.len() > PATH_MAX {
        return Err(Malformed);
    }
    let target = target.to_vec();
    Ok(ListEntry { path, kind, mode, links, target, identity })
}

/// The records of a stream, each behind its length. Of a path, only what differs from the path before it is
/// written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamRecord {
    Entry(ListEntry),
    /// This could not be listed; the list goes on.
    Failed {
        path: Vec<u8>,
        failure: Failure,
    },
    /// A path that matches a pattern.
    Path(Vec<u8>),
    /// Something is mounted on this directory; its content is not listed.
    NotEntered(Vec<u8>),
}

impl StreamRecord {
    /// The path below the listed directory; `None` if a pattern was asked for.
    pub(crate) fn below(&self) -> Option<&[u8]> {
        match self {
            StreamRecord::Entry(ListEntry { path, .. })
            | StreamRecord::Failed { path, .. }
            | StreamRecord::NotEntered(path) => Some(path),
            StreamRecord::Path(_) => None,
        }
    }
}

/// Writes and reads the records of one stream.
#[derive(Debug, Default)]
pub(crate) struct RecordCodec {
    last: Vec<u8>,
}

impl RecordCodec {
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, record: &StreamRecord) {
        put_message(out, |out| match record {
            StreamRecord::Entry(entry) => {
                out.push(0);
                self.put_path(out, &entry.path);
                put_rest(out, entry);
            }
            StreamRecord::Failed { path, failure } => {
                out.push(1);
                self.put_path(out, path);
                put_failure(out, failure);
            }
            StreamRecord::Path(path) => {
                out.push(2);
                self.put_path(out, path);
            }
            StreamRecord::NotEntered(path) => {
                out.push(3);
                self.put_path(out, path);
            }
        });
    }

    /// The next record at the front of `bytes`, and its length; `None` if it is not complete.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<(StreamRecord, usize)>, Malformed> {
        let mut reader = ByteReader(bytes);
        let Ok(body) = reader.bytes() else {
            // If the length is larger than that of any record, it is malformed, and not just incomplete.
            let is_cut = ByteReader(bytes).varint().map_or(bytes.len() < 10, |len| len <= RECORD_MAX);
            return if is_cut { Ok(None) } else { Err(Malformed) };
        };
        let taken = bytes.len() - reader.rest().len();
        if body.len() as u64 > RECORD_MAX {
            return Err(Malformed);
        }
        let mut reader = ByteReader(body);
        let record = match reader.byte()? {
            0 => {
                let path = self.take_path(&mut reader)?;
                StreamRecord::Entry(take_rest(&mut reader, path)?)
            }
            1 => {
                let path = self.take_path(&mut reader)?;
                StreamRecord::Failed { path, failure: reader.failure()? }
            }
            2 => StreamRecord::Path(self.take_path(&mut reader)?),
            3 => StreamRecord::NotEntered(self.take_path(&mut reader)?),
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(Some((record, taken))) } else { Err(Malformed) }
    }

    fn put_path(&mut self, out: &mut Vec<u8>, path: &[u8]) {
        let common = self.last.iter().zip(path).take_while(|(one, other)| one == other).count();
        put_varint(out, common as u64);
        put_bytes(out, &path[common..]);
        self.last.clear();
        self.last.extend_from_slice(path);
    }

    fn take_path(&mut self, reader: &mut ByteReader<'_>) -> Result<Vec<u8>, Malformed> {
        let common = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let rest = reader.bytes()?;
        if common > self.last.len() || common + rest.len() > PATH_MAX {
            return Err(Malformed);
        }
        self.last.truncate(common);
        self.last.extend_from_slice(rest);
        Ok(self.last.clone())
    }
}

#[cfg(test)]
mod tests;
