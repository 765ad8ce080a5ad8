//! Removes surplus entries of a destination, below its root.
//!
//! Always true: every name is removed relative to its directory, through no symbolic link, and a link itself
//! is removed. What the filter protects stays; what is mounted stays with everything in it; and so do the
//! directories above. The memory is that of the names on one path down.

mod descent;

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use self::descent::{Descent, DescentLevel};
use crate::change;
use crate::filter::{Filter, FilterSide};
use crate::fixed_entries;
use crate::mount::{Border, MountId};
use crate::own_files;
use crate::rel_path::RelPath;
use crate::root::Root;

/// The result for one entry.
#[derive(Debug)]
pub enum RemovalOutcome {
    /// It is removed (in a dry run: it would be).
    Gone,
    /// As `Gone`, but the file exists under another name, so it does not count.
    Moved,
    /// It was to be removed, but the limit is reached.
    OverLimit,
    /// It stays, with everything in it.
    Left(Border),
    Failed(io::Error),
}

/// What is to become of an entry that is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It goes.
    Goes,
    /// It has been moved away (in a dry run: would be).
    Moved,
    /// It has been given another name in its directory, which stays for that reason.
    MovedBeside,
    /// It stays, as it was given its name just now.
    Stays,
}

/// Keeps what is removed under another name.
pub trait RemovalKeeper {
    /// Called for an entry that is no directory before it is removed. After an error it stays.
    fn keep(&self, path: &RelPath) -> io::Result<Departure>;
}

/// The parameters of all removals below a root.
pub struct Removal<'a> {
    pub root: &'a Root,
    /// The rules for the receiver; what they exclude is protected.
    pub filter: &'a Filter,
    /// Only report what would be removed.
    pub dry_run: bool,
    /// Empty also what is mounted below the root.
    pub crosses: bool,
    /// How many more entries may be removed.
    pub left: u64,
    /// These are removed without being counted, as they exist under another name.
    pub free: &'a HashSet<RelPath>,
    /// Keeps what is removed, but for what is `free`.
    pub keeper: Option<&'a dyn RemovalKeeper>,
}

/// Gets the path of each entry (or a substitute, if that is too long) and its result; returns whether to go
/// on.
type RemovalObserver<'a> = &'a mut dyn FnMut(&RelPath, RemovalOutcome) -> bool;

