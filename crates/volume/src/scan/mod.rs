//! Scans the sources of a transfer: depth first, one buffer of names at a time, in the order of each
//! directory.
//!
//! Always true: memory and open descriptors are bounded by the depth of the tree, not by the number of its
//! entries. No symbolic link below a source is followed unless that is asked for. A directory's `Entry` comes
//! before everything in it, and its `DirEnd` after. If a source has several places, each name is given once,
//! from the first place that has it.

mod directory;
mod inodes;
mod level;
mod overlap;
mod selection;
mod sizes;
mod special_source;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farhaul_text::plain;
use rustix::fs::{self, AtFlags, OFlags};

use crate::entry::{Entry, EntryKind, Metadata};
use crate::filter::{Filter, FilterSide};
use crate::generated_source::GeneratedSource;
use crate::rel_path::RelPath;
use crate::root::Root;
pub use directory::SourceRef;
use directory::{Directory, FdCache};
pub use inodes::HardLinkTrust;
use inodes::Inodes;
use level::{LevelPart, ListingLevel, SCRATCH_BYTES};
use overlap::Overlap;
pub use selection::Selection;
use selection::{SelectedNames, SelectionPart};
use sizes::Sizes;
pub use special_source::SpecialSources;
pub(crate) use special_source::size_of_device;

/// How many levels of directories stay open; in deeper trees, the upper ones are closed and opened again on
/// the way back.
const OPEN_LEVELS: usize = 32;

/// One source of a transfer.
#[derive(Debug, Clone)]
pub struct Source {
    /// The path to open. If it is a symbolic link, that is followed, as the user named it.
    pub path: PathBuf,
    /// Further places of the source: their contents form one tree. An entry in several places must be a
    /// directory in all of them, or the same file by size and time.
    pub also: Vec<PathBuf>,
    /// The name at the destination. If empty, the content of a directory goes straight into the destination,
    /// which gets the directory's own entry.
    pub dest: RelPath,
    /// The roots that the paths of its places are relative to, and must not leave: one for each place, or one
    /// for all. If empty, the paths may lead anywhere.
    pub beneath: Vec<Root>,
    /// The content is generated, not read; `path` only names it.
    pub generated: Option<GeneratedSource>,
}

impl Source {
    fn places(&self) -> impl Iterator<Item = SourcePlace<'_>> {
        let paths = std::iter::once(&self.path).chain(&self.also);
        paths.enumerate().map(|(number, path)| SourcePlace { path, root: self.root_of(number) })
    }

    /// The root that place `number` must not leave.
    fn root_of(&self, number: usize) -> Option<&Root> {
        self.beneath.get(number).or(self.beneath.first())
    }

    /// Whether there is an entry in any of its places.
    pub fn exists(&self) -> bool {
        self.places().any(|place| SourceRef::of_place(place).is_ok_and(|handle| handle.look().is_ok()))
    }

    /// Whether it has an entry of this path, in any of its places.
    pub fn has(&self, path: &RelPath) -> bool {
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let below = |place: &PathBuf| place.join(path);
        let also = self.also.iter().map(below).collect();
        Source { path: below(&self.path), also, ..self.clone() }.exists()
    }

    /// The file system and the inode of its directory. Of a source in several places these are numbers that
    /// differ as soon as one of the places is another one.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let mut whole = (0_u64, 0_u64);
        for place in self.places() {
            let fd = SourceRef::of_place(place)?.open_with(OFlags::PATH | OFlags::CLOEXEC)?;
            let meta = fs::fstat(&fd)?;
            // Numbers of devices may change when the host starts again, those of file systems seldom do.
            let file_system = fs::fstatvfs(&fd)?.f_fsid;
            let file_system = if file_system == 0 { meta.st_dev } else { file_system };
            whole = (whole.0.rotate_left(9) ^ file_system, whole.1.rotate_left(9) ^ meta.st_ino);
        }
        Ok(whole)
    }
}

/// One of the places of a source.
#[derive(Debug, Clone, Copy)]
struct SourcePlace<'a> {
    path: &'a Path,
    root: Option<&'a Root>,
}

