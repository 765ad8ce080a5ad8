//! Values that name others: hosts, networks, keys and destinations, and names of this host itself.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use farhaul::options::CpuList;

use super::{TextValue, written};

/// The name of a host, or `host:port`, in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(String);

/// A network, `10.0.0.0/8` or `fd00::/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkValue {
    address: IpAddr,
    bits: u8,
}

/// An address to listen on, with its port. A link-local one may name its interface: `[fe80::1%eth0]:33001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenAddress(pub SocketAddr);

/// The fingerprint of a server's key, `SHA256:...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(String);

/// A name, without a port, by which requests may call this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiHostName(String);

/// Where a watch sends its files: `fh://host/path`, `host:path`, or a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationUrl(String);

/// A list of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(pub CpuList);

written!(ListenAddress, HostPattern, NetworkValue, Fingerprint, ApiHostName, DestinationUrl, Cpus);

/// The longest name of a host; names in the DNS are not longer.
const HOST_LEN_MAX: usize = 253;

impl HostPattern {
    /// The pattern, if the text is one.
    pub fn of(text: &str) -> Option<HostPattern> {
        HostPattern::read(text)
    }

    /// True if it fits a host at a port. A pattern without a port fits all ports.
    pub fn fits(&self, host: &str, port: Option<u16>) -> bool {
        let with_port = |port: u16| match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        self.matches(host) || port.is_some_and(|port| self.matches(&with_port(port)))
    }

    /// True if it fits `host`, or `host:port`. Upper and lower case make no difference.
    pub fn matches(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| host.strip_prefix(first)) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        // Taking the leftmost match for each part leaves the most text for the parts after it.
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

impl TextValue for HostPattern {
    const EXPECTED: &'static str = "a host such as \"dtn2.example.org\", \"*.hpc:33001\" or \"*\"";

    fn read(text: &str) -> Option<HostPattern> {
        let fits = |character: char| character.is_ascii_alphanumeric() || "-._*:[]".contains(character);
        let is_pattern = !text.is_empty() && text.len() <= HOST_LEN_MAX + 6 && text.chars().all(fits);
        is_pattern.then(|| HostPattern(text.to_ascii_lowercase()))
    }
}

impl NetworkValue {
    /// True if the network contains an address. An IPv4 address that is written as an IPv6 one counts as
    /// IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let first = |bits: u32, width: u32, value: u128| match bits {
            0 => 0,
            bits => value >> (width - bits.min(width)),
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let of = |address: std::net::Ipv4Addr| first(self.bits.into(), 32, address.to_bits().into());
                of(own) == of(other)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let of = |address: std::net::Ipv6Addr| first(self.bits.into(), 128, address.to_bits());
                of(own) == of(other)
            }
            _ => false,
        }
    }

    /// The address, and how many of its first bits count.
    pub fn parts(&self) -> (IpAddr, u8) {
        (self.address, self.bits)
    }
}

impl TextValue for NetworkValue {
    const EXPECTED: &'static str = "a network such as \"10.0.0.0/8\" or \"fd00::/8\", or an address";

    fn read(text: &str) -> Option<NetworkValue> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let is_number = |bits: &&str| !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => width,
            Some(bits) => Some(bits).filter(is_number)?.parse().ok().filter(|&bits: &u8| bits <= width)?,
        };
        Some(NetworkValue { address, bits })
    }
}

impl Display for NetworkValue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl TextValue for ListenAddress {
    const EXPECTED: &'static str = "an address and a port such as \"[::]:33001\" or \"127.0.0.1:8080\"";

    fn read(text: &str) -> Option<ListenAddress> {
        let on_interface = || {
            let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
            host.split_once('%')?.0.parse::<Ipv6Addr>().ok()?;
            (host, port.parse::<u16>().ok()?).to_socket_addrs().ok()?.next()
        };
        text.parse().ok().or_else(on_interface).map(ListenAddress)
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        ListenAddress::read(text).ok_or_else(|| format!("'{text}' is not {}", ListenAddress::EXPECTED))
    }
}

impl Display for ListenAddress {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The number of characters of 32 bytes in base64 without padding.
const DIGEST_CHARACTERS: usize = 43;

impl TextValue for Fingerprint {
    const EXPECTED: &'static str = "the fingerprint of a key, \"SHA256:\" and 43 characters";

    fn read(text: &str) -> Option<Fingerprint> {
        let digest = text.strip_prefix("SHA256:")?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
        let is_digest = digest.len() == DIGEST_CHARACTERS && digest.bytes().all(fits);
        is_digest.then(|| Fingerprint(text.to_string()))
    }
}

impl TextValue for ApiHostName {
    const EXPECTED: &'static str = "the name of a host, without scheme, port or path";

