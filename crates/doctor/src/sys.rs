//! The raw calls that no safe crate has: the ioctls of ethtool and NVMe, the state of the clock, quotas, names of
//! addresses, errors that come by ICMP.
//!
//! The only `unsafe` of this crate. Always true: each function owns everything that it passes to the kernel.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::zeroed;
use std::net::IpAddr;
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

/// What a user has used of a file system, and may use. Bytes of limits are in units of 1 KiB.
pub(crate) struct Quota {
    pub(crate) bytes_used: u64,
    pub(crate) bytes_soft: u64,
    pub(crate) bytes_hard: u64,
    pub(crate) files_used: u64,
    pub(crate) files_soft: u64,
    pub(crate) files_hard: u64,
}

/// Returns this user's quota on a device, if it has any there.
pub(crate) fn own_quota(device: &str) -> Option<Quota> {
    let device = CString::new(device).ok()?;
    let user = rustix::process::getuid().as_raw();
    // SAFETY: a dqblk is plain data, for which all zeros are a valid value.
    let mut quota: libc::dqblk = unsafe { zeroed() };
    let command = libc::QCMD(libc::Q_GETQUOTA, libc::USRQUOTA);
    // SAFETY: quotactl reads the path, which ends with a zero, and writes one dqblk; both are live and ours.
    let outcome =
        unsafe { libc::quotactl(command, device.as_ptr(), user as libc::c_int, (&raw mut quota).cast()) };
    (outcome == 0).then_some(Quota {
        bytes_used: quota.dqb_curspace,
        bytes_soft: quota.dqb_bsoftlimit,
        bytes_hard: quota.dqb_bhardlimit,
        files_used: quota.dqb_curinodes,
        files_soft: quota.dqb_isoftlimit,
        files_hard: quota.dqb_ihardlimit,
    })
}

/// A command to an NVMe disk. From: struct nvme_admin_cmd of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_and_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    length: u32,
    words_10_to_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<NvmeCommand>() == 72);
/// _IOWR('N', 0x41, struct nvme_admin_cmd)
const NVME_IOCTL_ADMIN: libc::c_ulong = 3 << 30 | 72 << 16 | (b'N' as libc::c_ulong) << 8 | 0x41;
const GET_LOG_PAGE: u8 = 2;
const HEALTH_LOG: u32 = 2;
const HEALTH_BYTES: usize = 512;

/// Returns the health log of an NVMe disk.
pub(crate) fn nvme_health(path: &str) -> io::Result<[u8; HEALTH_BYTES]> {
    let device = std::fs::File::open(path)?;
    let mut log = [0u8; HEALTH_BYTES];
    let mut command = NvmeCommand {
        opcode: GET_LOG_PAGE,
        namespace: u32::MAX,
        address: log.as_mut_ptr() as u64,
        length: HEALTH_BYTES as u32,
        words_10_to_15: [HEALTH_LOG | (HEALTH_BYTES as u32 / 4 - 1) << 16, 0, 0, 0, 0, 0],
        timeout_ms: 1000,
        ..NvmeCommand::default()
    };
    // SAFETY: the command is laid out as the kernel's, and live; it has the disk write `length` bytes to `address`, which
    // is the log: as long, live and ours. The command reads a log and changes nothing.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), NVME_IOCTL_ADMIN as _, &raw mut command) };
    match outcome {
        0 => Ok(log),
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Returns the name of an address, as the resolver knows it.
pub(crate) fn name_of(address: IpAddr) -> Option<String> {
    // SAFETY: a sockaddr_storage is plain data, for which all zeros are a valid value.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let length = match address {
        IpAddr::V4(four) => {
            let of_four = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(four.octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage is as large and as aligned as any address, and ours.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(of_four) };
            size_of::<libc::sockaddr_in>()
        }
        IpAddr::V6(six) => {
            // SAFETY: a sockaddr_in6 is plain data, for which all zeros are a valid value.
            let mut of_six: libc::sockaddr_in6 = unsafe { zeroed() };
            of_six.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            of_six.sin6_addr.s6_addr = six.octets();
            // SAFETY: a sockaddr_storage is as large and as aligned as any address, and ours.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(of_six) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    let mut name = [0u8; libc::NI_MAXHOST as usize];
    // SAFETY: getnameinfo reads `length` bytes of the address, and writes at most the given number of bytes to `name`, with a
    // zero at the end; both are live and ours.
    let outcome = unsafe {
        libc::getnameinfo(
            (&raw const storage).cast(),
            length as libc::socklen_t,
            name.as_mut_ptr().cast(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    (outcome == 0).then(|| name.to_string_lossy().into_owned())
}

/// Has the kernel keep errors that come by ICMP for a socket, with the address of whoever has sent them.
pub(crate) fn keep_errors(socket: &std::net::UdpSocket, is_ipv6: bool) -> io::Result<()> {
    let (level, option) = match is_ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        false => (libc::IPPROTO_IP, libc::IP_RECVERR),
    };
    let on: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: setsockopt reads `length` bytes of `on`, which is as long and live.
    let outcome =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the next error that was kept for a socket: the first byte that was sent, if the error quotes it, and the control
/// messages. `None` if there is no error.
pub(crate) fn next_error(socket: &std::net::UdpSocket) -> Option<(Option<u8>, Vec<u8>)> {
    let mut sent = [0u8; 64];
    // Control messages begin with a long number.
    let mut control = [0u64; 64];
    let mut part = libc::iovec { iov_base: sent.as_mut_ptr().cast(), iov_len: sent.len() };
    // SAFETY: a msghdr is plain data, for which all zeros are a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: recvmsg writes to the parts and to the control messages that `message` names, no more than the lengths there say;
    // all are live and ours.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let length = usize::try_from(length).ok()?;
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let first = (length > 0).then_some(sent[0]);
    Some((first, bytes.into_iter().take(message.msg_controllen as usize).collect()))
}
