//! `farhaul jobs`, `job`, `logs` and `wait`.

use std::ops::ControlFlow;
use std::time::Duration;

use farhaul::Error;
use farhaul::options::Policy;
use farhaul_api::{
    JobDetail, JobFilePage, JobKind, JobPage, JobProgress, JobState, JobView, LogLine, LogPage, RepeatRule,
};
use farhaul_service::ServiceClient;

use super::table::TextTable;
use super::{client, joined, query, quoted};
use crate::args::service::{JobArgs, JobsArgs, LogsArgs};
use crate::ui::{printer, units};

/// The most jobs, files or lines that the service gives in one answer.
const PAGE: usize = 1000;

pub fn jobs(args: &JobsArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let ask = || -> Result<Vec<JobView>, Error> {
        let mut all: Vec<JobView> = Vec::new();
        let mut cursor = None;
        while all.len() < args.limit {
            let parts = [
                ("state", joined(&args.state)),
                ("label", joined(&args.labels)),
                ("text", args.text.clone()),
                ("limit", Some((args.limit - all.len()).min(PAGE).to_string())),
                ("cursor", cursor.take()),
            ];
            let page: JobPage = client.get(&format!("/jobs{}", query(&parts)))?;
            all.extend(page.jobs);
            cursor = page.next_cursor;
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

fn table(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".into();
    }
    let mut table = TextTable::new(&["ID", "STATE", "PRI", "DONE", "RATE", "LEFT", "WHAT", "NOW"]);
    for job in jobs {
        let progress = job.progress.as_ref();
        let state = if job.is_stopping { "stopping" } else { job.state.text_or(JobState::words) };
        let shown = if job.dry_run { format!("{state} (dry run)") } else { state.into() };
        let running = progress.filter(|_| state == "running");
        table.row(vec![
            job.id.to_string(),
            shown,
            job.priority.to_string(),
            progress.map_or("-".into(), done),
            progress.and_then(moving).unwrap_or_else(|| "-".into()),
            running
                .and_then(|progress| progress.seconds_left)
                .map_or("-".into(), |left| units::time(Duration::from_secs(left))),
            what(job),
            now(job, running),
        ]);
    }
    table.text()
}

/// The rate of a job at which something moves.
fn moving(progress: &JobProgress) -> Option<String> {
    Some(progress.goodput_bps).filter(|bps| *bps >= 1.0).map(units::rate)
}

/// What a job does, and what became of its deadline, in the words of the service.
fn now(job: &JobView, running: Option<&JobProgress>) -> String {
    let promise = job.promise.iter().map(|promise| promise.words.as_str());
    let words: Vec<&str> = promise.chain(running.map(|progress| progress.now.as_str())).collect();
    if words.is_empty() { "-".into() } else { printer::harmless(&words.join("; ")) }
}

/// How much of a job is done: a percentage if its total is known, else a size.
fn done(progress: &JobProgress) -> String {
    let (done, total) = (progress.bytes_done, progress.bytes_total);
    match progress.totals_known && total > 0 {
        true => format!("{} %", (done as f64 / total as f64 * 100.0).floor()),
        false => units::size(done),
    }
}

/// Its sources, as far as one line has them, and its destination.
pub(super) fn what(job: &JobView) -> String {
    let first = job.sources.first().map_or("", String::as_str);
    let more = match job.sources.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    format!("{first}{more} -> {}", job.destination)
}

pub fn job(args: &JobArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let id = quoted(&args.id);
    if args.files {
        return files(&client, &id, args.result.as_ref());
    }
    let detail: JobDetail = client.get(&format!("/jobs/{id}"))?;
    if args.answer.json {
        return printer::json(&detail);
    }
    printer::data(described(&detail.job).as_bytes())
}

fn files(client: &ServiceClient, id: &str, result: Option<&String>) -> Result<(), Error> {
    let mut cursor = None;
    loop {
        let parts = [("result", result.cloned()), ("limit", Some(PAGE.to_string())), ("cursor", cursor)];
        let page: JobFilePage = client.get(&format!("/jobs/{id}/files{}", query(&parts)))?;
        for file in page.files {
            printer::data(format!("{}\n", printer::harmless_json(file.get())).as_bytes())?;
        }
        cursor = page.next_cursor.map(|next| next.to_string());
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Describes a job in lines of a name and a value.
fn described(job: &JobView) -> String {
    let mut lines: Vec<(&str, String)> = vec![
        ("job", job.id.to_string()),
        ("state", job.state.text_or(JobState::words).into()),
        ("what", format!("{} {}", job.kind.text_or(JobKind::name), what(job))),
        ("owner", job.owner.clone()),
    ];
    let rate = job.rate_bps.map_or(String::new(), |rate| format!(", at most {}", units::rate(rate as f64)));
    let policy = job.policy.text_or(Policy::name);
    lines.push(("rate", format!("{policy}{rate}, priority {}", job.priority)));
    for (name, time) in [
        ("submitted", Some(job.submitted)),
        ("goes on", job.due),
        ("began", job.began),
        ("ended", job.ended),
        ("finish by", job.finish_by),
    ] {
        lines.extend(time.map(|time| (name, time.to_string())));
    }
    lines.extend(job.waits_for.clone().map(|what| ("waits for", what)));
    if let Some(RepeatRule { every, cron, time_zone }) = &job.repeat {
        let every = every.map(|every| format!("every {every}"));
        let cron = cron.as_ref().map(|cron| format!("at '{cron}'"));
        let rule = [every, cron, time_zone.as_ref().map(|zone| format!("in {zone}"))];
        lines.push(("repeats", rule.into_iter().flatten().collect::<Vec<_>>().join(" ")));
    }
    lines.extend(job.promise.as_ref().map(|promise| ("promise", promise.words.clone())));
    if job.dry_run {
        lines.push(("dry run", "yes: it changes nothing".into()));
    }
    let labels: Vec<String> = job.labels.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !labels.is_empty() {
        lines.push(("labels", labels.join(" ")));
    }
    lines.push(("run", format!("{}, attempt {}", job.run, job.attempt)));
    // Of a job that is paused and whose session is given back, this is all that is known.
    if job.moved_bytes > 0 {
        lines.push(("moved", format!("{} in attempts that are over", units::size(job.moved_bytes))));
    }
    if let Some(progress) = &job.progress {
        lines.push((
            "done",
            format!(
                "{} of {}{}, {} of {} files, {} failed",
                units::size(progress.bytes_done),
                units::size(progress.bytes_total),
                if progress.totals_known { "" } else { " so far" },
                progress.files_done,
                progress.files_total,
                progress.failed
            ),
        ));
        lines.push(("now", progress.now.clone()));
        if !progress.transport.is_empty() {
            lines.push((
                "path",
                format!(
                    "{} over {}, round trip {:.1} ms, loss {:.2} %",
                    moving(progress).unwrap_or_else(|| "nothing moves".into()),
                    progress.transport,
                    progress.rtt_ms,
                    progress.loss_fraction * 100.0
                ),
            ));
        }
    }
    if let Some(error) = &job.error {
        let hint = error.hint.as_ref().map_or(String::new(), |hint| format!(": {hint}"));
        let text = if error.text.is_empty() { String::new() } else { format!(": {}", error.text) };
        lines.push(("error", format!("{}{text}{hint}", error.code)));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:<width$}  {}\n", printer::harmless(value))).collect()
}

pub fn logs(args: &LogsArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let id = quoted(&args.id);
    let print = |line: &LogLine| match args.answer.json {
        true => printer::json(line),
        false => {
            let at = units::date(line.at_ms.div_euclid(1000));
            let text = printer::harmless(&line.text);
            printer::data(format!("{at} {:<7} {text}\n", line.level).as_bytes())
        }
    };
    let mut after = 0;
    let mut rest = |client: &ServiceClient| -> Result<(), Error> {
        loop {
            let LogPage { lines } = client.get(&format!("/jobs/{id}/log?after={after}&limit={PAGE}"))?;
            for line in &lines {
                after = line.seq;
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
        if client.get::<JobView>(&format!("/jobs/{id}"))?.is_over {
            break;
        }
        // The event itself says nothing that is needed: `rest` fetches all new lines, each once.
        client.events(&format!("/events?job={id}"), Some(last), |_| ControlFlow::Break(()))?;
    }
    // The last lines of the log are written a moment after the end.
    std::thread::sleep(Duration::from_millis(200));
    rest(&client)
}
