//! The node: the jobs that are not over, the requests about them, and what happens to them.
//!
//! How to read it: [`Node`] holds all that the service knows. `requests.rs` has what callers may ask about
//! jobs. `conductor.rs` is the one thread that starts, watches and ends jobs, as the `scheduler` decides;
//! `transfer.rs` is one running transfer, `job_end.rs` handles its end, `view.rs` is what callers see of a
//! job. `words.rs` says what happens to it, and `promises.rs` which deadlines can be kept. `pre_hooks.rs` runs
//! programs before an attempt; `take_up.rs` goes on
//! with what an earlier process has left; `accounts.rs` counts what callers make the node keep; `retention.rs` deletes
//! what is too old, and `moments.rs` says what time it is. `outbox.rs` says which hooks and webhooks hear of the end of a run, `hook_feed.rs` which files they hear of, and
//! `courier/mod.rs` is the thread that delivers. `watches/` makes jobs of files that appear in folders.
//! `logins.rs` says who a caller is, by `proofs.rs`; `tokens.rs` makes tokens, and `owners.rs` says what becomes
//! of the jobs of a token that is not valid any more.
//!
//! Always true: a job that is not over is in memory, and in the store as it was a moment ago; jobs in memory
//! are changed under one lock, and written in the order of the changes. Memory has no documents, only rows of a
//! few hundred bytes: what else is needed of a job is read from the store (`facts.rs`).

mod accounts;
mod browse;
mod caps;
mod conductor;
mod courier;
mod facts;
mod hook_feed;
mod job_end;
pub(crate) mod logins;
mod manifests;
mod moments;
mod outbox;
mod owners;
mod peers;
mod places;
mod pre_hooks;
mod programs;
mod promises;
mod proofs;
mod question;
mod requests;
mod retention;
mod settings;
mod take_up;
pub(crate) mod tokens;
mod transfer;
mod view;
mod watches;
mod webhook_places;
mod words;

use crate::job::JobSteps as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};

use farhaul_handover::Held as _;
use farhaul_session::{Charge, MemoryMinimum};
use farhaul_words::Error;
use rusqlite::Transaction;
use serde_json::json;

use crate::caps::live_caps::LiveCaps;
use crate::clock::{Clock, NodeTime};
use crate::hooks::VerifyHooks;
use crate::hub::{Hub, NewsBody};
use crate::job::JobStep;
use crate::metrics::Metrics;
use crate::store::jobs::{JobFacts, JobRow};
use crate::store::{Store, jobs, log};
use farhaul_api::JobId;

pub use accounts::QueueLimits;
pub(crate) use conductor::{Conductor, STOP_TIME};
pub(crate) use facts::sees;
pub(crate) use moments::NodeMoment;
pub(crate) use places::peer_of;
pub(crate) use question::Question;
pub(crate) use requests::{COUNTED_MAX, JobListPage, RetryRequest, Submission};
pub use retention::RetentionRules;
pub use settings::{NodeIdentity, NodeSettings, PeerSettings};
pub(crate) use transfer::JobTransfer;
pub(crate) use view::JobNews;
pub use watches::WatchSpec;

/// The most lines that are kept of one job's log, and about the most bytes.
const LOG_MAX: u64 = 2000;
const LOG_BYTES_MAX: usize = 2 << 20;

/// All that the service knows.
pub(crate) struct Node {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    /// The node time goes on by it.
    time: NodeTime,
    pub(crate) hub: Hub,
    pub(crate) metrics: Arc<Metrics>,
    /// The directory of manifests.
    folder: PathBuf,
    settings: RwLock<Arc<NodeSettings>>,
    caps: Mutex<caps::NodeCaps>,
    pub(crate) live_caps: LiveCaps,
    /// The programs that look at each file that arrives here.
    pub(crate) verify_hooks: Arc<VerifyHooks>,
    /// When the conductor was last awake, in seconds since the host was started.
    awake_s: AtomicU64,
    /// True if the service is ending, so that no job begins any more.
    draining: AtomicBool,
    jobs: Mutex<BTreeMap<JobId, Active>>,
    /// What callers make the node keep.
    pub(crate) accounts: accounts::NodeAccounts,
    /// The bytes of documents of jobs that have ended since what is too much was last deleted.
    ended_bytes: AtomicU64,
    /// True if more must be deleted than fits into one step of the store.
    ended_much: AtomicBool,
    /// The highest position of any job. It is changed under the lock of the jobs; a new job gets a higher
    /// one.
    last_position: AtomicI64,
    to_conductor: Sender<Signal>,
    bell: courier::CourierBell,
    /// The jobs whose manifests are about to be begun anew, so that no hook hears of what stands there now.
    renewals: Arc<Mutex<BTreeSet<JobId>>>,
    logins: logins::Logins,
    proofs: proofs::Proofs,
    watches: watches::WatchTable,
    path_rates: Mutex<promises::PathRates>,
    /// The addresses of the page, once the API listens.
    pages: OnceLock<Vec<String>>,
    me: Weak<Node>,
}

