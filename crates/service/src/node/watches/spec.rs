//! The document that asks for a watched folder.

use std::path::{Component, Path, PathBuf};

use farhaul::{Durability, LocationSpec, unescape};
use farhaul_session::{Code, Error};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::JobPlaces;
use crate::job::{JobKind, JobOptions, JobSpan, JobSpec, Labels, SelectRules};
use crate::node::places;
use crate::watch::{AfterAction, FolderWatch, WatchedName};

/// The label by which a watch's jobs are known.
pub(crate) const LABEL: &str = "watch";

/// A folder, and where its files go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchSpec {
    /// An absolute path of the node's host, written as a job's source is.
    pub folder: String,
    /// Where its files go, under the names that they have below the folder; written as a job's destination is.
    pub destination: String,
    /// A file is taken when it has not changed for so long. Default `30s`.
    #[serde(default = "settle")]
    #[schema(value_type = String)]
    pub settle: JobSpan,
    /// Between two walks over the whole folder. Default `60s`, or `10s` where the kernel tells of no changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub rescan: Option<JobSpan>,
    /// Only files that match one of these patterns; none: all.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub include: Vec<String>,
    /// No files and no directories that match one of these.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub exclude: Vec<String>,
    /// Names that begin with a dot, too.
    #[serde(default)]
    pub hidden: bool,
    /// What becomes of a file that has arrived.
    #[serde(default)]
    pub after: AfterAction,
    /// Labels of its jobs, which have `watch` as well, with the watch's id.
    #[serde(default)]
    pub labels: Labels,
    /// An address that hears of the end of each of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// Options of its jobs; they are durable, whatever stands here.
    #[serde(default)]
    pub options: JobOptions,
    /// By which of the identities of the node's configuration its jobs show themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The key that a daemon at the other end must have, `SHA256:...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Patterns of one watch, and their bytes.
const PATTERNS_MAX: usize = 1024;
const PATTERNS_BYTES_MAX: usize = 256 << 10;

fn settle() -> JobSpan {
    JobSpan(30)
}

impl WatchSpec {
    /// A folder, and where its files go, with what is usual in all else.
    pub fn new(folder: String, destination: String) -> WatchSpec {
        WatchSpec {
            folder,
            destination,
            settle: settle(),
            rescan: None,
            include: Vec::new(),
            exclude: Vec::new(),
            hidden: false,
            after: AfterAction::Leave,
            labels: Labels::default(),
            webhook: None,
            options: JobOptions::default(),
            identity: None,
            fingerprint: None,
        }
    }

    /// The one place that judges it, but for what depends on the caller.
    pub(crate) fn checked(self) -> Result<WatchSpec, Error> {
        let bad = |what: &str| Err(Error::new(Code::BadOption, format!("the watched folder: {what}")));
        if self.labels.0.contains_key(LABEL) {
            return bad("the label watch is the service's own");
        }
        if self.options.select != SelectRules::default() {
            return bad("which files are taken is said by include and exclude, not by options.select");
        }
        if self.options.dry_run || self.options.sync.is_some() {
            return bad("its jobs copy: neither dry_run nor sync");
        }
        let patterns = || self.include.iter().chain(&self.exclude);
        if patterns().count() > PATTERNS_MAX
            || patterns().map(String::len).sum::<usize>() > PATTERNS_BYTES_MAX
        {
            return bad("too many patterns");
        }
        let watch = self.watch()?;
        let mut parts = watch.folder.components();
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if watch.folder.parent().is_none() || !parts.all(is_plain) {
            return bad("it is named without .., and is not the root of all");
        }
        self.job("0", vec!["x".into()]).checked()?;
        let destination = LocationSpec::parse(self.destination.as_ref())?;
        if let LocationSpec::Local(to) = &destination
            && to.starts_with(&watch.folder)
        {
            let what = format!("{}: what arrives there would be taken again", self.destination);
            return Err(Error::new(Code::IntoItself, what));
        }
        Ok(self)
    }

    /// What is watched, and how.
    pub(crate) fn watch(&self) -> Result<FolderWatch, Error> {
        use std::os::unix::ffi::OsStringExt as _;
        let bad = || Error::new(Code::BadLocation, format!("{}: this is no escaped path", self.folder));
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

    /// A job for files of it, which are named as in documents of jobs.
    pub(crate) fn job(&self, watch: &str, names: Vec<String>) -> JobSpec {
        // With the slash it is what the directory contains that goes there, not the directory.
        let source = format!("{}/", self.folder.trim_end_matches('/'));
        let mut spec = JobSpec::new(JobKind::Copy, vec![source], self.destination.clone());
        spec.options = self.options.clone();
        spec.options.select.names = Some(names);
        let durable = &mut spec.options.integrity.durable;
        if *durable == Durability::No {
            *durable = Durability::End;
        }
        spec.labels = self.labels.clone();
        spec.labels.0.insert(LABEL.into(), watch.into());
        (spec.webhook, spec.identity, spec.fingerprint) =
            (self.webhook.clone(), self.identity.clone(), self.fingerprint.clone());
        spec
    }

    /// The places that decide who sees and steers it: those of its jobs, and where files are moved to.
    pub(crate) fn places(&self) -> Result<JobPlaces, Error> {
        let mut all = places::of_spec(&self.job("0", vec!["x".into()]))?;
        if let AfterAction::Move(to) = &self.after {
            all.0.push(LocationSpec::Local(Path::new(&self.watch()?.folder).join(to)));
        }
        Ok(all)
    }
}

/// The names of the files that a job has.
pub(super) fn names_of(job: &JobSpec) -> Vec<WatchedName> {
    let names = job.options.select.names.iter().flatten();
    names.filter_map(|text| unescape(text)).map(WatchedName::new).collect()
}
