//! A daemon's part: it gives grants, and copies with other daemons for its clients.
//!
//! Always true: each operation is checked against what the client may do at that moment; a copy ends with the
//! session that it was asked for in, so that it can be resumed, and counts as one of that client's own.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use farhaul_connect::{
    CopyReach, Errand, EstablishedSession, GRANT_SECS, GRANT_SECS_MAX, GrantWish, Guest, Identity,
    RightsRequest, pinned_connect,
};
use farhaul_copy::{CopyDirection, DelegatedCopy, REPORT_SCHEMA, Report};
use farhaul_session::budget::{Budget, Resource};
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::event_feed::EventReader;
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::panic_guard::contained;
use farhaul_session::report::SessionFigures;
use farhaul_session::request::Request;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_words::{Cipher, Code, Error, Event, EventLevel, SessionReport};

use super::commission::{COMMISSION_MAX, Commission};
use super::copy_status;
use super::messages::{ControlMessage, DOCUMENT_MAX, DocumentParts, PART_MAX, parts};

/// How often a client gets a snapshot of its copy.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The most answers that wait until the client takes them.
const ANSWERS_MAX: usize = 256;
/// The most events that are sent in one piece.
const EVENTS_AT_ONCE: usize = 64;
/// The number of threads of a copy, beside those of its session.
const THREADS: u64 = 2;
/// The most bytes of events that wait for a client; a copy with more events waits.
const WAITING_MAX: usize = 1 << 20;
/// The bytes that a copy takes beside its session, for its reports.
const BYTES: u64 = 2 * WAITING_MAX as u64;
/// While a commission is read, it takes this many times its own bytes.
const READ_TIMES: u64 = 8;

/// The policy of a serving daemon.
#[derive(Debug, Clone)]
pub struct ControlServerPolicy {
    /// The policy for copies, as for those that clients make with this daemon.
    pub copy: farhaul_copy::CopyServerPolicy,
    /// The identity by which other daemons know this one.
    pub identity: Identity,
}

/// The description of a copy with another daemon, for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedCopy {
    /// The direction: with push, this daemon sends.
    pub direction: CopyDirection,
    /// The first path at this daemon, as the client has named it.
    pub path: Vec<u8>,
    /// The number of paths at this daemon.
    pub paths: usize,
    /// The path at the other daemon.
    pub far_path: Vec<u8>,
    /// The host of the other daemon.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The fingerprint of the key that the other daemon must have.
    pub key: String,
}

/// An observer of what is done for clients.
pub trait ControlObserver: Sync {
    /// A grant was given: the holder of this key may run this errand within this many seconds.
    fn granted(&self, _key: &str, _errand: &Errand, _seconds: u64) {}

    /// A copy begins.
    fn begins(&self, _handle: &Handle, _carried: &CarriedCopy) {}

    /// A copy has ended.
    fn ended(&self, _handle: &Handle, _carried: &CarriedCopy, _report: &Report, _error: Option<&Error>) {}
}

/// How a served session ended.
#[derive(Debug)]
pub struct ControlOutcome {
    /// The report of the session.
    pub report: SessionReport,
    /// Why it ended early, if it did.
    pub error: Option<Error>,
}

/// Serves a client until it has no more requests.
pub fn serve(
    established: EstablishedSession,
    policy: &ControlServerPolicy,
    watch: &dyn ControlObserver,
    handle: &Handle,
) -> ControlOutcome {
    handle.begin();
    let served = contained(|| run(established, policy, watch, handle)).flatten();
    let served = served
        .unwrap_or_else(|error| ControlOutcome { report: SessionReport::default(), error: Some(error) });
    handle.end(served.error.is_none(), served.error.as_ref());
    served
}

