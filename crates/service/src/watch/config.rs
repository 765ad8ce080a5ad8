//! The settings of a watched folder.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::Code;
use serde::{Deserialize, Serialize};

use super::names::NameFilter;
use super::tree::FolderReach;
use crate::config::values::{TextValue, written};

/// A folder, and which files are taken from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderWatch {
    /// The folder, as an absolute path.
    pub folder: PathBuf,
    /// How many seconds a file must not have changed before it is taken, 1 to 86,400.
    #[serde(default = "settle_s")]
    pub settle_s: u32,
    /// Seconds between two scans of the whole folder, 1 to 86,400. By default 60, or 10 where the kernel does
    /// not report changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescan_s: Option<u32>,
    /// Takes only files that match one of these patterns. Without any, takes all files.
    #[serde(default)]
    pub include: Vec<String>,
    /// Takes no files that match one of these patterns, and enters no directories that do.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// True if names that begin with a dot are taken, too.
    #[serde(default)]
    pub hidden: bool,
    /// The action on a file that has arrived.
    #[serde(default)]
    pub after: AfterAction,
    /// The directories that its owner may reach.
    #[serde(skip)]
    pub reach: FolderReach,
}

/// The action on a file at its source, once the receiver has confirmed that the file is on its disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AfterAction {
    /// Nothing: it stays as it is.
    #[default]
    Keep,
    /// A marker is put beside it: a file with its name and `.farhaul-done`.
    Mark,
    /// It is moved to this directory, which is an absolute path or lies below the folder, and must be on the
    /// same file system.
    Move(PathBuf),
    /// It is deleted.
    Delete,
}

written!(AfterAction);

impl TextValue for AfterAction {
    const EXPECTED: &'static str = "\"keep\", \"mark\", \"delete\" or \"move:DIRECTORY\"";

    fn read(text: &str) -> Option<AfterAction> {
        match text {
            "keep" => Some(AfterAction::Keep),
            "mark" => Some(AfterAction::Mark),
            "delete" => Some(AfterAction::Delete),
            text => {
                let directory = text.strip_prefix("move:").filter(|directory| !directory.is_empty())?;
                Some(AfterAction::Move(directory.into()))
            }
        }
    }
}

impl fmt::Display for AfterAction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AfterAction::Keep => formatter.write_str("keep"),
            AfterAction::Mark => formatter.write_str("mark"),
            AfterAction::Delete => formatter.write_str("delete"),
            AfterAction::Move(directory) => write!(formatter, "move:{}", directory.display()),
        }
    }
}

impl FromStr for AfterAction {
    type Err = String;

    fn from_str(text: &str) -> Result<AfterAction, String> {
        AfterAction::read(text).ok_or_else(|| format!("expected {}", AfterAction::EXPECTED))
    }
}

impl AfterAction {
    /// The word for it in errors: "cannot move ...".
    pub(super) fn verb(&self) -> &'static str {
        match self {
            AfterAction::Keep => "keep",
            AfterAction::Mark => "mark",
            AfterAction::Move(_) => "move",
            AfterAction::Delete => "delete",
        }
    }
}

/// The most bytes of a path.
const PATH_MAX: usize = 4095;

fn settle_s() -> u32 {
    30
}

impl FolderWatch {
    /// A folder with defaults for everything else.
    pub fn new(folder: impl Into<PathBuf>) -> FolderWatch {
        FolderWatch {
            folder: folder.into(),
            settle_s: settle_s(),
            rescan_s: None,
            include: Vec::new(),
            exclude: Vec::new(),
            hidden: false,
            after: AfterAction::Keep,
            reach: FolderReach::default(),
        }
    }

    /// How long a file must not have changed before it is taken.
    pub fn settle(&self) -> Duration {
        Duration::from_secs(self.settle_s.into())
    }

    /// Judges the settings. No other function does.
    pub fn checked(self) -> Result<FolderWatch, Error> {
        let wrong = |what: String| Error::new(Code::BadOption, what);
        let folder = self.folder.display();
        if !self.folder.is_absolute() {
            return Err(wrong(format!("the watched folder {folder} is not an absolute path")));
        }
        let seconds = |name, value: u32| match (1..=86_400).contains(&value) {
            true => Ok(()),
            false => Err(wrong(format!("{name} of {folder} is {value}, but must be 1 to 86400"))),
        };
        seconds("settle_s", self.settle_s)?;
        seconds("rescan_s", self.rescan_s.unwrap_or(1))?;
        if let AfterAction::Move(to) = &self.after {
            let target = self.folder.join(to);
            let climbs = to.components().any(|part| part == std::path::Component::ParentDir);
            if climbs || self.folder.starts_with(&target) || target.as_os_str().len() > PATH_MAX {
                let to = farhaul_text::printable(to.as_os_str().as_encoded_bytes(), 200);
                return Err(wrong(format!("files of {folder} cannot be moved to {to}")));
            }
        }
        NameFilter::new(&self)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_as_they_are_written() {
        crate::config::values::tests::check::<AfterAction>(&[
            ("keep", Some("keep")),
            ("mark", Some("mark")),
            ("delete", Some("delete")),
            ("move:sent", Some("move:sent")),
            ("move:/done", Some("move:/done")),
            ("move:", None),
            ("move /done", None),
            ("Delete", None),
            ("leave", None),
            ("", None),
        ]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let watch = || FolderWatch::new("/instrument/out");
        let cases = [
            (FolderWatch { folder: "out".into(), ..watch() }, "absolute"),
            (FolderWatch { settle_s: 0, ..watch() }, "settle_s"),
            (FolderWatch { rescan_s: Some(86_401), ..watch() }, "rescan_s"),
            (FolderWatch { after: AfterAction::Move("..".into()), ..watch() }, "moved"),
            (FolderWatch { after: AfterAction::Move(".".into()), ..watch() }, "moved"),
            (FolderWatch { after: AfterAction::Move("/instrument".into()), ..watch() }, "moved"),
            (FolderWatch { exclude: vec!["x".repeat(5000)], ..watch() }, "pattern"),
        ];
        for (watch, expected) in cases {
            let error = watch.checked().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(watch().checked().is_ok());
        let moved = FolderWatch { after: AfterAction::Move("/instrument/sent".into()), ..watch() };
        assert!(moved.checked().is_ok());
    }
}
