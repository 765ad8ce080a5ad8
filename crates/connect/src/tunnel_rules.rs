//! The addresses that a key's tunnels may reach from a daemon's host, and those that they may listen on there.
//!
//! Always true: without a rule nothing is allowed. A rule is judged by an address and a port, never by the name that
//! a client has asked for: whoever judges has looked the name up, and connects to the address that was judged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most rules of a line, each of its two options.
const RULES_MAX: usize = 256;
/// From: RFC 1035 section 2.3.4.
const NAME_MAX: usize = 253;

/// The rules of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TunnelRules {
    targets: Vec<TunnelRule>,
    listens: Vec<TunnelRule>,
}

/// Addresses and ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelRule {
    place: Place,
    first: u16,
    last: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Any,
    Loopback,
    Network(IpAddr, u8),
    /// The addresses that this host finds for a name when somebody asks.
    Name(String),
}

impl TunnelRule {
    /// Reads a target: `db:5432`, `10.1.0.0/16:443`, `[2001:db8::/32]:8000-8099`, `*:443`.
    pub(super) fn target(text: &str) -> Option<TunnelRule> {
        let (place, ports) = text.rsplit_once(':')?;
        TunnelRule::of(Place::parse(place)?, ports)
    }

    /// Reads a place to listen on: a port of the loopback interface (`8080`), or an address and a port (`10.0.0.5:8080`).
    pub(super) fn listen(text: &str) -> Option<TunnelRule> {
        match text.rsplit_once(':') {
            None => TunnelRule::of(Place::Loopback, text),
            Some((place, ports)) => match Place::parse(place)? {
                Place::Name(_) => None,
                place => TunnelRule::of(place, ports),
            },
        }
    }

    fn of(place: Place, ports: &str) -> Option<TunnelRule> {
        let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0);
        let (first, last) = match ports.split_once('-') {
            None if ports == "*" => (0, u16::MAX),
            None => (port(ports)?, port(ports)?),
            Some((first, last)) => (port(first)?, port(last)?),
        };
        (first <= last).then_some(TunnelRule { place, first, last })
    }

    fn has_port(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    fn has_address(&self, address: IpAddr) -> bool {
        match &self.place {
            Place::Any => true,
            Place::Loopback => address.is_loopback(),
            Place::Network(network, prefix) => is_within(address, *network, *prefix),
            Place::Name(_) => false,
        }
    }
}

impl Place {
    fn parse(text: &str) -> Option<Place> {
        if text == "*" {
            return Some(Place::Any);
        }
        let bare = match text.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?,
            // An address with colons stands in brackets, so that its port cannot be taken for a part of it.
            None if text.contains(':') => return None,
            None => text,
        };
        let (address, prefix) = match bare.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().ok()?)),
            None => (bare, None),
        };
        match address.parse::<IpAddr>() {
            Ok(address) => {
                let most = if address.is_ipv4() { 32 } else { 128 };
                let prefix = prefix.unwrap_or(most);
                (prefix <= most).then_some(Place::Network(address, prefix))
            }
            Err(_) if prefix.is_none() && is_name(address) => Some(Place::Name(plain_name(address))),
            Err(_) => None,
        }
    }
}

/// A name that is no misspelt address: its last label is not all digits (RFC 3696 section 2).
fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let last = text.rsplit('.').next().unwrap_or_default();
    !text.is_empty()
        && text.len() <= NAME_MAX
        && text.bytes().all(is_of_names)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

fn plain_name(text: &str) -> String {
    text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase()
}

fn is_within(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, false),
        IpAddr::V6(address) => (u128::from(address), true),
    };
    let ((one, is_v6), (other, other_is_v6)) = (bits(address), bits(network));
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    is_v6 == other_is_v6 && one & mask == other & mask
}

