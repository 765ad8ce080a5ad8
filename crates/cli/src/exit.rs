//! From errors and reports to the exit codes that scripts rely on; the codes themselves are the engine's.

use farhaul::{Error, ExitCode, Report};

/// What the process ends with.
pub fn process_code(code: ExitCode) -> std::process::ExitCode {
    std::process::ExitCode::from(code as u8)
}

/// The code of a copy that ran: the error decides, then whether some entries failed.
pub fn code_of_copy(report: &Report, error: Option<&Error>) -> ExitCode {
    match error {
        Some(error) => error.exit_code(),
        None if report.failed_count > 0 || !report.failed.is_empty() => ExitCode::SomeFailed,
        None => ExitCode::Ok,
    }
}

/// The code of an error of any origin: an engine error keeps its own, wherever it stands in the chain.
pub fn code_of_chain(error: &anyhow::Error) -> ExitCode {
    engine_error(error).map_or(ExitCode::Internal, Error::exit_code)
}

/// The engine's error in a chain of contexts.
pub fn engine_error(error: &anyhow::Error) -> Option<&Error> {
    error.chain().find_map(|cause| cause.downcast_ref::<Error>())
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use farhaul::{Action, FailedEntry};

    use super::*;

    #[test]
    fn each_error_has_its_documented_code() {
        let what = || "x".to_string();
        let table = [
            (Error::Usage(what()), 2),
            (Error::Connect { what: what(), hint: None }, 3),
            (Error::Auth { what: what(), hint: None }, 4),
            (Error::Incompatible(what()), 5),
            (Error::Files { what: what(), hint: None }, 6),
            (Error::Lost { what: what(), hint: None }, 7),
            (Error::Misbehaved(what()), 8),
            (Error::Io { what: what(), source: std::io::Error::other("y") }, 9),
            (Error::Interrupted, 130),
        ];
        for (error, code) in table {
            assert_eq!(code_of_copy(&Report::default(), Some(&error)) as u8, code, "{error}");
        }
    }

    #[test]
    fn failed_entries_alone_are_code_one() {
        let mut report = Report::default();
        assert_eq!(code_of_copy(&report, None) as u8, 0);
        report.failed_count = 1;
        assert_eq!(code_of_copy(&report, None) as u8, 1);
        report.failed_count = 0;
        report.failed.push(FailedEntry { path: "a".into(), reason: "b".into(), action: Action::Copy });
        assert_eq!(code_of_copy(&report, None) as u8, 1);
    }

    #[test]
    fn an_engine_error_keeps_its_code_under_context() {
        let error = anyhow::Error::new(Error::Auth { what: "bad key".into(), hint: None }).context("serving");
        assert_eq!(code_of_chain(&error) as u8, 4);
        let other = Err::<(), _>(std::io::Error::other("y")).context("serving").unwrap_err();
        assert_eq!(code_of_chain(&other) as u8, 9);
    }
}
