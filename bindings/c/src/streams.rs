//! Streams of both directions, and listeners.

use std::ffi::{c_char, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farhaul::copy::{Location, SessionReport};
use farhaul::document::{self, Connection};
use farhaul::errors::Code;
use farhaul::options::{NetworkOptions, PathAddresses, RateOptions};
use farhaul::stream::{
    AcceptedStream, ListenOptions, StreamListener, StreamOptions, StreamReceiver, StreamSender, StreamTarget,
    accept_stdio, connect_to_receive, connect_to_send,
};
use farhaul::{Error, Handle};
use serde::Deserialize;

use crate::arguments::{
    Filled, Place, Sized1, address, data, data_mut, flag, misuse, number, optional_bytes, optional_path,
    optional_text, options, set, wait, write_text,
};
use crate::border::{call, done};
use crate::codes::{FH_LATER, FH_OK, FH_RECEIVE, FH_SEND};
use crate::context::{Context, MemoryShare, fh_context, fh_report, location, rate_of};
use crate::handles::{self, LastError, Thing};

/// One end of a stream of blocks.
pub struct fh_stream {
    _private: [u8; 0],
}

/// Waits for streams that others begin.
pub struct fh_listener {
    _private: [u8; 0],
}

/// A path between two addresses, one of this host and one of the far end.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_path {
    pub local: *const c_char,
    pub remote: *const c_char,
}

/// How to connect. What is 0 or NULL has its default, or what options_json says.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_connect_options {
    pub size: usize,
    /// Bytes of blocks at each end, of the context's memory_bytes. 0: 256 MiB, or what is left.
    pub memory_bytes: u64,
    /// Bits a second of IP packets: the ceiling (the rate, with policy "fixed"), and the least.
    pub rate_bps: u64,
    pub rate_min_bps: u64,
    /// "fair", "high", "low", "fixed".
    pub policy: *const c_char,
    /// "aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "none".
    pub cipher: *const c_char,
    /// The fingerprint of the far end's key, "SHA256:...".
    pub fingerprint: *const c_char,
    /// Paths to use at once.
    pub paths: *const fh_path,
    pub path_count: usize,
    /// Flows on each path, 1 to 16.
    pub flows: u32,
    /// FH_SEND or FH_RECEIVE. Only for streams, as the next two.
    pub direction: u32,
    /// 1: blocks are taken in the order in which they were put.
    pub in_order: u32,
    /// 1: each block has a digest, against faulty memory.
    pub digests: u32,
    /// Further options: {"network": {...}, "connection": {...}} as in docs/reference/c.md.
    pub options_json: *const c_char,
}

// SAFETY: numbers and addresses; two pairs of 4 bytes beside those of 8.
unsafe impl Sized1 for fh_connect_options {
    const NAME: &'static str = "fh_connect_options";
    const FIRST_SIZE: usize = 96;
}

/// How to listen. What is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_listen_options {
    pub size: usize,
    /// The address with its port, for UDP and TCP: "0.0.0.0:0", "[::]:33001". NULL: [::]:33001.
    pub address: *const c_char,
    /// The file of public keys that are let in, one a line. NULL: ~/.config/farhaul/authorized_keys.
    pub authorized_keys: *const c_char,
    /// The only name that a stream may have. NULL: any.
    pub name: *const c_char,
    /// The most bytes of blocks of each stream, of the context's memory_bytes. 0: 256 MiB.
    pub memory_bytes: u64,
}

// SAFETY: numbers and addresses, all of 8 bytes.
unsafe impl Sized1 for fh_listen_options {
    const NAME: &'static str = "fh_listen_options";
    const FIRST_SIZE: usize = 40;
}

/// What a stream is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_stream_info {
    pub size: usize,
    /// FH_SEND if this end sends, FH_RECEIVE if it receives.
    pub direction: u64,
    /// Its name, and the far end's host or address, each with a zero byte at the end.
    pub name: [c_char; 256],
    pub peer: [c_char; 256],
}

// SAFETY: numbers without gaps between them.
unsafe impl Sized1 for fh_stream_info {
    const NAME: &'static str = "fh_stream_info";
    const FIRST_SIZE: usize = 528;
}

/// The document in `options_json` of a connection.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConnectDocument {
    network: NetworkOptions,
    connection: Connection,
}

