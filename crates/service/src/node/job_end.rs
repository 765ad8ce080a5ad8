//! The end of a job's transfer: the step that the job takes, and the record that is kept.

use crate::job::JobSteps as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use farhaul::copy::Report;
use farhaul_words::Error;
use rusqlite::Transaction;

use super::transfer::{StopReason, TransferEnd};
use super::{Active, Node, Signal, outbox};
use crate::clock::timestamp;
use crate::job::{JobStep, RetryRule};
use crate::metrics::{DirectionLabel, Metrics, OriginLabel, WebhookDrop};
use crate::scheduler::backoff::{self, AttemptOutcome};
use crate::store::deliveries::{self, DeliveryKind, DeliveryRow};
use crate::store::feeds;
use crate::store::history::{self, RecordPapers};
use crate::store::jobs::{JobFacts, RunFigures};
use crate::store::log;
use farhaul_api::HistoryRecord;
use farhaul_api::JobState;

impl Node {
    /// Handles the end of a transfer: the job takes the step that follows.
    pub(super) fn ended(&self, mut end: TransferEnd) {
        let mut jobs = self.jobs();
        let Some(active) = jobs.get_mut(&end.job) else { return };
        if active.transfer.as_ref().is_none_or(|transfer| transfer.serial != end.serial) {
            return;
        }
        self.write_heard(active);
        let Some(transfer) = active.transfer.take() else { return };
        let now_ms = self.clock.now_ms();
        if let Some(error) = transfer.no_answer(active.row.peer.as_deref(), end.error.as_ref()) {
            end.report = std::mem::take(&mut end.report).ended_by(Some(&error));
            end.error = Some(error);
        }
        active.row.figures.add(&end.report, transfer.curve.peak_bps);
        active.row.error = why(end.error.as_ref(), &end.report).as_ref().map(Into::into);
        self.metrics.attempt_ended(Some(&end.report), end.error.as_ref());
        let step = self.next_step(active, &end, transfer.stop, now_ms);
        if step == JobStep::Stop {
            end.error = self.judge_owner(&active.row.owner).err().or(end.error);
            active.row.error = end.error.as_ref().map(Into::into);
        }
        if end.error.is_none() && !end.report.dry_run {
            active.row.steering.source_root = end.report.source_root.or(active.row.steering.source_root);
        }
        self.tell_end(active, step, &end);
        self.tell_dry_run(active, &end);
        let is_run_over = ends_run(step);
        let over = is_run_over.then(|| {
            let state = run_state(step, &end);
            let curve =
                serde_json::to_string(&transfer.curve.points()).ok().filter(|_| self.settings().curves);
            self.over(active, state, &end, curve, now_ms)
        });
        self.finish(active, step, over, now_ms);
        drop(jobs);
        self.look();
    }

    /// Handles a job whose transfer could not even be started.
    pub(super) fn failed_to_start(&self, active: &mut Active, error: &Error) {
        let now_ms = self.clock.now_ms();
        active.row.figures.attempt = None;
        self.say(active, "warning", &error.to_string());
        active.row.error = Some(error.into());
        let report = Report::default().ended_by(Some(error));
        let end = TransferEnd { job: active.row.id, serial: 0, report, error: Some(error.clone()) };
        self.metrics.attempt_ended(None, Some(error));
        let step = self.next_step(active, &end, None, now_ms);
        let is_run_over = matches!(step, JobStep::Broke | JobStep::Repeat);
        let over = is_run_over.then(|| self.over(active, JobState::Failed, &end, None, now_ms));
        self.finish(active, step, over, now_ms);
    }

