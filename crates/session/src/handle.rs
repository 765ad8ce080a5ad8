//! What whoever has started a transfer holds of it: to see how far it is, to hear what happens, and to steer and stop it.
//!
//! Always true: a handle keeps nothing of a session alive, and what is wished through it is done by the session's own
//! threads, soon after.
#![deny(missing_docs)]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farhaul_handover::Held as _;

use super::event_feed::{EventFeed, EventReader};
use super::events::{Event, EventLevel};
use super::options::RateOptions;
use super::request::Request;
use super::snapshot::{ContentRate, SessionFacts, Snapshot, TransferState};
use crate::error::{Error, ExitCode};

/// Tells transfers apart, on all hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(u64);

impl TransferId {
    fn random() -> TransferId {
        let mut bytes = [0; 8];
        // Where the system gives no random numbers no session can begin either, and an id proves nothing.
        let _ = getrandom::fill(&mut bytes);
        TransferId(u64::from_le_bytes(bytes))
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl fmt::Debug for TransferId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Counters of a transfer: relaxed atomics, written by its threads.
#[derive(Debug, Default)]
pub struct TransferCounts {
    /// Content bytes found by the scan so far.
    pub bytes_total: AtomicU64,
    /// Files, as far as they are known.
    pub files_total: AtomicU64,
    /// The totals are known: the scan has ended.
    pub scan_done: AtomicBool,
    /// Content bytes that are safe at the receiver (skipped and resumed ones included).
    pub bytes_done: AtomicU64,
    /// Files that are there.
    pub files_done: AtomicU64,
    /// Content bytes of files that were there before.
    pub bytes_skipped: AtomicU64,
    /// Content bytes among those done that an earlier run or an older version has brought there.
    pub bytes_found: AtomicU64,
    /// Entries that failed.
    pub failed: AtomicU64,
    /// Source files that had gone when they were to be read.
    pub vanished: AtomicU64,
}

impl TransferCounts {
    /// So many content bytes are safe at the receiver without having been sent.
    pub fn found(&self, bytes: u64) {
        self.bytes_found.fetch_add(bytes, Relaxed);
        self.bytes_done.fetch_add(bytes, Relaxed);
    }

    /// Content bytes that have moved.
    fn bytes_moved(&self) -> u64 {
        let there_before = self.bytes_skipped.load(Relaxed).saturating_add(self.bytes_found.load(Relaxed));
        self.bytes_done.load(Relaxed).saturating_sub(there_before)
    }
}

/// A transfer, as whoever started it holds it. Clones are the same.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    id: TransferId,
    counts: TransferCounts,
    feed: EventFeed,
    pace: Mutex<ContentRate>,
    is_cancelled: AtomicBool,
    is_paused: AtomicBool,
    is_over: AtomicBool,
    /// How the sender is to set its rate from now on.
    rate_wish: Mutex<Option<RateOptions>>,
    /// With which weight it is to share the caps that it is in from now on.
    weight_wish: Mutex<Option<f64>>,
    /// Paths that are to be used from now on, or not.
    path_wishes: Mutex<Vec<(usize, bool)>>,
    /// What runs for it, and what was last known of that.
    running: Mutex<RunningSession>,
}

#[derive(Debug, Default)]
struct RunningSession {
    request: Weak<Request>,
    facts: SessionFacts,
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Handle").field(&self.id()).finish()
    }
}

impl Default for Handle {
    fn default() -> Handle {
        Handle::new()
    }
}

impl Handle {
    /// For a transfer that is yet to be started.
    pub fn new() -> Handle {
        Handle(Arc::new(Inner {
            id: TransferId::random(),
            counts: TransferCounts::default(),
            feed: EventFeed::new(),
            pace: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            rate_wish: Mutex::default(),
            weight_wish: Mutex::default(),
            path_wishes: Mutex::default(),
            running: Mutex::default(),
        }))
    }

    /// Which transfer it is.
    pub fn id(&self) -> TransferId {
        self.0.id
    }

    // ---- seen ------------------------------------------------------------------------------------------------------

    /// What happens from now on, as far as `level` wants to know.
    pub fn events(&self, level: EventLevel) -> EventReader {
        self.0.feed.read(level)
    }

