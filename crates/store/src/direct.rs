//! Whole chunks past the page cache: a second descriptor of a file with O_DIRECT, used where it is measured to be faster.
//!
//! Always true: the second descriptor is of the same file; a way that the kernel refuses once is not tried again; the
//! choice reads no clock. Where memory is touched for the first time, filling the page cache costs more than the disk;
//! where the disk is slow and memory is there, less. So neither way is right for every machine.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::{self, Mode, OFlags};

use crate::CHUNK;

/// What every usual disk and file system takes as the alignment of memory.
const ALIGN: usize = 4096;
/// Chunks of each way before there is a choice.
const FIRST: u64 = 4;
/// One chunk in so many is written the other way, to notice when that has become faster.
const RESAMPLE: u64 = 64;

/// The second descriptor of a file.
pub(crate) struct Direct {
    file: File,
    choice: Mutex<Choice>,
}

impl Direct {
    /// Opens the file called `name` once more, if it is `file` and can be written past the cache. None for a file that
    /// is over before there is a choice.
    pub(crate) fn open(dir: &OwnedFd, name: &[u8], file: &File, chunks: u64) -> Option<Direct> {
        if chunks <= FIRST {
            return None;
        }
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let second = fs::openat(dir, name, flags, Mode::empty()).ok()?;
        let (ours, found) = (fs::fstat(file).ok()?, fs::fstat(&second).ok()?);
        let is_same = (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino);
        is_same.then(|| Direct { file: second.into(), choice: Mutex::new(Choice::default()) })
    }

    /// Whether `data` may be written this way at all.
    pub(crate) fn takes(data: &[u8]) -> bool {
        data.len() as u64 == CHUNK && (data.as_ptr() as usize).is_multiple_of(ALIGN)
    }

    /// Writes a chunk that this takes, past the cache or with `buffered`, whichever is the faster.
    pub(crate) fn write(
        &self,
        data: &[u8],
        offset: u64,
        buffered: impl Fn(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let way = self.choice().next();
        let begin = Instant::now();
        match way {
            Way::Buffered => buffered(data, offset)?,
            Way::Direct => match self.file.write_at(data, offset) {
                Ok(len) if len == data.len() => {}
                // What is left need not be aligned. It is rare, and says nothing about speed.
                Ok(len) => return buffered(&data[len..], offset + len as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return buffered(data, offset),
                Err(error) if is_refusal(&error) => {
                    self.choice().forbid_direct();
                    return buffered(data, offset);
                }
                Err(error) => return Err(error),
            },
        }
        let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.choice().took(way, nanos);
        Ok(())
    }

    fn choice(&self) -> MutexGuard<'_, Choice> {
        // Plain numbers: whole at every point.
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the error says that this file or disk is not written this way.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTTY))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Buffered,
    Direct,
}

/// Which way the next chunk goes.
#[derive(Debug, Default)]
struct Choice {
    asked: u64,
    buffered: Cost,
    direct: Cost,
    is_direct_forbidden: bool,
}

impl Choice {
    /// The way of the next chunk. Several may be on their way before the first is known to have ended.
    fn next(&mut self) -> Way {
        let number = self.asked;
        self.asked += 1;
        let faster = match (self.buffered.nanos, self.direct.nanos) {
            _ if self.is_direct_forbidden || number < FIRST => return Way::Buffered,
            _ if number < 2 * FIRST => return Way::Direct,
            (Some(buffered), Some(direct)) if direct < buffered => Way::Direct,
            _ => Way::Buffered,
        };
        match (number % RESAMPLE == RESAMPLE - 1, faster) {
            (false, way) => way,
            (true, Way::Buffered) => Way::Direct,
            (true, Way::Direct) => Way::Buffered,
        }
    }

    fn took(&mut self, way: Way, nanos: u64) {
        match way {
            Way::Buffered => self.buffered.add(nanos),
            Way::Direct => self.direct.add(nanos),
        }
    }

    fn forbid_direct(&mut self) {
        self.is_direct_forbidden = true;
    }
}

/// Smoothed nanoseconds of a chunk, None before the first.
#[derive(Debug, Default)]
struct Cost {
    nanos: Option<u64>,
}

