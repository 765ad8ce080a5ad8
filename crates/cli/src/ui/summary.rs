//! The summary line at the end of a transfer, and the hint after one that has ended early.

use std::time::Duration;

use farhaul::Error;
use farhaul::copy::Report;
use farhaul::errors::ExitCode;
use farhaul::events::Carrier;

use super::units;

/// Returns whether to print the summary. After a failure that moved nothing, the error says everything.
pub fn is_worth_telling(report: &Report, error: Option<&Error>) -> bool {
    error.is_none() || report.session.bytes > 0 || report.files > 0
}

/// `4.00 GiB in 1 file, 3.4 s, 10.1 Gbit/s over udp, loss 0.1 %, rtt 0.2 ms, slowest: sender network`.
pub fn line(report: &Report, dry_run: bool) -> String {
    let files = units::count(report.files, "file");
    let what = format!("{} in {files}", units::size(report.session.bytes));
    // A dry run counts no bytes.
    let mut parts = vec![if dry_run { format!("would copy {files}") } else { what }];
    if report.bytes_resumed > 0 {
        parts.push(format!("{} from an earlier run", units::size(report.bytes_resumed)));
    }
    if report.bytes_kept > 0 {
        parts.push(format!("{} kept for the next run", units::size(report.bytes_kept)));
    }
    if report.skipped > 0 {
        parts.push(format!("{} already there", units::count(report.skipped, "file")));
    }
    if report.renames > 0 {
        parts.push(format!("{}{} renamed", if dry_run { "would have " } else { "" }, report.renames));
    }
    if report.deleted > 0 {
        let would = if dry_run { "would delete " } else { "deleted " };
        parts.push(format!("{would}{}", report.deleted));
    }
    if report.backups > 0 {
        parts.push(format!("{}{} kept as backups", if dry_run { "would have " } else { "" }, report.backups));
    }
    if report.replaced > 0 {
        let would = if dry_run { "would replace " } else { "replaced " };
        parts.push(format!("{would}{} of another kind", report.replaced));
    }
    if report.parted > 0 {
        let would = if dry_run { "would part " } else { "parted " };
        parts.push(format!("{would}{} from other names", report.parted));
    }
    if report.left_count > 0 {
        parts.push(format!(
            "{}left {} that are mounted",
            if dry_run { "would have " } else { "" },
            report.left_count
        ));
    }
    if report.not_taken_count > 0 {
        parts.push(format!("{} not taken", report.not_taken_count));
    }
    if report.vanished_count > 0 {
        parts.push(format!("{} vanished", report.vanished_count));
    }
    if report.failed_count > 0 {
        parts.push(format!("{} FAILED", report.failed_count));
    }
    if report.not_set_count > 0 {
        parts.push(format!("{} without all of their metadata", report.not_set_count));
    }
    if !dry_run {
        parts.extend(how(report));
    }
    parts.join(", ")
}

fn how(report: &Report) -> Vec<String> {
    let seconds = Duration::try_from_secs_f64(report.session.seconds).unwrap_or_default();
    let mut rate = units::rate(report.session.goodput_bps);
    if let Some(carrier) = report.session.transport {
        rate = format!("{rate} over {carrier}");
    }
    let mut parts = vec![units::time(seconds), rate];
    if report.session.transport.is_some_and(Carrier::has_udp) {
        parts.push(format!("loss {}", loss(report.session.loss_fraction)));
    }
    if report.session.rtt_mean_ms > 0.0 {
        parts.push(format!("rtt {:.1} ms", report.session.rtt_mean_ms));
    }
    if !report.session.bottleneck.is_empty() {
        parts.push(format!("slowest: {}", report.session.bottleneck));
    }
    parts
}

/// A fraction in percent. A small one is not shown as 0.
pub fn loss(fraction: f64) -> String {
    match fraction * 100.0 {
        percent if percent > 0.0 && percent < 0.05 => "<0.1 %".into(),
        percent => format!("{percent:.1} %"),
    }
}

