//! A directory in which names are created, and whether it tells names apart that differ only in case or form.
//!
//! Most file systems keep names byte for byte. A directory that does not ("folds": FAT, exFAT, NTFS, many
//! network shares, ext4 with casefold) is noticed by one system call: it looks up an existing name with the
//! case of its letters swapped. Only in a directory that folds, its listing is checked before an entry gets a
//! name, and again after the first unusual names. A directory that may be written but not listed (an upload
//! folder) is assumed not to fold.
//!
//! Always true: an entry with another name is neither replaced nor taken for the named one. In a directory
//! that folds, only one thread at a time looks for a name and creates it.

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

use crate::change;
use crate::fixed_entries;
use crate::inode_numbers;
use crate::name_trial;
use crate::temp_file;
use crate::writeback::WriteOrdering;

/// After this many unusual names that came back unchanged, a directory is trusted with all others.
const TRUSTED: u32 = 16;
/// The most listings of one directory in search of names that are taken; then the last listing is believed.
const LISTINGS_MAX: u32 = 64;

/// Why an entry cannot have its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name leads to an entry with another name.
    #[error("this file system does not tell it from {}{}; rename one of them{}", quoted(.other), case(.name, .other), way_out(.name, .other))]
    Taken { name: Vec<u8>, other: Option<Vec<u8>> },
    /// The new entry came back under another name, and was removed.
    #[error("this file system would call it {}; rename it", quoted(.0))]
    Changed(Option<Vec<u8>>),
    #[error("the file system there refuses this name: {0}")]
    Refused(&'static str),
}

fn quoted(name: &Option<Vec<u8>>) -> String {
    name.as_ref().map_or("something else".into(), |name| format!("\"{}\"", escape(name)))
}

fn case(name: &[u8], other: &Option<Vec<u8>>) -> &'static str {
    let is_case = other.as_ref().is_some_and(|other| folded(name) == folded(other));
    if is_case { " (case-insensitive)" } else { "" }
}

/// A name that was changed in case only, at the source, has its former self in the way.
fn way_out(name: &[u8], other: &Option<Vec<u8>>) -> &'static str {
    match case(name, other) {
        "" => "",
        _ => " (if it was renamed at the source: farhaul sync `delete-before`)",
    }
}

/// The error of a name, if this is one.
pub fn name_error(error: &io::Error) -> Option<&NameError> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

impl From<NameError> for io::Error {
    fn from(error: NameError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidFilename, error)
    }
}

/// The error of a call that looks up or creates a name.
pub(crate) fn of_name(error: Errno) -> io::Error {
    let why = match error {
        Errno::NAMETOOLONG => "it is too long",
        Errno::ILSEQ => "it is not in the character set there",
        Errno::INVAL => "it has characters that are not allowed there",
        error => return error.into(),
    };
    NameError::Refused(why).into()
}

/// A directory's descriptor, with what is known of how it treats names.
pub(crate) struct Dir {
    fd: OwnedFd,
    /// No entry in it is replaced.
    keeps_entries: bool,
    /// Unset: not known yet. `None` inside: the directory does not fold.
    names: OnceLock<Option<Mutex<FoldedNames>>>,
    /// Held by whoever creates a name while that is not known.
    unknown: Mutex<()>,
    /// The mode with which a new file was last created unchanged, as umask and default access control list
    /// allow it.
    kept_mode: AtomicU32,
    /// Files without names cannot be created here, or cannot be given a name.
    needs_names: AtomicBool,
    /// It was tested whether files without names work.
    is_tried: AtomicBool,
    inode: OnceLock<u64>,
    keeps_inodes: OnceLock<bool>,
    medium: OnceLock<WriteOrdering>,
    is_append_only: OnceLock<bool>,
}