    fn read(text: &str) -> Option<ApiHostName> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        let is_name = !text.is_empty() && text.len() <= HOST_LEN_MAX && text.bytes().all(fits);
        let is_address = text.parse::<IpAddr>().is_ok();
        (is_name || is_address).then(|| ApiHostName(text.to_ascii_lowercase()))
    }
}

/// The longest destination: longer than a path and a host together can be.
const URL_LEN_MAX: usize = 8192;

impl TextValue for DestinationUrl {
    const EXPECTED: &'static str = "a destination such as \"fh://host/path\", \"host:path\" or \"/path\"";

    fn read(text: &str) -> Option<DestinationUrl> {
        let is_plain = text.len() <= URL_LEN_MAX && !text.contains(char::is_control);
        let names_place = text.starts_with('/')
            || text.strip_prefix("fh://").is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
            || text.split_once(':').is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'));
        (is_plain && names_place && text != "fh://").then(|| DestinationUrl(text.to_string()))
    }
}

impl TextValue for Cpus {
    const EXPECTED: &'static str = "a list of cores such as \"0-3,8\"";

    fn read(text: &str) -> Option<Cpus> {
        text.parse().ok().map(Cpus)
    }
}

impl Display for Cpus {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

macro_rules! texts {
    ($($type:ident),*) => {
        $(
            impl $type {
                /// The text as it was written.
                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl Display for $type {
                fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
                    formatter.write_str(&self.0)
                }
            }
        )*
    };
}
texts!(HostPattern, Fingerprint, ApiHostName, DestinationUrl);

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn an_address_to_listen_on_may_name_its_interface() {
        for text in ["127.0.0.1:33001", "[::]:33001", "[fe80::1%1]:5"] {
            assert_eq!(ListenAddress::read(text).unwrap().to_string(), text);
        }
        // Every host has a loopback interface, and it is the first.
        assert_eq!(ListenAddress::read("[fe80::1%lo]:5").unwrap().to_string(), "[fe80::1%1]:5");
        for text in [
            "127.0.0.1",
            "::1",
            ":5",
            "localhost:5",
            "[localhost%lo]:5",
            "[fe80::1%lo]",
            "[fe80::1%none such]:5",
        ] {
            assert!(ListenAddress::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn hosts_match_their_patterns() {
        for (pattern, host, matches) in [
            ("dtn2", "dtn2", true),
            ("dtn2", "dtn22", false),
            ("DTN2", "dtn2", true),
            ("*", "", true),
            ("*", "x:1", true),
            ("*.hpc:33001", "a.b.hpc:33001", true),
            ("*.hpc:33001", "a.hpc:33002", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("**", "x", true),
            ("a*", "ba", false),
        ] {
            assert_eq!(HostPattern::read(pattern).unwrap().matches(host), matches, "{pattern} {host}");
        }
        check::<HostPattern>(&[("", None), ("a b", None), ("a/b", None), ("[::1]:5", Some("[::1]:5"))]);
    }

    #[test]
    fn a_pattern_without_a_port_stands_for_any() {
        for (pattern, host, port, fits) in [
            ("dtn2", "dtn2", None, true),
            ("dtn2", "dtn2", Some(5), true),
            ("dtn2:5", "dtn2", Some(5), true),
            ("dtn2:5", "dtn2", Some(6), false),
            ("dtn2:5", "dtn2", None, false),
            ("*:5", "dtn2", Some(5), true),
            ("[::1]:5", "::1", Some(5), true),
            ("[::1]:5", "[::1]", Some(5), true),
            ("::1", "::1", Some(5), true),
        ] {
            assert_eq!(
                HostPattern::read(pattern).unwrap().fits(host, port),
                fits,
                "{pattern} {host} {port:?}"
            );
        }
    }

    #[test]
    fn networks_contain_their_addresses() {
        for (network, address, contains) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("0.0.0.0/0", "255.1.1.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "fd00::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe12::1", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            let network = NetworkValue::read(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), contains, "{network} {address}");
        }
        check::<NetworkValue>(&[
            ("10.0.0.0/33", None),
            ("::/129", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/+8", None),
            ("x", None),
            ("10.1.2.3", Some("10.1.2.3/32")),
        ]);
    }

    #[test]
    fn names_of_others() {
        let digest = "SHA256:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ";
        check::<Fingerprint>(&[(digest, Some(digest)), ("SHA256:x", None), ("MD5:x", None)]);
        check::<ApiHostName>(&[
            ("Dtn.Example", Some("dtn.example")),
            ("::1", Some("::1")),
            ("a:80", None),
            ("http://a", None),
            ("", None),
        ]);
        check::<DestinationUrl>(&[
            ("fh://hpc/in", Some("fh://hpc/in")),
            ("hpc:/in", Some("hpc:/in")),
            ("/in", Some("/in")),
            ("in", None),
            ("fh://", None),
            ("", None),
            (":x", None),
        ]);
        check::<Cpus>(&[("0-3,8", Some("0-3,8")), ("x", None), ("", None)]);
    }
}
