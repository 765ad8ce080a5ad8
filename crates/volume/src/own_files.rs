//! Which files are ours: told by what only we make, not by their names, so that what a user calls in the same way is a file like
//! any other.
//!
//! A journal begins with what a journal begins with. A partial file is the one that the journal beside it names by its inode. A
//! temporary file is called by its own inode. Of a copy of any of them nothing of that is true. Who may not read a journal takes a
//! pair that looks like one for it: the partial file could not be read either. A journal in which a power failure has left nothing
//! vouches for the partial file beside it, too.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::entry::{FileTime, Metadata};
use crate::journal::{self, Journal};
use crate::own_names::{self, OwnNameForm};

/// What is renamed in a moment is not there for so long.
const MOMENT: Duration = Duration::from_secs(3600);

/// What runs may leave, and what of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnFiles {
    /// Bytes that it takes on the disk, with its journal.
    pub(crate) bytes: u64,
    /// When it was last changed.
    pub(crate) ctime: FileTime,
}

/// Whether the file called `name` in a directory is one of ours.
pub(crate) fn is_ours(dir: impl AsFd, name: &[u8]) -> bool {
    let dir = dir.as_fd();
    own_names::form(name).is_some_and(|form| look(dir, name, form).is_some())
}

/// One of ours that stands for itself: a journal belongs to its partial file, if that is there. Of a journal in which a power failure
/// has left nothing, and whose partial file has got its final name, nothing tells that it is ours. Whoever cleans up may take it:
/// it holds nothing.
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
        OwnNameForm::Link => (!meta.is_dir() && own_names::is_link(name)).then(|| ours(0))?,
        _ if !meta.is_file() => None,
        OwnNameForm::Temporary => (own_names::temporary(meta.ino) == name).then(|| ours(0))?,
        OwnNameForm::Journal => match owner(dir, name)? {
            Owner::Inode(_) => ours(0),
            Owner::Unknown => look(dir, &own_names::part_of(name), OwnNameForm::Part).and_then(|_| ours(0)),
        },
        OwnNameForm::Part => {
            let journal_name = own_names::journal_of(name);
            let journal =
                Metadata::from(&fs::statat(dir, &journal_name[..], AtFlags::SYMLINK_NOFOLLOW).ok()?);
            let is_its = match owner(dir, &journal_name)? {
                Owner::Inode(inode) => inode == meta.ino,
                Owner::Unknown => journal.uid == meta.uid,
            };
            is_its.then(|| ours(journal.allocated))?
        }
    }
}

/// A journal that stands alone and has nothing in it.
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
    /// Of the partial file with this inode.
    Inode(u64),
    /// We may not read it, and it has the length of one; or a power failure has left nothing in it.
    Unknown,
}

/// Whose journal a file is; none if it is no journal.
fn owner(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Owner> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            let inode = Journal::partial_inode(&file).map(Owner::Inode);
            inode.or_else(|| Journal::is_lost(&file).then_some(Owner::Unknown))
        }
        Err(Errno::ACCESS | Errno::PERM) => {
            let meta = Metadata::from(&fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?);
            (meta.is_file() && journal::is_length(meta.size)).then_some(Owner::Unknown)
        }
        Err(_) => None,
    }
}

/// Locks what a run has left, and removes it with its journal. False if a transfer has it in hand, or it is not ours (any more).
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
    // The journal goes last: without it, nobody could tell what the other one is.
    let is_gone = unlink(dir, name)?;
    if form == OwnNameForm::Part {
        unlink(dir, &own_names::journal_of(name))?;
    }
    Ok(is_gone)
}

fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a run has left it, and no transfer has it in hand. What has no lock has a name for a moment only, while it is renamed.
pub(crate) fn is_stale(dir: impl AsFd, name: &[u8]) -> bool {
    let dir = dir.as_fd();
    let Some(ours) = leading(dir, name) else { return false };
    match own_names::form(name) {
        Some(OwnNameForm::Part | OwnNameForm::Journal) => !is_held(dir, name),
        Some(OwnNameForm::Temporary | OwnNameForm::Link) => age(ours.ctime) > MOMENT && !is_held(dir, name),
        None => false,
    }
}

/// Since a time; nothing if that is to come.
pub(crate) fn age(since: FileTime) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::new(since.secs.max(0).cast_unsigned(), since.nanos))
}

/// Whether a running transfer has it in hand. What cannot be asked is taken for free.
pub(crate) fn is_held(dir: impl AsFd, name: &[u8]) -> bool {
    let dir = dir.as_fd();
    matches!(lock(dir, name), Ok(None))
}

/// None if a transfer has it in hand, or it is gone. What its owner only may read is nobody's here but root's.
fn lock(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        // Without locks, what is old is what nobody has in hand.
        _ => Ok(Some(file)),
    }
}
