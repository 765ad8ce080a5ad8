//! Makes the parts of a flow: its keys, its link, the address of its peer, its window and its configuration.
//!
//! Always true: it has what no flow of a session changes, and knows no other flow.

use std::net::IpAddr;

use farhaul_net::{FaultLink, Link, memory_pair};
use farhaul_proto::{CIPHER_BLOCK, FlowConfig};
use farhaul_words::{Cipher, Error};

use super::super::options::NetworkOptions;
use super::super::setup::{FlowLink, FlowSetup};
use crate::flows::flow_thread::WINDOW_MIN;
use crate::flows::packets::{CLEAR_EXTRA, FlowIdentity, Packets};
use crate::flows::secret::Secret;
use crate::paths::address_standing::grants_of;
use crate::paths::peer_address::PeerAddress;

/// The UDP payload of a first datagram, which every path passes; larger ones are found by probing.
const PAYLOAD_FIRST: u16 = 1200;
/// IP packets of 1500 and 9000 bytes, with IPv6's header and with IPv4's.
const PAYLOAD_PROBES: [u16; 4] = [1452, 1472, 8952, 8972];
/// On a stream a packet is a record; long records cost less.
const PAYLOAD_STREAM: u16 = 60 << 10;
/// The most streams at once.
pub(super) const STREAMS_MAX: u64 = 16;

/// The purpose of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowPurpose {
    First,
    /// A stream carrier that is used only if nothing else is left.
    StandBy,
    Spare,
}

/// The blocks that a flow may have in memory, and beside it in the overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlowWindow {
    pub(super) here: u64,
    pub(super) beside: u64,
}

/// What the flows of a session have in common.
pub(super) struct FlowFactory {
    pub(super) master: Secret,
    pub(super) is_initiator: bool,
    /// The source address of the client's handshake, if it is known.
    pub(super) shown: Option<IpAddr>,
    /// The number of flows that the session began with.
    pub(super) flow_count: u16,
    /// The window of a flow on UDP.
    pub(super) window: FlowWindow,
    /// The credit that is kept for urgent blocks.
    pub(super) urgent_reserve: u32,
}

/// The parts of a flow before its thread begins.
pub(super) struct FlowParts {
    pub(super) packets: Packets,
    pub(super) link: Box<dyn Link>,
    pub(super) peer: PeerAddress,
    /// The congestion control of the TCP connection below a stream.
    pub(super) congestion: Option<String>,
}

impl FlowFactory {
    /// Makes keys and link of a flow.
    pub(super) fn make(&self, setup: FlowSetup, options: &NetworkOptions) -> Result<FlowParts, Error> {
        let identity = FlowIdentity {
            index: setup.index,
            send_id: setup.send_id,
            recv_id: setup.recv_id,
            is_initiator: self.is_initiator,
        };
        let packets = Packets::new(&self.master, &identity, options.cipher, options.testing.epoch_bits);
        let congestion = match &setup.link {
            FlowLink::Stream(stream) => stream.congestion().map(str::to_string),
            FlowLink::Udp { .. } | FlowLink::Accept { .. } => None,
        };
        let fault = options.testing.fault;
        let inject = move |link: Box<dyn Link>| -> Box<dyn Link> {
            match &fault {
                Some(fault) => Box::new(FaultLink::new(link, *fault)),
                None => link,
            }
        };
        let grants = grants_of(setup.index, self.flow_count);
        let (link, peer): (Box<dyn Link>, PeerAddress) = match setup.link {
            FlowLink::Udp { socket, candidates } => {
                let peer = match self.is_initiator {
                    true => PeerAddress::candidates(candidates),
                    false => PeerAddress::open(candidates, self.shown, grants),
                };
                (inject(Box::new(socket)), peer)
            }
            FlowLink::Accept { first, socket, clients } => {
                // Until the first authentic datagram there is nothing to receive from.
                let (silent, _) = memory_pair().map_err(Error::io("cannot make a link"))?;
                (Box::new(silent), PeerAddress::accepting(first, socket, clients, grants, Box::new(inject)))
            }
            FlowLink::Stream(stream) => (Box::new(stream), PeerAddress::Connected),
        };
        Ok(FlowParts { packets, link, peer, congestion })
    }

