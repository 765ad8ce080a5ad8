//! The tables of jobs, their documents and their labels.
//!
//! A job's document may be large. It lies in a table of its own, and lists do not read it: they show its head,
//! and its locations decide who sees it.
//!
//! Always true: a row that cannot be read is one job that cannot be read; it stands in lists as a failed job
//! with the reason, and nothing else fails.

use farhaul_words::ErrorDocument;
use std::sync::Arc;

use farhaul::copy::Report;
use farhaul::sisters::SourceRoot;
use farhaul_session::options::RateOptions;
use farhaul_words::{Code, Error, Policy, Snapshot};
use rusqlite::types::{FromSqlError, Type};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, named_params, params};
use serde::{Deserialize, Serialize};

use crate::access::JobPlaces;
use crate::job::{JobHead, JobSpec};
use crate::node::NodeMoment;
use farhaul_api::CallerReach;
use farhaul_api::{JobId, JobState};

/// A row of the table `jobs`, except for what is read only when it is needed: [`JobFacts`], [`JobDocument`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobRow {
    pub(crate) id: JobId,
    /// The caller that submitted it.
    pub(crate) owner: String,
    pub(crate) state: JobState,
    pub(crate) priority: u8,
    /// The position among jobs of the same priority.
    pub(crate) position: i64,
    /// The other host, which the job is counted with; `None` for a copy within this host.
    pub(crate) peer: Option<String>,
    pub(crate) steering: JobSteering,
    /// Sums over the attempts of the run so far.
    pub(crate) figures: RunFigures,
    pub(crate) submitted_ms: i64,
    /// When a job goes on that waits for its time or its next attempt.
    pub(crate) due_ms: Option<i64>,
    pub(crate) finish_by_ms: Option<i64>,
    /// The number of the present run, from 1, and of its present attempt, from 1.
    pub(crate) run: u32,
    pub(crate) attempt: u32,
    /// When the present run began, and when the last one ended.
    pub(crate) began_ms: Option<i64>,
    pub(crate) ended_ms: Option<i64>,
    /// Why the last attempt failed.
    pub(crate) error: Option<ErrorDocument>,
    pub(crate) changed_ms: i64,
    /// The bytes that the store keeps for the job: its document, its places and its head.
    pub(crate) kept_bytes: u64,
}

/// What is shown of a job's document, and where the job's files are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobFacts {
    pub(crate) head: JobHead,
    pub(crate) places: Arc<JobPlaces>,
}

impl JobFacts {
    /// Those of a job that cannot be read.
    pub(crate) fn unknown() -> JobFacts {
        JobFacts { head: JobHead::default(), places: Arc::new(JobPlaces(Vec::new())) }
    }
}

/// What a transfer of a job needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobDocument {
    pub(crate) spec: JobSpec,
    /// What the job may use, here and at peers: its owner's reach when it was submitted.
    pub(crate) reach: CallerReach,
}

/// A document in the form that the store keeps.
#[derive(Debug, Clone)]
pub(crate) struct StoredDocument {
    spec: String,
    reach: String,
    head: String,
    places: String,
    kind: &'static str,
    labels: Vec<(String, String)>,
}

impl StoredDocument {
    /// The form of this document; `facts` are made of it.
    pub(crate) fn of(document: &JobDocument, facts: &JobFacts) -> Result<StoredDocument, Error> {
        let bug = |error| Error::bug(format!("a job's document cannot be written: {error}"));
        Ok(StoredDocument {
            spec: serde_json::to_string(&document.spec).map_err(bug)?,
            reach: serde_json::to_string(&document.reach).map_err(bug)?,
            head: serde_json::to_string(&facts.head).map_err(bug)?,
            places: facts.places.to_text(),
            kind: document.spec.kind.name(),
            labels: document.spec.labels.0.clone().into_iter().collect(),
        })
    }

    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.spec.len() + self.head.len() + self.places.len() + self.reach.len()) as u64
    }
}

/// Changes to a job since it was submitted, as far as they matter to its transfers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobSteering {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<Policy>,
    /// `Some(None)`: the job's own limit was removed.
    #[serde(skip_serializing_if = "Option::is_none", with = "double_option")]
    pub(crate) rate_bps: Option<Option<u64>>,
    /// The reach of those who have made the present run go on and are not its owner: it may use only what
    /// these reach, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<CallerReach>,
    /// The present run deletes whatever the guard says.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) delete_anyway: bool,
    /// Where the source lay in the last run that deleted what it had to, or had nothing to delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_root: Option<SourceRoot>,
    /// True if somebody has cancelled the job and its transfer has not ended yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_cancelled: bool,
}

