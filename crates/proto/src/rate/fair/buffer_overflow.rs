//! Whether what is lost is lost because of us: tests after an excess of loss, dips now and then, and what a
//! confirmed overflow teaches about the buffer.
//!
//! Always true: the window is cut for long only when less was lost at less; the path's own loss rises only by
//! what was lost while the queue was far from its longest.

use super::super::loss::LossCount;
use super::{FairLaw, Probe, QUEUE_SEEN, RateLimits, SLACK, seconds};
use crate::time::Timestamp;
use std::time::Duration;

/// Loss is judged over a quarter of so many packets on near paths.
const NEAR_SAMPLE: f64 = 8000.0;
/// Less excess loss than this says nothing on near paths.
const NEAR_EXCESS: f64 = 0.1;
/// An overflow is remembered so long.
const SHALLOW_AGE: Duration = Duration::from_secs(60);
/// Fewer packets say nothing about the path.
const LEARN_MIN: f64 = 20.0;
/// More arrivals than these tell whether less is lost at less.
const UNSURE: f64 = 200.0;
/// A dip lasts until so many packets have been sent.
const DIP_PACKETS: f64 = 40.0;
/// A dip that has moved the path's own loss down so far is followed by another one soon.
const DIP_AGAIN: f64 = 0.03;
/// A test has seen enough with so many packets, and takes no longer, however few they are.
const ENOUGH: f64 = 20_000.0;
const TEST_MIN: f64 = 0.5;
const TEST_ROUNDS: f64 = 20.0;
/// What feedback may be late, and the shortest reordering window: matters on short paths only.
const FEEDBACK: f64 = 0.002;

/// What was sent while it was looked at whether loss is our doing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossSample {
    all: LossCount,
    /// What of it was sent in a calm: with the queue far from its longest, which is where a buffer overflows.
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

/// After a cut: whether what was lost was lost because of us.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverflowTest {
    /// Packets that were sent after the cut are reported from then on.
    counts_from: Timestamp,
    sample: LossSample,
    /// Before the cut: what was lost, what was known of the path's own loss, and window, rate and queue
    /// before the first of cuts that follow each other.
    before: LossCount,
    own: f64,
    pub(super) window: f64,
    rate: f64,
    queue: f64,
    queue_since: f64,
}

/// A round trip sent below the delivered rate: nothing lost in it is our own doing.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateDip {
    pub(super) until: Timestamp,
    counts_from: Timestamp,
    counts_until: Timestamp,
    sample: LossSample,
    /// The pace, until the dip has been sent.
    pub(super) rate: f64,
    /// The test that it is to decide.
    unsure: Option<OverflowTest>,
}

/// What a confirmed overflow has taught about the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShallowBuffer {
    /// The queue at which it overflowed.
    pub(super) queue: f64,
    /// No larger window until then, and slowly larger ones from then on.
    pub(super) window: f64,
    pub(super) hold_until: Timestamp,
    hold_rounds: f64,
    pub(super) learned_at: Timestamp,
}

