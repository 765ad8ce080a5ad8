//! `farhaul clean`: prints a line on stdout for each file that is removed, or one report.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use farhaul::errors::ExitCode;
use farhaul::sisters::{CLEAN_SCHEMA, CleanFailure, CleanJob, CleanReport, CleanedFile, escape, kept, plain};
use farhaul::{Error, Handle};
use farhaul_cache::Cache;

use crate::args::clean::CleanArgs;
use crate::exit;
use crate::signals;
use crate::ui::{printer, units};

/// The most failures that are listed; the report has more.
const FAILURES_SHOWN: usize = 20;

pub fn run(args: &CleanArgs) -> ExitCode {
    let handle = Handle::new();
    if let Err(source) = signals::cancel_on_signal(handle.clone()) {
        let error = Error::of_host("cannot listen for signals", source);
        printer::error(&error, None);
        return error.exit_code();
    }
    let mut unwritten = None;
    let mut tell = |file: &CleanedFile| {
        if !args.json
            && unwritten.is_none()
            && let Err(error) = printer::data(line(file, args.dry_run).as_bytes())
        {
            unwritten = Some(error);
            handle.cancel();
        }
    };
    let (mut report, mut error) = match &args.directory {
        Some(directory) => {
            let job = CleanJob {
                directory: directory.clone(),
                older: Duration::from_secs(args.older),
                dry_run: args.dry_run,
            };
            farhaul::sisters::run_clean(&job, &handle, &mut tell)
        }
        None => clean_kept(args.dry_run, &mut tell),
    };
    if unwritten.is_some() {
        error = unwritten;
    }
    report.error_detail = exit::corrected(report.error_detail.take());
    for failure in report.failed.iter().take(FAILURES_SHOWN) {
        printer::line(&format!("failed: {}: {}", failure.path, failure.reason));
    }
    if !args.quiet && error.is_none() {
        printer::line(&summary(&report));
    }
    if args.json
        && let Err(unwritten) = printer::json(&report)
    {
        error.get_or_insert(unwritten);
    }
    match error {
        Some(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
        None if report.ok => ExitCode::Ok,
        None => ExitCode::SomeFailed,
    }
}

/// Removes the programs that others have brought here, and the chunks of far files.
fn clean_kept(dry_run: bool, tell: &mut dyn FnMut(&CleanedFile)) -> (CleanReport, Option<Error>) {
    let mut report = CleanReport { schema: CLEAN_SCHEMA, dry_run, ..CleanReport::default() };
    let programs = match kept::programs() {
        Ok(programs) => programs,
        Err(error) => {
            report.error = Some(error.to_string());
            report.error_detail = Some((&error).into());
            return (report, Some(error));
        }
    };
    for program in programs {
        let path = escape(program.path.as_os_str().as_bytes());
        match if dry_run { Ok(()) } else { kept::remove(&program) } {
            Ok(()) => {
                let file = CleanedFile { path, bytes: program.bytes, age_seconds: program.age.as_secs() };
                tell(&file);
                (report.removed, report.bytes) = (report.removed + 1, report.bytes + file.bytes);
                report.files.push(file);
            }
            Err(error) => {
                report.failed.push(CleanFailure { path, reason: plain(&error) });
                report.failed_count += 1;
            }
        }
    }
    let directory = Cache::default_directory();
    let cleaned = Cache::clean(&directory, dry_run, &mut |chunk| {
        let path = escape(directory.join(&chunk.path).as_os_str().as_bytes());
        let file = CleanedFile { path, bytes: chunk.bytes, age_seconds: chunk.age_seconds };
        tell(&file);
        (report.removed, report.bytes) = (report.removed + 1, report.bytes + file.bytes);
        report.files.push(file);
    });
    if let Err(error) = cleaned {
        let path = escape(directory.as_os_str().as_bytes());
        report.failed.push(CleanFailure { path, reason: error.to_string() });
        report.failed_count += 1;
    }
    report.ok = report.failed_count == 0;
    (report, None)
}

/// `removed: a/.0123456789abcdef.fhpart: 3.00 GiB, 9 days old`; the path is escaped already.
fn line(file: &CleanedFile, dry_run: bool) -> String {
    let does = if dry_run { "would remove" } else { "removed" };
    format!("{does}: {}: {}, {} old\n", file.path, units::size(file.bytes), old(file.age_seconds))
}

fn old(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600) {
        (0, 0) => units::count(seconds / 60, "minute"),
        (0, hours) => units::count(hours, "hour"),
        (days, _) => units::count(days, "day"),
    }
}

/// `2 leftovers removed, 3.00 GiB; 1 in use; 4 too young, 1.00 GiB; 1 failed`.
fn summary(report: &CleanReport) -> String {
    let does = if report.dry_run { "would be removed" } else { "removed" };
    let mut parts =
        vec![format!("{} {does}, {}", units::count(report.removed, "leftover"), units::size(report.bytes))];
    if report.in_use > 0 {
        parts.push(format!("{} in use", report.in_use));
    }
    if report.younger > 0 {
        parts.push(format!("{} too young, {}", report.younger, units::size(report.younger_bytes)));
    }
    if report.failed_count > 0 {
        parts.push(format!("{} failed", report.failed_count));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_people_and_scripts() {
        let file = CleanedFile { path: "a/.x".into(), bytes: 3 << 30, age_seconds: 9 * 86_400 };
        assert_eq!(line(&file, false), "removed: a/.x: 3.00 GiB, 9 days old\n");
        assert_eq!(line(&file, true), "would remove: a/.x: 3.00 GiB, 9 days old\n");
        assert_eq!((old(59), old(3600), old(86_400)), ("0 minutes".into(), "1 hour".into(), "1 day".into()));
        let report = CleanReport { removed: 1, bytes: 3 << 30, in_use: 1, ..CleanReport::default() };
        assert_eq!(summary(&report), "1 leftover removed, 3.00 GiB; 1 in use");
    }
}
