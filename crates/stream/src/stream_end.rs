//! What both ends of a stream share: a thread that runs the session, and the state that it shares with the
//! program.
//!
//! The thread owns the dialogue: it passes on the peer's messages, confirms blocks, and ends the session when
//! both programs are done. The program's threads wait for it only at the end.
//!
//! Always true: the session ends once, and later calls all report the same end.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd, bounded};
use farhaul_connect::EstablishedSession;
use farhaul_fork::Origin;
use farhaul_handover::{Bell as _, Held as _};
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::exchange::arrived_bytes;
use farhaul_session::handle::Handle;
use farhaul_session::messages::{EndFigures, senseless, unexpected};
use farhaul_session::options::{NetworkOptions, PathAddresses, RateOptions};
use farhaul_session::panic_guard::contained;
use farhaul_session::producer_token::ProducerToken;
use farhaul_session::report::SessionFigures;
use farhaul_session::request::PathAddition;
use farhaul_session::request::Request;
use farhaul_session::session as dialogue;
use farhaul_session::session::{Dialogue, DialogueStep};
use farhaul_session::setup::bind_side_by_side;
use farhaul_words::{Code, Error, Misbehaviour, SessionReport};

use super::MESSAGE_LEN_MAX;
use super::messages::{GIVEN_UP_MAX, StreamMessage};
use super::receiver::AHEAD_MAX;
use super::request::StreamRequest;

/// The most bytes of messages that wait for the program; with more, the program does not read them.
const UNREAD_MAX: usize = 16 << 20;
/// The most bytes of the program's own messages under way, so that the session's messages always find room
/// beside them.
const UNDER_WAY_MAX: u64 = 4 << 20;
/// The receiver confirms after this many blocks, and after `CONFIRM_INTERVAL`, even if the sender does not
/// ask.
const CONFIRM_EVERY: u64 = 64;
const CONFIRM_INTERVAL: Duration = Duration::from_millis(50);
/// How soon a waiting program notices that the session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One end of a stream.
pub(super) struct StreamEnd {
    origin: Origin,
    pub(super) shared: Arc<Request>,
    pub(super) handle: Handle,
    pub(super) name: String,
    pub(super) peer: String,
    pub(super) peer_key: Option<String>,
    pub(super) digests: bool,
    pub(super) in_order: bool,
    pub(super) deadlines: bool,
    is_sender: bool,
    is_initiator: bool,
    flows: usize,
    /// The number of paths that the stream has begun with; `further_paths` may be added, and `added_paths`
    /// have been.
    first_paths: usize,
    further_paths: usize,
    added_paths: Mutex<usize>,
    unused_paths: Mutex<u64>,
    state: Mutex<State>,
    changed: Condvar,
    /// At the sender: the number of blocks that were put.
    pub(super) put: AtomicU64,
    /// At the receiver: the different blocks taken from the flows; `released` counts those that the program
    /// has let go of.
    pub(super) taken: AtomicU64,
    released: AtomicU64,
    /// At the receiver: the sender waits until this many blocks are confirmed.
    asked: AtomicU64,
    /// The program has called `finish`.
    finishing: AtomicBool,
    /// While set, more blocks may come, so the flows do not repair their tails ahead of feedback.
    unread: Mutex<Option<ProducerToken>>,
    /// Closed when nothing more will arrive: all blocks are here, or the session has ended.
    pub(super) over: Channel<Infallible>,
    open: Mutex<Option<ChannelEnd<Infallible>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The program's word on whether its threads go on waiting.
    goes_on: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// True once that word was no. Calls then end without waiting for the end of the session.
    is_abandoned: AtomicBool,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Vec<u8>>,
    message_bytes: usize,
    /// At the receiver: the number of all blocks, once known. At the sender: the number that it has told the
    /// receiver.
    end: Option<u64>,
    /// At the sender: blocks that the receiver has let go of. At the receiver: the number that it has
    /// confirmed.
    confirmed: u64,
    /// At the sender: a thread waits for this many confirmed blocks.
    waited_for: u64,
    /// Blocks that the sender has given up, and of which the program does not know yet.
    given_up: BTreeSet<u64>,
    ended: Option<EndReport>,
}

