//! Frames from a pipe, cut by a size or by the lengths that come before them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use crate::shown_path;
use farhaul::Error;
use farhaul::errors::Code;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::{FrameStart, PipeCut};
use crate::control::{LOOK_EVERY, ShowControl};
use crate::label::FRAME_LEN_MAX;

pub(crate) struct PipeSource {
    file: File,
    cut: PipeCut,
    shown: String,
    frame: u64,
    /// A byte of the next frame, read to find out if there is one.
    ahead: Option<u8>,
    control: ShowControl,
}

impl PipeSource {
    pub(crate) fn open(path: Option<&Path>, cut: PipeCut, control: ShowControl) -> Result<PipeSource, Error> {
        let shown = path.map_or_else(|| "standard input".into(), shown_path);
        let file = match path {
            // The other end of a named pipe may come later, and so may a signal.
            Some(path) => open_named(path, &control),
            None => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        };
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Error::interrupted(),
            _ => Error::with_source(Code::of_files(&error), format!("cannot read {shown}"), error),
        })?;
        Ok(PipeSource { file, cut, shown, frame: 0, ahead: None, control })
    }

    pub(crate) fn frame_len(&self) -> Option<u64> {
        match self.cut {
            PipeCut::Fixed(len) => Some(len),
            PipeCut::Prefixed => None,
        }
    }

    pub(crate) fn begin(&mut self) -> Result<Option<FrameStart>, Error> {
        let start = |size| Some(FrameStart { size, metadata: Vec::new() });
        match self.cut {
            PipeCut::Fixed(size) => {
                let mut first = [0];
                if self.fill(&mut first)? == 0 {
                    return Ok(None);
                }
                self.ahead = Some(first[0]);
                Ok(start(size))
            }
            PipeCut::Prefixed => {
                let mut prefix = [0; 4];
                match self.fill(&mut prefix)? {
                    0 => Ok(None),
                    4 => match u64::from(u32::from_le_bytes(prefix)) {
                        size if size <= FRAME_LEN_MAX => Ok(start(size)),
                        size => {
                            let what =
                                format!("frame {} in {} would have {size} bytes", self.frame, self.shown);
                            Err(Error::new(Code::TooLarge, what).with_hint(
                                "a frame has at most 1 GiB, and before it come four bytes, little-endian",
                            ))
                        }
                    },
                    len => Err(self.cut_off(len as u64, 4)),
                }
            }
        }
        .inspect(|_| self.frame += 1)
    }

    /// Fills `into` with the next bytes of the frame.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<(), Error> {
        match self.fill(into)? {
            len if len == into.len() => Ok(()),
            len => Err(self.cut_off(len as u64, into.len() as u64)),
        }
    }

    fn cut_off(&self, len: u64, wanted: u64) -> Error {
        if self.control.is_stopped() {
            return Error::interrupted();
        }
        let frame = self.frame.saturating_sub(1);
        let what =
            format!("{} ended inside of frame {frame}: {len} bytes came where {wanted} were due", self.shown);
        Error::new(Code::SourceChanged, what).with_hint("see if `frame` is the size of the frames")
    }

    /// Reads until `into` is full, the pipe ends, or the show is to end.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        if let (Some(first), Some(place)) = (self.ahead, into.first_mut()) {
            *place = first;
            self.ahead = None;
            done = 1;
        }
        let failed = |shown: &str, error: io::Error| {
            Error::with_source(Code::of_files(&error), format!("cannot read {shown}"), error)
        };
        while done < into.len() {
            if self.control.is_stopped() {
                break;
            }
            if !is_ready(&self.file).map_err(|error| failed(&self.shown, error))? {
                continue;
            }
            match self.file.read(&mut into[done..]) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(failed(&self.shown, error)),
            }
        }
        Ok(done)
    }
}

/// Opens a named pipe once it has a writer; any other file at once.
fn open_named(path: &Path, control: &ShowControl) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file =
        File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)?;
    let is_pipe =
        rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == rustix::fs::FileType::Fifo;
    if is_pipe {
        // Without a writer a named pipe reads as ended, but it only polls as ended after it had one.
        while !is_ready(&file)? {
            if control.is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }
    Ok(file)
}

/// Waits for bytes or the end of the pipe, for a moment.
fn is_ready(file: &File) -> io::Result<bool> {
    let mut watched = [PollFd::new(file, PollFlags::IN)];
    let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as i64 };
    match poll(&mut watched, Some(&wait)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(content: &[u8], cut: PipeCut) -> Result<Vec<Vec<u8>>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        std::fs::write(&path, content).unwrap();
        let mut source = PipeSource::open(Some(&path), cut, ShowControl::new())?;
        let mut frames = Vec::new();
        while let Some(start) = source.begin()? {
            let mut frame = vec![0; start.size as usize];
            source.read(&mut frame)?;
            frames.push(frame);
        }
        Ok(frames)
    }

    #[test]
    fn a_pipe_is_cut_by_a_size_or_by_lengths() {
        assert_eq!(frames(b"abcdef", PipeCut::Fixed(3)).unwrap(), [b"abc", b"def"]);
        assert_eq!(frames(b"", PipeCut::Fixed(3)).unwrap(), Vec::<Vec<u8>>::new());
        let prefixed = b"\x02\0\0\0ab\0\0\0\0\x01\0\0\0c";
        assert_eq!(frames(prefixed, PipeCut::Prefixed).unwrap(), [&b"ab"[..], b"", b"c"]);
    }

    #[test]
    fn a_pipe_that_ends_inside_of_a_frame_is_an_error() {
        for (content, cut) in [
            (&b"abcd"[..], PipeCut::Fixed(3)),
            (b"\x02\0\0", PipeCut::Prefixed),
            (b"\x02\0\0\0a", PipeCut::Prefixed),
        ] {
            assert_eq!(frames(content, cut).unwrap_err().code(), Code::SourceChanged, "{content:?}");
        }
        assert_eq!(frames(b"\xff\xff\xff\xff", PipeCut::Prefixed).unwrap_err().code(), Code::TooLarge);
    }
}
