//! How a session begins: how its memory is divided, the controllers of its paths, and its first flows.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_blocks::BlockPool;
use farhaul_net::Link as _;
use farhaul_proto::{Controller, RateConfig};

use super::super::BLOCK_BYTES;
use super::super::carrier::Carrier;
use super::super::events::Event;
use super::super::flow_thread::FILLING_MAX;
use super::super::handle::Handle;
use super::super::messages::{MessageInbox, SessionMessage};
use super::super::path_memory::{PathKnowledge, says_what_a_path_carries};
use super::super::placement::Placement;
use super::super::request::FIRST;
use super::super::setup::{CarrierFallback, FlowLink, Setup, SpareFlow, Transport};
use super::super::shared_state::{BLOCKS_MIN, FILLED_MAX, SessionAllowance, SessionShared};
use super::super::supervisor::{ContentRole, DeliveryOrder, FlowPurpose, Supervisor};
use super::further_paths::FurtherPaths;
use super::memory::OVERFLOW;
use super::rate;
use super::rate::part_of;
use super::status::LimitHistory;
use super::stream_carrier::StreamCarrier;
use crate::budget::{address_space_hint, mapped_bytes_max};
use crate::error::Error;
use crate::options;
use crate::options::NetworkOptions;

impl Supervisor {
    /// Starts the flows of a session.
    pub fn start(
        setup: Setup,
        options: NetworkOptions,
        role: ContentRole,
        order: DeliveryOrder,
        handle: &Handle,
    ) -> Result<Supervisor, Error> {
        // Before anything allocates blocks or starts threads.
        let placement = Placement::new(&setup.flows);
        // With a daemon reached over TCP, the UDP flows wait for their paths.
        let waiting = if setup.spares.is_empty() { 0 } else { options.flow_count() };
        let flow_count = waiting.max(setup.flows.len());
        let flows = flow_count as u64;
        let first_paths = if waiting > 0 { options.path_count() } else { 1 };
        let is_udp = setup.transport == Transport::Udp;
        let further = FurtherPaths::new(setup.reserved, first_paths, &options);
        let paths = first_paths + further.count();
        let shares = flows + (further.count() * usize::from(options.flows)) as u64;
        // Blocks that the budget will never have room for need no tables either.
        let no_memory = |source| Error::io("no memory for blocks")(source).with_hint_if(address_space_hint());
        let mapped_max = mapped_bytes_max().ok_or_else(|| no_memory(ErrorKind::OutOfMemory.into()))?;
        let memory_bytes = options.memory_bytes.min(setup.budget.memory_max()).min(mapped_max);
        let window_max = (memory_bytes / BLOCK_BYTES as u64 / shares).max(4);
        let outgoing_blocks = window_max * shares + FILLED_MAX as u64;
        // One share more than the flows need, for the stream carrier that may take over from them.
        let incoming_blocks = window_max * (shares + 1);
        let keeps_blocks = order == DeliveryOrder::Kept && role == ContentRole::Receiver;
        let beside_max = if keeps_blocks { 0 } else { OVERFLOW * window_max };
        let overflow_blocks = (beside_max + FILLING_MAX) * shares;
        let overflow_blocks = u32::try_from(overflow_blocks).unwrap_or(u32::MAX);
        let pool = |blocks: u64| BlockPool::new(blocks as usize, BLOCK_BYTES).map_err(no_memory);
        let (pool, incoming) = (pool(outgoing_blocks)?, pool(incoming_blocks)?);
        let queue_bytes_max = setup.flows.iter().map(|flow| receive_buffer(&flow.link)).min().flatten();
        let rate_wish = options.rate_options();
        let (rate, rate_watch) = rate::begin(&setup.rate_shares, setup.transport, rate_wish);
        let memories: Vec<PathKnowledge> = match role == ContentRole::Sender && says_what_a_path_carries(rate)
        {
            true => {
                (0..first_paths).map(|path| PathKnowledge::new(&setup.flows, path, first_paths)).collect()
            }
            false => Vec::new(),
        };
        let controllers = (0..paths).map(|path| {
            Controller::new(RateConfig {
                policy: rate.policy,
                rate_bps: part_of(rate.rate_bps, first_paths),
                floor_bps: part_of(rate.rate_min_bps, first_paths),
                queue_bytes_max,
                remembered: memories.get(path).and_then(PathKnowledge::recall),
            })
        });
        // Further blocks are opened when they are needed, if the budget allows.
        pool.open_to(BLOCKS_MIN);
        let shared = SessionShared::new(
            setup.is_initiator,
            controllers.collect(),
            pool,
            incoming,
            overflow_blocks,
            handle.clone(),
            SessionAllowance { budget: setup.budget, rate_shares: setup.rate_shares },
        );
        // Both directions are open before the first block can come.
        shared.requests.add(&shared, FIRST, handle.clone());
        shared.allow(role);
        rate::follow(&shared);
        let control_kept = shared.budget.nothing();
        shared.is_markable.store(options.policy != options::Policy::Fixed, Ordering::Release);
        shared.absent_paths.store(further.all_bits(), Ordering::Release);
        shared.cpu.enter();
        let carrier = Carrier::from(setup.transport);
        let stream_carrier = match &setup.fallback {
            CarrierFallback::Ready(_) => Carrier::Ssh,
            _ if matches!(setup.transport, Transport::Ssh | Transport::Local) => carrier,
            CarrierFallback::None
            | CarrierFallback::Dial(_)
            | CarrierFallback::Await(_)
            | CarrierFallback::Listen(_) => Carrier::Tcp,
        };
        let is_first = |spare: &SpareFlow| !is_udp && usize::from(spare.index) < flow_count;
        let (due_spares, spares) = setup.spares.into_iter().partition(is_first);
        let mut supervisor = Supervisor {
            shared,
            is_sender: role == ContentRole::Sender,
            master: setup.master,
            inbox: MessageInbox::default(),
            is_behind: false,
            next_check: Instant::now(),
            was_up: false,
            judged: LimitHistory::new(),
            threads: Vec::new(),
            fallback: setup.fallback,
            last_dial: None,
            dial_failed: None,
            dialing: Vec::new(),
            streams: StreamCarrier::new(),
            taken_up: None,
            channel: None,
            blocked: setup.blocked,
            window_max,
            beside_max,
            urgent_reserve: setup.urgent_reserve,
            carrier,
            stream_carrier,
            peer: setup.peer,
            shown: setup.shown.map(|ip| ip.to_canonical()),
            udp_ports: setup.udp_ports,
            warnings: setup.warnings,
            memories,
            spares,
            due_spares,
            further,
            dead_paths: Vec::new(),
            rate_wish,
            rate,
            rate_taken: rate_wish,
            rate_watch,
            unused_paths: 0,
            short_buffer_said: false,
            control_kept,
            flow_count: flow_count as u16,
            stop: setup.stop,
            cancelled_at: None,
            pending: setup.pending,
            _keeps: setup.keeps,
            control_process: setup.control_process,
            placement,
            options,
        };
        let first_index = setup.flows.first().map(|flow| flow.index);
        for flow in setup.flows {
            supervisor.open_flow(flow, FlowPurpose::First)?;
        }
        // The ssh channel is watched from the start: it shows when the far end ends, and is ready if UDP
        // fails.
        if matches!(supervisor.fallback, CarrierFallback::Ready(_))
            && let Some(flow) = supervisor.fallback.open()?
        {
            supervisor.channel = Some(flow.index);
            supervisor.open_flow(flow, FlowPurpose::StandBy)?;
        } else if matches!(setup.transport, Transport::Ssh | Transport::Local) {
            supervisor.channel = first_index;
        }
        if supervisor.channel.is_some() {
            supervisor.fallback = setup.direct;
        }
        if supervisor.shared.is_initiator {
            supervisor.shared.say(&[SessionMessage::Start]);
        }
        if role == ContentRole::Receiver {
            supervisor.warm_blocks();
            supervisor.correct_rate();
        }
        supervisor.publish_facts();
        if let Some(choice) = supervisor.cpu_choice() {
            handle.tell(Event::Placed(choice.clone()));
            tracing::debug!("a transfer runs on {choice}");
        }
        for warning in &supervisor.warnings {
            handle.tell(Event::warning(warning));
        }
        Ok(supervisor)
    }

    /// Touches the blocks for arriving data ahead of their use. A flow thread that waits for new memory does
    /// not receive; on a long path blocks are first used at a growing rate, each stays open until its lost
    /// parts have come again, and the socket's buffer would overflow.
    fn warm_blocks(&mut self) {
        let shared = self.shared.clone();
        let warm = move || shared.work(|| while shared.incoming.warm_next() {});
        let thread = std::thread::Builder::new().name("memory".into()).spawn(warm);
        // If the thread cannot be started, the transfer begins more slowly, and that is all.
        self.threads.extend(thread);
    }
}

fn receive_buffer(link: &FlowLink) -> Option<u64> {
    match link {
        FlowLink::Udp { socket, .. } => Some(socket.capabilities().recv_buffer_bytes as u64),
        // The session's own socket is made later, and gets the buffer that the listening socket asks for.
        FlowLink::Accept { .. } | FlowLink::Stream(_) => None,
    }
}
