//! Sends one stream: connects, agrees with the receiver where to begin, and hands over frame after frame. After a lost
//! connection it goes on as the promise says: with the frame that the receiver lacks, or with the one that is due.
//!
//! In a session one thread reads ahead into blocks of the stream, this one puts them when they are due, and one
//! answers the receiver.

mod dropped_frames;
mod read_ahead;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use farhaul::Error;
use farhaul::errors::{Code, Misbehaviour};
use farhaul::sisters::escape;
use farhaul::stream::{StreamOptions, StreamSender, StreamTarget, connect_to_send};
use farhaul_handover::Held as _;

use crate::control::{LOOK_EVERY, ShowControl, clock_ns};
use crate::counts::{StreamCounts, StreamState, StreamStats};
use crate::label::{PIECE, PieceLabel};
use crate::loss::is_loss;
use crate::plan::StreamSendPlan;
use crate::source::Source;
use crate::words::{self, Opening, ReceiverWord, SenderWord};
use dropped_frames::DroppedFrames;
use read_ahead::{ReadAhead, read_ahead};

/// The most pieces that are read ahead.
const AHEAD_MAX: u64 = 64;
/// How long a receiver may take to say where it wants to begin.
const BEGIN_WAIT: Duration = Duration::from_secs(60);
/// How long after its deadline a block may be found to be given up.
const KEPT_BEYOND: Duration = Duration::from_secs(30);
/// How long the receiver may take for the rest when the show is stopped.
const STOP_WAIT: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(3);

/// Sends one stream to its end. `notice` hears what a user may want to know meanwhile.
pub fn send_stream(
    plan: &StreamSendPlan,
    control: &ShowControl,
    counts: &StreamCounts,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<StreamStats, Error> {
    let result = StreamSending::new(plan, control, counts).and_then(|mut sending| sending.run(notice));
    counts.end_session(StreamState::Ended);
    result.map(|()| counts.stats())
}

struct StreamSending<'a> {
    plan: &'a StreamSendPlan,
    control: &'a ShowControl,
    counts: &'a StreamCounts,
    source: Source,
    run: String,
    /// The number of frames, if it is known.
    frames: Option<u64>,
    /// The next frame that will be handed over for the first time.
    next: u64,
    /// When the first frame was due.
    first_due: Option<Instant>,
}

/// What has been heard from the receiver.
#[derive(Default)]
struct Heard {
    begin: Option<u64>,
    failure: Option<Error>,
}

