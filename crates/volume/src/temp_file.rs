//! The file that a target is written to before it gets its name. A file that can be resumed has a name that a
//! later run finds, and a lock. Others have no name if that is possible, so that nothing is left of them
//! whatever happens.
//!
//! Always true: whoever may write to a partial file holds its lock, and only the holder renames or removes
//! it. A file is only touched if it is a plain file of our own user, has only this name, and is known to be
//! ours.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::SystemTime;

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::change;
use crate::dir::Dir;
use crate::entry::{FileKind, Metadata};
use crate::error::Error;
use crate::{fixed_entries, own_files, own_names};

/// How often a race is tried again with another transfer that keeps finishing at the same moment.
const TRIES: u32 = 16;

/// An open and locked partial file.
pub(crate) struct OpenedPartial {
    pub(crate) file: File,
    pub(crate) name: Vec<u8>,
    pub(crate) journal_name: Vec<u8>,
    /// An earlier run has left the file, with whatever content it wrote.
    pub(crate) was_there: bool,
    pub(crate) meta: Metadata,
}

/// Opens the partial file of the target called `target`. If its name is taken by a file that is not ours,
/// another name is used.
pub(crate) fn open_part(dir: &Dir, target: &[u8]) -> Result<OpenedPartial, Error> {
    for number in 0..own_names::PART_NAMES {
        let (name, journal_name) = own_names::part(dir, target, number);
        if let Some((file, was_there, meta)) = open(dir, &name)? {
            return Ok(OpenedPartial { file, name, journal_name, was_there, meta });
        }
    }
    // Last resort: a name that no later run will find.
    for _ in 0..TRIES {
        let (name, journal_name) = own_names::part(dir, target, random());
        if let Some((file, was_there, meta)) = open(dir, &name)? {
            return Ok(OpenedPartial { file, name, journal_name, was_there, meta });
        }
    }
    Err(Error::InTheWay("a file under every name for the partial file".into()))
}

/// Returns `None` if the name is taken by another file.
fn open(dir: &Dir, name: &[u8]) -> Result<Option<(File, bool, Metadata)>, Error> {
    let common = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        match change::create(dir, name, common | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return lock_new(file).map(Some),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(Error::io("create a file")(fixed_entries::of_new(dir, error))),
        }
        match fs::openat(dir, name, common | OFlags::NONBLOCK, Mode::empty()) {
            Ok(file) => match take_over(dir, name, file)? {
                LockOutcome::Over(file, meta) => return Ok(Some((file, true, meta))),
                LockOutcome::Foreign => return Ok(None),
                LockOutcome::Gone => {}
            },
            Err(Errno::NOENT) => {}
            Err(Errno::LOOP | Errno::ISDIR | Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::TXTBSY) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::io("open the partial file")(error)),
        }
    }
    Err(Error::Locked)
}

fn lock_new(file: OwnedFd) -> Result<(File, bool, Metadata), Error> {
    lock(&file)?;
    let meta = Metadata::from(&fs::fstat(&file).map_err(Error::io("look at the partial file"))?);
    // Between our creating and our locking the file, another transfer may have taken it for one that was
    // left, and used it.
    if meta.size > 0 || meta.nlink == 0 {
        return Err(Error::Locked);
    }
    Ok((file.into(), false, meta))
}

enum LockOutcome {
    Over(File, Metadata),
    /// It is not ours.
    Foreign,
    /// The name has gone to another file meanwhile.
    Gone,
}

fn take_over(dir: &Dir, name: &[u8], file: OwnedFd) -> Result<LockOutcome, Error> {
    let look = |error: Errno| Error::io("look at the partial file")(error);
    let meta = Metadata::from(&fs::fstat(&file).map_err(look)?);
    let is_mine =
        meta.kind == FileKind::File && meta.uid == rustix::process::geteuid().as_raw() && meta.nlink <= 1;
    // An empty file is from a run that was killed before it had created the journal.
    if !is_mine || meta.size > 0 && !own_files::is_ours(dir, name) {
        return Ok(LockOutcome::Foreign);
    }
    lock(&file)?;
    // The former holder of the lock may have given the file its final name.
    let named = match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Metadata::from(&named),
        Err(Errno::NOENT) => return Ok(LockOutcome::Gone),
        Err(error) => return Err(look(error)),
    };
    if (named.dev, named.ino) != (meta.dev, meta.ino) {
        return Ok(LockOutcome::Gone);
    }
    let meta = Metadata::from(&fs::fstat(&file).map_err(look)?);
    Ok(LockOutcome::Over(file.into(), meta))
}

