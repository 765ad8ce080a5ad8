//! The rate of a session: what the users wish, bounded by the session's part of its caps, and what the far end
//! assumes.
//!
//! Always true: it decides on what it is told, and changes nothing else; `rate.rs` carries the decisions out.

use std::time::Instant;

use super::super::options::RateOptions;
use super::super::setup::Transport;
use crate::rate::rate_cap::headers::{HeaderShare, TrafficCounts};
use crate::rate::rate_cap::{RateGuarantee, RatePart};

/// The pace is set anew for changed headers if it changes by this share.
const HEADERS_CHANGED: f64 = 0.004;
/// Users are told of a rate that has changed by more than this share.
const TOLD_CHANGED: f64 = 0.03;
/// The wish of a session is reported anew if it changes by this share.
const WISH_CHANGED: f64 = 0.01;

/// How a session follows its users' wishes and its part of the caps that it is in.
pub(super) struct RateFollower {
    /// The rate that the users wish, the rate that is set now, and the rate that the peer assumes.
    wish: RateOptions,
    rate: RateOptions,
    taken: RateOptions,
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
    told_user: RateOptions,
    /// The rate when the headers were last measured.
    looked_at: RateOptions,
}

/// What a look at the session's traffic has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrafficLook {
    /// IP bytes that have come besides granted content since the last look.
    pub(super) beside_content: u64,
    /// True if the headers were measured anew.
    pub(super) is_measured: bool,
}

impl RateFollower {
    /// A session begins with this wish; [`RateFollower::begin`] follows.
    pub(super) fn new(transport: Transport, wish: RateOptions) -> RateFollower {
        let headers = HeaderShare::new(transport);
        RateFollower {
            wish,
            rate: wish,
            taken: wish,
            part: None,
            pace_bps: 0,
            wish_bps: wish.rate_bps.map(|bps| headers.of_pace(bps)),
            headers,
            confirmed: None,
            told: None,
            beside_content: 0,
            told_user: wish,
            looked_at: wish,
        }
    }

    /// The rate with which it begins, as it has this part of its caps.
    pub(super) fn begin(&mut self, part: Option<RatePart>) -> RateOptions {
        let rate = self.bounded(part);
        (self.rate, self.told_user, self.looked_at) = (rate, rate, rate);
        rate
    }

    /// The rate that is set now.
    pub(super) fn rate(&self) -> RateOptions {
        self.rate
    }

    /// The users want another rate.
    pub(super) fn want(&mut self, wish: RateOptions) {
        self.wish = wish;
    }

    /// The peer's user wants this rate, and the peer assumes that it has it.
    pub(super) fn want_of_peer(&mut self, wish: RateOptions) {
        self.taken = wish;
        self.wish = wish;
    }

    /// A guarantee in bits of IP a second.
    pub(super) fn of_ip(&self, one: RateGuarantee) -> RateGuarantee {
        RateGuarantee { bps: self.headers.of_pace(one.bps), ..one }
    }

    /// The wish with which it begins, in bits of IP a second.
    pub(super) fn wish_bps(&self) -> Option<u64> {
        self.wish_bps
    }

    /// How much of its caps the session wants, in bits of IP a second, if that has changed; the rest goes to
    /// other sessions.
    pub(super) fn take_changed_wish(&mut self) -> Option<Option<u64>> {
        let wish = self.wish.rate_bps.map(|bps| self.headers.of_pace(bps));
        let change = wish.unwrap_or(0).abs_diff(self.wish_bps.unwrap_or(0)) as f64;
        let is_changed =
            wish.is_some() != self.wish_bps.is_some() || change > WISH_CHANGED * wish.unwrap_or(0) as f64;
        if is_changed {
            self.wish_bps = wish;
        }
        is_changed.then_some(wish)
    }

    /// The session has moved `moved` in all.
    pub(super) fn look(&mut self, moved: TrafficCounts, now: Instant) -> TrafficLook {
        let ways = self.part.map_or(1, |part| part.in_all / part.each_way.max(1));
        let steady = self.rate.rate_bps.filter(|_| self.looked_at == self.rate);
        let is_measured = self.headers.look(moved, steady.map(|bps| bps.saturating_mul(ways)), now);
        let beside_content = moved.beside_content.saturating_sub(self.beside_content);
        self.beside_content = self.beside_content.max(moved.beside_content);
        TrafficLook { beside_content, is_measured }
    }

    /// The rate that is set now is the one at which the headers are measured next.
    pub(super) fn begin_to_measure(&mut self) {
        self.looked_at = self.rate;
    }

