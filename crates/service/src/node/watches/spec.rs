//! The document that asks for a watched folder.

use std::path::{Component, Path, PathBuf};

use farhaul::copy::LocationSpec;
use farhaul::document::{JobOptions, SelectRules};
use farhaul::options::{Durability, OverwriteMode, VerifyMode};
use farhaul::sisters::unescape;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::JobPlaces;
use crate::job::JobSpec;
use crate::node::places;
use crate::watch::{AfterAction, FolderWatch, WatchedName};
use farhaul_api::{JobKind, JobSpan, Labels};

/// The label that all jobs of a watch have.
pub(crate) const LABEL: &str = "watch";

/// A watched folder, and where its files go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchSpec {
    /// The folder: an absolute path on the node's host, written like a source of a job.
    pub folder: String,
    /// The destination, written like that of a job. Files get the names that they have below the folder.
    pub destination: String,
    /// How long a file must not have changed before it is taken. Default `30s`.
    #[serde(default = "settle")]
    #[schema(value_type = String)]
    pub settle: JobSpan,
    /// The time between two scans of the whole folder. Default `60s`, or `10s` where the kernel does not
    /// report changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub rescan: Option<JobSpan>,
    /// Takes only files that match one of these patterns. Without any, takes all files.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub include: Vec<String>,
    /// Takes no files that match one of these patterns, and enters no directories that do.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub exclude: Vec<String>,
    /// True if names that begin with a dot are taken, too.
    #[serde(default)]
    pub hidden: bool,
    /// What to do with a file once it is synced at the destination: `keep` (the default), `mark` (put a file
    /// with its name and `.farhaul-done` beside it), `delete`, or `move:DIRECTORY`. The directory is an absolute
    /// path or lies below the folder, and must be on the same file system.
    #[serde(default)]
    #[schema(value_type = String)]
    pub after: AfterAction,
    /// Labels of its jobs. The jobs also have the label `watch` with the id of the watch.
    #[serde(default)]
    pub labels: Labels,
    /// An address that gets an HTTP POST at the end of each of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// Options of its jobs. The jobs are always durable, verify digests, and compare content where a file of
    /// the same size is there already, whatever these options say.
    #[serde(default)]
    pub options: JobOptions,
    /// The identity of the node's configuration by which its jobs connect to the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The key that a daemon at the far end must have: `SHA256:...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// The most patterns of one watch, and the most bytes of them.
const PATTERNS_MAX: usize = 1024;
const PATTERNS_BYTES_MAX: usize = 64 << 10;
/// The most bytes of its document, which is kept in memory.
const WATCH_BYTES_MAX: usize = 128 << 10;

fn settle() -> JobSpan {
    JobSpan(30)
}

impl WatchSpec {
    /// A watch with defaults for everything else.
    pub fn new(folder: String, destination: String) -> WatchSpec {
        WatchSpec {
            folder,
            destination,
            settle: settle(),
            rescan: None,
            include: Vec::new(),
            exclude: Vec::new(),
            hidden: false,
            after: AfterAction::Keep,
            labels: Labels::default(),
            webhook: None,
            options: JobOptions::default(),
            identity: None,
            fingerprint: None,
        }
    }

    /// Judges the document, except for rules that depend on the caller.
    pub(crate) fn checked(self) -> Result<WatchSpec, Error> {
        let bad = |what: &str| Err(Error::new(Code::BadOption, format!("the watched folder: {what}")));
        if self.labels.0.contains_key(LABEL) {
            return bad("the label watch is reserved for the service");
        }
        if self.options.select != SelectRules::default() {
            return bad("use include and exclude, not options.select");
        }
        if self.options.dry_run || self.options.sync.is_some() {
            return bad("its jobs are copies: dry_run and sync are not allowed");
        }
        if !self.options.earlier.compare.is_empty() {
            return bad(
                "what `compare-dest` leaves out has not arrived: options.earlier.compare is not allowed",
            );
        }
        let patterns = || self.include.iter().chain(&self.exclude);
        if patterns().count() > PATTERNS_MAX
            || patterns().map(String::len).sum::<usize>() > PATTERNS_BYTES_MAX
        {
            return bad("too many patterns");
        }
        let written = serde_json::to_string(&self).map_err(|error| Error::bug(error.to_string()))?;
        if written.len() > WATCH_BYTES_MAX {
            return bad("its document has more than 128 KiB");
        }
        let watch = self.watch()?;
        let mut parts = watch.folder.components();
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if watch.folder.parent().is_none() || !parts.all(is_plain) {
            return bad("it must be a path without .., and not the root of the file system");
        }
        self.job("0", vec!["x".into()]).checked()?;
        let destination = LocationSpec::parse(self.destination.as_ref())?;
        if destination.is_sink() && watch.after != AfterAction::Keep {
            return bad("null: keeps nothing, so nothing may become of the files: leave out after");
        }
        if let LocationSpec::Local(to) = &destination
            && to.starts_with(&watch.folder)
        {
            let what = format!(
                "{}: this lies in the watched folder, so files that arrive there would be taken again",
                self.destination
            );
            return Err(Error::new(Code::IntoItself, what));
        }
        Ok(self)
    }

