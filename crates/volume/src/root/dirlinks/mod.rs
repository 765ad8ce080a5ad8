//! Symbolic links of the receiver that are used as directories (`--keep-dirlinks`).
//!
//! A link is followed once: it is opened itself, and checked and read through that descriptor. The directory
//! that it leads to is opened and kept. Everything below the link's path is then resolved below that
//! directory, through no symbolic link, so it does not matter what happens to the link later.
//!
//! Always true: a link is followed only if it belongs to root or to our user, existed before the root was
//! opened, and was not, as far as can be told, brought by a transfer. In a confined root, the link has to
//! lead, beneath the confining root, straight to its directory.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

use farhaul_beneath::{FileSystems, Links};
use farhaul_handover::Held as _;
use farhaul_text::escape;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::{DIRECTORY, Root};
use crate::dir::Dir;
use crate::rel_path::RelPath;

/// The most links that are used at a time, as each holds a descriptor.
const LINKS_MAX: usize = 256;
/// The most links that one link may lead through.
const STEPS_MAX: usize = 40;
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directories that links stand for, by the paths of the links.
#[derive(Default)]
pub(super) struct DirLinks {
    /// Whether there are any.
    any: AtomicBool,
    by_path: Mutex<BTreeMap<Vec<u8>, Arc<Dir>>>,
}

impl DirLinks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Arc<Dir>>> {
        self.by_path.lock().in_any_case()
    }

    /// The directory of the lowest link on the way to `path`, and the rest of the path below it.
    pub(super) fn nearest<'a>(&self, path: &'a [u8]) -> Option<(Arc<Dir>, &'a [u8])> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let links = self.lock();
        let mut end = path.len();
        loop {
            if let Some(dir) = links.get(&path[..end]) {
                let below = path[end..].strip_prefix(b"/").unwrap_or_default();
                return Some((dir.clone(), below));
            }
            end = path[..end].iter().rposition(|&byte| byte == b'/')?;
        }
    }

    /// The directory that is used for the link at `path`.
    pub(super) fn at(&self, path: &[u8]) -> Option<Arc<Dir>> {
        if self.any.load(Relaxed) { self.lock().get(path).cloned() } else { None }
    }
}

/// Seconds and nanoseconds since 1970, by the clock that sets the times of files.
pub(super) type FileClockTime = (i64, u32);

/// The time now.
pub(super) fn now() -> FileClockTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec as u32)
}

impl Root {
    /// Uses the symbolic link at `path` as the directory that it leads to: from then on, paths below `path`
    /// lie in that directory. Returns false if there is no such link. An error says why the link is not used.
    /// If `confining` is given, the directory has to lie beneath that.
    ///
    /// With `distinct`, a link into the root itself is refused, as its directory has another name there.
    pub fn keep_link(&self, path: &RelPath, confining: Option<&Root>, distinct: bool) -> io::Result<bool> {
        if self.inner.links.at(path.as_bytes()).is_some() {
            return Ok(true);
        }
        let (parent, name) = path.split();
        if name.is_empty() {
            return Ok(false);
        }
        let parent = self.dir(parent)?;
        let link = match fs::openat(&*parent, name, PATH, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            link => link?,
        };
        let target = match judge(&link, Some(self.inner.opened_at))? {
            LinkJudgement::NoLink => return Ok(false),
            LinkJudgement::Link(target) => target,
            LinkJudgement::Refused(why) => {
                // A link that does not lead to a directory is no error: it is replaced as any other link is.
                let leads_to = fs::statat(&*parent, name, AtFlags::empty());
                let is_dir =
                    leads_to.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
                return if is_dir { Err(refused(why)) } else { Ok(false) };
            }
        };
        let found = match confining {
            Some(confining) => beneath(confining, &parent, &target),
            None => walk(&parent, &target),
        };
        let directory = match found {
            // The link leads to nothing, or not to a directory.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            found => found?,
        };
        self.check_place(&directory, path, distinct)?;
        let directory = fs::openat(&directory, ".", DIRECTORY, Mode::empty()).unwrap_or(directory);
        let mut links = self.inner.links.lock();
        if links.len() >= LINKS_MAX {
            return Err(refused("too many links to directories are in use"));
        }
        links.insert(path.as_bytes().to_vec(), Arc::new(Dir::new(directory)));
        self.inner.links.any.store(true, Relaxed);
        drop(links);
        self.forget_parents();
        Ok(true)
    }

    /// Checks that a directory does not contain itself, and is not used twice.
    fn check_place(&self, directory: &OwnedFd, path: &RelPath, distinct: bool) -> io::Result<()> {
        let wanted = id(directory.as_fd())?;
        let mut above = path.parent();
        while let Some(at) = above {
            if id(self.dir(at.as_bytes())?.as_fd())? == wanted {
                return Err(refused("it leads to a directory above it"));
            }
            above = at.parent();
        }
        if self.inner.links.lock().values().any(|other| id(other.as_fd()).is_ok_and(|other| other == wanted))
        {
            return Err(refused("another link leads to the same directory"));
        }
        if above_of(&self.inner.fd, |at| at == wanted)? {
            return Err(refused("it leads to a directory above it"));
        }
        let root = id(self.inner.fd.as_fd())?;
        if distinct && above_of(directory, |at| at == root)? {
            let why = "it leads to another directory of the destination, which deletion would take for a second one";
            return Err(refused(why));
        }
        Ok(())
    }
}

