//! Tells the path's own loss from the loss that we cause: only what exceeds the path's own is congestion.
//!
//! ```text
//! excess(n, l):  l > n (p_b + 0.002) + z sqrt(n p_b (1 - p_b) V) + 4 L,   V = max(1, 2 L (1 - p_b) - 1)
//! ```
//!
//! Here l of n packets were lost; L is the mean length of a run of lost packets, so that a burst is one
//! event; p_b is the path's own loss. p_b rises only on evidence that cannot be congestion: losses while the
//! queue was far from its longest, in a *test* (a round after a cut) or in a *dip* (a round trip sent below
//! the delivery rate, where no loss can be ours). It must not rise on ordinary rounds: a p_b that is a little
//! too high overloads the link, which then confirms it.
//! From: the excess rule of BBRv2 (2 % above zero), with the path's own loss in the place of zero.

use super::FeedbackReport;

/// Loss within this many standard deviations of the path's own is no excess.
const Z: f64 = 5.0;
/// Two samples within this many standard deviations do not differ. The number is high because a sample begins
/// a test only if its loss is high.
const Z_TEST: f64 = 3.0;
/// Samples from a calm differ by more than this many standard deviations only if the path is another one.
/// Three would not do: chance exceeds them in one dip of four hundred.
const Z_CALM: f64 = 4.0;
/// This much more loss is no excess either: among a million packets a thousandth is significant, but
/// harmless.
const SLIGHT: f64 = 0.002;
/// The mean length of runs is taken over at least this many.
const RUNS: f64 = 20.0;
/// The path's own loss is known from the last calm packets: this many, or twice the last sample if that is
/// more.
const CALM_MAX: f64 = 20_000.0;
/// The fewest packets that are a sample.
const SAMPLE_MIN: f64 = 300.0;
/// The number of packets that an earlier transfer's knowledge counts as.
const RECALLED: f64 = 5_000.0;

/// Packets, and how many of them were lost.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossCount {
    pub all: f64,
    pub lost: f64,
}

impl LossCount {
    pub(super) fn add(&mut self, other: LossCount) {
        self.lost += other.lost;
        self.all += other.all;
    }

    /// Scales the count down to at most `most` packets, with the same share.
    fn keep(&mut self, most: f64) {
        let part = (most / self.all.max(1.0)).min(1.0);
        (self.all, self.lost) = (part * self.all, part * self.lost);
    }

    /// The variance of the difference between the shares of two samples of one path whose losses are
    /// independent.
    pub(super) fn variance_beside(self, other: LossCount) -> f64 {
        let mut both = self;
        both.add(other);
        let share = both.share();
        share * (1.0 - share) * (1.0 / self.all.max(1.0) + 1.0 / other.all.max(1.0))
    }

