//! The tables of jobs and their labels.

use farhaul::Report;
use rusqlite::types::{FromSqlError, Type};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, named_params, params};
use serde::{Deserialize, Serialize};

use crate::job::{JobFailure, JobId, JobSpec, JobState};
use farhaul_session::options::{Policy, RateOptions};

/// A row of the table `jobs`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobRow {
    pub(crate) id: JobId,
    /// The caller that submitted it.
    pub(crate) owner: String,
    pub(crate) spec: JobSpec,
    pub(crate) state: JobState,
    pub(crate) priority: u8,
    /// The position among jobs of the same priority.
    pub(crate) position: i64,
    /// The other host, which the job is counted with; `None` for a copy within this host.
    pub(crate) peer: Option<String>,
    /// The directories of this host that the job may use; `None` for all.
    pub(crate) confined: Option<Vec<String>>,
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
    pub(crate) error: Option<JobFailure>,
    pub(crate) changed_ms: i64,
}

/// Changes to a job since it was submitted, as far as they matter to its transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobSteering {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<Policy>,
    /// `Some(None)`: the job's own limit was removed.
    #[serde(skip_serializing_if = "Option::is_none", with = "double_option")]
    pub(crate) rate_bps: Option<Option<u64>>,
}

/// Sums over the attempts of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunFigures {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) peak_bps: f64,
}

impl RunFigures {
    /// Adds the figures of an attempt that has ended. The report of a dry run says what would arrive.
    pub(crate) fn add(&mut self, report: &Report, peak_bps: f64) {
        if !report.dry_run {
            self.files += report.files;
            self.bytes += report.session.bytes;
        }
        self.wire_bytes += report.session.wire_bytes_sent;
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
    pub(crate) fn rate_options(&self) -> RateOptions {
        let asked = self.spec.options.network.rate_options();
        RateOptions {
            policy: self.steering.policy.unwrap_or(asked.policy),
            rate_bps: self.steering.rate_bps.unwrap_or(asked.rate_bps),
            rate_min_bps: asked.rate_min_bps,
        }
    }
}

/// Adds an accepted job.
pub(crate) fn insert(transaction: &Transaction<'_>, job: &JobRow) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO jobs (id, owner, kind, spec, state, priority, position, peer, confined, steering,
                figures, submitted_ms, due_ms, finish_by_ms, run, attempt, began_ms, ended_ms, error, changed_ms)
             VALUES (:id, :owner, :kind, :spec, :state, :priority, :position, :peer, :confined, :steering,
                :figures, :submitted_ms, :due_ms, :finish_by_ms, :run, :attempt, :began_ms, :ended_ms, :error, :changed_ms)",
        )?
        .execute(named_params! {
            ":id": job.id.as_str(), ":owner": job.owner, ":kind": job.spec.kind.name(), ":spec": json(&job.spec)?,
            ":state": job.state.name(), ":priority": job.priority, ":position": job.position, ":peer": job.peer,
            ":confined": job.confined.as_ref().map(json).transpose()?, ":steering": json(&job.steering)?,
            ":figures": json(&job.figures)?, ":submitted_ms": job.submitted_ms, ":due_ms": job.due_ms,
            ":finish_by_ms": job.finish_by_ms, ":run": job.run, ":attempt": job.attempt,
            ":began_ms": job.began_ms, ":ended_ms": job.ended_ms,
            ":error": job.error.as_ref().map(json).transpose()?, ":changed_ms": job.changed_ms,
        })?;
    let mut label =
        transaction.prepare_cached("INSERT INTO labels (job, name, value) VALUES (?1, ?2, ?3)")?;
    for (name, value) in &job.spec.labels.0 {
        label.execute(params![job.id.as_str(), name, value])?;
    }
    Ok(())
}

/// Writes the fields that can change. Does nothing if the job was deleted.
pub(crate) fn update(transaction: &Transaction<'_>, job: &JobRow) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE jobs SET state = :state, priority = :priority, position = :position, steering = :steering,
                figures = :figures,
                due_ms = :due_ms, finish_by_ms = :finish_by_ms, run = :run, attempt = :attempt,
                began_ms = :began_ms, ended_ms = :ended_ms, error = :error, changed_ms = :changed_ms
             WHERE id = :id",
        )?
        .execute(named_params! {
            ":id": job.id.as_str(), ":state": job.state.name(), ":priority": job.priority,
            ":position": job.position, ":steering": json(&job.steering)?, ":figures": json(&job.figures)?,
            ":due_ms": job.due_ms,
            ":finish_by_ms": job.finish_by_ms, ":run": job.run, ":attempt": job.attempt,
            ":began_ms": job.began_ms, ":ended_ms": job.ended_ms,
            ":error": job.error.as_ref().map(json).transpose()?, ":changed_ms": job.changed_ms,
        })?;
    Ok(())
}

const COLUMNS: &str = "id, owner, spec, state, priority, position, peer, confined, steering, figures, submitted_ms, due_ms, finish_by_ms, run, \
                       attempt, began_ms, ended_ms, error, changed_ms";

