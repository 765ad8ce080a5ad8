//! The file that a target is written to before it gets its name: made or taken over, and locked.
//!
//! Always true: whoever may write to such a file holds its lock, and only the holder renames or removes its name; a file
//! that is not a plain file of our own user, with this one name, is never touched.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::entry::{FileKind, Meta};
use crate::error::Error;

/// Rounds of a race with another transfer that keeps finishing under our hands.
const TRIES: u32 = 16;

/// An open and locked temporary file.
pub(crate) struct Opened {
    pub(crate) file: File,
    /// Left by an earlier run; its content is whatever that wrote.
    pub(crate) was_there: bool,
    pub(crate) meta: Meta,
}

/// Opens the temporary file called `name`, with `mode` if it is made.
pub(crate) fn open(dir: &OwnedFd, name: &[u8], mode: u32) -> Result<Opened, Error> {
    let common = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        match fs::openat(dir, name, common | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(mode)) {
            Ok(file) => return lock_new(file),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(Error::io("create a file")(error)),
        }
        match fs::openat(dir, name, common | OFlags::NONBLOCK, Mode::empty()) {
            Ok(file) => {
                if let Some(opened) = take_over(dir, name, file)? {
                    return Ok(opened);
                }
            }
            Err(Errno::NOENT) => {}
            Err(Errno::LOOP) => return Err(Error::InTheWay(described(name, "a symbolic link"))),
            Err(Errno::ISDIR) => return Err(Error::InTheWay(described(name, "a directory"))),
            Err(Errno::ACCESS | Errno::NXIO) => return Err(Error::InTheWay(described(name, "a file"))),
            Err(error) => return Err(Error::io("open the partial file")(error)),
        }
    }
    Err(Error::Locked)
}

fn lock_new(file: OwnedFd) -> Result<Opened, Error> {
    lock(&file)?;
    let meta = Meta::from(&fs::fstat(&file).map_err(Error::io("look at the partial file"))?);
    // Between our making and our locking it, another transfer may have taken it for a leftover, and used it.
    if meta.size > 0 || meta.nlink == 0 {
        return Err(Error::Locked);
    }
    Ok(Opened { file: file.into(), was_there: false, meta })
}

/// None when the name went to another file meanwhile.
fn take_over(dir: &OwnedFd, name: &[u8], file: OwnedFd) -> Result<Option<Opened>, Error> {
    let look = |error: Errno| Error::io("look at the partial file")(error);
    let meta = Meta::from(&fs::fstat(&file).map_err(look)?);
    if meta.kind != FileKind::File {
        return Err(Error::InTheWay(described(name, "something that is not a file")));
    }
    if meta.uid != rustix::process::geteuid().as_raw() {
        return Err(Error::InTheWay(described(name, "a file of another user")));
    }
    if meta.nlink > 1 {
        return Err(Error::InTheWay(described(name, "a file with a second name")));
    }
    lock(&file)?;
    // Whoever had the lock before may have given the file its final name.
    let named = match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Meta::from(&named),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(look(error)),
    };
    if (named.dev, named.ino) != (meta.dev, meta.ino) {
        return Ok(None);
    }
    let meta = Meta::from(&fs::fstat(&file).map_err(look)?);
    Ok(Some(Opened { file: file.into(), was_there: true, meta }))
}

/// Removes a temporary file that nobody has in hand, and its journal.
pub(crate) fn remove(dir: &OwnedFd, name: &[u8], journal: &[u8]) -> Result<(), Error> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(Error::io("open the partial file"))?,
    };
    // The lock is held until both are gone.
    let Some(_locked) = take_over(dir, name, opened)? else { return Ok(()) };
    let _ = fs::unlinkat(dir, journal, AtFlags::empty());
    fs::unlinkat(dir, name, AtFlags::empty()).map_err(Error::io("remove the partial file"))
}

fn lock(file: &OwnedFd) -> Result<(), Error> {
    match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked),
        // Without locks (some network file systems), two transfers of one file are the user's to avoid.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(error) => Err(Error::io("lock the partial file")(error)),
    }
}

fn described(name: &[u8], what: &str) -> String {
    format!("{what} called {}", crate::path::escape(name))
}