/// Returns the hint for errors after which the same command can continue the transfer.
pub fn go_on_hint(report: &Report, error: &Error) -> Option<String> {
    match error.exit_code() {
        ExitCode::Lost if report.session.bytes > 0 || report.bytes_resumed > 0 => {
            let there = units::size(report.session.bytes.saturating_add(report.bytes_resumed));
            Some(format!("run the same command again; it goes on where it stopped ({there} have arrived)"))
        }
        ExitCode::Lost => Some("run the same command again".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use farhaul::copy::SessionReport;
    use farhaul::errors::Code;

    use super::*;

    fn report() -> Report {
        Report {
            files: 1,
            session: SessionReport {
                bytes: 4 << 30,
                seconds: 3.4,
                goodput_bps: 10.1e9,
                transport: Some(Carrier::Udp),
                loss_fraction: 0.0004,
                rtt_mean_ms: 0.21,
                bottleneck: "writer on the receiver".into(),
                ..SessionReport::default()
            },
            ..Report::default()
        }
    }

    #[test]
    fn the_summary_of_a_plain_copy() {
        let text = "4.00 GiB in 1 file, 3.4 s, 10.1 Gbit/s over udp, loss <0.1 %, rtt 0.2 ms, slowest: writer on the \
                    receiver";
        assert_eq!(line(&report(), false), text);
    }

    #[test]
    fn loss_is_told_wherever_udp_carries_something() {
        for carrier in Carrier::ALL {
            let session = SessionReport { transport: Some(carrier), ..report().session };
            let text = line(&Report { session, ..report() }, false);
            assert!(text.contains(&format!("over {}", carrier.name())), "{text}");
            assert_eq!(text.contains("loss"), carrier.name().contains("udp"), "{text}");
        }
    }

    #[test]
    fn the_summary_names_what_was_not_plain() {
        let report = Report {
            files: 7,
            bytes_resumed: 1 << 20,
            skipped: 2,
            deleted: 4,
            replaced: 5,
            parted: 9,
            left_count: 6,
            not_taken_count: 5,
            failed_count: 3,
            not_set_count: 8,
            session: SessionReport {
                transport: Some(Carrier::Channel),
                rtt_mean_ms: 0.0,
                bottleneck: String::new(),
                ..report().session
            },
            ..report()
        };
        let text = "4.00 GiB in 7 files, 1.00 MiB from an earlier run, 2 files already there, deleted 4, replaced 5 of another kind, parted 9 from other names, left 6 that are mounted, 5 not taken, 3 FAILED, 8 without all of their metadata, 3.4 s, \
                    10.1 Gbit/s over ssh";
        assert_eq!(line(&report, false), text);
        let dry = "would copy 7 files, 1.00 MiB from an earlier run, 2 files already there, would delete 4, \
                   would replace 5 of another kind, would part 9 from other names, would have left 6 that are mounted, 5 not taken, 3 FAILED, 8 without all of their metadata";
        assert_eq!(line(&report, true), dry);
    }

    #[test]
    fn strange_numbers_are_no_panic() {
        let lasting = |seconds| {
            let session = SessionReport { seconds, goodput_bps: f64::NAN, ..SessionReport::default() };
            line(&Report { session, ..Report::default() }, false)
        };
        assert_eq!(lasting(f64::NAN), "0 B in 0 files, 0.0 s, 0 bit/s");
        let _ = lasting(-1.0);
    }

    #[test]
    fn losses() {
        assert_eq!(loss(0.0), "0.0 %");
        assert_eq!(loss(0.00001), "<0.1 %");
        assert_eq!(loss(0.1), "10.0 %");
    }

    #[test]
    fn after_a_lost_connection_the_way_on_is_named() {
        let lost = Error::new(Code::PeerEnded, "x");
        let hint = go_on_hint(&report(), &lost).unwrap();
        assert!(hint.contains("same command") && hint.contains("4.00 GiB"), "{hint}");
        assert_eq!(go_on_hint(&report(), &Error::new(Code::BadOption, "x")), None);
        assert!(!is_worth_telling(&Report::default(), Some(&lost)));
        assert!(is_worth_telling(&report(), Some(&lost)));
    }
}
