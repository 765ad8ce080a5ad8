//! The journal of a partial file says what of a large file has arrived, so that the same command can go on.
//!
//! A header names the source (size, mtime, ctime, inode, device), the partial file (inode) and the journal itself
//! (the digits of its name). Two digests say how the partial file begins, or is about to begin, for file systems
//! whose inode numbers say nothing. Records of a fixed size follow: a chunk with its chaining value; a checkpoint, which says how many records are backed
//! by synced data; an opening, which names the boot; a chunk taken back; a new state of the source, which the
//! chunks behind it came from. Every record ends in a checksum over itself, its number and the header.
//!
//! Always true: a record counts only if it and all before it are whole; the rest is overwritten. Chunks that
//! were recorded after the last checkpoint, or before the last state of the source, are doubtful once the
//! machine has been booted again: their data may never have been written, or may have been overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::change;
use crate::digest::ChunkCv;
use crate::entry::{FileTime, Metadata};
use crate::own_names;
use crate::partial::{SourceIdentity, SourceState};

const MAGIC: &[u8; 8] = b"fhjrnl3\n";
const HEADER_LEN: usize = 80;
/// Two digests of how the partial file begins: before the last change of that, and after it.
const MARKS_LEN: usize = 64;
const RECORDS_AT: usize = HEADER_LEN + MARKS_LEN;
/// The bytes at the beginning of a partial file that its journal tells a digest of.
pub(crate) const BEGINNING: usize = 4096;
const RECORD_LEN: usize = 56;
const CHECK_LEN: usize = 8;

const CHUNK_THERE: u8 = 1;
const CHECKPOINT: u8 = 2;
const OPENED: u8 = 3;
const CHUNK_GONE: u8 = 4;
const SOURCE: u8 = 5;

/// An open journal, for appending. The lock of the partial file keeps other transfers away.
pub(crate) struct Journal {
    file: File,
    salt: [u8; CHECK_LEN],
    /// The number of whole records.
    records: u64,
    marks: [[u8; 32]; 2],
}

/// How a journal knows its partial file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartialMarks {
    pub(crate) inode: u64,
    marks: [[u8; 32]; 2],
}

impl PartialMarks {
    /// Whether a file that begins with these bytes is the partial file.
    pub(crate) fn has(&self, beginning: &[u8]) -> bool {
        self.marks.contains(&mark(beginning))
    }
}

/// The digest of how a file begins; behind its end are zeros.
fn mark(beginning: &[u8]) -> [u8; 32] {
    let beginning = &beginning[..beginning.len().min(BEGINNING)];
    let mut hasher = blake3::Hasher::new();
    hasher.update(beginning).update(&[0; BEGINNING][beginning.len()..]);
    *hasher.finalize().as_bytes()
}

/// A transfer's request for a partial file that another one holds; withdrawn when dropped.
///
/// It is a shared lock on the journal. The holder, which locks only the partial file, looks for that lock. It
/// leaves nothing behind, whatever happens to either transfer.
#[derive(Debug)]
pub struct PartialRequest {
    _journal: OwnedFd,
}

impl PartialRequest {
    pub(crate) fn make(dir: &OwnedFd, journal_name: &[u8]) -> Option<PartialRequest> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let journal = fs::openat(dir, journal_name, flags, Mode::empty()).ok()?;
        fs::flock(&journal, FlockOperation::NonBlockingLockShared).ok()?;
        Some(PartialRequest { _journal: journal })
    }
}

/// The journal of an earlier run.
pub(crate) struct LoadedJournal {
    pub(crate) journal: Journal,
    /// Chunks whose data are certainly in the file.
    pub(crate) sure: BTreeMap<u64, ChunkCv>,
    /// Chunks whose data have to be read back and compared.
    pub(crate) doubtful: BTreeMap<u64, ChunkCv>,
    /// Chunks of either kind that came from the source in another state than its present one.
    pub(crate) earlier: BTreeSet<u64>,
    /// The last recorded state of the source is its present one.
    pub(crate) is_same_source: bool,
    /// The inode number of the partial file when the journal was begun.
    pub(crate) partial_inode: u64,
    /// When the last record was written.
    pub(crate) changed_at: FileTime,
}