struct EndReport {
    report: SessionReport,
    error: Option<Error>,
}

/// Starts one end, with a thread of its own.
pub(super) fn begin(established: EstablishedSession) -> Result<Arc<StreamEnd>, Error> {
    let (started, starting) = bounded(1);
    let run = move || {
        begin_here(established, |session| {
            let _ = started.send(session);
        });
    };
    let thread = std::thread::Builder::new().name("stream".into()).spawn(run);
    let thread = thread.map_err(Error::no_thread)?;
    let session = starting.recv().map_err(|_| Error::bug("the start of a stream"))??;
    *session.thread.lock().in_any_case() = Some(thread);
    Ok(session)
}

/// Starts one end on this thread and runs it to its end.
pub(super) fn begin_here(
    established: EstablishedSession,
    started: impl FnOnce(Result<Arc<StreamEnd>, Error>),
) -> Option<SessionReport> {
    let EstablishedSession { session: setup, opening, peer_key, .. } = established;
    let request = match StreamRequest::of(&opening) {
        Ok(request) => request,
        Err(refusal) => {
            started(Err(refusal.into_error()));
            return None;
        }
    };
    let role =
        if setup.is_initiator == request.client_sends { ContentRole::Sender } else { ContentRole::Receiver };
    let StreamRequest { name, in_order, digests, deadlines, .. } = request;
    let (options, peer) = (opening.network, setup.peer.clone());
    let handle = Handle::new();
    let begun =
        contained(|| dialogue::Session::start(setup, options.clone(), role, DeliveryOrder::Kept, &handle))
            .flatten();
    let mut dialogue = match begun {
        Ok((_, dialogue)) => dialogue,
        Err(error) => {
            started(Err(error));
            return None;
        }
    };
    let shared = dialogue.request.clone();
    let (open, over) = bounded(0);
    let session = Arc::new(StreamEnd {
        origin: Origin::here(),
        unread: Mutex::new((role == ContentRole::Sender).then(|| ProducerToken::new(&shared))),
        is_initiator: dialogue.is_client(),
        flows: options.flows.into(),
        first_paths: shared.path_count() - shared.absent_paths().count_ones() as usize,
        further_paths: shared.absent_paths().count_ones() as usize,
        added_paths: Mutex::default(),
        shared,
        handle,
        name,
        peer,
        peer_key,
        digests,
        in_order,
        deadlines,
        is_sender: role == ContentRole::Sender,
        unused_paths: Mutex::default(),
        state: Mutex::default(),
        changed: Condvar::new(),
        put: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        released: AtomicU64::new(0),
        asked: AtomicU64::new(0),
        finishing: AtomicBool::new(false),
        over,
        open: Mutex::new(Some(open)),
        thread: Mutex::default(),
        goes_on: OnceLock::new(),
        is_abandoned: AtomicBool::new(false),
    });
    started(Ok(session.clone()));
    let ended = contained(|| session.converse(&mut dialogue)).flatten();
    match contained(|| session.close(dialogue, ended)) {
        Ok(report) => Some(report),
        Err(panic) => {
            // Threads that wait for the end must get one.
            session.set_ended(SessionReport::default(), Some(panic));
            None
        }
    }
}

impl StreamEnd {
    // ---- the session's thread
    // ----------------------------------------------------------------------------------

