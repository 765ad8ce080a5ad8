//! `farhaul cat`: contents on standard output, in order.

use farhaul::Error;
use farhaul::errors::{Code, ExitCode};
use farhaul::read::{FileRange, RemoteFile};

use super::read_verbs::{LookOutcome, together};
use crate::args::read_verbs::CatArgs;
use crate::values::ByteRange;

pub fn run(args: &CatArgs) -> ExitCode {
    if args.read.json {
        let reason =
            "contents go to stdout, so there is no place for --json; farhaul stat --json describes a file";
        let error = Error::new(Code::BadOption, reason);
        crate::ui::printer::error(&error, None);
        return error.exit_code();
    }
    together(&args.read, |remote, paths, _, outcome| {
        for (path, file) in remote.files(paths) {
            let done = file.and_then(|file| write(args, &file, outcome));
            outcome.note(remote, &path, done)?;
            if outcome.is_lost() {
                break;
            }
        }
        Ok(())
    })
}

fn write(args: &CatArgs, file: &RemoteFile, outcome: &mut LookOutcome) -> Result<(), Error> {
    let mut reader = file.reader(range(args.range, file));
    while let Some(bytes) = reader.next_chunk()? {
        outcome.pass_on(&bytes);
        if outcome.is_lost() {
            break;
        }
    }
    Ok(())
}

fn range(wanted: Option<ByteRange>, file: &RemoteFile) -> FileRange {
    match wanted {
        None => FileRange { offset: 0, len: file.size() },
        Some(ByteRange::From { offset, len }) => FileRange { offset, len },
        Some(ByteRange::Last(len)) => {
            let offset = file.size().saturating_sub(len);
            FileRange { offset, len: file.size() - offset }
        }
    }
}
