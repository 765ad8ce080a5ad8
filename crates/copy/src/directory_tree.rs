//! The directories of a manifest that are not finished yet, so that each gets its mode and time after its
//! last entry.
//!
//! The sender lists depth first, so the directories being listed form a stack; one whose listing has ended
//! stays until its last entry is done. Memory is bounded by the depth and by the entries that are
//! outstanding.

use std::collections::HashMap;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_volume::{Attributes, FileTime, OwnerWish, RelPath};
use farhaul_words::{Code, Error, Misbehaviour};

use super::failures::Failure;

/// The most entries, open directories among them, that may be unfinished: twice as many as our sender has
/// under way.
pub(crate) const OUTSTANDING_MAX: usize = 512 << 10;
/// The most bytes of the names and attributes of unfinished entries, four times what our sender has under
/// way. A name that shares its beginning with the one before takes a hundred times more room here than on the
/// wire.
const NAMES_BYTES_MAX: usize = 256 << 20;
/// The most levels that a tree can have: a path of 4095 bytes has 2048 components, and the destination itself
/// is one level more.
const DEPTH_MAX: usize = 2049;

#[derive(Debug)]
pub(crate) struct UnfinishedDirectory {
    pub(crate) id: u64,
    pub(crate) path: RelPath,
    /// The mode that it is to get; `None` if it keeps its present one.
    pub(crate) mode: Option<u32>,
    /// Whom it is to belong to.
    pub(crate) owner: OwnerWish,
    /// The mode that it has at the source.
    pub(crate) source_mode: u32,
    pub(crate) mtime: FileTime,
    pub(crate) attributes: Attributes,
    /// The directory exists. Otherwise it gets neither mode nor time.
    pub(crate) is_made: bool,
    /// The directory was not there before this transfer, and is now.
    pub(crate) is_new: bool,
    /// The directory was there before this transfer.
    pub(crate) was_there: bool,
    /// Why nothing can be put into the directory.
    pub(crate) absence: Option<DirectoryAbsence>,
    pub(super) parent: Option<u64>,
    /// Bytes that were booked for it.
    pub(crate) booked: usize,
    /// Entries below it that are not done; only the tree counts them.
    pub(super) pending: u64,
    pub(super) ended: bool,
}

impl UnfinishedDirectory {
    /// A directory below another of the manifest; the rest is for the caller to fill in.
    pub(crate) fn below(parent: Option<u64>) -> UnfinishedDirectory {
        let mtime = FileTime { secs: 0, nanos: 0 };
        let path = RelPath::empty();
        UnfinishedDirectory {
            id: 0,
            path,
            mode: None,
            owner: OwnerWish::default(),
            source_mode: 0,
            mtime,
            attributes: Attributes::new(),
            is_made: true,
            is_new: false,
            was_there: false,
            absence: None,
            parent,
            booked: 0,
            pending: 0,
            ended: false,
        }
    }
}

/// The facts about its directory that an entry needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParentDirectory {
    pub(crate) id: u64,
    pub(crate) is_new: bool,
    pub(crate) absence: Option<DirectoryAbsence>,
}

/// Why there is no directory into which entries could go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryAbsence {
    /// The directory cannot have its name here, as the name leads to another directory.
    Nameless,
    /// The directory could not be created, and this is the code of its failure.
    Uncreated(Code),
}

impl DirectoryAbsence {
    /// The failure of an entry in the directory.
    pub(crate) fn failure(self) -> Failure {
        match self {
            DirectoryAbsence::Nameless => {
                Failure::new(Code::BadPath, "its directory could not have its name there")
            }
            DirectoryAbsence::Uncreated(code) => Failure::new(code, "its directory could not be created"),
        }
    }
}

/// The unfinished directories. The conversing thread adds entries and directories; whoever settles an entry
/// reports it done.
///
/// Always true: a directory is handed out once, when its listing has ended and all its entries are done;
/// directories inside it come before it. The bytes that are booked for an entry are free again when the entry
/// is done.
#[derive(Debug, Default)]
pub(crate) struct DirectoryTree(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, UnfinishedDirectory>,
    stack: Vec<u64>,
    /// Entries outside any directory of the manifest that are not done.
    pending_at_top: u64,
    /// All entries that are not done, and the bytes of their names and attributes.
    outstanding: usize,
    names_bytes: usize,
    kept: Charge,
}

/// Bytes that an unfinished entry takes besides its names and attributes, while it is processed and in a
/// table.
const ENTRY_BYTES: usize = 320;

impl DirectoryTree {
    pub(crate) fn within(budget: &Budget) -> DirectoryTree {
        DirectoryTree(Mutex::new(State { kept: budget.nothing(), ..State::default() }))
    }