impl JobSteering {
    /// Forgets what holds for one run only.
    pub(crate) fn begin_run(&mut self) {
        (self.within, self.delete_anyway) = (None, false);
    }
}

/// Sums over the attempts of a run, and what was told of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunFigures {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Entries that were deleted; of a dry run, that would be.
    pub(crate) deleted: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) peak_bps: f64,
    /// True if others have heard that its deadline will not be kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_late_told: bool,
    /// The figures of the attempt that is under way, as they were a moment ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<AttemptFigures>,
    /// How often in a row the node has died while the job ran.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) deaths: u32,
}

/// What an attempt has moved so far.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AttemptFigures {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl RunFigures {
    /// Notes how far the attempt is. A dry run moves nothing.
    pub(crate) fn note_attempt(&mut self, seen: &Snapshot, dry_run: bool) {
        let bytes = if dry_run { 0 } else { seen.bytes_moved };
        self.attempt = Some(AttemptFigures { bytes, seconds: seen.seconds });
    }

    /// Adds what was noted of an attempt that had no end. Yields for how many seconds it was under way.
    pub(crate) fn take_attempt(&mut self) -> f64 {
        let noted = self.attempt.take().unwrap_or_default();
        self.bytes = self.bytes.saturating_add(noted.bytes);
        self.seconds += noted.seconds;
        noted.seconds
    }

    /// Adds the figures of an attempt that has ended. The report of a dry run says what would arrive.
    pub(crate) fn add(&mut self, report: &Report, peak_bps: f64) {
        if !report.dry_run {
            self.files = self.files.saturating_add(report.files);
            self.bytes = self.bytes.saturating_add(report.session.bytes);
        }
        (self.attempt, self.deaths) = (None, 0);
        // Far ends tell some of these figures.
        self.deleted = self.deleted.saturating_add(report.deleted);
        self.wire_bytes = self.wire_bytes.saturating_add(report.session.wire_bytes_sent);
        self.seconds += report.session.seconds;
        self.peak_bps = self.peak_bps.max(peak_bps);
    }
}

/// Writes and reads an option of an option, so that "not set" differs from "set to nothing".
mod double_option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Option<u64>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.flatten().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
        Ok(Some(Option::deserialize(from)?))
    }
}

impl JobRow {
    /// The rate options of its sender.
    pub(crate) fn rate_options(&self, head: &JobHead) -> RateOptions {
        let asked = head.rate_options();
        RateOptions {
            policy: self.steering.policy.unwrap_or(asked.policy),
            rate_bps: self.steering.rate_bps.unwrap_or(asked.rate_bps),
            rate_min_bps: asked.rate_min_bps,
        }
    }

    /// True if the job leaves to others what its deadline does not need: nobody has asked for a policy that
    /// takes more.
    pub(crate) fn yields(&self, head: &JobHead) -> bool {
        let usual = self.steering.policy.is_none() && head.policy == Policy::default();
        usual || self.rate_options(head).policy == Policy::Low
    }

    /// The row of a job that cannot be read.
    fn unreadable(id: JobId, owner: String, why: &str) -> JobRow {
        JobRow {
            id,
            owner,
            state: JobState::Failed,
            priority: 0,
            position: 0,
            peer: None,
            steering: JobSteering::default(),
            figures: RunFigures::default(),
            submitted_ms: 0,
            due_ms: None,
            finish_by_ms: None,
            run: 1,
            attempt: 0,
            began_ms: None,
            ended_ms: None,
            error: Some((&unreadable(id, why)).into()),
            changed_ms: 0,
            kept_bytes: 0,
        }
    }
}

/// The error for a job whose row or document cannot be read.
pub(crate) fn unreadable(id: JobId, why: &str) -> Error {
    let why = farhaul_text::printable(why.as_bytes(), 300);
    Error::new(Code::StoreBroken, format!("job {id} in the store cannot be read: {why}"))
        .with_hint("submit it again; farhaul store check lists all rows that cannot be read")
}