    fn converse(&self, dialogue: &mut Dialogue) -> Result<EndFigures, Error> {
        let mut finish_sent = false;
        let mut last_said = Instant::now();
        loop {
            let step = match finish_sent {
                false => dialogue.step()?,
                true => dialogue.step_after_finish()?,
            };
            match step {
                DialogueStep::Finish(theirs) if self.is_sender => {
                    let state = self.state.lock().in_any_case();
                    if state.end.is_none_or(|end| end != state.confirmed) {
                        return Err(Error::from(Misbehaviour::FinishedTooEarly));
                    }
                    drop(state);
                    dialogue.finish();
                    return Ok(theirs);
                }
                DialogueStep::Finish(theirs) if finish_sent => return Ok(theirs),
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Message(bytes) => {
                    self.handle(StreamMessage::decode(bytes).map_err(senseless)?)?
                }
                DialogueStep::Idle if self.is_sender => {
                    self.say_given_up();
                    self.say_put();
                }
                DialogueStep::Idle => {
                    self.confirm(&mut last_said);
                    if !finish_sent && self.has_everything() && self.finishing.load(Ordering::Acquire) {
                        finish_sent = true;
                        dialogue.say_finished(Vec::new());
                    }
                }
            }
        }
    }

    fn handle(&self, message: StreamMessage) -> Result<(), Error> {
        let mut state = self.state.lock().in_any_case();
        match message {
            StreamMessage::Word(bytes) if bytes.len() <= MESSAGE_LEN_MAX => {
                state.message_bytes += bytes.len() + size_of::<Vec<u8>>();
                state.messages.push_back(bytes);
                if state.message_bytes > UNREAD_MAX {
                    let what = "the program does not read the far end's messages".to_string();
                    return Err(Error::new(Code::ProgramFailed, what));
                }
            }
            StreamMessage::Confirmed { count } if self.is_sender => {
                if count < state.confirmed || count > self.put.load(Ordering::Acquire) {
                    return Err(Error::from(Misbehaviour::ConfirmedUnput));
                }
                state.confirmed = count;
            }
            StreamMessage::BlocksPut { count, is_last } if !self.is_sender && state.end.is_none() => {
                if count < self.asked.load(Ordering::Acquire)
                    || count < self.taken.load(Ordering::Acquire) && is_last
                {
                    return Err(Error::from(Misbehaviour::MoreThanPut));
                }
                self.asked.store(count, Ordering::Release);
                state.end = is_last.then_some(count);
            }
            StreamMessage::GivenUp(numbers) if !self.is_sender && self.deadlines => {
                let end = state.end.unwrap_or(u64::MAX).min(self.taken.load(Ordering::Acquire) + AHEAD_MAX);
                if numbers.iter().any(|&number| number >= end) {
                    return Err(Error::from(Misbehaviour::ImpossibleNumber));
                }
                state.given_up.extend(numbers);
                // Who waits for a block may wait for one of these.
                self.shared.arrived().bell().ring();
            }
            other => return Err(unexpected(other.name())),
        }
        drop(state);
        self.changed.notify_all();
        self.close_if_complete();
        Ok(())
    }

    /// Tells the receiver which blocks were given up, as they could not arrive in time.
    fn say_given_up(&self) {
        let numbers: Vec<u64> =
            std::iter::from_fn(|| self.shared.next_given_up()).take(GIVEN_UP_MAX).collect();
        if numbers.is_empty() {
            return;
        }
        let mut state = self.state.lock().in_any_case();
        let put = self.put.load(Ordering::Acquire);
        for &number in &numbers {
            state.given_up.insert(number);
        }
        while state.given_up.first().is_some_and(|first| first + AHEAD_MAX < put) {
            state.given_up.pop_first();
        }
        drop(state);
        self.say(&StreamMessage::GivenUp(numbers));
        // There may be more.
        self.shared.wake_dialogue();
    }

    /// A block that was given up, and of which the program does not know yet.
    pub(super) fn next_given_up(&self) -> Option<u64> {
        self.state.lock().in_any_case().given_up.pop_first()
    }

