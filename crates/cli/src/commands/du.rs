//! `farhaul du`: shows how much there is in directories.

use std::collections::{BTreeMap, HashSet};

use farhaul::Error;
use farhaul::errors::ExitCode;
use farhaul::read::{Depth, ListEntry, ListItem, PathKind};
use farhaul::sisters::escape;
use serde::Serialize;

use super::kept_names::KeptNames;
use super::ls::joined;
use super::read_verbs::{LookOutcome, each};
use crate::args::read_verbs::DuArgs;
use crate::ui::units;

/// The counts of a directory and everything below it.
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
    each(&args.read, |named, outcome| {
        // A link is one entry, named as well as found, unless a slash behind it asks for its directory.
        let entry = match named.path.ends_with(b"/") {
            true => named.remote.stat(named.path)?,
            false => named.remote.stat_link(named.path)?,
        };
        if entry.kind != PathKind::Directory {
            let amount = Amount { files: 1, directories: 0, bytes: content(&entry) };
            print_line(args, named.path, amount, outcome);
            return Ok(());
        }
        // An amount for each directory that gets a line.
        let mut amounts: BTreeMap<Vec<u8>, Amount> = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut kept = KeptNames::new("name directories below it, or give it a --max-depth");
        for listed in named.remote.list(named.path, Depth::All)? {
            match listed? {
                ListItem::Entry(entry) => {
                    let is_first = entry.links < 2
                        || entry.kind == PathKind::Directory
                        || seen.insert((entry.identity.device, entry.identity.inode));
                    if entry.links > 1 && is_first {
                        kept.name(b"")?;
                    }
                    let amount = Amount {
                        files: u64::from(entry.kind != PathKind::Directory),
                        directories: u64::from(entry.kind == PathKind::Directory && !entry.path.is_empty()),
                        bytes: if is_first { content(&entry) } else { 0 },
                    };
                    for directory in
                        counted_in(&entry.path, entry.kind == PathKind::Directory, args.max_depth)
                    {
                        if !amounts.contains_key(directory) {
                            kept.name(directory)?;
                        }
                        amounts.entry(directory.to_vec()).or_default().add(amount);
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
            print_line(args, &joined(named.path, directory), *amount, outcome);
        }
        Ok(())
    })
}

/// The bytes that a copy would move of an entry: the size of a link or a directory is no content.
fn content(entry: &ListEntry) -> u64 {
    if entry.kind == PathKind::File { entry.identity.size } else { 0 }
}

/// Returns the directories that get a line and in which an entry counts: the one that the user named, and
/// those down to `depth` levels below it.
fn counted_in(path: &[u8], is_directory: bool, depth: u64) -> impl Iterator<Item = &[u8]> {
    let parent_ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let own_end = (is_directory && !path.is_empty()).then_some(path.len());
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    let below = parent_ends.chain(own_end).take(depth).map(|end| &path[..end]);
    std::iter::once(&path[..0]).chain(below)
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

fn print_line(args: &DuArgs, path: &[u8], amount: Amount, outcome: &mut LookOutcome) {
    let Amount { files, directories, bytes } = amount;
    let path = joined(path, b"");
    if args.read.json {
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
            counted_in(path.as_bytes(), is_directory, depth)
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
