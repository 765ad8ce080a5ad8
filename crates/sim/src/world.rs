//! Virtual time: what happens next, until both ends are done.

use crate::endpoint::{Endpoint, Packet};
use crate::link::{Link, Random, Way};
use crate::scenario::{End, Scenario};
use farhaul_proto::Timestamp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A packet at the far end of a link; ordered by time, then by entry.
struct Arrival {
    at: u64,
    entry: u64,
    way: Way,
    packet: Packet,
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.entry == other.entry
    }
}
impl Eq for Arrival {}
impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.entry).cmp(&(other.at, other.entry))
    }
}

/// An end with what keeps it from running all the time.
struct Host {
    end: Endpoint,
    socket: VecDeque<Packet>,
    socket_bytes: usize,
    /// Stands still until then.
    asleep_until: u64,
    timer: Option<u64>,
    random: Random,
    dropped: u64,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    seed: u64,
    now: u64,
    hosts: [Host; 2],
    links: [Link; 2],
    arrivals: BinaryHeap<Reverse<Arrival>>,
    entries: u64,
    traced_at: u64,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let host = |way: u64, blocks: u64| Host {
            end: Endpoint::new(scenario, seed * 2 + way, blocks, scenario.control_bytes),
            socket: VecDeque::new(),
            socket_bytes: 0,
            asleep_until: 0,
            timer: Some(0),
            random: Random::new(seed * 1000 + way),
            dropped: 0,
        };
        World {
            scenario,
            seed,
            now: 0,
            hosts: [host(0, scenario.blocks), host(1, 0)],
            links: [Link::new(Way::Forward, scenario, seed), Link::new(Way::Back, scenario, seed)],
            arrivals: BinaryHeap::new(),
            entries: 0,
            traced_at: 0,
        }
    }

    pub(crate) fn run(mut self) -> End {
        let limit = (self.scenario.patience_s * 1e9) as u64;
        self.turn(0);
        self.turn(1);
        while !self.is_done() {
            let next = self.next_time().expect("an unfinished transfer always has something to wait for");
            self.now = self.now.max(next);
            assert!(self.now < limit, "no end after {} s: {}", self.scenario.patience_s, self.describe());
            self.trace();
            self.deliver();
            for host in 0..2 {
                let awake = self.hosts[host].asleep_until <= self.now;
                let due = self.hosts[host].timer.is_some_and(|at| at <= self.now);
                if awake && (due || !self.hosts[host].socket.is_empty()) {
                    self.turn(host);
                }
            }
        }
        self.end()
    }

    fn is_done(&self) -> bool {
        let received = &self.hosts[1].end.ledger;
        let read = self.hosts.iter().all(|host| host.end.ledger.read == self.scenario.control_bytes);
        self.hosts.iter().all(|host| host.end.is_done()) && received.completed == self.scenario.blocks && read
    }

    fn next_time(&self) -> Option<u64> {
        let wakes = self.hosts.iter().filter_map(|host| {
            let timer = if host.socket.is_empty() { host.timer } else { Some(0) };
            timer.map(|at| at.max(host.asleep_until))
        });
        let arrival = self.arrivals.peek().map(|Reverse(arrival)| arrival.at);
        wakes.chain(arrival).min()
    }

    /// Moves what has arrived by now into sockets.
    fn deliver(&mut self) {
        while self.arrivals.peek().is_some_and(|Reverse(arrival)| arrival.at <= self.now) {
            let Some(Reverse(arrival)) = self.arrivals.pop() else { return };
            let host = &mut self.hosts[if arrival.way == Way::Forward { 1 } else { 0 }];
            let bytes = arrival.packet.planned.wire_len();
            if host.socket_bytes + bytes > self.scenario.socket_bytes.unwrap_or(usize::MAX) {
                host.dropped += 1;
                continue;
            }
            host.socket_bytes += bytes;
            host.socket.push_back(arrival.packet);
        }
    }

    /// Lets an end run: read its socket, work, send.
    fn turn(&mut self, index: usize) {
        let now = Timestamp::from_nanos(self.now);
        let host = &mut self.hosts[index];
        host.socket_bytes = 0;
        while let Some(packet) = host.socket.pop_front() {
            host.end.receive(now, &packet);
        }
        let end = &mut host.end;
        end.flow.handle_timeout(now, &mut end.control, &mut end.controller);
        end.work(now);
        loop {
            end.plan.clear();
            if end.flow.poll_transmit(now, &mut end.control, &end.controller, &mut end.plan) == 0 {
                break;
            }
            let (way, link) = if index == 0 { (Way::Forward, 0) } else { (Way::Back, 1) };
            for planned in &end.plan.packets {
                assert!(planned.wire_len() <= 65_507);
                if let Some(at) = self.links[link].pass(self.now, planned.wire_len(), self.scenario) {
                    let packet = Packet { planned: *planned, control: end.plan.control_of(planned).to_vec() };
                    self.entries += 1;
                    self.arrivals.push(Reverse(Arrival { at, entry: self.entries, way, packet }));
                }
            }
        }
        host.timer = host.end.flow.poll_timeout().map(|at| at.as_nanos().max(self.now + 1));
        if self.scenario.noise_ms > 0.0 && host.random.unit() < 0.1 {
            host.asleep_until = self.now + (host.random.unit() * self.scenario.noise_ms * 1e6) as u64;
        }
    }

    fn trace(&mut self) {
        let step = self.scenario.trace_ms * 1_000_000;
        if step == 0 || self.now < self.traced_at + step {
            return;
        }
        self.traced_at = self.now;
        let (flow, controller) = (&self.hosts[0].end.flow, &self.hosts[0].end.controller);
        eprintln!(
            "{:8.3} s: window {:>9} in flight {:>9} pace {:>6.0} rate {:>6.0} Mbit/s loss {:.3} rtt {:?} {:?} overflow {}",
            self.now as f64 / 1e9,
            controller.window(),
            flow.in_flight(),
            controller.pacing_rate().unwrap_or(0.0) * 8e-6,
            controller.delivery_rate() * 8e-6,
            controller.loss(),
            flow.rtt().latest,
            flow.limited_by(),
            self.links[0].dropped_queue,
        );
    }

    fn describe(&self) -> String {
        let ends = self.hosts.iter().map(|host| format!("{:?} {:?}", host.end.ledger, host.end.flow.stats()));
        ends.collect::<Vec<_>>().join("\n")
    }

    fn end(&self) -> End {
        let (sender, receiver) = (*self.hosts[0].end.flow.stats(), *self.hosts[1].end.flow.stats());
        let unique = (receiver.segments_received - receiver.segments_duplicate).max(1) as f64;
        let times = &self.hosts[1].end.ledger.completed_at;
        let payload = f64::from(self.scenario.payload.max(self.hosts[0].end.flow.datagram_max()));
        let capacity =
            self.scenario.rate_bps as f64 / 8.0 * (1.0 - self.scenario.loss) * (payload - 34.0) / payload;
        let (from, to) = (times.len() * 2 / 5, (times.len() * 19 / 20).saturating_sub(1));
        let goodput_share = if to > from {
            let seconds = (times[to] - times[from]).as_secs_f64();
            (to - from) as f64 * f64::from(self.scenario.block_len) / seconds / capacity
        } else {
            0.0
        };
        End {
            seed: self.seed,
            seconds: self.now as f64 / 1e9,
            goodput_share,
            duplicate_share: receiver.segments_duplicate as f64 / unique,
            proactive_share: sender.segments_proactive as f64 / unique,
            overflow_share: (self.links[0].dropped_queue + self.hosts[1].dropped) as f64
                / sender.packets_sent.max(1) as f64,
            rtt_mean_ms: self.hosts[0].end.flow.rtt().mean().as_secs_f64() * 1e3,
            datagram_max: self.hosts[0].end.flow.datagram_max(),
            sender,
            receiver,
        }
    }
}
