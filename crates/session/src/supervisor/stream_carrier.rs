//! The stream carrier: how many connections it has, and whether it carries beside UDP or instead of it.
//!
//! The initiator opens connections and decides who carries, by what arrives; but the sender is the first to
//! see that UDP looks policed. Both ends use a stream once the initiator has said so.
//!
//! Always true: a connection that ends costs only its share, as what it had under way goes to the others. If
//! UDP works, no stream carries unless a trial has shown that streams bring more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_handover::Held as _;

use super::super::carrier::Carrier;
use super::super::congestion::advice;
use super::super::connection_growth::{CarrierSample, ConnectionGrowth};
use super::super::flow_thread::WINDOW_MIN;
use super::super::messages::SessionMessage;
use super::super::options::Policy;
use super::super::setup::CarrierFallback;
use super::super::shared_state::{FlowShared, FlowState};
use super::super::supervisor::{SILENCE, Supervisor};
use crate::error::Error;

/// The most connections at once.
const STREAMS_MAX: u64 = 16;
/// A connection on which nothing has come for this long, while others are heard, is given up; TCP itself
/// would wait longer.
const STREAM_SILENCE: Duration = Duration::from_secs(15);
/// After a failed attempt to connect, the next one waits for this long.
const DIAL_PAUSE: Duration = Duration::from_secs(3);

/// A stream's share of a limit until the limit is divided anew.
const SHARE_FIRST_PPM: u32 = 10_000;
/// Policed UDP still gets an answer at least this often.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Streams that get nothing new end after this long; by then they have delivered what they had.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// How long a hint holds.
const HINT_TIME: Duration = Duration::from_millis(1500);

/// UDP looks policed if this share is lost for this long although there is no queue.
const POLICED_LOSS: f64 = 0.03;
const POLICED_TIME: Duration = Duration::from_millis(1500);
/// A trial ends after this long if no connection could be opened or measured.
const TRIAL_TIME: Duration = Duration::from_secs(8);
/// Streams have shown that they bring more if the sum is this many times what UDP had alone.
const TRIAL_PAYS: f64 = 1.25;
/// UDP that brings less than this share of the whole only loses packets, and is no longer used.
const UDP_PART_MIN: f64 = 0.1;
/// After a trial without a gain the next one waits for this long, then twice as long, and so on.
const TRIAL_PAUSE: Duration = Duration::from_secs(60);

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
struct PolicedUdp {
    udp: f64,
    /// When the streams began, and what they had brought by then.
    since: Duration,
    bytes: u64,
}

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
    pub(super) is_udp_idle: bool,
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

    pub(super) fn is_said_to_be_used(&self, index: u16) -> bool {
        self.used.contains(&index)
    }
}

pub(super) fn is_up(flow: &FlowShared) -> bool {
    flow.state() == FlowState::Up && !flow.retire.load(Ordering::Acquire)
}

fn is_ended(flow: &FlowShared) -> bool {
    flow.state() == FlowState::Down || flow.retire.load(Ordering::Acquire)
}

fn moved(flows: &[Arc<FlowShared>]) -> u64 {
    flows.iter().map(|flow| flow.figures.lock().in_any_case().bytes_moved).sum()
}

impl Supervisor {
    /// The blocks that a stream may have in memory. The stream that a session begins with gets half of a
    /// flow's part; the others divide the other half.
    pub(super) fn stream_window(&self) -> u64 {
        let has_one = self.shared.flow_list().iter().any(|flow| flow.is_stream);
        let part = if has_one { self.window_max / (2 * STREAMS_MAX) } else { self.window_max / 2 };
        part.max(WINDOW_MIN).min(self.window_max)
    }

    /// The most connections that this memory and the policy allow.
    fn streams_max(&self) -> usize {
        let most = match self.rate.policy {
            // TCP does not give way, so there is only one connection.
            Policy::Low => 1,
            Policy::Fair | Policy::High | Policy::Fixed => self.window_max / 2 / WINDOW_MIN,
        };
        most.clamp(1, STREAMS_MAX) as usize
    }

    /// Returns whether the initiator can open connections.
    pub(super) fn can_dial(&self) -> bool {
        matches!(self.fallback, CarrierFallback::Dial(_)) && !self.options.udp_only
    }

    /// Returns whether a better stream than the ssh channel may come.
    pub(super) fn may_get_direct(&self) -> bool {
        matches!(self.fallback, CarrierFallback::Dial(_) | CarrierFallback::Listen(_))
            && self.channel.is_some()
    }