    fn next_step(
        &self,
        active: &mut Active,
        end: &TransferEnd,
        stop: Option<StopReason>,
        now_ms: i64,
    ) -> JobStep {
        let outcome = backoff::judge(&end.report, end.error.as_ref());
        match (stop, outcome) {
            (_, AttemptOutcome::Arrived) => {}
            (Some(StopReason::Cancel), _) => return JobStep::Cancel,
            (Some(StopReason::OwnerOver), _) => return JobStep::Stop,
            (Some(StopReason::Interrupt), _) => {
                // The attempt did not fail, so it does not count.
                active.row.attempt = active.row.attempt.saturating_sub(1);
                active.row.error = None;
                return JobStep::Interrupted;
            }
            (
                None | Some(StopReason::NoAnswer),
                AttemptOutcome::Partly { may_mend: true } | AttemptOutcome::Broke { may_mend: true },
            ) => {
                let seed = now_ms.unsigned_abs();
                if let Some(pause) = backoff::pause(self.retry_of(active), active.row.attempt + 1, seed) {
                    let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
                    active.row.due_ms = Some(now_ms.saturating_add(pause_ms));
                    return JobStep::BrokeForNow;
                }
            }
            (None | Some(StopReason::NoAnswer), _) => {}
        }
        if let Some(due_ms) = self.next_run(active, now_ms).filter(|_| stop != Some(StopReason::Cancel)) {
            active.row.due_ms = Some(due_ms);
            return JobStep::Repeat;
        }
        match outcome {
            AttemptOutcome::Arrived => JobStep::Arrived,
            AttemptOutcome::Partly { .. } => JobStep::ArrivedPartly,
            AttemptOutcome::Broke { .. } => JobStep::Broke,
        }
    }

    /// By which rule it is tried again.
    pub(super) fn retry_of(&self, active: &Active) -> RetryRule {
        let asked = self.facts(active).ok().and_then(|facts| facts.head.retry);
        RetryRule::of_job(asked.unwrap_or_default(), self.settings().retry)
    }

    /// When a repeating job runs again; `None` if it does not.
    pub(super) fn next_run(&self, active: &Active, now_ms: i64) -> Option<i64> {
        let calendar = self.calendar_of(active)?;
        let began = timestamp(active.row.began_ms.unwrap_or(now_ms));
        Some(calendar.next(began, began)?.as_millisecond())
    }

    /// Takes the step and updates the row. The record and the deliveries of a run that is over are written in
    /// the same transaction.
    pub(super) fn finish(&self, active: &mut Active, step: JobStep, over: Option<FinishedRun>, now_ms: i64) {
        if step == JobStep::Repeat {
            let row = &mut active.row;
            (row.run, row.attempt, row.began_ms, row.finish_by_ms) = (row.run + 1, 0, None, None);
            row.figures = RunFigures::default();
            row.steering.begin_run();
        }
        let is_held = matches!(active.row.state, JobState::Pausing | JobState::Paused);
        if is_held && step == JobStep::BrokeForNow {
            // Whoever resumes it wants the next attempt at once.
            active.row.due_ms = None;
        }
        if ends_run(step) {
            active.row.steering.is_cancelled = false;
            active.row.ended_ms = Some(now_ms);
        }
        match active.row.state.after(step) {
            Ok(state) => active.row.state = state,
            Err(refused) => {
                tracing::error!(job = %active.row.id, %refused, "this is a fault of farhaul itself: please report it");
            }
        }
        let is_told = over.is_some();
        self.changed_and(active, move |transaction| match &over {
            Some(over) => over.write(transaction),
            None => Ok(()),
        });
        if is_told {
            self.ring_when_stored();
        }
        // The store has them; they are needed again when the next attempt begins.
        (active.facts, active.room, active.waits_for) = (None, None, None);
        if active.row.state.is_final() {
            // The job leaves memory only when the store has it, so that it can always be found.
            let (id, to_conductor) = (active.row.id, self.to_conductor.clone());
            self.store.then(move || {
                let _ = to_conductor.send(Signal::Stored(id));
            });
        }
    }

    fn tell_end(&self, active: &mut Active, step: JobStep, end: &TransferEnd) {
        let pause = |active: &Active| {
            let due = active.row.due_ms.map(timestamp);
            due.map_or(String::new(), |due| due.to_string())
        };
        if let (None, Some(error)) = (&end.error, end.report.shortfall()) {
            self.say(active, "warning", &format!("nothing has failed, but {error}"));
        } else if let (None, Some(error)) = (&end.error, end.report.failures()) {
            self.say(active, "warning", &error.to_string());
        }
        self.tell_deleted(active, end);
        match step {
            JobStep::BrokeForNow => {
                let why =
                    why(end.error.as_ref(), &end.report).map(|error| error.to_string()).unwrap_or_default();
                let text = format!(
                    "attempt {} failed: {why}; the next attempt is at {}",
                    active.row.attempt,
                    pause(active)
                );
                self.say(active, "warning", &text);
            }
            JobStep::Repeat => {
                let is_held = matches!(active.row.state, JobState::Pausing | JobState::Paused);
                let text = match is_held {
                    true => format!("run {} has ended; the job stays paused", active.row.run),
                    false => {
                        format!("run {} has ended; the next run is at {}", active.row.run, pause(active))
                    }
                };
                self.say(active, "info", &text);
            }
            JobStep::Stop => {
                let why = end.error.as_ref().map(ToString::to_string).unwrap_or_default();
                self.say(active, "warning", &why);
            }
            _ => {}
        }
    }

