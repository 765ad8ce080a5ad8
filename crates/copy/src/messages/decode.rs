//! Decodes messages.

use farhaul_session::codec::{ByteReader, Malformed};
use farhaul_volume::{Algorithm, Attributes, Border, CHUNK, ChunkCv, Digest, Digests, FileTime, SpecialNode};

use super::super::messages::{
    ATTRIBUTES, CopyMessage, Decision, EntryContent, EntrySort, ManifestEntry, OWNER, Presence, RANGES_MAX,
};
use super::super::report::SpreadFigures;
use crate::deletion_guard::DeletionStopCause;
use crate::options::{SPREAD_MAX, SourceRoot};
use crate::owners::{EntryOwner, OWNER_NAME_MAX};

/// The most bytes of a path on Linux.
const PATH_MAX: usize = 4095;

/// Decodes messages; it remembers the last path, whose beginning the next one may share, and the last owner, whom
/// the next entry may belong to, too.
#[derive(Default)]
pub(crate) struct Decoder {
    last_path: Vec<u8>,
    last_owner: Option<EntryOwner>,
}

impl Decoder {
    /// Decodes one message from its code and body.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<CopyMessage, Malformed> {
        decode_message(bytes, self)
    }
}

fn decode_message(bytes: &[u8], last: &mut Decoder) -> Result<CopyMessage, Malformed> {
    let mut reader = ByteReader(bytes);
    let message = match reader.byte()? {
        1 => CopyMessage::Entry(decode_entry(&mut reader, last)?),
        2 => CopyMessage::DirectoryEnd { id: reader.varint()? },
        3 => CopyMessage::SourceFailed { path: reader.bytes()?.to_vec(), failure: reader.failure()? },
        4 => CopyMessage::FileEnd { id: reader.varint()?, size: reader.varint()?, chunks: reader.varint()? },
        5 => CopyMessage::FileFailed { id: reader.varint()?, failure: reader.failure()? },
        6 => CopyMessage::EntriesEnd,
        7 => CopyMessage::LeftOut { path: reader.bytes()?.to_vec() },
        8 => CopyMessage::Present { path: reader.bytes()?.to_vec(), presence: decode_presence(&mut reader)? },
        9 => CopyMessage::PresentEnd { is_complete: reader.flag()? },
        11 => {
            let id = reader.varint()?;
            // The entry is encoded as in its own message.
            if reader.byte()? != 1 {
                return Err(Malformed);
            }
            CopyMessage::Renewed { id, entry: decode_entry(&mut reader, last)? }
        }
        10 => CopyMessage::Compared { id: reader.varint()?, is_same: reader.flag()? },
        12 => CopyMessage::Skipped { path: reader.bytes()?.to_vec(), reason: reader.text()? },
        16 => CopyMessage::Decide { id: reader.varint()?, decision: decode_decision(&mut reader)? },
        17 => CopyMessage::Done { id: reader.varint()? },
        18 => CopyMessage::Failed {
            id: reader.varint()?,
            path: reader.bytes()?.to_vec(),
            failure: reader.failure()?,
        },
        15 => CopyMessage::NotSet { path: reader.bytes()?.to_vec(), reason: reader.text()? },
        19 => CopyMessage::Again { id: reader.varint()?, chunk: reader.varint()? },
        20 => {
            let count = reader.varint()?;
            let new = if reader.is_empty() { None } else { Some(reader.varint()?) };
            CopyMessage::DirectoriesDone { count, new }
        }
        21 => CopyMessage::Deleted { path: reader.bytes()?.to_vec() },
        22 => CopyMessage::NotDeleted { path: reader.bytes()?.to_vec(), failure: reader.failure()? },
        41 => CopyMessage::AsFile { id: reader.varint()? },
        42 => CopyMessage::SourceRoot(SourceRoot { file_system: reader.varint()?, inode: reader.varint()? }),
        40 => CopyMessage::DeletionStopped {
            cause: decode_cause(&mut reader)?,
            entries: reader.varint()?,
            of: reader.varint()?,
            names: (0..reader.varint()?).map(|_| Ok(reader.bytes()?.to_vec())).collect::<Result<_, _>>()?,
        },
        23 => {
            let (names, is_last) = decode_list(&mut reader)?;
            CopyMessage::Names { names, is_last }
        }
        38 => {
            let (paths, is_last) = decode_list(&mut reader)?;
            CopyMessage::Paths { paths, is_last }
        }
        24 => CopyMessage::Marks {
            id: reader.varint()?,
            chunk: reader.varint()?,
            marks: reader.bytes()?.to_vec(),
        },
        25 => CopyMessage::MarksEnd { id: reader.varint()? },
        30 => {
            let (id, chunk) = (reader.varint()?, reader.varint()?);
            CopyMessage::Kept { id, chunk, cv: ChunkCv(reader.array()?) }
        }
        13 => CopyMessage::Same { id: reader.varint()?, chunk: reader.varint()? },
        26 => CopyMessage::Renamed { id: reader.varint()?, from: reader.bytes()?.to_vec() },
        27 => CopyMessage::Digests { id: reader.varint()?, digests: decode_digests(&mut reader)? },
        28 => CopyMessage::Placed { name: reader.bytes()?.to_vec() },
        29 => CopyMessage::Unchanged { first: reader.varint()?, count: reader.varint()? },
        31 => CopyMessage::Receipt { statement: reader.bytes()?.to_vec(), reason: reader.text()? },
        54 => CopyMessage::Left { path: reader.bytes()?.to_vec(), border: decode_border(&mut reader)? },
        55 => CopyMessage::Replaced {
            path: reader.bytes()?.to_vec(),
            was: decode_sort(&mut reader)?,
            by: decode_sort(&mut reader)?,
        },
        39 => CopyMessage::Parted { path: reader.bytes()?.to_vec() },
        43 => CopyMessage::BackedUp { path: reader.bytes()?.to_vec() },
        _ => return Err(Malformed),
    };
    #[cfg(feature = "planted-bug")]
    super::planted_fault::bug(&message);
    if reader.is_empty() { Ok(message) } else { Err(Malformed) }
}

