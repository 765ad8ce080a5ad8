//! Making a socket and setting its options.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use libc::c_int;
use socket2::{Domain, Protocol, Socket, Type};

use crate::sys::{option, set_option};

/// Whether other sockets may have the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortSharing {
    Own,
    /// Other shared sockets, if the same user has opened them: the kernel checks the user.
    Shared,
    /// Other shared sockets, whoever has opened them: a socket that a service manager hands over, and those
    /// beside it.
    SharedWithAny,
}

/// Opens a bound socket. An IPv6 socket also takes IPv4 if it is bound to the wildcard.
pub(super) fn bound(local: SocketAddr, port: PortSharing) -> io::Result<UdpSocket> {
    let socket =
        Socket::new(Domain::for_address(local), Type::DGRAM.cloexec().nonblocking(), Some(Protocol::UDP))?;
    if local.is_ipv6() {
        socket.set_only_v6(!local.ip().is_unspecified())?;
    }
    share(socket.as_fd(), port)?;
    socket.bind(&local.into())?;
    Ok(socket.into())
}

/// Lets other sockets share the port of this one.
pub(super) fn share(socket: BorrowedFd<'_>, port: PortSharing) -> io::Result<()> {
    if port != PortSharing::Own {
        set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    match port {
        PortSharing::Own | PortSharing::Shared => Ok(()),
        PortSharing::SharedWithAny => set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
    }
}

/// Sets all options that a link needs, except the buffers. Options for speed or more information may fail;
/// those for correctness (no fragments, no blocking) must succeed.
pub(super) fn tune(socket: &UdpSocket, six: bool) -> io::Result<()> {
    let fd = socket.as_fd();
    socket.set_nonblocking(true)?;
    let four_df = set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    if six {
        // On an IPv6 socket, the options of IPv4 are for the dual stack, and missing if it is off.
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
    } else {
        four_df?;
    }
    let _ = set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    Ok(())
}

/// Lets the kernel hand over each datagram by itself, for somebody who has no room for 64 of them at once.
pub fn keep_datagrams_apart(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 0)
}

/// Turns a dual-stack socket that is connected to an IPv4 address into an IPv4 socket. Otherwise the kernel
/// handles each message as if it named a destination, and looks up the route each time.
pub(super) fn become_four(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM, libc::AF_INET)
}

/// Asks for `bytes` of buffer each way and returns the granted sizes, receive first.
pub(super) fn grow_buffers(socket: &UdpSocket, bytes: usize) -> (usize, usize) {
    let fd = socket.as_fd();
    (
        grow(fd, bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        grow(fd, bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    )
}

fn grow(fd: BorrowedFd<'_>, bytes: usize, force: c_int, plain: c_int) -> usize {
    // The kernel doubles the given size, for its own overhead, and reports the doubled one (socket(7)).
    let granted =
        || option(fd, libc::SOL_SOCKET, plain).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0) / 2);
    let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
    if granted() < bytes && set_option(fd, libc::SOL_SOCKET, force, wanted).is_err() {
        // Without the privilege, the plain option grants as much as the system's limit allows.
        let _ = set_option(fd, libc::SOL_SOCKET, plain, wanted);
    }
    granted()
}

/// Whether the kernel knows UDP_SEGMENT (Linux 4.18).
pub(super) fn has_gso(socket: &UdpSocket) -> bool {
    option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}

pub(super) fn set_ecn(socket: &UdpSocket, six: bool, capable: bool) -> io::Result<()> {
    let bits = if capable { 2 } else { 0 };
    let four = set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_TOS, bits);
    if six { set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_TCLASS, bits) } else { four }
}
