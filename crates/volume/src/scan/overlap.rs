//! Finds sources that meet at the destination: the contents of two directories (`a/ b/`), or a named source
//! beside a content that has the same name. Directories of the same name are merged; of anything else, the
//! first stays and the second fails.
//!
//! Always true: no names are remembered; instead, earlier sources are asked whether they have a name. If no
//! source is a directory's content, nothing is asked, as all names differ then.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, OFlags};

use super::{ScanOptions, Source, SourcePlace, shown};
use crate::entry::{Entry, EntryKind, FileKind, Metadata};
use crate::rel_path::RelPath;

#[derive(Default)]
pub(super) struct Overlap {
    may_meet: bool,
    earlier: Vec<Source>,
    current: Option<Source>,
}

impl Overlap {
    pub(super) fn new(sources: &[Source]) -> Overlap {
        let may_meet = sources.len() > 1 && sources.iter().any(|source| source.dest.is_empty());
        Overlap { may_meet, ..Overlap::default() }
    }

    pub(super) fn begin(&mut self, source: &Source) {
        if self.may_meet {
            self.earlier.extend(self.current.replace(source.clone()));
        }
    }

    /// Why `entry` cannot get the name `path`, if an earlier source has that.
    pub(super) fn conflict(&self, path: &RelPath, entry: &Entry, options: &ScanOptions) -> Option<io::Error> {
        if path.is_empty() {
            return None;
        }
        let taken = self.earlier.iter().find_map(|source| {
            let inner = below(source, path)?;
            source.places().find_map(|place| {
                let there = look(source, place, inner, options.follow)?;
                is_taken(&there, path, entry, options).then(|| joined(place.path, inner))
            })
        })?;
        let taken = shown(Path::new(OsStr::from_bytes(&taken)));
        let what = format!("another source has the same name, and stays: {taken}");
        Some(io::Error::new(io::ErrorKind::AlreadyExists, what))
    }
}

/// The path within a source of the entry that goes to `path`, if it can have one.
fn below<'a>(source: &Source, path: &'a RelPath) -> Option<&'a [u8]> {
    if source.dest.is_empty() {
        return Some(path.as_bytes());
    }
    let rest = path.as_bytes().strip_prefix(source.dest.as_bytes())?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

fn joined(place: &Path, inner: &[u8]) -> Vec<u8> {
    let mut path = place.as_os_str().as_bytes().to_vec();
    if !inner.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(inner);
    path
}

fn look(source: &Source, place: SourcePlace<'_>, inner: &[u8], follow: bool) -> Option<Metadata> {
    if source.generated.is_some() {
        // No other named source has its name.
        return None;
    }
    // The source itself is followed, as the user named it.
    let follow = follow || inner.is_empty();
    let path = joined(place.path, inner);
    match place.root {
        None => {
            let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            Some(Metadata::from(&fs::statat(fs::CWD, &path[..], flags).ok()?))
        }
        Some(root) => {
            let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
            let there = root.open_followed(&RelPath::from_written(&path).ok()?, flags).ok()?;
            Some(Metadata::from(&fs::fstat(there).ok()?))
        }
    }
}

/// Whether an earlier source has sent the entry that it has there, and the two are not directories that can
/// be merged.
fn is_taken(there: &Metadata, path: &RelPath, entry: &Entry, options: &ScanOptions) -> bool {
    let earlier = there.entry(Vec::new());
    let is_sent = match there.kind {
        // The receiver handles two of them, or one in the place of another entry.
        FileKind::Special(_) => false,
        FileKind::File | FileKind::Dir | FileKind::Symlink => {
            !options.excludes(path, &earlier) && options.limits.allow(&earlier)
        }
    };
    is_sent && !(there.is_dir() && entry.kind == EntryKind::Dir)
}