    /// As [`Handle::events`], of which at most so many bytes wait.
    #[doc(hidden)]
    pub fn events_within(&self, level: EventLevel, bytes_max: usize) -> EventReader {
        self.0.feed.read_within(level, bytes_max)
    }

    /// Has `hear` called with each event that is no detail, by the thread that tells it, which must not be kept waiting.
    /// There is one for a transfer; it is set before that begins.
    pub fn hear(&self, hear: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.feed.set_hearer(Box::new(hear));
    }

    /// How things stand.
    pub fn snapshot(&self) -> Snapshot {
        let counts = &self.0.counts;
        let running = self.request();
        let facts = match &running {
            Some(request) => SessionFacts::of(request),
            None => self.0.running.lock().in_any_case().facts.clone(),
        };
        let bytes_done = counts.bytes_done.load(Relaxed);
        let bytes_skipped = counts.bytes_skipped.load(Relaxed);
        let elapsed = self.0.feed.start().elapsed();
        let mut pace = self.0.pace.lock().in_any_case();
        if facts.is_connected {
            pace.look(elapsed, counts.bytes_moved());
        }
        let state = match () {
            () if self.0.is_over.load(Relaxed) => TransferState::Ended,
            () if self.is_paused() || running.is_some_and(|request| request.is_paused()) => {
                TransferState::Paused
            }
            () if facts.is_connected => TransferState::Running,
            () => TransferState::Starting,
        };
        Snapshot {
            id: self.id().to_string(),
            state,
            seconds: elapsed.as_secs_f64(),
            bytes_total: counts.bytes_total.load(Relaxed),
            files_total: counts.files_total.load(Relaxed),
            totals_known: counts.scan_done.load(Relaxed),
            bytes_done,
            bytes_skipped,
            bytes_moved: counts.bytes_moved(),
            files_done: counts.files_done.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            vanished: counts.vanished.load(Relaxed),
            goodput_bps: pace.now_bps(),
            goodput_mean_bps: pace.mean_bps(),
            facts,
        }
    }

    // ---- steered ---------------------------------------------------------------------------------------------------