    /// The window of a flow. The stream that a session begins with gets half of a UDP flow's part; the others,
    /// as there is one already, divide the other half.
    pub(super) fn window_of(&self, is_stream: bool, part: FlowPurpose, has_stream: bool) -> FlowWindow {
        if !is_stream || part != FlowPurpose::StandBy {
            return self.window;
        }
        let most = self.window.here;
        let share = if has_stream { most / (2 * STREAMS_MAX) } else { most / 2 };
        let here = share.max(WINDOW_MIN).min(most);
        FlowWindow { here, beside: if here == most { self.window.beside } else { 0 } }
    }

    /// The most streams that this memory allows.
    pub(super) fn streams_max(&self) -> usize {
        (self.window.here / 2 / WINDOW_MIN).clamp(1, STREAMS_MAX) as usize
    }

    /// How the transport works for a flow; `seed` is for its random numbers.
    pub(super) fn config(&self, is_stream: bool, options: &NetworkOptions, seed: [u8; 32]) -> FlowConfig {
        let is_clear = options.cipher == Cipher::None;
        let extra = if is_clear { CLEAR_EXTRA as u16 } else { 0 };
        let sealed_multiple = if is_clear { 1 } else { CIPHER_BLOCK };
        let config = FlowConfig {
            sealed_multiple,
            // Blocks that wait in a slow flow cannot go by a fast one.
            blocks_in_advance: 2,
            urgent_reserve: self.urgent_reserve,
            seed,
            ..FlowConfig::default()
        };
        if is_stream {
            return FlowConfig { payload_max_initial: PAYLOAD_STREAM - extra, reliable: true, ..config };
        }
        // The user's limit is for the IP packet, whose header may be IPv6's.
        let limit = options.mtu.map_or(u16::MAX, |mtu| mtu.saturating_sub(48));
        let mut mtu_candidates: Vec<u16> =
            PAYLOAD_PROBES.iter().copied().filter(|&probe| probe < limit).collect();
        if limit > PAYLOAD_FIRST && limit != u16::MAX {
            mtu_candidates.push(limit);
        }
        for candidate in &mut mtu_candidates {
            *candidate -= extra;
        }
        FlowConfig { payload_max_initial: PAYLOAD_FIRST.min(limit) - extra, mtu_candidates, ..config }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factory(here: u64) -> FlowFactory {
        FlowFactory {
            master: Secret::zeros(),
            is_initiator: true,
            shown: None,
            flow_count: 2,
            window: FlowWindow { here, beside: 7 * here },
            urgent_reserve: 0,
        }
    }

    #[test]
    fn streams_beside_udp_divide_one_window() {
        let most = 1024;
        let (factory, first) = (factory(most), FlowWindow { here: most, beside: 7 * most });
        assert_eq!(factory.window_of(false, FlowPurpose::Spare, true), first);
        assert_eq!(factory.window_of(true, FlowPurpose::First, false), first);
        let stand_by = |has_stream| factory.window_of(true, FlowPurpose::StandBy, has_stream);
        assert_eq!(stand_by(false), FlowWindow { here: most / 2, beside: 0 });
        assert_eq!(stand_by(true), FlowWindow { here: most / 32, beside: 0 });
        assert_eq!(factory.streams_max() as u64, STREAMS_MAX);
    }

    #[test]
    fn a_small_memory_still_has_room_for_one_stream() {
        let factory = factory(WINDOW_MIN);
        assert_eq!(factory.streams_max(), 1);
        let window = factory.window_of(true, FlowPurpose::StandBy, true);
        assert_eq!(window, FlowWindow { here: WINDOW_MIN, beside: 7 * WINDOW_MIN });
    }

    #[test]
    fn packets_keep_within_the_users_limit() {
        let factory = factory(64);
        let of = |mtu, cipher| {
            let options = NetworkOptions { mtu, cipher, ..NetworkOptions::default() };
            let config = factory.config(false, &options, [0; 32]);
            (config.payload_max_initial, config.mtu_candidates)
        };
        let cipher = NetworkOptions::default().cipher;
        assert_eq!(of(None, cipher), (1200, vec![1452, 1472, 8952, 8972]));
        assert_eq!(of(Some(1500), cipher), (1200, vec![1452]));
        assert_eq!(of(Some(1600), cipher), (1200, vec![1452, 1472, 1552]));
        assert_eq!(of(Some(1000), cipher), (952, vec![]));
        let extra = CLEAR_EXTRA as u16;
        assert_eq!(of(Some(1500), Cipher::None), (1200 - extra, vec![1452 - extra]));
    }
}