pub(crate) enum End {
    Sender(StreamSender),
    Receiver(StreamReceiver),
}

pub(crate) struct Stream {
    pub(crate) last_error: LastError,
    pub(crate) end: End,
    pub(crate) rate: RateOptions,
    is_closed: AtomicBool,
    /// The program has said that no more blocks come.
    is_ending: AtomicBool,
    /// Nothing is left to do but to end in order.
    pub(crate) is_done: AtomicBool,
    report: Mutex<Option<SessionReport>>,
    pub(crate) memory: MemoryShare,
}

pub(crate) struct Listener {
    pub(crate) last_error: LastError,
    pub(crate) context: Arc<Context>,
    listener: StreamListener,
    memory_bytes: u64,
}

/// How often a thread that waits at a listener looks whether that was closed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long fh_close waits for the other program to end a stream in order, too.
const END_WAIT: Duration = Duration::from_secs(10);

impl Stream {
    fn new(end: End, rate: RateOptions, memory: MemoryShare) -> Arc<Stream> {
        Arc::new(Stream {
            last_error: LastError::default(),
            end,
            rate,
            is_closed: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            report: Mutex::default(),
            memory,
        })
    }

    pub(crate) fn sender(&self) -> Result<&StreamSender, Error> {
        match &self.end {
            End::Sender(sender) => Ok(sender),
            End::Receiver(_) => Err(misuse("this end of the stream receives")),
        }
    }

    pub(crate) fn receiver(&self) -> Result<&StreamReceiver, Error> {
        match &self.end {
            End::Receiver(receiver) => Ok(receiver),
            End::Sender(_) => Err(misuse("this end of the stream sends")),
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        match &self.end {
            End::Sender(sender) => sender.handle(),
            End::Receiver(receiver) => receiver.handle(),
        }
    }

    /// Whether no block can be put any more, by what this program has called.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.is_ending.load(Ordering::Acquire)
    }

    pub(crate) fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
        match &self.end {
            End::Sender(sender) => sender.set_rate(rate),
            End::Receiver(receiver) => receiver.set_rate(rate),
        }
    }

    fn finish(&self) -> Result<SessionReport, Error> {
        self.is_ending.store(true, Ordering::Release);
        let report = match &self.end {
            End::Sender(sender) => sender.end(),
            End::Receiver(receiver) => receiver.end(),
        }?;
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        Ok(report)
    }

    pub(crate) fn report_json(&self) -> Option<String> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.as_ref().and_then(|report| serde_json::to_string(report).ok())
    }

    /// Ends the stream when its handle is closed. Threads that wait in a call have it, too, and are let go.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.is_closed.store(true, Ordering::Release);
        let has_report = self.report.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !has_report && self.is_done.load(Ordering::Acquire) {
            let ended = match &self.end {
                End::Sender(sender) => sender.end_within(END_WAIT),
                End::Receiver(receiver) => receiver.end_within(END_WAIT),
            };
            return ended.map(drop);
        }
        if !has_report {
            self.handle().cancel();
        }
        Ok(())
    }
}

/// The network options and the connection of a program's options.
///
/// # Safety
///
/// Texts and paths in the options are as the header says.
unsafe fn network(given: &fh_connect_options) -> Result<(NetworkOptions, Connection), Error> {
    // SAFETY: as the caller says, here and below.
    let document = match unsafe { optional_bytes(given.options_json) } {
        Some(text) => document::read(text, "options_json")?,
        None => ConnectDocument::default(),
    };
    let ConnectDocument { mut network, mut connection } = document;
    // SAFETY: see above.
    let word = |text, name| unsafe { optional_text(text, name) };
    if let Some(policy) = word(given.policy, "policy")? {
        network.policy = known(policy, "policy")?;
    }
    if let Some(cipher) = word(given.cipher, "cipher")? {
        network.cipher = known(cipher, "cipher")?;
    }
    if let Some(fingerprint) = word(given.fingerprint, "fingerprint")? {
        connection.fingerprint = Some(fingerprint.into());
    }
    network.rate_bps = set(given.rate_bps).or(network.rate_bps);
    network.rate_min_bps = set(given.rate_min_bps).or(network.rate_min_bps);
    if given.flows != 0 {
        let flows = u16::try_from(given.flows);
        network.flows = flows.map_err(|_| Error::new(Code::BadOption, "`flows` is above 16"))?;
    }
    if given.path_count > 16 {
        return Err(Error::new(Code::BadOption, "there are at most 16 paths"));
    }
    // SAFETY: see above; nothing writes to the paths.
    let paths = unsafe { data_mut(given.paths.cast_mut(), given.path_count, "paths")? };
    for path in paths {
        // SAFETY: see above.
        let (local, remote) = unsafe { (address(path.local, "path")?, address(path.remote, "path")?) };
        network.paths.push(PathAddresses::new(local, remote));
    }
    Ok((network, connection))
}

