//! Who has files open for writing, as far as that can be seen.
//!
//! Seen: processes of this user, and of all users if this process may look at them (as root, or with
//! CAP_SYS_PTRACE), in this process's own namespace of processes. Not seen: other users' processes otherwise,
//! clients of file servers (NFS, SMB) on other hosts and in the kernel of this one, other containers, and a
//! file that is mapped to memory and was closed. For these a file is whole when it stands still.
//!
//! A lease (F_SETLEASE) would tell of any process of this host, but takes the file's owner or CAP_LEASE,
//! makes a writer that comes wait, and has no safe call.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, statx};

/// Descriptors that are looked at for one answer; a system that has more is not looked at further.
const DESCRIPTORS_MAX: usize = 200_000;

/// A file by its device and inode.
pub(super) type FileId = (u64, u64);

/// Which of these files somebody was seen to have open for writing.
pub(super) fn open_for_writing(wanted: &BTreeSet<FileId>) -> BTreeSet<FileId> {
    let mut found = BTreeSet::new();
    let mut left = DESCRIPTORS_MAX;
    if wanted.is_empty() {
        return found;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    for process in processes.flatten() {
        let is_process = process.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        if !is_process {
            continue;
        }
        // Of a process that may not be looked at, or has ended, nothing is seen.
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            if left == 0 {
                return found;
            }
            left -= 1;
            let Some(id) = id(&descriptor.path()).filter(|id| wanted.contains(id) && !found.contains(id))
            else {
                continue;
            };
            let info = process.path().join("fdinfo").join(descriptor.file_name());
            if fs::read_to_string(info).is_ok_and(|info| writes(&info)) {
                found.insert(id);
            }
        }
    }
    found
}

/// Without asking a file server, which may not answer.
fn id(descriptor: &Path) -> Option<FileId> {
    let found = statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::INO | StatxFlags::TYPE).ok()?;
    let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
    is_file.then(|| (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

/// Whether a descriptor's flags, as the kernel shows them, are those of one that can be written to.
fn writes(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    // Not known is taken for a writer: the file is looked at again.
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_none_or(|flags| flags & 0o3 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn writers_are_seen_and_readers_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let id = |name: &str| {
            let meta = fs::metadata(path(name)).unwrap();
            (meta.dev(), meta.ino())
        };
        let _write = File::create(path("write")).unwrap();
        let _append = OpenOptions::new().create(true).append(true).open(path("append")).unwrap();
        fs::write(path("read"), "x").unwrap();
        let _read = File::open(path("read")).unwrap();
        fs::write(path("closed"), "x").unwrap();
        // Under another name.
        fs::hard_link(path("write"), path("link")).unwrap();

        let wanted: BTreeSet<_> = ["write", "append", "read", "closed", "link"].map(id).into();
        assert_eq!(open_for_writing(&wanted), ["write", "append"].map(id).into());
        assert_eq!(open_for_writing(&BTreeSet::new()), BTreeSet::new());
    }

    #[test]
    fn flags_are_octal() {
        for (info, expected) in [
            ("pos:\t0\nflags:\t0100000\nmnt_id:\t1\n", false),
            ("pos:\t0\nflags:\t0100001\n", true),
            ("pos:\t0\nflags:\t02100002\n", true),
            ("", true),
        ] {
            assert_eq!(writes(info), expected, "{info:?}");
        }
    }
}
