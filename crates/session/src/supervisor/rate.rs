//! The rate as the users set it, bounded by the session's part of its caps; and what is remembered of the
//! rate that a path carries.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_handover::Held as _;
use farhaul_words::{Event, Policy};

use super::super::messages::SessionMessage;
use super::super::options::RateOptions;
use super::super::shared_state::SessionShared;
use super::super::supervisor::Supervisor;
use super::rate_follower::part_of;
use crate::paths::path_memory::says_what_a_path_carries;
use crate::rate::rate_cap::RateGuarantee;
use crate::rate::rate_cap::headers::TrafficCounts;

/// From now on the session uses its part, and follows it.
pub(super) fn follow(shared: &Arc<SessionShared>) {
    if !shared.rate_shares.is_none() {
        let session = Arc::downgrade(shared);
        shared.rate_shares.follow(move || {
            if let Some(session) = session.upgrade() {
                session.requests.ring();
                session.control.notify();
            }
        });
    }
}

impl Supervisor {
    /// Sets the rate that the users want; the bounds on it stay.
    pub(super) fn wish_rate(&mut self, wish: RateOptions) {
        self.rates.want(wish);
        self.apply_wish();
    }

    /// The peer's user sets the rate. A peer that sends, and wants more than it may have, is told what it may
    /// have.
    pub(super) fn obey_rate(&mut self, wish: RateOptions) {
        self.rates.want_of_peer(wish);
        self.apply_wish();
        self.correct_rate();
    }

    fn apply_wish(&mut self) {
        self.report_wish();
        let rate = self.rates.bounded(self.shared.rate_shares.part());
        self.apply_rate(rate);
    }

    /// Sets the rate that the session is to have in its caps whatever others want.
    pub(super) fn wish_guarantee(&self, guarantee: Option<RateGuarantee>) {
        self.shared.rate_shares.set_guarantee(guarantee.map(|one| self.rates.of_ip(one)));
    }

    fn report_wish(&mut self) {
        if let Some(wish) = self.rates.take_changed_wish() {
            self.shared.rate_shares.set_wish(wish);
        }
    }

    /// Measures what the session moves, and follows its part of the caps, which changes as other sessions
    /// come, go, and need more or less.
    pub(super) fn watch_rate_shares(&mut self) {
        if self.shared.rate_shares.is_none() {
            return;
        }
        let now = Instant::now();
        let moved = self.moved();
        let look = self.rates.look(moved, now);
        self.shared.rate_shares.has_moved(moved.ip, look.beside_content, now);
        if look.is_measured {
            self.report_wish();
        }
        self.follow_part(now);
        if look.is_measured {
            self.rates.begin_to_measure();
        }
    }

    /// The traffic of all flows so far.
    fn moved(&self) -> TrafficCounts {
        let flows = self.shared.flow_list();
        let moved = flows.iter().map(|flow| flow.figures.lock().in_any_case().on_wire);
        moved.fold(TrafficCounts::default(), std::ops::Add::add)
    }

    /// Its flows have ended: the caps count what they have moved, and other sessions get its parts.
    pub(super) fn leave_caps(&self) {
        if !self.shared.rate_shares.is_none() {
            self.shared.rate_shares.has_moved(self.moved().ip, 0, Instant::now());
            self.shared.rate_shares.leave();
        }
    }

    /// Keeps to the present part, and confirms it as soon as the sender keeps to it.
    pub(super) fn follow_part(&mut self, now: Instant) {
        let rate = self.rates.bounded(self.shared.rate_shares.part());
        if rate != self.rates.rate() {
            self.apply_rate(rate);
        }
        self.correct_rate();
        if let Some(part) = self.rates.take_confirmation(|end| self.shared.control.is_acked(end)) {
            self.shared.rate_shares.confirm(part, now);
        }
    }

    /// Tells a sending peer the rate, if the peer assumes another one.
    pub(super) fn correct_rate(&mut self) {
        if self.shared.receives.load(Ordering::Relaxed) && self.rates.is_peer_wrong() {
            self.tell_rate();
        }
    }

    pub(super) fn tell_rate(&mut self) {
        let end = self.shared.say(&[SessionMessage::Rate(self.rates.rate())]);
        self.rates.note_told(end);
    }

    /// Sets the rate, also for flows that are opened later.
    pub(super) fn apply_rate(&mut self, rate: RateOptions) {
        if self.rates.set(rate) {
            self.shared.tell(&Event::RateChanged {
                policy: rate.policy,
                rate_bps: rate.rate_bps,
                rate_min_bps: rate.rate_min_bps,
            });
        }
        let (used, alive) = self.paths.used(self.absent_paths());
        for path in used {
            let mut controller = self.shared.controller(path);
            controller.set_policy(rate.policy);
            controller.set_rate(part_of(rate.rate_bps, alive));
            controller.set_floor(part_of(rate.rate_min_bps, alive));
        }
        self.shared.is_markable.store(rate.policy != Policy::Fixed, Ordering::Release);
        if !says_what_a_path_carries(rate) {
            self.paths.forget_memories();
        }
        self.shared.wake_flows();
    }