fn known<T: for<'a> Deserialize<'a>>(word: &str, option: &str) -> Result<T, Error> {
    let value = serde_json::Value::String(word.into());
    serde_json::from_value(value).map_err(|_| {
        let word: String = word.chars().take(40).filter(|character| !character.is_control()).collect();
        Error::new(Code::BadOption, format!("`{option}`: there is no '{word}'"))
    })
}

/// As much as [`network`], with a part of the context's memory.
///
/// # Safety
///
/// As for [`network`].
pub(crate) unsafe fn network_within(
    context: &Arc<Context>,
    given: &fh_connect_options,
) -> Result<(NetworkOptions, Connection, MemoryShare), Error> {
    // SAFETY: as the caller says.
    let (mut network, connection) = unsafe { network(given)? };
    let said =
        (network.memory_bytes != NetworkOptions::default().memory_bytes).then_some(network.memory_bytes);
    let memory = MemoryShare::of(context, set(given.memory_bytes).or(said))?;
    network.memory_bytes = memory.bytes;
    Ok((network.checked()?, connection, memory))
}

/// Begins a stream with a program that listens, at fh://HOST[:PORT]/NAME, or that ssh starts, at
/// [USER@]HOST:PROGRAM (it calls fh_accept_stdio; ssh gives it the argument `endpoint`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_connect(
    context: *mut fh_context,
    location: *const c_char,
    options: *const fh_connect_options,
    stream: *mut *mut fh_stream,
) -> i32 {
    let handle = number(context);
    done(handle, || {
        let context = handles::context(handle)?;
        // SAFETY: as the header says.
        let (location, given, place) =
            unsafe { (self::location(location)?, self::options(options)?, Place::new(stream, "stream")?) };
        // SAFETY: as the header says.
        let (network, connection, memory) = unsafe { network_within(&context, &given)? };
        let rate = rate_of(&network);
        let (target, name) = target(&context, location, &connection)?;
        let stream = StreamOptions {
            in_order: flag(given.in_order, "in_order")?,
            digests: flag(given.digests, "digests")?,
            network,
            ..StreamOptions::new(name)
        };
        let end = match given.direction {
            FH_SEND => End::Sender(connect_to_send(&target, stream)?),
            FH_RECEIVE => End::Receiver(connect_to_receive(&target, stream)?),
            _ => return Err(Error::new(Code::BadOption, "`direction` is neither FH_SEND nor FH_RECEIVE")),
        };
        place.set_handle(handles::insert(Thing::Stream(Stream::new(end, rate, memory)))?);
        Ok(())
    })
}

/// The program that a location names, and the stream's name.
fn target(context: &Context, place: &[u8], said: &Connection) -> Result<(StreamTarget, String), Error> {
    let text = |path: &[u8]| {
        String::from_utf8(path.to_vec()).map_err(|_| Error::new(Code::BadLocation, "the name is not UTF-8"))
    };
    match context.locate(place, said)? {
        Location::Daemon { target, path } => {
            let name = path.strip_prefix(b"/").unwrap_or(&path);
            Ok((StreamTarget::Daemon(target), text(name)?))
        }
        Location::Ssh { mut target, path } => {
            target.remote_program = text(&path)?;
            Ok((StreamTarget::Ssh(target), "stream".into()))
        }
        Location::Local(_) | Location::Pipe => {
            Err(Error::new(Code::BadLocation, "a stream goes to fh://HOST/NAME or to HOST:PROGRAM"))
        }
    }
}

