//! Input and output that may wait for another program for ever, such as a pipe that nobody reads. Such a wait
//! ends once the work is told to end.
//!
//! Always true: a wait looks every 50 ms whether it is to end. Descriptors that other programs share are not
//! changed. After [`GivenUp`] only the beginning of the bytes has been written.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use farhaul_session::handle::Handle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// How often a wait looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Where poll(2) sees room, a write of this many bytes does not wait (PIPE_BUF).
const PIECE: usize = 4096;
/// How long a stopped program waits for a reader that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The error of a wait that was told to end.
#[derive(Debug, Clone, Copy)]
pub struct GivenUp;

impl GivenUp {
    fn error() -> io::Error {
        io::Error::other(GivenUp)
    }

    /// Returns whether this is the error.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<GivenUp>())
    }
}

impl std::error::Error for GivenUp {}

impl std::fmt::Display for GivenUp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted while another program kept it waiting")
    }
}

/// An output whose reader may be slow, or never read.
#[derive(Debug)]
pub struct InterruptibleOutput {
    file: File,
    /// The most bytes of one write.
    piece_max: usize,
}

impl InterruptibleOutput {
    /// Writes to what this descriptor leads to.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<InterruptibleOutput> {
        let file = File::from(descriptor.try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        if kind.is_fifo() {
            // Opened anew, the pipe is non-blocking for this program alone.
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            if let Ok(file) = OpenOptions::new().write(true).custom_flags(non_blocking()).open(name) {
                return Ok(InterruptibleOutput { file, piece_max: usize::MAX });
            }
        }
        let piece_max = if kind.is_fifo() || kind.is_socket() { PIECE } else { usize::MAX };
        Ok(InterruptibleOutput { file, piece_max })
    }

