//! One case of a link measurement: the terms on which both ends agree, and each end's counts.

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::options::Cipher;
use farhaul::sisters::FLOWS_MAX;
use farhaul_net::DATAGRAM_LEN_MAX;
use farhaul_proto::{HEADER_LEN, SEGMENT_FRAME_LEN, TAG_LEN};
use serde::{Deserialize, Serialize};

/// The bytes of a sealed datagram beside its payload.
pub(super) const OVERHEAD: usize = HEADER_LEN + SEGMENT_FRAME_LEN + TAG_LEN;
/// The shortest datagram: a sealed one with one byte of payload.
pub(super) const DATAGRAM_MIN: usize = OVERHEAD + 1;
/// The longest case.
pub(super) const SECONDS_MAX: f64 = 60.0;

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LinkSide {
    Near,
    Far,
}

/// Datagrams of one size from one end to the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LinkCase {
    pub(crate) sender: LinkSide,
    pub(crate) datagram_bytes: usize,
    /// `None` if the datagrams are not sealed.
    pub(crate) cipher: Option<Cipher>,
    pub(crate) flows: usize,
    pub(crate) seconds: f64,
    /// The rate of all flows together.
    pub(crate) rate_bps: Option<u64>,
    /// The bytes in flight of all flows together.
    pub(crate) window_bytes: u64,
}

impl LinkCase {
    /// Checks the case, which only this function does: the other end may be of any origin.
    pub(crate) fn checked(self) -> Result<LinkCase, Error> {
        let is_sound = (DATAGRAM_MIN..=DATAGRAM_LEN_MAX).contains(&self.datagram_bytes)
            && (1..=FLOWS_MAX).contains(&self.flows)
            && (0.0..=SECONDS_MAX).contains(&self.seconds)
            && self.cipher != Some(Cipher::None);
        if is_sound {
            Ok(self)
        } else {
            Err(Error::new(Code::BadOption, format!("a link cannot be measured with these values: {self:?}")))
        }
    }

    /// A flow's part of the window, at least one datagram.
    pub(super) fn flow_window(&self) -> u64 {
        (self.window_bytes / self.flows as u64).max(self.datagram_bytes as u64)
    }

    /// A flow's part of the rate, in bytes a second.
    pub(super) fn flow_rate(&self) -> Option<f64> {
        self.rate_bps.map(|bps| bps as f64 / 8.0 / self.flows as f64)
    }
}

/// The counts of one end, all flows together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseTotals {
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    /// From the first datagram to the last.
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// The time that the threads were ready to run but had no core, because other work had it.
    pub(crate) starved_seconds: f64,
    /// The time that a sender waited for news, the mean over all flows.
    pub(crate) window_seconds: f64,
    /// Reads that the receiver's kernel dropped.
    pub(crate) overflows: u64,
    /// The number of flows that have met the other end.
    pub(crate) met: usize,
    /// Why a flow ended early.
    pub(crate) error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> LinkCase {
        LinkCase {
            sender: LinkSide::Near,
            datagram_bytes: 1472,
            cipher: None,
            flows: 2,
            seconds: 1.0,
            rate_bps: Some(16_000),
            window_bytes: 4000,
        }
    }

    #[test]
    fn a_flow_has_its_part() {
        assert_eq!((case().flow_window(), case().flow_rate()), (2000, Some(1000.0)));
        assert_eq!(LinkCase { window_bytes: 0, ..case() }.flow_window(), 1472);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(case().checked().is_ok());
        for bad in [
            LinkCase { datagram_bytes: OVERHEAD, ..case() },
            LinkCase { datagram_bytes: DATAGRAM_LEN_MAX + 1, ..case() },
            LinkCase { flows: 0, ..case() },
            LinkCase { flows: 17, ..case() },
            LinkCase { seconds: f64::NAN, ..case() },
            LinkCase { seconds: 1e9, ..case() },
            LinkCase { cipher: Some(Cipher::None), ..case() },
        ] {
            assert!(bad.clone().checked().is_err(), "{bad:?}");
        }
    }
}
