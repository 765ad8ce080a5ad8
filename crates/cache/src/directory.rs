//! The directory of a cache, and all calls of the system on it.
//!
//! Always true: the directory belongs to this user alone, and nothing outside of it is touched, whatever happens to its
//! path: everything is relative to the descriptor that was judged.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::order::Standing;
use super::verified::FileState;

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const USER_ONLY: Mode = Mode::RWXU;

/// Why a cache cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Somebody else could read or change it.
    #[error("{} is not this user's alone: {why}", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A call of the system failed.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An entry of one of the directories, as a sweep sees it.
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) bytes: u64,
    /// When it came into its queue: seconds since 1970 and nanoseconds.
    pub(crate) since: (i64, u64),
    /// The access time, in which the standing is kept.
    pub(crate) accessed: i64,
}

/// A chunk's file that is open.
pub(crate) struct OpenChunk {
    file: File,
    pub(crate) state: FileState,
    pub(crate) since: i64,
    pub(crate) accessed: i64,
}

impl OpenChunk {
    /// Reads a part, if all of it is in the memory of the kernel.
    pub(crate) fn read_from_memory(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut have = 0;
        while have < len {
            let at = offset + have as u64;
            let mut rest = [io::IoSliceMut::new(&mut bytes[have..])];
            // The kernel says so if it would have to wait for the disk, or cannot tell.
            match preadv2(&self.file, &mut rest, at, ReadWriteFlags::NOWAIT) {
                Ok(0) | Err(_) => return None,
                Ok(more) => have += more,
            }
        }
        Some(bytes)
    }

    /// Reads all of it; a file that is longer than `max` is an error.
    pub(crate) fn read_whole(&self, max: usize) -> io::Result<Vec<u8>> {
        read_all(&self.file, self.state.size, max)
    }
}

/// The part of a cache's directory that this version uses.
pub(crate) struct Directory {
    top: OwnedFd,
    #[cfg(test)]
    pub(crate) kill: std::sync::Arc<Kill>,
}

/// Ends the life of a process at one of its steps, for tests: this call and all later ones fail and change nothing.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Kill {
    pub(crate) steps_left: std::sync::atomic::AtomicI64,
    pub(crate) is_armed: std::sync::atomic::AtomicBool,
}

#[cfg(test)]
impl Kill {
    fn step(&self) -> io::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        if self.is_armed.load(SeqCst) && self.steps_left.fetch_sub(1, SeqCst) <= 0 {
            return Err(io::Error::other("killed"));
        }
        Ok(())
    }
}

