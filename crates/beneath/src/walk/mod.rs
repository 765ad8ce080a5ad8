//! Walks a path in this process, for kernels that cannot confine it.
//!
//! Always true: each component is opened from the descriptor of the directory that holds it, and never
//! through a link; `..` leads back to a descriptor that was opened on the way down. So no name that somebody
//! changes meanwhile can lead elsewhere.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat};
use rustix::io::{Errno, Result};

use super::{FileSystems, Links};

/// The most links on one path, as in the kernel.
const LINKS_MAX: usize = 40;
/// The longest path, as in the kernel; its terminating zero counts.
const PATH_MAX: usize = 4096;
/// `f_type` of /proc, whose links may lead to what no path names.
const PROC: i64 = 0x9fa0;
/// Bits of the mode of a directory like /tmp: sticky, and writable for everybody.
const SHARED: u32 = 0o1002;

pub(crate) fn open(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
    file_systems: FileSystems,
) -> Result<OwnedFd> {
    let device = match file_systems {
        FileSystems::One => Some(fstat(directory)?.st_dev),
        FileSystems::Any => None,
    };
    let mut walk = Walk { directory, way: Vec::new(), rest: Vec::new(), device, links, links_seen: 0 };
    walk.add(path)?;
    walk.open(flags)
}

struct Walk<'a> {
    directory: BorrowedFd<'a>,
    /// The directories between `directory` and the place that the walk has reached, which is the last one.
    way: Vec<OwnedFd>,
    /// The components that are still to be walked; the next one is the last.
    rest: Vec<Vec<u8>>,
    /// The only device that is allowed, if there is such a rule.
    device: Option<u64>,
    links: Links,
    links_seen: usize,
}

impl Walk<'_> {
    fn open(mut self, flags: OFlags) -> Result<OwnedFd> {
        while let Some(name) = self.rest.pop() {
            let is_last = self.rest.is_empty();
            match &name[..] {
                b"" | b"." => {}
                b".." => drop(self.way.pop().ok_or(Errno::XDEV)?),
                name => {
                    if let Some(found) = self.enter(name, is_last.then_some(flags))? {
                        return Ok(found);
                    }
                    continue;
                }
            }
            if is_last {
                return openat(self.place(), ".", flags, Mode::empty());
            }
        }
        Err(Errno::NOENT)
    }

    /// The directory that the walk has reached.
    fn place(&self) -> BorrowedFd<'_> {
        self.way.last().map_or(self.directory, AsFd::as_fd)
    }

    /// Goes to the entry `name`. The last component of a path comes with the flags that it is opened with, and
    /// is returned, if it is no link that leads on.
    fn enter(&mut self, name: &[u8], last: Option<OFlags>) -> Result<Option<OwnedFd>> {
        let entry =
            openat(self.place(), name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&entry)?;
        if self.device.is_some_and(|device| device != stat.st_dev) {
            return Err(Errno::XDEV);
        }
        match (FileType::from_raw_mode(stat.st_mode), last) {
            (FileType::Symlink, Some(flags)) if flags.contains(OFlags::NOFOLLOW) => match flags {
                flags if flags.contains(OFlags::DIRECTORY) => Err(Errno::NOTDIR),
                flags if flags.contains(OFlags::PATH) => Ok(Some(entry)),
                _ => Err(Errno::LOOP),
            },
            (FileType::Symlink, _) => {
                let target = self.read_link(&entry, &stat)?;
                self.add(&target)?;
                Ok(None)
            }
            (FileType::Directory, Some(flags)) => openat(&entry, ".", flags, Mode::empty()).map(Some),
            (FileType::Directory, None) => {
                self.way.push(entry);
                Ok(None)
            }
            (_, None) => Err(Errno::NOTDIR),
            (_, Some(flags)) if flags.contains(OFlags::DIRECTORY) => Err(Errno::NOTDIR),
            (_, Some(flags)) if flags.contains(OFlags::PATH) => Ok(Some(entry)),
            (_, Some(flags)) => self.open_file(name, flags),
        }
    }

    /// Opens the entry `name`, which has just been a file.
    fn open_file(&mut self, name: &[u8], flags: OFlags) -> Result<Option<OwnedFd>> {
        match openat(self.place(), name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            // Somebody has put a link there meanwhile; it is looked at as any other.
            Err(Errno::LOOP) => {
                self.count_link()?;
                self.add(name)?;
                Ok(None)
            }
            Ok(file)
                if self.device.is_some_and(|device| fstat(&file).map(|stat| stat.st_dev) != Ok(device)) =>
            {
                Err(Errno::XDEV)
            }
            opened => opened.map(Some),
        }
    }

    /// What a link says, if it may be followed.
    fn read_link(&mut self, link: &OwnedFd, stat: &Stat) -> Result<Vec<u8>> {
        if self.links == Links::Refused || fstatfs(link)?.f_type == PROC {
            return Err(Errno::LOOP);
        }
        self.count_link()?;
        let around = fstat(self.place())?;
        let is_own = stat.st_uid == rustix::process::geteuid().as_raw() || stat.st_uid == around.st_uid;
        if around.st_mode & SHARED == SHARED && !is_own {
            return Err(Errno::ACCESS);
        }
        Ok(readlinkat(link, c"", Vec::new())?.into_bytes())
    }

    fn count_link(&mut self) -> Result<()> {
        self.links_seen += 1;
        if self.links_seen > LINKS_MAX { Err(Errno::LOOP) } else { Ok(()) }
    }

    /// Puts the components of a path in front of those that are still to be walked.
    fn add(&mut self, path: &[u8]) -> Result<()> {
        match path.first() {
            None => return Err(Errno::NOENT),
            Some(b'/') => return Err(Errno::XDEV),
            Some(_) if path.len() >= PATH_MAX => return Err(Errno::NAMETOOLONG),
            Some(_) => {}
        }
        self.rest.extend(path.rsplit(|&byte| byte == b'/').map(<[u8]>::to_vec));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
