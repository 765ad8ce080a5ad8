//! `farhaul wait`: waits for the ends of jobs, and ends as they did.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::{Code, ErrorDocument, ExitCode};
use farhaul_api::{HistoryPage, HistoryRecord, JobState, JobView, NodeEvent, Word};
use farhaul_service::ServiceClient;

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
    let mut left: BTreeMap<String, Option<u32>> = ids.iter().map(|id| (id.clone(), None)).collect();
    let mut worst = ExitCode::Ok;
    // An event may come twice.
    let mut retried = BTreeSet::new();
    let look = |left: &mut BTreeMap<String, Option<u32>>| -> Result<(u64, Vec<(String, JobView)>), Error> {
        let last = client.last_event()?;
        let mut over = Vec::new();
        for (id, awaited) in left {
            let job: JobView = client.get(&format!("/jobs/{}", quoted(id)))?;
            if !job.is_over && job.repeat.is_some() && awaited.is_none() {
                *awaited = Some(job.run);
                if !quiet {
                    printer::line(&awaited_run(&job));
                }
            }
            if is_awaited(&job, *awaited) {
                let ended = match awaited.filter(|_| !job.is_over) {
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
            let concerns = match NodeEvent::read(&told.kind, &told.data) {
                NodeEvent::Job(job) => left.get(job.id.as_str()).is_some_and(|awaited| {
                    if let Some(line) = next_attempt(&job).filter(|_| !json && !quiet)
                        && retried.insert(line.clone())
                    {
                        printer::line(&line);
                    }
                    is_awaited(&job, *awaited)
                }),
                NodeEvent::Gap => true,
                _ => false,
            };
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

fn ended(job: &JobView) -> String {
    let state = job.state.text_or(JobState::words);
    match &job.error {
        None => state.to_string(),
        Some(error) if error.text.is_empty() => format!("{state} ({})", error.code),
        Some(error) => format!("{state} ({}): {}", error.code, printer::harmless(&error.text)),
    }
}

/// True if the job is over, or has gone on to a later run than the one that was waited for.
fn is_awaited(job: &JobView, awaited: Option<u32>) -> bool {
    job.is_over || awaited.is_some_and(|awaited| job.run > awaited)
}

/// The line that says what is waited for of a job that repeats.
fn awaited_run(job: &JobView) -> String {
    let begins = job.due.map_or(String::new(), |due| format!(", which begins at {due}"));
    format!("{}: it repeats; waiting for the end of run {}{begins}", job.id, job.run)
}

/// A job that repeats, as it was at the end of this run.
fn ended_run(client: &ServiceClient, job: &JobView, run: u32) -> Result<JobView, Error> {
    let page: HistoryPage = client.get(&format!("/history?job={}", job.id))?;
    let record = page.records.into_iter().find(|record| record.run == Some(run));
    // A run that has left no record was none: it was cut short before it began.
    let cut_short = || HistoryRecord { state: JobState::Cancelled.name().into(), ..HistoryRecord::default() };
    let HistoryRecord { state, error, error_code, .. } = record.unwrap_or_else(cut_short);
    let text = error.unwrap_or_default();
    let failure = |code: String| match Code::of_name(&code) {
        Some(known) => ErrorDocument { text: text.clone(), ..ErrorDocument::from(&Error::new(known, &text)) },
        None => ErrorDocument {
            text: text.clone(),
            code,
            exit_code: ExitCode::Internal as u8,
            ..ErrorDocument::default()
        },
    };
    Ok(JobView {
        state: JobState::of_name(&state).map_or(Word::Other(state), Word::Known),
        run,
        error: error_code.map(failure),
        ..job.clone()
    })
}

/// The line for a job whose attempt has failed and that is tried again.
fn next_attempt(job: &JobView) -> Option<String> {
    let due = job.due.filter(|_| job.state == JobState::Retrying)?;
    let why = job.error.as_ref().map_or("the attempt failed", |error| &error.text);
    Some(format!("{}: {}; the next attempt is at {due}", job.id, printer::harmless(why)))
}

/// Returns the exit code that `farhaul cp` would have ended with.
fn exit_code(job: &JobView) -> ExitCode {
    let number = job.error.as_ref().map(|error| error.exit_code);
    exit_code_of(job.state.known(), number)
}

fn exit_code_of(state: Option<JobState>, number: Option<u8>) -> ExitCode {
    let of_error =
        |otherwise| number.map_or(otherwise, |number| ExitCode::of(number).unwrap_or(ExitCode::Internal));
    match state {
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
        let job = |state, code: Option<u8>| exit_code_of(Some(state), code);
        assert_eq!(job(JobState::Done, None), ExitCode::Ok);
        for code in [ExitCode::Metadata, ExitCode::Vanished] {
            assert_eq!(job(JobState::Done, Some(code as u8)), code);
        }
        assert_eq!(job(JobState::PartlyFailed, Some(1)), ExitCode::SomeFailed);
        assert_eq!(job(JobState::Failed, Some(ExitCode::Lost as u8)), ExitCode::Lost);
        // A newer service may know a code, or a state, that this program does not know.
        assert_eq!(job(JobState::Failed, Some(99)), ExitCode::Internal);
        assert_eq!(exit_code_of(None, Some(99)), ExitCode::Internal);
        assert_eq!(job(JobState::Cancelled, None), ExitCode::Interrupted);
    }
}