    pub(super) fn share(&self) -> f64 {
        if self.all > 0.0 { (self.lost / self.all).clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct PathLoss {
    /// The path's own loss, p_b.
    own: f64,
    /// Recently lost packets, and the number of runs that they came in: L is the quotient.
    runs: (f64, f64),
    count: LossCount,
    /// The packets that show the path's own loss: of the start, and of tests and dips since.
    calm: LossCount,
    is_tested: bool,
}

impl PathLoss {
    pub(super) fn new() -> Self {
        PathLoss { runs: (1.0, 1.0), ..PathLoss::default() }
    }

    /// The path's own loss.
    pub(super) fn own(&self) -> f64 {
        self.own
    }

    /// Takes what the start has seen of the path's own loss.
    pub(super) fn begin(&mut self, seen: LossCount) {
        self.calm = seen;
        self.set_own(seen.share());
    }

    /// An earlier transfer has seen this share lost. After a jump the start has seen little, and losses of
    /// the path would be taken for an overflow.
    pub(super) fn recall(&mut self, share: f64) {
        let mut seen = LossCount { all: RECALLED, lost: share * RECALLED };
        if self.differ(self.calm, seen).abs() <= Z_CALM {
            seen.add(self.calm);
            self.begin(seen);
        }
    }

    fn set_own(&mut self, share: f64) {
        self.own = share.clamp(0.0, 0.6);
        self.restart();
    }

    /// Takes a sample in which no loss was our doing. The path's own loss then lies within half a standard
    /// deviation of this sample and those before, as far as they agree. Few packets move it little: twenty
    /// without a loss say nothing against 5 %.
    pub(super) fn bound(&mut self, seen: LossCount) {
        let differs = self.differ(seen, self.calm).abs() > Z_CALM;
        if differs {
            self.calm = LossCount::default();
        }
        self.calm.add(seen);
        self.calm.keep(CALM_MAX.max(2.0 * seen.all));
        self.is_tested = true;
        let share = self.calm.share();
        let spread = 0.5 * self.deviation(self.calm.all, share.max(self.own)) / self.calm.all.max(1.0);
        let own = self.own.clamp((share - spread).max(0.0), share + spread);
        // A sample with less loss than was believed is no reason to believe more.
        let most = if seen.share() < self.own { self.own } else { 1.0 };
        self.set_own(own.min(most));
    }

    /// Whether a test or a dip has added to what the start has seen.
    pub(super) fn is_tested(&self) -> bool {
        self.is_tested
    }

    /// Whether more were lost than the path's own loss explains.
    pub(super) fn is_excess(&self, count: LossCount) -> bool {
        count.lost > self.tolerated(count.all)
    }

    /// Whether the share of `test` is less than that of `before` by more than chance.
    pub(super) fn is_less(&self, test: LossCount, before: LossCount) -> bool {
        self.differ(test, before) > Z_TEST
    }

    /// By how many standard deviations the share of `test` is less than that of `before`.
    fn differ(&self, test: LossCount, before: LossCount) -> f64 {
        let mut both = before;
        both.add(test);
        let variance = before.variance_beside(test) * self.variance_factor(both.share());
        (before.share() - test.share()) / variance.sqrt().max(f64::MIN_POSITIVE)
    }

    /// Forgets what was counted, because something has changed.
    pub(super) fn restart(&mut self) {
        self.count = LossCount::default();
    }

    /// Takes a report, and returns what it counts.
    pub(super) fn on_report(&mut self, report: &FeedbackReport) -> LossCount {
        self.runs.0 += f64::from(report.packets_lost);
        self.runs.1 += f64::from(report.loss_runs);
        if self.runs.1 > 2.0 * RUNS {
            self.runs = (self.runs.0 / self.runs.1 * RUNS, RUNS);
        }
        let lost = f64::from(report.packets_lost);
        let count = LossCount { all: lost + f64::from(report.packets_delivered), lost };
        self.count.add(count);
        count
    }

    fn run(&self) -> f64 {
        (self.runs.0 / self.runs.1.max(1.0)).max(1.0)
    }

    /// The factor by which runs raise the variance, of a two-state chain (Gilbert) with this share of loss.
    /// It is 1 if losses are independent, as runs are then 1 / (1 - p) long.
    fn variance_factor(&self, share: f64) -> f64 {
        (2.0 * self.run() * (1.0 - share) - 1.0).max(1.0)
    }

    fn deviation(&self, all: f64, share: f64) -> f64 {
        (all * share * (1.0 - share) * self.variance_factor(share)).sqrt()
    }

    /// The most losses of `all` packets that are no excess.
    fn tolerated(&self, all: f64) -> f64 {
        all * (self.own + SLIGHT) + Z * self.deviation(all, self.own) + 4.0 * self.run()
    }

    /// The number of packets that tell a loss of `excess` beyond the path's own from chance.
    pub(super) fn packets_to_tell(&self, excess: f64) -> f64 {
        let spread = (self.own + excess) * (1.0 - self.own) * self.variance_factor(self.own + excess);
        (9.0 * spread / excess.max(1e-3).powi(2)).clamp(30.0, 100_000.0)
    }

    /// The packets counted since the last reaction, if too many of them were lost.
    pub(super) fn judge(&mut self, window_packets: f64) -> Option<LossCount> {
        let count = self.count;
        if count.all >= (0.25 * window_packets).max(50.0) && self.is_excess(count) {
            return Some(count);
        }
        self.learn(window_packets);
        None
    }

    /// Whether more than one run of packets was lost beyond the path's own loss. A TCP gives way at a single
    /// lost packet; a sender that waits for many would take the TCP's share.
    pub(super) fn judge_beside_tcp(&mut self, window_packets: f64) -> bool {
        let LossCount { all, lost } = self.count;
        let is_ours = lost > all * self.own + Z * self.deviation(all, self.own) + self.run();
        if !is_ours {
            self.learn(window_packets);
        }
        is_ours
    }

    /// Once there are enough packets, lowers the path's own loss if they show less of it, and begins a new
    /// count.
    fn learn(&mut self, window_packets: f64) {
        let count = self.count;
        if count.all >= window_packets.max(SAMPLE_MIN) {
            let (share, gain) = (count.share(), (count.all / (count.all + 800.0)).clamp(0.01, 0.25));
            let much_lower = share < self.own - 2.0 * self.deviation(count.all, self.own) / count.all;
            if much_lower {
                self.own += gain * (share - self.own);
                if self.is_less(count, self.calm) {
                    // The earlier packets were seen on another path.
                    self.calm.keep(SAMPLE_MIN);
                }
            }
            self.restart();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lost: u32, runs: u32, delivered: u32) -> FeedbackReport {
        FeedbackReport {
            packets_lost: lost,
            loss_runs: runs,
            packets_delivered: delivered,
            ..FeedbackReport::default()
        }
    }

    #[test]
    fn beside_tcp_few_losses_count_unless_the_path_has_its_own() {
        let mut loss = PathLoss::new();
        loss.on_report(&report(1, 1, 400));
        assert!(!loss.judge_beside_tcp(1000.0));
        loss.on_report(&report(1, 1, 100));
        assert!(loss.judge_beside_tcp(1000.0) && loss.judge(1000.0).is_none());
        loss.set_own(0.05);
        loss.on_report(&report(30, 28, 470));
        assert!(!loss.judge_beside_tcp(1000.0));
    }

    #[test]
    fn steady_loss_is_no_excess_and_more_is() {
        let mut loss = PathLoss::new();
        loss.set_own(0.3);
        for _ in 0..100 {
            loss.on_report(&report(30, 25, 70));
            assert!(loss.judge(1000.0).is_none());
        }
        assert!((loss.own() - 0.3).abs() < 0.01);
        let excess = (0..20).find_map(|_| {
            loss.on_report(&report(45, 30, 55));
            loss.judge(1000.0)
        });
        assert!(excess.is_some_and(|count| count.share() > 0.35), "{excess:?}");
    }

    #[test]
    fn what_is_remembered_counts_unless_the_start_has_seen_otherwise() {
        let recalled = |lost, all, share| {
            let mut loss = PathLoss::new();
            loss.begin(LossCount { all, lost });
            loss.recall(share);
            loss.own()
        };
        assert!((recalled(0.0, 30.0, 0.01) - 0.01).abs() < 0.001, "thirty packets say nothing against 1 %");
        assert!((recalled(12.0, 1000.0, 0.01) - 0.01).abs() < 0.001);
        assert_eq!(recalled(0.0, 500.0, 0.3), 0.0, "another path");
        assert_eq!(recalled(100.0, 500.0, 0.01), 0.2);
    }

    #[test]
    fn five_of_sixty_against_one_of_a_hundred_and_forty_is_chance() {
        let loss = PathLoss::new();
        let count = |lost, all| LossCount { all, lost };
        assert!(!loss.is_less(count(1.0, 142.0), count(5.0, 63.0)));
        assert!(loss.is_less(count(0.0, 150.0), count(20.0, 100.0)), "a policer");
    }

    #[test]
    fn runs_are_as_long_as_they_are_however_many_a_report_tells() {
        let mut loss = PathLoss::new();
        loss.on_report(&report(500, 350, 1166));
        assert!((loss.run() - 500.0 / 350.0).abs() < 0.01, "{}", loss.run());
        assert!((loss.variance_factor(0.3) - 1.0).abs() < 0.01, "independent losses of 30 %");
    }

    #[test]
    fn samples_that_agree_add_up_and_one_that_does_not_counts_alone() {
        let mut loss = PathLoss::new();
        (0..10).for_each(|_| loss.bound(LossCount { all: 1000.0, lost: 100.0 }));
        assert!((0.097..=0.1).contains(&loss.own()), "{}", loss.own());
        loss.bound(LossCount { all: 1000.0, lost: 300.0 });
        assert!(loss.own() > 0.28, "{}", loss.own());
    }

    #[test]
    fn a_sample_three_deviations_off_is_chance_and_one_of_six_another_path() {
        let after = |lost| {
            let mut loss = PathLoss::new();
            loss.bound(LossCount { all: 20_000.0, lost: 6000.0 });
            loss.bound(LossCount { all: 9000.0, lost });
            loss.calm.all
        };
        // 30 % of 9000 beside 30 % of 20,000: one deviation of both is 52 packets.
        assert!(after(2700.0 - 3.5 * 52.0) > 19_000.0);
        assert!(after(2700.0 - 6.0 * 52.0) < 10_000.0);
    }

    #[test]
    fn two_large_samples_are_both_remembered() {
        let mut loss = PathLoss::new();
        loss.bound(LossCount { all: 500_000.0, lost: 150_000.0 });
        loss.bound(LossCount { all: 500_000.0, lost: 150_600.0 });
        assert!((loss.calm.all - 1e6).abs() < 1.0 && (loss.own() - 0.3003).abs() < 0.0004, "{}", loss.own());
    }

    #[test]
    fn less_than_was_believed_is_no_reason_to_believe_more() {
        let mut loss = PathLoss::new();
        loss.begin(LossCount { all: 600.0, lost: 180.0 });
        for _ in 0..20 {
            loss.on_report(&report(60, 45, 240));
            assert!(loss.judge(300.0).is_none());
        }
        let own = loss.own();
        assert!(own < 0.27, "{own}");
        // A dip of few packets does not differ from the earlier 30 %.
        loss.bound(LossCount { all: 60.0, lost: 11.0 });
        assert!(loss.own() <= own, "{}", loss.own());
    }

    #[test]
    fn a_burst_is_one_event() {
        let mut loss = PathLoss::new();
        loss.set_own(0.02);
        for round in 0..200 {
            let burst = u32::from(round % 5 == 0);
            loss.on_report(&report(20 * burst, burst, 196));
            assert!(loss.judge(2000.0).is_none(), "round {round}");
        }
    }

    #[test]
    fn overload_is_not_learned_and_a_dip_bounds() {
        let mut loss = PathLoss::new();
        for _ in 0..1000 {
            loss.on_report(&report(1, 1, 199));
            assert!(loss.judge(300.0).is_none());
        }
        assert_eq!(loss.own(), 0.0);
        loss.set_own(0.2);
        loss.bound(LossCount { all: 1000.0, lost: 50.0 });
        assert!(loss.own() < 0.07);
    }
}
