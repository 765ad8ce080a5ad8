//! How much may be in flight, and how fast it may leave: one controller for all flows of a transfer and path.
//!
//! Always true: flows report what happened and get budgets; random loss by itself never lowers a budget.

mod fair;
mod pacer;

pub(crate) use pacer::Pacer;

use crate::time::Timestamp;
use fair::{Fair, Round};
use std::time::Duration;

/// What is in flight before anything is known: 32 packets of 1200 bytes.
const WINDOW_INITIAL: u64 = 32 * 1200;
/// A flow that has reported nothing for so long has no share.
const FLOW_IDLE: Duration = Duration::from_secs(3);
/// Bytes per second of a bit per second.
const BITS: f64 = 1.0 / 8.0;

/// How the rate is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Holds [`RateConfig::rate_bps`], whatever happens. Without a rate it is [`Policy::Fair`].
    Fixed,
    /// Fills the path while its queue stays short, and shares it evenly.
    #[default]
    Fair,
    /// As fair, with about two shares.
    High,
    /// Takes what others leave.
    Low,
}

/// What an earlier transfer on this path has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// The last good rate: bits of UDP payload per second.
    pub rate_bps: u64,
    /// The round trip time without queues that went with it.
    pub rtt: Duration,
}

/// How a controller behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateConfig {
    /// How the rate is set; default fair.
    pub policy: Policy,
    /// Target of `Fixed`, ceiling of `Fair`: bits of UDP payload per second. Default none.
    pub rate_bps: Option<u64>,
    /// Floor of all but `Fixed`: bits of UDP payload per second that are sent whatever happens. Default none.
    pub floor_bps: Option<u64>,
    /// Where to start, if the round trip time is still about the same. Default nothing.
    pub remembered: Option<Remembered>,
    /// Bytes that may stand in queues beyond what is on the way: the receiver's socket buffer. Default unlimited.
    pub queue_bytes_max: Option<u64>,
}

/// Names a flow to its controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowIndex(usize);

/// What a flow tells its controller at each feedback.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Wire bytes newly acknowledged.
    pub delivered: u64,
    /// Wire bytes newly declared lost.
    pub lost: u64,
    /// Time between the newest arrivals of this and the last feedback, by the receiver's clock.
    pub receive_time: Duration,
    /// A round trip sample without the receiver's delay.
    pub rtt: Option<Duration>,
    /// Wire bytes in flight now.
    pub in_flight: u64,
    /// Whether window or pacer have held the flow back since its last report.
    pub saturated: bool,
}

#[derive(Debug, Default)]
struct FlowState {
    reported_at: Option<Timestamp>,
    delivered: u64,
    receive_time: Duration,
    removed: bool,
}

/// Sets the rate of one transfer on one path.
#[derive(Debug)]
pub struct Controller {
    config: RateConfig,
    flows: Vec<FlowState>,
    fair: Fair,
    sharing: u64,
    round_began: Option<Timestamp>,
    round_lost: u64,
    round_saturated: bool,
}

impl Controller {
    /// A controller without flows.
    pub fn new(config: RateConfig) -> Self {
        Controller {
            config,
            flows: Vec::new(),
            fair: Fair::new(),
            sharing: 1,
            round_began: None,
            round_lost: 0,
            round_saturated: false,
        }
    }

    /// Registers a flow. Flows do so by themselves.
    pub fn add_flow(&mut self) -> FlowIndex {
        self.flows.push(FlowState::default());
        FlowIndex(self.flows.len() - 1)
    }

    /// A flow has ended: the others share what it had.
    pub fn remove_flow(&mut self, flow: FlowIndex) {
        if let Some(state) = self.flows.get_mut(flow.0) {
            state.removed = true;
        }
    }

    /// Changes the policy of a running transfer.
    pub fn set_policy(&mut self, policy: Policy) {
        self.config.policy = policy;
    }

    /// Changes target or ceiling of a running transfer, in bits of UDP payload per second.
    pub fn set_rate(&mut self, rate_bps: Option<u64>) {
        self.config.rate_bps = rate_bps;
    }

    /// Delivered bytes per second of all flows together, over the last round trip.
    pub fn delivery_rate(&self) -> f64 {
        self.fair.rate()
    }

    /// The share of packets that is lost, over the last rounds.
    pub fn loss(&self) -> f64 {
        self.fair.loss()
    }

    /// In which state the controller is, in a word: for traces.
    pub fn state(&self) -> &'static str {
        "fair"
    }

    /// Wire bytes that one flow may have in flight.
    pub fn window(&self) -> u64 {
        let window = match self.fixed_rate() {
            Some(rate) => {
                (rate * (self.fair.round_trip().unwrap_or(0.3) * 2.0 + 0.02)).max(WINDOW_INITIAL as f64)
            }
            None => self.fair.window(&self.limits()) * self.fair.window_slack(),
        };
        (window as u64 / self.sharing).max(2 * 1500)
    }

    /// Bytes per second at which one flow may send, if it is paced.
    pub fn pacing_rate(&self) -> Option<f64> {
        let share = self.sharing as f64;
        let ceiling = self.config.rate_bps.map(|rate| rate as f64 * BITS / share);
        let own = match self.fixed_rate() {
            Some(_) => None,
            None => self.fair.pacing_rate(&self.limits()).map(|rate| rate / share),
        };
        [ceiling, own].into_iter().flatten().reduce(f64::min)
    }

    fn fixed_rate(&self) -> Option<f64> {
        self.config.rate_bps.filter(|_| self.config.policy == Policy::Fixed).map(|rate| rate as f64 * BITS)
    }

    fn limits(&self) -> fair::Limits {
        fair::Limits {
            rate: self.config.rate_bps.map_or(f64::INFINITY, |rate| rate as f64 * BITS),
            queue_bytes: self.config.queue_bytes_max.map_or(f64::INFINITY, |bytes| bytes as f64),
        }
    }

    /// Takes a flow's report.
    pub fn on_report(&mut self, now: Timestamp, flow: FlowIndex, report: &Report) {
        let Some(state) = self.flows.get_mut(flow.0) else { return };
        state.reported_at = Some(now);
        state.delivered += report.delivered;
        state.receive_time += report.receive_time;
        self.round_lost += report.lost;
        self.round_saturated |= report.saturated;
        let limits = self.limits();
        self.fair.on_report(now, report, &limits);
        let began = *self.round_began.get_or_insert(now);
        if now - began >= self.fair.round_len() {
            self.end_round(now, now - began);
        }
    }

    fn end_round(&mut self, now: Timestamp, elapsed: Duration) {
        let active =
            |flow: &&mut FlowState| flow.reported_at.is_some_and(|at| now - at < FLOW_IDLE) && !flow.removed;
        let (mut rate, mut delivered, mut sharing) = (0.0, 0, 0);
        for flow in self.flows.iter_mut().filter(active) {
            let time = flow.receive_time.max(elapsed / 4).as_secs_f64();
            rate += flow.delivered as f64 / time;
            delivered += flow.delivered;
            sharing += 1;
            (flow.delivered, flow.receive_time) = (0, Duration::ZERO);
        }
        self.sharing = sharing.max(1);
        let round =
            Round { rate, delivered, lost: self.round_lost, elapsed, saturated: self.round_saturated };
        self.fair.on_round(&round);
        (self.round_lost, self.round_saturated, self.round_began) = (0, false, Some(now));
    }
}

#[cfg(test)]
mod tests;
