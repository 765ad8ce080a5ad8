//! The tables of watched folders and of their files.

use farhaul_words::Error;
use rusqlite::{Connection, Row, Transaction, params};

use super::jobs::{json, of_json};
use super::rows::readable;
use crate::node::WatchSpec;
use crate::watch::{FolderReach, FolderWatch, StoreChange, WatchedFile};
use farhaul_api::CallerReach;

/// A row of the table of watched folders.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WatchRow {
    pub(crate) id: String,
    /// The owner of the watch and of its jobs.
    pub(crate) owner: String,
    pub(crate) spec: WatchSpec,
    /// What its jobs may use, here and at peers: its owner's reach when it was made.
    pub(crate) reach: CallerReach,
    pub(crate) created_ms: i64,
}

impl WatchRow {
    /// The settings of the watched folder, with what its owner may reach.
    pub(crate) fn watch(&self) -> Result<FolderWatch, Error> {
        let reach = (!self.reach.everything).then(|| self.reach.local.clone());
        Ok(FolderWatch { reach: FolderReach(reach), ..self.spec.watch()? })
    }
}

/// Adds a watch.
pub(crate) fn insert(transaction: &Transaction<'_>, watch: &WatchRow) -> rusqlite::Result<()> {
    write(transaction, watch, "").map(|_| ())
}

/// Sets a watch of the configuration; rows of its files stay. Returns false if another owner has the id, and
/// then changes nothing.
pub(crate) fn put(transaction: &Transaction<'_>, watch: &WatchRow) -> rusqlite::Result<bool> {
    let update = "ON CONFLICT (id) DO UPDATE SET spec = excluded.spec, reach = excluded.reach \
                  WHERE owner = excluded.owner";
    Ok(write(transaction, watch, update)? > 0)
}

/// Writes a row, and returns how many rows were written. `conflict` says what to do if the id is there.
fn write(transaction: &Transaction<'_>, watch: &WatchRow, conflict: &str) -> rusqlite::Result<usize> {
    transaction.execute(
        &format!(
            "INSERT INTO watches (id, owner, spec, reach, created_ms) VALUES (?1, ?2, ?3, ?4, ?5) {conflict}"
        ),
        params![watch.id, watch.owner, json(&watch.spec)?, json(&watch.reach)?, watch.created_ms],
    )
}

/// Writes whose watch it is, and what its jobs may use.
pub(crate) fn set_owner(transaction: &Transaction<'_>, watch: &WatchRow) -> rusqlite::Result<()> {
    let update = "UPDATE watches SET owner = ?2, reach = ?3 WHERE id = ?1";
    transaction.execute(update, params![watch.id, watch.owner, json(&watch.reach)?]).map(|_| ())
}

/// Removes a watch, with the rows of its files.
pub(crate) fn remove(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM watches WHERE id = ?1", [id]).map(|_| ())
}

/// All watches that can be read, sorted by id.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<WatchRow>> {
    let mut statement = connection.prepare(ALL)?;
    readable("watch", statement.query([])?, row)
}

fn row(row: &Row<'_>) -> rusqlite::Result<WatchRow> {
    Ok(WatchRow {
        id: row.get(0)?,
        owner: row.get(1)?,
        spec: of_json(row, 2)?,
        reach: of_json(row, 3)?,
        created_ms: row.get(4)?,
    })
}

pub(super) const ALL: &str = "SELECT id, owner, spec, reach, created_ms FROM watches ORDER BY id";

/// For the check of the store.
pub(super) const ALL_ENTRIES: &str = "SELECT watch || '/' || path, entry FROM watch_entries";

pub(super) fn try_row(found: &Row<'_>) -> rusqlite::Result<()> {
    row(found).map(drop)
}

pub(super) fn try_entry(found: &Row<'_>) -> rusqlite::Result<()> {
    of_json::<WatchedFile>(found, 1).map(drop)
}

/// Makes changes to the rows of a watch's files. If the watch was removed, nothing is kept.
pub(crate) fn change(
    transaction: &Transaction<'_>,
    watch: &str,
    changes: &[StoreChange],
) -> rusqlite::Result<()> {
    let mut put = transaction.prepare_cached(
        "INSERT OR REPLACE INTO watch_entries (watch, path, state, entry)
         SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM watches WHERE id = ?1)",
    )?;
    let mut remove =
        transaction.prepare_cached("DELETE FROM watch_entries WHERE watch = ?1 AND path = ?2")?;
    for change in changes {
        match change {
            StoreChange::Put(entry) => {
                put.execute(params![watch, entry.name.to_string(), entry.status.name(), json(entry)?])?
            }
            StoreChange::Remove(name) => remove.execute(params![watch, name.to_string()])?,
        };
    }
    Ok(())
}

/// The rows of all files of a watch that can be read.
pub(crate) fn entries(connection: &Connection, watch: &str) -> rusqlite::Result<Vec<WatchedFile>> {
    let mut statement = connection.prepare("SELECT path, entry FROM watch_entries WHERE watch = ?1")?;
    readable("file of a watch", statement.query([watch])?, entry)
}

/// At most `count` files after this path, sorted by path; if a state is given, only files in that state.
pub(crate) fn list(
    connection: &Connection,
    watch: &str,
    state: Option<&str>,
    after: &str,
    count: usize,
) -> rusqlite::Result<Vec<WatchedFile>> {
    let mut statement = connection.prepare_cached(
        "SELECT path, entry FROM watch_entries WHERE watch = ?1 AND (?2 IS NULL OR state = ?2) AND path > ?3
         ORDER BY path LIMIT ?4",
    )?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    readable("file of a watch", statement.query(params![watch, state, after, count])?, entry)
}

/// How many files there are, by state.
pub(crate) fn counts(connection: &Connection, watch: &str) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut statement = connection.prepare_cached(
        "SELECT state, count(*) FROM watch_entries WHERE watch = ?1 GROUP BY state ORDER BY state",
    )?;
    let counts = statement
        .query_map([watch], |row| Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))))?;
    counts.collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<WatchedFile> {
    of_json(row, 1)
}
