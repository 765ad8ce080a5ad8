//! Why one item among many has failed while the others go on: an entry of a copy, a range of a file.

use std::io;

use farhaul_text::plain;

use super::Code;
use crate::codec::{ByteReader, Malformed, put_reason, put_varint};
use crate::error::Error;

/// The system's words for a full file system, in small letters.
const NO_SPACE: &str = "no space left on device";

/// A code for programs, and a reason for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For programs.
    pub code: Code,
    /// For people.
    pub reason: String,
}

impl Failure {
    /// A failure with this code and these words.
    pub fn new(code: Code, reason: impl Into<String>) -> Failure {
        Failure { code, reason: reason.into() }
    }

    /// A failure with the system's own words.
    pub fn of(error: &io::Error) -> Failure {
        Failure::new(Code::of_files(error), plain(error))
    }

    /// The failure of an action that the system refused: `cannot write: no space left on device`.
    pub fn cannot(what: &str, error: &io::Error) -> Failure {
        Failure::new(Code::of_files(error), format!("cannot {what}: {}", plain(error)))
    }

    /// The content is there, but something about the file could not be set: `cannot set its time: operation
    /// not permitted`.
    pub fn not_set(what: &str, error: &io::Error) -> Failure {
        Failure::new(Code::MetadataNotSet, format!("cannot set {what}: {}", plain(error)))
    }

    /// Returns whether all content is there in spite of the failure.
    pub fn is_about_metadata(&self) -> bool {
        self.code == Code::MetadataNotSet
    }

    /// The same failure for a file system without free inodes, which may still have room for bytes.
    pub fn without_files(&self) -> Failure {
        const WHY: &str = "no inodes left: the file system takes no more files, whatever their size";
        let reason = match self.reason.to_ascii_lowercase().find(NO_SPACE) {
            Some(at) => {
                let (before, after) = self.reason.split_at(at);
                format!("{before}{WHY}{}", &after[NO_SPACE.len()..])
            }
            None if self.reason.contains(WHY) => self.reason.clone(),
            None => format!("{} ({WHY})", self.reason),
        };
        Failure { code: self.code, reason }
    }

    /// Appends the failure as messages carry it.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.code.number()));
        put_reason(out, &self.reason);
    }

    /// Reads what [`Failure::put`] wrote. A code that this version does not know becomes
    /// [`Code::FilesFailed`].
    pub fn take(reader: &mut ByteReader<'_>) -> Result<Failure, Malformed> {
        let number = u16::try_from(reader.varint()?).map_err(|_| Malformed)?;
        Ok(Failure::new(Code::of_number(number).unwrap_or(Code::FilesFailed), reader.text()?))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::new(failure.code, failure.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_full_of_files_is_told_from_one_without_room() {
        let why = "no inodes left: the file system takes no more files, whatever their size";
        for (reason, told) in [
            ("cannot create: no space left on device", format!("cannot create: {why}")),
            ("cannot create: No space left on device (in /a)", format!("cannot create: {why} (in /a)")),
            ("no room", format!("no room ({why})")),
        ] {
            let failure = Failure::new(Code::NoSpace, reason).without_files();
            assert_eq!(failure, Failure::new(Code::NoSpace, told));
            assert_eq!(failure.without_files(), failure);
        }
    }

    #[test]
    fn it_comes_back_and_an_unknown_code_is_one_of_files() {
        let failure = Failure::cannot("write", &io::Error::from_raw_os_error(28));
        assert_eq!(failure, Failure::new(Code::NoSpace, "cannot write: no space left on device"));
        let mut bytes = Vec::new();
        failure.put(&mut bytes);
        assert_eq!(Failure::take(&mut ByteReader(&bytes)), Ok(failure));
        let mut later = Vec::new();
        put_varint(&mut later, 4999);
        put_reason(&mut later, "why");
        assert_eq!(Failure::take(&mut ByteReader(&later)), Ok(Failure::new(Code::FilesFailed, "why")));
        assert_eq!(Failure::take(&mut ByteReader(&[0xff, 0xff, 0xff, 0xff, 1, 0])), Err(Malformed));
    }
}
