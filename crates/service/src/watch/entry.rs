//! The rows about files of a folder, which a store keeps.

use std::fmt;
use std::sync::Arc;

use farhaul::errors::Code;
use farhaul::sisters::{escape, unescape};
use rustix::fs::Stat;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::scheduler::backoff;

/// A path below the folder, in bytes. As text it is escaped as in reports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchedName(Arc<[u8]>);

impl WatchedName {
    /// The name for a path below the folder.
    pub fn new(path: impl AsRef<[u8]>) -> WatchedName {
        WatchedName(Arc::from(path.as_ref()))
    }

    /// The bytes of the path.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name of an entry of this directory. The folder itself has an empty name.
    pub(super) fn child(&self, name: &[u8]) -> WatchedName {
        match self.0.is_empty() {
            true => WatchedName::new(name),
            false => WatchedName::new([&*self.0, b"/", name].concat()),
        }
    }

    /// True if it lies in this directory.
    pub(super) fn is_below(&self, dir: &WatchedName) -> bool {
        dir.0.is_empty() || self.0.strip_prefix(&*dir.0).is_some_and(|rest| rest.starts_with(b"/"))
    }
}

impl fmt::Display for WatchedName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for WatchedName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", escape(&self.0))
    }
}

impl Serialize for WatchedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WatchedName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WatchedName, D::Error> {
        let text = String::deserialize(deserializer)?;
        unescape(&text)
            .map(WatchedName::new)
            .ok_or_else(|| serde::de::Error::custom("this is not an escaped path"))
    }
}

/// Distinguishes one state of a file from another. Two are the same version if all fields agree: a program can
/// set back the time of the content (`cp -p` does), but not the time of the last change. The device is not
/// part of it, as its number changes when a file system is mounted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// The inode number.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// When its content last changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// When anything about it last changed, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

impl FileVersion {
    pub(super) fn of(stat: &Stat) -> FileVersion {
        FileVersion {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanos(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// True if this may be the same version after the file was renamed, which changes only the time of the last
    /// change.
    pub(super) fn may_be_renamed(&self, other: &FileVersion) -> bool {
        (self.inode, self.size, self.mtime_ns) == (other.inode, other.size, other.mtime_ns)
    }
}

/// Nanoseconds since 1970; a time that does not fit becomes the nearest that does. `rest` is generic, as the
/// kernel's field has another width on each processor.
fn nanos(seconds: i64, rest: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest.try_into().unwrap_or(0))
}

/// The state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FileStatus {
    /// It was seen, and has not changed since.
    New,
    /// It has changed since it was first seen, or somebody had it open.
    Settling,
    /// A job has taken it.
    Taken {
        /// The id of the job.
        job: String,
    },
    /// A job has taken it, and it has changed since; it is taken again after that job.
    Changed {
        /// The id of the job.
        job: String,
    },
    /// It has arrived.
    Done {
        /// The id of the job that brought it.
        job: String,
    },
    /// It has not arrived. [`FailureHistory`] says whether it is taken again by itself.
    Failed {
        /// The id of the job.
        job: String,
        /// The reason, in one line.
        why: String,
    },
    /// It does not exist any more. If the same version comes back, it gets its earlier state.
    Gone {
        /// The earlier state.
        past: PastStatus,
    },
}

/// The state of a file before it was gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "was", rename_all = "snake_case")]
pub enum PastStatus {
    /// A job has taken it.
    Taken {
        /// The id of the job.
        job: String,
    },
    /// It has arrived.
    Done {
        /// The id of the job that brought it.
        job: String,
    },
    /// It has not arrived.
    Failed {
        /// The id of the job.
        job: String,
        /// The reason, in one line.
        why: String,
    },
}

impl From<PastStatus> for FileStatus {
    fn from(past: PastStatus) -> FileStatus {
        match past {
            PastStatus::Taken { job } => FileStatus::Taken { job },
            PastStatus::Done { job } => FileStatus::Done { job },
            PastStatus::Failed { job, why } => FileStatus::Failed { job, why },
        }
    }
}

/// The words for the states, in the order in which a file goes through them.
pub const STATES: [&str; 7] = ["new", "settling", "taken", "changed", "done", "failed", "gone"];

impl FileStatus {
    /// The word for the state.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The state that is kept when the file is gone; `None` if nobody has taken the file.
    pub(super) fn past(&self) -> Option<PastStatus> {
        match self.clone() {
            FileStatus::New | FileStatus::Settling => None,
            FileStatus::Taken { job } | FileStatus::Changed { job } => Some(PastStatus::Taken { job }),
            FileStatus::Done { job } => Some(PastStatus::Done { job }),
            FileStatus::Failed { job, why } => Some(PastStatus::Failed { job, why }),
            FileStatus::Gone { past } => Some(past),
        }
    }
}

/// The reason why a job has not brought a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFailure {
    /// The code of the reason.
    pub code: Code,
    /// The reason, in one line.
    pub why: String,
    /// True if the file is to be taken again by itself, as the reason can pass.
    pub passes: bool,
    /// True if the job failed as a whole: then the reason has passed for this file, too, when another job of the
    /// folder gets through.
    pub whole: bool,
}

