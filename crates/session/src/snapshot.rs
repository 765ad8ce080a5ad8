//! The state of a transfer at one moment.
#![deny(missing_docs)]

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_handover::Held as _;
use serde::{Deserialize, Serialize};

use super::figures::{PathFigures, StageFigures};
use super::request::Request;

/// Where a transfer is between its beginning and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// It is not connected yet.
    #[default]
    Starting,
    /// Content flows, or could.
    Running,
    /// One of the ends has paused it, and something may still change.
    Pausing,
    /// One of the ends has paused it, and nothing changes any more at either end.
    Paused,
    /// It is over.
    Ended,
}

impl TransferState {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The state of a transfer at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The id of the transfer's handle.
    pub id: String,
    /// Its state.
    pub state: TransferState,
    /// Seconds since the handle was made.
    pub seconds: f64,
    /// Content bytes that will be there in the end, as far as they are known.
    pub bytes_total: u64,
    /// Files that will be there in the end, as far as they are known.
    pub files_total: u64,
    /// True if the totals are final.
    pub totals_known: bool,
    /// Content bytes that are safe at the receiver, including those that were there before.
    pub bytes_done: u64,
    /// Content bytes of files that were there before.
    pub bytes_skipped: u64,
    /// Content bytes that have moved: those that are done, without those that were there before or came from
    /// an earlier run.
    #[serde(skip)]
    pub bytes_moved: u64,
    /// Files that are complete at the receiver.
    pub files_done: u64,
    /// The number of failed entries.
    pub failed: u64,
    /// Source files that were gone when they were to be read.
    #[serde(default)]
    pub vanished: u64,
    /// Content bits per second over the last seconds.
    pub goodput_bps: f64,
    /// Content bits per second since content began to flow.
    pub goodput_mean_bps: f64,
    /// The session's knowledge; its fields stand beside the others in JSON.
    #[serde(flatten)]
    pub facts: SessionFacts,
}

impl Snapshot {
    /// The time left; `None` while the total is not known or nothing moves.
    pub fn time_left(&self) -> Option<Duration> {
        let bps = (self.goodput_bps + self.goodput_mean_bps) / 2.0;
        if !self.totals_known || bps < 1.0 {
            return None;
        }
        let bits = self.bytes_total.saturating_sub(self.bytes_done) as f64 * 8.0;
        Duration::try_from_secs_f64((bits / bps).round()).ok()
    }
}

/// The facts that a session knows of itself while it runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// True if something has come from the peer.
    #[serde(skip)]
    pub is_connected: bool,
    /// The far end, by the name that people know.
    pub peer: String,
    /// The word of the [`Carrier`](crate::carrier::Carrier).
    pub transport: String,
    /// The rate that the controllers allow now, in bits of UDP payload per second; `None` while they do not
    /// know it, and at an end that only receives.
    pub rate_target_bps: Option<f64>,
    /// The smoothed round trip of the slowest flow; 0 while it is not known.
    pub rtt_ms: f64,
    /// The share of lost packets among those sent, 0 to 1.
    pub loss_fraction: f64,
    /// UDP payload or stream bytes that this end has sent.
    pub wire_bytes_sent: u64,
    /// Packets that this end has sent.
    #[serde(default)]
    pub packets_sent: u64,
    /// How many of these were lost.
    #[serde(default)]
    pub packets_lost: u64,
    /// Bytes that this end has sent and that are neither acknowledged nor lost.
    #[serde(default)]
    pub in_flight_bytes: u64,
    /// Segments that this end has sent, including those that it has sent again.
    #[serde(default)]
    pub segments_sent: u64,
    /// Segments that this end has sent again because they were lost.
    #[serde(default)]
    pub segments_retransmitted: u64,
    /// True if content goes out from this end.
    #[serde(skip)]
    pub sends: bool,
    /// The paths that were named or found, if any.
    pub paths: Vec<PathFigures>,
    /// The traffic of each path, by its number; one entry if no paths were named or found.
    #[serde(default)]
    pub traffic: Vec<PathTraffic>,
    /// How busy the stages of this end have been since the transfer's beginning.
    pub stages: Vec<StageFigures>,
    /// How busy the stages of both ends were in about the last five seconds, the sender's first. The far
    /// end's are there once it has reported them.
    #[serde(default)]
    pub stages_now: Vec<StageFigures>,
    /// The limit of the transfer in the last seconds, as far as this end can tell.
    pub limit: String,
}

