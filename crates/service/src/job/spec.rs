//! The document that asks for a job: one JSON object, described in docs/guide/jobs.md. The options of the
//! command line are another form of it.
//!
//! Always true: [`JobSpec::read`] refuses fields that it does not know, as all documents do
//! (`farhaul::document`); an accepted document is kept as it was understood.

use farhaul::copy::{CopyJob, LocationSpec, ReceiptOptions};
use farhaul::document::{self, JobOptions};
use farhaul::options::{ManifestOptions, TransferOptions};
use farhaul::sisters::receipt_is_possible;
use farhaul_api::{JobKind, PRIORITY_MAX, RepeatRule, RetryOptions};
use farhaul_words::{Code, Error};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use farhaul_api::{FinishBy, JobSpan, Labels};

/// The version of the document's schema. It is raised when a field changes its meaning or is removed.
pub const JOB_SCHEMA: u32 = 1;
/// The most sources of one job. A directory is one source, whatever is in it.
const SOURCES_MAX: usize = 1024;
/// The most names in [`SelectRules::names`](farhaul::document::SelectRules::names), and the most bytes of them:
/// they are kept with the job.
const NAMES_MAX: usize = 65_536;
const NAMES_BYTES_MAX: usize = 4 << 20;
const URL_MAX: usize = 2048;
/// The most bytes of a name: of an identity, a key, a time zone.
const NAME_MAX: usize = 100;
const CRON_MAX: usize = 256;

/// The document of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobSpec {
    /// The version of this schema: 1.
    #[schema(minimum = 1, maximum = 1)]
    pub schema: u32,
    /// The kind: a copy or a sync. Default copy.
    #[serde(default)]
    pub kind: JobKind,
    /// The locations that content comes from: absolute paths on the node's host, `[user@]host:path` over SSH,
    /// `fh://host[:port]/path` at a daemon. Bytes that are not UTF-8 are written as in reports: `\xff`.
    #[schema(min_items = 1, max_items = 1024)]
    pub sources: Vec<String>,
    /// The location that content goes to, written in the same way.
    pub destination: String,
    /// The options of `farhaul cp` and `farhaul sync`.
    #[serde(default)]
    pub options: JobOptions,
    /// The priority, from 0 (last) to 9 (first). It decides which job starts first, and which share a running
    /// job gets in a cap. Default 5.
    #[serde(default = "usual_priority")]
    #[schema(minimum = 0, maximum = 9)]
    pub priority: u8,
    /// The job does not begin before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_before: Option<Timestamp>,
    /// The job is to be finished by then at the latest: a time, or a time of day such as `06:00`. It is sure of
    /// the rate that it needs for that, and takes beyond that what nobody else wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub finish_by: Option<FinishBy>,
    /// True to go only as fast as `finish_by` needs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub smooth: bool,
    /// True to accept the job also if `finish_by` cannot be kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub anyway: bool,
    /// Further attempts after a failure that another attempt may get past. By default as the node's
    /// configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryOptions>,
    /// Names and values of the user's choice.
    #[serde(default)]
    pub labels: Labels,
    /// An address that gets an HTTP POST when the job ends, and when `finish_by` will not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// True if that address hears of the job although it is a dry run.
    #[serde(default)]
    pub webhook_dry_run: bool,
    /// The job runs again and again, until it is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<RepeatRule>,
    /// The identity of the node's configuration by which the job connects to the far end. By default the
    /// peer's, or else the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The key that a daemon at the far end must have: `SHA256:...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// True if both ends sign a receipt for what has arrived.
    #[serde(default)]
    pub receipt: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn usual_priority() -> u8 {
    5
}

/// [`RetryOptions`] with all that was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryRule {
    /// Attempts after the first one.
    pub attempts: u32,
    /// The delay before the second attempt.
    pub first_delay: JobSpan,
    pub longest_delay: JobSpan,
}

impl RetryRule {
    /// The rule for a job that asks for this, on a node with this rule of its own.
    pub(crate) fn of_job(asked: RetryOptions, node: RetryRule) -> RetryRule {
        // A delay of the job's own may be longer, or shorter, than the other one of the node.
        let (first_delay, longest_delay) = match (asked.first_delay, asked.longest_delay) {
            (Some(first), longest) => (first, longest.unwrap_or(node.longest_delay).max(first)),
            (None, Some(longest)) => (node.first_delay.min(longest), longest),
            (None, None) => (node.first_delay, node.longest_delay),
        };
        RetryRule { attempts: asked.attempts.unwrap_or(node.attempts), first_delay, longest_delay }
    }
}

