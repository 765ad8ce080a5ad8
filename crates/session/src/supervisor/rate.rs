//! The rate as the users set it, bounded by the session's part of its caps; and what is remembered of the
//! rate that a path carries.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_handover::Held as _;
use farhaul_proto::Policy;

use super::super::events::Event;
use super::super::messages::SessionMessage;
use super::super::options::RateOptions;
use super::super::path_memory::says_what_a_path_carries;
use super::super::rate_cap::headers::{HeaderShare, TrafficCounts};
use super::super::rate_cap::{RateGuarantee, RatePart, RateShares};
use super::super::setup::Transport;
use super::super::shared_state::SessionShared;
use super::super::supervisor::Supervisor;

/// The pace is set anew for changed headers if it changes by this share.
const HEADERS_CHANGED: f64 = 0.004;
/// Users are told of a rate that has changed by more than this share.
const TOLD_CHANGED: f64 = 0.03;
/// The wish of a session is reported anew if it changes by this share.
const WISH_CHANGED: f64 = 0.01;

/// How a session follows its part of the caps that it is in.
pub(super) struct RateWatch {
    headers: HeaderShare,
    /// The part by which the rate was last set, and the pace that it allowed.
    part: Option<RatePart>,
    pace_bps: u64,
    /// The wish that was last reported, in bits of IP a second.
    wish_bps: Option<u64>,
    /// The part that the sender here has confirmed.
    confirmed: Option<RatePart>,
    /// The position behind the last message to the peer about its rate, until the peer has it.
    told: Option<u64>,
    beside_content: u64,
    /// The rate that the users were last told.
    told_user: Option<RateOptions>,
    /// The rate when the headers were last measured.
    looked_at: RateOptions,
}

