//! The table of log-ins with a browser. The cookie's name itself is nowhere, only its hash.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::jobs::{json, of_json};
use super::tokens::{self, TokenRow};
use crate::access::Scope;

/// Log-ins by one token, or by the service's own user, that are good at a time; a further one takes the oldest one's place.
const EACH_MAX: i64 = 32;
/// The same of all together.
const ALL_MAX: i64 = 4096;

/// A log-in as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginRow {
    pub(crate) hash: [u8; 32],
    /// The id of the token that it was made with; none for the service's own user.
    pub(crate) token: Option<String>,
    /// What it allows; with a token, what that allows.
    pub(crate) scopes: Vec<Scope>,
    pub(crate) created_ms: i64,
    pub(crate) expires_ms: i64,
}

/// Adds a log-in. Those that are over go, and the oldest if there are too many.
pub(crate) fn insert(transaction: &Transaction<'_>, login: &LoginRow) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM logins WHERE expires_ms <= ?1", [login.created_ms])?;
    transaction.execute(
        "DELETE FROM logins WHERE hash IN (
           SELECT hash FROM logins WHERE token IS ?1 ORDER BY created_ms DESC, hash LIMIT -1 OFFSET ?2)",
        params![login.token, EACH_MAX - 1],
    )?;
    transaction.execute(
        "DELETE FROM logins WHERE hash IN (
           SELECT hash FROM logins ORDER BY created_ms DESC, hash LIMIT -1 OFFSET ?1)",
        [ALL_MAX - 1],
    )?;
    transaction.execute(
        "INSERT INTO logins (hash, token, scopes, created_ms, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![login.hash, login.token, json(&login.scopes)?, login.created_ms, login.expires_ms],
    )?;
    Ok(())
}

/// The log-in of this hash, and its token, whatever has become of them.
pub(crate) fn find(
    connection: &Connection,
    hash: &[u8; 32],
) -> rusqlite::Result<Option<(LoginRow, Option<TokenRow>)>> {
    let question = "SELECT hash, token, scopes, created_ms, expires_ms FROM logins WHERE hash = ?1";
    let login = connection.prepare_cached(question)?.query_row([hash], |row| {
        Ok(LoginRow {
            hash: row.get(0)?,
            token: row.get(1)?,
            scopes: of_json(row, 2)?,
            created_ms: row.get(3)?,
            expires_ms: row.get(4)?,
        })
    });
    let Some(login) = login.optional()? else { return Ok(None) };
    let token = login.token.as_deref().map(|id| tokens::get(connection, id)).transpose()?;
    Ok(Some((login, token.flatten())))
}

/// There is no such log-in any more. Yields whether there was.
pub(crate) fn remove(transaction: &Transaction<'_>, hash: &[u8; 32]) -> rusqlite::Result<bool> {
    transaction.execute("DELETE FROM logins WHERE hash = ?1", [hash]).map(|count| count > 0)
}