impl JobSpec {
    /// A job with defaults for everything else.
    pub fn new(kind: JobKind, sources: Vec<String>, destination: String) -> JobSpec {
        JobSpec {
            schema: JOB_SCHEMA,
            kind,
            sources,
            destination,
            options: JobOptions::default(),
            priority: usual_priority(),
            not_before: None,
            finish_by: None,
            smooth: false,
            anyway: false,
            retry: None,
            labels: Labels::default(),
            webhook: None,
            webhook_dry_run: false,
            repeat: None,
            identity: None,
            fingerprint: None,
            receipt: false,
        }
    }

    /// Reads a document. The error for an unknown field says where it is.
    pub fn read(text: &[u8]) -> Result<JobSpec, Error> {
        document::read::<JobSpec>(text, "the job's document")?.checked()
    }

    /// Judges the document, whoever has sent it. Rules that depend on the caller, the configuration or the
    /// clock are judged where these are known.
    pub fn checked(self) -> Result<JobSpec, Error> {
        let bad = |what: String| Err(Error::new(Code::BadOption, what));
        if self.schema != JOB_SCHEMA {
            return bad(format!("schema {} is not supported: write schema {JOB_SCHEMA}", self.schema));
        }
        if self.priority > PRIORITY_MAX {
            return bad(format!("priority {} is not between 0 and {PRIORITY_MAX}", self.priority));
        }
        if self.sources.is_empty() || self.sources.len() > SOURCES_MAX {
            return bad(format!("a job must have 1 to {SOURCES_MAX} sources"));
        }
        let is_wrong = |retry: RetryOptions| {
            let delays = retry.first_delay.zip(retry.longest_delay);
            retry.attempts.is_some_and(|attempts| attempts > 1000)
                || delays.is_some_and(|(first, longest)| first > longest)
        };
        if self.retry.is_some_and(is_wrong) {
            return bad("retry: at most 1000 attempts, and the first delay not above the longest".into());
        }
        match (self.kind, &self.options.sync) {
            (JobKind::Copy, Some(_)) => return bad("options.sync is for jobs of the kind sync".into()),
            (JobKind::Sync, _) if self.sources.len() != 1 => {
                return bad("a sync must have exactly one source".into());
            }
            _ => {}
        }
        for (field, text) in [("identity", &self.identity), ("fingerprint", &self.fingerprint)] {
            if text.as_ref().is_some_and(|text| text.len() > NAME_MAX) {
                return bad(format!("{field}: at most {NAME_MAX} bytes"));
            }
        }
        if self.webhook.as_ref().is_some_and(|url| url.len() > URL_MAX || !is_http(url)) {
            return bad(format!("webhook: give an http or https address of at most {URL_MAX} bytes"));
        }
        if let Some(repeat) = &self.repeat {
            check_repeat(repeat)?;
        }
        if matches!((self.finish_by, &self.repeat), (Some(FinishBy::At(_)), Some(_))) {
            return bad("finish_by: a job that repeats must have a time of day, such as 06:00".into());
        }
        if (self.smooth || self.anyway) && self.finish_by.is_none() {
            return bad("smooth and anyway say how to keep finish_by: give that, too".into());
        }
        self.used()?.iter().try_for_each(|(field, option)| option.check(field))?;
        self.labels.check()?;
        let names = self.options.select.names.iter().flatten();
        let (count, bytes) = names.fold((0, 0), |(count, bytes), name| (count + 1, bytes + name.len()));
        if count > NAMES_MAX || bytes > NAMES_BYTES_MAX {
            return bad(format!("select.names: at most {NAMES_MAX} names and 4 MiB of them"));
        }
        let (sources, destination) = self.places()?;
        if self.receipt {
            if self.options.dry_run {
                return bad("there is no receipt for a dry run, which copies nothing".into());
            }
            let sources: Vec<_> = sources.iter().map(LocationSpec::to_location).collect();
            receipt_is_possible(&sources, &destination.to_location())?;
        }
        self.transfer_options(0)?.checked()?;
        Ok(self)
    }

    /// Sources and destination, parsed.
    pub fn places(&self) -> Result<(Vec<LocationSpec>, LocationSpec), Error> {
        let sources = self.sources.iter().map(|text| place(text)).collect::<Result<Vec<_>, _>>()?;
        Ok((sources, place(&self.destination)?))
    }

