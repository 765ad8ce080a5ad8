//! Decides whether streams carry beside UDP or instead of it, and how many there should be.
//!
//! Always true: it decides on what it is told, and changes nothing else; `streams.rs` carries the decisions out.
//! If UDP works, no stream carries unless a trial has shown that streams bring more.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::carriers::connection_growth::{CarrierSample, ConnectionGrowth};

/// Streams that get nothing new end after this long; by then they have delivered what they had.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// How long a hint holds.
const HINT_TIME: Duration = Duration::from_millis(1500);
/// UDP is policed if it looks so for this long.
const POLICED_TIME: Duration = Duration::from_millis(1500);
/// A trial ends after this long if no connection could be opened or measured.
const TRIAL_TIME: Duration = Duration::from_secs(8);
/// Streams have shown that they bring more if the sum is this many times what UDP had alone.
const TRIAL_PAYS: f64 = 1.25;
/// UDP that brings less than this share of the whole only loses packets, and is no longer used.
const UDP_PART_MIN: f64 = 0.1;
/// After a trial without a gain the next one waits for this long, then twice as long, and so on.
const TRIAL_PAUSE: Duration = Duration::from_secs(60);
/// Streams have at least this share of a limit, whatever UDP takes.
const SHARE_LEAST: f64 = 0.05;

/// The flows that carry content.
#[derive(Debug)]
enum CarrierState {
    /// UDP alone, or a single stream.
    Alone,
    /// Streams beside UDP, until it is clear who brings more. UDP alone brought `udp_before` bytes a second.
    Trial { udp_before: f64, until: Duration },
    /// Streams, and UDP beside them if that pays.
    Streams,
}

/// UDP that is held far below TCP: what it brought alone, in bytes a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicedUdp {
    pub(super) udp: f64,
    /// When the streams began, and what they had brought by then.
    pub(super) since: Duration,
    pub(super) bytes: u64,
}

/// What follows from what streams and UDP bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamVerdict {
    GoOn,
    /// Streams do not pay: UDP carries everything again.
    LetGo,
    /// Both carry.
    Both,
    /// Streams carry, and UDP gets nothing new.
    StreamsOnly,
}

/// The state of the decision who carries; times are by the session's clock.
#[derive(Debug)]
pub(super) struct StreamCarrier {
    carrying: CarrierState,
    /// The result of a trial.
    policed: Option<PolicedUdp>,
    growth: Option<ConnectionGrowth>,
    /// Streams that the initiator has announced before their connection came.
    used: BTreeSet<u16>,
    is_advice_given: bool,
    /// Since when UDP looks policed.
    policed_since: Option<Duration>,
    is_trial_wanted: bool,
    next_trial: Duration,
    trial_pause: Duration,
    udp: Speed,
    /// When the sender, here or at the other end, last said that more streams would bring more.
    hint: Option<Duration>,
    /// Since when no stream gets anything new.
    idle_since: Duration,
    /// True if UDP gets nothing new.
    is_udp_idle: bool,
}

/// A rate over about a second.
#[derive(Debug, Default)]
struct Speed {
    at: Duration,
    bytes: u64,
    rate: f64,
}

impl Speed {
    fn look(&mut self, now: Duration, bytes: u64) {
        let time = now.saturating_sub(self.at).as_secs_f64();
        if time >= 1.0 {
            self.rate = bytes.saturating_sub(self.bytes) as f64 / time;
            (self.at, self.bytes) = (now, bytes);
        }
    }
}

impl StreamCarrier {
    pub(super) fn new() -> StreamCarrier {
        StreamCarrier {
            carrying: CarrierState::Alone,
            policed: None,
            growth: None,
            used: BTreeSet::new(),
            is_advice_given: false,
            policed_since: None,
            is_trial_wanted: false,
            next_trial: Duration::ZERO,
            trial_pause: TRIAL_PAUSE,
            udp: Speed::default(),
            hint: None,
            idle_since: Duration::ZERO,
            is_udp_idle: false,
        }
    }

    // ---- who carries --------------------------------------------------------------------------

    /// Returns whether the initiator has said that a stream is used.
    pub(super) fn is_said_to_be_used(&self, index: u16) -> bool {
        self.used.contains(&index)
    }

    /// The initiator says whether a stream is used.
    pub(super) fn hear_use(&mut self, index: u16, is_used: bool) {
        match is_used {
            true => self.used.insert(index),
            false => self.used.remove(&index),
        };
    }

    /// Returns whether UDP gets nothing new.
    pub(super) fn is_udp_idle(&self) -> bool {
        self.is_udp_idle
    }

    pub(super) fn set_udp_idle(&mut self, is_idle: bool) {
        self.is_udp_idle = is_idle;
    }

    pub(super) fn is_trial(&self) -> bool {
        matches!(self.carrying, CarrierState::Trial { .. })
    }

    /// Returns whether a trial has shown that streams bring more than UDP.
    pub(super) fn has_better_streams(&self) -> bool {
        matches!(self.carrying, CarrierState::Streams)
    }