    /// Learns what paths carry, while there is something to send and UDP carries it.
    pub(super) fn watch_rate(&mut self) {
        if !self.carriers.carrier().has_udp() || self.shared.is_all_queued() {
            return;
        }
        for (path, memory) in self.paths.memories_mut().iter_mut().enumerate() {
            if let Some(seen) = self.shared.controller(path).to_remember() {
                memory.watch.look(seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::start;
    use super::*;
    use crate::content_role::ContentRole;
    use crate::intervals::CHECK_INTERVAL;
    use std::time::Duration;

    use crate::options::RATE_MIN_BPS;
    use crate::rate::rate_cap::RateCap;
    use crate::requests::request_state::FIRST;
    use crate::setup::{Setup, local_pair};

    /// Runs both ends until they have this rate.
    fn until(sender: &mut Supervisor, receiver: &mut Supervisor, bps: u64) {
        while [sender.rates.rate().rate_bps, receiver.rates.rate().rate_bps] != [Some(bps); 2] {
            sender.drive(CHECK_INTERVAL).unwrap();
            receiver.drive(CHECK_INTERVAL).unwrap();
        }
    }

    #[test]
    fn a_sender_hears_what_it_may_have_whatever_it_wants() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let join = || cap.join(Instant::now()).unwrap();
        let (near, far) = local_pair().unwrap();
        let mut sender = start(near, ContentRole::Sender);
        let mut receiver = start(Setup { rate_shares: join(), ..far }, ContentRole::Receiver);
        until(&mut sender, &mut receiver, 1_000_000);
        let other = join();
        until(&mut sender, &mut receiver, 500_000);
        let wish = |bps| RateOptions { rate_bps: Some(bps), ..RateOptions::default() };
        sender.shared.requests.get(FIRST).unwrap().handle.set_rate(wish(100_000)).unwrap();
        until(&mut sender, &mut receiver, 100_000);
        assert_eq!(other.bps(), Some(900_000));
        // The sender wants more, and is corrected.
        sender.shared.requests.get(FIRST).unwrap().handle.set_rate(wish(7_000_000)).unwrap();
        until(&mut sender, &mut receiver, 500_000);
        drop(other);
        until(&mut sender, &mut receiver, 1_000_000);
        sender.close(None);
        receiver.close(None);
    }

    #[test]
    fn another_session_has_its_part_once_the_first_one_keeps_to_less() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let join = || cap.join(Instant::now()).unwrap();
        let (near, far) = local_pair().unwrap();
        let receiver = start(near, ContentRole::Receiver);
        let mut sender = start(Setup { rate_shares: join(), ..far }, ContentRole::Sender);
        let other = join();
        assert_eq!(other.bps(), Some(RATE_MIN_BPS), "the sender's pace still takes all of it");
        sender.drive(Duration::ZERO).unwrap();
        assert_eq!((sender.rates.rate().rate_bps, other.bps()), (Some(500_000), Some(500_000)));
        sender.close(None);
        assert_eq!(other.bps(), Some(1_000_000));
        receiver.close(None);
        drop(other);
        // A sender at the far end has less once it has acknowledged the message.
        let (near, far) = local_pair().unwrap();
        let mut sender = start(near, ContentRole::Sender);
        let mut receiver = start(Setup { rate_shares: join(), ..far }, ContentRole::Receiver);
        until(&mut sender, &mut receiver, 1_000_000);
        let other = join();
        receiver.follow_part(Instant::now());
        let told = receiver.rates.told().expect("it was told");
        while !receiver.shared.control.is_acked(told) {
            std::thread::yield_now();
        }
        receiver.drive(CHECK_INTERVAL).unwrap();
        assert_eq!(other.bps(), Some(500_000));
        until(&mut sender, &mut receiver, 500_000);
        sender.close(None);
        receiver.close(None);
    }

    #[test]
    fn a_guarantee_that_the_user_sets_holds_in_the_sessions_caps() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let (near, far) = local_pair().unwrap();
        let receiver = start(near, ContentRole::Receiver);
        let rate_shares = cap.join(Instant::now()).unwrap();
        let mut sender = start(Setup { rate_shares, ..far }, ContentRole::Sender);
        let guarantee = RateGuarantee { bps: 800_000, turn: 7, yields: true };
        let handle = sender.shared.requests.get(FIRST).unwrap().handle.clone();
        for wanted in [Some(guarantee), None] {
            handle.set_guarantee(wanted);
            sender.check().unwrap();
            assert_eq!(sender.shared.rate_shares.guarantee(), wanted);
        }
        sender.close(None);
        receiver.close(None);
    }

    #[test]
    fn a_peer_that_begins_to_send_hears_what_it_may_have() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let (near, far) = local_pair().unwrap();
        let mut near = start(near, ContentRole::Receiver);
        let mut far =
            start(Setup { rate_shares: cap.join(Instant::now()).unwrap(), ..far }, ContentRole::Sender);
        assert_eq!((near.rates.rate().rate_bps, far.rates.rate().rate_bps), (None, Some(1_000_000)));
        far.shared.allow(ContentRole::Receiver);
        until(&mut near, &mut far, 500_000);
        near.close(None);
        far.close(None);
    }

    #[test]
    fn what_this_end_sends_keeps_to_its_part() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let (near, far) = local_pair().unwrap();
        let mut receiver = start(near, ContentRole::Receiver);
        let mut sender =
            start(Setup { rate_shares: cap.join(Instant::now()).unwrap(), ..far }, ContentRole::Sender);
        assert_eq!(sender.rates.rate().rate_bps, Some(1_000_000));
        let wish = RateOptions { rate_bps: Some(9_000_000), ..RateOptions::default() };
        receiver.shared.requests.get(FIRST).unwrap().handle.set_rate(wish).unwrap();
        while sender.rates.wish() != wish {
            receiver.drive(CHECK_INTERVAL).unwrap();
            sender.drive(CHECK_INTERVAL).unwrap();
        }
        assert_eq!(sender.rates.rate().rate_bps, Some(1_000_000));
        sender.close(None);
        receiver.close(None);
    }
}
