//! `farhaul pause`, `resume`, `cancel`, `retry` and `set`.

use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::errors::ExitCode;
use farhaul_api::{JobChange, JobState, JobView};
use farhaul_service::ServiceClient;

use super::{client, quoted};
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
        match client.act::<JobView>(&format!("/jobs/{}/{deed}", quoted(id))) {
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
        printer::json(&done)?;
    }
    Ok(code)
}

/// A job that is pausing, once both ends have come to a halt. An end that cannot be heard takes some seconds.
fn halted(client: &ServiceClient, mut job: JobView) -> Result<JobView, Error> {
    let end = Instant::now() + HALT_MAX;
    while job.state == JobState::Pausing && Instant::now() < end {
        std::thread::sleep(LOOK_EVERY);
        job = client.get(&format!("/jobs/{}", quoted(job.id.as_str())))?;
    }
    Ok(job)
}

pub fn set(args: &JobSetArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    let change = JobChange {
        rate_bps: args.rate,
        policy: args.policy,
        priority: args.priority,
        ..JobChange::default()
    };
    let job: JobView = client.patch(&format!("/jobs/{}", quoted(&args.id)), &change)?;
    if args.answer.json {
        return printer::json(&job);
    }
    if !args.answer.quiet {
        told(&job);
    }
    Ok(())
}

fn told(job: &JobView) {
    let state = if job.is_stopping { "stopping" } else { job.state.text_or(JobState::words) };
    printer::line(&format!("{}: {state}", job.id));
}