/// The traffic of one path: of all its flows together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathTraffic {
    /// Payload bytes that have arrived by it, including headers of segments and control messages.
    pub bytes_moved: u64,
    /// The rate that its controller allows now, in bits of UDP payload per second; `None` while it does not
    /// know it, and at an end that only receives.
    pub rate_target_bps: Option<f64>,
    /// The smoothed round trip of its slowest flow; 0 while it is not known.
    pub rtt_ms: f64,
    /// Packets that this end has sent on it.
    pub packets_sent: u64,
    /// How many of these were lost.
    pub packets_lost: u64,
    /// Bytes that this end has sent on it and that are neither acknowledged nor lost.
    pub in_flight_bytes: u64,
}

impl SessionFacts {
    /// The facts as they are now.
    pub(crate) fn of(request: &Request) -> SessionFacts {
        let mut facts = request.facts();
        facts.traffic = vec![PathTraffic::default(); request.path_count()];
        for flow in request.flow_list() {
            let figures = *flow.figures.lock().in_any_case();
            let rtt_ms = figures.rtt_smoothed_us as f64 / 1e3;
            facts.rtt_ms = facts.rtt_ms.max(rtt_ms);
            facts.wire_bytes_sent += figures.wire_bytes_sent;
            facts.packets_sent += figures.packets_sent;
            facts.packets_lost += figures.packets_lost;
            facts.in_flight_bytes += figures.in_flight;
            facts.segments_sent += figures.segments_sent;
            facts.segments_retransmitted += figures.segments_retransmitted;
            if let Some(path) = facts.traffic.get_mut(flow.path) {
                path.bytes_moved += figures.bytes_moved;
                path.rtt_ms = path.rtt_ms.max(rtt_ms);
                path.packets_sent += figures.packets_sent;
                path.packets_lost += figures.packets_lost;
                path.in_flight_bytes += figures.in_flight;
            }
        }
        facts.loss_fraction = facts.packets_lost as f64 / facts.packets_sent.max(1) as f64;
        facts.stages = request.meters.stages();
        facts.sends = request.sends.load(Ordering::Relaxed);
        if facts.sends {
            for (path, traffic) in facts.traffic.iter_mut().enumerate() {
                traffic.rate_target_bps = request.controller(path).pacing_rate().map(|bytes| bytes * 8.0);
            }
            let rates = facts.traffic.iter().filter_map(|path| path.rate_target_bps);
            facts.rate_target_bps = rates.reduce(|sum, rate| sum + rate);
        }
        facts
    }
}

/// The current rate is that of at least the last second, so that whoever changes a rate soon sees the effect.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// Content counts by blocks of a mebibyte. If few come, the window grows until it holds four of them, up to
/// [`WINDOW_MAX`].
const ENOUGH_BYTES: u64 = 4 * BLOCK_BYTES;
const BLOCK_BYTES: u64 = 1 << 20;
const WINDOW_MAX: Duration = Duration::from_secs(8);
/// Samples are at least this far apart.
const STEP: Duration = Duration::from_millis(100);