    /// Looks after the streams; `udp` and `streams` are the flows of each kind that have not been given up.
    pub(super) fn tend_streams(
        &mut self,
        udp: &[Arc<FlowShared>],
        streams: &[Arc<FlowShared>],
        now: Duration,
    ) -> Result<(), Error> {
        self.retire_stuck_streams(streams, now);
        self.share_ceiling(udp, streams);
        let carries = |flow: &&Arc<FlowShared>| is_up(flow) && flow.active.load(Ordering::Acquire);
        self.streams.udp.look(now, moved(udp));
        self.watch_for_policing(udp, streams, now);
        if !self.shared.is_initiator {
            self.hint_at_more(streams, now);
            return Ok(());
        }
        self.begin_trial(udp, now);
        let is_trial = matches!(self.streams.carrying, CarrierState::Trial { .. });
        if !is_trial && !streams.iter().any(|flow| carries(&flow)) {
            self.streams.growth = None;
            self.end_idle_streams(streams, now);
            if matches!(self.streams.carrying, CarrierState::Streams) {
                // All streams have ended: UDP goes on, and another trial may follow.
                self.streams.carrying = CarrierState::Alone;
            }
            if self.streams.is_udp_idle {
                self.shared.say(&[SessionMessage::UdpUse { is_used: true }]);
                self.obey_udp_use(true)?;
                self.set_carrier(Carrier::UdpAndTcp);
            }
            return Ok(());
        }
        if !self.can_dial() {
            return Ok(());
        }
        self.leave_the_channel(streams);
        let own: Vec<_> = streams.iter().filter(|flow| !self.is_channel(flow)).cloned().collect();
        let live = own.iter().filter(carries).count();
        if live == 0 && !is_trial {
            // The ssh channel carries. A connection that did not work is tried again now and then.
            self.dial_again();
            return Ok(());
        }
        let most = self.streams_max();
        let seen = CarrierSample {
            live,
            bytes: moved(&own),
            round_trip: self.round_trip(&own),
            is_slowed_by_loss: self.is_slowed_by_loss(&own)
                || self.streams.hint.is_some_and(|at| now.saturating_sub(at) < HINT_TIME),
            is_enough: self.shared.is_all_queued() && self.is_sender,
            rate_max: self.rate.rate_bps.map(|bps| bps as f64 / 8.0),
        };
        let growth = self.streams.growth.get_or_insert_with(|| ConnectionGrowth::new(most, now));
        let wanted = growth.look(now, &seen);
        self.have_streams(&own, live, wanted);
        self.judge_trial(udp, streams, now);
        Ok(())
    }

    /// Tells the initiator that more streams would bring more, as it does not see the sender's TCP.
    fn hint_at_more(&mut self, streams: &[Arc<FlowShared>], now: Duration) {
        let is_due = self.streams.hint.is_none_or(|at| now.saturating_sub(at) >= HINT_TIME / 2);
        if self.is_sender && is_due && !self.shared.is_all_queued() && self.is_slowed_by_loss(streams) {
            self.streams.hint = Some(now);
            self.shared.say(&[SessionMessage::WantStreams]);
        }
    }

    /// The share of a stream before a limit of the whole transfer is divided anew.
    pub(super) fn first_share(&self, part: super::FlowPurpose) -> u32 {
        let is_limited = part == super::FlowPurpose::StandBy && self.rate.rate_bps.is_some();
        if is_limited { SHARE_FIRST_PPM } else { 1_000_000 }
    }

    fn round_trip(&self, flows: &[Arc<FlowShared>]) -> Duration {
        let least = |flow: &Arc<FlowShared>| flow.figures.lock().in_any_case().rtt_min_us;
        Duration::from_micros(flows.iter().map(least).filter(|&rtt| rtt > 0).min().unwrap_or(0))
    }

    /// Opens or uses more streams, or stops using the newest ones.
    fn have_streams(&mut self, own: &[Arc<FlowShared>], live: usize, wanted: usize) {
        let is_idle = |flow: &&Arc<FlowShared>| is_up(flow) && !flow.active.load(Ordering::Acquire);
        let mut missing = wanted.saturating_sub(live);
        let has_failed = self.dial_failed.is_some_and(|at| at.elapsed() < DIAL_PAUSE);
        for flow in own.iter().filter(is_idle).take(missing) {
            self.use_stream(flow, true);
            missing -= 1;
        }
        let begun =
            own.iter().filter(|flow| flow.state() == FlowState::Connecting && !is_ended(flow)).count();
        let opened = if has_failed { missing } else { begun + self.dialing.len() };
        for _ in opened.min(missing)..missing {
            self.dial_beside();
        }
        let carrying = own.iter().filter(|flow| is_up(flow) && flow.active.load(Ordering::Acquire));
        let surplus: Vec<_> = carrying.rev().take(live.saturating_sub(wanted)).cloned().collect();
        for flow in &surplus {
            self.use_stream(flow, false);
        }
    }

