//! The directories that a destination keeps its files in: one, or several, each on a device of its own.
//!
//! Always true: a file is in only one of the directories, and stays there when it is replaced. A new file
//! goes to the directory to which the fewest bytes have gone, if it fits; if that one has no room after all,
//! it goes to another. The tree's directories are in all of them. With one directory, nothing is looked up,
//! counted or locked.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_volume::{Metadata, RelPath, Root, is_about_metadata, is_out_of_descriptors, name_error};

use super::report::SpreadFigures;

/// Bytes that a file counts for besides its content, so that many small files and a few large ones compare
/// fairly.
const FILE_BYTES: u64 = 4 << 10;

pub(crate) struct DestinationRoots {
    all: Vec<Root>,
    /// The names of the directories for the user, if there are several.
    names: Vec<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The load of each directory.
    loads: Vec<Load>,
    /// The files that are under way, and where each goes.
    assigned: HashMap<RelPath, Assigned>,
}

/// The directory of a file that is under way.
#[derive(Clone, Copy)]
struct Assigned {
    index: usize,
    size: u64,
    /// The directories that had no room for it, one bit each.
    refused_by: u64,
}

const _: () = assert!(crate::options::SPREAD_MAX <= u64::BITS as usize, "a bit for each directory");

#[derive(Default, Clone)]
struct Load {
    /// Bytes of all files that were assigned so far.
    assigned: u64,
    /// Bytes of files that are under way.
    under_way: u64,
    files: u64,
    bytes: u64,
    /// The size of the smallest file that found no room, though the file system reported enough: a quota
    /// applied, or no inode was left.
    refused: Option<u64>,
}

impl Load {
    fn refuses(&self, size: u64) -> bool {
        self.refused.is_some_and(|refused| refused <= size)
    }
}

impl DestinationRoots {
    pub(crate) fn one(root: Root) -> DestinationRoots {
        DestinationRoots { all: vec![root], names: Vec::new(), state: Mutex::default() }
    }

    pub(crate) fn several(roots: Vec<(String, Root)>) -> DestinationRoots {
        let state = State { loads: vec![Load::default(); roots.len()], ..State::default() };
        let (names, all) = roots.into_iter().unzip();
        DestinationRoots { all, names, state: Mutex::new(state) }
    }

    pub(crate) fn is_spread(&self) -> bool {
        self.all.len() > 1
    }

    /// The only directory, or the first one.
    pub(crate) fn first(&self) -> &Root {
        &self.all[0]
    }

    pub(crate) fn all(&self) -> &[Root] {
        &self.all
    }

    /// The directory that has the entry at `path`, or will have it.
    pub(crate) fn of(&self, path: &RelPath) -> &Root {
        &self.all[self.index_of(path).unwrap_or(0)]
    }

    /// The name of the directory that a file under way goes to.
    pub(crate) fn name_of(&self, path: &RelPath) -> Option<&str> {
        let index = self.state.lock().whole().assigned.get(path)?.index;
        self.names.get(index).map(String::as_str)
    }

    fn index_of(&self, path: &RelPath) -> Option<usize> {
        if !self.is_spread() {
            return None;
        }
        if let Some(assigned) = self.state.lock().whole().assigned.get(path) {
            return Some(assigned.index);
        }
        self.all.iter().position(|root| match root.metadata(path) {
            Ok(there) => there.is_some(),
            // Elsewhere, the file could become a second one of its name. Here, it waits for a descriptor.
            Err(error) => is_out_of_descriptors(&error),
        })
    }

    /// The entry at `path`. Fails if several of them have one there that is not a directory, as it could be
    /// any.
    pub(crate) fn metadata(&self, path: &RelPath) -> io::Result<Option<Metadata>> {
        self.only(|root| root.metadata(path))
    }

    /// As [`DestinationRoots::metadata`], for a name that is to be written ([`Root::lookup`]).
    pub(crate) fn lookup(&self, path: &RelPath) -> io::Result<Option<Metadata>> {
        self.only(|root| root.lookup(path))
    }

    /// Closes the directories that are only kept for later, and returns whether there were any.
    pub(crate) fn close_unused(&self) -> bool {
        self.all.iter().filter(|root| root.close_unused()).count() > 0
    }

