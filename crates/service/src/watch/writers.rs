//! Finds out who has files open for writing, as far as that can be seen.
//!
//! Can be seen: processes of this user, and of all users if this process may look at them (as root, or with
//! CAP_SYS_PTRACE), within this process's PID namespace. Cannot be seen: other processes of other users,
//! clients of file servers (NFS, SMB) on other hosts or in this kernel, processes in other containers, and a
//! file that was closed but is still mapped into memory. With these, a file counts as complete when it does
//! not change any more.
//!
//! A lease (F_SETLEASE) would show every process of this host. But it needs the file's owner or CAP_LEASE,
//! makes new writers wait, and has no safe call.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use farhaul_words::is_of_resources;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, statx};

/// The most descriptors that are looked at for one answer. If the system has more, the rest is not looked at.
const DESCRIPTORS_MAX: usize = 200_000;

/// A file, by its device and inode.
pub(super) type FileId = (u64, u64);

/// Those of the files that a process was seen to have open for writing. If this process cannot look, for want
/// of descriptors or memory, all of them, so that they are looked at again.
pub(super) fn open_for_writing(wanted: &BTreeSet<FileId>) -> BTreeSet<FileId> {
    let mut found = BTreeSet::new();
    let mut left = DESCRIPTORS_MAX;
    if wanted.is_empty() {
        return found;
    }
    let processes = match fs::read_dir("/proc") {
        Ok(processes) => processes,
        Err(error) if is_of_resources(&error) => return wanted.clone(),
        Err(_) => return found,
    };
    for process in processes.flatten() {
        let is_process = process.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        if !is_process {
            continue;
        }
        let descriptors = match fs::read_dir(process.path().join("fd")) {
            Ok(descriptors) => descriptors,
            Err(error) if is_of_resources(&error) => return wanted.clone(),
            // A process that we may not look at, or that has ended, shows nothing.
            Err(_) => continue,
        };
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
            match fs::read_to_string(info) {
                Ok(info) if !writes(&info) => (),
                Ok(_) => drop(found.insert(id)),
                Err(error) if is_of_resources(&error) => drop(found.insert(id)),
                // It was closed meanwhile.
                Err(_) => (),
            }
        }
    }
    found
}

/// The file of a descriptor, without asking a file server, which may not answer.
fn id(descriptor: &Path) -> Option<FileId> {
    let found = statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::INO | StatxFlags::TYPE).ok()?;
    let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
    is_file.then(|| (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

/// True if the descriptor can be written to, by its flags as the kernel shows them.
fn writes(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    // If the flags are not known, this counts as a writer, and the file is looked at again.
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
        // The file is open under another name.
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
