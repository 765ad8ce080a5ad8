//! The root of the digest tree: one digest of everything that a copy has brought or found. Both ends can
//! compute it, and so can whoever has the manifest: docs/guide/verify.md says how.
//!
//! Always true: an entry counts with what its line in the manifest says, and only if it is at the
//! destination. Their order does not matter.

use farhaul_volume::{Multiset, SpecialNode};

use super::{EntryFate, ManifestEntryText, ManifestRecord, RecordKind};

/// The sums so far, and the counts that go into the root with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ManifestTally {
    set: Multiset,
    /// All entries, of any kind.
    pub(crate) entries: u64,
    pub(crate) files: u64,
    /// The sum of the files' sizes, modulo 2^64.
    pub(crate) bytes: u64,
    /// Files, other than empty ones, without a digest: they were there already, and were not read.
    pub(crate) unread: u64,
    /// Files whose digest was computed by the other end, not by this one.
    pub(crate) told: u64,
}

/// The facts of an entry that go into the root.
struct CountedEntry<'a> {
    path: &'a [u8],
    kind: &'a RecordKind,
    mode: u32,
    mtime: (i64, u32),
    digest: Option<&'a [u8; 32]>,
}

impl ManifestTally {
    /// Adds an entry from a session's record.
    pub(crate) fn add(&mut self, record: &ManifestRecord) {
        if counts(record.fate, &record.kind) {
            let ManifestRecord { path, kind, mode, mtime, digest, .. } = record;
            self.put(&CountedEntry { path, kind, mode: *mode, mtime: *mtime, digest: digest.as_ref() });
            self.told += u64::from(record.is_told);
        }
    }

    /// Adds an entry from a line of a manifest.
    pub(crate) fn add_line(&mut self, entry: &ManifestEntryText) {
        if counts(entry.fate, &entry.kind) {
            let ManifestEntryText { path, kind, mode, mtime, digest, .. } = entry;
            let mtime = mtime.unwrap_or_default();
            self.put(&CountedEntry { path, kind, mode: *mode, mtime, digest: digest.as_ref() });
        }
    }

    fn put(&mut self, counted: &CountedEntry<'_>) {
        self.entries += 1;
        if let RecordKind::File { size } = counted.kind {
            self.files += 1;
            self.bytes = self.bytes.wrapping_add(*size);
            self.unread += u64::from(counted.digest.is_none() && *size > 0);
        }
        let mut bytes = Vec::with_capacity(128 + counted.path.len());
        counted.encode(&mut bytes);
        self.set.add(&bytes);
    }

    pub(crate) fn root(&self) -> [u8; 32] {
        self.set.root(&[self.entries, self.files, self.bytes])
    }
}

/// Whether the entry is at the destination: brought now, or there already.
fn counts(fate: EntryFate, kind: &RecordKind) -> bool {
    matches!(fate, EntryFate::Sent | EntryFate::Unchanged | EntryFate::Renamed)
        && *kind != RecordKind::Unknown
}

