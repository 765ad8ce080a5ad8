//! The addresses by which another host may reach this one.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use if_addrs::{IfAddr, IfOperStatus};

/// A network interface: its addresses, each with the length of its subnet's prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    pub name: String,
    pub addresses: Vec<(IpAddr, u8)>,
}

/// All interfaces that are up, without loopback and link-local addresses.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for address in if_addrs::get_if_addrs()? {
        if address.is_loopback() || address.is_link_local() || address.oper_status == IfOperStatus::Down {
            continue;
        }
        let bits = match &address.addr {
            IfAddr::V4(v4) => v4.prefixlen,
            IfAddr::V6(v6) => v6.prefixlen,
        };
        let interface = || Interface { name: address.name.clone(), ..Interface::default() };
        found.entry(address.name.clone()).or_insert_with(interface).addresses.push((address.ip(), bits));
    }
    Ok(found.into_values().collect())
}

/// The address from which this host would send to `remote`.
pub fn source_address(remote: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match remote.to_canonical() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Connecting asks for the route and sends nothing; any port will do.
    socket.connect((remote.to_canonical(), 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_of_one_link_only_is_told() {
        for interface in interfaces().unwrap() {
            assert!(!interface.addresses.is_empty() && !interface.name.is_empty());
            for (ip, bits) in interface.addresses {
                assert!(!ip.is_loopback() && !ip.is_unspecified(), "{ip}");
                assert_eq!(source_address(ip).unwrap(), ip);
                assert!(bits <= if ip.is_ipv4() { 32 } else { 128 }, "{ip}/{bits}");
            }
        }
    }
}
