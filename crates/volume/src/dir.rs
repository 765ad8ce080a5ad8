//! A directory in which names are made, and whether it tells them apart as they are written.
//!
//! Most file systems keep names byte for byte. One that does not (FAT, exFAT, NTFS, many network shares, ext4
//! with casefold) is noticed by looking up a name that is there with the case of its letters swapped: one
//! system call a directory. Only in a directory that folds is its listing consulted before something gets a
//! name, and the first unusual names after that. One that may be written and not listed (an upload folder) is
//! taken for one that tells names apart.
//!
//! Always true: what is called otherwise is neither replaced nor taken for the entry of a name; in a directory that folds, one
//! thread at a time looks for a name and makes it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, MutexGuard, OnceLock};

use farhaul_handover::Held as _;
use farhaul_text::escape;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::fixed;
use crate::temp_file;
use crate::writeback::WriteOrdering;

/// So many unusual names that came back as they were given vouch for the others of a directory.
const TRUSTED: u32 = 16;
/// Listings of one directory for names that are taken; then the last one is believed.
const LISTINGS_MAX: u32 = 64;

/// Why something cannot have its name where it is to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name leads to something that is called otherwise.
    #[error("this file system does not tell it from {}{}; rename one of them", quoted(.other), case(.name, .other))]
    Taken { name: Vec<u8>, other: Option<Vec<u8>> },
    /// What was made came back under another name, and was removed.
    #[error("this file system would call it {}; rename it", quoted(.0))]
    Changed(Option<Vec<u8>>),
    #[error("the file system there does not take this name: {0}")]
    Refused(&'static str),
}

fn quoted(name: &Option<Vec<u8>>) -> String {
    name.as_ref().map_or("something else".into(), |name| format!("\"{}\"", escape(name)))
}

fn case(name: &[u8], other: &Option<Vec<u8>>) -> &'static str {
    let is_case = other.as_ref().is_some_and(|other| folded(name) == folded(other));
    if is_case { " (case-insensitive)" } else { "" }
}

/// What an error says of a name, if it is about one.
pub fn name_error(error: &io::Error) -> Option<&NameError> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

impl From<NameError> for io::Error {
    fn from(error: NameError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidFilename, error)
    }
}

/// The error of a call that looks up or makes a name.
pub(crate) fn of_name(error: Errno) -> io::Error {
    let why = match error {
        Errno::NAMETOOLONG => "it is too long",
        Errno::ILSEQ => "it is not in the character set there",
        Errno::INVAL => "it has characters that no name has there",
        error => return error.into(),
    };
    NameError::Refused(why).into()
}

/// A directory's descriptor, with what is known of its names.
pub(crate) struct Dir {
    fd: OwnedFd,
    /// None inside: names are told apart as they are written.
    names: OnceLock<Option<Mutex<FoldedNames>>>,
    /// Held by whoever makes a name before that is known.
    unknown: Mutex<()>,
    /// The mode of which a new file has come out as asked for (umask and default access control list let it be).
    kept_mode: AtomicU32,
    /// Files without names cannot be made, or not be given one.
    needs_names: AtomicBool,
    /// It was tried that they can.
    is_tried: AtomicBool,
    inode: OnceLock<u64>,
    medium: OnceLock<WriteOrdering>,
    is_append_only: OnceLock<bool>,
}

/// No mode of a file.
const NO_MODE: u32 = u32::MAX;

/// The names of a directory that folds.
#[derive(Debug, Default)]
struct FoldedNames {
    by_folded: HashMap<String, Vec<Vec<u8>>>,
    listings: u32,
    trust: u32,
}

impl Dir {
    pub(crate) fn new(fd: OwnedFd) -> Dir {
        let (needs_names, is_tried) = (AtomicBool::new(false), AtomicBool::new(false));
        let (kept_mode, medium) = (AtomicU32::new(NO_MODE), OnceLock::new());
        let (names, unknown) = (OnceLock::new(), Mutex::new(()));
        let (inode, is_append_only) = (OnceLock::new(), OnceLock::new());
        Dir { fd, names, unknown, kept_mode, needs_names, is_tried, inode, medium, is_append_only }
    }

    /// How its file system orders what is written.
    pub(crate) fn medium(&self) -> WriteOrdering {
        *self.medium.get_or_init(|| WriteOrdering::of(&self.fd))
    }

    /// Whether names can only be added in it (`chattr +a`): none can be removed, replaced or changed.
    pub(crate) fn is_append_only(&self) -> bool {
        *self.is_append_only.get_or_init(|| fixed::is_append_only(&self.fd))
    }