    fn only(&self, look: impl Fn(&Root) -> io::Result<Option<Metadata>>) -> io::Result<Option<Metadata>> {
        let mut found: Option<(usize, Metadata)> = None;
        for (index, root) in self.all.iter().enumerate() {
            let Some(meta) = look(root)? else { continue };
            match &found {
                None => found = Some((index, meta)),
                Some((_, first)) if first.is_dir() && meta.is_dir() => {}
                Some((first, _)) => {
                    let (one, other) = (&self.names[*first], &self.names[index]);
                    return Err(io::Error::other(format!(
                        "it is in {one} and in {other}: remove one of them"
                    )));
                }
            }
        }
        Ok(found.map(|(_, meta)| meta))
    }

    /// Chooses where a file of `size` bytes goes: to the directory that has it, or a part of it; else to the
    /// one with the fewest bytes.
    pub(crate) fn assign(&self, path: &RelPath, size: u64) {
        if !self.is_spread() {
            return;
        }
        let there = self.index_of(path).or_else(|| self.all.iter().position(|root| has_partial(root, path)));
        let free = self.free(path);
        let mut state = self.state.lock().whole();
        if state.assigned.contains_key(path) {
            return;
        }
        let index = there.or_else(|| state.choose(&free, size, 0)).unwrap_or(0);
        state.assign(path, Assigned { index, size, refused_by: 0 });
    }

    /// Chooses another directory for a file, as its own turned out to have no room. Returns false if there is
    /// none, or if the file replaces an older version in its own.
    pub(crate) fn assign_elsewhere(&self, path: &RelPath) -> bool {
        let Some(Assigned { index, size, refused_by }) =
            self.state.lock().whole().assigned.get(path).copied()
        else {
            return false;
        };
        if !matches!(self.all[index].metadata(path), Ok(None)) {
            return false;
        }
        let free = self.free(path);
        let refused_by = refused_by | 1 << index;
        let mut state = self.state.lock().whole();
        let load = &mut state.loads[index];
        load.refused = Some(load.refused.map_or(size, |refused| refused.min(size)));
        let Some(other) = state.choose(&free, size, refused_by) else { return false };
        let load = &mut state.loads[index];
        load.assigned = load.assigned.saturating_sub(size.saturating_add(FILE_BYTES));
        load.under_way -= size;
        state.assign(path, Assigned { index: other, size, refused_by });
        drop(state);
        // A part that was left there would never be used.
        let _ = self.all[index].remove_partial(path);
        true
    }

    /// The free bytes in each directory for the entry at `path`; `None` if a directory lacks its parent.
    fn free(&self, path: &RelPath) -> Vec<Option<u64>> {
        let parent = path.parent().unwrap_or_default();
        let room = |root: &Root| match root.metadata(&parent) {
            Ok(Some(_)) => root.free_bytes(&parent).ok(),
            Ok(None) | Err(_) => None,
        };
        self.all.iter().map(room).collect()
    }

    /// Creates an entry without content where it is, or in the first directory that has room for it.
    pub(crate) fn make(&self, path: &RelPath, make: impl Fn(&Root) -> io::Result<()>) -> io::Result<()> {
        let first = self.of(path);
        let made = make(first);
        let is_refused = |made: &io::Result<()>| made.as_ref().is_err_and(is_full);
        if !self.is_spread() || !is_refused(&made) || !matches!(first.metadata(path), Ok(None)) {
            return made;
        }
        let others = self.all.iter().filter(|root| root.identity() != first.identity());
        others.map(make).find(|made| !is_refused(made)).unwrap_or(made)
    }

    /// Notes that a file is done; `arrived` is its size, if it has arrived.
    pub(crate) fn settle(&self, path: &RelPath, arrived: Option<u64>) {
        if !self.is_spread() {
            return;
        }
        let mut state = self.state.lock().whole();
        let Some(Assigned { index, size, .. }) = state.assigned.remove(path) else { return };
        let load = &mut state.loads[index];
        load.under_way -= size;
        if let Some(bytes) = arrived {
            load.files += 1;
            load.bytes += bytes;
        }
    }

    /// Notes a file that was there already.
    pub(crate) fn note_there(&self, path: &RelPath, size: u64) {
        if let Some(index) = self.index_of(path) {
            self.state.lock().whole().loads[index].assigned += size.saturating_add(FILE_BYTES);
        }
    }

