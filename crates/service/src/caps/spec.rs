//! The specification of a cap: a rate, whom it is for, and its place in the tree.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::ops::RangeInclusive;

use farhaul::copy::LocationSpec;
use farhaul::target::DEFAULT_PORT;
use farhaul_daemon::ClientEnd;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

use super::RATE_MIN_BPS;
use crate::config::values::{HostPattern, NetworkValue, TimeZoneName, WeeklyWindow};

/// The cap above all others. Every session is in it.
pub(crate) const HOST: &str = "host";
/// The most caps of a node, and how deep they may lie in one another.
const CAPS_MAX: usize = 1000;
const DEPTH_MAX: usize = 8;
const NAME_MAX: usize = 63;
const LISTS_MAX: usize = 256;
/// The most bytes of a principal's name: a fingerprint has 50.
const PRINCIPAL_MAX: usize = 100;
/// The weights that a cap may have. With a greater ratio the smaller share would be next to nothing.
pub(crate) const WEIGHTS: RangeInclusive<f64> = 0.01..=100.0;

/// A cap as it works: the document [`Cap`](farhaul_api::Cap) with its values read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapRule {
    /// Bits of IP packets per second outside the windows of the schedule; without it there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The cap that it lies in, [`HOST`] by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Other hosts whose transfers are in the cap.
    pub peers: Vec<HostPattern>,
    /// Networks; transfers with their hosts are in the cap.
    pub networks: Vec<NetworkValue>,
    /// Whose transfers are in the cap.
    pub principals: Vec<String>,
    /// Its share of the parent's rate, relative to the parent's other members.
    pub weight: f64,
    /// Other rates at certain times.
    pub schedule: Vec<WeeklyWindow>,
    /// The time zone of the schedule; the host's by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<TimeZoneName>,
}

impl From<&CapRule> for farhaul_api::Cap {
    fn from(rule: &CapRule) -> farhaul_api::Cap {
        fn texts<T: ToString>(values: &[T]) -> Vec<String> {
            values.iter().map(ToString::to_string).collect()
        }
        let CapRule { rate_bps, parent, peers, networks, principals, weight, schedule, time_zone } = rule;
        farhaul_api::Cap {
            rate_bps: *rate_bps,
            parent: parent.clone(),
            peers: texts(peers),
            networks: texts(networks),
            principals: principals.clone(),
            weight: *weight,
            schedule: texts(schedule),
            time_zone: time_zone.as_ref().map(ToString::to_string),
        }
    }
}

