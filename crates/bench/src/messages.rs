//! The messages between the two ends of a measurement, in frames on ssh's pipes: the near end asks, the far
//! end answers.
//!
//! Always true: [`EndpointQuestion::Hello`] and [`EndpointAnswer::Hello`] keep their shape in every version,
//! so that two incompatible versions can say so.

use farhaul::sisters::PeerDiagnosis;
use farhaul_connect::hello::{HelloSecret, Refusal};
use serde::{Deserialize, Serialize};

use crate::findings::HostFacts;
use crate::link::{CaseTotals, LinkCase};

/// The version of everything in here except the hello.
pub(crate) const PROTOCOL: u32 = 2;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndpointQuestion {
    Hello {
        protocol: u32,
    },
    /// Open sockets, and begin to send or receive as soon as the near end is met.
    Open(Box<CaseOpening>),
    /// Wait until everything has arrived or has been sent.
    Close,
    /// Make a folder for measured files below this directory. There is only one, and it vanishes with this
    /// program.
    Folder {
        path: Vec<u8>,
        room: u64,
    },
    /// Write a file of the folder to the disk and drop it from the cache.
    Settle {
        name: String,
    },
    /// Remove a file of the folder.
    Forget {
        name: String,
    },
    /// Say what the doctor says there, for a rate and a role if these are given. Clients and far ends of 0.1.0 have
    /// no service for that.
    Diagnose {
        rate_bps: Option<u64>,
        role: Option<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndpointAnswer {
    Hello { protocol: u32, version: String, facts: HostFacts, ssh_connection: Option<String> },
    Opened { ports: Vec<u16>, recv_buffer_bytes: usize },
    Closed(CaseTotals),
    Folder { path: Vec<u8> },
    Diagnosed(PeerDiagnosis),
    Done,
    Refused(Refusal),
}

/// One case of a link, for the far end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CaseOpening {
    pub(crate) case: LinkCase,
    /// The token that an address must show before it is sent to.
    pub(crate) token: HelloSecret,
    /// The secret that packets are sealed with.
    pub(crate) secret: HelloSecret,
    /// The ports of the near end, one for each flow.
    pub(crate) ports: Vec<u16>,
    /// The first and last port that the far end may use.
    pub(crate) udp_ports: (u16, u16),
}
