//! `farhaul stat`: shows what there is at a path.

use farhaul::errors::ExitCode;
use farhaul::read::{ListEntry, PathKind};

use super::ls::{EntryJson, joined, permissions};
use super::read_verbs::{LookOutcome, together};
use crate::args::read_verbs::StatArgs;
use crate::ui::units;

pub fn run(args: &StatArgs) -> ExitCode {
    together(&args.read, |remote, paths, _, outcome| {
        for (path, entry) in remote.stats(paths, args.dereference) {
            let done = entry.map(|entry| show(args, &joined(&path, b""), &entry, outcome));
            outcome.note(remote, &path, done)?;
            if outcome.is_lost() {
                break;
            }
        }
        Ok(())
    })
}

fn show(args: &StatArgs, path: &[u8], entry: &ListEntry, outcome: &mut LookOutcome) {
    if args.read.json {
        return outcome.json(&EntryJson::new(path, entry));
    }
    let mut name = outcome.name(path);
    if entry.kind == PathKind::Symlink {
        name.extend_from_slice(b" -> ");
        name.extend_from_slice(&outcome.name(&entry.target));
    }
    let identity = &entry.identity;
    let (modified, changed) = (units::date(identity.mtime.secs), units::date(identity.ctime.secs));
    outcome.write(&name);
    outcome.write(
            format!(
                "\n  {}, {}, mode {:04o} ({}), {}\n  modified {modified}, changed {changed}, inode {}, device {}\n",
                entry.kind.name(),
                units::count(identity.size, "byte"),
                entry.mode,
                permissions(entry),
                units::count(entry.links, "name"),
                identity.inode,
                identity.device,
            )
            .as_bytes(),
        );
}