/// Listens for streams that others begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_listen(
    context: *mut fh_context,
    options: *const fh_listen_options,
    listener: *mut *mut fh_listener,
) -> i32 {
    let handle = number(context);
    done(handle, || {
        let context = handles::context(handle)?;
        // SAFETY: as the header says.
        let (given, place) = unsafe { (self::options(options)?, Place::new(listener, "listener")?) };
        let memory_bytes = set(given.memory_bytes).unwrap_or(256 << 20);
        let mut listen = ListenOptions { memory_max: memory_bytes, ..ListenOptions::default() };
        // SAFETY: as the header says.
        let (address, keys, name) = unsafe {
            (
                optional_text(given.address, "address")?,
                optional_path(given.authorized_keys),
                optional_text(given.name, "name")?,
            )
        };
        if let Some(address) = address {
            let bad =
                |_| Error::new(Code::BadOption, format!("`address`: {address:?} is no address with a port"));
            listen.listen = vec![address.parse::<SocketAddr>().map_err(bad)?];
        }
        if let Some(identity) = context.connection(Connection::default()).identity.first() {
            use std::os::unix::ffi::OsStringExt as _;
            listen.identity = std::ffi::OsString::from_vec(document::bytes(identity)?).into();
            listen.authorized_keys = listen.identity.with_file_name("authorized_keys");
        }
        listen.authorized_keys = keys.unwrap_or(listen.authorized_keys);
        listen.names = name.into_iter().map(String::from).collect();
        let listener = Listener {
            last_error: LastError::default(),
            context,
            listener: StreamListener::bind(listen)?,
            memory_bytes,
        };
        place.set_handle(handles::insert(Thing::Listener(Arc::new(listener)))?);
        Ok(())
    })
}

/// Writes "ADDRESS:PORT FINGERPRINT" of a listener: what whoever connects needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_listener_address(
    listener: *mut fh_listener,
    text: *mut c_char,
    room: usize,
) -> i32 {
    let handle = number(listener);
    done(handle, || {
        let listener = handles::listener(handle)?;
        // SAFETY: as the header says.
        let room = unsafe { data_mut(text.cast::<u8>(), room, "text")? };
        let address = listener.listener.local_addrs().first().map(SocketAddr::to_string).unwrap_or_default();
        let whole = format!("{address} {}", listener.listener.fingerprint());
        match write_text(&whole, room) < room.len() {
            true => Ok(()),
            false => Err(misuse("the room is too small: 128 bytes are enough")),
        }
    })
}

/// Waits for the next stream at a listener. FH_LATER: none has come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_accept(
    listener: *mut fh_listener,
    wait_us: i64,
    stream: *mut *mut fh_stream,
) -> i32 {
    let handle = number(listener);
    call(handle, || {
        let listener = handles::listener(handle)?;
        // SAFETY: as the header says.
        let place = unsafe { Place::new(stream, "stream")? };
        let mut left = wait(wait_us)?;
        loop {
            let step = left.min(LOOK_EVERY);
            if let Some(accepted) = listener.listener.accept_timeout(step)? {
                let memory = MemoryShare::of(&listener.context, Some(listener.memory_bytes))?;
                place.set_handle(insert_accepted(accepted, memory)?);
                return Ok(FH_OK);
            }
            // The handle was closed by another thread.
            if handles::listener(handle).is_err() {
                return Err(Error::interrupted());
            }
            left -= step;
            if left.is_zero() {
                return Ok(FH_LATER);
            }
        }
    })
}

fn insert_accepted(accepted: AcceptedStream, memory: MemoryShare) -> Result<u64, Error> {
    let end = match accepted {
        AcceptedStream::Sender(sender) => End::Sender(sender),
        AcceptedStream::Receiver(receiver) => End::Receiver(receiver),
    };
    handles::insert(Thing::Stream(Stream::new(end, RateOptions::default(), memory)))
}

/// Accepts the stream of the program that has started this one by ssh, over standard input and output. From then on
/// what this program prints to standard output goes to standard error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_accept_stdio(context: *mut fh_context, stream: *mut *mut fh_stream) -> i32 {
    let handle = number(context);
    done(handle, || {
        let context = handles::context(handle)?;
        // SAFETY: as the header says.
        let place = unsafe { Place::new(stream, "stream")? };
        let memory = MemoryShare::of(&context, None)?;
        place.set_handle(insert_accepted(accept_stdio()?, memory)?);
        Ok(())
    })
}

