//! Judges which addresses a webhook may go to: public ones, and networks that the configuration allows.
//!
//! A service that connects to whatever address a job's owner names would let outsiders into the service's own
//! network. So every address that is not plainly public is refused. An IPv6 address that contains an IPv4 one
//! (mapped, NAT64, 6to4) is refused as well, whatever it contains. All addresses of this host are refused, the
//! public ones, too: its services may trust whoever comes from the host itself. From: the IANA registries of
//! special-purpose addresses (RFC 6890 and its updates).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use farhaul::sisters::plain;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The use of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum AddressClass {
    /// A public address.
    Public,
    /// Not a real address: 0.0.0.0/8, `::`.
    Unspecified,
    /// This host only.
    Loopback,
    /// This link only.
    LinkLocal,
    /// A site's own network (RFC 1918, unique-local, site-local).
    Private,
    /// Between a provider and its customers (RFC 6598).
    #[strum(serialize = "carrier NAT")]
    CarrierNat,
    /// An IPv6 address that contains an IPv4 address: mapped, compatible, translated.
    #[strum(serialize = "embedded IPv4")]
    Embedded,
    /// An address of a translator or tunnel: NAT64, 6to4, Teredo.
    Translated,
    /// For examples in documents.
    Documentation,
    /// For measurements.
    Benchmark,
    /// For groups of hosts.
    Multicast,
    /// For all hosts of a link.
    Broadcast,
    /// Assigned to nobody, or to protocols.
    Reserved,
}

impl AddressClass {
    /// The name of the class in messages.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The first network in this list that contains an address decides its class.
const V4: &[([u8; 4], u8, AddressClass)] = &[
    ([0, 0, 0, 0], 8, AddressClass::Unspecified),
    ([10, 0, 0, 0], 8, AddressClass::Private),
    ([100, 64, 0, 0], 10, AddressClass::CarrierNat),
    ([127, 0, 0, 0], 8, AddressClass::Loopback),
    ([169, 254, 0, 0], 16, AddressClass::LinkLocal),
    ([172, 16, 0, 0], 12, AddressClass::Private),
    ([192, 0, 0, 0], 24, AddressClass::Reserved),
    ([192, 0, 2, 0], 24, AddressClass::Documentation),
    ([192, 31, 196, 0], 24, AddressClass::Reserved),
    ([192, 52, 193, 0], 24, AddressClass::Reserved),
    ([192, 88, 99, 0], 24, AddressClass::Translated),
    ([192, 168, 0, 0], 16, AddressClass::Private),
    ([192, 175, 48, 0], 24, AddressClass::Reserved),
    ([198, 18, 0, 0], 15, AddressClass::Benchmark),
    ([198, 51, 100, 0], 24, AddressClass::Documentation),
    ([203, 0, 113, 0], 24, AddressClass::Documentation),
    ([224, 0, 0, 0], 4, AddressClass::Multicast),
    ([255, 255, 255, 255], 32, AddressClass::Broadcast),
    ([240, 0, 0, 0], 4, AddressClass::Reserved),
    ([0, 0, 0, 0], 0, AddressClass::Public),
];

const V6: &[([u16; 8], u8, AddressClass)] = &[
    ([0; 8], 128, AddressClass::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, AddressClass::Loopback),
    // Compatible, mapped, and translated (SIIT).
    ([0; 8], 96, AddressClass::Embedded),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, AddressClass::Embedded),
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, AddressClass::Embedded),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, AddressClass::Translated),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, AddressClass::Translated),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, AddressClass::Translated),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, AddressClass::Benchmark),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, AddressClass::Reserved),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, AddressClass::Documentation),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, AddressClass::Translated),
    ([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, AddressClass::Reserved),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, AddressClass::Documentation),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, AddressClass::Private),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, AddressClass::LinkLocal),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, AddressClass::Private),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, AddressClass::Multicast),
    // All public addresses that have been assigned so far lie in here.
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, AddressClass::Public),
    ([0; 8], 0, AddressClass::Reserved),
];

/// The class of an address.
pub fn class(address: IpAddr) -> AddressClass {
    let found = match address {
        IpAddr::V4(address) => V4
            .iter()
            .find(|(network, len, _)| covers_v4(Ipv4Addr::from(*network), *len, address))
            .map(|row| row.2),
        IpAddr::V6(address) => V6
            .iter()
            .find(|(network, len, _)| covers_v6(Ipv6Addr::from(*network), *len, address))
            .map(|row| row.2),
    };
    found.unwrap_or(AddressClass::Reserved)
}

fn covers_v4(network: Ipv4Addr, len: u8, address: Ipv4Addr) -> bool {
    let rest = 32_u32.saturating_sub(len.into());
    (network.to_bits() ^ address.to_bits()).checked_shr(rest).unwrap_or(0) == 0
}

