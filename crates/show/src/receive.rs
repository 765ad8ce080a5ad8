//! Receives streams: takes what senders begin, judges their pieces, and hands frames to a sink. A sender that goes away
//! and comes back goes on where it stopped.
//!
//! Always true: nothing that a sender says is believed before `assembly` or this file has judged it; what it is wrong
//! in ends its session with a code.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use farhaul::Error;
use farhaul::errors::{Code, Misbehaviour};
use farhaul::sisters::escape;
use farhaul::stream::{
    AcceptedStream, ListenOptions, NextBlock, ReceivedBlock, StreamListener, StreamReceiver,
};

use crate::assembly::{Accepted, Agreed, Assembly};
use crate::clock::SenderClock;
use crate::control::{LOOK_EVERY, ShowControl, clock_ns};
use crate::counts::{ReceiverCounts, StreamCounts, StreamState, StreamStats};
use crate::label::{FRAME_LEN_MAX, PieceLabel};
use crate::loss::is_loss;
use crate::plan::is_name;
use crate::sink::{Manner, Sink, SinkSpec};
use crate::words::{self, Opening, ReceiverWord, SenderWord};

/// How long a sender may take to say what it sends, and to tell its clock.
const OPEN_WAIT: Duration = Duration::from_secs(30);
/// How often the sender is told how its frames have fared, and asked for its clock.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// How long a wait for the next piece lasts.
const TICK: Duration = Duration::from_millis(10);
/// How long a sender may take to go when it was told why it has to.
const PART_WAIT: Duration = Duration::from_secs(2);
/// The most streams of one name that wait for their turn.
const WAITING_MAX: usize = 4;

/// What is to be received, and where it goes.
#[derive(Debug, Clone)]
pub struct ReceivePlan {
    /// The stream's name.
    pub name: String,
    /// Where its frames go.
    pub sink: SinkSpec,
}

/// Where senders are waited for, and who may come.
#[derive(Debug, Clone)]
pub struct ReceiveOptions {
    /// Addresses and ports; empty: all addresses, at the usual port.
    pub listen: Vec<SocketAddr>,
    /// The file of this end's key.
    pub identity: Option<PathBuf>,
    /// The file of keys that are let in.
    pub authorized_keys: Option<PathBuf>,
    /// Whether senders may send unencrypted.
    pub allow_cipher_none: bool,
    /// The most bytes of memory for each stream: of blocks, and of frames that wait for their turn.
    pub memory: u64,
    /// How long to wait for a sender that has gone.
    pub wait: Duration,
}

/// Waits for senders, and gives each to whoever receives its stream.
pub struct StreamServer {
    listener: StreamListener,
    options: ReceiveOptions,
    names: Vec<(String, Sender<StreamReceiver>, Receiver<StreamReceiver>)>,
}

impl StreamServer {
    /// Begins to listen for streams of these names.
    pub fn listen(options: ReceiveOptions, names: &[String]) -> Result<StreamServer, Error> {
        for (number, name) in names.iter().enumerate() {
            is_name(name)?;
            if names[..number].contains(name) {
                return Err(Error::new(Code::BadOption, format!("two streams have the name {name:?}")));
            }
        }
        let usual = ListenOptions::default();
        let listener = StreamListener::bind(ListenOptions {
            listen: if options.listen.is_empty() { usual.listen } else { options.listen.clone() },
            identity: options.identity.clone().unwrap_or(usual.identity),
            authorized_keys: options.authorized_keys.clone().unwrap_or(usual.authorized_keys),
            names: names.to_vec(),
            allow_cipher_none: options.allow_cipher_none,
            memory_max: options.memory,
        })?;
        let named = |name: &String| {
            let (give, take) = bounded(WAITING_MAX);
            (name.clone(), give, take)
        };
        Ok(StreamServer { listener, options, names: names.iter().map(named).collect() })
    }