/// Removes the partial file that an earlier run has left of the target called `target`, unless somebody holds
/// it.
pub(crate) fn remove_left(dir: &Dir, target: &[u8]) -> io::Result<()> {
    for number in 0..own_names::PART_NAMES {
        let (name, _) = own_names::part(dir, target, number);
        match fs::statat(dir, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => drop(own_files::remove(dir, &name)?),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

// ---- files that nothing could resume ---------------------------------------------------------------------------------

/// A temporary file, which cannot be resumed.
pub(crate) struct CreatedTemp {
    pub(crate) file: File,
    /// A name that identifies it as ours, on file systems without nameless files.
    pub(crate) name: Option<Vec<u8>>,
    /// The file's mode, if known.
    pub(crate) mode: Option<u32>,
}

/// Creates an empty file.
pub(crate) fn create(dir: &Dir, mode: u32) -> Result<CreatedTemp, Error> {
    // In a directory where no name can be removed, nameless files are not tested.
    if !dir.is_append_only() {
        dir.try_nameless();
    }
    if let Some((file, mode)) = dir.create_nameless(mode) {
        return Ok(CreatedTemp { file, name: None, mode });
    }
    if dir.is_append_only() {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, fixed_entries::APPEND_ONLY);
        return Err(Error::Io { what: "create a temporary file", source });
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    for _ in 0..TRIES {
        let first = match dir.keeps_inodes() {
            true => own_names::temporary(u64::from(random()) << 32 | u64::from(random())),
            false => own_names::drawn_temporary(),
        };
        let file = match change::create(dir, &first[..], flags, Mode::from_raw_mode(mode)) {
            Ok(file) => file,
            Err(Errno::EXIST) => continue,
            Err(error) => return Err(Error::io("create a file")(fixed_entries::of_new(dir, error))),
        };
        lock(&file)?;
        let meta = Metadata::from(&fs::fstat(&file).map_err(Error::io("look at the new file"))?);
        let name = if dir.keeps_inodes() { own_names::temporary(meta.ino) } else { first.clone() };
        if name != first {
            change::renameat(dir, &first[..], dir, &name[..]).map_err(Error::io("name the new file"))?;
        }
        return Ok(CreatedTemp { file: file.into(), name: Some(name), mode: Some(meta.mode) });
    }
    Err(Error::Locked)
}

/// Runs `work` with a file that has a name of ours meanwhile. Returns `None` if no such file can be created.
pub(crate) fn with_named<T>(dir: &Dir, work: impl FnOnce(&File) -> Option<T>) -> Option<T> {
    let CreatedTemp { file, name, .. } = create(dir, 0o600).ok()?;
    let done = work(&file);
    if let Some(name) = name {
        // If it cannot be removed, it is recognised later as a file that was left.
        let _ = change::unlinkat(dir, &name[..], AtFlags::empty());
    }
    done
}

/// Puts such a file in the place of its target, and replaces what is there; in an append-only directory, or one whose
/// entries are kept, only if the name does not exist.
pub(crate) fn put(file: &File, name: Option<&[u8]>, dir: &Dir, target: &[u8]) -> io::Result<()> {
    let name = match name {
        Some(name) => name.to_vec(),
        None if dir.is_append_only() || dir.keeps_entries() => {
            return match dir.make(target, || link(file, dir, target)) {
                Ok(made) => made,
                Err(Errno::EXIST) => fixed_entries::check(dir, target).and(Err(Errno::EXIST.into())),
                Err(error) => Err(error.into()),
            };
        }
        None => give_name(file, dir)?,
    };
    dir.look(&name);
    dir.place(target, || dir.rename_here(dir, &name[..], target)).inspect_err(|_| {
        let _ = change::unlinkat(dir, &name[..], AtFlags::empty());
    })
}

/// Gives a nameless file its temporary name.
pub(crate) fn give_name(file: &File, dir: &Dir) -> io::Result<Vec<u8>> {
    let name = match dir.keeps_inodes() {
        true => own_names::temporary(fs::fstat(file)?.st_ino),
        false => own_names::drawn_temporary(),
    };
    match link(file, dir, &name) {
        // A run was killed just there; the inode belongs to our file now.
        Err(Errno::EXIST) => {
            change::unlinkat(dir, &name[..], AtFlags::empty())?;
            link(file, dir, &name)?;
        }
        linked => linked?,
    }
    Ok(name)
}

/// Gives an open file a name. From: open(2), O_TMPFILE.
pub(crate) fn link(file: &File, dir: &Dir, name: &[u8]) -> rustix::io::Result<()> {
    match change::linkat(file, c"", dir, name, AtFlags::EMPTY_PATH) {
        // Before Linux 6.10, only users who may read everything can do this.
        Err(Errno::NOENT) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            change::linkat(fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// An id that differs between calls and between processes.
pub(crate) fn drawn_id() -> [u8; 16] {
    let mut id = [0; 16];
    for part in id.chunks_mut(4) {
        part.copy_from_slice(&random().to_le_bytes());
    }
    id
}

/// A number that differs between calls and between processes.
pub(crate) fn random() -> u32 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let seed = format!("{:?} {} {}", SystemTime::now(), std::process::id(), CALLS.fetch_add(1, Relaxed));
    let [a, b, c, d, ..] = *blake3::hash(seed.as_bytes()).as_bytes();
    u32::from_le_bytes([a, b, c, d]) | 1 << 31
}

fn lock(file: &OwnedFd) -> Result<(), Error> {
    match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked),
        // Where there are no locks (some network file systems), the user has to avoid two transfers of one
        // file.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(error) => Err(Error::io("lock the partial file")(error)),
    }
}
