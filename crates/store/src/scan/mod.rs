//! Finding what a transfer takes along: depth first, one directory buffer at a time, in whatever order the directory has.
//!
//! Always true: memory and open descriptors are bounded by the depth of the tree, never by the number of its entries; no
//! symbolic link below a source is followed; a directory's `Entry` comes before everything in it, its `DirEnd` after.

mod directory;
mod level;
mod selection;

use std::collections::VecDeque;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{self, AtFlags};

use crate::entry::{Entry, Kind, Meta};
use crate::filter::{Filter, Side};
use crate::generated::Generated;
use crate::names;
use crate::path::RelPath;
use crate::root::Root;
pub use directory::SourceRef;
use directory::{Directory, FdCache};
use level::{Level, SCRATCH_BYTES};
use selection::Asked;
pub use selection::Selection;

/// Levels whose directories stay open; deeper trees have the upper ones closed and opened again on the way back.
const OPEN_LEVELS: usize = 32;

/// One source of a transfer.
#[derive(Debug, Clone)]
pub struct Source {
    /// What to open. A symbolic link here was named by the user and is followed, unless `beneath` is set.
    pub path: PathBuf,
    /// The name under which it goes. Empty: the content of a directory goes straight into the destination, for which the
    /// directory's own entry stands.
    pub dest: RelPath,
    /// The path is relative to this root and does not leave it.
    pub beneath: Option<Root>,
    /// The content is made, not read; `path` only names it.
    pub generated: Option<Generated>,
}

/// Choices of a scan.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions {
    /// Asked with paths as they are given out.
    pub filter: Filter,
    pub limits: Limits,
    /// Nothing but this, by the names under which things go.
    pub only: Option<Selection>,
    /// Symbolic links are taken for what they lead to, below a root only while they stay there.
    pub follow: bool,
}

impl ScanOptions {
    fn excludes(&self, path: &RelPath, entry: &Entry) -> bool {
        // The place itself is what the user named, and has no name to be judged by.
        !path.is_empty() && self.filter.excludes(path.as_bytes(), entry.kind == Kind::Dir, Side::Sender)
    }
}

/// Plain files outside of these are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes.
    pub size_min: Option<u64>,
    pub size_max: Option<u64>,
    /// Seconds since 1970.
    pub mtime_min: Option<i64>,
    pub mtime_max: Option<i64>,
}

impl Limits {
    fn allow(&self, entry: &Entry) -> bool {
        let Kind::File { size, .. } = entry.kind else { return true };
        let time = entry.mtime.secs;
        self.size_min.is_none_or(|min| size >= min)
            && self.size_max.is_none_or(|max| size <= max)
            && self.mtime_min.is_none_or(|min| time >= min)
            && self.mtime_max.is_none_or(|max| time <= max)
    }
}

/// What a scan comes upon.
#[derive(Debug)]
pub enum ScanItem {
    Entry {
        path: RelPath,
        entry: Entry,
        handle: SourceRef,
    },
    /// Everything in this directory has been given.
    DirEnd {
        path: RelPath,
        entry: Entry,
    },
    /// A file outside the limits.
    LeftOut {
        path: RelPath,
    },
    /// This could not be looked at; the scan goes on.
    Failed {
        path: Vec<u8>,
        error: io::Error,
    },
}

/// A running scan.
pub struct Scanner {
    sources: VecDeque<Source>,
    stack: Vec<Level>,
    cache: Arc<FdCache>,
    scratch: Vec<std::mem::MaybeUninit<u8>>,
    options: ScanOptions,
    /// The source being scanned.
    source: Option<Source>,
}

impl Scanner {
    pub fn new(sources: Vec<Source>, options: ScanOptions) -> Scanner {
        let scratch = vec![std::mem::MaybeUninit::uninit(); SCRATCH_BYTES];
        Scanner {
            sources: sources.into(),
            stack: Vec::new(),
            cache: Arc::default(),
            scratch,
            options,
            source: None,
        }
    }

