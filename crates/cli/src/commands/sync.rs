//! `farhaul sync`: a copy of the contents of one directory, with the options of a sync.

use farhaul::errors::ExitCode;

use super::cp::{self, TransferCommand};
use crate::args::SyncArgs;

pub fn run(args: &SyncArgs) -> ExitCode {
    cp::transfer(TransferCommand {
        locations: &args.locations,
        connection: &args.connection,
        transfer: &args.transfer,
        select: &args.select,
        output: &args.output,
        preserve: args.preserve,
        checksum: args.likeness.checksum,
        sync: args.likeness.options().map(Some),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use farhaul::options::{DeleteOptions, DeleteWhen, SyncOptions};

    use crate::args::{Cli, Verb};

    fn sync(arguments: &str) -> Result<SyncOptions, String> {
        let words = ["farhaul", "sync"].into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.verb {
            Verb::Sync(sync) => sync.likeness.options().map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_way_of_deleting() {
        let delete =
            |when, excluded, max| Some(DeleteOptions { when, excluded, max, ..DeleteOptions::default() });
        for (arguments, expected) in [
            ("a b", None),
            ("a --delete b", delete(DeleteWhen::After, false, None)),
            ("--delete-after --max-delete 3 a b", delete(DeleteWhen::After, false, "3".parse().ok())),
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
        let delete = |arguments: &str| sync(&format!("{arguments} a b")).unwrap().delete.unwrap();
        assert_eq!(delete("--delete --max-delete 10%").max, "10%".parse().ok());
        assert_eq!(delete("--delete --delete-guard").guard, Some(true));
        assert_eq!(delete("--delete --delete-guard --no-delete-guard").guard, Some(false));
        assert!(delete("--delete --delete-anyway").anyway);
        for words in ["--del a b", "--delete-during a b", "--delete-delay a b"] {
            assert_eq!(sync(words), sync("--delete a b"), "{words}");
        }
        assert!(sync("-c a b").unwrap().checksum && sync("--detect-renames a b").unwrap().detect_renames);
        for wrong in [
            "--max-delete 3 a b",
            "--delete-across-mounts a b",
            "--delete-before --delete-after a b",
            "--max-delete -1 a b",
            "--delete --max-delete 101% a b",
            "--delete-guard a b",
            "--delete-anyway a b",
        ] {
            assert!(sync(wrong).is_err(), "{wrong}");
        }
    }
}
