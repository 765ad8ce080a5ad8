//! What is simulated, and what came of it.

use crate::world::World;
use farhaul_proto::{FlowStats, Policy};
use std::fmt;

/// A path and a job. The default is a gigabit over 20 ms without faults.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Bottleneck rate, both ways.
    pub rate_bps: u64,
    /// Round trip time without queues.
    pub rtt_ms: f64,
    /// Random loss of each packet, forward; and back unless `loss_back` says else.
    pub loss: f64,
    /// Random loss on the way back.
    pub loss_back: Option<f64>,
    /// Bottleneck queue.
    pub queue_bytes: usize,
    /// Random extra delay of each packet: it reorders.
    pub jitter_ms: f64,
    /// Nothing passes in this time (seconds).
    pub blackout: Option<(f64, f64)>,
    /// The blackout leaves the way back open.
    pub blackout_forward_only: bool,
    /// From that second on, larger packets vanish.
    pub size_limit: Option<(f64, usize)>,
    /// Each end stands still for up to so long, about half of the time.
    pub noise_ms: f64,
    /// Bytes that wait in an end's socket while it stands still.
    pub socket_bytes: Option<usize>,
    /// Blocks to send forward.
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
    /// Sizes to try.
    pub mtu_candidates: Vec<u16>,
    /// A carrier without loss.
    pub reliable: bool,
    /// The rate policy.
    pub policy: Policy,
    /// Ceiling or target.
    pub cap_bps: Option<u64>,
    /// Virtual seconds after which the scenario has failed.
    pub patience_s: f64,
    /// Prints the sender's state every so many milliseconds; 0 for never.
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
            queue_bytes: 4 << 20,
            jitter_ms: 0.0,
            blackout: None,
            blackout_forward_only: false,
            size_limit: None,
            noise_ms: 0.0,
            socket_bytes: None,
            blocks: 100,
            block_len: 1 << 20,
            pool: 4096,
            control_bytes: 0,
            control_window: 1 << 20,
            payload: 1472,
            mtu_candidates: Vec::new(),
            reliable: false,
            policy: Policy::Fair,
            cap_bps: None,
            patience_s: 120.0,
            trace_ms: 0,
            seed: 1,
            seeds: 2,
        }
    }
}

/// How it ended.
#[derive(Debug, Clone)]
pub struct End {
    /// Seed of the run.
    pub seed: u64,
    /// Virtual seconds until everything was acknowledged.
    pub seconds: f64,
    /// Payload per second between 40 % and 95 % of the blocks, relative to what the link can carry after random loss.
    pub goodput_share: f64,
    /// Segments that arrived again, of the unique ones.
    pub duplicate_share: f64,
    /// Copies sent ahead of any loss, of the unique segments.
    pub proactive_share: f64,
    /// Packets dropped by the queue, of those sent.
    pub overflow_share: f64,
    /// Mean round trip.
    pub rtt_mean_ms: f64,
    /// The sender's counts.
    pub sender: FlowStats,
    /// The receiver's counts.
    pub receiver: FlowStats,
    /// The sender's datagram size at the end.
    pub datagram_max: u16,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} took {:.3} s: goodput share {:.3}, duplicates {:.4} %, proactive {:.4} %, overflow {:.3} %, mean rtt {:.2} ms",
            self.seed,
            self.seconds,
            self.goodput_share,
            self.duplicate_share * 100.0,
            self.proactive_share * 100.0,
            self.overflow_share * 100.0,
            self.rtt_mean_ms
        )
    }
}

impl Scenario {
    /// Runs with one seed.
    ///
    /// # Panics
    /// If the scenario does not come to its end, or an end saw something impossible.
    pub fn run(&self, seed: u64) -> End {
        World::new(self, seed).run()
    }
}

/// Runs a scenario with each of its seeds and hands each end to `judge`. A failure names scenario and seed.
pub fn check(scenario: Scenario, judge: impl Fn(&End)) {
    for seed in scenario.seed..scenario.seed + scenario.seeds {
        let guard = Replay { scenario: &scenario, seed };
        judge(&scenario.run(seed));
        std::mem::forget(guard);
    }
}

/// Prints how to replay when a judgement panics.
struct Replay<'a> {
    scenario: &'a Scenario,
    seed: u64,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        eprintln!("replay: Scenario {{ seed: {}, seeds: 1, .. }} of {:?}", self.seed, self.scenario);
    }
}
