//! TCP between the two ends of a session over ssh, beside ssh. A connection begins with a frame that only
//! somebody with the session's secret can make, and then carries sealed packets. It has no TLS, as datagrams
//! have none either.
//!
//! Always true: a flow index is taken once. A stranger who connects and sends nothing, or something else,
//! gets no answer and is dropped; what the far end keeps for strangers is bounded.

use std::collections::HashSet;
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use aws_lc_rs::{constant_time, hkdf};
use farhaul_net::{StreamLink, with_port};
use farhaul_session::congestion;
use farhaul_session::secret::Secret;
use farhaul_session::setup::{CarrierDoor, FlowLink, FlowSetup};
use farhaul_words::{Code, Error};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

const MAGIC: [u8; 8] = *b"farhaul/";
const TAG_LEN: usize = 32;
const FRAME_LEN: usize = MAGIC.len() + 2 + TAG_LEN;
/// How long a connection may take to come about: TCP tries again after one second.
const CONNECT_TIME: Duration = Duration::from_millis(2500);
/// How long a stranger may take to send his frame, and how many strangers may do so at a time.
const WAIT: Duration = Duration::from_secs(5);
const WAITING_MAX: usize = 32;

/// The tag that only an owner of the session's secret can compute.
fn tag(master: &Secret, index: u16) -> Result<[u8; TAG_LEN], Error> {
    let mut tag = [0; TAG_LEN];
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &master[..])
        .expand(&[b"farhaul direct", &[0], &index.to_be_bytes()], hkdf::HKDF_SHA256)
        .and_then(|key| key.fill(&mut tag))
        .map_err(|_| Error::of_host("cannot derive a key", io::ErrorKind::Other.into()))?;
    farhaul_proto::wipe_dead_stack();
    Ok(tag)
}

/// The flow that an open connection carries. Both ends use the index as its id.
fn flow(stream: TcpStream, index: u16) -> io::Result<FlowSetup> {
    let prepared = congestion::prepare(&stream)?;
    let write = stream.try_clone()?;
    let link = StreamLink::from_fds(OwnedFd::from(stream), OwnedFd::from(write))?.unproven();
    Ok(FlowSetup { index, send_id: index, recv_id: index, link: FlowLink::Stream(prepared.carrier(link)) })
}

/// The client's side: connects to the first of the addresses that answers. `take_index` is called once there
/// is a connection.
pub(super) fn dial(
    candidates: &[SocketAddr],
    master: &Secret,
    take_index: impl FnOnce() -> Result<u16, Error>,
) -> Result<FlowSetup, Error> {
    let failed = |error: io::Error| Error::with_source(Code::NoCarrier, "no direct TCP", error);
    let mut stream = connect_any(candidates).map_err(failed)?;
    let index = take_index()?;
    // The frame is so short that every socket takes it at once.
    let frame = [&MAGIC[..], &index.to_be_bytes(), &tag(master, index)?].concat();
    stream.write_all(&frame).map_err(failed)?;
    flow(stream, index).map_err(failed)
}

fn connect_any(candidates: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    let mut sockets = Vec::new();
    for &address in candidates {
        match begin(address) {
            Ok(socket) => sockets.push(socket),
            Err(error) => failure = error,
        }
    }
    let until = Instant::now() + CONNECT_TIME;
    while !sockets.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let ready: Vec<bool> = {
            let mut fds: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)).collect();
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let mut ready = ready.into_iter();
        for socket in sockets.extract_if(.., |_| ready.next() == Some(true)).collect::<Vec<_>>() {
            match socket.take_error()? {
                None => {
                    socket.set_nonblocking(false)?;
                    return Ok(socket.into());
                }
                Some(error) => failure = error,
            }
        }
    }
    Err(failure)
}

fn begin(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            Err(error)
        }
        Ok(()) | Err(_) => Ok(socket),
    }
}

/// The far end's listening socket; its session looks at it now and then.
pub struct DirectListener {
    listener: TcpListener,
    master: Secret,
    indices: Range<u16>,
    taken: HashSet<u16>,
    waiting: Vec<UnprovenConnection>,
}

/// A connection that has not sent its whole frame yet.
struct UnprovenConnection {
    stream: TcpStream,
    frame: Vec<u8>,
    since: Instant,
}

