//! The options of a session, whatever it is for. The same struct travels in the hello, so that both ends use
//! one set of options. `Default` works; only [`NetworkOptions::checked`] judges the values.
#![deny(missing_docs)]

use std::net::{IpAddr, SocketAddr};
use std::{fmt, io};

use farhaul_net::{interface_of, is_link_local, on_interface, with_port, with_scope};
use farhaul_words::{Cipher, Code, Error, Policy};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::test_hooks::TestHooks;

/// The most flows that a session has at a time.
pub const FLOWS_MAX: usize = 16;
/// The smallest rate that can be set, in bits a second.
pub const RATE_MIN_BPS: u64 = 8_000;
/// The smallest memory with which blocks still overlap on their way through the stages.
pub const MEMORY_MIN: u64 = 16 << 20;

/// A path between the two hosts: an address of the client and one of the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PathAddresses {
    /// The address of this end, if this end connects.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub local: IpAddr,
    /// The address of the far end.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub remote: IpAddr,
    /// The interface of the end that connects, for addresses that are valid on one link only (fe80::...).
    /// Default: the interface that has `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub interface: Option<InterfaceName>,
}

impl PathAddresses {
    /// The path between these two addresses.
    pub fn new(local: IpAddr, remote: IpAddr) -> PathAddresses {
        PathAddresses { local, remote, interface: None }
    }

    /// The address that the connecting end binds, with port 0. Fails if the interface is not known.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(with_scope(self.local, self.scope()?))
    }

    /// The address at which the connecting end reaches the far end.
    pub fn remote_address(&self, port: u16) -> SocketAddr {
        with_port(with_scope(self.remote, self.scope().unwrap_or(0)), port)
    }

    /// The address at which the far end reaches the connecting end, with port 0. `interface` is not used, as
    /// it names an interface of the other host.
    pub fn seen_from_far_end(&self) -> SocketAddr {
        let scope = if is_link_local(self.local) { interface_of(self.remote) } else { 0 };
        with_scope(self.local, scope)
    }

    /// The number of the interface; 0 if none is needed.
    fn scope(&self) -> io::Result<u32> {
        if !is_link_local(self.local) && !is_link_local(self.remote) {
            return Ok(0);
        }
        if let Some(interface) = &self.interface {
            let any = "fe80::".parse().map_err(io::Error::other)?;
            let SocketAddr::V6(address) = on_interface(any, interface.as_str())? else { return Ok(0) };
            return Ok(address.scope_id());
        }
        match interface_of(self.local) {
            0 => {
                let what = "no interface, or more than one, has it; name the interface, as in fe80::1%eth0";
                Err(io::Error::other(what))
            }
            number => Ok(number),
        }
    }
}

/// The name of a network interface, or its number as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceName([u8; INTERFACE_NAME_MAX]);

/// From: if(7), IFNAMSIZ without the terminating zero byte.
const INTERFACE_NAME_MAX: usize = 15;