/// Adds an accepted job.
pub(crate) fn insert(
    transaction: &Transaction<'_>,
    job: &JobRow,
    document: &StoredDocument,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO jobs (id, owner, kind, state, priority, position, peer, steering, figures, submitted_ms,
                due_ms, finish_by_ms, run, attempt, began_ms, ended_ms, error, changed_ms, kept_bytes, places, head,
                node_ms)
             VALUES (:id, :owner, :kind, :state, :priority, :position, :peer, :steering, :figures, :submitted_ms,
                :due_ms, :finish_by_ms, :run, :attempt, :began_ms, :ended_ms, :error, :changed_ms, :kept_bytes,
                :places, :head, :ended_ms)",
        )?
        .execute(named_params! {
            ":id": job.id.as_str(), ":owner": job.owner, ":kind": document.kind,
            ":state": job.state.name(), ":priority": job.priority, ":position": job.position, ":peer": job.peer,
            ":steering": json(&job.steering)?, ":figures": json(&job.figures)?,
            ":submitted_ms": job.submitted_ms, ":due_ms": job.due_ms,
            ":finish_by_ms": job.finish_by_ms, ":run": job.run, ":attempt": job.attempt,
            ":began_ms": job.began_ms, ":ended_ms": job.ended_ms,
            ":error": job.error.as_ref().map(json).transpose()?, ":changed_ms": job.changed_ms,
            ":kept_bytes": i64::try_from(document.bytes()).unwrap_or(i64::MAX),
            ":places": document.places, ":head": document.head,
        })?;
    transaction
        .prepare_cached("INSERT INTO documents (job, spec, reach) VALUES (?1, ?2, ?3)")?
        .execute(params![job.id.as_str(), document.spec, document.reach])?;
    let mut label =
        transaction.prepare_cached("INSERT INTO labels (job, name, value) VALUES (?1, ?2, ?3)")?;
    for (name, value) in &document.labels {
        label.execute(params![job.id.as_str(), name, value])?;
    }
    Ok(())
}

/// Fills in what an earlier version of this program did not keep beside a document. `form` makes it of the
/// document's text and its confinement. A document that it cannot read stays as it is.
pub(crate) fn fill(
    transaction: &Transaction<'_>,
    form: impl Fn(JobDocument) -> Result<StoredDocument, Error>,
) -> rusqlite::Result<()> {
    let mut ids = transaction.prepare("SELECT id FROM jobs WHERE head IS NULL")?;
    let ids = ids.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut write = transaction
        .prepare_cached("UPDATE jobs SET head = ?2, places = ?3, kept_bytes = ?4 WHERE id = ?1")?;
    for id in ids {
        let Ok(Some(document)) = read_document(transaction, &id) else { continue };
        let Ok(made) = form(document) else { continue };
        write.execute(params![
            id,
            made.head,
            made.places,
            i64::try_from(made.bytes()).unwrap_or(i64::MAX)
        ])?;
    }
    Ok(())
}

/// Makes a job that cannot be read one that has failed. Its document stays as it is.
pub(crate) fn set_aside(
    transaction: &Transaction<'_>,
    id: JobId,
    why: &str,
    (now_ms, node_ms): (i64, i64),
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE jobs SET state = 'failed', steering = '{}', figures = '{}', due_ms = NULL,
                finish_by_ms = NULL, ended_ms = coalesce(ended_ms, ?2), error = ?3, changed_ms = ?2,
                node_ms = coalesce(node_ms, ?4) WHERE id = ?1",
        )?
        .execute(params![id.as_str(), now_ms, json(&ErrorDocument::from(&unreadable(id, why)))?, node_ms])?;
    Ok(())
}

/// Writes whose job it is, and what it may use.
pub(crate) fn set_owner(
    transaction: &Transaction<'_>,
    id: JobId,
    owner: &str,
    reach: &CallerReach,
) -> rusqlite::Result<()> {
    transaction.execute("UPDATE jobs SET owner = ?2 WHERE id = ?1", params![id.as_str(), owner])?;
    let update = "UPDATE documents SET reach = ?2 WHERE job = ?1";
    transaction.execute(update, params![id.as_str(), json(reach)?]).map(|_| ())
}