/// Listens on the first free port of the range, beginning at `first`.
pub(super) fn bind(first: u16, (least, last): (u16, u16)) -> io::Result<TcpListener> {
    let start = if (least..=last).contains(&first) { first } else { least };
    let mut failure = io::Error::from(io::ErrorKind::AddrInUse);
    for port in (start..=last).chain(least..start) {
        let bound = bind_at((Ipv6Addr::UNSPECIFIED, port).into())
            .or_else(|_| bind_at((Ipv4Addr::UNSPECIFIED, port).into()));
        match bound {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn bind_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier session that linger do not matter; a port that somebody listens on is still
    // refused.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(WAITING_MAX as i32)?;
    Ok(socket.into())
}

impl DirectListener {
    pub(super) fn new(listener: TcpListener, master: Secret, indices: Range<u16>) -> DirectListener {
        DirectListener { listener, master, indices, taken: HashSet::new(), waiting: Vec::new() }
    }

    fn admit(&mut self, frame: &[u8]) -> Option<u16> {
        let (index, said) = frame.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let index = u16::from_be_bytes(*index);
        let tag = tag(&self.master, index).ok()?;
        constant_time::verify_slices_are_equal(&tag, said).ok()?;
        (self.indices.contains(&index) && self.taken.insert(index)).then_some(index)
    }
}

impl CarrierDoor for DirectListener {
    fn poll(&mut self) -> Option<FlowSetup> {
        while self.waiting.len() < WAITING_MAX
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.waiting.push(UnprovenConnection { stream, frame: Vec::new(), since: Instant::now() });
            }
        }
        let mut at = 0;
        while at < self.waiting.len() {
            match self.waiting[at].read() {
                Ok(false) if self.waiting[at].since.elapsed() < WAIT => at += 1,
                Ok(false) | Err(_) => drop(self.waiting.swap_remove(at)),
                Ok(true) => {
                    let UnprovenConnection { stream, frame, .. } = self.waiting.swap_remove(at);
                    let admitted = self.admit(&frame).and_then(|index| flow(stream, index).ok());
                    if admitted.is_some() {
                        return admitted;
                    }
                }
            }
        }
        None
    }
}

impl UnprovenConnection {
    /// Returns whether the frame is complete. Not a byte more is read, as it would belong to the link.
    fn read(&mut self) -> io::Result<bool> {
        let mut rest = [0; FRAME_LEN];
        let rest = &mut rest[..FRAME_LEN - self.frame.len()];
        match self.stream.read(rest) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.frame.extend_from_slice(&rest[..read]);
                Ok(self.frame.len() == FRAME_LEN)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// The addresses at which the far end's listening socket may be reached.
pub(super) fn candidates(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    addresses.iter().map(|&address| with_port(address, port)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(master: &Secret) -> (DirectListener, SocketAddr) {
        let listener = bind(0, (0, 0)).unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        (DirectListener::new(listener, master.clone(), 5..8), at)
    }

    fn arrived(door: &mut DirectListener) -> Option<u16> {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            if let Some(flow) = door.poll() {
                return Some(flow.index);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    #[test]
    fn who_has_the_secret_is_let_in_once_under_an_index() {
        let master = Secret::zeros();
        let (mut door, at) = door(&master);
        // Nothing listens on the first address.
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut dialled = Vec::new();
        for index in [5, 7] {
            dialled.push(dial(&[closed, at], &master, || Ok(index)).unwrap());
            assert_eq!(arrived(&mut door), Some(index));
        }
        for index in [5, 4, 8] {
            dialled.push(dial(&[at], &master, || Ok(index)).unwrap());
        }
        let mut other = Secret::zeros();
        other[0] = 1;
        dialled.push(dial(&[at], &other, || Ok(6)).unwrap());
        let mut stranger = TcpStream::connect(at).unwrap();
        stranger.write_all(&[b'x'; 100]).unwrap();
        assert_eq!(arrived(&mut door), None);
        assert!(dial(&[closed], &master, || Ok(6)).is_err());
    }

    #[test]
    fn strangers_that_say_nothing_do_not_fill_the_door() {
        let master = Secret::zeros();
        let (mut door, at) = door(&master);
        let _silent: Vec<_> = (0..WAITING_MAX).map(|_| TcpStream::connect(at).unwrap()).collect();
        assert_eq!(arrived(&mut door), None);
        assert_eq!(door.waiting.len(), WAITING_MAX);
        door.waiting.iter_mut().for_each(|waiting| waiting.since -= WAIT);
        let _client = dial(&[at], &master, || Ok(6)).unwrap();
        assert_eq!(arrived(&mut door), Some(6));
    }
}