    /// The next thing found; none at the end.
    #[allow(
        clippy::should_implement_trait,
        reason = "also an iterator, but callers should not need the trait"
    )]
    pub fn next(&mut self) -> Option<ScanItem> {
        loop {
            let Some(level) = self.stack.last_mut() else {
                let source = self.sources.pop_front()?;
                match self.begin(source) {
                    Some(item) => return Some(item),
                    None => continue,
                }
            };
            match level.next_name(&mut self.scratch) {
                Err(error) => return Some(ScanItem::Failed { path: level.shown_path(), error }),
                Ok(None) => return self.stack.pop().map(Level::end),
                Ok(Some(name)) if names::is_ours(&name) => {}
                Ok(Some(name)) => match look(level, &name) {
                    Ok((path, entry))
                        if self.options.follow && matches!(entry.kind, Kind::Symlink { .. }) =>
                    {
                        if let Some(item) = self.follow(name, path) {
                            return Some(item);
                        }
                    }
                    Ok((path, entry)) if self.options.excludes(&path, &entry) => {}
                    Ok((path, entry)) if !self.options.limits.allow(&entry) => {
                        return Some(ScanItem::LeftOut { path });
                    }
                    Ok((path, entry)) => return Some(self.found(name, path, entry)),
                    Err(error) => return Some(ScanItem::Failed { path: level.shown_child(&name), error }),
                },
            }
        }
    }

    /// Starts a source with its own entry, unless that is left out.
    fn begin(&mut self, source: Source) -> Option<ScanItem> {
        self.try_begin(&source).unwrap_or_else(|error| {
            let path = source.path.as_os_str().as_bytes().to_vec();
            Some(ScanItem::Failed { path, error })
        })
    }

    fn try_begin(&mut self, source: &Source) -> io::Result<Option<ScanItem>> {
        let path = source.dest.clone();
        if let Some(generated) = source.generated {
            let handle = SourceRef::of_generated(generated);
            return Ok(Some(ScanItem::Entry { path, entry: generated.entry(), handle }));
        }
        let below = match self.options.only.as_ref().map(|only| only.of_source(&path)) {
            None | Some(Asked::All) => None,
            Some(Asked::Below(names)) => Some(names),
            Some(Asked::Nothing) => return Ok(None),
        };
        self.source = Some(source.clone());
        let mut handle = SourceRef::of_source(source, &self.cache)?;
        let (mut meta, mut target) = handle.look()?;
        if let (true, crate::entry::FileKind::Symlink) = (self.options.follow, meta.kind) {
            handle = handle.follow();
            (meta, target) = handle.look()?;
        }
        let entry = meta.entry(target);
        if self.options.excludes(&path, &entry) {
            return Ok(None);
        }
        if !self.options.limits.allow(&entry) {
            return Ok(Some(ScanItem::LeftOut { path }));
        }
        if entry.kind == Kind::Dir {
            let directory = Directory::of_source(handle.clone(), &self.cache);
            self.push(Level::new(directory, path.clone(), entry.clone(), below));
        } else if path.is_empty() || below.is_some() {
            return Err(rustix::io::Errno::NOTDIR.into());
        }
        Ok(Some(ScanItem::Entry { path, entry, handle }))
    }

    fn found(&mut self, name: Vec<u8>, path: RelPath, entry: Entry) -> ScanItem {
        let level = self.stack.last_mut().expect("the name was found in the level on top");
        let (parent, below) = (level.directory(), level.take_below());
        if below.is_some() && entry.kind != Kind::Dir {
            return ScanItem::Failed { path: path.into_bytes(), error: rustix::io::Errno::NOTDIR.into() };
        }
        let handle = SourceRef::child(&parent, &name);
        if entry.kind == Kind::Dir {
            let directory = Directory::child(&parent, name, &self.cache);
            self.push(Level::new(directory, path.clone(), entry.clone(), below));
        }
        ScanItem::Entry { path, entry, handle }
    }

    /// A link in the directory on top, taken for what it leads to; none if that is left out.
    fn follow(&mut self, name: Vec<u8>, path: RelPath) -> Option<ScanItem> {
        let failed = |path: &RelPath, error| Some(ScanItem::Failed { path: path.as_bytes().to_vec(), error });
        let level = self.stack.last_mut().expect("the name was found in the level on top");
        let (parent, below) = (level.directory(), level.take_below());
        let handle = match SourceRef::followed(self.source.as_ref(), &parent, &name, &path) {
            Ok(handle) => handle,
            Err(error) => return failed(&path, error),
        };
        let entry = match handle.look() {
            Ok((meta, _)) => meta.entry(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return failed(&path, io::Error::new(error.kind(), "the symbolic link leads nowhere"));
            }
            Err(error) => return failed(&path, error),
        };
        if self.options.excludes(&path, &entry) {
            return None;
        }
        if !self.options.limits.allow(&entry) {
            return Some(ScanItem::LeftOut { path });
        }
        if below.is_some() && entry.kind != Kind::Dir {
            return failed(&path, rustix::io::Errno::NOTDIR.into());
        }
        if entry.kind == Kind::Dir {
            if self.stack.iter().any(|level| level.is(&entry)) {
                return failed(&path, io::Error::other("the symbolic link leads to a directory above it"));
            }
            let directory = Directory::of_source(handle.clone(), &self.cache);
            self.push(Level::new(directory, path.clone(), entry.clone(), below));
        }
        Some(ScanItem::Entry { path, entry, handle })
    }

    fn push(&mut self, level: Level) {
        if let Some(upper) = self.stack.len().checked_sub(OPEN_LEVELS) {
            self.stack[upper].park();
        }
        self.stack.push(level);
    }
}

impl Iterator for Scanner {
    type Item = ScanItem;

    fn next(&mut self) -> Option<ScanItem> {
        Scanner::next(self)
    }
}

fn look(level: &mut Level, name: &[u8]) -> io::Result<(RelPath, Entry)> {
    let path =
        level.path().join(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))?;
    let dir = level.fd()?;
    let meta = Meta::from(&fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?);
    let target = match meta.kind {
        crate::entry::FileKind::Symlink => fs::readlinkat(&dir, name, Vec::new())?.into_bytes(),
        _ => Vec::new(),
    };
    Ok((path, meta.entry(target)))
}

#[cfg(test)]
mod tests;
