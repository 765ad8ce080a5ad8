//! Reads and writes whole chunks past the page cache (O_DIRECT) by a second descriptor of a file, if
//! measurements show that this is faster.
//!
//! Always true: the second descriptor is of the same file. If the kernel refuses direct I/O once, it is not
//! tried again with that file. The queue depth is the number of threads, each with one chunk
//! (docs/design/data-path.md says what a ring of requests would gain).

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use rustix::fs::{self, Advice, Mode, OFlags};

use crate::CHUNK;
use crate::change;
use crate::io_choice::{IoChoice, IoMode, READING, TRIAL_CHUNKS, WRITING};
use crate::sys::cached_bytes;

/// The alignment of memory that every usual disk and file system accepts.
const ALIGN: usize = 4096;
/// How many bytes are read ahead into the cache.
const READ_AHEAD: NonZeroU64 = NonZeroU64::new(4 * CHUNK).expect("several chunks");

/// The second descriptor of a file, for direct I/O.
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: File,
    choice: Arc<IoChoice>,
    is_refused: AtomicBool,
    /// The offset up to which read-ahead was requested.
    read_ahead_end: AtomicU64,
}

impl DirectFile {
    /// Opens the file called `name` (empty if it has none) once more, if it is `file` and can be written past
    /// the cache. Returns `None` for a file of a few chunks, for which a second descriptor is not worthwhile.
    pub(crate) fn open(dir: &OwnedFd, name: &[u8], file: &File, chunks: u64) -> Option<DirectFile> {
        if chunks <= TRIAL_CHUNKS {
            return None;
        }
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let second = match name {
            // The link under /proc for the descriptor has to be followed.
            [] => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                fs::open(path, flags.difference(OFlags::NOFOLLOW), Mode::empty()).ok()?
            }
            name => fs::openat(dir, name, flags, Mode::empty()).ok()?,
        };
        let (first_stat, second_stat) = (fs::fstat(file).ok()?, fs::fstat(&second).ok()?);
        let is_same = (first_stat.st_dev, first_stat.st_ino) == (second_stat.st_dev, second_stat.st_ino);
        let choice = IoChoice::of_device(&WRITING, first_stat.st_dev);
        is_same.then(|| DirectFile::new(second, choice))
    }

    /// Opens a source file once more, if it can be read past the cache.
    pub(crate) fn of_source(file: &File) -> Option<DirectFile> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let second = fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty()).ok()?;
        // Reads from the cache tell nothing about the disk's speed. If the system cannot tell what is cached,
        // each file gets a choice of its own.
        let choice = match cached_bytes(file, 0, 1) {
            Ok(_) => IoChoice::of_device(&READING, fs::fstat(file).ok()?.st_dev),
            Err(_) => Arc::new(IoChoice::new(&READING)),
        };
        // Switch off the kernel's read-ahead, which would fill the cache and then be measured by it. Advice
        // may fail.
        let _ = fs::fadvise(file, 0, None, Advice::Random);
        Some(DirectFile::new(second, choice))
    }

    fn new(second: OwnedFd, choice: Arc<IoChoice>) -> DirectFile {
        let (is_refused, read_ahead_end) = (AtomicBool::new(false), AtomicU64::new(0));
        DirectFile { file: second.into(), choice, is_refused, read_ahead_end }
    }

    /// Whether direct I/O is possible with `data`: a whole chunk in aligned memory.
    pub(crate) fn takes(data: &[u8]) -> bool {
        data.len() as u64 == CHUNK && (data.as_ptr() as usize).is_multiple_of(ALIGN)
    }

    /// Writes a chunk that [`DirectFile::takes`], past the cache or with `buffered`, whichever is faster.
    pub(crate) fn write(
        &self,
        data: &[u8],
        offset: u64,
        buffered: impl Fn(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_refused.load(Relaxed) {
            return buffered(data, offset);
        }
        let mode = self.choose_mode(false);
        let busy = self.enter();
        match mode {
            IoMode::Buffered => buffered(data, offset)?,
            IoMode::Direct => match change::write_at(&self.file, data, offset) {
                Ok(len) if len == data.len() => {}
                // The rest may not be aligned. This is rare, and tells nothing about speed.
                Ok(len) => return buffered(&data[len..], offset + len as u64),
                Err(error) if self.note_refusal(&error) => return buffered(data, offset),
                Err(error) => return Err(error),
            },
        }
        busy.record(mode);
        Ok(())
    }

    /// Reads into a chunk that [`DirectFile::takes`], past the cache or with `buffered`, whichever is faster;
    /// cached content is copied from the cache. Reads fewer bytes only at the end of `source`, the file's
    /// first descriptor.
    pub(crate) fn read(
        &self,
        source: &File,
        data: &mut [u8],
        offset: u64,
        buffered: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.is_refused.load(Relaxed) {
            return buffered(data, offset);
        }
        let end = self.read_ahead_end.load(Relaxed);
        let is_read_ahead = offset < end && end - offset <= READ_AHEAD.get();
        let is_cached = || cached_bytes(source, offset, CHUNK).is_ok_and(|cached| cached >= CHUNK);
        if !is_read_ahead && is_cached() {
            return buffered(data, offset);
        }
        // Called even if the mode is given by the read-ahead: when the choice turns to direct I/O, no more
        // read-ahead is requested.
        let chosen = self.choose_mode(is_read_ahead);
        let mode = if is_read_ahead { IoMode::Buffered } else { chosen };
        let busy = self.enter();
        let len = match mode {
            IoMode::Buffered => {
                if chosen == IoMode::Buffered && (!is_read_ahead || self.choice.is_buffered_faster()) {
                    self.request_read_ahead(source, offset + CHUNK);
                }
                buffered(data, offset)?
            }
            IoMode::Direct => match self.file.read_at(data, offset) {
                Ok(len) if len == data.len() => len,
                Ok(len) => return Ok(len + buffered(&mut data[len..], offset + len as u64)?),
                Err(error) if self.note_refusal(&error) => {
                    if self.is_refused.load(Relaxed) {
                        let _ = fs::fadvise(source, 0, None, Advice::Sequential);
                    }
                    return buffered(data, offset);
                }
                Err(error) => return Err(error),
            },
        };
        busy.record(mode);
        Ok(len)
    }

    fn request_read_ahead(&self, source: &File, offset: u64) {
        // Advice may fail.
        let _ = fs::fadvise(source, offset, Some(READ_AHEAD), Advice::WillNeed);
        self.read_ahead_end.fetch_max(offset + READ_AHEAD.get(), Relaxed);
    }

    /// Chooses the mode. If no thread waits for the disk, buffered I/O only looks faster, as the disk has
    /// read ahead meanwhile, or has not begun to write. Buffered I/O takes more of the processor, and delayed
    /// writes have to be waited for in the end.
    fn choose_mode(&self, is_read_ahead: bool) -> IoMode {
        match self.choice.is_buffered_faster() || self.choice.load.is_waited_for() {
            true => self.choice.next(is_read_ahead),
            false => IoMode::Direct,
        }
    }

    fn enter(&self) -> BusyGuard<'_> {
        let begin = Instant::now();
        self.choice.load.enter(begin);
        BusyGuard { choice: &self.choice, begin }
    }

    /// Whether the error means that direct I/O does not work here, now or ever. If it never does, it is not
    /// tried again.
    fn note_refusal(&self, error: &io::Error) -> bool {
        let refused = is_refusal(error);
        self.is_refused.fetch_or(refused, Relaxed);
        refused || error.kind() == io::ErrorKind::Interrupted
    }
}

