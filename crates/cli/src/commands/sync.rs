//! `farhaul sync`: a copy of one directory's content with the options of a sync.

use farhaul::{DeleteOptions, DeleteWhen, ExitCode, SyncOptions};

use super::cp::{self, Transfer};
use crate::args::Sync;

pub fn run(args: &Sync) -> ExitCode {
    cp::transfer(Transfer {
        locations: &args.locations,
        connection: &args.connection,
        transfer: &args.transfer,
        select: &args.select,
        output: &args.output,
        preserve: args.preserve,
        sync: options(args).map(Some),
    })
}

fn options(args: &Sync) -> Result<SyncOptions, String> {
    let deletes = args.delete || args.delete_before || args.delete_after || args.delete_excluded;
    if args.max_delete.is_some() && !deletes {
        return Err("--max-delete needs --delete".into());
    }
    if args.delete_across_mounts && !deletes {
        return Err("--delete-across-mounts needs --delete".into());
    }
    let when = if args.delete_before { DeleteWhen::Before } else { DeleteWhen::After };
    let delete = deletes.then_some(DeleteOptions {
        when,
        excluded: args.delete_excluded,
        max: args.max_delete,
        across_mounts: args.delete_across_mounts,
    });
    Ok(SyncOptions { checksum: args.checksum, detect_renames: args.detect_renames, delete })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Verb};

    fn sync(arguments: &str) -> Result<SyncOptions, String> {
        let words = ["farhaul", "sync"].into_iter().chain(arguments.split_whitespace());
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.verb {
            Verb::Sync(sync) => options(&sync),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_way_of_deleting() {
        let delete = |when, excluded, max| Some(DeleteOptions { when, excluded, max, across_mounts: false });
        for (arguments, expected) in [
            ("a b", None),
            ("a --delete b", delete(DeleteWhen::After, false, None)),
            ("--delete-after --max-delete 3 a b", delete(DeleteWhen::After, false, Some(3))),
            ("--delete --delete-before a b", delete(DeleteWhen::Before, false, None)),
            ("--delete-excluded a b", delete(DeleteWhen::After, true, None)),
        ] {
            assert_eq!(
                sync(arguments).unwrap(),
                SyncOptions { delete: expected, ..SyncOptions::default() },
                "{arguments}"
            );
        }
        assert!(sync("--delete --delete-across-mounts a b").unwrap().delete.unwrap().across_mounts);
        assert!(sync("-c a b").unwrap().checksum && sync("--detect-renames a b").unwrap().detect_renames);
        for wrong in [
            "--max-delete 3 a b",
            "--delete-across-mounts a b",
            "--delete-before --delete-after a b",
            "--max-delete -1 a b",
        ] {
            assert!(sync(wrong).is_err(), "{wrong}");
        }
    }
}