/// Writes the fields that can change, at this node time. Does nothing if the job was deleted.
pub(crate) fn update(transaction: &Transaction<'_>, job: &JobRow, node_ms: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE jobs SET state = :state, priority = :priority, position = :position, steering = :steering,
                figures = :figures,
                due_ms = :due_ms, finish_by_ms = :finish_by_ms, run = :run, attempt = :attempt,
                began_ms = :began_ms, ended_ms = :ended_ms, error = :error, changed_ms = :changed_ms,
                node_ms = CASE WHEN ended_ms IS :ended_ms THEN node_ms ELSE :node_ms END
             WHERE id = :id",
        )?
        .execute(named_params! {
            ":id": job.id.as_str(), ":state": job.state.name(), ":priority": job.priority,
            ":position": job.position, ":steering": json(&job.steering)?, ":figures": json(&job.figures)?,
            ":due_ms": job.due_ms,
            ":finish_by_ms": job.finish_by_ms, ":run": job.run, ":attempt": job.attempt,
            ":began_ms": job.began_ms, ":ended_ms": job.ended_ms,
            ":error": job.error.as_ref().map(json).transpose()?, ":changed_ms": job.changed_ms,
            ":node_ms": node_ms,
        })?;
    Ok(())
}

const COLUMNS: &str = "id, owner, state, priority, position, peer, steering, figures, submitted_ms, due_ms, finish_by_ms, \
                       run, attempt, began_ms, ended_ms, error, changed_ms, kept_bytes";
/// Where a question has them if it asks for them behind these columns.
const PLACES: usize = 18;
const HEAD: usize = 19;

/// The job with this id.
pub(crate) fn get(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRow>> {
    let question = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
    connection.prepare_cached(&question)?.query_row([id.as_str()], |found| readable(found, id)).optional()
}

/// What is shown of a job, and where its files are. `Err` says why that cannot be read.
pub(crate) fn facts(
    connection: &Connection,
    id: JobId,
) -> rusqlite::Result<Option<Result<JobFacts, String>>> {
    let question = "SELECT places, head FROM jobs WHERE id = ?1";
    let read = |row: &Row<'_>| Ok(facts_of(row, 0, 1));
    connection.prepare_cached(question)?.query_row([id.as_str()], read).optional()
}

fn facts_of(row: &Row<'_>, places: usize, head: usize) -> Result<JobFacts, String> {
    let head = of_json::<JobHead>(row, head).map_err(|error| format!("its head: {error}"))?;
    let places = text(row, places).and_then(JobPlaces::of_text).ok_or("its locations")?;
    Ok(JobFacts { head, places: Arc::new(places) })
}

/// The document of a job. `Err` says why it cannot be read.
pub(crate) fn document(
    connection: &Connection,
    id: JobId,
) -> rusqlite::Result<Option<Result<JobDocument, String>>> {
    match read_document(connection, id.as_str()) {
        Ok(found) => Ok(found.map(Ok)),
        Err(error) if is_fault_of_row(&error) => Ok(Some(Err(format!("its document: {error}")))),
        Err(error) => Err(error),
    }
}

fn read_document(connection: &Connection, id: &str) -> rusqlite::Result<Option<JobDocument>> {
    let question = "SELECT spec, reach FROM documents WHERE job = ?1";
    let read = |row: &Row<'_>| Ok(JobDocument { spec: of_json(row, 0)?, reach: of_json(row, 1)? });
    connection.prepare_cached(question)?.query_row([id], read).optional()
}

/// Gives each job that is not in a final state to `take`, oldest first: its row, or why that cannot be read.
/// Documents are not read.
pub(crate) fn unfinished(
    connection: &Connection,
    mut take: impl FnMut(JobId, Result<JobRow, String>),
) -> rusqlite::Result<()> {
    let question = format!(
        "SELECT {COLUMNS}, places IS NULL OR head IS NULL FROM jobs
         WHERE state IN ('queued', 'waiting', 'running', 'pausing', 'paused', 'retrying') ORDER BY id"
    );
    let mut statement = connection.prepare(&question)?;
    let mut rows = statement.query([])?;
    while let Some(next) = rows.next()? {
        let Some(id) = id_of(next) else { continue };
        let has_no_facts = next.get::<_, bool>(PLACES).unwrap_or(true);
        match row(next) {
            Ok(_) if has_no_facts => take(id, Err("its document".into())),
            read => take(id, read.map_err(|error| error.to_string())),
        }
    }
    Ok(())
}

/// Which jobs to list; an empty field allows all.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobFilter {
    pub(crate) states: Vec<JobState>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) peer: Option<String>,
    pub(crate) owner: Option<String>,
    /// A part of what people see of a job: a source, the destination, the peer, the id, a label.
    pub(crate) text: Option<String>,
    /// Jobs that have changed at or after this time.
    pub(crate) since_ms: Option<i64>,
    /// This moment. A job that is over and has changed later than now did so by a clock that was ahead; then the node
    /// time of its end says when.
    pub(crate) now: Option<NodeMoment>,
    /// Jobs that were accepted before this one.
    pub(crate) before: Option<JobId>,
    /// How many of the first jobs to skip.
    pub(crate) offset: usize,
}

