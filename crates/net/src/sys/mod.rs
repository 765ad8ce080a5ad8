//! The raw system calls, each behind a safe function: sendmmsg, recvmmsg, ppoll, prctl, socket options by
//! number.
//!
//! Always true: each function writes the pointers in the message headers just before it makes the call that
//! follows them; between calls they are stale, and nobody reads them.

use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, sockaddr_storage, socklen_t};

use crate::{PollFd, TcpPath};

mod address;
mod control;

pub use address::canonical;
pub(crate) use address::mapped;
pub(crate) use control::ReadInfo;

use address::{read_address, write_address};
use control::{RecvControl, SendControl, read_control};

/// The most messages of one system call. 16 full trains are 1 MiB; more would hold the thread in one call for
/// too long.
pub(crate) const MESSAGES_MAX: usize = 16;

/// The resolver's texts for errors that pass: try again, the server has failed, and no memory.
pub(crate) fn passing_lookup_texts() -> [String; 3] {
    [libc::EAI_AGAIN, libc::EAI_FAIL, libc::EAI_MEMORY].map(|number| {
        // SAFETY: the function takes any number, and returns a string that ends with a zero byte and is never
        // freed.
        let text = unsafe { std::ffi::CStr::from_ptr(libc::gai_strerror(number)) };
        text.to_string_lossy().into_owned()
    })
}

/// One message to send; a train if `gso_size` is given.
pub(crate) struct OutgoingMessage<'a> {
    pub bytes: &'a [u8],
    pub gso_size: Option<u16>,
    pub to: Option<SocketAddr>,
}

/// The arrays for sendmmsg and recvmmsg, allocated once.
pub(crate) struct MessageArrays {
    headers: [mmsghdr; MESSAGES_MAX],
    vectors: [iovec; MESSAGES_MAX],
    names: [sockaddr_storage; MESSAGES_MAX],
    send_controls: [SendControl; MESSAGES_MAX],
    recv_controls: [RecvControl; MESSAGES_MAX],
}

// SAFETY: the raw pointers inside are only followed during the calls below, which set them first; see the
// module's head.
unsafe impl Send for MessageArrays {}

impl MessageArrays {
    pub fn new() -> Box<MessageArrays> {
        // SAFETY: all fields are plain C structs, integers and null pointers, for which zero bytes are a
        // value.
        Box::new(unsafe { std::mem::zeroed() })
    }

    /// Sends the first [`MESSAGES_MAX`] messages, without blocking. Returns how many the kernel took; an
    /// error is about the first one.
    pub fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        messages: impl Iterator<Item = OutgoingMessage<'a>>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (index, message) in messages.take(MESSAGES_MAX).enumerate() {
            self.vectors[index] = vector(message.bytes.as_ptr().cast_mut(), message.bytes.len());
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            header.msg_flags = 0;
            (header.msg_name, header.msg_namelen) = match message.to {
                Some(to) => {
                    let len = write_address(&to, &mut self.names[index]);
                    ((&raw mut self.names[index]).cast(), len)
                }
                None => (ptr::null_mut(), 0),
            };
            (header.msg_control, header.msg_controllen) = match message.gso_size {
                Some(size) => {
                    self.send_controls[index] = SendControl::segment(size);
                    ((&raw mut self.send_controls[index]).cast(), SendControl::LEN)
                }
                None => (ptr::null_mut(), 0),
            };
            count += 1;
        }
        // SAFETY: the first `count` headers were just written and point into the messages' bytes, borrowed
        // during this call (the kernel only reads them), and into arrays of `self`; the descriptor is
        // borrowed, so it is open.
        let sent = unsafe {
            libc::sendmmsg(fd.as_raw_fd(), self.headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives into slots of `slot_len` bytes, without blocking; returns the number of filled slots.
    /// [`MessageArrays::received`] describes each. Senders' addresses are asked for only if `names`.
    pub fn recv(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        slot_len: usize,
        names: bool,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (index, slot) in buffer.chunks_exact_mut(slot_len).take(MESSAGES_MAX).enumerate() {
            self.vectors[index] = vector(slot.as_mut_ptr(), slot.len());
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            header.msg_flags = 0;
            (header.msg_name, header.msg_namelen) = if names {
                ((&raw mut self.names[index]).cast(), size_of::<sockaddr_storage>() as socklen_t)
            } else {
                (ptr::null_mut(), 0)
            };
            header.msg_control = (&raw mut self.recv_controls[index]).cast();
            header.msg_controllen = size_of::<RecvControl>();
            count += 1;
        }
        // SAFETY: the first `count` headers were just written and point to slots of `buffer`, borrowed
        // mutably during this call and without overlap, and into arrays of `self`, all with their true
        // lengths; the descriptor is open.
        let filled = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(filled).map_err(|_| io::Error::last_os_error())
    }

    /// Describes what the last [`MessageArrays::recv`] put into slot `index`, which is below the number that
    /// it returned.
    pub fn received(&self, index: usize) -> ReadInfo {
        let header = &self.headers[index];
        let named = header.msg_hdr.msg_namelen > 0;
        let mut received = read_control(&self.recv_controls[index], header.msg_hdr.msg_controllen);
        received.len = header.msg_len as usize;
        received.truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        received.from = named.then(|| read_address(&self.names[index])).flatten();
        received
    }
}

fn vector(base: *mut u8, len: usize) -> iovec {
    iovec { iov_base: base.cast::<c_void>(), iov_len: len }
}

/// Sets a socket option that is an int.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` is a live int of the length said, which the kernel only reads; the descriptor is open.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket option that is an int.
pub(crate) fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` and `len` are live, and `len` is the room in `value`; the descriptor is open.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel knows of a TCP connection.
pub(crate) fn tcp_path(fd: BorrowedFd<'_>) -> io::Result<TcpPath> {
    // SAFETY: integers only, for which zero bytes are a value; an older kernel fills in fewer of them.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as socklen_t;
    let out = ptr::from_mut(&mut info).cast::<c_void>();
    // SAFETY: `out` has room for `len` bytes, and both live through the call.
    let failed =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, out, &mut len) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let micros = |value: u32| Duration::from_micros(value.into());
    Ok(TcpPath {
        round_trip: micros(info.tcpi_rtt),
        round_trip_min: micros(info.tcpi_min_rtt),
        resent: info.tcpi_total_retrans.into(),
        segments_sent: info.tcpi_segs_out.into(),
        segments_received: info.tcpi_segs_in.into(),
        bytes_sent: info.tcpi_bytes_sent,
        bytes_received: info.tcpi_bytes_received,
    })
}

/// ppoll.
pub(crate) fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout_ptr = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: PollFd is a transparent pollfd and the slice has as many of them as the call is told; the
    // timeout is null or live.
    let result =
        unsafe { libc::ppoll(fds.as_mut_ptr().cast(), fds.len() as libc::nfds_t, timeout_ptr, ptr::null()) };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// sched_setscheduler(SCHED_BATCH) for the calling thread, unless a policy was chosen for it.
pub(crate) fn sched_batch() -> io::Result<()> {
    // SAFETY: the call takes a number, here that of the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return Ok(());
    }
    // SAFETY: all zeros is a valid value of a struct of numbers; its priority has to be 0.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is the calling thread, and the parameters live until the call has returned.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// prctl(PR_SET_TIMERSLACK, 1).
pub(crate) fn timer_slack_min() -> io::Result<()> {
    // SAFETY: this option takes a number and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const _: () = assert!(size_of::<cmsghdr>() == 16, "control.rs lays control messages out for 64-bit Linux");