fn covers_v6(network: Ipv6Addr, len: u8, address: Ipv6Addr) -> bool {
    let rest = 128_u32.saturating_sub(len.into());
    (network.to_bits() ^ address.to_bits()).checked_shr(rest).unwrap_or(0) == 0
}

/// A network, such as `10.20.0.0/16` or `fd00:7::/32`. A single address is a network of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedNetwork {
    address: IpAddr,
    len: u8,
}

impl AllowedNetwork {
    /// True if the network contains an address. An IPv4 network does not contain the IPv4 address inside an
    /// IPv6 one.
    pub fn covers(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => covers_v4(network, self.len, address),
            (IpAddr::V6(network), IpAddr::V6(address)) => covers_v6(network, self.len, address),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// True if the network contains the address and means it, also if it is one of this host's: a single
    /// address, or a network of loopback addresses only. A larger network means the other hosts in it.
    fn names_hosts_of(&self, address: IpAddr) -> bool {
        let is_single = self.len == if self.address.is_ipv4() { 32 } else { 128 };
        let is_loopback =
            self.address.is_loopback() && (is_single || self.address.is_ipv4() && self.len >= 8);
        (is_single || is_loopback) && self.covers(address)
    }
}

impl FromStr for AllowedNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowedNetwork, String> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let wrong = || format!("'{text}' is not a network such as 10.20.0.0/16");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            Some(len) if len.bytes().all(|byte| byte.is_ascii_digit()) => len.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
            None => whole,
        };
        if len > whole {
            return Err(wrong());
        }
        let begins_so = match address {
            IpAddr::V4(address) => address.to_bits().checked_shl(len.into()).unwrap_or(0) == 0,
            IpAddr::V6(address) => address.to_bits().checked_shl(len.into()).unwrap_or(0) == 0,
        };
        match begins_so {
            true => Ok(AllowedNetwork { address, len }),
            false => Err(format!("'{text}' is an address in a network of {len} bits, not that network")),
        }
    }
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.len)
    }
}

impl Serialize for AllowedNetwork {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AllowedNetwork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AllowedNetwork, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The addresses that webhooks may go to beside public ones, and those that they may not go to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Networks that may be connected to although they are not public. They do not allow the addresses of this
    /// host that lie in them, unless they [name](AllowedNetwork) them.
    pub allow: Vec<AllowedNetwork>,
    /// Networks that may not be connected to, whatever else allows it: public addresses that a gateway forwards
    /// to this host, for example, which the kernel does not know.
    pub deny: Vec<AllowedNetwork>,
}

/// The reason for which a webhook does not go to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AddressRefusal {
    /// It may not go there.
    Forbidden(String),
    /// It cannot be found out now.
    Unknown(String),
}

/// Answers whether an address belongs to this host; [`farhaul::sisters::is_of_this_host`] but for tests.
pub(super) type OwnAddressCheck = fn(SocketAddr) -> io::Result<bool>;

