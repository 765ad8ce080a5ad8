//! `farhaul wait`: waits for the ends of jobs, and ends as they did.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use farhaul::{Code, Error, ExitCode};
use farhaul_service::{JobState, ServiceClient};
use serde_json::{Value, json};

use super::jobs::{is_over, text};
use super::{client, quoted};
use crate::args::service::JobIdsArgs;
use crate::ui::printer;

pub fn wait(args: &JobIdsArgs) -> Result<ExitCode, Error> {
    let client = client(&args.answer.api)?;
    wait_for(&client, &args.ids, args.answer.json, args.answer.quiet)
}

/// Waits until all jobs are over; of a job that repeats, until its present or next run is over. Returns the exit
/// code of the first one that did not end well.
pub(super) fn wait_for(
    client: &ServiceClient,
    ids: &[String],
    json: bool,
    quiet: bool,
) -> Result<ExitCode, Error> {
    let mut left: BTreeMap<String, Option<u64>> = ids.iter().map(|id| (id.clone(), None)).collect();
    let mut worst = ExitCode::Ok;
    // An event may come twice.
    let mut retried = BTreeSet::new();
    let look = |left: &mut BTreeMap<String, Option<u64>>| -> Result<(u64, Vec<(String, Value)>), Error> {
        let last = client.last_event()?;
        let mut over = Vec::new();
        for (id, awaited) in left {
            let job: Value = client.get(&format!("/jobs/{}", quoted(id)))?;
            if !is_over(&job) && !job["repeat"].is_null() && awaited.is_none() {
                *awaited = job["run"].as_u64();
                if !quiet {
                    printer::line(&awaited_run(&job));
                }
            }
            if is_awaited(&job, *awaited) {
                let ended = match awaited.filter(|_| !is_over(&job)) {
                    Some(run) => ended_run(client, &job, run)?,
                    None => job,
                };
                over.push((id.clone(), ended));
            }
        }
        Ok((last, over))
    };
    // If the first question fails, there is no service. If a later one fails, the service may be restarting.
    let mut looked = look(&mut left)?;
    loop {
        let (last, over) = looked;
        for (id, job) in over {
            left.remove(&id);
            worst = worst.worse(exit_code(&job));
            match json {
                true => printer::json(&job)?,
                false if !quiet => printer::line(&format!("{id}: {}", ended(&job))),
                false => {}
            }
        }
        if left.is_empty() {
            return Ok(worst);
        }
        // Events since `last`, which is older than the answers, so none is missed.
        let has_ended = client.events("/events", Some(last), |told| {
            let job: Option<Value> = serde_json::from_str(&told.data).ok();
            let job = job.filter(|job| told.kind == "job" && left.contains_key(text(&job["id"])));
            if let Some(line) = job.as_ref().and_then(next_attempt).filter(|_| !json && !quiet)
                && retried.insert(line.clone())
            {
                printer::line(&line);
            }
            let is_awaited = |job: &Value| is_awaited(job, left.get(text(&job["id"])).copied().flatten());
            let concerns = told.kind == "gap" || job.as_ref().is_some_and(is_awaited);
            if concerns { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let mut is_there = has_ended.map(|has_ended| !has_ended);
        // A service that restarts goes on with its jobs, so it is asked until it answers.
        looked = loop {
            match is_there {
                Ok(true) => {}
                Ok(false) => std::thread::sleep(RESTART_TIME),
                Err(error) if error.code() == Code::NoService => std::thread::sleep(RESTART_TIME),
                Err(error) => return Err(error),
            }
            match look(&mut left) {
                Ok(looked) => break looked,
                Err(error) => is_there = Err(error),
            }
        };
    }
}

/// How long to wait before a service that does not answer is asked again.
const RESTART_TIME: Duration = Duration::from_secs(1);

fn ended(job: &Value) -> String {
    let state = JobState::of_name(text(&job["state"])).map_or("", JobState::words);
    match (job["error"]["code"].as_str(), job["error"]["text"].as_str()) {
        (None, _) => state.to_string(),
        (Some(code), None | Some("")) => format!("{state} ({code})"),
        (Some(code), Some(why)) => format!("{state} ({code}): {}", printer::harmless(why)),
    }
}

/// True if the job is over, or has gone on to a later run than the one that was waited for.
fn is_awaited(job: &Value, awaited: Option<u64>) -> bool {
    is_over(job) || awaited.zip(job["run"].as_u64()).is_some_and(|(awaited, run)| run > awaited)
}

/// The line that says what is waited for of a job that repeats.
fn awaited_run(job: &Value) -> String {
    let begins = match job["due"].as_str() {
        Some(due) => format!(", which begins at {due}"),
        None => String::new(),
    };
    format!("{}: it repeats; waiting for the end of run {}{begins}", text(&job["id"]), job["run"])
}

/// A job that repeats, as it was at the end of this run.
fn ended_run(client: &ServiceClient, job: &Value, run: u64) -> Result<Value, Error> {
    let asked = format!("/history?job={}", quoted(text(&job["id"])));
    let records: Value = client.get(&asked)?;
    let record = records["records"].as_array().into_iter().flatten().find(|record| record["run"] == run);
    let mut ended = job.clone();
    // A run that has left no record was none: it was cut short before it began.
    ended["state"] = record.map_or(json!("cancelled"), |record| record["state"].clone());
    ended["run"] = json!(run);
    ended["error"] = match record.and_then(|record| record["error_code"].as_str()) {
        Some(code) => json!({
            "code": code,
            "text": record.map(|record| record["error"].clone()),
            "exit_code": Code::of_name(code).map(|code| code.exit_code() as u8),
        }),
        None => Value::Null,
    };
    Ok(ended)
}

/// The line for a job whose attempt has failed and that is tried again.
fn next_attempt(job: &Value) -> Option<String> {
    let due = job["due"].as_str().filter(|_| job["state"] == "retrying")?;
    let why = printer::harmless(job["error"]["text"].as_str().unwrap_or("the attempt failed"));
    Some(format!("{}: {why}; the next attempt is at {due}", text(&job["id"])))
}

/// Returns the exit code that `farhaul cp` would have ended with.
fn exit_code(job: &Value) -> ExitCode {
    let number = job["error"]["exit_code"].as_u64().and_then(|number| u8::try_from(number).ok());
    let of_error =
        |otherwise| number.map_or(otherwise, |number| ExitCode::of(number).unwrap_or(ExitCode::Internal));
    match JobState::of_name(text(&job["state"])) {
        // All content has arrived; the error may be about metadata, or about files that had gone.
        Some(JobState::Done) => of_error(ExitCode::Ok),
        Some(JobState::PartlyFailed) => ExitCode::SomeFailed,
        Some(JobState::Cancelled) => ExitCode::Interrupted,
        _ => of_error(ExitCode::Internal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_ends_as_the_copy_would_have_ended() {
        let job = |state: &str, code: Option<u8>| json!({"state": state, "error": {"exit_code": code}});
        assert_eq!(exit_code(&job("done", None)), ExitCode::Ok);
        for code in [ExitCode::Metadata, ExitCode::Vanished] {
            assert_eq!(exit_code(&job("done", Some(code as u8))), code);
        }
        assert_eq!(exit_code(&job("partly_failed", Some(1))), ExitCode::SomeFailed);
        assert_eq!(exit_code(&job("failed", Some(ExitCode::Lost as u8))), ExitCode::Lost);
        // A newer service may know a code that this program does not know.
        assert_eq!(exit_code(&job("failed", Some(99))), ExitCode::Internal);
        assert_eq!(exit_code(&job("cancelled", None)), ExitCode::Interrupted);
    }
}
