//! `farhaul stat`: what there is at a path.

use farhaul::{ExitCode, Kind};

use super::look::each;
use super::ls::{Shown, joined, permissions};
use crate::args::look::Stat;
use crate::ui::units;

pub fn run(args: &Stat) -> ExitCode {
    each(&args.look, |named, outcome| {
        let entry = match args.dereference {
            true => named.remote.stat(named.path)?,
            false => named.remote.stat_link(named.path)?,
        };
        let path = joined(named.path, b"");
        if args.look.json {
            outcome.json(&Shown::new(&path, &entry));
            return Ok(());
        }
        let mut name = outcome.name(&path);
        if entry.kind == Kind::Symlink {
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
                permissions(&entry),
                units::count(entry.links, "name"),
                identity.inode,
                identity.device,
            )
            .as_bytes(),
        );
        Ok(())
    })
}
