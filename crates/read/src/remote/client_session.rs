//! The session of a [`Remote`](super::Remote): the thread that gets the server's messages, and what all
//! callers share with it.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd, bounded};
use farhaul_connect::EstablishedSession;
use farhaul_fork::Origin;
use farhaul_handover::Held as _;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::inlet::CompleteBlock;
use farhaul_session::messages::{EndFigures, senseless, unexpected};
use farhaul_session::panic_guard::contained;
use farhaul_session::report::SessionFigures;
use farhaul_session::request::Request;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_words::{Code, Error, Failure, Misbehaviour, SessionReport};

use super::super::files::OPEN_MAX;
use super::super::messages::ReadMessage;
use super::super::pieces::parse;
use super::pending_calls::{OpenWaiter, PendingCall, PendingRanges, PieceBytes, SharedBlock, unasked};

/// The most ranges and other operations that may be waited for at a time: half of what a server allows, as
/// the server learns later what is over.
const OUTSTANDING_MAX: usize = 1 << 16;
/// The most lists that may be under way at a time: half of what a server allows, for the same reason. Further
/// lists wait until one has ended or was dropped.
const STREAMS_MAX: usize = 32;
/// How often a waiting thread looks whether the session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The state that all callers share.
pub(super) struct ClientSession {
    origin: Origin,
    request: Arc<Request>,
    handle: Handle,
    /// How much memory answers may take here that are read in order.
    memory_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// Closed when nothing more will arrive.
    over: Channel<Infallible>,
}

struct State {
    waiting: HashMap<u64, PendingCall>,
    opening: HashMap<u64, OpenWaiter>,
    /// The sizes of open files.
    sizes: HashMap<u64, u64>,
    /// The operations that read a file whose size has not come yet, by the file.
    unknown: HashMap<u64, u64>,
    outstanding: usize,
    streams: usize,
    /// The files that are open or being opened.
    open_files: HashSet<u64>,
    next_op: u64,
    next_file: u64,
    is_finishing: bool,
    open: Option<ChannelEnd<Infallible>>,
    ended: Option<(SessionReport, Option<Error>)>,
}

/// A block that has come, as its bytes.
struct ArrivedBlock(CompleteBlock);

impl AsRef<[u8]> for ArrivedBlock {
    fn as_ref(&self) -> &[u8] {
        &self.0.block[..self.0.len]
    }
}

/// Starts the session on this thread, and keeps it going to its end.
pub(super) fn run(established: EstablishedSession, started: impl FnOnce(Result<Arc<ClientSession>, Error>)) {
    let (options, handle) = (established.opening.network, Handle::new());
    let memory_bytes = options.memory_bytes;
    handle.begin();
    let begun = contained(|| {
        Session::start(established.session, options, ContentRole::Receiver, DeliveryOrder::Any, &handle)
    });
    let mut dialogue = match begun.flatten() {
        Ok((_, dialogue)) => dialogue,
        Err(error) => {
            handle.end(false, Some(&error));
            return started(Err(error));
        }
    };
    let (open, over) = bounded(0);
    let state = State {
        waiting: HashMap::new(),
        opening: HashMap::new(),
        sizes: HashMap::new(),
        unknown: HashMap::new(),
        outstanding: 0,
        streams: 0,
        open_files: HashSet::new(),
        next_op: 0,
        next_file: 0,
        is_finishing: false,
        open: Some(open),
        ended: None,
    };
    let link = Arc::new(ClientSession {
        origin: Origin::here(),
        request: dialogue.request.clone(),
        handle,
        memory_bytes,
        state: Mutex::new(state),
        changed: Condvar::new(),
        over,
    });
    started(Ok(link.clone()));
    let ended = std::thread::scope(|scope| {
        let take = || link.request.work(|| link.take_blocks());
        let taking = std::thread::Builder::new().name("read-data".into()).spawn_scoped(scope, take);
        let ended = match taking {
            Ok(_) => contained(|| link.converse(&mut dialogue)).flatten(),
            Err(error) => Err(Error::no_thread(error)),
        };
        drop(link.state().open.take());
        ended
    });
    let closed = contained(|| {
        let (theirs, error) = match ended {
            Ok(theirs) => (theirs, None),
            Err(error) => (EndFigures::default(), Some(error)),
        };
        let figures = SessionFigures { ours: dialogue.figures(), theirs };
        let bytes = link.request.counts().content_written.load(std::sync::atomic::Ordering::Relaxed);
        let report = dialogue.report(&figures, bytes);
        dialogue.close(error.as_ref());
        (report, error)
    });
    let (report, error) = closed.unwrap_or_else(|panic| (SessionReport::default(), Some(panic)));
    link.handle.end(error.is_none(), error.as_ref());
    link.end(report, error);
}