impl InterfaceName {
    /// The name.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl TryFrom<&str> for InterfaceName {
    type Error = &'static str;
    fn try_from(name: &str) -> Result<InterfaceName, &'static str> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/%=[]".contains(&byte);
        if name.is_empty() || name.len() > INTERFACE_NAME_MAX || !name.bytes().all(is_plain) {
            return Err("no name of an interface");
        }
        let mut bytes = [0; INTERFACE_NAME_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(InterfaceName(bytes))
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl Serialize for InterfaceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for InterfaceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InterfaceName, D::Error> {
        let name = String::deserialize(deserializer)?;
        InterfaceName::try_from(&name[..]).map_err(serde::de::Error::custom)
    }
}

/// How a session uses the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NetworkOptions {
    /// The cipher that seals the data.
    pub cipher: Cipher,
    /// The policy that sets the rate.
    pub policy: Policy,
    /// Bits per second: the rate for `fixed`, the ceiling for the other policies. Default: none.
    pub rate_bps: Option<u64>,
    /// Bits per second that every policy but `fixed` sends at least, whatever happens. Default: none.
    pub rate_min_bps: Option<u64>,
    /// The number of flows on each path, 1 to 16. Default: 1.
    pub flows: u16,
    /// Paths to use at once, each at its own rate. Default: the one that the system chooses.
    pub paths: Vec<PathAddresses>,
    /// True if both ends find the paths themselves: the one that the system chooses, and those of further
    /// interfaces.
    pub auto_paths: bool,
    /// The number of paths that can be added while a stream runs. Memory is divided as if they were in use.
    /// Default: 0.
    pub further_paths: u16,
    /// The largest IP packet to use, in bytes. Default: found by probing.
    pub mtu: Option<u16>,
    /// Bytes of blocks that this transfer may hold at either end. Default: 256 MiB.
    pub memory_bytes: u64,
    /// If true, the session never falls back to TCP or the SSH channel.
    pub udp_only: bool,
    /// The first and the last UDP port that the far end may bind (over SSH).
    pub udp_ports: (u16, u16),
    /// For tests of this process; it is not sent to the far end.
    #[serde(skip)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub testing: TestHooks,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        NetworkOptions {
            cipher: Cipher::default(),
            policy: Policy::default(),
            rate_bps: None,
            rate_min_bps: None,
            flows: 1,
            paths: Vec::new(),
            auto_paths: false,
            further_paths: 0,
            mtu: None,
            memory_bytes: 256 << 20,
            udp_only: false,
            udp_ports: (33001, 33100),
            testing: TestHooks::default(),
        }
    }
}

/// How a sender sets its rate: the options that can be changed while a transfer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateOptions {
    /// The policy that sets the rate.
    pub policy: Policy,
    /// As [`NetworkOptions::rate_bps`].
    pub rate_bps: Option<u64>,
    /// As [`NetworkOptions::rate_min_bps`].
    pub rate_min_bps: Option<u64>,
}

impl RateOptions {
    /// Judges the values; nothing else does.
    pub fn checked(self) -> Result<Self, Error> {
        let bad = |text: &str| Err(Error::new(Code::BadOption, text.to_string()));
        if self.policy == Policy::Fixed && self.rate_bps.is_none() {
            return bad("`policy` fixed needs `rate`");
        }
        if [self.rate_bps, self.rate_min_bps].into_iter().flatten().any(|rate| rate < RATE_MIN_BPS) {
            return bad("`rate` and `min-rate` must be at least 8k (bits per second)");
        }
        if self.policy == Policy::Fixed && self.rate_min_bps.is_some() {
            return bad("`min-rate` makes no sense with `policy` fixed, which holds `rate`");
        }
        if self.rate_bps.zip(self.rate_min_bps).is_some_and(|(most, least)| least > most) {
            return bad("`min-rate` must not be above `rate`");
        }
        Ok(self)
    }
}

impl NetworkOptions {
    /// The number of paths that are used at once.
    pub fn path_count(&self) -> usize {
        self.paths.len().max(1)
    }

    /// The number of flows of all paths together.
    pub fn flow_count(&self) -> usize {
        usize::from(self.flows) * self.path_count()
    }

    /// The number of flows of the paths that may be added.
    pub fn further_flows(&self) -> usize {
        usize::from(self.flows) * usize::from(self.further_paths)
    }

    /// The path of a flow, by its index.
    pub fn path_of(&self, flow: usize) -> usize {
        flow % self.path_count()
    }

    /// The options that can be changed while the transfer runs.
    pub fn rate_options(&self) -> RateOptions {
        RateOptions { policy: self.policy, rate_bps: self.rate_bps, rate_min_bps: self.rate_min_bps }
    }

