//! What is simulated, and how a scenario is written on a command line.
//!
//! Always true: [`Scenario::options`] and [`Scenario::set`] know the same options, so that any scenario can
//! be replayed by the command that [`Scenario::command`] names.

use crate::cross_traffic::{CrossConfig, CrossKind};
use crate::mix::MixConfig;
use crate::result::ScenarioResult;
use crate::world::World;
use farhaul_motion::{DelayMotion, RateMotion};
use farhaul_proto::PathMemory;
use farhaul_words::Policy;
use std::fmt;
use std::time::Duration;

/// The queue in front of the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueDiscipline {
    /// Drops packets that do not fit.
    DropTail,
    /// RFC 8289, within the queue's bytes.
    Codel,
    /// A token bucket of the queue's bytes, on a link with a rate of its own.
    Policer {
        /// The link's own rate.
        link_bps: u64,
    },
}

/// A change of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathChange {
    /// The second at which it happens.
    pub at_s: f64,
    /// The link's rate from then on.
    pub rate_bps: Option<u64>,
    /// The round trip time from then on.
    pub rtt_ms: Option<f64>,
    /// Random loss behind the bottleneck from then on.
    pub loss: Option<f64>,
}

/// The kind of another sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RivalKind {
    /// Another transfer of ours.
    Ours(Policy),
    /// TCP with Cubic.
    Cubic,
    /// TCP with BBR version 1.
    Bbr,
}

/// Another sender on the same bottleneck, without end of data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rival {
    /// What it is.
    pub kind: RivalKind,
    /// When it begins.
    pub start_s: f64,
    /// Its round trip time, in multiples of the scenario's.
    pub rtt_factor: f64,
    /// The number of flows, if it is a transfer of ours.
    pub flows: u32,
    /// When it stops sending, if it does.
    pub stop_s: Option<f64>,
}

/// How a transfer of ours is configured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TransferSetup {
    pub policy: Policy,
    pub cap_bps: Option<u64>,
    pub floor_bps: Option<u64>,
    pub flows: u32,
    pub memory: Option<PathMemory>,
    pub mix: MixConfig,
}

