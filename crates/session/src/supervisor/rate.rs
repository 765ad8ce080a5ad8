//! The rate as the users set it, the part of a cap that bounds it, and what is remembered of what a path
//! carries.

use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_handover::Held as _;
use farhaul_proto::Policy;

use super::super::events::Event;
use super::super::messages::Message;
use super::super::options::RateOptions;
use super::super::path_memory::says_what_a_path_carries;
use super::super::rate_cap::RateShare;
use super::super::supervisor::Supervisor;

/// The rate that a session begins with.
pub(super) fn begin(share: Option<&RateShare>, wish: RateOptions) -> RateOptions {
    let Some(share) = share else { return wish };
    share.set_wish(wish.rate_bps);
    share.bounds(wish)
}

impl Supervisor {
    /// From now on the users want the rate to be set so; what bounds it stays.
    pub(super) fn wish_rate(&mut self, wish: RateOptions) {
        self.rate_wish = wish;
        if let Some(share) = &self.shared.rate_share {
            share.set_wish(wish.rate_bps);
        }
        self.apply_rate(self.bounded_rate());
    }

    /// The peer's user wants so. A peer that sends, and wants more than it may have, hears what it may have.
    pub(super) fn obey_rate(&mut self, wish: RateOptions) {
        self.rate_taken = wish;
        self.wish_rate(wish);
        self.correct_rate();
    }

    /// Looks at this session's part of a cap, which changes as others come, go and need more or less.
    pub(super) fn watch_rate_share(&mut self) {
        let Some(share) = &self.shared.rate_share else { return };
        let flows = self.shared.flow_list();
        let moved = flows.iter().map(|flow| flow.figures.lock().in_any_case().bytes_both_ways).sum();
        share.has_moved(moved, Instant::now());
        let rate = self.bounded_rate();
        if rate != self.rate {
            self.apply_rate(rate);
        }
        self.correct_rate();
    }

    /// Tells a peer that sends, and takes the rate for another one.
    pub(super) fn correct_rate(&mut self) {
        if self.shared.receives.load(Ordering::Relaxed) && self.rate != self.rate_taken {
            self.tell_rate();
        }
    }

    pub(super) fn tell_rate(&mut self) {
        self.rate_taken = self.rate;
        self.shared.say(&[Message::Rate(self.rate)]);
    }

    fn bounded_rate(&self) -> RateOptions {
        self.shared.rate_share.as_ref().map_or(self.rate_wish, |share| share.bounds(self.rate_wish))
    }

    /// From now on the rate is set so, also by flows that are opened later.
    pub(super) fn apply_rate(&mut self, rate: RateOptions) {
        if rate != self.rate {
            self.shared.tell(&Event::rate(rate));
        }
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

#[cfg(test)]
mod tests {
    use super::super::super::supervisor::{CHECK_INTERVAL, Role};
    use super::super::tests::start;
    use super::*;
    use crate::rate_cap::RateCap;
    use crate::request::FIRST;
    use crate::setup::{Setup, local_pair};

    /// Lets both ends work until they take this for the rate.
    fn until(sender: &mut Supervisor, receiver: &mut Supervisor, bps: u64) {
        while [sender.rate.rate_bps, receiver.rate.rate_bps] != [Some(bps); 2] {
            sender.drive(CHECK_INTERVAL).unwrap();
            receiver.drive(CHECK_INTERVAL).unwrap();
        }
    }

    #[test]
    fn a_sender_hears_what_it_may_have_whatever_it_wants() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let join = || cap.join(Instant::now()).ok();
        let (near, far) = local_pair().unwrap();
        let mut sender = start(near, Role::Sender);
        let mut receiver = start(Setup { rate_share: join(), ..far }, Role::Receiver);
        until(&mut sender, &mut receiver, 1_000_000);
        let other = join();
        until(&mut sender, &mut receiver, 500_000);
        let wish = |bps| RateOptions { rate_bps: Some(bps), ..RateOptions::default() };
        sender.shared.requests.get(FIRST).unwrap().handle.set_rate(wish(100_000)).unwrap();
        until(&mut sender, &mut receiver, 100_000);
        assert_eq!(other.as_ref().and_then(RateShare::bps), Some(900_000));
        // It wants more, and is corrected.
        sender.shared.requests.get(FIRST).unwrap().handle.set_rate(wish(7_000_000)).unwrap();
        until(&mut sender, &mut receiver, 500_000);
        drop(other);
        until(&mut sender, &mut receiver, 1_000_000);
        sender.close(None);
        receiver.close(None);
    }

    #[test]
    fn a_peer_that_begins_to_send_hears_what_it_may_have() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let (near, far) = local_pair().unwrap();
        let mut near = start(near, Role::Receiver);
        let mut far = start(Setup { rate_share: cap.join(Instant::now()).ok(), ..far }, Role::Sender);
        assert_eq!((near.rate.rate_bps, far.rate.rate_bps), (None, Some(1_000_000)));
        far.shared.allow(Role::Receiver);
        until(&mut near, &mut far, 500_000);
        near.close(None);
        far.close(None);
    }

    #[test]
    fn what_this_end_sends_keeps_to_its_part() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let (near, far) = local_pair().unwrap();
        let mut receiver = start(near, Role::Receiver);
        let mut sender = start(Setup { rate_share: cap.join(Instant::now()).ok(), ..far }, Role::Sender);
        assert_eq!(sender.rate.rate_bps, Some(1_000_000));
        let wish = RateOptions { rate_bps: Some(9_000_000), ..RateOptions::default() };
        receiver.shared.requests.get(FIRST).unwrap().handle.set_rate(wish).unwrap();
        while sender.rate_wish != wish {
            receiver.drive(CHECK_INTERVAL).unwrap();
            sender.drive(CHECK_INTERVAL).unwrap();
        }
        assert_eq!(sender.rate.rate_bps, Some(1_000_000));
        sender.close(None);
        receiver.close(None);
    }
}
