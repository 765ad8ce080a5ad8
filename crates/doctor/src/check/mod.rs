//! The checks: what each reads, what it advises, why, and on whose word.
//!
//! A check is one row of a table. Its `judge` is a pure function of a host and a target; it changes nothing. What a
//! finding proposes to change stands in it as places and values, so that applying and undoing know nothing of checks.

mod cpu;
mod disk;
mod file_system;
mod kernel;
mod network;
mod nic;
mod reach;
pub(crate) mod sources;

use serde::Serialize;

use crate::case::Case;
use crate::target::Target;
pub use sources::Source;

/// Whether a file system's files lie on another host.
pub(crate) fn is_network_file_system(kind: &str) -> bool {
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "lustre",
        "gpfs",
        "ceph",
        "beegfs",
        "glusterfs",
        "fuse.sshfs",
        "9p",
        "afs",
        "fuse.farhaul",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.glusterfs",
        "fuse.juicefs",
    ]
    .contains(&kind)
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// It limits transfers, or loses data's packets, now.
    Fail,
    /// It limits transfers at the target's speed.
    Warn,
    /// It is worth knowing.
    Note,
}

impl Weight {
    /// The word in front of a finding.
    pub fn name(self) -> &'static str {
        match self {
            Weight::Fail => "fail",
            Weight::Warn => "warn",
            Weight::Note => "note",
        }
    }
}

/// How sure a piece of advice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// Somebody has published a measurement.
    Measured,
    /// The kernel's or the maker's documentation says so.
    Documented,
    /// Sites that move much data do so.
    Practice,
    /// Sources say opposite things; measure.
    Disputed,
}

impl Certainty {
    /// The certainty in words.
    pub fn words(self) -> &'static str {
        match self {
            Certainty::Measured => "measured: a measurement was published",
            Certainty::Documented => "documented by the kernel or the maker",
            Certainty::Practice => "practice of sites that move much data; measure it",
            Certainty::Disputed => "disputed: sources say opposite things; measure it",
        }
    }
}

/// How the effect of a remedy can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// By a measurement on this host alone.
    Here(Measurement),
    /// Only with another host: the effect depends on the round trip or on load from outside.
    WithPeer,
    /// Not by measuring a rate: it is about safety, wear, or what happens later.
    NotByRate,
}

/// What can be measured on this host, without another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measurement {
    /// The bytes of a burst that a UDP socket keeps while its reader is busy.
    UdpBurst,
    /// Bytes a second through a TCP connection of this host with itself.
    TcpLoopback,
    /// Bytes a second that one core seals.
    Core,
}

impl Measurement {
    /// What is measured, in words.
    pub fn words(self) -> &'static str {
        match self {
            Measurement::UdpBurst => {
                "bytes of a burst that a UDP socket keeps while its reader is busy, over loopback"
            }
            Measurement::TcpLoopback => "rate of a TCP connection over loopback",
            Measurement::Core => "rate at which one core computes digests",
        }
    }
}

/// Remedies that act together: they are applied, judged and taken back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Socket buffers and the memory for them.
    Buffers,
    /// Queueing discipline and pacing.
    Qdisc,
    /// Rings, coalescing and queues of a network card.
    Rings,
    /// Clock rate and sleep of the cores.
    Cores,
}

impl Group {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Buffers => "buffers",
            Group::Qdisc => "qdisc",
            Group::Rings => "rings",
            Group::Cores => "cores",
        }
    }
}

/// A setting and the value that it should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The place, as in [`crate::host`].
    pub place: String,
    /// The value.
    pub value: String,
}