/// A path and a transfer on it. The default is a gigabit over 20 ms without faults.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Bottleneck rate, both ways.
    pub rate_bps: u64,
    /// The base round trip.
    pub rtt_ms: f64,
    /// Random loss behind the bottleneck, forward; also on the way back, unless `loss_back` says otherwise.
    pub loss: f64,
    /// Random loss on the way back.
    pub loss_back: Option<f64>,
    /// Random loss in front of the bottleneck.
    pub loss_front: f64,
    /// Mean length of a run of lost packets; 1 for independent losses.
    pub burst: f64,
    /// Bottleneck queue; a policer's bucket.
    pub queue_bytes: usize,
    /// What the queue does.
    pub discipline: QueueDiscipline,
    /// How the rate of a bottleneck with a queue moves by itself, forward. Not to be combined with a policer
    /// or with changes of the rate.
    pub rate_motion: RateMotion,
    /// How the delay moves by itself, each way.
    pub motion: DelayMotion,
    /// The largest random extra delay of each packet, each way: it reorders.
    pub jitter_ms: f64,
    /// This share of the forward packets ...
    pub reorder: f64,
    /// ... arrives up to this much later.
    pub reorder_ms: f64,
    /// Changes of the path during the run.
    pub changes: Vec<PathChange>,
    /// Nothing passes between these two seconds.
    pub blackout: Option<(f64, f64)>,
    /// Whether the blackout leaves the way back open.
    pub blackout_forward_only: bool,
    /// From the given second on, packets larger than the given size vanish.
    pub size_limit: Option<(f64, usize)>,
    /// The shortest time between two turns of an end, as interrupt moderation and a thread's sleep cause it.
    pub turn_us: u64,
    /// Each end stands still for up to this long after some of its turns.
    pub noise_ms: f64,
    /// How likely that is after each turn.
    pub noise_chance: f64,
    /// The most bytes that wait in an end's socket while it stands still.
    pub socket_bytes: Option<usize>,
    /// Virtual seconds to run with endless data; 0 to run until `blocks` have arrived.
    pub seconds: f64,
    /// How many of these seconds pass before the measured time begins; a negative value means a third of
    /// them.
    pub warmup_s: f64,
    /// Whether our own transfer sends; if not, only the rivals do.
    pub ours: bool,
    /// Blocks of bulk to send forward. With `seconds`, any number but zero means endless data.
    pub blocks: u64,
    /// Their length.
    pub block_len: u32,
    /// Blocks that the receiver grants ahead of what is complete.
    pub pool: u64,
    /// Bytes on the control stream, each way.
    pub control_bytes: u64,
    /// Its window.
    pub control_window: u64,
    /// First UDP payload size.
    pub payload: u16,
    /// Larger payload sizes to try.
    pub mtu_candidates: Vec<u16>,
    /// A carrier without loss.
    pub reliable: bool,
    /// Flows of the transfer.
    pub flows: u32,
    /// The first flow has a link of its own behind the bottleneck: of this rate ...
    pub odd_bps: Option<u64>,
    /// ... and with this random loss.
    pub odd_loss: f64,
    /// The rate policy.
    pub policy: Policy,
    /// Ceiling or target.
    pub cap_bps: Option<u64>,
    /// Floor.
    pub floor_bps: Option<u64>,
    /// What an earlier transfer remembers: rate and round trip time.
    pub memory: Option<(u64, f64)>,
    /// The path's own loss that it remembers, between 0 and 1.
    pub memory_loss: f64,
    /// From the measured time on, the sender also has urgent blocks: their interval in milliseconds, and
    /// their length ...
    pub urgent: Option<(f64, u32)>,
    /// ... for which bulk leaves this many blocks of credit.
    pub urgent_reserve: u32,
    /// The sender also has blocks with a deadline: their interval in milliseconds, their length, and how many
    /// milliseconds later the deadline is.
    pub timed: Option<(f64, (u32, f64))>,
    /// The second at which the sender gives up every second block that is not over.
    pub cancel_s: Option<f64>,
    /// The rate at which the receiving application reads bulk.
    pub reader_bps: Option<u64>,
    /// Other senders.
    pub rivals: Vec<Rival>,
    /// Short TCP transfers that come and go.
    pub cross: Option<CrossConfig>,
    /// Virtual seconds after which a scenario with a fixed number of blocks has failed.
    pub patience_s: f64,
    /// The interval in milliseconds at which the state of all senders is noted; 0 for never.
    pub trace_ms: u64,
    /// First seed.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            rate_bps: 1_000_000_000,
            rtt_ms: 20.0,
            loss: 0.0,
            loss_back: None,
            loss_front: 0.0,
            burst: 1.0,
            queue_bytes: 4 << 20,
            discipline: QueueDiscipline::DropTail,
            rate_motion: RateMotion::Still,
            motion: DelayMotion::Still,
            jitter_ms: 0.0,
            reorder: 0.0,
            reorder_ms: 0.0,
            changes: Vec::new(),
            blackout: None,
            blackout_forward_only: false,
            size_limit: None,
            turn_us: 50,
            noise_ms: 0.0,
            noise_chance: 0.1,
            socket_bytes: None,
            seconds: 0.0,
            warmup_s: -1.0,
            ours: true,
            blocks: 100,
            block_len: 1 << 20,
            pool: 4096,
            control_bytes: 0,
            control_window: 1 << 20,
            payload: 1472,
            mtu_candidates: Vec::new(),
            reliable: false,
            flows: 1,
            odd_bps: None,
            odd_loss: 0.0,
            policy: Policy::Fair,
            cap_bps: None,
            floor_bps: None,
            memory: None,
            memory_loss: 0.0,
            urgent: None,
            urgent_reserve: 0,
            timed: None,
            cancel_s: None,
            reader_bps: None,
            rivals: Vec::new(),
            cross: None,
            patience_s: 120.0,
            trace_ms: 0,
            seed: 1,
            seeds: 2,
        }
    }
}

