//! Directories of the source: each is known by the path to it, and opened when needed.
//!
//! Always true: a directory below a source is opened component by component, each relative to the one above
//! and none through a symbolic link. Descriptors are shared, and at most `FDS_MAX` are kept for later, so any
//! number of entries may wait to be read.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use farhaul_handover::Held as _;
use rustix::fs::{self, AtFlags, Mode, OFlags};

use super::{Source, SourcePlace};
use crate::attributes::{self, AttributeKinds, FoundAttributes};
use crate::entry::{Entry, Metadata};
use crate::generated_source::GeneratedSource;
use crate::kept_directories;
use crate::mount::MountId;
use crate::rel_path::RelPath;
use crate::root::Root;

/// How many directory descriptors are kept open for readers.
const FDS_MAX: usize = 128;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The descriptors that were opened last, kept for readers to come.
#[derive(Debug, Default)]
pub(super) struct FdCache {
    recent: Mutex<VecDeque<Arc<OwnedFd>>>,
}

impl FdCache {
    fn keep(&self, fd: Arc<OwnedFd>) {
        let mut recent = self.recent.lock().in_any_case();
        while recent.len() == FDS_MAX || kept_directories::are_enough() {
            let Some(oldest) = recent.pop_front() else { break };
            drop(oldest);
            kept_directories::close(1);
        }
        recent.push_back(fd);
        kept_directories::keep_one();
    }

    /// Runs work that needs a descriptor, if necessary without those that are only kept for later.
    fn with_descriptor<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        kept_directories::with_descriptor(|| self.close_all(), work)
    }

    /// Returns whether there were any.
    fn close_all(&self) -> bool {
        let recent = std::mem::take(&mut *self.recent.lock().in_any_case());
        kept_directories::close(recent.len());
        !recent.is_empty()
    }
}

impl Drop for FdCache {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// A directory of a source: the source itself, or one below it.
#[derive(Debug)]
pub(super) struct Directory {
    way: OpenRoute,
    open: Mutex<Weak<OwnedFd>>,
    cache: Arc<FdCache>,
}

#[derive(Debug)]
enum OpenRoute {
    /// The source itself.
    Source(SourceRef),
    Child {
        parent: Arc<Directory>,
        name: Vec<u8>,
    },
}

impl Directory {
    pub(super) fn of_source(source: SourceRef, cache: &Arc<FdCache>) -> Arc<Directory> {
        Arc::new(Directory { way: OpenRoute::Source(source), open: Mutex::default(), cache: cache.clone() })
    }

    pub(super) fn child(parent: &Arc<Directory>, name: Vec<u8>, cache: &Arc<FdCache>) -> Arc<Directory> {
        let way = OpenRoute::Child { parent: parent.clone(), name };
        Arc::new(Directory { way, open: Mutex::default(), cache: cache.clone() })
    }

    /// The mount that it lies on; only opening it can tell that.
    pub(super) fn mount(&self) -> io::Result<Option<MountId>> {
        Ok(Some(MountId::of(&*self.fd()?)?))
    }

    /// A descriptor of it, shared with everybody who has it open. The recursion is bounded, as a tree is at
    /// most as deep as a path has components.
    pub(super) fn fd(&self) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = self.open.lock().in_any_case().upgrade() {
            return Ok(fd);
        }
        let fd = match &self.way {
            OpenRoute::Source(source) => self.cache.with_descriptor(|| source.open_with(DIRECTORY))?,
            OpenRoute::Child { parent, name } => parent.open_in(name, DIRECTORY | OFlags::NOFOLLOW)?,
        };
        let fd = Arc::new(fd);
        *self.open.lock().in_any_case() = Arc::downgrade(&fd);
        self.cache.keep(fd.clone());
        Ok(fd)
    }

    /// Opens an entry of the directory.
    fn open_in(&self, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        self.cache.with_descriptor(|| Ok(fs::openat(self.fd()?, name, flags, Mode::empty())?))
    }
}

/// How to open an entry that the scan has found. It has no descriptor of its own.
#[derive(Debug, Clone)]
pub struct SourceRef {
    place: TreePlace,
}

#[derive(Debug, Clone)]
enum TreePlace {
    /// As the user named it: links are followed, but below a root only those that do not lead out of it.
    Named(PathBuf),
    NamedBeneath(Root, RelPath),
    Child(Arc<Directory>, Box<[u8]>),
    /// The entry that a symbolic link leads to.
    FollowedChild(Arc<Directory>, Box<[u8]>),
    /// A block device whose content the user wants.
    Device(PathBuf),
    StandardInput,
    /// Generated content, which is not in any place.
    Generated(GeneratedSource),
}

impl SourceRef {
    /// One of a source's places.
    pub(super) fn of_place(SourcePlace { path, root }: SourcePlace<'_>) -> io::Result<SourceRef> {
        let place = match root {
            None => TreePlace::Named(path.to_path_buf()),
            Some(root) => TreePlace::NamedBeneath(root.clone(), plain_path(path)?),
        };
        Ok(SourceRef { place })
    }

    /// Standard input of this process.
    pub fn standard_input() -> SourceRef {
        SourceRef { place: TreePlace::StandardInput }
    }

    pub fn is_standard_input(&self) -> bool {
        matches!(self.place, TreePlace::StandardInput)
    }

