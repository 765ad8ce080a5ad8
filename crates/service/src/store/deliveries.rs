//! The table of deliveries: messages about the ends of runs for programs and webhooks, and their outcomes.
//!
//! Always true: each id is in the table once, however often the end of its run is written.

#[cfg(test)]
use rusqlite::OptionalExtension as _;
use rusqlite::{Connection, Row, Transaction, params};

/// A message to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryRow {
    /// Made of job, run, event and target. The receiver sees it, too.
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) run: u32,
    pub(crate) kind: DeliveryKind,
    /// The target, as JSON.
    pub(crate) target: String,
    /// The message, as JSON.
    pub(crate) body: String,
    /// How many attempts have been made.
    pub(crate) attempt: u32,
    pub(crate) due_ms: i64,
}

/// The kind of a delivery: what delivers the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryKind {
    Program,
    Webhook,
}

impl DeliveryKind {
    fn name(self) -> &'static str {
        match self {
            DeliveryKind::Program => "program",
            DeliveryKind::Webhook => "webhook",
        }
    }
}

/// The most messages to the webhooks that one owner's jobs name that wait; further ones are not kept.
pub(crate) const WAITING_EACH_MAX: i64 = 10_000;

/// True if one more message of this owner's jobs may wait.
pub(crate) fn has_room(connection: &Connection, owner: &str, each_max: i64) -> rusqlite::Result<bool> {
    let question = "SELECT 1 FROM deliveries JOIN jobs ON jobs.id = deliveries.job
         WHERE deliveries.kind = 'webhook' AND deliveries.ended_ms IS NULL AND jobs.owner = ?1 LIMIT 1 OFFSET ?2";
    connection.prepare_cached(question)?.exists(params![owner, each_max - 1]).map(|is_full| !is_full)
}

/// Adds a delivery; one that is already there stays as it is.
pub(crate) fn insert(transaction: &Transaction<'_>, one: &DeliveryRow) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO deliveries (id, job, run, kind, target, body, attempt, due_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            one.id,
            one.job,
            one.run,
            one.kind.name(),
            one.target,
            one.body,
            one.attempt,
            one.due_ms
        ])?;
    Ok(())
}

const COLUMNS: &str = "id, job, run, target, body, attempt, due_ms";

/// At most `count` webhooks that are due and that `choose` takes by id and target, longest due first. One that is
/// due later than `ahead_ms` from now got its time before the clock was set back, and counts as due, too.
pub(crate) fn due_webhooks(
    connection: &Connection,
    now_ms: i64,
    ahead_ms: i64,
    count: usize,
    mut choose: impl FnMut(&str, &str) -> bool,
) -> rusqlite::Result<Vec<DeliveryRow>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM deliveries
         WHERE kind = 'webhook' AND ended_ms IS NULL AND (due_ms <= ?1 OR due_ms > ?2)
         ORDER BY due_ms, seq"
    ))?;
    let mut rows = statement.query(params![now_ms, now_ms.saturating_add(ahead_ms)])?;
    let mut found = Vec::new();
    while found.len() < count
        && let Some(row) = rows.next()?
    {
        if choose(&row.get::<_, String>("id")?, &row.get::<_, String>("target")?) {
            found.push(of(row, DeliveryKind::Webhook)?);
        }
    }
    Ok(found)
}

/// When the next webhook is due.
pub(crate) fn next_webhook(connection: &Connection, now_ms: i64) -> rusqlite::Result<Option<i64>> {
    let question =
        "SELECT min(due_ms) FROM deliveries WHERE kind = 'webhook' AND ended_ms IS NULL AND due_ms > ?1";
    connection.prepare_cached(question)?.query_row([now_ms], |row| row.get(0))
}

/// At most `count` programs to run: for each job the one that was added first, once all files of its run were
/// delivered, unless it hears of a deadline while the run goes on.
pub(crate) fn open_programs(connection: &Connection, count: usize) -> rusqlite::Result<Vec<DeliveryRow>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM deliveries WHERE seq IN (
           SELECT min(seq) FROM deliveries WHERE kind = 'program' AND ended_ms IS NULL GROUP BY job)
           AND (instr(id, '.late.') > 0 OR NOT EXISTS (
             SELECT 1 FROM feeds
             WHERE feeds.job = deliveries.job AND feeds.run = deliveries.run AND json_valid(feeds.hook)))
         ORDER BY seq LIMIT ?1"
    ))?;
    let rows = statement
        .query_map([i64::try_from(count).unwrap_or(i64::MAX)], |row| of(row, DeliveryKind::Program))?;
    rows.collect()
}

/// Notes that an attempt failed and when the next one is due.
pub(crate) fn again(transaction: &Transaction<'_>, id: &str, due_ms: i64, why: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE deliveries SET attempt = attempt + 1, due_ms = ?2, outcome = ?3
             WHERE id = ?1 AND ended_ms IS NULL",
        )?
        .execute(params![id, due_ms, why])?;
    Ok(())
}

/// Notes that a delivery is over at this node time, with its outcome. Its message is not needed any more.
pub(crate) fn end(
    transaction: &Transaction<'_>,
    id: &str,
    node_ms: i64,
    outcome: &str,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE deliveries SET attempt = attempt + 1, ended_ms = ?2, outcome = ?3, body = ''
             WHERE id = ?1 AND ended_ms IS NULL",
        )?
        .execute(params![id, node_ms, outcome])?;
    Ok(())
}

/// The outcome of a delivery, if it is over.
#[cfg(test)]
pub(crate) fn outcome(connection: &Connection, id: &str) -> rusqlite::Result<Option<String>> {
    let question = "SELECT outcome FROM deliveries WHERE id = ?1 AND ended_ms IS NOT NULL";
    connection.prepare_cached(question)?.query_row([id], |row| row.get(0)).optional()
}

/// Deletes at most `count` deliveries that were over before this node time.
pub(crate) fn forget(transaction: &Transaction<'_>, node_ms: i64, count: usize) -> rusqlite::Result<usize> {
    transaction.execute(
        "DELETE FROM deliveries WHERE seq IN (
           SELECT seq FROM deliveries WHERE ended_ms IS NOT NULL AND ended_ms < ?1 ORDER BY ended_ms LIMIT ?2)",
        params![node_ms, i64::try_from(count).unwrap_or(i64::MAX)],
    )
}

fn of(row: &Row<'_>, kind: DeliveryKind) -> rusqlite::Result<DeliveryRow> {
    Ok(DeliveryRow {
        id: row.get(0)?,
        job: row.get(1)?,
        run: row.get(2)?,
        kind,
        target: row.get(3)?,
        body: row.get(4)?,
        attempt: row.get(5)?,
        due_ms: row.get(6)?,
    })
}