    /// Says in the log what was deleted, or why nothing was, and how much was kept under another name.
    fn tell_deleted(&self, active: &mut Active, end: &TransferEnd) {
        let report = &end.report;
        if let Some(stop) = &report.deletion_stop {
            self.say(active, "warning", &stop.error(report.dry_run).to_string());
        } else if report.deleted > 0 {
            let more = if report.deleted > report.deleted_names.len() as u64 { ", ..." } else { "" };
            let (deleted, names) = (report.deleted, report.deleted_names.join(", "));
            let would = if report.dry_run { "would be" } else { "were" };
            self.say(active, "info", &format!("{deleted} entries {would} deleted: {names}{more}"));
        }
        if report.backups > 0 {
            let (backups, would) = (report.backups, if report.dry_run { "would be" } else { "were" });
            self.say(active, "info", &format!("{backups} entries {would} kept under another name"));
        }
    }

    /// Says in the log of a dry run that it was one, and who does not hear of it.
    fn tell_dry_run(&self, active: &mut Active, end: &TransferEnd) {
        let Ok(facts) = self.facts(active) else { return };
        if !facts.head.dry_run {
            return;
        }
        let (files, bytes) = (end.report.files, end.report.session.bytes);
        let mut text =
            format!("this was a dry run, which changes nothing: {files} files of {bytes} bytes would arrive");
        if facts.head.webhook.is_some() && facts.head.told_webhook().is_none() {
            text += "; the webhook is not told";
        }
        self.say(active, "info", &text);
    }

    /// Makes the record and the deliveries of a run that has ended, and counts it.
    pub(super) fn over(
        &self,
        active: &Active,
        state: JobState,
        end: &TransferEnd,
        curve: Option<String>,
        now_ms: i64,
    ) -> FinishedRun {
        let row = &active.row;
        // A job that cannot be read has a record, too.
        let facts = self.facts(active).unwrap_or_else(|_| Arc::new(JobFacts::unknown()));
        let report = &end.report;
        let error = why(end.error.as_ref(), report);
        let figures = &row.figures;
        self.metrics.transfer_ended(
            OriginLabel::Job,
            DirectionLabel::of_job(&facts.head.direction),
            state,
            figures.seconds,
        );
        if row.finish_by_ms.is_some_and(|by| by < now_ms) {
            self.metrics.deadline_missed();
        }
        let record = HistoryRecord {
            id: 0,
            job: Some(row.id.to_string()),
            run: Some(row.run),
            owner: row.owner.clone(),
            direction: facts.head.direction.clone(),
            source: facts.head.source_line(),
            destination: facts.head.destination.clone(),
            peer: row.peer.clone(),
            state: state.name().into(),
            dry_run: facts.head.dry_run,
            began_ms: row.began_ms.unwrap_or(now_ms).min(now_ms),
            ended_ms: now_ms,
            attempts: row.attempt,
            files: figures.files,
            files_failed: report.failed_count,
            deleted: figures.deleted,
            bytes: figures.bytes,
            wire_bytes: figures.wire_bytes,
            mean_bps: figures.bytes as f64 * 8.0 / figures.seconds.max(1e-9),
            peak_bps: figures.peak_bps.max(figures.bytes as f64 * 8.0 / figures.seconds.max(1e-9)),
            loss_fraction: report.session.loss_fraction,
            rtt_ms: report.session.rtt_mean_ms,
            verdict: report.session.bottleneck.clone(),
            tree_root: report.tree_root.clone(),
            error_code: error.as_ref().map(|error| error.code().name().to_string()),
            error: error.as_ref().map(ToString::to_string),
        };
        let receipt = report.receipt.as_ref().and_then(|receipt| serde_json::to_string(receipt).ok());
        let papers = RecordPapers { report: serde_json::to_string(report).ok(), curve, receipt };
        let watch = facts.head.labels.0.get(super::watches::LABEL);
        let is_told = watch.is_some_and(|watch| self.watches.is_told(watch, &row.owner));
        let deliveries = outbox::of_end(&self.settings(), (row, &facts.head), &record, state, is_told);
        let node_ms = self.node_ms();
        FinishedRun {
            job: row.id.to_string(),
            run: row.run,
            record,
            papers,
            node_ms,
            is_recorded: true,
            deliveries,
            left_out: LeftOutCount { metrics: self.metrics.clone(), counted: AtomicU64::new(0) },
        }
    }
}