    /// Creates a directory in all of them; returns true if none had it. A full one may lack it as long as
    /// another has room.
    pub(crate) fn make_dir(&self, make: impl Fn(&Root) -> io::Result<bool>) -> io::Result<bool> {
        let (mut is_new, mut is_anywhere) = (true, false);
        let mut full = None;
        for (index, root) in self.all.iter().enumerate() {
            match make(root) {
                Ok(made) => (is_new, is_anywhere) = (is_new && made, true),
                Err(error) if is_full(&error) => full = Some(self.named(index, error)),
                Err(error) => return Err(self.named(index, error)),
            }
        }
        full.filter(|_| !is_anywhere).map_or(Ok(is_new), Err)
    }

    /// Calls `work` for each directory that has one at `path`.
    pub(crate) fn each_with(
        &self,
        path: &RelPath,
        mut work: impl FnMut(&Root) -> io::Result<()>,
    ) -> io::Result<()> {
        for (index, root) in self.all.iter().enumerate() {
            if self.is_spread() && root.metadata(path)?.is_none() {
                continue;
            }
            work(root).map_err(|error| self.named(index, error))?;
        }
        Ok(())
    }

    /// The names in a directory, and for each whether it is a directory.
    pub(crate) fn list(&self, path: &RelPath) -> io::Result<Vec<(Vec<u8>, bool)>> {
        if !self.is_spread() {
            return self.first().list(path);
        }
        let mut names = HashSet::new();
        self.each_with(path, |root| {
            names.extend(root.list(path)?);
            Ok(())
        })?;
        Ok(names.into_iter().collect())
    }

    fn named(&self, index: usize, error: io::Error) -> io::Error {
        match self.names.get(index) {
            // A fault of a name is the same in all of them, and unset metadata is reported with the entry.
            Some(name) if name_error(&error).is_none() && !is_about_metadata(&error) => {
                io::Error::new(error.kind(), format!("{} (in {name})", super::failures::plain(&error)))
            }
            Some(_) | None => error,
        }
    }

    pub(crate) fn figures(&self) -> Vec<SpreadFigures> {
        let state = self.state.lock().whole();
        let figures = |(name, load): (&String, &Load)| SpreadFigures {
            directory: name.clone(),
            files: load.files,
            bytes: load.bytes,
        };
        self.names.iter().zip(&state.loads).map(figures).collect()
    }
}

impl State {
    /// The directory with the fewest bytes, preferably one with room, and never one that has refused the file
    /// (`refused_by`).
    fn choose(&self, free: &[Option<u64>], size: u64, refused_by: u64) -> Option<usize> {
        let least = |fits: &dyn Fn(usize) -> bool| {
            let all = (0..free.len()).filter(|&index| refused_by & 1 << index == 0 && free[index].is_some());
            all.filter(|&index| fits(index)).min_by_key(|&index| self.loads[index].assigned)
        };
        let takes = |index: usize| !self.loads[index].refuses(size);
        let in_all = |index: usize| size.saturating_add(self.loads[index].under_way);
        least(&|index| takes(index) && free[index] >= Some(in_all(index)))
            .or_else(|| least(&|index| takes(index) && free[index] >= Some(size)))
            .or_else(|| least(&|index| free[index] >= Some(size)))
            .or_else(|| least(&|_| true))
    }