    /// 0 if the system does not say.
    pub(crate) fn inode(&self) -> u64 {
        *self.inode.get_or_init(|| fs::fstat(&self.fd).map_or(0, |stat| stat.st_ino))
    }

    /// Finds out, once, whether files that are made without a name can be given one, before anything is written to one.
    pub(crate) fn try_nameless(&self) {
        if self.is_tried.swap(true, Relaxed) {
            return;
        }
        let Some((file, _)) = self.create_nameless(0o600) else { return };
        let named = temp_file::give_name(&file, self);
        match named {
            Ok(name) => drop(fs::unlinkat(&self.fd, &name[..], AtFlags::empty())),
            Err(_) => self.refuse_nameless(),
        }
    }

    /// Makes a file that has no name, and tells its mode. None if that cannot be had here.
    pub(crate) fn create_nameless(&self, mode: u32) -> Option<(File, Option<u32>)> {
        if self.needs_names.load(Relaxed) {
            return None;
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = match fs::openat(&self.fd, c".", flags, Mode::from_raw_mode(mode)) {
            Ok(file) => file,
            // Whatever it is, making one with a name works, or says why not.
            Err(Errno::MFILE | Errno::NFILE) => return None,
            Err(_) => {
                self.refuse_nameless();
                return None;
            }
        };
        if self.kept_mode.load(Relaxed) == mode {
            return Some((file.into(), Some(mode)));
        }
        let has = fs::fstat(&file).ok().map(|stat| stat.st_mode & 0o7777);
        if has == Some(mode) {
            self.kept_mode.store(mode, Relaxed);
        }
        Some((file.into(), has))
    }

    pub(crate) fn refuse_nameless(&self) {
        self.needs_names.store(true, Relaxed);
    }

    /// Notices whether the directory folds, by a name that is there.
    pub(crate) fn look(&self, there: &[u8]) {
        if self.names.get().is_some() {
            return;
        }
        let swapped: Vec<u8> = there.iter().map(|byte| swap_case(*byte)).collect();
        if swapped == there {
            return;
        }
        let names = match fs::statat(&self.fd, &swapped[..], AtFlags::SYMLINK_NOFOLLOW) {
            // Both may be there: then they are told apart.
            Ok(_) => {
                FoldedNames::list(&self.fd).ok().filter(|names| !(names.has(&swapped) && names.has(there)))
            }
            Err(_) => None,
        };
        let _ = self.names.set(names.map(Mutex::new));
    }

    /// Looks whether `name`, which leads to something, is what that is called.
    pub(crate) fn check_own(&self, name: &[u8]) -> io::Result<()> {
        self.look(name);
        if self.names.get().is_none() && !name.is_ascii() {
            let names = match FoldedNames::list(&self.fd) {
                Ok(names) => names,
                // One that may be written and not read: nobody could say what there is under another name.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let _ = self.names.set(None);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            names
                .all()
                .find(|name| name.iter().any(u8::is_ascii_alphabetic))
                .into_iter()
                .for_each(|name| self.look(name));
            // Nothing there has letters to ask with: its listing says what it is called.
            self.names.get_or_init(|| Some(Mutex::new(names)));
        }
        self.folding().map_or(Ok(()), |mut names| names.check(&self.fd, name))
    }

    /// Does what gives `name` to something, replacing only what is called so.
    pub(crate) fn place(&self, name: &[u8], make: impl FnOnce() -> rustix::io::Result<()>) -> io::Result<()> {
        let first = self.unknown();
        if first.is_some() && fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            self.look(name);
        }
        let Some(mut names) = self.folding() else {
            make().map_err(of_name)?;
            return if first.is_some() { self.first_made(name) } else { Ok(()) };
        };
        match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => {
                names.check(&self.fd, name)?;
                make().map_err(of_name)
            }
            Err(Errno::NOENT) => {
                make().map_err(of_name)?;
                names.made(&self.fd, name)
            }
            Err(error) => Err(of_name(error)),
        }
    }

