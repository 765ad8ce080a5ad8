//! The handle of a transfer, for whoever has started it: it shows progress and events, and steers and stops
//! the transfer.
//!
//! Always true: a handle keeps no session alive, and the session's own threads soon do what is asked through
//! it.
#![deny(missing_docs)]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_words::{
    Error, Event, EventLevel, ExitCode, SessionFacts, Snapshot, TransferCounts, TransferId, TransferState,
};

use crate::intervals::HALTED_AFTER;
use crate::options::RateOptions;
use crate::rate::content_rate::ContentRate;
use crate::rate::rate_cap::RateGuarantee;
use crate::requests::event_feed::{EventFeed, EventReader};

/// The id of a new transfer.
fn random_id() -> TransferId {
    let mut bytes = [0; 8];
    // Without random numbers no session can begin either, and an id proves nothing.
    let _ = getrandom::fill(&mut bytes);
    TransferId::new(u64::from_le_bytes(bytes))
}

/// The handle of a transfer. All clones belong to the same transfer.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    id: TransferId,
    counts: TransferCounts,
    feed: EventFeed,
    pace: Mutex<ContentRate>,
    is_cancelled: AtomicBool,
    is_paused: AtomicBool,
    /// Whoever asked for the transfer is not heard any more, so that it waits.
    is_unheard: AtomicBool,
    /// The state of a transfer that another process runs.
    state_there: Mutex<Option<TransferState>>,
    is_over: AtomicBool,
    /// When the far end was first dialled, unless it has come to nothing since.
    dialled: Mutex<Option<Instant>>,
    /// When a far end was last asked to begin.
    asked_to_begin: Mutex<Option<Instant>>,
    /// How many threads change something at this end, for a transfer that has no session yet.
    preparations: AtomicU32,
    /// The rate that the user has set since this was last read.
    rate_wish: Mutex<Option<RateOptions>>,
    /// The weight in rate caps that the user has set since this was last read.
    weight_wish: Mutex<Option<f64>>,
    /// The guarantee in rate caps that the user has set since this was last read.
    guarantee_wish: Mutex<Option<Option<RateGuarantee>>>,
    /// Paths that the user has switched on or off since this was last read.
    path_wishes: Mutex<Vec<(usize, bool)>>,
    /// The request that runs for the transfer, and the last facts known of it.
    running: Mutex<RunningSession>,
}

/// A thread that changes something before there is a session.
struct Preparation<'a>(&'a Handle);

impl Preparation<'_> {
    fn begin(handle: &Handle) -> Preparation<'_> {
        handle.0.preparations.fetch_add(1, SeqCst);
        Preparation(handle)
    }
}

impl Drop for Preparation<'_> {
    fn drop(&mut self) {
        self.0.0.preparations.fetch_sub(1, SeqCst);
    }
}

/// What a handle asks of the session that runs its transfer.
pub(crate) trait SteeredSession: Send + Sync {
    /// The user wants the transfer to pause, to go on or to end, and nobody should wait for that.
    fn hear_wish(&self);
    /// The facts as they are now.
    fn facts(&self) -> SessionFacts;
    /// Returns whether either end has paused this request.
    fn is_paused(&self, request: u64) -> bool;
    /// Returns whether nothing changes any more for this request, at either end.
    fn is_still(&self, request: u64) -> bool;
}

/// A request of a session that runs.
struct RunningRequest {
    session: Arc<dyn SteeredSession>,
    number: u64,
}

#[derive(Default)]
struct RunningSession {
    /// The session, and the number of the request in it.
    request: Option<(Weak<dyn SteeredSession>, u64)>,
    facts: SessionFacts,
    /// When the last session has ended.
    ended: Option<Instant>,
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
    /// A handle for a transfer that has not started yet.
    pub fn new() -> Handle {
        Handle(Arc::new(Inner {
            id: random_id(),
            counts: TransferCounts::default(),
            feed: EventFeed::new(),
            pace: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            is_unheard: AtomicBool::new(false),
            state_there: Mutex::default(),
            is_over: AtomicBool::new(false),
            dialled: Mutex::default(),
            asked_to_begin: Mutex::default(),
            preparations: AtomicU32::new(0),
            rate_wish: Mutex::default(),
            weight_wish: Mutex::default(),
            guarantee_wish: Mutex::default(),
            path_wishes: Mutex::default(),
            running: Mutex::default(),
        }))
    }

