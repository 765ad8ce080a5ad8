//! `--detect-renames`: a file that the destination has under another name is taken from there instead of
//! being sent.
//!
//! When the first file is missing at the destination, a thread of its own lists the destination. The
//! comparing threads digest files of the same size and time, and the sender says whether its file is the
//! same. Then the file is linked, if its old name may be deleted later, or copied.
//!
//! Always true: an old name is removed only by deletion, after the new one exists, so nothing is lost
//! whenever the run ends. The file that is taken over is the file that was digested. Only names that the
//! filter does not protect are considered. If both names of a file stay, they become two files again at the
//! end.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_channel::{Receiver as Channel, TryRecvError};
use farhaul_session::budget::Charge;
use farhaul_volume::{
    FileTime, Filter, FilterSide, RelPath, Removal, Root, clone_file, coarser, is_about_metadata,
};
use farhaul_words::{Error, Event};

use super::super::failures::plain;
use super::super::hard_links::LinkTargetOutcome;
use super::super::incoming_entry::IncomingEntry;
use super::super::manifest::{EntryFate, ManifestRecord};
use super::super::messages::CopyMessage;
use super::super::receiver::{ConversationState, CopyReceiver, Destination};
use super::comparison::{FileToRead, UndecidedEntry};
use super::moves::{Inode, Pair};
use super::target_tree::TargetTree;
use crate::entry_events::count_renamed;

/// The most memory for names of the destination: enough for about a million.
const INDEX_BYTES_MAX: usize = 192 << 20;
/// Bytes that a name takes besides its own.
const NAME_BYTES: usize = 120;

/// The size and time by which files are found.
type Key = (u64, i64, u32);

#[derive(Default)]
struct Index {
    files: HashMap<Key, Vec<OldFile>>,
    kept: Charge,
}

/// A file at the destination.
struct OldFile {
    path: RelPath,
    /// It has been proposed for an entry already.
    is_given: bool,
}

/// The conversing thread's state of the search for renames.
#[derive(Default)]
pub(super) struct Renames {
    /// Files that are missing at the destination and have not been searched for.
    pub(super) waiting: Vec<IncomingEntry>,
    listing: Option<Channel<Index>>,
    index: Option<Index>,
}

