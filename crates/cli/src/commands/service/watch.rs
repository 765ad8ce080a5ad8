//! `farhaul watch`: adds, lists and removes watched folders, and shows their files.

use farhaul::Error;
use farhaul_api::{Labels, WatchList, WatchView, WatchedFilePage, WatchedFileView};
use farhaul_service::WatchSpec;
use serde_json::json;

use super::submit::{absolute, backup_rules};
use super::table::TextTable;
use super::{client, query, quoted};
use crate::args::service::{WatchAddArgs, WatchArgs, WatchVerb};
use crate::ui::{printer, units};

pub fn watch(args: &WatchArgs) -> Result<(), Error> {
    match &args.verb {
        WatchVerb::Add(add) => {
            let made: WatchView = client(&add.answer.api)?.post("/watches", &wish(add)?)?;
            if add.answer.json {
                return printer::json(&made);
            }
            printer::data(format!("{}\n", made.id).as_bytes())
        }
        WatchVerb::List { answer } => {
            let WatchList { watches } = client(&answer.api)?.get("/watches")?;
            if answer.json { printer::json(&watches) } else { list(&watches) }
        }
        WatchVerb::Show { id, answer } => {
            let found: WatchView = client(&answer.api)?.get(&format!("/watches/{}", quoted(id)))?;
            if answer.json { printer::json(&found) } else { show(&found) }
        }
        WatchVerb::Files { id, state, limit, answer } => {
            let client = client(&answer.api)?;
            let (mut all, mut cursor) = (Vec::new(), None);
            while all.len() < *limit {
                let count = (limit - all.len()).min(1000).to_string();
                let parts = [("state", state.clone()), ("limit", Some(count)), ("cursor", cursor)];
                let page: WatchedFilePage =
                    client.get(&format!("/watches/{}/files{}", quoted(id), query(&parts)))?;
                all.extend(page.files);
                cursor = page.next_cursor;
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
fn wish(add: &WatchAddArgs) -> Result<WatchSpec, Error> {
    let mut spec = WatchSpec::new(absolute(&add.folder)?, absolute(&add.to)?);
    spec.settle = add.settle.unwrap_or(spec.settle);
    spec.rescan = add.rescan;
    (spec.include, spec.exclude, spec.hidden) = (add.include.clone(), add.exclude.clone(), add.hidden);
    spec.after = add.after.clone();
    spec.labels = Labels::parse(&add.labels)?;
    spec.webhook = add.webhook.clone();
    (spec.identity, spec.fingerprint) = (add.as_identity.clone(), add.fingerprint.clone());
    spec.options.backup = add.backup.options()?.map(backup_rules);
    spec.options.owners = add.owners.options()?;
    Ok(spec)
}

fn show(watch: &WatchView) -> Result<(), Error> {
    let mut lines = vec![
        ("id", watch.id.clone()),
        ("owner", watch.owner.clone()),
        ("folder", watch.spec.folder.clone()),
        ("to", watch.spec.destination.clone()),
        ("after", watch.spec.after.clone()),
    ];
    let counts: Vec<String> = watch.files.iter().map(|(state, count)| format!("{count} {state}")).collect();
    lines.push(("files", if counts.is_empty() { "none yet".into() } else { counts.join(", ") }));
    if let Some(failing) = &watch.failing {
        lines.push(("failing", format!("{} since {}", failing.files, failing.since)));
        for reason in &failing.reasons {
            let after = match reason.retryable {
                true => "tried again by itself",
                false => "waits for a change, or for farhaul watch retry",
            };
            lines.push(("", format!("{} by {} ({after}): {}", reason.files, reason.code, reason.why)));
        }
        lines.extend(failing.next_try.map(|next| ("next try", next.to_string())));
    }
    // What fails stands above.
    let failing_lines = usize::from(watch.failing.is_some());
    lines.extend(watch.notices.iter().skip(failing_lines).map(|notice| ("notice", notice.clone())));
    let all: String = lines.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect();
    printer::data(all.as_bytes())
}

fn list(watches: &[WatchView]) -> Result<(), Error> {
    let mut table = TextTable::new(&["ID", "FOLDER", "TO", "AFTER", "DONE", "WAITING", "FAILED", "NOTICE"]);
    for watch in watches {
        let sum = |states: &[&str]| {
            states.iter().filter_map(|state| watch.files.get(*state)).sum::<u64>().to_string()
        };
        table.row(vec![
            watch.id.clone(),
            watch.spec.folder.clone(),
            watch.spec.destination.clone(),
            watch.spec.after.clone(),
            sum(&["done", "gone"]),
            sum(&["new", "settling", "taken", "changed"]),
            // Files that are tried again fail as long as they have not arrived.
            watch.failing.as_ref().map_or(0, |failing| failing.files).to_string(),
            watch.notices.first().cloned().unwrap_or_default(),
        ]);
    }
    printer::data(table.text().as_bytes())
}

fn files(files: &[WatchedFileView]) -> Result<(), Error> {
    let mut table = TextTable::new(&["STATE", "SINCE", "SIZE", "JOB", "PATH"]);
    for file in files {
        let path = match &file.why {
            Some(why) => format!("{}: {why}", file.path),
            None => file.path.clone(),
        };
        table.row(vec![
            file.state.clone(),
            file.since.to_string(),
            units::size(file.bytes),
            file.job.clone().unwrap_or_else(|| "-".into()),
            path,
        ]);
    }
    printer::data(table.text().as_bytes())
}
