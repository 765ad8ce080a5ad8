//! Turns errors and reports into the exit codes that scripts rely on. The crate `farhaul` defines the codes.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use farhaul::Error;
use farhaul::copy::Report;
use farhaul::errors::{ErrorDetail, ExitCode};

use crate::signals;

/// Returns the exit code for the process.
pub fn process_code(code: ExitCode) -> std::process::ExitCode {
    std::process::ExitCode::from(number(code as u8))
}

/// The exit code of a process that SIGPIPE has ended, as a shell tells it.
const BROKEN_PIPE: u8 = 128 + 13;

static IS_READER_GONE: AtomicBool = AtomicBool::new(false);

/// Notes that the reader of stdout has gone before all was written.
pub fn note_broken_pipe() {
    IS_READER_GONE.store(true, Relaxed);
}

/// Returns the code as a number. After an interruption it is that of the signal, and so it is after the reader
/// of stdout has gone.
pub fn number(code: u8) -> u8 {
    match code {
        code if code == ExitCode::Interrupted as u8 => signals::interrupted_code(),
        code if code == ExitCode::Files as u8 && IS_READER_GONE.load(Relaxed) => BROKEN_PIPE,
        code => code,
    }
}

/// Returns the detail of a report with its exit code corrected like that of the process.
pub fn corrected(detail: Option<ErrorDetail>) -> Option<ErrorDetail> {
    detail.map(|detail| ErrorDetail { exit_code: number(detail.exit_code), ..detail })
}

/// Returns the exit code of a copy. The first of these decides: an error, entries that failed, entries that
/// vanished, metadata that could not be set.
pub fn code_of_copy(report: &Report, error: Option<&Error>) -> ExitCode {
    report.exit_code(error)
}

#[cfg(test)]
mod tests {
    use farhaul::copy::{FailedAction, FailedEntry};
    use farhaul::errors::{Code, Misbehaviour};

    use super::*;

    #[test]
    fn each_error_has_its_documented_code() {
        let what = || "x".to_string();
        let table = [
            (Error::new(Code::BadOption, what()), 2),
            (Error::new(Code::Unreachable, what()), 3),
            (Error::new(Code::Forbidden, what()), 4),
            (Error::new(Code::NoCommonVersion, what()), 5),
            (Error::new(Code::FilesFailed, what()), 6),
            (Error::new(Code::PeerEnded, what()), 7),
            (Error::misbehaved(Misbehaviour::MalformedFrame, what()), 8),
            (Error::of_host(what(), std::io::Error::other("y")), 9),
            (Error::interrupted(), 130),
        ];
        for (error, code) in table {
            assert_eq!(code_of_copy(&Report::default(), Some(&error)) as u8, code, "{error}");
        }
    }

    #[test]
    fn failed_entries_are_code_one_and_vanished_ones_alone_eleven() {
        let mut report = Report::default();
        assert_eq!(code_of_copy(&report, None) as u8, 0);
        report.vanished_count = 2;
        assert_eq!(code_of_copy(&report, None) as u8, 11);
        report.failed_count = 1;
        assert_eq!(code_of_copy(&report, None) as u8, 1);
        (report.failed_count, report.vanished_count) = (0, 0);
        report.failed.push(FailedEntry {
            path: "a".into(),
            code: Code::FilesFailed,
            reason: "b".into(),
            action: FailedAction::Copy,
        });
        assert_eq!(code_of_copy(&report, None) as u8, 1);
        report.not_set_count = 1;
        assert_eq!(code_of_copy(&report, None) as u8, 1, "content is worth more");
    }

    #[test]
    fn metadata_alone_is_code_ten() {
        let report = Report { not_set_count: 1, ..Report::default() };
        assert_eq!(code_of_copy(&report, None) as u8, 10);
        let error = Error::new(Code::PeerEnded, "x");
        assert_eq!(code_of_copy(&report, Some(&error)) as u8, 7);
    }
}
