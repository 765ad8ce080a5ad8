//! Makes one report of a copy from the counts of both ends.

use farhaul_session::session::Dialogue;
use farhaul_words::{Code, Error, ExitCode, RetryAdvice};

use super::end_summary::EndSummary;
use super::manifest::{ManifestLog, shown_root};
use super::receipt::{self, ReceiptExchange, ReceiptOptions};
use super::report::{FailedAction, REPORT_SCHEMA, Report};

/// How a copy ended, as this end sees it.
pub(crate) struct CopyOutcome {
    pub(crate) report: Report,
    pub(crate) error: Option<Error>,
}

impl CopyOutcome {
    /// The outcome of a session that never ran.
    pub(crate) fn failed(error: Error) -> CopyOutcome {
        let report = Report { schema: REPORT_SCHEMA, ..Report::default() }.ended_by(Some(&error));
        CopyOutcome { report, error: Some(error) }
    }

    /// Ends the manifest. If it could not be written, the run has failed.
    pub(crate) fn and_manifest(mut self, log: Option<&ManifestLog>) -> CopyOutcome {
        match (log.map_or(Ok(None), |log| log.finish(&self.report)), &self.error) {
            (Ok(Some(root)), _) => self.report.tree_root = Some(shown_root(&root)),
            (Ok(None), _) => {}
            (Err(error), None) => return self.but(error),
            (Err(_), Some(_)) => {}
        }
        self
    }

    /// Adds the receipt, or why there is none.
    pub(crate) fn and_receipt(mut self, exchange: Option<&ReceiptExchange>) -> CopyOutcome {
        match exchange.map(ReceiptExchange::receipt) {
            Some(Ok(receipt)) if self.error.is_none() => self.report.receipt = Some(Box::new(receipt)),
            Some(Ok(_)) => self.report.no_receipt = Some("the copy has not come to its end".into()),
            Some(Err(reason)) => self.report.no_receipt = Some(reason),
            None => {}
        }
        self
    }

    /// Writes the receipt to its file, if a file was asked for. If a receipt is required and there is none,
    /// the run has failed.
    pub(crate) fn with_receipt(
        mut self,
        wanted: Option<&ReceiptOptions>,
        why_none: Option<&str>,
    ) -> CopyOutcome {
        let Some(wanted) = wanted else { return self };
        if let Some(receipt) = &self.report.receipt {
            let written = wanted.file.as_deref().map_or(Ok(()), |file| receipt::write(receipt, file));
            return match written {
                Err(error) if self.error.is_none() => self.but(error),
                Ok(()) | Err(_) => self,
            };
        }
        let why = match (why_none, &self.error) {
            (Some(why), _) => why,
            (None, Some(_)) => "the copy has not come to its end",
            (None, None) => "the far end cannot sign: it is of an older version",
        };
        let reason = self.report.no_receipt.get_or_insert_with(|| why.to_string());
        match wanted.is_required && self.error.is_none() {
            true => {
                let error = Error::new(Code::NoReceipt, format!("there is no receipt: {reason}"));
                self.but(error)
            }
            false => self,
        }
    }

    /// Turns the outcome into a failure.
    pub(crate) fn but(self, error: Error) -> CopyOutcome {
        let report = Report { ok: false, ..self.report }.ended_by(Some(&error));
        CopyOutcome { report, error: Some(error) }
    }

    pub(crate) fn new(
        dialogue: &Dialogue,
        end: EndSummary,
        dry_run: bool,
        error: Option<Error>,
    ) -> CopyOutcome {
        let session = dialogue.report(&end.figures, end.bytes);
        let report = Report {
            schema: REPORT_SCHEMA,
            ok: error.is_none()
                && end.deletion_stop.is_none()
                && end.failures.count == 0
                && end.vanished.count == 0
                && end.not_set.count == 0,
            error: None,
            error_detail: None,
            complete: error.is_none(),
            dry_run,
            renamed: end.renamed,
            session,
            files: end.files,
            directories: end.directories,
            links: end.links,
            skipped: end.skipped,
            deleted: end.deleted,
            deleted_names: end.deleted_names,
            deletion_stop: end.deletion_stop,
            source_root: end.source_root,
            replaced: end.replaced,
            parted: end.parted,
            backups: end.backups,
            left: end.left.listed.clone(),
            left_count: end.left.count,
            renames: end.renames,
            bytes_resumed: end.bytes_resumed,
            bytes_matched: end.bytes_matched,
            bytes_kept: end.bytes_kept,
            failed: end.failures.listed.clone(),
            failed_count: end.failures.count,
            vanished: end.vanished.listed,
            vanished_count: end.vanished.count,
            not_set: end.not_set.listed,
            not_set_count: end.not_set.count,
            not_taken: end.not_taken.listed,
            not_taken_count: end.not_taken.count,
            spread: end.spread.clone(),
            tree_root: None,
            receipt: None,
            no_receipt: None,
        };
        let stopped = || report.deletion_stop.as_ref().map(|stop| stop.error(dry_run));
        let error = error.or_else(stopped).or_else(|| nothing_arrived(&report, end.new_directories));
        CopyOutcome { report: report.ended_by(error.as_ref()), error }
    }
}

