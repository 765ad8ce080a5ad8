//! The channels of a session: what both ends do with them, whoever has opened them.
//!
//! Three threads move bytes. "tunnel-events" waits for sockets; "tunnel-out" reads those that have something, in
//! turns, and packs it into blocks; "tunnel-in" takes blocks apart and writes to the sockets. A socket that has no
//! room gets the rest when "tunnel-events" says that it has.
//!
//! Always true: no thread waits for a socket, so a connection that stands still holds up no other one. A channel is
//! removed once, whichever thread finds that it is over.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_session::budget::{Charge, Resource};
use farhaul_session::exchange::{LoadedBlock, Outlet};
use farhaul_session::producer_token::ProducerToken;
use farhaul_session::request::Request;
use farhaul_words::{Code, Error, Failure, Misbehaviour};
use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::inflow::{Inflow, Sink};
use crate::messages::TunnelMessage;
use crate::outflow::Outflow;
use crate::pieces::{ChannelPiece, TunnelBlock, parse};
use crate::rooms::{ROOM_START, Rooms};

/// The most channels of a session.
pub(crate) const CHANNELS_MAX: usize = 1024;
/// The most bytes that a channel brings in a turn, so that channels share the session evenly.
const TURN: usize = 64 << 10;
/// While blocks or the path are scarce, a block is filled as long as the next bytes come within this time: many small
/// blocks would use up the credit for blocks.
const PACK_WAIT: Duration = Duration::from_millis(2);
/// With less room a block is sent.
const ROOM_MIN: usize = 4 << 10;
/// After this long without bytes the flows may repair their tails ahead of feedback.
const QUIET: Duration = Duration::from_millis(20);
/// How soon a waiting thread notices the end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The number by which the events' thread is woken.
const WAKE: u64 = u64::MAX;

/// The end at which a connection was broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BrokenAt {
    /// At this one, so that the far end has to be told.
    Here,
    FarEnd,
}

/// Called when the far end has answered the opening of a channel.
pub(crate) type Answer = Box<dyn FnOnce(Result<&Arc<Channel>, Failure>) + Send>;

pub(crate) struct Channel {
    pub(crate) number: u64,
    socket: OnceLock<LocalSocket>,
    inflow: Mutex<Inflow>,
    outflow: Mutex<Outflow>,
    /// What waits for the far end's answer, at the end that has opened it.
    answer: Mutex<Option<Answer>>,
    /// Said by whoever uses the socket's other end in this process.
    broken: Mutex<Option<Arc<AtomicBool>>>,
    is_over: AtomicBool,
    _descriptor: Charge,
}

struct LocalSocket(OwnedFd);

impl Sink for LocalSocket {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn shut(&self) -> io::Result<()> {
        match rustix::net::shutdown(&self.0, Shutdown::Write) {
            // The other side has gone away meanwhile, and has all bytes.
            Err(rustix::io::Errno::NOTCONN) => Ok(()),
            shut => Ok(shut?),
        }
    }
}

impl LocalSocket {
    fn read(&self, space: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.0, space, RecvFlags::DONTWAIT)?.1)
    }
}

struct Table {
    channels: HashMap<u64, Arc<Channel>>,
    next_own: u64,
    next_peer: u64,
}

pub(crate) struct Mux {
    pub(crate) request: Arc<Request>,
    outlet: Outlet,
    table: Mutex<Table>,
    /// Held while a channel is opened, as the far end must hear of channels in the order of their numbers.
    opening: Mutex<()>,
    ready: Mutex<VecDeque<Arc<Channel>>>,
    is_ready: Condvar,
    epoll: OwnedFd,
    wake: OwnedFd,
    rooms: Arc<Rooms>,
    early_count: Arc<AtomicUsize>,
    is_over: AtomicBool,
    opened: AtomicU64,
}