impl AddressRules {
    /// Judges whether a webhook may connect to an address.
    pub(super) fn judge(
        &self,
        address: SocketAddr,
        is_of_this_host: OwnAddressCheck,
    ) -> Result<(), AddressRefusal> {
        let (ip, canonical) = (address.ip(), address.ip().to_canonical());
        let forbidden = |why: String| Err(AddressRefusal::Forbidden(why));
        if self.deny.iter().any(|network| network.covers(ip) || network.covers(canonical)) {
            return forbidden(format!("deny_networks has {ip}"));
        }
        if self.allow.iter().any(|network| network.names_hosts_of(ip)) {
            return Ok(());
        }
        let class = class(ip);
        let is_allowed = self.allow.iter().any(|network| network.covers(ip));
        if class != AddressClass::Public && !is_allowed {
            return forbidden(format!("{ip} is a {} address", class.name()));
        }
        match is_of_this_host(address) {
            Ok(false) => Ok(()),
            Ok(true) => forbidden(format!("{ip} is an address of this host itself")),
            Err(error) => Err(AddressRefusal::Unknown(format!(
                "cannot find out whether {ip} is an address of this host: {}",
                plain(&error)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and the last address of each network, and their neighbours if these have another class.
    const TABLE: &[(&str, AddressClass)] = &[
        ("0.0.0.0", AddressClass::Unspecified),
        ("0.255.255.255", AddressClass::Unspecified),
        ("1.1.1.1", AddressClass::Public),
        ("9.255.255.255", AddressClass::Public),
        ("10.0.0.0", AddressClass::Private),
        ("10.255.255.255", AddressClass::Private),
        ("11.0.0.0", AddressClass::Public),
        ("100.63.255.255", AddressClass::Public),
        ("100.64.0.0", AddressClass::CarrierNat),
        ("100.127.255.255", AddressClass::CarrierNat),
        ("100.128.0.0", AddressClass::Public),
        ("126.255.255.255", AddressClass::Public),
        ("127.0.0.1", AddressClass::Loopback),
        ("127.255.255.255", AddressClass::Loopback),
        ("128.0.0.0", AddressClass::Public),
        ("169.253.255.255", AddressClass::Public),
        ("169.254.169.254", AddressClass::LinkLocal),
        ("169.255.0.0", AddressClass::Public),
        ("172.15.255.255", AddressClass::Public),
        ("172.16.0.0", AddressClass::Private),
        ("172.31.255.255", AddressClass::Private),
        ("172.32.0.0", AddressClass::Public),
        ("192.0.0.8", AddressClass::Reserved),
        ("192.0.1.0", AddressClass::Public),
        ("192.0.2.1", AddressClass::Documentation),
        ("192.31.196.1", AddressClass::Reserved),
        ("192.52.193.1", AddressClass::Reserved),
        ("192.88.99.1", AddressClass::Translated),
        ("192.167.255.255", AddressClass::Public),
        ("192.168.0.0", AddressClass::Private),
        ("192.168.255.255", AddressClass::Private),
        ("192.169.0.0", AddressClass::Public),
        ("192.175.48.1", AddressClass::Reserved),
        ("198.17.255.255", AddressClass::Public),
        ("198.18.0.0", AddressClass::Benchmark),
        ("198.19.255.255", AddressClass::Benchmark),
        ("198.20.0.0", AddressClass::Public),
        ("198.51.100.7", AddressClass::Documentation),
        ("203.0.113.7", AddressClass::Documentation),
        ("223.255.255.255", AddressClass::Public),
        ("224.0.0.1", AddressClass::Multicast),
        ("239.255.255.255", AddressClass::Multicast),
        ("240.0.0.0", AddressClass::Reserved),
        ("255.255.255.254", AddressClass::Reserved),
        ("255.255.255.255", AddressClass::Broadcast),
        ("::", AddressClass::Unspecified),
        ("::1", AddressClass::Loopback),
        ("::2", AddressClass::Embedded),
        ("::7f00:1", AddressClass::Embedded),
        ("::8.8.8.8", AddressClass::Embedded),
        ("::ffff:127.0.0.1", AddressClass::Embedded),
        ("::ffff:8.8.8.8", AddressClass::Embedded),
        ("::ffff:0:8.8.8.8", AddressClass::Embedded),
        ("64:ff9b::7f00:1", AddressClass::Translated),
        ("64:ff9b::8.8.8.8", AddressClass::Translated),
        ("64:ff9b:1::1", AddressClass::Translated),
        ("64:ff9b:2::1", AddressClass::Reserved),
        ("100::1", AddressClass::Reserved),
        ("1fff::1", AddressClass::Reserved),
        ("2000::1", AddressClass::Public),
        ("2001::1", AddressClass::Translated),
        ("2001:2::1", AddressClass::Benchmark),
        ("2001:10::1", AddressClass::Reserved),
        ("2001:1ff:ffff::", AddressClass::Reserved),
        ("2001:200::1", AddressClass::Public),
        ("2001:4860:4860::8888", AddressClass::Public),
        ("2001:db7:ffff::1", AddressClass::Public),
        ("2001:db8::1", AddressClass::Documentation),
        ("2001:db9::1", AddressClass::Public),
        ("2002:7f00:1::", AddressClass::Translated),
        ("2003::1", AddressClass::Public),
        ("2620:4f:8000::1", AddressClass::Reserved),
        ("3ffe::1", AddressClass::Public),
        ("3fff::1", AddressClass::Documentation),
        ("3fff:fff::1", AddressClass::Documentation),
        ("3fff:1000::1", AddressClass::Public),
        ("4000::1", AddressClass::Reserved),
        ("5f00::1", AddressClass::Reserved),
        ("fbff::1", AddressClass::Reserved),
        ("fc00::1", AddressClass::Private),
        ("fdff::1", AddressClass::Private),
        ("fe7f::1", AddressClass::Reserved),
        ("fe80::1", AddressClass::LinkLocal),
        ("febf::1", AddressClass::LinkLocal),
        ("fec0::1", AddressClass::Private),
        ("ff02::1", AddressClass::Multicast),
        ("ffff::1", AddressClass::Multicast),
    ];

    #[test]
    fn each_address_has_its_class() {
        for (text, expected) in TABLE {
            assert_eq!(class(text.parse().unwrap()), *expected, "{text}");
        }
    }

    fn is_nobody(_: SocketAddr) -> io::Result<bool> {
        Ok(false)
    }

    fn networks(texts: &[&str]) -> Vec<AllowedNetwork> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn allowing(texts: &[&str]) -> AddressRules {
        AddressRules { allow: networks(texts), deny: Vec::new() }
    }

    #[test]
    fn only_public_addresses_pass_unless_they_are_allowed() {
        for (text, class) in TABLE {
            let address = SocketAddr::new(text.parse().unwrap(), 443);
            let judged = AddressRules::default().judge(address, is_nobody);
            assert_eq!(judged.is_ok(), *class == AddressClass::Public, "{text}: {judged:?}");
            assert_eq!(allowing(&[text]).judge(address, is_nobody), Ok(()), "{text}");
        }
        let allowed = allowing(&["10.0.0.0/8", "127.0.0.1"]);
        for (text, passes) in [
            ("10.1.2.3", true),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("192.168.0.1", false),
            ("::ffff:10.1.2.3", false),
            ("::10.1.2.3", false),
            ("64:ff9b::10.1.2.3", false),
        ] {
            let judged = allowed.judge(SocketAddr::new(text.parse().unwrap(), 80), is_nobody);
            assert_eq!(judged.is_ok(), passes, "{text}");
        }
    }

    #[test]
    fn addresses_of_this_host_are_refused_at_every_port_unless_they_are_named() {
        fn is_own(address: SocketAddr) -> io::Result<bool> {
            let own = ["8.8.4.4", "10.0.0.5", "127.0.0.1", "2a00::7", "fe80::7", "::1"];
            let ip = address.ip().to_canonical();
            Ok(own.iter().any(|text| text.parse() == Ok(ip)))
        }
        let judge = |rules: &AddressRules, text: &str| rules.judge(text.parse().unwrap(), is_own).is_ok();
        let strict = AddressRules::default();
        for own in ["8.8.4.4:443", "8.8.4.4:4443", "[2a00::7]:443", "[::ffff:8.8.4.4]:443", "127.0.0.1:80"] {
            assert!(!judge(&strict, own), "{own}");
        }
        assert!(judge(&strict, "8.8.4.5:443") && judge(&strict, "[2a00::8]:443"));
        // A network means the other hosts in it, however large it is.
        let wide = allowing(&["0.0.0.0/0", "::/0", "10.0.0.0/24", "fe80::/10", "::ffff:0:0/96"]);
        for own in [
            "8.8.4.4:1",
            "10.0.0.5:1",
            "127.0.0.1:1",
            "[2a00::7]:1",
            "[fe80::7%2]:1",
            "[::1]:1",
            "[::ffff:10.0.0.5]:1",
        ] {
            assert!(!judge(&wide, own), "{own}");
        }
        for other in ["8.8.4.5:1", "10.0.0.6:1", "[fe80::8%2]:1", "[::ffff:10.0.0.6]:1"] {
            assert!(judge(&wide, other), "{other}");
        }
        for (name, address) in [
            ("8.8.4.4", "8.8.4.4:1"),
            ("10.0.0.5/32", "10.0.0.5:1"),
            ("127.0.0.0/8", "127.0.0.1:1"),
            ("::1", "[::1]:1"),
            ("fe80::7", "[fe80::7%2]:1"),
        ] {
            assert!(judge(&allowing(&[name]), address), "{name}");
        }
        // What is denied is refused, however it is written and whatever allows it.
        let denying =
            AddressRules { deny: networks(&["9.9.9.0/24"]), ..allowing(&["::ffff:0:0/96", "9.9.9.9"]) };
        assert!(!judge(&denying, "9.9.9.9:443") && !judge(&denying, "[::ffff:9.9.9.9]:443"));
        assert!(judge(&denying, "9.9.8.9:443"));
    }

    #[test]
    fn an_address_that_cannot_be_judged_now_is_not_given_up() {
        let judged = AddressRules::default()
            .judge("8.8.4.4:443".parse().unwrap(), |_| Err(io::Error::from_raw_os_error(24)));
        let Err(AddressRefusal::Unknown(why)) = judged else { panic!("{judged:?}") };
        assert!(why.contains("8.8.4.4"), "{why}");
    }

    #[test]
    fn networks_are_read_and_written() {
        for good in ["10.20.0.0/16", "0.0.0.0/0", "::/0", "fd00:7::/32", "127.0.0.1/32", "::1/128"] {
            assert_eq!(good.parse::<AllowedNetwork>().unwrap().to_string(), good);
        }
        assert_eq!("127.0.0.1".parse::<AllowedNetwork>().unwrap().to_string(), "127.0.0.1/32");
        for bad in ["", "10.0.0.0/33", "10.0.0.1/8", "::1/64", "10.0.0.0/", "10.0.0.0/+8", "host/8", "::/129"]
        {
            assert!(bad.parse::<AllowedNetwork>().is_err(), "{bad}");
        }
    }
}
