//! The tests of one way: as a transfer loads it, without UDP, and over UDP alone at rates that go up to half more than
//! the first two have reached. The last one shows at which rate packets get lost, and how long they wait.
//!
//! Always true: the rates and the bytes follow from what this end has sent or received itself, never from the far end's
//! word alone.

use std::time::{Duration, Instant};

use farhaul_connect::hello::HelloSecret;
use farhaul_copy::Location;
use farhaul_doctor::path::{PathMoment, PathStep, WayFacts};
use farhaul_session::handle::Handle;
use farhaul_session::options::{RATE_MIN_BPS, RateOptions};
use farhaul_words::{Carrier, Error, PathSigns, Policy, SessionReport};

use super::ExaminedWay;
use super::load_session::{BothSigns, LoadCarrier, LoadSession};
use crate::request::Way;
use crate::serve::LOAD_MAX;

/// The time of the test that is like a transfer, and of that without UDP.
const USUAL_TIME: Duration = Duration::from_millis(2500);
const TCP_TIME: Duration = Duration::from_millis(2000);
/// The rates over UDP alone, as shares of the best rate that the tests before have reached. Where the round trip is long,
/// or the far end slow, there is time for fewer.
const SHARES: [f64; 7] = [0.1, 0.3, 0.6, 0.85, 1.0, 1.2, 1.5];
/// How long a rate may take to show, and how long it is looked at then.
const SETTLE_TIME: Duration = Duration::from_millis(300);
const LOOK_TIME: Duration = Duration::from_millis(600);
/// How long before the far end ends a test by itself the last rate is to be done.
const CALM_TIME: Duration = Duration::from_secs(2);
/// How long the far end may take to hear the end of a test: behind the content that is under way. Only its report of the
/// first test is needed.
const REPORT_TIME: Duration = Duration::from_secs(3);
const END_TIME: Duration = Duration::from_millis(500);
/// Fewer rates than these tell nothing.
const STEPS_MIN: usize = 3;
/// The content of all tests is at most what the path carries in this time: 1 % of an hour.
const BUDGET: Duration = Duration::from_secs(36);
/// Content is sent in blocks, so that what is sent and what arrives may differ by some of them.
const SENT_SLACK: u64 = 2 << 20;

/// The tests of one way.
pub(super) struct WayTest<'a> {
    way: Way,
    location: &'a Location,
    caller: &'a Handle,
    ticket: &'a HelloSecret,
    pub(super) seen: ExaminedWay,
    pub(super) facts: WayFacts,
    /// When the next way needs the time.
    until: Instant,
    loaded_bytes: u64,
}

