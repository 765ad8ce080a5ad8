//! `farhaul history`, `farhaul usage`, and the receipt of a job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farhaul::{Code, Error};
use farhaul_service::JobSpan;
use serde_json::Value;

use super::table::TextTable;
use super::{client, joined, query};
use crate::args::receipt::ReceiptArgs;
use crate::args::service::{HistoryArgs, UsageArgs};
use crate::ui::{printer, units};

/// The most records that the service gives in one answer.
const PAGE: usize = 1000;

/// The columns of `--csv`, which are fields of a record.
const FIELDS: [&str; 24] = [
    "id",
    "job",
    "run",
    "owner",
    "direction",
    "source",
    "destination",
    "peer",
    "state",
    "dry_run",
    "began_ms",
    "ended_ms",
    "attempts",
    "files",
    "files_failed",
    "deleted",
    "bytes",
    "wire_bytes",
    "mean_bps",
    "peak_bps",
    "loss_fraction",
    "rtt_ms",
    "tree_root",
    "error_code",
];

pub fn history(args: &HistoryArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let mut all: Vec<Value> = Vec::new();
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
        let mut page: Value = client.get(&format!("/history{}", query(&parts)))?;
        all.extend(page["records"].as_array_mut().map(std::mem::take).unwrap_or_default());
        cursor = page["next_cursor"].as_i64().map(|next| next.to_string());
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
        let ms = |field: &str| record[field].as_i64().unwrap_or(0);
        let took = u64::try_from(ms("ended_ms") - ms("began_ms")).unwrap_or(0);
        table.row(vec![
            units::date(ms("ended_ms").div_euclid(1000)),
            record["job"].as_str().unwrap_or("-").into(),
            state(record),
            record["files"].to_string(),
            record["deleted"].to_string(),
            units::size(record["bytes"].as_u64().unwrap_or(0)),
            units::time(Duration::from_millis(took)),
            units::rate(record["mean_bps"].as_f64().unwrap_or(0.0)),
            what(record),
        ]);
    }
    let text = if all.is_empty() { "no transfer has ended\n".into() } else { table.text() };
    printer::data(text.as_bytes())
}

/// How it ended.
fn state(record: &Value) -> String {
    let state = record["state"].as_str().unwrap_or_default().replace('_', " ");
    if record["dry_run"] == true { format!("{state} (dry run)") } else { state }
}

/// Source and destination in one line. Of a client's transfer, only the path at this end is known.
fn what(record: &Value) -> String {
    let text = |field: &str| record[field].as_str().unwrap_or_default();
    let client = format!("client {}", text("peer"));
    match (record["job"].is_string(), text("direction")) {
        (true, _) | (false, "third") => format!("{} -> {}", text("source"), text("destination")),
        (false, "push") => format!("{client} -> {}", text("destination")),
        (false, "pull") => format!("{} -> {client}", text("source")),
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
fn csv(records: &[Value]) -> String {
    let mut text = FIELDS.join(",") + "\n";
    for record in records {
        let cells: Vec<String> = FIELDS.iter().map(|field| cell(&record[*field])).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Prints the receipt of a job, as the service keeps it.
pub fn receipt(id: &str, args: &ReceiptArgs) -> Result<(), Error> {
    let client = client(&args.api)?;
    let records: Value = client.get(&format!("/history{}", query(&[("job", Some(id.to_string()))])))?;
    let is_asked = |record: &&Value| args.run.is_none_or(|run| record["run"] == run);
    let record = records["records"].as_array().into_iter().flatten().find(is_asked);
    let no_such = || Error::new(Code::NoSuchThing, format!("job {id} has no such run that has ended"));
    let record = record.and_then(|record| record["id"].as_i64()).ok_or_else(no_such)?;
    let text = client.get_text(&format!("/history/{record}/receipt"))?;
    printer::data(format!("{}\n", text.trim_end()).as_bytes())
}

pub fn usage(args: &UsageArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let parts = [("by", Some(args.by.clone())), ("since", args.since.map(ago))];
    let used: Value = client.get(&format!("/usage{}", query(&parts)))?;
    if args.answer.json {
        return printer::json(&used["usage"]);
    }
    let name = args.by.to_uppercase();
    let mut table = TextTable::new(&[&name, "TRANSFERS", "FAILED", "FILES", "BYTES", "TIME"]);
    for sum in used["usage"].as_array().into_iter().flatten() {
        let of = sum["of"].as_str().filter(|of| !of.is_empty()).unwrap_or("-");
        table.row(vec![
            of.into(),
            sum["transfers"].to_string(),
            sum["failed"].to_string(),
            sum["files"].to_string(),
            units::size(sum["bytes"].as_u64().unwrap_or(0)),
            units::time(
                Duration::try_from_secs_f64(sum["seconds"].as_f64().unwrap_or(0.0)).unwrap_or_default(),
            ),
        ]);
    }
    printer::data(table.text().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_commas_are_quoted() {
        let record = serde_json::json!({"id": 7, "source": "/a,b \"c\"", "state": "done"});
        let text = csv(&[record]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split(',').count(), FIELDS.len());
        assert!(lines[1].starts_with("7,,,,,\"/a,b \"\"c\"\"\",,,done,"), "{text}");
    }
}