    /// The rate that the users want, within the present part.
    pub(super) fn bounded(&mut self, part: Option<RatePart>) -> RateOptions {
        let is_new = self.part != part;
        self.part = part;
        let Some(part) = part else { return self.wish };
        let pace_bps = self.headers.pace(part.each_way);
        let change = pace_bps.abs_diff(self.pace_bps) as f64;
        if is_new || change > HEADERS_CHANGED * self.pace_bps as f64 {
            self.pace_bps = pace_bps;
        }
        part.bounds(self.wish, self.pace_bps)
    }

    /// This rate is set from now on. Returns whether the users are told of it.
    pub(super) fn set(&mut self, rate: RateOptions) -> bool {
        self.rate = rate;
        let is_news = is_news(self.told_user, rate);
        if is_news {
            self.told_user = rate;
        }
        is_news
    }

    /// Returns whether a sending peer assumes another rate than the one that is set.
    pub(super) fn is_peer_wrong(&self) -> bool {
        self.rate != self.taken
    }

    /// The peer is told the rate in a message that ends at this position of what it is sent.
    pub(super) fn note_told(&mut self, end: u64) {
        self.taken = self.rate;
        self.told = Some(end);
    }

    /// The part that the sender keeps to from now on, if that is another one than before: once a peer that
    /// sends has got the last message about it.
    pub(super) fn take_confirmation(&mut self, is_acked: impl Fn(u64) -> bool) -> Option<RatePart> {
        if self.told.is_some_and(is_acked) {
            self.told = None;
        }
        let part = self.part.filter(|_| self.told.is_none() && self.confirmed != self.part)?;
        self.confirmed = Some(part);
        Some(part)
    }

    /// The rate that the users want.
    #[cfg(test)]
    pub(super) fn wish(&self) -> RateOptions {
        self.wish
    }

    /// The position behind the last message to the peer about its rate, until the peer has it.
    #[cfg(test)]
    pub(super) fn told(&self) -> Option<u64> {
        self.told
    }
}

/// Returns whether the users are told of a rate. A rate that follows the measured headers changes again and
/// again.
fn is_news(told: RateOptions, rate: RateOptions) -> bool {
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
    use super::*;

    fn wish(bps: u64) -> RateOptions {
        RateOptions { rate_bps: Some(bps), ..RateOptions::default() }
    }

    fn part(bps: u64) -> Option<RatePart> {
        Some(RatePart { in_all: bps, each_way: bps })
    }

    #[test]
    fn users_hear_of_rates_that_have_changed_by_much() {
        let rate = |bps| RateOptions { rate_bps: bps, ..RateOptions::default() };
        for (bps, is_told) in [(Some(1000), false), (Some(980), false), (Some(960), true), (None, true)] {
            assert_eq!(is_news(rate(Some(1000)), rate(bps)), is_told);
        }
    }

    #[test]
    fn a_rate_is_the_wish_within_the_part() {
        let mut follower = RateFollower::new(Transport::Local, wish(1_000_000));
        assert_eq!(follower.begin(None).rate_bps, Some(1_000_000));
        assert_eq!(follower.bounded(part(400_000)).rate_bps, Some(400_000));
        follower.want(wish(100_000));
        assert_eq!(follower.bounded(part(400_000)).rate_bps, Some(100_000));
        assert_eq!(follower.bounded(None).rate_bps, Some(100_000));
    }

    #[test]
    fn a_part_is_confirmed_once_and_after_the_peer_has_been_told() {
        let mut follower = RateFollower::new(Transport::Local, wish(1_000_000));
        follower.begin(part(500_000));
        assert!(follower.is_peer_wrong(), "it assumes the wish");
        follower.note_told(17);
        assert!(!follower.is_peer_wrong());
        assert_eq!(follower.take_confirmation(|_| false), None);
        assert_eq!(follower.take_confirmation(|end| end == 17), part(500_000));
        assert_eq!(follower.take_confirmation(|_| true), None);
        follower.bounded(part(300_000));
        assert_eq!(follower.take_confirmation(|_| true), part(300_000));
    }

    #[test]
    fn a_wish_is_reported_when_it_has_changed_by_enough() {
        let mut follower = RateFollower::new(Transport::Local, wish(1_000_000));
        assert_eq!(follower.take_changed_wish(), None);
        follower.want(wish(1_005_000));
        assert_eq!(follower.take_changed_wish(), None);
        follower.want(wish(1_200_000));
        assert_eq!(follower.take_changed_wish(), Some(follower.wish_bps()));
        follower.want(RateOptions::default());
        assert_eq!(follower.take_changed_wish(), Some(None));
    }
}
