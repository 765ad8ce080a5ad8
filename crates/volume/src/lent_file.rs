//! A whole file that has no name yet, lent to somebody who reads it before the file gets its name.
//!
//! Always true: the descriptor that is lent cannot be written through. Whoever may open the file by another way,
//! as a process of the same user can, may still change it; so [`LentFile::is_untouched`] is asked afterwards, and
//! the content is compared with its digest where one is known. A mode that keeps even the owner from reading is
//! relaxed for that time, so a thread that lends a file, or takes it back by dropping this, changes something.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{self, Mode};

use crate::change;
use crate::entry::{FileTime, Metadata};

/// See the module.
#[derive(Debug)]
pub struct LentFile {
    own: File,
    content: OwnedFd,
    size: u64,
    mtime: FileTime,
    /// The file's mode, if it was changed for this.
    mode: Option<u32>,
}

impl LentFile {
    pub(crate) fn of(file: &File) -> io::Result<LentFile> {
        let own = file.try_clone()?;
        let meta = Metadata::from(&fs::fstat(&own)?);
        let is_readable = meta.mode & 0o400 != 0;
        if !is_readable {
            change::fchmod(&own, Mode::from_raw_mode(meta.mode | 0o400))?;
        }
        let mode = (!is_readable).then_some(meta.mode);
        // A descriptor of its own, which cannot write and has its own position.
        let content = File::open(format!("/proc/self/fd/{}", own.as_raw_fd()));
        let content = content.map(OwnedFd::from).inspect_err(|_| give_back(&own, mode))?;
        Ok(LentFile { own, content, size: meta.size, mtime: meta.mtime, mode })
    }

    /// A descriptor by which the content can be read, and nothing else.
    pub fn content(&self) -> &OwnedFd {
        &self.content
    }

    /// Whether the file has the size and the time of its last change that it had when it was lent.
    pub fn is_untouched(&self) -> io::Result<bool> {
        let meta = Metadata::from(&fs::fstat(&self.own)?);
        Ok(meta.size == self.size && meta.mtime == self.mtime)
    }
}

fn give_back(file: &File, mode: Option<u32>) {
    if let Some(mode) = mode {
        // It worked in the other direction.
        let _ = change::fchmod(file, Mode::from_raw_mode(mode));
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        give_back(&self.own, self.mode);
    }
}
