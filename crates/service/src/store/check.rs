//! Finds all rows of the store that cannot be read.

use rusqlite::{Connection, Row};

use super::rows::fault;
use super::{caps, feeds, jobs, logins, tokens, watches};

type Reading = fn(&Row<'_>) -> rusqlite::Result<()>;

/// A table: its name, a question for all of its rows whose first column names a row, and how a row is read.
const TABLES: &[(&str, &str, Reading)] = &[
    ("job", jobs::ALL, jobs::try_row),
    ("document of job", jobs::ALL_DOCUMENTS, jobs::try_document),
    ("token", tokens::ALL, tokens::try_row),
    ("log-in", logins::ALL, logins::try_row),
    ("cap", caps::ALL, caps::try_row),
    ("watch", watches::ALL, watches::try_row),
    ("file of a watch", watches::ALL_ENTRIES, watches::try_entry),
    ("feed", feeds::ALL, feeds::try_row),
];

/// The most lines of each table.
const LINES_MAX: usize = 100;

/// One line for each row that cannot be read.
pub(super) fn unreadable(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut lines = Vec::new();
    for (table, question, read) in TABLES {
        let mut statement = connection.prepare(question)?;
        let mut rows = statement.query([])?;
        let before = lines.len();
        while let Some(row) = rows.next()?
            && lines.len() - before < LINES_MAX
        {
            if let Err(error) = read(row) {
                lines.push(fault(table, row, &error));
            }
        }
    }
    Ok(lines)
}