/// Decodes a part of a list, and whether that is the last one.
fn decode_list(reader: &mut ByteReader<'_>) -> Result<(Vec<Vec<u8>>, bool), Malformed> {
    let is_last = reader.flag()?;
    let mut list = Vec::new();
    for _ in 0..reader.varint()? {
        list.push(reader.bytes()?.to_vec());
    }
    Ok((list, is_last))
}

fn decode_entry(reader: &mut ByteReader<'_>, last: &mut Decoder) -> Result<ManifestEntry, Malformed> {
    let Decoder { last_path, last_owner } = last;
    let id = reader.varint()?;
    let shared = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let rest = reader.bytes()?;
    // Refuse longer paths: otherwise a path could grow from message to message, and each would cost as much
    // as all before it.
    if shared > last_path.len() || shared + rest.len() > PATH_MAX {
        return Err(Malformed);
    }
    last_path.truncate(shared);
    last_path.extend_from_slice(rest);
    let mode = reader.u32()?;
    let FileTime { secs: mtime_secs, nanos: mtime_nanos } = decode_time(reader)?;
    let kind = reader.byte()?;
    let what = match kind & !(ATTRIBUTES | OWNER) {
        1 => EntryContent::Stream,
        8 => EntryContent::Directory,
        9 => EntryContent::Symlink { target: reader.bytes()?.to_vec() },
        10 => EntryContent::HardLink { to: reader.varint()? },
        11 => EntryContent::Special(decode_node(reader)?),
        flags if flags & !0b110 == 0 => {
            let (size, inode, device) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let ctime = if size > CHUNK { decode_time(reader)? } else { FileTime::default() };
            EntryContent::File { size, inode, device, ctime, sparse: flags & 2 != 0, linked: flags & 4 != 0 }
        }
        _ => return Err(Malformed),
    };
    let mut attributes = Attributes::new();
    if kind & ATTRIBUTES != 0 {
        for _ in 0..reader.varint()? {
            attributes.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
        }
    }
    if kind & OWNER != 0 && !reader.flag()? {
        let (uid, gid) = (reader.u32()?, reader.u32()?);
        let (user, group) = (reader.bytes()?.to_vec(), reader.bytes()?.to_vec());
        if user.len() > OWNER_NAME_MAX || group.len() > OWNER_NAME_MAX {
            return Err(Malformed);
        }
        *last_owner = Some(EntryOwner { uid, gid, user, group });
    }
    let owner = match kind & OWNER {
        0 => None,
        _ => Some(last_owner.clone().ok_or(Malformed)?),
    };
    Ok(ManifestEntry { id, path: last_path.clone(), mode, mtime_secs, mtime_nanos, what, attributes, owner })
}

