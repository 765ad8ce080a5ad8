//! The node: the jobs that are not over, what is asked of them, and what happens to them.
//!
//! How to read it: [`Node`] holds all that the service knows; `requests.rs` has what callers may ask of jobs, `conductor.rs`
//! the one thread that starts, watches and ends them, by what the `scheduler` decides, `transfer.rs` one that runs, `job_end.rs` what
//! becomes of a job whose transfer has ended, `view.rs` what callers are shown. `pre_hooks.rs` runs programs before an attempt;
//! `retention.rs` says what is kept of what has been. `outbox.rs` says what is told when a run has ended, `hook_feed.rs` what of
//! its files, and `courier.rs` is the thread that tells it. `watches/` makes jobs of files that appear in folders. `logins.rs`
//! says who a caller is.
//!
//! Always true: a job that is not over is in memory, and in the store as it was a moment ago; what is in memory is changed under
//! one lock, and written in the order of its changes.

mod browse;
mod caps;
mod conductor;
mod courier;
mod hook_feed;
mod job_end;
pub(crate) mod logins;
mod manifests;
mod outbox;
mod peers;
mod places;
mod pre_hooks;
mod programs;
mod requests;
mod retention;
mod settings;
mod transfer;
mod view;
mod watches;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};

use farhaul_handover::Held as _;
use farhaul_session::Error;
use rusqlite::Transaction;
use serde_json::json;

use crate::access::JobPlaces;
use crate::caps::live_caps::LiveCaps;
use crate::clock::Clock;
use crate::hooks::webhook::OwnAddresses;
use crate::hub::{Hub, NewsBody};
use crate::job::{JobId, JobState, JobStep};
use crate::metrics::Metrics;
use crate::scheduler::deadline::Prospect;
use crate::store::jobs::JobRow;
use crate::store::{Store, jobs, log};

pub(crate) use browse::DirectoryView;
pub(crate) use caps::CapView;
pub(crate) use conductor::{Conductor, STOP_TIME};
pub(crate) use peers::PeerView;
pub(crate) use places::peer_of;
pub(crate) use requests::{JobChange, LiveRates, Submission};
pub use retention::RetentionRules;
pub use settings::{NodeIdentity, NodeSettings, PeerSettings};
pub(crate) use transfer::JobTransfer;
pub(crate) use view::JobView;
pub use watches::WatchSpec;
pub(crate) use watches::{WatchView, WatchedFileView};

/// Lines that are kept of one job's log.
const LOG_MAX: u64 = 2000;

/// All that the service knows.
pub(crate) struct Node {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) hub: Hub,
    pub(crate) metrics: Arc<Metrics>,
    /// Where manifests lie.
    folder: PathBuf,
    settings: RwLock<Arc<NodeSettings>>,
    caps: Mutex<caps::NodeCaps>,
    pub(crate) live_caps: LiveCaps,
    /// When the conductor was last awake, in seconds since the host was started.
    awake_s: AtomicU64,
    /// The service is ending: no job begins any more.
    draining: AtomicBool,
    jobs: Mutex<BTreeMap<JobId, Active>>,
    /// The last of all positions, changed under the lock of the jobs: whoever comes stands behind all others.
    last_position: AtomicI64,
    to_conductor: Sender<Signal>,
    bell: courier::CourierBell,
    logins: logins::Logins,
    watches: watches::WatchTable,
    /// Where the service itself listens, once it does.
    own: OnceLock<OwnAddresses>,
    /// Where a browser finds the page, once the API listens.
    pages: OnceLock<Vec<String>>,
    me: Weak<Node>,
}

/// What the conductor is told.
pub(crate) enum Signal {
    /// Something has changed that it should look at.
    Look,
    /// A transfer has ended.
    Ended(Box<transfer::TransferEnd>),
    /// What is known of a job that has ended is in the store.
    Stored(JobId),
    /// A line for the log of a job.
    Said { job: JobId, level: &'static str, text: String, event: String },
    /// The service is ending: transfers stop resumably.
    Stop,
}

/// A job that is not over.
pub(crate) struct Active {
    pub(crate) row: JobRow,
    pub(crate) places: Arc<JobPlaces>,
    /// While it runs, or is held with its session.
    pub(crate) transfer: Option<JobTransfer>,
    /// The number of its last line.
    log_seq: u64,
}

impl Active {
    /// Whether its transfer is to be looked at more often than others now.
    fn is_close(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.is_close(self.row.finish_by_ms.is_some()))
    }
}