    /// True if both take files from the same folder to the same destination, however these are spelled.
    pub(super) fn is_same_as(&self, other: &WatchSpec) -> bool {
        let folder = |spec: &WatchSpec| spec.watch().map(|watch| watch.folder).ok();
        let place = |spec: &WatchSpec| match LocationSpec::parse(spec.destination.as_ref()) {
            // Paths compare by their parts.
            Ok(LocationSpec::Local(path)) => path,
            _ => PathBuf::from(spec.destination.trim_end_matches('/')),
        };
        folder(self) == folder(other) && place(self) == place(other)
    }

    /// The settings of the watched folder.
    pub(crate) fn watch(&self) -> Result<FolderWatch, Error> {
        use std::os::unix::ffi::OsStringExt as _;
        let bad = || Error::new(Code::BadLocation, format!("{}: this is not an escaped path", self.folder));
        let folder = unescape(&self.folder).ok_or_else(bad)?;
        let seconds = |span: JobSpan| u32::try_from(span.0).unwrap_or(u32::MAX);
        let watch = FolderWatch {
            settle_s: seconds(self.settle),
            rescan_s: self.rescan.map(seconds),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            hidden: self.hidden,
            after: self.after.clone(),
            ..FolderWatch::new(PathBuf::from(std::ffi::OsString::from_vec(folder)))
        };
        watch.checked()
    }

    /// A job for some of its files, which are named as in documents of jobs.
    pub(crate) fn job(&self, watch: &str, names: Vec<String>) -> JobSpec {
        // With the slash, the content of the directory goes to the destination, not the directory.
        let source = format!("{}/", self.folder.trim_end_matches('/'));
        let mut spec = JobSpec::new(JobKind::Copy, vec![source], self.destination.clone());
        spec.options = self.options.clone();
        spec.options.select.names = Some(names);
        let (files, integrity) = (&mut spec.options.files, &mut spec.options.integrity);
        if integrity.durable == Durability::No {
            integrity.durable = Durability::End;
        }
        // What has arrived is known by digests. A version that is taken is a new one even if it has the size
        // and the time of the one before, so these do not say that it is there already.
        if integrity.verify == VerifyMode::Transit {
            integrity.verify = VerifyMode::Digest;
        }
        if files.overwrite == OverwriteMode::Different {
            files.overwrite = OverwriteMode::Content;
        }
        spec.labels = self.labels.clone();
        spec.labels.0.insert(LABEL.into(), watch.into());
        (spec.webhook, spec.identity, spec.fingerprint) =
            (self.webhook.clone(), self.identity.clone(), self.fingerprint.clone());
        spec
    }

    /// The locations that decide who sees and steers the watch: those of its jobs, and the directory that
    /// files are moved to.
    pub(crate) fn places(&self) -> Result<JobPlaces, Error> {
        let mut all = places::of_spec(&self.job("0", vec!["x".into()]))?;
        if let AfterAction::Move(to) = &self.after {
            all.0.push(LocationSpec::Local(Path::new(&self.watch()?.folder).join(to)));
        }
        Ok(all)
    }
}

/// The names of the files of a job.
pub(super) fn names_of(job: &JobSpec) -> Vec<WatchedName> {
    let names = job.options.select.names.iter().flatten();
    names.filter_map(|text| unescape(text)).map(WatchedName::new).collect()
}
