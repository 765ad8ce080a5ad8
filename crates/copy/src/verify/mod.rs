//! `farhaul verify`: compares a tree with a manifest or a list of digests, offline, on all cores.
//!
//! The calling thread reads the list line by line (`list.rs`) and hands the entries to as many threads as
//! there are cores (`check.rs`). Several threads read a file of many chunks at once. Findings are reported as
//! they are made.
//!
//! Always true: nothing outside the directory is looked at, no symbolic link is followed, and nothing is
//! changed. Memory does not grow with the list, except for the names that `extra` needs.

mod check;
mod link_targets;
mod list;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;

use farhaul_session::handle::Handle;
use farhaul_session::panic_guard::contained;
use farhaul_text::escape;
use farhaul_volume::{Algorithm, RelPath, Root};
use farhaul_words::{Code, Error, ErrorDetail};
use serde::Serialize;

use self::check::Checker;
use self::link_targets::LinkTargets;
use self::list::ExpectedEntry;
pub(crate) use self::list::ExpectedList;
use super::manifest::shown_root;
use super::plain;

/// Version of the report's format.
pub const VERIFY_SCHEMA: u32 = 1;
/// The most bytes of findings that the report lists.
const LISTED_BYTES_MAX: usize = 64 << 20;
/// The most lines that may wait for a thread.
const WAITING_MAX: usize = 1024;

/// One `farhaul verify`.
#[derive(Debug, Clone)]
pub struct VerifyJob {
    /// A manifest, or lines as `sha256sum` and similar tools write them.
    pub list: PathBuf,
    /// The directory that the list's paths begin in.
    pub directory: PathBuf,
    /// The algorithm of a list that is not a manifest, for lines that do not tell it themselves.
    pub algorithm: Algorithm,
    /// Find also entries of the directory that are not in the list.
    pub extra: bool,
    /// Compare also modes and modification times, as far as the file system keeps them.
    pub metadata: bool,
    /// Times that differ by at most this many seconds are taken as equal.
    pub modify_window_secs: u64,
    /// Compare sizes, but nothing that has to be read.
    pub quick: bool,
}

/// How an entry differs from the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Difference {
    Missing,
    Changed,
    /// It is not in the list.
    Extra,
    Unreadable,
}

impl Difference {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One entry that differs from the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub difference: Difference,
    /// The path, escaped as in a transfer's report.
    pub path: String,
    pub reason: String,
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VerifyReport {
    pub schema: u32,
    /// Everything is as the list says.
    pub ok: bool,
    /// Why the verification ended early.
    pub error: Option<String>,
    /// The error for programs: its code and details.
    pub error_detail: Option<ErrorDetail>,
    /// The entries that were compared, and the content bytes that were read.
    pub entries: u64,
    pub bytes: u64,
    pub missing: u64,
    pub changed: u64,
    pub extra: u64,
    pub unreadable: u64,
    /// Files without a digest in the list: only their size was compared.
    pub without_digest: u64,
    /// Entries that are absent according to the list: they failed, were deleted, or must not be overwritten.
    pub left_out: u64,
    /// The root of the digest tree of the manifest, in hexadecimal digits, if the list is a manifest with an
    /// end. It does not depend on the findings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_root: Option<String>,
    pub seconds: f64,
    /// The findings, up to a bound.
    pub findings: Vec<Finding>,
    pub warnings: Vec<String>,
}

impl VerifyReport {
    /// Whether any entry differs from the list.
    pub fn differs(&self) -> bool {
        self.missing + self.changed + self.extra + self.unreadable > 0
    }
}

/// Counters of the threads, and what one of them tells the others.
#[derive(Debug, Default)]
struct Counts {
    /// Lines that have been handed out, and are not checked yet.
    under_way: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    without_digest: AtomicU64,
    /// The digests of files that copies stand for links to.
    link_targets: LinkTargets,
    /// The precision of times on the file system, if it has mattered.
    limits: OnceLock<String>,
}

/// Runs a verification to its end; `tell` gets each finding as soon as it is made.
pub fn verify(
    job: &VerifyJob,
    handle: &Handle,
    tell: &mut dyn FnMut(&Finding),
) -> (VerifyReport, Option<Error>) {
    let begin = Instant::now();
    let mut report = VerifyReport { schema: VERIFY_SCHEMA, ..VerifyReport::default() };
    handle.begin();
    let result = run(job, handle, &mut report, tell);
    report.seconds = begin.elapsed().as_secs_f64();
    report.error = result.as_ref().err().map(ToString::to_string);
    report.error_detail = result.as_ref().err().map(ErrorDetail::from);
    report.ok = result.is_ok() && !report.differs();
    handle.end(report.ok, result.as_ref().err());
    (report, result.err())
}

fn run(
    job: &VerifyJob,
    handle: &Handle,
    report: &mut VerifyReport,
    tell: &mut dyn FnMut(&Finding),
) -> Result<(), Error> {
    let cannot = |what: String| Error::new(Code::BadManifest, what);
    let open = |error: std::io::Error| {
        let what = format!("cannot open {}: {}", job.directory.display(), plain(&error));
        Error::new(Code::of_files(&error), what)
    };
    let root = Root::open(&job.directory).map_err(open)?;
    let prefixes = prefixes_of(&job.directory);
    let mut list = ExpectedList::open(&job.list, job.algorithm, handle).map_err(cannot)?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let (expect, expected) = crossbeam_channel::bounded(WAITING_MAX);
    let (find, found) = crossbeam_channel::unbounded();
    let (help, helped) = crossbeam_channel::unbounded();
    let counts = Counts::default();
    let mut names = NameHashes::default();
    let broken = OnceLock::new();
    let listed = std::thread::scope(|scope| {
        // Moved in here, so that an early return closes the channel that the threads wait for.
        let expect = expect;
        for _ in 0..threads {
            let checker = Checker {
                root: &root,
                job,
                handle,
                counts: &counts,
                helpers: threads - 1,
                expected: expected.clone(),
                found: find.clone(),
                help: help.clone(),
                helped: helped.clone(),
            };
            let broken = &broken;
            let check = move || {
                if let Err(panic) = contained(|| checker.run()) {
                    let _ = broken.set(panic);
                    // The others must not wait for the lines that this thread had.
                    handle.cancel();
                }
            };
            let spawn = std::thread::Builder::new().name("verify".into());
            spawn.spawn_scoped(scope, check).map_err(Error::no_thread)?;
        }
        drop((find, help, expected));
        let mut collector = Collector { report: &mut *report, bytes: 0, tell };
        let mut read = || -> Result<(), Error> {
            let unread = |what| if handle.is_cancelled() { Error::interrupted() } else { cannot(what) };
            while let Some(mut line) = list.next().map_err(unread)? {
                if handle.is_cancelled() {
                    return Err(Error::interrupted());
                }
                make_relative(&mut line.path, &prefixes);
                if job.extra {
                    names.note(&line);
                }
                if line.is_there {
                    counts.under_way.fetch_add(1, SeqCst);
                    // The send only fails if all threads have ended, which only happens if they panic.
                    let _ = expect.send(line);
                } else {
                    collector.report.left_out += 1;
                }
                found.try_iter().for_each(|finding| collector.take(finding));
            }
            Ok(())
        };
        let result = read();
        drop(expect);
        found.iter().for_each(|finding| collector.take(finding));
        result?;
        if handle.is_cancelled() {
            return Err(Error::interrupted());
        }
        if job.extra {
            extra(&root, &names, handle, &mut collector)?;
        }
        Ok(())
    });
    report.entries = counts.entries.load(Relaxed);
    report.bytes = counts.bytes.load(Relaxed);
    report.without_digest = counts.without_digest.load(Relaxed);
    if listed.is_ok() {
        report.tree_root = list.root().as_ref().map(shown_root);
    }
    report.warnings.extend(list.warnings());
    if let Some(limits) = counts.limits.get() {
        report.warnings.push(format!(
            "the file system keeps times {limits}: times that differ by that are taken as equal"
        ));
    }
    broken.into_inner().map_or(listed, Err)
}

/// The beginnings of absolute paths of files in `directory`: with symbolic links, and without.
fn prefixes_of(directory: &Path) -> Vec<Vec<u8>> {
    let forms = [std::path::absolute(directory), directory.canonicalize()];
    forms.into_iter().flatten().map(|path| path.join("").into_os_string().into_encoded_bytes()).collect()
}

/// `farhaul sum` and sha256sum write absolute paths if they were given some.
fn make_relative(path: &mut Vec<u8>, prefixes: &[Vec<u8>]) {
    let prefix = prefixes.iter().find(|prefix| path.starts_with(prefix)).map_or(0, Vec::len);
    path.drain(..prefix);
}

struct Collector<'a> {
    report: &'a mut VerifyReport,
    bytes: usize,
    tell: &'a mut dyn FnMut(&Finding),
}

