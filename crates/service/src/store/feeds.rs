//! The table of feeds: how far hooks have got the files of a run.
//!
//! Always true: the end of a batch is stored before the batch is delivered, so that the same batch is
//! delivered if that has to be repeated.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::jobs::{json, of_json};
use super::rows::readable;
use crate::hooks::Hook;

/// The feed of one hook for one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FeedRow {
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) run: u32,
    pub(crate) hook: Hook,
    /// Raised whenever the manifest is begun anew.
    pub(crate) serial: u64,
    /// How many batches were delivered.
    pub(crate) told: u64,
    /// Up to which offset of the manifest files were delivered.
    pub(crate) from_at: u64,
    /// The offset at which the batch that is being delivered ends.
    pub(crate) to_at: Option<u64>,
    /// True if the run is over, so that the manifest does not grow any more.
    pub(crate) is_over: bool,
}

/// Begins a feed, or begins it anew, as an attempt begins the manifest of the run.
pub(crate) fn begin(
    transaction: &Transaction<'_>,
    (id, job, run): (&str, &str, u32),
    hook: &Hook,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO feeds (id, job, run, hook, serial, told, from_at, to_at, is_over)
             VALUES (?1, ?2, ?3, ?4, 1, 0, 0, NULL, 0)
             ON CONFLICT (id) DO UPDATE SET serial = serial + 1, told = told + (to_at IS NOT NULL),
               from_at = 0, to_at = NULL, is_over = 0",
        )?
        .execute(params![id, job, run, json(hook)?])?;
    Ok(())
}

/// Notes that a run is over.
pub(crate) fn finish(transaction: &Transaction<'_>, job: &str, run: u32) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE feeds SET is_over = 1 WHERE job = ?1 AND run = ?2")?
        .execute(params![job, run])?;
    Ok(())
}

/// At most `count` feeds that can be read.
pub(crate) fn list(connection: &Connection, count: usize) -> rusqlite::Result<Vec<FeedRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, job, run, hook, serial, told, from_at, to_at, is_over FROM feeds WHERE json_valid(hook)
         ORDER BY id LIMIT ?1",
    )?;
    readable("feed", statement.query([i64::try_from(count).unwrap_or(i64::MAX)])?, row)
}

/// For the check of the store.
pub(super) const ALL: &str = "SELECT id, job, run, hook, serial, told, from_at, to_at, is_over FROM feeds";

pub(super) fn try_row(found: &Row<'_>) -> rusqlite::Result<()> {
    row(found).map(drop)
}

/// The serial number of the manifest that a feed reads.
pub(crate) fn serial(connection: &Connection, id: &str) -> rusqlite::Result<Option<u64>> {
    let question = "SELECT serial FROM feeds WHERE id = ?1";
    let serial: Option<i64> =
        connection.prepare_cached(question)?.query_row([id], |row| row.get(0)).optional()?;
    Ok(serial.map(|serial| u64::try_from(serial).unwrap_or(0)))
}

/// Stores where the next batch ends. Yields false if the manifest was begun anew.
pub(crate) fn fix(
    transaction: &Transaction<'_>,
    id: &str,
    serial: u64,
    to_at: u64,
) -> rusqlite::Result<bool> {
    let fix = "UPDATE feeds SET to_at = ?3 WHERE id = ?1 AND serial = ?2 AND to_at IS NULL";
    transaction
        .prepare_cached(fix)?
        .execute(params![id, number(serial), number(to_at)])
        .map(|count| count == 1)
}

/// Notes that the batch was delivered.
pub(crate) fn advance(transaction: &Transaction<'_>, id: &str, serial: u64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE feeds SET from_at = to_at, to_at = NULL, told = told + 1
             WHERE id = ?1 AND serial = ?2 AND to_at IS NOT NULL",
        )?
        .execute(params![id, number(serial)])?;
    Ok(())
}

/// Removes the feed of a run that is over.
pub(crate) fn remove(transaction: &Transaction<'_>, id: &str, serial: u64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM feeds WHERE id = ?1 AND serial = ?2 AND is_over = 1")?
        .execute(params![id, number(serial)])?;
    Ok(())
}

/// SQLite's integers are signed.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn row(row: &Row<'_>) -> rusqlite::Result<FeedRow> {
    let count = |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(FeedRow {
        id: row.get(0)?,
        job: row.get(1)?,
        run: row.get(2)?,
        hook: of_json(row, 3)?,
        serial: count(4)?,
        told: count(5)?,
        from_at: count(6)?,
        to_at: row.get::<_, Option<i64>>(7)?.map(|at| u64::try_from(at).unwrap_or(0)),
        is_over: row.get(8)?,
    })
}
