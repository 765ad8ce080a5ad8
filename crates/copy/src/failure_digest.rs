//! What has failed in a transfer, in one line: how many entries for which reason, and some of their names.

use std::collections::BTreeMap;

use farhaul_words::{Code, Error};

use super::report::{FailedEntry, Report};

/// The most reasons that are named, and the most names of each.
const REASONS_MAX: usize = 3;
const NAMES_MAX: usize = 3;

impl Report {
    /// The error for a transfer that came to its end, but in which entries have failed: the commonest reason's
    /// code, and the reasons with counts and some names. `None` if no entry has failed.
    pub fn failures(&self) -> Option<Error> {
        let mut by_code: BTreeMap<&str, Vec<&FailedEntry>> = BTreeMap::new();
        for entry in &self.failed {
            by_code.entry(entry.code.name()).or_default().push(entry);
        }
        let mut groups: Vec<_> = by_code.into_values().collect();
        groups.sort_by_key(|entries| std::cmp::Reverse(entries.len()));
        let count = self.failed_count.max(self.failed.len() as u64);
        let Some(code) = groups.first().and_then(|entries| Some(entries.first()?.code)) else {
            return (count > 0).then(|| Error::new(Code::FilesFailed, format!("{count} entries failed")));
        };
        let named: Vec<String> = groups.iter().take(REASONS_MAX).map(|entries| of_group(entries)).collect();
        let noun = if count == 1 { "entry" } else { "entries" };
        let mut text = format!("{count} {noun} failed: {}", named.join("; "));
        let told: usize = groups.iter().take(REASONS_MAX).map(Vec::len).sum();
        let untold = count.saturating_sub(told as u64);
        if untold > 0 {
            text += &format!("; and {untold} more");
        }
        Some(Error::new(code, text))
    }
}

/// Entries that have failed with one code; the reason is that of the first one.
fn of_group(entries: &[&FailedEntry]) -> String {
    let Some(first) = entries.first() else { return String::new() };
    let names: Vec<&str> = entries.iter().take(NAMES_MAX).map(|entry| entry.path.as_str()).collect();
    let more = if entries.len() > NAMES_MAX { ", ..." } else { "" };
    let times = if entries.len() > 1 { format!("{} times ", entries.len()) } else { String::new() };
    format!("{times}{}: {} ({}{more})", first.code.name(), first.reason, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::FailedAction;

    fn failed(path: &str, code: Code) -> FailedEntry {
        FailedEntry { path: path.into(), code, reason: "no".into(), action: FailedAction::Copy }
    }

    #[test]
    fn reasons_have_counts_and_some_names_the_commonest_first() {
        assert_eq!(Report::default().failures().map(|error| error.to_string()), None);
        let mut report =
            Report { failed: vec![failed("a", Code::NotFound)], failed_count: 1, ..Report::default() };
        let text = |report: &Report| report.failures().unwrap().what().to_string();
        assert_eq!(text(&report), "1 entry failed: FH-NOT-FOUND: no (a)");
        report.failed.extend(["b", "c", "d", "e"].map(|path| failed(path, Code::NoSpace)));
        report.failed_count = 100;
        assert_eq!(
            text(&report),
            "100 entries failed: 4 times FH-NO-SPACE: no (b, c, d, ...); FH-NOT-FOUND: no (a); and 95 more"
        );
        assert_eq!(report.failures().unwrap().code(), Code::NoSpace);
    }
}