    /// Whether it lies below a root that it must not leave.
    pub(super) fn is_confined(&self) -> bool {
        matches!(self.place, TreePlace::NamedBeneath(..))
    }

    /// The same place, but for the content of the block device there.
    pub(super) fn of_device(self) -> SourceRef {
        match self.place {
            TreePlace::Named(path) => SourceRef { place: TreePlace::Device(path) },
            place => SourceRef { place },
        }
    }

    pub(crate) fn is_device(&self) -> bool {
        matches!(self.place, TreePlace::Device(_))
    }

    pub(super) fn of_generated(generated: GeneratedSource) -> SourceRef {
        SourceRef { place: TreePlace::Generated(generated) }
    }

    pub(crate) fn generated(&self) -> Option<GeneratedSource> {
        if let TreePlace::Generated(generated) = self.place { Some(generated) } else { None }
    }

    pub(super) fn child(parent: &Arc<Directory>, name: &[u8]) -> SourceRef {
        SourceRef { place: TreePlace::Child(parent.clone(), name.into()) }
    }

    /// The entry that the link `name` leads to, which the scan of `source` has found at `path`.
    pub(super) fn followed(
        source: Option<&Source>,
        parent: &Arc<Directory>,
        name: &[u8],
        path: &RelPath,
    ) -> io::Result<SourceRef> {
        let Some((root, source)) = source.and_then(|source| Some((source.root_of(0)?, source))) else {
            return Ok(SourceRef { place: TreePlace::FollowedChild(parent.clone(), name.into()) });
        };
        // The scan's paths begin with the source's name at the destination.
        let inner = path.as_bytes().get(source.dest.as_bytes().len()..).unwrap_or_default();
        let inner = inner.strip_prefix(b"/").unwrap_or(inner);
        let whole = plain_path(&source.path)?
            .join(inner)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))?;
        Ok(SourceRef { place: TreePlace::NamedBeneath(root.clone(), whole) })
    }

    /// Its extended attributes; a link has none.
    pub fn attributes(&self, kinds: AttributeKinds) -> io::Result<FoundAttributes> {
        if kinds.is_none() || self.generated().is_some() || self.is_device() {
            return Ok(FoundAttributes::default());
        }
        let there = self.open_with(OFlags::PATH | OFlags::CLOEXEC)?;
        attributes::read(&format!("/proc/self/fd/{}", there.as_raw_fd()), kinds)
    }

    /// The present metadata.
    pub(super) fn look(&self) -> io::Result<Metadata> {
        match &self.place {
            TreePlace::Named(path) | TreePlace::Device(path) => {
                Ok(Metadata::from(&fs::statat(fs::CWD, path, AtFlags::empty())?))
            }
            TreePlace::NamedBeneath(root, path) => {
                let there = root.open_followed(path, OFlags::PATH)?;
                Ok(Metadata::from(&fs::fstat(&there)?))
            }
            TreePlace::Child(parent, name) => {
                Ok(Metadata::from(&fs::statat(parent.fd()?, &name[..], AtFlags::SYMLINK_NOFOLLOW)?))
            }
            TreePlace::FollowedChild(parent, name) => {
                Ok(Metadata::from(&fs::statat(parent.fd()?, &name[..], AtFlags::empty())?))
            }
            TreePlace::StandardInput => Ok(Metadata::from(&fs::fstat(std::io::stdin())?)),
            TreePlace::Generated(_) => Err(rustix::io::Errno::NOENT.into()),
        }
    }

    /// The entry that the file would have now; `None` if it is no longer a file.
    pub fn file_now(&self) -> io::Result<Option<Entry>> {
        Ok(Some(self.look()?).filter(Metadata::is_file).map(|meta| meta.entry(Vec::new())))
    }

    /// Opens content that is read to its end. Non-blocking: the reader waits until somebody writes to a pipe,
    /// and can give up.
    pub fn open_stream(&self) -> io::Result<File> {
        match self.place {
            TreePlace::StandardInput => Ok(io::stdin().as_fd().try_clone_to_owned()?.into()),
            _ => self.open(),
        }
    }

    /// Opens the file for reading. Non-blocking, so that a pipe that has taken the file's place does not
    /// block us.
    pub(crate) fn open(&self) -> io::Result<File> {
        Ok(self.open_with(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)?.into())
    }

    pub(super) fn open_with(&self, flags: OFlags) -> io::Result<OwnedFd> {
        match &self.place {
            TreePlace::Named(path) | TreePlace::Device(path) => {
                Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
            }
            TreePlace::NamedBeneath(root, path) => root.open_followed(path, flags),
            TreePlace::Child(parent, name) => parent.open_in(name, flags | OFlags::NOFOLLOW),
            TreePlace::FollowedChild(parent, name) => parent.open_in(name, flags),
            TreePlace::StandardInput | TreePlace::Generated(_) => Err(rustix::io::Errno::NOENT.into()),
        }
    }
}

/// A path below a root, from what a user wrote.
fn plain_path(path: &Path) -> io::Result<RelPath> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.first() == Some(&b'/') {
        let shown = farhaul_text::escape(OsStr::as_bytes(path.as_os_str()));
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{shown}: absolute path below a root"),
        ));
    }
    RelPath::from_written(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