impl JobFilter {
    fn since_node_ms(&self) -> Option<i64> {
        Some(self.now?.node_ms_of(self.since_ms?))
    }
}

const CONDITIONS: &str = "(:before IS NULL OR id < :before)
           AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
           AND (:peer IS NULL OR peer = :peer)
           AND (:owner IS NULL OR owner = :owner)
           AND (:since IS NULL OR changed_ms >= :since
             AND (:now IS NULL OR changed_ms <= :now OR node_ms IS NULL OR node_ms >= :since_node))
           AND (:text IS NULL
             OR instr(lower(id || ' ' || coalesce(peer, '')), lower(:text)) > 0
             OR CASE WHEN json_valid(head) THEN instr(lower(coalesce(head ->> '$.destination', '')), lower(:text)) > 0
                  OR EXISTS (SELECT 1 FROM json_each(head, '$.sources') AS source
                    WHERE instr(lower(source.value), lower(:text)) > 0)
                ELSE 0 END
             OR EXISTS (SELECT 1 FROM labels WHERE labels.job = jobs.id
               AND instr(lower(labels.name || '=' || labels.value), lower(:text)) > 0))
           AND (:labels = '[]' OR NOT EXISTS (
             SELECT 1 FROM json_each(:labels) AS asked WHERE NOT EXISTS (
               SELECT 1 FROM labels WHERE labels.job = jobs.id
                 AND labels.name = asked.value ->> 0 AND labels.value = asked.value ->> 1)))";

/// States and labels as JSON lists, for the conditions.
fn lists(wanted: &JobFilter) -> rusqlite::Result<(String, String)> {
    let states: Vec<&str> = wanted.states.iter().map(|state| state.name()).collect();
    let labels: Vec<[&str; 2]> =
        wanted.labels.iter().map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    Ok((json(&states)?, json(&labels)?))
}

/// A job of a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedJob {
    pub(crate) row: JobRow,
    pub(crate) facts: JobFacts,
}

/// The part of a row by which it is decided whether a caller sees the job.
#[derive(Debug)]
pub(crate) struct JobKey<'a> {
    pub(crate) id: JobId,
    pub(crate) state: JobState,
    /// `None` if they cannot be read.
    pub(crate) places: Option<&'a str>,
}

/// A page of a list.
#[derive(Debug, Default)]
pub(crate) struct JobPage {
    pub(crate) jobs: Vec<ListedJob>,
    /// The last job that was looked at, if there may be more after it.
    pub(crate) last: Option<JobId>,
}

/// About the most bytes of names on one page of a list.
pub(crate) const PAGE_BYTES_MAX: usize = 4 << 20;