impl<'a> StreamSending<'a> {
    fn new(
        plan: &'a StreamSendPlan,
        control: &'a ShowControl,
        counts: &'a StreamCounts,
    ) -> Result<Self, Error> {
        let source = Source::open(&plan.source, control)?;
        let frames = match (source.frames(), plan.frames) {
            (Some(there), Some(wanted)) => Some(there.min(wanted)),
            (there, wanted) => there.or(wanted).filter(|_| there.is_some() || source.can_go_back()),
        };
        counts.update(|stats| stats.frames_total = frames);
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| {
            Error::of_host("the system gives no random numbers", std::io::Error::other(error.to_string()))
        })?;
        let run = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(StreamSending { plan, control, counts, source, run, frames, next: 0, first_due: None })
    }

    fn run(&mut self, notice: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
        let mut pause = RETRY_FIRST;
        let mut since = Instant::now();
        let mut is_told = false;
        loop {
            let before = self.counts.stats().sessions;
            let error = match self.connected().and_then(|sender| self.session(&sender)) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            self.counts.end_session(StreamState::Waiting);
            if self.control.is_stopped() {
                return Err(Error::interrupted());
            }
            if self.counts.stats().sessions > before {
                (pause, since, is_told) = (RETRY_FIRST, Instant::now(), false);
            }
            if !is_loss(&error) || since.elapsed() >= self.plan.wait {
                return Err(error);
            }
            if self.plan.deadline.is_none() && !self.source.can_go_back() && self.next > 0 {
                return Err(error.with_hint("a pipe cannot be read again, so what was under way is lost; with a deadline the stream would go on"));
            }
            if !is_told {
                notice(&format!("{}: waiting for {}: {error}", self.plan.name, self.plan.target.host));
                is_told = true;
            }
            if !self.control.wait_until(Instant::now() + pause) {
                return Err(Error::interrupted());
            }
            pause = (pause * 2).min(RETRY_LONGEST);
        }
    }

    /// Connects. A connection that takes long does not keep the show from being stopped.
    fn connected(&self) -> Result<StreamSender, Error> {
        let target = StreamTarget::Daemon(self.plan.target.clone());
        let network = self.plan.network.clone();
        let is_one_path = network.paths.len() <= 1 && network.flows <= 1 && !network.auto_paths;
        let in_order = self.plan.deadline.is_none() && is_one_path;
        let deadlines = self.plan.deadline.is_some();
        let options =
            StreamOptions { in_order, deadlines, network, ..StreamOptions::new(self.plan.far_name.clone()) };
        let (done, result) = bounded(1);
        let connect = move || {
            let _ = done.send(connect_to_send(&target, options));
        };
        std::thread::Builder::new().name("connect".into()).spawn(connect).map_err(Error::no_thread)?;
        loop {
            match result.recv_timeout(LOOK_EVERY) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) if self.control.is_stopped() => {
                    return Err(Error::interrupted());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::bug("connecting has failed")),
            }
        }
    }

    fn session(&mut self, sender: &StreamSender) -> Result<(), Error> {
        let control = self.control.clone();
        sender.on_wait(move || !control.is_aborted());
        let heard = Mutex::new(Heard::default());
        let is_over = AtomicBool::new(false);
        let (counts, control) = (self.counts, self.control);
        let result = std::thread::scope(|scope| {
            let listener = std::thread::Builder::new().name("words".into());
            let listener = listener.spawn_scoped(scope, || listen(sender, &heard, counts, &is_over));
            let result = match listener {
                Ok(_) => self.frames(sender, &heard),
                Err(error) => Err(Error::no_thread(error)),
            };
            is_over.store(true, Ordering::Release);
            result
        });
        let heard = heard.into_inner().in_any_case();
        match result {
            Err(_) if heard.failure.is_some() => Err(heard.failure.unwrap_or_else(Error::interrupted)),
            Err(_) if control.is_aborted() => Err(Error::interrupted()),
            result => result,
        }
    }

    /// Everything from the first word to the last frame.
    fn frames(&mut self, sender: &StreamSender, heard: &Mutex<Heard>) -> Result<(), Error> {
        let in_order = self.plan.deadline.is_none()
            && self.plan.network.paths.len() <= 1
            && self.plan.network.flows <= 1;
        let opening = Opening {
            version: words::VERSION,
            run: self.run.clone(),
            deadline_ns: self.plan.deadline_ns(),
            frame_max: self.source.frame_max(),
            frame_len: self.source.frame_len(),
            frames: self.frames,
            in_order: in_order && !self.plan.network.auto_paths,
        };
        sender.send_message(&words::bytes(&SenderWord::Open(opening)))?;
        let wanted = self.wait_for_begin(sender, heard)?;
        self.counts.begin_session(sender.handle(), sender.peer());
        let first = self.first_frame(wanted)?;
        let mut dropped = DroppedFrames::default();
        if first > wanted {
            dropped.add(wanted, first);
        }
        let capacity = (self.plan.network.memory_bytes / PIECE / 4).clamp(1, AHEAD_MAX) as usize;
        let quits = AtomicBool::new(false);
        let frames = self.frames.or(self.plan.frames);
        let pace = Handing { plan: self.plan, control: self.control, counts: self.counts };
        let (source, next, first_due) = (&mut self.source, &mut self.next, &mut self.first_due);
        let sent = std::thread::scope(|scope| {
            let (read, pieces) = bounded(capacity);
            let quits = &quits;
            let control = pace.control;
            let reading = move || read_ahead(source, first, frames, sender, control, quits, &read);
            let reader = std::thread::Builder::new().name("read".into()).spawn_scoped(scope, reading);
            let sent = match reader {
                Ok(_) => pace.hand_over(sender, &pieces, &mut dropped, next, first_due, heard),
                Err(error) => Err(Error::no_thread(error)),
            };
            quits.store(true, Ordering::Release);
            drop(pieces);
            sent
        });
        let is_stopped = self.control.is_stopped();
        let ending = match &sent {
            Ok(frames) => SenderWord::End { frames: *frames },
            // The session goes on, so it is the source that has failed.
            Err(error) if sender.try_claim().is_ok() => SenderWord::Failed { what: error.to_string() },
            Err(error) => return Err(error.clone()),
        };
        dropped.tell(sender)?;
        sender.send_message(&words::bytes(&ending))?;
        match (&sent, is_stopped) {
            (Ok(_), false) => sender.end()?,
            _ => sender.end_within(STOP_WAIT)?,
        };
        pace.learn(sender, &mut dropped);
        sent?;
        if is_stopped { Err(Error::interrupted()) } else { Ok(()) }
    }

    fn wait_for_begin(&self, sender: &StreamSender, heard: &Mutex<Heard>) -> Result<u64, Error> {
        let until = Instant::now() + BEGIN_WAIT;
        loop {
            let heard = heard.lock().in_any_case();
            if let Some(failure) = &heard.failure {
                return Err(failure.clone());
            }
            if let Some(begin) = heard.begin {
                return Ok(begin);
            }
            drop(heard);
            if !self.control.wait_until(Instant::now() + Duration::from_millis(2)) {
                return Err(Error::interrupted());
            }
            if Instant::now() > until {
                let what = format!("{} does not say that it wants frames", sender.peer());
                return Err(
                    Error::new(Code::Unreachable, what).with_hint("see if `farhaul stream recv` runs there")
                );
            }
        }
    }

    /// The frame to begin with, if the receiver wants them from `wanted` on.
    fn first_frame(&self, wanted: u64) -> Result<u64, Error> {
        let due = || self.first_due.and_then(|first| self.plan.pace.frame_at(first.elapsed()));
        match (self.plan.deadline, self.source.can_go_back()) {
            // What was due meanwhile is too late.
            (Some(_), true) => Ok(due().unwrap_or(self.next).max(self.next)),
            (Some(_), false) => Ok(self.next),
            (None, true) => Ok(wanted),
            (None, false) if wanted == self.next => Ok(wanted),
            (None, false) => {
                let what = format!(
                    "the receiver wants frame {wanted}, and the pipe has come to frame {}",
                    self.next
                );
                Err(Error::new(Code::ProgramFailed, what).with_hint("a pipe cannot be read again"))
            }
        }
    }
}