/// The address that a packet to this one goes to: IPv4 within IPv6 is IPv4, and the unspecified address is this host.
fn reached(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

impl TunnelRules {
    /// Returns whether the key has no tunnels.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.listens.is_empty()
    }

    pub(super) fn add_target(&mut self, rule: TunnelRule) -> bool {
        self.targets.push(rule);
        self.targets.len() <= RULES_MAX
    }

    pub(super) fn add_listen(&mut self, rule: TunnelRule) -> bool {
        self.listens.push(rule);
        self.listens.len() <= RULES_MAX
    }

    /// Returns whether any rule has this port of a target. If none has, no name need be looked up.
    pub fn has_port(&self, port: u16) -> bool {
        self.targets.iter().any(|rule| rule.has_port(port))
    }

    /// Returns whether a rule has this port of this very name, or of everything.
    pub fn names(&self, host: &str, port: u16) -> bool {
        let host = plain_name(host);
        self.targets.iter().filter(|rule| rule.has_port(port)).any(|rule| match &rule.place {
            Place::Name(name) => *name == host,
            Place::Any => true,
            Place::Loopback | Place::Network(..) => false,
        })
    }

    /// Those of the `found` addresses of `host` that may be connected to at `port`. `look_up` finds the addresses of
    /// the names that rules have.
    pub fn allowed(
        &self,
        host: &str,
        port: u16,
        found: Vec<IpAddr>,
        look_up: impl Fn(&str) -> Vec<IpAddr>,
    ) -> Vec<IpAddr> {
        let found: Vec<IpAddr> = found.into_iter().map(reached).collect();
        if self.names(host, port) {
            // The rule's name is the one that was just looked up, and a second look might find something else.
            return found;
        }
        let with_port = || self.targets.iter().filter(|rule| rule.has_port(port));
        let (mut allowed, others): (Vec<IpAddr>, Vec<IpAddr>) =
            found.into_iter().partition(|address| with_port().any(|rule| rule.has_address(*address)));
        if others.is_empty() {
            return allowed;
        }
        let names = with_port().filter_map(|rule| match &rule.place {
            Place::Name(name) => Some(name),
            _ => None,
        });
        let named: Vec<IpAddr> = names.flat_map(|name| look_up(name)).map(reached).collect();
        allowed.extend(others.into_iter().filter(|address| named.contains(address)));
        allowed
    }

    /// Returns whether this address and port may be listened on; port 0 lets the system choose one.
    pub fn may_listen(&self, address: IpAddr, port: u16) -> bool {
        // The unspecified address stands for all addresses of the host here.
        self.listens.iter().any(|rule| rule.has_port(port) && rule.has_address(address.to_canonical()))
    }

    /// Returns whether these rules have all that `before` has.
    pub(super) fn cover(&self, before: &TunnelRules) -> bool {
        before.targets.iter().all(|rule| self.targets.contains(rule))
            && before.listens.iter().all(|rule| self.listens.contains(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(targets: &[&str], listens: &[&str]) -> TunnelRules {
        let mut rules = TunnelRules::default();
        targets.iter().for_each(|text| assert!(rules.add_target(TunnelRule::target(text).expect(text))));
        listens.iter().for_each(|text| assert!(rules.add_listen(TunnelRule::listen(text).expect(text))));
        rules
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_target_is_judged_by_address_and_port() {
        let rules = rules(&["10.1.0.0/16:443", "[2001:db8::/32]:8000-8099", "192.0.2.7:22"], &[]);
        let allows = |address: &str, port| {
            rules.allowed("host", port, vec![ip(address)], |_| panic!("no rule has a name")).len() == 1
        };
        for (address, port, expected) in [
            ("10.1.255.3", 443, true),
            ("10.1.255.3", 444, false),
            ("10.2.0.0", 443, false),
            ("::ffff:10.1.2.3", 443, true),
            ("::ffff:10.2.2.3", 443, false),
            ("2001:db8::1", 8000, true),
            ("2001:db8::1", 8099, true),
            ("2001:db8::1", 8100, false),
            ("2001:db9::1", 8000, false),
            ("192.0.2.7", 22, true),
            ("192.0.2.8", 22, false),
            ("0.0.0.0", 443, false),
        ] {
            assert_eq!(allows(address, port), expected, "{address} {port}");
        }
        assert!(rules.has_port(8050) && !rules.has_port(25));
    }

    #[test]
    fn the_unspecified_address_is_this_host() {
        let loopback = rules(&["127.0.0.0/8:80", "[::1]:80"], &[]);
        let of = |address: &str| loopback.allowed("h", 80, vec![ip(address)], |_| Vec::new());
        assert_eq!((of("0.0.0.0"), of("::")), (vec![ip("127.0.0.1")], vec![ip("::1")]));
    }

    #[test]
    fn a_name_stands_for_its_addresses_at_that_moment() {
        let rules = rules(&["db.example:5432"], &[]);
        let look_up = |name: &str| {
            assert_eq!(name, "db.example");
            vec![ip("10.0.0.5")]
        };
        let of = |host: &str, address: &str, port| rules.allowed(host, port, vec![ip(address)], look_up);
        assert_eq!(of("other.example", "10.0.0.5", 5432), [ip("10.0.0.5")]);
        assert!(of("other.example", "10.0.0.6", 5432).is_empty());
        assert!(of("db.example", "10.0.0.5", 5433).is_empty());
        // The name was looked up once, for the client, and that look counts.
        assert_eq!(of("DB.Example.", "10.0.0.9", 5432), [ip("10.0.0.9")]);
    }

    #[test]
    fn of_several_addresses_only_the_allowed_ones_are_left() {
        let rules = rules(&["10.0.0.0/8:80"], &[]);
        let found = ["127.0.0.1", "10.9.9.9", "169.254.169.254"].map(ip).to_vec();
        assert_eq!(rules.allowed("rebinding", 80, found, |_| Vec::new()), [ip("10.9.9.9")]);
    }

    #[test]
    fn listening_is_for_loopback_unless_the_rule_says_more() {
        let loopback = rules(&[], &["8080", "9000-9009"]);
        assert!(loopback.may_listen(ip("127.0.0.1"), 8080) && loopback.may_listen(ip("::1"), 9009));
        assert!(!loopback.may_listen(ip("0.0.0.0"), 8080) && !loopback.may_listen(ip("10.0.0.1"), 8080));
        assert!(!loopback.may_listen(ip("127.0.0.1"), 0), "a port of the system's choice may be any");
        let more = rules(&[], &["10.0.0.1:80", "*:8443", "127.0.0.1:*"]);
        assert!(more.may_listen(ip("10.0.0.1"), 80) && !more.may_listen(ip("0.0.0.0"), 80));
        assert!(more.may_listen(ip("0.0.0.0"), 8443) && more.may_listen(ip("::"), 8443));
        assert!(more.may_listen(ip("127.0.0.1"), 0) && !more.may_listen(ip("::1"), 0));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "db",
            ":80",
            "db:",
            "db:0",
            "db:70000",
            "db:9-8",
            "10.0.0.0/33:80",
            "2001:db8::1:80",
            "[::1:80",
            "10.0.0.256:80",
            "1.2.3:80",
            "a b:80",
            "db/8:80",
            "[]:80",
        ] {
            assert_eq!(TunnelRule::target(text), None, "{text}");
        }
        for text in ["", "0", "name:80", "10.0.0.1", ":80"] {
            assert_eq!(TunnelRule::listen(text), None, "{text}");
        }
    }

    #[test]
    fn rules_cover_what_they_have() {
        let (more, less) = (rules(&["a:1", "b:2"], &["3"]), rules(&["b:2"], &["3"]));
        assert!(more.cover(&less) && more.cover(&more) && !less.cover(&more));
        assert!(less.cover(&TunnelRules::default()) && !rules(&["b:2"], &[]).cover(&less));
    }
}