/// The rate with which a session begins.
pub(super) fn begin(
    shares: &RateShares,
    transport: Transport,
    wish: RateOptions,
) -> (RateOptions, RateWatch) {
    let headers = HeaderShare::new(transport);
    let wish_bps = wish.rate_bps.map(|bps| headers.of_pace(bps));
    if wish_bps.is_some() {
        shares.set_wish(wish_bps);
    }
    let part = shares.part();
    let rate = part.map_or(wish, |part| part.bounds(wish, headers.pace(part.each_way)));
    let pace_bps = part.map_or(0, |part| headers.pace(part.each_way));
    (
        rate,
        RateWatch {
            headers,
            part,
            pace_bps,
            wish_bps,
            confirmed: None,
            told: None,
            beside_content: 0,
            looked_at: rate,
            told_user: Some(rate),
        },
    )
}

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
        self.rate_wish = wish;
        self.tell_wish();
        let rate = self.bounded_rate();
        self.apply_rate(rate);
    }

    /// The peer's user sets the rate. A peer that sends, and wants more than it may have, is told what it may
    /// have.
    pub(super) fn obey_rate(&mut self, wish: RateOptions) {
        self.rate_taken = wish;
        self.wish_rate(wish);
        self.correct_rate();
    }

    /// Sets the rate that the session is to have in its caps whatever others want.
    pub(super) fn wish_guarantee(&self, guarantee: Option<RateGuarantee>) {
        let of_ip =
            |one: RateGuarantee| RateGuarantee { bps: self.rate_watch.headers.of_pace(one.bps), ..one };
        self.shared.rate_shares.set_guarantee(guarantee.map(of_ip));
    }

    /// Reports how much of its caps the session wants, if that has changed; the rest goes to other sessions.
    fn tell_wish(&mut self) {
        let watch = &mut self.rate_watch;
        let wish = self.rate_wish.rate_bps.map(|bps| watch.headers.of_pace(bps));
        let change = wish.unwrap_or(0).abs_diff(watch.wish_bps.unwrap_or(0)) as f64;
        if wish.is_some() != watch.wish_bps.is_some() || change > WISH_CHANGED * wish.unwrap_or(0) as f64 {
            watch.wish_bps = wish;
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
        let watch = &mut self.rate_watch;
        let ways = watch.part.map_or(1, |part| part.in_all / part.each_way.max(1));
        let steady = self.rate.rate_bps.filter(|_| watch.looked_at == self.rate);
        let is_time = watch.headers.look(moved, steady.map(|bps| bps.saturating_mul(ways)), now);
        let more = moved.beside_content.saturating_sub(watch.beside_content);
        watch.beside_content = watch.beside_content.max(moved.beside_content);
        self.shared.rate_shares.has_moved(moved.ip, more, now);
        if is_time {
            self.tell_wish();
        }
        self.follow_part(now);
        if is_time {
            self.rate_watch.looked_at = self.rate;
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
        let rate = self.bounded_rate();
        if rate != self.rate {
            self.apply_rate(rate);
        }
        self.correct_rate();
        let watch = &mut self.rate_watch;
        if watch.told.is_some_and(|end| self.shared.is_acked(end)) {
            watch.told = None;
        }
        if let Some(part) = watch.part.filter(|_| watch.told.is_none())
            && watch.confirmed != Some(part)
        {
            watch.confirmed = Some(part);
            self.shared.rate_shares.confirm(part, now);
        }
    }

    /// Tells a sending peer the rate, if the peer assumes another one.
    pub(super) fn correct_rate(&mut self) {
        if self.shared.receives.load(Ordering::Relaxed) && self.rate != self.rate_taken {
            self.tell_rate();
        }
    }

    pub(super) fn tell_rate(&mut self) {
        self.rate_taken = self.rate;
        let end = self.shared.say(&[SessionMessage::Rate(self.rate)]);
        self.rate_watch.told = Some(end);
    }

    /// The rate that the users want, within the present part.
    fn bounded_rate(&mut self) -> RateOptions {
        let part = self.shared.rate_shares.part();
        let watch = &mut self.rate_watch;
        let is_new = watch.part != part;
        watch.part = part;
        let Some(part) = part else { return self.rate_wish };
        let pace_bps = watch.headers.pace(part.each_way);
        let change = pace_bps.abs_diff(watch.pace_bps) as f64;
        if is_new || change > HEADERS_CHANGED * watch.pace_bps as f64 {
            watch.pace_bps = pace_bps;
        }
        part.bounds(self.rate_wish, watch.pace_bps)
    }

    /// Sets the rate, also for flows that are opened later.
    pub(super) fn apply_rate(&mut self, rate: RateOptions) {
        if is_news(self.rate_watch.told_user, rate) {
            self.rate_watch.told_user = Some(rate);
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

    /// Learns what paths carry, while there is something to send and UDP carries it.
    pub(super) fn watch_rate(&mut self) {
        if !self.carrier.has_udp() || self.shared.is_all_queued() {
            return;
        }
        for (path, memory) in self.memories.iter_mut().enumerate() {
            if let Some(seen) = self.shared.controller(path).to_remember() {
                memory.watch.look(seen);
            }
        }
    }
}

/// Returns whether the users are told of a rate. A rate that follows the measured headers changes again and
/// again.
fn is_news(told: Option<RateOptions>, rate: RateOptions) -> bool {
    let Some(told) = told else { return true };
    let differs = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => one.abs_diff(other) as f64 > TOLD_CHANGED * one as f64,
        (one, other) => one != other,
    };
    let is_other_policy = told.policy != rate.policy;
    is_other_policy || differs(told.rate_bps, rate.rate_bps) || differs(told.rate_min_bps, rate.rate_min_bps)
}

/// A limit of the whole transfer is divided evenly among its paths.
pub(super) fn part_of(bps: Option<u64>, paths: usize) -> Option<u64> {
    bps.map(|bps| bps / paths as u64)
}

#[cfg(test)]
mod tests {
    use super::super::super::supervisor::{CHECK_INTERVAL, ContentRole};
    use super::super::tests::start;
    use super::*;
    use std::time::Duration;

    use crate::options::RATE_MIN_BPS;
    use crate::rate_cap::RateCap;
    use crate::request::FIRST;
    use crate::setup::{Setup, local_pair};

    /// Runs both ends until they have this rate.
    fn until(sender: &mut Supervisor, receiver: &mut Supervisor, bps: u64) {
        while [sender.rate.rate_bps, receiver.rate.rate_bps] != [Some(bps); 2] {
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
        assert_eq!((sender.rate.rate_bps, other.bps()), (Some(500_000), Some(500_000)));
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
        let told = receiver.rate_watch.told.expect("it was told");
        while !receiver.shared.is_acked(told) {
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
    fn users_hear_of_rates_that_have_changed_by_much() {
        let rate = |bps| RateOptions { rate_bps: bps, ..RateOptions::default() };
        for (bps, is_told) in [(Some(1000), false), (Some(980), false), (Some(960), true), (None, true)] {
            assert_eq!(is_news(Some(rate(Some(1000))), rate(bps)), is_told);
        }
        assert!(is_news(None, rate(None)));
    }

    #[test]
    fn a_peer_that_begins_to_send_hears_what_it_may_have() {
        let cap = RateCap::new("this key", Some(1_000_000), Instant::now());
        let (near, far) = local_pair().unwrap();
        let mut near = start(near, ContentRole::Receiver);
        let mut far =
            start(Setup { rate_shares: cap.join(Instant::now()).unwrap(), ..far }, ContentRole::Sender);
        assert_eq!((near.rate.rate_bps, far.rate.rate_bps), (None, Some(1_000_000)));
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
