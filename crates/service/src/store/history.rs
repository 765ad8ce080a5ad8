//! The table of records: runs of jobs that have ended, and sessions that clients opened.

use farhaul_api::HistoryRecord;
use farhaul_api::UsageRow;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, named_params, params};

use super::jobs::PAGE_BYTES_MAX;
use crate::node::NodeMoment;
use farhaul_api::JobId;

/// The documents that are kept with a record, as JSON.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordPapers {
    pub(crate) report: Option<String>,
    pub(crate) curve: Option<String>,
    pub(crate) receipt: Option<String>,
}

/// Adds a record of a run that ended at this node time. If the run has a record already, that one stays, as a run
/// ends once.
pub(crate) fn insert(
    transaction: &Transaction<'_>,
    record: &HistoryRecord,
    papers: &RecordPapers,
    node_ms: i64,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO history (job, run, owner, direction, source, destination, peer, state, dry_run, began_ms,
                ended_ms, attempts, files, files_failed, bytes, wire_bytes, mean_bps, peak_bps, loss_fraction,
                rtt_ms, verdict, tree_root, error_code, error, report, curve, receipt, node_ms, deleted)
             VALUES (:job, :run, :owner, :direction, :source, :destination, :peer, :state, :dry_run, :began_ms, :ended_ms,
                :attempts, :files, :files_failed, :bytes, :wire_bytes, :mean_bps, :peak_bps, :loss_fraction,
                :rtt_ms, :verdict, :tree_root, :error_code, :error, :report, :curve, :receipt, :node_ms, :deleted)",
        )?
        .execute(named_params! {
            ":job": record.job, ":run": record.run, ":owner": record.owner, ":direction": record.direction,
            ":source": record.source, ":destination": record.destination, ":peer": record.peer,
            ":state": record.state, ":dry_run": record.dry_run, ":began_ms": record.began_ms, ":ended_ms": record.ended_ms,
            ":attempts": record.attempts, ":files": number(record.files),
            ":files_failed": number(record.files_failed), ":bytes": number(record.bytes),
            ":wire_bytes": number(record.wire_bytes), ":mean_bps": record.mean_bps, ":peak_bps": record.peak_bps,
            ":loss_fraction": record.loss_fraction, ":rtt_ms": record.rtt_ms, ":verdict": record.verdict,
            ":tree_root": record.tree_root, ":error_code": record.error_code, ":error": record.error,
            ":report": papers.report, ":curve": papers.curve, ":receipt": papers.receipt, ":node_ms": node_ms,
            ":deleted": number(record.deleted),
        })?;
    Ok(())
}

const COLUMNS: &str = "id, job, run, owner, direction, source, destination, peer, state, began_ms, ended_ms, attempts, files, \
                       files_failed, bytes, wire_bytes, mean_bps, peak_bps, loss_fraction, rtt_ms, verdict, tree_root, \
                       error_code, error, dry_run, deleted";
/// Where the question of a list has the locations of the record's job.
const PLACES: usize = 26;

/// Which records to list; an empty field allows all.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordFilter {
    pub(crate) job: Option<JobId>,
    pub(crate) peer: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) states: Vec<String>,
    pub(crate) labels: Vec<(String, String)>,
    /// A part of the source, destination, peer or error, or of a label of the job.
    pub(crate) text: Option<String>,
    /// Records that ended at or after, and before, these times.
    pub(crate) since_ms: Option<i64>,
    pub(crate) until_ms: Option<i64>,
    /// This moment. A record that ended later than now did so by a clock that was ahead; then its node time counts.
    pub(crate) now: Option<NodeMoment>,
    /// Only records with a lower number.
    pub(crate) before: Option<i64>,
    /// How many of the first records to skip.
    pub(crate) offset: usize,
}

impl RecordFilter {
    fn since_node_ms(&self) -> Option<i64> {
        Some(self.now?.node_ms_of(self.since_ms?))
    }
}