impl Change {
    /// The command by which a person makes this change.
    pub fn command(&self) -> String {
        let Change { place, value } = self;
        let (file, key) = crate::host::split(place);
        let key = key.unwrap_or_default();
        if let Some(name) = file.strip_prefix("proc/sys/") {
            let name = name.replace('/', ".");
            return match value.contains(char::is_whitespace) {
                true => format!("sysctl -w '{name}={value}'"),
                false => format!("sysctl -w {name}={value}"),
            };
        }
        match file.split('/').collect::<Vec<_>>()[..] {
            ["asked", "ethtool", interface, "rings"] => format!("ethtool -G {interface} {key} {value}"),
            ["asked", "ethtool", interface, "channels"] => format!("ethtool -L {interface} {key} {value}"),
            ["asked", "ethtool", interface, "coalesce"] => {
                let on = if value == "0" { "off" } else { "on" };
                match key {
                    "adaptive_rx" => format!("ethtool -C {interface} adaptive-rx {on}"),
                    "adaptive_tx" => format!("ethtool -C {interface} adaptive-tx {on}"),
                    key => format!("ethtool -C {interface} {} {value}", key.replace('_', "-")),
                }
            }
            ["asked", "ethtool", interface, "features"] => format!("ethtool -K {interface} {key} {value}"),
            ["asked", "ethtool", interface, "hash"] => {
                format!("ethtool -N {interface} rx-flow-hash {key} {value}")
            }
            _ => format!("echo {value} > /{place}"),
        }
    }
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub weight: Weight,
    /// What it is about: an interface, a disk, or nothing if it is the host.
    pub subject: String,
    /// What is so, with the figures.
    pub what: String,
    /// What to do, in words.
    pub advice: String,
    /// What the doctor can change for it.
    pub changes: Vec<Change>,
    /// Commands for what the doctor does not change.
    pub commands: Vec<String>,
}

impl Finding {
    pub(crate) fn new(
        weight: Weight,
        subject: &str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding {
            weight,
            subject: subject.into(),
            what: what.into(),
            advice: advice.into(),
            changes: Vec::new(),
            commands: Vec::new(),
        }
    }

    pub(crate) fn change(mut self, place: impl Into<String>, value: impl ToString) -> Finding {
        self.changes.push(Change { place: place.into(), value: value.to_string() });
        self
    }

    pub(crate) fn command(mut self, command: impl Into<String>) -> Finding {
        self.commands.push(command.into());
        self
    }
}

/// A check.
pub struct Check {
    /// The name by which users ask for it.
    pub id: &'static str,
    /// Its row in the project's list of checks.
    pub row: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// The places that it reads, with NIC, DISK and CPU for any.
    pub reads: &'static str,
    /// What it advises, for which speed.
    pub advice: &'static str,
    /// Why.
    pub why: &'static str,
    /// Who says so.
    pub sources: &'static [Source],
    /// How sure that is.
    pub certainty: Certainty,
    /// How to set it.
    pub set: &'static str,
    /// How to undo that.
    pub undo: &'static str,
    /// How to measure the effect.
    pub measure: &'static str,
    /// How the effect can be seen.
    pub effect: Effect,
    /// The remedies that belong together with this one.
    pub group: Option<Group>,
    /// Looks at a host.
    pub judge: fn(&Case<'_>, &Target) -> Vec<Finding>,
}

/// Every check, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Check> {
    [
        kernel::CHECKS,
        network::CHECKS,
        reach::CHECKS,
        nic::CHECKS,
        cpu::CHECKS,
        disk::CHECKS,
        file_system::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the check with this ID or row.
pub fn find(id: &str) -> Option<&'static Check> {
    all().find(|check| check.id == id || check.row.eq_ignore_ascii_case(id))
}

/// What `undo` says of a setting that the doctor changes.
pub(crate) const PUT_BACK: &str = "`farhaul doctor --undo ID` writes the earlier value back";
/// What `undo` says of a setting that lasts until the next start.
pub(crate) const BY_HAND: &str =
    "set the earlier value by the same command; it is gone at the next start in any case";
/// What `undo` says of something that is changed in a configuration file, the firmware or the hardware.
pub(crate) const CHANGE_BACK: &str = "change it back in the same place";
/// What `set` says where there is nothing to set.
pub(crate) const NOTHING: &str = "nothing: it is information";