/// Hears the receiver until the session is over.
fn listen(sender: &StreamSender, heard: &Mutex<Heard>, counts: &StreamCounts, is_over: &AtomicBool) {
    loop {
        let word = match sender.message(LOOK_EVERY) {
            Ok(Some(bytes)) => words::read::<ReceiverWord>(&bytes),
            Ok(None) if is_over.load(Ordering::Acquire) => return,
            Ok(None) => continue,
            Err(_) => return,
        };
        let failure = match word {
            Ok(ReceiverWord::Clock { asked }) => {
                let answer = SenderWord::Clock { asked, heard: clock_ns() };
                // If the session is over, the next message says so.
                let _ = sender.send_message(&words::bytes(&answer));
                continue;
            }
            Ok(ReceiverWord::Counts(receiver)) => {
                counts.update(|stats| stats.receiver = receiver);
                continue;
            }
            Ok(ReceiverWord::Begin { next }) => {
                let mut heard = heard.lock().in_any_case();
                match heard.begin.replace(next) {
                    None => continue,
                    Some(_) => Error::misbehaved(Misbehaviour::SenselessShowWord, "it begins twice"),
                }
            }
            Ok(ReceiverWord::Failed { what }) => {
                let what = escape(what.as_bytes());
                Error::new(Code::ProgramFailed, format!("{} has failed: {what}", sender.peer()))
            }
            Err(how) => Error::misbehaved(how, "a word of the receiver makes no sense"),
        };
        heard.lock().in_any_case().failure.get_or_insert(failure);
        sender.handle().cancel();
    }
}

/// A frame that is being handed over.
struct Current {
    frame: u64,
    time: u64,
    /// When it is of no use any more.
    deadline: Option<Instant>,
    is_dropped: bool,
    /// Whether the receiver was told of that.
    is_told: bool,
}

struct Handing<'a> {
    plan: &'a StreamSendPlan,
    control: &'a ShowControl,
    counts: &'a StreamCounts,
}