    /// Books a new entry below the directory being listed, with the bytes that are kept of the entry until it
    /// is done. Returns that directory.
    pub(crate) fn add(&self, path: &RelPath, bytes: usize) -> Result<Option<ParentDirectory>, Error> {
        let state = &mut *self.0.lock().whole();
        state.book(bytes)?;
        let Some(&parent) = state.stack.last() else {
            state.pending_at_top += 1;
            return Ok(None);
        };
        let directory = state.open.get_mut(&parent).expect("a directory on the stack is open");
        if path.parent().is_none_or(|above| above.as_bytes() != directory.path.as_bytes()) {
            return Err(Error::misbehaved(
                Misbehaviour::EntryOutsideListing,
                format!("{path} is not in {}, which is being listed", directory.path),
            ));
        }
        directory.pending += 1;
        Ok(Some(ParentDirectory { id: parent, is_new: directory.is_new, absence: directory.absence }))
    }

    /// As [`DirectoryTree::add`], for an entry that has no path at this end.
    pub(crate) fn add_unplaced(&self, bytes: usize) -> Result<ParentDirectory, Error> {
        let state = &mut *self.0.lock().whole();
        let Some(&parent) = state.stack.last() else {
            return Err(Error::from(Misbehaviour::EntryOutsideListing));
        };
        state.book(bytes)?;
        let directory = state.open.get_mut(&parent).expect("a directory on the stack is open");
        directory.pending += 1;
        Ok(ParentDirectory { id: parent, is_new: directory.is_new, absence: directory.absence })
    }

    /// Books `bytes` for an entry instead of the bytes `before`.
    pub(crate) fn rebook(&self, before: usize, bytes: usize) -> Result<(), Error> {
        self.0.lock().whole().rebook(before, bytes)
    }

    /// Says that the entry just added is a directory, whose own entries come next.
    pub(crate) fn open(&self, directory: UnfinishedDirectory) -> Result<(), Error> {
        let state = &mut *self.0.lock().whole();
        if state.stack.len() == DEPTH_MAX {
            return Err(Error::from(Misbehaviour::NestedTooDeep));
        }
        state.stack.push(directory.id);
        state.open.insert(directory.id, directory);
        Ok(())
    }

    /// Ends the listing of directory `id`; returns the directories that are finished by that.
    pub(crate) fn end(&self, id: u64) -> Result<Vec<UnfinishedDirectory>, Error> {
        let state = &mut *self.0.lock().whole();
        if state.stack.pop() != Some(id) {
            return Err(Error::misbehaved(
                Misbehaviour::DirectoryEndOutOfOrder,
                format!("directory {id} ended out of order"),
            ));
        }
        state.open.get_mut(&id).expect("a directory on the stack is open").ended = true;
        let mut done = Vec::new();
        state.close_finished(Some(id), &mut done);
        Ok(done)
    }

    /// An entry below `parent`, for which `booked` bytes are booked, is in its place or has failed. Returns
    /// the directories that are finished by that.
    pub(crate) fn child_done(&self, parent: Option<u64>, booked: usize) -> Vec<UnfinishedDirectory> {
        let state = &mut *self.0.lock().whole();
        let mut done = Vec::new();
        state.release(parent, booked);
        state.close_finished(parent, &mut done);
        done
    }

    pub(crate) fn is_done(&self) -> bool {
        let state = self.0.lock().whole();
        state.open.is_empty() && state.pending_at_top == 0
    }
}

impl State {
    /// Counts one more unfinished entry.
    fn book(&mut self, bytes: usize) -> Result<(), Error> {
        if self.outstanding == OUTSTANDING_MAX {
            return Err(Error::from(Misbehaviour::TooManyEntries));
        }
        self.rebook(0, bytes)?;
        self.outstanding += 1;
        Ok(())
    }

    fn rebook(&mut self, before: usize, bytes: usize) -> Result<(), Error> {
        self.names_bytes = self.names_bytes - before + bytes;
        if self.names_bytes > NAMES_BYTES_MAX {
            return Err(Error::from(Misbehaviour::NamesTooLong));
        }
        self.hold()
    }

    fn hold(&mut self) -> Result<(), Error> {
        Ok(self.kept.hold((self.names_bytes + self.outstanding * ENTRY_BYTES) as u64)?)
    }

    fn release(&mut self, parent: Option<u64>, booked: usize) {
        self.outstanding -= 1;
        self.names_bytes -= booked;
        match parent.and_then(|id| self.open.get_mut(&id)) {
            Some(directory) => directory.pending -= 1,
            None => self.pending_at_top -= 1,
        }
        // Holding less cannot fail.
        let _ = self.hold();
    }

