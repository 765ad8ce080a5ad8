//! The state directory: made, judged, and locked by one process.
//!
//! How to read it: [`StateDir::open`] makes, judges and locks the directory, [`room_for_a_job`]
//! checks the free space on its disk.
//! `judge_file_system` has the list of file systems that are refused.
//!
//! Always true: the process that has a [`StateDir`] is the only one that has it, and other users can neither
//! read nor write there.

mod file_system;

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul_http::private_directory;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstatfs, openat, statvfs};
use rustix::io::Errno;

use crate::config::lies_in;

use file_system::{judge_file_system, kind_of_mount};

/// A new job is refused if the file system has fewer bytes free than this, or than an eighth of its size. The rows and the record of a job,
/// and the store's write-ahead log, fit in many times.
const ROOM_MIN_BYTES: u64 = 64 << 20;

/// A new job is refused if fewer files than this can be made. The store and its copies need some.
const ROOM_MIN_FILES: u64 = 64;

/// The state directory: made, judged and locked.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// Holds the lock until it is dropped.
    _lock: File,
}

/// The space that a file system has left for this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FreeSpace {
    /// Free bytes.
    bytes: u64,
    /// The bytes of the whole file system.
    size: u64,
    /// How many files can still be made, if the file system counts them.
    files: Option<u64>,
}

