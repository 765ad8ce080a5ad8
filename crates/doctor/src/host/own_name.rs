//! Whether this host's address and its name in the DNS belong together.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

/// Servers of names that do not answer must not hold up everything.
const PATIENCE: Duration = Duration::from_millis(700);
/// Addresses of documentation: a socket that is connected there sends nothing, and has the address of the way out.
const AWAY: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// Returns `reverse match`, `reverse differs`, `reverse none`, `reverse private` or `reverse unknown`.
pub(super) fn reverse() -> String {
    let addresses: Vec<IpAddr> = AWAY.iter().filter_map(|away| own_address(away)).collect();
    let public: Vec<IpAddr> = addresses.into_iter().filter(|address| is_public(*address)).collect();
    let Some(address) = public.first().copied() else { return "reverse private\n".into() };
    let (said, hears) = mpsc::channel();
    // A look-up cannot be ended; the thread ends when it does.
    let looks = std::thread::Builder::new().name("own-name".into()).spawn(move || {
        let _ = said.send(compare(address));
    });
    let outcome = looks.ok().and_then(|_| hears.recv_timeout(PATIENCE).ok()).unwrap_or("unknown");
    format!("reverse {outcome}\n")
}

fn own_address(away: &str) -> Option<IpAddr> {
    let away: SocketAddr = away.parse().ok()?;
    let socket = UdpSocket::bind((if away.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).ok()?;
    socket.connect(away).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => {
            let shared = four.octets()[0] == 100 && four.octets()[1] & 0xc0 == 64;
            !(four.is_private()
                || four.is_loopback()
                || four.is_link_local()
                || four.is_unspecified()
                || shared)
        }
        IpAddr::V6(six) => six.segments()[0] & 0xe000 == 0x2000,
    }
}

fn compare(address: IpAddr) -> &'static str {
    let Some(name) = crate::sys::name_of(address) else { return "none" };
    let forward = (name.as_str(), 0).to_socket_addrs().map(|mut all| all.any(|one| one.ip() == address));
    if forward.unwrap_or(false) { "match" } else { "differs" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_looked_up() {
        for private in
            ["10.1.2.3", "192.168.0.1", "172.20.0.1", "100.64.1.1", "127.0.0.1", "fd00::1", "fe80::1", "::1"]
        {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["198.51.100.7", "100.128.0.1", "2001:db8::7"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }
}