/// A message to the conductor.
pub(crate) enum Signal {
    /// Something has changed: look at all jobs.
    Look,
    /// A transfer has ended.
    Ended(Box<transfer::TransferEnd>),
    /// The store has the final state of this job.
    Stored(JobId),
    /// A line for the log of a job.
    Said { job: JobId, level: &'static str, text: String, event: String },
    /// The service is ending: stop transfers so that they can go on later.
    Stop,
}

/// A job that is not over.
pub(crate) struct Active {
    pub(crate) row: JobRow,
    /// The transfer, while the job runs, or while it is paused and keeps its session.
    pub(crate) transfer: Option<Box<JobTransfer>>,
    promise: promises::JobPromise,
    /// The number of the last line in the job's log.
    log_seq: u64,
    /// The bytes of its log that this process has written.
    log_bytes: usize,
    /// The other host that the job is counted with: its name and its port.
    host: Option<(String, Option<u16>)>,
    /// What the store has of the job beside its row; only while there is a transfer.
    facts: Option<Arc<JobFacts>>,
    /// What its transfer needs from beginning to end.
    room: Option<MemoryMinimum>,
    /// Why it does not run although there is a slot for it.
    waits_for: Option<String>,
    /// The seconds of the transfer whose figures the store has.
    noted_s: f64,
    /// Its document, in its owner's account.
    _kept: Charge,
}

impl Active {
    fn new(row: JobRow, log_seq: u64, kept: Charge) -> Active {
        let host = row.peer.as_deref().and_then(places::host_of_peer);
        Active {
            row,
            transfer: None,
            promise: promises::JobPromise::default(),
            log_seq,
            log_bytes: 0,
            host,
            facts: None,
            room: None,
            waits_for: None,
            noted_s: 0.0,
            _kept: kept,
        }
    }

    /// True if its transfer should be looked at more often than at others now.
    fn is_close(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.is_close(self.row.finish_by_ms.is_some()))
    }
}

impl Node {
    /// Opens the state that an earlier process has left in this directory. Jobs go on once a [`Conductor`]
    /// runs.
    pub(crate) fn open(
        folder: &Path,
        clock: Clock,
        settings: NodeSettings,
    ) -> Result<(Arc<Node>, Receiver<Signal>), Error> {
        let store = Store::open(&folder.join("jobs.sqlite"))?;
        let now = clock.both();
        let (time, step_ms) = moments::resume(&store, now)?;
        let caps = store.read(crate::store::caps::all)?;
        let proofs = proofs::Proofs::read(&store)?;
        let manifests = folder.join("manifests");
        crate::state_dir::directory_in(&manifests)?;
        let (to_conductor, signals) = mpsc::channel();
        let first = u64::try_from(time.at_ms(now)).unwrap_or(0).saturating_mul(1000);
        let verify_hooks = Arc::new(VerifyHooks::default());
        verify_hooks.set(&settings.verify_hooks);
        let node = Arc::new_cyclic(|me| Node {
            store,
            hub: Hub::new(first),
            metrics: Arc::new(Metrics::new()),
            folder: folder.to_path_buf(),
            accounts: accounts::NodeAccounts::new(settings.memory),
            settings: RwLock::new(Arc::new(settings)),
            live_caps: LiveCaps::new(),
            verify_hooks,
            caps: Mutex::new(caps::NodeCaps { set: caps, ..caps::NodeCaps::default() }),
            awake_s: AtomicU64::new(clock.since_boot().as_secs()),
            draining: AtomicBool::new(false),
            jobs: Mutex::default(),
            ended_bytes: AtomicU64::new(0),
            last_position: AtomicI64::new(0),
            to_conductor,
            clock,
            time,
            ended_much: AtomicBool::new(false),
            bell: courier::CourierBell::default(),
            renewals: Arc::default(),
            logins: logins::Logins::default(),
            proofs,
            watches: watches::WatchTable::default(),
            path_rates: Mutex::default(),
            pages: OnceLock::new(),
            me: me.clone(),
        });
        node.take_up(step_ms)?;
        node.mark_time();
        Ok((node, signals))
    }

    pub(crate) fn settings(&self) -> Arc<NodeSettings> {
        self.settings.read().in_any_case().clone()
    }

