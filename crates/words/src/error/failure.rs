//! Why one item among many has failed while the others go on: an entry of a copy, a range of a file.

use std::io;

use farhaul_text::plain;

use super::Code;
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
}
