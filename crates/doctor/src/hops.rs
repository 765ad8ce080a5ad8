//! Finds out whether routers on the way to an address choose among several ways by ports (ECMP).
//!
//! Datagrams with small limits of hops are sent from several ports, and the routers at which they end say so by ICMP. If
//! at one distance the routers differ by port, and stay the same for each port, there are several ways.
//!
//! Always true: no more than `HOPS_MAX` times twice `PORTS` small datagrams are sent, and it ends within its time. Addresses of
//! routers are compared and never told.
//! From: Augustin and others, "Avoiding traceroute anomalies with Paris traceroute": the ports of a flow stay the same.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_ip_ttl, set_ipv6_unicast_hops};

use crate::sys;

const PORTS: usize = 8;
const HOPS_MAX: u8 = 16;
/// A port at which nobody listens, as traceroute uses it.
const PORT: u16 = 33_434;
/// Routers answer within a round trip and some time of their own.
const ANSWER_TIME: Duration = Duration::from_millis(80);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// So many silent routers one after the other hide what is behind them.
const SILENT_MAX: usize = 3;

/// Several ways to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeveralWays {
    /// The number of routers up to where they differ.
    pub hop: u8,
    /// How many were seen there.
    pub ways: usize,
}

/// Looks for several ways to an address, for some time at most.
pub fn several_ways(to: IpAddr, round_trip: Duration, time: Duration) -> Option<SeveralWays> {
    let (to, until) = (to.to_canonical(), Instant::now() + time);
    let sockets: Vec<UdpSocket> = (0..PORTS).map_while(|_| socket(to.to_canonical())).collect();
    if sockets.len() < PORTS {
        return None;
    }
    let patience = round_trip + ANSWER_TIME;
    let mut silent = 0;
    for hop in 1..=HOPS_MAX {
        if Instant::now() + 2 * patience > until || silent == SILENT_MAX {
            return None;
        }
        let first = ask(&sockets, to, hop, patience);
        if first.contains(&Some(to)) {
            return None;
        }
        silent = if first.iter().all(Option::is_none) { silent + 1 } else { 0 };
        if distinct(&first) > 1
            && let ways @ 2.. = stable(&first, &ask(&sockets, to, hop, patience))
        {
            return Some(SeveralWays { hop, ways });
        }
    }
    None
}

fn socket(to: IpAddr) -> Option<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, PORT)).ok()?;
    sys::keep_errors(&socket, to.is_ipv6()).ok()?;
    Some(socket)
}

/// Sends a datagram from each port that ends after so many hops, and returns who has said so.
fn ask(sockets: &[UdpSocket], to: IpAddr, hop: u8, patience: Duration) -> Vec<Option<IpAddr>> {
    for socket in sockets {
        while sys::next_error(socket).is_some() {}
        let limited = match to {
            IpAddr::V4(_) => set_ip_ttl(socket, u32::from(hop)),
            IpAddr::V6(_) => set_ipv6_unicast_hops(socket, Some(hop)),
        };
        // An error that came for an earlier datagram is told here once.
        if limited.is_ok() && socket.send(&[hop]).is_err() {
            let _ = socket.send(&[hop]);
        }
    }
    let mut answers = vec![None; sockets.len()];
    let until = Instant::now() + patience;
    while Instant::now() < until && answers.iter().any(Option::is_none) {
        for (socket, answer) in sockets.iter().zip(&mut answers) {
            if let Some((sent, control)) = sys::next_error(socket)
                && sent.is_none_or(|sent| sent == hop)
            {
                *answer = answer.or(offender(&control));
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    answers
}

/// Who has sent an error, from the control messages that the kernel hands over with it.
fn offender(mut control: &[u8]) -> Option<IpAddr> {
    const HEADER: usize = 16;
    const EXTENDED_ERROR: usize = 16;
    const ORIGIN_AT: usize = 4;
    // SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6 of linux/errqueue.h.
    const ORIGINS: [u8; 2] = [2, 3];
    while let Some(length) =
        control.get(..8).and_then(|length| Some(u64::from_ne_bytes(length.try_into().ok()?)))
    {
        let length = usize::try_from(length).ok()?;
        let kind = i32::from_ne_bytes(control.get(12..16)?.try_into().ok()?);
        let content = control.get(HEADER..length)?;
        if [libc::IP_RECVERR, libc::IPV6_RECVERR].contains(&kind) {
            let is_of_icmp = ORIGINS.contains(content.get(ORIGIN_AT)?);
            return content.get(EXTENDED_ERROR..).filter(|_| is_of_icmp).and_then(address);
        }
        control = control.get(length.next_multiple_of(8)..)?;
    }
    None
}

/// The address in a sockaddr_in or sockaddr_in6.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    match family {
        libc::AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?)),
        libc::AF_INET6 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?)),
        _ => None,
    }
}

fn distinct(answers: &[Option<IpAddr>]) -> usize {
    answers.iter().flatten().collect::<BTreeSet<_>>().len()
}

/// How many routers there are, if each port has met the same one twice; else 0.
fn stable(first: &[Option<IpAddr>], second: &[Option<IpAddr>]) -> usize {
    let both: Vec<(IpAddr, IpAddr)> =
        first.iter().zip(second).filter_map(|(one, other)| Some(((*one)?, (*other)?))).collect();
    let is_same = both.iter().all(|(one, other)| one == other);
    let routers: BTreeSet<IpAddr> = both.iter().map(|(one, _)| *one).collect();
    if is_same { routers.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(last: &[u8]) -> Vec<Option<IpAddr>> {
        last.iter().map(|&last| (last > 0).then(|| IpAddr::from([192, 0, 2, last]))).collect()
    }

    #[test]
    fn routers_that_differ_by_port_and_not_by_packet_are_several_ways() {
        assert_eq!(stable(&answers(&[1, 2, 1, 0]), &answers(&[1, 2, 1, 2])), 2);
        assert_eq!(stable(&answers(&[1, 2, 1]), &answers(&[2, 1, 1])), 0, "each packet another way");
        assert_eq!(stable(&answers(&[1, 1]), &answers(&[1, 1])), 1);
        assert_eq!(distinct(&answers(&[0, 3, 3])), 1);
    }

    #[test]
    fn the_sender_of_an_error_is_read_from_the_control_message() {
        let mut error = vec![0u8; 16];
        error[4] = 2;
        let address = [2, 0, 0, 0, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut control = 48u64.to_ne_bytes().to_vec();
        control.extend(libc::IPPROTO_IP.to_ne_bytes());
        control.extend(libc::IP_RECVERR.to_ne_bytes());
        control.extend(error);
        control.extend(address);
        assert_eq!(offender(&control), Some(IpAddr::from([192, 0, 2, 7])));
        for end in 0..control.len() {
            assert_eq!(offender(&control[..end]), None);
        }
        control[20] = 1;
        assert_eq!(offender(&control), None, "an error of this host");
    }

    #[test]
    fn the_loopback_has_one_way() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(several_ways(loopback, Duration::ZERO, Duration::from_secs(5)), None);
    }
}
