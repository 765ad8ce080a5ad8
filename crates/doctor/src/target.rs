//! What a host is judged for.

use serde::Serialize;

use crate::case::Case;

/// What a host is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Anything: a laptop, a server with other work.
    Plain,
    /// A data transfer node.
    Dtn,
    /// A host that measures paths, with larger buffers than a node that serves many.
    Test,
}

impl Role {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Plain => "plain",
            Role::Dtn => "dtn",
            Role::Test => "test",
        }
    }

    /// The role with this word.
    pub fn of_name(name: &str) -> Option<Role> {
        [Role::Plain, Role::Dtn, Role::Test].into_iter().find(|role| role.name() == name)
    }
}

/// The rate and the role that a host is judged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Target {
    /// Bits a second.
    pub rate_bps: u64,
    /// What the host is for.
    pub role: Role,
}

const GBIT: u64 = 1_000_000_000;
/// The rate from which on a host is taken for a data transfer node unless told otherwise.
const FAST_BPS: u64 = 10 * GBIT;
const MIB: u64 = 1 << 20;
/// What quic-go asks for, which is too little for fast hosts and enough for all others.
const UDP_FLOOR: u64 = 7_500_000;

impl Target {
    /// Returns what to judge a host for: what was asked for, or the speed of its fastest interface that is up.
    pub fn of(case: &Case<'_>, rate_bps: Option<u64>, role: Option<Role>) -> Target {
        let fastest =
            case.nics().iter().filter(|nic| nic.carries_data()).filter_map(|nic| nic.speed_bps).max();
        let rate_bps = rate_bps.or(fastest).unwrap_or(GBIT);
        let role = role.unwrap_or(if rate_bps >= FAST_BPS { Role::Dtn } else { Role::Plain });
        Target { rate_bps, role }
    }

    /// Whether defaults of the kernel limit a host at this rate, or it has only one task.
    pub fn is_tuned(&self) -> bool {
        self.rate_bps >= FAST_BPS || self.role != Role::Plain
    }

    /// Whether the rate is at least this many Gbit/s.
    pub(crate) fn is_at_least(&self, gbit: u64) -> bool {
        self.rate_bps >= gbit * GBIT
    }

    /// The rate in Gbit/s, in words.
    pub fn rate_words(&self) -> String {
        format!("{}G", self.rate_bps as f64 / GBIT as f64)
    }

    /// The largest socket buffer that the kernel should allow, from FDTUNE and OSG.
    pub(crate) fn socket_buffer(&self) -> u64 {
        match (self.rate_bps / GBIT, self.role) {
            (100.., _) => i32::MAX as u64,
            (40.., Role::Test) => 512 * MIB,
            (40.., _) => 128 * MIB,
            (10.., Role::Test) => 256 * MIB,
            (10.., _) => 64 * MIB,
            (_, Role::Test) => 64 * MIB,
            (_, Role::Dtn) => 16 * MIB,
            (_, Role::Plain) => UDP_FLOOR,
        }
    }

    /// The largest window of TCP, from the same.
    pub(crate) fn tcp_window(&self) -> u64 {
        match (self.rate_bps / GBIT, self.role) {
            (100.., _) => 1024 * MIB,
            (40.., Role::Test) => 256 * MIB,
            (40.., _) => 64 * MIB,
            (10.., Role::Test) => 128 * MIB,
            (10.., _) => 32 * MIB,
            _ => 16 * MIB,
        }
    }

    /// What a UDP socket must be able to hold: what arrives in 20 ms, and never less than the floor.
    pub(crate) fn udp_buffer(&self) -> u64 {
        (self.rate_bps / 8 / 50).clamp(UDP_FLOOR, i32::MAX as u64 / 2)
    }
}