impl Scenario {
    ///
    /// If the scenario does not end in time, or an end has seen something impossible.
    pub fn run(&self, seed: u64) -> ScenarioResult {
        World::new(self, seed).run()
    }

    /// A scenario long enough to measure a steady state: it measures at least thirty round trips and a
    /// second, after at least forty round trips and two and a half seconds.
    pub(crate) fn steady(rate_bps: u64, rtt_ms: f64) -> Scenario {
        let measured = (30.0 * rtt_ms / 1e3).max(1.0);
        // With 30 % loss, the first grant of credit may take a second to arrive.
        let warmup = (40.0 * rtt_ms / 1e3).max(2.5);
        let payload = if rate_bps >= 10_000_000_000 { 8972 } else { 1472 };
        let bdp_blocks = rate_bps as f64 / 8.0 * rtt_ms / 1e3 / f64::from(1 << 20);
        Scenario {
            rate_bps,
            rtt_ms,
            payload,
            pool: 64 + (16.0 * bdp_blocks) as u64,
            seconds: warmup + measured,
            warmup_s: warmup,
            ..Scenario::default()
        }
    }

    /// The bandwidth-delay product in bytes.
    pub fn bdp(&self) -> f64 {
        self.rate_bps as f64 / 8.0 * self.rtt_ms / 1e3
    }

    /// Sets the queue in bandwidth-delay products, to at least 64 KiB.
    #[must_use]
    pub fn with_queue(mut self, bdps: f64) -> Scenario {
        self.queue_bytes = ((self.bdp() * bdps) as usize).max(64 << 10);
        self
    }

    pub(crate) fn transfer(&self) -> TransferSetup {
        TransferSetup {
            policy: self.policy,
            cap_bps: self.cap_bps,
            floor_bps: self.floor_bps,
            flows: self.flows,
            memory: self.memory.map(|(rate_bps, rtt_ms)| PathMemory {
                rate_bps,
                rtt: Duration::from_secs_f64(rtt_ms / 1e3),
                loss_ppm: (1e6 * self.memory_loss) as u32,
            }),
            mix: MixConfig {
                urgent: self.urgent,
                timed: self.timed,
                from_s: self.warmup_s(),
                cancel_s: self.cancel_s,
                reader_bps: self.reader_bps,
                is_sender: true,
            },
        }
    }

    /// The extra link behind the bottleneck that the first flow has.
    pub(crate) fn odd_link(&self) -> Option<Scenario> {
        (self.odd_bps.is_some() || self.odd_loss > 0.0).then(|| Scenario {
            rate_bps: self.odd_bps.unwrap_or(self.rate_bps),
            rtt_ms: 0.0,
            loss: self.odd_loss,
            queue_bytes: self.queue_bytes,
            ..Scenario::default()
        })
    }

    pub(crate) fn warmup_s(&self) -> f64 {
        if self.warmup_s >= 0.0 { self.warmup_s } else { self.seconds / 3.0 }
    }

    /// The payload bytes a second that the path carries after its own loss, once all changes have happened.
    pub(crate) fn capacity(&self, datagram: u16) -> f64 {
        let rate =
            self.changes.iter().filter_map(|change| change.rate_bps).next_back().unwrap_or(self.rate_bps);
        let loss = self.changes.iter().filter_map(|change| change.loss).next_back().unwrap_or(self.loss);
        let payload = f64::from(datagram);
        rate as f64 / 8.0 * (1.0 - loss) * (payload - 34.0) / payload
    }

    /// Width of the bins in which arrivals are counted.
    pub(crate) fn bin_ns(&self) -> u64 {
        ((self.rtt_ms * 1e6 / 8.0) as u64).max(1_000_000)
    }

    /// The command that runs this scenario with one seed.
    pub fn command(&self, seed: u64) -> String {
        let one = Scenario { seed, seeds: 1, ..self.clone() };
        format!("cargo run --release -p farhaul-sim -- run {}", one.options().join(" "))
    }

