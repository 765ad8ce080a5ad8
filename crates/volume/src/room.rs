//! Reserves room for a file, and sets its size, before its content is there.
//!
//! Most file systems make a file larger by just noting its size. Some fill it with zeros (FAT, exFAT, NTFS by
//! FUSE), so that a large file would be written twice, and whoever wants to stop it would wait for the zeros.
//! There a file grows as it is written.
//!
//! Always true: a file is complete only after [`complete`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use crate::change;

/// The kinds of file systems, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In memory there is no use in lying together, and every page would be cleared twice.
    Memory,
    /// Room can only be reserved beyond the end of a file.
    Fat,
    /// Making a file larger may fill it with zeros.
    Filling,
    Other,
}

fn kind(file: &File) -> Kind {
    #[allow(clippy::unnecessary_cast, reason = "the field's width differs between architectures")]
    let number = fs::fstatfs(file).map_or(0, |stat| stat.f_type as i64 & 0xffff_ffff);
    match number {
        // tmpfs
        0x0102_1994 => Kind::Memory,
        0x4d44 => Kind::Fat,
        // exFAT, FUSE, NTFS, HFS+
        0x2011_bab0 | 0x6573_5546 | 0x7366_746e | 0x482b => Kind::Filling,
        _ => Kind::Other,
    }
}

/// Reserves the room of a whole file, so that a full disk is noticed before the first byte, and the file lies
/// in one piece. Returns true if the file's size can be set at no cost.
pub(crate) fn reserve(file: &File, size: u64) -> io::Result<bool> {
    let kind = kind(file);
    if size == 0 || kind == Kind::Memory {
        return Ok(true);
    }
    let flags = if kind == Kind::Fat { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    match change::fallocate(file, flags, 0, size) {
        Ok(()) => Ok(kind != Kind::Fat),
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        // A file on a file system that cannot reserve is written without a reservation.
        Err(_) => Ok(false),
    }
}

/// Sets the size of a file. If that would fill it with zeros, it is only truncated if it is too long.
pub(crate) fn resize(file: &File, size: u64, is_reserved: bool) -> io::Result<()> {
    let may_grow = is_reserved || matches!(kind(file), Kind::Memory | Kind::Other);
    if may_grow || file.metadata()?.len() > size { change::set_len(file, size) } else { Ok(()) }
}

/// Sets the size of a file whose content is there, in case it ends with a hole.
pub(crate) fn complete(file: &File, size: u64) -> io::Result<()> {
    if file.metadata()?.len() < size { change::set_len(file, size) } else { Ok(()) }
}

/// Reads content; beyond the end of the file there are zeros.
pub(crate) fn read_padded(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[filled..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_size_when_it_is_complete() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"content", 0).unwrap();
        resize(&file, 3, false).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3, "what is too long is cut everywhere");
        complete(&file, 10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10);
        let mut buffer = [9; 6];
        read_padded(&file, &mut buffer, 1).unwrap();
        assert_eq!(&buffer, b"on\0\0\0\0");
        read_padded(&file, &mut buffer, 7).unwrap();
        assert_eq!(buffer, [0; 6]);
    }

    #[test]
    fn room_is_reserved_where_there_is_some() {
        let file = tempfile::tempfile().unwrap();
        let is_reserved = reserve(&file, 1 << 20).unwrap();
        resize(&file, 1 << 20, is_reserved).unwrap();
        assert!(!is_reserved || file.metadata().unwrap().len() == 1 << 20);
    }
}
