//! Takes up the jobs that an earlier process has left, also one that died.
//!
//! Always true: a job that somebody has cancelled does not run again; the death of the node is no failure of
//! the job that ran, unless it happens again and again.

use crate::job::JobSteps as _;
use std::sync::atomic::Ordering::Relaxed;

use farhaul::copy::Report;
use farhaul_words::{Code, Error};

use super::transfer::TransferEnd;
use super::{Active, Node, facts};
use crate::clock::{ClockStep, timestamp};
use crate::job::JobStep;
use crate::scheduler::backoff;
use crate::store::{jobs, log};
use farhaul_api::{JobId, JobState};

/// How often the store hears how much a running transfer has moved, in seconds.
const NOTE_EVERY_S: f64 = 2.0;
/// After so many deaths of the node in a row, each further one counts as a failed attempt of the job.
const DEATHS_FREE: u32 = 3;
/// An attempt that was under way for so many seconds is not what kills the node.
const HARMLESS_S: f64 = 600.0;

impl Node {
    /// Takes over the jobs of an earlier process. Those that ran are queued again; content that has arrived
    /// is not sent again.
    pub(super) fn take_up(&self, step_ms: i64) -> Result<(), Error> {
        self.store.write(|transaction| jobs::fill(transaction, facts::form_of))?;
        let now_ms = self.clock.now_ms();
        let step = ClockStep { step_ms, ends_doubt: false };
        let (mut ran, mut unreadable) = (Vec::new(), Vec::new());
        let mut all = self.jobs();
        self.store.read(|connection| {
            jobs::unfinished(connection, |id, read| {
                let mut row = match read {
                    Ok(row) => row,
                    Err(why) => return unreadable.push((id, why)),
                };
                let was_running = row.state == JobState::Running;
                if let Ok(next) = row.state.after(JobStep::Interrupted) {
                    (row.state, row.changed_ms) = (next, now_ms);
                }
                self.last_position.fetch_max(row.position, Relaxed);
                if was_running || row.figures.attempt.is_some() || row.steering.is_cancelled {
                    ran.push((id, was_running));
                }
                let kept = self.accounts.keep_anyway(&row.owner, row.kept_bytes);
                all.insert(id, Active::new(row, 0, kept));
            })
        })?;
        self.store.read(|connection| {
            all.iter_mut().try_for_each(|(id, active)| {
                active.log_seq = log::last(connection, *id)?;
                Ok(())
            })
        })?;
        all.values_mut().for_each(|active| self.follow_clock(active, step, now_ms));
        for (id, was_running) in ran {
            let Some(active) = all.get_mut(&id) else { continue };
            self.after_death(active, was_running, now_ms);
        }
        drop(all);
        unreadable.iter().try_for_each(|(id, why)| self.set_aside(*id, why, now_ms))
    }

    /// Handles a job that had a transfer when the node died.
    fn after_death(&self, active: &mut Active, was_running: bool, now_ms: i64) {
        let row = &mut active.row;
        let figures = &mut row.figures;
        let had_attempt = figures.attempt.is_some();
        let lasted_s = figures.take_attempt();
        if row.steering.is_cancelled {
            self.say(active, "info", "it was cancelled before the service was restarted");
            return self.end_after_death(active, JobStep::Cancel, Error::interrupted(), now_ms);
        }
        figures.deaths = match was_running {
            true if lasted_s < HARMLESS_S => figures.deaths.saturating_add(1),
            true => 0,
            false => figures.deaths,
        };
        let deaths = figures.deaths;
        if deaths <= DEATHS_FREE {
            if was_running || had_attempt {
                row.attempt = row.attempt.saturating_sub(1);
            }
            self.say(active, "info", "the service was restarted; the job goes on from where it was");
            return self.changed(active);
        }
        let what = format!("the service has died {deaths} times in a row while this job ran");
        let error = Error::new(Code::HostFailed, what)
            .with_hint("look at the log of the service and of its host; then farhaul retry ID");
        match backoff::pause(self.retry_of(active), active.row.attempt + 1, now_ms.unsigned_abs()) {
            Some(pause) => {
                let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
                let due_ms = now_ms.saturating_add(pause_ms);
                (active.row.state, active.row.due_ms) = (JobState::Retrying, Some(due_ms));
                active.row.error = Some((&error).into());
                let text = format!("{error}; the next attempt is at {}", timestamp(due_ms));
                self.say(active, "warning", &text);
                self.changed(active);
            }
            None => {
                self.say(active, "warning", &error.to_string());
                // As at any end of an attempt, the job was running.
                active.row.state = JobState::Running;
                active.row.due_ms = self.next_run(active, now_ms);
                let step = if active.row.due_ms.is_some() { JobStep::Repeat } else { JobStep::Broke };
                self.end_after_death(active, step, error, now_ms);
            }
        }
    }

    fn end_after_death(&self, active: &mut Active, step: JobStep, error: Error, now_ms: i64) {
        let state = if step == JobStep::Cancel { JobState::Cancelled } else { JobState::Failed };
        active.row.error = Some((&error).into());
        let report = Report::default().ended_by(Some(&error));
        let end = TransferEnd { job: active.row.id, serial: 0, report, error: Some(error) };
        let over = self.over(active, state, &end, None, now_ms);
        self.finish(active, step, Some(over), now_ms);
    }

    /// Writes from time to time how much a running transfer has moved, so that it is known if the node dies.
    pub(super) fn note_progress(&self, active: &mut Active) {
        let Some(transfer) = &active.transfer else { return };
        let seen = &transfer.seen;
        if seen.seconds < active.noted_s + NOTE_EVERY_S {
            return;
        }
        active.noted_s = seen.seconds;
        active.row.figures.note_attempt(seen, active.facts.as_ref().is_some_and(|facts| facts.head.dry_run));
        let (row, node_ms) = (active.row.clone(), self.node_ms());
        self.store.note(move |transaction| jobs::update(transaction, &row, node_ms));
    }

    /// A job that cannot be read has failed; everything else goes on.
    fn set_aside(&self, id: JobId, why: &str, now_ms: i64) -> Result<(), Error> {
        tracing::error!("{}; it has failed, everything else goes on", jobs::unreadable(id, why));
        let why = why.to_string();
        let node_ms = self.node_ms();
        self.store.write(move |transaction| jobs::set_aside(transaction, id, &why, (now_ms, node_ms)))
    }
}