const CONDITIONS: &str = "(:before IS NULL OR history.id < :before)
           AND (:job IS NULL OR history.job = :job)
           AND (:peer IS NULL OR peer = :peer)
           AND (:owner IS NULL OR owner = :owner)
           AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
           AND (:since IS NULL OR ended_ms >= :since
             AND (:now IS NULL OR ended_ms <= :now OR history.node_ms >= :since_node))
           AND (:until IS NULL OR ended_ms < :until)
           AND (:text IS NULL
             OR instr(lower(source || ' ' || destination || ' ' || coalesce(peer, '') || ' ' || coalesce(error_code, '')
               || ' ' || coalesce(error, '') || ' ' || coalesce(history.job, '')), lower(:text)) > 0
             OR EXISTS (SELECT 1 FROM labels WHERE labels.job = history.job
               AND instr(lower(labels.name || '=' || labels.value), lower(:text)) > 0))
           AND (:labels = '[]' OR NOT EXISTS (
             SELECT 1 FROM json_each(:labels) AS asked WHERE NOT EXISTS (
               SELECT 1 FROM labels WHERE labels.job = history.job
                 AND labels.name = asked.value ->> 0 AND labels.value = asked.value ->> 1)))";

/// The part of a record by which it is decided whether a caller sees it.
#[derive(Debug)]
pub(crate) struct RecordKey<'a> {
    /// The locations of its job; `None` if the record is of no job, or of one that the store has not any more.
    pub(crate) places: Option<&'a str>,
}

/// A page of a list.
#[derive(Debug, Default)]
pub(crate) struct RecordPage {
    pub(crate) records: Vec<HistoryRecord>,
    /// The last record that was looked at, if there may be more after it.
    pub(crate) last: Option<i64>,
}

/// At most `count` matching records that `is_seen` lets through, newest first. At most `looks` records are
/// looked at for that. A record that is not let through costs no more than its key.
pub(crate) fn list(
    connection: &Connection,
    wanted: &RecordFilter,
    (count, looks): (usize, usize),
    mut is_seen: impl FnMut(&RecordKey<'_>) -> bool,
) -> rusqlite::Result<RecordPage> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS}, (SELECT places FROM jobs WHERE jobs.id = history.job) FROM history
         WHERE {CONDITIONS} ORDER BY history.id DESC LIMIT -1 OFFSET :offset"
    ))?;
    let (states, labels) = lists(wanted)?;
    let mut rows = statement.query(named_params! {
        ":before": wanted.before, ":job": wanted.job.as_ref().map(JobId::as_str), ":peer": wanted.peer,
        ":owner": wanted.owner, ":states": states, ":since": wanted.since_ms,
            ":now": wanted.now.map(|now| now.wall_ms), ":since_node": wanted.since_node_ms(), ":until": wanted.until_ms,
        ":text": wanted.text, ":labels": labels, ":offset": i64::try_from(wanted.offset).unwrap_or(i64::MAX),
    })?;
    let (mut page, mut looked, mut bytes) = (RecordPage::default(), 0, 0);
    while let Some(next) = rows.next()? {
        looked += 1;
        if is_seen(&RecordKey { places: next.get_ref(PLACES)?.as_str().ok() }) {
            let record = row(next)?;
            bytes += record.source.len() + record.destination.len();
            page.records.push(record);
        }
        if page.records.len() >= count || bytes >= PAGE_BYTES_MAX || looked >= looks {
            page.last = Some(next.get(0)?);
            break;
        }
    }
    Ok(page)
}