    /// The options of a run that begins at `now_s` (seconds since 1970).
    pub fn transfer_options(&self, now_s: i64) -> Result<TransferOptions, Error> {
        let mut options = self.options.transfer_options(self.kind, now_s)?;
        if let Some(delete) = options.sync.as_mut().and_then(|sync| sync.delete.as_mut()) {
            // Nobody looks at a job while it deletes.
            delete.guard.get_or_insert(true);
        }
        // The service keeps a manifest for every job.
        options.integrity.manifest.get_or_insert_with(ManifestOptions::default);
        Ok(options)
    }

    /// The copy that is run, with the defaults for its locations.
    pub fn copy_job(&self, now_s: i64) -> Result<CopyJob, Error> {
        let (sources, destination) = self.places()?;
        Ok(CopyJob {
            names: self.options.names()?,
            options: self.transfer_options(now_s)?,
            spread: self.options.spread_lists()?,
            receipt: self.receipt.then_some(ReceiptOptions { file: None, is_required: true }),
            ..CopyJob::new(sources.iter().map(LocationSpec::to_location), destination.to_location())
        })
    }
}

fn check_repeat(repeat: &RepeatRule) -> Result<(), Error> {
    let bad = |what: &str| Err(Error::new(Code::BadOption, format!("repeat: {what}")));
    if repeat.cron.as_ref().is_some_and(|text| text.len() > CRON_MAX)
        || repeat.time_zone.as_ref().is_some_and(|text| text.len() > NAME_MAX)
    {
        return bad("at most 256 bytes of cron, and 100 of time_zone");
    }
    match (&repeat.every, &repeat.cron) {
        (Some(_), Some(_)) | (None, None) => bad("give exactly one of every and cron"),
        (Some(every), None) if every.0 < 60 => bad("every must be a minute or more"),
        (Some(_), None) | (None, Some(_)) => Ok(()),
    }?;
    crate::scheduler::calendar::Calendar::new(repeat).map(|_| ())
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Parses a location of a job. Paths on this host must be absolute, as a job has no current directory.
fn place(text: &str) -> Result<LocationSpec, Error> {
    let bad = |what: &str| {
        let shown = farhaul_text::printable(text.as_bytes(), 200);
        Err(Error::new(Code::BadLocation, format!("{shown}: {what}")))
    };
    let place = document::location(text)?;
    match &place {
        LocationSpec::Pipe => bad("a job has no standard input or output"),
        place if place.is_input() => bad("a job has no standard input"),
        LocationSpec::Local(path) if !path.is_absolute() && !place.is_sink() && !place.is_made() => {
            bad("a job has no current directory; write an absolute path")
        }
        LocationSpec::Local(_) | LocationSpec::Ssh(..) | LocationSpec::Daemon(..) => Ok(place),
    }
}

#[cfg(test)]
mod tests {
    use farhaul::copy::Location;

    use super::*;

    #[test]
    fn what_a_job_does_not_say_of_its_attempts_is_as_the_node_says() {
        let seconds = |of: u64| Some(JobSpan(of));
        let node = RetryRule { attempts: 5, first_delay: JobSpan(10), longest_delay: JobSpan(600) };
        for ((attempts, first_delay, longest_delay), wanted) in [
            ((None, None, None), (5, 10, 600)),
            ((Some(3), None, None), (3, 10, 600)),
            ((None, seconds(900), None), (5, 900, 900)),
            ((None, None, seconds(4)), (5, 4, 4)),
            ((None, seconds(1), seconds(2)), (5, 1, 2)),
        ] {
            let rule = RetryRule::of_job(RetryOptions { attempts, first_delay, longest_delay }, node);
            assert_eq!((rule.attempts, rule.first_delay.0, rule.longest_delay.0), wanted);
        }
    }

    fn read(text: &str) -> Result<JobSpec, String> {
        JobSpec::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    const SMALL: &str = r#"{"schema": 1, "sources": ["/data/run7/"], "destination": "fh://hpc/in"}"#;

    #[test]
    fn a_small_document_has_what_is_usual() {
        let spec = read(SMALL).unwrap();
        assert_eq!((spec.kind, spec.priority, spec.retry), (JobKind::Copy, 5, None));
        let job = spec.copy_job(0).unwrap();
        assert!(job.options.sync.is_none() && job.options.integrity.manifest.is_some());
        assert!(
            matches!(&job.destination, Location::Daemon { target, path } if target.host == "hpc" && path == b"in")
        );
        // A kept document reads as the same again.
        assert_eq!(JobSpec::read(&serde_json::to_vec(&spec).unwrap()).unwrap(), spec);
    }

    #[test]
    fn all_that_a_document_can_say_arrives() {
        let spec = read(
            r#"{"schema": 1, "kind": "sync", "sources": ["/a\\xff"], "destination": "fh://h/b", "priority": 9,
            "not_before": "2027-01-31T06:00:00Z", "finish_by": "06:00", "labels": {"run": "7"},
            "retry": {"attempts": 2, "first_delay": "1s", "longest_delay": "1m"}, "webhook": "https://example.org/x",
            "webhook_dry_run": true, "repeat": {"cron": "0 22 * * 1-5", "time_zone": "Europe/Zurich"}, "identity": "beam", "receipt": true,
            "options": {"network": {"rate_bps": 2000000000, "policy": "low", "flows": 2},
              "files": {"in_place": true, "xattrs": true},
              "select": {"rules": ["- *.tmp"], "age_min": "1h", "names": ["x"]},
              "integrity": {"verify": "readback", "durable": "end", "manifest": {"extra": ["sha256"]}},
              "spread": [["/d1", "/d2"]], "sync": {"checksum": true}, "dry_run": false}}"#,
        )
        .unwrap();
        let job = spec.copy_job(10_000).unwrap();
        assert!(
            matches!(&job.sources[0], Location::Local(path) if path.as_os_str().as_encoded_bytes() == b"/a\xff")
        );
        let options = job.options;
        assert_eq!(options.network.rate_bps, Some(2_000_000_000));
        assert_eq!((options.select.mtime_max, options.select.rules.len()), (Some(6_400), 1));
        assert!(options.sync.unwrap().checksum);
        assert_eq!((job.names.unwrap().len(), job.spread.len(), options.dry_run), (1, 1, false));
        let dry = SMALL.replace('}', r#", "options": {"dry_run": true}}"#);
        assert!(read(&dry).unwrap().copy_job(0).unwrap().options.dry_run);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_line() {
        let with = |more: &str| SMALL.replace('}', &format!(", {more}}}"));
        for (document, part) in [
            (String::new(), "must be a JSON object"),
            ("[]".into(), "must be a JSON object"),
            ("{".into(), "EOF"),
            (format!("{SMALL} x"), "trailing"),
            (SMALL.replace("\"schema\": 1", "\"schema\": 2"), "schema 2"),
            (SMALL.replace("/data/run7/", "data"), "absolute path"),
            (SMALL.replace("/data/run7/", "-"), "no standard input"),
            (SMALL.replace("/data/run7/", "/a\\\\xz"), "backslash"),
            (with(r#""prioritty": 3"#), "there is no field 'prioritty'"),
            (with(r#""options": {"network": {"rate": 3}}"#), "there is no field 'options.network.rate'"),
            (with(r#""priority": 10"#), "between 0 and 9"),
            (with(r#""webhook": "ftp://x""#), "http or https"),
            (with(r#""labels": {"a b": ""}"#), "label"),
            (with(r#""repeat": {}"#), "exactly one"),
            (with(r#""repeat": {"every": "5s"}"#), "a minute or more"),
            (with(r#""repeat": {"cron": "61 * * * *"}"#), "cron"),
            (with(r#""repeat": {"cron": "0 6 * * *", "time_zone": "Mars/Olympus"}"#), "time zone"),
            (with(r#""repeat": {"every": "1h"}, "finish_by": "2027-01-31T06:00:00Z""#), "time of day"),
            (with(r#""options": {"sync": {}}"#), "kind sync"),
            (with(r#""options": {"network": {"policy": "fixed"}}"#), "`policy` fixed needs `rate`"),
            (with(r#""options": {"select": {"rules": ["nonsense"]}}"#), "nonsense"),
            (with(r#""not_before": "tomorrow""#), "the job's document"),
            (
                with(r#""receipt": true"#).replace("fh://hpc/in", "ssh://hpc/in"),
                "there can be no receipt: over SSH",
            ),
            (
                with(r#""receipt": true"#).replace("fh://hpc/in", "/in"),
                "there can be no receipt: within one host",
            ),
        ] {
            let line = read(&document).expect_err(&document);
            assert!(line.contains(part) && !line.contains('\n'), "{document}: {line}");
        }
    }
}
