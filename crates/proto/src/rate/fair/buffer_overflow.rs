//! Finds out whether we cause the losses: by tests after an excess of loss, and by dips now and then. Also
//! keeps what a confirmed overflow shows about the buffer.
//!
//! Always true: the window is cut for long only if less was lost when less was sent; only losses while the
//! queue was far from its longest raise the path's own loss.

use super::super::loss::LossCount;
use super::{FairLaw, Probe, QUEUE_SEEN, RateLimits, SLACK, seconds};
use crate::time::Timestamp;
use std::time::Duration;

/// On near paths, loss is judged over a quarter of this many packets.
const NEAR_SAMPLE: f64 = 8000.0;
/// On near paths, an excess of loss below this says nothing.
const NEAR_EXCESS: f64 = 0.1;
/// How long an overflow is remembered.
const SHALLOW_AGE: Duration = Duration::from_secs(60);
/// The fewest packets that say something about the path's loss.
const LEARN_MIN: f64 = 20.0;
/// A test without a visible queue counts by itself if more packets than this arrive; otherwise a dip decides.
const UNSURE: f64 = 200.0;
/// The number of packets that a dip sends.
const DIP_PACKETS: f64 = 40.0;
/// A dip that lowers the path's own loss by more than this is soon followed by another one.
const DIP_AGAIN: f64 = 0.03;
/// A test ends after this many packets. With fewer, it ends after `TEST_MIN` seconds or `TEST_ROUNDS` round
/// trips, whichever is longer.
const ENOUGH: f64 = 20_000.0;
const TEST_MIN: f64 = 0.5;
const TEST_ROUNDS: f64 = 20.0;
/// The delay of feedback and the shortest reordering window, in seconds; this matters on short paths only.
const FEEDBACK: f64 = 0.002;

/// Packets that were sent while we examine whether we cause the losses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossSample {
    all: LossCount,
    /// The part of them that was sent in a calm: with the queue far from its longest, at which a buffer
    /// overflows.
    calm: LossCount,
}

impl LossSample {
    fn add(&mut self, count: LossCount, is_calm: bool) {
        self.all.add(count);
        if is_calm {
            self.calm.add(count);
        }
    }
}

/// A test after a cut: it shows whether we caused the losses before the cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverflowTest {
    /// From this time on, reports are about packets sent after the cut.
    counts_from: Timestamp,
    sample: LossSample,
    /// The state before the cut: the losses, the believed loss of the path, and window, rate and queue before
    /// the first of several cuts in a row.
    before: LossCount,
    own: f64,
    pub(super) window: f64,
    rate: f64,
    queue: f64,
    queue_since: f64,
}

/// A time in which we send below the delivery rate: no loss in it is our own doing.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateDip {
    pub(super) until: Timestamp,
    counts_from: Timestamp,
    counts_until: Timestamp,
    sample: LossSample,
    /// The pace while the dip is sent.
    pub(super) rate: f64,
    /// The test that this dip decides.
    unsure: Option<OverflowTest>,
}

/// What a confirmed overflow has shown about the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShallowBuffer {
    /// The queue at which it overflowed.
    pub(super) queue: f64,
    /// The largest window until `hold_until`; after that it grows slowly.
    pub(super) window: f64,
    pub(super) hold_until: Timestamp,
    hold_rounds: f64,
    pub(super) learned_at: Timestamp,
}

impl FairLaw {
    /// Continues a test or a dip, or begins one, while delay or a held rate guides the window.
    pub(super) fn step_losses(
        &mut self,
        now: Timestamp,
        count: LossCount,
        is_trial: bool,
        limits: &RateLimits,
    ) {
        if now < self.deaf.loss {
            return self.loss.restart();
        }
        if self.shallow.is_some_and(|shallow| now - shallow.learned_at > SHALLOW_AGE) {
            self.shallow = None;
        }
        let (standing, is_near) = (self.path.standing(), self.is_near());
        if let Some(shallow) = self.shallow.as_mut().filter(|_| !is_near) {
            // A buffer is at least as deep as the queue that stands in it. On near paths the queue may stand
            // in the receiver.
            shallow.queue = shallow.queue.max(standing);
        }
        self.step_dip(now, count, !is_trial);
        if let Some(Probe::Test(test)) = self.probe {
            return self.step_test(now, test, count, limits);
        }
        // On near paths an end may stand still for many round trips; reports of losses and arrivals then come
        // in lumps.
        let packets = if self.is_unpaced() { NEAR_SAMPLE } else { self.window / self.path.packet() };
        // The window of a test is computed from the rate.
        if self.probe.is_none()
            && self.rates.round > 0.0
            && let Some(before) = self.loss.judge(packets)
        {
            self.begin_test(now, before, None);
        }
    }