    /// Lets both ends give new blocks to this stream, or stop doing so.
    fn use_stream(&mut self, flow: &Arc<FlowShared>, is_used: bool) {
        if flow.active.swap(is_used, Ordering::AcqRel) != is_used {
            self.shared.say(&[SessionMessage::StreamUse { index: flow.index, is_used }]);
            flow.wake();
        }
    }

    /// A stream that has just been opened carries at once if others do.
    pub(super) fn begin_stream(&mut self, index: u16) {
        let is_wanted = match &self.streams.carrying {
            CarrierState::Trial { .. } => true,
            CarrierState::Alone | CarrierState::Streams => {
                let flows = self.shared.flow_list();
                flows.iter().any(|flow| {
                    flow.is_stream
                        && flow.index != index
                        && flow.active.load(Ordering::Acquire)
                        && !is_ended(flow)
                })
            }
        };
        let flows = self.shared.flow_list();
        if let Some(flow) = flows.iter().find(|flow| flow.index == index).filter(|_| is_wanted) {
            self.use_stream(flow, true);
            self.say_advice(flow);
        }
    }

    /// The initiator has said whether a stream is used.
    pub(super) fn obey_stream_use(&mut self, index: u16, is_used: bool) {
        match is_used {
            true => self.streams.used.insert(index),
            false => self.streams.used.remove(&index),
        };
        let flows = self.shared.flow_list();
        if let Some(flow) = flows.iter().find(|flow| flow.index == index && flow.is_stream) {
            flow.active.store(is_used, Ordering::Release);
            flow.wake();
            if is_used {
                self.say_advice(flow);
            }
        }
    }

    pub(super) fn obey_udp_use(&mut self, is_used: bool) -> Result<(), Error> {
        self.streams.is_udp_idle = !is_used;
        self.apply_paths(self.unused_paths)
    }

    /// Warns once if the sender's TCP may be slow for a reason that its user can change.
    pub(super) fn say_advice(&mut self, flow: &FlowShared) {
        let advice = flow.congestion.as_deref().filter(|_| self.is_sender).and_then(advice);
        if let Some(advice) = advice.filter(|_| !self.streams.is_advice_given) {
            self.streams.is_advice_given = true;
            self.warn(advice);
        }
    }

    pub(super) fn is_channel(&self, flow: &FlowShared) -> bool {
        self.channel == Some(flow.index)
    }

    /// Changes from the ssh channel to a direct connection, if there is one: the channel copies everything
    /// through two more processes.
    fn leave_the_channel(&mut self, streams: &[Arc<FlowShared>]) {
        let Some(channel) = streams.iter().find(|flow| self.is_channel(flow)).cloned() else { return };
        if !channel.active.load(Ordering::Acquire) {
            return;
        }
        if let Some(direct) = streams.iter().find(|flow| !self.is_channel(flow) && is_up(flow)).cloned() {
            self.use_stream(&direct, true);
            self.use_stream(&channel, false);
            self.set_carrier(Carrier::Tcp);
            self.say_advice(&direct);
        }
    }

    fn retire_stuck_streams(&mut self, streams: &[Arc<FlowShared>], now: Duration) {
        let silent = |flow: &FlowShared| {
            now.saturating_sub(Duration::from_millis(flow.heard_ms.load(Ordering::Relaxed)))
        };
        let any_heard = streams.iter().any(|flow| is_up(flow) && silent(flow) < SILENCE);
        for flow in streams.iter().filter(|flow| !is_ended(flow) && !self.is_channel(flow)) {
            let begun = Duration::from_millis(flow.begun_ms);
            let never_came =
                flow.state() == FlowState::Connecting && now.saturating_sub(begun) >= STREAM_SILENCE;
            if never_came && self.shared.is_initiator
                || any_heard && is_up(flow) && silent(flow) >= STREAM_SILENCE
            {
                self.retire_stream(flow);
                self.shared.say(&[SessionMessage::FlowDown { index: flow.index }]);
            }
        }
    }

    pub(super) fn retire_stream(&self, flow: &FlowShared) {
        flow.retire.store(true, Ordering::Release);
        flow.wake();
    }

    /// Returns whether a trial has shown that streams bring more than UDP.
    pub(super) fn has_better_streams(&self) -> bool {
        matches!(self.streams.carrying, CarrierState::Streams)
    }