    /// Tells the receiver how many blocks there are, once no more will be put; before that, how many of them
    /// somebody waits for.
    fn say_put(&self) {
        let mut state = self.state.lock().in_any_case();
        let count = match (state.end, self.finishing.load(Ordering::Acquire)) {
            (Some(_), _) => return,
            (None, true) => {
                let count = self.put.load(Ordering::Acquire);
                state.end = Some(count);
                count
            }
            (None, false) if state.waited_for > 0 => std::mem::take(&mut state.waited_for),
            (None, false) => return,
        };
        let is_last = state.end.is_some();
        drop(state);
        self.say(&StreamMessage::BlocksPut { count, is_last });
    }

    /// Tells the sender how many blocks the program has let go of: at once if the sender waits for them,
    /// otherwise now and then.
    fn confirm(&self, last_said: &mut Instant) {
        let count = self.released.load(Ordering::Acquire);
        let mut state = self.state.lock().in_any_case();
        let news = count - state.confirmed;
        let is_asked =
            (state.confirmed..count).contains(&(self.asked.load(Ordering::Acquire).wrapping_sub(1)));
        if news > 0 && (is_asked || news >= CONFIRM_EVERY || last_said.elapsed() >= CONFIRM_INTERVAL) {
            state.confirmed = count;
            drop(state);
            *last_said = Instant::now();
            self.say(&StreamMessage::Confirmed { count });
        }
    }

    fn say(&self, message: &StreamMessage) {
        self.shared.send_encoded(|out| message.encode(out));
    }

    fn has_everything(&self) -> bool {
        let state = self.state.lock().in_any_case();
        state.end.is_some_and(|end| end == state.confirmed)
    }

    fn close(&self, dialogue: Dialogue, ended: Result<EndFigures, Error>) -> SessionReport {
        let (theirs, error) = match ended {
            Ok(theirs) => (theirs, None),
            Err(error) => (EndFigures::default(), Some(error)),
        };
        let bytes = match self.is_sender {
            true => arrived_bytes(&self.shared, error.is_none().then_some(0)),
            false => self.shared.counts().content_written.load(Ordering::Relaxed),
        };
        let figures = SessionFigures { ours: dialogue.figures(), theirs };
        let report = dialogue.report(&figures, bytes);
        dialogue.close(error.as_ref());
        self.set_ended(report.clone(), error);
        report
    }

    fn set_ended(&self, report: SessionReport, error: Option<Error>) {
        self.unread.lock().in_any_case().take();
        self.state.lock().in_any_case().ended = Some(EndReport { report, error });
        drop(self.open.lock().in_any_case().take());
        self.changed.notify_all();
    }

    // ---- the program's threads
    // ---------------------------------------------------------------------------------

    pub(super) fn is_sender(&self) -> bool {
        self.is_sender
    }

    /// The error for further calls, if the session has ended.
    pub(super) fn ended(&self) -> Option<Error> {
        let state = self.state.lock().in_any_case();
        state.ended.as_ref().map(|ended| ended.error.as_ref().map_or_else(closed, Error::clone))
    }

    pub(super) fn is_over(&self) -> bool {
        self.shared.is_stopped()
    }

    /// Whether the program has said that it is done.
    pub(super) fn is_finishing(&self) -> bool {
        self.finishing.load(Ordering::Acquire)
    }

    pub(super) fn on_wait(&self, goes_on: Box<dyn Fn() -> bool + Send + Sync>) {
        // The first one stays.
        let _ = self.goes_on.set(goes_on);
    }

    /// Whether a thread of the program that waits has to stop: the session is over, or the program wants no more of it.
    /// Nobody asks this while it holds a lock, as the program may take its time.
    pub(super) fn must_stop(&self) -> bool {
        if self.goes_on.get().is_some_and(|goes_on| !goes_on()) {
            self.is_abandoned.store(true, Ordering::Release);
            self.handle.cancel();
            self.shared.wake_dialogue();
        }
        self.is_abandoned.load(Ordering::Acquire) || self.is_over()
    }

