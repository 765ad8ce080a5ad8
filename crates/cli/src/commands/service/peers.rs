//! `farhaul peers`: lists the other hosts of jobs, or shows one.

use farhaul::Error;
use serde_json::Value;

use super::table::TextTable;
use super::{client, quoted};
use crate::args::service::PeersArgs;
use crate::ui::{printer, units};

pub fn peers(args: &PeersArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    if let Some(name) = &args.name {
        let peer: Value = client.get(&format!("/peers/{}", quoted(name)))?;
        return if args.answer.json { printer::json(&peer) } else { printer::data(one(&peer).as_bytes()) };
    }
    let all: Value = client.get("/peers")?;
    if args.answer.json {
        return printer::json(&all["peers"]);
    }
    let all = all["peers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut table = TextTable::new(&[
        "PEER", "RUNNING", "WAITING", "ENDED", "FAILED", "BYTES", "REACHED", "CAP", "IDENTITY",
    ]);
    for peer in all {
        let number = |field: &str| peer[field].as_u64().unwrap_or(0);
        table.row(vec![
            text(&peer["name"]),
            format!("{} of {}", number("running"), number("running_max")),
            number("unfinished").saturating_sub(number("running")).to_string(),
            number("transfers").to_string(),
            number("failed").to_string(),
            units::size(number("bytes")),
            text(&peer["last_reached"]),
            text(&peer["cap"]),
            text(&peer["identity"]),
        ]);
    }
    let shown = if all.is_empty() { "no peer is known\n".into() } else { table.text() };
    printer::data(shown.as_bytes())
}

/// A line for each field that has a value.
fn one(peer: &Value) -> String {
    let mut table = TextTable::new(&[]);
    for (name, value) in peer.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => continue,
            Value::Array(list) if list.is_empty() => continue,
            Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(" "),
            other => text(other),
        };
        table.row(vec![name.replace('_', " "), value]);
    }
    table.text().trim_start().to_string()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
