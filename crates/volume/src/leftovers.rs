//! Finds what interrupted transfers have left below a directory, at any depth.
//!
//! Always true: no symbolic link is followed and no other file system entered. Only files that are certainly
//! ours are reported. A file that a running transfer holds is marked as such, and is not removed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use farhaul_beneath::{FileSystems, Links};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::dir::for_each_name;
use crate::own_files;

/// A result of the search.
#[derive(Debug)]
pub enum Leftover<'a> {
    Found(LeftoverFile<'a>),
    /// A directory that cannot be read.
    Failed(&'a [u8], io::Error),
}

/// One of our files; its journal counts with it.
#[derive(Debug)]
pub struct LeftoverFile<'a> {
    dir: &'a OwnedFd,
    name: &'a [u8],
    /// The path below the searched directory.
    pub path: &'a [u8],
    /// Bytes that it takes on the disk.
    pub bytes: u64,
    /// The time since its last change.
    pub age: Duration,
}

impl LeftoverFile<'_> {
    /// Whether a running transfer holds it.
    pub fn is_held(&self) -> bool {
        own_files::is_held(self.dir, self.name)
    }

    /// Removes it. Returns false if a transfer holds it, or if it is gone.
    pub fn remove(&self) -> io::Result<bool> {
        own_files::remove(self.dir, self.name)
    }
}

/// Calls `each` for what is found below `top`, until it returns false.
pub fn find_leftovers(top: &Path, each: &mut dyn FnMut(Leftover<'_>) -> bool) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = fs::openat(fs::CWD, top, flags, Mode::empty())?;
    let mut stack = vec![Vec::new()];
    while let Some(path) = stack.pop() {
        let dir = match enter(&base, &path) {
            Ok(Some(dir)) => dir,
            Ok(None) => continue,
            Err(error) if each(Leftover::Failed(&path, error.into())) => continue,
            Err(_) => return Ok(()),
        };
        let mut goes_on = true;
        let listed = for_each_name(&dir, |_, name, kind| {
            let below = if path.is_empty() { name.to_vec() } else { [&path[..], b"/", name].concat() };
            if let Some(found) = own_files::leading(&dir, name).filter(|_| goes_on) {
                let (bytes, age) = (found.bytes, own_files::age(found.ctime));
                goes_on = each(Leftover::Found(LeftoverFile { dir: &dir, name, path: &below, bytes, age }));
            } else if matches!(kind, FileType::Directory | FileType::Unknown) {
                stack.push(below);
            }
            Ok(())
        });
        let listed = listed.map_or_else(|error| each(Leftover::Failed(&path, error)), |()| true);
        if !(listed && goes_on) {
            break;
        }
    }
    Ok(())
}

/// Returns `None` if it is not a directory, or lies on another file system.
fn enter(base: &OwnedFd, path: &[u8]) -> rustix::io::Result<Option<OwnedFd>> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    match farhaul_beneath::open(base, path, flags, Links::Refused, FileSystems::One) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::XDEV | Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