    /// Waits until `done` says so or the session has ended. Returns false if the program wants to wait no more.
    fn wait_until(&self, done: impl Fn(&State) -> bool) -> bool {
        let mut state = self.state.lock().in_any_case();
        while state.ended.is_none() && !done(&state) {
            (state, _) = self.changed.wait_timeout(state, LOOK_EVERY).in_any_case();
            drop(state);
            if self.must_stop() && self.is_abandoned.load(Ordering::Acquire) {
                return false;
            }
            state = self.state.lock().in_any_case();
        }
        true
    }

    /// Waits for the end of a session that something has stopped, and returns the error for further calls.
    pub(super) fn why(&self) -> Error {
        if self.is_abandoned.load(Ordering::Acquire) || !self.wait_until(|_| false) {
            return Error::interrupted();
        }
        let state = self.state.lock().in_any_case();
        state.ended.as_ref().and_then(|ended| ended.error.as_ref()).map_or_else(closed, Error::clone)
    }

    /// Waits until the receiver has let go of `count` blocks.
    pub(super) fn wait_confirmed(&self, count: u64) -> Result<(), Error> {
        // While it waits, this thread puts no more blocks, so the flows may repair their tails.
        let held = self.unread.lock().in_any_case().take();
        drop(held);
        let mut state = self.state.lock().in_any_case();
        if state.confirmed < count {
            state.waited_for = state.waited_for.max(count);
            drop(state);
            self.shared.wake_dialogue();
        } else {
            drop(state);
        }
        if !self.wait_until(|state| state.confirmed >= count) {
            return Err(Error::interrupted());
        }
        if self.state.lock().in_any_case().confirmed < count {
            return Err(self.why());
        }
        self.unread.lock().in_any_case().get_or_insert_with(|| ProducerToken::new(&self.shared));
        Ok(())
    }

    /// The number of all blocks, once known.
    pub(super) fn end(&self) -> Option<u64> {
        self.state.lock().in_any_case().end
    }

    /// Whether all blocks have been taken from the flows.
    pub(super) fn is_complete(&self) -> bool {
        self.end().is_some_and(|end| end == self.taken.load(Ordering::Acquire))
    }

    /// Wakes threads that wait for more blocks if there are none.
    pub(super) fn close_if_complete(&self) {
        if !self.is_sender && self.is_complete() {
            drop(self.open.lock().in_any_case().take());
        }
    }

    /// The program has let go of a block with `content` bytes.
    pub(super) fn release(&self, content: u64) {
        self.shared.counts().content_written.fetch_add(content, Ordering::Relaxed);
        self.handle.counts().bytes_done.fetch_add(content, Ordering::Relaxed);
        let count = self.released.fetch_add(1, Ordering::AcqRel) + 1;
        // The session's thread looks twenty times a second; blocks that somebody waits for are confirmed at
        // once.
        if count.is_multiple_of(CONFIRM_EVERY) || count == self.asked.load(Ordering::Acquire) {
            self.shared.wake_dialogue();
        }
    }

    /// Ends the session with this error.
    pub(super) fn fail(&self, error: Error) {
        self.shared.fail(error);
    }

    pub(super) fn send_message(&self, bytes: &[u8]) -> Result<(), Error> {
        self.is_here()?;
        if bytes.len() > MESSAGE_LEN_MAX {
            return Err(Error::new(Code::Misuse, format!("a message has at most {MESSAGE_LEN_MAX} bytes")));
        }
        while self.shared.unacked() > UNDER_WAY_MAX && !self.must_stop() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.is_over() {
            return Err(self.why());
        }
        self.say(&StreamMessage::Word(bytes.to_vec()));
        Ok(())
    }

    /// The next message; `None` if none comes in time.
    pub(super) fn message(&self, wait: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.is_here()?;
        // A wait that ends after the end of time has no end.
        let until = Instant::now().checked_add(wait);
        let mut state = self.state.lock().in_any_case();
        loop {
            if let Some(bytes) = state.messages.pop_front() {
                state.message_bytes -= bytes.len() + size_of::<Vec<u8>>();
                return Ok(Some(bytes));
            }
            if state.ended.is_some() {
                drop(state);
                return Err(self.why());
            }
            let left = until.map_or(LOOK_EVERY, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            (state, _) = self.changed.wait_timeout(state, left).in_any_case();
        }
    }

    pub(super) fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
        self.is_here()?;
        self.handle.set_rate(rate)
    }