/// How fast content moves, computed from a few samples.
///
/// Content counts by blocks, at the moment at which each is whole. A window that begins just before a block and ends
/// just behind one has one block too many for its length: of four blocks in a window, a quarter. So the rate is that
/// between two moments at which a block was whole; the block that ends at the first of them does not count.
#[derive(Debug, Default)]
pub(crate) struct ContentRate {
    samples: VecDeque<RateSample>,
    first: Option<(Duration, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct RateSample {
    at: Duration,
    bytes: u64,
    /// When `bytes` last grew.
    grown_at: Duration,
}

impl ContentRate {
    /// Notes that `bytes` are done at `now`, of which the last came at `moved_at`.
    pub(crate) fn look(&mut self, now: Duration, bytes: u64, moved_at: Duration) {
        self.first.get_or_insert((now, bytes));
        let grown_at = match self.samples.back() {
            Some(last) if last.bytes == bytes => last.grown_at,
            Some(last) if moved_at > last.at && moved_at <= now => moved_at,
            // It was counted in between, or somebody else has counted.
            _ => now,
        };
        // The last sample is always that of the last look.
        let count = self.samples.len();
        if count >= 2 && self.samples[count - 2].at + STEP > now {
            self.samples.pop_back();
        }
        self.samples.push_back(RateSample { at: now, bytes, grown_at });
        while let Some(&RateSample { at, bytes: then, .. }) = self.samples.get(1)
            && self.samples.len() > 2
            && (at + WINDOW_MAX <= now
                || at + WINDOW_MIN <= now && bytes.saturating_sub(then) >= ENOUGH_BYTES)
        {
            self.samples.pop_front();
        }
    }

    /// Bits a second over the last seconds.
    pub(crate) fn now_bps(&self) -> f64 {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else { return 0.0 };
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let mut growths = pairs.filter(|(before, now)| now.bytes > before.bytes);
        let (Some((_, from)), Some((before, to))) = (growths.next(), growths.next_back()) else {
            return slope((first.at, first.bytes), (last.at, last.bytes));
        };
        // When nothing comes any more, this falls. The next block is on its way until then.
        let next = (to.bytes - before.bytes).min(BLOCK_BYTES);
        let until_now = slope((first.at, first.bytes), (last.at, last.bytes.saturating_add(next)));
        slope((from.grown_at, from.bytes), (to.grown_at, to.bytes)).min(until_now)
    }

    /// Forgets what has moved so far: nothing moves now.
    pub(crate) fn halt(&mut self) {
        self.samples.clear();
    }

    /// Bits a second since the first look.
    pub(crate) fn mean_bps(&self) -> f64 {
        let last = self.samples.back().map(|last| (last.at, last.bytes));
        self.first.zip(last).map_or(0.0, |(from, to)| slope(from, to))
    }
}

fn slope(from: (Duration, u64), to: (Duration, u64)) -> f64 {
    let seconds = to.0.saturating_sub(from.0).as_secs_f64();
    if seconds > 0.0 { to.1.saturating_sub(from.1) as f64 * 8.0 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_states_do_not_change() {
        assert_eq!(
            [
                TransferState::Starting,
                TransferState::Running,
                TransferState::Pausing,
                TransferState::Paused,
                TransferState::Ended
            ]
            .map(TransferState::name),
            ["starting", "running", "pausing", "paused", "ended"]
        );
    }

    /// A look just when the last bytes came.
    fn look(pace: &mut ContentRate, now: Duration, bytes: u64) {
        pace.look(now, bytes, now);
    }

    fn steady(seconds: u64, bytes_per_second: u64) -> ContentRate {
        let mut pace = ContentRate::default();
        for second in 0..=seconds {
            look(&mut pace, Duration::from_secs(second), second * bytes_per_second);
        }
        pace
    }

    #[test]
    fn rates_follow_what_moves() {
        let mut pace = steady(10, 1000);
        assert_eq!((pace.now_bps(), pace.mean_bps()), (8000.0, 8000.0));
        for second in 11..=20 {
            look(&mut pace, Duration::from_secs(second), 10_000);
        }
        assert_eq!((pace.now_bps(), pace.mean_bps()), (0.0, 4000.0));
        assert!(pace.samples.len() <= 10);
        assert_eq!(ContentRate::default().now_bps(), 0.0);
    }

    #[test]
    fn a_fast_transfer_s_rate_is_that_of_the_last_second_and_a_slow_one_s_does_not_jump() {
        const MIB: u64 = 1 << 20;
        let look = |pace: &mut ContentRate, tenth: u64, bytes: u64| {
            super::tests::look(pace, Duration::from_millis(100 * tenth), bytes);
            pace.now_bps() * Duration::from_secs(1).as_secs_f64() / 8.0 / MIB as f64
        };
        let mut pace = ContentRate::default();
        (0..=50).for_each(|tenth| {
            look(&mut pace, tenth, 2 * tenth * MIB);
        });
        let after = |tenths: u64| (100 + 10 * tenths) * MIB;
        let seen: Vec<f64> = (1..=12).map(|tenth| look(&mut pace, 50 + tenth, after(tenth))).collect();
        assert!(seen[4] > 40.0 && (seen[10] - 100.0).abs() < 1e-6, "{seen:?}");
        // One block in five looks.
        let mut pace = ContentRate::default();
        let seen: Vec<f64> = (0..=100).map(|tenth| look(&mut pace, tenth, tenth / 5 * MIB)).collect();
        assert!(seen[40..].iter().all(|rate| (1.5..=2.5).contains(rate)), "{seen:?}");
    }

    #[test]
    fn blocks_that_come_one_by_one_do_not_make_the_rate_larger() {
        const MIB: u64 = 1 << 20;
        for (block_ms, look_ms) in [(437, 50), (437, 1000), (100, 50), (1100, 50), (7, 50), (437, 1)] {
            let bps = MIB as f64 * 8e3 / block_ms as f64;
            let mut pace = ContentRate::default();
            let mut seen = Vec::new();
            for now in (0..30_000).step_by(look_ms) {
                let blocks = now as u64 / block_ms;
                let moved_at = Duration::from_millis(blocks * block_ms);
                pace.look(Duration::from_millis(now as u64), blocks * MIB, moved_at);
                if now >= 10_000 {
                    seen.push(pace.now_bps() / bps);
                }
            }
            let range =
                seen.iter().fold((f64::MAX, 0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
            assert!(
                range.0 > 0.9 && range.1 < 1.005,
                "{block_ms} ms a block, a look each {look_ms} ms: {range:?}"
            );
        }
    }

    #[test]
    fn who_looks_often_sees_the_same() {
        let mut pace = ContentRate::default();
        for millis in 0..10_000 {
            look(&mut pace, Duration::from_millis(millis), millis);
        }
        assert!((pace.now_bps() - 8000.0).abs() < 1.0, "{}", pace.now_bps());
        assert!(pace.samples.len() < 100, "{}", pace.samples.len());
    }

    #[test]
    fn what_was_there_at_the_first_look_is_no_rate() {
        let mut pace = ContentRate::default();
        look(&mut pace, Duration::ZERO, 1 << 30);
        look(&mut pace, Duration::from_secs(1), (1 << 30) + 125);
        assert_eq!((pace.now_bps(), pace.mean_bps()), (1000.0, 1000.0));
    }

    #[test]
    fn the_time_left_needs_a_known_total_and_a_rate() {
        let snapshot = Snapshot {
            bytes_total: 3000,
            bytes_done: 1000,
            totals_known: true,
            goodput_bps: 8000.0,
            goodput_mean_bps: 8000.0,
            ..Snapshot::default()
        };
        assert_eq!(snapshot.time_left(), Some(Duration::from_secs(2)));
        assert_eq!(Snapshot { totals_known: false, ..snapshot.clone() }.time_left(), None);
        let stuck = Snapshot { goodput_bps: 0.0, goodput_mean_bps: 0.0, ..snapshot };
        assert_eq!(stuck.time_left(), None);
    }
}