/// Gives the key of each matching job to `note`, newest first, of at most `looks` jobs. Yields true if there are
/// more.
pub(crate) fn keys(
    connection: &Connection,
    wanted: &JobFilter,
    looks: usize,
    mut note: impl FnMut(&JobKey<'_>),
) -> rusqlite::Result<bool> {
    let (states, labels) = lists(wanted)?;
    let question = format!("SELECT id, state, places FROM jobs WHERE {CONDITIONS} ORDER BY id DESC");
    let mut statement = connection.prepare_cached(&question)?;
    let mut rows = statement.query(named_params! {
        ":before": wanted.before.as_ref().map(JobId::as_str), ":states": states, ":labels": labels,
        ":peer": wanted.peer, ":owner": wanted.owner, ":since": wanted.since_ms,
            ":now": wanted.now.map(|now| now.wall_ms), ":since_node": wanted.since_node_ms(), ":text": wanted.text,
    })?;
    for _ in 0..looks {
        let Some(next) = rows.next()? else { return Ok(false) };
        let Some(id) = id_of(next) else { continue };
        note(&JobKey { id, state: state_of(next, 1), places: text(next, 2) });
    }
    Ok(rows.next()?.is_some())
}

/// At most `count` matching jobs that `is_seen` lets through, newest first. At most `looks` jobs are looked at
/// for that. A job that is not let through costs no more than its key.
pub(crate) fn list(
    connection: &Connection,
    wanted: &JobFilter,
    (count, looks): (usize, usize),
    mut is_seen: impl FnMut(&JobKey<'_>) -> bool,
) -> rusqlite::Result<JobPage> {
    let (states, labels) = lists(wanted)?;
    let question = format!(
        "SELECT {COLUMNS}, places, head FROM jobs WHERE {CONDITIONS} ORDER BY id DESC LIMIT -1 OFFSET :offset"
    );
    let mut statement = connection.prepare_cached(&question)?;
    let mut rows = statement.query(named_params! {
        ":before": wanted.before.as_ref().map(JobId::as_str), ":states": states, ":labels": labels,
        ":peer": wanted.peer, ":owner": wanted.owner, ":since": wanted.since_ms,
            ":now": wanted.now.map(|now| now.wall_ms), ":since_node": wanted.since_node_ms(), ":text": wanted.text,
        ":offset": i64::try_from(wanted.offset).unwrap_or(i64::MAX),
    })?;
    let (mut page, mut looked, mut bytes) = (JobPage::default(), 0, 0);
    while let Some(next) = rows.next()? {
        let Some(id) = id_of(next) else { continue };
        looked += 1;
        if is_seen(&JobKey { id, state: state_of(next, 2), places: text(next, PLACES) }) {
            let row = readable(next, id)?;
            // A job that was set aside may have none.
            let facts = facts_of(next, PLACES, HEAD).unwrap_or_else(|_| JobFacts::unknown());
            bytes += facts.head.shown_bytes();
            page.jobs.push(ListedJob { row, facts });
        }
        if page.jobs.len() >= count || bytes >= PAGE_BYTES_MAX || looked >= looks {
            page.last = Some(id);
            break;
        }
    }
    Ok(page)
}

/// How many jobs match, by state, whatever states were asked for.
pub(crate) fn counts_of(
    connection: &Connection,
    wanted: &JobFilter,
) -> rusqlite::Result<Vec<(JobState, u64)>> {
    let (_, labels) = lists(wanted)?;
    let question = format!("SELECT state, count(*) FROM jobs WHERE {CONDITIONS} GROUP BY state");
    let mut statement = connection.prepare_cached(&question)?;
    let counts = statement.query_map(
        named_params! {
            ":before": None::<&str>, ":states": "[]", ":labels": labels, ":peer": wanted.peer,
            ":owner": wanted.owner, ":since": wanted.since_ms,
            ":now": wanted.now.map(|now| now.wall_ms), ":since_node": wanted.since_node_ms(), ":text": wanted.text,
        },
        |row| Ok((state_of(row, 0), u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))),
    )?;
    counts.collect()
}

/// How many jobs there are, by state.
pub(crate) fn counts(connection: &Connection) -> rusqlite::Result<Vec<(JobState, u64)>> {
    let mut statement = connection.prepare_cached("SELECT state, count(*) FROM jobs GROUP BY state")?;
    let counts = statement
        .query_map([], |row| Ok((state_of(row, 0), u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))))?;
    counts.collect()
}

/// The size in the store of a job that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedSize {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) runs: u32,
    /// The bytes of its document and of its log.
    pub(crate) bytes: u64,
}

/// The sizes of jobs that are over, the one that ended last first.
pub(crate) fn ended_sizes(connection: &Connection) -> rusqlite::Result<Vec<EndedSize>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, owner, run, kept_bytes + coalesce((
             SELECT sum(octet_length(text) + octet_length(event)) FROM log WHERE log.job = jobs.id), 0)
         FROM jobs WHERE state IN ('done', 'partly_failed', 'failed', 'cancelled') ORDER BY node_ms DESC, id DESC",
    )?;
    let sizes = statement.query_map([], |row| {
        let bytes = u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0).saturating_add(ROW_BYTES);
        Ok(EndedSize { id: row.get(0)?, owner: row.get(1)?, runs: row.get(2)?, bytes })
    })?;
    sizes.collect()
}