    /// The addresses that it listens on.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.listener.local_addrs()
    }

    /// The fingerprint of this end's key.
    pub fn fingerprint(&self) -> &str {
        self.listener.fingerprint()
    }

    /// Takes senders until `is_over` says that all streams are.
    pub fn run(&self, is_over: impl Fn() -> bool) -> Result<(), Error> {
        while !is_over() {
            match self.listener.accept_timeout(LOOK_EVERY)? {
                None => {}
                // This end has nothing to send. Dropping a stream ends it.
                Some(AcceptedStream::Sender(_)) => {}
                Some(AcceptedStream::Receiver(receiver)) => {
                    if let Some((_, give, _)) = self.names.iter().find(|(name, ..)| name == receiver.name()) {
                        // If too many wait, this one is ended.
                        let _ = give.try_send(receiver);
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives one of the streams to its end.
    pub fn receive(
        &self,
        plan: &ReceivePlan,
        control: &ShowControl,
        counts: &StreamCounts,
        notice: &(dyn Fn(&str) + Sync),
    ) -> Result<StreamStats, Error> {
        let (_, _, incoming) = self
            .names
            .iter()
            .find(|(name, ..)| *name == plan.name)
            .ok_or_else(|| Error::bug("a stream that is not listened for"))?;
        let mut reception = Reception::new(plan, control, counts, &self.options);
        let result = reception.receive_all(incoming, notice);
        counts.end_session(StreamState::Ended);
        result.map(|()| counts.stats())
    }
}

pub(crate) struct Reception<'a> {
    plan: &'a ReceivePlan,
    control: &'a ShowControl,
    counts: &'a StreamCounts,
    options: &'a ReceiveOptions,
    run: Option<Run>,
}

/// What stays when a session is lost.
struct Run {
    opening: Opening,
    sink: Sink,
    assembly: Assembly,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    counts: ReceiverCounts,
    delay_ns_sum: u128,
    delays: u64,
}

impl<'a> Reception<'a> {
    pub(crate) fn new(
        plan: &'a ReceivePlan,
        control: &'a ShowControl,
        counts: &'a StreamCounts,
        options: &'a ReceiveOptions,
    ) -> Reception<'a> {
        Reception { plan, control, counts, options, run: None }
    }

    /// Receives from one sender after another, until the stream is over.
    pub(crate) fn receive_all(
        &mut self,
        incoming: &Receiver<StreamReceiver>,
        notice: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        let mut lost: Option<(Instant, Error)> = None;
        loop {
            let receiver = match incoming.recv_timeout(LOOK_EVERY) {
                Ok(receiver) => receiver,
                Err(RecvTimeoutError::Timeout) => {
                    if self.control.is_stopped() {
                        return Err(Error::interrupted());
                    }
                    match &lost {
                        Some((since, error)) if since.elapsed() >= self.options.wait => {
                            return Err(error.clone());
                        }
                        _ => continue,
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Error::bug("the listener of streams")),
            };
            let result = self.session(&receiver);
            self.counts.end_session(StreamState::Waiting);
            let error = match result {
                Ok(()) => {
                    drop(receiver);
                    return self.run.take().map_or(Ok(()), |run| run.sink.finish());
                }
                Err(error) => error,
            };
            if self.control.is_stopped() || !is_loss(&error) {
                self.part(&receiver, &error);
                return if self.control.is_stopped() { Err(Error::interrupted()) } else { Err(error) };
            }
            notice(&format!("{}: waiting for the sender to come back: {error}", self.plan.name));
            if let Some(run) = &mut self.run {
                let sink = &mut run.sink;
                run.assembly.begin_again(|frame| sink.forget(frame));
            }
            lost = Some((Instant::now(), error));
        }
    }

    /// Tells the sender why this end cannot go on, and waits until it goes.
    fn part(&self, receiver: &StreamReceiver, error: &Error) {
        if self.control.is_stopped() {
            return;
        }
        let word = ReceiverWord::Failed { what: error.to_string() };
        let until = Instant::now() + PART_WAIT;
        // If the session is over already, there is nobody to tell.
        if receiver.send_message(&words::bytes(&word)).is_ok() {
            while Instant::now() < until && receiver.message(LOOK_EVERY).is_ok() {}
        }
    }

    fn session(&mut self, receiver: &StreamReceiver) -> Result<(), Error> {
        let control = self.control.clone();
        receiver.on_wait(move || !control.is_stopped());
        let SenderWord::Open(opening) = self.word(receiver)? else {
            return Err(senseless("the first word is not about the frames"));
        };
        let run = self.run_of(opening)?;
        self.counts.begin_session(receiver.handle(), receiver.peer());
        self.counts.update(|stats| {
            stats.frames_total = run.opening.frames;
            stats.deadline_ms = run.opening.deadline_ns.map(|nanos| nanos as f64 / 1e6);
        });
        let mut session =
            Session { receiver, run, clock: SenderClock::default(), frames: None, counts: self.counts };
        let result = session.frames(|| self.word(receiver));
        self.run = Some(session.run);
        result
    }

    /// The next word of a sender that owes one.
    fn word(&self, receiver: &StreamReceiver) -> Result<SenderWord, Error> {
        let until = Instant::now() + OPEN_WAIT;
        while Instant::now() < until {
            if self.control.is_stopped() {
                return Err(Error::interrupted());
            }
            if let Some(bytes) = receiver.message(LOOK_EVERY)? {
                return words::read(&bytes)
                    .map_err(|how| Error::misbehaved(how, "a word of the sender makes no sense"));
            }
        }
        let what = format!("{} does not say what it sends", receiver.peer());
        Err(Error::new(Code::Unreachable, what).with_hint("see if it is a `farhaul stream send`"))
    }

    /// The run that these frames belong to: the one that was lost, or a new one.
    fn run_of(&mut self, opening: Opening) -> Result<Run, Error> {
        if opening.version != words::VERSION {
            let what = format!(
                "the sender has version {} of shows, and this is {}",
                opening.version,
                words::VERSION
            );
            return Err(Error::new(Code::NoCommonVersion, what));
        }
        let is_run = opening.run.len() == 32 && opening.run.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_run {
            return Err(senseless("its run has no number"));
        }
        let is_too_large = |len: u64| len > FRAME_LEN_MAX;
        if is_too_large(opening.frame_max)
            || opening.frame_len.is_some_and(|len| len == 0 || is_too_large(len))
        {
            return Err(Error::misbehaved(Misbehaviour::WrongFrameSize, "a frame has 1 GiB at most"));
        }
        if let Some(run) = self.run.take() {
            if run.opening == opening {
                return Ok(run);
            }
            if !run.sink.can_begin_again() {
                let what = "another sender has come, and the pipe has frames of the first one";
                return Err(Error::new(Code::ProgramFailed, what));
            }
        }
        let may_drop = opening.deadline_ns.is_some();
        let Opening { frame_max, frame_len, frames, in_order, .. } = opening;
        let manner = Manner { frame_len, frame_max, in_order, may_drop, memory: self.options.memory };
        let sink = Sink::open(&self.plan.sink, manner, self.control)?;
        let assembly = Assembly::new(Agreed { frame_max, frame_len, frames, may_drop });
        Ok(Run { opening, sink, assembly, tally: Tally::default() })
    }
}

struct Session<'a> {
    receiver: &'a StreamReceiver,
    run: Run,
    clock: SenderClock,
    /// The number of all frames, once the sender has said it.
    frames: Option<u64>,
    counts: &'a StreamCounts,
}

impl Session<'_> {
    /// Agrees with the sender where to begin, and takes frames to the end.
    fn frames(&mut self, next_word: impl Fn() -> Result<SenderWord, Error>) -> Result<(), Error> {
        // Frames are judged by the sender's clock, so it has to be known before they come.
        self.say(&ReceiverWord::Clock { asked: clock_ns() })?;
        while !self.clock.is_known() {
            self.hear(next_word()?)?;
        }
        self.say(&ReceiverWord::Begin { next: self.run.assembly.next() })?;
        let mut told = Instant::now();
        loop {
            self.hear_all()?;
            match self.receiver.next_timeout(TICK)? {
                NextBlock::Block(block) => self.piece(&block)?,
                // The sender says of which frame the block was.
                NextBlock::NotYet | NextBlock::GivenUp(_) => self.give_up_overdue()?,
                NextBlock::End => break,
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                self.say(&ReceiverWord::Clock { asked: clock_ns() })?;
                self.tell_counts()?;
            }
        }
        self.hear_all()?;
        let frames = self.frames.ok_or_else(|| senseless("it ends without a word about it"))?;
        self.end_at(frames)?;
        self.tell_counts()?;
        self.receiver.end_within(OPEN_WAIT).map(|_| ())
    }

    fn say(&self, word: &ReceiverWord) -> Result<(), Error> {
        self.receiver.send_message(&words::bytes(word))
    }

    fn tell_counts(&mut self) -> Result<(), Error> {
        let counts = self.run.tally.report(&self.clock);
        self.counts.update(|stats| {
            stats.receiver = counts.clone();
            stats.frames = counts.on_time + counts.late + counts.dropped;
        });
        self.say(&ReceiverWord::Counts(counts))
    }

    fn hear_all(&mut self) -> Result<(), Error> {
        while let Some(bytes) = self.receiver.message(Duration::ZERO)? {
            let word = words::read(&bytes);
            self.hear(word.map_err(|how| Error::misbehaved(how, "a word of the sender makes no sense"))?)?;
        }
        Ok(())
    }

    fn hear(&mut self, word: SenderWord) -> Result<(), Error> {
        match word {
            SenderWord::Clock { asked, heard } => {
                self.clock.answer(asked, heard, clock_ns());
                Ok(())
            }
            SenderWord::Dropped { ranges } if self.run.opening.deadline_ns.is_some() => {
                for (from, to) in ranges {
                    self.drop_frames(from, to)?;
                }
                self.hand_out()
            }
            SenderWord::End { frames } if self.frames.is_none() => {
                self.frames = Some(frames);
                Ok(())
            }
            SenderWord::Failed { what } => {
                let what = escape(what.as_bytes());
                Err(Error::new(Code::ProgramFailed, format!("{} has failed: {what}", self.receiver.peer())))
            }
            SenderWord::Dropped { .. } => Err(senseless("it drops frames that have no deadline")),
            SenderWord::End { .. } => Err(senseless("it ends twice")),
            SenderWord::Open(_) => Err(senseless("it opens twice")),
        }
    }

    fn piece(&mut self, block: &ReceivedBlock) -> Result<(), Error> {
        let wrong = |how: Misbehaviour, frame: Option<u64>| {
            let of = frame.map_or(String::new(), |frame| format!(" of frame {frame}"));
            Error::misbehaved(
                how,
                format!("a piece{of} of {} cannot be right: {}", self.receiver.peer(), how.text()),
            )
        };
        let label = PieceLabel::parse(block.metadata(), block.len()).map_err(|how| wrong(how, None))?;
        let Run { assembly, sink, opening, tally } = &mut self.run;
        let accepted = assembly.accept(&label).map_err(|how| wrong(how, Some(label.frame)))?;
        if accepted == Accepted::TooLate {
            return Ok(());
        }
        sink.write(&label, block)?;
        if accepted == Accepted::Whole {
            let delay = self.clock.since(label.time, clock_ns());
            let is_late = opening.deadline_ns.is_some_and(|deadline| delay > deadline);
            tally.whole(delay, label.size, is_late);
            match is_late {
                true => sink.forget(label.frame),
                false => sink.complete(label.frame, label.size)?,
            }
            self.hand_out()?;
        }
        self.make_room()
    }

    /// Gives up frames until those that are kept fit into memory: first the ones that whole frames wait for.
    fn make_room(&mut self) -> Result<(), Error> {
        while self.run.sink.is_full() {
            let next = self.run.assembly.next();
            let (from, to) = match (self.run.sink.waiting(), self.run.assembly.oldest()) {
                (Some((frame, _)), _) => (next, frame),
                (None, Some(oldest)) => (oldest, oldest + 1),
                (None, None) => return Err(Error::bug("kept frames that nobody waits for")),
            };
            self.drop_frames(from, to)?;
            self.hand_out()?;
        }
        Ok(())
    }

    fn drop_frames(&mut self, from: u64, to: u64) -> Result<(), Error> {
        let Run { assembly, sink, tally, .. } = &mut self.run;
        let count = assembly.drop_frames(from, to, |frame| sink.forget(frame));
        let count = count
            .map_err(|how| Error::misbehaved(how, format!("it drops the frames from {from} to {to}")))?;
        tally.counts.dropped = tally.counts.dropped.saturating_add(count);
        Ok(())
    }

    fn hand_out(&mut self) -> Result<(), Error> {
        self.run.sink.over(self.run.assembly.next())
    }

    /// A frame that is whole waits for earlier ones no longer than its own deadline: theirs are over by then.
    fn give_up_overdue(&mut self) -> Result<(), Error> {
        while let (Some(deadline), Some((frame, time))) =
            (self.run.opening.deadline_ns, self.run.sink.waiting())
        {
            if self.clock.since(time, clock_ns()) <= deadline.saturating_add(self.clock.error()) {
                break;
            }
            self.drop_frames(self.run.assembly.next(), frame)?;
            self.hand_out()?;
        }
        Ok(())
    }

    /// The sender has no more frames than this.
    fn end_at(&mut self, frames: u64) -> Result<(), Error> {
        if self.run.opening.deadline_ns.is_some() && frames > self.run.assembly.next() {
            self.drop_frames(self.run.assembly.next(), frames)?;
        }
        if self.run.assembly.next() != frames {
            let what = format!("it has sent {} frames and says {frames}", self.run.assembly.next());
            return Err(Error::misbehaved(Misbehaviour::ImpossibleFrame, what));
        }
        // A frame that was not finished when the sender was stopped.
        let Run { assembly, sink, .. } = &mut self.run;
        assembly.begin_again(|frame| sink.forget(frame));
        self.hand_out()
    }
}

impl Tally {
    fn whole(&mut self, delay_ns: u64, size: u64, is_late: bool) {
        self.delays += 1;
        self.delay_ns_sum += u128::from(delay_ns);
        self.counts.delay_ms_max = self.counts.delay_ms_max.max(delay_ns as f64 / 1e6);
        match is_late {
            true => self.counts.late += 1,
            false => {
                self.counts.on_time += 1;
                self.counts.bytes = self.counts.bytes.saturating_add(size);
            }
        }
    }

    fn report(&mut self, clock: &SenderClock) -> ReceiverCounts {
        self.counts.clock_error_ms = clock.error() as f64 / 1e6;
        if self.delays > 0 {
            self.counts.delay_ms_mean = self.delay_ns_sum as f64 / self.delays as f64 / 1e6;
        }
        self.counts.clone()
    }
}

fn senseless(what: &str) -> Error {
    Error::misbehaved(Misbehaviour::SenselessShowWord, what)
}