impl Journal {
    /// Starts a journal. An existing journal of the same partial file is overwritten in place, so that the
    /// partial file never lacks the journal by which it is known as ours. `beginnings`: how the partial file
    /// begins, and is about to begin.
    pub(crate) fn create(
        dir: &OwnedFd,
        name: &[u8],
        identity: &SourceIdentity,
        partial_ino: u64,
        beginnings: [&[u8]; 2],
    ) -> io::Result<Journal> {
        let header = header(identity, partial_ino, own_names::number_of(name));
        let marks = beginnings.map(mark);
        let begun = [&header[..], &marks.concat()].concat();
        let file = match Journal::open(dir, name)? {
            Some(file) if Journal::partial_of(&file, name).is_some_and(|of| of.inode == partial_ino) => {
                change::write_all_at(&file, &begun, 0)?;
                change::set_len(&file, RECORDS_AT as u64)?;
                // Its old records must not come back after a crash, as their chunks will be overwritten.
                file.sync_data()?;
                file
            }
            _ => {
                match change::unlinkat(dir, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(change::create(dir, name, flags, Mode::RUSR | Mode::WUSR)?);
                change::write_all_at(&file, &begun, 0)?;
                file
            }
        };
        let mut journal = Journal { file, salt: salt(&header), records: 0, marks };
        journal.opened()?;
        Ok(journal)
    }

    /// Opens a file of our own user for reading and writing; `None` if there is none. Fails if it cannot be
    /// found out for want of descriptors or memory.
    fn open(dir: &OwnedFd, name: &[u8]) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        let Ok(stat) = fs::fstat(&file) else { return Ok(None) };
        let meta = Metadata::from(&stat);
        Ok((meta.is_file() && meta.uid == rustix::process::geteuid().as_raw()).then_some(file))
    }

    /// How a journal called `name` knows its partial file; `None` if the file is not a journal, or one of
    /// another name.
    pub(crate) fn partial_of(file: &File, name: &[u8]) -> Option<PartialMarks> {
        let mut begun = [0; RECORDS_AT];
        file.read_exact_at(&mut begun, 0).ok()?;
        let (header, marks) = begun.split_at(HEADER_LEN);
        let header: &[u8; HEADER_LEN] = header.try_into().ok()?;
        let is_whole = header[..MAGIC.len()] == *MAGIC && header[HEADER_LEN - CHECK_LEN..] == salt(header);
        let is_its = le_i64(&header[64..72])?.cast_unsigned() == own_names::number_of(name);
        let inode = le_i64(&header[48..56])?.cast_unsigned();
        (is_whole && is_its).then(|| PartialMarks { inode, marks: marks_of(marks) })
    }

    /// Says how the partial file is about to begin.
    pub(crate) fn will_begin(&mut self, beginning: &[u8]) -> io::Result<()> {
        self.marks = [self.marks[1], mark(beginning)];
        change::write_all_at(&self.file, &self.marks.concat(), HEADER_LEN as u64)
    }

    /// Whether a power failure has left nothing of the journal: it is empty, or begins with zeros.
    pub(crate) fn is_lost(file: &File) -> bool {
        let mut header = [0; HEADER_LEN];
        let filled = file.read_at(&mut header, 0);
        filled.is_ok_and(|len| (len == 0 || len == HEADER_LEN) && header == [0; HEADER_LEN])
    }

    /// Loads a journal. Returns `None` if there is none, or if it belongs to a source of another size or
    /// time, to another partial file, or to another user, or has another format. Fails if it cannot be opened
    /// for want of descriptors or memory. Without `partial_ino` the caller knows the partial file otherwise.
    pub(crate) fn load(
        dir: &OwnedFd,
        name: &[u8],
        identity: &SourceIdentity,
        partial_ino: Option<u64>,
    ) -> io::Result<Option<LoadedJournal>> {
        let file = Journal::open(dir, name)?;
        let Some((file, of)) = file.and_then(|file| Journal::partial_of(&file, name).map(|of| (file, of)))
        else {
            return Ok(None);
        };
        let is_its = partial_ino.is_none_or(|inode| inode == of.inode);
        Ok(if is_its { Journal::read(file, identity, of, own_names::number_of(name)) } else { None })
    }

    fn read(file: File, identity: &SourceIdentity, of: PartialMarks, name: u64) -> Option<LoadedJournal> {
        let mut reader = BufReader::with_capacity(256 << 10, &file);
        let mut found = [0; HEADER_LEN];
        reader.read_exact(&mut found).ok()?;
        let state = source_of(&found)?;
        let as_it_was = SourceIdentity { state, ..*identity };
        if found != header(&as_it_was, of.inode, name) {
            return None;
        }
        reader.read_exact(&mut [0; MARKS_LEN]).ok()?;
        let salt = salt(&found);
        let mut replay = Replay::new(identity.chunks(), state);
        let mut record = [0; RECORD_LEN];
        loop {
            match reader.read_exact(&mut record) {
                Ok(()) if record[RECORD_LEN - CHECK_LEN..] == check(&salt, replay.records, &record) => {}
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(_) => return None,
            }
            replay.apply(&record)?;
        }
        // Before the length is set, which counts as a change.
        let changed_at = Metadata::from(&fs::fstat(&file).ok()?).mtime;
        let journal = Journal { file, salt, records: replay.records, marks: of.marks };
        change::set_len(&journal.file, journal.end()).ok()?;
        let is_same_source = replay.source == identity.state;
        let earlier = replay.earlier(is_same_source);
        let (sure, doubtful) = replay.judge();
        Some(LoadedJournal {
            journal,
            sure,
            doubtful,
            earlier,
            is_same_source,
            partial_inode: of.inode,
            changed_at,
        })
    }