    /// Creates the file, or empties it if `may_be_emptied` says so of the regular file that was opened: another
    /// one may have got its name since somebody looked. A named pipe has to get a reader first, so this waits for
    /// one.
    pub(crate) fn create(
        path: &Path,
        may_be_emptied: &dyn Fn(&File) -> io::Result<()>,
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<InterruptibleOutput> {
        let is_pipe = || path.metadata().is_ok_and(|meta| meta.file_type().is_fifo());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).custom_flags(non_blocking());
        loop {
            match options.open(path) {
                Ok(file) => {
                    if file.metadata()?.is_file() {
                        may_be_emptied(&file)?;
                        file.set_len(0)?;
                    }
                    return Ok(InterruptibleOutput { file, piece_max: usize::MAX });
                }
                Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) && is_pipe() => {}
                Err(error) => return Err(error),
            }
            if is_stopped() {
                return Err(GivenUp::error());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Writes all bytes. Once the work is stopped, this fails with [`GivenUp`] if the reader then takes nothing
    /// for `patience`.
    pub fn write_all(
        &self,
        mut bytes: &[u8],
        is_stopped: &dyn Fn() -> bool,
        patience: Duration,
    ) -> io::Result<()> {
        let mut stopped = None;
        while !bytes.is_empty() {
            if !is_ready(&self.file, PollFlags::OUT)? {
                if is_stopped() && stopped.get_or_insert_with(Instant::now).elapsed() >= patience {
                    return Err(GivenUp::error());
                }
                continue;
            }
            match rustix::io::write(&self.file, &bytes[..bytes.len().min(self.piece_max)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    stopped = stopped.map(|_| Instant::now());
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// As [`InterruptibleOutput::write_all`], with the patience for a report.
    pub fn write_report(&self, bytes: &[u8], is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        self.write_all(bytes, is_stopped, PATIENCE)
    }
}

/// An output that a transfer writes to until the transfer is cancelled.
#[derive(Debug)]
pub(crate) struct TransferOutput {
    output: InterruptibleOutput,
    handle: Handle,
}

impl TransferOutput {
    /// As [`InterruptibleOutput::create`].
    pub(crate) fn create(
        path: &Path,
        may_be_emptied: &dyn Fn(&File) -> io::Result<()>,
        handle: &Handle,
    ) -> io::Result<TransferOutput> {
        let output = InterruptibleOutput::create(path, may_be_emptied, &|| handle.is_cancelled())?;
        Ok(TransferOutput { output, handle: handle.clone() })
    }
}

impl Write for TransferOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write_report(bytes, &|| self.handle.is_cancelled())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An input whose writer may be silent. A read fails with [`GivenUp`] if the work is cancelled meanwhile.
pub(crate) struct InterruptibleInput {
    file: File,
    handle: Handle,
}

impl InterruptibleInput {
    /// Opens the file. A named pipe does not need a writer yet.
    pub(crate) fn open(path: &Path, handle: &Handle) -> io::Result<InterruptibleInput> {
        let file = OpenOptions::new().read(true).custom_flags(non_blocking()).open(path)?;
        Ok(InterruptibleInput { file, handle: handle.clone() })
    }
}

impl Read for InterruptibleInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if is_ready(&self.file, PollFlags::IN)? {
                match self.file.read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                }
            } else if self.handle.is_cancelled() {
                return Err(GivenUp::error());
            }
        }
    }
}

/// Waits for a short time; returns whether the descriptor is ready, or has an error to tell.
fn is_ready(file: &File, flags: PollFlags) -> io::Result<bool> {
    let time = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
    match poll(&mut [PollFd::new(file, flags)], Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn non_blocking() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use rustix::pipe::pipe;

    use super::*;

    const STOPPED: &dyn Fn() -> bool = &|| true;

    fn named_pipe(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    #[test]
    fn what_a_reader_takes_is_written_whole() {
        let content: Vec<u8> = (0..3_000_001_u32).map(|n| n as u8).collect();
        let sockets = UnixStream::pair().unwrap();
        for (from, to) in [pipe().unwrap(), (OwnedFd::from(sockets.0), OwnedFd::from(sockets.1))] {
            let reading = std::thread::spawn(move || {
                let mut got = Vec::new();
                File::from(from).read_to_end(&mut got).unwrap();
                got
            });
            InterruptibleOutput::of(to.as_fd()).unwrap().write_all(&content, &|| false, PATIENCE).unwrap();
            drop(to);
            assert!(reading.join().unwrap() == content);
        }
    }

    #[test]
    fn what_nobody_reads_is_given_up_and_the_descriptor_stays_blocking() {
        let sockets = UnixStream::pair().unwrap();
        for (from, to) in [pipe().unwrap(), (OwnedFd::from(sockets.0), OwnedFd::from(sockets.1))] {
            let output = InterruptibleOutput::of(to.as_fd()).unwrap();
            let error = output.write_all(&[7; 3 << 20], STOPPED, Duration::ZERO).unwrap_err();
            assert!(GivenUp::is(&error), "{error}");
            assert!(!rustix::fs::fcntl_getfl(&to).unwrap().contains(OFlags::NONBLOCK));
            drop(from);
            let error = output.write_all(&[7], STOPPED, Duration::ZERO).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn small_pieces_never_wait_for_a_pipe_that_cannot_be_opened_anew() {
        let (_from, to) = pipe().unwrap();
        let output = InterruptibleOutput { file: File::from(to), piece_max: PIECE };
        let error = output.write_all(&[7; 1 << 20], STOPPED, Duration::ZERO).unwrap_err();
        assert!(GivenUp::is(&error), "{error}");
    }

    #[test]
    fn a_named_pipe_waits_for_its_other_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = named_pipe(folder.path());
        let handle = Handle::new();
        let mut input = InterruptibleInput::open(&path, &handle).unwrap();
        let mut output = TransferOutput::create(&path, &|_| Ok(()), &handle).unwrap();
        output.write_all(b"content").unwrap();
        drop(output);
        let mut got = String::new();
        input.read_to_string(&mut got).unwrap();
        assert_eq!(got, "content");
    }

    #[test]
    fn a_named_pipe_without_its_other_end_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = named_pipe(folder.path());
        let handle = Handle::new();
        handle.cancel();
        assert!(GivenUp::is(&TransferOutput::create(&path, &|_| Ok(()), &handle).err().unwrap()));
        let error = InterruptibleInput::open(&path, &handle).unwrap().read(&mut [0; 8]).unwrap_err();
        assert!(GivenUp::is(&error), "{error}");
    }
}
