//! A stream of records: what is in a directory, or what a pattern stands for, made as there is room for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul_session::error::Failure;
use farhaul_volume as volume;
use farhaul_volume::{RelPath, ScanItem, ScanOptions, Scanner};

use super::ground::Ground;
use super::messages::{Entry, Identity, Kind, Record, Records};
use super::work::Op;

/// Records are made until there are so many bytes of them, or so much time has passed.
const BATCH_BYTES: usize = 128 << 10;
const BATCH_TIME: Duration = Duration::from_millis(20);

/// One of them.
pub(crate) struct Listing {
    pub(crate) op: Arc<Op>,
    what: What,
    records: Records,
    /// Bytes that have not been taken.
    pub(crate) made: VecDeque<u8>,
    /// Bytes that have been.
    pub(crate) sent: u64,
    is_over: bool,
}

enum What {
    Directory { path: Vec<u8>, depth: Option<usize> },
    Pattern(Vec<u8>),
    Scan(Box<Scanner>),
    Paths(std::vec::IntoIter<Vec<u8>>),
}

impl Listing {
    /// `depth` 1 is what is in the directory itself, 0 all of it.
    pub(crate) fn of_directory(op: Arc<Op>, path: Vec<u8>, depth: u64) -> Listing {
        let depth = usize::try_from(depth).ok().filter(|depth| *depth > 0);
        Listing::new(op, What::Directory { path, depth })
    }

    pub(crate) fn of_pattern(op: Arc<Op>, pattern: Vec<u8>) -> Listing {
        Listing::new(op, What::Pattern(pattern))
    }

    fn new(op: Arc<Op>, what: What) -> Listing {
        let (records, made) = Default::default();
        Listing { op, what, records, made, sent: 0, is_over: false }
    }

    /// Makes some more; true if there is nothing more to come.
    pub(crate) fn make(&mut self, ground: &Ground) -> Result<bool, Failure> {
        let until = Instant::now() + BATCH_TIME;
        let mut bytes = Vec::new();
        while !self.is_over && self.made.len() + bytes.len() < BATCH_BYTES {
            match &mut self.what {
                What::Directory { path, depth } => {
                    let options = ScanOptions { depth_max: *depth, ..ScanOptions::default() };
                    let source = ground.directory(path)?;
                    self.what = What::Scan(Box::new(Scanner::new(vec![source], options)));
                }
                What::Pattern(pattern) => self.what = What::Paths(ground.find(pattern)?.into_iter()),
                What::Paths(paths) => match paths.next() {
                    Some(path) => self.records.put(&mut bytes, &Record::Path(path)),
                    None => self.is_over = true,
                },
                What::Scan(scanner) => match scanner.next() {
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

fn record(item: ScanItem) -> Option<Record> {
    match item {
        ScanItem::Entry { path, entry, .. } => Some(Record::Entry(self::entry(&path, entry))),
        ScanItem::Failed { path, error } => {
            Some(Record::Failed { path, failure: Failure::cannot("list", &error) })
        }
        ScanItem::Unlisted { path } => Some(Record::NotEntered(path.into_bytes())),
        ScanItem::DirEnd { .. } | ScanItem::LeftOut { .. } | ScanItem::Vanished { .. } => None,
    }
}

fn entry(path: &RelPath, entry: volume::Entry) -> Entry {
    let (kind, size, target) = match entry.kind {
        volume::Kind::File { size, .. } => (Kind::File, size, Vec::new()),
        volume::Kind::Stream { .. } => (Kind::File, 0, Vec::new()),
        volume::Kind::Dir => (Kind::Directory, 0, Vec::new()),
        volume::Kind::Symlink { target } => (Kind::Symlink, target.len() as u64, target),
        volume::Kind::Special(node) => (super::ground::kind(volume::FileKind::Special(node)), 0, Vec::new()),
    };
    let (mtime, ctime, inode, device) = (entry.mtime, entry.ctime, entry.ino, entry.dev);
    let identity = Identity { size, mtime, ctime, inode, device };
    Entry { path: path.as_bytes().to_vec(), kind, mode: entry.mode, links: entry.nlink, target, identity }
}
