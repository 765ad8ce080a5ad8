//! Virtual time: runs what happens next, until the scenario is over.
//!
//! Always true: only nodes have turns; everything else is computed when a packet enters a link. After its
//! turn a node waits for the next one, as a thread does behind interrupt moderation. So packets reach it in
//! batches whose arrival times it cannot tell apart.

use crate::cross_traffic::{ActiveTransfer, CrossKind, CrossTraffic};
use crate::endpoint::Endpoint;
use crate::link::{SimLink, SimLinkStats};
use crate::mix::{BlockFate, MixConfig};
use crate::packet::{PacketContent, PacketInbox, SimPacket};
use crate::result::{ScenarioResult, SenderResult};
use crate::scenario::{Rival, RivalKind, Scenario, TransferSetup};
use crate::tcp::{PAYLOAD, TcpReceiver, TcpSender, WIRE};
use crate::trace::{SenderSample, Trace, TraceSample};
use farhaul_motion::{LinkDirection, SplitMix64};
use farhaul_proto::Timestamp;

enum SimNode {
    Ours(Box<Endpoint>),
    TcpSender(TcpSender),
    TcpReceiver(TcpReceiver),
}

/// A node, and what keeps it from running all the time.
struct SimHost {
    node: SimNode,
    inbox: PacketInbox,
    way: LinkDirection,
    /// The delay of this host beyond the link's, each way.
    extra_delay_ns: u64,
    starts_at: u64,
    /// From then on it sends nothing.
    stops_at: u64,
    timer: Option<u64>,
    /// The next turn does not begin before this time.
    rests_until: u64,
    random: SplitMix64,
    dropped: u64,
}

impl SimHost {
    fn next_turn(&self) -> Option<u64> {
        let next = [self.timer, self.inbox.next_at()].into_iter().flatten().min()?;
        Some(next.max(self.rests_until).max(self.starts_at))
    }
}

/// Counts as they were when the measured time began.
#[derive(Debug, Clone, Copy, Default)]
struct Baseline {
    at: u64,
    link: SimLinkStats,
    dropped: u64,
}

