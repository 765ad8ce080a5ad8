//! The table of the jobs' logs.

use farhaul_api::LogLine;
use rusqlite::{Connection, Transaction, params};
use serde_json::value::RawValue;

use farhaul_api::JobId;

/// Adds a line with this number; if there is one already, that one stays.
pub(crate) fn append(
    transaction: &Transaction<'_>,
    job: JobId,
    (seq, at_ms): (u64, i64),
    (level, text, event): (&str, &str, &str),
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO log (job, seq, at_ms, level, text, event)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ?1)",
        )?
        .execute(params![job.as_str(), i64::try_from(seq).unwrap_or(i64::MAX), at_ms, level, text, event])?;
    Ok(())
}

/// Adds a line after the last one, to the log of a job that is not in memory.
pub(crate) fn append_last(
    transaction: &Transaction<'_>,
    job: JobId,
    at_ms: i64,
    (level, text, event): (&str, &str, &str),
    count_max: u64,
) -> rusqlite::Result<()> {
    let seq = last(transaction, job)? + 1;
    if seq > count_max {
        return Ok(());
    }
    append(transaction, job, (seq, at_ms), (level, text, event))
}

/// The number of the last line; 0 if there is none.
pub(crate) fn last(connection: &Connection, job: JobId) -> rusqlite::Result<u64> {
    let question = "SELECT coalesce(max(seq), 0) FROM log WHERE job = ?1";
    let last: i64 = connection.prepare_cached(question)?.query_row([job.as_str()], |row| row.get(0))?;
    Ok(u64::try_from(last).unwrap_or(0))
}

/// At most `count` lines after number `after`.
pub(crate) fn list(
    connection: &Connection,
    job: JobId,
    after: u64,
    count: usize,
) -> rusqlite::Result<Vec<LogLine>> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at_ms, level, text, event FROM log WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let lines = statement.query_map(params![job.as_str(), after, count], |row| {
        let event: String = row.get(4)?;
        Ok(LogLine {
            seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
            at_ms: row.get(1)?,
            level: row.get(2)?,
            text: row.get(3)?,
            event: RawValue::from_string(event).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        })
    })?;
    lines.collect()
}