/// A run that is over: its record and its deliveries, which are written in one transaction with the job's new
/// state.
pub(super) struct FinishedRun {
    job: String,
    run: u32,
    record: HistoryRecord,
    papers: RecordPapers,
    node_ms: i64,
    is_recorded: bool,
    deliveries: Vec<DeliveryRow>,
    left_out: LeftOutCount,
}

/// Counts the webhooks that are left out, once also if the transaction is made again.
struct LeftOutCount {
    metrics: Arc<Metrics>,
    counted: AtomicU64,
}

impl LeftOutCount {
    fn set(&self, count: u64) {
        let before = self.counted.fetch_max(count, Relaxed);
        self.metrics.webhooks_dropped(WebhookDrop::QueueFull, count.saturating_sub(before));
    }
}

impl FinishedRun {
    /// Keeps no record: the run has never begun.
    pub(super) fn leave_no_record(&mut self) {
        self.is_recorded = false;
    }

    fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        if self.is_recorded {
            history::insert(transaction, &self.record, &self.papers, self.node_ms)?;
        }
        feeds::finish(transaction, &self.job, self.run)?;
        let mut left_out = 0;
        for one in &self.deliveries {
            let is_webhook = one.kind == DeliveryKind::Webhook;
            if is_webhook
                && !deliveries::has_room(transaction, &self.record.owner, deliveries::WAITING_EACH_MAX)?
            {
                let text = format!(
                    "a webhook is not called: {} messages of {} wait for their receivers",
                    deliveries::WAITING_EACH_MAX,
                    self.record.owner
                );
                tracing::warn!(job = self.job, "{text}");
                if let Ok(job) = self.job.parse() {
                    let now_ms = self.record.ended_ms;
                    log::append_last(transaction, job, now_ms, ("warning", &text, "{}"), super::LOG_MAX)?;
                }
                left_out += 1;
                continue;
            }
            deliveries::insert(transaction, one)?;
        }
        self.left_out.set(left_out);
        Ok(())
    }
}

/// Why not everything is as it should be: the transfer has ended early, or something is missing in the end.
fn why(error: Option<&Error>, report: &Report) -> Option<Error> {
    error.cloned().or_else(|| report.shortfall()).or_else(|| report.failures())
}

/// True if the job's run is over with this step.
fn ends_run(step: JobStep) -> bool {
    match step {
        JobStep::Arrived
        | JobStep::ArrivedPartly
        | JobStep::Broke
        | JobStep::Cancel
        | JobStep::Stop
        | JobStep::Repeat => true,
        JobStep::Due
        | JobStep::Start
        | JobStep::Pause
        | JobStep::Halted
        | JobStep::Resume(_)
        | JobStep::BrokeForNow
        | JobStep::Interrupted
        | JobStep::Retry
        | JobStep::TakeOver { .. } => false,
    }
}

/// The state in which a run has ended.
fn run_state(step: JobStep, end: &TransferEnd) -> JobState {
    match step {
        JobStep::Cancel => JobState::Cancelled,
        JobStep::Stop => JobState::Stopped,
        _ => match backoff::judge(&end.report, end.error.as_ref()) {
            AttemptOutcome::Arrived => JobState::Done,
            AttemptOutcome::Partly { .. } => JobState::PartlyFailed,
            AttemptOutcome::Broke { .. } => JobState::Failed,
        },
    }
}