impl ClientSession {
    // ---- the session's threads ------------------------------------------------------------------

    fn converse(&self, dialogue: &mut Dialogue) -> Result<EndFigures, Error> {
        let mut is_finished = false;
        loop {
            let step = match is_finished {
                false => dialogue.step()?,
                true => dialogue.step_after_finish()?,
            };
            match step {
                DialogueStep::Message(bytes) => self.hear(ReadMessage::decode(bytes).map_err(senseless)?)?,
                DialogueStep::Finish(theirs) if is_finished => return Ok(theirs),
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Idle => {
                    if !is_finished && self.state().is_finishing {
                        is_finished = true;
                        dialogue.say_finished(Vec::new());
                    }
                }
            }
        }
    }

    fn hear(&self, message: ReadMessage) -> Result<(), Error> {
        match message {
            ReadMessage::Opened { file, identity } => {
                let opening = self.state().opened(file, identity.size)?;
                let _ = opening.send(Ok(identity));
                Ok(())
            }
            ReadMessage::NotOpened { file, failure } => {
                let opening =
                    self.state().opening.remove(&file).ok_or_else(|| unasked("a file's failure"))?;
                let _ = opening.send(Err(failure));
                Ok(())
            }
            ReadMessage::Failed { op, failure } => {
                if let Some(waiting) = self.end_of(op)? {
                    waiting.fail(&failure);
                }
                Ok(())
            }
            ReadMessage::Stated { op, entry } => match self.end_of(op)? {
                Some(PendingCall::Stat(to)) => {
                    // The caller may be gone.
                    let _ = to.send(Ok(entry));
                    Ok(())
                }
                None => Ok(()),
                Some(waiting) => Err(unfitting(waiting, "an entry where none was asked for")),
            },
            ReadMessage::Digested { op, bytes, digest } => match self.end_of(op)? {
                Some(PendingCall::Digest(to)) => {
                    let _ = to.send(Ok((bytes, digest)));
                    Ok(())
                }
                None => Ok(()),
                Some(waiting) => Err(unfitting(waiting, "a digest where none was asked for")),
            },
            other => Err(unexpected(other.name())),
        }
    }

    /// The call that waited for an operation that is over; `None` if it was cancelled.
    fn end_of(&self, op: u64) -> Result<Option<PendingCall>, Error> {
        let mut state = self.state();
        if op >= state.next_op {
            return Err(unasked("an answer to what was never asked"));
        }
        let waiting = state.forget(op);
        drop(state);
        self.changed.notify_all();
        Ok(waiting)
    }

    /// The body of the thread that hands arriving content to the calls that wait for it.
    fn take_blocks(&self) {
        let inlet = self.request.arrived();
        loop {
            crossbeam_channel::select! {
                recv(inlet.bell().rings()) -> _ => {}
                recv(self.over) -> _ => return,
                default(LOOK_EVERY) => {}
            }
            while let Some(arrived) = inlet.take() {
                if let Err(error) = self.take(&(Arc::new(ArrivedBlock(arrived)) as SharedBlock)) {
                    return self.request.fail(error);
                }
            }
        }
    }

