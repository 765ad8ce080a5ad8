//! `farhaul verify`: prints a line on stdout for each difference, or one report.

use std::path::Path;
use std::time::Duration;

use farhaul::copy::{Finding, VerifyJob, VerifyReport};
use farhaul::errors::ExitCode;
use farhaul::{Error, Handle};

use crate::args::verify::VerifyArgs;
use crate::exit;
use crate::signals;
use crate::ui::{printer, units};

pub fn run(args: &VerifyArgs) -> ExitCode {
    let handle = Handle::new();
    if let Err(source) = signals::cancel_on_signal(handle.clone()) {
        let error = Error::of_host("cannot listen for signals", source);
        printer::error(&error, None);
        return error.exit_code();
    }
    let job = VerifyJob {
        list: args.list.clone(),
        directory: args.directory.clone(),
        algorithm: args.algorithm,
        extra: args.extra,
        metadata: args.metadata,
        modify_window_secs: args.modify_window.unwrap_or(0),
        quick: args.quick,
    };
    let mut unwritten = None;
    let (mut report, mut error) = farhaul::sisters::run_verify(&job, &handle, &mut |finding| {
        if !args.json
            && unwritten.is_none()
            && let Err(error) = printer::data(line(finding).as_bytes())
        {
            unwritten = Some(error);
            handle.cancel();
        }
    });
    if unwritten.is_some() {
        error = unwritten;
    }
    report.error_detail = exit::corrected(report.error_detail.take());
    finish(&report, error, args)
}

fn finish(report: &VerifyReport, mut error: Option<Error>, args: &VerifyArgs) -> ExitCode {
    if !args.quiet {
        // A check that was broken off has not seen the end of the list.
        if !error.as_ref().is_some_and(printer::is_reader_gone) {
            report.warnings.iter().for_each(|text| printer::warning(text));
        }
        if error.is_none() {
            printer::line(&summary(report));
            if let Some(root) = &report.tree_root {
                printer::line(&format!("tree root of the manifest: {root}"));
            }
            if let Some(hint) = hint(report, &args.directory) {
                printer::line(&hint);
            }
        }
    }
    if args.json
        && let Err(unwritten) = printer::json(report)
    {
        error.get_or_insert(unwritten);
    }
    match error {
        Some(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
        None if report.differs() => ExitCode::SomeFailed,
        None => ExitCode::Ok,
    }
}

/// `changed: a/b: 3 bytes instead of 4`; the path is escaped already.
fn line(finding: &Finding) -> String {
    format!("{}: {}: {}\n", finding.difference.name(), finding.path, printer::harmless(&finding.reason))
}

/// `7 entries, 70.0 MiB read, 1 missing, 2 changed, 0.1 s`.
fn summary(report: &VerifyReport) -> String {
    let entries = if report.entries == 1 { "entry" } else { "entries" };
    let mut parts =
        vec![format!("{} {entries}", report.entries), format!("{} read", units::size(report.bytes))];
    for (count, what) in [
        (report.missing, "missing"),
        (report.changed, "changed"),
        (report.extra, "extra"),
        (report.unreadable, "unreadable"),
        (report.without_digest, "compared by size alone"),
        (report.left_out, "that the list says are not there"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    if report.ok {
        parts.push("all as listed".into());
    }
    parts.push(units::time(Duration::try_from_secs_f64(report.seconds).unwrap_or_default()));
    parts.join(", ")
}

/// If not one entry is there, the directory may be the wrong one.
fn hint(report: &VerifyReport, directory: &Path) -> Option<String> {
    let is_nothing_there = report.missing > 0 && report.missing == report.entries;
    is_nothing_there.then(|| {
        let directory = printer::harmless(&directory.to_string_lossy());
        format!(
            "hint: the paths of the list do not begin in {directory}; after `cp SOURCE NAME` they begin in the \
             directory that NAME is in"
        )
    })
}

#[cfg(test)]
mod tests {
    use farhaul::copy::Difference;

    use super::*;

    #[test]
    fn lines_for_people_and_scripts() {
        let finding = Finding {
            difference: Difference::Changed,
            path: "a\\n".into(),
            reason: "a link to x\u{1b}".into(),
        };
        assert_eq!(line(&finding), "changed: a\\n: a link to x\\u{1b}\n");
        let report =
            VerifyReport { entries: 7, bytes: 70 << 20, ok: true, seconds: 0.1, ..VerifyReport::default() };
        assert_eq!(summary(&report), "7 entries, 70.0 MiB read, all as listed, 0.1 s");
        let report = VerifyReport { missing: 1, left_out: 2, ok: false, ..report };
        assert_eq!(
            summary(&report),
            "7 entries, 70.0 MiB read, 1 missing, 2 that the list says are not there, 0.1 s"
        );
        assert_eq!(hint(&report, Path::new("dst")), None);
        let report = VerifyReport { missing: 7, ..report };
        assert!(hint(&report, Path::new("dst")).unwrap().contains("do not begin in dst"));
    }
}