    /// Records that all chunks in the journal count under this boot. Call it only after the doubtful chunks
    /// were checked: otherwise a run that is killed during the check would leave the rest to be believed.
    pub(crate) fn opened(&mut self) -> io::Result<()> {
        self.append(OPENED, 0, boot_id())
    }

    /// Records a chunk whose data have been written.
    pub(crate) fn chunk_there(&mut self, index: u64, cv: ChunkCv) -> io::Result<()> {
        self.append(CHUNK_THERE, index, &cv.0)
    }

    /// Takes a chunk back.
    pub(crate) fn chunk_gone(&mut self, index: u64) -> io::Result<()> {
        self.append(CHUNK_GONE, index, &[0; 32])
    }

    /// Records that later chunks come from the source in this state, and waits until that is on the disk:
    /// earlier chunks may be overwritten from now on.
    pub(crate) fn source(&mut self, state: &SourceState) -> io::Result<()> {
        let mut value = [0; 32];
        value[..8].copy_from_slice(&state.ino.to_le_bytes());
        value[8..16].copy_from_slice(&state.ctime.secs.to_le_bytes());
        value[16..20].copy_from_slice(&state.ctime.nanos.to_le_bytes());
        self.append(SOURCE, state.dev, &value)?;
        self.file.sync_data()
    }

    /// Records that the data of the first `records` records are on the disk.
    pub(crate) fn checkpoint(&mut self, records: u64) -> io::Result<()> {
        self.append(CHECKPOINT, records, &[0; 32])
    }

    /// Whether another transfer waits for the partial file.
    pub(crate) fn is_requested(&self) -> bool {
        let found = fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive);
        if found.is_ok() {
            let _ = fs::flock(&self.file, FlockOperation::Unlock);
        }
        found == Err(Errno::WOULDBLOCK)
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// A second descriptor, to sync without blocking the writers.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn end(&self) -> u64 {
        RECORDS_AT as u64 + self.records * RECORD_LEN as u64
    }

    /// Appends a record. If it cannot be written in full it does not count, and the next one takes its place.
    fn append(&mut self, kind: u8, index: u64, value: &[u8; 32]) -> io::Result<()> {
        let mut record = [0; RECORD_LEN];
        record[0] = kind;
        record[8..16].copy_from_slice(&index.to_le_bytes());
        record[16..48].copy_from_slice(value);
        let sum = check(&self.salt, self.records, &record);
        record[RECORD_LEN - CHECK_LEN..].copy_from_slice(&sum);
        change::write_all_at(&self.file, &record, self.end())?;
        self.records += 1;
        Ok(())
    }
}

/// The state after a number of records.
struct Replay {
    chunks: u64,
    records: u64,
    synced: u64,
    boot: [u8; 32],
    source: SourceState,
    /// The first record that counts for the present source.
    since: u64,
    /// The value and the record number of each chunk.
    there: BTreeMap<u64, (ChunkCv, u64)>,
}

impl Replay {
    fn new(chunks: u64, source: SourceState) -> Replay {
        Replay { chunks, records: 0, synced: 0, boot: [0; 32], source, since: 0, there: BTreeMap::new() }
    }

    /// Applies a record. Returns `None` if it is impossible in a journal of this file.
    fn apply(&mut self, record: &[u8; RECORD_LEN]) -> Option<()> {
        let index = u64::from_le_bytes(record[8..16].try_into().ok()?);
        let value: [u8; 32] = record[16..48].try_into().ok()?;
        match record[0] {
            CHUNK_THERE if index < self.chunks => {
                self.there.insert(index, (ChunkCv(value), self.records));
            }
            CHUNK_GONE => {
                self.there.remove(&index);
            }
            CHECKPOINT if index <= self.records => self.synced = self.synced.max(index),
            OPENED => self.boot = value,
            SOURCE => {
                let ctime = FileTime::new(le_i64(&value[8..16])?, le_u32(&value[16..20])?);
                self.source = SourceState { ctime, dev: index, ino: le_i64(&value[..8])?.cast_unsigned() };
                self.since = self.records + 1;
            }
            _ => return None,
        }
        self.records += 1;
        Some(())
    }

    /// Chunks that came from the source before it had its present state.
    fn earlier(&self, is_same_source: bool) -> BTreeSet<u64> {
        let before = |record| !is_same_source || record < self.since;
        self.there.iter().filter(|&(_, &(_, record))| before(record)).map(|(&index, _)| index).collect()
    }

