//! `--retry-failed`: reads the failures of an earlier run from its report or its manifest.
//!
//! Always true: a run that ended early is refused, since its list lacks what it never came to.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use farhaul_text::unescape;
use farhaul_volume::is_pattern;
use farhaul_words::{Code, Error};

use super::job::Location;
use super::manifest::{EntryFate, ManifestLine, parse};
use super::report::{FailedAction, Report};
use super::{NAMES_MAX, last_component, plain};

/// The most bytes that are read: twice the longest report.
const REPORT_MAX: u64 = 512 << 20;

/// The entries that are to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySelection {
    /// The paths at the source, which begin with the source's name if it has one.
    paths: Vec<Vec<u8>>,
    /// The single source got the destination's name in that run.
    pub(crate) renamed: bool,
}

/// The failures of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRun {
    /// The entries to copy again; `None` if no copy failed.
    pub retry: Option<RetrySelection>,
    /// Entries that were to be deleted and are still there.
    pub not_deleted: u64,
}

impl FailedRun {
    /// Reads the JSON report of a run, or its manifest.
    pub fn read(path: &Path) -> Result<FailedRun, Error> {
        let usage =
            |why: String| Error::new(Code::BadList, format!("`retry-failed` {}: {why}", path.display()));
        let file = File::open(path).map_err(|error| usage(plain(&error)))?;
        let mut lines = BufReader::with_capacity(1 << 20, file);
        let mut first = Vec::new();
        lines
            .by_ref()
            .take(REPORT_MAX)
            .read_until(b'\n', &mut first)
            .map_err(|error| usage(plain(&error)))?;
        match parse(&first) {
            Ok(ManifestLine::Begin) => of_manifest(lines),
            _ => {
                // Other tools may have formatted the report in many lines.
                lines.take(REPORT_MAX).read_to_end(&mut first).map_err(|error| usage(plain(&error)))?;
                of_report(&first)
            }
        }
        .map_err(usage)
    }
}

const ENDED_EARLY: &str = "that run ended early, so its list is not complete: run the same command without \
                           `retry-failed`; it goes on where it stopped";

fn of_report(text: &[u8]) -> Result<FailedRun, String> {
    let report: Report =
        serde_json::from_slice(text).map_err(|error| format!("neither a report nor a manifest: {error}"))?;
    if !report.complete && report.error.is_some() {
        return Err(ENDED_EARLY.into());
    }
    if report.failed.len() as u64 != report.failed_count {
        let (some, all) = (report.failed.len(), report.failed_count);
        return Err(format!(
            "it lists only {some} of {all} failures: take the manifest of the run, or run it as a whole"
        ));
    }
    let mut run = FailedNames::default();
    for failed in &report.failed {
        match (failed.action, unescape(&failed.path)) {
            (FailedAction::Delete, _) => run.not_deleted += 1,
            (FailedAction::Copy, Some(path)) => run.paths.push(path),
            (FailedAction::Copy, None) => return Err(format!("not a path of a report: {}", failed.path)),
        }
    }
    run.checked(report.renamed)
}

fn of_manifest(mut lines: BufReader<File>) -> Result<FailedRun, String> {
    let mut run = FailedNames::default();
    let mut renamed = false;
    let mut line = Vec::new();
    for number in 2.. {
        line.clear();
        let read =
            lines.by_ref().take(REPORT_MAX).read_until(b'\n', &mut line).map_err(|error| plain(&error))?;
        if read == 0 || !line.ends_with(b"\n") {
            return Err(ENDED_EARLY.into());
        }
        match parse(&line).map_err(|why| format!("line {number}: {why}"))? {
            ManifestLine::Begin => {}
            ManifestLine::End { error: Some(_) } => return Err(ENDED_EARLY.into()),
            ManifestLine::End { error: None } => break,
            ManifestLine::Entry(entry) => {
                renamed |= entry.place != entry.path && entry.path != b".";
                match entry.fate {
                    EntryFate::Failed => run.paths.push(entry.path),
                    EntryFate::NotDeleted => run.not_deleted += 1,
                    _ => {}
                }
            }
        }
    }
    run.checked(renamed)
}

#[derive(Default)]
struct FailedNames {
    paths: Vec<Vec<u8>>,
    not_deleted: u64,
}

impl FailedNames {
    fn checked(self, renamed: bool) -> Result<FailedRun, String> {
        let FailedNames { paths, not_deleted } = self;
        if paths.len() > NAMES_MAX {
            return Err(format!("{} failed, more than {NAMES_MAX}: run it as a whole", paths.len()));
        }
        let retry = (!paths.is_empty()).then_some(RetrySelection { paths, renamed });
        Ok(FailedRun { retry, not_deleted })
    }
}

