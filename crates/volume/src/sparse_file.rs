//! Writes content that is partly zeros, so that the zeros take no room on the disk.
//!
//! Always true: after a write the range reads as the content, whatever it held before, provided that
//! `PriorContent::Fresh` is only used for ranges that were never written.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::{FallocateFlags, SeekFrom, seek};
use rustix::io::Errno;

use crate::change;

const PAGE: usize = 4096;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The content of the file before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PriorContent {
    /// A hole.
    Fresh,
    /// Possibly older content.
    Used,
}

/// Writes `data` at `offset`, but leaves out whole pages of zeros.
pub(crate) fn write(file: &File, data: &[u8], offset: u64, prior: PriorContent) -> io::Result<()> {
    let mut at = 0;
    while at < data.len() {
        let run = next_run(data, at);
        let place = offset + at as u64;
        if run.is_zero {
            if prior == PriorContent::Used {
                clear(file, place..place + (run.end - at) as u64)?;
            }
        } else {
            change::write_all_at(file, &data[at..run.end], place)?;
        }
        at = run.end;
    }
    Ok(())
}

struct ZeroRun {
    end: usize,
    is_zero: bool,
}

/// The longest run of pages from `at` that are either all zero or all not.
fn next_run(data: &[u8], at: usize) -> ZeroRun {
    let page_end = |start: usize| (start + PAGE).min(data.len());
    let is_zero = |start: usize| data[start..page_end(start)] == ZEROS[..page_end(start) - start];
    let first = is_zero(at);
    let mut end = page_end(at);
    while end < data.len() && is_zero(end) == first {
        end = page_end(end);
    }
    ZeroRun { end, is_zero: first }
}

/// Makes a range read as zeros; costs nothing where it is a hole.
pub(crate) fn clear(file: &File, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data >= range.end => return Ok(()),
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(()),
            // The file system does not tell, so all of it may be data.
            Err(_) => at,
        };
        let end = seek(file, SeekFrom::Hole(data)).unwrap_or(range.end).clamp(data, range.end);
        let end = if end == data { range.end } else { end };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if change::fallocate(file, flags, data, end - data).is_err() {
            fill_with_zeros(file, data..end)?;
        }
        at = end;
    }
    Ok(())
}

fn fill_with_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(ZEROS.len() as u64);
        change::write_all_at(file, &ZEROS[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn zeros_take_no_room_and_replace_what_was_there() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let mut data = vec![0u8; 200_000];
        data[100_000] = 1;
        write(&file, &data, 4096, PriorContent::Fresh).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 <= 16 << 10);
        file.write_all_at(&[9; 300_000], 0).unwrap();
        write(&file, &data, 4096, PriorContent::Used).unwrap();
        let mut back = vec![1; data.len()];
        file.read_exact_at(&mut back, 4096).unwrap();
        assert!(back == data);
        let mut edges = [0; 2];
        file.read_exact_at(&mut edges[..1], 4095).unwrap();
        file.read_exact_at(&mut edges[1..], 204_096).unwrap();
        assert_eq!(edges, [9, 9]);
    }
}
