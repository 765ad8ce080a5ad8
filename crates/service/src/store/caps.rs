//! The table `caps`.

use rusqlite::{Connection, Row, Transaction, params};

use super::jobs::{json, of_json};
use super::rows::readable;
use crate::caps::spec::{CapRule, Caps};

/// All caps that can be read, by name.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Caps> {
    let mut statement = connection.prepare("SELECT name, spec FROM caps ORDER BY name")?;
    let caps = readable("cap", statement.query([])?, |row| Ok((row.get(0)?, of_json(row, 1)?)))?;
    Ok(caps.into_iter().collect())
}

/// For the check of the store.
pub(super) const ALL: &str = "SELECT name, spec FROM caps";

pub(super) fn try_row(row: &Row<'_>) -> rusqlite::Result<()> {
    of_json::<CapRule>(row, 1).map(drop)
}

/// Sets the cap of this name.
pub(crate) fn set(
    transaction: &Transaction<'_>,
    name: &str,
    cap: &CapRule,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let set = "INSERT INTO caps (name, spec, changed_ms) VALUES (?1, ?2, ?3)
               ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, changed_ms = excluded.changed_ms";
    transaction.execute(set, params![name, json(cap)?, now_ms]).map(|_| ())
}

/// Removes the cap of this name.
pub(crate) fn remove(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM caps WHERE name = ?1", [name]).map(|_| ())
}
