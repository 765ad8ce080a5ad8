//! Finds out whether a file system takes a name before any content is written for it: some refuse characters,
//! or count the length of a name in a way of their own, and say so only when the name is given.
//!
//! A name that could be refused is tried by an empty file with another name, which has the same unusual
//! characters and the same length, and is removed at once: nobody must see an empty file under the name
//! itself. File systems that number their files themselves take any name that they can look up.
//!
//! Always true: in doubt nothing is refused here; the system will then report the error.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::change;
use crate::dir::{Dir, of_name};
use crate::entry::Metadata;
use crate::root::timestamps;
use crate::temp_file;

/// Longer names are unusual.
const USUAL_LEN: usize = 100;
/// The characters at the beginning of a long name that the tried name has others for.
const REPLACED: usize = 24;

/// Whether the directory keeps the time that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirTime {
    Changes,
    Stays,
}

/// Fails if the file system does not take this name.
pub(crate) fn check(dir: &Dir, name: &[u8], time: DirTime) -> io::Result<()> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(error @ (Errno::NAMETOOLONG | Errno::ILSEQ | Errno::INVAL)) => return Err(of_name(error)),
        Err(Errno::NOENT) => {}
        Ok(_) | Err(_) => return Ok(()),
    }
    if dir.keeps_inodes() || !is_unusual(name) {
        return Ok(());
    }
    let before = fs::fstat(dir).map(|stat| Metadata::from(&stat));
    let made = try_one(dir, &like(name));
    if let (DirTime::Stays, Ok(before)) = (time, before) {
        // At worst the directory has a new time.
        let _ = change::futimens(dir, &timestamps(before.mtime));
    }
    made
}

/// Returns the error of a name that could not be made. exFAT by FUSE says that something does not exist if it
/// refuses a name.
pub(crate) fn error_of(dir: &Dir, name: &[u8], error: Errno) -> io::Error {
    match error {
        Errno::NOENT => check(dir, name, DirTime::Changes).err().unwrap_or_else(|| error.into()),
        error => of_name(error),
    }
}

fn try_one(dir: &Dir, name: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match change::create(dir, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => {
            let _ = change::unlinkat(dir, name, AtFlags::empty());
            Ok(())
        }
        Err(error @ (Errno::NAMETOOLONG | Errno::ILSEQ | Errno::INVAL)) => Err(of_name(error)),
        // The directory is there, so it is the name that cannot be.
        Err(Errno::NOENT) if is_there(dir) => Err(of_name(Errno::INVAL)),
        Err(_) => Ok(()),
    }
}

fn is_there(dir: impl AsFd) -> bool {
    fs::fstat(dir).is_ok_and(|stat| stat.st_nlink > 0)
}

/// Whether a file system that has other rules than Unix might refuse the name.
fn is_unusual(name: &[u8]) -> bool {
    let ends_oddly = matches!(name.last(), Some(b'.' | b' '));
    name.len() > USUAL_LEN || ends_oddly || name.iter().any(is_odd) || std::str::from_utf8(name).is_err()
}

fn is_odd(byte: &u8) -> bool {
    matches!(byte, b'"' | b'*' | b':' | b'<' | b'>' | b'?' | b'\\' | b'|' | 0x01..=0x1f | 0x7f)
}

/// Another name with the same unusual characters, and as long if the name is long.
fn like(name: &[u8]) -> Vec<u8> {
    let mut other = format!(".fh{:08x}", temp_file::random()).into_bytes();
    if name.len() <= USUAL_LEN {
        other.extend_from_slice(name);
        return other;
    }
    let cut = match std::str::from_utf8(name) {
        Ok(text) => text.char_indices().nth(REPLACED).map_or(name.len(), |(at, _)| at),
        Err(_) => REPLACED,
    };
    let (replaced, rest) = name.split_at(cut);
    other.extend(replaced.iter().filter(|byte| is_odd(byte)).take(REPLACED - other.len()));
    other.resize(REPLACED, b'x');
    other.extend_from_slice(rest);
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tried_name_has_what_the_name_may_be_refused_for() {
        for name in ["10:00.log", "a?", "ends.", "ends ", "tab\t"] {
            let other = like(name.as_bytes());
            assert!(
                is_unusual(name.as_bytes()) && other.ends_with(name.as_bytes()) && other != name.as_bytes()
            );
        }
        assert!(is_unusual(b"\xff") && !is_unusual("plain näme.tar.gz".as_bytes()));
        for name in ["x".repeat(255), "é".repeat(255), format!("a:{}", "b".repeat(200))] {
            let other = String::from_utf8(like(name.as_bytes())).unwrap();
            assert_eq!(other.chars().count(), name.chars().count(), "{name}");
            assert_eq!(other.contains(':'), name.contains(':'));
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_and_nothing_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(std::fs::File::open(temp.path()).unwrap().into());
        assert!(check(&dir, "x".repeat(256).as_bytes(), DirTime::Stays).is_err());
        for name in ["plain", "a:b"] {
            check(&dir, name.as_bytes(), DirTime::Stays).unwrap();
            try_one(&dir, &like(name.as_bytes())).unwrap();
        }
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