impl CopyReceiver {
    /// Searches for the missing files, as soon as the destination's names are known.
    pub(super) fn go_on_renaming(&self, conversation: &mut ConversationState) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        for item in self.moves.take_returned() {
            self.fetch_content(target, item, conversation)?;
        }
        let Some(renames) = &mut conversation.renames else { return Ok(()) };
        if renames.index.is_none() && !renames.waiting.is_empty() {
            let listing =
                renames.listing.get_or_insert_with(|| self.list_in_background(target.roots.first()));
            renames.index = match listing.try_recv() {
                Ok(index) => Some(index),
                Err(TryRecvError::Empty) => return Ok(()),
                // Without the names nothing is found, and everything is sent.
                Err(TryRecvError::Disconnected) => Some(Index::default()),
            };
        }
        let Some(index) = &mut renames.index else { return Ok(()) };
        let looked: Vec<_> = std::mem::take(&mut renames.waiting)
            .into_iter()
            .map(|item| UndecidedEntry { from: self.candidate(target, index, &item), item, earlier: None })
            .collect();
        for file in looked {
            let id = file.item.id();
            let Some(from) = file.from.clone() else {
                self.fetch_content(target, file.item, conversation)?;
                continue;
            };
            conversation.comparing.insert(id, file);
            self.queues.digest.put(FileToRead::Candidate(id, from));
        }
        Ok(())
    }

    /// The likeliest file for an entry; the destination may keep only a coarser time of it.
    fn candidate(&self, target: &TargetTree, index: &mut Index, item: &IncomingEntry) -> Option<RelPath> {
        let wanted = item.entry.mtime();
        let key = |time: FileTime| (item.entry.size(), time.secs, time.nanos);
        let has_time = |from: &RelPath| {
            let there = target.roots.first().metadata(from).ok().flatten();
            there.is_some_and(|there| target.is_time_of(from, &there, wanted))
        };
        candidate(index, key(wanted), &item.path).or_else(|| {
            coarser(wanted).find_map(|time| candidate(index, key(time), &item.path).filter(has_time))
        })
    }

    fn list_in_background(&self, root: &Root) -> Channel<Index> {
        let (send, listing) = crossbeam_channel::bounded(1);
        let (root, filter, shared) = (root.clone(), self.protection.clone(), self.shared.clone());
        // Where nothing is deleted, no file has another name that may go.
        let crosses = self.rules.delete().is_none_or(|delete| delete.across_mounts);
        let list = move || {
            shared.request.work(|| {
                let kept = shared.request.budget().nothing();
                let (index, is_all) =
                    list(&root, &filter, crosses, kept, &|| shared.request.wait_while_paused());
                if !is_all {
                    let text = "renames are looked for among the first million files of the destination";
                    shared.request.handle().tell(Event::warning(text));
                }
                let _ = send.send(index);
                shared.request.wake_dialogue();
            });
        };
        // If there is no thread, the channel is closed, and everything is sent.
        let _ = std::thread::Builder::new().name("renames".into()).spawn(list);
        listing
    }

    /// Takes the sender's answer about a file that the receiver has under another name.
    pub(super) fn candidate_compared(
        &self,
        target: &TargetTree,
        file: UndecidedEntry,
        is_same: bool,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let id = file.item.id();
        if !is_same {
            self.moves.take_digested(id);
            self.notes.remembered(id);
            return self.fetch_content(target, file.item, conversation);
        }
        self.queues.digest.put(FileToRead::TakeOver(file));
        Ok(())
    }

    /// Gives a file that exists under another name its new name. Runs in a thread of its own.
    pub(super) fn take_over(&self, target: &TargetTree, file: UndecidedEntry) {
        let Some(from) = file.from.clone() else { return };
        let digested = self.moves.take_digested(file.item.id());
        if !self.rules.dry_run {
            let taken = digested.is_some_and(|digested| match self.place(target, &file, &from, digested) {
                Ok(taken) => taken,
                Err(error) => {
                    tracing::debug!(path = %file.item.path, %from, error = plain(&error), "cannot take over");
                    false
                }
            });
            if !taken {
                self.moves.give_back(file.item);
                return;
            }
        }
        let item = file.item;
        let (entry, path) = (&item.entry, &item.path);
        match self.rules.dry_run {
            // What cannot be looked up fails in the real run.
            true => drop(self.keep_old(path)),
            false => target.remove_partial(path),
        }
        if self.rules.delete().is_some() {
            self.moves.add_source(&from);
        }
        self.counts.renames.fetch_add(1, Relaxed);
        count_renamed(&self.shared.request, from.as_bytes(), path, entry.size(), self.rules.dry_run);
        let digest = self.notes.remembered(entry.id);
        self.notes.add(|| {
            let note = Some(from.as_bytes().to_vec());
            ManifestRecord { digest, note, ..self.record(&item, EntryFate::Renamed) }
        });
        self.shared.send(&[CopyMessage::Renamed { id: entry.id, from: from.into_bytes() }]);
        self.note_replaced(&item, item.replaces);
        self.link_target_done(
            &item,
            if self.rules.dry_run { LinkTargetOutcome::Listed } else { LinkTargetOutcome::There },
        );
        self.child_done(&item);
    }

    /// Returns false if the old name no longer leads to the file that was digested.
    fn place(
        &self,
        target: &TargetTree,
        file: &UndecidedEntry,
        from: &RelPath,
        digested: Inode,
    ) -> std::io::Result<bool> {
        let source = target.roots.first().open_read(from)?;
        let (size, wanted) = (file.item.entry.size(), file.item.entry.mtime());
        let first = target.roots.first().metadata(from)?;
        let first = first.filter(|first| target.is_time_of(from, first, wanted));
        let is_it = || -> std::io::Result<bool> {
            let there = source.metadata()?;
            let mtime = FileTime::new(there.mtime(), there.mtime_nsec() as u32);
            let is_same = first.is_some_and(|first| first.mtime == mtime);
            Ok(is_same && (there.dev(), there.ino()) == digested && there.len() == size)
        };
        if !is_it()? {
            return Ok(false);
        }
        let options = target.write_options(&file.item);
        // A link cannot get other attributes, so they must be right already.
        let may_go = self.rules.delete().is_some()
            && source.metadata()?.mode() & 0o7777 == options.mode
            && first.is_some_and(|first| !options.owner.differs(&first))
            && options.attribute_kinds.is_none();
        // A link could share its file with what is kept of the old name.
        let may_go = may_go && target.backups.is_none();
        let may_link = may_go && !self.rules.durable && self.moves.reserve_link(from, &file.item.path);
        if may_link && self.moves.may_be_linked(digested) {
            let linked = target.roots.first().hardlink(from, &file.item.path);
            let there = target.roots.first().metadata(&file.item.path)?;
            if linked.is_ok() && there.is_some_and(|there| (there.dev, there.ino) == digested) {
                let (from, path) = (from.clone(), file.item.path.clone());
                self.moves.add_linked(Pair { from, path, options, links: Vec::new() });
                return is_it();
            }
        }
        let path = &file.item.path;
        self.try_keep_old(path)?;
        let cloned = clone_file(target.roots.first(), &source, path, &options, || self.shared.request.rest());
        match cloned {
            Err(error) if is_about_metadata(&error) => {
                let _ = self.but_for_metadata(path, Err::<(), _>(self.cannot("finish", path, &error)));
            }
            cloned => cloned?,
        }
        is_it()
    }

    /// Turns a linked file into two if its old name has stayed after all.
    pub(super) fn part_links(&self) {
        let Destination::Tree(target) = &self.destination else { return };
        for Pair { from, path, options, links } in self.moves.take_linked() {
            if !self.shared.request.rest() {
                return;
            }
            let look = |path: &RelPath| target.roots.first().metadata(path).ok().flatten();
            let is_same = match (look(&from), look(&path)) {
                (Some(old), Some(new)) => (old.dev, old.ino) == (new.dev, new.ino),
                _ => false,
            };
            if !is_same {
                continue;
            }
            // The directory of the new name has its mode and time already, and has to keep them.
            let directory = path.parent().unwrap_or_default();
            let before = look(&directory);
            let _ = target.roots.first().create_dir(&directory);
            let copied = target.roots.first().open_read(&from).and_then(|source| {
                clone_file(target.roots.first(), &source, &path, &options, || self.shared.request.rest())?;
                before.map_or(Ok(()), |before| {
                    target.roots.first().set_meta(&directory, Some(before.mode), Some(before.mtime))
                })
            });
            let copied = copied
                .and_then(|()| links.iter().try_for_each(|link| self.follow(target, &from, &path, link)));
            if let Err(error) = copied {
                let why = plain(&error);
                self.warnings.add(format!("{from} and {path} stay one file: {why}"));
            }
        }
    }
}