impl Handing<'_> {
    /// Puts pieces when they are due. Returns the number of frames at the end.
    fn hand_over(
        &self,
        sender: &StreamSender,
        pieces: &Receiver<ReadAhead>,
        dropped: &mut DroppedFrames,
        next: &mut u64,
        first_due: &mut Option<Instant>,
        heard: &Mutex<Heard>,
    ) -> Result<u64, Error> {
        let mut current: Option<Current> = None;
        let mut label = Vec::new();
        loop {
            self.learn(sender, dropped);
            dropped.tell(sender)?;
            let item = match pieces.recv_timeout(LOOK_EVERY) {
                Ok(item) => item,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(failure) = &heard.lock().in_any_case().failure {
                        return Err(failure.clone());
                    }
                    // The reader may wait for a pipe. If the session is over, this says so.
                    drop(sender.try_claim()?);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::bug("the reading thread of a stream"));
                }
            };
            let (frame, start, size, offset, block) = match item {
                ReadAhead::Piece { frame, start, size, offset, block } => (frame, start, size, offset, block),
                ReadAhead::End(end) => {
                    self.give_up_rest(current.as_ref(), dropped, &end);
                    return end;
                }
            };
            if let Some(start) = &start {
                let Some(begun) = self.begin(frame, first_due) else { return Ok(frame) };
                *next = frame + 1;
                self.counts.update(|stats| {
                    stats.frames = stats.frames.max(frame + 1);
                    stats.bytes_handed += if begun.is_dropped { 0 } else { start.size };
                });
                current = Some(begun);
            }
            let Some(current) = &mut current else { return Err(Error::bug("a piece without a frame")) };
            if !current.is_dropped && current.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                current.is_dropped = true;
            }
            if current.is_dropped {
                if !current.is_told {
                    current.is_told = true;
                    dropped.add(frame, frame + 1);
                    self.counts.update(|stats| stats.frames_dropped_here += 1);
                }
                continue;
            }
            if offset > 0 && dropped.has_dropped_last() {
                // The transport has given up a piece, so the rest is of no use.
                (current.is_dropped, current.is_told) = (true, true);
                continue;
            }
            let metadata = start.as_ref().map_or(&[][..], |start| &start.metadata);
            label.clear();
            PieceLabel { frame, size, offset, time: current.time, metadata }.encode(&mut label);
            let number = match current.deadline {
                Some(deadline) => sender.put_until(block, &label, deadline)?,
                None => sender.put(block, &label)?,
            };
            if let (0, Some(deadline)) = (offset, self.plan.deadline) {
                dropped.note_put(frame, number, deadline + KEPT_BEYOND);
            }
        }
    }

    fn learn(&self, sender: &StreamSender, dropped: &mut DroppedFrames) {
        let count = dropped.learn(sender);
        if count > 0 {
            self.counts.update(|stats| stats.frames_dropped_here += count);
        }
    }

    /// Waits until the frame is due; `None` if the show is stopped.
    fn begin(&self, frame: u64, first_due: &mut Option<Instant>) -> Option<Current> {
        let now = Instant::now();
        let due = self.plan.pace.due(frame).and_then(|due| {
            // The first frame of the first session sets the clock.
            let first = *first_due.get_or_insert_with(|| now.checked_sub(due).unwrap_or(now));
            first.checked_add(due)
        });
        let is_due = match due {
            Some(due) => self.control.wait_until(due),
            None => !self.control.is_stopped(),
        };
        if !is_due {
            return None;
        }
        let now = Instant::now();
        let handed = due.unwrap_or(now).min(now);
        let late = u64::try_from((now - handed).as_nanos()).unwrap_or(0);
        let deadline = self.plan.deadline.and_then(|deadline| handed.checked_add(deadline));
        Some(Current {
            frame,
            time: clock_ns().saturating_sub(late),
            deadline,
            is_dropped: false,
            is_told: false,
        })
    }

    /// A frame that the source could not finish will not arrive.
    fn give_up_rest(&self, current: Option<&Current>, dropped: &mut DroppedFrames, end: &Result<u64, Error>) {
        if let (Err(_), Some(current), Some(_)) = (end, current, self.plan.deadline) {
            dropped.add(current.frame, current.frame + 1);
        }
    }
}