/// A value that is not a mode.
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
        let (inode, keeps_inodes, is_append_only) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Dir {
            fd,
            keeps_entries: false,
            names,
            unknown,
            kept_mode,
            needs_names,
            is_tried,
            inode,
            keeps_inodes,
            medium,
            is_append_only,
        }
    }

    /// How its file system orders writes.
    pub(crate) fn medium(&self) -> WriteOrdering {
        *self.medium.get_or_init(|| WriteOrdering::of(&self.fd))
    }

    /// Whether names can only be added (`chattr +a`), and none removed, replaced or changed.
    pub(crate) fn is_append_only(&self) -> bool {
        *self.is_append_only.get_or_init(|| fixed_entries::is_append_only(&self.fd))
    }

    /// The inode number; 0 if the system does not tell it.
    pub(crate) fn inode(&self) -> u64 {
        *self.inode.get_or_init(|| fs::fstat(&self.fd).map_or(0, |stat| stat.st_ino))
    }

    /// Whether inode numbers identify files here ([`inode_numbers`]).
    pub(crate) fn keeps_inodes(&self) -> bool {
        *self.keeps_inodes.get_or_init(|| inode_numbers::are_kept(&self.fd))
    }

    /// Tests, once, whether a file that was created without a name can be given one, before content is
    /// written to any.
    pub(crate) fn try_nameless(&self) {
        if self.is_tried.swap(true, Relaxed) {
            return;
        }
        let Some((file, _)) = self.create_nameless(0o600) else { return };
        let named = temp_file::give_name(&file, self);
        match named {
            Ok(name) => drop(change::unlinkat(&self.fd, &name[..], AtFlags::empty())),
            Err(_) => self.refuse_nameless(),
        }
    }

    /// Creates a file without a name, and tells its mode if known. Returns `None` if that is not possible
    /// here.
    pub(crate) fn create_nameless(&self, mode: u32) -> Option<(File, Option<u32>)> {
        if self.needs_names.load(Relaxed) {
            return None;
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = match change::create(&self.fd, c".", flags, Mode::from_raw_mode(mode)) {
            Ok(file) => file,
            // Creating a file with a name will work, or tell the reason.
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

    /// Tests whether the directory folds, by an existing name.
    pub(crate) fn look(&self, there: &[u8]) {
        if self.names.get().is_some() {
            return;
        }
        let swapped: Vec<u8> = there.iter().map(|byte| swap_case(*byte)).collect();
        if swapped == there {
            return;
        }
        let names = match fs::statat(&self.fd, &swapped[..], AtFlags::SYMLINK_NOFOLLOW) {
            // If both names exist, they are told apart.
            Ok(_) => {
                FoldedNames::list(&self.fd).ok().filter(|names| !(names.has(&swapped) && names.has(there)))
            }
            Err(_) => None,
        };
        let _ = self.names.set(names.map(Mutex::new));
    }

    /// Checks that the entry that `name` leads to really has this name.
    pub(crate) fn check_own(&self, name: &[u8]) -> io::Result<()> {
        self.look(name);
        if self.names.get().is_none() && !name.is_ascii() {
            let names = match FoldedNames::list(&self.fd) {
                Ok(names) => names,
                // In a directory that may be written but not read, nobody can tell what exists under another
                // name.
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
            // No existing name has letters to test with, so only the listing can tell.
            self.names.get_or_init(|| Some(Mutex::new(names)));
        }
        self.folding().map_or(Ok(()), |mut names| names.check(&self.fd, name))
    }

    /// The same directory, in which no entry is replaced if that is so in `other`.
    pub(crate) fn like(self, other: &Dir) -> Dir {
        Dir { keeps_entries: other.keeps_entries, ..self }
    }

    /// The same directory, in which no entry is replaced.
    pub(crate) fn keeping(self) -> Dir {
        Dir { keeps_entries: true, ..self }
    }

    pub(crate) fn keeps_entries(&self) -> bool {
        self.keeps_entries
    }

    /// Gives an entry of a directory the name `to` in this one. It replaces what has that name, unless entries are kept
    /// here.
    pub(crate) fn rename_here<P: rustix::path::Arg + Copy, Fd: AsFd>(
        &self,
        from: Fd,
        name: P,
        to: &[u8],
    ) -> rustix::io::Result<()> {
        match self.keeps_entries {
            true => change::rename_new(from, name, self, to),
            false => change::renameat(from, name, self, to),
        }
    }

    /// Calls `make`, which gives `name` to an entry, and makes sure that only an entry of just this name is
    /// replaced.
    pub(crate) fn place(&self, name: &[u8], make: impl FnOnce() -> rustix::io::Result<()>) -> io::Result<()> {
        let first = self.unknown();
        if first.is_some() && fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            self.look(name);
        }
        let Some(mut names) = self.folding() else {
            make().map_err(|error| name_trial::error_of(self, name, error))?;
            return if first.is_some() { self.first_made(name) } else { Ok(()) };
        };
        match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => {
                names.check(&self.fd, name)?;
                make().map_err(of_name)
            }
            Err(Errno::NOENT) => {
                make().map_err(|error| name_trial::error_of(self, name, error))?;
                names.made(&self.fd, name)
            }
            Err(error) => Err(of_name(error)),
        }
    }

    /// Calls `make`, which creates `name` and fails if that leads to an entry.
    pub(crate) fn make<T>(
        &self,
        name: &[u8],
        make: impl FnOnce() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<io::Result<T>> {
        let first = self.unknown();
        let names = self.folding();
        let made = make()?;
        // Nobody else may create the name meanwhile: an entry that came back under another name would be
        // theirs.
        let kept = match names {
            Some(mut names) => names.made(&self.fd, name),
            None if first.is_some() => self.first_made(name),
            None => Ok(()),
        };
        Ok(kept.map(|()| made))
    }

    /// Handles the first name that was created while it was not known whether the directory folds.
    fn first_made(&self, name: &[u8]) -> io::Result<()> {
        self.look(name);
        self.folding().map_or(Ok(()), |mut names| names.made(&self.fd, name))
    }

    /// Keeps other threads from creating names while it is not known whether the directory folds. Returns
    /// `None` if it is known.
    fn unknown(&self) -> Option<MutexGuard<'_, ()>> {
        if self.names.get().is_some() {
            return None;
        }
        let guard = self.unknown.lock().in_any_case();
        self.names.get().is_none().then_some(guard)
    }

    fn folding(&self) -> Option<MutexGuard<'_, FoldedNames>> {
        let names = self.names.get()?.as_ref()?;
        // At worst the list lacks a name, which is then looked up again.
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

    /// Checks that the entry that `name` leads to has this name.
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

    /// Handles an entry that was created under `name`.
    fn made(&mut self, dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        let is_unusual = !name.iter().all(is_plain) || name.ends_with(b".");
        if is_unusual && self.trust < TRUSTED {
            let inode = || fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino);
            let own = inode();
            self.refresh(dir)?;
            if !self.has(name) {
                let called = self.called(dir, name);
                // Another program may have put an entry of its own there.
                if own.is_ok() && inode() == own && change::unlinkat(dir, name, AtFlags::empty()).is_err() {
                    change::unlinkat(dir, name, AtFlags::REMOVEDIR)?;
                }
                called.iter().for_each(|called| drop(self.by_folded.remove(&folded(called))));
                return Err(NameError::Changed(called).into());
            }
            self.trust += 1;
        }
        self.insert(name);
        Ok(())
    }

    /// The real name of the entry that `name` leads to, as far as it can be found.
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

/// Calls `each` with the names in a directory, without `.` and `..`. Its first argument is the directory.
pub(crate) fn for_each_name(
    dir: &OwnedFd,
    mut each: impl FnMut(&OwnedFd, &[u8], FileType) -> io::Result<()>,
) -> io::Result<()> {
    // A new descriptor, as a shared one has a shared position.
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

/// A name without regard to case, nearly as file systems compare names. It only finds candidates, and decides
/// nothing.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}

#[cfg(test)]
mod tests;
