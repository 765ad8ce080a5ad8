//! What the two ends of a read say to each other, as values and as bytes; docs/reference/wire.md has the table.
//!
//! Always true: decoding never panics, and allocates no more than a few times the bytes at hand.

use farhaul_session::codec::{Malformed, Reader, put_bytes, put_numbers, put_signed, put_varint};
use farhaul_session::error::Failure;
use farhaul_session::messages::put_message;
use farhaul_volume::{Algorithm, Time};

/// Ranges in one message: so many fit whatever they are, and a longer list is several messages.
pub(crate) const RANGES_MAX: usize = 2048;
/// Bytes of a path, as Linux has them.
const PATH_MAX: usize = 4095;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    /// Where it begins, in bytes from the beginning of the file.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

/// By what it is noticed that a file has become another one, or has other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    /// Bytes of content.
    pub size: u64,
    /// When its content was last changed.
    pub mtime: Time,
    /// When anything of it was last changed; nobody can set it back.
    pub ctime: Time,
    /// Its number in its file system.
    pub inode: u64,
    /// Its file system's number on that host.
    pub device: u64,
}

/// What there is of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
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

/// An entry of a directory, or what was asked for by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Below what was listed, or as it was asked for.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Names that it has.
    pub links: u64,
    /// Of a symbolic link, where that leads.
    pub target: Vec<u8>,
    /// Its size and its times among that.
    pub identity: Identity,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];

    /// The word for it in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharDevice => "char-device",
            Kind::BlockDevice => "block-device",
        }
    }

    fn number(self) -> u8 {
        Kind::ALL.iter().position(|kind| *kind == self).unwrap_or_default() as u8
    }

    fn of_number(number: u8) -> Result<Kind, Malformed> {
        Kind::ALL.get(usize::from(number)).copied().ok_or(Malformed)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    // Client to server.
    /// From now on `file` stands for what is at this path now.
    Open {
        file: u64,
        path: Vec<u8>,
    },
    /// It does so no more.
    Close {
        file: u64,
    },
    /// The ranges `first`, `first + 1` and so on of an operation are these.
    Read {
        op: u64,
        file: u64,
        first: u64,
        ranges: Vec<Range>,
    },
    /// These ranges will be read soon.
    Advise {
        file: u64,
        ranges: Vec<Range>,
    },
    Stat {
        op: u64,
        path: Vec<u8>,
        follow: bool,
    },
    /// The answer is a stream of records; no more than `room` bytes of it may come before [`Message::More`].
    List {
        op: u64,
        path: Vec<u8>,
        depth: u64,
        room: u64,
    },
    /// The paths that a pattern stands for, as a stream.
    Find {
        op: u64,
        pattern: Vec<u8>,
        room: u64,
    },
    /// There is room for so many more bytes of a stream.
    More {
        op: u64,
        room: u64,
    },
    /// The digest of a range; of the whole file, if that has no length.
    Digest {
        op: u64,
        file: u64,
        range: Option<Range>,
        algorithm: Algorithm,
    },
    /// Nothing more of it is wanted.
    Cancel {
        op: u64,
    },

    // Server to client.
    Opened {
        file: u64,
        identity: Identity,
    },
    NotOpened {
        file: u64,
        failure: Failure,
    },
    /// Nothing more comes of the operation.
    Failed {
        op: u64,
        failure: Failure,
    },
    Stated {
        op: u64,
        entry: Entry,
    },
    Digested {
        op: u64,
        bytes: u64,
        digest: Vec<u8>,
    },
}

