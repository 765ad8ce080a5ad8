//! How a watched folder stands: its notices, and the files that fail.

use farhaul_api::{FailingFiles, FailingReason};
use std::collections::BTreeMap;

use crate::clock::timestamp;
use crate::watch::Folder;

/// The most reasons that are shown.
const REASONS_MAX: usize = 10;

/// What the thread of a folder shows of it.
#[derive(Debug, Default)]
pub(super) struct WatchStanding {
    pub(super) notices: Vec<String>,
    pub(super) failing: Option<FailingFiles>,
}

/// The files that fail; `None` if none does.
pub(super) fn failing_in(folder: &Folder) -> Option<FailingFiles> {
    let (mut since_ms, mut next_ms, mut files, mut retried) = (i64::MAX, None::<i64>, 0, 0);
    let mut reasons: BTreeMap<(&str, bool), FailingReason> = BTreeMap::new();
    for name in folder.failing() {
        let Some((failing, due_ms)) = folder.failing_one(name) else { continue };
        let (code, retryable) = (failing.code.name(), failing.due_ms.is_some());
        let reason = reasons.entry((code, retryable)).or_insert_with(|| FailingReason {
            code: code.into(),
            why: failing.why.clone(),
            files: 0,
            retryable,
        });
        reason.files += 1;
        files += 1;
        retried += u64::from(retryable);
        since_ms = since_ms.min(failing.since_ms);
        next_ms = next_ms.into_iter().chain(due_ms).min();
    }
    let mut reasons: Vec<_> = reasons.into_values().collect();
    reasons.sort_by(|a, b| b.files.cmp(&a.files).then_with(|| a.code.cmp(&b.code)));
    reasons.truncate(REASONS_MAX);
    let (since, next_try) = (timestamp(since_ms), next_ms.map(timestamp));
    (files > 0).then_some(FailingFiles { files, retried, since, next_try, reasons })
}

/// One line for people.
pub(super) fn failing_text(failing: &FailingFiles) -> String {
    let noun = if failing.files == 1 { "file fails" } else { "files fail" };
    let why = failing.reasons.first().map_or(String::new(), |one| format!(" ({}: {})", one.code, one.why));
    let next = match (failing.next_try, failing.files - failing.retried) {
        (Some(next), 0) => format!("; next try {next:.0}"),
        (Some(next), held) => {
            format!("; next try of {} {next:.0}, {held} wait for a change or for retry", failing.retried)
        }
        (None, 0) => "; being tried again".into(),
        (None, _) => "; taken again after a change, or by farhaul watch retry".into(),
    };
    format!("{} {noun}{why}{next}", failing.files)
}
