//! The table of tokens. It has only the hash of a token.

use rusqlite::{Connection, Row, Transaction, params};

use super::jobs::{json, of_json};
use super::rows::readable;
use farhaul_api::{CallerReach, Scope};

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenRow {
    pub(crate) id: String,
    pub(crate) hash: [u8; 32],
    /// The name that its maker gave it.
    pub(crate) name: String,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) reach: CallerReach,
    /// True if an earlier version made it without naming a reach, which was everything there.
    pub(crate) is_whole_by_default: bool,
    pub(crate) created_by: String,
    pub(crate) created_ms: i64,
    pub(crate) expires_ms: Option<i64>,
    /// The node time at which it expires, too, so that a clock that is set back makes no token last longer.
    pub(crate) expires_node_ms: Option<i64>,
    pub(crate) revoked_ms: Option<i64>,
}

/// Adds a token.
pub(crate) fn insert(transaction: &Transaction<'_>, token: &TokenRow) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO tokens (id, hash, name, scopes, reach, created_by, created_ms, expires_ms, revoked_ms,
            is_whole_by_default, expires_node_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        params![
            token.id,
            token.hash,
            token.name,
            json(&token.scopes)?,
            json(&token.reach)?,
            token.created_by,
            token.created_ms,
            token.expires_ms,
            token.revoked_ms,
            token.is_whole_by_default,
            token.expires_node_ms
        ],
    )?;
    Ok(())
}

/// Deletes a token.
pub(crate) fn remove(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM tokens WHERE id = ?1", [id]).map(drop)
}

/// Revokes a token. Yields whether there was one.
pub(crate) fn revoke(transaction: &Transaction<'_>, id: &str, now_ms: i64) -> rusqlite::Result<bool> {
    let revoke = "UPDATE tokens SET revoked_ms = coalesce(revoked_ms, ?2) WHERE id = ?1";
    transaction.execute(revoke, params![id, now_ms]).map(|count| count > 0)
}

const COLUMNS: &str = "id, hash, name, scopes, reach, created_by, created_ms, expires_ms, revoked_ms, \
                       is_whole_by_default, expires_node_ms";

/// The token with this id, even if it has expired or was revoked.
pub(crate) fn get(connection: &Connection, id: &str) -> rusqlite::Result<Option<TokenRow>> {
    let question = format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1");
    Ok(readable("token", connection.prepare_cached(&question)?.query([id])?, row)?.pop())
}

/// At most `count` tokens, sorted by id, after this id.
pub(crate) fn list(connection: &Connection, after: &str, count: usize) -> rusqlite::Result<Vec<TokenRow>> {
    let question = format!("SELECT {COLUMNS} FROM tokens WHERE id > ?1 ORDER BY id LIMIT ?2");
    let mut statement = connection.prepare_cached(&question)?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    readable("token", statement.query(params![after, count])?, row)
}

/// For the check of the store.
pub(super) const ALL: &str =
    "SELECT id, hash, name, scopes, reach, created_by, created_ms, expires_ms, revoked_ms, is_whole_by_default,
            expires_node_ms
     FROM tokens";

pub(super) fn try_row(found: &Row<'_>) -> rusqlite::Result<()> {
    row(found).map(drop)
}

/// At most `count` tokens that are valid now and reach everything although nobody has said so.
pub(crate) fn whole_by_default(
    connection: &Connection,
    now_ms: i64,
    count: usize,
) -> rusqlite::Result<Vec<TokenRow>> {
    let question = format!(
        "SELECT {COLUMNS} FROM tokens WHERE is_whole_by_default AND revoked_ms IS NULL
           AND (expires_ms IS NULL OR expires_ms > ?1) ORDER BY id LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&question)?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    readable("token", statement.query(params![now_ms, count])?, row)
}

fn row(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        id: row.get(0)?,
        hash: row.get(1)?,
        name: row.get(2)?,
        scopes: of_json(row, 3)?,
        reach: of_json(row, 4)?,
        created_by: row.get(5)?,
        created_ms: row.get(6)?,
        expires_ms: row.get(7)?,
        revoked_ms: row.get(8)?,
        is_whole_by_default: row.get(9)?,
        expires_node_ms: row.get(10)?,
    })
}
