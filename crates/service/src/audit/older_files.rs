//! The older files of an audit log, beside it: `audit.log.older-1` is the newest of them.
//!
//! Always true: there are at most [`OLDER`] of them; a file that is full gets the first name, and what had the last
//! name is gone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use farhaul::Error;
use farhaul::errors::Code;

/// How many older files are kept.
const OLDER: u32 = 3;
/// The fewest bytes of one file, so that no line fills it.
const FILE_MIN: u64 = 1 << 20;

/// How many bytes one file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeLimit {
    each: u64,
    /// The file goes on to this size, as no new one could begin.
    put_off_to: u64,
}

impl SizeLimit {
    /// For all files together.
    pub(super) fn of(size_max: u64) -> SizeLimit {
        SizeLimit { each: (size_max / u64::from(OLDER + 1)).max(FILE_MIN), put_off_to: 0 }
    }

    pub(super) fn is_reached(self, size: u64) -> bool {
        size >= self.each.max(self.put_off_to)
    }

    /// Tries again when the file has grown by as much as a small one has.
    pub(super) fn put_off(&mut self, size: u64) {
        self.put_off_to = size.saturating_add(FILE_MIN);
    }
}

/// The path of an older file.
pub(super) fn older(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".older-{number}"));
    name.into()
}

/// Makes the file at the path the first of the older ones.
pub(super) fn make_older(path: &Path) -> Result<(), Error> {
    let rename = |from: &Path, to: &Path| match std::fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!("cannot rename {} to {}", from.display(), to.display());
            Err(Error::with_source(Code::of_files(&error), what, error))
        }
        Ok(()) | Err(_) => Ok(()),
    };
    for number in (1..OLDER).rev() {
        rename(&older(path, number), &older(path, number + 1))?;
    }
    rename(path, &older(path, 1))
}