fn run(
    mut established: EstablishedSession,
    policy: &ControlServerPolicy,
    watch: &dyn ControlObserver,
    handle: &Handle,
) -> Result<ControlOutcome, Error> {
    let guest = established.guest.take();
    let guest = guest.ok_or_else(|| {
        Error::new(Code::Forbidden, "nobody is served here without a key that this daemon knows")
    })?;
    let mut network = established.opening.network;
    network.testing = policy.copy.testing;
    let budget = established.session.budget.clone();
    let started =
        Session::start(established.session, network, ContentRole::Sender, DeliveryOrder::Any, handle)?;
    let mut dialogue = started.1;
    let (answers, answering) = sync_channel(ANSWERS_MAX);
    let server = Server { request: dialogue.request.clone(), guest, policy, watch };
    let result = std::thread::scope(|scope| {
        let said = &server;
        let answer = move || said.request.work(|| answering.iter().for_each(|answer| said.say(&answer)));
        let answer = std::thread::Builder::new().name("control-says".into()).spawn_scoped(scope, answer);
        answer.map_err(Error::no_thread)?;
        let mut running = None;
        let heard = || server.converse(&mut dialogue, &mut running, (&budget, answers), scope);
        let heard = contained(heard).flatten();
        if let Some(RunningCopy { handle, .. }) = &running {
            handle.cancel();
        }
        heard
    });
    if let Err(error) = &result {
        dialogue.abort(error);
    }
    let figures = SessionFigures { ours: dialogue.figures(), theirs: Default::default() };
    let (report, error) = (dialogue.report(&figures, 0), result.err());
    dialogue.close(error.as_ref());
    Ok(ControlOutcome { report, error })
}

struct Server<'a> {
    request: Arc<Request>,
    guest: Guest,
    policy: &'a ControlServerPolicy,
    watch: &'a dyn ControlObserver,
}

