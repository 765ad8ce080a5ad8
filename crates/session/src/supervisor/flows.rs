//! Opens a flow of a session: gives it its keys, its link, its place, its window and its thread.

use std::sync::atomic::Ordering;

use farhaul_handover::Held as _;
use farhaul_net::{FaultLink, Link, memory_pair};
use farhaul_proto::{CIPHER_BLOCK, Flow, FlowConfig};

use super::super::address_standing::grants_of;
use super::super::budget::Resource;
use super::super::flow_thread;
use super::super::flow_thread::FlowThread;
use super::super::options::Cipher;
use super::super::packets::{CLEAR_EXTRA, FlowIdentity, Packets};
use super::super::peer_address::PeerAddress;
use super::super::setup::{FlowLink, FlowSetup};
use super::super::shared_state::{FlowPlace, FlowShared, FlowState};
use super::super::supervisor::{FlowPurpose, Supervisor};
use crate::error::{Error, Misbehaviour};

/// The UDP payload of a first datagram, which every path passes; larger ones are found by probing.
const PAYLOAD_FIRST: u16 = 1200;
/// IP packets of 1500 and 9000 bytes, with IPv6's header and with IPv4's.
const PAYLOAD_PROBES: [u16; 4] = [1452, 1472, 8952, 8972];
/// On a stream a packet is a record; long records cost less.
const PAYLOAD_STREAM: u16 = 60 << 10;

impl Supervisor {
    pub(super) fn open_flow(&mut self, setup: FlowSetup, part: FlowPurpose) -> Result<(), Error> {
        // The list also has flows that have ended.
        if self.shared.flow_list().iter().any(|flow| flow.index == setup.index) {
            return Err(Error::misbehaved(
                Misbehaviour::FlowIndexTwice,
                format!("it used the flow index {} twice", setup.index),
            ));
        }
        let identity = FlowIdentity {
            index: setup.index,
            send_id: setup.send_id,
            recv_id: setup.recv_id,
            is_initiator: self.shared.is_initiator,
        };
        let packets =
            Packets::new(&self.master, &identity, self.options.cipher, self.options.testing.epoch_bits);
        let is_stream = matches!(setup.link, FlowLink::Stream(_));
        let congestion = match &setup.link {
            FlowLink::Stream(stream) => stream.congestion().map(str::to_string),
            FlowLink::Udp { .. } | FlowLink::Accept { .. } => None,
        };
        let fault = self.options.testing.fault;
        let inject = move |link: Box<dyn Link>| -> Box<dyn Link> {
            match &fault {
                Some(fault) => Box::new(FaultLink::new(link, *fault)),
                None => link,
            }
        };
        let grants = grants_of(setup.index, self.flow_count);
        let (link, peer): (Box<dyn Link>, PeerAddress) = match setup.link {
            FlowLink::Udp { socket, candidates } => {
                let peer = match self.shared.is_initiator {
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
        let config = self.flow_config(is_stream)?;
        let path = if is_stream { 0 } else { self.further.path_of(setup.index) };
        let place = FlowPlace {
            index: setup.index,
            path,
            is_stream,
            is_spare: part == FlowPurpose::Spare,
            active: match part {
                FlowPurpose::StandBy => self.streams.is_said_to_be_used(setup.index),
                FlowPurpose::First | FlowPurpose::Spare => is_stream || self.is_carrying(path),
            },
            congestion,
            begun_ms: self.shared.elapsed().as_millis() as u64,
        };
        let window_max = match is_stream && part == FlowPurpose::StandBy {
            true => self.stream_window(),
            false => self.window_max,
        };
        let own = FlowShared::new(place).map_err(Error::io("cannot make a waker"))?;
        if is_stream {
            own.ceiling_ppm.store(self.first_share(part), Ordering::Relaxed);
        }
        let shared = self.shared.clone();
        let thread = FlowThread {
            link,
            flow: Flow::new(config, shared.now()),
            packets,
            peer,
            shared: shared.clone(),
            own: own.clone(),
            window_max,
            beside_max: if window_max == self.window_max { self.beside_max } else { 0 },
        };
        shared.flows.lock().in_any_case().push(own.clone());
        let is_sender = self.is_sender;
        let charge = shared.budget.charge_of(Resource::Threads, 1)?;
        let thread = std::thread::Builder::new()
            .name(format!("flow-{}", setup.index))
            .spawn(move || {
                let _charge = charge;
                shared.work(|| flow_thread::run(thread, is_sender));
                // Also after a panic, in which the flow could not say so itself.
                own.set_state(FlowState::Down);
                shared.control.notify();
            })
            .map_err(Error::no_thread)?;
        self.threads.push(thread);
        Ok(())
    }

    fn flow_config(&self, is_stream: bool) -> Result<FlowConfig, Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(Error::no_random_numbers)?;
        let is_clear = self.options.cipher == Cipher::None;
        let extra = if is_clear { CLEAR_EXTRA as u16 } else { 0 };
        let sealed_multiple = if is_clear { 1 } else { CIPHER_BLOCK };
        if is_stream {
            let payload_max_initial = PAYLOAD_STREAM - extra;
            return Ok(FlowConfig {
                payload_max_initial,
                sealed_multiple,
                reliable: true,
                // Blocks that wait in a slow connection cannot go by a fast one.
                blocks_in_advance: 2,
                urgent_reserve: self.urgent_reserve,
                seed,
                ..FlowConfig::default()
            });
        }
        // The user's limit is for the IP packet, whose header may be IPv6's.
        let limit = self.options.mtu.map_or(u16::MAX, |mtu| mtu.saturating_sub(48));
        let mut mtu_candidates: Vec<u16> =
            PAYLOAD_PROBES.iter().copied().filter(|&probe| probe < limit).collect();
        if limit > PAYLOAD_FIRST && limit != u16::MAX {
            mtu_candidates.push(limit);
        }
        for candidate in &mut mtu_candidates {
            *candidate -= extra;
        }
        let payload_max_initial = PAYLOAD_FIRST.min(limit) - extra;
        Ok(FlowConfig {
            payload_max_initial,
            mtu_candidates,
            sealed_multiple,
            // Blocks that wait in a slow flow cannot go by a fast one.
            blocks_in_advance: 2,
            urgent_reserve: self.urgent_reserve,
            seed,
            ..FlowConfig::default()
        })
    }
}
