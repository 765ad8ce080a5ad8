//! `farhaul clean`: finds the files that interrupted transfers have left below a directory, and removes them.

use std::path::PathBuf;
use std::time::Duration;

use farhaul_session::handle::Handle;
use farhaul_text::escape;
use farhaul_volume::{Leftover, LeftoverFile, find_leftovers};
use farhaul_words::{Code, Error, ErrorDetail};
use serde::Serialize;

use super::plain;

/// Raised when a field of [`CleanReport`] changes its meaning.
pub const CLEAN_SCHEMA: u32 = 1;
/// The most files, and the most failures, that a report lists.
const LISTED_MAX: usize = 100_000;

/// A directory to clean, and what to remove from it.
#[derive(Debug, Clone)]
pub struct CleanJob {
    pub directory: PathBuf,
    /// Only files that have not been changed for this long are removed.
    pub older: Duration,
    /// Only report what would be removed.
    pub dry_run: bool,
}

/// The result of a cleaning.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(default)]
pub struct CleanReport {
    pub schema: u32,
    pub ok: bool,
    pub error: Option<String>,
    pub error_detail: Option<ErrorDetail>,
    pub dry_run: bool,
    /// The files that were removed (in a dry run: would be), and the bytes that they took.
    pub removed: u64,
    pub bytes: u64,
    /// Files that stay because a running transfer uses them (`in_use`), or because they are too young.
    pub in_use: u64,
    pub younger: u64,
    pub younger_bytes: u64,
    pub files: Vec<CleanedFile>,
    pub failed: Vec<CleanFailure>,
    pub failed_count: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct CleanedFile {
    pub path: String,
    pub bytes: u64,
    pub age_seconds: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct CleanFailure {
    pub path: String,
    pub reason: String,
}

/// Removes the files that are old enough, and calls `tell` for each.
pub fn clean(
    job: &CleanJob,
    handle: &Handle,
    tell: &mut dyn FnMut(&CleanedFile),
) -> (CleanReport, Option<Error>) {
    handle.begin();
    let mut report = CleanReport { schema: CLEAN_SCHEMA, dry_run: job.dry_run, ..CleanReport::default() };
    let walked = find_leftovers(&job.directory, &mut |leftover| {
        match leftover {
            Leftover::Found(found) => take(job, &found, &mut report, tell),
            Leftover::Failed(path, error) => {
                fail(&mut report, path, format!("cannot look into it: {}", plain(&error)))
            }
        }
        !handle.is_cancelled()
    });
    let what = format!("cannot look into {}", job.directory.display());
    let error = match walked {
        Err(source) => Some(Error::new(Code::of_files(&source), format!("{what}: {}", plain(&source)))),
        Ok(()) => handle.is_cancelled().then_some(Error::interrupted()),
    };
    report.error = error.as_ref().map(ToString::to_string);
    report.error_detail = error.as_ref().map(ErrorDetail::from);
    report.ok = error.is_none() && report.failed_count == 0;
    handle.end(report.ok, error.as_ref());
    (report, error)
}

fn take(
    job: &CleanJob,
    found: &LeftoverFile<'_>,
    report: &mut CleanReport,
    tell: &mut dyn FnMut(&CleanedFile),
) {
    if found.age < job.older {
        report.younger += 1;
        report.younger_bytes += found.bytes;
        return;
    }
    let removed = match job.dry_run {
        true => Ok(!found.is_held()),
        false => found.remove(),
    };
    match removed {
        Ok(true) => {
            let file = CleanedFile {
                path: escape(found.path).to_string(),
                bytes: found.bytes,
                age_seconds: found.age.as_secs(),
            };
            report.removed += 1;
            report.bytes += found.bytes;
            tell(&file);
            if report.files.len() < LISTED_MAX {
                report.files.push(file);
            }
        }
        Ok(false) => report.in_use += 1,
        Err(error) => fail(report, found.path, format!("cannot remove it: {}", plain(&error))),
    }
}

fn fail(report: &mut CleanReport, path: &[u8], reason: String) {
    report.failed_count += 1;
    if report.failed.len() < LISTED_MAX {
        report.failed.push(CleanFailure { path: escape(path).to_string(), reason });
    }
}
