//! Copies a file within one root, by the file system itself if it can.
//!
//! Always true: the copy gets its name only when it is complete, and holes stay holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::change;
use crate::rel_path::RelPath;
use crate::room;
use crate::root::Root;
use crate::small_file::{TempFile, WriteOptions};

/// Bytes that one call copies, so that `goes_on` is asked often enough.
const STEP: u64 = 64 << 20;

/// Makes `path` a copy of an open file. `goes_on` is asked now and then.
pub fn clone_file(
    root: &Root,
    from: &File,
    path: &RelPath,
    options: &WriteOptions,
    goes_on: impl Fn() -> bool,
) -> io::Result<()> {
    let temp = TempFile::create(root, path)?;
    if change::ioctl_ficlone(temp.file(), from).is_err() {
        copy(from, temp.file(), goes_on)?;
    }
    temp.finish(options)
}

fn copy(from: &File, to: &File, goes_on: impl Fn() -> bool) -> io::Result<()> {
    let size = from.metadata()?.len();
    let mut at = 0;
    while at < size {
        at = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            // The file system does not report holes.
            Err(_) => at,
        };
        let end = seek(from, SeekFrom::Hole(at)).unwrap_or(size).clamp(at, size);
        let end = if end == at { size } else { end };
        while at < end {
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            at += copy_some(from, to, at, (end - at).min(STEP))?;
        }
    }
    // Set the size last, as some file systems would first fill the rest with zeros.
    room::complete(to, size)
}

fn copy_some(from: &File, to: &File, at: u64, len: u64) -> io::Result<u64> {
    let (mut source, mut target) = (at, at);
    if let Ok(count @ 1..) =
        change::copy_file_range(from, Some(&mut source), to, Some(&mut target), len as usize)
    {
        return Ok(count as u64);
    }
    let mut buffer = vec![0; len.min(1 << 20) as usize];
    match from.read_at(&mut buffer, at)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => change::write_all_at(to, &buffer[..count], at).map(|()| count as u64),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::entry::FileTime;

    #[test]
    fn a_copy_is_the_same_and_has_the_same_holes() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let from = File::create_new(temp.path().join("from")).unwrap();
        from.set_len(20 << 20).unwrap();
        from.write_all_at(b"head", 0).unwrap();
        from.write_all_at(&[7; 100_000], 9 << 20).unwrap();
        let from = File::open(temp.path().join("from")).unwrap();
        let to = RelPath::from_bytes(b"to").unwrap();
        let options =
            WriteOptions { mode: 0o640, mtime: Some(FileTime::new(5, 6)), ..WriteOptions::default() };
        assert!(
            clone_file(&root, &from, &to, &options, || false).is_err() || temp.path().join("to").exists()
        );
        clone_file(&root, &from, &to, &options, || true).unwrap();
        let read = |name: &str| std::fs::read(temp.path().join(name)).unwrap();
        assert!(read("from") == read("to"));
        let meta = std::fs::metadata(temp.path().join("to")).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()), (0o640, 5, 6));
        assert!(meta.blocks() * 512 <= 1 << 20, "{} blocks", meta.blocks());
    }
}