/// The options of a scan.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions {
    /// Asked with the paths that the scan returns.
    pub filter: Filter,
    pub limits: SizeLimits,
    /// If set, only these entries are taken, by their paths at the destination.
    pub only: Option<Selection>,
    /// Symbolic links are replaced by what they lead to; below a root only if that is inside it.
    pub follow: bool,
    /// A directory on another mount or device than its source is given without its content. Names that are
    /// asked for are still given.
    pub one_file_system: bool,
    /// Named sources of these kinds are sent as special files.
    pub nodes: SpecialSources,
    /// Other files have one name (`nlink` is 1 in their entries).
    pub hard_links: HardLinkTrust,
    /// Directories this deep below their source are given but not entered: 1 gives only what is in the source
    /// itself.
    pub depth_max: Option<usize>,
}

impl ScanOptions {
    fn excludes(&self, path: &RelPath, entry: &Entry) -> bool {
        // The source itself was named by the user, and has no path that a rule could match.
        !path.is_empty()
            && self.filter.excludes(path.as_bytes(), entry.kind == EntryKind::Dir, FilterSide::Sender)
    }
}

/// The limits that plain files have to keep to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeLimits {
    /// In bytes.
    pub size_min: Option<u64>,
    pub size_max: Option<u64>,
    /// In seconds since 1970.
    pub mtime_min: Option<i64>,
    pub mtime_max: Option<i64>,
}

impl SizeLimits {
    fn allow(&self, entry: &Entry) -> bool {
        let EntryKind::File { size, .. } = entry.kind else { return true };
        let time = entry.mtime.secs;
        self.size_min.is_none_or(|min| size >= min)
            && self.size_max.is_none_or(|max| size <= max)
            && self.mtime_min.is_none_or(|min| time >= min)
            && self.mtime_max.is_none_or(|max| time <= max)
    }
}

/// A result of the scan.
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
    /// The content of this directory, which ends next, is not given or not complete, as something is mounted
    /// there.
    Unlisted {
        path: RelPath,
    },
    /// A file outside the limits.
    LeftOut {
        path: RelPath,
    },
    /// An entry that could not be looked at; the scan goes on.
    Failed {
        path: Vec<u8>,
        error: io::Error,
    },
    /// An entry that was listed, but vanished before it was looked at. If it is a directory that has been
    /// given already (`is_open`), it vanished while it was listed, and may have had more entries.
    Vanished {
        path: Vec<u8>,
        is_open: bool,
    },
}

/// A running scan.
pub struct Scanner {
    sources: VecDeque<Source>,
    stack: Vec<ListingLevel>,
    cache: Arc<FdCache>,
    scratch: Vec<std::mem::MaybeUninit<u8>>,
    options: ScanOptions,
    sizes: Sizes,
    inodes: Inodes,
    overlap: Overlap,
    /// The source that is being scanned.
    source: Option<Source>,
    /// Names that were asked for but cannot be reached; they are reported next.
    unreachable: Option<Unreachable>,
}

/// Names below an entry that is missing or cannot be entered, and the reason.
struct Unreachable {
    names: SelectedNames,
    error: io::Error,
}

impl Scanner {
    pub fn new(sources: Vec<Source>, options: ScanOptions) -> Scanner {
        let scratch = vec![std::mem::MaybeUninit::uninit(); SCRATCH_BYTES];
        Scanner {
            overlap: Overlap::new(&sources),
            sources: sources.into(),
            stack: Vec::new(),
            cache: Arc::default(),
            scratch,
            options,
            sizes: Sizes::default(),
            inodes: Inodes::default(),
            source: None,
            unreachable: None,
        }
    }