/// An error if not a single entry arrived: then the transfer as a whole has failed. Bytes do not count, since
/// how much of a failing entry arrives is a matter of timing. Directories that were there before do not
/// either, as only their metadata can arrive.
fn nothing_arrived(report: &Report, new_directories: u64) -> Option<Error> {
    let Report { files, links, skipped, deleted, renames, .. } = *report;
    if [files, new_directories, links, skipped, deleted, renames].iter().any(|&count| count > 0) {
        return None;
    }
    // Surplus that stays keeps nothing from arriving.
    let failed = report.failed.iter().filter(|entry| entry.action == FailedAction::Copy);
    let cause = failed.min_by_key(|entry| depth(&entry.path))?;
    let what = format!("{}: {}", cause.path, cause.reason);
    // The transfer takes the code of that entry, unless that code would change the exit code. Then another one
    // says whether it passes.
    let code = match (cause.code.exit_code(), cause.code.retry()) {
        (ExitCode::Files, _) => cause.code,
        (_, RetryAdvice::Helps) => Code::FilesAway,
        (_, RetryAdvice::Futile) => Code::FilesFailed,
    };
    Some(Error::new(code, what))
}

/// How many directories a failed entry lies in. The failure of a directory comes before those of its entries,
/// which it may be the cause of.
fn depth(path: &str) -> usize {
    let components = path.split('/').filter(|component| !matches!(*component, "" | "."));
    components.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::FailedEntry;

    #[test]
    fn what_has_come_of_an_entry_that_failed_does_not_change_how_the_run_ends() {
        let failed = |path: &str, code| FailedEntry {
            path: path.into(),
            code,
            reason: "no".into(),
            action: FailedAction::Copy,
        };
        let mut report = Report { failed: vec![failed("a", Code::PermissionDenied)], ..Report::default() };
        for bytes in [0, 1, 1 << 30] {
            report.session.bytes = bytes;
            let error = nothing_arrived(&report, 0).expect("nothing has arrived");
            assert_eq!((error.code(), error.to_string().as_str()), (Code::PermissionDenied, "a: no"));
        }
        for code in Code::ALL {
            report.failed[0].code = *code;
            let error = nothing_arrived(&report, 0).expect("nothing has arrived");
            assert_eq!((error.exit_code(), error.code().retry()), (ExitCode::Files, code.retry()), "{code}");
        }
        assert!(nothing_arrived(&Report { files: 1, ..report.clone() }, 0).is_none());
        assert!(nothing_arrived(&Report { skipped: 1, ..report.clone() }, 0).is_none());
        assert!(nothing_arrived(&Report { directories: 1, ..report.clone() }, 0).is_some());
        assert!(nothing_arrived(&Report { directories: 1, ..report.clone() }, 1).is_none());
        report.failed[0].action = FailedAction::Delete;
        assert!(nothing_arrived(&Report { directories: 1, ..report }, 0).is_none(), "all there, but surplus");
    }

    #[test]
    fn the_failure_of_the_directory_above_all_others_is_the_cause() {
        for (paths, cause) in [
            (&["src/nox/z", "src", "src/nox"][..], "src"),
            (&["a", ".", "b"], "."),
            (&["b/x", "b", "c"], "b"),
            (&["second", "first"], "second"),
        ] {
            let failed = |path: &&str| FailedEntry {
                path: path.to_string(),
                code: Code::PermissionDenied,
                reason: "no".into(),
                action: FailedAction::Copy,
            };
            let report = Report { failed: paths.iter().map(failed).collect(), ..Report::default() };
            let error = nothing_arrived(&report, 0).expect("nothing has arrived");
            assert_eq!(error.to_string(), format!("{cause}: no"));
        }
    }
}
