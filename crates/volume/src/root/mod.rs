//! A directory that no operation below it can leave.
//!
//! Always true: every operation takes a checked path, walks to its parent directory without following any
//! symbolic link, and then uses a single component relative to that directory's descriptor; the last
//! component is not followed either. A path from the user may lead through links that stay below the root,
//! but only in functions that say so ([`Root::follow`], [`Root::metadata_followed`]). An existing link may be
//! used for its directory ([`Root::keep_link`]); then paths below it are resolved in the same way below that
//! directory. Descriptors of parents are kept (a bounded number), so a directory with many files is walked to
//! only once.
//! From: `farhaul_beneath`, which opens what is below a directory and nothing else.

mod dirlinks;
mod parents;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use farhaul_beneath::{FileSystems, Links, Opener};
use farhaul_handover::Held as _;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use self::dirlinks::DirLinks;
use self::parents::Parents;
use crate::attributes::{self, AttributeKinds, Attributes};
use crate::change;
use crate::dir::{Dir, NameError, for_each_name, name_error, of_name};
use crate::entry::{FileKind, FileTime, Metadata, SpecialNode};
use crate::fixed_entries;
use crate::kept_directories;
use crate::metadata::{self, OwnerWish, umask};
use crate::name_trial::{self, DirTime};
use crate::own_files;
use crate::own_names::{self, OwnNameForm};
use crate::precision::{self, Precision};
use crate::predecessor::{self, Predecessor};
use crate::rel_path::RelPath;
use crate::temp_file;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The error if a symbolic link leads out of a root.
#[derive(Debug, thiserror::Error)]
#[error("the symbolic link leads out of the root")]
struct EscapingLink;

/// Whether the error says that a symbolic link leads out of a root.
pub fn is_way_out(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<EscapingLink>())
}

/// Whether a file that is created for a moment may have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeNames {
    Allow,
    Forbid,
}

/// A directory and everything below it. Clones share it.
#[derive(Clone)]
pub struct Root {
    inner: Arc<Inner>,
}

struct Inner {
    fd: Arc<Dir>,
    parents: Mutex<Parents>,
    opener: Opener,
    /// The time at which the root was opened.
    opened_at: dirlinks::FileClockTime,
    /// Links that are used as directories.
    links: DirLinks,
    /// The precision of each file system, by its device.
    precision: Mutex<HashMap<u64, Precision>>,
}

impl Root {
    /// Opens an existing directory; the user's own path to it may lead through links.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Root> {
        let path = path.as_ref();
        let fd = match fs::openat(fs::CWD, path, DIRECTORY, Mode::empty()) {
            // A directory that may be entered but not listed still serves.
            Err(Errno::ACCESS) => {
                fs::openat(fs::CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?
            }
            opened => opened?,
        };
        Ok(Root::of(Arc::new(Dir::new(fd)), Opener::new()))
    }

    fn of(fd: Arc<Dir>, opener: Opener) -> Root {
        let opened_at = dirlinks::now();
        let (parents, links, precision) = Default::default();
        Root { inner: Arc::new(Inner { fd, parents, opener, opened_at, links, precision }) }
    }

    /// A number that all clones of one root share, as long as there are any.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// The directory at `path` as a root of its own.
    pub fn subdir(&self, path: &RelPath) -> io::Result<Root> {
        Ok(Root::of(self.dir(path.as_bytes())?, self.inner.opener.clone()))
    }

    /// As [`Root::subdir`], through symbolic links that do not lead out of this root.
    pub fn follow(&self, path: &RelPath) -> io::Result<Root> {
        let fd = match self.open_followed(path, DIRECTORY) {
            // The directory may be enterable although it is not readable.
            Err(error) if error.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => {
                self.open_followed(path, OFlags::PATH | OFlags::DIRECTORY)?
            }
            opened => opened?,
        };
        Ok(Root::of(Arc::new(Dir::new(fd).like(&self.inner.fd)), self.inner.opener.clone()))
    }