impl CountedEntry<'_> {
    /// Encodes the kind, then the fields of every entry, then those of the kind. Numbers are little-endian;
    /// bytes have their length in front.
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.kind {
            RecordKind::Unknown => b'?',
            RecordKind::File { .. } => b'f',
            RecordKind::Directory => b'd',
            RecordKind::Symlink { .. } => b'l',
            RecordKind::HardLink { .. } => b'h',
            RecordKind::Special(SpecialNode::Fifo) => b'p',
            RecordKind::Special(SpecialNode::Socket) => b's',
            RecordKind::Special(SpecialNode::CharDevice { .. }) => b'c',
            RecordKind::Special(SpecialNode::BlockDevice { .. }) => b'b',
        });
        put_bytes(out, if self.path.is_empty() { b"." } else { self.path });
        // A symbolic link has no mode of its own.
        let mode = if matches!(self.kind, RecordKind::Symlink { .. }) { 0 } else { self.mode & 0o7777 };
        out.extend(mode.to_le_bytes());
        let (secs, nanos) = self.mtime;
        out.extend((i128::from(secs) * 1_000_000_000 + i128::from(nanos)).to_le_bytes());
        match self.kind {
            RecordKind::File { size } => {
                out.extend(size.to_le_bytes());
                out.push(u8::from(self.digest.is_some()));
                out.extend(self.digest.into_iter().flatten());
            }
            RecordKind::Symlink { target } => put_bytes(out, target),
            RecordKind::HardLink { to } => put_bytes(out, to),
            RecordKind::Special(
                SpecialNode::CharDevice { major, minor } | SpecialNode::BlockDevice { major, minor },
            ) => {
                out.extend(major.to_le_bytes());
                out.extend(minor.to_le_bytes());
            }
            RecordKind::Unknown
            | RecordKind::Directory
            | RecordKind::Special(SpecialNode::Fifo | SpecialNode::Socket) => {}
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A path has at most 4095 bytes.
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The root in hexadecimal, as it is published.
pub(crate) fn shown(root: &[u8; 32]) -> String {
    root.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text;
    use super::super::{ManifestLine, parse};
    use super::*;

    fn record(path: &[u8]) -> ManifestRecord {
        ManifestRecord {
            kind: RecordKind::File { size: 5 },
            mode: 0o100_644,
            mtime: (7, 1),
            digest: Some([3; 32]),
            ..ManifestRecord::of_path(path, EntryFate::Sent)
        }
    }

    fn of(records: &[ManifestRecord]) -> ManifestTally {
        let mut tally = ManifestTally::default();
        records.iter().for_each(|record| tally.add(record));
        tally
    }

    #[test]
    fn everything_that_is_said_of_an_entry_counts() {
        let base = record(b"a");
        let link = ManifestRecord { kind: RecordKind::Symlink { target: b"x".to_vec() }, ..record(b"a") };
        let device = |major| ManifestRecord {
            kind: RecordKind::Special(SpecialNode::CharDevice { major, minor: 1 }),
            ..record(b"a")
        };
        let all = [
            base.clone(),
            record(b"b"),
            ManifestRecord { kind: RecordKind::File { size: 6 }, ..base.clone() },
            ManifestRecord { mode: 0o100_755, ..base.clone() },
            ManifestRecord { mtime: (7, 2), ..base.clone() },
            ManifestRecord { mtime: (-7, 1), ..base.clone() },
            ManifestRecord { digest: Some([4; 32]), ..base.clone() },
            ManifestRecord { digest: None, ..base.clone() },
            ManifestRecord { kind: RecordKind::Directory, ..base.clone() },
            link.clone(),
            ManifestRecord { kind: RecordKind::Symlink { target: b"y".to_vec() }, ..base.clone() },
            ManifestRecord { kind: RecordKind::HardLink { to: b"x".to_vec() }, ..base.clone() },
            ManifestRecord { kind: RecordKind::Special(SpecialNode::Fifo), ..base.clone() },
            ManifestRecord { kind: RecordKind::Special(SpecialNode::Socket), ..base.clone() },
            device(1),
            device(2),
        ];
        let roots: std::collections::HashSet<_> =
            all.iter().map(|record| of(std::slice::from_ref(record)).root()).collect();
        assert_eq!(roots.len(), all.len());
        for fate in [EntryFate::Unchanged, EntryFate::Renamed] {
            assert_eq!(
                of(&[ManifestRecord { fate, ..base.clone() }]).root(),
                of(std::slice::from_ref(&base)).root()
            );
        }
        assert_eq!(of(&[ManifestRecord { mode: 0o777, ..link.clone() }]).root(), of(&[link]).root());
        let gone = [
            EntryFate::Kept,
            EntryFate::Failed,
            EntryFate::Skipped,
            EntryFate::Deleted,
            EntryFate::NotDeleted,
            EntryFate::WouldSend,
        ];
        for fate in gone {
            assert_eq!(of(&[ManifestRecord { fate, ..base.clone() }]), ManifestTally::default(), "{fate:?}");
        }
        let told = of(&[
            ManifestRecord { is_told: true, ..base.clone() },
            ManifestRecord { digest: None, ..record(b"b") },
        ]);
        assert_eq!((told.entries, told.files, told.bytes, told.unread, told.told), (2, 2, 10, 1, 1));
    }

    proptest! {
        #[test]
        fn a_manifest_has_the_root_of_its_records_in_any_order(
            paths in proptest::collection::hash_set(proptest::collection::vec(any::<u8>(), 1..20), 1..12),
            size: u64, mode in 0u32..0o10000, secs in -(1i64 << 40)..1 << 40, nanos in 0u32..1_000_000_000, digest: Option<[u8; 32]>,
        ) {
            let records: Vec<_> = paths.iter().filter(|path| path.as_slice() != b".").enumerate().map(|(number, path)| {
                let kind = match number % 5 {
                    0 => RecordKind::File { size },
                    1 => RecordKind::Directory,
                    2 => RecordKind::Symlink { target: path.clone() },
                    3 => RecordKind::HardLink { to: path.clone() },
                    _ => RecordKind::Special(SpecialNode::BlockDevice { major: mode, minor: nanos }),
                };
                ManifestRecord { kind, mode, mtime: (secs, nanos), digest, ..ManifestRecord::of_path(path, EntryFate::Sent) }
            }).chain([ManifestRecord { kind: RecordKind::Directory, ..ManifestRecord::of_path(b"", EntryFate::Sent) }]).collect();
            let mut read = ManifestTally::default();
            for record in records.iter().rev() {
                let mut line = Vec::new();
                text::line(record, Some(b"new"), 0o022, std::time::Duration::ZERO, &mut line);
                let ManifestLine::Entry(entry) = parse(&line).unwrap() else { panic!("an entry") };
                read.add_line(&entry);
            }
            prop_assert_eq!(&read, &of(&records));
            prop_assert_eq!(read.root(), of(&records).root());
        }
    }
}
