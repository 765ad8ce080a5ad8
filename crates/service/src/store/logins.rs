//! The table of log-ins with a browser. It has only the hash of a cookie's secret.

use rusqlite::{Connection, Row, ToSql, Transaction, params};

use super::jobs::{json, of_json};
use super::rows::readable;
use farhaul_api::Scope;

/// The most log-ins that one token, or the service's own user, may have at a time. A further one replaces the
/// oldest.
const EACH_MAX: i64 = 32;
/// The most log-ins in all.
const ALL_MAX: i64 = 4096;

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginRow {
    pub(crate) hash: [u8; 32],
    /// The id of the token that made it; `None` for the service's own user.
    pub(crate) token: Option<String>,
    /// The scopes of the log-in; if a token made it, the token's scopes hold instead.
    pub(crate) scopes: Vec<Scope>,
    pub(crate) created_ms: i64,
    pub(crate) expires_ms: i64,
    /// The node time at which it expires, too; `None` if an earlier version made it.
    pub(crate) expires_node_ms: Option<i64>,
}

/// Adds a log-in. Deletes expired ones, and the oldest if there are too many; yields the hashes of those.
pub(crate) fn insert(transaction: &Transaction<'_>, login: &LoginRow) -> rusqlite::Result<Vec<[u8; 32]>> {
    let mut gone = Vec::new();
    let mut delete = |which: &str, parameters: &[&dyn ToSql]| -> rusqlite::Result<()> {
        let mut statement =
            transaction.prepare(&format!("DELETE FROM logins WHERE {which} RETURNING hash"))?;
        for hash in statement.query_map(parameters, |row| row.get(0))? {
            gone.push(hash?);
        }
        Ok(())
    };
    delete("expires_ms <= ?1", &[&login.created_ms])?;
    delete(
        "hash IN (SELECT hash FROM logins WHERE token IS ?1 ORDER BY created_ms DESC, hash LIMIT -1 OFFSET ?2)",
        &[&login.token, &(EACH_MAX - 1)],
    )?;
    delete(
        "hash IN (SELECT hash FROM logins ORDER BY created_ms DESC, hash LIMIT -1 OFFSET ?1)",
        &[&(ALL_MAX - 1)],
    )?;
    transaction.execute(
        "INSERT INTO logins (hash, token, scopes, created_ms, expires_ms, expires_node_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            login.hash,
            login.token,
            json(&login.scopes)?,
            login.created_ms,
            login.expires_ms,
            login.expires_node_ms
        ],
    )?;
    Ok(gone)
}

/// All log-ins, even those that have expired.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<LoginRow>> {
    readable("log-in", connection.prepare_cached(ALL)?.query([])?, row)
}

fn row(row: &Row<'_>) -> rusqlite::Result<LoginRow> {
    Ok(LoginRow {
        hash: row.get(0)?,
        token: row.get(1)?,
        scopes: of_json(row, 2)?,
        created_ms: row.get(3)?,
        expires_ms: row.get(4)?,
        expires_node_ms: row.get(5)?,
    })
}

/// For the check of the store.
pub(super) const ALL: &str =
    "SELECT hash, token, scopes, created_ms, expires_ms, expires_node_ms FROM logins";

pub(super) fn try_row(found: &Row<'_>) -> rusqlite::Result<()> {
    row(found).map(drop)
}

/// Deletes a log-in. Yields whether there was one.
pub(crate) fn remove(transaction: &Transaction<'_>, hash: &[u8; 32]) -> rusqlite::Result<bool> {
    transaction.execute("DELETE FROM logins WHERE hash = ?1", [hash]).map(|count| count > 0)
}
