//! The raw system calls that no safe crate has: TUN devices, interface addresses, new namespaces, signals.
//!
//! The only `unsafe` of this crate. Always true: each function owns or borrows everything that it passes to
//! the kernel.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, c_short, c_ulong, ifreq, in6_ifreq, sockaddr_in};
use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::UnshareFlags;

use crate::packet::VNET_LEN;

/// The offloads to ask for: all that kernels have (USO needs Linux 6.2), or else the fewest that are useful.
const OFFLOADS: [libc::c_uint; 2] = {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    [tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6, tcp]
};

/// Makes a TUN device in the calling thread's network namespace; it vanishes with the descriptor.
pub(crate) fn open_tun(name: &str) -> io::Result<OwnedFd> {
    let fd = open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut request = interface(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which is live and ours.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    let header_len = VNET_LEN as c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one int, which is live.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const header_len) })?;
    let mut set = Ok(());
    for offloads in OFFLOADS {
        // SAFETY: TUNSETOFFLOAD takes a number and touches no memory of ours.
        set = done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, c_ulong::from(offloads)) });
        if set.is_ok() {
            break;
        }
    }
    set?;
    Ok(fd)
}

/// Sets the length of the transmit queue, MTU and addresses of an interface in the calling thread's network
/// namespace, and brings it up.
pub(crate) fn bring_up(name: &str, mtu: u32, addresses: &[(Ipv4Addr, Ipv6Addr)]) -> io::Result<()> {
    const QUEUE_PACKETS: c_int = 4096;
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = interface(name);
    request.ifr_ifru.ifru_mtu = mtu as c_int;
    call(&control, libc::SIOCSIFMTU, &mut request)?;
    // This field stands for the kernel's ifr_qlen, which is an int as well.
    request.ifr_ifru.ifru_metric = QUEUE_PACKETS;
    // Only the machine's root may set it. Others have the device's default of 500 packets, and are told if it
    // overflows.
    let _ = call(&control, libc::SIOCSIFTXQLEN, &mut request);
    for (v4, v6) in addresses {
        set_address(&control, name, libc::SIOCSIFADDR, *v4)?;
        set_address(&control, name, libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0))?;
        set_address_v6(&control, name, *v6)?;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as c_short;
    call(&control, libc::SIOCSIFFLAGS, &mut request)?;
    addresses.iter().for_each(|(_, v6)| wait_for(*v6));
    Ok(())
}

/// Waits until an address of ours is no longer tentative (RFC 4862). The kernel decides that a moment later,
/// even if it is not to look for duplicates. A connection made before would get another source address,
/// perhaps `::1`, for as long as it is tried.
fn wait_for(address: Ipv6Addr) {
    const PATIENCE: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    // The error of a tentative address. Any other error, as on a host without IPv6, is not cured by waiting.
    let is_tentative =
        || UdpSocket::bind((address, 0)).is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable);
    while is_tentative() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn set_address(control: &OwnedFd, name: &str, what: c_ulong, address: Ipv4Addr) -> io::Result<()> {
    let mut request = interface(name);
    let wire = sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    const { assert!(size_of::<sockaddr_in>() == size_of::<libc::sockaddr>()) };
    // SAFETY: both are plain C structs of the same size; the kernel reads this union field as a sockaddr_in.
    request.ifr_ifru.ifru_addr = unsafe { std::mem::transmute::<sockaddr_in, libc::sockaddr>(wire) };
    call(control, what, &mut request)
}

fn set_address_v6(control: &OwnedFd, name: &str, address: Ipv6Addr) -> io::Result<()> {
    let mut request = interface(name);
    call(control, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: SIOCGIFINDEX has just written this field of the union.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    let mut wanted = in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
        ifr6_prefixlen: 64,
        ifr6_ifindex: index,
    };
    let control = match socket(AddressFamily::INET6, SocketType::DGRAM, None) {
        Ok(control) => control,
        // On a kernel without IPv6, the lab has none either.
        Err(rustix::io::Errno::AFNOSUPPORT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // SAFETY: on an IPv6 socket SIOCSIFADDR reads one in6_ifreq, which is live and ours.
    done(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFADDR as _, &raw mut wanted) })
}

fn interface(name: &str) -> ifreq {
    // SAFETY: an ifreq is made of bytes, integers and a union of those, for which zero is a value.
    let mut request: ifreq = unsafe { zeroed() };
    // The last byte stays zero.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    request
}

fn call(control: &OwnedFd, what: c_ulong, request: &mut ifreq) -> io::Result<()> {
    // SAFETY: the interface requests used here read and write one ifreq, which is borrowed for the call.
    done(unsafe { libc::ioctl(control.as_raw_fd(), what as _, ptr::from_mut(request)) })
}

fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves the calling thread into new namespaces (a new pid namespace holds only its later children).
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "descriptors stay shared");
    // SAFETY: what makes this call unsafe is a table of descriptors of the thread's own, which was ruled out.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    Ok(())
}

/// The last signal that [`catch`] has caught, 0 for none.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn remember(signal: c_int) {
    CAUGHT.store(signal, Ordering::Relaxed);
}

/// From now on, the signal is remembered for [`take_caught`] and interrupts sleeping calls. Programs that are
/// started later have the default handling again.
pub(crate) fn catch(signal: c_int) -> io::Result<()> {
    // SAFETY: zero is a value of every field of a sigaction: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = remember as extern "C" fn(c_int) as usize;
    // SAFETY: the handler only stores to an atomic, which is allowed in signal handlers; `action` is live.
    done(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) })
}

/// The last signal that was caught since the last call.
pub(crate) fn take_caught() -> Option<c_int> {
    Some(CAUGHT.swap(0, Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Lets a descriptor be inherited by the programs that are started from now on.
pub(crate) fn keep_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    Ok(())
}

/// Keeps programs that are started from now on from inheriting a descriptor that this process was given by
/// its number.
pub(crate) fn close_on_exec(number: c_int) -> io::Result<()> {
    // SAFETY: F_SETFD takes a number and touches no memory; it fails for a number that is not a descriptor.
    done(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })
}

/// Lets the calling thread run as soon as it wakes, before threads without this priority: a link does not
/// wait for its users. Otherwise, a kernel that preempts lazily would let it wait for the next tick, up to 10
/// ms. Threads that it makes have the usual priority.
pub(crate) fn prefer_this_thread() -> io::Result<()> {
    // SAFETY: a sched_param is made of integers, for which zero is a value (musl has more than one).
    let mut parameter: libc::sched_param = unsafe { zeroed() };
    parameter.sched_priority = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads one sched_param, which is live; 0 is the calling thread.
    done(unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) })
}

/// The user at the other end of a unix socket. This does not use rustix's call, as a peer outside of this pid
/// namespace has no pid.
pub(crate) fn peer_uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the call writes at most `len` bytes to `peer`, which is as long, and both are live.
    done(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut peer).cast(), &raw mut len) })?;
    Ok(peer.uid)
}
