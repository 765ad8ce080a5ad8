//! The head of a job's document: the part that lists show, and that decides what happens when a run ends.
//!
//! The store keeps it beside the document, so that a list reads no document. It says nothing of which entries
//! are taken, so no transfer can begin by it.
//!
//! Always true: a head has a bounded size, however many sources the document has.

use farhaul_session::options::RateOptions;
use farhaul_words::Policy;
use serde::{Deserialize, Serialize};

use super::JobSpec;
use farhaul_api::{FinishBy, JobKind, Labels, RepeatRule, RetryOptions};

/// The most bytes of the sources that a head has; the first source is always there.
const SOURCES_BYTES_MAX: usize = 64 << 10;

/// The head of a document.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct JobHead {
    pub(crate) kind: JobKind,
    /// The first sources.
    pub(crate) sources: Vec<String>,
    /// How many sources the document has.
    pub(crate) source_count: usize,
    pub(crate) destination: String,
    /// `push`, `pull`, `local`, or `third` between two other hosts, as this node sees it.
    pub(crate) direction: String,
    pub(crate) policy: Policy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_bps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_min_bps: Option<u64>,
    #[serde(default)]
    pub(crate) dry_run: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finish_by: Option<FinishBy>,
    #[serde(default)]
    pub(crate) smooth: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<RetryOptions>,
    #[serde(default)]
    pub(crate) labels: Labels,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<String>,
    #[serde(default)]
    pub(crate) webhook_dry_run: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repeat: Option<RepeatRule>,
}

impl JobHead {
    /// The head of this document.
    pub(crate) fn of(spec: &JobSpec) -> JobHead {
        let mut bytes = 0;
        let mut is_kept = |source: &&String| {
            let is_first = bytes == 0;
            bytes += source.len();
            is_first || bytes <= SOURCES_BYTES_MAX
        };
        let rate = spec.options.network.rate_options();
        JobHead {
            kind: spec.kind,
            sources: spec.sources.iter().take_while(|source| is_kept(source)).cloned().collect(),
            source_count: spec.sources.len(),
            destination: spec.destination.clone(),
            direction: direction_of(spec).into(),
            policy: rate.policy,
            rate_bps: rate.rate_bps,
            rate_min_bps: rate.rate_min_bps,
            dry_run: spec.options.dry_run,
            finish_by: spec.finish_by,
            smooth: spec.smooth,
            retry: spec.retry,
            labels: spec.labels.clone(),
            webhook: spec.webhook.clone(),
            webhook_dry_run: spec.webhook_dry_run,
            repeat: spec.repeat.clone(),
        }
    }

    /// About how many bytes of names a list shows of it.
    pub(crate) fn shown_bytes(&self) -> usize {
        self.sources.iter().map(String::len).sum::<usize>() + self.destination.len()
    }

    /// The address that hears of the job's end. A dry run brings nothing, so nobody hears of it who was not
    /// asked for.
    pub(crate) fn told_webhook(&self) -> Option<&str> {
        self.webhook.as_deref().filter(|_| self.webhook_dry_run || !self.dry_run)
    }

    /// How the sender's rate is set, as the document says.
    pub(crate) fn rate_options(&self) -> RateOptions {
        RateOptions { policy: self.policy, rate_bps: self.rate_bps, rate_min_bps: self.rate_min_bps }
    }

    /// The sources in one line, for records.
    pub(crate) fn source_line(&self) -> String {
        let line = self.sources.join(" ");
        match self.source_count.saturating_sub(self.sources.len()) {
            0 => line,
            more => format!("{line} and {more} more"),
        }
    }
}

/// The direction as this node sees it.
fn direction_of(spec: &JobSpec) -> &'static str {
    let Ok((sources, destination)) = spec.places() else { return "local" };
    match (sources.iter().any(|place| place.host().is_some()), destination.host().is_some()) {
        (true, true) => "third",
        (true, false) => "pull",
        (false, true) => "push",
        (false, false) => "local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_is_seen_from_here() {
        let direction = |from: &str, to: &str| {
            JobHead::of(&JobSpec::new(JobKind::Copy, vec![from.into()], to.into())).direction
        };
        assert_eq!(direction("/a", "/b"), "local");
        assert_eq!(direction("/a", "h:b"), "push");
        assert_eq!(direction("fh://h/a", "/b"), "pull");
        assert_eq!(direction("fh://h/a", "fh://g/b"), "third");
    }

    #[test]
    fn a_head_stays_small_and_says_how_many_sources_there_are() {
        let spec = |count: usize, len: usize| {
            let sources = (0..count).map(|number| format!("/{number:0>len$}")).collect();
            JobSpec::new(JobKind::Copy, sources, "/to".into())
        };
        let head = JobHead::of(&spec(3, 10));
        assert_eq!((head.sources.len(), head.source_count), (3, 3));
        assert!(!head.source_line().contains("more"));
        let mut large = spec(1024, 4000);
        large.options.select.names = Some(vec!["x".repeat(100); 10_000]);
        let head = JobHead::of(&large);
        assert_eq!((head.sources.len(), head.source_count), (16, 1024));
        assert!(head.source_line().ends_with(" and 1008 more"));
        assert!(serde_json::to_string(&head).unwrap().len() < 80_000);
        let text = serde_json::to_string(&head).unwrap();
        assert_eq!(serde_json::from_str::<JobHead>(&text).unwrap(), head);
    }
}