/// Gives the key of each matching record to `note`, newest first, of at most `looks` records. Yields true if there are
/// more.
pub(crate) fn keys(
    connection: &Connection,
    wanted: &RecordFilter,
    looks: usize,
    mut note: impl FnMut(&RecordKey<'_>),
) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT (SELECT places FROM jobs WHERE jobs.id = history.job) FROM history
         WHERE {CONDITIONS} ORDER BY history.id DESC"
    ))?;
    let (states, labels) = lists(wanted)?;
    let mut rows = statement.query(named_params! {
        ":before": wanted.before, ":job": wanted.job.as_ref().map(JobId::as_str), ":peer": wanted.peer,
        ":owner": wanted.owner, ":states": states, ":since": wanted.since_ms,
            ":now": wanted.now.map(|now| now.wall_ms), ":since_node": wanted.since_node_ms(), ":until": wanted.until_ms,
        ":text": wanted.text, ":labels": labels,
    })?;
    for _ in 0..looks {
        let Some(next) = rows.next()? else { return Ok(false) };
        note(&RecordKey { places: next.get_ref(0)?.as_str().ok() });
    }
    Ok(rows.next()?.is_some())
}

/// How many records match in all; pages make no difference.
pub(crate) fn count(connection: &Connection, wanted: &RecordFilter) -> rusqlite::Result<u64> {
    let (states, labels) = lists(wanted)?;
    let mut statement =
        connection.prepare_cached(&format!("SELECT count(*) FROM history WHERE {CONDITIONS}"))?;
    let count = statement.query_row(
        named_params! {
            ":before": None::<i64>, ":job": wanted.job.as_ref().map(JobId::as_str), ":peer": wanted.peer,
            ":owner": wanted.owner, ":states": states, ":since": wanted.since_ms,
            ":now": wanted.now.map(|now| now.wall_ms), ":since_node": wanted.since_node_ms(), ":until": wanted.until_ms,
            ":text": wanted.text, ":labels": labels,
        },
        |row| row.get::<_, i64>(0),
    )?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// The record with this number.
pub(crate) fn get(connection: &Connection, id: i64) -> rusqlite::Result<Option<HistoryRecord>> {
    let question = format!("SELECT {COLUMNS} FROM history WHERE id = ?1");
    connection.prepare_cached(&question)?.query_row([id], row).optional()
}

/// The record of a job's run; of its last run if none is given.
pub(crate) fn of_job(
    connection: &Connection,
    job: JobId,
    run: Option<u32>,
) -> rusqlite::Result<Option<HistoryRecord>> {
    let question = format!(
        "SELECT {COLUMNS} FROM history WHERE job = ?1 AND (?2 IS NULL OR run = ?2) ORDER BY run DESC LIMIT 1"
    );
    connection.prepare_cached(&question)?.query_row(params![job.as_str(), run], row).optional()
}

/// The most of the last records, and the longest time, that [`best_rate`] looks back.
const RATES_BACK: i64 = 20_000;
const RATES_BACK_MS: i64 = 30 * 86_400_000;

/// The best mean rate of the last twenty transfers with a peer in one direction that moved enough to show one;
/// some of them may have been held back.
pub(crate) fn best_rate(
    connection: &Connection,
    peer: &str,
    direction: &str,
    now_ms: i64,
) -> rusqlite::Result<Option<f64>> {
    let question = "SELECT max(mean_bps) FROM (
         SELECT mean_bps FROM history
         WHERE id > (SELECT coalesce(max(id), 0) FROM history) - ?4
           AND peer = ?1 AND direction = ?2 AND ended_ms > ?3 AND job IS NOT NULL AND bytes >= 16777216
         ORDER BY id DESC LIMIT 20)";
    let since_ms = now_ms.saturating_sub(RATES_BACK_MS);
    connection
        .prepare_cached(question)?
        .query_row(params![peer, direction, since_ms, RATES_BACK], |row| row.get(0))
}

/// The documents of a record.
pub(crate) fn papers(connection: &Connection, id: i64) -> rusqlite::Result<Option<RecordPapers>> {
    let question = "SELECT report, curve, receipt FROM history WHERE id = ?1";
    let read =
        |row: &Row<'_>| Ok(RecordPapers { report: row.get(0)?, curve: row.get(1)?, receipt: row.get(2)? });
    connection.prepare_cached(question)?.query_row([id], read).optional()
}

