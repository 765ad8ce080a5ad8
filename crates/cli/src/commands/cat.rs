//! `farhaul cat`: contents on standard output, in order.

use farhaul::{Code, Error, ExitCode, Range, RemoteFile};

use super::look::{Outcome, together};
use crate::args::look::Cat;
use crate::values::ByteRange;

pub fn run(args: &Cat) -> ExitCode {
    if args.look.json {
        let what = "--json and contents both need stdout; farhaul stat --json says what a file is";
        let error = Error::new(Code::BadOption, what);
        crate::ui::printer::error(&error, None);
        return error.exit_code();
    }
    together(&args.look, |remote, paths, _, outcome| {
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

fn write(args: &Cat, file: &RemoteFile, outcome: &mut Outcome) -> Result<(), Error> {
    let mut reader = file.reader(range(args.range, file));
    while let Some(bytes) = reader.next_chunk()? {
        outcome.pass_on(&bytes);
        if outcome.is_lost() {
            break;
        }
    }
    Ok(())
}

fn range(wanted: Option<ByteRange>, file: &RemoteFile) -> Range {
    match wanted {
        None => Range { offset: 0, len: file.size() },
        Some(ByteRange::From { offset, len }) => Range { offset, len },
        Some(ByteRange::Last(len)) => {
            let offset = file.size().saturating_sub(len);
            Range { offset, len: file.size() - offset }
        }
    }
}
