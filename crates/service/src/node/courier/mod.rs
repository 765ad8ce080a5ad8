//! The thread that notifies hooks and webhooks: it takes what is due from the store, runs programs and
//! delivers webhooks, and writes the outcome back.
//!
//! Always true: every delivery in the store is made, also after a restart; the number of programs and
//! webhooks at a time is bounded; for one job, one program runs at a time, in the order of events. The thread
//! sleeps while nothing is due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_words::Error;
use serde_json::json;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::hook_feed::{FeedStep, HookBatchPart, HookFeed};
use super::manifests::manifest_path;
use super::outbox::{self, WebhookTarget};
use super::webhook_places::{WEBHOOKS_MAX, WebhookPlaces};
use super::{Node, programs};
use crate::hooks::webhook::{
    ATTEMPTS_MAX, DeliveryOutcome, SystemResolver, WebhookDelivery as Post, WebhookSecret, WebhookSender,
    WebhookSettings, pause,
};
use crate::hooks::{self, Hook, HookMessage, HookMoment, ProgramEnd, ProgramStop};
use crate::metrics::WebhookDrop;
use crate::scheduler::backoff;
use crate::store::deliveries::{self, DeliveryRow};
use crate::store::{feeds, jobs};
use farhaul_api::{JobId, JobState};

/// The most programs that run at a time.
const PROGRAMS_MAX: usize = 4;
/// The most feeds that are served at a time; further ones wait until some of these are over.
const FEEDS_MAX: usize = 256;
/// A webhook that is due later than this counts as due: no pause is that long, so the clock was set back.
const AHEAD_MS: i64 = 2 * 86_400_000;
/// How often to look at the clock while something is due later: it may be set.
const CLOCK_EVERY: Duration = Duration::from_secs(60);
/// How long to wait before asking the store again after it has failed.
const AGAIN: Duration = Duration::from_secs(10);
/// How long programs may take to stop when the service ends: a little more than the time between SIGTERM and
/// SIGKILL.
const STOP_TIME: Duration = Duration::from_secs(7);

/// Wakes the courier.
#[derive(Debug, Clone, Default)]
pub(super) struct CourierBell(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    notify: Notify,
    is_over: AtomicBool,
}

impl CourierBell {
    /// Wakes it: there may be something to deliver.
    pub(super) fn ring(&self) {
        self.0.notify.notify_one();
    }
}

/// The thread.
pub(super) struct Courier {
    thread: JoinHandle<()>,
    bell: CourierBell,
    stop: ProgramStop,
}

impl Courier {
    pub(super) fn start(node: &Arc<Node>) -> Result<Courier, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(PROGRAMS_MAX + 2)
            .thread_keep_alive(Duration::from_secs(10))
            .enable_all()
            .build()
            .map_err(Error::no_thread)?;
        let stop = ProgramStop::new().map_err(Error::io("cannot make the event that stops hooks"))?;
        let (to_work, done) = unbounded_channel();
        let work = Work {
            node: node.clone(),
            stop: stop.clone(),
            to_work,
            under_way: BTreeSet::new(),
            jobs: BTreeSet::new(),
            programs: 0,
            webhooks: WebhookPlaces::default(),
            feeds: BTreeMap::new(),
            sender: None,
            began: Instant::now(),
        };
        let run = move || {
            runtime.block_on(work.run(done));
            runtime.shutdown_timeout(STOP_TIME);
        };
        let thread =
            std::thread::Builder::new().name("courier".into()).spawn(run).map_err(Error::no_thread)?;
        Ok(Courier { thread, bell: node.bell.clone(), stop })
    }

    /// Ends the thread. Deliveries that it was making are made again by the next process.
    pub(super) fn end(self) {
        self.bell.0.is_over.store(true, Relaxed);
        self.stop.stop();
        self.bell.ring();
        let _ = self.thread.join();
    }
}

/// The result of work that has ended.
enum CourierResult {
    Webhook(DeliveryRow, DeliveryOutcome),
    Program(DeliveryRow, Hook, Result<ProgramEnd, Error>),
    Batch(String, u64, Hook, String, Result<ProgramEnd, Error>),
    /// The store has the outcome of the delivery with this id.
    Stored(String),
    /// The store knows that a batch of this feed was delivered.
    Advanced(String),
}