impl<'a> Removal<'a> {
    /// Removes everything that may be removed, but does not cross mounts.
    pub fn new(root: &'a Root, filter: &'a Filter, free: &'a HashSet<RelPath>) -> Removal<'a> {
        let (dry_run, crosses, left) = (false, false, u64::MAX);
        Removal { root, filter, dry_run, crosses, left, free, keeper: None }
    }

    /// Whether the entries of `directory` lie beyond a border, and so have to stay.
    pub fn is_beyond(&self, directory: &RelPath) -> io::Result<bool> {
        let mount = |path| -> io::Result<MountId> { Ok(MountId::of(&**self.root.dir(path)?)?) };
        Ok(!self.crosses && mount(directory.as_bytes())? != mount(b"")?)
    }

    /// Removes the entry `name` of a directory, with everything in it. Returns false if something stays.
    pub fn remove(
        &mut self,
        directory: &RelPath,
        name: &[u8],
        is_dir: bool,
        tell: RemovalObserver<'_>,
    ) -> bool {
        let mut path = directory.as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let is_gone = self.try_remove(directory, name, is_dir, &mut path, tell).unwrap_or_else(|error| {
            tell(&told(&path).0, RemovalOutcome::Failed(error));
            false
        });
        if self.keeper.is_some() && is_dir {
            // The keeper has used directories by their paths that may be gone now.
            self.root.forget_parents();
        }
        is_gone
    }

    /// `path` is that of the entry that an error concerns.
    fn try_remove(
        &mut self,
        directory: &RelPath,
        name: &[u8],
        is_dir: bool,
        path: &mut Vec<u8>,
        tell: RemovalObserver<'_>,
    ) -> io::Result<bool> {
        if self.is_beyond(directory)? {
            tell(&told(path).0, RemovalOutcome::Left(Border::Beyond));
            return Ok(false);
        }
        let holder = self.root.dir(directory.as_bytes())?;
        let mut descent = Descent::new(&holder, MountId::of(&**holder)?);
        if !is_dir {
            let removed = self.remove_one(&descent, path, name, None, tell);
            return Ok(matches!(removed, Some(EntryRemoval::Gone | EntryRemoval::KeptBeside)));
        }
        // Descriptors that are kept by paths must not be used for these paths any more.
        self.root.forget_parents();
        match self.enter(&mut descent, path, name.to_vec(), tell) {
            EnterOutcome::In => {}
            EnterOutcome::Stays | EnterOutcome::Ends => return Ok(false),
        }
        while let Some(level) = descent.lowest() {
            let Some((name, is_dir)) = level.names.next() else {
                let Some(done) = descent.leave()? else { break };
                let is_gone = match done.is_kept {
                    true => Some(EntryRemoval::Stays),
                    false => self.remove_one(&descent, path, &done.name, Some(&done), tell),
                };
                let Some(above) = descent.lowest() else { return Ok(is_gone == Some(EntryRemoval::Gone)) };
                let Some(is_gone) = is_gone else { break };
                above.is_kept |= is_gone != EntryRemoval::Gone;
                path.truncate(path.len() - done.name.len() - 1);
                continue;
            };
            let len = path.len();
            path.push(b'/');
            path.extend_from_slice(&name);
            if self.filter.excludes(path, is_dir, FilterSide::Receiver) {
                level.is_kept = true;
            } else if is_dir {
                match self.enter(&mut descent, path, name, tell) {
                    // The path of the new directory is the current one now.
                    EnterOutcome::In => continue,
                    EnterOutcome::Stays => descent.keep(),
                    EnterOutcome::Ends => break,
                }
            } else {
                match self.remove_one(&descent, path, &name, None, tell) {
                    Some(EntryRemoval::Gone) => {}
                    Some(EntryRemoval::KeptBeside | EntryRemoval::Stays) => descent.keep(),
                    None => break,
                }
            }
            path.truncate(len);
        }
        Ok(false)
    }

    /// Goes down into a directory. If it cannot be opened or listed, it stays, and everything above it.
    fn enter(
        &self,
        descent: &mut Descent<'_>,
        path: &[u8],
        name: Vec<u8>,
        tell: RemovalObserver<'_>,
    ) -> EnterOutcome {
        let entered = descent.open(&name, !self.dry_run).and_then(|opened| {
            if !self.crosses && opened.mount != descent.here().1 {
                return Ok(false);
            }
            descent.enter(name, opened, !self.dry_run).map(|()| true)
        });
        let goes_on = match entered {
            Ok(true) => return EnterOutcome::In,
            Ok(false) => tell(&told(path).0, RemovalOutcome::Left(Border::MountPoint)),
            Err(error) => tell(&told(path).0, RemovalOutcome::Failed(error)),
        };
        if goes_on { EnterOutcome::Stays } else { EnterOutcome::Ends }
    }

    /// Removes one entry of the directory that the descent is in; `directory` is the level of an emptied
    /// directory. Returns `None` if the removal is to end.
    fn remove_one(
        &mut self,
        descent: &Descent<'_>,
        path: &[u8],
        name: &[u8],
        directory: Option<&DescentLevel>,
        tell: RemovalObserver<'_>,
    ) -> Option<EntryRemoval> {
        let is_below_root = path.contains(&b'/');
        let (path, is_whole) = told(path);
        let is_free = is_whole && self.free.contains(&path);
        if self.left == 0 && !is_free {
            tell(&path, RemovalOutcome::OverLimit);
            return None;
        }
        let (above, mount) = descent.here();
        let is_mounted = || MountId::of_name(above, name).is_ok_and(|there| there.is_mounted_on(mount));
        let removed = match (self.dry_run, directory) {
            (true, Some(level)) if level.mount.is_mounted_on(mount) => Err(Errno::BUSY),
            (true, None) if is_mounted() => Err(Errno::BUSY),
            // The directory in which the removal began may be the root, which keeps its mode.
            (true, _) => match fixed_entries::check_writable(above, is_below_root) {
                Ok(()) if fixed_entries::is_kept(above, name) => Err(Errno::PERM),
                checked => checked,
            },
            (false, Some(level)) => match change::unlinkat(above, name, AtFlags::REMOVEDIR) {
                // Only our own files, from interrupted transfers, may be left in it.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    level.remove_ours().and_then(|()| change::unlinkat(above, name, AtFlags::REMOVEDIR))
                }
                removed => removed,
            },
            (false, None) => Ok(()),
        };
        let removed = match (removed, directory) {
            (Ok(()), None) => self.remove_or_keep(above, name, (&path, is_whole), is_free),
            (removed, _) => removed.map(|()| EntryRemoval::Gone).map_err(|error| (Some(error), error.into())),
        };
        let end = removed.as_ref().map_or(EntryRemoval::Stays, |removed| *removed);
        if removed.is_ok() && end == EntryRemoval::Stays {
            return Some(end);
        }
        let removed = match removed {
            Ok(_) if is_free => RemovalOutcome::Moved,
            Ok(_) => RemovalOutcome::Gone,
            Err((Some(Errno::BUSY), _)) if self.dry_run || is_mounted() => {
                RemovalOutcome::Left(Border::MountPoint)
            }
            Err((Some(error), _)) => RemovalOutcome::Failed(fixed_entries::of_removed(above, name, error)),
            Err((None, error)) => RemovalOutcome::Failed(error),
        };
        self.left -= u64::from(matches!(removed, RemovalOutcome::Gone));
        tell(&path, removed).then_some(end)
    }
}