impl<'a> WayTest<'a> {
    pub(super) fn new(
        way: Way,
        location: &'a Location,
        caller: &'a Handle,
        ticket: &'a HelloSecret,
        until: Instant,
    ) -> WayTest<'a> {
        let seen = ExaminedWay { direction: way.name().into(), ..ExaminedWay::default() };
        let facts = WayFacts { way: way.name().into(), ..WayFacts::default() };
        WayTest { way, location, caller, ticket, seen, facts, until, loaded_bytes: 0 }
    }

    /// Whether anything was measured.
    pub(super) fn has_begun(&self) -> bool {
        self.facts.bps > 0.0 || !self.facts.steps.is_empty()
    }

    /// Runs all tests. What was measured before an error stays.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        let outcome = self.run_each();
        self.seen.steps = self.facts.steps.clone();
        let loaded = self.facts.steps.iter().map(|step| step.rtt_ms);
        self.seen.rtt_loaded_ms = loaded.fold(self.seen.rtt_mean_ms, f64::max);
        outcome
    }

    fn run_each(&mut self) -> Result<(), Error> {
        self.usual()?;
        // A carrier that does not come about is what the test is to find out.
        match self.without_udp() {
            Err(error) if self.caller.is_cancelled() => return Err(error),
            Err(error) => self.seen.warnings.push(format!("without UDP: {error}")),
            Ok(()) => {}
        }
        if self.facts.has_udp {
            match self.at_rates() {
                Err(error) if self.caller.is_cancelled() => return Err(error),
                Err(error) => self.seen.warnings.push(format!("over UDP alone: {error}")),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn start(&self, carrier: LoadCarrier, rate: RateOptions) -> Result<LoadSession<'a>, Error> {
        LoadSession::start(self.caller, self.location, (self.way, self.ticket), carrier, rate)
    }

    /// As a transfer would do it.
    fn usual(&mut self) -> Result<(), Error> {
        let (bps, signs, report) = self.loaded(LoadCarrier::Usual, USUAL_TIME)?;
        self.facts.has_udp = report.transport.is_some_and(Carrier::has_udp);
        self.facts.bps = bps;
        self.facts.rtt_min_ms = report.rtt_min_ms;
        self.note(&signs);
        self.seen = ExaminedWay::of_report(self.way.name(), bps, &report);
        Ok(())
    }

    fn without_udp(&mut self) -> Result<(), Error> {
        let (bps, _, _) = self.loaded(LoadCarrier::WithoutUdp, TCP_TIME)?;
        (self.facts.tcp_bps, self.seen.tcp_bps) = (Some(bps), Some(bps));
        Ok(())
    }

    /// Loads the way for some time. The rate is that of the second half, as the first one is needed to find it.
    fn loaded(
        &mut self,
        carrier: LoadCarrier,
        time: Duration,
    ) -> Result<(f64, BothSigns, SessionReport), Error> {
        let mut load = self.start(carrier, RateOptions::default())?;
        load.run(time / 2)?;
        let (before, at) = (load.signs()?, Instant::now());
        load.run(time / 2)?;
        let signs = load.signs()?;
        let bps = arrived(self.way, &before, &signs) as f64 * 8.0 / at.elapsed().as_secs_f64();
        let bytes = arrived(self.way, &BothSigns::default(), &signs);
        self.loaded_bytes += bytes;
        let report = load.finish(bytes, if carrier == LoadCarrier::Usual { REPORT_TIME } else { END_TIME });
        Ok((bps, signs, report))
    }

    /// Over UDP alone, at one rate after the other.
    fn at_rates(&mut self) -> Result<(), Error> {
        let best = self.facts.tcp_bps.unwrap_or(0.0).max(self.facts.bps);
        let rate = |share: f64| {
            let rate_bps = Some(((best * share) as u64).max(RATE_MIN_BPS));
            RateOptions { policy: Policy::Fixed, rate_bps, rate_min_bps: None }
        };
        let budget = (best / 8.0 * BUDGET.as_secs_f64()) as u64;
        let settle = SETTLE_TIME + Duration::from_secs_f64(self.facts.rtt_min_ms.min(500.0) / 500.0);
        // Each step asks the far end twice.
        let step_time =
            settle + LOOK_TIME + Duration::from_secs_f64(self.facts.rtt_min_ms.min(1000.0) / 500.0);
        let mut load = self.start(LoadCarrier::UdpOnly, rate(SHARES[0]))?;
        let until = self.until.min(Instant::now() + LOAD_MAX - CALM_TIME);
        let (mut rest, mut step_took) = (&SHARES[..], step_time);
        while let Some(share) = next_share(&mut rest, self.facts.steps.len(), until, step_took) {
            let began = Instant::now();
            let asked_bps = rate(share).rate_bps.unwrap_or_default();
            let cost = (settle + LOOK_TIME).as_secs_f64() * asked_bps as f64 / 8.0;
            if self.loaded_bytes + cost as u64 > budget {
                break;
            }
            load.set_rate(rate(share))?;
            let first = load.own_signs();
            load.watch(settle)?;
            let (before, at, seen) = (load.signs()?, Instant::now(), load.seen().len());
            load.watch(LOOK_TIME)?;
            let after = load.signs()?;
            let rtt_ms = median(load.seen()[seen..].iter().map(|signs| signs.rtt_latest_ms));
            let step = step(asked_bps, &before, &after, at.elapsed());
            self.facts.steps.push(PathStep { rtt_ms: rtt_ms.unwrap_or(step.rtt_ms), ..step });
            step_took = began.elapsed().max(step_time);
            self.note(&after);
            // What has gone out here, or come in here: the far end may not keep to the rate.
            let own = match self.way {
                Way::To => after.sender.path.bytes_sent.saturating_sub(first.path.bytes_sent),
                Way::From => after.receiver.content_bytes.saturating_sub(first.content_bytes),
            };
            self.loaded_bytes += own;
            if self.loaded_bytes > budget {
                self.seen.warnings.push("more came than was asked for, so the test has ended".into());
                break;
            }
        }
        self.facts.moments = load.seen().windows(2).map(|pair| moment(&pair[0], &pair[1])).collect();
        load.finish(0, END_TIME);
        Ok(())
    }

    /// Keeps what the path has done to packets; the worst of all tests counts.
    fn note(&mut self, signs: &BothSigns) {
        let (path, kept) = (&signs.sender.path, &mut self.facts.signs);
        // Only the receiver sees the order in which packets arrive.
        kept.packets_overtaken = kept.packets_overtaken.max(signs.receiver.path.packets_overtaken);
        kept.packets_sent = kept.packets_sent.max(path.packets_sent);
        kept.packets_late = kept.packets_late.max(path.packets_late);
        kept.reordering_ms = kept.reordering_ms.max(path.reordering_ms);
        kept.packets_marked = kept.packets_marked.max(path.packets_marked);
        kept.are_marks_thrown_away |= path.are_marks_thrown_away;
        kept.datagram_max = kept.datagram_max.max(path.datagram_max);
        kept.system_mtu = path.system_mtu.or(kept.system_mtu);
    }
}

/// The rate to look at next. Where there is not time for all, the highest count most: they show queues and policers.
fn next_share(rest: &mut &[f64], done: usize, until: Instant, step_time: Duration) -> Option<f64> {
    let left = until.saturating_duration_since(Instant::now()).saturating_sub(END_TIME);
    let fits = (left.as_secs_f64() / step_time.as_secs_f64()) as usize;
    let fits = fits.max(usize::from(done < STEPS_MIN));
    // The lowest rate is what the others are compared with.
    let skipped = if done == 0 { 0 } else { rest.len().saturating_sub(fits) };
    let (share, after) = rest[skipped..].split_first()?;
    *rest = after;
    Some(*share)
}

/// The content that has arrived between two looks. Where the far end says so, it is not more than this end has sent.
fn arrived(way: Way, before: &BothSigns, after: &BothSigns) -> u64 {
    let arrived = after.receiver.content_bytes.saturating_sub(before.receiver.content_bytes);
    let sent = after.sender.content_sent.saturating_sub(before.sender.content_sent);
    match way {
        Way::To => arrived.min(sent + SENT_SLACK),
        Way::From => arrived,
    }
}

/// The packets that have not come at all.
fn lost(signs: &PathSigns) -> u64 {
    signs.packets_lost.saturating_sub(signs.packets_late)
}

/// The middle one of some figures, so that a pause of a host does not count. A far end that does not say says 0.
fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.filter(|figure| *figure > 0.0).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn moment(then: &PathSigns, now: &PathSigns) -> PathMoment {
    PathMoment {
        packets_sent: now.packets_sent.saturating_sub(then.packets_sent),
        packets_lost: lost(now).saturating_sub(lost(then)),
        packets_marked: now.packets_marked.saturating_sub(then.packets_marked),
        rtt_ms: now.rtt_latest_ms,
    }
}

fn step(asked_bps: u64, before: &BothSigns, after: &BothSigns, time: Duration) -> PathStep {
    let (then, now) = (&before.sender.path, &after.sender.path);
    let sent = now.packets_sent.saturating_sub(then.packets_sent);
    let lost = lost(now).saturating_sub(lost(then));
    let bytes = now.bytes_sent.saturating_sub(then.bytes_sent);
    PathStep {
        asked_bps,
        sent_bps: bytes as f64 * 8.0 / time.as_secs_f64(),
        packets_sent: sent,
        lost: lost as f64 / sent.max(1) as f64,
        full_sockets: after.receiver.full_sockets.saturating_sub(before.receiver.full_sockets),
        rtt_ms: now.rtt_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadSigns;

    fn chosen(time: Duration, step_time: Duration) -> Vec<f64> {
        let (mut rest, mut chosen, mut until) = (&SHARES[..], Vec::new(), Instant::now() + time);
        while let Some(share) = next_share(&mut rest, chosen.len(), until, step_time) {
            chosen.push(share);
            until -= step_time;
        }
        chosen
    }

    #[test]
    fn where_time_is_short_the_highest_rates_are_looked_at() {
        let second = Duration::from_secs(1);
        assert_eq!(chosen(60 * second, second), SHARES);
        assert_eq!(chosen(5 * second + END_TIME + second / 2, second), [0.1, 0.85, 1.0, 1.2, 1.5]);
        assert_eq!(chosen(Duration::ZERO, second), [0.1, 1.5]);
    }

    #[test]
    fn a_receiver_that_boasts_is_not_believed() {
        let signs = |sent, arrived| BothSigns {
            sender: LoadSigns { content_sent: sent, ..LoadSigns::default() },
            receiver: LoadSigns { content_bytes: arrived, ..LoadSigns::default() },
        };
        let before = signs(10 << 20, 8 << 20);
        assert_eq!(arrived(Way::To, &before, &signs(30 << 20, 28 << 20)), 20 << 20);
        assert_eq!(arrived(Way::To, &before, &signs(30 << 20, u64::MAX)), (20 << 20) + SENT_SLACK);
        assert_eq!(arrived(Way::To, &before, &signs(30 << 20, 0)), 0);
        // What comes here is counted here.
        assert_eq!(arrived(Way::From, &before, &signs(0, 28 << 20)), 20 << 20);
    }
}