    /// Does what makes `name`, which fails if it leads to something.
    pub(crate) fn make<T>(
        &self,
        name: &[u8],
        make: impl FnOnce() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<io::Result<T>> {
        let first = self.unknown();
        let names = self.folding();
        let made = make()?;
        // Nobody else may make it meanwhile: what came back under another name would be his.
        let kept = match names {
            Some(mut names) => names.made(&self.fd, name),
            None if first.is_some() => self.first_made(name),
            None => Ok(()),
        };
        Ok(kept.map(|()| made))
    }

    /// Something has got its name, of which nobody knew whether it would come back as it is written.
    fn first_made(&self, name: &[u8]) -> io::Result<()> {
        self.look(name);
        self.folding().map_or(Ok(()), |mut names| names.made(&self.fd, name))
    }

    /// Keeps others from making names as long as it is not known whether the directory folds; nothing if that is known.
    fn unknown(&self) -> Option<MutexGuard<'_, ()>> {
        if self.names.get().is_some() {
            return None;
        }
        let guard = self.unknown.lock().in_any_case();
        self.names.get().is_none().then_some(guard)
    }

    fn folding(&self) -> Option<MutexGuard<'_, FoldedNames>> {
        let names = self.names.get()?.as_ref()?;
        // At worst a name is missing in it, and looked for again.
        Some(names.lock().in_any_case())
    }
}

impl Deref for Dir {
    type Target = OwnedFd;
    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fd.fmt(formatter)
    }
}

impl FoldedNames {
    fn list(dir: &OwnedFd) -> io::Result<FoldedNames> {
        let mut names = FoldedNames::default();
        for_each_name(dir, |_, name, _| {
            names.insert(name);
            Ok(())
        })?;
        Ok(names)
    }

    fn refresh(&mut self, dir: &OwnedFd) -> io::Result<()> {
        self.by_folded = FoldedNames::list(dir)?.by_folded;
        Ok(())
    }

    fn insert(&mut self, name: &[u8]) {
        let same = self.by_folded.entry(folded(name)).or_default();
        if !same.iter().any(|there| there == name) {
            same.push(name.to_vec());
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        self.by_folded.get(&folded(name)).is_some_and(|same| same.iter().any(|there| there == name))
    }

    fn like(&self, name: &[u8]) -> Option<&Vec<u8>> {
        self.by_folded.get(&folded(name))?.first()
    }

    fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.by_folded.values().flatten()
    }

    /// `name` leads to something: is it called so?
    fn check(&mut self, dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
        if self.has(name) {
            return Ok(());
        }
        if self.listings < LISTINGS_MAX || self.like(name).is_none() {
            self.listings += 1;
            self.refresh(dir)?;
        }
        match self.has(name) {
            true => Ok(()),
            false => Err(NameError::Taken { name: name.to_vec(), other: self.called(dir, name) }.into()),
        }
    }

    /// What was made under `name` is there.
    fn made(&mut self, dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        let is_unusual = !name.iter().all(is_plain) || name.ends_with(b".");
        if is_unusual && self.trust < TRUSTED {
            let inode = || fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino);
            let own = inode();
            self.refresh(dir)?;
            if !self.has(name) {
                let called = self.called(dir, name);
                // Another program may have put something of its own there.
                if own.is_ok() && inode() == own && fs::unlinkat(dir, name, AtFlags::empty()).is_err() {
                    fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?;
                }
                called.iter().for_each(|called| drop(self.by_folded.remove(&folded(called))));
                return Err(NameError::Changed(called).into());
            }
            self.trust += 1;
        }
        self.insert(name);
        Ok(())
    }

    /// What the thing that `name` leads to is called, as far as that can be told.
    fn called(&self, dir: &OwnedFd, name: &[u8]) -> Option<Vec<u8>> {
        if let Some(like) = self.like(name) {
            return Some(like.clone());
        }
        let inode =
            |name: &[u8]| fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino).ok();
        let wanted = inode(name);
        let same = |other: &&Vec<u8>| wanted.is_some() && inode(other) == wanted;
        self.all().find(same).cloned()
    }
}

/// Calls `each` with the names in a directory, but for `.` and `..`. The first argument is the directory.
pub(crate) fn for_each_name(
    dir: &OwnedFd,
    mut each: impl FnMut(&OwnedFd, &[u8], FileType) -> io::Result<()>,
) -> io::Result<()> {
    // A descriptor of our own: a shared one has a shared position.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = fs::openat(dir, ".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut listing = RawDir::new(&fd, &mut buffer);
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            each(&fd, name, entry.file_type())?;
        }
    }
    Ok(())
}

fn swap_case(byte: u8) -> u8 {
    if byte.is_ascii_uppercase() { byte.to_ascii_lowercase() } else { byte.to_ascii_uppercase() }
}

/// A name as it is when case does not count, nearly as file systems see it: it finds likely pairs and decides nothing.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}

#[cfg(test)]
mod tests;