    /// The options that differ from the defaults, each as `--name=value`.
    pub fn options(&self) -> Vec<String> {
        let default = Scenario::default();
        let differing = FIELDS.iter().filter(|field| (field.get)(self) != (field.get)(&default));
        differing.map(|field| format!("--{}={}", field.name, (field.get)(self))).collect()
    }

    /// Sets one option; `None` if there is no such option or its value makes no sense.
    pub fn set(&mut self, name: &str, value: &str) -> Option<()> {
        FIELDS.iter().find(|field| field.name == name).and_then(|field| (field.set)(self, value))
    }

    /// All options with their defaults.
    pub fn help() -> String {
        let default = Scenario::default();
        let lines = FIELDS.iter().map(|field| format!("  --{}={}", field.name, (field.get)(&default)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Runs a scenario with each of its seeds and calls `judge` with each result. If `judge` panics, the command
/// that replays the run is printed.
pub fn check(scenario: Scenario, mut judge: impl FnMut(&ScenarioResult)) {
    for seed in scenario.seed..scenario.seed + scenario.seeds {
        let guard = ReplayHint { scenario: &scenario, seed };
        judge(&scenario.run(seed));
        std::mem::forget(guard);
    }
}

/// Prints the command that replays a run, if it is dropped by a panic.
struct ReplayHint<'a> {
    scenario: &'a Scenario,
    seed: u64,
}

impl Drop for ReplayHint<'_> {
    fn drop(&mut self) {
        eprintln!("replay: {}", self.scenario.command(self.seed));
    }
}

/// A value that is written as one word on the command line.
trait WordValue: Sized {
    fn word(&self) -> String;
    fn of(word: &str) -> Option<Self>;
}

macro_rules! plain_words {
    ($($kind:ty),*) => {$(
        impl WordValue for $kind {
            fn word(&self) -> String { self.to_string() }
            fn of(word: &str) -> Option<Self> { word.parse().ok() }
        }
    )*};
}
plain_words!(f64, u16, u32, usize, bool);

/// Rates and counts, with a unit: 800M, 2G.
impl WordValue for u64 {
    fn word(&self) -> String {
        let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
        let unit = units.into_iter().find(|unit| *self >= unit.0 && self.is_multiple_of(unit.0));
        unit.map_or(self.to_string(), |(factor, name)| format!("{}{name}", self / factor))
    }

    fn of(word: &str) -> Option<Self> {
        let split = word.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(word.len());
        let factor = match &word[split..] {
            "" => 1.0,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => return None,
        };
        Some((word[..split].parse::<f64>().ok()? * factor) as u64)
    }
}

impl<T: WordValue> WordValue for Option<T> {
    fn word(&self) -> String {
        self.as_ref().map_or("none".into(), WordValue::word)
    }
    fn of(word: &str) -> Option<Self> {
        if word == "none" { Some(None) } else { T::of(word).map(Some) }
    }
}

impl<A: WordValue, B: WordValue> WordValue for (A, B) {
    fn word(&self) -> String {
        format!("{}:{}", self.0.word(), self.1.word())
    }
    fn of(word: &str) -> Option<Self> {
        let (one, two) = word.split_once(':')?;
        Some((A::of(one)?, B::of(two)?))
    }
}

impl<T: WordValue> WordValue for Vec<T> {
    fn word(&self) -> String {
        if self.is_empty() {
            "none".into()
        } else {
            self.iter().map(WordValue::word).collect::<Vec<_>>().join(",")
        }
    }
    fn of(word: &str) -> Option<Self> {
        if word == "none" { Some(Vec::new()) } else { word.split(',').map(T::of).collect() }
    }
}

impl WordValue for Policy {
    fn word(&self) -> String {
        match self {
            Policy::Fixed => "fixed",
            Policy::High => "high",
            Policy::Fair => "fair",
            Policy::Low => "low",
        }
        .into()
    }
    fn of(word: &str) -> Option<Self> {
        [Policy::Fixed, Policy::High, Policy::Fair, Policy::Low]
            .into_iter()
            .find(|policy| policy.word() == word)
    }
}

impl WordValue for QueueDiscipline {
    fn word(&self) -> String {
        match self {
            QueueDiscipline::DropTail => "drop-tail".into(),
            QueueDiscipline::Codel => "codel".into(),
            QueueDiscipline::Policer { link_bps } => format!("policer:{}", link_bps.word()),
        }
    }
    fn of(word: &str) -> Option<Self> {
        match word {
            "drop-tail" => Some(QueueDiscipline::DropTail),
            "codel" => Some(QueueDiscipline::Codel),
            _ => Some(QueueDiscipline::Policer { link_bps: u64::of(word.strip_prefix("policer:")?)? }),
        }
    }
}

/// `walk:0.1:100`, `cellular`, `trace:PATH`.
impl WordValue for RateMotion {
    fn word(&self) -> String {
        self.to_string()
    }
    fn of(word: &str) -> Option<Self> {
        word.parse().inspect_err(|error| eprintln!("farhaul-sim: {error}")).ok()
    }
}

/// `white:5`, `walk:5:10`, `steps:17:15000:100`, `bursts:20`: all in milliseconds.
impl WordValue for DelayMotion {
    fn word(&self) -> String {
        self.to_string()
    }
    fn of(word: &str) -> Option<Self> {
        word.parse().inspect_err(|error| eprintln!("farhaul-sim: {error}")).ok()
    }
}

/// Second, rate, round trip time, loss: `10:500M:none:none`.
impl WordValue for PathChange {
    fn word(&self) -> String {
        (self.at_s, (self.rate_bps, (self.rtt_ms, self.loss))).word()
    }
    fn of(word: &str) -> Option<Self> {
        let (at_s, (rate_bps, (rtt_ms, loss))) = WordValue::of(word)?;
        Some(PathChange { at_s, rate_bps, rtt_ms, loss })
    }
}

/// Kind, start, round trip factor, flows, end: `cubic:5:1:1:none`.
impl WordValue for Rival {
    fn word(&self) -> String {
        let kind = match self.kind {
            RivalKind::Ours(policy) => policy.word(),
            RivalKind::Cubic => "cubic".into(),
            RivalKind::Bbr => "bbr".into(),
        };
        format!("{kind}:{}:{}:{}:{}", self.start_s, self.rtt_factor, self.flows, self.stop_s.word())
    }
    fn of(word: &str) -> Option<Self> {
        let (kind, rest) = word.split_once(':').unwrap_or((word, "0:1:1:none"));
        let kind = match kind {
            "cubic" => RivalKind::Cubic,
            "bbr" => RivalKind::Bbr,
            policy => RivalKind::Ours(Policy::of(policy)?),
        };
        let (start_s, (rtt_factor, (flows, stop_s))) = WordValue::of(rest)?;
        Some(Rival { kind, start_s, rtt_factor, flows, stop_s })
    }
}

/// Kind, and share of the rate: `cubic:0.3`.
impl WordValue for CrossConfig {
    fn word(&self) -> String {
        let kind = match self.kind {
            CrossKind::Cubic => "cubic",
            CrossKind::Bbr => "bbr",
        };
        format!("{kind}:{}", self.share)
    }
    fn of(word: &str) -> Option<Self> {
        let (kind, share) = word.split_once(':')?;
        let kind = match kind {
            "cubic" => CrossKind::Cubic,
            "bbr" => CrossKind::Bbr,
            _ => return None,
        };
        let share = f64::of(share).filter(|share| (0.0..1.0).contains(share) && *share > 0.0)?;
        Some(CrossConfig { kind, share })
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word())
    }
}

struct Field {
    name: &'static str,
    get: fn(&Scenario) -> String,
    set: fn(&mut Scenario, &str) -> Option<()>,
}

macro_rules! fields {
    ($($name:literal $field:ident,)*) => {
        &[$(Field {
            name: $name,
            get: |scenario| scenario.$field.word(),
            set: |scenario, word| { scenario.$field = WordValue::of(word)?; Some(()) },
        }),*]
    };
}

const FIELDS: &[Field] = fields![
    "rate" rate_bps,
    "rtt-ms" rtt_ms,
    "loss" loss,
    "loss-back" loss_back,
    "loss-front" loss_front,
    "burst" burst,
    "queue-bytes" queue_bytes,
    "queue" discipline,
    "rate-motion" rate_motion,
    "motion" motion,
    "jitter-ms" jitter_ms,
    "reorder" reorder,
    "reorder-ms" reorder_ms,
    "changes" changes,
    "blackout" blackout,
    "blackout-forward-only" blackout_forward_only,
    "size-limit" size_limit,
    "turn-us" turn_us,
    "noise-ms" noise_ms,
    "noise-chance" noise_chance,
    "socket-bytes" socket_bytes,
    "seconds" seconds,
    "warmup" warmup_s,
    "ours" ours,
    "blocks" blocks,
    "block-len" block_len,
    "pool" pool,
    "control-bytes" control_bytes,
    "control-window" control_window,
    "payload" payload,
    "mtu-candidates" mtu_candidates,
    "reliable" reliable,
    "flows" flows,
    "odd" odd_bps,
    "odd-loss" odd_loss,
    "policy" policy,
    "cap" cap_bps,
    "floor" floor_bps,
    "memory" memory,
    "memory-loss" memory_loss,
    "urgent" urgent,
    "urgent-reserve" urgent_reserve,
    "timed" timed,
    "cancel" cancel_s,
    "reader" reader_bps,
    "rivals" rivals,
    "cross" cross,
    "patience" patience_s,
    "trace-ms" trace_ms,
    "seed" seed,
    "seeds" seeds,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_make_the_same_scenario_again() {
        let scenario = Scenario {
            rate_bps: 2_500_000_000,
            loss_back: Some(0.25),
            discipline: QueueDiscipline::Policer { link_bps: 1_000_000_000 },
            changes: vec![PathChange { at_s: 3.5, rate_bps: Some(5), rtt_ms: None, loss: Some(0.1) }],
            blackout: Some((1.0, 2.0)),
            mtu_candidates: vec![1472, 8972],
            memory: Some((7_000_001, 12.5)),
            memory_loss: 0.05,
            urgent: Some((20.0, 4096)),
            urgent_reserve: 2,
            timed: Some((10.0, (100_000, 80.0))),
            cancel_s: Some(0.5),
            reader_bps: Some(50_000_000),
            motion: DelayMotion::Steps { most_ms: 17.0, every_ms: 15_000.0, gap_ms: 100.0 },
            rate_motion: RateMotion::Walk { least: 0.1, every_ms: 100.0 },
            policy: Policy::Low,
            rivals: vec![
                Rival { kind: RivalKind::Cubic, start_s: 5.0, rtt_factor: 4.0, flows: 1, stop_s: Some(9.0) },
                Rival {
                    kind: RivalKind::Ours(Policy::High),
                    start_s: 0.0,
                    rtt_factor: 1.0,
                    flows: 4,
                    stop_s: None,
                },
            ],
            cross: Some(CrossConfig { kind: CrossKind::Bbr, share: 0.3 }),
            ..Scenario::default()
        };
        let mut again = Scenario::default();
        for option in scenario.options() {
            let (name, value) = option.trim_start_matches('-').split_once('=').expect("a value");
            assert_eq!(again.set(name, value), Some(()), "{option}");
        }
        assert_eq!(again, scenario);
        assert_eq!(again.set("rate-motion", "trace:/no/such/file"), None);
        assert_eq!(again.set("motion", "walk:5:0"), None);
        assert_eq!(again.set("cross", "reno:0.3"), None);
        assert_eq!(again.set("cross", "cubic:1"), None);
        assert_eq!(again.set("no-such", "1"), None);
        assert_eq!(again.set("rate", "fast"), None);
    }
}