    fn assign(&mut self, path: &RelPath, assigned: Assigned) {
        let load = &mut self.loads[assigned.index];
        load.assigned += assigned.size.saturating_add(FILE_BYTES);
        load.under_way += assigned.size;
        self.assigned.insert(path.clone(), assigned);
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an earlier run has left a part of the file in this directory.
fn has_partial(root: &Root, path: &RelPath) -> bool {
    let parent = path.parent().unwrap_or_default();
    let is_there =
        |name: &Vec<u8>| parent.join(name).is_ok_and(|path| matches!(root.metadata(&path), Ok(Some(_))));
    root.partial_names(path).iter().any(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_bytes(text.as_bytes()).unwrap()
    }

    fn spread(places: &[&tempfile::TempDir]) -> DestinationRoots {
        let named = |place: &&tempfile::TempDir| {
            (place.path().display().to_string(), Root::open(place.path()).unwrap())
        };
        DestinationRoots::several(places.iter().map(named).collect())
    }

    #[test]
    fn files_go_where_the_fewest_bytes_have_gone_and_stay_where_they_are() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = spread(&[&one, &two]);
        let index = |name: &str, size| {
            roots.assign(&path(name), size);
            roots.index_of(&path(name)).unwrap()
        };
        let sizes = [100_000, 10, 10, 50_000, 60_000, 10];
        let chosen: Vec<_> =
            sizes.iter().enumerate().map(|(number, &size)| index(&format!("f{number}"), size)).collect();
        assert_eq!(chosen, [0, 1, 1, 1, 1, 0]);
        std::fs::write(one.path().join("there"), "x").unwrap();
        let part = Root::open(two.path()).unwrap().partial_names(&path("part")).remove(0);
        std::fs::write(two.path().join(std::str::from_utf8(&part).unwrap()), "x").unwrap();
        assert_eq!((index("there", 1 << 30), index("part", 1)), (0, 1));
        roots.settle(&path("f0"), Some(100_000));
        roots.settle(&path("f1"), None);
        let figures = roots.figures();
        assert_eq!((figures[0].files, figures[0].bytes, figures[1].files), (1, 100_000, 0));
        assert_eq!(roots.index_of(&path("f1")), None);
    }

    #[test]
    fn what_one_directory_refuses_goes_to_another_until_all_have_refused_it() {
        let (one, two, three) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = spread(&[&one, &two, &three]);
        let f = path("f");
        assert!(!roots.assign_elsewhere(&f), "the file has no directory yet");
        roots.assign(&f, 100);
        assert_eq!(roots.index_of(&f), Some(0));
        assert!(roots.assign_elsewhere(&f));
        assert_eq!(roots.index_of(&f), Some(1));
        // A file of the same size does not try the first directory again, though that has the fewest bytes; a
        // smaller one does.
        roots.assign(&path("as large"), 100);
        roots.assign(&path("smaller"), 10);
        assert_eq!((roots.index_of(&path("as large")), roots.index_of(&path("smaller"))), (Some(2), Some(0)));
        assert!(roots.assign_elsewhere(&f));
        assert_eq!(roots.index_of(&f), Some(2));
        assert!(!roots.assign_elsewhere(&f));
        assert_eq!(roots.name_of(&f), Some(&three.path().display().to_string()[..]));
        roots.settle(&f, None);
        // A file that replaces another one stays where that is.
        std::fs::write(two.path().join("there"), "old").unwrap();
        roots.assign(&path("there"), 5);
        assert!(!roots.assign_elsewhere(&path("there")));
        assert_eq!(roots.index_of(&path("there")), Some(1));
    }

    #[test]
    fn a_link_is_made_where_there_is_room_and_other_errors_stay() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = spread(&[&one, &two]);
        let first = roots.first().identity();
        let make = |kind: io::ErrorKind| {
            roots.make(&path("l"), |root| match root.identity() == first {
                true => Err(kind.into()),
                false => root.symlink(b"x", &path("l"), Some(farhaul_volume::FileTime::default())),
            })
        };
        assert!(make(io::ErrorKind::PermissionDenied).is_err() && !two.path().join("l").is_symlink());
        assert!(make(io::ErrorKind::QuotaExceeded).is_ok() && two.path().join("l").is_symlink());
    }

    #[test]
    fn what_is_in_two_places_is_told_unless_it_is_a_directory() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = spread(&[&one, &two]);
        assert!(roots.make_dir(|root| root.make_dir(&path("d"), 0o755)).unwrap());
        assert!(!roots.make_dir(|root| root.make_dir(&path("d"), 0o755)).unwrap());
        assert!(roots.metadata(&path("d")).unwrap().unwrap().is_dir());
        for place in [&one, &two] {
            std::fs::write(place.path().join("d/f"), "x").unwrap();
        }
        let error = roots.metadata(&path("d/f")).unwrap_err().to_string();
        assert!(error.contains(&one.path().display().to_string()), "{error}");
        assert!(error.contains(&two.path().display().to_string()), "{error}");
        assert_eq!(roots.list(&path("d")).unwrap(), [(b"f".to_vec(), false)]);
        assert_eq!(roots.metadata(&path("none")).unwrap(), None);
    }

    #[test]
    fn one_full_directory_does_without_a_directory_and_two_do_not_hide_other_errors() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = spread(&[&one, &two]);
        let fails = |kind: io::ErrorKind, in_both: bool| {
            let calls = std::cell::Cell::new(0);
            roots.make_dir(|_| {
                calls.set(calls.get() + 1);
                if in_both || calls.get() == 2 { Err(kind.into()) } else { Ok(true) }
            })
        };
        assert!(fails(io::ErrorKind::StorageFull, false).is_ok());
        assert!(fails(io::ErrorKind::StorageFull, true).is_err());
        let error = fails(io::ErrorKind::PermissionDenied, false).unwrap_err().to_string();
        assert!(error.contains(&two.path().display().to_string()), "{error}");
    }
}
