//! Finds the paths between two hosts from the addresses of both: interfaces that share a subnet.
//!
//! Always true: the first path is the one that the connection itself takes, so that looking for more loses
//! nothing. An interface or a subnet is in at most one path. The result only says where to try: a path
//! carries nothing before its packets have been answered.
#![deny(missing_docs)]

use std::net::IpAddr;

use farhaul_net::interfaces;
use farhaul_session::options::NetworkOptions;
use farhaul_session::options::{FLOWS_MAX, PathAddresses};
use farhaul_words::{Error, Misbehaviour};
use serde::{Deserialize, Serialize};

use super::flows::reserved_ids;
use super::hello::{GENERATIONS, Hello};

/// An interface of the client: its addresses, each with the number of bits that name the subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInterface(pub Vec<(IpAddr, u8)>);

/// The most interfaces that are looked at, and the most addresses of each.
const INTERFACES_MAX: usize = 64;
const ADDRESSES_MAX: usize = 16;

/// The interfaces of this host; empty if the system does not tell.
pub(super) fn own() -> Vec<ClientInterface> {
    let found = interfaces().unwrap_or_default();
    found.into_iter().take(INTERFACES_MAX).map(|interface| ClientInterface(interface.addresses)).collect()
}

/// The most paths that a client with these interfaces can have.
pub(super) fn most(options: &NetworkOptions, interfaces: &[ClientInterface]) -> usize {
    let most = FLOWS_MAX / usize::from(options.flows).max(1);
    most.saturating_sub(options.further_paths.into()).min(interfaces.len()).max(1)
}

/// At the far end: the paths to use, if there is more than one. `client` and `server` are the addresses of
/// the connection by which the client has come.
pub(super) fn paths(hello: &Hello, client: IpAddr, server: IpAddr) -> Vec<PathAddresses> {
    let options = &hello.opening.network;
    let ids = hello.flow_ids.len().saturating_sub(reserved_ids(options));
    let most = ids / GENERATIONS / usize::from(options.flows).max(1);
    let first = PathAddresses::new(client.to_canonical(), server.to_canonical());
    pairs(&hello.interfaces, &own(), first, most.min(FLOWS_MAX))
}

fn pairs(
    near: &[ClientInterface],
    far: &[ClientInterface],
    first: PathAddresses,
    most: usize,
) -> Vec<PathAddresses> {
    let with = |list: &[ClientInterface], ip: IpAddr| {
        list.iter().position(|interface| interface.0.iter().any(|&(own, _)| own == ip))
    };
    // Behind address translation or a jump host it is not known which interfaces are in use.
    let (Some(near_first), Some(far_first)) = (with(near, first.local), with(far, first.remote)) else {
        return Vec::new();
    };
    let addresses = |interface: &ClientInterface| interface.0.clone().into_iter().take(ADDRESSES_MAX);
    let mut subnets: Vec<(IpAddr, u8)> =
        [&near[near_first], &far[far_first]].into_iter().flat_map(addresses).filter_map(subnet).collect();
    let mut taken = vec![far_first];
    let mut found = vec![first];
    for (number, interface) in near.iter().enumerate().take(INTERFACES_MAX) {
        if number == near_first || found.len() >= most {
            continue;
        }
        let pair = addresses(interface).find_map(|local| {
            let subnet = subnet(local).filter(|subnet| !subnets.contains(subnet))?;
            let (number, remote) =
                opposite(far, local.0, subnet).filter(|(number, _)| !taken.contains(number))?;
            Some((number, subnet, PathAddresses::new(local.0, remote)))
        });
        if let Some((number, subnet, path)) = pair {
            taken.push(number);
            subnets.push(subnet);
            found.push(path);
        }
    }
    if found.len() > 1 { found } else { Vec::new() }
}

/// The interface of `far` with an address in the subnet of `local`. If both hosts have the same private
/// address (such as that of a bridge for virtual machines), it leads nowhere.
fn opposite(far: &[ClientInterface], local: IpAddr, wanted: (IpAddr, u8)) -> Option<(usize, IpAddr)> {
    let all = far.iter().enumerate().flat_map(|(number, interface)| {
        interface.0.iter().take(ADDRESSES_MAX).map(move |&address| (number, address))
    });
    let mut there = all.filter(|&(_, address)| subnet(address) == Some(wanted));
    there.find(|(_, (remote, _))| *remote != local).map(|(number, (remote, _))| (number, remote))
}

