//! Bytes as messages.

use farhaul_session::codec::{Malformed, Reader};
use farhaul_volume::{Algorithm, Attributes, Border, CHUNK, ChunkCv, Digest, Digests, Node, Time};

use super::super::messages::{
    ATTRIBUTES, Decision, ManifestEntry, Message, Presence, RANGES_MAX, Sort, What,
};
use super::super::report::SpreadFigures;
use crate::failures::Failure;
use crate::options::SPREAD_MAX;

/// Bytes of a path, as Linux has them.
const PATH_MAX: usize = 4095;

/// Reads messages, remembering the last path for the next one's prefix.
#[derive(Default)]
pub(crate) struct Decoder {
    last_path: Vec<u8>,
}

impl Decoder {
    /// The message of this code and body.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<Message, Malformed> {
        decode_message(bytes, &mut self.last_path)
    }
}

fn decode_message(bytes: &[u8], last_path: &mut Vec<u8>) -> Result<Message, Malformed> {
    let mut reader = Reader(bytes);
    let message = match reader.byte()? {
        1 => Message::Entry(decode_entry(&mut reader, last_path)?),
        2 => Message::DirectoryEnd { id: reader.varint()? },
        3 => Message::SourceFailed { path: reader.bytes()?.to_vec(), failure: Failure::take(&mut reader)? },
        4 => Message::FileEnd { id: reader.varint()?, size: reader.varint()?, chunks: reader.varint()? },
        5 => Message::FileFailed { id: reader.varint()?, failure: Failure::take(&mut reader)? },
        6 => Message::EntriesEnd,
        7 => Message::LeftOut { path: reader.bytes()?.to_vec() },
        8 => Message::Present { path: reader.bytes()?.to_vec(), presence: decode_presence(&mut reader)? },
        9 => Message::PresentEnd { is_complete: reader.flag()? },
        11 => {
            let id = reader.varint()?;
            // An entry as in a message of its own.
            if reader.byte()? != 1 {
                return Err(Malformed);
            }
            Message::Renewed { id, entry: decode_entry(&mut reader, last_path)? }
        }
        10 => Message::Compared { id: reader.varint()?, is_same: reader.flag()? },
        12 => Message::Skipped { path: reader.bytes()?.to_vec(), reason: reader.text()? },
        16 => Message::Decide { id: reader.varint()?, decision: decode_decision(&mut reader)? },
        17 => Message::Done { id: reader.varint()? },
        18 => Message::Failed {
            id: reader.varint()?,
            path: reader.bytes()?.to_vec(),
            failure: Failure::take(&mut reader)?,
        },
        15 => Message::NotSet { path: reader.bytes()?.to_vec(), reason: reader.text()? },
        19 => Message::Again { id: reader.varint()?, chunk: reader.varint()? },
        20 => Message::DirectoriesDone { count: reader.varint()? },
        21 => Message::Deleted { path: reader.bytes()?.to_vec() },
        22 => Message::NotDeleted { path: reader.bytes()?.to_vec(), failure: Failure::take(&mut reader)? },
        23 => {
            let (names, is_last) = decode_list(&mut reader)?;
            Message::Names { names, is_last }
        }
        38 => {
            let (paths, is_last) = decode_list(&mut reader)?;
            Message::Paths { paths, is_last }
        }
        24 => {
            Message::Marks { id: reader.varint()?, chunk: reader.varint()?, marks: reader.bytes()?.to_vec() }
        }
        25 => Message::MarksEnd { id: reader.varint()? },
        30 => {
            let (id, chunk) = (reader.varint()?, reader.varint()?);
            Message::Kept { id, chunk, cv: ChunkCv(reader.array()?) }
        }
        13 => Message::Same { id: reader.varint()?, chunk: reader.varint()? },
        26 => Message::Renamed { id: reader.varint()?, from: reader.bytes()?.to_vec() },
        27 => Message::Digests { id: reader.varint()?, digests: decode_digests(&mut reader)? },
        28 => Message::Placed { name: reader.bytes()?.to_vec() },
        29 => Message::Unchanged { first: reader.varint()?, count: reader.varint()? },
        31 => Message::Receipt { statement: reader.bytes()?.to_vec(), reason: reader.text()? },
        54 => Message::Left { path: reader.bytes()?.to_vec(), border: decode_border(&mut reader)? },
        55 => Message::Replaced {
            path: reader.bytes()?.to_vec(),
            was: decode_sort(&mut reader)?,
            by: decode_sort(&mut reader)?,
        },
        _ => return Err(Malformed),
    };
    #[cfg(feature = "planted-bug")]
    super::planted::bug(&message);
    if reader.is_empty() { Ok(message) } else { Err(Malformed) }
}

/// Part of a list, and whether it is the last one.
fn decode_list(reader: &mut Reader<'_>) -> Result<(Vec<Vec<u8>>, bool), Malformed> {
    let is_last = reader.flag()?;
    let mut list = Vec::new();
    for _ in 0..reader.varint()? {
        list.push(reader.bytes()?.to_vec());
    }
    Ok((list, is_last))
}