struct Work {
    node: Arc<Node>,
    stop: ProgramStop,
    to_work: UnboundedSender<CourierResult>,
    /// Deliveries whose outcome is not in the store yet.
    under_way: BTreeSet<String>,
    /// Jobs for which a program runs.
    jobs: BTreeSet<String>,
    programs: usize,
    webhooks: WebhookPlaces,
    feeds: BTreeMap<String, HookFeed>,
    /// The sender, and the settings that it was made for.
    sender: Option<(WebhookSettings, Arc<WebhookSender>)>,
    began: Instant,
}

impl Work {
    async fn run(mut self, mut done: UnboundedReceiver<CourierResult>) {
        let bell = self.node.bell.clone();
        while !bell.0.is_over.load(Relaxed) {
            let wait = self.tell_due().unwrap_or_else(|error| {
                tracing::error!(%error, "cannot read from the store what to deliver");
                Some(AGAIN)
            });
            let sleep = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = bell.0.notify.notified() => {}
                one = done.recv() => self.take(one),
                () = sleep => {}
            }
            while let Ok(one) = done.try_recv() {
                self.take(Some(one));
            }
        }
    }

    /// Begins what is due, as far as there is room. Yields how long to wait for the next that is due.
    fn tell_due(&mut self) -> Result<Option<Duration>, Error> {
        let files = self.tell_files()?;
        self.run_programs()?;
        let webhooks = self.send_webhooks()?;
        Ok([files, webhooks].into_iter().flatten().min())
    }

    fn run_programs(&mut self) -> Result<(), Error> {
        if self.programs >= PROGRAMS_MAX {
            return Ok(());
        }
        let count = PROGRAMS_MAX + self.jobs.len() + self.under_way.len();
        for one in self.node.store.read(|connection| deliveries::open_programs(connection, count))? {
            let is_taken = self.under_way.contains(&one.id) || self.jobs.contains(&one.job);
            if is_taken || self.programs >= PROGRAMS_MAX {
                continue;
            }
            let parsed = serde_json::from_str::<Hook>(&one.target)
                .and_then(|hook| Ok((hook, serde_json::from_str::<HookMessage>(&one.body)?)));
            let (hook, message) = match parsed {
                Ok(parsed) => parsed,
                Err(error) => {
                    self.close(&one, &format!("the delivery cannot be read: {error}"));
                    continue;
                }
            };
            self.under_way.insert(one.id.clone());
            self.jobs.insert(one.job.clone());
            self.programs += 1;
            let (stop, to_work) = (self.stop.clone(), self.to_work.clone());
            tokio::task::spawn_blocking(move || {
                let ran = run(&hook, &message, &stop);
                let _ = to_work.send(CourierResult::Program(one, hook, ran));
            });
        }
        Ok(())
    }

    fn send_webhooks(&mut self) -> Result<Option<Duration>, Error> {
        let now_ms = self.node.clock.now_ms();
        let (places, under_way) = (&mut self.webhooks, &self.under_way);
        // A message that nobody can read takes no place; it is closed below.
        let choose = |id: &str, target: &str| {
            let is_free = |target: WebhookTarget| places.take(&target.url);
            !under_way.contains(id) && serde_json::from_str(target).map_or(true, is_free)
        };
        let due = |connection: &rusqlite::Connection| {
            deliveries::due_webhooks(connection, now_ms, AHEAD_MS, WEBHOOKS_MAX, choose)
        };
        for one in self.node.store.read(due)? {
            let target = match serde_json::from_str::<WebhookTarget>(&one.target) {
                Ok(target) => target,
                Err(error) => {
                    self.node.metrics.webhooks_dropped(WebhookDrop::Unreadable, 1);
                    self.close(&one, &format!("the delivery cannot be read: {error}"));
                    continue;
                }
            };
            self.under_way.insert(one.id.clone());
            let (sender, to_work) = (self.sender(), self.to_work.clone());
            let secret = self.node.settings().webhooks.secret_for(&target.url);
            let unix_s = now_ms.div_euclid(1000);
            tokio::spawn(async move {
                let outcome = match sender.and_then(|sender| Ok((sender, secret?))) {
                    Ok((sender, secret)) => post(&sender, &one, &target, secret.as_ref(), unix_s).await,
                    Err(error) => DeliveryOutcome::Retry { why: error.to_string(), after: None },
                };
                let _ = to_work.send(CourierResult::Webhook(one, outcome));
            });
        }
        let next = self.node.store.read(|connection| deliveries::next_webhook(connection, now_ms))?;
        Ok(next.map(|next| {
            let wait = u64::try_from(next.saturating_sub(now_ms)).unwrap_or(0);
            Duration::from_millis(wait).min(CLOCK_EVERY)
        }))
    }

    /// The sender. It is made anew when the settings have changed.
    fn sender(&mut self) -> Result<Arc<WebhookSender>, Error> {
        let settings = self.node.settings();
        if let Some((made_by, sender)) = &self.sender
            && *made_by == settings.webhooks
        {
            return Ok(sender.clone());
        }
        let sender = Arc::new(WebhookSender::new(settings.webhooks.config(), Box::new(SystemResolver))?);
        self.sender = Some((settings.webhooks.clone(), sender.clone()));
        Ok(sender)
    }

    // ---- files -----------------------------------------------------------------------------------------------------

    fn tell_files(&mut self) -> Result<Option<Duration>, Error> {
        let rows = self.node.store.read(|connection| feeds::list(connection, FEEDS_MAX))?;
        let there: BTreeSet<String> = rows.iter().map(|row| row.id.clone()).collect();
        self.feeds.retain(|id, feed| feed.is_busy || there.contains(id));
        // Looked at after the rows: a row of a new attempt is there only while, or after, its manifest is renewed.
        let renewals = self.node.renewals.lock().in_any_case().clone();
        let mut wait: Option<Duration> = None;
        for row in rows {
            let id = row.id.clone();
            let feed = self.feeds.entry(id.clone()).or_insert_with(|| HookFeed::new(row.clone()));
            if feed.is_busy {
                continue;
            }
            feed.follow(row);
            let is_renewed = feed.row.job.parse().is_ok_and(|job: JobId| renewals.contains(&job));
            if is_renewed || self.programs >= PROGRAMS_MAX || self.jobs.contains(&feed.row.job) {
                continue;
            }
            let manifest = manifest_path(&self.node.folder, &feed.row.job, feed.row.run);
            let now = self.began.elapsed();
            match feed.next(&manifest, now) {
                FeedStep::Wait(due) => {
                    let due = due.map(|due| due.saturating_sub(now));
                    wait = wait.into_iter().chain(due).min();
                }
                FeedStep::Over => {
                    feed.is_busy = true;
                    let serial = feed.row.serial;
                    self.node.store.later({
                        let id = id.clone();
                        move |transaction| feeds::remove(transaction, &id, serial)
                    });
                    self.when_stored(CourierResult::Advanced(id));
                }
                FeedStep::Tell(told) => self.tell_batch(&id, told)?,
            }
        }
        Ok(wait)
    }

    fn tell_batch(&mut self, id: &str, told: HookBatchPart) -> Result<(), Error> {
        let Some(feed) = self.feeds.get_mut(id) else { return Ok(()) };
        let serial = feed.row.serial;
        if let Some(to_at) = told.to_fix {
            let id = id.to_string();
            // The batch's end is stored first, so that a later process delivers the same batch. If it cannot
            // be stored, the feed begins again from what the store has.
            let row = feed.row.clone();
            let is_fixed =
                self.node.store.write(move |transaction| feeds::fix(transaction, &id, serial, to_at));
            if !matches!(is_fixed, Ok(true)) {
                *feed = HookFeed::new(row);
                return is_fixed.map(|_| ());
            }
        } else {
            // If the manifest was begun anew meanwhile, this batch is not of it any more.
            let now = self.node.store.read(|connection| feeds::serial(connection, id))?;
            if now != Some(serial) {
                self.feeds.remove(id);
                self.node.bell.ring();
                return Ok(());
            }
        }
        feed.is_busy = true;
        feed.is_recovering = told.to_fix.is_none();
        let (hook, job) = (feed.row.hook.clone(), feed.row.job.clone());
        let delivery = format!("{id}.{}", told.number);
        let message = HookMessage { files: told.files, ..self.file_message(&job, delivery.clone()) };
        self.jobs.insert(job);
        self.programs += 1;
        let (stop, to_work, id) = (self.stop.clone(), self.to_work.clone(), id.to_string());
        tokio::task::spawn_blocking(move || {
            let ran = run(&hook, &message, &stop);
            let _ = to_work.send(CourierResult::Batch(id, serial, hook, delivery, ran));
        });
        Ok(())
    }

    /// The message for files, with the job as it is now.
    fn file_message(&self, job: &str, delivery: String) -> HookMessage {
        let now_ms = self.node.clock.now_ms();
        let job = job.parse::<JobId>().ok().and_then(|id| self.node.words_now(id)).unwrap_or_default();
        outbox::message(HookMoment::File, delivery, now_ms, job)
    }

    // ---- what came of it -------------------------------------------------------------------------------------------

    fn take(&mut self, done: Option<CourierResult>) {
        match done {
            None => {}
            Some(CourierResult::Stored(id)) => drop(self.under_way.remove(&id)),
            Some(CourierResult::Advanced(id)) => {
                // Entries that were read ahead stay; but after a batch of an earlier process the feed begins
                // again from the store.
                self.feeds.retain(|there, feed| *there != id || !feed.is_recovering);
                if let Some(feed) = self.feeds.get_mut(&id) {
                    feed.is_busy = false;
                }
            }
            Some(CourierResult::Webhook(one, outcome)) => {
                if let Ok(target) = serde_json::from_str::<WebhookTarget>(&one.target) {
                    let is_taken = !matches!(outcome, DeliveryOutcome::Retry { .. });
                    self.webhooks.give_back(&target.url, is_taken);
                }
                self.after_webhook(&one, outcome);
            }
            Some(CourierResult::Program(one, hook, ran)) => {
                self.programs -= 1;
                self.jobs.remove(&one.job);
                if self.log_run(&one.job, &one.id, &hook, &ran) {
                    let outcome = ran.map_or_else(|error| error.to_string(), |finished| finished.verdict());
                    self.close(&one, &outcome);
                }
            }
            Some(CourierResult::Batch(id, serial, hook, delivery, ran)) => {
                self.programs -= 1;
                let Some(job) = self.feeds.get(&id).map(|feed| feed.row.job.clone()) else { return };
                self.jobs.remove(&job);
                if self.log_run(&job, &delivery, &hook, &ran) {
                    self.node.store.later({
                        let id = id.clone();
                        move |transaction| feeds::advance(transaction, &id, serial)
                    });
                    self.when_stored(CourierResult::Advanced(id));
                }
            }
        }
    }

    /// Logs how a program ended. Yields false if the service has stopped the program: then the next process
    /// runs it again.
    fn log_run(&self, job: &str, delivery: &str, hook: &Hook, ran: &Result<ProgramEnd, Error>) -> bool {
        let (level, text, event) = match ran {
            Ok(finished) if finished.stopped => return false,
            Ok(finished) => (
                programs::level(finished),
                programs::line(hook.on, &hook.program, finished),
                programs::event(delivery, finished),
            ),
            Err(error) => {
                let event = json!({ "event": "hook", "delivery": delivery, "error": error.to_string() });
                ("warning", format!("{} hook: {error}", hook.on), event.to_string())
            }
        };
        self.log(job, level, &text, &event);
        true
    }

    fn log(&self, job: &str, level: &'static str, text: &str, event: &str) {
        if let Ok(job) = job.parse::<JobId>() {
            self.node.said(job, (level, text, event));
        }
    }

    fn after_webhook(&mut self, one: &DeliveryRow, outcome: DeliveryOutcome) {
        let attempt = one.attempt + 1;
        let (level, text) = match outcome {
            DeliveryOutcome::Delivered { status } => {
                self.node.metrics.webhook_delivered();
                self.close(one, &format!("delivered: {status}"));
                ("info", format!("the webhook was delivered ({status})"))
            }
            DeliveryOutcome::Refused { why } => {
                self.node.metrics.webhooks_dropped(WebhookDrop::Refused, 1);
                self.close(one, &why);
                ("warning", format!("the webhook was not delivered and is given up: {why}"))
            }
            DeliveryOutcome::Retry { why, .. } if attempt >= ATTEMPTS_MAX => {
                self.node.metrics.webhooks_dropped(WebhookDrop::Attempts, 1);
                self.close(one, &why);
                ("warning", format!("the webhook is given up after {attempt} attempts: {why}"))
            }
            DeliveryOutcome::Retry { why, after } => {
                let pause = pause(attempt, backoff::seed(&one.id), after);
                let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
                let due_ms = self.node.clock.now_ms().saturating_add(pause_ms);
                let (id, outcome) = (one.id.clone(), why.clone());
                self.node
                    .store
                    .later(move |transaction| deliveries::again(transaction, &id, due_ms, &outcome));
                self.when_stored(CourierResult::Stored(one.id.clone()));
                let seconds = pause.as_secs_f64();
                (
                    "warning",
                    format!("the webhook was not delivered, and is tried again in {seconds:.0} s: {why}"),
                )
            }
        };
        let event = json!({ "event": "webhook", "delivery": one.id, "attempt": attempt, "text": text });
        self.log(&one.job, level, &text, &event.to_string());
    }

    /// Notes in the store that a delivery is over.
    fn close(&mut self, one: &DeliveryRow, outcome: &str) {
        self.under_way.insert(one.id.clone());
        let (id, node_ms, outcome) = (one.id.clone(), self.node.node_ms(), outcome.to_string());
        self.node.store.later(move |transaction| deliveries::end(transaction, &id, node_ms, &outcome));
        self.when_stored(CourierResult::Stored(one.id.clone()));
    }

    fn when_stored(&self, done: CourierResult) {
        let to_work = self.to_work.clone();
        self.node.store.then(move || {
            let _ = to_work.send(done);
        });
    }
}

