//! `farhaul cap`: sets, lists and removes caps.

use farhaul::{Code, Error};
use serde_json::{Value, json};

use super::table::TextTable;
use super::{client, quoted};
use crate::args::cap::{CapArgs, CapVerb};
use crate::ui::{printer, units};

pub fn cap(args: &CapArgs) -> Result<(), Error> {
    match &args.verb {
        CapVerb::Set {
            name,
            rate,
            parent,
            peer,
            network,
            principal,
            weight,
            schedule,
            time_zone,
            answer,
        } => {
            let client = client(&answer.api)?;
            let path = format!("/caps/{}", quoted(name));
            // The service replaces a cap as a whole, so the fields that are not given come from the present
            // one.
            let mut cap = match client.get::<Value>(&path) {
                Ok(there) => own_fields(&there),
                Err(error) if error.code() == Code::NoSuchThing => json!({}),
                Err(error) => return Err(error),
            };
            if let Some(rate) = rate {
                cap["rate_bps"] = json!(rate.0);
            }
            for (field, values) in
                [("peers", peer), ("networks", network), ("principals", principal), ("schedule", schedule)]
            {
                if !values.is_empty() {
                    cap[field] = json!(values);
                }
            }
            for (field, value) in [("parent", parent), ("time_zone", time_zone)] {
                if value.is_some() {
                    cap[field] = json!(value);
                }
            }
            if let Some(weight) = weight {
                cap["weight"] = json!(weight);
            }
            let view: Value = client.put(&path, &cap)?;
            match answer {
                answer if answer.json => printer::json(&view),
                answer if answer.quiet => Ok(()),
                _ => printer::data(table(&[view]).as_bytes()),
            }
        }
        CapVerb::List { answer } => {
            let all: Value = client(&answer.api)?.get("/caps")?;
            if answer.json {
                return printer::json(&all["caps"]);
            }
            printer::data(table(all["caps"].as_array().map(Vec::as_slice).unwrap_or_default()).as_bytes())
        }
        CapVerb::Remove { name, answer } => client(&answer.api)?.delete(&format!("/caps/{}", quoted(name))),
    }
}

/// Returns the fields of a cap that can be set, without those that the service computes.
fn own_fields(view: &Value) -> Value {
    let derived = ["name", "now_bps", "next_change", "sessions", "moved_bytes", "may"];
    let fields = view.as_object().into_iter().flatten().filter(|(name, _)| !derived.contains(&name.as_str()));
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn table(caps: &[Value]) -> String {
    let mut table =
        TextTable::new(&["CAP", "IN", "NOW", "SESSIONS", "MOVED", "WEIGHT", "ABOUT", "UNTIL", "SCHEDULE"]);
    for cap in caps {
        let list = |field: &str| {
            let values = cap[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            values.map(ToString::to_string).collect::<Vec<_>>()
        };
        let name = cap["name"].as_str().unwrap_or_default();
        let about = [list("principals"), list("peers"), list("networks")].concat().join(" ");
        table.row(vec![
            name.into(),
            if name == "host" { "-".into() } else { cap["parent"].as_str().unwrap_or("host").into() },
            cap["now_bps"].as_f64().map_or("no limit".into(), units::rate),
            cap["sessions"].to_string(),
            units::size(cap["moved_bytes"].as_u64().unwrap_or(0)),
            cap["weight"].to_string(),
            if name == "host" { "everything".into() } else { about },
            cap["next_change"].as_str().unwrap_or("-").into(),
            list("schedule").join("; "),
        ]);
    }
    table.text()
}
