//! Judges whether the size in a file's entry can be believed. Pseudo file systems make the content of their
//! files when it is read, and report a size of 0 or one page; FUSE reports 0 for files that its program makes
//! in this way.
//!
//! Always true: each file system is asked only once in a scan, so files cost no system call.

use std::io;

use rustix::fs;

use super::directory::SourceRef;
use crate::entry::{Entry, EntryKind};

/// From `statfs(2)` and linux/magic.h: proc, sysfs, debugfs, tracefs, cgroup (1 and 2), configfs, securityfs,
/// selinuxfs, resctrl, bpf, nfsd, fusectl, apparmorfs, binfmt_misc.
const PSEUDO: [u64; 15] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x0027_e0eb,
    0x6367_7270,
    0x6265_6570,
    0x7363_6673,
    0xf97c_ff8c,
    0x0765_5821,
    0xcafe_4a11,
    0x6e66_7364,
    0x6573_5543,
    0x5a3c_69f0,
    0x4249_4e4d,
];
const FUSE: u64 = 0x6573_5546;
/// A file that claims to be larger is memory or the like (/proc/kcore: 128 TiB). Its size is believed, so
/// that it fails for lack of room.
const BELIEVED_FROM: u64 = 1 << 40;

/// How far the sizes of a file system can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    All,
    /// All sizes but 0.
    NotZero,
    None,
}

/// The judgements on the file systems that a scan has met.
#[derive(Default)]
pub(super) struct Sizes {
    known: Vec<(u64, Trust)>,
}

impl Sizes {
    /// The entry; it becomes a stream if its size cannot be believed.
    pub(super) fn judged(&mut self, entry: Entry, handle: &SourceRef) -> Entry {
        let EntryKind::File { size, .. } = entry.kind else { return entry };
        let is_true = match self.trust(entry.dev, handle) {
            Trust::All => true,
            Trust::NotZero => size > 0,
            Trust::None => size >= BELIEVED_FROM,
        };
        if is_true { entry } else { Entry { kind: EntryKind::Stream { is_pipe: false }, nlink: 1, ..entry } }
    }

    fn trust(&mut self, device: u64, handle: &SourceRef) -> Trust {
        // Usually the next file is on the same file system.
        if let Some(at) = self.known.iter().rposition(|known| known.0 == device) {
            let last = self.known.len() - 1;
            self.known.swap(at, last);
            return self.known[last].1;
        }
        // A file system that cannot be asked cannot be read either, and will report that.
        let trust = ask(handle).unwrap_or(Trust::All);
        self.known.push((device, trust));
        trust
    }
}

fn ask(handle: &SourceRef) -> io::Result<Trust> {
    // The field is signed on some architectures, and has 32 bits on others.
    let kind = fs::fstatfs(&handle.look_into()?)?.f_type as u64 & 0xffff_ffff;
    Ok(match kind {
        FUSE => Trust::NotZero,
        kind if PSEUDO.contains(&kind) => Trust::None,
        _ => Trust::All,
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::rel_path::RelPath;
    use crate::scan::Source;

    fn judged(sizes: &mut Sizes, path: &Path) -> EntryKind {
        let source = Source {
            path: PathBuf::from(path),
            also: Vec::new(),
            dest: RelPath::empty(),
            beneath: Vec::new(),
            generated: None,
        };
        let handle = source.places().map(|place| SourceRef::of_place(place).unwrap()).next().unwrap();
        let entry = handle.look().unwrap().entry(Vec::new());
        sizes.judged(entry, &handle).kind
    }

    #[test]
    fn only_where_content_is_made_a_size_is_not_believed() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("empty"), "").unwrap();
        let mut sizes = Sizes::default();
        for _ in 0..2 {
            assert_eq!(
                judged(&mut sizes, Path::new("/proc/self/status")),
                EntryKind::Stream { is_pipe: false }
            );
            assert_eq!(
                judged(&mut sizes, &temp.path().join("empty")),
                EntryKind::File { size: 0, sparse: false }
            );
        }
        assert_eq!(sizes.known.len(), 2, "each file system is asked once");
        if Path::new("/proc/kcore").exists() {
            assert!(matches!(judged(&mut sizes, Path::new("/proc/kcore")), EntryKind::File { .. }));
        }
    }
}