    /// The same directory as a root in which no entry is ever replaced, whoever puts it there. Entries can still be
    /// removed.
    pub fn keeping_entries(&self) -> io::Result<Root> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&*self.inner.fd, 0)?;
        Ok(Root::of(Arc::new(Dir::new(fd).keeping()), self.inner.opener.clone()))
    }

    /// Whether no entry is ever replaced.
    pub fn keeps_entries(&self) -> bool {
        self.inner.fd.keeps_entries()
    }

    /// The metadata of what `path` leads to, if anything, through symbolic links that do not lead out of this
    /// root.
    pub fn metadata_followed(&self, path: &RelPath) -> io::Result<Option<Metadata>> {
        match self.open_followed(path, OFlags::PATH) {
            Ok(there) => Ok(Some(Metadata::from(&fs::fstat(&there)?))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The real absolute path of `path`, through symbolic links that do not lead out of this root.
    pub fn real_path(&self, path: &RelPath) -> io::Result<PathBuf> {
        let there = self.open_followed(path, OFlags::PATH)?;
        std::fs::read_link(format!("/proc/self/fd/{}", there.as_raw_fd()))
    }

    /// The metadata of the entry itself at `path`, and its target if it is a link. Directories that others may replace
    /// meanwhile are resolved anew each time, through symbolic links that do not lead out of this root.
    pub fn entry_followed(&self, path: &RelPath) -> io::Result<Option<(Metadata, Vec<u8>)>> {
        let (dir, name) = path.split();
        if name.is_empty() {
            return Ok(self.metadata_followed(path)?.map(|meta| (meta, Vec::new())));
        }
        let above = match dir {
            b"" => RelPath::empty(),
            dir => RelPath::from_bytes(dir).map_err(io::Error::other)?,
        };
        let above = match self.open_followed(&above, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(above) => above,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let meta = match fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Metadata::from(&stat),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let target = match meta.kind {
            FileKind::Symlink => fs::readlinkat(&above, name, Vec::new())?.into_bytes(),
            _ => Vec::new(),
        };
        Ok(Some((meta, target)))
    }

    /// The metadata of the entry at `path`, if there is one. A directory on the way may be one that was moved away since it
    /// was used last.
    pub fn metadata(&self, path: &RelPath) -> io::Result<Option<Metadata>> {
        let stat = match self.spot(path) {
            Ok((dir, b".")) => fs::fstat(&dir),
            Ok((dir, name)) => fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW),
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match stat {
            Ok(stat) => Ok(Some(Metadata::from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Root::metadata`], for a name that is to be written. Fails ([`crate::name_error`]) if the name
    /// leads to an entry with another name, or if the file system refuses it.
    pub fn lookup(&self, path: &RelPath) -> io::Result<Option<Metadata>> {
        let (dir, name) = path.split();
        if name.is_empty() || self.inner.links.at(path.as_bytes()).is_some() {
            return self.metadata(path);
        }
        let dir = match self.dir(dir) {
            Err(error) if is_absent(&error) => return Ok(None),
            dir => dir?,
        };
        match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => dir.check_own(name).map(|()| Some(Metadata::from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(of_name(error)),
        }
    }

    pub fn read_link(&self, path: &RelPath) -> io::Result<Vec<u8>> {
        let (dir, name) = path.split();
        Ok(fs::readlinkat(self.dir(dir)?, name, Vec::new())?.into_bytes())
    }

    pub fn open_read(&self, path: &RelPath) -> io::Result<File> {
        let (dir, name) = path.split();
        // Non-blocking, so that a pipe that somebody has put there does not block us.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        fs::openat(self.dir(dir)?, name, flags, Mode::empty()).map(File::from).map_err(open_error)
    }

    /// As [`Root::open_read`], through symbolic links that do not lead out of this root.
    pub fn open_read_followed(&self, path: &RelPath) -> io::Result<File> {
        self.open_followed(path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
    }

    /// Creates a file that must not exist.
    pub fn create_new(&self, path: &RelPath, mode: u32) -> io::Result<File> {
        self.create(path, |dir, name| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            change::create(dir, name, flags, Mode::from_raw_mode(mode & 0o7777)).map(File::from)
        })
    }

    /// Makes sure that there is a directory at `path` that we can write to. Only we can use a new one until
    /// [`Root::set_meta`].
    pub fn create_dir(&self, path: &RelPath) -> io::Result<()> {
        self.create_dir_with(path, Mode::RWXU).map(drop)
    }

    /// As [`Root::create_dir`]; returns true if it was not there. If a later change of its mode would take
    /// the set-group-id bit that it has inherited, it gets `mode` from the beginning.
    pub fn make_dir(&self, path: &RelPath, mode: u32) -> io::Result<bool> {
        let is_new = self.create_dir_with(path, Mode::RWXU)?;
        if is_new
            && !rustix::process::geteuid().is_root()
            && self.metadata(path)?.is_some_and(|there| metadata::would_lose_group_bit(&there))
        {
            self.remove_dir(path)?;
            self.create_dir_with(path, Mode::from_raw_mode(mode & 0o777) | Mode::RWXU)?;
        }
        Ok(is_new)
    }

    /// As [`Root::create_dir`], with the mode that the umask leaves.
    pub fn create_shared_dir(&self, path: &RelPath) -> io::Result<()> {
        self.create_dir_with(path, Mode::RWXU | Mode::RWXG | Mode::RWXO).map(drop)
    }

    fn create_dir_with(&self, path: &RelPath, mode: Mode) -> io::Result<bool> {
        if path.is_empty() {
            return Ok(false);
        }
        match self.create(path, |dir, name| change::mkdirat(dir, name, mode)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.use_dir(path).map(|()| false),
            made => made.map(|()| true),
        }
    }

    /// The names in a directory, and for each whether it is a directory; our own files are included unless a
    /// transfer holds them.
    pub fn list(&self, path: &RelPath) -> io::Result<Vec<(Vec<u8>, bool)>> {
        self.list_where(path, |dir, name| !own_files::is_ours(dir, name) || own_files::is_stale(dir, name))
    }

    /// The partial files in a directory, of running or interrupted transfers.
    pub fn partials(&self, path: &RelPath) -> io::Result<Vec<Vec<u8>>> {
        let parts = self.list_where(path, |_, name| own_names::form(name) == Some(OwnNameForm::Part))?;
        Ok(parts.into_iter().map(|(name, _)| name).collect())
    }

    /// The names that the partial file of `path` may have.
    pub fn partial_names(&self, path: &RelPath) -> Vec<Vec<u8>> {
        let Ok((dir, name)) = self.place(path) else { return Vec::new() };
        (0..own_names::PART_NAMES).map(|number| own_names::part(&dir, name, number).0).collect()
    }

    /// Removes the partial file of `path` and its journal, unless another transfer holds it.
    pub fn remove_partial(&self, path: &RelPath) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        temp_file::remove_left(&dir, name)
    }

    fn list_where(
        &self,
        path: &RelPath,
        wanted: impl Fn(&OwnedFd, &[u8]) -> bool,
    ) -> io::Result<Vec<(Vec<u8>, bool)>> {
        let mut names = Vec::new();
        for_each_name(&*self.dir(path.as_bytes())?, |dir, name, kind| {
            if !wanted(dir, name) {
                return Ok(());
            }
            let is_dir = match kind {
                FileType::Unknown => {
                    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                }
                kind => kind == FileType::Directory,
            };
            names.push((name.to_vec(), is_dir));
            Ok(())
        })?;
        Ok(names)
    }

    /// Makes an existing directory writable for us: an earlier run may have given it a read-only mode.
    pub(crate) fn use_dir(&self, path: &RelPath) -> io::Result<()> {
        let there = self.lookup(path)?;
        let Some(meta) = there.filter(Metadata::is_dir) else {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                "something that is not a directory is in its place",
            ));
        };
        let mine = meta.uid == rustix::process::geteuid().as_raw();
        if meta.mode & 0o700 != 0o700 && mine && !rustix::process::geteuid().is_root() {
            let (dir, name) = self.spot(path)?;
            chmod_nofollow(dir.as_fd(), name, meta.mode | 0o700)?;
        }
        Ok(())
    }

    /// Fails as making an entry at `path`, or replacing it, would, as far as the system tells that beforehand.
    /// In doubt it succeeds, also where the directory does not exist yet.
    pub fn check_put(&self, path: &RelPath) -> io::Result<()> {
        let Ok((dir, name)) = self.place(path) else { return self.check_name(path) };
        // A directory of the tree gets a mode with which it can be used; the root keeps its own.
        fixed_entries::check_writable(dir.as_fd(), !path.split().0.is_empty())
            .map_err(|error| fixed_entries::of_new(&*dir, error))?;
        fixed_entries::check(&dir, name)?;
        name_trial::check(&dir, name, DirTime::Stays)
    }

    /// Fails if the name of an entry in a directory that does not exist yet is refused in the nearest one above
    /// that exists.
    fn check_name(&self, path: &RelPath) -> io::Result<()> {
        let mut above = path.parent();
        while let Some(directory) = above {
            if let Ok(dir) = self.dir(directory.as_bytes()) {
                return name_trial::check(&dir, path.split().1, DirTime::Stays);
            }
            above = directory.parent();
        }
        Ok(())
    }

    /// As [`Root::check_put`], for a file that is to be changed in place.
    pub fn check_change(&self, path: &RelPath) -> io::Result<()> {
        let Ok((dir, name)) = self.place(path) else { return Ok(()) };
        Ok(fixed_entries::check_file_writable(dir.as_fd(), name)?)
    }

    pub fn rename(&self, from: &RelPath, to: &RelPath) -> io::Result<()> {
        let source = self.dir(from.split().0)?;
        let renamed = self.create(to, |dir, name| dir.rename_here(&*source, from.split().1, name));
        self.forget_parents();
        renamed
    }

    pub fn unlink(&self, path: &RelPath) -> io::Result<()> {
        let (dir, name) = path.split();
        Ok(change::unlinkat(self.dir(dir)?, name, AtFlags::empty())?)
    }

    pub fn remove_dir(&self, path: &RelPath) -> io::Result<()> {
        let (dir, name) = path.split();
        self.forget_parents();
        Ok(change::unlinkat(self.dir(dir)?, name, AtFlags::REMOVEDIR)?)
    }

    /// Creates a symbolic link, replacing an existing file or link. After an error about its time the link is
    /// there ([`is_about_metadata`](crate::is_about_metadata)).
    pub fn symlink(&self, target: &[u8], path: &RelPath, mtime: Option<FileTime>) -> io::Result<()> {
        let made = self.replace(path, |dir, name| change::symlinkat(target, dir, name));
        match made {
            // If the name is fine, the target may be too long instead.
            Err(error) if is_refused(&error) && self.lookup(path).is_ok() => {
                return Err(io::Error::new(error.kind(), "the file system there refuses this link's target"));
            }
            made => made?,
        }
        self.set_meta(path, None, mtime)
    }

    /// Makes `path` another name of the file at `existing`, replacing an existing file or link.
    pub fn hardlink(&self, existing: &RelPath, path: &RelPath) -> io::Result<()> {
        let (from, old) = existing.split();
        let from = self.dir(from)?;
        let meta = self.metadata(existing)?;
        if meta.is_some()
            && meta.map(|meta| (meta.dev, meta.ino)) == self.metadata(path)?.map(|meta| (meta.dev, meta.ino))
        {
            return Ok(());
        }
        self.replace(path, |dir, name| change::linkat(&from, old, dir, name, AtFlags::empty()))
    }

    /// Makes `path` another name of the entry `there` of another root, which must be on the same file system. A
    /// symbolic link is linked itself.
    pub fn link_from(&self, path: &RelPath, other: &Root, there: &RelPath) -> io::Result<()> {
        let (from, old) = there.split();
        let from = other.dir(from)?;
        self.replace(path, |dir, name| change::linkat(&from, old, dir, name, AtFlags::empty()))
    }

    /// Gives the entry `there` of another root, which must be on the same file system, the name `path` here. With
    /// `replaces` it takes the place of a file, a link or an empty directory; otherwise it fails if something is there.
    pub fn rename_from(
        &self,
        path: &RelPath,
        other: &Root,
        there: &RelPath,
        replaces: bool,
    ) -> io::Result<()> {
        let (from, old) = there.split();
        let from = other.dir(from)?;
        let renamed = self.create(path, |dir, name| match replaces {
            true => dir.rename_here(&*from, old, name),
            false => change::rename_new(&*from, old, dir, name),
        });
        self.forget_parents();
        other.forget_parents();
        renamed
    }

    /// Gives the entry `there` of another root, which must be on the same file system, the name `path` here. It
    /// replaces an existing file or link.
    pub(crate) fn move_from(&self, path: &RelPath, other: &Root, there: &RelPath) -> io::Result<()> {
        let (from, old) = there.split();
        let from = other.dir(from)?;
        self.create(path, |dir, name| dir.rename_here(&*from, old, name))
    }

    /// The precision of the file system of `there`, which lies in the directory at `path`; found out once for
    /// each file system. `None` if it cannot be known. Finding out takes a file; if files without names are
    /// not possible, it has a name for a moment, if `names` allows that.
    fn precision(&self, path: &RelPath, there: &Metadata, names: ProbeNames) -> Option<Precision> {
        let known = |root: &Root| root.inner.precision.lock().in_any_case().get(&there.dev).copied();
        if let Some(known) = known(self) {
            return Some(known);
        }
        let dir = self.dir(path.as_bytes()).ok()?;
        // If the devices differ, something is mounted on the file.
        if Metadata::from(&fs::fstat(&*dir).ok()?).dev != there.dev {
            return None;
        }
        let named = || match names {
            ProbeNames::Allow => temp_file::with_named(&dir, Precision::probe),
            ProbeNames::Forbid => None,
        };
        let precision = match dir.create_nameless(0o600) {
            Some((file, _)) => Precision::probe(&file),
            None => Precision::of_kind(&*dir).or_else(named),
        }?;
        self.inner.precision.lock().in_any_case().insert(there.dev, precision);
        Some(precision)
    }

    /// The precision of the file system, if it explains why the entry `there`, at `path`, has another time
    /// than `wanted`.
    pub fn kept_as(
        &self,
        path: &RelPath,
        wanted: FileTime,
        there: &Metadata,
        names: ProbeNames,
    ) -> Option<Precision> {
        if !precision::may_be_kept_as(wanted, there.mtime) {
            return None;
        }
        let directory = if there.is_dir() { path.clone() } else { path.parent().unwrap_or_default() };
        let precision = self
            .precision(&directory, there, names)
            .or_else(|| Precision::of_clock(wanted, there, self.is_of_program(&directory)))?;
        precision.is_kept_as(wanted, there.mtime).then_some(precision)
    }

    fn is_of_program(&self, path: &RelPath) -> bool {
        self.dir(path.as_bytes()).is_ok_and(|dir| precision::is_of_program(&*dir))
    }

    /// Whether the file system of `there`, at `path`, keeps modes as they are set, as far as is known.
    pub fn keeps_modes(&self, path: &RelPath, there: &Metadata) -> bool {
        let directory = if there.is_dir() { path.clone() } else { path.parent().unwrap_or_default() };
        self.precision(&directory, there, ProbeNames::Forbid).is_none_or(|precision| precision.keeps_modes)
    }

    /// Sets mode and time of the entry at `path`, if given and not right already; a symbolic link has no mode
    /// of its own. What the system refuses to set is an error about metadata
    /// ([`is_about_metadata`](crate::is_about_metadata)), and the rest is set.
    pub fn set_meta(&self, path: &RelPath, mode: Option<u32>, mtime: Option<FileTime>) -> io::Result<()> {
        self.set_owned(path, OwnerWish::default(), mode, mtime)
    }

    /// As [`Root::set_meta`], with the owner.
    pub fn set_owned(
        &self,
        path: &RelPath,
        owner: OwnerWish,
        mode: Option<u32>,
        mtime: Option<FileTime>,
    ) -> io::Result<()> {
        let (dir, name) = self.spot(path)?;
        metadata::set_of_name(&dir, name, owner, mode, mtime)
    }

    /// What a new file at `path` would replace; `None` if there is no plain file.
    pub fn predecessor(&self, path: &RelPath) -> Option<Box<Predecessor>> {
        let (dir, name) = self.place(path).ok()?;
        Predecessor::look(&dir, name).map(Box::new)
    }

    /// The permissions that a new entry at `path` gets if it is made with `mode`: by the umask, or by the
    /// default access control list of its directory.
    pub fn mode_of_new(&self, path: &RelPath, mode: u32) -> u32 {
        match self.place(path) {
            Ok((dir, _)) => predecessor::mode_of_new(&dir, mode),
            Err(_) => mode & 0o777 & !umask(),
        }
    }

    /// The extended attributes of these kinds of a file or directory; a link has none.
    pub fn attributes(&self, path: &RelPath, kinds: AttributeKinds) -> io::Result<Attributes> {
        if kinds.is_none() {
            return Ok(Attributes::new());
        }
        let (dir, name) = self.spot(path)?;
        let Some(there) = open_unless_link(dir.as_fd(), name)? else { return Ok(Attributes::new()) };
        Ok(attributes::read(&format!("/proc/self/fd/{}", there.as_raw_fd()), kinds)?.taken)
    }

    /// Sets the extended attributes of these kinds of a file or directory, and removes all others of these
    /// kinds; a link has none.
    pub fn set_attributes(
        &self,
        path: &RelPath,
        attributes: &Attributes,
        kinds: AttributeKinds,
    ) -> io::Result<()> {
        let (dir, name) = self.spot(path)?;
        match open_unless_link(dir.as_fd(), name)? {
            Some(there) => attributes::apply(&there, attributes, kinds),
            None => Ok(()),
        }
    }

    /// Creates a pipe, a socket or a device, replacing an existing file or link.
    pub fn make_node(&self, path: &RelPath, node: SpecialNode, mode: u32) -> io::Result<()> {
        let (kind, device) = match node {
            SpecialNode::Fifo => (FileType::Fifo, 0),
            SpecialNode::Socket => (FileType::Socket, 0),
            SpecialNode::CharDevice { major, minor } => {
                (FileType::CharacterDevice, fs::makedev(major, minor))
            }
            SpecialNode::BlockDevice { major, minor } => (FileType::BlockDevice, fs::makedev(major, minor)),
        };
        let mode = Mode::from_raw_mode(mode & 0o777);
        self.replace(path, |dir, name| change::mknodat(dir, name, kind, mode, device))
    }

    /// Opens what `path` leads to, through symbolic links that do not lead out of the root.
    pub(crate) fn open_followed(&self, path: &RelPath, flags: OFlags) -> io::Result<OwnedFd> {
        let name = if path.is_empty() { b"." } else { path.as_bytes() };
        let opened = self.inner.opener.open(&*self.inner.fd, name, flags, Links::Followed, FileSystems::Any);
        opened.map_err(|error| match error {
            Errno::XDEV => io::Error::new(io::ErrorKind::PermissionDenied, EscapingLink),
            error => error.into(),
        })
    }

    /// Bytes that this user can still write in the directory at `path`, which may be on another file system
    /// than the root.
    pub fn free_bytes(&self, path: &RelPath) -> io::Result<u64> {
        let stat = fs::fstatvfs(&*self.dir(path.as_bytes())?)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// The number of files that this user can still create there; `None` if the file system does not count
    /// them.
    pub fn free_files(&self, path: &RelPath) -> io::Result<Option<u64>> {
        let stat = fs::fstatvfs(&*self.dir(path.as_bytes())?)?;
        Ok((stat.f_files > 0).then_some(stat.f_favail))
    }

    /// Makes everything written to the file system of a directory durable, whoever wrote it.
    pub fn sync_file_system(&self, path: &RelPath) -> io::Result<()> {
        match fs::syncfs(&*self.dir(path.as_bytes())?) {
            // A descriptor of a directory that may be entered but not read cannot be used for this.
            Err(Errno::BADF) => {
                fs::sync();
                Ok(())
            }
            synced => Ok(synced?),
        }
    }

    /// Makes the names in a directory durable.
    pub fn sync_dir(&self, path: &RelPath) -> io::Result<()> {
        sync_dir(&*self.dir(path.as_bytes())?)
    }

    /// The directory of `path`, and the path's last component. Fails for the root itself, as it has no name.
    pub(crate) fn place<'a>(&self, path: &'a RelPath) -> io::Result<(Arc<Dir>, &'a [u8])> {
        let (dir, name) = path.split();
        if name.is_empty() {
            return Err(Errno::ISDIR.into());
        }
        Ok((self.dir(dir)?, name))
    }

    /// Creates a name in a directory by `make`; tries once more with a fresh descriptor if the directory was
    /// removed (and perhaps created again) meanwhile.
    pub(crate) fn create<T>(
        &self,
        path: &RelPath,
        make: impl Fn(&Dir, &[u8]) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        let attempt = || -> io::Result<rustix::io::Result<T>> {
            let (dir, name) = self.place(path)?;
            match dir.make(name, || make(&dir, name)) {
                Ok(made) => made.map(Ok),
                Err(error) => Ok(Err(error)),
            }
        };
        let made = match attempt()? {
            Err(Errno::NOENT) => {
                self.forget_parents();
                attempt()?
            }
            made => made,
        };
        made.map_err(|error| match (error, self.place(path)) {
            (Errno::PERM, Ok((dir, _))) => fixed_entries::of_new(&*dir, error),
            (Errno::NOENT, Ok((dir, name))) => name_trial::error_of(&dir, name, error),
            (error, _) => open_error(error),
        })
    }

    fn replace(
        &self,
        path: &RelPath,
        make: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        match self.create(path, |dir, name| make(dir, name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !self.keeps_entries() => {}
            made => return made,
        }
        let (dir, name) = self.place(path)?;
        // This is checked first, as the temporary entry could not be removed from an append-only directory.
        fixed_entries::check(&dir, name)?;
        let temporary = make_beside(&dir, name, make).map_err(|error| fixed_entries::of_new(&*dir, error))?;
        dir.look(&temporary);
        dir.place(name, || dir.rename_here(&*dir, &temporary[..], name)).inspect_err(|_| {
            let _ = change::unlinkat(&dir, &temporary[..], AtFlags::empty());
        })
    }

    // ---- walking -----------------------------------------------------------------------------------------------

    /// A descriptor of the directory at `path`.
    pub(crate) fn dir(&self, path: &[u8]) -> io::Result<Arc<Dir>> {
        if path.is_empty() {
            return Ok(self.inner.fd.clone());
        }
        if let Some(fd) = self.parents().get(path) {
            return Ok(fd);
        }
        let walk = || {
            Ok(match self.inner.links.nearest(path) {
                Some((dir, [])) => dir,
                Some((dir, below)) => Arc::new(Dir::new(self.walk_to(&dir, below)?).like(&self.inner.fd)),
                None => Arc::new(Dir::new(self.walk_to(&self.inner.fd, path)?).like(&self.inner.fd)),
            })
        };
        let fd = kept_directories::with_descriptor(|| self.close_unused(), walk)?;
        Ok(self.parents().put(path, fd))
    }

    /// Closes the directories that are only kept for later, and returns whether there were any.
    pub fn close_unused(&self) -> bool {
        self.parents().close_unused()
    }

    /// The directory and the name by which the entry at `path` can be changed. For the root, and for a link
    /// that is used as a directory, the name is `.` in the directory itself.
    fn spot<'a>(&self, path: &'a RelPath) -> io::Result<(Arc<Dir>, &'a [u8])> {
        if let Some(dir) = self.inner.links.at(path.as_bytes()) {
            return Ok((dir, b"."));
        }
        let (dir, name) = path.split();
        Ok((self.dir(dir)?, if name.is_empty() { b"." } else { name }))
    }

    fn walk_to(&self, start: &OwnedFd, path: &[u8]) -> io::Result<OwnedFd> {
        let open = |flags| self.inner.opener.open(start, path, flags, Links::Refused, FileSystems::Any);
        match open(DIRECTORY) {
            // The directory may be enterable although it is not readable.
            Err(Errno::ACCESS) => open(OFlags::PATH | OFlags::DIRECTORY),
            opened => opened,
        }
        .map_err(walk_error)
    }

    fn parents(&self) -> MutexGuard<'_, Parents> {
        // At worst, a panicking holder has left a cache with fewer entries.
        self.inner.parents.lock().in_any_case()
    }

    pub(crate) fn forget_parents(&self) {
        self.parents().close_all();
    }
}

impl std::fmt::Debug for Root {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Root({:?})", self.inner.fd)
    }
}

/// Creates the entry that is to replace `name`, and returns its temporary name.
fn make_beside(
    dir: &Dir,
    name: &[u8],
    make: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<()>,
) -> rustix::io::Result<Vec<u8>> {
    let mut number = 0;
    loop {
        let temporary = own_names::link(name, number);
        match make(dir, &temporary) {
            Err(Errno::EXIST) if number <= own_names::PART_NAMES => {}
            made => return made.map(|()| temporary),
        }
        // The entry is left from a run that was killed before the rename, or belongs to somebody else.
        if change::unlinkat(dir, &temporary[..], AtFlags::empty()).is_err() {
            number = if number + 1 < own_names::PART_NAMES { number + 1 } else { temp_file::random() };
        }
    }
}

fn is_refused(error: &io::Error) -> bool {
    matches!(name_error(error), Some(NameError::Refused(_)))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

const NOT_FOLLOWED: &str = "a symbolic link in its path, or a way out of the root, is not followed";

/// The error of a walk, in words: the kernel's errors for loops and other devices mean a link or a way out of
/// the root.
fn walk_error(error: Errno) -> io::Error {
    match error {
        Errno::XDEV => io::Error::new(io::ErrorKind::PermissionDenied, NOT_FOLLOWED),
        error => open_error(error),
    }
}

/// The error of a name that is opened or created. Another device is not a way out here, but the error of a
/// hard link across devices.
fn open_error(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::new(io::ErrorKind::PermissionDenied, NOT_FOLLOWED),
        error => of_name(error),
    }
}

/// A path descriptor of the entry `name` in `dir`; `None` if it is a symbolic link.
fn open_unless_link(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = fs::openat(dir, name, flags, Mode::empty())?;
    let is_link = Metadata::from(&fs::fstat(&there)?).kind == FileKind::Symlink;
    Ok((!is_link).then_some(there))
}

/// Changes the mode of the entry `name` in `dir`, but never through a symbolic link.
pub(crate) fn chmod_nofollow(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<()> {
    let Some(there) = open_unless_link(dir, name)? else { return Ok(()) };
    // A path descriptor does not allow fchmod, but its name under /proc leads to the file itself, whatever
    // happens to the path.
    let by_descriptor = format!("/proc/self/fd/{}", there.as_raw_fd());
    let mode = Mode::from_raw_mode(mode & 0o7777);
    match change::chmodat(fs::CWD, by_descriptor, mode, AtFlags::empty()) {
        Err(Errno::NOENT) => chmod_without_proc(dir, name, &there, mode),
        changed => Ok(changed?),
    }
}

/// Changes the mode of the file or directory `there`, which is `name` in `dir`, where /proc is not mounted. The
/// entry is opened by its name, and counts only if it still is the same one.
fn chmod_without_proc(dir: BorrowedFd<'_>, name: &[u8], there: &OwnedFd, mode: Mode) -> io::Result<()> {
    let meant = fs::fstat(there)?;
    // To open a device has effects of its own.
    if !matches!(FileType::from_raw_mode(meant.st_mode), FileType::Directory | FileType::RegularFile) {
        return Err(Errno::NOENT.into());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = fs::openat(dir, name, flags, Mode::empty())?;
    let found = fs::fstat(&opened)?;
    if (found.st_dev, found.st_ino) != (meant.st_dev, meant.st_ino) {
        return Err(Errno::NOENT.into());
    }
    Ok(change::fchmod(&opened, mode)?)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &OwnedFd) -> io::Result<()> {
    match fs::fsync(dir) {
        // A file system that cannot sync a directory keeps its names by other means; a path descriptor cannot
        // be synced either.
        Err(Errno::INVAL | Errno::BADF) => Ok(()),
        synced => Ok(synced?),
    }
}

/// `mtime` for the kernel; the access time stays as it is.
pub(crate) fn timestamps(mtime: FileTime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.min(999_999_999).into() },
    }
}

#[cfg(test)]
mod tests;
