//! How a session begins: how its memory is divided, the controllers of its paths, and its first flows.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_blocks::BlockPool;
use farhaul_net::Link as _;
use farhaul_proto::{Controller, RateConfig};
use farhaul_words::{Error, Event, Policy, address_space_hint};

use super::super::BLOCK_BYTES;
use super::super::budget::mapped_bytes_max;
use super::super::content_role::{ContentRole, DeliveryOrder};
use super::super::messages::{MessageInbox, SessionMessage};
use super::super::options::{NetworkOptions, RateOptions};
use super::super::placement::Placement;
use super::super::setup::{CarrierFallback, FlowLink, FlowSetup, Setup, SpareFlow, Transport};
use super::super::shared_state::{BLOCKS_MIN, SessionAllowance, SessionShared};
use super::super::supervisor::Supervisor;
use super::carrier_set::{CarrierSet, is_channel_from_start};
use super::flow_factory::{FlowFactory, FlowPurpose};
use super::limit_history::LimitHistory;
use super::path_set::{FurtherPaths, PathSet};
use super::rate;
use super::rate_follower::{RateFollower, part_of};
use super::start_plan::{StartFacts, StartPlan};
use super::stream_carrier::StreamCarrier;
use crate::paths::path_memory::{PathKnowledge, says_what_a_path_carries};
use crate::requests::handle::Handle;
use crate::requests::request_state::FIRST;

impl Supervisor {
    /// Starts the flows of a session.
    pub(crate) fn start(
        mut setup: Setup,
        options: NetworkOptions,
        role: ContentRole,
        order: DeliveryOrder,
        handle: &Handle,
    ) -> Result<Supervisor, Error> {
        // Before anything allocates blocks or starts threads.
        let placement = Placement::new(&setup.flows);
        let rates = begin_rates(&setup, &options);
        let (plan, further, (outgoing, incoming)) = plan(&mut setup, &options, role, order)?;
        let memories = match role == ContentRole::Sender && says_what_a_path_carries(rates.rate()) {
            true => (0..plan.first_paths)
                .map(|path| PathKnowledge::new(&setup.flows, path, plan.first_paths))
                .collect(),
            false => Vec::new(),
        };
        let shared = SessionShared::new(
            setup.is_initiator,
            controllers(&plan, rates.rate(), &memories, &setup.flows),
            outgoing,
            incoming,
            plan.overflow_blocks,
            handle.clone(),
            SessionAllowance { budget: setup.budget, rate_shares: setup.rate_shares },
        );
        // Both directions are open before the first block can come.
        shared.add_request(FIRST, handle.clone());
        shared.allow(role);
        rate::follow(&shared);
        shared.is_markable.store(options.policy != Policy::Fixed, Ordering::Release);
        shared.absent_paths.store(further.all_bits(), Ordering::Release);
        shared.cpu.enter();
        let is_udp = setup.transport == Transport::Udp;
        let is_due = |spare: &SpareFlow| !is_udp && spare.index < plan.flow_count;
        let mut supervisor = Supervisor {
            is_sender: role == ContentRole::Sender,
            inbox: MessageInbox::default(),
            is_behind: false,
            next_check: Instant::now(),
            was_up: false,
            judged: LimitHistory::new(),
            threads: Vec::new(),
            rates,
            paths: PathSet::new(further, plan.flow_count, setup.spares, is_due, memories),
            carriers: CarrierSet::new(setup.transport, setup.fallback, setup.blocked, setup.udp_ports),
            streams: StreamCarrier::new(),
            factory: FlowFactory {
                master: setup.master,
                is_initiator: setup.is_initiator,
                shown: setup.shown.map(|ip| ip.to_canonical()),
                flow_count: plan.flow_count,
                window: plan.window,
                urgent_reserve: setup.urgent_reserve,
            },
            peer: setup.peer,
            warnings: setup.warnings,
            short_buffer_said: false,
            control_kept: shared.budget.nothing(),
            stop: setup.stop,
            cancelled_at: None,
            pending: setup.pending,
            _keeps: setup.keeps,
            control_process: setup.control_process,
            placement,
            shared,
            options,
        };
        supervisor.open_first_flows(setup.flows, setup.transport, setup.direct)?;
        supervisor.say_first_words(role, handle);
        Ok(supervisor)
    }

