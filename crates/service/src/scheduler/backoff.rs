//! Decides whether and when a failed attempt is followed by another one.

use std::time::Duration;

use farhaul::copy::Report;
use farhaul_words::{Code, Error};

use crate::job::RetryRule;

/// The pause before attempt `next`, counted from 1. `seed` varies it by a tenth, so that jobs that failed
/// together do not return together. `None` if there is no further attempt.
pub(crate) fn pause(rule: RetryRule, next: u32, seed: u64) -> Option<Duration> {
    let before = next.checked_sub(2)?;
    if before >= rule.attempts {
        return None;
    }
    let first = rule.first_delay.duration().as_secs_f64();
    let longest = rule.longest_delay.duration().as_secs_f64();
    let even = (first * 2_f64.powi(before.min(60) as i32)).min(longest);
    let spread = 0.9 + 0.2 * (seed % 1024) as f64 / 1023.0;
    Duration::try_from_secs_f64(even * spread).ok()
}

/// A number for [`pause`] that differs from name to name, and stays the same for one name.
pub(crate) fn seed(name: &str) -> u64 {
    let digest = blake3::hash(name.as_bytes());
    let bytes = digest.as_bytes();
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// The longest pause of this rule.
pub(crate) fn longest(rule: RetryRule) -> Duration {
    rule.longest_delay.duration().max(rule.first_delay.duration()).mul_f64(1.1)
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// Everything has arrived, apart from what has vanished from the source.
    Arrived,
    /// The transfer came to its end, but some entries have not arrived.
    Partly { may_mend: bool },
    /// The transfer ended early.
    Broke { may_mend: bool },
}

/// The outcome, by the report and the error of the transfer.
pub(crate) fn judge(report: &Report, error: Option<&Error>) -> AttemptOutcome {
    match error {
        Some(error) => AttemptOutcome::Broke { may_mend: may_mend(error.code()) },
        // Another attempt would not set more metadata than this one, nor find more files.
        None if report.has_no_failure() => AttemptOutcome::Arrived,
        None => AttemptOutcome::Partly { may_mend: report.failed.iter().any(|entry| may_mend(entry.code)) },
    }
}

/// True if another attempt may work although nobody has changed anything here. The list of codes says so.
pub(crate) fn may_mend(code: Code) -> bool {
    code.retry() == farhaul_words::RetryAdvice::Helps
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul_api::JobSpan;

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let rule = RetryRule { attempts: 5, first_delay: JobSpan(10), longest_delay: JobSpan(60) };
        let middle = |next| pause(rule, next, 511).map(|pause| pause.as_secs_f64().round());
        let pauses: Vec<_> = (1..8).map(middle).collect();
        assert_eq!(pauses, [None, Some(10.0), Some(20.0), Some(40.0), Some(60.0), Some(60.0), None]);
        for seed in 0..3000 {
            let pause = pause(rule, 2, seed).unwrap().as_secs_f64();
            assert!((9.0..=11.0).contains(&pause));
        }
        assert_eq!(pause(RetryRule { attempts: 0, ..rule }, 2, 0), None);
        assert!(pause(RetryRule { attempts: 1000, ..rule }, 1001, 0).is_some());
    }

    #[test]
    fn only_what_may_mend_is_tried_again() {
        let report = Report { ok: true, ..Report::default() };
        assert_eq!(judge(&report, None), AttemptOutcome::Arrived);
        let vanished = Report { vanished_count: 3, complete: true, ..Report::default() };
        assert_eq!(judge(&vanished, None), AttemptOutcome::Arrived);
        let not_set = Report { ok: false, not_set_count: 2, ..Report::default() };
        assert_eq!(judge(&not_set, None), AttemptOutcome::Arrived, "another attempt would set no more");
        let broke = |code| judge(&report, Some(&Error::new(code, "x")));
        for code in [Code::PeerGone, Code::NameServerAway, Code::Busy, Code::NotListening, Code::NoSpace] {
            assert_eq!(broke(code), AttemptOutcome::Broke { may_mend: true }, "{code}");
        }
        for code in
            [Code::Forbidden, Code::NotFound, Code::BadOption, Code::HostUnknown, Code::Bug, Code::ReadOnly]
        {
            assert_eq!(broke(code), AttemptOutcome::Broke { may_mend: false }, "{code}");
        }
        let failed = |code| farhaul::copy::FailedEntry {
            path: "a".into(),
            code,
            reason: String::new(),
            action: farhaul::copy::FailedAction::Copy,
        };
        let partly = |codes: &[Code]| {
            let failed = codes.iter().map(|code| failed(*code)).collect();
            judge(&Report { ok: false, failed, ..Report::default() }, None)
        };
        assert_eq!(partly(&[Code::PermissionDenied]), AttemptOutcome::Partly { may_mend: false });
        assert_eq!(
            partly(&[Code::PermissionDenied, Code::SourceChanged]),
            AttemptOutcome::Partly { may_mend: true }
        );
    }
}
