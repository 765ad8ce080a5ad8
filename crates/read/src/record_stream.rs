//! A stream of records: the entries of a directory, or the paths that match a pattern. They are made as there
//! is room for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul_volume as volume;
use farhaul_volume::{HardLinkTrust, RelPath, ScanItem, ScanOptions, Scanner};
use farhaul_words::Failure;

use super::messages::{FileIdentity, ListEntry, PathKind, RecordCodec, StreamRecord};
use super::read_scope::ReadScope;
use super::work::Operation;

/// Records are made until there are this many bytes of them, or for [`BATCH_TIME`].
const BATCH_BYTES: usize = 128 << 10;
const BATCH_TIME: Duration = Duration::from_millis(20);

/// One such stream.
pub(crate) struct RecordStream {
    pub(crate) op: Arc<Operation>,
    what: StreamSource,
    records: RecordCodec,
    /// Bytes that were made and not taken yet.
    pub(crate) made: VecDeque<u8>,
    /// The number of bytes that were taken.
    pub(crate) sent: u64,
    is_over: bool,
}

enum StreamSource {
    Directory { path: Vec<u8>, depth: Option<usize> },
    Pattern(Vec<u8>),
    Scan(Box<Scanner>),
    Paths(std::vec::IntoIter<Vec<u8>>),
}

impl RecordStream {
    /// With `depth` 1 it has what is in the directory itself, with 0 everything below.
    pub(crate) fn of_directory(op: Arc<Operation>, path: Vec<u8>, depth: u64) -> RecordStream {
        let depth = usize::try_from(depth).ok().filter(|depth| *depth > 0);
        RecordStream::new(op, StreamSource::Directory { path, depth })
    }

    pub(crate) fn of_pattern(op: Arc<Operation>, pattern: Vec<u8>) -> RecordStream {
        RecordStream::new(op, StreamSource::Pattern(pattern))
    }

    fn new(op: Arc<Operation>, what: StreamSource) -> RecordStream {
        let (records, made) = Default::default();
        RecordStream { op, what, records, made, sent: 0, is_over: false }
    }

    /// Makes further records; returns true if nothing more is to come.
    pub(crate) fn make(&mut self, scope: &ReadScope) -> Result<bool, Failure> {
        let until = Instant::now() + BATCH_TIME;
        let mut bytes = Vec::new();
        while !self.is_over && self.made.len() + bytes.len() < BATCH_BYTES {
            match &mut self.what {
                StreamSource::Directory { path, depth } => {
                    let options = ScanOptions {
                        depth_max: *depth,
                        // A list shows what the file system says.
                        hard_links: HardLinkTrust::All,
                        ..ScanOptions::default()
                    };
                    let source = scope.directory(path)?;
                    self.what = StreamSource::Scan(Box::new(Scanner::new(vec![source], options)));
                }
                StreamSource::Pattern(pattern) => {
                    self.what = StreamSource::Paths(scope.find(pattern)?.into_iter())
                }
                StreamSource::Paths(paths) => match paths.next() {
                    Some(path) => self.records.put(&mut bytes, &StreamRecord::Path(path)),
                    None => self.is_over = true,
                },
                StreamSource::Scan(scanner) => match scanner.next() {
                    Some(item) => {
                        if let Some(record) = record(item) {
                            self.records.put(&mut bytes, &record);
                        }
                    }
                    None => self.is_over = true,
                },
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.made.extend(bytes);
        Ok(self.is_over)
    }
}

fn record(item: ScanItem) -> Option<StreamRecord> {
    match item {
        ScanItem::Entry { path, entry, .. } => Some(StreamRecord::Entry(self::entry(&path, entry))),
        ScanItem::Failed { path, error } => {
            // The scan calls the directory itself a dot; here it has the empty path, as everywhere in a list.
            let path = if path == b"." { Vec::new() } else { path };
            Some(StreamRecord::Failed { path, failure: Failure::cannot("list", &error) })
        }
        ScanItem::Unlisted { path } => Some(StreamRecord::NotEntered(path.into_bytes())),
        ScanItem::DirEnd { .. } | ScanItem::LeftOut { .. } | ScanItem::Vanished { .. } => None,
    }
}

fn entry(path: &RelPath, entry: volume::Entry) -> ListEntry {
    let (kind, size, target) = match entry.kind {
        volume::EntryKind::File { size, .. } => (PathKind::File, size, Vec::new()),
        volume::EntryKind::Stream { .. } => (PathKind::File, 0, Vec::new()),
        volume::EntryKind::Dir => (PathKind::Directory, 0, Vec::new()),
        volume::EntryKind::Symlink { target } => (PathKind::Symlink, target.len() as u64, target),
        volume::EntryKind::Special(node) => {
            (super::read_scope::kind(volume::FileKind::Special(node)), 0, Vec::new())
        }
    };
    let (mtime, ctime, inode, device) = (entry.mtime, entry.ctime, entry.ino, entry.dev);
    let identity = FileIdentity { size, mtime, ctime, inode, device };
    ListEntry { path: path.as_bytes().to_vec(), kind, mode: entry.mode, links: entry.nlink, target, identity }
}
