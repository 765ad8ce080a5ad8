//! What the kernel tells of directories: inotify, and which directory each of its numbers stands for.
//!
//! Always true: a hint is no more than a place to look at; what was lost shows in the next walk.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::io::Errno;

use super::entry::WatchedName;

/// Directories of a folder that the kernel is asked about, about 1 KiB of its memory each; others are seen by
/// walks.
const DIRECTORIES_MAX: usize = 65_536;
/// What is read at a time.
const BUFFER: usize = 64 << 10;
/// Hints that are read before anything is done about them; more are a walk.
const HINTS_MAX: usize = 65_536;

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WatchHint {
    /// Something may have become of this file.
    File(WatchedName),
    /// A directory has appeared.
    Appeared(WatchedName),
    /// A directory has gone.
    Vanished(WatchedName),
    /// Everywhere: hints were lost.
    Lost,
}

/// Why a directory cannot be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchFailure {
    /// The system's limit, or ours.
    Limit,
    /// Something else.
    Other,
}

/// The directories that are watched.
#[derive(Debug)]
pub(super) struct InotifyEvents {
    inotify: OwnedFd,
    by_number: BTreeMap<i32, WatchedName>,
    by_name: BTreeMap<WatchedName, i32>,
    directories_max: usize,
}

impl InotifyEvents {
    pub(super) fn new() -> io::Result<InotifyEvents> {
        Ok(InotifyEvents {
            inotify: init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            by_number: BTreeMap::new(),
            by_name: BTreeMap::new(),
            directories_max: DIRECTORIES_MAX,
        })
    }

    /// For tests: as if the system allowed so few.
    #[cfg(test)]
    pub(super) fn limit(&mut self, directories_max: usize) {
        self.directories_max = directories_max;
    }

    /// Readable when there are hints.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Watches a directory from now on. One that is watched already stays so, whatever it is called now.
    pub(super) fn watch(&mut self, name: &WatchedName, directory: impl AsFd) -> Result<(), WatchFailure> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        if self.by_name.len() >= self.directories_max && !self.by_name.contains_key(name) {
            return Err(WatchFailure::Limit);
        }
        // The directory that is open, whatever stands under its name by now.
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        let number = add_watch(&self.inotify, path, flags).map_err(|error| match error {
            Errno::NOSPC => WatchFailure::Limit,
            _ => WatchFailure::Other,
        })?;
        if let Some(before) = self.by_number.insert(number, name.clone()).filter(|before| before != name) {
            self.by_name.remove(&before);
        }
        if let Some(before) = self.by_name.insert(name.clone(), number).filter(|before| *before != number) {
            self.by_number.remove(&before);
            // It fails if the directory has gone.
            let _ = remove_watch(&self.inotify, before);
        }
        Ok(())
    }

    /// Watches neither a directory nor what is in it any more.
    fn forget(&mut self, name: &WatchedName) {
        let below: Vec<_> = self
            .by_name
            .range(name.clone()..)
            .take_while(|(other, _)| other.bytes().starts_with(name.bytes()))
            .filter(|(other, _)| *other == name || other.is_below(name))
            .map(|(other, number)| (other.clone(), *number))
            .collect();
        for (name, number) in below {
            self.by_name.remove(&name);
            self.by_number.remove(&number);
            let _ = remove_watch(&self.inotify, number);
        }
    }

    /// Reads what the kernel has told.
    pub(super) fn hints(&mut self) -> Vec<WatchHint> {
        let mut told = Vec::new();
        let mut buffer = [const { MaybeUninit::uninit() }; BUFFER];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while told.len() < HINTS_MAX {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes().to_vec());
                    told.push((event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let lost = told.len() >= HINTS_MAX;
        let mut hints: Vec<_> =
            told.into_iter().filter_map(|(number, events, name)| self.hint(number, events, name)).collect();
        hints.extend(lost.then_some(WatchHint::Lost));
        hints
    }

    fn hint(&mut self, number: i32, events: ReadFlags, name: Option<Vec<u8>>) -> Option<WatchHint> {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(WatchHint::Lost);
        }
        if events.contains(ReadFlags::IGNORED) {
            let name = self.by_number.remove(&number)?;
            self.by_name.remove(&name);
            // The folder itself is gone, or its file system.
            return name.bytes().is_empty().then_some(WatchHint::Lost);
        }
        let path = self.by_number.get(&number)?.child(&name?);
        if !events.contains(ReadFlags::ISDIR) {
            return Some(WatchHint::File(path));
        }
        if events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            return Some(WatchHint::Appeared(path));
        }
        if events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.forget(&path);
            return Some(WatchHint::Vanished(path));
        }
        None
    }
}