    /// Splits the chunks into those that are certainly there and those to be read back.
    fn judge(self) -> (BTreeMap<u64, ChunkCv>, BTreeMap<u64, ChunkCv>) {
        let same_boot = self.boot == *boot_id() && self.boot != [0; 32];
        let (mut sure, mut doubtful) = (BTreeMap::new(), BTreeMap::new());
        for (index, (cv, record)) in self.there {
            let side = if same_boot || (self.since..self.synced).contains(&record) {
                &mut sure
            } else {
                &mut doubtful
            };
            side.insert(index, cv);
        }
        (sure, doubtful)
    }
}

/// Whether a journal can have this length.
pub(crate) fn is_length(bytes: u64) -> bool {
    bytes.checked_sub(RECORDS_AT as u64).is_some_and(|records| records.is_multiple_of(RECORD_LEN as u64))
}

fn header(identity: &SourceIdentity, partial_ino: u64, name: u64) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&identity.size.to_le_bytes());
    header[16..24].copy_from_slice(&identity.mtime.secs.to_le_bytes());
    header[24..28].copy_from_slice(&identity.mtime.nanos.to_le_bytes());
    header[28..32].copy_from_slice(&identity.state.ctime.nanos.to_le_bytes());
    header[32..40].copy_from_slice(&identity.state.ino.to_le_bytes());
    header[40..48].copy_from_slice(&identity.state.dev.to_le_bytes());
    header[48..56].copy_from_slice(&partial_ino.to_le_bytes());
    header[56..64].copy_from_slice(&identity.state.ctime.secs.to_le_bytes());
    header[64..72].copy_from_slice(&name.to_le_bytes());
    let sum = salt(&header);
    header[72..].copy_from_slice(&sum);
    header
}

fn marks_of(bytes: &[u8]) -> [[u8; 32]; 2] {
    let mut marks = [[0; 32]; 2];
    for (mark, bytes) in marks.iter_mut().zip(bytes.chunks_exact(32)) {
        mark.copy_from_slice(bytes);
    }
    marks
}

/// The state that the source had when the journal was begun.
fn source_of(header: &[u8; HEADER_LEN]) -> Option<SourceState> {
    let number = |range: std::ops::Range<usize>| le_i64(&header[range]);
    let ctime = FileTime::new(number(56..64)?, le_u32(&header[28..32])?);
    Some(SourceState { ctime, ino: number(32..40)?.cast_unsigned(), dev: number(40..48)?.cast_unsigned() })
}

fn le_i64(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_le_bytes)
}

fn le_u32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn salt(header: &[u8; HEADER_LEN]) -> [u8; CHECK_LEN] {
    first_bytes(blake3::hash(&header[..HEADER_LEN - CHECK_LEN]))
}

fn check(salt: &[u8; CHECK_LEN], number: u64, record: &[u8; RECORD_LEN]) -> [u8; CHECK_LEN] {
    let mut input = [0; CHECK_LEN + 8 + RECORD_LEN - CHECK_LEN];
    input[..CHECK_LEN].copy_from_slice(salt);
    input[CHECK_LEN..CHECK_LEN + 8].copy_from_slice(&number.to_le_bytes());
    input[CHECK_LEN + 8..].copy_from_slice(&record[..RECORD_LEN - CHECK_LEN]);
    first_bytes(blake3::hash(&input))
}

fn first_bytes(hash: blake3::Hash) -> [u8; CHECK_LEN] {
    let mut bytes = [0; CHECK_LEN];
    bytes.copy_from_slice(&hash.as_bytes()[..CHECK_LEN]);
    bytes
}

/// The records of `bytes` with valid checksums, behind the header of this file.
#[cfg(feature = "fuzzing")]
pub(crate) fn sealed(bytes: &[u8], identity: &SourceIdentity, partial_ino: u64) -> Vec<u8> {
    let header = header(identity, partial_ino, 0);
    let salt = salt(&header);
    let mut out = [&header[..], &[0; MARKS_LEN]].concat();
    let records = bytes.get(RECORDS_AT..).unwrap_or(&[]);
    for (number, record) in records.as_chunks::<RECORD_LEN>().0.iter().enumerate() {
        let mut record = *record;
        let sum = check(&salt, number as u64, &record);
        record[RECORD_LEN - CHECK_LEN..].copy_from_slice(&sum);
        out.extend_from_slice(&record);
    }
    out
}

/// Identifies this boot of the machine; zeros if the system does not tell, which counts as another boot each
/// time.
fn boot_id() -> &'static [u8; 32] {
    static BOOT: OnceLock<[u8; 32]> = OnceLock::new();
    BOOT.get_or_init(|| match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) => *blake3::hash(&id).as_bytes(),
        Err(_) => [0; 32],
    })
}

#[cfg(test)]
mod tests;