fn decode_entry(reader: &mut Reader<'_>, last_path: &mut Vec<u8>) -> Result<ManifestEntry, Malformed> {
    let id = reader.varint()?;
    let shared = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let rest = reader.bytes()?;
    // No path is longer. Else one could be made to grow from message to message, and each would cost as much as all before it.
    if shared > last_path.len() || shared + rest.len() > PATH_MAX {
        return Err(Malformed);
    }
    last_path.truncate(shared);
    last_path.extend_from_slice(rest);
    let mode = reader.u32()?;
    let Time { secs: mtime_secs, nanos: mtime_nanos } = decode_time(reader)?;
    let kind = reader.byte()?;
    let what = match kind & !ATTRIBUTES {
        1 => What::Stream,
        8 => What::Directory,
        9 => What::Symlink { target: reader.bytes()?.to_vec() },
        10 => What::HardLink { to: reader.varint()? },
        11 => What::Special(decode_node(reader)?),
        flags if flags & !0b110 == 0 => {
            let (size, inode, device) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let ctime = if size > CHUNK { decode_time(reader)? } else { Time::default() };
            What::File { size, inode, device, ctime, sparse: flags & 2 != 0, linked: flags & 4 != 0 }
        }
        _ => return Err(Malformed),
    };
    let mut attributes = Attributes::new();
    if kind & ATTRIBUTES != 0 {
        for _ in 0..reader.varint()? {
            attributes.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
        }
    }
    Ok(ManifestEntry { id, path: last_path.clone(), mode, mtime_secs, mtime_nanos, what, attributes })
}

fn decode_time(reader: &mut Reader<'_>) -> Result<Time, Malformed> {
    let (secs, nanos) = (reader.signed()?, reader.u32()?);
    if nanos < 1_000_000_000 { Ok(Time { secs, nanos }) } else { Err(Malformed) }
}

fn decode_node(reader: &mut Reader<'_>) -> Result<Node, Malformed> {
    let (kind, major, minor) = (reader.varint()?, reader.u32()?, reader.u32()?);
    Ok(match kind {
        0 => Node::Fifo,
        1 => Node::Socket,
        2 => Node::CharDevice { major, minor },
        3 => Node::BlockDevice { major, minor },
        _ => return Err(Malformed),
    })
}

fn decode_digests(reader: &mut Reader<'_>) -> Result<Digests, Malformed> {
    let tree = Digest(reader.array()?);
    let mut extra = Vec::new();
    for _ in 0..reader.varint()? {
        let algorithm = Algorithm::from_name(&reader.text()?).ok_or(Malformed)?;
        let digest = reader.bytes()?.to_vec();
        if digest.len() != algorithm.bytes() || extra.len() == Algorithm::ALL.len() {
            return Err(Malformed);
        }
        extra.push((algorithm, digest));
    }
    Ok(Digests { tree, extra })
}

fn decode_border(reader: &mut Reader<'_>) -> Result<Border, Malformed> {
    Ok(match reader.byte()? {
        0 => Border::MountPoint,
        1 => Border::Beyond,
        _ => return Err(Malformed),
    })
}

fn decode_sort(reader: &mut Reader<'_>) -> Result<Sort, Malformed> {
    Sort::ALL.get(usize::from(reader.byte()?)).copied().ok_or(Malformed)
}

fn decode_presence(reader: &mut Reader<'_>) -> Result<Presence, Malformed> {
    Ok(match reader.byte()? {
        0 => Presence::Plain,
        1 => Presence::Directory,
        2 => Presence::DirectoryEnd,
        3 => Presence::DirectoryUnlisted,
        _ => return Err(Malformed),
    })
}

fn decode_decision(reader: &mut Reader<'_>) -> Result<Decision, Malformed> {
    Ok(match reader.byte()? {
        0 => Decision::Send,
        3 => Decision::Listed,
        8 => Decision::Keep,
        4 => Decision::Compare(reader.array()?),
        2 => Decision::Have(decode_ranges(reader)?),
        5 => Decision::Patch { have: decode_ranges(reader)?, old_chunks: reader.varint()? },
        _ => return Err(Malformed),
    })
}

fn decode_ranges(reader: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, Malformed> {
    let count = reader.varint()?;
    if count > RANGES_MAX as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| Ok((reader.varint()?, reader.varint()?))).collect()
}

/// What [`encode_spread`](super::encode_spread) has written.
pub(crate) fn decode_spread(bytes: &[u8]) -> Result<Vec<SpreadFigures>, Malformed> {
    let (mut reader, mut spread) = (Reader(bytes), Vec::new());
    let directories = if reader.is_empty() { 0 } else { reader.varint()? };
    for _ in 0..directories.min(SPREAD_MAX as u64) {
        let (directory, files) = (reader.text()?, reader.varint()?);
        spread.push(SpreadFigures { directory, files, bytes: reader.varint()? });
    }
    if reader.is_empty() { Ok(spread) } else { Err(Malformed) }
}