fn decode_time(reader: &mut ByteReader<'_>) -> Result<FileTime, Malformed> {
    let (secs, nanos) = (reader.signed()?, reader.u32()?);
    if nanos < 1_000_000_000 { Ok(FileTime { secs, nanos }) } else { Err(Malformed) }
}

fn decode_node(reader: &mut ByteReader<'_>) -> Result<SpecialNode, Malformed> {
    let (kind, major, minor) = (reader.varint()?, reader.u32()?, reader.u32()?);
    Ok(match kind {
        0 => SpecialNode::Fifo,
        1 => SpecialNode::Socket,
        2 => SpecialNode::CharDevice { major, minor },
        3 => SpecialNode::BlockDevice { major, minor },
        _ => return Err(Malformed),
    })
}

fn decode_digests(reader: &mut ByteReader<'_>) -> Result<Digests, Malformed> {
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

fn decode_border(reader: &mut ByteReader<'_>) -> Result<Border, Malformed> {
    Ok(match reader.byte()? {
        0 => Border::MountPoint,
        1 => Border::Beyond,
        _ => return Err(Malformed),
    })
}

fn decode_cause(reader: &mut ByteReader<'_>) -> Result<DeletionStopCause, Malformed> {
    let number = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
    DeletionStopCause::ALL.get(number).copied().ok_or(Malformed)
}

fn decode_sort(reader: &mut ByteReader<'_>) -> Result<EntrySort, Malformed> {
    EntrySort::ALL.get(usize::from(reader.byte()?)).copied().ok_or(Malformed)
}

fn decode_presence(reader: &mut ByteReader<'_>) -> Result<Presence, Malformed> {
    Ok(match reader.byte()? {
        0 => Presence::Plain,
        1 => Presence::Directory,
        2 => Presence::DirectoryEnd,
        3 => Presence::DirectoryUnlisted,
        _ => return Err(Malformed),
    })
}

fn decode_decision(reader: &mut ByteReader<'_>) -> Result<Decision, Malformed> {
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

fn decode_ranges(reader: &mut ByteReader<'_>) -> Result<Vec<(u64, u64)>, Malformed> {
    let count = reader.varint()?;
    if count > RANGES_MAX as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| Ok((reader.varint()?, reader.varint()?))).collect()
}

/// Decodes what [`encode_spread`](super::encode_spread) encodes.
pub(crate) fn decode_spread(bytes: &[u8]) -> Result<Vec<SpreadFigures>, Malformed> {
    let (mut reader, mut spread) = (ByteReader(bytes), Vec::new());
    let directories = if reader.is_empty() { 0 } else { reader.varint()? };
    for _ in 0..directories.min(SPREAD_MAX as u64) {
        let (directory, files) = (reader.text()?, reader.varint()?);
        spread.push(SpreadFigures { directory, files, bytes: reader.varint()? });
    }
    if reader.is_empty() { Ok(spread) } else { Err(Malformed) }
}
