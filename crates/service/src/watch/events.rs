//! Events of the kernel about directories, from inotify, and which directory each of its numbers stands for.
//!
//! Always true: a hint only says where to look; a change whose hint was lost shows in the next scan.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::io::Errno;

use super::entry::WatchedName;

/// The most directories of a folder that the kernel is asked to report about. Each takes about 1 KiB of its
/// memory; changes in further directories show in scans.
const DIRECTORIES_MAX: usize = 65_536;
/// How many bytes are read at a time.
const BUFFER: usize = 64 << 10;
/// The most hints that are read at a time; if there are more, a scan replaces them.
const HINTS_MAX: usize = 65_536;

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WatchHint {
    /// Something may have happened to this file.
    File(WatchedName),
    /// A directory has appeared.
    Appeared(WatchedName),
    /// A directory has gone.
    Vanished(WatchedName),
    /// Everywhere, as hints were lost.
    Lost,
}

/// Why the kernel cannot report about a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchFailure {
    /// A limit was reached, the kernel's or ours.
    Limit,
    /// Something else.
    Other,
}

/// The directories that the kernel reports about.
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

    /// Lowers the limit of directories, for tests.
    #[cfg(test)]
    pub(super) fn limit(&mut self, directories_max: usize) {
        self.directories_max = directories_max;
    }

    /// A descriptor that is readable when there are hints.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Asks the kernel to report about a directory from now on. If it does already, the directory's name is
    /// updated.
    pub(super) fn watch(&mut self, name: &WatchedName, directory: impl AsFd) -> Result<(), WatchFailure> {
        // Another directory may get the name of the folder itself, and nothing above it is watched.
        let own = if name.bytes().is_empty() { WatchFlags::MOVE_SELF } else { WatchFlags::empty() };
        let flags = own
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        if self.by_name.len() >= self.directories_max && !self.by_name.contains_key(name) {
            return Err(WatchFailure::Limit);
        }
        // This path leads to the open directory, whatever has its name by now.
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
            // Fails if the directory is gone.
            let _ = remove_watch(&self.inotify, before);
        }
        Ok(())
    }

    /// Stops reports about a directory and everything in it.
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

    /// Reads the hints that the kernel has.
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
        if events.contains(ReadFlags::MOVE_SELF) {
            let name = self.by_number.get(&number).filter(|name| name.bytes().is_empty())?.clone();
            self.forget(&name);
            return Some(WatchHint::Lost);
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
