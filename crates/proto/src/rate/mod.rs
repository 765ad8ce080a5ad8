//! How much may be in flight, and how fast it may leave: one controller for all flows of a transfer and path.
//!
//! Always true: flows report what happened and get budgets; random loss by itself never lowers a budget.

mod fair;
mod loss;
mod pacer;
mod path;
mod shares;
mod start;
mod target_delay;
mod virtual_cubic;
mod window_floor;

pub(crate) use pacer::{Pacer, PacerRequest};

use farhaul_words::Policy;

use crate::time::Timestamp;
use fair::{FairLaw, Rates};
use path::Deliveries;
use shares::WindowShare;
use std::time::Duration;

/// The window before anything is known: 32 packets of 1200 bytes.
const WINDOW_INITIAL: u64 = 32 * 1200;
/// A flow that has reported nothing for this long has no share.
const FLOW_IDLE: Duration = Duration::from_secs(3);
/// A flow whose round trip exceeds the shortest by more than both this and `1 / ALONE_PART` of it has a queue
/// of its own.
const ALONE_MIN: Duration = Duration::from_millis(2);
const ALONE_PART: u32 = 8;
/// On near paths, reports may be this many seconds apart.
const REPORT_MIN: f64 = 0.05;
/// Bytes per second of a bit per second.
const BITS: f64 = 1.0 / 8.0;
/// Copies do not join a queue longer than this many seconds, or than a sixteenth of the round trip if that is
/// more.
const SPARE_QUEUE: f64 = 0.005;
/// The number of shares that `high` takes.
const HIGH_SHARES: f64 = 2.0;

/// What an earlier transfer has learned about this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMemory {
    /// The last good rate: bits of UDP payload per second.
    pub rate_bps: u64,
    /// The round trip time without queues that went with it.
    pub rtt: Duration,
    /// What the path lost by itself, in millionths of all packets.
    pub loss_ppm: u32,
}

impl PathMemory {
    /// Whether this may be the same path, if the round trip now takes `rtt` seconds.
    fn fits(&self, rtt: f64) -> bool {
        (0.5..2.0).contains(&(rtt / self.rtt.as_secs_f64().max(1e-6)))
    }
}

/// How a controller behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateConfig {
    /// How the rate is set; default fair.
    pub policy: Policy,
    /// Target of `Fixed`, ceiling of the others: bits of UDP payload per second. Default none.
    pub rate_bps: Option<u64>,
    /// Floor of all but `Fixed`: bits of UDP payload per second that are sent whatever happens. Default none.
    pub floor_bps: Option<u64>,
    /// What to start from, if the round trip time is still about the same. Default nothing.
    pub remembered: Option<PathMemory>,
    /// The most bytes that may stand in queues, beyond what is on its way: as many as the receiver's socket
    /// buffer takes. Default unlimited.
    pub queue_bytes_max: Option<u64>,
}

/// A flow's number in its controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowIndex(usize);

/// What a flow tells its controller at each feedback.
#[derive(Debug, Clone, Copy, Default)]
pub struct FeedbackReport {
    /// Wire bytes newly acknowledged.
    pub delivered: u64,
    /// Wire bytes newly declared lost.
    pub lost: u64,
    /// Packets that arrived, reported together with the losses of the same time: of the packets sent then,
    /// these arrived and `packets_lost` did not.
    pub packets_delivered: u32,
    /// Packets that were lost, reported together with the arrivals of the same time.
    pub packets_lost: u32,
    /// Runs of consecutive packets among these.
    pub loss_runs: u32,
    /// Packets newly reported as marked "congestion experienced".
    pub packets_marked: u64,
    /// Bytes of a full datagram.
    pub datagram: u32,
    /// Time between the newest arrivals of this and the last feedback, by the receiver's clock.
    pub receive_time: Duration,
    /// A round trip sample without the receiver's delay.
    pub rtt: Option<Duration>,
    /// Wire bytes in flight now.
    pub in_flight: u64,
    /// Whether window or pacer have held the flow back since its last report.
    pub saturated: bool,
    /// The bottleneck's rate in bytes a second, if the flow's first train has shown it.
    pub train_rate: Option<f64>,
}

impl FeedbackReport {
    /// This report and the rest of the same feedback, as one.
    pub(crate) fn and(self, rest: FeedbackReport) -> FeedbackReport {
        FeedbackReport {
            delivered: self.delivered + rest.delivered,
            lost: self.lost + rest.lost,
            packets_delivered: self.packets_delivered + rest.packets_delivered,
            packets_lost: self.packets_lost + rest.packets_lost,
            loss_runs: self.loss_runs + rest.loss_runs,
            packets_marked: self.packets_marked + rest.packets_marked,
            receive_time: self.receive_time + rest.receive_time,
            rtt: self.rtt.or(rest.rtt),
            saturated: self.saturated || rest.saturated,
            ..rest
        }
    }
}