    fn step_test(&mut self, now: Timestamp, mut test: OverflowTest, count: LossCount, limits: &RateLimits) {
        if now >= test.counts_from {
            test.sample.add(count, self.is_calm());
            test.queue_since = test.queue_since.max(self.path.standing());
        }
        let to_tell = self.loss.packets_to_tell(test.before.share() - self.loss.own());
        let enough = to_tell.max(self.window / self.path.packet()).min(ENOUGH);
        let most = TEST_MIN.max(TEST_ROUNDS * self.path.round_trip());
        // A dip that began before the test may have explained the losses.
        let is_explained = self.loss.own() > test.own && !self.loss.is_excess(test.before);
        let is_over = (now - test.counts_from).as_secs_f64() > most;
        if test.sample.all.all < enough && !is_over && !is_explained {
            self.probe = Some(Probe::Test(test));
        } else {
            self.probe = None;
            self.end_test(now, &test, self.goal(now, limits));
        }
    }

    /// Sends less for a round, to see whether less is lost. `earlier` is the test that this one continues.
    fn begin_test(&mut self, now: Timestamp, before: LossCount, earlier: Option<&OverflowTest>) {
        let in_flight = self.in_flight * (1.0 - self.loss.own()) / self.rates.round.max(1.0);
        let mut test = OverflowTest {
            counts_from: now,
            sample: LossSample::default(),
            before,
            own: self.loss.own(),
            window: self.window,
            rate: self.rates.round,
            queue: self.queue.peak,
            queue_since: 0.0,
        };
        self.probe = Some(Probe::Test(test));
        self.look_at_pace();
        let round = self.path.round_trip();
        test.counts_from = now + seconds(in_flight.clamp(1.25 * round, 8.0 * round) + FEEDBACK);
        test.window = self.window;
        if let Some(earlier) = earlier {
            (test.window, test.rate, test.queue) = (earlier.window, earlier.rate, earlier.queue);
        }
        self.probe = Some(Probe::Test(test));
        self.window = (0.85 * self.pipe()).clamp(0.5 * self.window, self.window);
    }

    fn end_test(&mut self, now: Timestamp, test: &OverflowTest, goal: f64) {
        let seen = test.sample.all;
        self.loss.restart();
        let low = (0.6 * test.queue).max(QUEUE_SEEN);
        let was_low = self.is_near() || test.queue_since < low;
        // If no queue was visible, chance is likelier than a buffer too short to show one.
        let is_unseen = was_low && test.queue < QUEUE_SEEN;
        let is_chance = is_unseen && !self.loss.is_less(seen, test.before);
        if is_chance {
            self.learn_unseen(now, test);
            self.window = self.window.max(0.95 * test.window);
            return;
        }
        if self.loss.is_excess(seen) && self.loss.is_less(seen, test.before) {
            // Loss that falls when less is sent is not the path's own, so send even less.
            return self.begin_test(now, seen, Some(test));
        }
        if was_low {
            // We sent less than arrived, and there was no queue: we caused no loss. A dip is to confirm that.
            self.dip_due = Some(now + seconds(4.0 * self.path.round_trip()));
            if is_unseen {
                self.learn_unseen(now, test);
            } else {
                self.learn(&test.sample);
            }
        }
        // A busy receiver drops a few packets now and then. That is no reason to begin pacing on a near path.
        let was_unpaced = self.is_near() && self.shallow.is_none();
        let slight = was_unpaced && test.before.share() < self.loss.own() + NEAR_EXCESS;
        if slight || !self.loss.is_excess(test.before) {
            // A window beyond what has arrived is not tried again at once.
            let proven = 1.1 * test.rate / (1.0 - self.loss.own()) * self.path.base()
                + goal * test.rate
                + SLACK * self.path.packet();
            let proven = if was_unpaced { f64::INFINITY } else { proven };
            self.window = self.window.max(proven.min(0.95 * test.window));
            return;
        }
        if !was_low && self.loss.is_excess(seen) {
            // Other senders keep the queue from emptying.
            return self.learn(&test.sample);
        }
        self.window = self.window.max(0.95 * self.carried(test)).min(test.window);
        self.on_overflow(now, test);
    }