impl FairLaw {
    /// Goes on with a test or a dip, or begins one, while delay or a held rate guides the window.
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
            // A buffer is as deep as the queue that stands in it. On near paths it may stand in a receiver.
            shallow.queue = shallow.queue.max(standing);
        }
        self.step_dip(now, count, !is_trial);
        if let Some(Probe::Test(test)) = self.probe {
            return self.step_test(now, test, count, limits);
        }
        // Where an end stands still for many round trips, what is lost and what arrives are told in lumps.
        let packets = if self.is_unpaced() { NEAR_SAMPLE } else { self.window / self.path.packet() };
        // Without a rate there is nothing to go back to.
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
        // A dip that began before it may have explained what was lost.
        let is_explained = self.loss.own() > test.own && !self.loss.is_excess(test.before);
        let is_over = (now - test.counts_from).as_secs_f64() > most;
        if test.sample.all.all < enough && !is_over && !is_explained {
            self.probe = Some(Probe::Test(test));
        } else {
            self.probe = None;
            self.end_test(now, &test, self.goal(now, limits));
        }
    }

    /// Less is sent for a round, to see whether less is lost. `earlier` is the test that this one goes on
    /// from.
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
        // Without a queue to see, chance is likelier than a buffer too short for one.
        let is_unseen = was_low && test.queue < QUEUE_SEEN;
        let is_chance = is_unseen && !self.loss.is_less(seen, test.before);
        if is_chance {
            self.learn_unseen(now, test);
            self.window = self.window.max(0.95 * test.window);
            return;
        }
        if self.loss.is_excess(seen) && self.loss.is_less(seen, test.before) {
            // What falls with what is sent is not the path's own: less is sent still.
            return self.begin_test(now, seen, Some(test));
        }
        if was_low {
            // Below what arrives, and without a queue, nothing was lost because of us. A dip is to confirm
            // it.
            self.dip_due = Some(now + seconds(4.0 * self.path.round_trip()));
            if is_unseen {
                self.learn_unseen(now, test);
            } else {
                self.learn(&test.sample);
            }
        }
        // A busy receiver drops a little now and then, which is no reason to leave a near path's own
        // backpressure.
        let was_unpaced = self.is_near() && self.shallow.is_none();
        let slight = was_unpaced && test.before.share() < self.loss.own() + NEAR_EXCESS;
        if slight || !self.loss.is_excess(test.before) {
            // What was tried beyond what arrives is not tried again at once.
            let proven = 1.1 * test.rate / (1.0 - self.loss.own()) * self.path.base()
                + goal * test.rate
                + SLACK * self.path.packet();
            let proven = if was_unpaced { f64::INFINITY } else { proven };
            self.window = self.window.max(proven.min(0.95 * test.window));
            return;
        }
        if !was_low && self.loss.is_excess(seen) {
            // Others keep the queue from emptying.
            return self.learn(&test.sample);
        }
        self.window = self.window.max(0.95 * self.carried(test)).min(test.window);
        self.on_overflow(now, test);
    }

    /// What arrived while the buffer was full is what the path carries, unless an end stood still just then.
    fn carried(&self, test: &OverflowTest) -> f64 {
        test.rate.max(self.rates.round) / (1.0 - self.loss.own()) * self.path.base()
    }

    /// What was lost before the test was lost because of us.
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

    /// Less than was believed is believed of all that was sent. More is only believed of what was sent in a
    /// calm: in a full buffer that others share, what is lost does not show whose doing it was, and eight
    /// transfers taught each other a loss of 80 %.
    fn learn(&mut self, sample: &LossSample) {
        let seen = if sample.all.share() < self.loss.own() { sample.all } else { sample.calm };
        if seen.all >= LEARN_MIN {
            self.loss.bound(seen);
        }
    }

    /// A test sends what arrives and what the path is believed to lose, which behind a policer is what made
    /// it lose: only a dip, which sends less than arrives, tells. Behind policers of 5 to 20 Mbit/s transfers
    /// taught themselves a loss of 50 %, at five times their rate.
    fn learn_unseen(&mut self, now: Timestamp, test: &OverflowTest) {
        let seen = test.sample.all;
        if self.is_unpaced() || seen.all - seen.lost > UNSURE {
            self.learn(&test.sample);
        } else {
            (self.dip_due, self.unsure) = (Some(now), Some(*test));
        }
    }

    /// Goes on with a dip, or begins one that is due. A trial would take it for somebody who takes our rate.
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
        // Where hardly anything arrives, as in a black hole for long datagrams, there is nothing to go below.
        if rate * round < self.path.packet() {
            return;
        }
        self.dip_due = Some(now + seconds((50.0 * round).max(10.0)));
        // Where few packets are in flight it takes longer to see enough of them.
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
