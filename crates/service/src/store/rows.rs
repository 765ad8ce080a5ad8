//! Rows that cannot be read: each is the fault of one row, and nothing else fails.

use rusqlite::{Row, Rows};

use super::jobs::is_fault_of_row;

/// All rows that can be read. One that cannot is logged and left out; its first column names it.
pub(super) fn readable<T>(
    table: &str,
    mut rows: Rows<'_>,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(one) => found.push(one),
            Err(error) if is_fault_of_row(&error) => tracing::error!("{}", fault(table, row, &error)),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// One line about a row that cannot be read.
pub(super) fn fault(table: &str, row: &Row<'_>, error: &rusqlite::Error) -> String {
    let id = row.get_ref(0).map_or_else(|_| "-".into(), |cell| super::text(&cell));
    let why = farhaul_text::printable(error.to_string().as_bytes(), 200);
    format!("{table} {id}: the row cannot be read: {why}")
}