impl Node {
    /// Opens what an earlier process has left in this directory, and goes on with it once a [`Conductor`] runs.
    pub(crate) fn open(
        folder: &Path,
        clock: Clock,
        settings: NodeSettings,
    ) -> Result<(Arc<Node>, Receiver<Signal>), Error> {
        let store = Store::open(&folder.join("jobs.sqlite"))?;
        let caps = store.read(crate::store::caps::all)?;
        let manifests = folder.join("manifests");
        std::fs::create_dir_all(&manifests)
            .map_err(Error::io(format!("cannot make {}", manifests.display())))?;
        let (to_conductor, signals) = mpsc::channel();
        let first = u64::try_from(clock.now_ms()).unwrap_or(0).saturating_mul(1000);
        let node = Arc::new_cyclic(|me| Node {
            store,
            hub: Hub::new(first),
            metrics: Arc::new(Metrics::new()),
            folder: folder.to_path_buf(),
            settings: RwLock::new(Arc::new(settings)),
            live_caps: LiveCaps::new(),
            caps: Mutex::new(caps::NodeCaps { set: caps, ..caps::NodeCaps::default() }),
            awake_s: AtomicU64::new(clock.since_boot().as_secs()),
            draining: AtomicBool::new(false),
            jobs: Mutex::default(),
            last_position: AtomicI64::new(0),
            to_conductor,
            clock,
            bell: courier::CourierBell::default(),
            logins: logins::Logins::default(),
            watches: watches::WatchTable::default(),
            own: OnceLock::new(),
            pages: OnceLock::new(),
            me: me.clone(),
        });
        node.take_up()?;
        Ok((node, signals))
    }

    /// Goes on with the jobs of an earlier process. Those that ran in it are queued again: what has arrived is not sent anew.
    fn take_up(&self) -> Result<(), Error> {
        let rows = self.store.read(jobs::unfinished)?;
        let now_ms = self.clock.now_ms();
        let mut all = self.jobs();
        for mut row in rows {
            let log_seq = self.store.read(|connection| log::last(connection, row.id))?;
            let ran = row.state == JobState::Running;
            if let Ok(next) = row.state.after(JobStep::Interrupted) {
                (row.state, row.changed_ms) = (next, now_ms);
            }
            let places = Arc::new(places::of_spec(&row.spec)?);
            let id = row.id;
            self.last_position.fetch_max(row.position, Relaxed);
            let mut active = Active { row, places, transfer: None, log_seq };
            if ran {
                self.say(&mut active, "info", "the service was started again; the job goes on where it was");
                self.changed(&mut active);
            }
            all.insert(id, active);
        }
        Ok(())
    }

    pub(crate) fn settings(&self) -> Arc<NodeSettings> {
        self.settings.read().in_any_case().clone()
    }

    /// From now on these hold.
    pub(crate) fn set_settings(&self, settings: NodeSettings) {
        *self.settings.write().in_any_case() = Arc::new(settings);
        self.follow_configuration();
        self.look();
        self.bell.ring();
    }