    /// The id of the transfer.
    pub fn id(&self) -> TransferId {
        self.0.id
    }

    /// Counts content bytes that have moved and are now safe at the receiver.
    #[doc(hidden)]
    pub fn moved(&self, bytes: u64) {
        self.0.counts.moved(bytes, self.0.feed.start().elapsed());
    }

    // ---- watching -------------------------------------------------------------------------------

    /// The events from now on, of this level and all less detailed ones.
    pub fn events(&self, level: EventLevel) -> EventReader {
        self.0.feed.read(level)
    }

    /// As [`Handle::events`], with a queue of at most `bytes_max` bytes.
    #[doc(hidden)]
    pub fn events_within(&self, level: EventLevel, bytes_max: usize) -> EventReader {
        self.0.feed.read_within(level, bytes_max)
    }

    /// Calls `hear` with each event that is no detail, on the thread where it happens; `hear` must return at
    /// once. A transfer has one such function; set it before the transfer begins.
    pub fn hear(&self, hear: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.feed.set_observer(Box::new(hear));
    }

    /// The state of the transfer at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let counts = &self.0.counts;
        let running = self.running();
        let facts = match &running {
            Some(running) => running.session.facts(),
            None => self.0.running.lock().in_any_case().facts.clone(),
        };
        let elapsed = self.0.feed.start().elapsed();
        let mut pace = self.0.pace.lock().in_any_case();
        if facts.is_connected {
            pace.look(elapsed, counts.bytes_moved(), counts.moved_at());
        }
        let state = match () {
            () if self.0.is_over.load(Relaxed) => TransferState::Ended,
            () if self.is_held()
                || running.as_ref().is_some_and(|running| running.session.is_paused(running.number)) =>
            {
                self.state_of_pause(running.as_ref())
            }
            () if facts.is_connected => TransferState::Running,
            () => TransferState::Starting,
        };
        // What came just before a pause is no rate of a transfer in which nothing moves, nor of what comes after it.
        if state == TransferState::Paused {
            pace.halt();
        }
        Snapshot {
            id: self.id().to_string(),
            state,
            seconds: elapsed.as_secs_f64(),
            goodput_bps: pace.now_bps(),
            goodput_mean_bps: pace.mean_bps(),
            facts,
            ..counts.snapshot()
        }
    }

    /// A transfer is paused once nothing changes any more at either end.
    fn state_of_pause(&self, running: Option<&RunningRequest>) -> TransferState {
        let has_halted = |since: Option<Instant>| since.is_none_or(|since| since.elapsed() >= HALTED_AFTER);
        let is_still_there = || match *self.0.state_there.lock().in_any_case() {
            Some(state) => state == TransferState::Paused,
            // A far end that was asked to begin may be about to, and that of a session that has broken off may
            // need some time to notice it.
            None => {
                has_halted(*self.0.asked_to_begin.lock().in_any_case())
                    && has_halted(self.0.running.lock().in_any_case().ended)
            }
        };
        let is_still_here = || self.0.preparations.load(SeqCst) == 0;
        let is_still = match running {
            Some(running) => running.session.is_still(running.number),
            None => is_still_here() && is_still_there(),
        };
        match is_still {
            true => TransferState::Paused,
            false => TransferState::Pausing,
        }
    }

    // ---- steering -------------------------------------------------------------------------------

    /// Changes policy, ceiling and floor of the running transfer, whichever end sends. Invalid options change
    /// nothing.
    pub fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
        let rate = rate.checked()?;
        *self.0.rate_wish.lock().in_any_case() = Some(rate);
        Ok(())
    }

    /// The rate that was set since the last call.
    #[doc(hidden)]
    pub fn take_rate_wish(&self) -> Option<RateOptions> {
        self.0.rate_wish.lock().in_any_case().take()
    }

    /// Changes the weight of the running transfer in the caps that it is in: with twice the weight it gets
    /// twice the rate, if the others in the cap want more than there is. 1 is usual; the weight is kept
    /// within 0.001 and 1000. Without caps it has no effect.
    pub fn set_weight(&self, weight: f64) {
        *self.0.weight_wish.lock().in_any_case() = Some(weight);
    }

    pub(crate) fn take_weight_wish(&self) -> Option<f64> {
        self.0.weight_wish.lock().in_any_case().take()
    }

    /// Guarantees the running transfer a rate in the caps that it is in, or takes the guarantee back. Rates are
    /// those of [`Self::set_rate`]. Without caps it has no effect, and beyond them it promises nothing: the path
    /// may carry less.
    pub fn set_guarantee(&self, guarantee: Option<RateGuarantee>) {
        *self.0.guarantee_wish.lock().in_any_case() = Some(guarantee);
    }

    pub(crate) fn take_guarantee_wish(&self) -> Option<Option<RateGuarantee>> {
        self.0.guarantee_wish.lock().in_any_case().take()
    }

    /// Takes a path, by its index in [`crate::NetworkOptions::paths`], out of the running transfer or back
    /// in, whichever end sends. Content that is on its way there still arrives. The last used path cannot be
    /// taken out.
    pub fn use_path(&self, path: usize, is_used: bool) {
        self.0.path_wishes.lock().in_any_case().push((path, is_used));
    }

    pub(crate) fn take_path_wishes(&self) -> Vec<(usize, bool)> {
        std::mem::take(&mut self.0.path_wishes.lock().in_any_case())
    }

    /// Pauses the transfer: soon nothing changes any more at either end until it is resumed. Once both ends have
    /// come to a halt, [`Snapshot::state`] is [`TransferState::Paused`]; until then it is
    /// [`TransferState::Pausing`]. The session stays. An end that does not hear the other one comes to a halt
    /// by itself.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Ends this end's pause. If the far end has paused, too, the transfer waits for that end.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, is_paused: bool) {
        self.0.is_paused.store(is_paused, SeqCst);
        if let Some(running) = self.running() {
            running.session.hear_wish();
        }
    }

    /// Returns whether this end has paused the transfer.
    pub fn is_paused(&self) -> bool {
        self.0.is_paused.load(SeqCst)
    }

    /// Returns whether the transfer waits: this end has paused it, or whoever asked for it is not heard.
    pub(crate) fn is_held(&self) -> bool {
        self.0.is_paused.load(SeqCst) || self.0.is_unheard.load(SeqCst)
    }

    /// Lets the transfer wait while whoever asked for it is not heard.
    #[doc(hidden)]
    pub fn set_unheard(&self, is_unheard: bool) {
        if self.0.is_unheard.swap(is_unheard, SeqCst) != is_unheard
            && let Some(running) = self.running()
        {
            running.session.hear_wish();
        }
    }

    /// Does `work`, which may change something at this end before there is a session; waits while the transfer
    /// is paused.
    #[doc(hidden)]
    pub fn prepare<T>(&self, work: impl FnOnce() -> T) -> T {
        let preparation = loop {
            self.wait_while_paused();
            // Whoever pauses and then looks for preparations cannot overlook one that is counted first.
            let preparation = Preparation::begin(self);
            if !self.is_held() || self.is_cancelled() {
                break preparation;
            }
        };
        let done = work();
        drop(preparation);
        done
    }

    /// Waits while a transfer without a session is paused.
    #[doc(hidden)]
    pub fn wait_while_paused(&self) {
        let mut dialled = self.0.dialled.lock().in_any_case().is_some();
        while self.is_held() && !self.is_cancelled() {
            std::thread::sleep(Duration::from_millis(50));
            if std::mem::take(&mut dialled) {
                // Nobody waits for the far end meanwhile.
                *self.0.dialled.lock().in_any_case() = None;
            }
        }
    }

    /// Notes that a far end is asked to begin now; returns false if it must not be, as the transfer is paused.
    #[doc(hidden)]
    pub fn may_ask_to_begin(&self) -> bool {
        let mut asked = self.0.asked_to_begin.lock().in_any_case();
        // Whoever pauses it now and then looks finds the lock taken.
        let may = !self.is_held();
        if may {
            *asked = Some(Instant::now());
        }
        may
    }

    /// The far end that was asked to begin changes nothing by that.
    #[doc(hidden)]
    pub fn has_begun_nothing(&self) {
        *self.0.asked_to_begin.lock().in_any_case() = None;
    }

    /// Asks the transfer to end in an orderly way.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, SeqCst);
        if let Some(running) = self.running() {
            running.session.hear_wish();
        }
    }

    /// Returns whether somebody has asked for the end.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(SeqCst)
    }

    /// The same as a flag, for code that takes only that.
    pub fn cancel_flag(&self) -> &AtomicBool {
        &self.0.is_cancelled
    }

    // ---- calls of the transfer's threads --------------------------------------------------------

    /// The counters, which the transfer's threads write.
    #[doc(hidden)]
    pub fn counts(&self) -> &TransferCounts {
        &self.0.counts
    }

    /// Reports an event.
    #[doc(hidden)]
    pub fn tell(&self, event: Event) {
        self.0.feed.put(event, &|| self.is_cancelled());
    }

    /// Reports an event that may be very frequent; it is made only if somebody wants details.
    #[doc(hidden)]
    pub fn tell_detail(&self, event: impl FnOnce() -> Event) {
        if self.0.feed.wants_details() {
            self.tell(event());
        }
    }

    /// Returns whether any reader wants details.
    #[doc(hidden)]
    pub fn wants_details(&self) -> bool {
        self.0.feed.wants_details()
    }

    /// Reports that the work begins.
    #[doc(hidden)]
    pub fn begin(&self) {
        self.tell(Event::Started { id: self.id().to_string() });
    }

    /// Resets the counters after a session that came to nothing.
    #[doc(hidden)]
    pub fn begin_again(&self) {
        self.0.counts.reset();
        *self.0.dialled.lock().in_any_case() = None;
    }

    /// Notes that a far end is dialled: what comes before is this end's own work.
    #[doc(hidden)]
    pub fn note_dialling(&self) {
        self.0.dialled.lock().in_any_case().get_or_insert_with(Instant::now);
    }

    /// How long ago the far end was first dialled; `None` if that has not happened yet. It may have answered
    /// meanwhile.
    #[doc(hidden)]
    pub fn dialled_for(&self) -> Option<Duration> {
        self.0.dialled.lock().in_any_case().map(|since| since.elapsed())
    }

    /// Reports the end of the transfer.
    #[doc(hidden)]
    pub fn end(&self, ok: bool, error: Option<&Error>) {
        let exit = match (error, ok) {
            (Some(error), _) => error.exit_code(),
            (None, true) => ExitCode::Ok,
            (None, false) if self.0.counts.has_only_vanished() => ExitCode::Vanished,
            (None, false) => ExitCode::SomeFailed,
        };
        self.end_with(exit, error);
    }

    /// As [`Handle::end`], with the exit code given.
    #[doc(hidden)]
    pub fn end_with(&self, exit: ExitCode, error: Option<&Error>) {
        if self.0.is_over.swap(true, Relaxed) {
            return;
        }
        self.tell(Event::Ended {
            ok: exit == ExitCode::Ok,
            error: error.map(ToString::to_string),
            code: error.map(Error::code),
            exit_code: exit as u8,
        });
        self.0.feed.end();
    }

    /// Remembers that this request of a session runs for the transfer.
    pub(crate) fn attach(&self, session: Weak<dyn SteeredSession>, request: u64) {
        self.0.running.lock().in_any_case().request = Some((session, request));
    }

    /// The request has ended: the handle keeps the last facts.
    pub(crate) fn detach(&self, facts: SessionFacts) {
        let ended = facts.is_connected.then(Instant::now);
        *self.0.running.lock().in_any_case() = RunningSession { request: None, facts, ended };
    }

    /// Sets the facts of a transfer that another process runs.
    #[doc(hidden)]
    pub fn set_facts(&self, facts: SessionFacts) {
        self.0.running.lock().in_any_case().facts = facts;
    }

    /// Sets the state of a transfer that another process runs.
    #[doc(hidden)]
    pub fn set_state_there(&self, state: TransferState) {
        *self.0.state_there.lock().in_any_case() = Some(state);
    }

    /// Measures the rate, so that it is that of the last seconds however rarely anybody asks.
    pub(crate) fn look(&self) {
        let counts = &self.0.counts;
        let bytes = counts.bytes_moved();
        let elapsed: Duration = self.0.feed.start().elapsed();
        self.0.pace.lock().in_any_case().look(elapsed, bytes, counts.moved_at());
    }

    fn running(&self) -> Option<RunningRequest> {
        let running = self.0.running.lock().in_any_case();
        let (session, number) = running.request.as_ref()?;
        Some(RunningRequest { session: session.upgrade()?, number: *number })
    }
}