impl Default for CapRule {
    fn default() -> CapRule {
        CapRule {
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

/// Whose session it is and whom it is with, as far as caps depend on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CapSubject {
    /// `local`, `token:ID`, or the fingerprint of a client's key.
    pub(crate) principal: String,
    /// The name of the other host, and its port if it has one.
    pub(crate) peer: Option<(String, Option<u16>)>,
    /// The address of the other host, if it is known.
    pub(crate) address: Option<IpAddr>,
}

impl CapSubject {
    /// A session of the daemon with a client: the principal is the client's key, the peer is the client, or
    /// the other daemon that the client asked for.
    pub(crate) fn client(principal: &str, far: &ClientEnd<'_>) -> CapSubject {
        let peer = match far.called {
            Some((host, port)) => (host.to_string(), Some(port)),
            None => (far.address.to_canonical().to_string(), None),
        };
        CapSubject { principal: principal.into(), peer: Some(peer), address: Some(far.address) }
    }

    /// A session of a job of this owner. The first location at another host is the peer.
    pub(crate) fn of_job(owner: &str, places: &[LocationSpec]) -> CapSubject {
        let host = places.iter().find_map(|place| match place {
            LocationSpec::Daemon(host, _) => {
                Some((host.name.clone(), Some(host.port.unwrap_or(DEFAULT_PORT))))
            }
            LocationSpec::Ssh(host, _) => Some((host.name.clone(), host.port)),
            LocationSpec::Local(_) | LocationSpec::Pipe => None,
        });
        let address = host.as_ref().and_then(|(name, _)| name.parse().ok());
        CapSubject { principal: owner.into(), peer: host, address }
    }

    /// Looks up the address of the other host by its name, unless the address is known.
    pub(crate) fn look_up(&self) -> Option<IpAddr> {
        let (name, port) = self.peer.as_ref().filter(|_| self.address.is_none())?;
        let mut found = (name.as_str(), port.unwrap_or(22)).to_socket_addrs().ok()?;
        found.next().map(|found| found.ip())
    }
}

/// How closely a cap fits a session; of two caps the one with the greater value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Network(u8),
    /// By a pattern; the number counts its characters other than `*`.
    PeerLike(usize),
    Peer,
    Principal,
}

impl CapRule {
    /// Judges a cap by itself. No other function does.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let bad = |what: String| Err(Error::new(Code::BadOption, format!("the cap {name}: {what}")));
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_of_name) {
            let name = farhaul_text::printable(name.as_bytes(), 80);
            let what =
                format!("the cap '{name}': a name must have 1 to {NAME_MAX} letters, digits, - _ or .");
            return Err(Error::new(Code::BadOption, what));
        }
        if self.rate_bps.is_some_and(|rate| rate < RATE_MIN_BPS) {
            return bad("its rate must be at least 8k (bits per second)".into());
        }
        if !WEIGHTS.contains(&self.weight) {
            let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
            return bad(format!("its weight must be between {least} and {most}"));
        }
        let has_subjects = !(self.peers.is_empty() && self.networks.is_empty() && self.principals.is_empty());
        if name == HOST && (self.parent.is_some() || has_subjects) {
            return bad("it is for all sessions: it can have no parent, peers, networks or principals".into());
        }
        if [self.peers.len(), self.networks.len(), self.principals.len(), self.schedule.len()]
            .into_iter()
            .any(|len| len > LISTS_MAX)
        {
            return bad(format!("each of its lists must have at most {LISTS_MAX} entries"));
        }
        if let Some(principal) = self.principals.iter().find(|one| one.len() > PRINCIPAL_MAX) {
            let principal = farhaul_text::printable(principal.as_bytes(), 40);
            return bad(format!("{principal}: a principal has at most {PRINCIPAL_MAX} bytes"));
        }
        Ok(())
    }

    fn fits(&self, subject: &CapSubject) -> Option<Fit> {
        let principal = self.principals.contains(&subject.principal).then_some(Fit::Principal);
        let is_peer = |pattern: &&HostPattern| {
            subject.peer.as_ref().is_some_and(|(host, port)| pattern.fits(host, *port))
        };
        let peer = self.peers.iter().filter(is_peer).map(|pattern| {
            let text = pattern.to_string();
            if text.contains('*') { Fit::PeerLike(text.replace('*', "").len()) } else { Fit::Peer }
        });
        let in_it =
            |network: &&NetworkValue| subject.address.is_some_and(|address| network.contains(address));
        let network = self.networks.iter().filter(in_it).map(|network| Fit::Network(network.parts().1));
        principal.into_iter().chain(peer).chain(network).max()
    }
}

/// All caps of a node, by their names.
pub(crate) type Caps = BTreeMap<String, CapRule>;

/// The caps of the configuration.
pub(crate) fn of_config(config: &crate::config::Config) -> Caps {
    let cap = |cap: &crate::config::CapSection| CapRule {
        rate_bps: cap.rate.map(|rate| rate.0),
        parent: cap.parent.clone(),
        peers: cap.peers.clone(),
        networks: cap.networks.clone(),
        principals: cap.principals.clone(),
        weight: cap.weight,
        schedule: cap.schedule.clone(),
        time_zone: cap.time_zone.clone(),
    };
    config.caps.iter().map(|(name, one)| (name.clone(), cap(one))).collect()
}

/// The name of the cap that this one lies in; `None` for the host's.
pub(crate) fn parent_of<'a>(caps: &'a Caps, name: &str) -> Option<&'a str> {
    let cap = caps.get(name).filter(|_| name != HOST)?;
    Some(cap.parent.as_deref().unwrap_or(HOST))
}