/// Unique payload bytes that have arrived at a receiver, by time.
#[derive(Debug, Default)]
struct GoodputBins {
    counts: Vec<u64>,
    before: u64,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    seed: u64,
    now: u64,
    /// Senders have even indices, and their receivers follow them. The pairs with names come first; the pairs
    /// of short transfers follow.
    hosts: Vec<SimHost>,
    /// When each host has its next turn, or `u64::MAX` for never. Kept apart, as all are compared before each
    /// turn.
    turns: Vec<u64>,
    names: Vec<String>,
    cross: Option<CrossTraffic>,
    bins: Vec<GoodputBins>,
    links: [SimLink; 2],
    /// An extra link behind the forward one, which only the first flow of the first transfer uses.
    odd_link: Option<(Scenario, SimLink)>,
    /// Changes of the path to come, the next one last.
    changes: Vec<crate::scenario::PathChange>,
    measured_from: Option<Baseline>,
    trace: Trace,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let odd_link = scenario.odd_link().map(|odd| {
            let link = SimLink::new(LinkDirection::Forward, &odd, seed + 7);
            (odd, link)
        });
        let mut world = World {
            scenario,
            seed,
            now: 0,
            hosts: Vec::new(),
            turns: Vec::new(),
            names: Vec::new(),
            cross: scenario.cross.map(|cross| CrossTraffic::new(cross, scenario.rate_bps, seed)),
            bins: Vec::new(),
            links: [
                SimLink::new(LinkDirection::Forward, scenario, seed),
                SimLink::new(LinkDirection::Back, scenario, seed),
            ],
            odd_link,
            changes: scenario.changes.clone(),
            measured_from: None,
            trace: Trace::new(scenario.trace_ms),
        };
        world.changes.sort_by(|one, other| other.at_s.total_cmp(&one.at_s));
        let blocks = match (scenario.ours, scenario.seconds > 0.0) {
            (false, _) => 0,
            (true, true) if scenario.blocks > 0 => u64::MAX,
            (true, true) => 0,
            (true, false) => scenario.blocks,
        };
        world.add_transfer("ours", &scenario.transfer(), blocks, scenario.control_bytes, 0.0, 1.0);
        for rival in &scenario.rivals {
            world.add_rival(rival);
        }
        world
    }

    fn add_rival(&mut self, rival: &Rival) {
        let seed = self.seed * 77 + self.hosts.len() as u64;
        match rival.kind {
            RivalKind::Ours(policy) => {
                let transfer = TransferSetup { policy, flows: rival.flows, ..TransferSetup::default() };
                self.add_transfer(
                    &rival.to_string(),
                    &transfer,
                    u64::MAX,
                    0,
                    rival.start_s,
                    rival.rtt_factor,
                );
            }
            RivalKind::Cubic | RivalKind::Bbr => {
                let sender =
                    if rival.kind == RivalKind::Cubic { TcpSender::cubic() } else { TcpSender::bbr(seed) };
                let nodes = [SimNode::TcpSender(sender), SimNode::TcpReceiver(TcpReceiver::default())];
                self.add_pair(&rival.to_string(), nodes, rival.start_s, rival.rtt_factor);
            }
        }
        if let Some(stop_s) = rival.stop_s {
            let sender = self.hosts.len() - 2;
            self.hosts[sender].stops_at = (stop_s * 1e9) as u64;
        }
    }

    fn add_transfer(
        &mut self,
        name: &str,
        transfer: &TransferSetup,
        blocks: u64,
        control_bytes: u64,
        start_s: f64,
        rtt_factor: f64,
    ) {
        let start = Timestamp::from_nanos((start_s * 1e9) as u64);
        let seed = self.seed * 2 + 1000 * self.hosts.len() as u64;
        let end = |way: u64, blocks| {
            let mix = MixConfig { is_sender: way == 0 && transfer.mix.is_sender, ..transfer.mix };
            let transfer = TransferSetup { mix, ..*transfer };
            let end = Endpoint::new(self.scenario, &transfer, seed + way, blocks, control_bytes, start);
            SimNode::Ours(Box::new(end))
        };
        let nodes = [end(0, blocks), end(1, 0)];
        self.add_pair(name, nodes, start_s, rtt_factor);
    }

    fn add_pair(&mut self, name: &str, nodes: [SimNode; 2], start_s: f64, rtt_factor: f64) {
        let extra = self.scenario.rtt_ms * 1e6 / 2.0 * (rtt_factor - 1.0).max(0.0);
        let hosts = self.pair(self.hosts.len(), nodes, (start_s * 1e9) as u64, extra as u64);
        self.hosts.extend(hosts);
        self.note_turns(self.names.len());
        self.names.push(name.to_owned());
        self.bins.push(GoodputBins::default());
    }

    /// A sender and a receiver for the indices from `index` on.
    fn pair(&self, index: usize, nodes: [SimNode; 2], starts_at: u64, extra_delay_ns: u64) -> [SimHost; 2] {
        let [sender, receiver] = nodes;
        [(sender, LinkDirection::Forward, index), (receiver, LinkDirection::Back, index + 1)].map(
            |(node, way, index)| SimHost {
                timer: if matches!(node, SimNode::TcpReceiver(_)) { None } else { Some(starts_at) },
                node,
                inbox: PacketInbox::default(),
                way,
                extra_delay_ns,
                starts_at,
                stops_at: u64::MAX,
                rests_until: 0,
                random: SplitMix64::new(self.seed * 1000 + index as u64),
                dropped: 0,
            },
        )
    }

    /// Begins a short transfer on the first free pair of hosts. Its connection is established after a round
    /// trip.
    fn begin_short(&mut self) {
        let (named, began_ns) = (self.names.len(), self.now);
        let Some(cross) = &mut self.cross else { return };
        let segments = cross.arrivals.take();
        let pair = cross.pairs.iter().position(Option::is_none).unwrap_or_else(|| {
            cross.pairs.push(None);
            cross.pairs.len() - 1
        });
        cross.pairs[pair] = Some(ActiveTransfer { began_ns, segments });
        let sender = match cross.kind {
            CrossKind::Cubic => TcpSender::cubic(),
            CrossKind::Bbr => TcpSender::bbr(self.seed ^ began_ns),
        };
        let index = 2 * (named + pair);
        let nodes =
            [SimNode::TcpSender(sender.with_end(segments)), SimNode::TcpReceiver(TcpReceiver::default())];
        let starts_at = began_ns + (self.scenario.rtt_ms * 1e6) as u64;
        let hosts = self.pair(index, nodes, starts_at, 0);
        let replaced = index..(index + 2).min(self.hosts.len());
        self.hosts.splice(replaced, hosts);
        self.note_turns(named + pair);
    }

    /// Ends a short transfer whose last segment has arrived. Packets that its hosts still exchange are
    /// dropped.
    fn end_short(&mut self, receiver: usize) {
        let Some(pair) = (receiver / 2).checked_sub(self.names.len()) else { return };
        let SimNode::TcpReceiver(node) = &self.hosts[receiver].node else { return };
        let received = node.received;
        if self.cross.as_mut().is_some_and(|cross| cross.end_if_whole(pair, received, self.now)) {
            for host in &mut self.hosts[receiver - 1..=receiver] {
                (host.timer, host.inbox) = (None, PacketInbox::default());
            }
        }
    }

    pub(crate) fn run(mut self) -> ScenarioResult {
        let patience =
            if self.scenario.seconds > 0.0 { self.scenario.seconds } else { self.scenario.patience_s };
        let limit = (patience * 1e9) as u64;
        while !self.is_done() {
            let at = self.turns.iter().copied().min().unwrap_or(u64::MAX);
            let comes = self.cross.as_ref().map(|cross| cross.arrivals.next_at());
            if let Some(comes) = comes.filter(|comes| *comes <= at && *comes < limit) {
                self.now = self.now.max(comes);
                self.begin_short();
                continue;
            }
            let index = self.turns.iter().position(|turn| *turn == at && at < u64::MAX);
            let index = index.expect("an unfinished transfer always has something to wait for");
            if at >= limit && self.scenario.seconds > 0.0 {
                self.now = limit;
                break;
            }
            self.now = self.now.max(at);
            assert!(self.now < limit, "the scenario has not ended after {patience} s: {}", self.describe());
            self.change_path();
            self.sample();
            self.turn(index);
            self.note_turns(index / 2);
        }
        self.end()
    }

    /// Updates the next turns of a pair. Its packets only reach its own two hosts, so no other turn changes.
    fn note_turns(&mut self, pair: usize) {
        let pair = 2 * pair..2 * pair + 2;
        self.turns.resize(self.hosts.len(), u64::MAX);
        for (turn, host) in self.turns[pair.clone()].iter_mut().zip(&self.hosts[pair]) {
            *turn = host.next_turn().unwrap_or(u64::MAX);
        }
    }

    fn change_path(&mut self) {
        while let Some(change) = self.changes.last().filter(|change| change.at_s * 1e9 <= self.now as f64) {
            for link in &mut self.links {
                link.change(self.now, change.rate_bps, change.rtt_ms, change.loss);
            }
            self.changes.pop();
        }
    }

    fn main_ends(&self) -> (&Endpoint, &Endpoint) {
        match (&self.hosts[0].node, &self.hosts[1].node) {
            (SimNode::Ours(sender), SimNode::Ours(receiver)) => (sender, receiver),
            _ => unreachable!("the first pair of nodes is a transfer of ours"),
        }
    }

    fn is_done(&self) -> bool {
        if self.scenario.seconds > 0.0 {
            return false;
        }
        let (sender, receiver) = self.main_ends();
        let read = [sender, receiver].iter().all(|end| end.ledger.read == self.scenario.control_bytes);
        let over = receiver.ledger.completed + receiver.ledger.told;
        sender.is_done() && receiver.is_done() && over == self.scenario.blocks && read
    }

    /// Lets a node run: read its socket, work, send.
    fn turn(&mut self, index: usize) {
        let now = Timestamp::from_nanos(self.now);
        let (scenario, link_index) =
            (self.scenario, if self.hosts[index].way == LinkDirection::Forward { 0 } else { 1 });
        let (low, high) = self.hosts.split_at_mut(index | 1);
        let (host, peer) = if index & 1 == 0 {
            (&mut low[index], &mut high[0])
        } else {
            (&mut high[0], &mut low[index - 1])
        };
        let link = &mut self.links[link_index];
        let mut odd_link = self.odd_link.as_mut().filter(|_| index == 0);
        let mut room = scenario.socket_bytes.unwrap_or(usize::MAX);
        while let Some(packet) = host.inbox.take(self.now) {
            let Some(left) = room.checked_sub(packet.bytes as usize) else {
                host.dropped += 1;
                continue;
            };
            room = left;
            match (&mut host.node, packet.content) {
                (SimNode::Ours(end), content) => end.receive(now, &SimPacket { content, ..packet }),
                (SimNode::TcpSender(sender), PacketContent::Ack(numbers)) => {
                    sender.handle_ack(self.now, &numbers)
                }
                (SimNode::TcpReceiver(receiver), PacketContent::Data(number)) => receiver.receive(number),
                _ => unreachable!("both ends of a pair are of one kind"),
            }
        }
        let delay = host.extra_delay_ns;
        let mut put = |flow: u16, bytes: u32, content: PacketContent| {
            let mut passed = link.pass(self.now, bytes, scenario);
            if let Some((odd, link)) = odd_link.as_mut().filter(|_| flow == 0) {
                passed = passed.and_then(|at| link.pass(at, bytes, odd));
            }
            if let Some(at) = passed {
                peer.inbox.put(SimPacket { at: at + delay, bytes, flow, content });
            }
        };
        host.timer = match &mut host.node {
            _ if self.now >= host.stops_at => None,
            SimNode::Ours(end) => {
                end.work(now);
                end.transmit(now, put);
                end.deadline().map(Timestamp::as_nanos)
            }
            SimNode::TcpSender(sender) => {
                sender.send(self.now, |number| put(0, WIRE, PacketContent::Data(number)));
                sender.deadline()
            }
            SimNode::TcpReceiver(receiver) => {
                if let Some(numbers) = receiver.ack() {
                    put(0, 60, PacketContent::Ack(numbers));
                }
                None
            }
        };
        host.timer = host.timer.map(|at| at.max(self.now + 1));
        host.rests_until = self.now + scenario.turn_us * 1_000;
        if scenario.noise_ms > 0.0 && host.random.unit() < scenario.noise_chance {
            host.rests_until = self.now + (host.random.unit() * scenario.noise_ms * 1e6) as u64;
        }
        if index & 1 == 1 {
            self.count_placed(index);
            self.end_short(index);
        }
    }

    fn placed(&self, receiver: usize) -> u64 {
        match &self.hosts[receiver].node {
            SimNode::Ours(end) => end.ledger.placed,
            SimNode::TcpReceiver(receiver) => receiver.received * PAYLOAD,
            SimNode::TcpSender(_) => 0,
        }
    }

    fn count_placed(&mut self, receiver: usize) {
        let placed = self.placed(receiver);
        let bin = (self.now / self.scenario.bin_ns()) as usize;
        let Some(bins) = self.bins.get_mut(receiver / 2) else { return };
        if bins.counts.len() <= bin {
            bins.counts.resize(bin + 1, 0);
        }
        bins.counts[bin] += placed - bins.before;
        bins.before = placed;
    }

    /// Notes the beginning of the measured time, and the trace's samples.
    fn sample(&mut self) {
        if self.measured_from.is_none() && self.now as f64 >= self.scenario.warmup_s() * 1e9 {
            let dropped = self.hosts[1].dropped;
            self.measured_from = Some(Baseline { at: self.now, link: self.links[0].stats, dropped });
            self.links[0].waits.restart();
        }
        if !self.trace.is_due(self.now) {
            return;
        }
        let senders = (0..2 * self.names.len()).step_by(2).map(|index| self.sender_sample(index)).collect();
        let sample = TraceSample {
            at_s: self.now as f64 / 1e9,
            queue_bytes: self.links[0].queued(self.now),
            dropped: self.links[0].stats.dropped_queue,
            senders,
        };
        self.trace.put(self.now, sample);
    }

    fn sender_sample(&self, index: usize) -> SenderSample {
        let placed = self.placed(index + 1);
        match &self.hosts[index].node {
            SimNode::Ours(end) => SenderSample {
                placed,
                window: end.controller.window(),
                pace_bps: end.controller.pacing_rate().unwrap_or(0.0) * 8.0,
                in_flight: end.in_flight(),
                rtt_ms: end.flows[0].flow.rtt().latest.as_secs_f64() * 1e3,
                lost: end.stats().packets_lost,
                state: end.controller.state(),
            },
            SimNode::TcpSender(sender) => SenderSample {
                placed,
                window: sender.window(),
                pace_bps: 0.0,
                in_flight: sender.in_flight(),
                rtt_ms: sender.rtt_latest * 1e3,
                lost: sender.lost,
                state: "",
            },
            SimNode::TcpReceiver(_) => unreachable!("senders have even indices"),
        }
    }

    fn describe(&self) -> String {
        let (sender, receiver) = self.main_ends();
        let ends = [sender, receiver].map(|end| format!("{:?} {:?}", end.ledger, end.stats()));
        ends.join("\n")
    }

    fn end(mut self) -> ScenarioResult {
        let bins = std::mem::take(&mut self.bins);
        let trace = std::mem::take(&mut self.trace);
        let scenario = self.scenario;
        let before = self.measured_from.unwrap_or_default();
        let moved = self.links[0].part_carried(before.at, self.now);
        let (sender, receiver) = self.main_ends();
        let datagram_max = sender.flows[0].flow.datagram_max();
        let (sent, received) = (sender.stats(), receiver.stats());
        let unique = (received.segments_received - received.segments_duplicate).max(1) as f64;
        let capacity = moved * scenario.capacity(scenario.payload.max(datagram_max));
        let times = &receiver.ledger.completed_at;
        let (from, to) = (times.len() * 2 / 5, (times.len() * 19 / 20).saturating_sub(1));
        let (link, dropped) = (self.links[0].stats, self.hosts[1].dropped);
        let passed =
            (link.passed + link.dropped_random - before.link.passed - before.link.dropped_random) as f64;
        let dropped = (link.dropped_queue - before.link.dropped_queue + dropped - before.dropped) as f64;
        let senders: Vec<SenderResult> = self
            .names
            .iter()
            .zip(bins)
            .map(|(name, bins)| SenderResult::new(name, bins.counts, scenario, self.now))
            .collect();
        let goodput_share = if scenario.seconds > 0.0 {
            senders[0].goodput_bps / 8.0 / capacity
        } else if to > from {
            let seconds = (times[to] - times[from]).as_secs_f64();
            (to - from) as f64 * f64::from(scenario.block_len) / seconds / capacity
        } else {
            0.0
        };
        let idle = (link.idle_ns - before.link.idle_ns) / (self.now - before.at).max(1) as f64;
        let tail =
            sender.ledger.all_sent_at.zip(times.last()).map(|(sent, &done)| (done - sent).as_secs_f64());
        let fates = fates(sender, receiver);
        ScenarioResult {
            seed: self.seed,
            seconds: self.now as f64 / 1e9,
            goodput_share,
            duplicate_share: (received.segments_duplicate - receiver.ledger.copies_known) as f64 / unique,
            proactive_share: sent.segments_proactive as f64 / unique,
            overflow_share: dropped / (passed + dropped).max(1.0),
            queue_ms_95: self.links[0].waits.percentile(0.95),
            queue_ms: (link.waited_ns - before.link.waited_ns) / passed.max(1.0) / 1e6,
            feedback_share: received.bytes_sent as f64 / sent.bytes_sent.max(1) as f64,
            rtt_mean_ms: sender.flows[0].flow.rtt().mean().as_secs_f64() * 1e3,
            tail_s: tail.unwrap_or(0.0),
            datagram_max,
            sender: sent,
            receiver: received,
            senders,
            busy_share: 1.0 - idle,
            short_s: self.cross.map(|cross| cross.seconds(before.at, self.now)).unwrap_or_default(),
            fates,
            trace,
        }
    }
}

/// The fates of all blocks, as both ends know them.
fn fates(sender: &Endpoint, receiver: &Endpoint) -> Vec<BlockFate> {
    let there = &receiver.mixed.fates;
    let whole = sender.mixed.fates.iter().map(|(name, here)| {
        let (complete_s, told_s) =
            there.get(name).map_or((None, None), |there| (there.complete_s, there.told_s));
        BlockFate { complete_s, told_s, ..*here }
    });
    whole.collect()
}
