//! The largest packet that the system believes to get through to an address.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use crate::sys;

/// The IP MTU, headers included, that this host's system knows for the way to an address: that of the interface, until a
/// router has reported a smaller one. Nothing is sent.
pub fn mtu_to(address: SocketAddr) -> Option<u16> {
    let (own, level, name) = match address {
        SocketAddr::V4(_) => ((Ipv4Addr::UNSPECIFIED, 0).into(), libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => {
            (SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), libc::IPPROTO_IPV6, libc::IPV6_MTU)
        }
    };
    let socket = UdpSocket::bind(own).ok()?;
    socket.connect(address).ok()?;
    let mtu = sys::option(socket.as_fd(), level, name).ok()?;
    Some(u16::try_from(mtu).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_large_packets() {
        assert!(mtu_to(([127, 0, 0, 1], 9).into()).is_some_and(|mtu| mtu >= 16384));
    }
}