/// Judges the caps together: each must lie in another one that exists, and finally in the host's. No other
/// function does.
pub(crate) fn check(caps: &Caps) -> Result<(), Error> {
    if caps.len() > CAPS_MAX {
        return Err(Error::new(Code::BadOption, format!("a node can have at most {CAPS_MAX} caps")));
    }
    for (name, cap) in caps {
        cap.check(name)?;
        let mut at = name.as_str();
        for depth in 0.. {
            let Some(parent) = parent_of(caps, at) else { break };
            if depth >= DEPTH_MAX {
                let what = format!("the cap {name} lies in itself, or more than {DEPTH_MAX} deep in others");
                return Err(Error::new(Code::BadOption, what));
            }
            if parent != HOST && !caps.contains_key(parent) {
                return Err(Error::new(
                    Code::BadOption,
                    format!("the cap {at} has the parent {parent}, which does not exist"),
                ));
            }
            at = parent;
        }
    }
    Ok(())
}

/// The cap that a session is in: the one that fits it most closely (by its principal, then its peer, then the
/// narrowest network), otherwise the host's. Of two that fit equally, the first by name counts.
pub(crate) fn cap_of<'a>(caps: &'a Caps, subject: &CapSubject) -> &'a str {
    let fitting = caps.iter().filter_map(|(name, cap)| Some((cap.fits(subject)?, name)));
    let best = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map_or(HOST, |(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::values::TextValue as _;

    fn caps(list: &[(&str, CapRule)]) -> Caps {
        list.iter().map(|(name, cap)| (name.to_string(), cap.clone())).collect()
    }

    fn parent(name: &str) -> CapRule {
        CapRule { parent: Some(name.into()), ..CapRule::default() }
    }

    #[test]
    fn a_session_is_in_the_cap_that_is_about_it_most_closely() {
        let networks =
            |text: &str| CapRule { networks: vec![NetworkValue::read(text).unwrap()], ..CapRule::default() };
        let peers =
            |text: &str| CapRule { peers: vec![HostPattern::read(text).unwrap()], ..CapRule::default() };
        let caps = caps(&[
            ("host", CapRule::default()),
            ("campus", networks("10.0.0.0/8")),
            ("lab", CapRule { parent: Some("campus".into()), ..networks("10.1.0.0/16") }),
            ("hpc", peers("hpc:33001")),
            ("org", peers("*.example.org")),
            ("beam", CapRule { principals: vec!["token:b".into()], ..CapRule::default() }),
        ]);
        let of = |principal: &str, host: &str, address: &str| {
            let peer = (!host.is_empty()).then(|| (host.to_string(), Some(33_001)));
            let subject = CapSubject { principal: principal.into(), peer, address: address.parse().ok() };
            cap_of(&caps, &subject).to_string()
        };
        assert_eq!(of("local", "", ""), "host");
        assert_eq!(of("local", "", "10.2.3.4"), "campus");
        assert_eq!(of("local", "", "::ffff:10.1.3.4"), "lab");
        assert_eq!(of("local", "hpc", "10.1.3.4"), "hpc");
        assert_eq!(of("local", "dtn.example.org", "10.1.3.4"), "org");
        assert_eq!(of("token:b", "hpc", "10.1.3.4"), "beam");
        assert_eq!(of("local", "other", "2001:db8::1"), "host");
    }

    #[test]
    fn a_tree_is_one() {
        assert!(check(&caps(&[])).is_ok());
        assert!(check(&caps(&[("a", CapRule::default()), ("b", parent("a"))])).is_ok());
        for (wrong, part) in [
            (caps(&[("a", parent("b"))]), "has the parent b, which does not exist"),
            (caps(&[("a", parent("b")), ("b", parent("a"))]), "lies in itself"),
            (caps(&[("a", parent("a"))]), "lies in itself"),
            (caps(&[("host", parent("a")), ("a", CapRule::default())]), "can have no parent"),
            (caps(&[("a b", CapRule::default())]), "letters"),
            (caps(&[("a", CapRule { rate_bps: Some(1), ..CapRule::default() })]), "at least 8k"),
            (caps(&[("a", CapRule { weight: f64::NAN, ..CapRule::default() })]), "weight"),
        ] {
            let error = check(&wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