    /// Changes policy, ceiling and floor of the running transfer, whichever end sends. What is judged wrong changes
    /// nothing.
    pub fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
        let rate = rate.checked()?;
        *self.0.rate_wish.lock().in_any_case() = Some(rate);
        Ok(())
    }

    /// What was wished of the rate since this was asked last.
    #[doc(hidden)]
    pub fn take_rate_wish(&self) -> Option<RateOptions> {
        self.0.rate_wish.lock().in_any_case().take()
    }

    /// Changes the weight by which the running transfer shares the caps that it is in with what else is in them: twice the
    /// weight is twice the rate, where the others want what there is. 1 is usual; within 0.001 and 1000. Without caps
    /// it means nothing.
    pub fn set_weight(&self, weight: f64) {
        *self.0.weight_wish.lock().in_any_case() = Some(weight);
    }

    pub(crate) fn take_weight_wish(&self) -> Option<f64> {
        self.0.weight_wish.lock().in_any_case().take()
    }

    /// Takes a path, by its place in [`crate::NetworkOptions::paths`], out of the running transfer, or in again,
    /// whichever end sends. What is under way there is finished there. The last path that is used stays.
    pub fn use_path(&self, path: usize, is_used: bool) {
        self.0.path_wishes.lock().in_any_case().push((path, is_used));
    }

    pub(crate) fn take_path_wishes(&self) -> Vec<(usize, bool)> {
        std::mem::take(&mut self.0.path_wishes.lock().in_any_case())
    }

    /// Holds the transfer: no new content goes out, whichever end sends, until it is resumed. The session stays, and what
    /// was under way arrives.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Goes on with what was paused. What the far end has paused goes on when that wishes so, too.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, is_paused: bool) {
        self.0.is_paused.store(is_paused, Relaxed);
        if let Some(request) = self.request() {
            request.wake_session();
        }
    }

    /// Whether this end wishes it to pause.
    pub fn is_paused(&self) -> bool {
        self.0.is_paused.load(Relaxed)
    }

    /// Ends the transfer in an orderly way.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Relaxed);
        if let Some(request) = self.request() {
            request.wake_session();
        }
    }

    /// Whether somebody wants it to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Relaxed)
    }

    /// The same, for what looks at a flag alone.
    pub fn cancel_flag(&self) -> &AtomicBool {
        &self.0.is_cancelled
    }

    // ---- what the transfer's threads say ---------------------------------------------------------------------------

    /// The counters, which the transfer's threads write.
    #[doc(hidden)]
    pub fn counts(&self) -> &TransferCounts {
        &self.0.counts
    }

    /// Something has happened.
    #[doc(hidden)]
    pub fn tell(&self, event: Event) {
        self.0.feed.put(event, &|| self.is_cancelled());
    }

    /// Something has happened of which there may be very much, and which is put into words only if somebody wants to
    /// know.
    #[doc(hidden)]
    pub fn tell_detail(&self, event: impl FnOnce() -> Event) {
        if self.0.feed.wants_details() {
            self.tell(event());
        }
    }

    /// Whether anybody wants to know of details.
    #[doc(hidden)]
    pub fn wants_details(&self) -> bool {
        self.0.feed.wants_details()
    }

    /// The work begins.
    #[doc(hidden)]
    pub fn begin(&self) {
        self.tell(Event::Started { id: self.id().to_string() });
    }

    /// What was counted so far was for a session that came to nothing.
    #[doc(hidden)]
    pub fn begin_again(&self) {
        let TransferCounts {
            bytes_total,
            files_total,
            scan_done,
            bytes_done,
            files_done,
            bytes_skipped,
            bytes_found,
            failed,
            vanished,
        } = &self.0.counts;
        let sums =
            [bytes_total, files_total, bytes_done, files_done, bytes_skipped, bytes_found, failed, vanished];
        for count in sums {
            count.store(0, Relaxed);
        }
        scan_done.store(false, Relaxed);
    }

    /// Nothing more happens: it has ended so.
    #[doc(hidden)]
    pub fn end(&self, ok: bool, error: Option<&Error>) {
        let exit = match (error, ok) {
            (Some(error), _) => error.exit_code(),
            (None, true) => ExitCode::Ok,
            (None, false) if self.has_only_vanished() => ExitCode::Vanished,
            (None, false) => ExitCode::SomeFailed,
        };
        self.end_with(exit, error);
    }

    /// As [`Handle::end`], with the exit code of what has ended.
    #[doc(hidden)]
    pub fn end_with(&self, exit: ExitCode, error: Option<&Error>) {
        if self.0.is_over.swap(true, Relaxed) {
            return;
        }
        self.tell(Event::Ended {
            ok: exit == ExitCode::Ok,
            error: error.map(ToString::to_string),
            code: error.map(|error| error.code().name()),
            exit_code: exit as u8,
        });
        self.0.feed.end();
    }

    /// Nothing failed, and some source files had gone.
    fn has_only_vanished(&self) -> bool {
        let counts = &self.0.counts;
        counts.failed.load(Relaxed) == 0 && counts.vanished.load(Relaxed) > 0
    }

    /// This request runs for it.
    pub(crate) fn attach(&self, request: &Arc<Request>) {
        self.0.running.lock().in_any_case().request = Arc::downgrade(request);
    }

    /// The request has ended: what is known of it stays.
    pub(crate) fn detach(&self, request: &Arc<Request>) {
        let facts = SessionFacts::of(request);
        *self.0.running.lock().in_any_case() = RunningSession { request: Weak::new(), facts };
    }

    /// What runs for it does so in another process, which has said this of it.
    #[doc(hidden)]
    pub fn set_facts(&self, facts: SessionFacts) {
        self.0.running.lock().in_any_case().facts = facts;
    }

    /// So that the rate now is that of the last seconds, however seldom anybody asks.
    pub(crate) fn look(&self) {
        let counts = &self.0.counts;
        let bytes = counts.bytes_moved();
        let elapsed: Duration = self.0.feed.start().elapsed();
        self.0.pace.lock().in_any_case().look(elapsed, bytes);
    }

    fn request(&self) -> Option<Arc<Request>> {
        self.0.running.lock().in_any_case().request.upgrade()
    }
}