/// The key that usage is summed up by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UsageKey {
    Peer,
    Owner,
    /// The day on which it ended, in UTC.
    Day,
    /// The values of this label.
    Label(String),
}

/// Sums up the matching records, largest sum first.
pub(crate) fn usage(
    connection: &Connection,
    by: &UsageKey,
    wanted: &RecordFilter,
    count: usize,
) -> rusqlite::Result<Vec<UsageRow>> {
    let (of, join, label) = match by {
        UsageKey::Peer => ("coalesce(peer, '')", "", None),
        UsageKey::Owner => ("owner", "", None),
        UsageKey::Day => ("date(ended_ms / 1000, 'unixepoch')", "", None),
        UsageKey::Label(name) => (
            "coalesce(named.value, '')",
            "LEFT JOIN labels AS named ON named.job = history.job AND named.name = :name",
            Some(name),
        ),
    };
    let (files, bytes) = (SUM_OF_FILES, SUM_OF_BYTES);
    let question = format!(
        "SELECT {of} AS of, count(*), sum(state <> 'done'), {files}, {bytes}, sum(ended_ms - began_ms) / 1000.0
         FROM history {join} WHERE {CONDITIONS} AND (:name IS NULL OR 1)
         GROUP BY of ORDER BY {bytes} DESC, of LIMIT :count"
    );
    let (states, labels) = lists(wanted)?;
    let mut statement = connection.prepare_cached(&question)?;
    let sums = statement.query_map(
        named_params! {
            ":before": wanted.before, ":job": wanted.job.as_ref().map(JobId::as_str), ":peer": wanted.peer,
            ":owner": wanted.owner, ":states": states, ":since": wanted.since_ms,
            ":now": wanted.now.map(|now| now.wall_ms), ":since_node": wanted.since_node_ms(), ":until": wanted.until_ms,
            ":text": wanted.text, ":labels": labels, ":name": label,
            ":count": i64::try_from(count).unwrap_or(i64::MAX),
        },
        |row| {
            let count = |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
            Ok(UsageRow {
                of: row.get(0)?,
                transfers: count(1)?,
                failed: count(2)?,
                files: count(3)?,
                bytes: count(4)?,
                seconds: row.get(5)?,
            })
        },
    )?;
    sums.collect()
}

/// The runs with one peer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PeerDealings {
    pub(crate) peer: String,
    pub(crate) transfers: u64,
    /// How many of the runs did not bring everything.
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    pub(crate) last_ended_ms: Option<i64>,
    /// When the last run ended that brought some or all of its content.
    pub(crate) last_reached_ms: Option<i64>,
}

/// The runs of jobs with each peer, latest first: of all jobs, or of one owner's.
pub(crate) fn dealings(
    connection: &Connection,
    owner: Option<&str>,
    count: usize,
) -> rusqlite::Result<Vec<PeerDealings>> {
    let question =
        "SELECT peer, count(*), sum(state <> 'done'), CAST(total(bytes) AS INTEGER), max(ended_ms),
               max(CASE WHEN state = 'done' OR bytes > 0 THEN ended_ms END)
             FROM history WHERE job IS NOT NULL AND peer IS NOT NULL AND (:owner IS NULL OR owner = :owner)
             GROUP BY peer ORDER BY max(ended_ms) DESC, peer LIMIT :count";
    let mut statement = connection.prepare_cached(question)?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let all = statement.query_map(named_params! { ":owner": owner, ":count": count }, |row| {
        let count = |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
        Ok(PeerDealings {
            peer: row.get(0)?,
            transfers: count(1)?,
            failed: count(2)?,
            bytes: count(3)?,
            last_ended_ms: row.get(4)?,
            last_reached_ms: row.get(5)?,
        })
    })?;
    all.collect()
}

/// A job and the number of its run.
pub(crate) type RunId = (String, u32);

