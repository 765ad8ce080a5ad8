//! What a cap is: a rate, who it is for, and where in the tree it stands.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use farhaul_session::{Code, Error};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RATE_MIN_BPS;
use super::schedule::Window;

/// The cap above all others, which every session is in.
pub(crate) const HOST: &str = "host";
/// Caps of one node, and how deep they may stand in one another.
const CAPS_MAX: usize = 1000;
const DEPTH_MAX: usize = 8;
const NAME_MAX: usize = 63;
const LISTS_MAX: usize = 256;

/// A cap: what may be moved together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cap {
    /// Bits of IP packets a second, both ways, outside of the schedule's windows; none for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The cap that it stands in. `host` by default, which stands in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Other hosts whose transfers are in it: `hpc`, `hpc:4000`, `*.example.org`.
    pub peers: Vec<String>,
    /// Networks whose hosts' transfers are in it: `10.0.0.0/8`, `2001:db8::/32`.
    #[schema(value_type = Vec<String>)]
    pub networks: Vec<Network>,
    /// Who wanted them: `local`, `token:ID`, a client's key (`SHA256:...`).
    pub principals: Vec<String>,
    /// Its share of what stands above it, beside others. 1 by default.
    pub weight: f64,
    /// Other rates at certain times, such as `mon-fri 09:00-18:00 2G`. Of those that overlap the last one counts.
    #[schema(value_type = Vec<String>)]
    pub schedule: Vec<Window>,
    /// Where the schedule's times hold. The host's zone by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

impl Default for Cap {
    fn default() -> Cap {
        Cap {
            rate_bps: None,
            parent: None,
            peers: Vec::new(),
            networks: Vec::new(),
            principals: Vec::new(),
            weight: 1.0,
            schedule: Vec::new(),
            time_zone: None,
        }
    }
}

/// An address and the bits of it that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// How many bits of `address` fit; none if it is none of it.
    fn holds(&self, address: IpAddr) -> Option<u8> {
        let is_inside = match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(self.bits.into());
                u64::from(u32::from(network)) >> shift == u64::from(u32::from(address)) >> shift
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(self.bits.into());
                let top = |address: u128| address.checked_shr(shift).unwrap_or(0);
                top(network.into()) == top(address.into())
            }
            _ => false,
        };
        is_inside.then_some(self.bits)
    }
}

/// The text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no network; write 10.0.0.0/8 or 2001:db8::/32")]
pub struct NoNetwork(String);

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Network, NoNetwork> {
        let bad = || NoNetwork(farhaul_text::printable(text.as_bytes(), 60));
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(bad()) } else { Ok(Network { address, bits }) }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Serialize for Network {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Network, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whose transfer a session is, as far as caps are concerned.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subject {
    /// `local`, `token:ID`, or the fingerprint of a client's key.
    pub(crate) principal: String,
    /// The names by which the other host is called, with its port and without.
    pub(crate) peers: Vec<String>,
    /// Where it is, if that is known.
    pub(crate) address: Option<IpAddr>,
}

/// How closely a cap is about somebody; a higher one counts before a lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Network(u8),
    /// By the end of its name, and the length of that.
    PeerEnd(usize),
    Peer,
    Principal,
}

impl Cap {
    /// The one place that judges a cap by itself.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let bad = |what: String| Err(Error::new(Code::BadOption, format!("the cap {name}: {what}")));
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_of_name) {
            let name = farhaul_text::printable(name.as_bytes(), 80);
            let what = format!("the cap '{name}': a name has 1 to {NAME_MAX} letters, digits, - _ or .");
            return Err(Error::new(Code::BadOption, what));
        }
        if self.rate_bps.is_some_and(|rate| rate < RATE_MIN_BPS) {
            return bad("its rate is at least 8k (bits per second)".into());
        }
        if !(self.weight.is_finite() && (0.01..=100.0).contains(&self.weight)) {
            return bad("its weight is between 0.01 and 100".into());
        }
        let has_subjects = !(self.peers.is_empty() && self.networks.is_empty() && self.principals.is_empty());
        if name == HOST && (self.parent.is_some() || has_subjects) {
            return bad("it is about everything, and stands in no other".into());
        }
        if [self.peers.len(), self.networks.len(), self.principals.len(), self.schedule.len()]
            .into_iter()
            .any(|len| len > LISTS_MAX)
        {
            return bad(format!("each of its lists has at most {LISTS_MAX} entries"));
        }
        crate::scheduler::calendar::zone(self.time_zone.as_deref()).map(|_| ())
    }

    fn fits(&self, subject: &Subject) -> Option<Fit> {
        let principal = self.principals.contains(&subject.principal).then_some(Fit::Principal);
        let peer = self.peers.iter().filter_map(|peer| match peer.strip_prefix('*') {
            None => subject.peers.contains(peer).then_some(Fit::Peer),
            Some(end) => {
                subject.peers.iter().any(|name| name.ends_with(end)).then_some(Fit::PeerEnd(end.len()))
            }
        });
        let address = subject.address;
        let network = self.networks.iter().filter_map(|network| network.holds(address?)).map(Fit::Network);
        principal.into_iter().chain(peer).chain(network).max()
    }
}

