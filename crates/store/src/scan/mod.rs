//! Finding what a transfer takes along: depth first, one directory buffer at a time, in whatever order the directory has.
//!
//! Always true: memory and open descriptors are bounded by the depth of the tree, never by the number of its entries; no
//! symbolic link below a source is followed; a directory's `Entry` comes before everything in it, its `DirEnd` after.

mod directory;
mod level;

use std::collections::VecDeque;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{self, AtFlags};

use crate::entry::{Entry, Kind, Meta};
use crate::generated::Generated;
use crate::names;
use crate::path::RelPath;
use crate::root::Root;
pub use directory::SourceRef;
use directory::{Directory, FdCache};
use level::{Level, SCRATCH_BYTES};

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

/// Choices of a scan. There are none yet.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ScanOptions {}

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
}

impl Scanner {
    pub fn new(sources: Vec<Source>, _options: ScanOptions) -> Scanner {
        let scratch = vec![std::mem::MaybeUninit::uninit(); SCRATCH_BYTES];
        Scanner { sources: sources.into(), stack: Vec::new(), cache: Arc::default(), scratch }
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
                return Some(self.begin(source));
            };
            match level.next_name(&mut self.scratch) {
                Err(error) => return Some(ScanItem::Failed { path: level.shown_path(), error }),
                Ok(None) => return self.stack.pop().map(Level::end),
                Ok(Some(name)) if names::is_ours(&name) => {}
                Ok(Some(name)) => match look(level, &name) {
                    Ok((path, entry)) => return Some(self.found(name, path, entry)),
                    Err(error) => return Some(ScanItem::Failed { path: level.shown_child(&name), error }),
                },
            }
        }
    }

    /// Starts a source with its own entry.
    fn begin(&mut self, source: Source) -> ScanItem {
        self.try_begin(&source).unwrap_or_else(|error| {
            let path = source.path.as_os_str().as_bytes().to_vec();
            ScanItem::Failed { path, error }
        })
    }

    fn try_begin(&mut self, source: &Source) -> io::Result<ScanItem> {
        if let Some(generated) = source.generated {
            let (path, handle) = (source.dest.clone(), SourceRef::of_generated(generated));
            return Ok(ScanItem::Entry { path, entry: generated.entry(), handle });
        }
        let handle = SourceRef::of_source(source, &self.cache)?;
        let (meta, target) = handle.look()?;
        let entry = meta.entry(target);
        if entry.kind == Kind::Dir {
            let directory = Directory::of_source(handle.clone(), &self.cache);
            self.push(Level::new(directory, source.dest.clone(), entry.clone()));
        } else if source.dest.is_empty() {
            return Err(rustix::io::Errno::NOTDIR.into());
        }
        Ok(ScanItem::Entry { path: source.dest.clone(), entry, handle })
    }

    fn found(&mut self, name: Vec<u8>, path: RelPath, entry: Entry) -> ScanItem {
        let parent = self.stack.last().map(Level::directory).expect("the name was found in the level on top");
        let handle = SourceRef::child(&parent, &name);
        if entry.kind == Kind::Dir {
            let directory = Directory::child(&parent, name, &self.cache);
            self.push(Level::new(directory, path.clone(), entry.clone()));
        }
        ScanItem::Entry { path, entry, handle }
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