impl Message {
    /// Appends the message and the length before it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| self.encode_body(out));
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Message::Open { file, path } => {
                put_numbers(out, 70, &[*file]);
                put_bytes(out, path);
            }
            Message::Close { file } => put_numbers(out, 71, &[*file]),
            Message::Read { op, file, first, ranges } => {
                put_numbers(out, 72, &[*op, *file, *first]);
                put_ranges(out, ranges);
            }
            Message::Advise { file, ranges } => {
                put_numbers(out, 73, &[*file]);
                put_ranges(out, ranges);
            }
            Message::Stat { op, path, follow } => {
                put_numbers(out, 74, &[*op, u64::from(*follow)]);
                put_bytes(out, path);
            }
            Message::List { op, path, depth, room } => {
                put_numbers(out, 75, &[*op, *depth, *room]);
                put_bytes(out, path);
            }
            Message::Find { op, pattern, room } => {
                put_numbers(out, 76, &[*op, *room]);
                put_bytes(out, pattern);
            }
            Message::More { op, room } => put_numbers(out, 77, &[*op, *room]),
            Message::Digest { op, file, range, algorithm } => {
                put_numbers(out, 78, &[*op, *file, u64::from(range.is_some())]);
                if let Some(range) = range {
                    put_varint(out, range.offset);
                    put_varint(out, range.len);
                }
                put_bytes(out, algorithm.name().as_bytes());
            }
            Message::Cancel { op } => put_numbers(out, 79, &[*op]),
            Message::Opened { file, identity } => {
                put_numbers(out, 80, &[*file]);
                put_identity(out, identity);
            }
            Message::NotOpened { file, failure } => {
                put_numbers(out, 81, &[*file]);
                failure.put(out);
            }
            Message::Failed { op, failure } => {
                put_numbers(out, 82, &[*op]);
                failure.put(out);
            }
            Message::Stated { op, entry } => {
                put_numbers(out, 83, &[*op]);
                put_bytes(out, &entry.path);
                put_rest(out, entry);
            }
            Message::Digested { op, bytes, digest } => {
                put_numbers(out, 84, &[*op, *bytes]);
                put_bytes(out, digest);
            }
        }
    }

    /// The message of this code and body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut reader = Reader(bytes);
        let message = match reader.byte()? {
            70 => Message::Open { file: reader.varint()?, path: path(&mut reader)? },
            71 => Message::Close { file: reader.varint()? },
            72 => {
                let (op, file, first) = (reader.varint()?, reader.varint()?, reader.varint()?);
                Message::Read { op, file, first, ranges: take_ranges(&mut reader)? }
            }
            73 => Message::Advise { file: reader.varint()?, ranges: take_ranges(&mut reader)? },
            74 => {
                let (op, follow) = (reader.varint()?, reader.flag()?);
                Message::Stat { op, follow, path: path(&mut reader)? }
            }
            75 => {
                let (op, depth, room) = (reader.varint()?, reader.varint()?, reader.varint()?);
                Message::List { op, depth, room, path: path(&mut reader)? }
            }
            76 => {
                let (op, room) = (reader.varint()?, reader.varint()?);
                Message::Find { op, room, pattern: path(&mut reader)? }
            }
            77 => Message::More { op: reader.varint()?, room: reader.varint()? },
            78 => {
                let (op, file) = (reader.varint()?, reader.varint()?);
                let range = match reader.flag()? {
                    true => Some(Range { offset: reader.varint()?, len: reader.varint()? }),
                    false => None,
                };
                let name = reader.text()?;
                let algorithm = Algorithm::from_name(&name).ok_or(Malformed)?;
                Message::Digest { op, file, range, algorithm }
            }
            79 => Message::Cancel { op: reader.varint()? },
            80 => Message::Opened { file: reader.varint()?, identity: take_identity(&mut reader)? },
            81 => Message::NotOpened { file: reader.varint()?, failure: Failure::take(&mut reader)? },
            82 => Message::Failed { op: reader.varint()?, failure: Failure::take(&mut reader)? },
            83 => {
                let (op, path) = (reader.varint()?, path(&mut reader)?);
                Message::Stated { op, entry: take_rest(&mut reader, path)? }
            }
            84 => {
                let (op, bytes) = (reader.varint()?, reader.varint()?);
                Message::Digested { op, bytes, digest: reader.bytes()?.to_vec() }
            }
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    /// For errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Message::Open { .. } => "open",
            Message::Close { .. } => "close",
            Message::Read { .. } => "read",
            Message::Advise { .. } => "advise",
            Message::Stat { .. } => "stat",
            Message::List { .. } => "list",
            Message::Find { .. } => "find",
            Message::More { .. } => "more",
            Message::Digest { .. } => "digest",
            Message::Cancel { .. } => "cancel",
            Message::Opened { .. } => "opened",
            Message::NotOpened { .. } => "not-opened",
            Message::Failed { .. } => "failed",
            Message::Stated { .. } => "stated",
            Message::Digested { .. } => "digested",
        }
    }
}

