//! A directory of this user alone.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use farhaul_words::{Code, Error};
use rustix::fs::{Mode, OFlags, fchmod, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Opens a directory of this user that nobody else can read, or makes it. `what` is its name in errors.
pub fn private_directory(path: &Path, what: &str) -> Result<OwnedFd, Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let not_made = |error: io::Error| {
        Error::with_source(Code::of_files(&error), format!("cannot make {what} {}", path.display()), error)
    };
    match made {
        Ok(()) => {}
        // It may be a link to a directory; if it is something else, opening it gives a better error.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(not_made(error)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(|errno| failed(path, "open", errno))?;
    let meta = fstat(&directory).map_err(|errno| failed(path, "look at", errno))?;
    let refused = |reason: String, hint: &str| {
        Error::new(Code::BadState, format!("{what} {} {reason}", path.display())).with_hint(hint)
    };
    let (owner, us) = (meta.st_uid, geteuid().as_raw());
    if owner != us {
        let hint = "run this as that user, or name another directory";
        return Err(refused(format!("belongs to user {owner}, and this is user {us}"), hint));
    }
    if meta.st_mode & 0o022 != 0 {
        let hint = format!("look at what is in it, then chmod 700 {}", path.display());
        return Err(refused("may be written by others".into(), &hint));
    }
    if meta.st_mode & 0o055 != 0 {
        fchmod(&directory, Mode::from_raw_mode(0o700)).map_err(|errno| failed(path, "chmod", errno))?;
    }
    Ok(directory)
}

pub(crate) fn failed(path: &Path, verb: &str, errno: Errno) -> Error {
    let error = io::Error::from(errno);
    Error::with_source(Code::of_files(&error), format!("cannot {verb} {}", path.display()), error)
}
