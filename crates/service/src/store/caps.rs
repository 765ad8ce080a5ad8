//! The table `caps`.

use rusqlite::{Connection, Transaction, params};

use super::jobs::{json, of_json};
use crate::caps::spec::{Cap, Caps};

/// All caps, by name.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Caps> {
    let mut statement = connection.prepare("SELECT name, spec FROM caps ORDER BY name")?;
    let caps = statement.query_map([], |row| Ok((row.get(0)?, of_json(row, 1)?)))?;
    caps.collect()
}

/// Sets the cap of this name.
pub(crate) fn set(transaction: &Transaction<'_>, name: &str, cap: &Cap, now_ms: i64) -> rusqlite::Result<()> {
    let set = "INSERT INTO caps (name, spec, changed_ms) VALUES (?1, ?2, ?3)
               ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, changed_ms = excluded.changed_ms";
    transaction.execute(set, params![name, json(cap)?, now_ms]).map(|_| ())
}

/// Removes the cap of this name.
pub(crate) fn remove(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM caps WHERE name = ?1", [name]).map(|_| ())
}