/// Says what a stream is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_stream_get(stream: *mut fh_stream, info: *mut fh_stream_info) -> i32 {
    let handle = number(stream);
    done(handle, || {
        let stream = handles::stream(handle)?;
        // SAFETY: as the header says.
        let filled = unsafe { Filled::new(info)? };
        let (direction, name, peer) = match &stream.end {
            End::Sender(sender) => (FH_SEND, sender.name(), sender.peer()),
            End::Receiver(receiver) => (FH_RECEIVE, receiver.name(), receiver.peer()),
        };
        let text = |text: &str| {
            let mut room = [0; 256];
            write_text(text, &mut room);
            room.map(|byte| byte as c_char)
        };
        filled.fill(fh_stream_info {
            size: size_of::<fh_stream_info>(),
            direction: direction.into(),
            name: text(name),
            peer: text(peer),
        });
        Ok(())
    })
}

/// Takes a path of a running stream out of use (`is_used` 0), or puts it back (1). Paths have the order of the options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_use_path(stream: *mut fh_stream, path: usize, is_used: u32) -> i32 {
    let handle = number(stream);
    done(handle, || {
        let (stream, is_used) = (handles::stream(handle)?, flag(is_used, "is_used")?);
        match &stream.end {
            End::Sender(sender) => sender.use_path(path, is_used),
            End::Receiver(receiver) => receiver.use_path(path, is_used),
        }
    })
}

/// Sends a message of at most 61,440 bytes to the other program. Messages arrive in their order, but not in step with
/// blocks. The library copies it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_send_meta(stream: *mut fh_stream, meta: *const c_void, len: usize) -> i32 {
    let handle = number(stream);
    done(handle, || {
        let stream = handles::stream(handle)?;
        // SAFETY: as the header says.
        let meta = unsafe { data(meta.cast(), len, "meta")? };
        match &stream.end {
            End::Sender(sender) => sender.send_message(meta),
            End::Receiver(receiver) => receiver.send_message(meta),
        }
    })
}

/// Waits for the next message of the other program. FH_LATER: none has come. `room` must be at least 61,440 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_next_meta(
    stream: *mut fh_stream,
    meta: *mut c_void,
    room: usize,
    len: *mut usize,
    wait_us: i64,
) -> i32 {
    let handle = number(stream);
    call(handle, || {
        let stream = handles::stream(handle)?;
        // SAFETY: as the header says.
        let (room, len) = unsafe { (data_mut(meta.cast::<u8>(), room, "meta")?, Place::new(len, "len")?) };
        if room.len() < farhaul::stream::MESSAGE_LEN_MAX {
            return Err(misuse("the room for a message must be at least 61440 bytes"));
        }
        let wait = wait(wait_us)?;
        let came = match &stream.end {
            End::Sender(sender) => sender.message(wait)?,
            End::Receiver(receiver) => receiver.message(wait)?,
        };
        let Some(message) = came else { return Ok(FH_LATER) };
        room[..message.len()].copy_from_slice(&message);
        len.set(message.len());
        Ok(FH_OK)
    })
}

/// Waits until the receiving program has released every block that was put. Further blocks can be put; without any,
/// fh_close ends the stream in order. `report` may be NULL; it gets the figures so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_wait_for_receiver(stream: *mut fh_stream, report: *mut fh_report) -> i32 {
    let handle = number(stream);
    done(handle, || {
        let stream = handles::stream(handle)?;
        // SAFETY: as the header says.
        let report = unsafe { Filled::optional(report)? };
        stream.sender()?.wait()?;
        stream.is_done.store(true, Ordering::Release);
        if let Some(report) = report {
            let seen = stream.handle().snapshot();
            let so_far = SessionReport {
                bytes: seen.bytes_done,
                seconds: seen.seconds,
                goodput_bps: seen.goodput_mean_bps,
                ..SessionReport::default()
            };
            report.fill(fh_report::of(&so_far));
        }
        Ok(())
    })
}

/// Ends a stream in order, and waits until both programs have: the sender says that no more blocks come, the receiver
/// that it has released all. `report` may be NULL. The handle stays, for fh_report_json, and is to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_finish(stream: *mut fh_stream, report: *mut fh_report) -> i32 {
    let handle = number(stream);
    done(handle, || {
        let stream = handles::stream(handle)?;
        // SAFETY: as the header says.
        let filled = unsafe { Filled::optional(report)? };
        let report = stream.finish()?;
        if let Some(filled) = filled {
            filled.fill(fh_report::of(&report));
        }
        Ok(())
    })
}
