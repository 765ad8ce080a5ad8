//! The table of the clocks: one row, with what they showed a short time ago.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::clock::ClockMark;

/// The last mark.
pub(crate) fn mark(connection: &Connection) -> rusqlite::Result<Option<ClockMark>> {
    let question = "SELECT boot, boot_ms, wall_ms, node_ms, jumped_ms FROM clock";
    connection
        .query_row(question, [], |row| {
            Ok(ClockMark {
                boot: row.get(0)?,
                boot_ms: row.get(1)?,
                wall_ms: row.get(2)?,
                node_ms: row.get(3)?,
                jumped_ms: row.get(4)?,
            })
        })
        .optional()
}

/// Writes the mark.
pub(crate) fn set_mark(transaction: &Transaction<'_>, mark: &ClockMark) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO clock (only, boot, boot_ms, wall_ms, node_ms, jumped_ms)
             VALUES (1, ?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![mark.boot, mark.boot_ms, mark.wall_ms, mark.node_ms, mark.jumped_ms])?;
    Ok(())
}

/// The latest time that anything in the store has; `None` if there is nothing.
pub(crate) fn newest_ms(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let question = "SELECT max(at) FROM (
         SELECT max(changed_ms) AS at FROM jobs UNION ALL SELECT max(ended_ms) FROM history
         UNION ALL SELECT max(at_ms) FROM idempotency)";
    connection.query_row(question, [], |row| row.get(0))
}