    /// UDP carries everything again; one stream stays open for the next time.
    pub(super) fn let_streams_go(&mut self) {
        self.streams.growth = None;
        self.streams.carrying = CarrierState::Alone;
        let flows = self.shared.flow_list();
        for flow in flows.iter().filter(|flow| flow.is_stream && !is_ended(flow)) {
            self.use_stream(flow, false);
        }
        self.streams.idle_since = self.shared.elapsed();
    }

    /// Ends all idle streams but one, once they have delivered what they had.
    fn end_idle_streams(&mut self, streams: &[Arc<FlowShared>], now: Duration) {
        if now.saturating_sub(self.streams.idle_since) < IDLE_TIME {
            return;
        }
        let idle = streams.iter().filter(|flow| !self.is_channel(flow) && is_up(flow));
        for flow in idle.skip(1) {
            self.retire_stream(flow);
            self.shared.say(&[SessionMessage::FlowDown { index: flow.index }]);
        }
    }

    /// Divides a limit of the whole transfer among all streams that carry.
    fn share_ceiling(&self, udp: &[Arc<FlowShared>], streams: &[Arc<FlowShared>]) {
        let Some(most) = self.rate.rate_bps else { return };
        // A stream that gets nothing new may still deliver what it has.
        let has_more = |flow: &FlowShared| {
            flow.active.load(Ordering::Acquire) || flow.backlog.load(Ordering::Relaxed) > 0
        };
        let carrying: Vec<_> = streams.iter().filter(|flow| is_up(flow) && has_more(flow)).collect();
        let beside = if udp.is_empty() { 0.0 } else { 8.0 * self.streams.udp.rate / most as f64 };
        let share = (1.0 - beside).max(0.05) / carrying.len().max(1) as f64;
        for flow in carrying {
            flow.ceiling_ppm.store((1e6 * share) as u32, Ordering::Relaxed);
        }
    }

    // ---- policed UDP ----------------------------------------------------------------------------

    /// Watches at the sender whether much is lost although there is no queue, whatever is sent.
    fn watch_for_policing(&mut self, udp: &[Arc<FlowShared>], streams: &[Arc<FlowShared>], now: Duration) {
        let is_alone = !streams.iter().any(|flow| flow.active.load(Ordering::Acquire) && !is_ended(flow));
        let may_try = matches!(self.rate.policy, Policy::Fair | Policy::High) && !self.options.udp_only;
        let is_one_path = self.shared.path_count() == 1 && udp.iter().any(|flow| is_up(flow));
        // A path that takes nothing at all is another matter.
        let answers = |flow: &Arc<FlowShared>| {
            now.saturating_sub(Duration::from_millis(flow.answered_ms.load(Ordering::Relaxed))) < ANSWER_TIME
        };
        let is_one_path = is_one_path && udp.iter().any(answers);
        if !(self.is_sender && may_try && is_alone && is_one_path) || self.shared.is_all_queued() {
            self.streams.policed_since = None;
            return;
        }
        let looks_policed = {
            let controller = self.shared.controller(0);
            controller.loss() >= POLICED_LOSS && controller.has_spare_rate()
        };
        if !looks_policed {
            self.streams.policed_since = None;
            return;
        }
        let since = *self.streams.policed_since.get_or_insert(now);
        if now.saturating_sub(since) >= POLICED_TIME && now >= self.streams.next_trial {
            self.streams.policed_since = None;
            match self.shared.is_initiator {
                true => self.streams.is_trial_wanted = true,
                false => {
                    self.streams.next_trial = now + TRIAL_PAUSE / 4;
                    self.shared.say(&[SessionMessage::WantStreams]);
                }
            }
        }
    }

    /// The sender at the other end has seen that UDP looks policed.
    pub(super) fn want_trial(&mut self) {
        self.streams.is_trial_wanted = true;
        self.streams.hint = Some(self.shared.elapsed());
    }

    /// Returns whether most of the streams that carry are held back by loss alone.
    fn is_slowed_by_loss(&self, streams: &[Arc<FlowShared>]) -> bool {
        let carrying = || streams.iter().filter(|flow| is_up(flow) && flow.active.load(Ordering::Acquire));
        let slowed = carrying().filter(|flow| flow.is_slowed_by_loss.load(Ordering::Relaxed)).count();
        slowed > 0 && 2 * slowed >= carrying().count()
    }