impl StateDir {
    /// Opens the directory, or makes it. `root` is the directory that clients are served.
    pub fn open(path: &Path, root: Option<&Path>) -> Result<StateDir, Error> {
        if let Some(root) = root.filter(|root| lies_in(path, root)) {
            let what = format!(
                "the state directory {} lies in the served root {}: clients could read or replace it",
                path.display(),
                root.display()
            );
            return Err(Error::new(Code::UnsafeRoot, what).with_hint(ELSEWHERE));
        }
        let directory = private_directory(path, "the state directory")?;
        let kind = kind_of_mount(&directory).unwrap_or_default();
        let magic = fstatfs(&directory).map_err(|errno| failed(path, "look at", errno))?.f_type;
        // The kernel's numbers have 32 bits; the type of the field differs between machines.
        if let Some(name) = judge_file_system(magic as u32, &kind) {
            let what = format!(
                "the state directory {} is on a network file system ({name}), where its database could be damaged",
                path.display()
            );
            return Err(Error::new(Code::BadState, what).with_hint(ELSEWHERE));
        }
        let lock = lock(path, &directory)?;
        Ok(StateDir { path: path.to_path_buf(), _lock: lock })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory of the service's own in the state directory, unless it is there.
pub(crate) fn directory_in(path: &Path) -> Result<(), Error> {
    match DirBuilder::new().recursive(true).create(path) {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {
            let what = format!("{} is not a directory, and the service keeps files in it", path.display());
            Err(Error::new(Code::BadState, what).with_hint("move it away"))
        }
        Err(error) => {
            Err(Error::with_source(Code::of_files(&error), format!("cannot make {}", path.display()), error))
        }
    }
}

const ELSEWHERE: &str = "name a directory on a local disk with `state` in [serve]";

/// An error if there is no room for a new job in this state directory.
pub(crate) fn room_for_a_job(path: &Path) -> Result<(), Error> {
    let left = statvfs(path).map_err(|errno| failed(path, "look at", errno))?;
    let space = FreeSpace {
        bytes: left.f_bavail.saturating_mul(left.f_frsize),
        size: left.f_blocks.saturating_mul(left.f_frsize),
        files: (left.f_files > 0).then_some(left.f_favail),
    };
    space.judge(path)
}

impl FreeSpace {
    fn judge(self, path: &Path) -> Result<(), Error> {
        let what = match self {
            FreeSpace { bytes, size, .. } if bytes < ROOM_MIN_BYTES.min(size / 8) => {
                let needed = ROOM_MIN_BYTES.min(size / 8);
                format!("{} MiB are free, {} MiB are needed", bytes >> 20, needed >> 20)
            }
            FreeSpace { files: Some(files), .. } if files < ROOM_MIN_FILES => {
                format!("{files} inodes are free, {ROOM_MIN_FILES} are needed")
            }
            FreeSpace { .. } => return Ok(()),
        };
        let what = format!("no room for a new job in {}: {what}", path.display());
        Err(Error::new(Code::NoSpace, what).with_hint("free space there; running jobs go on"))
    }
}

fn failed(path: &Path, verb: &str, errno: Errno) -> Error {
    let error = io::Error::from(errno);
    Error::with_source(Code::of_files(&error), format!("cannot {verb} {}", path.display()), error)
}

/// Locks the directory until the process ends. The lock's file names the process.
fn lock(path: &Path, directory: &OwnedFd) -> Result<File, Error> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(directory, "lock", flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| failed(&path.join("lock"), "open", errno))?;
    let taken = flock(&file, FlockOperation::NonBlockingLockExclusive);
    let mut file = File::from(file);
    match taken {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // The number is only for the message; the lock itself decides.
            let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut pid);
            let pid = pid.trim();
            let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
            let who = if is_number { format!("process {pid}") } else { "another process".into() };
            let what = format!("{who} already uses the state directory {}", path.display());
            let hint = "only one process can use it at a time: stop that one, or name another directory with `state`";
            return Err(Error::new(Code::AlreadyRuns, what).with_hint(hint));
        }
        Err(errno) => return Err(failed(&path.join("lock"), "lock", errno)),
    }
    let noted = file.set_len(0).and_then(|()| file.rewind());
    let noted = noted.and_then(|()| writeln!(file, "{}", std::process::id()));
    match noted {
        // On a full disk the lock holds without the number in the file.
        Err(error) if !matches!(Code::of_files(&error), Code::NoSpace) => Err(Error::with_source(
            Code::of_files(&error),
            format!("cannot write {}", path.join("lock").display()),
            error,
        )),
        Ok(()) | Err(_) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_is_made_private_and_one_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/state");
        let state = StateDir::open(&path, None).unwrap();
        assert_eq!(
            (mode(&path), mode(&path.join("lock")), mode(&folder.path().join("a"))),
            (0o700, 0o600, 0o700)
        );
        let second = StateDir::open(&path, None).unwrap_err();
        assert_eq!(second.code(), Code::AlreadyRuns);
        assert_eq!(
            second.what(),
            format!("process {} already uses the state directory {}", std::process::id(), path.display())
        );
        drop(state);
        StateDir::open(&path, None).unwrap();
    }

    #[test]
    fn a_lock_file_with_anything_in_it_is_no_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        drop(StateDir::open(&path, None).unwrap());
        std::fs::write(path.join("lock"), "\u{1b}[31m not a number, and long").unwrap();
        let state = StateDir::open(&path, None).unwrap();
        std::fs::write(path.join("lock"), "\u{1b}").unwrap();
        let error = StateDir::open(&path, None).unwrap_err();
        assert!(error.what().starts_with("another process already uses"), "{error}");
        drop(state);
        std::fs::remove_file(path.join("lock")).unwrap();
        symlink("/etc/passwd", path.join("lock")).unwrap();
        assert!(StateDir::open(&path, None).is_err());
    }

    #[test]
    fn what_others_can_change_is_refused_and_what_they_can_read_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::create_dir(&path).unwrap();
        for (bits, after) in [(0o755, Some(0o700)), (0o750, Some(0o700)), (0o770, None), (0o702, None)] {
            chmod(&path, bits);
            let opened = StateDir::open(&path, None);
            match after {
                Some(after) => assert!(opened.is_ok() && mode(&path) == after, "{bits:o}"),
                None => {
                    let error = opened.unwrap_err();
                    assert!(
                        error.code() == Code::BadState && error.what().contains("written by others"),
                        "{error}"
                    );
                }
            }
        }
        std::fs::write(folder.path().join("file"), b"").unwrap();
        let error = StateDir::open(&folder.path().join("file"), None).unwrap_err();
        assert_eq!(error.code(), Code::NotADirectory, "{error}");
    }

    #[test]
    fn it_does_not_lie_in_what_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        symlink(&root, folder.path().join("link")).unwrap();
        for path in ["root/state", "root", "link/state"] {
            let path = folder.path().join(path);
            let error = StateDir::open(&path, Some(&root)).unwrap_err();
            assert_eq!(error.code(), Code::UnsafeRoot, "{}", path.display());
        }
        assert!(!root.join("state").exists());
        StateDir::open(&folder.path().join("state"), Some(&root)).unwrap();
    }

    #[test]
    fn a_new_job_needs_room() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(room_for_a_job(&folder.path().join("none")).unwrap_err().code(), Code::NotFound);
        let fine = FreeSpace { bytes: ROOM_MIN_BYTES, size: 1 << 40, files: Some(ROOM_MIN_FILES) };
        let at = Path::new("/state");
        assert!(fine.judge(at).is_ok());
        assert!(FreeSpace { files: None, ..fine }.judge(at).is_ok());
        // A small file system need not be empty.
        assert!(FreeSpace { bytes: 4 << 20, size: 32 << 20, ..fine }.judge(at).is_ok());
        assert!(FreeSpace { bytes: 3 << 20, size: 32 << 20, ..fine }.judge(at).is_err());
        let error = FreeSpace { bytes: (3 << 20) + 5, ..fine }.judge(at).unwrap_err();
        assert_eq!(error.code(), Code::NoSpace);
        assert_eq!(error.what(), "no room for a new job in /state: 3 MiB are free, 64 MiB are needed");
        let error = FreeSpace { files: Some(3), ..fine }.judge(at).unwrap_err();
        assert_eq!(error.what(), "no room for a new job in /state: 3 inodes are free, 64 are needed");
    }
}