/// Deletes at most `count` records that ended before this node time. Yields their runs, and for sessions of
/// clients `None`.
pub(crate) fn forget(
    transaction: &Transaction<'_>,
    node_ms: i64,
    count: usize,
) -> rusqlite::Result<Vec<Option<RunId>>> {
    let mut statement = transaction.prepare_cached(
        "DELETE FROM history WHERE id IN (SELECT id FROM history WHERE node_ms < ?1 ORDER BY node_ms LIMIT ?2)
         RETURNING job, run",
    )?;
    let gone = statement.query_map(params![node_ms, i64::try_from(count).unwrap_or(i64::MAX)], run)?;
    gone.collect()
}

/// The size of a record in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordSize {
    pub(crate) id: i64,
    /// `None` if a client of the daemon opened the session.
    pub(crate) run: Option<RunId>,
    pub(crate) bytes: u64,
}

/// Roughly the bytes that a record's numbers and its entries in indexes take.
const NUMBERS_BYTES: u64 = 256;

/// The sizes of records, newest first. A record whose files a hook still gets is left out.
pub(crate) fn weights(connection: &Connection) -> rusqlite::Result<Vec<RecordSize>> {
    let mut statement = connection.prepare_cached(
        "SELECT job, run, id,
                octet_length(owner) + octet_length(source) + octet_length(destination) + octet_length(verdict)
                + coalesce(octet_length(error), 0) + coalesce(octet_length(report), 0)
                + coalesce(octet_length(curve), 0) + coalesce(octet_length(receipt), 0)
         FROM history
         WHERE NOT EXISTS (SELECT 1 FROM feeds WHERE feeds.job = history.job AND feeds.run = history.run)
         ORDER BY id DESC",
    )?;
    let weights = statement.query_map([], |row| {
        let bytes = u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0).saturating_add(NUMBERS_BYTES);
        Ok(RecordSize { id: row.get(2)?, run: run(row)?, bytes })
    })?;
    weights.collect()
}

/// Deletes these records.
pub(crate) fn remove(transaction: &Transaction<'_>, ids: &[i64]) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("DELETE FROM history WHERE id = ?1")?;
    ids.iter().try_for_each(|id| statement.execute([id]).map(drop))
}

/// The run of a row that begins with job and run.
fn run(row: &Row<'_>) -> rusqlite::Result<Option<RunId>> {
    Ok(row.get::<_, Option<String>>(0)?.zip(row.get(1)?))
}

fn lists(wanted: &RecordFilter) -> rusqlite::Result<(String, String)> {
    let labels: Vec<[&str; 2]> =
        wanted.labels.iter().map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    Ok((super::jobs::json(&wanted.states)?, super::jobs::json(&labels)?))
}

/// SQLite's integers are signed.
/// Sums of what far ends have told. The store's `sum` fails when it does not fit; these end at the largest number.
const SUM_OF_FILES: &str = "CAST(total(files) AS INTEGER)";
const SUM_OF_BYTES: &str = "CAST(total(bytes) AS INTEGER)";

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn row(row: &Row<'_>) -> rusqlite::Result<HistoryRecord> {
    let count = |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(HistoryRecord {
        id: row.get(0)?,
        job: row.get(1)?,
        run: row.get(2)?,
        owner: row.get(3)?,
        direction: row.get(4)?,
        source: row.get(5)?,
        destination: row.get(6)?,
        peer: row.get(7)?,
        state: row.get(8)?,
        began_ms: row.get(9)?,
        ended_ms: row.get(10)?,
        attempts: row.get(11)?,
        files: count(12)?,
        files_failed: count(13)?,
        bytes: count(14)?,
        wire_bytes: count(15)?,
        mean_bps: row.get(16)?,
        peak_bps: row.get(17)?,
        loss_fraction: row.get(18)?,
        rtt_ms: row.get(19)?,
        verdict: row.get(20)?,
        tree_root: row.get(21)?,
        error_code: row.get(22)?,
        error: row.get(23)?,
        dry_run: row.get(24)?,
        deleted: count(25)?,
    })
}
