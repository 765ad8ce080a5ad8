//! Socket addresses between the standard library's form and the kernel's.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// Writes the address and returns its length.
pub(super) fn write_address(addr: &SocketAddr, out: &mut sockaddr_storage) -> socklen_t {
    match addr {
        SocketAddr::V4(addr) => {
            let raw = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: addr.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage is at least as long and as aligned as every socket address.
            unsafe { (&raw mut *out).cast::<sockaddr_in>().write(raw) };
            size_of::<sockaddr_in>() as socklen_t
        }
        SocketAddr::V6(addr) => {
            let raw = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: addr.port().to_be(),
                sin6_flowinfo: addr.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                sin6_scope_id: addr.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut *out).cast::<sockaddr_in6>().write(raw) };
            size_of::<sockaddr_in6>() as socklen_t
        }
    }
}

/// Reads an address that the kernel wrote.
pub(super) fn read_address(raw: &sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: a sockaddr_storage is long and aligned enough; every byte pattern is a sockaddr_in.
            let addr = unsafe { (&raw const *raw).cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(addr.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let addr = unsafe { (&raw const *raw).cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(addr.sin6_addr.s6_addr);
            let port = u16::from_be(addr.sin6_port);
            Some(canonical(SocketAddrV6::new(ip, port, addr.sin6_flowinfo, addr.sin6_scope_id).into()))
        }
        _ => None,
    }
}

/// The address without the IPv6 form that a dual-stack socket gives to IPv4 (`::ffff:1.2.3.4`).
pub fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(six) if six.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(six.ip().to_canonical(), six.port())
        }
        other => other,
    }
}

/// The address in the form that a socket of the IPv6 family needs.
pub(crate) fn mapped(addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(four) => SocketAddr::new(four.to_ipv6_mapped().into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["1.2.3.4:5", "[fe80::1%3]:65535", "[::1]:1", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            // SAFETY: zero bytes are a sockaddr_storage.
            let mut raw: sockaddr_storage = unsafe { std::mem::zeroed() };
            write_address(&addr, &mut raw);
            assert_eq!(read_address(&raw), Some(addr));
            write_address(&mapped(addr), &mut raw);
            assert_eq!(read_address(&raw), Some(addr), "the IPv6 form is undone");
        }
        // SAFETY: zero bytes are a sockaddr_storage.
        assert_eq!(read_address(&unsafe { std::mem::zeroed() }), None);
    }
}