    fn close_finished(&mut self, mut at: Option<u64>, done: &mut Vec<UnfinishedDirectory>) {
        while let Some(id) = at {
            let Some(directory) = self.open.get(&id) else { return };
            if !directory.ended || directory.pending > 0 {
                return;
            }
            let directory = self.open.remove(&id).expect("it was looked up just before");
            at = directory.parent;
            self.release(at, directory.booked);
            done.push(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_bytes(text.as_bytes()).unwrap()
    }

    fn open(tree: &DirectoryTree, id: u64, at: &str) {
        let parent = tree.add(&path(at), 0).unwrap().map(|parent| parent.id);
        tree.open(UnfinishedDirectory {
            id,
            path: path(at),
            mode: Some(0o755),
            ..UnfinishedDirectory::below(parent)
        })
        .unwrap();
    }

    fn ids(done: Vec<UnfinishedDirectory>) -> Vec<u64> {
        done.iter().map(|directory| directory.id).collect()
    }

    #[test]
    fn directories_finish_from_the_inside_after_their_last_entry() {
        let tree = DirectoryTree::default();
        open(&tree, 0, "a");
        open(&tree, 1, "a/b");
        let parent = tree.add(&path("a/b/file"), 0).unwrap().map(|parent| parent.id);
        assert_eq!(parent, Some(1));
        assert!(tree.end(1).unwrap().is_empty());
        assert!(tree.end(0).unwrap().is_empty());
        assert!(!tree.is_done());
        assert_eq!(ids(tree.child_done(parent, 0)), [1, 0]);
        assert!(tree.is_done());
    }

    #[test]
    fn a_directory_without_entries_finishes_at_its_end() {
        let tree = DirectoryTree::default();
        open(&tree, 0, "a");
        assert_eq!(ids(tree.end(0).unwrap()), [0]);
        assert!(tree.is_done());
    }

    #[test]
    fn entries_out_of_place_are_refused() {
        let tree = DirectoryTree::default();
        open(&tree, 0, "a");
        assert_eq!(
            Misbehaviour::of(&DirectoryTree::default().add_unplaced(0)),
            Some(Misbehaviour::EntryOutsideListing)
        );
        assert_eq!(Misbehaviour::of(&tree.add(&path("b/file"), 0)), Some(Misbehaviour::EntryOutsideListing));
        assert_eq!(Misbehaviour::of(&tree.end(7)), Some(Misbehaviour::DirectoryEndOutOfOrder));
    }

    #[test]
    fn files_beside_each_other_at_the_top_need_no_directory() {
        let tree = DirectoryTree::default();
        assert_eq!(tree.add(&path("file"), 0).unwrap(), None);
        assert!(!tree.is_done());
        assert!(tree.child_done(None, 0).is_empty());
        assert!(tree.is_done());
    }

    #[test]
    fn names_take_only_so_much_room_until_their_entries_are_done() {
        let tree = DirectoryTree::default();
        let entries = 64;
        for _ in 0..entries {
            tree.add(&path("file"), NAMES_BYTES_MAX / entries).unwrap();
        }
        tree.child_done(None, NAMES_BYTES_MAX / entries);
        tree.add(&path("file"), NAMES_BYTES_MAX / entries).unwrap();
        assert_eq!(Misbehaviour::of(&tree.add(&path("file"), 1)), Some(Misbehaviour::NamesTooLong));
    }

    #[test]
    fn entries_that_are_not_done_are_bounded_and_so_is_their_depth() {
        let tree = DirectoryTree::default();
        for _ in 0..OUTSTANDING_MAX {
            tree.add(&path("file"), 0).unwrap();
        }
        assert_eq!(Misbehaviour::of(&tree.add(&path("file"), 0)), Some(Misbehaviour::TooManyEntries));
        let tree = DirectoryTree::default();
        let deeper = |id| {
            tree.open(UnfinishedDirectory { id, path: RelPath::empty(), ..UnfinishedDirectory::below(None) })
        };
        (0..DEPTH_MAX as u64).for_each(|id| deeper(id).unwrap());
        assert_eq!(Misbehaviour::of(&deeper(u64::MAX)), Some(Misbehaviour::NestedTooDeep));
    }

    #[test]
    fn what_a_directory_takes_is_free_again_when_it_is_finished() {
        let tree = DirectoryTree::default();
        for id in 0..4 {
            tree.add(&path("a"), NAMES_BYTES_MAX).unwrap();
            let directory = UnfinishedDirectory { id, path: path("a"), ..UnfinishedDirectory::below(None) };
            tree.open(UnfinishedDirectory { booked: NAMES_BYTES_MAX, ..directory }).unwrap();
            assert_eq!(ids(tree.end(id).unwrap()), [id]);
        }
    }
}