impl Directory {
    /// Opens the directory, and makes it if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Directory, CacheError> {
        Directory::open_or(path, true).and_then(|made| {
            made.ok_or_else(|| CacheError::Io { path: path.into(), source: Errno::NOENT.into() })
        })
    }

    /// Opens the directory if it is there.
    pub(crate) fn existing(path: &Path) -> Result<Option<Directory>, CacheError> {
        Directory::open_or(path, false)
    }

    fn open_or(path: &Path, makes: bool) -> Result<Option<Directory>, CacheError> {
        let io = |source: io::Error| CacheError::Io { path: path.into(), source };
        if makes {
            make_with_parents(path).map_err(io)?;
        }
        let whole = match fs::openat(fs::CWD, path, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) if !makes => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(CacheError::NotPrivate {
                    path: path.into(),
                    why: "it is a link or no directory",
                });
            }
            opened => opened.map_err(|error| io(error.into()))?,
        };
        let meta = fs::fstat(&whole).map_err(|error| io(error.into()))?;
        if meta.st_uid != rustix::process::geteuid().as_raw() {
            return Err(CacheError::NotPrivate { path: path.into(), why: "it belongs to another user" });
        }
        if meta.st_mode & 0o077 != 0 {
            return Err(CacheError::NotPrivate {
                path: path.into(),
                why: "others may enter it (chmod 700 it)",
            });
        }
        let top = match sub(&whole, "v1", makes) {
            Err(error) if !makes && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io)?,
        };
        let directory = Directory {
            top,
            #[cfg(test)]
            kill: Default::default(),
        };
        if makes {
            for name in ["chunks", "files", "new", "pins", "places", "sums"] {
                sub(&directory.top, name, true).map_err(io)?;
            }
        }
        Ok(Some(directory))
    }

    fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        self.kill.step()?;
        Ok(())
    }

    /// Opens a chunk's file.
    pub(crate) fn open_chunk(&self, path: &str) -> io::Result<OpenChunk> {
        self.step()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
        let file = match fs::openat(&self.top, path, flags, Mode::empty()) {
            // Some file systems do not have this.
            Err(Errno::PERM) => fs::openat(&self.top, path, flags - OFlags::NOATIME, Mode::empty())?,
            opened => opened?,
        };
        let meta = fs::fstat(&file)?;
        let state = FileState {
            inode: meta.st_ino,
            size: u64::try_from(meta.st_size).unwrap_or(u64::MAX),
            changed: (meta.st_ctime, i64::try_from(meta.st_ctime_nsec).unwrap_or_default()),
        };
        Ok(OpenChunk { file: File::from(file), state, since: meta.st_mtime, accessed: meta.st_atime })
    }

    /// Reads a file of at most `max` bytes; a longer one is an error.
    pub(crate) fn read(&self, path: &str, max: usize) -> io::Result<Vec<u8>> {
        self.open_chunk(path)?.read_whole(max)
    }

    /// The bytes of a file.
    pub(crate) fn size(&self, path: &str) -> io::Result<u64> {
        let meta = fs::statat(&self.top, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(u64::try_from(meta.st_size).unwrap_or_default())
    }

    /// Writes a new file.
    pub(crate) fn write(&self, path: &str, content: &[u8]) -> io::Result<()> {
        self.step()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&self.top, path, flags, Mode::RUSR | Mode::WUSR)?);
        if let Err(killed) = self.step() {
            // A process that is killed there has written a part.
            file.write_all(&content[..content.len() / 2])?;
            return Err(killed);
        }
        file.write_all(content)
    }

    /// Writes a file under a temporary name, then gives it its own.
    pub(crate) fn replace(&self, temporary: &str, path: &str, content: &[u8]) -> io::Result<()> {
        let written = self.write(temporary, content).and_then(|()| self.rename(temporary, path));
        written.inspect_err(|_| self.remove(temporary))
    }

    /// Gives a file another name, and replaces what has it. Makes the directory of the name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.within_directory(to, || Ok(fs::renameat(&self.top, from, &self.top, to)?))
    }

    /// Makes a link, and replaces what has its name. Makes the directory of the name.
    pub(crate) fn link(&self, target: &str, temporary: &str, path: &str) -> io::Result<()> {
        match self.within_directory(path, || Ok(fs::symlinkat(target, &self.top, path)?)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        if self.link_target(path).is_ok_and(|there| there == target.as_bytes()) {
            return Ok(());
        }
        self.step()?;
        fs::symlinkat(target, &self.top, temporary)?;
        self.rename(temporary, path).inspect_err(|_| self.remove(temporary))
    }

    fn within_directory(&self, path: &str, make: impl Fn() -> io::Result<()>) -> io::Result<()> {
        self.step()?;
        match make() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => return made,
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.step()?;
            match fs::mkdirat(&self.top, above, USER_ONLY) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.step()?;
        make()
    }

    pub(crate) fn link_target(&self, path: &str) -> io::Result<Vec<u8>> {
        self.step()?;
        Ok(fs::readlinkat(&self.top, path, Vec::new())?.into_bytes())
    }

    /// Removes a file or link; one that cannot be removed stays until the next sweep.
    pub(crate) fn remove(&self, path: &str) {
        if self.step().is_ok() {
            let _ = fs::unlinkat(&self.top, path, AtFlags::empty());
        }
    }

    /// Notes a chunk's place in the order, and with `since` the time at which it came there. It is only about which one
    /// goes first, so an error does not matter.
    pub(crate) fn stand(&self, path: &str, standing: Standing, since: Option<(i64, u32)>) {
        if self.step().is_err() {
            return;
        }
        let (secs, nanos) = since.map_or((0, UTIME_OMIT), |(secs, nanos)| (secs, nanos.into()));
        let times = Timestamps {
            last_access: Timespec { tv_sec: standing.seconds(), tv_nsec: 0 },
            last_modification: Timespec { tv_sec: secs, tv_nsec: nanos },
        };
        let _ = fs::utimensat(&self.top, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// When a file was last changed, or a chunk came into its queue.
    pub(crate) fn since(&self, path: &str) -> io::Result<i64> {
        Ok(fs::statat(&self.top, path, AtFlags::SYMLINK_NOFOLLOW)?.st_mtime)
    }

    /// The entries of a directory, if it is there.
    pub(crate) fn list(&self, path: &str) -> io::Result<Vec<Listed>> {
        self.step()?;
        let directory = match fs::openat(&self.top, path, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut listed = Vec::new();
        for entry in fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            match fs::statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(meta) => listed.push(Listed {
                    name: name.to_vec(),
                    bytes: u64::try_from(meta.st_size).unwrap_or_default(),
                    since: (meta.st_mtime, meta.st_mtime_nsec),
                    accessed: meta.st_atime,
                }),
                // Another process removes, too.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(listed)
    }

    /// The lock of whoever removes chunks; `None` if another process has it. Dropping it frees it.
    pub(crate) fn lock(&self) -> io::Result<Option<OwnedFd>> {
        self.step()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = fs::openat(&self.top, "lock", flags, Mode::RUSR | Mode::WUSR)?;
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Seconds since 1970.
pub(crate) fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn read_all(file: &File, size: u64, max: usize) -> io::Result<Vec<u8>> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > max {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut bytes = Vec::with_capacity(size + 1);
    file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max { Err(io::Error::from(io::ErrorKind::InvalidData)) } else { Ok(bytes) }
}

fn make_with_parents(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty() && !above.exists()) {
        make_with_parents(above)?;
    }
    match fs::mkdir(path.as_os_str().as_bytes(), USER_ONLY) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn sub(above: &OwnedFd, name: &str, makes: bool) -> io::Result<OwnedFd> {
    if makes {
        match fs::mkdirat(above, name, USER_ONLY) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(fs::openat(above, name, DIRECTORY, Mode::empty())?)
}
