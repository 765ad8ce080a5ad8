//! `farhaul ls`: prints names, or with `-l` a line for each.

use farhaul::Error;
use farhaul::errors::{Code, ExitCode};
use farhaul::read::{Depth, ListEntry, ListItem, PathKind, RemoteList};
use farhaul::sisters::escape;
use serde::Serialize;

use super::kept_names::KeptNames;
use super::read_verbs::{LookOutcome, NamedPath, together};
use crate::args::read_verbs::LsArgs;
use crate::ui::units;

/// An entry, as `--json` prints it.
#[derive(Serialize)]
pub(super) struct EntryJson {
    path: String,
    kind: &'static str,
    size: u64,
    mode: String,
    links: u64,
    mtime_ns: i128,
    ctime_ns: i128,
    inode: u64,
    device: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl EntryJson {
    pub(super) fn new(path: &[u8], entry: &ListEntry) -> EntryJson {
        let ns = |secs: i64, nanos: u32| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        let identity = &entry.identity;
        EntryJson {
            path: escape(path),
            kind: entry.kind.name(),
            size: identity.size,
            mode: format!("{:04o}", entry.mode),
            links: entry.links,
            mtime_ns: ns(identity.mtime.secs, identity.mtime.nanos),
            ctime_ns: ns(identity.ctime.secs, identity.ctime.nanos),
            inode: identity.inode,
            device: identity.device,
            target: (entry.kind == PathKind::Symlink).then(|| escape(&entry.target)),
        }
    }
}

pub fn run(args: &LsArgs) -> ExitCode {
    let mut is_first = true;
    together(&args.read, |remote, paths, is_one_of_many, outcome| {
        let mut directories = Vec::new();
        if let ([path], false) = (&paths[..], args.directory) {
            // Most paths are directories: to ask at once for the entries in it saves a round trip.
            directories.push(path.clone());
        } else {
            // As in ls, entries that are not directories come first.
            for (path, entry) in remote.stats(paths, false) {
                let may_be_one =
                    |entry: &ListEntry| matches!(entry.kind, PathKind::Directory | PathKind::Symlink);
                match entry {
                    Ok(entry) if may_be_one(&entry) && !args.directory => directories.push(path),
                    entry => {
                        let done = entry.map(|entry| line(args, &path, &entry, outcome));
                        outcome.note(remote, &path, done)?;
                    }
                }
            }
        }
        for path in directories {
            let named = NamedPath { remote, path: &path, is_one_of_many };
            let done = show(args, &named, &mut is_first, outcome);
            outcome.note(remote, &path, done)?;
            if outcome.is_lost() {
                break;
            }
        }
        Ok(())
    })
}

/// Shows the entries of a directory, or of a path that neither is nor leads to a directory the entry itself.
fn show(
    args: &LsArgs,
    named: &NamedPath<'_>,
    is_first: &mut bool,
    outcome: &mut LookOutcome,
) -> Result<(), Error> {
    let depth = if args.recursive { Depth::All } else { Depth::One };
    let Some(list) = begun(named.remote.list(named.path, depth)?)? else {
        line(args, named.path, &named.remote.stat_link(named.path)?, outcome);
        return Ok(());
    };
    if !std::mem::take(is_first) && !args.read.json {
        outcome.write(b"\n");
    }
    directory(args, named, list, outcome)
}

/// Waits for the list's first entry. Returns `None` if the path neither is nor leads to a directory.
fn begun(mut list: RemoteList) -> Result<Option<impl Iterator<Item = Result<ListItem, Error>>>, Error> {
    match list.next() {
        Some(Err(error)) if matches!(error.code(), Code::NotADirectory | Code::NotFound) => Ok(None),
        Some(Err(error)) => Err(error),
        first => Ok(Some(first.into_iter().chain(list))),
    }
}

fn directory(
    args: &LsArgs,
    named: &NamedPath<'_>,
    list: impl Iterator<Item = Result<ListItem, Error>>,
    outcome: &mut LookOutcome,
) -> Result<(), Error> {
    let has_header = (args.recursive || named.is_one_of_many) && !args.read.json;
    let is_shown =
        |path: &[u8]| args.all || !path.split(|byte| *byte == b'/').any(|name| name.first() == Some(&b'.'));
    let mut held: Vec<ListEntry> = Vec::new();
    let mut kept = KeptNames::new("-U prints entries as they come; or name directories below it");
    for listed in list {
        match listed? {
            ListItem::Entry(entry) if entry.path.is_empty() || !is_shown(&entry.path) => {}
            // Entries of several directories come mixed here, so they get whole paths.
            ListItem::Entry(entry) if args.unsorted => {
                let name = joined(named.path, &entry.path);
                line(args, if args.recursive { &name } else { &entry.path }, &entry, outcome);
            }
            ListItem::Entry(entry) => {
                kept.entry(&entry)?;
                held.push(entry);
            }
            ListItem::Failed { path, code, reason } => {
                outcome.fail(&joined(named.path, &path), Error::new(code, reason));
            }
            ListItem::NotEntered(path) => {
                let shown = escape(&joined(named.path, &path));
                crate::ui::printer::warning(&format!(
                    "{shown}: something is mounted there; it is not listed"
                ));
            }
        }
        if outcome.is_lost() {
            return Ok(());
        }
    }
    held.sort_unstable_by(|one, other| split(&one.path).cmp(&split(&other.path)));
    if args.unsorted {
        return Ok(());
    }
    if args.read.json {
        held.iter().for_each(|entry| line(args, &joined(named.path, &entry.path), entry, outcome));
        return Ok(());
    }
    // Each directory by itself, as in ls.
    let mut directories: Vec<&[u8]> = vec![b""];
    let below = held.iter().filter(|entry| args.recursive && entry.kind == PathKind::Directory);
    directories.extend(below.map(|entry| &entry.path[..]));
    directories.sort_unstable();
    for (number, directory) in directories.iter().enumerate() {
        if number > 0 {
            outcome.write(b"\n");
        }
        if has_header {
            let name = outcome.name(&joined(named.path, directory));
            outcome.write(&[&name[..], b":\n"].concat());
        }
        let from = held.partition_point(|entry| split(&entry.path).0 < *directory);
        for entry in held[from..].iter().take_while(|entry| split(&entry.path).0 == *directory) {
            line(args, split(&entry.path).1, entry, outcome);
        }
    }
    Ok(())
}

/// Splits a path into directory and name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A path below a directory that the user has named. The directory itself has an empty path.
pub(super) fn joined(directory: &[u8], below: &[u8]) -> Vec<u8> {
    match (directory, below) {
        (b"", b"") => b".".to_vec(),
        (directory, b"") => directory.to_vec(),
        (b"", below) => below.to_vec(),
        (directory, below) if directory.ends_with(b"/") => [directory, below].concat(),
        (directory, below) => [directory, b"/", below].concat(),
    }
}

fn line(args: &LsArgs, name: &[u8], entry: &ListEntry, outcome: &mut LookOutcome) {
    if args.read.json {
        return outcome.json(&EntryJson::new(name, entry));
    }
    let mut text = Vec::new();
    if args.long {
        let time = entry.identity.mtime;
        let size = match args.human_readable {
            true => units::size(entry.identity.size),
            false => entry.identity.size.to_string(),
        };
        text.extend_from_slice(
            format!("{} {size:>14} {} ", permissions(entry), units::date(time.secs)).as_bytes(),
        );
    }
    text.extend_from_slice(&outcome.name(name));
    if args.long && entry.kind == PathKind::Symlink {
        text.extend_from_slice(b" -> ");
        text.extend_from_slice(&outcome.name(&entry.target));
    }
    text.push(b'\n');
    outcome.write(&text);
}

/// `drwxr-xr-x`, as ls writes it.
pub(super) fn permissions(entry: &ListEntry) -> String {
    let kind = match entry.kind {
        PathKind::File => '-',
        PathKind::Directory => 'd',
        PathKind::Symlink => 'l',
        PathKind::Fifo => 'p',
        PathKind::Socket => 's',
        PathKind::CharDevice => 'c',
        PathKind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    let set = [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')];
    for (shift, special, letter) in set {
        let bits = entry.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (entry.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use farhaul::read::FileIdentity;

    use super::*;

    #[test]
    fn permissions_are_written_as_ls_writes_them() {
        let written = |kind, mode| {
            let identity = FileIdentity::default();
            permissions(&ListEntry { path: Vec::new(), kind, mode, links: 1, target: Vec::new(), identity })
        };
        assert_eq!(written(PathKind::File, 0o644), "-rw-r--r--");
        assert_eq!(written(PathKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(written(PathKind::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(written(PathKind::File, 0o6644), "-rwSr-Sr--");
        assert_eq!(written(PathKind::Symlink, 0o777), "lrwxrwxrwx");
    }

    #[test]
    fn paths_are_joined_as_they_are_written() {
        for (directory, below, whole) in [
            ("", "", "."),
            ("a", "", "a"),
            ("", "b", "b"),
            ("a", "b", "a/b"),
            ("a/", "b", "a/b"),
            ("/", "b", "/b"),
        ] {
            assert_eq!(joined(directory.as_bytes(), below.as_bytes()), whole.as_bytes());
        }
    }
}
