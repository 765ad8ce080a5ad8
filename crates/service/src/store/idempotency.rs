//! The table of idempotency keys: which job a request with a key has made, for a day of node time.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use farhaul_api::JobId;

/// How long a key is remembered.
pub(crate) const KEPT_MS: i64 = 24 * 3600 * 1000;

/// The most keys that one caller may use within that time.
pub(crate) const EACH_MAX: i64 = 100_000;

/// The request that a key was first used with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EarlierRequest {
    pub(crate) body_hash: Vec<u8>,
    pub(crate) job: JobId,
}

/// The request that the owner has made with this key before.
pub(crate) fn find(
    connection: &Connection,
    owner: &str,
    key: &str,
    node_ms: i64,
) -> rusqlite::Result<Option<EarlierRequest>> {
    let question = "SELECT body_hash, job FROM idempotency WHERE owner = ?1 AND key = ?2 AND at_ms > ?3";
    let mut statement = connection.prepare_cached(question)?;
    let found = statement
        .query_row(params![owner, key, node_ms - KEPT_MS], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    Ok(found.and_then(|(body_hash, job)| Some(EarlierRequest { body_hash, job: job.parse().ok()? })))
}

/// True if the owner may use one more key.
pub(crate) fn has_room(connection: &Connection, owner: &str, each_max: i64) -> rusqlite::Result<bool> {
    let question = "SELECT 1 FROM idempotency WHERE owner = ?1 LIMIT 1 OFFSET ?2";
    connection.prepare_cached(question)?.exists(params![owner, each_max - 1]).map(|is_full| !is_full)
}

/// Remembers a key, and deletes keys that are too old.
pub(crate) fn insert(
    transaction: &Transaction<'_>,
    (owner, key): (&str, &str),
    earlier: &EarlierRequest,
    node_ms: i64,
) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM idempotency WHERE at_ms <= ?1", [node_ms - KEPT_MS])?;
    transaction
        .prepare_cached(
            "INSERT INTO idempotency (owner, key, body_hash, job, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![owner, key, earlier.body_hash, earlier.job.as_str(), node_ms])?;
    Ok(())
}