    /// Opens the flows that the session begins with. The channel is watched from the start: it shows when
    /// the far end ends, and is ready if UDP fails.
    fn open_first_flows(
        &mut self,
        flows: Vec<FlowSetup>,
        transport: Transport,
        direct: CarrierFallback,
    ) -> Result<(), Error> {
        let first_index = flows.first().map(|flow| flow.index);
        for flow in flows {
            self.open_flow(flow, FlowPurpose::First)?;
        }
        if let Some(flow) = self.carriers.take_ready()? {
            self.carriers.set_channel(flow.index, direct);
            self.open_flow(flow, FlowPurpose::StandBy)?;
        } else if let Some(index) = first_index.filter(|_| is_channel_from_start(transport)) {
            self.carriers.set_channel(index, direct);
        }
        Ok(())
    }

    /// Tells the peer and the user that the session has begun.
    fn say_first_words(&mut self, role: ContentRole, handle: &Handle) {
        if self.shared.is_initiator {
            self.shared.say(&[SessionMessage::Start]);
        }
        if role == ContentRole::Receiver {
            self.warm_blocks();
            self.correct_rate();
        }
        self.publish_facts();
        if let Some(choice) = self.cpu_choice() {
            handle.tell(Event::Placed(choice.clone()));
            tracing::debug!("a transfer runs on {choice}");
        }
        for warning in &self.warnings {
            handle.tell(Event::warning(warning));
        }
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

/// The rate with which the session begins: what the user wants, within its part of its caps.
fn begin_rates(setup: &Setup, options: &NetworkOptions) -> RateFollower {
    let mut rates = RateFollower::new(setup.transport, options.rate_options());
    if rates.wish_bps().is_some() {
        setup.rate_shares.set_wish(rates.wish_bps());
    }
    rates.begin(setup.rate_shares.part());
    rates
}

/// The plan of the session, the paths that may be added, and the memory for its blocks.
fn plan(
    setup: &mut Setup,
    options: &NetworkOptions,
    role: ContentRole,
    order: DeliveryOrder,
) -> Result<(StartPlan, FurtherPaths, (BlockPool, BlockPool)), Error> {
    let waiting = (!setup.spares.is_empty()).then(|| (options.flow_count(), options.path_count()));
    let first_paths = waiting.map_or(1, |(_, paths)| paths);
    let further = FurtherPaths::new(std::mem::take(&mut setup.reserved), first_paths, options);
    // Blocks that the budget will never have room for need no tables either.
    let no_memory = |source| Error::io("no memory for blocks")(source).with_hint_if(address_space_hint());
    let mapped_max = mapped_bytes_max().ok_or_else(|| no_memory(ErrorKind::OutOfMemory.into()))?;
    let plan = StartPlan::new(StartFacts {
        flows: setup.flows.len(),
        waiting,
        further_paths: further.count(),
        flows_of_path: options.flows,
        memory_bytes: options.memory_bytes.min(setup.budget.memory_max()).min(mapped_max),
        keeps_blocks: order == DeliveryOrder::Kept && role == ContentRole::Receiver,
    });
    let pool = |blocks: usize| BlockPool::new(blocks, BLOCK_BYTES).map_err(no_memory);
    let (outgoing, incoming) = (pool(plan.outgoing_blocks)?, pool(plan.incoming_blocks)?);
    // Further blocks are opened when they are needed, if the budget allows.
    outgoing.open_to(BLOCKS_MIN);
    Ok((plan, further, (outgoing, incoming)))
}

/// One controller for each path, with those that may be added.
fn controllers(
    plan: &StartPlan,
    rate: RateOptions,
    memories: &[PathKnowledge],
    flows: &[FlowSetup],
) -> Vec<Controller> {
    let queue_bytes_max = flows.iter().map(|flow| receive_buffer(&flow.link)).min().flatten();
    let controller = |path: usize| {
        Controller::new(RateConfig {
            policy: rate.policy,
            rate_bps: part_of(rate.rate_bps, plan.first_paths),
            floor_bps: part_of(rate.rate_min_bps, plan.first_paths),
            queue_bytes_max,
            remembered: memories.get(path).and_then(PathKnowledge::recall),
        })
    };
    (0..plan.paths).map(controller).collect()
}

fn receive_buffer(link: &FlowLink) -> Option<u64> {
    match link {
        FlowLink::Udp { socket, .. } => Some(socket.capabilities().recv_buffer_bytes as u64),
        // The session's own socket is made later, and gets the buffer that the listening socket asks for.
        FlowLink::Accept { .. } | FlowLink::Stream(_) => None,
    }
}
