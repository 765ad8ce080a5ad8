//! Judges whether names with one inode number are one file. Programs that provide a file system (FUSE), and
//! some network file systems, make inode numbers up: two files may have one number, and each may claim to have
//! several names.
//!
//! Always true: each file system is asked only once in a scan, and only if it has a file with several names.

use super::directory::SourceRef;
use crate::entry::{Entry, EntryKind};
use crate::inode_numbers;

/// Which names are taken as names of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HardLinkTrust {
    /// Those with one inode number, on a file system that is known to keep inode numbers.
    #[default]
    Known,
    /// Those with one inode number, on any file system.
    All,
    /// None: each name is a file of its own.
    None,
}

/// The judgements on the file systems that a scan has met.
#[derive(Default)]
pub(super) struct Inodes {
    known: Vec<(u64, bool)>,
    /// The number of names that are not believed to be one of several.
    pub(super) doubted: u64,
}

impl Inodes {
    /// The entry; it is a file with one name if its inode number is not to be believed.
    pub(super) fn judged(&mut self, entry: Entry, handle: &SourceRef, trust: HardLinkTrust) -> Entry {
        if entry.nlink <= 1 || !matches!(entry.kind, EntryKind::File { .. }) {
            return entry;
        }
        let is_true = match trust {
            HardLinkTrust::All => true,
            HardLinkTrust::None => false,
            HardLinkTrust::Known => {
                let is_known = self.is_known(entry.dev, handle);
                self.doubted += u64::from(!is_known);
                is_known
            }
        };
        if is_true { entry } else { Entry { nlink: 1, ..entry } }
    }

    fn is_known(&mut self, device: u64, handle: &SourceRef) -> bool {
        if let Some(known) = self.known.iter().rev().find(|known| known.0 == device) {
            return known.1;
        }
        // A file system that cannot be asked is one that nothing is known of.
        let is_known = handle.look_into().is_ok_and(|there| inode_numbers::are_kept(&there));
        self.known.push((device, is_known));
        is_known
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::rel_path::RelPath;
    use crate::scan::Source;

    #[test]
    fn names_are_one_file_where_inode_numbers_are_known_to_be_kept() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("a");
        std::fs::write(&file, "x").unwrap();
        std::fs::hard_link(&file, temp.path().join("b")).unwrap();
        let mut inodes = Inodes::default();
        let mut judged = |path: &Path, trust| {
            let source = Source {
                path: PathBuf::from(path),
                also: Vec::new(),
                dest: RelPath::empty(),
                beneath: Vec::new(),
                generated: None,
            };
            let handle = source.places().map(|place| SourceRef::of_place(place).unwrap()).next().unwrap();
            let entry = Entry { nlink: 2, ..handle.look().unwrap().entry(Vec::new()) };
            inodes.judged(entry, &handle, trust).nlink
        };
        assert_eq!(judged(&file, HardLinkTrust::Known), 2);
        assert_eq!(judged(&file, HardLinkTrust::None), 1);
        let made_up = Path::new("/proc/self/status");
        assert_eq!(judged(made_up, HardLinkTrust::Known), 1);
        assert_eq!(judged(made_up, HardLinkTrust::Known), 1);
        assert_eq!(judged(made_up, HardLinkTrust::All), 2);
        assert_eq!((inodes.known.len(), inodes.doubted), (2, 2), "each file system is asked once");
    }
}
