//! Recognises our own files by what only we write, not by their names, so that a user's file with such a name
//! is a file like any other.
//!
//! A journal has a journal's header, and says which name it has. A partial file is the one whose inode the
//! journal beside it names. A temporary file has its own inode in its name. None of that is true of a copy.
//! Where inode numbers say nothing (`inode_numbers`), a partial file is the one that begins as the journal beside
//! it says, with a drawn id or with content that has arrived, and a temporary file is known by its name alone.
//! If this process may not read
//! a journal, any pair that looks like a journal and a partial file counts as ours: the partial file could
//! not be read either. An empty journal, after a power failure, is accepted for the partial file beside it,
//! too.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::change;
use crate::entry::{FileTime, Metadata};
use crate::journal::{self, BEGINNING, Journal, PartialMarks};
use crate::own_names::{self, OwnNameForm};
use crate::{inode_numbers, room};

/// Temporary files are renamed at once, so one that is older than this was left behind.
const MOMENT: Duration = Duration::from_secs(3600);

/// The size and age of a file of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnFiles {
    /// Bytes that it takes on the disk, with its journal.
    pub(crate) bytes: u64,
    /// The time of its last change.
    pub(crate) ctime: FileTime,
}

/// Whether the file called `name` in a directory is one of ours.
pub(crate) fn is_ours(dir: impl AsFd, name: &[u8]) -> bool {
    let dir = dir.as_fd();
    own_names::form(name).is_some_and(|form| look(dir, name, form).is_some())
}

/// Looks for a file of ours, but not for a journal whose partial file is still there, as it belongs to that.
/// An empty journal, after a power failure, whose partial file has got its final name cannot be recognised as
/// ours for certain. It is included nevertheless, since it holds nothing.
pub(crate) fn leading(dir: impl AsFd, name: &[u8]) -> Option<OwnFiles> {
    let dir = dir.as_fd();
    let form = own_names::form(name)?;
    let ours = look(dir, name, form).or_else(|| lost_journal(dir, name, form))?;
    let belongs =
        form == OwnNameForm::Journal && look(dir, &own_names::part_of(name), OwnNameForm::Part).is_some();
    (!belongs).then_some(ours)
}

fn look(dir: BorrowedFd<'_>, name: &[u8], form: OwnNameForm) -> Option<OwnFiles> {
    let meta = Metadata::from(&fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?);
    let ours = |more: u64| Some(OwnFiles { bytes: meta.allocated + more, ctime: meta.ctime });
    match form {
        OwnNameForm::Link => (!meta.is_dir() && own_names::is_certified(name)).then(|| ours(0))?,
        _ if !meta.is_file() => None,
        OwnNameForm::Temporary => {
            let is_its = own_names::temporary(meta.ino) == name
                || own_names::is_certified(name) && !inode_numbers::are_kept(dir);
            is_its.then(|| ours(0))?
        }
        OwnNameForm::Journal => match owner(dir, name)? {
            Owner::Partial(_) => ours(0),
            Owner::Unknown => look(dir, &own_names::part_of(name), OwnNameForm::Part).and_then(|_| ours(0)),
        },
        OwnNameForm::Part => {
            let journal_name = own_names::journal_of(name);
            let journal =
                Metadata::from(&fs::statat(dir, &journal_name[..], AtFlags::SYMLINK_NOFOLLOW).ok()?);
            let is_its = match owner(dir, &journal_name)? {
                Owner::Partial(told) if inode_numbers::are_kept(dir) => told.inode == meta.ino,
                Owner::Partial(told) => told.has(&beginning(dir, name)?),
                Owner::Unknown => journal.uid == meta.uid,
            };
            is_its.then(|| ours(journal.allocated))?
        }
    }
}

/// The bytes that a file begins with.
fn beginning(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(fs::openat(dir, name, flags, Mode::empty()).ok()?);
    let mut found = vec![0; BEGINNING];
    room::read_padded(&file, &mut found, 0).ok()?;
    Some(found)
}

/// Recognises a journal that stands alone and has nothing in it.
fn lost_journal(dir: BorrowedFd<'_>, name: &[u8], form: OwnNameForm) -> Option<OwnFiles> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(
        (form == OwnNameForm::Journal).then(|| fs::openat(dir, name, flags, Mode::empty()))?.ok()?,
    );
    let part = fs::statat(dir, own_names::part_of(name), AtFlags::SYMLINK_NOFOLLOW);
    let is_alone = part.is_err_and(|error| error == Errno::NOENT);
    let meta = Metadata::from(&fs::fstat(&file).ok()?);
    (is_alone && meta.is_file() && Journal::is_lost(&file))
        .then_some(OwnFiles { bytes: meta.allocated, ctime: meta.ctime })
}

enum Owner {
    /// The partial file that the journal tells of.
    Partial(PartialMarks),
    /// Unknown: we may not read the journal, or have no descriptor for it, but it has a journal's length; or
    /// a power failure has left nothing in it.
    Unknown,
}

/// The owner of a journal; `None` if the file is not a journal.
fn owner(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Owner> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            let told = Journal::partial_of(&file, name).map(Owner::Partial);
            told.or_else(|| Journal::is_lost(&file).then_some(Owner::Unknown))
        }
        Err(Errno::ACCESS | Errno::PERM | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            let meta = Metadata::from(&fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?);
            (meta.is_file() && journal::is_length(meta.size)).then_some(Owner::Unknown)
        }
        Err(_) => None,
    }
}

/// Locks a file that a run has left, and removes it with its journal. Returns false if a transfer holds it,
/// or if it is not ours (any more).
pub(crate) fn remove(dir: impl AsFd, name: &[u8]) -> io::Result<bool> {
    let dir = dir.as_fd();
    let Some(form) = own_names::form(name) else { return Ok(false) };
    let is_known = || look(dir, name, form).or_else(|| lost_journal(dir, name, form)).is_some();
    if !is_known() {
        return Ok(false);
    }
    if form == OwnNameForm::Link {
        return unlink(dir, name);
    }
    let Some(_locked) = lock(dir, name)? else { return Ok(false) };
    if !is_known() {
        return Ok(false);
    }
    // The journal goes last: without it, nobody could recognise the partial file as ours.
    let is_gone = unlink(dir, name)?;
    if form == OwnNameForm::Part {
        unlink(dir, &own_names::journal_of(name))?;
    }
    Ok(is_gone)
}

fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    match change::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a run has left the file, and no transfer holds it. Files without locks have such names only for a
/// moment, while they are renamed.
pub(crate) fn is_stale(dir: impl AsFd, name: &[u8]) -> bool {
    let dir = dir.as_fd();
    let Some(ours) = leading(dir, name) else { return false };
    match own_names::form(name) {
        Some(OwnNameForm::Part | OwnNameForm::Journal) => !is_held(dir, name),
        Some(OwnNameForm::Temporary | OwnNameForm::Link) => age(ours.ctime) > MOMENT && !is_held(dir, name),
        None => false,
    }
}

/// The time since `since`; zero if that is in the future.
pub(crate) fn age(since: FileTime) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::new(since.secs.max(0).cast_unsigned(), since.nanos))
}

/// Whether a running transfer holds the file. If that cannot be found out, it counts as free.
pub(crate) fn is_held(dir: impl AsFd, name: &[u8]) -> bool {
    let dir = dir.as_fd();
    matches!(lock(dir, name), Ok(None))
}

/// Locks a file; `None` if a transfer holds it, or if it is gone. A file that only its owner may read can
/// only be locked by the owner and root.
fn lock(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        // Without locks, age alone tells whether a file is in use.
        _ => Ok(Some(file)),
    }
}