/// All caps of a node, by their names.
pub(crate) type Caps = BTreeMap<String, Cap>;

/// The name of the cap that one stands in; none for the host's.
pub(crate) fn parent_of<'a>(caps: &'a Caps, name: &str) -> Option<&'a str> {
    let cap = caps.get(name).filter(|_| name != HOST)?;
    Some(cap.parent.as_deref().unwrap_or(HOST))
}

/// The one place that judges caps together: every one stands in another that there is, and at last in the host's.
pub(crate) fn check(caps: &Caps) -> Result<(), Error> {
    if caps.len() > CAPS_MAX {
        return Err(Error::new(Code::BadOption, format!("a node has at most {CAPS_MAX} caps")));
    }
    for (name, cap) in caps {
        cap.check(name)?;
        let mut at = name.as_str();
        for depth in 0.. {
            let Some(parent) = parent_of(caps, at) else { break };
            if depth >= DEPTH_MAX {
                let what =
                    format!("the cap {name} stands in itself, or more than {DEPTH_MAX} deep in others");
                return Err(Error::new(Code::BadOption, what));
            }
            if parent != HOST && !caps.contains_key(parent) {
                return Err(Error::new(
                    Code::BadOption,
                    format!("the cap {at} stands in {parent}, which there is not"),
                ));
            }
            at = parent;
        }
    }
    Ok(())
}

/// The cap that a session is in: the one that is about it most closely (its principal, its peer, the narrowest network), else the
/// host's. Of two that fit equally the first by name counts.
pub(crate) fn cap_of<'a>(caps: &'a Caps, subject: &Subject) -> &'a str {
    let fitting = caps.iter().filter_map(|(name, cap)| Some((cap.fits(subject)?, name)));
    let best = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map_or(HOST, |(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(list: &[(&str, Cap)]) -> Caps {
        list.iter().map(|(name, cap)| (name.to_string(), cap.clone())).collect()
    }

    fn parent(name: &str) -> Cap {
        Cap { parent: Some(name.into()), ..Cap::default() }
    }

    #[test]
    fn a_session_is_in_the_cap_that_is_about_it_most_closely() {
        let strings = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let caps = caps(&[
            ("host", Cap::default()),
            ("campus", Cap { networks: vec!["10.0.0.0/8".parse().unwrap()], ..Cap::default() }),
            ("lab", Cap { networks: vec!["10.1.0.0/16".parse().unwrap()], ..parent("campus") }),
            ("hpc", Cap { peers: strings(&["hpc:33001"]), ..Cap::default() }),
            ("org", Cap { peers: strings(&["*.example.org"]), ..Cap::default() }),
            ("beam", Cap { principals: strings(&["token:b"]), ..Cap::default() }),
        ]);
        let of = |principal: &str, peers: &[&str], address: &str| {
            let subject =
                Subject { principal: principal.into(), peers: strings(peers), address: address.parse().ok() };
            cap_of(&caps, &subject).to_string()
        };
        assert_eq!(of("local", &[], ""), "host");
        assert_eq!(of("local", &[], "10.2.3.4"), "campus");
        assert_eq!(of("local", &[], "::ffff:10.1.3.4"), "lab");
        assert_eq!(of("local", &["hpc", "hpc:33001"], "10.1.3.4"), "hpc");
        assert_eq!(of("local", &["dtn.example.org"], "10.1.3.4"), "org");
        assert_eq!(of("token:b", &["hpc:33001"], "10.1.3.4"), "beam");
        assert_eq!(of("local", &["hpc:4000"], "2001:db8::1"), "host");
    }

    #[test]
    fn a_tree_is_one() {
        assert!(check(&caps(&[])).is_ok());
        assert!(check(&caps(&[("a", Cap::default()), ("b", parent("a"))])).is_ok());
        for (wrong, part) in [
            (caps(&[("a", parent("b"))]), "stands in b, which there is not"),
            (caps(&[("a", parent("b")), ("b", parent("a"))]), "stands in itself"),
            (caps(&[("a", parent("a"))]), "stands in itself"),
            (caps(&[("host", parent("a")), ("a", Cap::default())]), "stands in no other"),
            (caps(&[("a b", Cap::default())]), "letters"),
            (caps(&[("a", Cap { rate_bps: Some(1), ..Cap::default() })]), "at least 8k"),
            (caps(&[("a", Cap { weight: f64::NAN, ..Cap::default() })]), "weight"),
            (caps(&[("a", Cap { time_zone: Some("Mars".into()), ..Cap::default() })]), "time zone"),
        ] {
            let error = check(&wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn networks_are_read_and_hold_addresses() {
        let holds = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().holds(address.parse().unwrap()).is_some()
        };
        assert!(holds("0.0.0.0/0", "1.2.3.4") && holds("::/0", "2001:db8::1") && holds("1.2.3.4", "1.2.3.4"));
        assert!(
            !holds("0.0.0.0/0", "::1")
                && !holds("10.0.0.0/31", "10.0.0.2")
                && holds("10.0.0.0/31", "10.0.0.1")
        );
        assert!(holds("2001:db8::/33", "2001:db8:7fff::1") && !holds("2001:db8::/33", "2001:db8:8000::1"));
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0", "x/8", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
