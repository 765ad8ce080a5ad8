//! The port for programs that look at a whole file before it gets its name, such as a search for viruses.
//!
//! Whoever runs the receiving end decides whether there is one; no sender can ask for it, or ask that it be left
//! out. Always true: a file that is to be checked gets its name only after a check has accepted it, and only with
//! the content that the check has seen (`receiver/checking.rs`).

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use farhaul_words::{Code, Error, Failure};

/// A whole file that has no name yet.
#[derive(Debug)]
pub struct UncheckedFile<'a> {
    /// Reads the content, and cannot write it.
    pub content: &'a OwnedFd,
    /// The path that the file gets, below the directory that the copy writes to.
    pub path: &'a [u8],
    /// That directory; empty if the system does not say.
    pub directory: &'a [u8],
    pub size: u64,
    /// The digest of the content, if the transfer computes digests.
    pub digest: Option<[u8; 32]>,
}

/// What has become of the check of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckVerdict {
    Accepted,
    /// The content is not wanted, for this reason. It is removed.
    Refused(String),
    /// There is no verdict, for this reason. The file gets no name; what can be resumed stays, and is checked
    /// when the same copy is run again.
    Failed(String),
    /// The program has changed the file, so nobody knows what is in it. It is removed.
    Changed,
}

/// How many files are checked at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckLimits {
    /// The threads of a transfer that check.
    pub threads: usize,
    /// The most files that one of them hands over together.
    pub files: usize,
}

/// Looks at whole files before they get their names. One of these serves many transfers.
pub trait ContentCheck: Send + Sync {
    /// Asked once when a transfer begins; with `None`, its files are not checked.
    fn limits(&self) -> Option<CheckLimits>;

    /// Judges files that have come from `sender`, one verdict for each. Ends soon after `is_wanted` has become
    /// false, and returns `None` then.
    fn judge(
        &self,
        files: &[UncheckedFile<'_>],
        sender: &str,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Vec<CheckVerdict>>;
}

/// The check of a receiver, if it has one.
#[derive(Clone, Default)]
pub struct ReceiverCheck(pub Option<Arc<dyn ContentCheck>>);

impl fmt::Debug for ReceiverCheck {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "a check" } else { "no check" })
    }
}

/// They are the same if they are one.
impl PartialEq for ReceiverCheck {
    fn eq(&self, other: &ReceiverCheck) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// The check for one transfer.
#[derive(Clone)]
pub(crate) struct TransferCheck {
    pub(crate) check: Arc<dyn ContentCheck>,
    pub(crate) limits: CheckLimits,
    /// Who sends the files, for the program.
    pub(crate) sender: String,
}

impl TransferCheck {
    pub(crate) fn begin(check: &ReceiverCheck, sender: &str) -> Option<TransferCheck> {
        let check = check.0.clone()?;
        let limits = check.limits()?;
        Some(TransferCheck { check, limits, sender: sender.to_owned() })
    }
}

/// A file that is changed in place has its name before its content can be checked.
pub(crate) fn not_in_place() -> Error {
    let what = "the receiver checks each file before it gets its name, so nothing is changed in place";
    Error::new(Code::BadOption, what).with_hint("leave `inplace` out")
}

impl CheckVerdict {
    /// Whether what can be resumed of the file may stay.
    pub(crate) fn keeps_content(&self) -> bool {
        matches!(self, CheckVerdict::Accepted | CheckVerdict::Failed(_))
    }

    /// The failure of a file that is not accepted.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            CheckVerdict::Accepted => None,
            CheckVerdict::Refused(why) => {
                Some(Failure::new(Code::ContentRefused, format!("the receiver's check refused it: {why}")))
            }
            CheckVerdict::Failed(why) => {
                Some(Failure::new(Code::CheckFailed, format!("the receiver could not check it: {why}")))
            }
            CheckVerdict::Changed => {
                let why = "the program that checks files at the receiver has changed it";
                Some(Failure::new(Code::ContentRefused, why))
            }
        }
    }
}
