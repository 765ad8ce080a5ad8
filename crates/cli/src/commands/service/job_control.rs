//! `farhaul pause`, `resume`, `cancel`, `retry` and `set`.

use std::time::{Duration, Instant};

use farhaul::{Error, ExitCode};
use farhaul_service::{JobState, ServiceClient};
use serde_json::{Value, json};

use super::{client, jobs, quoted};
use crate::args::service::{JobIdsArgs, JobSetArgs};
use crate::ui::printer;

/// A job that is being paused is asked for this often, and for this long.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const HALT_MAX: Duration = Duration::from_secs(15);

/// Does the same with each job that is named. If one is refused, the others are still done.
pub fn act(args: &JobIdsArgs, deed: &str) -> Result<ExitCode, Error> {
    let client = client(&args.answer.api)?;
    let mut done = Vec::new();
    let mut code = ExitCode::Ok;
    for id in &args.ids {
        match client.act::<Value>(&format!("/jobs/{}/{deed}", quoted(id))) {
            Ok(job) => {
                let job = halted(&client, job)?;
                if !args.answer.json && !args.answer.quiet {
                    told(&job);
                }
                done.push(job);
            }
            Err(error) => {
                printer::error(&error, None);
                code = error.exit_code();
            }
        }
    }
    if args.answer.json {
        printer::json(&jobs::as_list(&done))?;
    }
    Ok(code)
}

/// A job that is pausing, once both ends have come to a halt. An end that cannot be heard takes some seconds.
fn halted(client: &ServiceClient, mut job: Value) -> Result<Value, Error> {
    let end = Instant::now() + HALT_MAX;
    while job["state"] == JobState::Pausing.name() && Instant::now() < end {
        std::thread::sleep(LOOK_EVERY);
        job = client.get(&format!("/jobs/{}", quoted(job["id"].as_str().unwrap_or_default())))?;
    }
    Ok(job)
}

pub fn set(args: &JobSetArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let mut change = json!({});
    if let Some(rate) = args.rate {
        change["rate_bps"] = json!(rate);
    }
    if let Some(policy) = args.policy {
        change["policy"] = json!(policy);
    }
    if let Some(priority) = args.priority {
        change["priority"] = json!(priority);
    }
    let job: Value = client.patch(&format!("/jobs/{}", quoted(&args.id)), &change)?;
    if args.answer.json {
        return printer::json(&job);
    }
    if !args.answer.quiet {
        told(&job);
    }
    Ok(())
}

fn told(job: &Value) {
    let state = job["state"].as_str().and_then(JobState::of_name).map_or("", JobState::words);
    let state = if job["is_stopping"] == true { "stopping" } else { state };
    printer::line(&format!("{}: {state}", job["id"].as_str().unwrap_or_default()));
}