impl CopyReceiver {
    /// Makes the name `link` lead to the file at `path`, if it still leads to the one at `from`.
    fn follow(
        &self,
        target: &TargetTree,
        from: &RelPath,
        path: &RelPath,
        link: &RelPath,
    ) -> std::io::Result<()> {
        let root = target.roots.first();
        let inode = |path: &RelPath| -> std::io::Result<_> {
            Ok(root.metadata(path)?.map(|meta| (meta.dev, meta.ino)))
        };
        if inode(link)?.is_none() || inode(link)? != inode(from)? {
            return Ok(());
        }
        let directory = link.parent().unwrap_or_default();
        let before = root.metadata(&directory)?;
        root.hardlink(path, link)?;
        before.map_or(Ok(()), |before| root.set_meta(&directory, Some(before.mode), Some(before.mtime)))
    }
}

/// The likeliest file: one with the same name if possible, and rather one that was not proposed for another
/// entry, since a file can be linked only once.
fn candidate(index: &mut Index, key: Key, path: &RelPath) -> Option<RelPath> {
    let olds = index.files.get_mut(&key)?;
    let find = |fits: &dyn Fn(&OldFile) -> bool| olds.iter().position(|old| old.path != *path && fits(old));
    let is_namesake = |old: &OldFile| old.path.file_name() == path.file_name();
    let found = find(&|old| is_namesake(old) && !old.is_given)
        .or_else(|| find(&is_namesake))
        .or_else(|| find(&|old| !old.is_given))
        .or_else(|| find(&|_| true))?;
    olds[found].is_given = true;
    Some(olds[found].path.clone())
}

