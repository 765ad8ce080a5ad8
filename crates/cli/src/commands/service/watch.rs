//! `farhaul watch`: adds, lists and removes watched folders, and shows their files.

use farhaul::{Error, OwnerOptions};
use farhaul_service::{JobSpan, Labels};
use serde_json::{Value, json};

use super::submit::{absolute, backup_rules};
use super::table::TextTable;
use super::{client, query, quoted};
use crate::args::service::{WatchAddArgs, WatchArgs, WatchVerb};
use crate::ui::{printer, units};

pub fn watch(args: &WatchArgs) -> Result<(), Error> {
    match &args.verb {
        WatchVerb::Add(add) => {
            let made: Value = client(&add.answer.api)?.post("/watches", &wish(add)?)?;
            if add.answer.json {
                return printer::json(&made);
            }
            printer::data(format!("{}\n", made["id"].as_str().unwrap_or_default()).as_bytes())
        }
        WatchVerb::List { answer } => {
            let all: Value = client(&answer.api)?.get("/watches")?;
            if answer.json {
                return printer::json(&all["watches"]);
            }
            list(all["watches"].as_array().map_or(&[], Vec::as_slice))
        }
        WatchVerb::Show { id, answer } => {
            let found: Value = client(&answer.api)?.get(&format!("/watches/{}", quoted(id)))?;
            if answer.json { printer::json(&found) } else { show(&found) }
        }
        WatchVerb::Files { id, state, limit, answer } => {
            let client = client(&answer.api)?;
            let (mut all, mut cursor) = (Vec::new(), None);
            while all.len() < *limit {
                let count = (limit - all.len()).min(1000).to_string();
                let parts = [("state", state.clone()), ("limit", Some(count)), ("cursor", cursor)];
                let page: Value = client.get(&format!("/watches/{}/files{}", quoted(id), query(&parts)))?;
                all.extend(page["files"].as_array().cloned().unwrap_or_default());
                cursor = page["next_cursor"].as_str().map(ToString::to_string);
                if cursor.is_none() {
                    break;
                }
            }
            if answer.json { printer::json(&all) } else { files(&all) }
        }
        WatchVerb::Retry { id, answer } => {
            client(&answer.api)?.post_only(&format!("/watches/{}/retry", quoted(id)), &json!({}))
        }
        WatchVerb::Take { id, answer } => {
            client(&answer.api)?.post_only(&format!("/watches/{}/take", quoted(id)), &json!({}))
        }
        WatchVerb::Remove { id, answer } => client(&answer.api)?.delete(&format!("/watches/{}", quoted(id))),
    }
}

/// Returns the request for a new watched folder.
fn wish(add: &WatchAddArgs) -> Result<Value, Error> {
    let span = |span: Option<JobSpan>| span.map(|span| span.to_string());
    let mut wish = json!({
        "folder": absolute(&add.folder)?, "destination": absolute(&add.to)?,
        "include": add.include, "exclude": add.exclude, "hidden": add.hidden,
        "after": add.after, "labels": Labels::parse(&add.labels)?,
    });
    let optional = [
        ("settle", span(add.settle)),
        ("rescan", span(add.rescan)),
        ("webhook", add.webhook.clone()),
        ("identity", add.as_identity.clone()),
        ("fingerprint", add.fingerprint.clone()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            wish[name] = json!(value);
        }
    }
    let mut options = json!({});
    if let Some(backup) = add.backup.options()? {
        options["backup"] = json!(backup_rules(backup));
    }
    let owners = add.owners.options()?;
    if owners != OwnerOptions::default() {
        options["owners"] = json!(owners);
    }
    wish["options"] = options;
    Ok(wish)
}

fn show(watch: &Value) -> Result<(), Error> {
    let (spec, failing) = (&watch["spec"], &watch["failing"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut lines = vec![
        ("id", text(&watch["id"])),
        ("owner", text(&watch["owner"])),
        ("folder", text(&spec["folder"])),
        ("to", text(&spec["destination"])),
        ("after", text(&spec["after"])),
    ];
    let counts = watch["files"].as_object().into_iter().flatten();
    let counts: Vec<String> = counts.map(|(state, count)| format!("{count} {state}")).collect();
    lines.push(("files", if counts.is_empty() { "none yet".into() } else { counts.join(", ") }));
    if let Some(files) = failing["files"].as_u64() {
        lines.push(("failing", format!("{files} since {}", text(&failing["since"]))));
        for reason in failing["reasons"].as_array().into_iter().flatten() {
            let after = match reason["retryable"].as_bool() {
                Some(true) => "tried again by itself",
                _ => "waits for a change, or for farhaul watch retry",
            };
            let (code, why) = (text(&reason["code"]), text(&reason["why"]));
            lines.push(("", format!("{} by {code} ({after}): {why}", reason["files"])));
        }
        if let Some(next) = failing["next_try"].as_str() {
            lines.push(("next try", next.to_string()));
        }
    }
    // What fails stands above.
    let failing_lines = usize::from(!failing.is_null());
    for notice in watch["notices"].as_array().into_iter().flatten().skip(failing_lines) {
        lines.push(("notice", text(notice)));
    }
    let all: String = lines.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect();
    printer::data(all.as_bytes())
}

fn list(watches: &[Value]) -> Result<(), Error> {
    let mut table = TextTable::new(&["ID", "FOLDER", "TO", "AFTER", "DONE", "WAITING", "FAILED", "NOTICE"]);
    for watch in watches {
        let (spec, counts) = (&watch["spec"], &watch["files"]);
        let sum = |states: &[&str]| {
            states.iter().filter_map(|state| counts[*state].as_u64()).sum::<u64>().to_string()
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        table.row(vec![
            text(&watch["id"]),
            text(&spec["folder"]),
            text(&spec["destination"]),
            text(&spec["after"]),
            sum(&["done", "gone"]),
            sum(&["new", "settling", "taken", "changed"]),
            // Files that are tried again fail as long as they have not arrived.
            watch["failing"]["files"].as_u64().unwrap_or(0).to_string(),
            text(&watch["notices"][0]),
        ]);
    }
    printer::data(table.text().as_bytes())
}

fn files(files: &[Value]) -> Result<(), Error> {
    let mut table = TextTable::new(&["STATE", "SINCE", "SIZE", "JOB", "PATH"]);
    for file in files {
        let text = |name: &str| file[name].as_str().unwrap_or_default().to_string();
        let path = match file["why"].as_str() {
            Some(why) => format!("{}: {why}", text("path")),
            None => text("path"),
        };
        let job = file["job"].as_str().unwrap_or("-").to_string();
        table.row(vec![
            text("state"),
            text("since"),
            units::size(file["bytes"].as_u64().unwrap_or(0)),
            job,
            path,
        ]);
    }
    printer::data(table.text().as_bytes())
}