    /// The service listens here: no webhook goes there.
    pub(crate) fn set_own_addresses(&self, own: OwnAddresses) {
        let _ = self.own.set(own);
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Active>> {
        self.jobs.lock().in_any_case()
    }

    /// Whether the conductor has been awake of late.
    pub(crate) fn moves(&self) -> bool {
        let asleep_s = self.clock.since_boot().as_secs().saturating_sub(self.awake_s.load(Relaxed));
        asleep_s <= 3 * conductor::CLOCK_EVERY.as_secs()
    }

    /// The conductor looks at what has changed.
    pub(crate) fn look(&self) {
        // Without a conductor the service is ending, or has not begun yet.
        let _ = self.to_conductor.send(Signal::Look);
    }

    /// The service is ending: no job begins any more, those that run go on, and those that are held give their sessions back.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.look();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Jobs with a transfer, held ones among them.
    pub(crate) fn transfers(&self) -> usize {
        self.jobs().values().filter(|active| active.transfer.is_some()).count()
    }

    /// Ends all transfers resumably, and the conductor.
    pub(crate) fn stop(&self) {
        let _ = self.to_conductor.send(Signal::Stop);
    }

    /// Jobs that run and will not be finished in time.
    pub(crate) fn jobs_behind(&self) -> usize {
        let misses = |transfer: &JobTransfer| matches!(transfer.prospect(), Prospect::Misses { .. });
        self.jobs().values().filter(|active| active.transfer.as_ref().is_some_and(misses)).count()
    }

    fn manifest_of(&self, row: &JobRow) -> PathBuf {
        self.manifest_of_run(row.id, row.run)
    }

    /// Where what became of each entry of a run is kept, if it is.
    pub(crate) fn manifest_of_run(&self, id: JobId, run: u32) -> PathBuf {
        manifests::manifest_path(&self.folder, id.as_str(), run)
    }

    /// The position of a job that comes now; the jobs are locked meanwhile.
    fn next_position(&self, now_ms: i64) -> i64 {
        let position = now_ms.max(self.last_position.load(Relaxed).saturating_add(1));
        self.last_position.store(position, Relaxed);
        position
    }

    // ---- what happens to a job -------------------------------------------------------------------------------------

    /// Takes a step, if the job's state allows it.
    fn step(&self, active: &mut Active, step: JobStep) -> Result<(), crate::job::StepRefusal> {
        active.row.state = active.row.state.after(step)?;
        self.changed(active);
        Ok(())
    }

    /// The job is another one than before: it is written, and told.
    fn changed(&self, active: &mut Active) {
        self.changed_and(active, |_| Ok(()));
    }

    /// As [`Self::changed`], with more that is written together with it.
    fn changed_and(
        &self,
        active: &mut Active,
        mut more: impl FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) {
        active.row.changed_ms = self.clock.now_ms().max(active.row.changed_ms);
        let row = active.row.clone();
        self.store.later(move |transaction| {
            jobs::update(transaction, &row)?;
            more(transaction)
        });
        self.show(active);
    }

    /// The courier looks for what is to be told, once all that was written before is in the store.
    fn ring_when_stored(&self) {
        let bell = self.bell.clone();
        self.store.then(move || bell.ring());
    }

    /// A line in the log of a job that may be over.
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

    /// Tells those who watch how the job stands.
    fn show(&self, active: &Active) {
        let text = serde_json::to_string(&JobView::of_active(active)).unwrap_or_default();
        self.hub.tell(NewsBody::Job { job: active.row.id, places: active.places.clone(), text });
    }

    /// A line of the service's own in the job's log.
    fn say(&self, active: &mut Active, level: &str, text: &str) {
        let event = json!({ "event": "job", "state": active.row.state, "text": text });
        self.log(active, level, text, &event.to_string());
    }

    /// A line in the job's log; `event` is JSON.
    fn log(&self, active: &mut Active, level: &str, text: &str, event: &str) {
        if active.log_seq >= LOG_MAX {
            return;
        }
        active.log_seq += 1;
        let is_last = active.log_seq == LOG_MAX;
        let (level, text, event) = match is_last {
            false => (level, text, event),
            true => ("warning", "the log is full; what else happens is not in it", r#"{"event":"log_full"}"#),
        };
        let (job, seq, at_ms) = (active.row.id, active.log_seq, self.clock.now_ms());
        let told = json!({
            "job": job, "seq": seq, "at_ms": at_ms, "level": level, "text": text,
            "event": serde_json::from_str::<serde_json::Value>(event).unwrap_or_default(),
        });
        self.hub.tell(NewsBody::Log { job, places: active.places.clone(), text: told.to_string() });
        let (level, text, event) = (level.to_string(), text.to_string(), event.to_string());
        self.store
            .note(move |transaction| log::append(transaction, job, (seq, at_ms), (&level, &text, &event)));
    }
}

#[cfg(test)]
mod tests;