/// The subnet of an address, if other hosts can be in it.
fn subnet((ip, bits): (IpAddr, u8)) -> Option<(IpAddr, u8)> {
    let is_usable = match ip {
        IpAddr::V4(v4) => !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || !is_usable || bits == 0 {
        return None;
    }
    match ip {
        IpAddr::V4(v4) if bits < 32 => {
            let masked = v4.to_bits() & (u32::MAX << (32 - bits));
            Some((std::net::Ipv4Addr::from_bits(masked).into(), bits))
        }
        IpAddr::V6(v6) if bits < 128 => {
            let masked = v6.to_bits() & (u128::MAX << (128 - bits));
            Some((std::net::Ipv6Addr::from_bits(masked).into(), bits))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

/// At the client: takes the paths that the far end has found into the options, unless they are impossible.
pub(super) fn adopt(
    options: &mut NetworkOptions,
    hello: &Hello,
    paths: &[PathAddresses],
) -> Result<(), Error> {
    if !options.auto_paths {
        return match paths.is_empty() {
            true => Ok(()),
            false => Err(Error::from(Misbehaviour::UnaskedPaths)),
        };
    }
    let own = |ip: IpAddr| hello.interfaces.iter().flat_map(|interface| &interface.0).find(|own| own.0 == ip);
    let fits = |(number, path): (usize, &PathAddresses)| {
        let Some(&(_, bits)) = own(path.local) else { return false };
        let near = subnet((path.local, bits));
        number == 0 && subnet((path.remote, 1)).is_some()
            || near.is_some() && near == subnet((path.remote, bits))
    };
    if paths.len() > most(options, &hello.interfaces) || !paths.iter().enumerate().all(fits) {
        return Err(Error::from(Misbehaviour::ImpossiblePaths));
    }
    found(options, paths);
    options
        .clone()
        .checked()
        .map(drop)
        .map_err(|error| Error::misbehaved(Misbehaviour::ImpossiblePaths, error.to_string()))
}

/// From here on, paths that were found count as if the user had named them.
pub(super) fn found(options: &mut NetworkOptions, paths: &[PathAddresses]) {
    if std::mem::take(&mut options.auto_paths) {
        options.paths = paths.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<ClientInterface> {
        let address = |text: &str| {
            let (ip, bits) = text.split_once('/').unwrap();
            (ip.parse().unwrap(), bits.parse().unwrap())
        };
        text.split_whitespace().map(|one| ClientInterface(one.split(',').map(address).collect())).collect()
    }

    fn path(text: &str) -> PathAddresses {
        let (local, remote) = text.split_once('=').unwrap();
        PathAddresses::new(local.parse().unwrap(), remote.parse().unwrap())
    }

    #[test]
    fn interfaces_in_one_subnet_are_a_path_each_at_most_once() {
        let near = "192.0.2.5/24 10.1.0.5/24,fd01::5/64 10.2.0.5/24 172.17.0.1/16 127.0.0.1/8 169.254.3.4/16 fe80::1/64";
        for (near, far, expected) in [
            (
                near,
                "192.0.2.9/24 10.1.0.9/24,fd01::9/64 10.2.0.9/24 172.17.0.1/16 127.0.0.2/8 169.254.3.5/16 fe80::2/64",
                "10.1.0.5=10.1.0.9 10.2.0.5=10.2.0.9",
            ),
            (near, "192.0.2.9/24 fd01::9/64", "fd01::5=fd01::9"),
            (near, "192.0.2.9/24,10.1.0.9/24", ""),
            (near, "192.0.2.9/24 10.1.0.9/16", ""),
            (near, "192.0.2.9/24 10.1.0.9/24,10.2.0.9/24", "10.1.0.5=10.1.0.9"),
            // A second interface in the subnet that is in use leads the same way.
            ("192.0.2.5/24 192.0.2.6/24", "192.0.2.9/24 192.0.2.10/24", ""),
            // It is not known which interfaces are in use.
            ("10.1.0.5/24 10.2.0.5/24", "192.0.2.9/24 10.1.0.9/24", ""),
        ] {
            let first = path("192.0.2.5=192.0.2.9");
            let found = pairs(&list(near), &list(far), first, 4);
            let shown: Vec<_> = found.iter().map(|path| format!("{}={}", path.local, path.remote)).collect();
            let expected = match expected {
                "" => String::new(),
                more => format!("192.0.2.5=192.0.2.9 {more}"),
            };
            assert_eq!(shown.join(" "), expected, "{far}");
            assert!(pairs(&list(near), &list(far), first, 2).len() <= 2);
        }
    }

    #[test]
    fn paths_that_cannot_be_are_refused() {
        use super::super::{Features, test_opening};
        let options = NetworkOptions { auto_paths: true, ..NetworkOptions::default() };
        let mut hello = Hello::new(test_opening(options.clone()), Features::default(), Vec::new(), true);
        hello.interfaces = list("192.0.2.5/24 10.1.0.5/24");
        let judge = |text: &str, options: &NetworkOptions| {
            let paths: Vec<_> = text.split_whitespace().map(path).collect();
            Misbehaviour::of(&adopt(&mut options.clone(), &hello, &paths))
        };
        for good in ["", "192.0.2.5=198.51.100.7 10.1.0.5=10.1.0.9", "10.1.0.5=10.1.0.9"] {
            assert_eq!(judge(good, &options), None, "{good}");
        }
        for bad in [
            "192.0.2.5=192.0.2.9 10.1.0.5=10.3.0.9",
            "192.0.2.5=192.0.2.9 10.1.0.6=10.1.0.9",
            "192.0.2.5=127.0.0.1",
            "192.0.2.5=192.0.2.9 192.0.2.5=192.0.2.9",
            "192.0.2.5=192.0.2.9 10.1.0.5=10.1.0.9 10.1.0.5=10.1.0.8",
        ] {
            assert_eq!(judge(bad, &options), Some(Misbehaviour::ImpossiblePaths), "{bad}");
        }
        let unasked = judge("10.1.0.5=10.1.0.9", &NetworkOptions::default());
        assert_eq!(unasked, Some(Misbehaviour::UnaskedPaths));
    }
}