    /// The bytes in flight that the path carries. The rate that arrived while the buffer was full shows it,
    /// unless an end stood still just then: so the present rate counts if it is higher.
    fn carried(&self, test: &OverflowTest) -> f64 {
        test.rate.max(self.rates.round) / (1.0 - self.loss.own()) * self.path.base()
    }

    /// We caused the losses before the test: keeps what that shows about the buffer.
    fn on_overflow(&mut self, now: Timestamp, test: &OverflowTest) {
        let again =
            self.shallow.filter(|shallow| now < shallow.hold_until + seconds(60.0 * self.path.round_trip()));
        let hold_rounds = again.map_or(8.0, |shallow| (1.5 * shallow.hold_rounds).min(30.0));
        self.shallow = Some(ShallowBuffer {
            queue: test.queue,
            window: if test.queue > QUEUE_SEEN { f64::INFINITY } else { self.carried(test) },
            hold_until: now + seconds(hold_rounds * self.path.round_trip()),
            hold_rounds,
            learned_at: now,
        });
    }

    /// Lowers the path's own loss by all that was sent, but raises it only by what was sent in a calm. In a
    /// full buffer that several transfers share, losses do not show who caused them, and the transfers would
    /// teach each other ever higher losses.
    fn learn(&mut self, sample: &LossSample) {
        let seen = if sample.all.share() < self.loss.own() { sample.all } else { sample.calm };
        if seen.all >= LEARN_MIN {
            self.loss.bound(seen);
        }
    }

    /// A test sends what arrives plus what the path is believed to lose. Behind a policer, this surplus is
    /// what gets lost, so the test would confirm any belief. Only a dip, which sends less than arrives,
    /// decides.
    fn learn_unseen(&mut self, now: Timestamp, test: &OverflowTest) {
        let seen = test.sample.all;
        if self.is_unpaced() || seen.all - seen.lost > UNSURE {
            self.learn(&test.sample);
        } else {
            (self.dip_due, self.unsure) = (Some(now), Some(*test));
        }
    }

    /// Continues a dip, or begins one that is due. A trial begins none: it would take the dip for a
    /// competitor that takes our rate.
    pub(super) fn step_dip(&mut self, now: Timestamp, count: LossCount, may_begin: bool) {
        let due = *self.dip_due.get_or_insert(now);
        if let Some(mut dip) = self.dip.take() {
            if now >= dip.counts_from && now < dip.counts_until {
                dip.sample.add(count, self.is_calm());
            }
            match now < dip.counts_until {
                true => self.dip = Some(dip),
                false => self.end_dip(now, &dip),
            }
        } else if may_begin && now >= due && (self.loss.own() >= 0.01 || self.unsure.is_some()) {
            let is_free = !matches!(self.probe, Some(Probe::Test(_) | Probe::Step(_)));
            if is_free && !self.is_unpaced() {
                self.begin_dip(now);
            }
        }
    }

    fn begin_dip(&mut self, now: Timestamp) {
        let round = self.path.round_trip();
        let rate = (1.0 - self.loss.own()).clamp(0.5, 0.9) * self.rates.round;
        // If hardly anything arrives, as when the path swallows long datagrams, the rate cannot go lower.
        if rate * round < self.path.packet() {
            return;
        }
        self.dip_due = Some(now + seconds((50.0 * round).max(10.0)));
        // With few packets in flight, it takes longer to see enough of them.
        let rounds = (DIP_PACKETS * self.path.packet() / (rate * round)).clamp(1.0, 8.0);
        self.dip = Some(RateDip {
            until: now + seconds(rounds * round),
            counts_from: now + seconds(1.15 * round + FEEDBACK),
            counts_until: now + seconds((rounds + 1.1) * round + FEEDBACK),
            sample: LossSample::default(),
            rate,
            unsure: self.unsure.take(),
        });
    }

    fn end_dip(&mut self, now: Timestamp, dip: &RateDip) {
        let before = self.loss.own();
        self.learn(&dip.sample);
        if self.loss.own() < before - DIP_AGAIN {
            self.dip_due = Some(now + seconds(4.0 * self.path.round_trip()));
        }
        let lost_less = |test: &OverflowTest| self.loss.is_less(dip.sample.all, test.before);
        if let Some(test) = dip.unsure.filter(lost_less) {
            self.window = self.window.min(0.95 * self.carried(&test));
            self.on_overflow(now, &test);
        }
    }
}