    /// The result of a trial.
    pub(super) fn policed(&self) -> Option<PolicedUdp> {
        self.policed
    }

    /// Returns true once: the user is advised once.
    pub(super) fn take_advice_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.is_advice_given, true)
    }

    /// UDP has moved this much in all.
    pub(super) fn look_at_udp(&mut self, now: Duration, bytes: u64) {
        self.udp.look(now, bytes);
    }

    /// The share of each of `carrying` streams in a limit of `most_bps`.
    pub(super) fn share(&self, most_bps: u64, has_udp: bool, carrying: usize) -> f64 {
        let beside = if has_udp { 8.0 * self.udp.rate / most_bps as f64 } else { 0.0 };
        (1.0 - beside).max(SHARE_LEAST) / carrying.max(1) as f64
    }

    // ---- how many streams -----------------------------------------------------------------------

    /// How many streams should carry.
    pub(super) fn wanted(&mut self, most: usize, seen: &CarrierSample, now: Duration) -> usize {
        self.growth.get_or_insert_with(|| ConnectionGrowth::new(most, now)).look(now, seen)
    }

    /// No stream carries: if all have ended, UDP goes on, and another trial may follow.
    pub(super) fn note_no_stream(&mut self) {
        self.growth = None;
        if self.has_better_streams() {
            self.carrying = CarrierState::Alone;
        }
    }

    /// UDP carries everything again, from `now` on.
    pub(super) fn let_go(&mut self, now: Duration) {
        self.growth = None;
        self.carrying = CarrierState::Alone;
        self.idle_since = now;
    }

    /// Returns whether streams that get nothing new should end.
    pub(super) fn is_long_idle(&self, now: Duration) -> bool {
        now.saturating_sub(self.idle_since) >= IDLE_TIME
    }

    // ---- hints ----------------------------------------------------------------------------------

    /// A sender that is not the initiator sees that more streams would bring more. Returns whether it is time
    /// to say so.
    pub(super) fn is_hint_due(&mut self, now: Duration) -> bool {
        let is_due = self.hint.is_none_or(|at| now.saturating_sub(at) >= HINT_TIME / 2);
        if is_due {
            self.hint = Some(now);
        }
        is_due
    }

    /// Returns whether the sender has just said that more streams would bring more.
    pub(super) fn is_hinted(&self, now: Duration) -> bool {
        self.hint.is_some_and(|at| now.saturating_sub(at) < HINT_TIME)
    }

    // ---- trials ---------------------------------------------------------------------------------

    /// The sender at the other end has seen that UDP looks policed.
    pub(super) fn want_trial(&mut self, now: Duration) {
        self.is_trial_wanted = true;
        self.hint = Some(now);
    }

    /// Watches at the sender whether UDP looks policed, for long enough. Returns whether the initiator has to be
    /// told; if it is this end, a trial follows.
    pub(super) fn watch_for_policing(
        &mut self,
        looks_policed: bool,
        is_initiator: bool,
        now: Duration,
    ) -> bool {
        if !looks_policed {
            self.policed_since = None;
            return false;
        }
        let since = *self.policed_since.get_or_insert(now);
        if now.saturating_sub(since) < POLICED_TIME || now < self.next_trial {
            return false;
        }
        self.policed_since = None;
        if is_initiator {
            self.is_trial_wanted = true;
        } else {
            self.next_trial = now + TRIAL_PAUSE / 4;
        }
        !is_initiator
    }

    /// Begins a trial if one is wanted, possible and due.
    pub(super) fn begin_trial(&mut self, is_possible: bool, now: Duration) {
        let is_wanted = std::mem::take(&mut self.is_trial_wanted);
        let is_alone = matches!(self.carrying, CarrierState::Alone);
        if !is_wanted || !is_possible || !is_alone || now < self.next_trial {
            return;
        }
        tracing::debug!(udp_mbps = self.udp.rate * 8e-6, "UDP looks policed; trying streams beside it");
        self.next_trial = now + self.trial_pause;
        self.trial_pause *= 2;
        self.growth = None;
        self.carrying = CarrierState::Trial { udp_before: self.udp.rate, until: now + TRIAL_TIME };
    }

    /// Judges by what streams and UDP bring. `streams_bytes` is what the streams have moved in all.
    pub(super) fn judge(&mut self, has_udp: bool, streams_bytes: u64, now: Duration) -> StreamVerdict {
        if matches!(self.carrying, CarrierState::Trial { until, .. } if now >= until) {
            return StreamVerdict::LetGo;
        }
        let Some(growth) = &self.growth else { return StreamVerdict::GoOn };
        match growth.rate() {
            Some(rate) => self.judge_rate(rate, growth.is_resting(), has_udp, streams_bytes, now),
            None => StreamVerdict::GoOn,
        }
    }

    /// As [`StreamCarrier::judge`], by what the streams bring a second, and whether their number has settled.
    fn judge_rate(
        &mut self,
        rate: f64,
        is_settled: bool,
        has_udp: bool,
        streams_bytes: u64,
        now: Duration,
    ) -> StreamVerdict {
        let udp_rate = self.udp.rate;
        match self.carrying {
            CarrierState::Trial { udp_before, .. } if udp_rate + rate < TRIAL_PAYS * udp_before => {
                tracing::debug!(udp_mbps = udp_rate * 8e-6, streams_mbps = rate * 8e-6, "streams do not pay");
                StreamVerdict::LetGo
            }
            CarrierState::Trial { udp_before, .. } => {
                self.policed = Some(PolicedUdp { udp: udp_before, since: now, bytes: streams_bytes });
                self.carrying = CarrierState::Streams;
                StreamVerdict::Both
            }
            CarrierState::Streams if !self.is_udp_idle && is_settled && has_udp => {
                let is_small = udp_rate < UDP_PART_MIN * (udp_rate + rate);
                if is_small { StreamVerdict::StreamsOnly } else { StreamVerdict::GoOn }
            }
            CarrierState::Alone | CarrierState::Streams => StreamVerdict::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A trial that has just begun; UDP alone brought a million bytes a second.
    fn trial() -> (StreamCarrier, Duration) {
        let mut streams = StreamCarrier::new();
        streams.look_at_udp(SECOND, 1_000_000);
        streams.want_trial(SECOND);
        streams.begin_trial(true, SECOND);
        assert!(streams.is_trial());
        (streams, SECOND)
    }

    #[test]
    fn a_trial_begins_once_udp_has_looked_policed_for_a_while() {
        let mut streams = StreamCarrier::new();
        assert!(!streams.watch_for_policing(true, true, SECOND));
        streams.begin_trial(true, SECOND);
        assert!(!streams.is_trial(), "not yet");
        assert!(!streams.watch_for_policing(true, true, SECOND + POLICED_TIME), "this end is the initiator");
        streams.begin_trial(true, SECOND + POLICED_TIME);
        assert!(streams.is_trial());
        let mut streams = StreamCarrier::new();
        streams.watch_for_policing(true, false, SECOND);
        streams.watch_for_policing(false, false, SECOND * 2);
        assert!(!streams.watch_for_policing(true, false, SECOND * 4), "it begins anew");
        assert!(streams.watch_for_policing(true, false, SECOND * 4 + POLICED_TIME), "the initiator is told");
    }

    #[test]
    fn streams_that_do_not_pay_are_let_go_and_the_next_trial_waits() {
        let (mut streams, now) = trial();
        assert_eq!(streams.judge_rate(200_000.0, true, true, 0, now), StreamVerdict::LetGo);
        streams.let_go(now);
        assert!(!streams.is_trial() && !streams.is_long_idle(now) && streams.is_long_idle(now + IDLE_TIME));
        for (later, is_trial) in [(TRIAL_PAUSE / 2, false), (TRIAL_PAUSE, true)] {
            streams.want_trial(now + later);
            streams.begin_trial(true, now + later);
            assert_eq!(streams.is_trial(), is_trial);
        }
    }

    #[test]
    fn a_trial_that_measures_nothing_ends() {
        let (mut streams, now) = trial();
        assert_eq!(streams.judge(true, 0, now + TRIAL_TIME / 2), StreamVerdict::GoOn);
        assert_eq!(streams.judge(true, 0, now + TRIAL_TIME), StreamVerdict::LetGo);
    }

    #[test]
    fn streams_that_bring_more_carry_and_udp_beside_them_while_it_brings_a_part() {
        let (mut streams, now) = trial();
        assert_eq!(streams.judge_rate(1_000_000.0, false, true, 17, now), StreamVerdict::Both);
        assert!(streams.has_better_streams() && streams.policed().is_some_and(|udp| udp.bytes == 17));
        assert_eq!(streams.judge_rate(5_000_000.0, true, true, 0, now), StreamVerdict::GoOn);
        assert_eq!(streams.judge_rate(50_000_000.0, false, true, 0, now), StreamVerdict::GoOn, "not settled");
        assert_eq!(streams.judge_rate(50_000_000.0, true, true, 0, now), StreamVerdict::StreamsOnly);
        streams.set_udp_idle(true);
        assert_eq!(streams.judge_rate(50_000_000.0, true, true, 0, now), StreamVerdict::GoOn, "said already");
        streams.note_no_stream();
        assert!(!streams.has_better_streams());
    }

    #[test]
    fn streams_share_what_udp_leaves_of_a_limit() {
        let (streams, _) = trial();
        assert!((streams.share(16_000_000, true, 2) - 0.25).abs() < 1e-9);
        assert!((streams.share(16_000_000, false, 2) - 0.5).abs() < 1e-9);
        assert!((streams.share(8_000_000, true, 1) - SHARE_LEAST).abs() < 1e-9);
    }
}