/// What has become of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryRemoval {
    Gone,
    /// It has another name in its directory.
    KeptBeside,
    Stays,
}

/// The error of a removal: the system's, or one of another kind.
type RemovalError = (Option<Errno>, io::Error);

impl Removal<'_> {
    /// Removes an entry other than a directory, or moves it away. In a dry run it only says so.
    fn remove_or_keep(
        &self,
        above: BorrowedFd<'_>,
        name: &[u8],
        (path, is_whole): (&RelPath, bool),
        is_free: bool,
    ) -> Result<EntryRemoval, RemovalError> {
        let remove = || match self.dry_run {
            true => Ok(EntryRemoval::Gone),
            false => remove_file(above, name)
                .map(|()| EntryRemoval::Gone)
                .map_err(|error| (Some(error), error.into())),
        };
        let Some(keeper) = self.keeper.filter(|_| !is_free && !own_files::is_ours(above, name)) else {
            return remove();
        };
        if !is_whole {
            let what = "its path is too long to keep it, so it is not deleted";
            return Err((None, io::Error::new(io::ErrorKind::InvalidFilename, what)));
        }
        match keeper.keep(path).map_err(|error| (Errno::from_io_error(&error), error))? {
            Departure::Goes => remove(),
            Departure::Moved => Ok(EntryRemoval::Gone),
            Departure::MovedBeside => Ok(EntryRemoval::KeptBeside),
            Departure::Stays => Ok(EntryRemoval::Stays),
        }
    }
}

/// Removes an entry other than a directory; one of our own files with everything that belongs to it.
fn remove_file(above: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
    if !own_files::is_ours(above, name) {
        return change::unlinkat(above, name, AtFlags::empty());
    }
    match own_files::remove(above, name) {
        Ok(true) => Ok(()),
        // Another transfer holds it.
        Ok(false) => Err(Errno::TXTBSY),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// The result of going down into a directory.
enum EnterOutcome {
    In,
    /// The directory stays.
    Stays,
    /// The removal is to end.
    Ends,
}

/// The path for a report, and whether it is complete: a path that is too long is shortened to its beginning
/// and its end.
fn told(path: &[u8]) -> (RelPath, bool) {
    const HEAD: usize = 1000;
    const NAME: usize = 200;
    if let Ok(path) = RelPath::from_bytes(path) {
        return (path, true);
    }
    let cut = |text: &[u8], len: usize| text[..text.len().min(len)].to_vec();
    let parts = path.split(|&byte| byte == b'/').map(|part| cut(part, NAME));
    let mut head: Vec<u8> = Vec::new();
    for part in parts {
        if head.len() + part.len() > HEAD {
            break;
        }
        head.extend_from_slice(&part);
        head.push(b'/');
    }
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let text = [&head[..], "\u{2026}/".as_bytes(), &cut(last, NAME)].concat();
    (RelPath::from_bytes(&text).unwrap_or_default(), false)
}

#[cfg(test)]
mod tests;