    pub(super) fn use_path(&self, path: usize, is_used: bool) -> Result<(), Error> {
        self.is_here()?;
        let (all, absent) = (self.shared.path_count(), self.shared.absent_paths());
        if path >= all || absent & 1 << path != 0 {
            let there = all - absent.count_ones() as usize;
            return Err(Error::new(
                Code::Misuse,
                format!("there are {there} paths, so none has the number {path}"),
            ));
        }
        let mut unused = self.unused_paths.lock().in_any_case();
        let wanted = if is_used { *unused & !(1 << path) } else { *unused | 1 << path };
        if wanted | absent == (1 << all) - 1 {
            return Err(Error::new(Code::Misuse, "the last path cannot be taken out"));
        }
        *unused = wanted;
        self.handle.use_path(path, is_used);
        Ok(())
    }

    /// Begins a further path; returns its number.
    pub(super) fn add_path(&self, addresses: PathAddresses) -> Result<usize, Error> {
        self.is_here()?;
        if !self.is_initiator {
            return Err(Error::new(Code::Misuse, "the end that has connected adds paths"));
        }
        let one = NetworkOptions { paths: vec![addresses], ..NetworkOptions::default() };
        one.checked()?;
        let mut added = self.added_paths.lock().in_any_case();
        if *added == self.further_paths {
            let agreed = self.further_paths;
            let what =
                format!("no further path can be added: {agreed} were agreed on (further_paths), over UDP");
            return Err(Error::new(Code::Misuse, what));
        }
        let local = addresses.local;
        let bound = addresses.local_address().and_then(|local| bind_side_by_side(Some(local), self.flows));
        let sockets = bound.map_err(|source| {
            let why = farhaul_text::plain(&source);
            Error::new(Code::Misuse, format!("{local} is no address of this host ({why})"))
        })?;
        let number = *added;
        *added += 1;
        let addition = PathAddition { number, addresses, sockets };
        self.shared.add_path(addition);
        Ok(self.first_paths + number)
    }

    /// Says that the program is done, and waits for the end. What has not ended by `until` is given up.
    pub(super) fn finish(self: &Arc<Self>, until: Option<Instant>) -> Result<SessionReport, Error> {
        self.is_here()?;
        self.finishing.store(true, Ordering::Release);
        self.unread.lock().in_any_case().take();
        self.shared.wake_dialogue();
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        if !self.wait_until(|_| is_late()) {
            return Err(Error::interrupted());
        }
        if self.ended().is_none() {
            self.give_up();
            return Err(self.why());
        }
        let state = self.state.lock().in_any_case();
        let ended = state.ended.as_ref().expect("waited for just before");
        let result = match &ended.error {
            Some(error) => Err(error.clone()),
            None => Ok(ended.report.clone()),
        };
        drop(state);
        self.join();
        result
    }

    /// An error in a forked child, which has no part in the session: a lock may be held by a thread that the
    /// child lacks.
    pub(super) fn is_here(&self) -> Result<(), Error> {
        match self.origin.is_here() {
            true => Ok(()),
            false => Err(Error::forked("the stream")),
        }
    }

    /// Ends the session if it has not ended yet; the far end is told. A forked child leaves all as it is.
    pub(super) fn give_up(self: &Arc<Self>) {
        if !self.origin.is_here() {
            // Nothing below is dropped here: the session goes on in the parent.
            std::mem::forget(self.clone());
            return;
        }
        if self.ended().is_none() {
            self.handle.cancel();
            self.shared.wake_dialogue();
        }
        self.join();
    }

    fn join(&self) {
        let thread = self.thread.lock().in_any_case().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn closed() -> Error {
    Error::new(Code::Misuse, "the stream has ended")
}
