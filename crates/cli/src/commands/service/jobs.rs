//! `farhaul jobs`, `job`, `logs` and `wait`.

use std::ops::ControlFlow;
use std::time::Duration;

use farhaul::Error;
use farhaul_service::{JobState, ServiceClient};
use serde_json::{Value, json};

use super::table::TextTable;
use super::{client, joined, query, quoted};
use crate::args::service::{JobArgs, JobsArgs, LogsArgs};
use crate::ui::{printer, units};

/// The most jobs, files or lines that the service gives in one answer.
const PAGE: usize = 1000;

pub fn jobs(args: &JobsArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let ask = || -> Result<Vec<Value>, Error> {
        let mut all: Vec<Value> = Vec::new();
        let mut cursor = None;
        while all.len() < args.limit {
            let parts = [
                ("state", joined(&args.state)),
                ("label", joined(&args.labels)),
                ("text", args.text.clone()),
                ("limit", Some((args.limit - all.len()).min(PAGE).to_string())),
                ("cursor", cursor.take()),
            ];
            let mut page: Value = client.get(&format!("/jobs{}", query(&parts)))?;
            all.extend(page["jobs"].as_array_mut().map(std::mem::take).unwrap_or_default());
            cursor = page["next_cursor"].as_str().map(ToString::to_string);
            if cursor.is_none() {
                break;
            }
        }
        Ok(all)
    };
    if !args.watch {
        let all = ask()?;
        return if args.answer.json { printer::json(&all) } else { printer::data(table(&all).as_bytes()) };
    }
    loop {
        // Move the cursor home, draw the table over the old one, clear what is below it.
        let text = table(&ask()?).replace('\n', "\x1b[K\n");
        printer::data(format!("\x1b[H{text}\x1b[J").as_bytes())?;
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn table(jobs: &[Value]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".into();
    }
    let mut table = TextTable::new(&["ID", "STATE", "PRI", "DONE", "RATE", "LEFT", "WHAT", "NOW"]);
    for job in jobs {
        let progress = &job["progress"];
        let state = JobState::of_name(text(&job["state"])).map_or(text(&job["state"]), |state| state.words());
        let state = if job["is_stopping"] == true { "stopping" } else { state };
        let shown = if job["dry_run"] == true { format!("{state} (dry run)") } else { state.into() };
        table.row(vec![
            text(&job["id"]).into(),
            shown,
            job["priority"].to_string(),
            done(progress),
            moving(progress).unwrap_or_else(|| "-".into()),
            progress["seconds_left"]
                .as_u64()
                .filter(|_| state == "running")
                .map_or("-".into(), |left| units::time(Duration::from_secs(left))),
            what(job),
            now(job, state),
        ]);
    }
    table.text()
}

/// The rate of a job at which something moves.
fn moving(progress: &Value) -> Option<String> {
    progress["goodput_bps"].as_f64().filter(|bps| *bps >= 1.0).map(units::rate)
}

/// What a job does, and what became of its deadline, in the words of the service.
fn now(job: &Value, state: &str) -> String {
    let now = job["progress"]["now"].as_str().filter(|_| state == "running");
    let words: Vec<&str> = job["promise"]["words"].as_str().into_iter().chain(now).collect();
    if words.is_empty() { "-".into() } else { printer::harmless(&words.join("; ")) }
}

/// How much of a job is done: a percentage if its total is known, else a size.
fn done(progress: &Value) -> String {
    let (Some(done), Some(total)) = (progress["bytes_done"].as_u64(), progress["bytes_total"].as_u64())
    else {
        return "-".into();
    };
    match progress["totals_known"] == true && total > 0 {
        true => format!("{} %", (done as f64 / total as f64 * 100.0).floor()),
        false => units::size(done),
    }
}

fn what(job: &Value) -> String {
    let sources = job["sources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first = sources.first().map_or("", |first| text(first));
    let more = if sources.len() > 1 { format!(" and {} more", sources.len() - 1) } else { String::new() };
    format!("{first}{more} -> {}", text(&job["destination"]))
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn job(args: &JobArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let id = quoted(&args.id);
    if args.files {
        return files(&client, &id, args.result.as_ref());
    }
    let job: Value = client.get(&format!("/jobs/{id}"))?;
    if args.answer.json {
        return printer::json(&job);
    }
    printer::data(described(&job).as_bytes())
}

fn files(client: &ServiceClient, id: &str, result: Option<&String>) -> Result<(), Error> {
    let mut cursor = None;
    loop {
        let parts = [("result", result.cloned()), ("limit", Some(PAGE.to_string())), ("cursor", cursor)];
        let page: Value = client.get(&format!("/jobs/{id}/files{}", query(&parts)))?;
        for file in page["files"].as_array().into_iter().flatten() {
            printer::data(format!("{}\n", printer::harmless_json(&file.to_string())).as_bytes())?;
        }
        cursor = page["next_cursor"].as_u64().map(|next| next.to_string());
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Describes a job in lines of a name and a value.
fn described(job: &Value) -> String {
    let progress = &job["progress"];
    let mut lines: Vec<(&str, String)> = vec![
        ("job", text(&job["id"]).into()),
        (
            "state",
            JobState::of_name(text(&job["state"])).map_or(text(&job["state"]), |state| state.words()).into(),
        ),
        ("what", format!("{} {}", text(&job["kind"]), what(job))),
        ("owner", text(&job["owner"]).into()),
    ];
    let labels = job["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={}", text(value))).collect();
    let rate =
        job["rate_bps"].as_f64().map_or(String::new(), |rate| format!(", at most {}", units::rate(rate)));
    lines.push(("rate", format!("{}{rate}, priority {}", text(&job["policy"]), job["priority"])));
    for (name, field) in [
        ("submitted", "submitted"),
        ("goes on", "due"),
        ("began", "began"),
        ("ended", "ended"),
        ("finish by", "finish_by"),
        ("waits for", "waits_for"),
    ] {
        if let Some(words) = job[field].as_str() {
            lines.push((name, words.into()));
        }
    }
    if let Some(repeat) = job["repeat"].as_object() {
        let zone = repeat.get("time_zone").and_then(Value::as_str);
        let every = repeat.get("every").and_then(Value::as_str).map(|every| format!("every {every}"));
        let cron = repeat.get("cron").and_then(Value::as_str).map(|cron| format!("at '{cron}'"));
        let rule = [every, cron, zone.map(|zone| format!("in {zone}"))];
        lines.push(("repeats", rule.into_iter().flatten().collect::<Vec<_>>().join(" ")));
    }
    if let Some(words) = job["promise"]["words"].as_str() {
        lines.push(("promise", words.into()));
    }
    if job["dry_run"] == true {
        lines.push(("dry run", "yes: it changes nothing".into()));
    }
    if !labels.is_empty() {
        lines.push(("labels", labels.join(" ")));
    }
    lines.push(("run", format!("{}, attempt {}", job["run"], job["attempt"])));
    // Of a job that is paused and whose session is given back, this is all that is known.
    if let Some(moved) = job["moved_bytes"].as_u64().filter(|moved| *moved > 0) {
        lines.push(("moved", format!("{} in attempts that are over", units::size(moved))));
    }
    if progress.is_object() {
        let size = |field: &str| units::size(progress[field].as_u64().unwrap_or(0));
        lines.push((
            "done",
            format!(
                "{} of {}{}, {} of {} files, {} failed",
                size("bytes_done"),
                size("bytes_total"),
                if progress["totals_known"] == true { "" } else { " so far" },
                progress["files_done"],
                progress["files_total"],
                progress["failed"]
            ),
        ));
        lines.push(("now", text(&progress["now"]).into()));
        if !text(&progress["transport"]).is_empty() {
            lines.push((
                "path",
                format!(
                    "{} over {}, round trip {:.1} ms, loss {:.2} %",
                    moving(progress).unwrap_or_else(|| "nothing moves".into()),
                    text(&progress["transport"]),
                    progress["rtt_ms"].as_f64().unwrap_or(0.0),
                    progress["loss_fraction"].as_f64().unwrap_or(0.0) * 100.0
                ),
            ));
        }
    }
    if let Some(code) = job["error"]["code"].as_str() {
        let hint = job["error"]["hint"].as_str().map_or(String::new(), |hint| format!(": {hint}"));
        let text =
            job["error"]["text"].as_str().filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
        lines.push(("error", format!("{code}{}{hint}", text.unwrap_or_default())));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:<width$}  {}\n", printer::harmless(value))).collect()
}

pub fn logs(args: &LogsArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let id = quoted(&args.id);
    let print = |line: &Value| match args.answer.json {
        true => printer::json(line),
        false => {
            let at = line["at_ms"].as_i64().map_or(String::new(), |ms| units::date(ms.div_euclid(1000)));
            let text = printer::harmless(text(&line["text"]));
            printer::data(format!("{at} {:<7} {text}\n", self::text(&line["level"])).as_bytes())
        }
    };
    let mut after = 0;
    let mut rest = |client: &ServiceClient| -> Result<(), Error> {
        loop {
            let page: Value = client.get(&format!("/jobs/{id}/log?after={after}&limit={PAGE}"))?;
            let lines = page["lines"].as_array().cloned().unwrap_or_default();
            for line in &lines {
                after = line["seq"].as_u64().unwrap_or(after);
                print(line)?;
            }
            if lines.len() < PAGE {
                return Ok(());
            }
        }
    };
    rest(&client)?;
    if !args.follow {
        return Ok(());
    }
    loop {
        let last = client.last_event()?;
        rest(&client)?;
        if is_over(&client.get(&format!("/jobs/{id}"))?) {
            break;
        }
        // The event itself says nothing that is needed: `rest` fetches all new lines, each once.
        client.events(&format!("/events?job={id}"), Some(last), |_| ControlFlow::Break(()))?;
    }
    // The last lines of the log are written a moment after the end.
    std::thread::sleep(Duration::from_millis(200));
    rest(&client)
}

/// Returns whether a job has reached a final state.
pub(super) fn is_over(job: &Value) -> bool {
    JobState::of_name(text(&job["state"])).is_some_and(JobState::is_final)
}

/// A list of jobs for scripts.
pub(super) fn as_list(jobs: &[Value]) -> Value {
    json!(jobs)
}
