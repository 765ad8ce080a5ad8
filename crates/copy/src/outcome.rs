//! How a copy ended: from what both ends counted to one report.

use farhaul_session::error::{Code, Error, ExitCode};
use farhaul_session::session::Dialogue;

use super::end::End;
use super::manifest::{Log, shown_root};
use super::report::{REPORT_SCHEMA, Report};

/// How a session ended, as this end sees it.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) error: Option<Error>,
}

impl Outcome {
    /// A session that never ran.
    pub(crate) fn failed(error: Error) -> Outcome {
        let report = Report { schema: REPORT_SCHEMA, ..Report::default() }.ended_by(Some(&error));
        Outcome { report, error: Some(error) }
    }

    /// Ends the manifest; a run whose manifest could not be written has failed.
    pub(crate) fn and_manifest(mut self, log: Option<&Log>) -> Outcome {
        match (log.map_or(Ok(None), |log| log.finish(&self.report)), &self.error) {
            (Ok(root), _) => self.report.tree_root = root.as_ref().map(shown_root),
            (Err(error), None) => return self.but(error),
            (Err(_), Some(_)) => {}
        }
        self
    }

    /// It has failed after all.
    pub(crate) fn but(self, error: Error) -> Outcome {
        let report = Report { ok: false, ..self.report }.ended_by(Some(&error));
        Outcome { report, error: Some(error) }
    }

    pub(crate) fn new(dialogue: &Dialogue, end: End, error: Option<Error>) -> Outcome {
        let session = dialogue.report(&end.figures, end.bytes);
        let report = Report {
            schema: REPORT_SCHEMA,
            ok: error.is_none() && end.failures.count == 0,
            error: None,
            error_detail: None,
            complete: error.is_none(),
            renamed: end.renamed,
            session,
            files: end.files,
            directories: end.directories,
            links: end.links,
            skipped: end.skipped,
            deleted: end.deleted,
            replaced: end.replaced,
            left: end.left.listed.clone(),
            left_count: end.left.count,
            renames: end.renames,
            bytes_resumed: end.bytes_resumed,
            bytes_matched: end.bytes_matched,
            bytes_kept: end.bytes_kept,
            failed: end.failures.listed.clone(),
            failed_count: end.failures.count,
            not_taken: end.not_taken.listed,
            not_taken_count: end.not_taken.count,
            spread: end.spread.clone(),
            tree_root: None,
        };
        let error = error.or_else(|| nothing_arrived(&report));
        Outcome { report: report.ended_by(error.as_ref()), error }
    }
}

/// When not a single entry arrived, the transfer as a whole has failed.
fn nothing_arrived(report: &Report) -> Option<Error> {
    let first = report.failed.first()?;
    let Report { files, directories, links, skipped, deleted, renames, .. } = *report;
    if [report.session.bytes, files, directories, links, skipped, deleted, renames]
        .iter()
        .any(|&count| count > 0)
    {
        return None;
    }
    let what = format!("{}: {}", first.path, first.reason);
    // What keeps a single file from arriving is said of the transfer, unless that would end in another way.
    let is_of_files = first.code.exit_code() == ExitCode::Files;
    Some(Error::new(if is_of_files { first.code } else { Code::FilesFailed }, what))
}