    /// Takes over new settings.
    pub(crate) fn set_settings(&self, settings: NodeSettings) {
        // The memory of transfers is divided once, at the start.
        let memory = self.settings().memory;
        self.verify_hooks.set(&settings.verify_hooks);
        *self.settings.write().in_any_case() = Arc::new(NodeSettings { memory, ..settings });
        self.follow_configuration();
        self.look();
        self.bell.ring();
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Active>> {
        self.jobs.lock().in_any_case()
    }

    /// True if the conductor was awake recently.
    pub(crate) fn moves(&self) -> bool {
        let asleep_s = self.clock.since_boot().as_secs().saturating_sub(self.awake_s.load(Relaxed));
        asleep_s <= 3 * conductor::CLOCK_EVERY.as_secs()
    }

    /// Asks the conductor to look for changes.
    pub(crate) fn look(&self) {
        // Without a conductor the service is ending, or has not begun yet.
        let _ = self.to_conductor.send(Signal::Look);
    }

    /// Begins the end of the service: no job begins any more, running jobs go on, and paused jobs give up
    /// their sessions.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.look();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// How many jobs have a transfer, paused ones included.
    pub(crate) fn transfers(&self) -> usize {
        self.jobs().values().filter(|active| active.transfer.is_some()).count()
    }

    /// Stops all transfers so that they can go on later, and ends the conductor.
    pub(crate) fn stop(&self) {
        let _ = self.to_conductor.send(Signal::Stop);
    }

    /// How many jobs will not be finished in time, as things stand.
    pub(crate) fn jobs_behind(&self) -> usize {
        self.jobs().values().filter(|active| active.is_behind()).count()
    }

    fn manifest_of(&self, row: &JobRow) -> PathBuf {
        self.manifest_of_run(row.id, row.run)
    }

    /// The path of the manifest of a run. The file may not exist.
    pub(crate) fn manifest_of_run(&self, id: JobId, run: u32) -> PathBuf {
        manifests::manifest_path(&self.folder, id.as_str(), run)
    }

    /// The position of a new job. The caller holds the lock of the jobs.
    fn next_position(&self, now_ms: i64) -> i64 {
        let position = now_ms.max(self.last_position.load(Relaxed).saturating_add(1));
        self.last_position.store(position, Relaxed);
        position
    }

    // ---- what happens to a job -------------------------------------------------------------------------------------

    /// Takes a step, if the state of the job allows it.
    fn step(&self, active: &mut Active, step: JobStep) -> Result<(), crate::job::StepRefusal> {
        active.row.state = active.row.state.after(step)?;
        self.changed(active);
        Ok(())
    }

    /// Writes a job that has changed to the store, and tells readers of events.
    fn changed(&self, active: &mut Active) {
        self.changed_and(active, |_| Ok(()));
    }

    /// As [`Self::changed`], and writes more in the same transaction.
    fn changed_and(
        &self,
        active: &mut Active,
        mut more: impl FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) {
        active.row.changed_ms = self.clock.now_ms().max(active.row.changed_ms);
        let (row, node_ms) = (active.row.clone(), self.node_ms());
        self.store.later(move |transaction| {
            jobs::update(transaction, &row, node_ms)?;
            more(transaction)
        });
        self.show(active);
    }

    /// Wakes the courier once everything that was written before is in the store.
    fn ring_when_stored(&self) {
        let bell = self.bell.clone();
        self.store.then(move || bell.ring());
    }

    /// Adds a line to the log of a job, which may be over.
    fn said(&self, job: JobId, (level, text, event): (&str, &str, &str)) {
        let mut jobs = self.jobs();
        if let Some(active) = jobs.get_mut(&job) {
            return self.log(active, level, text, event);
        }
        let (level, text, event) = (level.to_string(), text.to_string(), event.to_string());
        let at_ms = self.clock.now_ms();
        self.store.note(move |transaction| {
            log::append_last(transaction, job, at_ms, (&level, &text, &event), LOG_MAX)
        });
    }

    /// Tells readers of events how the job stands.
    fn show(&self, active: &Active) {
        let Ok(facts) = self.facts(active) else { return };
        let news = JobNews::of(active, &facts.head);
        self.hub.tell(NewsBody::Job { job: active.row.id, places: facts.places.clone(), news });
    }

    /// Adds a line of the service's own to the job's log.
    fn say(&self, active: &mut Active, level: &str, text: &str) {
        let event = json!({ "event": "job", "state": active.row.state, "text": text });
        self.log(active, level, text, &event.to_string());
    }

    /// Adds a line to the job's log; `event` is JSON.
    fn log(&self, active: &mut Active, level: &str, text: &str, event: &str) {
        if active.log_seq >= LOG_MAX {
            return;
        }
        active.log_seq += 1;
        active.log_bytes += text.len() + event.len();
        if active.log_bytes > LOG_BYTES_MAX {
            active.log_seq = LOG_MAX;
        }
        let is_last = active.log_seq == LOG_MAX;
        let (level, text, event) = match is_last {
            false => (level, text, event),
            true => ("warning", "the log is full; further events are not logged", r#"{"event":"log_full"}"#),
        };
        let (job, seq, at_ms) = (active.row.id, active.log_seq, self.clock.now_ms());
        let told = json!({
            "job": job, "seq": seq, "at_ms": at_ms, "level": level, "text": text,
            "event": serde_json::from_str::<serde_json::Value>(event).unwrap_or_default(),
        });
        if let Ok(facts) = self.facts(active) {
            self.hub.tell(NewsBody::Log { job, places: facts.places.clone(), text: told.to_string() });
        }
        let (level, text, event) = (level.to_string(), text.to_string(), event.to_string());
        self.store
            .note(move |transaction| log::append(transaction, job, (seq, at_ms), (&level, &text, &event)));
    }
}

#[cfg(test)]
mod tests;