/// The job with this id.
pub(crate) fn get(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRow>> {
    let question = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
    connection.prepare_cached(&question)?.query_row([id.as_str()], row).optional()
}

/// All jobs that are not in a final state, oldest first.
pub(crate) fn unfinished(connection: &Connection) -> rusqlite::Result<Vec<JobRow>> {
    let question = format!(
        "SELECT {COLUMNS} FROM jobs WHERE state IN ('queued', 'waiting', 'running', 'paused', 'retrying') ORDER BY id"
    );
    let mut statement = connection.prepare(&question)?;
    let jobs = statement.query_map([], row)?;
    jobs.collect()
}

/// Which jobs to list; an empty field allows all.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobFilter {
    pub(crate) states: Vec<JobState>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) peer: Option<String>,
    pub(crate) owner: Option<String>,
    /// A part of a source, the destination or a label's value.
    pub(crate) text: Option<String>,
    /// Jobs that have changed at or after this time.
    pub(crate) since_ms: Option<i64>,
    /// Jobs that were accepted before this one.
    pub(crate) before: Option<JobId>,
    /// How many of the first jobs to skip.
    pub(crate) offset: usize,
}

const CONDITIONS: &str = "(:before IS NULL OR id < :before)
           AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
           AND (:peer IS NULL OR peer = :peer)
           AND (:owner IS NULL OR owner = :owner)
           AND (:since IS NULL OR changed_ms >= :since)
           AND (:text IS NULL OR instr(lower(spec), lower(:text)) > 0)
           AND NOT EXISTS (
             SELECT 1 FROM json_each(:labels) AS asked WHERE NOT EXISTS (
               SELECT 1 FROM labels WHERE labels.job = jobs.id
                 AND labels.name = asked.value ->> 0 AND labels.value = asked.value ->> 1))";

/// States and labels as JSON lists, for the conditions.
fn lists(wanted: &JobFilter) -> rusqlite::Result<(String, String)> {
    let states: Vec<&str> = wanted.states.iter().map(|state| state.name()).collect();
    let labels: Vec<[&str; 2]> =
        wanted.labels.iter().map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    Ok((json(&states)?, json(&labels)?))
}

/// At most `count` matching jobs that `is_seen` lets through, newest first.
pub(crate) fn list(
    connection: &Connection,
    wanted: &JobFilter,
    count: usize,
    mut is_seen: impl FnMut(&JobRow) -> bool,
) -> rusqlite::Result<Vec<JobRow>> {
    let (states, labels) = lists(wanted)?;
    let question =
        format!("SELECT {COLUMNS} FROM jobs WHERE {CONDITIONS} ORDER BY id DESC LIMIT -1 OFFSET :offset");
    let mut statement = connection.prepare_cached(&question)?;
    let mut rows = statement.query(named_params! {
        ":before": wanted.before.as_ref().map(JobId::as_str), ":states": states, ":labels": labels,
        ":peer": wanted.peer, ":owner": wanted.owner, ":since": wanted.since_ms, ":text": wanted.text,
        ":offset": i64::try_from(wanted.offset).unwrap_or(i64::MAX),
    })?;
    let mut found = Vec::new();
    while found.len() < count
        && let Some(next) = rows.next()?
    {
        let job = row(next)?;
        if is_seen(&job) {
            found.push(job);
        }
    }
    Ok(found)
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
            ":owner": wanted.owner, ":since": wanted.since_ms, ":text": wanted.text,
        },
        |row| Ok((state(row, 0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))),
    )?;
    counts.collect()
}

/// How many jobs there are, by state.
pub(crate) fn counts(connection: &Connection) -> rusqlite::Result<Vec<(JobState, u64)>> {
    let mut statement = connection.prepare_cached("SELECT state, count(*) FROM jobs GROUP BY state")?;
    let counts = statement
        .query_map([], |row| Ok((state(row, 0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))))?;
    counts.collect()
}

/// Deletes at most `count` jobs that ended before `ms`. Yields them, each with the number of its runs.
pub(crate) fn forget(
    transaction: &Transaction<'_>,
    ms: i64,
    count: usize,
) -> rusqlite::Result<Vec<(String, u32)>> {
    let mut statement = transaction.prepare_cached(
        "DELETE FROM jobs WHERE id IN (
           SELECT id FROM jobs WHERE state IN ('done', 'partly_failed', 'failed', 'cancelled') AND ended_ms < ?1
           ORDER BY ended_ms LIMIT ?2)
         RETURNING id, run",
    )?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let gone = statement.query_map(params![ms, count], |row| Ok((row.get(0)?, row.get(1)?)))?;
    gone.collect()
}

fn row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let id: String = row.get(0)?;
    Ok(JobRow {
        id: id.parse().map_err(|error| unfit(0, error))?,
        owner: row.get(1)?,
        spec: of_json(row, 2)?,
        state: state(row, 3)?,
        priority: row.get(4)?,
        position: row.get(5)?,
        peer: row.get(6)?,
        confined: optional(row, 7)?,
        steering: of_json(row, 8)?,
        figures: of_json(row, 9)?,
        submitted_ms: row.get(10)?,
        due_ms: row.get(11)?,
        finish_by_ms: row.get(12)?,
        run: row.get(13)?,
        attempt: row.get(14)?,
        began_ms: row.get(15)?,
        ended_ms: row.get(16)?,
        error: optional(row, 17)?,
        changed_ms: row.get(18)?,
    })
}

fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<JobState> {
    let name = row.get_ref(column)?.as_str()?;
    JobState::of_name(name).ok_or_else(|| FromSqlError::InvalidType.into())
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