    /// The next result; `None` at the end.
    #[allow(
        clippy::should_implement_trait,
        reason = "also an iterator, but callers should not need the trait"
    )]
    pub fn next(&mut self) -> Option<ScanItem> {
        loop {
            if let Some(item) = self.next_unreachable() {
                return Some(item);
            }
            let Some(level) = self.stack.last_mut() else {
                let source = self.sources.pop_front()?;
                match self.begin(source) {
                    Some(item) => return Some(item),
                    None => continue,
                }
            };
            match level.next_name(&mut self.scratch) {
                Err((place, error)) => {
                    let path = level.shown_path();
                    // The source itself was named by the user, so it has to exist.
                    let is_named = self.stack.len() == 1;
                    return Some(match is_absent(&error) && !is_named {
                        true => ScanItem::Vanished { path, is_open: true },
                        false => ScanItem::Failed { path, error: self.in_place(place, error) },
                    });
                }
                Ok(None) => {
                    self.unreachable = level.next_missing();
                    if self.unreachable.is_some() {
                        continue;
                    }
                    if level.take_unlisted() {
                        return Some(ScanItem::Unlisted { path: level.path().clone() });
                    }
                    return self.stack.pop().map(ListingLevel::end);
                }
                Ok(Some((name, part))) if level.is_ours(&name, part) => {}
                Ok(Some((name, part))) if level.parts().len() > 1 => {
                    if let Some(item) = self.merge(name, part) {
                        return Some(item);
                    }
                }
                Ok(Some((name, _))) => match look(level, &name) {
                    Ok((path, entry))
                        if self.options.follow && matches!(entry.kind, EntryKind::Symlink { .. }) =>
                    {
                        if let Some(item) = self.follow(name, path) {
                            return Some(item);
                        }
                    }
                    Ok((path, entry)) if self.options.excludes(&path, &entry) => {}
                    Ok((path, entry)) if !self.options.limits.allow(&entry) => {
                        let below = level.take_below();
                        return Some(self.left_out(path, below));
                    }
                    Ok((path, entry)) => {
                        if let Some(item) = self.found(name, path, entry, &[0]) {
                            return Some(item);
                        }
                    }
                    Err(error) => {
                        let (path, below) = (level.shown_child(&name), level.take_below());
                        if level.is_listed() && is_absent(&error) {
                            self.cannot_reach(below, error);
                            return Some(ScanItem::Vanished { path, is_open: false });
                        }
                        if let Some(item) = self.failed(path, below, error) {
                            return Some(item);
                        }
                    }
                },
            }
        }
    }

    /// Begins a source with its own entry, unless that is excluded.
    fn begin(&mut self, source: Source) -> Option<ScanItem> {
        self.try_begin(&source).unwrap_or_else(|error| {
            let path = source.path.as_os_str().as_bytes().to_vec();
            Some(ScanItem::Failed { path, error })
        })
    }

    fn try_begin(&mut self, source: &Source) -> io::Result<Option<ScanItem>> {
        let path = source.dest.clone();
        self.overlap.begin(source);
        if let Some(generated) = source.generated {
            let (entry, handle) = (generated.entry(), SourceRef::of_generated(generated));
            if let Some(error) = self.overlap.conflict(&path, &entry, &self.options) {
                return Err(error);
            }
            return Ok(Some(ScanItem::Entry { path, entry, handle }));
        }
        let below = match self.options.only.as_ref().map(|only| only.of_source(&path)) {
            None => SelectionPart::default(),
            Some(SelectionPart::Nothing) => return Ok(None),
            Some(part) => part,
        };
        self.source = Some(source.clone());
        let mut there = Vec::new();
        for (number, place) in source.places().enumerate() {
            match self.look_at(place) {
                Ok((handle, entry)) => there.push((number, handle, entry)),
                // The source has to exist in at least one of its places.
                Err(error) if is_absent(&error) && !source.also.is_empty() => {}
                Err(error) => return Err(self.in_place(number, error)),
            }
        }
        let (_, handle, entry) = there.first().cloned().ok_or(rustix::io::Errno::NOENT)?;
        if let Some((other, ..)) = there.iter().skip(1).find(|(_, _, other)| !is_same(&entry, other)) {
            return Err(self.conflict(there[0].0, *other));
        }
        if self.options.excludes(&path, &entry) {
            return Ok(None);
        }
        if !self.options.limits.allow(&entry) {
            return Ok(Some(ScanItem::LeftOut { path }));
        }
        if let Some(error) = self.overlap.conflict(&path, &entry, &self.options) {
            return Err(error);
        }
        if entry.kind == EntryKind::Dir {
            let mut parts = Vec::new();
            for (place, handle, _) in there {
                let directory = Directory::of_source(handle, &self.cache);
                let mount = if self.options.one_file_system { directory.mount()? } else { None };
                parts.push(LevelPart::new(directory, place, mount));
            }
            self.push(ListingLevel::new(parts, path.clone(), entry.clone(), below));
        } else if path.is_empty() || below.is_below() {
            return Err(rustix::io::Errno::NOTDIR.into());
        } else {
            self.cannot_reach(below, rustix::io::Errno::NOTDIR.into());
        }
        // The user has asked for the device, so its size is believed.
        let entry = if handle.is_device() { entry } else { self.judged(entry, &handle) };
        Ok(Some(ScanItem::Entry { path, entry, handle }))
    }

    /// The entry in one of a source's places.
    fn look_at(&self, place: SourcePlace<'_>) -> io::Result<(SourceRef, Entry)> {
        let handle = SourceRef::of_place(place)?;
        let meta = handle.look()?;
        special_source::taken(handle, &meta, self.options.nodes)
    }

    /// Handles a name of a directory in several places: it is given with the first of them, if the others
    /// fit.
    fn merge(&mut self, name: Vec<u8>, part: usize) -> Option<ScanItem> {
        let level = self.stack.last_mut().expect("the name was found in the level on top");
        let shown = level.shown_child(&name);
        let mut there: Vec<(usize, usize, RelPath, Entry)> = Vec::new();
        for number in 0..level.parts().len() {
            let place = level.parts()[number].place;
            match look_in(level, number, &name) {
                // An earlier part gives this name.
                Ok(_) if number < part => return None,
                Ok((path, entry)) => there.push((number, place, path, entry)),
                Err(error) if is_absent(&error) => {}
                Err(error) => {
                    let below = level.take_below();
                    let error = self.in_place(place, error);
                    return self.failed(shown, below, error);
                }
            }
        }
        let Some((_, first, path, entry)) = there.first().cloned() else {
            let (below, error) = (level.take_below(), rustix::io::Errno::NOENT.into());
            if level.is_listed() {
                self.cannot_reach(below, error);
                return Some(ScanItem::Vanished { path: shown, is_open: false });
            }
            return self.failed(shown, below, error);
        };
        if self.options.excludes(&path, &entry) {
            return None;
        }
        if let Some((_, other, ..)) = there.iter().find(|(.., other)| !is_same(&entry, other)) {
            let below = level.take_below();
            let error = self.conflict(first, *other);
            return self.failed(shown, below, error);
        }
        if !self.options.limits.allow(&entry) {
            let below = level.take_below();
            return Some(self.left_out(path, below));
        }
        let parts: Vec<_> = there.iter().map(|(number, ..)| *number).collect();
        self.found(name, path, entry, &parts)
    }

    /// Reports an entry that cannot be given. Each name below it that was asked for fails by itself; these
    /// are reported next. If only they were asked for, the entry itself does not fail.
    fn failed(&mut self, path: Vec<u8>, below: SelectionPart, error: io::Error) -> Option<ScanItem> {
        let is_asked = !below.is_below();
        self.cannot_reach(below, same_error(&error));
        is_asked.then_some(ScanItem::Failed { path, error })
    }

    /// Names below what is missing, or is no directory, fail next.
    fn cannot_reach(&mut self, below: SelectionPart, error: io::Error) {
        self.unreachable = below.into_names().map(|names| Unreachable { names, error });
    }

    /// Reports a file outside the limits.
    fn left_out(&mut self, path: RelPath, below: SelectionPart) -> ScanItem {
        self.cannot_reach(below, rustix::io::Errno::NOTDIR.into());
        ScanItem::LeftOut { path }
    }

    fn next_unreachable(&mut self) -> Option<ScanItem> {
        let Unreachable { names, error } = self.unreachable.as_mut()?;
        let item = names.next_path().map(|path| ScanItem::Failed { path, error: same_error(error) });
        if item.is_none() {
            self.unreachable = None;
        }
        item
    }

    /// Handles an entry that `parts` of the directory on top have.
    fn found(&mut self, name: Vec<u8>, path: RelPath, entry: Entry, parts: &[usize]) -> Option<ScanItem> {
        let enters = self.enters();
        let level = self.stack.last_mut().expect("the name was found in the level on top");
        let below = level.take_below();
        if below.is_below() && entry.kind != EntryKind::Dir {
            let error = no_directory(&name, &entry);
            return self.failed(path.into_bytes(), below, error);
        }
        let handle = SourceRef::child(&level.parts()[parts[0]].directory(), &name);
        if let Some(error) = self.overlap.conflict(&path, &entry, &self.options) {
            return self.failed(path.into_bytes(), below, error);
        }
        if entry.kind != EntryKind::Dir {
            self.cannot_reach(below, no_directory(&name, &entry));
        } else if enters {
            let enter = |asked| {
                let part = |&number: &usize| {
                    let above = &level.parts()[number];
                    above.below(Directory::child(&above.directory(), name.clone(), &self.cache), asked)
                };
                parts.iter().filter_map(part).collect()
            };
            let (inside, below, is_unlisted) = entered(below, parts.len(), enter);
            let level = ListingLevel::new(inside, path.clone(), entry.clone(), below);
            self.push(level.unlisted(is_unlisted));
        }
        let entry = self.judged(entry, &handle);
        Some(ScanItem::Entry { path, entry, handle })
    }

    /// Adds the place to an error, if the source has several.
    fn in_place(&self, place: usize, error: io::Error) -> io::Error {
        let Some(source) = self.source.as_ref().filter(|source| !source.also.is_empty()) else {
            return error;
        };
        let place = source.places().nth(place).map(|place| shown(place.path)).unwrap_or_default();
        io::Error::new(error.kind(), format!("{place}: {}", plain(&error)))
    }

    fn conflict(&self, one: usize, other: usize) -> io::Error {
        let places = self.source.iter().flat_map(Source::places).map(|place| shown(place.path));
        let places: Vec<_> = places.collect();
        io::Error::other(format!("it is in {} and in {}, but they differ", places[one], places[other]))
    }

    /// Handles a link in the directory on top that is replaced by what it leads to; returns `None` if that is
    /// excluded.
    fn follow(&mut self, name: Vec<u8>, path: RelPath) -> Option<ScanItem> {
        let level = self.stack.last_mut().expect("the name was found in the level on top");
        let (parent, below, is_listed) =
            (level.parts()[0].directory(), level.take_below(), level.is_listed());
        let shown = || path.as_bytes().to_vec();
        let handle = match SourceRef::followed(self.source.as_ref(), &parent, &name, &path) {
            Ok(handle) => handle,
            Err(error) => return self.failed(shown(), below, error),
        };
        let entry = match handle.look() {
            Ok(meta) => meta.entry(Vec::new()),
            Err(error) if is_absent(&error) => {
                let link = SourceRef::child(&parent, &name).look();
                if is_listed && link.is_err_and(|error| is_absent(&error)) {
                    self.cannot_reach(below, error);
                    return Some(ScanItem::Vanished { path: shown(), is_open: false });
                }
                let error = io::Error::new(error.kind(), "the symbolic link leads nowhere");
                return self.failed(shown(), below, error);
            }
            Err(error) => return self.failed(shown(), below, error),
        };
        if self.options.excludes(&path, &entry) {
            return None;
        }
        if !self.options.limits.allow(&entry) {
            return Some(self.left_out(path, below));
        }
        if below.is_below() && entry.kind != EntryKind::Dir {
            return self.failed(shown(), below, rustix::io::Errno::NOTDIR.into());
        }
        if let Some(error) = self.overlap.conflict(&path, &entry, &self.options) {
            return self.failed(shown(), below, error);
        }
        if entry.kind != EntryKind::Dir {
            self.cannot_reach(below, rustix::io::Errno::NOTDIR.into());
        } else if self.enters() {
            if self.stack.iter().any(|level| level.is(&entry)) {
                let error = io::Error::other("the symbolic link leads to a directory above it");
                return self.failed(shown(), below, error);
            }
            let directory = Directory::of_source(handle.clone(), &self.cache);
            let level = self.stack.last_mut().expect("the link was found in the level on top");
            let enter = |asked: bool| level.parts()[0].below(directory.clone(), asked).into_iter().collect();
            let (inside, below, is_unlisted) = entered(below, 1, enter);
            let level = ListingLevel::new(inside, path.clone(), entry.clone(), below);
            self.push(level.unlisted(is_unlisted));
        }
        let entry = self.judged(entry, &handle);
        Some(ScanItem::Entry { path, entry, handle })
    }

    /// The entry as far as its file system can be believed.
    fn judged(&mut self, entry: Entry, handle: &SourceRef) -> Entry {
        let entry = self.sizes.judged(entry, handle);
        self.inodes.judged(entry, handle, self.options.hard_links)
    }

    /// The number of names so far that are given as files of their own although their file system says that
    /// they are names of files with several.
    pub fn doubted_links(&self) -> u64 {
        self.inodes.doubted
    }

    /// Whether a directory in the one on top may still be entered by its depth.
    fn enters(&self) -> bool {
        self.options.depth_max.is_none_or(|max| self.stack.len() < max)
    }

    fn push(&mut self, level: ListingLevel) {
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

fn look(level: &mut ListingLevel, name: &[u8]) -> io::Result<(RelPath, Entry)> {
    look_in(level, 0, name)
}

/// Enters a directory that `count` places have; returns also what is wanted of it, and whether something is
/// mounted there that is not listed. Of that, the names that were asked for are given.
fn entered(
    wanted: SelectionPart,
    count: usize,
    mut enter: impl FnMut(bool) -> Vec<LevelPart>,
) -> (Vec<LevelPart>, SelectionPart, bool) {
    let inside = enter(wanted.is_below());
    let is_unlisted = inside.len() < count;
    match wanted {
        SelectionPart::All(Some(names)) if inside.is_empty() => {
            (enter(true), SelectionPart::Below(names), true)
        }
        // In one of the places it is mounted, so the listing cannot tell what is missing.
        SelectionPart::All(_) if is_unlisted => (inside, SelectionPart::default(), true),
        wanted => (inside, wanted, is_unlisted),
    }
}

/// Why there can be no names below an entry.
fn no_directory(name: &[u8], entry: &Entry) -> io::Error {
    match entry.kind {
        EntryKind::Symlink { .. } => {
            let what =
                format!("{} is a symbolic link; it is followed with `follow`", farhaul_text::escape(name));
            io::Error::new(io::ErrorKind::NotADirectory, what)
        }
        _ => rustix::io::Errno::NOTDIR.into(),
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// A second error with the same meaning, since errors cannot be cloned.
fn same_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

fn shown(place: &Path) -> String {
    farhaul_text::escape(place.as_os_str().as_bytes())
}

/// Whether two entries of the same name count as the same.
fn is_same(one: &Entry, other: &Entry) -> bool {
    match (&one.kind, &other.kind) {
        (EntryKind::Dir, EntryKind::Dir) => true,
        (EntryKind::File { size, .. }, EntryKind::File { size: other_size, .. }) => {
            size == other_size && one.mtime == other.mtime
        }
        (EntryKind::Stream { .. }, _) => false,
        (one, other) => one == other,
    }
}

fn look_in(level: &mut ListingLevel, part: usize, name: &[u8]) -> io::Result<(RelPath, Entry)> {
    let path =
        level.path().join(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))?;
    let dir = level.parts()[part].fd()?;
    let meta = Metadata::from(&fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?);
    let target = match meta.kind {
        crate::entry::FileKind::Symlink => fs::readlinkat(&dir, name, Vec::new())?.into_bytes(),
        _ => Vec::new(),
    };
    Ok((path, meta.entry(target)))
}

#[cfg(test)]
mod tests;
