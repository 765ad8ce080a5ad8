//! The raw calls that no safe crate has: the ioctl of ethtool, and the state of the clock.
//!
//! The only `unsafe` of this crate. Always true: each function owns everything that it passes to the kernel.

use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// More than any answer of ethtool: 32768 names of 32 bytes. Callers refuse counts beyond half of that, so that a
/// driver whose number of counters grows between two calls cannot write past the end.
pub(crate) const ANSWER_BYTES: usize = 1 << 20;

/// A question to ethtool, and the answer in its place. It is aligned for 64-bit numbers.
pub(crate) struct Exchange(Box<[u64]>);

impl Exchange {
    /// Begins with these 32-bit words; the rest is zero.
    pub(crate) fn new(words: &[u32]) -> Exchange {
        let mut exchange = Exchange(vec![0; ANSWER_BYTES / 8].into_boxed_slice());
        for (index, &word) in words.iter().enumerate() {
            exchange.set_word(index, word);
        }
        exchange
    }

    /// Returns the 32-bit word of this number.
    pub(crate) fn word(&self, index: usize) -> u32 {
        let bytes = self.0[index / 2].to_ne_bytes();
        let at = index % 2 * 4;
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    pub(crate) fn set_word(&mut self, index: usize, word: u32) {
        let mut bytes = self.0[index / 2].to_ne_bytes();
        let at = index % 2 * 4;
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        self.0[index / 2] = u64::from_ne_bytes(bytes);
    }

    /// Returns this many bytes from this offset; fewer if the answer ends before.
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).skip(offset).take(length).collect()
    }

    /// Asks the driver of an interface, in the network namespace of the calling thread.
    pub(crate) fn ask(&mut self, interface: &str) -> io::Result<()> {
        let control = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // SAFETY: an ifreq is plain data, for which all zeros are a valid value.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if interface.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = self.0.as_mut_ptr().cast();
        // SAFETY: `request` is live and ours; its data points to `ANSWER_BYTES` bytes that we own, which is more than
        // the kernel writes for any question that this crate asks (see `ANSWER_BYTES`).
        let outcome = unsafe { libc::ioctl(control.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Returns whether the kernel's clock is kept in step by somebody.
pub(crate) fn is_clock_synchronised() -> bool {
    // SAFETY: a timex is plain data, for which all zeros are a valid value; `modes` of 0 changes nothing.
    let mut time: libc::timex = unsafe { zeroed() };
    // SAFETY: adjtimex writes one timex, which is live and ours.
    let state = unsafe { libc::adjtimex(&raw mut time) };
    state >= 0 && state != libc::TIME_ERROR && time.status & libc::STA_UNSYNC == 0
}

/// Returns whether UDP sockets know an option of this number.
pub(crate) fn has_udp_option(socket: &std::net::UdpSocket, option: libc::c_int) -> bool {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: getsockopt writes at most `length` bytes to `value`, and the new length to `length`; both are live and ours.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_UDP,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    outcome == 0
}