impl Collector<'_> {
    fn take(&mut self, finding: Finding) {
        *match finding.difference {
            Difference::Missing => &mut self.report.missing,
            Difference::Changed => &mut self.report.changed,
            Difference::Extra => &mut self.report.extra,
            Difference::Unreadable => &mut self.report.unreadable,
        } += 1;
        (self.tell)(&finding);
        if self.bytes < LISTED_BYTES_MAX {
            self.bytes += finding.path.len() + finding.reason.len() + 64;
            self.report.findings.push(finding);
        }
    }
}

/// The names in a list, as keyed hashes: two names with the same hash would at worst hide an extra entry.
#[derive(Default)]
struct NameHashes {
    hasher: RandomState,
    names: HashSet<u64>,
}

impl NameHashes {
    /// Notes the path of a line and the directories above it, which belong to the list, too.
    fn note(&mut self, line: &ExpectedEntry) {
        let mut path = &line.path[..];
        while self.names.insert(self.hasher.hash_one(path)) {
            match path.iter().rposition(|&byte| byte == b'/') {
                Some(slash) => path = &path[..slash],
                None => return,
            }
        }
    }

    fn has(&self, path: &RelPath) -> bool {
        self.names.contains(&self.hasher.hash_one(path.as_bytes()))
    }
}

/// Finds entries that are not in the list; of a directory that is not in it, only the directory itself.
fn extra(
    root: &Root,
    names: &NameHashes,
    handle: &Handle,
    collector: &mut Collector<'_>,
) -> Result<(), Error> {
    let mut stack = vec![RelPath::empty()];
    while let Some(directory) = stack.pop() {
        if handle.is_cancelled() {
            return Err(Error::interrupted());
        }
        let listed = match root.list(&directory) {
            Ok(listed) => listed,
            Err(error) => {
                let (path, reason) = (directory.to_string(), format!("cannot list: {}", plain(&error)));
                collector.take(Finding { difference: Difference::Unreadable, path, reason });
                continue;
            }
        };
        for (name, is_dir) in listed {
            // A path that is too long cannot be in any list.
            let path = directory.join(&name).ok().filter(|path| names.has(path));
            let Some(path) = path else {
                let path =
                    if directory.is_empty() { name } else { [directory.as_bytes(), b"/", &name].concat() };
                let path = format!("{}{}", escape(&path), if is_dir { "/" } else { "" });
                collector.take(Finding {
                    difference: Difference::Extra,
                    path,
                    reason: "not in the list".into(),
                });
                continue;
            };
            if is_dir {
                stack.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
