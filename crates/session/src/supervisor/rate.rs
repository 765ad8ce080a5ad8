//! The rate as the user sets it, and what is remembered of what a path carries.

use std::sync::atomic::Ordering;

use farhaul_proto::Policy;

use super::super::options::RateOptions;
use super::super::path_memory::says_what_a_path_carries;
use super::super::supervisor::Supervisor;

impl Supervisor {
    /// From now on the rate is set so, also by flows that are opened later.
    pub(super) fn apply_rate(&mut self, rate: RateOptions) {
        self.rate = rate;
        let paths = self.shared.path_count();
        let is_alive = |path: &usize| !self.dead_paths.contains(path);
        let used = (0..paths).filter(|&path| self.is_used(path)).filter(is_alive).count().max(1);
        for path in (0..paths).filter(|&path| self.is_used(path)) {
            let mut controller = self.shared.controller(path);
            controller.set_policy(rate.policy);
            controller.set_rate(part_of(rate.rate_bps, used));
            controller.set_floor(part_of(rate.rate_min_bps, used));
        }
        self.shared.is_markable.store(rate.policy != Policy::Fixed, Ordering::Release);
        if !says_what_a_path_carries(rate) {
            self.memories.clear();
        }
        self.shared.wake_flows();
    }

    /// What a path carries shows while there is something to send and UDP carries it.
    pub(super) fn watch_rate(&mut self) {
        if self.transport != "udp" || self.shared.is_all_queued() {
            return;
        }
        for (path, memory) in self.memories.iter_mut().enumerate() {
            if let Some(seen) = self.shared.controller(path).to_remember() {
                memory.watch.look(seen);
            }
        }
    }
}

/// A limit of the whole transfer is split evenly among its paths.
pub(super) fn part_of(bps: Option<u64>, paths: usize) -> Option<u64> {
    bps.map(|bps| bps / paths as u64)
}