fn run(hook: &Hook, message: &HookMessage, stop: &ProgramStop) -> Result<ProgramEnd, Error> {
    let input =
        serde_json::to_value(message).map_err(|error| Error::bug(format!("a hook's message: {error}")))?;
    hooks::run(&hook.program(), &input, &message.variables(), hook.limit(), Some(stop))
}

async fn post(
    sender: &WebhookSender,
    one: &DeliveryRow,
    target: &WebhookTarget,
    secret: Option<&WebhookSecret>,
    unix_s: i64,
) -> DeliveryOutcome {
    let event = serde_json::from_str::<HookMessage>(&one.body).map_or("", |message| message.event.name());
    let post =
        Post { url: &target.url, id: &one.id, event, body: one.body.clone().into_bytes(), secret, unix_s };
    sender.deliver(&post).await
}

impl Node {
    /// A job in the form that programs get, as it is now.
    fn words_now(&self, id: JobId) -> Option<hooks::JobWords> {
        if let Some(active) = self.jobs().get(&id) {
            let (row, figures) = (&active.row, &active.row.figures);
            let seen = active.transfer.as_ref().map(|transfer| &transfer.seen);
            let (files, bytes, failed) =
                seen.map_or((0, 0, 0), |seen| (seen.files_done, seen.bytes_done, seen.failed));
            let facts = self.facts(active).ok()?;
            let all = (figures.files + files, figures.bytes + bytes);
            return Some(outbox::words((row, &facts.head), row.state, all.0, all.1, failed));
        }
        let head = self.stored_facts(id).ok()?.head;
        let row = self.store.read(|connection| jobs::get(connection, id)).ok()??;
        let (state, figures): (JobState, _) = (row.state, row.figures.clone());
        Some(outbox::words((&row, &head), state, figures.files, figures.bytes, 0))
    }
}

#[cfg(test)]
mod tests;