/// Marks a thread as reading or writing a chunk.
struct BusyGuard<'a> {
    choice: &'a IoChoice,
    begin: Instant,
}

impl BusyGuard<'_> {
    /// Notes that the whole chunk was done in this mode.
    fn record(&self, mode: IoMode) {
        if self.choice.load.is_settled() {
            let nanos = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.choice.record(mode, nanos);
        }
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.choice.load.leave(self.begin, Instant::now());
    }
}

/// Whether the error means that this file or disk does not support direct I/O.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTTY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::say_skipped;

    /// A directory beside the source, which is on a disk as a rule; that of temporary files may be in memory.
    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    fn say_skipped_without_direct_io(test: &str) {
        say_skipped(test, "the file system of the source has no direct I/O");
    }

    #[test]
    fn only_whole_aligned_chunks_go_past_the_cache() {
        for (code, refused) in
            [(libc::EINVAL, true), (libc::EOPNOTSUPP, true), (libc::ENOTTY, true), (libc::ENOSPC, false)]
        {
            assert_eq!(is_refusal(&io::Error::from_raw_os_error(code)), refused);
        }
        let block = farhaul_blocks::BlockPool::new(1, CHUNK as usize + ALIGN).unwrap().take();
        assert!(DirectFile::takes(&block[..CHUNK as usize]) && DirectFile::takes(&block[ALIGN..]));
        assert!(!DirectFile::takes(&block[1..][..CHUNK as usize]) && !DirectFile::takes(&block[..ALIGN]));
    }

    /// Whether unaligned memory is refused depends on the file system; in any case the chunk is written.
    #[test]
    fn a_refused_chunk_is_written_through_the_cache() {
        let temp = folder();
        let dir: OwnedFd = File::open(temp.path()).unwrap().into();
        let file = File::create(temp.path().join("name")).unwrap();
        let Some(direct) = DirectFile::open(&dir, b"name", &file, 100) else {
            return say_skipped_without_direct_io("a_refused_chunk_is_written_through_the_cache");
        };
        let block = farhaul_blocks::BlockPool::new(1, CHUNK as usize + 1).unwrap().take();
        for index in 0..2 * TRIAL_CHUNKS {
            direct.write(&block[1..], index * CHUNK, |data, offset| file.write_all_at(data, offset)).unwrap();
        }
        assert_eq!(file.metadata().unwrap().len(), 2 * TRIAL_CHUNKS * CHUNK);
    }

    /// A measurement from a bad moment must not decide for the rest of what is read, however far ahead the
    /// cache is filled, and in whatever order files are read.
    #[test]
    fn files_that_are_read_ahead_are_tried_past_the_cache_again() {
        for count in [1, 3, 8] {
            let temp = folder();
            let choice = IoChoice::new(&READING);
            for _ in 0..2 * TRIAL_CHUNKS {
                choice.record(choice.next(false), u64::MAX / 200);
            }
            choice.record(IoMode::Buffered, 0);
            let choice = Arc::new(choice);
            let each = 400 / count;
            let files: Vec<_> = (0..count)
                .filter_map(|index| {
                    let path = temp.path().join(index.to_string());
                    File::create(&path).unwrap().set_len(each * CHUNK).unwrap();
                    let file = File::open(&path).unwrap();
                    let mut direct = DirectFile::of_source(&file)?;
                    direct.choice = choice.clone();
                    Some((file, direct))
                })
                .collect();
            assert!(choice.is_buffered_faster());
            let mut block = farhaul_blocks::BlockPool::new(1, CHUNK as usize).unwrap().take();
            for index in 0..each {
                for (file, direct) in &files {
                    let buffered = |data: &mut [u8], offset| file.read_at(data, offset);
                    let len = direct.read(file, &mut block, index * CHUNK, buffered);
                    assert_eq!(len.unwrap() as u64, CHUNK);
                }
            }
            if files.is_empty() || files.iter().any(|(_, direct)| direct.is_refused.load(Relaxed)) {
                return say_skipped_without_direct_io(
                    "files_that_are_read_ahead_are_tried_past_the_cache_again",
                );
            }
            let nanos = choice.nanos_direct();
            assert!(
                nanos < u64::MAX / 400,
                "{nanos} ns are still the value from the beginning, {count} files"
            );
        }
    }

    #[test]
    fn another_file_of_the_same_name_is_not_written() {
        let temp = folder();
        let dir: OwnedFd = File::open(temp.path()).unwrap().into();
        let file = File::create(temp.path().join("name")).unwrap();
        if DirectFile::open(&dir, b"name", &file, 100).is_none() {
            return say_skipped_without_direct_io("another_file_of_the_same_name_is_not_written");
        }
        assert!(
            DirectFile::open(&dir, b"name", &file, TRIAL_CHUNKS).is_none(),
            "too few chunks for a choice"
        );
        std::fs::rename(temp.path().join("name"), temp.path().join("moved")).unwrap();
        assert!(DirectFile::open(&dir, b"name", &file, 100).is_none());
        File::create(temp.path().join("name")).unwrap();
        assert!(DirectFile::open(&dir, b"name", &file, 100).is_none());
        std::fs::remove_file(temp.path().join("name")).unwrap();
        std::os::unix::fs::symlink("moved", temp.path().join("name")).unwrap();
        assert!(DirectFile::open(&dir, b"name", &file, 100).is_none());
    }
}
