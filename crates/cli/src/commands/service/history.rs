//! `farhaul history`, `farhaul usage`, and the receipt of a job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul_api::{HistoryPage, HistoryRecord, JobSpan, UsageRow, UsageSums};

use super::table::TextTable;
use super::{client, joined, query};
use crate::args::receipt::ReceiptArgs;
use crate::args::service::{HistoryArgs, UsageArgs};
use crate::ui::{printer, units};

/// The most records that the service gives in one answer.
const PAGE: usize = 1000;

/// The value of a column.
type Cell = fn(&HistoryRecord) -> String;

/// The columns of `--csv`, which have the names of a record's fields.
const COLUMNS: [(&str, Cell); 24] = [
    ("id", |record| record.id.to_string()),
    ("job", |record| record.job.clone().unwrap_or_default()),
    ("run", |record| record.run.map(|run| run.to_string()).unwrap_or_default()),
    ("owner", |record| record.owner.clone()),
    ("direction", |record| record.direction.clone()),
    ("source", |record| record.source.clone()),
    ("destination", |record| record.destination.clone()),
    ("peer", |record| record.peer.clone().unwrap_or_default()),
    ("state", |record| record.state.clone()),
    ("dry_run", |record| record.dry_run.to_string()),
    ("began_ms", |record| record.began_ms.to_string()),
    ("ended_ms", |record| record.ended_ms.to_string()),
    ("attempts", |record| record.attempts.to_string()),
    ("files", |record| record.files.to_string()),
    ("files_failed", |record| record.files_failed.to_string()),
    ("deleted", |record| record.deleted.to_string()),
    ("bytes", |record| record.bytes.to_string()),
    ("wire_bytes", |record| record.wire_bytes.to_string()),
    ("mean_bps", |record| format!("{:?}", record.mean_bps)),
    ("peak_bps", |record| format!("{:?}", record.peak_bps)),
    ("loss_fraction", |record| format!("{:?}", record.loss_fraction)),
    ("rtt_ms", |record| format!("{:?}", record.rtt_ms)),
    ("tree_root", |record| record.tree_root.clone().unwrap_or_default()),
    ("error_code", |record| record.error_code.clone().unwrap_or_default()),
];

pub fn history(args: &HistoryArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let mut all: Vec<HistoryRecord> = Vec::new();
    let mut cursor: Option<String> = None;
    while all.len() < args.limit {
        let parts = [
            ("since", args.since.map(ago)),
            ("label", joined(&args.labels)),
            ("peer", args.peer.clone()),
            ("state", joined(&args.state)),
            ("text", args.text.clone()),
            ("limit", Some((args.limit - all.len()).min(PAGE).to_string())),
            ("cursor", cursor.take()),
        ];
        let page: HistoryPage = client.get(&format!("/history{}", query(&parts)))?;
        all.extend(page.records);
        cursor = page.next_cursor.map(|next| next.to_string());
        if cursor.is_none() {
            break;
        }
    }
    if args.answer.json {
        return printer::json(&all);
    }
    if args.csv {
        return printer::data(csv(&all).as_bytes());
    }
    let mut table =
        TextTable::new(&["ENDED", "JOB", "STATE", "FILES", "DELETED", "BYTES", "TIME", "MEAN", "WHAT"]);
    for record in &all {
        let took = u64::try_from(record.ended_ms.saturating_sub(record.began_ms)).unwrap_or(0);
        table.row(vec![
            units::date(record.ended_ms.div_euclid(1000)),
            record.job.clone().unwrap_or_else(|| "-".into()),
            state(record),
            record.files.to_string(),
            record.deleted.to_string(),
            units::size(record.bytes),
            units::time(Duration::from_millis(took)),
            units::rate(record.mean_bps),
            what(record),
        ]);
    }
    let text = if all.is_empty() { "no transfer has ended\n".into() } else { table.text() };
    printer::data(text.as_bytes())
}

/// How it ended.
fn state(record: &HistoryRecord) -> String {
    let state = record.state.replace('_', " ");
    if record.dry_run { format!("{state} (dry run)") } else { state }
}

/// Source and destination in one line. Of a client's transfer, only the path at this end is known.
fn what(record: &HistoryRecord) -> String {
    let HistoryRecord { job, direction, source, destination, peer, .. } = record;
    let client = format!("client {}", peer.as_deref().unwrap_or_default());
    match (job.is_some(), direction.as_str()) {
        (true, _) | (false, "third") => format!("{source} -> {destination}"),
        (false, "push") => format!("{client} -> {destination}"),
        (false, "pull") => format!("{source} -> {client}"),
        (false, "read") => format!("{client} reads"),
        (false, _) => client,
    }
}

/// Returns the moment that was `span` ago, as the service reads it.
fn ago(span: JobSpan) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    units::date(i64::try_from(now.saturating_sub(span.0)).unwrap_or(0))
}

/// Comma-separated values. From: RFC 4180.
fn csv(records: &[HistoryRecord]) -> String {
    let mut text = COLUMNS.map(|(name, _)| name).join(",") + "\n";
    for record in records {
        let cells = COLUMNS.map(|(_, value)| quoted_cell(value(record)));
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

fn quoted_cell(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Prints the receipt of a job, as the service keeps it.
pub fn receipt(id: &str, args: &ReceiptArgs) -> Result<(), Error> {
    let client = client(&args.api)?;
    let page: HistoryPage = client.get(&format!("/history{}", query(&[("job", Some(id.to_string()))])))?;
    let is_asked = |record: &&HistoryRecord| args.run.is_none_or(|run| record.run == Some(run));
    let no_such = || Error::new(Code::NoSuchThing, format!("job {id} has no such run that has ended"));
    let record = page.records.iter().find(is_asked).ok_or_else(no_such)?;
    let text = client.get_text(&format!("/history/{}/receipt", record.id))?;
    printer::data(format!("{}\n", text.trim_end()).as_bytes())
}

pub fn usage(args: &UsageArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let parts = [("by", Some(args.by.clone())), ("since", args.since.map(ago))];
    let UsageSums { usage } = client.get(&format!("/usage{}", query(&parts)))?;
    if args.answer.json {
        return printer::json(&usage);
    }
    let name = args.by.to_uppercase();
    let mut table = TextTable::new(&[&name, "TRANSFERS", "FAILED", "FILES", "BYTES", "TIME"]);
    for UsageRow { of, transfers, failed, files, bytes, seconds } in usage {
        table.row(vec![
            if of.is_empty() { "-".into() } else { of },
            transfers.to_string(),
            failed.to_string(),
            files.to_string(),
            units::size(bytes),
            units::time(Duration::try_from_secs_f64(seconds).unwrap_or_default()),
        ]);
    }
    printer::data(table.text().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_commas_are_quoted() {
        let record = HistoryRecord {
            id: 7,
            source: "/a,b \"c\"".into(),
            state: "done".into(),
            ..HistoryRecord::default()
        };
        let text = csv(&[record]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split(',').count(), COLUMNS.len());
        assert!(lines[1].starts_with("7,,,,,\"/a,b \"\"c\"\"\",,,done,"), "{text}");
    }
}