fn path(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let path = reader.bytes()?;
    if path.len() > PATH_MAX || path.contains(&0) {
        return Err(Malformed);
    }
    Ok(path.to_vec())
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[Range]) {
    put_varint(out, ranges.len() as u64);
    for range in ranges {
        put_varint(out, range.offset);
        put_varint(out, range.len);
    }
}

fn take_ranges(reader: &mut Reader<'_>) -> Result<Vec<Range>, Malformed> {
    let count = reader.varint()?;
    if count > RANGES_MAX as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| Ok(Range { offset: reader.varint()?, len: reader.varint()? })).collect()
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    put_signed(out, time.secs);
    put_varint(out, u64::from(time.nanos));
}

fn take_time(reader: &mut Reader<'_>) -> Result<Time, Malformed> {
    let secs = reader.signed()?;
    Ok(Time::new(secs, reader.u32()?))
}

fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    put_varint(out, identity.size);
    put_time(out, identity.mtime);
    put_time(out, identity.ctime);
    put_varint(out, identity.inode);
    put_varint(out, identity.device);
}

fn take_identity(reader: &mut Reader<'_>) -> Result<Identity, Malformed> {
    Ok(Identity {
        size: reader.varint()?,
        mtime: take_time(reader)?,
        ctime: take_time(reader)?,
        inode: reader.varint()?,
        device: reader.varint()?,
    })
}

fn put_rest(out: &mut Vec<u8>, entry: &Entry) {
    out.push(entry.kind.number());
    put_varint(out, u64::from(entry.mode));
    put_varint(out, entry.links);
    put_identity(out, &entry.identity);
    if entry.kind == Kind::Symlink {
        put_bytes(out, &entry.target);
    }
}

fn take_rest(reader: &mut Reader<'_>, path: Vec<u8>) -> Result<Entry, Malformed> {
    let kind = Kind::of_number(reader.byte()?)?;
    let (mode, links) = (reader.u32()?, reader.varint()?);
    let identity = take_identity(reader)?;
    let target = if kind == Kind::Symlink { reader.bytes()?.to_vec() } else { Vec::new() };
    Ok(Entry { path, kind, mode, links, target, identity })
}

/// What a stream is made of, each behind its length. A path is written as what it has in common with the one before, and the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Entry(Entry),
    /// This could not be listed; the rest follows.
    Failed {
        path: Vec<u8>,
        failure: Failure,
    },
    /// A path that fits a pattern.
    Path(Vec<u8>),
    /// Something is mounted on this directory; what is in it is not listed.
    NotEntered(Vec<u8>),
}

/// Writes and reads the records of one stream.
#[derive(Debug, Default)]
pub(crate) struct Records {
    last: Vec<u8>,
}

impl Records {
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, record: &Record) {
        put_message(out, |out| match record {
            Record::Entry(entry) => {
                out.push(0);
                self.put_path(out, &entry.path);
                put_rest(out, entry);
            }
            Record::Failed { path, failure } => {
                out.push(1);
                self.put_path(out, path);
                failure.put(out);
            }
            Record::Path(path) => {
                out.push(2);
                self.put_path(out, path);
            }
            Record::NotEntered(path) => {
                out.push(3);
                self.put_path(out, path);
            }
        });
    }

    /// The next record at the front of `bytes`, and how many it takes; none if it is not all there.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<(Record, usize)>, Malformed> {
        let mut reader = Reader(bytes);
        let Ok(body) = reader.bytes() else {
            // A length that no record has is none of which the rest is to come.
            let is_cut =
                Reader(bytes).varint().map_or(bytes.len() < 10, |len| len <= 2 * PATH_MAX as u64 + 2048);
            return if is_cut { Ok(None) } else { Err(Malformed) };
        };
        let taken = bytes.len() - reader.rest().len();
        let mut reader = Reader(body);
        let record = match reader.byte()? {
            0 => {
                let path = self.take_path(&mut reader)?;
                Record::Entry(take_rest(&mut reader, path)?)
            }
            1 => {
                let path = self.take_path(&mut reader)?;
                Record::Failed { path, failure: Failure::take(&mut reader)? }
            }
            2 => Record::Path(self.take_path(&mut reader)?),
            3 => Record::NotEntered(self.take_path(&mut reader)?),
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

    fn take_path(&mut self, reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
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