fn id(fd: BorrowedFd<'_>) -> rustix::io::Result<(u64, u64)> {
    fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Whether a directory, or any above it, is the wanted one by device and inode.
fn above_of(directory: &OwnedFd, is_it: impl Fn((u64, u64)) -> bool) -> io::Result<bool> {
    let mut at = open_path(directory.as_fd(), b".")?;
    loop {
        let here = id(at.as_fd())?;
        if is_it(here) {
            return Ok(true);
        }
        at = open_path(at.as_fd(), b"..")?;
        if id(at.as_fd())? == here {
            return Ok(false);
        }
    }
}

fn open_path(at: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    fs::openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

enum LinkJudgement {
    /// It is not a link.
    NoLink,
    /// It may be followed; this is its target.
    Link(Vec<u8>),
    Refused(&'static str),
}

/// Judges by the kernel's data whether a link may be followed. A link that a transfer has brought has the
/// time of its source, while one that was made here has the time of its birth. `before` is a time at which it
/// must have existed.
fn judge(link: &OwnedFd, before: Option<FileClockTime>) -> io::Result<LinkJudgement> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let told = fs::statx(link, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, flags)?;
    if FileType::from_raw_mode(told.stx_mode.into()) != FileType::Symlink {
        return Ok(LinkJudgement::NoLink);
    }
    let user = rustix::process::geteuid();
    if told.stx_uid != 0 && told.stx_uid != user.as_raw() {
        return Ok(LinkJudgement::Refused("it belongs neither to root nor to the user who receives"));
    }
    if told.stx_nlink > 1 {
        return Ok(LinkJudgement::Refused("it has several names"));
    }
    let has_birth = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::BTIME);
    let moment = |time: &fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
    // Without a birth time, only the time of its last change is known.
    let born = moment(if has_birth { &told.stx_btime } else { &told.stx_ctime });
    if before.is_some_and(|before| born >= before) {
        return Ok(LinkJudgement::Refused("it was made after this run began"));
    }
    let may_be_ours = before.is_some() || told.stx_uid == user.as_raw();
    if may_be_ours && moment(&told.stx_mtime) != born {
        return Ok(LinkJudgement::Refused(
            "it was brought by a copy: make it again (ln -sfn) if it is to be used",
        ));
    }
    Ok(LinkJudgement::Link(fs::readlinkat(link, c"", Vec::new())?.into_bytes()))
}

/// Opens the directory beneath `confining` that `target` leads to from `parent`, through no further link.
fn beneath(confining: &Root, parent: &OwnedFd, target: &[u8]) -> io::Result<OwnedFd> {
    if target.first() == Some(&b'/') {
        return Err(refused("it leads out of the root"));
    }
    // The place of the link, as the kernel sees it. If the link is moved meanwhile, another place beneath the
    // root is found.
    let place = |fd: BorrowedFd<'_>| -> io::Result<Vec<u8>> {
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(fs::readlinkat(fs::CWD, name, Vec::new())?.into_bytes())
    };
    let (root, at) = (place(confining.inner.fd.as_fd())?, place(parent.as_fd())?);
    let root = root.strip_suffix(b"/").unwrap_or(&root);
    let inner = at.strip_prefix(root).filter(|inner| inner.is_empty() || inner[0] == b'/');
    let Some(inner) = inner else { return Err(refused("it was moved meanwhile")) };
    let way = [b".", inner, b"/", target].concat();
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    match confining.inner.opener.open(&*confining.inner.fd, &way, flags, Links::Refused, FileSystems::Any) {
        Err(Errno::XDEV) => Err(refused("it leads out of the root")),
        Err(Errno::LOOP) => Err(refused("it leads through another link")),
        found => Ok(found?),
    }
}

/// Opens what `target` leads to from `parent`, one component after the other. Every link on the way has to be
/// one that may be followed, or one that root has made.
fn walk(parent: &OwnedFd, target: &[u8]) -> io::Result<OwnedFd> {
    let mut at = open_path(parent.as_fd(), b".")?;
    // The components that are still to be walked, the next one last.
    let mut rest: Vec<Vec<u8>> = Vec::new();
    let mut steps = 0;
    let mut add = |rest: &mut Vec<Vec<u8>>, at: &mut OwnedFd, target: &[u8]| -> io::Result<()> {
        steps += 1;
        if steps > STEPS_MAX {
            return Err(Errno::LOOP.into());
        }
        if target.first() == Some(&b'/') {
            *at = open_path(fs::CWD, b"/")?;
        }
        let parts = target.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
        rest.extend(parts.rev().map(<[u8]>::to_vec));
        Ok(())
    };
    add(&mut rest, &mut at, target)?;
    while let Some(name) = rest.pop() {
        let next = fs::openat(&at, &name[..], PATH, Mode::empty())?;
        match judge(&next, None)? {
            LinkJudgement::NoLink => at = open_path(next.as_fd(), b".")?,
            LinkJudgement::Link(target) => add(&mut rest, &mut at, &target)?,
            LinkJudgement::Refused(why) => {
                return Err(refused(&format!("it leads through the link {}: {why}", escape(&name))));
            }
        }
    }
    Ok(at)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("the link to a directory is not used: {why}"))
}

#[cfg(test)]
mod tests;