    fn take(&self, block: &SharedBlock) -> Result<(), Error> {
        let pieces = parse((**block).as_ref()).map_err(|_| Error::from(Misbehaviour::SenselessPieces))?;
        let mut state = self.state();
        let (mut is_less, mut next) = (false, 0);
        for (piece, bytes) in pieces {
            // Pieces stand one behind the other.
            let bytes = PieceBytes { block: block.clone(), from: next, len: bytes.len() };
            next += bytes.len;
            if piece.op >= state.next_op {
                return Err(unasked("content that was never asked for"));
            }
            // The operation was cancelled while this was on its way.
            let Some(waiting) = state.waiting.get_mut(&piece.op) else { continue };
            let (less, is_over) = waiting.take(&piece, bytes)?;
            let written = &self.request.counts().content_written;
            written.fetch_add(piece.len, std::sync::atomic::Ordering::Relaxed);
            self.handle.counts().bytes_done.fetch_add(piece.len, std::sync::atomic::Ordering::Relaxed);
            state.outstanding -= less;
            is_less |= less > 0 || is_over;
            if is_over {
                state.forget(piece.op);
            }
        }
        drop(state);
        if is_less {
            self.changed.notify_all();
        }
        Ok(())
    }

    fn end(&self, report: SessionReport, error: Option<Error>) {
        let mut state = self.state();
        let failure = error.as_ref().map_or_else(closed, Error::clone);
        let failure = Failure::new(failure.code(), failure.to_string());
        state.ended = Some((report, error));
        (state.outstanding, state.streams) = (0, 0);
        let (waiting, opening) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.opening));
        drop(state);
        waiting.into_values().for_each(|waiting| waiting.fail(&failure));
        opening.into_values().for_each(|opening| drop(opening.send(Err(failure.clone()))));
        self.changed.notify_all();
    }

    // ---- the program's threads ------------------------------------------------------------------

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().whole()
    }

    /// An error in a forked child, which has no part in the session: a lock may be held by a thread that the
    /// child lacks.
    pub(super) fn is_here(&self) -> Result<(), Error> {
        match self.origin.is_here() {
            true => Ok(()),
            false => Err(Error::forked("the session")),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Asks for something whose answer goes to `waiting`, and returns the number of the operation. Waits
    /// while too much is outstanding.
    pub(super) fn ask(
        &self,
        mut waiting: PendingCall,
        message: impl FnOnce(u64) -> ReadMessage,
    ) -> Result<u64, Error> {
        self.is_here()?;
        let (weight, streams) = (waiting.weight(), waiting.streams());
        let mut state = self.state();
        while !state.has_room(weight, streams) && state.ended.is_none() {
            (state, _) = self.changed.wait_timeout(state, LOOK_EVERY).in_any_case();
        }
        if let Some((_, error)) = &state.ended {
            return Err(error.as_ref().map_or_else(closed, Error::clone));
        }
        let op = state.next_op;
        state.next_op += 1;
        state.outstanding += weight;
        state.streams += streams;
        if let PendingCall::Ranges(ranges) = &mut waiting
            && let Some(file) = ranges.unknown_file
        {
            match state.sizes.get(&file) {
                Some(&size) => ranges.learn_size(size)?,
                None => drop(state.unknown.insert(file, op)),
            }
        }
        state.waiting.insert(op, waiting);
        drop(state);
        self.say(&message(op));
        Ok(op)
    }

    /// Asks for a file to be opened; returns its number.
    pub(super) fn open(&self, path: Vec<u8>, to: OpenWaiter) -> Result<u64, Error> {
        self.is_here()?;
        let mut state = self.state();
        if let Some((_, error)) = &state.ended {
            return Err(error.as_ref().map_or_else(closed, Error::clone));
        }
        if state.open_files.len() == OPEN_MAX {
            let text = format!("no more than {OPEN_MAX} files can be open in one session");
            return Err(Error::new(Code::Misuse, text));
        }
        let file = state.next_file;
        state.next_file += 1;
        state.open_files.insert(file);
        state.opening.insert(file, to);
        drop(state);
        self.say(&ReadMessage::Open { file, path });
        Ok(file)
    }

    pub(super) fn close(&self, file: u64) {
        if self.is_here().is_err() {
            return;
        }
        let mut state = self.state();
        state.open_files.remove(&file);
        state.sizes.remove(&file);
        drop(state);
        self.say(&ReadMessage::Close { file });
    }

    /// Tells the server that nothing more of an operation is wanted.
    pub(super) fn cancel(&self, op: u64) {
        if self.is_here().is_err() {
            return;
        }
        let mut state = self.state();
        if state.forget(op).is_some() {
            drop(state);
            self.changed.notify_all();
            self.say(&ReadMessage::Cancel { op });
        }
    }

    /// Gives room for `room` more bytes of a stream.
    pub(super) fn more(&self, op: u64, room: u64) {
        if self.is_here().is_err() {
            return;
        }
        let mut state = self.state();
        if let Some(PendingCall::Stream(stream)) = state.waiting.get_mut(&op) {
            stream.room += room;
            drop(state);
            self.say(&ReadMessage::More { op, room });
        }
    }

    pub(super) fn say(&self, message: &ReadMessage) {
        self.request.send_encoded(|out| message.encode(out));
    }

    /// Waits for an answer. If none comes, the session has ended, or this program has a fault.
    pub(super) fn wait<T>(&self, answer: &Channel<T>) -> Result<T, Error> {
        self.is_here()?;
        answer.recv().map_err(|_| self.outcome().err().unwrap_or_else(|| Error::bug("an answer")))
    }

    /// Lets the session end: nothing more will be asked for.
    pub(super) fn finish(&self) {
        self.state().is_finishing = true;
        self.request.wake_dialogue();
    }

    /// The error with which the session has ended, if it has.
    pub(super) fn ended(&self) -> Option<Error> {
        if let Err(error) = self.is_here() {
            return Some(error);
        }
        self.state().ended.as_ref().map(|(_, error)| error.clone().unwrap_or_else(closed))
    }

    /// How the session has ended.
    pub(super) fn outcome(&self) -> Result<SessionReport, Error> {
        self.is_here()?;
        match &self.state().ended {
            Some((report, None)) => Ok(report.clone()),
            Some((_, Some(error))) => Err(error.clone()),
            None => Err(closed()),
        }
    }
}

impl State {
    fn has_room(&self, weight: usize, streams: usize) -> bool {
        self.outstanding + weight <= OUTSTANDING_MAX && self.streams + streams <= STREAMS_MAX
    }

    /// A file is open. Returns who waits for that.
    fn opened(&mut self, file: u64, size: u64) -> Result<OpenWaiter, Error> {
        let waiter = self.opening.remove(&file).ok_or_else(|| unasked("a file's identity"))?;
        // Nobody closes a file again that was closed before it was open.
        if self.open_files.contains(&file) {
            self.sizes.insert(file, size);
        }
        if let Some(op) = self.unknown.remove(&file)
            && let Some(PendingCall::Ranges(ranges)) = self.waiting.get_mut(&op)
        {
            ranges.learn_size(size)?;
        }
        Ok(waiter)
    }

    /// Removes an operation that is over from what is outstanding.
    fn forget(&mut self, op: u64) -> Option<PendingCall> {
        let waiting = self.waiting.remove(&op)?;
        if let PendingCall::Ranges(PendingRanges { unknown_file: Some(file), .. }) = &waiting {
            self.unknown.remove(file);
        }
        self.outstanding -= waiting.weight();
        self.streams -= waiting.streams();
        Some(waiting)
    }
}

/// Fails a call that got the wrong kind of answer. It must be told here, as it is in no table any more.
fn unfitting(waiting: PendingCall, what: &str) -> Error {
    let error = unasked(what);
    waiting.fail(&Failure::new(error.code(), error.to_string()));
    error
}

fn closed() -> Error {
    Error::new(Code::Misuse, "the session has ended")
}