/// Roughly the bytes that a row takes besides its document.
const ROW_BYTES: u64 = 512;

/// Deletes these jobs, if they are still over.
pub(crate) fn remove(transaction: &Transaction<'_>, ids: &[String]) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "DELETE FROM jobs WHERE id = ?1 AND state IN ('done', 'partly_failed', 'failed', 'cancelled')",
    )?;
    ids.iter().try_for_each(|id| statement.execute([id]).map(drop))
}

/// Deletes at most `count` jobs that ended before this node time. Yields them, each with the number of its runs.
pub(crate) fn forget(
    transaction: &Transaction<'_>,
    node_ms: i64,
    count: usize,
) -> rusqlite::Result<Vec<(String, u32)>> {
    let mut statement = transaction.prepare_cached(
        "DELETE FROM jobs WHERE id IN (
           SELECT id FROM jobs WHERE state IN ('done', 'partly_failed', 'failed', 'cancelled', 'stopped') AND node_ms < ?1
           ORDER BY node_ms LIMIT ?2)
         RETURNING id, run",
    )?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let gone = statement.query_map(params![node_ms, count], |row| Ok((row.get(0)?, row.get(1)?)))?;
    gone.collect()
}

/// For the check of the store.
pub(super) const ALL: &str = "SELECT id, owner, state, priority, position, peer, steering, figures, submitted_ms, due_ms, finish_by_ms,
    run, attempt, began_ms, ended_ms, error, changed_ms, kept_bytes, places, head FROM jobs";
pub(super) const ALL_DOCUMENTS: &str = "SELECT job, spec, reach FROM documents";

pub(super) fn try_row(found: &Row<'_>) -> rusqlite::Result<()> {
    row(found)?;
    facts_of(found, PLACES, HEAD).map(drop).map_err(|why| unfit(HEAD, UnreadablePart(why)))
}

pub(super) fn try_document(found: &Row<'_>) -> rusqlite::Result<()> {
    of_json::<JobSpec>(found, 1)?;
    of_json::<CallerReach>(found, 2).map(drop)
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UnreadablePart(String);

/// The row, also of a job that cannot be read.
fn readable(found: &Row<'_>, id: JobId) -> rusqlite::Result<JobRow> {
    row(found).or_else(|error| match is_fault_of_row(&error) {
        true => Ok(JobRow::unreadable(id, text(found, 1).unwrap_or_default().into(), &error.to_string())),
        false => Err(error),
    })
}

/// True if the content of the row is at fault, and not the file or the disk.
pub(super) fn is_fault_of_row(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

/// The id of a row. A row without one is no job: the check of the store lists it.
fn id_of(row: &Row<'_>) -> Option<JobId> {
    text(row, 0)?.parse().ok()
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Option<&'a str> {
    row.get_ref(column).ok()?.as_str().ok()
}

fn row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let id: String = row.get(0)?;
    Ok(JobRow {
        id: id.parse().map_err(|error| unfit(0, error))?,
        owner: row.get(1)?,
        state: state(row, 2)?,
        priority: row.get(3)?,
        position: row.get(4)?,
        peer: row.get(5)?,
        steering: of_json(row, 6)?,
        figures: of_json(row, 7)?,
        submitted_ms: row.get(8)?,
        due_ms: row.get(9)?,
        finish_by_ms: row.get(10)?,
        run: row.get(11)?,
        attempt: row.get(12)?,
        began_ms: row.get(13)?,
        ended_ms: row.get(14)?,
        error: optional(row, 15)?,
        changed_ms: row.get(16)?,
        kept_bytes: u64::try_from(row.get::<_, i64>(17)?).unwrap_or(0),
    })
}

fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<JobState> {
    let name = row.get_ref(column)?.as_str()?;
    JobState::of_name(name).ok_or_else(|| unfit(column, FromSqlError::InvalidType))
}

/// The state, or that of a job that cannot be read.
fn state_of(row: &Row<'_>, column: usize) -> JobState {
    state(row, column).unwrap_or(JobState::Failed)
}

/// A value as it is stored in a column.
pub(super) fn json<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Reads a column of JSON.
pub(super) fn of_json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| unfit(column, error))
}

/// As [`of_json`], for a column that may be empty.
pub(super) fn optional<T: serde::de::DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => of_json(row, column).map(Some),
    }
}

fn unfit(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