/// Lists the files of a tree that the filter does not protect; false if there are too many. `crosses`:
/// include what is mounted below the root.
fn list(
    root: &Root,
    filter: &Filter,
    crosses: bool,
    kept: Charge,
    goes_on: &dyn Fn() -> bool,
) -> (Index, bool) {
    let none = HashSet::new();
    let removal = Removal { crosses, ..Removal::new(root, filter, &none) };
    let mut index = Index { files: HashMap::new(), kept };
    let mut bytes = 0;
    let mut stack = vec![RelPath::empty()];
    while let Some(directory) = stack.pop() {
        if removal.is_beyond(&directory).unwrap_or(true) {
            continue;
        }
        // A directory that cannot be listed has no file that could be taken.
        for (name, is_dir) in root.list(&directory).unwrap_or_default() {
            let Ok(path) = directory.join(&name) else { continue };
            if filter.excludes(path.as_bytes(), is_dir, FilterSide::Receiver) {
                continue;
            }
            if is_dir {
                stack.push(path);
                continue;
            }
            let Ok(Some(meta)) = root.metadata(&path) else { continue };
            if !meta.is_file() || meta.size == 0 {
                continue;
            }
            bytes += path.as_bytes().len() + NAME_BYTES;
            if bytes > INDEX_BYTES_MAX || index.kept.hold(bytes as u64).is_err() || !goes_on() {
                return (index, false);
            }
            index
                .files
                .entry((meta.size, meta.mtime.secs, meta.mtime.nanos))
                .or_default()
                .push(OldFile { path, is_given: false });
        }
    }
    (index, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_size_and_time_and_the_same_name_goes_first() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("d/hidden")).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000, 7);
        for (name, content) in
            [("a", "abc"), ("d/b", "xyz"), ("d/hidden/b", "123"), ("c", "longer"), ("empty", "")]
        {
            std::fs::write(temp.path().join(name), content).unwrap();
            std::fs::File::open(temp.path().join(name)).unwrap().set_modified(time).unwrap();
        }
        let root = Root::open(temp.path()).unwrap();
        let filter = Filter::new(&[b"- hidden/".to_vec()]).unwrap();
        let (mut index, is_all) = list(&root, &filter, true, Charge::default(), &|| true);
        assert!(is_all && index.files.len() == 2);
        let mut find = |path: &str, size| {
            candidate(&mut index, (size, 1_000_000, 7), &RelPath::from_bytes(path.as_bytes()).unwrap())
                .map(|path| path.to_string())
        };
        assert_eq!(find("new/b", 3).as_deref(), Some("d/b"));
        assert_eq!(find("new/c", 3).as_deref(), Some("a"), "the other file was proposed already");
        assert_eq!(find("new/a", 3).as_deref(), Some("a"));
        assert_eq!(find("new/b", 3).as_deref(), Some("d/b"), "the file with the same name goes first");
        assert_eq!(find("d/b", 3).as_deref(), Some("a"), "a file is not proposed for itself");
        assert_eq!(find("new/c", 4), None);
        assert!(!list(&root, &filter, true, Charge::default(), &|| false).1);
    }
}