#[derive(Debug, Default)]
struct ControlledFlow {
    reported_at: Option<Timestamp>,
    deliveries: Deliveries,
    in_flight: u64,
    /// Its round trip, smoothed over a few feedbacks.
    rtt: Option<Duration>,
    /// Its part of the window, once it has reported.
    share: Option<f64>,
}

impl ControlledFlow {
    fn is_active(&self, now: Timestamp) -> bool {
        self.reported_at.is_some_and(|at| now - at < FLOW_IDLE)
    }
}

/// Sets the rate of one transfer on one path.
#[derive(Debug)]
pub struct Controller {
    config: RateConfig,
    flows: Vec<ControlledFlow>,
    /// The flow whose round trips count.
    reference: Option<FlowIndex>,
    fair: FairLaw,
    /// Active flows, at least one.
    sharing: usize,
    shared_at: Option<Timestamp>,
    /// The parts of the active flows, kept, so that a report allocates nothing.
    parts: Vec<WindowShare>,
}

impl Controller {
    /// A controller without flows.
    pub fn new(config: RateConfig) -> Self {
        Controller {
            config,
            flows: Vec::new(),
            reference: None,
            fair: FairLaw::new(),
            sharing: 1,
            shared_at: None,
            parts: Vec::new(),
        }
    }

    /// Registers a flow. A [`Flow`](crate::Flow) does so by itself.
    pub fn add_flow(&mut self) -> FlowIndex {
        self.flows.push(ControlledFlow::default());
        FlowIndex(self.flows.len() - 1)
    }

    /// Changes the policy of a running transfer.
    pub fn set_policy(&mut self, policy: Policy) {
        self.config.policy = policy;
    }

    /// Changes target or ceiling of a running transfer, in bits of UDP payload per second.
    pub fn set_rate(&mut self, rate_bps: Option<u64>) {
        self.config.rate_bps = rate_bps;
    }

    /// Changes the floor of a running transfer, in bits of UDP payload per second.
    pub fn set_floor(&mut self, floor_bps: Option<u64>) {
        self.config.floor_bps = floor_bps;
    }

    /// Forgets the path, because the transfer continues on another one.
    pub fn restart(&mut self) {
        self.fair = FairLaw::new();
        for flow in &mut self.flows {
            flow.deliveries.clear();
            flow.rtt = None;
        }
    }

    /// Delivered bytes per second of all flows together, over the last round trip.
    pub fn delivery_rate(&self) -> f64 {
        self.fair.rate()
    }

    /// Delivered bytes per second of one flow.
    pub fn rate_of(&self, flow: Option<FlowIndex>) -> f64 {
        self.delivery_rate() * self.share(flow)
    }

    /// The share of packets that is lost, over the last rounds.
    pub fn loss(&self) -> f64 {
        self.fair.loss()
    }

    /// The share of packets that the path loses by itself, whatever is sent.
    pub(crate) fn path_loss(&self) -> f64 {
        self.fair.own_loss()
    }

    /// Whether more could be sent without lengthening a queue that others wait in.
    pub fn has_spare_rate(&self) -> bool {
        self.fair.path().standing() < SPARE_QUEUE.max(self.fair.path().base() / 16.0)
            || self.fair.is_draining()
    }

    /// What the next transfer on this path should remember, once something is known.
    pub fn to_remember(&self) -> Option<PathMemory> {
        let rate_bps = (self.fair.rate() / BITS) as u64;
        let rtt = Duration::from_secs_f64(self.fair.path().propagation());
        let loss_ppm = (1e6 * self.fair.own_loss()) as u32;
        (rate_bps > 0 && self.fair.path().is_known()).then_some(PathMemory { rate_bps, rtt, loss_ppm })
    }