    fn begin_trial(&mut self, udp: &[Arc<FlowShared>], now: Duration) {
        let is_wanted = std::mem::take(&mut self.streams.is_trial_wanted);
        let is_possible =
            matches!(self.streams.carrying, CarrierState::Alone) && self.can_dial() && !udp.is_empty();
        if !is_wanted || !is_possible || now < self.streams.next_trial {
            return;
        }
        tracing::debug!(
            udp_mbps = self.streams.udp.rate * 8e-6,
            "UDP looks policed; trying streams beside it"
        );
        self.streams.next_trial = now + self.streams.trial_pause;
        self.streams.trial_pause *= 2;
        self.streams.growth = None;
        self.streams.carrying =
            CarrierState::Trial { udp_before: self.streams.udp.rate, until: now + TRIAL_TIME };
    }

    fn judge_trial(&mut self, udp: &[Arc<FlowShared>], streams: &[Arc<FlowShared>], now: Duration) {
        if matches!(self.streams.carrying, CarrierState::Trial { until, .. } if now >= until) {
            self.let_streams_go();
        }
        let Some(growth) = &self.streams.growth else { return };
        let (Some(rate), is_resting) = (growth.rate(), growth.is_resting()) else { return };
        let udp_rate = self.streams.udp.rate;
        match self.streams.carrying {
            CarrierState::Trial { udp_before, .. } if udp_rate + rate < TRIAL_PAYS * udp_before => {
                tracing::debug!(udp_mbps = udp_rate * 8e-6, streams_mbps = rate * 8e-6, "streams do not pay");
                self.let_streams_go();
            }
            CarrierState::Trial { udp_before, .. } => {
                let policed = PolicedUdp { udp: udp_before, since: now, bytes: moved(streams) };
                (self.streams.carrying, self.streams.policed) = (CarrierState::Streams, Some(policed));
                self.set_carrier(Carrier::UdpAndTcp);
            }
            CarrierState::Streams if !self.streams.is_udp_idle && is_resting && !udp.is_empty() => {
                if udp_rate < UDP_PART_MIN * (udp_rate + rate) {
                    self.set_carrier(Carrier::Tcp);
                    self.shared.say(&[SessionMessage::UdpUse { is_used: false }]);
                    // Some path may be used, as UDP was in use until now.
                    let _ = self.obey_udp_use(false);
                }
            }
            CarrierState::Alone | CarrierState::Streams => {}
        }
    }

    /// The result of a trial, for the report.
    pub(crate) fn policed(&self) -> Option<String> {
        let policed = self.streams.policed?;
        let flows: Vec<_> = self.shared.flow_list().into_iter().filter(|flow| flow.is_stream).collect();
        let time = self.shared.elapsed().saturating_sub(policed.since).as_secs_f64();
        let streams = moved(&flows).saturating_sub(policed.bytes) as f64 / time.max(0.1);
        let mbps = |rate: f64| format!("{:.0} Mbit/s", rate * 8e-6);
        let used = if self.carrier == Carrier::UdpAndTcp { "both were used" } else { "so TCP was used" };
        Some(format!(
            "UDP is held to {} between here and {}, where TCP has {}: {used}",
            mbps(policed.udp),
            self.peer,
            mbps(streams)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::shared_state::FlowPlace;
    use super::super::super::supervisor::ContentRole;
    use super::super::tests::start;
    use super::*;
    use crate::setup::local_pair;

    #[test]
    fn a_stream_that_gets_nothing_new_shares_the_ceiling_until_it_is_empty() {
        let (near, far) = local_pair().unwrap();
        let (mut sender, receiver) = (start(near, ContentRole::Sender), start(far, ContentRole::Receiver));
        sender.rate.rate_bps = Some(1_000_000);
        let stream = |index: u16, active: bool, backlog: u64| {
            let place = FlowPlace {
                index,
                path: 0,
                is_stream: true,
                is_spare: false,
                active,
                congestion: None,
                begun_ms: 0,
            };
            let flow = FlowShared::new(place).unwrap();
            flow.set_state(FlowState::Up);
            flow.backlog.store(backlog, Ordering::Relaxed);
            flow
        };
        let streams = [stream(4, true, 0), stream(5, false, 1_000_000), stream(6, false, 0)];
        let shares = |streams: &[Arc<FlowShared>; 3]| {
            streams.each_ref().map(|flow| flow.ceiling_ppm.load(Ordering::Relaxed))
        };
        sender.share_ceiling(&[], &streams);
        assert_eq!(shares(&streams), [500_000, 500_000, 1_000_000]);
        streams[1].backlog.store(0, Ordering::Relaxed);
        sender.share_ceiling(&[], &streams);
        assert_eq!(shares(&streams), [1_000_000, 500_000, 1_000_000]);
        sender.close(None);
        receiver.close(None);
    }
}