impl Cost {
    fn add(&mut self, sample: u64) {
        self.nanos = Some(self.nanos.map_or(sample, |old| old - old / 4 + sample / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `chunks` chunks choose, with these costs; how many of them went direct.
    fn directs(choice: &mut Choice, chunks: u64, buffered: u64, direct: u64) -> u64 {
        let mut count = 0;
        for _ in 0..chunks {
            let way = choice.next();
            choice.took(way, if way == Way::Direct { direct } else { buffered });
            count += u64::from(way == Way::Direct);
        }
        count
    }

    #[test]
    fn both_ways_are_tried_before_the_faster_is_taken() {
        let mut choice = Choice::default();
        assert_eq!(directs(&mut choice, 4, 500, 100), 0);
        assert_eq!(directs(&mut choice, 4, 500, 100), 4);
        assert_eq!(directs(&mut choice, 640, 500, 100), 630);
        let mut choice = Choice::default();
        assert_eq!(directs(&mut choice, 8, 100, 500), 4);
        assert_eq!(directs(&mut choice, 640, 100, 500), 10);
    }

    #[test]
    fn a_change_of_speed_is_noticed() {
        let mut choice = Choice::default();
        directs(&mut choice, 64, 100, 500);
        directs(&mut choice, 640, 900, 200);
        assert_eq!(directs(&mut choice, 64, 900, 200), 63);
    }

    #[test]
    fn what_is_not_known_yet_is_not_chosen() {
        let mut choice = Choice::default();
        let ways: Vec<Way> = (0..12).map(|_| choice.next()).collect();
        assert_eq!(ways[..4], [Way::Buffered; 4]);
        assert_eq!(ways[4..8], [Way::Direct; 4]);
        assert_eq!(ways[8..], [Way::Buffered; 4]);
    }

    #[test]
    fn refused_once_is_refused_for_good() {
        let mut choice = Choice::default();
        directs(&mut choice, 20, 500, 100);
        choice.forbid_direct();
        assert_eq!(directs(&mut choice, 200, 500, 100), 0);
    }

    #[test]
    fn only_what_the_disk_takes_goes_past_the_cache() {
        for (code, refused) in
            [(libc::EINVAL, true), (libc::EOPNOTSUPP, true), (libc::ENOTTY, true), (libc::ENOSPC, false)]
        {
            assert_eq!(is_refusal(&io::Error::from_raw_os_error(code)), refused);
        }
        let block = crate::BlockPool::new(1, CHUNK as usize + ALIGN).unwrap().take();
        assert!(Direct::takes(&block[..CHUNK as usize]) && Direct::takes(&block[ALIGN..]));
        assert!(!Direct::takes(&block[1..][..CHUNK as usize]) && !Direct::takes(&block[..ALIGN]));
    }

    /// Whether memory that is not aligned is refused depends on the file system; the chunk is written in any case.
    #[test]
    fn a_refused_chunk_is_written_through_the_cache() {
        let temp = tempfile::tempdir().unwrap();
        let dir: OwnedFd = File::open(temp.path()).unwrap().into();
        let file = File::create(temp.path().join("name")).unwrap();
        let Some(direct) = Direct::open(&dir, b"name", &file, 100) else { return };
        let block = crate::BlockPool::new(1, CHUNK as usize + 1).unwrap().take();
        for index in 0..2 * FIRST {
            direct.write(&block[1..], index * CHUNK, |data, offset| file.write_all_at(data, offset)).unwrap();
        }
        assert_eq!(file.metadata().unwrap().len(), 2 * FIRST * CHUNK);
    }

    #[test]
    fn another_file_of_the_same_name_is_not_written() {
        let temp = tempfile::tempdir().unwrap();
        let dir: OwnedFd = File::open(temp.path()).unwrap().into();
        let file = File::create(temp.path().join("name")).unwrap();
        assert!(Direct::open(&dir, b"name", &file, FIRST).is_none(), "too short to choose");
        std::fs::rename(temp.path().join("name"), temp.path().join("moved")).unwrap();
        assert!(Direct::open(&dir, b"name", &file, 100).is_none());
        File::create(temp.path().join("name")).unwrap();
        assert!(Direct::open(&dir, b"name", &file, 100).is_none());
        std::fs::remove_file(temp.path().join("name")).unwrap();
        std::os::unix::fs::symlink("moved", temp.path().join("name")).unwrap();
        assert!(Direct::open(&dir, b"name", &file, 100).is_none());
    }
}
