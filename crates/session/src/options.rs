//! What the user may choose for a session, whatever it is for. The same struct travels in the hello, so that both ends work
//! by one set of options. `Default` works; nothing in here is judged but in [`NetworkOptions::checked`].
#![deny(missing_docs)]

use std::net::IpAddr;

pub use farhaul_proto::Policy;
use serde::{Deserialize, Serialize};

use crate::error::{Code, Error};
use crate::testing::Testing;

/// Most flows of a session at a time.
pub const FLOWS_MAX: usize = 16;
/// Smallest rate that can be set, in bits a second.
pub const RATE_MIN_BPS: u64 = 8_000;
/// Smallest budget that still lets blocks overlap on the way through the stages.
pub const MEMORY_MIN: u64 = 16 << 20;

/// The cipher of the data packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Cipher {
    /// AES with 128 bits.
    #[default]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// AES with 256 bits.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// For processors without AES.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
    /// Block bytes travel in the clear, with where in a block they belong; everything else stays sealed. A far end with rules of
    /// its own must allow it.
    #[serde(rename = "none")]
    None,
}

impl Cipher {
    /// The name as on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "aes-128-gcm",
            Cipher::Aes256Gcm => "aes-256-gcm",
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305",
            Cipher::None => "none",
        }
    }
}

/// A way between the two hosts: an address of the client and one of the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PathAddresses {
    /// Of this end, if it is the one that connects.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub local: IpAddr,
    /// Of the far end.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub remote: IpAddr,
}

/// How a session travels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NetworkOptions {
    /// How the data are sealed.
    pub cipher: Cipher,
    /// How the rate is set.
    pub policy: Policy,
    /// Bits per second; the target for `fixed`, the ceiling for the others. Default none.
    pub rate_bps: Option<u64>,
    /// Bits per second that all but `fixed` send at least, whatever happens. Default none.
    pub rate_min_bps: Option<u64>,
    /// Number of flows on each path, 1 to 16. Default 1.
    pub flows: u16,
    /// Paths to use at once, each at its own rate. Default: the one that the system chooses.
    pub paths: Vec<PathAddresses>,
    /// The paths are found by both ends: the one that the system chooses, and those of further interfaces.
    pub auto_paths: bool,
    /// Paths that can be added while a stream runs. Memory is divided as if they were in use. Default 0.
    pub further_paths: u16,
    /// Largest IP packet to use, in bytes. Default: found by probing.
    pub mtu: Option<u16>,
    /// Bytes that this transfer may hold in blocks on either end. Default 256 MiB.
    pub memory_bytes: u64,
    /// Never fall back to TCP or the SSH channel.
    pub udp_only: bool,
    /// First and last UDP port that the far end may bind (over SSH).
    pub udp_ports: (u16, u16),
    /// Of this process alone: it does not travel, and a far end has its own.
    #[serde(skip)]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub testing: Testing,
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
            testing: Testing::default(),
        }
    }
}

/// How a sender sets its rate: what of its options can be changed while a transfer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateOptions {
    /// How the rate is set.
    pub policy: Policy,
    /// As [`NetworkOptions::rate_bps`].
    pub rate_bps: Option<u64>,
    /// As [`NetworkOptions::rate_min_bps`].
    pub rate_min_bps: Option<u64>,
}

impl RateOptions {
    /// The one place that judges them.
    pub fn checked(self) -> Result<Self, Error> {
        let bad = |text: &str| Err(Error::new(Code::BadOption, text.to_string()));
        if self.policy == Policy::Fixed && self.rate_bps.is_none() {
            return bad("--policy fixed needs --rate");
        }
        if [self.rate_bps, self.rate_min_bps].into_iter().flatten().any(|rate| rate < RATE_MIN_BPS) {
            return bad("--rate and --min-rate must be at least 8k (bits per second)");
        }
        if self.policy == Policy::Fixed && self.rate_min_bps.is_some() {
            return bad("--min-rate makes no sense with --policy fixed, which holds --rate");
        }
        if self.rate_bps.zip(self.rate_min_bps).is_some_and(|(most, least)| least > most) {
            return bad("--min-rate must not be above --rate");
        }
        Ok(self)
    }
}

impl NetworkOptions {
    /// Paths that are used at once.
    pub fn path_count(&self) -> usize {
        self.paths.len().max(1)
    }

    /// Flows of all paths together.
    pub fn flow_count(&self) -> usize {
        usize::from(self.flows) * self.path_count()
    }

    /// Flows of all paths that may be added.
    pub fn further_flows(&self) -> usize {
        usize::from(self.flows) * usize::from(self.further_paths)
    }

    /// The path of a flow, by its index.
    pub fn path_of(&self, flow: usize) -> usize {
        flow % self.path_count()
    }

    /// What of them can be changed while the transfer runs.
    pub fn rate_options(&self) -> RateOptions {
        RateOptions { policy: self.policy, rate_bps: self.rate_bps, rate_min_bps: self.rate_min_bps }
    }

    /// The one place that judges them.
    pub fn checked(self) -> Result<Self, Error> {
        let bad = |text: &str| Err(Error::new(Code::BadOption, text.to_string()));
        if self.flows == 0 || self.flow_count() + self.further_flows() > FLOWS_MAX {
            return bad("--flows, times the number of paths that there can be, must be between 1 and 16");
        }
        if self.auto_paths && !self.paths.is_empty() {
            return bad("--path auto finds the paths itself: leave it, or those that you name");
        }
        if self.paths.iter().any(|path| path.local.is_ipv4() != path.remote.is_ipv4()) {
            return bad("--path: both addresses must be IPv4, or both IPv6");
        }
        if self.paths.iter().any(|path| path.local.is_unspecified() || path.remote.is_unspecified()) {
            return bad("--path: 0.0.0.0 and :: are no addresses of a host");
        }
        let is_repeated = |index: usize| self.paths[..index].contains(&self.paths[index]);
        if (0..self.paths.len()).any(is_repeated) {
            return bad("--path: the same path is given twice");
        }
        if self.memory_bytes < MEMORY_MIN {
            return bad("--memory must be at least 16M");
        }
        if self.mtu.is_some_and(|mtu| !(576..=65535).contains(&mtu)) {
            return bad("--mtu must be between 576 and 65535");
        }
        self.rate_options().checked()?;
        if self.udp_ports.0 == 0 || self.udp_ports.0 > self.udp_ports.1 {
            return bad("--udp-ports must be a range such as 33001-33100");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_make_no_sense_are_refused() {
        let path = |local: &str, remote: &str| PathAddresses {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
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
}
