//! A pipe, into which the frames go one after another.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use crate::shown_path;
use farhaul::Error;
use farhaul::errors::Code;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::control::{LOOK_EVERY, ShowControl};

/// A pipe that is ready takes this many bytes at once without waiting.
const WRITTEN_AT_ONCE: usize = 4096;

pub(crate) struct PipeSink {
    file: File,
    shown: String,
    /// How much of the frame that comes has gone into the pipe.
    written: u64,
    control: ShowControl,
}

impl PipeSink {
    pub(crate) fn open(path: Option<&Path>, control: ShowControl) -> Result<PipeSink, Error> {
        let shown = path.map_or_else(|| "standard output".into(), shown_path);
        let file = match path {
            Some(path) => open_named(path, &control),
            None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        };
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Error::interrupted(),
            _ => Error::with_source(Code::of_files(&error), format!("cannot write {shown}"), error),
        })?;
        Ok(PipeSink { file, shown, written: 0, control })
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        // Of a frame that comes again after a lost connection, the pipe has the beginning.
        let known = self.written.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut rest = &bytes[known..];
        while !rest.is_empty() {
            if self.control.is_aborted() {
                return Err(Error::interrupted());
            }
            match self.some(rest) {
                Ok(len) => {
                    rest = &rest[len..];
                    self.written += len as u64;
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => {
                    let what = format!("cannot write {}", self.shown);
                    return Err(Error::with_source(Code::OutputLost, what, error));
                }
            }
        }
        Ok(())
    }

    fn some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut watched = [PollFd::new(&self.file, PollFlags::OUT)];
        let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as i64 };
        match poll(&mut watched, Some(&wait))? {
            0 => Ok(0),
            _ => self.file.write(&bytes[..bytes.len().min(WRITTEN_AT_ONCE)]),
        }
    }

    pub(crate) fn complete(&mut self) {
        self.written = 0;
    }
}

/// Opens a named pipe once it has a reader; any other file at once.
fn open_named(path: &Path, control: &ShowControl) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    loop {
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        match File::options().write(true).custom_flags(flags).open(path) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                if control.is_stopped() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                std::thread::sleep(LOOK_EVERY);
            }
            opened => return opened,
        }
    }
}
