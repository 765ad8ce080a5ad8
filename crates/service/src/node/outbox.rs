//! Decides which programs and webhooks hear when a run begins, goes on and ends, and which message they get.
//!
//! Always true: a message that is made again has the same id; messages for other targets or other runs have
//! other ids.

use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

use super::settings::NodeSettings;
use crate::hooks::webhook::WebhookUrl;
use crate::hooks::{ErrorWords, Hook, HookMessage, HookMoment, JobWords, MESSAGE_SCHEMA, WatchWords};
use crate::job::JobHead;
use crate::store::deliveries::{DeliveryKind, DeliveryRow};
use crate::store::jobs::JobRow;
use farhaul_api::HistoryRecord;
use farhaul_api::JobState;

/// The target of a webhook. The secret is looked up when the message is sent: a message that waits is signed with
/// the secret of that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct WebhookTarget {
    pub(super) url: WebhookUrl,
}

/// The id of a run's message to a target.
fn id_of(row: &JobRow, event: HookMoment, target: &str) -> String {
    let digest = blake3::hash(target.as_bytes());
    let short: String = digest.as_bytes()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{}.{event}.{short}", row.id, row.run)
}

/// The id of a run's message to a program.
pub(super) fn hook_id(row: &JobRow, hook: &Hook) -> String {
    id_of(row, hook.on, &json(&hook.program()))
}

/// The job in the form that programs get, in the given state.
pub(super) fn words(
    (row, head): (&JobRow, &JobHead),
    state: JobState,
    files: u64,
    bytes: u64,
    failed: u64,
) -> JobWords {
    JobWords {
        id: row.id.to_string(),
        run: row.run.into(),
        state: state.name().into(),
        labels: head.labels.0.clone(),
        sources: head.sources.clone(),
        source_count: head.source_count,
        destination: head.destination.clone(),
        dry_run: head.dry_run,
        files,
        bytes,
        failed,
        deleted: row.figures.deleted,
    }
}

pub(super) fn message(event: HookMoment, delivery: String, at_ms: i64, job: JobWords) -> HookMessage {
    let (watch, files, error) = (None, Vec::new(), None);
    HookMessage { schema: MESSAGE_SCHEMA, event, delivery, at_ms, job, watch, files, error }
}

/// The hooks that run for this job at this moment.
pub(super) fn hooks_of<'a>(
    settings: &'a NodeSettings,
    head: &'a JobHead,
    when: HookMoment,
) -> impl Iterator<Item = &'a Hook> + 'a {
    settings.hooks.iter().filter(move |hook| hook.on == when && hook.is_for(&head.labels.0, head.dry_run))
}

/// The deliveries of a run that has ended. `row` is the job as it was in the run. `is_told` says that others know
/// already that files of the job's watch fail: then a run that brings nothing, for a reason that passes, is no news.
pub(super) fn of_end(
    settings: &NodeSettings,
    (row, head): (&JobRow, &JobHead),
    record: &HistoryRecord,
    state: JobState,
    is_told: bool,
) -> Vec<DeliveryRow> {
    let passes = row.error.as_ref().is_some_and(|error| error.retryable);
    if is_told && passes && record.files == 0 && matches!(state, JobState::Failed | JobState::PartlyFailed) {
        return Vec::new();
    }
    let event = match state {
        JobState::Done | JobState::PartlyFailed => HookMoment::Post,
        _ => HookMoment::Fail,
    };
    let job = words((row, head), state, record.files, record.bytes, record.files_failed);
    let error = match (&record.error_code, &record.error) {
        (Some(code), Some(what)) => Some(ErrorWords { code: code.clone(), what: what.clone() }),
        _ if state == JobState::PartlyFailed => {
            let what = format!("{} entries failed", record.files_failed);
            Some(ErrorWords::of(Code::FilesFailed, what))
        }
        _ => None,
    };
    // Whoever cancels a job knows it, so only the webhook that the job names hears of that.
    let all = state != JobState::Cancelled;
    deliveries(settings, (row, head), (event, record.ended_ms), (job, None, error), all)
}

/// The deliveries of a message to all hooks and webhooks of the configuration that it is for, unless `all` is
/// false, and to the webhook that the job names.
fn deliveries(
    settings: &NodeSettings,
    (row, head): (&JobRow, &JobHead),
    (event, at_ms): (HookMoment, i64),
    (job, watch, error): (JobWords, Option<WatchWords>, Option<ErrorWords>),
    all: bool,
) -> Vec<DeliveryRow> {
    let delivery = |kind, id: String, target: String| {
        let told = HookMessage {
            watch: watch.clone(),
            error: error.clone(),
            ..message(event, id.clone(), at_ms, job.clone())
        };
        let (job, run) = (row.id.to_string(), row.run);
        DeliveryRow { id, job, run, kind, target, body: json(&told), attempt: 0, due_ms: at_ms }
    };
    let webhook = |url: &WebhookUrl| {
        let target = WebhookTarget { url: url.clone() };
        delivery(DeliveryKind::Webhook, id_of(row, event, &json(url)), json(&target))
    };
    let mut found = Vec::new();
    if all {
        for hook in hooks_of(settings, head, event) {
            found.push(delivery(DeliveryKind::Program, hook_id(row, hook), json(hook)));
        }
        let receivers = settings.webhooks.receivers.iter();
        let chosen = receivers.filter(|one| one.is_for(event, &head.labels.0, head.dry_run));
        found.extend(chosen.map(|one| webhook(&one.url)));
    }
    if let Some(Ok(url)) = head.told_webhook().map(str::parse::<WebhookUrl>) {
        found.push(webhook(&url));
    }
    found
}

/// The deliveries that tell of a deadline that will not be kept, as things stand.
pub(super) fn of_late(
    settings: &NodeSettings,
    (row, head): (&JobRow, &JobHead),
    now_ms: i64,
    error: &ErrorWords,
) -> Vec<DeliveryRow> {
    let job = words((row, head), row.state, row.figures.files, row.figures.bytes, 0);
    deliveries(settings, (row, head), (HookMoment::Late, now_ms), (job, None, Some(error.clone())), true)
}

/// The deliveries that tell how the files of a watched folder stand. `row` is the job by which that has changed.
pub(super) fn of_watch(
    settings: &NodeSettings,
    (row, head): (&JobRow, &JobHead),
    (event, now_ms): (HookMoment, i64),
    watch: WatchWords,
    error: Option<ErrorWords>,
) -> Vec<DeliveryRow> {
    let job = words((row, head), row.state, row.figures.files, row.figures.bytes, 0);
    deliveries(settings, (row, head), (event, now_ms), (job, Some(watch), error), true)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Checks the webhook that a job names.
pub(super) fn check_webhook(text: Option<&str>) -> Result<(), Error> {
    match text.map(str::parse::<WebhookUrl>) {
        Some(Err(what)) => Err(Error::new(Code::BadOption, what)),
        Some(Ok(_)) | None => Ok(()),
    }
}
