//! Removing what a destination has too much, below its root.
//!
//! Always true: every name is removed relative to the directory that holds it, through no symbolic link, and a link is removed
//! itself; what the filter protects stays, and so do the directories above it; memory is that of the names on one way down.

use std::collections::HashSet;
use std::io;

use crate::filter::{Filter, Side};
use crate::path::RelPath;
use crate::root::Root;

/// What becomes of one entry.
#[derive(Debug)]
pub enum Removed {
    /// It is gone (in a dry run: it would be).
    Gone,
    /// It was to go, but as many as may are gone.
    OverLimit,
    Failed(io::Error),
}

/// What holds for all removals of a transfer.
pub struct Removal<'a> {
    pub root: &'a Root,
    /// What its rules for the receiver exclude is protected.
    pub filter: &'a Filter,
    /// Nothing is removed, only said.
    pub dry_run: bool,
    /// How many more may go.
    pub left: u64,
    /// These go without being counted: they are there under another name.
    pub free: &'a HashSet<RelPath>,
}

struct Level {
    path: RelPath,
    names: std::vec::IntoIter<(Vec<u8>, bool)>,
    /// Something in it stays.
    is_kept: bool,
}

impl Removal<'_> {
    /// Removes what is at `path`, a directory with all that is in it. Each entry is said to `tell`, which answers whether to go
    /// on. False if something stays.
    pub fn remove(
        &mut self,
        path: RelPath,
        is_dir: bool,
        tell: &mut dyn FnMut(&RelPath, Removed) -> bool,
    ) -> bool {
        if !is_dir {
            return self.remove_one(&path, false, tell) == Some(true);
        }
        let mut stack = Vec::new();
        let mut goes_on = self.enter(path, &mut stack, tell);
        while let (true, Some(level)) = (goes_on, stack.last_mut()) {
            let Some((name, is_dir)) = level.names.next() else {
                let Some(done) = stack.pop() else { break };
                let is_gone = match done.is_kept {
                    true => Some(false),
                    false => self.remove_one(&done.path, true, tell),
                };
                goes_on = is_gone.is_some();
                match stack.last_mut() {
                    Some(above) => above.is_kept |= is_gone != Some(true),
                    None => return is_gone == Some(true),
                }
                continue;
            };
            let Ok(path) = level.path.join(&name) else {
                level.is_kept = true;
                continue;
            };
            if self.filter.excludes(path.as_bytes(), is_dir, Side::Receiver) {
                level.is_kept = true;
            } else if is_dir {
                goes_on = self.enter(path, &mut stack, tell);
            } else {
                let is_gone = self.remove_one(&path, false, tell);
                level.is_kept |= is_gone != Some(true);
                goes_on = is_gone.is_some();
            }
        }
        false
    }

    /// What cannot be listed stays, and all above it.
    fn enter(
        &self,
        path: RelPath,
        stack: &mut Vec<Level>,
        tell: &mut dyn FnMut(&RelPath, Removed) -> bool,
    ) -> bool {
        if !self.dry_run {
            // What is ours but not writable is made so; if that fails, the removal says why.
            let _ = self.root.use_dir(&path);
        }
        match self.root.list(&path) {
            Ok(names) => {
                stack.push(Level { path, names: names.into_iter(), is_kept: false });
                true
            }
            Err(error) => {
                stack.iter_mut().for_each(|level| level.is_kept = true);
                tell(&path, Removed::Failed(error))
            }
        }
    }

    /// None when it is to end.
    fn remove_one(
        &mut self,
        path: &RelPath,
        is_dir: bool,
        tell: &mut dyn FnMut(&RelPath, Removed) -> bool,
    ) -> Option<bool> {
        let is_free = self.free.contains(path);
        if self.left == 0 && !is_free {
            tell(path, Removed::OverLimit);
            return None;
        }
        let removed = match (self.dry_run, is_dir) {
            (true, _) => Ok(()),
            (false, true) => self.remove_dir(path),
            (false, false) => self.root.unlink(path),
        };
        let is_gone = removed.is_ok();
        self.left -= u64::from(is_gone && !is_free);
        let goes_on = tell(path, removed.map_or_else(Removed::Failed, |()| Removed::Gone));
        goes_on.then_some(is_gone)
    }

    /// An empty one, but for what an interrupted transfer may have left in it.
    fn remove_dir(&self, path: &RelPath) -> io::Result<()> {
        match self.root.remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                self.root.remove_ours(path)?;
                self.root.remove_dir(path)
            }
            removed => removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_bytes(text.as_bytes()).unwrap()
    }

    fn tree() -> (tempfile::TempDir, Root) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("root/d/e")).unwrap();
        std::fs::create_dir(temp.path().join("outside")).unwrap();
        for name in ["root/d/a", "root/d/e/b", "root/f", "outside/x", "root/d/.0123456789abcdef.fhpart"] {
            std::fs::write(temp.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("../../outside", temp.path().join("root/d/link")).unwrap();
        let root = Root::open(temp.path().join("root")).unwrap();
        (temp, root)
    }

    fn remove(root: &Root, filter: &Filter, dry_run: bool, left: u64, at: &str) -> (bool, Vec<String>) {
        let mut said = Vec::new();
        let free = HashSet::from([path("d/e/b")]);
        let mut removal = Removal { root, filter, dry_run, left, free: &free };
        let is_gone = removal.remove(
            path(at),
            root.metadata(&path(at)).unwrap().unwrap().is_dir(),
            &mut |path, removed| {
                said.push(match removed {
                    Removed::Gone => path.to_string(),
                    Removed::OverLimit => format!("{path}: over"),
                    Removed::Failed(error) => format!("{path}: {error}"),
                });
                true
            },
        );
        said.sort();
        (is_gone, said)
    }

    #[test]
    fn a_directory_goes_with_all_that_is_in_it_and_nothing_outside() {
        let (temp, root) = tree();
        let all = ["d", "d/a", "d/e", "d/e/b", "d/link"].map(str::to_string).to_vec();
        assert_eq!(remove(&root, &Filter::default(), true, 99, "d"), (true, all.clone()));
        assert!(temp.path().join("root/d/e/b").exists(), "a dry run");
        assert_eq!(remove(&root, &Filter::default(), false, 99, "d"), (true, all));
        assert!(!temp.path().join("root/d").exists() && temp.path().join("outside/x").exists());
        assert_eq!(remove(&root, &Filter::default(), false, 1, "f"), (true, vec!["f".into()]));
    }

    #[test]
    fn what_is_protected_stays_with_the_directories_above_it() {
        let (temp, root) = tree();
        let filter = Filter::new(&[b"- b".to_vec()]).unwrap();
        let (is_gone, said) = remove(&root, &filter, false, 99, "d");
        assert_eq!((is_gone, said), (false, vec!["d/a".into(), "d/link".into()]));
        assert!(temp.path().join("root/d/e/b").exists());
    }

    #[test]
    fn no_more_go_than_may() {
        let (temp, root) = tree();
        for left in 0..4 {
            let (is_gone, said) = remove(&root, &Filter::default(), true, left, "d");
            let counted = said.iter().filter(|line| *line != "d/e/b").count() as u64;
            assert!(
                !is_gone && counted == left + 1 && said.iter().any(|line| line.ends_with("over")),
                "{said:?}"
            );
        }
        assert!(temp.path().join("root/d/e/b").exists());
    }
}
