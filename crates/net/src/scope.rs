//! Link-local addresses (fe80::/10), which are valid on one link only. The link is named by the number of
//! this host's interface, the scope of RFC 4007. It means nothing to another host.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

/// Whether an address needs an interface beside it.
pub fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local())
}

/// An address on an interface of this host, given by the interface's name or number. The port is 0.
pub fn on_interface(ip: IpAddr, interface: &str) -> io::Result<SocketAddr> {
    let mut found = (format!("{ip}%{interface}"), 0).to_socket_addrs()?;
    found.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Parses `ip` or `ip%interface`, as users and sshd write it. The port is 0.
pub fn scoped(text: &str) -> Option<SocketAddr> {
    match text.split_once('%') {
        None => Some(SocketAddr::new(text.parse().ok()?, 0)),
        Some((ip, interface)) => on_interface(ip.parse().ok()?, interface).ok(),
    }
}

/// The address; if it is link-local, with the interface of this number. The port is 0.
pub fn with_scope(ip: IpAddr, number: u32) -> SocketAddr {
    let mut address = SocketAddr::new(ip, 0);
    if let SocketAddr::V6(six) = &mut address
        && is_link_local(ip)
    {
        six.set_scope_id(number);
    }
    address
}

/// The number of this host's interface that has the address; 0 if no interface or several have it.
pub fn interface_of(own: IpAddr) -> u32 {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let mut numbers: Vec<u32> =
        all.iter().filter(|there| there.ip() == own).filter_map(|there| there.index).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if let [only] = numbers[..] { only } else { 0 }
}

/// The same address with another port.
pub fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_goes_with_an_address_of_one_link_only() {
        let scope = |address: Option<SocketAddr>| match address {
            Some(SocketAddr::V6(six)) => six.scope_id(),
            other => panic!("{other:?}"),
        };
        // Every host has a loopback interface, and it is the first.
        assert_eq!(scope(scoped("fe80::1%lo")), 1);
        assert_eq!(scope(scoped("fe80::1%1")), 1);
        assert_eq!(scope(scoped("fe80::1")), 0);
        for wrong in ["fe80::1%no such interface", "10.0.0.1%lo%lo", "%lo", "", "host%lo"] {
            assert_eq!(scoped(wrong), None, "{wrong}");
        }
        assert_eq!(scope(Some(with_scope("fe80::1".parse().unwrap(), 7))), 7);
        assert_eq!(scope(Some(with_scope("fd00::1".parse().unwrap(), 7))), 0);
        assert_eq!(interface_of("127.0.0.1".parse().unwrap()), 1);
        assert_eq!(interface_of("192.0.2.77".parse().unwrap()), 0);
    }
}
