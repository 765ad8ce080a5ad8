//! Whether an address belongs to this host.
//!
//! Always true: the kernel decides, at the moment of the question, so addresses that come and go, secondary
//! ones, and whole networks that are routed to this host count, too.
//! From: rtnetlink(7), RTM_GETROUTE: a route to an own address has the type RTN_LOCAL. Binding a socket to the
//! address is no answer where `ip_nonlocal_bind` is set.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

const HEADER_LEN: usize = 16;
const GET_ROUTE: u16 = 26;
const IS_REQUEST: u16 = 1;
const IS_ERROR: u16 = 2;
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
/// Where the type of a route stands in the answer.
const TYPE_AT: usize = HEADER_LEN + 7;
const TYPE_LOCAL: u8 = 2;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;

/// True if what is sent to this address stays on this host. The port does not matter. An IPv4 address inside of
/// an IPv6 one (`::ffff:192.0.2.1`) counts as that IPv4 address.
pub fn is_of_this_host(address: SocketAddr) -> io::Result<bool> {
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() || ip.is_loopback() {
        return Ok(true);
    }
    let interface = match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let kind = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, kind, None)?;
    sendto(&socket, &question(ip, interface), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 1024];
    // The kernel answers within the call that asks.
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    let answer = answer.get(..len).unwrap_or_default();
    let cut = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer about a route is cut");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    if kind.ok_or_else(cut)? == IS_ERROR {
        // There is no route to it, so nothing is sent to it at all.
        return Ok(false);
    }
    answer.get(TYPE_AT).map(|kind| *kind == TYPE_LOCAL).ok_or_else(cut)
}

/// Asks for the route to one address, on one interface unless that is 0.
fn question(ip: IpAddr, interface: u32) -> Vec<u8> {
    let (family, address) = match ip {
        IpAddr::V4(ip) => (FAMILY_V4, ip.octets().to_vec()),
        IpAddr::V6(ip) => (FAMILY_V6, ip.octets().to_vec()),
    };
    let bits = if family == FAMILY_V4 { 32 } else { 128 };
    let mut body = vec![family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut attribute = |kind: u16, value: &[u8]| {
        let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        body.extend_from_slice(&len.to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(value);
    };
    attribute(DESTINATION, &address);
    if interface != 0 {
        attribute(INTERFACE, &interface.to_ne_bytes());
    }
    let len = u32::try_from(HEADER_LEN + body.len()).unwrap_or(u32::MAX);
    let mut message = len.to_ne_bytes().to_vec();
    message.extend_from_slice(&GET_ROUTE.to_ne_bytes());
    message.extend_from_slice(&IS_REQUEST.to_ne_bytes());
    // A sequence number and a port, which nobody needs as there is one question on one socket.
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_the_addresses_of_this_host() {
        let is_own = |text: &str| is_of_this_host(SocketAddr::new(text.parse().unwrap(), 443)).unwrap();
        for own in ["127.0.0.1", "127.9.8.7", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["192.0.2.77", "2001:db8::77", "::ffff:192.0.2.77", "255.255.255.255"] {
            assert!(!is_own(other), "{other}");
        }
        // Any other address that a socket can be bound to is an own one, unless the kernel allows all.
        let any_may_be_bound = std::fs::read_to_string("/proc/sys/net/ipv4/ip_nonlocal_bind");
        if any_may_be_bound.is_ok_and(|text| text.trim() == "0") {
            let outside = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            if outside.connect("192.0.2.77:9").is_ok() {
                let source = outside.local_addr().unwrap();
                assert!(is_of_this_host(source).unwrap(), "{source}");
            }
        }
    }
}
