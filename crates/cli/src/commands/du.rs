//! `farhaul du`: how much there is in directories.

use std::collections::{BTreeMap, HashSet};

use farhaul::{Depth, Error, ExitCode, ListItem, PathKind, escape};
use serde::Serialize;

use super::ls::joined;
use super::read_verbs::{LookOutcome, each};
use crate::args::read_verbs::DuArgs;
use crate::ui::units;

/// What is in a directory and below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    files: u64,
    directories: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct AmountJson {
    path: String,
    files: u64,
    directories: u64,
    bytes: u64,
}

pub fn run(args: &DuArgs) -> ExitCode {
    each(&args.look, |named, outcome| {
        let there = named.remote.stat(named.path)?;
        if there.kind != PathKind::Directory {
            let amount = Amount { files: 1, directories: 0, bytes: there.identity.size };
            line(args, named.path, amount, outcome);
            return Ok(());
        }
        // By the directories that have a line, the deeper ones first.
        let mut amounts: BTreeMap<Vec<u8>, Amount> = BTreeMap::new();
        let mut seen = HashSet::new();
        for listed in named.remote.list(named.path, Depth::All)? {
            match listed? {
                ListItem::Entry(entry) => {
                    let is_first = entry.links < 2
                        || entry.kind == PathKind::Directory
                        || seen.insert((entry.identity.device, entry.identity.inode));
                    let one = Amount {
                        files: u64::from(entry.kind != PathKind::Directory),
                        directories: u64::from(entry.kind == PathKind::Directory && !entry.path.is_empty()),
                        bytes: if is_first && entry.kind == PathKind::File { entry.identity.size } else { 0 },
                    };
                    for directory in above(&entry.path, entry.kind == PathKind::Directory, args.max_depth) {
                        amounts.entry(directory.to_vec()).or_default().add(one);
                    }
                }
                ListItem::Failed { path, code, reason } => {
                    outcome.fail(&joined(named.path, &path), Error::new(code, reason));
                }
                ListItem::NotEntered(path) => {
                    let shown = escape(&joined(named.path, &path));
                    crate::ui::printer::warning(&format!(
                        "{shown}: something is mounted there; it is not counted"
                    ));
                }
            }
        }
        for (directory, amount) in amounts.iter().rev() {
            line(args, &joined(named.path, directory), *amount, outcome);
        }
        Ok(())
    })
}

/// The directories in which an entry counts and that have a line: what was named, and so many levels below it.
fn above(path: &[u8], is_directory: bool, depth: u64) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let own = (is_directory && !path.is_empty()).then_some(path.len());
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    let below = ends.chain(own).take(depth).map(|end| &path[..end]);
    std::iter::once(&path[..0]).chain(below)
}

impl Amount {
    fn add(&mut self, one: Amount) {
        self.files += one.files;
        self.directories += one.directories;
        self.bytes = self.bytes.saturating_add(one.bytes);
    }
}

fn line(args: &DuArgs, path: &[u8], amount: Amount, outcome: &mut LookOutcome) {
    let Amount { files, directories, bytes } = amount;
    let path = joined(path, b"");
    if args.look.json {
        return outcome.json(&AmountJson { path: escape(&path), files, directories, bytes });
    }
    let size = if args.bytes { bytes.to_string() } else { units::size(bytes) };
    let mut text = format!("{size:>12} {:>14}  ", units::count(files, "file")).into_bytes();
    text.extend_from_slice(&outcome.name(&path));
    text.push(b'\n');
    outcome.write(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_in_each_directory_above_it_that_has_a_line() {
        let directories = |path: &'static str, is_directory, depth| {
            above(path.as_bytes(), is_directory, depth)
                .map(|directory| String::from_utf8(directory.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(directories("a/b/c", false, 0), [""]);
        assert_eq!(directories("a/b/c", false, 1), ["", "a"]);
        assert_eq!(directories("a/b/c", false, 9), ["", "a", "a/b"]);
        assert_eq!(directories("a/b", true, 9), ["", "a", "a/b"]);
        assert_eq!(directories("", true, 9), [""]);
    }
}
