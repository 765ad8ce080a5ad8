//! Removing what a destination has too much, below its root.
//!
//! Always true: every name is removed relative to the directory that holds it, through no symbolic link, and a link is removed
//! itself; what the filter protects stays, what is mounted stays with all that is in it, and so do the directories above; memory
//! is that of the names on one way down.

mod descent;

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use self::descent::{Descent, DescentLevel};
use crate::filter::{Filter, FilterSide};
use crate::mount::{Border, MountId};
use crate::own_files;
use crate::rel_path::RelPath;
use crate::root::Root;

/// What becomes of one entry.
#[derive(Debug)]
pub enum RemovalOutcome {
    /// It is gone (in a dry run: it would be).
    Gone,
    /// So it is, but it is there under another name, and does not count.
    Moved,
    /// It was to go, but as many as may are gone.
    OverLimit,
    /// It stays, with all that is in it.
    Left(Border),
    Failed(io::Error),
}

/// What holds for all removals below a root.
pub struct Removal<'a> {
    pub root: &'a Root,
    /// What its rules for the receiver exclude is protected.
    pub filter: &'a Filter,
    /// Nothing is removed, only said.
    pub dry_run: bool,
    /// What is mounted below the root is emptied, too.
    pub crosses: bool,
    /// How many more may go.
    pub left: u64,
    /// These go without being counted: they are there under another name.
    pub free: &'a HashSet<RelPath>,
}

/// Hears of each entry, by its path or, of one that is too long, by what stands for it; answers whether to go on.
type RemovalObserver<'a> = &'a mut dyn FnMut(&RelPath, RemovalOutcome) -> bool;

impl<'a> Removal<'a> {
    /// Removes whatever may be, without going beyond what is mounted.
    pub fn new(root: &'a Root, filter: &'a Filter, free: &'a HashSet<RelPath>) -> Removal<'a> {
        let (dry_run, crosses, left) = (false, false, u64::MAX);
        Removal { root, filter, dry_run, crosses, left, free }
    }

    /// Whether what is in `directory` lies beyond a border, and so is to stay.
    pub fn is_beyond(&self, directory: &RelPath) -> io::Result<bool> {
        let mount = |path| -> io::Result<MountId> { Ok(MountId::of(&**self.root.dir(path)?)?) };
        Ok(!self.crosses && mount(directory.as_bytes())? != mount(b"")?)
    }

    /// Removes what is called `name` in a directory: if it is one, with all that is in it. False if something stays.
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
        self.try_remove(directory, name, is_dir, &mut path, tell).unwrap_or_else(|error| {
            tell(&told(&path).0, RemovalOutcome::Failed(error));
            false
        })
    }

    /// `path` is that of what an error is about.
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
            return Ok(self.remove_one(&descent, path, name, None, tell) == Some(true));
        }
        // What is known by its path is not to be used by it any more.
        self.root.forget_parents();
        match self.enter(&mut descent, path, name.to_vec(), tell) {
            EnterOutcome::In => {}
            EnterOutcome::Stays | EnterOutcome::Ends => return Ok(false),
        }
        while let Some(level) = descent.lowest() {
            let Some((name, is_dir)) = level.names.next() else {
                let Some(done) = descent.leave()? else { break };
                let is_gone = match done.is_kept {
                    true => Some(false),
                    false => self.remove_one(&descent, path, &done.name, Some(&done), tell),
                };
                let Some(above) = descent.lowest() else { return Ok(is_gone == Some(true)) };
                let Some(is_gone) = is_gone else { break };
                above.is_kept |= !is_gone;
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
                    // Its path is the one that counts now.
                    EnterOutcome::In => continue,
                    EnterOutcome::Stays => descent.keep(),
                    EnterOutcome::Ends => break,
                }
            } else {
                match self.remove_one(&descent, path, &name, None, tell) {
                    Some(true) => {}
                    Some(false) => descent.keep(),
                    None => break,
                }
            }
            path.truncate(len);
        }
        Ok(false)
    }

    /// What cannot be opened or listed stays, and all above it.
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

    /// Removes one entry of the directory that the descent is in; `directory` is its level, if it is an empty one. None when all
    /// is to end.
    fn remove_one(
        &mut self,
        descent: &Descent<'_>,
        path: &[u8],
        name: &[u8],
        directory: Option<&DescentLevel>,
        tell: RemovalObserver<'_>,
    ) -> Option<bool> {
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
            (true, _) => Ok(()),
            (false, Some(level)) => match fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
                // What an interrupted transfer may have left in it is all that is left.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    level.remove_ours().and_then(|()| fs::unlinkat(above, name, AtFlags::REMOVEDIR))
                }
                removed => removed,
            },
            (false, None) => remove_file(above, name),
        };
        let removed = match removed {
            Ok(()) if is_free => RemovalOutcome::Moved,
            Ok(()) => RemovalOutcome::Gone,
            Err(Errno::BUSY) if self.dry_run || is_mounted() => RemovalOutcome::Left(Border::MountPoint),
            Err(error) => RemovalOutcome::Failed(error.into()),
        };
        let is_gone = matches!(removed, RemovalOutcome::Gone | RemovalOutcome::Moved);
        self.left -= u64::from(matches!(removed, RemovalOutcome::Gone));
        tell(&path, removed).then_some(is_gone)
    }
}

/// Removes what is no directory; what an interrupted transfer has left, with all that belongs to it.
fn remove_file(above: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
    if !own_files::is_ours(above, name) {
        return fs::unlinkat(above, name, AtFlags::empty());
    }
    match own_files::remove(above, name) {
        Ok(true) => Ok(()),
        // Another transfer has it in hand.
        Ok(false) => Err(Errno::TXTBSY),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// What came of going into a directory.
enum EnterOutcome {
    In,
    /// It stays.
    Stays,
    /// All is to end.
    Ends,
}

/// The path that is told, and whether it is the whole one: of one that is longer than a path may be, the beginning and the end.
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
