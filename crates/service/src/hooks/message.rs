//! The JSON that hooks and webhooks get: the same document for both.
//!
//! docs/guide/hooks.md shows it to users. Fields may be added at any time; within a schema, a field keeps its
//! name and meaning.

use std::collections::BTreeMap;

use farhaul::Error;
use farhaul::errors::Code;
use serde::{Deserialize, Serialize};

use super::HookMoment;

/// The version of the document's schema.
pub const MESSAGE_SCHEMA: u32 = 1;

/// The message that a hook or webhook gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookMessage {
    /// [`MESSAGE_SCHEMA`].
    pub schema: u32,
    /// The event.
    pub event: HookMoment,
    /// The id of the message. It stays the same when the message is delivered again, and no other message has
    /// it.
    pub delivery: String,
    /// When it happened, in unix milliseconds.
    pub at_ms: i64,
    /// The job that it is about.
    pub job: JobWords,
    /// The watched folder that it is about; only for `failing` and `recovered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchWords>,
    /// The results of files; only for `file`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileWords>,
    /// Why the run failed: for `fail`, and for `post` if some files failed; for `late` what is late; for `failing` why
    /// files fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorWords>,
}

/// A job, as programs see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobWords {
    /// Its id.
    pub id: String,
    /// The number of the run, from 1.
    pub run: u64,
    /// The job's state.
    pub state: String,
    /// The labels that it was submitted with.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The sources, as they were submitted: as many of them as fit in 64 KiB.
    pub sources: Vec<String>,
    /// How many sources there are.
    #[serde(default)]
    pub source_count: usize,
    /// The destination, as it was submitted.
    pub destination: String,
    /// True if it is a dry run: nothing is changed, and nothing arrives.
    #[serde(default)]
    pub dry_run: bool,
    /// How many files have arrived in this run; while it goes on, including those that were there before.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// How many entries have failed in this run so far.
    pub failed: u64,
    /// How many entries were deleted at the destination; of a dry run, how many would be.
    #[serde(default)]
    pub deleted: u64,
}

/// A watched folder, as programs see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchWords {
    /// Its id.
    pub id: String,
    /// The folder, as it was given.
    pub folder: String,
    /// How many files have failed and have not arrived since.
    pub failing: u64,
    /// When the next of them are taken again by themselves, in unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_ms: Option<i64>,
}

/// The result of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileResult {
    /// It has arrived.
    Arrived,
    /// Its content was already there: both ends have read it, and have the same digest.
    Present,
    /// A file of its size and time was already there. Its content was not compared.
    Unread,
    /// It would arrive; only in dry runs.
    WouldArrive,
    /// It has not arrived.
    Failed,
    /// It was gone from the source before it could be read. This does not count as a failure.
    Vanished,
}

/// A file that the job has finished with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileWords {
    /// Its path, escaped as in reports.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The result.
    pub result: FileResult,
    /// Its digest, with the algorithm, as in the manifest: `blake3-tree-1MiB:...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorWords>,
}

/// An error: a code of docs/reference/errors.md for programs, and a line for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorWords {
    /// The code, such as `FH-NO-SPACE`.
    pub code: String,
    /// A line that says what happened, and where.
    pub what: String,
}

impl From<&Error> for ErrorWords {
    fn from(error: &Error) -> ErrorWords {
        ErrorWords { code: error.code().name().into(), what: error.to_string() }
    }
}

impl ErrorWords {
    /// An error of which only the code is known.
    pub fn of(code: Code, what: impl Into<String>) -> ErrorWords {
        ErrorWords { code: code.name().into(), what: what.into() }
    }
}

impl HookMessage {
    /// The variables in a program's environment, for programs that do not read JSON.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variable = |name: &str, value: &str| (format!("FARHAUL_{name}"), value.to_string());
        vec![
            variable("EVENT", self.event.name()),
            variable("DELIVERY", &self.delivery),
            variable("JOB", &self.job.id),
            variable("RUN", &self.job.run.to_string()),
            variable("STATE", &self.job.state),
            variable("DRY_RUN", if self.job.dry_run { "true" } else { "false" }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_as_the_page_says() {
        let message = HookMessage {
            schema: MESSAGE_SCHEMA,
            event: HookMoment::File,
            delivery: "4k2m.1.file.9f3a60c1.7".into(),
            at_ms: 1_764_288_000_000,
            job: JobWords {
                id: "4k2m".into(),
                run: 1,
                state: "running".into(),
                labels: BTreeMap::from([("run".into(), "7".into())]),
                sources: vec!["/instrument/out".into()],
                source_count: 1,
                destination: "fh://hpc/incoming".into(),
                dry_run: false,
                files: 2,
                bytes: 4096,
                failed: 1,
                deleted: 0,
            },
            watch: None,
            files: vec![
                FileWords {
                    path: "a.h5".into(),
                    bytes: 4096,
                    result: FileResult::Arrived,
                    digest: Some("blake3-tree-1MiB:00ff".into()),
                    error: None,
                },
                FileWords {
                    path: "b.h5".into(),
                    bytes: 17,
                    result: FileResult::Failed,
                    digest: None,
                    error: Some(ErrorWords::of(Code::NoSpace, "cannot write b.h5: no space left")),
                },
            ],
            error: None,
        };
        let page = include_str!("../../../../docs/guide/hooks.md");
        let (_, rest) = page.split_once("```json\n").expect("the page shows a message");
        let (shown, _) = rest.split_once("```").expect("the message ends");
        let shown: serde_json::Value = serde_json::from_str(shown).expect("the page shows JSON");
        assert_eq!(serde_json::to_value(&message).unwrap(), shown);
        assert_eq!(serde_json::from_value::<HookMessage>(shown).unwrap(), message);
        for (name, value) in message.variables() {
            assert!(page.contains(&format!("`{name}`")) && !value.is_empty(), "{name}");
        }
    }
}