impl FileFailure {
    /// A failure of this file alone. The list of codes says whether it passes.
    pub fn of_file(code: Code, why: impl Into<String>) -> FileFailure {
        FileFailure { code, why: why.into(), passes: backoff::may_mend(code), whole: false }
    }
}

/// What is known of a file that has failed and has not arrived since, also while it is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureHistory {
    /// The code of the last reason.
    #[serde(deserialize_with = "code_of_name")]
    pub code: Code,
    /// The last reason, in one line.
    pub why: String,
    /// How many jobs in a row have failed for this version.
    pub tries: u32,
    /// When it failed first, in unix milliseconds.
    pub since_ms: i64,
    /// When it is taken again by itself, in unix milliseconds; `None` if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// See [`FileFailure::whole`].
    #[serde(default)]
    pub whole: bool,
}

/// Another version of the service may have written a code that this one does not know.
fn code_of_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(Code::of_name(&name).unwrap_or(Code::FilesFailed))
}

/// A row about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedFile {
    /// The path of the file, which is the row's key.
    pub name: WatchedName,
    /// The version that `status` is about: if the file is or was taken, the version that was taken.
    pub version: FileVersion,
    /// The state.
    #[serde(flatten)]
    pub status: FileStatus,
    /// Since when it is in this state, in unix milliseconds.
    pub since_ms: i64,
    /// Set from the first failure until the file arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailureHistory>,
}

/// A change for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChange {
    /// Adds this row, or replaces the one with the same name.
    Put(WatchedFile),
    /// Removes the row.
    Remove(WatchedName),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let job = || "4k2m".to_string();
        let why = || "no space left".to_string();
        let all = [
            (FileStatus::New, r#""state":"new""#),
            (FileStatus::Settling, r#""state":"settling""#),
            (FileStatus::Taken { job: job() }, r#""state":"taken","job":"4k2m""#),
            (FileStatus::Changed { job: job() }, r#""state":"changed","job":"4k2m""#),
            (FileStatus::Done { job: job() }, r#""state":"done","job":"4k2m""#),
            (
                FileStatus::Failed { job: job(), why: why() },
                r#""state":"failed","job":"4k2m","why":"no space left""#,
            ),
            (
                FileStatus::Gone { past: PastStatus::Done { job: job() } },
                r#""state":"gone","past":{"was":"done","job":"4k2m"}"#,
            ),
        ];
        let version = FileVersion { inode: u64::MAX, size: 1, mtime_ns: -1, ctime_ns: i64::MAX };
        for (status, text) in all {
            assert!(text.contains(status.name()) && STATES.contains(&status.name()));
            let failing = FailureHistory {
                code: Code::NotListening,
                why: why(),
                tries: 3,
                since_ms: 5,
                due_ms: Some(9),
                whole: true,
            };
            for failing in [None, Some(failing)] {
                let (name, status) = (WatchedName::new(b"a\xff\\b\n"), status.clone());
                let entry = WatchedFile { name, version, status, since_ms: 7, failing };
                let written = serde_json::to_string(&entry).unwrap();
                assert!(written.contains(text), "{written}");
                assert_eq!(serde_json::from_str::<WatchedFile>(&written).unwrap(), entry);
            }
        }
    }

    #[test]
    fn a_name_is_below_directories_only() {
        let name = |text: &str| WatchedName::new(text);
        assert!(name("a/b").is_below(&name("a")) && name("a/b").is_below(&name("")));
        assert!(!name("ab").is_below(&name("a")) && !name("a").is_below(&name("a")));
        assert_eq!(name("").child(b"x").child(b"y"), name("x/y"));
    }
}