    /// Judges the values; nothing else does.
    pub fn checked(self) -> Result<Self, Error> {
        let bad = |text: &str| Err(Error::new(Code::BadOption, text.to_string()));
        if self.flows == 0 || self.flow_count() + self.further_flows() > FLOWS_MAX {
            return bad("`flows` times the number of paths (added ones included) must be between 1 and 16");
        }
        if self.auto_paths && !self.paths.is_empty() {
            return bad("`path` auto finds the paths itself: leave out either it or the paths that you name");
        }
        if self.paths.iter().any(|path| path.local.is_ipv4() != path.remote.is_ipv4()) {
            return bad("`path`: both addresses must be IPv4, or both IPv6");
        }
        if self.paths.iter().any(|path| path.local.is_unspecified() || path.remote.is_unspecified()) {
            return bad("`path`: 0.0.0.0 and :: are no addresses of a host");
        }
        let is_repeated = |index: usize| self.paths[..index].contains(&self.paths[index]);
        if (0..self.paths.len()).any(is_repeated) {
            return bad("`path`: the same path is given twice");
        }
        if self.memory_bytes < MEMORY_MIN {
            return bad("`memory` must be at least 16M");
        }
        if self.mtu.is_some_and(|mtu| !(576..=65535).contains(&mtu)) {
            return bad("`mtu` must be between 576 and 65535");
        }
        self.rate_options().checked()?;
        if self.udp_ports.0 == 0 || self.udp_ports.0 > self.udp_ports.1 {
            return bad("`udp-ports` must be a range such as 33001-33100");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_make_no_sense_are_refused() {
        let path =
            |local: &str, remote: &str| PathAddresses::new(local.parse().unwrap(), remote.parse().unwrap());
        let judge =
            |flows, paths| NetworkOptions { flows, paths, ..NetworkOptions::default() }.checked().is_ok();
        let (one, other) = (path("10.0.0.1", "10.0.0.2"), path("fd00::1", "fd00::2"));
        assert!(judge(1, vec![one, other]) && judge(8, vec![one, other]));
        assert!(!judge(9, vec![one, other]), "more than 16 flows");
        assert!(!judge(1, vec![one, one]) && !judge(1, vec![path("10.0.0.1", "fd00::2")]));
        assert!(!judge(1, vec![path("0.0.0.0", "10.0.0.2")]));
    }

    #[test]
    fn rates_that_contradict_each_other_are_refused() {
        let judge = |policy, rate_bps, rate_min_bps| {
            NetworkOptions { policy, rate_bps, rate_min_bps, ..NetworkOptions::default() }.checked().is_ok()
        };
        for policy in [Policy::Fair, Policy::High, Policy::Low] {
            assert!(judge(policy, None, None) && judge(policy, Some(10_000), Some(10_000)), "{policy:?}");
            assert!(!judge(policy, Some(10_000), Some(10_001)), "{policy:?}");
            assert!(!judge(policy, None, Some(7_999)) && !judge(policy, Some(7_999), None), "{policy:?}");
        }
        assert!(judge(Policy::Fixed, Some(10_000), None));
        assert!(!judge(Policy::Fixed, None, None) && !judge(Policy::Fixed, Some(10_000), Some(9_000)));
    }

    #[test]
    fn a_path_with_an_interface_is_read_as_it_is_written_and_one_without_is_as_it_was() {
        let path = PathAddresses::new("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        assert_eq!(serde_json::to_string(&path).unwrap(), r#"{"local":"fe80::1","remote":"fe80::2"}"#);
        let on = PathAddresses { interface: Some("lo".try_into().unwrap()), ..path };
        let text = serde_json::to_string(&on).unwrap();
        assert_eq!(text, r#"{"local":"fe80::1","remote":"fe80::2","interface":"lo"}"#);
        assert_eq!(serde_json::from_str::<PathAddresses>(&text).unwrap(), on);
        // The loopback interface is the first one.
        assert_eq!(on.local_address().unwrap().to_string(), "[fe80::1%1]:0");
        assert_eq!(on.remote_address(7).to_string(), "[fe80::2%1]:7");
        assert!(path.local_address().is_err(), "no interface has it");
        for wrong in ["", "a/b", "a=b", "x%y", "sixteen characters", "\u{e9}"] {
            assert!(InterfaceName::try_from(wrong).is_err(), "{wrong}");
        }
    }
}
