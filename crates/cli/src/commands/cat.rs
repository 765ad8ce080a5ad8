//! `farhaul cat`: contents on standard output, in order.

use farhaul::{Code, Error, ExitCode, Range, RemoteFile};

use super::look::each;
use crate::args::look::Cat;
use crate::values::ByteRange;

pub fn run(args: &Cat) -> ExitCode {
    if args.look.json {
        let what = "--json and contents both need stdout; farhaul stat --json says what a file is";
        let error = Error::new(Code::BadOption, what);
        crate::ui::printer::error(&error, None);
        return error.exit_code();
    }
    each(&args.look, |named, outcome| {
        let file = named.remote.file(named.path)?;
        let mut reader = file.reader(range(args.range, &file));
        while let Some(bytes) = reader.next_chunk()? {
            outcome.write(&bytes);
            outcome.flush();
            if outcome.is_lost() {
                break;
            }
        }
        Ok(())
    })
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