    /// The controller's state in a word, for traces.
    pub fn state(&self) -> &'static str {
        if self.fixed_rate().is_some() { "fixed" } else { self.fair.state() }
    }

    /// Wire bytes that all flows together may have in flight.
    pub fn window(&self) -> u64 {
        let window = match self.fixed_rate() {
            Some(rate) => {
                let round = if self.fair.path().is_known() { self.fair.path().round_trip() } else { 0.3 };
                (rate * (round * 2.0 + 0.02)).max(WINDOW_INITIAL as f64)
            }
            None => self.fair.in_flight_max(&self.limits()),
        };
        window as u64
    }

    /// Bytes per second at which all flows together may send, if they are paced.
    pub fn pacing_rate(&self) -> Option<f64> {
        let own = match self.fixed_rate() {
            Some(_) => None,
            None => self.fair.pacing_rate(&self.limits()),
        };
        [self.ceiling(), own].into_iter().flatten().reduce(f64::min)
    }

    /// The configured maximum rate, in bytes per second.
    pub(crate) fn ceiling(&self) -> Option<f64> {
        self.config.rate_bps.map(|rate| rate as f64 * BITS)
    }

    /// A flow's part of window and pace; `None` is a flow that has not reported yet.
    pub(crate) fn share(&self, flow: Option<FlowIndex>) -> f64 {
        let share = flow.and_then(|flow| self.flows.get(flow.0)).and_then(|flow| flow.share);
        share.unwrap_or(1.0 / self.sharing as f64)
    }

    fn fixed_rate(&self) -> Option<f64> {
        self.config.rate_bps.filter(|_| self.config.policy == Policy::Fixed).map(|rate| rate as f64 * BITS)
    }

    fn limits(&self) -> fair::RateLimits {
        let bytes = |bps: Option<u64>| bps.map(|rate| rate as f64 * BITS);
        fair::RateLimits {
            rate: bytes(self.config.rate_bps).unwrap_or(f64::INFINITY),
            floor: bytes(self.config.floor_bps).unwrap_or(0.0),
            queue_bytes: self.config.queue_bytes_max.map_or(f64::INFINITY, |bytes| bytes as f64),
            weight: if self.config.policy == Policy::High { HIGH_SHARES } else { 1.0 },
            scavenger: self.config.policy == Policy::Low,
            fixed: self.fixed_rate().is_some(),
            remembered: self.config.remembered,
        }
    }

    /// Takes a flow's report.
    pub fn on_report(&mut self, now: Timestamp, flow: FlowIndex, report: &FeedbackReport) {
        let Some(state) = self.flows.get_mut(flow.0) else { return };
        state.reported_at = Some(now);
        state.in_flight = report.in_flight;
        if let Some(rtt) = report.rtt {
            state.rtt = Some(state.rtt.map_or(rtt, |before| (3 * before + rtt) / 4));
        }
        state.deliveries.on_report(report);
        if self.fair.on_silence(now) {
            self.flows.iter_mut().for_each(|flow| flow.deliveries.clear());
        }
        let round = self.fair.path().round_trip();
        let mut rates = Rates::default();
        let mut report = FeedbackReport { in_flight: 0, ..*report };
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        for flow in &mut self.flows {
            if !flow.is_active(now) {
                flow.share = None;
                continue;
            }
            let rate = flow.deliveries.rate(round);
            rates.round += rate;
            rates.quarter += flow.deliveries.rate(round / 4.0);
            rates.two += flow.deliveries.rate(2.0 * round);
            rates.four += flow.deliveries.rate(4.0 * round);
            report.in_flight += flow.in_flight;
            parts.push(WindowShare { share: flow.share.unwrap_or(0.0), rate });
        }
        let reference = self.reference(now, round);
        if reference != self.reference {
            self.fair.on_other_flow();
            self.reference = reference;
        }
        if reference != Some(flow) {
            report.rtt = None;
        }
        self.split(now, &mut parts);
        self.parts = parts;
        self.fair.on_report(now, &report, rates, &self.limits());
    }

    /// The flow whose round trips count: the one with the largest share, of those that have no queue of their
    /// own. The smallest round trip of all flows would not do: the least of many samples is less than what a
    /// transfer with one flow sees, so the transfer would take more than its share.
    fn reference(&self, now: Timestamp, round: f64) -> Option<FlowIndex> {
        let rtt_of = |flow: &ControlledFlow| {
            let is_news = flow.reported_at.is_some_and(|at| (now - at).as_secs_f64() < round + REPORT_MIN);
            flow.rtt.filter(|_| is_news)
        };
        let least = self.flows.iter().filter_map(rtt_of).min()?;
        let longest = least + ALONE_MIN.max(least / ALONE_PART);
        let fit =
            self.flows.iter().enumerate().filter(|(_, flow)| rtt_of(flow).is_some_and(|rtt| rtt <= longest));
        let share = |flow: &ControlledFlow| flow.share.unwrap_or(0.0);
        fit.max_by(|(_, one), (_, other)| share(one).total_cmp(&share(other)))
            .map(|(index, _)| FlowIndex(index))
    }

    /// Gives each active flow its part; `parts` has the active flows in order.
    fn split(&mut self, now: Timestamp, parts: &mut [WindowShare]) {
        self.sharing = parts.len().max(1);
        let round = self.fair.path().round_trip();
        let rounds = self.shared_at.map_or(0.0, |at| (now - at).as_secs_f64() / round.max(1e-6));
        self.shared_at = Some(now);
        // The first flights are too small to tell one flow from another.
        let is_starting = self.fair.state() == "start";
        if is_starting || parts.iter().any(|part| part.share == 0.0) {
            parts.iter_mut().for_each(|part| part.share = 1.0);
        }
        shares::step(parts, if is_starting { 0.0 } else { rounds });
        let active = self.flows.iter_mut().filter(|flow| flow.is_active(now));
        active.zip(parts).for_each(|(flow, part)| flow.share = Some(part.share));
    }
}

#[cfg(test)]
mod tests;