impl Mux {
    /// The channels of a session, whose bytes may take `limit` bytes of memory here.
    pub(crate) fn new(request: &Arc<Request>, limit: u64) -> Result<Arc<Mux>, Error> {
        let cannot = |error: rustix::io::Errno| Error::of_host("cannot wait for sockets", error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(cannot)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).map_err(cannot)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN).map_err(cannot)?;
        let (next_own, next_peer) = if request.is_client() { (0, 1) } else { (1, 0) };
        Ok(Arc::new(Mux {
            request: request.clone(),
            outlet: Outlet::new(request.clone()),
            table: Mutex::new(Table { channels: HashMap::new(), next_own, next_peer }),
            opening: Mutex::default(),
            ready: Mutex::default(),
            is_ready: Condvar::new(),
            epoll,
            wake,
            rooms: Arc::new(Rooms::new(limit, request.budget())),
            early_count: Arc::default(),
            is_over: AtomicBool::new(false),
            opened: AtomicU64::new(0),
        }))
    }

    /// Runs the threads that move bytes while `converse` talks with the far end.
    pub(crate) fn run<T>(self: &Arc<Self>, converse: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        type Body = fn(&Mux);
        let bodies: [(&str, Body); 3] =
            [("tunnel-events", Mux::watch), ("tunnel-out", Mux::send), ("tunnel-in", Mux::receive)];
        let _threads = self.request.budget().charge_of(Resource::Threads, bodies.len() as u64)?;
        std::thread::scope(|scope| {
            let started = bodies.iter().try_for_each(|(name, body)| {
                let work = || self.request.work(|| body(self));
                let thread = std::thread::Builder::new().name((*name).into()).spawn_scoped(scope, work);
                thread.map(drop).map_err(Error::no_thread)
            });
            let result = started.and_then(|()| farhaul_session::contained(converse).flatten());
            self.end();
            result
        })
    }

    /// Breaks all channels off, and lets the threads end.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        self.is_ready.notify_all();
        let channels: Vec<_> = self.table().channels.values().cloned().collect();
        channels.iter().for_each(|channel| self.break_off(channel, BrokenAt::FarEnd));
        self.ready.lock().in_any_case().clear();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.request.is_stopped()
    }

    /// The number of channels that have led to a target.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns whether there is room for another channel.
    pub(crate) fn has_place(&self) -> bool {
        self.table().channels.len() < CHANNELS_MAX
    }

    pub(crate) fn say(&self, message: &TunnelMessage) {
        self.request.send_encoded(|out| message.encode(out));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().whole()
    }

    // ---- the life of a channel --------------------------------------------------------------------

    fn make(&self, number: u64, answer: Option<Answer>) -> Result<Arc<Channel>, Failure> {
        let full = |error: Error| Failure::new(error.code(), error.what());
        let descriptor = self.request.budget().charge_of(Resource::Descriptors, 1);
        let descriptor = descriptor.map_err(|reached| full(reached.into()))?;
        self.rooms.begin()?;
        let inflow = Inflow::new(self.rooms.clone(), self.early_count.clone(), Instant::now());
        Ok(Arc::new(Channel {
            number,
            socket: OnceLock::new(),
            inflow: Mutex::new(inflow),
            outflow: Mutex::default(),
            answer: Mutex::new(answer),
            broken: Mutex::default(),
            is_over: AtomicBool::new(false),
            _descriptor: descriptor,
        }))
    }

    /// Opens a channel: `message` gets its number and its room. `answer` is called once, by whatever thread hears of
    /// the answer or of the end of the session, unless this fails.
    pub(crate) fn open(
        &self,
        message: impl FnOnce(u64, u64) -> TunnelMessage,
        answer: Answer,
    ) -> Result<(), Failure> {
        let _turn = self.opening.lock().in_any_case();
        let mut table = self.table();
        if self.is_over() {
            return Err(Failure::new(Code::PeerGone, "the session has ended"));
        }
        if table.channels.len() >= CHANNELS_MAX {
            return Err(too_many());
        }
        let number = table.next_own;
        let channel = self.make(number, Some(answer))?;
        table.next_own += 2;
        table.channels.insert(number, channel);
        drop(table);
        self.say(&message(number, ROOM_START));
        Ok(())
    }

    /// The far end opens a channel. The outer error is its fault, the inner one is a reason to refuse.
    pub(crate) fn take(&self, number: u64, room: u64) -> Result<Result<Arc<Channel>, Failure>, Error> {
        let mut table = self.table();
        if number != table.next_peer {
            return Err(Error::from(Misbehaviour::ChannelOutOfTurn));
        }
        table.next_peer = number.checked_add(2).ok_or(Error::from(Misbehaviour::ChannelOutOfTurn))?;
        if table.channels.len() >= CHANNELS_MAX {
            return Ok(Err(too_many()));
        }
        let channel = match self.make(number, None) {
            Ok(channel) => channel,
            Err(failure) => return Ok(Err(failure)),
        };
        if !channel.outflow.lock().whole().widen(room) {
            return Err(Error::from(Misbehaviour::ShrunkRoom));
        }
        table.channels.insert(number, channel.clone());
        Ok(Ok(channel))
    }

    /// This end has the target of a channel that the far end has opened.
    pub(crate) fn accept(&self, channel: &Arc<Channel>, socket: OwnedFd) {
        self.say(&TunnelMessage::Opened { channel: channel.number, room: ROOM_START });
        self.attach(channel, socket, None);
    }

    /// There is no target for it.
    pub(crate) fn refuse(&self, channel: &Arc<Channel>, failure: Failure) {
        self.remove(channel);
        self.say(&TunnelMessage::Refused { channel: channel.number, failure });
    }

    /// Joins a channel that is open with a local socket. `broken` becomes true if the channel breaks off.
    pub(crate) fn attach(&self, channel: &Arc<Channel>, socket: OwnedFd, broken: Option<Arc<AtomicBool>>) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        *channel.broken.lock().in_any_case() = broken;
        if channel.socket.set(LocalSocket(socket)).is_err() {
            return;
        }
        let Some(socket) = channel.socket.get() else { return };
        use epoll::EventFlags as Flags;
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        let data = epoll::EventData::new_u64(channel.number);
        let is_watched = rustix::io::ioctl_fionbio(&socket.0, true)
            .and_then(|()| epoll::add(&self.epoll, &socket.0, data, flags));
        if channel.is_over.load(Ordering::Acquire) {
            return reset(&socket.0);
        }
        if is_watched.is_err() {
            return self.break_off(channel, BrokenAt::Here);
        }
        // Bytes may have come before the socket was there.
        self.pump(channel);
    }

    /// Finds a channel that a message or a piece is about; `None` if it is over.
    fn find(&self, number: u64) -> Result<Option<Arc<Channel>>, Error> {
        let table = self.table();
        let next = if number % 2 == table.next_own % 2 { table.next_own } else { table.next_peer };
        if number >= next {
            return Err(Error::from(Misbehaviour::UnknownChannel));
        }
        Ok(table.channels.get(&number).cloned())
    }

    /// Handles the messages that are the same at both ends; any other one comes back.
    pub(crate) fn hear(&self, message: TunnelMessage) -> Result<Option<TunnelMessage>, Error> {
        match message {
            TunnelMessage::Opened { channel, room } => {
                let Some(channel) = self.find(channel)? else { return Ok(None) };
                let answer = channel.answer.lock().in_any_case().take();
                let answer = answer.ok_or_else(|| farhaul_session::messages::unexpected("opened"))?;
                if !channel.outflow.lock().whole().widen(room) {
                    return Err(Error::from(Misbehaviour::ShrunkRoom));
                }
                answer(Ok(&channel));
            }
            TunnelMessage::Refused { channel, failure } => {
                let Some(channel) = self.find(channel)? else { return Ok(None) };
                let answer = channel.answer.lock().in_any_case().take();
                let answer = answer.ok_or_else(|| farhaul_session::messages::unexpected("refused"))?;
                self.remove(&channel);
                answer(Err(failure));
            }
            TunnelMessage::Room { channel, until } => {
                let Some(channel) = self.find(channel)? else { return Ok(None) };
                if !channel.outflow.lock().whole().widen(until) {
                    return Err(Error::from(Misbehaviour::ShrunkRoom));
                }
                self.offer(&channel);
            }
            TunnelMessage::Reset { channel } => {
                if let Some(channel) = self.find(channel)? {
                    self.break_off(&channel, BrokenAt::FarEnd);
                }
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// Takes a channel out; returns false if another thread has done so before.
    fn remove(&self, channel: &Arc<Channel>) -> bool {
        if channel.is_over.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.table().channels.remove(&channel.number);
        if let Some(socket) = channel.socket.get() {
            let _ = epoll::delete(&self.epoll, &socket.0);
        }
        true
    }

    /// Breaks a connection off as its other end did: the local one sees a reset. If this end is the first to know,
    /// the far end is told.
    fn break_off(&self, channel: &Arc<Channel>, at: BrokenAt) {
        if !self.remove(channel) {
            return;
        }
        if let Some(broken) = &*channel.broken.lock().in_any_case() {
            broken.store(true, Ordering::Release);
        }
        if let Some(socket) = channel.socket.get() {
            // A close after that sends a reset. A socket that is not of TCP has no such thing.
            reset(&socket.0);
            if channel.broken.lock().in_any_case().is_some() {
                let _ = rustix::net::shutdown(&socket.0, Shutdown::Both);
            }
        }
        let answer = channel.answer.lock().in_any_case().take();
        if let Some(answer) = answer {
            answer(Err(Failure::new(Code::PeerGone, "the session has ended")));
        }
        if at == BrokenAt::Here {
            self.say(&TunnelMessage::Reset { channel: channel.number });
        }
    }

    fn remove_if_done(&self, channel: &Arc<Channel>) {
        if channel.outflow.lock().whole().is_ended() && channel.inflow.lock().whole().is_shut() {
            self.remove(channel);
        }
    }

    // ---- sockets ----------------------------------------------------------------------------------

    /// The body of the thread that waits for sockets.
    fn watch(&self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        while !self.is_over() {
            events.clear();
            let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as _ };
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return self.request.fail(Error::of_host("cannot wait for sockets", error.into()));
                }
            }
            for event in &events {
                let number = event.data.u64();
                if number == WAKE {
                    return;
                }
                let channel = self.table().channels.get(&number).cloned();
                if let Some(channel) = channel {
                    self.look_at(&channel, event.flags);
                }
            }
        }
    }

    fn look_at(&self, channel: &Arc<Channel>, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        let Some(socket) = channel.socket.get() else { return };
        if flags.contains(Flags::ERR) && matches!(rustix::net::sockopt::socket_error(&socket.0), Ok(Err(_))) {
            return self.break_off(channel, BrokenAt::Here);
        }
        if flags.intersects(Flags::OUT) {
            self.pump(channel);
        }
        if flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR) {
            channel.outflow.lock().whole().may_read();
            self.offer(channel);
        }
    }

    /// Writes what has come to its socket, and gives the far end room for more.
    fn pump(&self, channel: &Arc<Channel>) {
        let Some(socket) = channel.socket.get() else { return };
        let mut inflow = channel.inflow.lock().whole();
        let pumped = inflow.pump(socket);
        let (room, is_shut) = (inflow.grant(Instant::now()), inflow.is_shut());
        drop(inflow);
        match pumped {
            Ok(count) => {
                self.request.counts().content_written.fetch_add(count, Ordering::Relaxed);
                self.request.handle().counts().bytes_done.fetch_add(count, Ordering::Relaxed);
            }
            Err(_) => return self.break_off(channel, BrokenAt::Here),
        }
        if let Some(until) = room {
            self.say(&TunnelMessage::Room { channel: channel.number, until });
        }
        if is_shut {
            self.remove_if_done(channel);
        }
    }

    // ---- blocks that come --------------------------------------------------------------------------

    /// The body of the thread that takes blocks apart.
    fn receive(&self) {
        let inlet = self.request.arrived();
        while !self.is_over() {
            let _ = inlet.bell().rings().recv_timeout(LOOK_EVERY);
            while let Some(arrived) = inlet.take() {
                if let Err(error) = self.take_apart(&arrived.block[..arrived.len]) {
                    return self.request.fail(error);
                }
            }
        }
    }

    fn take_apart(&self, block: &[u8]) -> Result<(), Error> {
        let pieces = parse(block).map_err(|_| Error::from(Misbehaviour::SenselessTunnelPieces))?;
        for (piece, bytes) in pieces {
            let Some(channel) = self.find(piece.channel)? else { continue };
            channel.inflow.lock().whole().accept(piece, bytes)?;
            self.pump(&channel);
        }
        Ok(())
    }

    // ---- blocks that go ------------------------------------------------------------------------------

    /// Lets a channel have its turn if it has bytes and the far end has room.
    fn offer(&self, channel: &Arc<Channel>) {
        if channel.outflow.lock().whole().queue() {
            self.ready.lock().whole().push_back(channel.clone());
            self.is_ready.notify_one();
        }
    }

    fn next_ready(&self) -> Option<Arc<Channel>> {
        self.ready.lock().whole().pop_front()
    }

    /// Waits until a channel is ready; false if none is in time.
    fn wait_ready(&self, wait: Duration) -> bool {
        let ready = self.ready.lock().whole();
        let wait_on = |ready: &mut VecDeque<_>| ready.is_empty() && !self.is_over();
        let (ready, _) = self.is_ready.wait_timeout_while(ready, wait, wait_on).in_any_case();
        !ready.is_empty()
    }

    /// The body of the thread that reads sockets in turns.
    fn send(&self) {
        let is_over = || self.is_over();
        let mut unused = None;
        let mut more_may_come = None;
        while !self.is_over() {
            if !self.wait_ready(if more_may_come.is_some() { QUIET } else { LOOK_EVERY }) {
                more_may_come = None;
                continue;
            }
            more_may_come.get_or_insert_with(|| ProducerToken::new(&self.request));
            let Some(block) = unused.take().or_else(|| self.outlet.claim(is_over)) else { return };
            let mut pack = TunnelBlock::new(block);
            self.fill(&mut pack);
            let is_scarce = || !self.outlet.has_room() || self.outlet.is_short_of_blocks();
            while !pack.is_empty() && pack.room() > ROOM_MIN && is_scarce() && self.wait_ready(PACK_WAIT) {
                self.fill(&mut pack);
            }
            let is_empty = pack.is_empty();
            let (block, len, content) = pack.close();
            if is_empty {
                unused = Some(block);
            } else if !self.outlet.put(LoadedBlock::new(block, len, content), is_over) {
                return;
            }
        }
    }

    /// Reads ready sockets in turns until none is ready or the block is full.
    fn fill(&self, pack: &mut TunnelBlock) {
        while pack.room() > ROOM_MIN
            && let Some(channel) = self.next_ready()
        {
            self.read(&channel, pack);
        }
    }

    fn read(&self, channel: &Arc<Channel>, pack: &mut TunnelBlock) {
        let Some((at, room)) = channel.outflow.lock().whole().turn() else { return };
        let Some(socket) = channel.socket.get().filter(|_| !channel.is_over.load(Ordering::Acquire)) else {
            return;
        };
        let most = usize::try_from(room).unwrap_or(TURN).min(TURN).min(pack.room());
        match socket.read(&mut pack.space()[..most]) {
            Ok(count) => {
                let len = count as u64;
                pack.push(ChannelPiece { channel: channel.number, at, len, is_last: count == 0 });
                channel.outflow.lock().whole().read(len);
                match count {
                    0 => self.remove_if_done(channel),
                    _ => self.offer(channel),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                channel.outflow.lock().whole().may_read();
                self.offer(channel);
            }
            Err(_) => self.break_off(channel, BrokenAt::Here),
        }
    }
}

fn too_many() -> Failure {
    Failure::new(Code::TooMany, format!("the session has {CHANNELS_MAX} connections, which is the limit"))
}

/// Lets the other end of a connection see a reset when this end is closed.
pub(crate) fn reset(socket: &impl AsFd) {
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