impl RetrySelection {
    /// The names to request, if these are the sources of that run.
    pub(crate) fn names(self, sources: &[Location]) -> Result<Vec<Vec<u8>>, Error> {
        let sources: Vec<&[u8]> = sources.iter().filter_map(path_of).collect();
        let names: Vec<Option<&[u8]>> = sources.iter().map(|source| last_component(source)).collect();
        let has_content = names.contains(&None);
        if has_content && names.len() > 1 {
            let what = "`retry-failed`: with several sources, none of them may end with a slash: copy them one after the other";
            return Err(Error::new(Code::BadList, what));
        }
        let has_pattern = sources.iter().any(|source| is_pattern(source));
        let mut asked = Vec::with_capacity(self.paths.len());
        for path in self.paths {
            // A source that could not be opened has failed under the path that the user gave.
            let whole = sources.iter().position(|source| trimmed(source) == trimmed(&path));
            let path = match whole.and_then(|index| names[index]) {
                Some(name) => name.to_vec(),
                None if whole.is_some() => b".".to_vec(),
                None => path,
            };
            let top = path.split(|&byte| byte == b'/').next();
            if !has_content && !has_pattern && !names.contains(&top) {
                let shown = farhaul_text::escape(&path);
                let what = format!(
                    "`retry-failed`: {shown} failed in that run, but is in none of these sources: name the same sources as then"
                );
                return Err(Error::new(Code::BadList, what));
            }
            asked.push(path);
        }
        Ok(asked)
    }
}

fn path_of(source: &Location) -> Option<&[u8]> {
    match source {
        Location::Pipe => None,
        Location::Local(path) => Some(path.as_os_str().as_bytes()),
        Location::Ssh { path, .. } | Location::Daemon { path, .. } => Some(path),
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    let begin = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(begin, |last| last + 1);
    &path[begin..end]
}

#[cfg(test)]
mod tests {
    use super::super::report::FailedEntry;
    use super::*;

    fn report(failed: &[(&str, FailedAction)]) -> Report {
        let entry = |&(path, action): &(&str, FailedAction)| FailedEntry {
            path: path.into(),
            code: Code::FilesFailed,
            reason: "no".into(),
            action,
        };
        let failed: Vec<_> = failed.iter().map(entry).collect();
        Report { complete: true, failed_count: failed.len() as u64, failed, ..Report::default() }
    }

    fn read(report: &Report) -> Result<FailedRun, String> {
        of_report(&serde_json::to_vec(report).unwrap())
    }

    #[test]
    fn what_failed_is_asked_for_by_its_bytes() {
        let run =
            read(&report(&[("run7/\\xff\\n", FailedAction::Copy), ("x", FailedAction::Delete)])).unwrap();
        assert_eq!(run.not_deleted, 1);
        let local = |path: &str| Location::Local(path.into());
        let retry = run.retry.unwrap();
        assert_eq!(retry.clone().names(&[local("/data/run7")]).unwrap(), [b"run7/\xff\n"]);
        assert_eq!(retry.clone().names(&[local("anything/")]).unwrap(), [b"run7/\xff\n"]);
        assert!(retry.clone().names(&[local("/data/run8")]).is_err());
        assert!(retry.names(&[local("run7"), local("a/")]).is_err());
        let missing = read(&report(&[("/data/x", FailedAction::Copy)])).unwrap().retry.unwrap();
        assert_eq!(missing.names(&[local("/data/x"), local("y")]).unwrap(), [b"x"]);
        assert_eq!(read(&report(&[])).unwrap(), FailedRun { retry: None, not_deleted: 0 });
    }

    #[test]
    fn a_list_that_is_not_complete_is_refused() {
        let early =
            Report { complete: false, error: Some("lost".into()), ..report(&[("a", FailedAction::Copy)]) };
        assert!(read(&early).unwrap_err().contains("ended early"));
        let all_failed = Report { error: Some("a: no".into()), ..report(&[("a", FailedAction::Copy)]) };
        assert!(read(&all_failed).is_ok());
        let bounded = Report { failed_count: 2, ..report(&[("a", FailedAction::Copy)]) };
        assert!(read(&bounded).unwrap_err().contains("only 1 of 2"));
        assert!(of_report(b"{}").is_err() && of_report(b"").is_err());
    }
}