/// The one copy of a session that may run at a time.
struct RunningCopy<'scope> {
    handle: Handle,
    /// The number of the last *hold* that was obeyed.
    hold: Arc<AtomicU64>,
    /// Set once the copy has ended: its client is being told how, and may ask for the next one.
    is_over: Arc<AtomicBool>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl Server<'_> {
    fn converse<'scope>(
        &'scope self,
        dialogue: &mut Dialogue,
        running: &mut Option<RunningCopy<'scope>>,
        (budget, answers): (&Budget, SyncSender<ControlMessage>),
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<(), Error> {
        let (mut document, mut kept) = (DocumentParts::default(), None);
        loop {
            let message = match dialogue.step()? {
                DialogueStep::Message(bytes) => ControlMessage::decode(bytes).map_err(senseless)?,
                DialogueStep::Finish(_) => {
                    if let Some(RunningCopy { handle, thread, .. }) = running.take() {
                        handle.cancel();
                        let _ = thread.join();
                    }
                    dialogue.finish();
                    return Ok(());
                }
                DialogueStep::Idle => {
                    // A client that is not heard could not pause or cancel its copy.
                    if let Some(RunningCopy { handle, .. }) = running {
                        handle.set_unheard(self.request.is_peer_unheard());
                    }
                    continue;
                }
            };
            match message {
                ControlMessage::Grant { op, key, errand, seconds } => {
                    let answer = match self.grant(key, errand, seconds) {
                        Ok((token, seconds)) => ControlMessage::Granted { op, seconds, token },
                        Err(error) => ControlMessage::refused(op, &error),
                    };
                    // This thread reads from the client, so it does not wait for the client to read.
                    answers.try_send(answer).map_err(|_| {
                        Error::new(Code::Busy, "too many requests: the answers to earlier ones were not read")
                    })?;
                }
                ControlMessage::Begin { op, is_last, part } => {
                    let is_over = |running: &RunningCopy<'_>| running.is_over.load(Ordering::Acquire);
                    if running.as_ref().is_some_and(|running| !is_over(running)) {
                        return Err(unexpected("begin"));
                    }
                    let (_, bytes) = match &mut kept {
                        Some(kept) => kept,
                        none => {
                            none.insert((budget.charge_of(Resource::Threads, THREADS)?, budget.nothing()))
                        }
                    };
                    bytes.hold(BYTES + READ_TIMES * (document.len() + part.len()) as u64)?;
                    if let Some(whole) = document.take(is_last, &part, COMMISSION_MAX)? {
                        let kept = kept.take();
                        let handle = Handle::new();
                        let is_over = Arc::new(AtomicBool::new(false));
                        let hold = Arc::new(AtomicU64::new(0));
                        let (own, over, obeyed) = (handle.clone(), is_over.clone(), hold.clone());
                        let carry = move || {
                            let _kept = kept;
                            self.request.work(|| self.carry(op, &whole, (&own, &obeyed), &over));
                        };
                        let thread = std::thread::Builder::new().name("carry".into());
                        let thread = thread.spawn_scoped(scope, carry).map_err(Error::no_thread)?;
                        *running = Some(RunningCopy { handle, hold, is_over, thread });
                    }
                }
                // The copy that this message is about may have ended meanwhile.
                ControlMessage::Hold { number, is_held } => {
                    if let Some(RunningCopy { handle, hold, .. }) = running {
                        if is_held {
                            handle.pause()
                        } else {
                            handle.resume()
                        }
                        hold.store(number, Ordering::SeqCst);
                    }
                }
                ControlMessage::Rate(rate) => {
                    if let Some(RunningCopy { handle, .. }) = running {
                        handle.set_rate(rate)?;
                    }
                }
                ControlMessage::Cancel => {
                    if let Some(RunningCopy { handle, .. }) = running {
                        handle.cancel();
                    }
                }
                other => return Err(unexpected(other.name())),
            }
        }
    }

    fn grant(
        &self,
        key: String,
        errand: Errand,
        seconds: u64,
    ) -> Result<(farhaul_connect::hello::HelloSecret, u64), Error> {
        let seconds = if seconds == 0 { GRANT_SECS } else { seconds.min(GRANT_SECS_MAX) };
        let paths = std::slice::from_ref(&errand.path);
        let Errand { way, deletes, follows, looks_beside, writes_beside, .. } = errand;
        // Overwriting is judged when the copy is asked for, by the rights of the grant's giver.
        let (has_more, is_spread, overwrites) = (false, false, false);
        let reach = CopyReach {
            paths,
            has_more,
            is_spread,
            overwrites,
            deletes,
            follows,
            looks_beside,
            writes_beside,
        };
        let asked = RightsRequest { way, cipher: Cipher::default(), copy: Some(reach) };
        let lifetime = Duration::from_secs(seconds);
        let wish = GrantWish { key: key.clone(), errand: errand.clone(), lifetime };
        let token = self.guest.grant(wish, asked)?;
        self.watch.granted(&key, &errand, seconds);
        Ok((token, seconds))
    }

    /// Makes a copy with another daemon, sends its events, and reports how it has ended.
    fn carry(&self, op: u64, document: &[u8], (handle, hold): (&Handle, &AtomicU64), is_over: &AtomicBool) {
        handle.begin();
        let (report, error) = std::thread::scope(|scope| {
            let commission = Commission::read(document);
            let level = match &commission {
                Ok(commission) if commission.details => EventLevel::Trace,
                Ok(_) | Err(_) => EventLevel::Notice,
            };
            let events = handle.events_within(level, WAITING_MAX);
            let relay = move || self.request.work(|| self.relay((handle, hold), &events));
            let relaying = std::thread::Builder::new().name("carry-told".into()).spawn_scoped(scope, relay);
            let made = relaying.map_err(Error::no_thread).and(commission).map(|commission| {
                let carried = carried(&commission);
                self.watch.begins(handle, &carried);
                let made = contained(|| self.make(op, commission, handle)).flatten();
                let (report, error) = made.unwrap_or_else(failed);
                self.watch.ended(handle, &carried, &report, error.as_ref());
                (report, error)
            });
            let (report, error) = made.unwrap_or_else(failed);
            // This also ends the relay of events.
            handle.end_with(report.exit_code(error.as_ref()), error.as_ref());
            (report, error)
        });
        is_over.store(true, Ordering::Release);
        for (is_last, part) in parts(&copy_status::of_ending(&report, error.as_ref())) {
            self.say(&ControlMessage::Ended { op, is_last, part });
        }
    }

    fn make(
        &self,
        op: u64,
        commission: Commission,
        handle: &Handle,
    ) -> Result<(Report, Option<Error>), Error> {
        let Commission { copy, far, .. } = commission;
        let allowed = self.guest.judge(copy.asked())?;
        let lent = self.guest.lend(&copy.options.network)?;
        let prepare =
            || DelegatedCopy::prepare(copy, far.path.clone(), &self.policy.copy, &allowed, lent.budget());
        let carry = handle.prepare(prepare)?;
        if handle.is_cancelled() {
            return Err(Error::interrupted());
        }
        let mut established = pinned_connect(&self.policy.identity, &far.target(), carry.params()?, handle)?;
        lent.to(&mut established.session, (&far.host, far.port))?;
        let entries = ToClient { request: self.request.clone(), op };
        Ok(carry.run(established, Box::new(entries), handle))
    }

    /// Sends the client the copy's events, and a snapshot every second.
    fn relay(&self, (handle, hold): (&Handle, &AtomicU64), events: &EventReader) {
        let mut due = Instant::now();
        while !self.request.is_stopped() {
            let (mut told, mut is_about_pause) = (Vec::new(), false);
            if let Some(first) = events.next(due.saturating_duration_since(Instant::now())) {
                let more = std::iter::from_fn(|| events.next(Duration::ZERO));
                let all = std::iter::once(first).chain(more.take(EVENTS_AT_ONCE - 1));
                told.extend(all.map(|stamped| {
                    is_about_pause |= matches!(stamped.event, Event::Paused { .. } | Event::Resumed);
                    (serde_json::to_vec(&stamped.event), true)
                }));
            }
            let is_over = events.is_over();
            // Before the snapshot is made, which then shows what has been obeyed.
            let hold = hold.load(Ordering::SeqCst);
            if is_over || is_about_pause || Instant::now() >= due {
                due = Instant::now() + TELL_EVERY;
                told.push((serde_json::to_vec(&handle.snapshot()), false));
            }
            self.request.send_encoded(|out| {
                for (json, is_event) in told {
                    let Ok(json) = json else { continue };
                    if json.len() <= DOCUMENT_MAX {
                        let message = if is_event {
                            ControlMessage::Event(json)
                        } else {
                            ControlMessage::Snapshot { hold, json }
                        };
                        message.encode(out);
                    }
                }
            });
            if is_over {
                return;
            }
        }
    }

    fn say(&self, message: &ControlMessage) {
        self.request.send_encoded(|out| message.encode(out));
    }
}

/// Sends a client the manifest of its copy; waits while the client does not read.
struct ToClient {
    request: Arc<Request>,
    op: u64,
}

impl Write for ToClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(PART_MAX)];
        if self.request.is_stopped() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let message = ControlMessage::Entries { op: self.op, part: part.to_vec() };
        self.request.send_encoded(|out| message.encode(out));
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn carried(Commission { copy, far, .. }: &Commission) -> CarriedCopy {
    CarriedCopy {
        // If the client's request is to receive content, this daemon sends it.
        direction: match copy.direction {
            CopyDirection::Pull => CopyDirection::Push,
            CopyDirection::Push => CopyDirection::Pull,
        },
        path: copy.paths.first().cloned().unwrap_or_default(),
        paths: copy.paths.len(),
        far_path: far.path.clone(),
        host: far.host.clone(),
        port: far.port,
        key: far.key.clone(),
    }
}

fn failed(error: Error) -> (Report, Option<Error>) {
    let report = Report { schema: REPORT_SCHEMA, ..Report::default() }.ended_by(Some(&error));
    (report, Some(error))
}
