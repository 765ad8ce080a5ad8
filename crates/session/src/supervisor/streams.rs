//! Opens, uses and ends streams, as `stream_carrier.rs` decides.
//!
//! The initiator opens connections and decides who carries, by what arrives; but the sender is the first to
//! see that UDP looks policed. Both ends use a stream once the initiator has said so.
//!
//! Always true: a connection that ends costs only its share, as what it had under way goes to the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_words::{Carrier, Error, Policy};

use super::super::messages::SessionMessage;
use super::super::supervisor::Supervisor;
use super::flow_factory::FlowPurpose;
use super::stream_carrier::StreamVerdict;
use crate::carriers::congestion::advice;
use crate::carriers::connection_growth::CarrierSample;
use crate::flows::flow_shared::{FlowShared, FlowState};
use crate::intervals::SILENCE;

/// A connection on which nothing has come for this long, while others are heard, is given up; TCP itself
/// would wait longer.
const STREAM_SILENCE: Duration = Duration::from_secs(15);
/// A stream's share of a limit until the limit is divided anew.
const SHARE_FIRST_PPM: u32 = 10_000;
/// Policed UDP still gets an answer at least this often.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// UDP looks policed if this share is lost although there is no queue.
const POLICED_LOSS: f64 = 0.03;
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
    /// The most connections that this memory and the policy allow.
    fn streams_max(&self) -> usize {
        match self.rates.rate().policy {
            // TCP does not give way, so there is only one connection.
            Policy::Low => 1,
            Policy::Fair | Policy::High | Policy::Fixed => self.factory.streams_max(),
        }
    }

    /// Returns whether the initiator can open connections.
    pub(super) fn can_dial(&self) -> bool {
        self.carriers.can_dial() && !self.options.udp_only
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
        self.streams.look_at_udp(now, moved(udp));
        self.watch_for_policing(udp, streams, now);
        if !self.shared.is_initiator {
            self.hint_at_more(streams, now);
            return Ok(());
        }
        self.streams.begin_trial(self.can_dial() && !udp.is_empty(), now);
        let is_trial = self.streams.is_trial();
        if !is_trial && !streams.iter().any(|flow| carries(&flow)) {
            self.end_idle_streams(streams, now);
            self.streams.note_no_stream();
            if self.streams.is_udp_idle() {
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
            // The channel carries. A connection that did not work is tried again now and then.
            self.dial_again();
            return Ok(());
        }
        let most = self.streams_max();
        let seen = CarrierSample {
            live,
            bytes: moved(&own),
            round_trip: self.round_trip(&own),
            is_slowed_by_loss: self.is_slowed_by_loss(&own) || self.streams.is_hinted(now),
            is_enough: self.shared.is_all_queued() && self.is_sender,
            rate_max: self.rates.rate().rate_bps.map(|bps| bps as f64 / 8.0),
        };
        let wanted = self.streams.wanted(most, &seen, now);
        self.have_streams(&own, live, wanted);
        self.judge_trial(udp, streams, now);
        Ok(())
    }

    /// Tells the initiator that more streams would bring more, as it does not see the sender's TCP.
    fn hint_at_more(&mut self, streams: &[Arc<FlowShared>], now: Duration) {
        let is_wanted = self.is_sender && !self.shared.is_all_queued() && self.is_slowed_by_loss(streams);
        if is_wanted && self.streams.is_hint_due(now) {
            self.shared.say(&[SessionMessage::WantStreams]);
        }
    }

    /// The share of a stream before a limit of the whole transfer is divided anew.
    pub(super) fn first_share(&self, part: FlowPurpose) -> u32 {
        let is_limited = part == FlowPurpose::StandBy && self.rates.rate().rate_bps.is_some();
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
        let has_failed = self.carriers.has_just_failed(Instant::now());
        for flow in own.iter().filter(is_idle).take(missing) {
            self.use_stream(flow, true);
            missing -= 1;
        }
        let begun =
            own.iter().filter(|flow| flow.state() == FlowState::Connecting && !is_ended(flow)).count();
        let opened = if has_failed { missing } else { begun + self.carriers.dialing() };
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
        let do_others = |flows: &[Arc<FlowShared>]| {
            flows.iter().any(|flow| {
                flow.is_stream
                    && flow.index != index
                    && flow.active.load(Ordering::Acquire)
                    && !is_ended(flow)
            })
        };
        let is_wanted = self.streams.is_trial() || do_others(&self.shared.flow_list());
        let flows = self.shared.flow_list();
        if let Some(flow) = flows.iter().find(|flow| flow.index == index).filter(|_| is_wanted) {
            self.use_stream(flow, true);
            self.say_advice(flow);
        }
    }

    /// The initiator has said whether a stream is used.
    pub(super) fn obey_stream_use(&mut self, index: u16, is_used: bool) {
        self.streams.hear_use(index, is_used);
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
        self.streams.set_udp_idle(!is_used);
        self.apply_paths(self.paths.unused())
    }

    /// Warns once if the sender's TCP may be slow for a reason that its user can change.
    pub(super) fn say_advice(&mut self, flow: &FlowShared) {
        let advice = flow.congestion.as_deref().filter(|_| self.is_sender).and_then(advice);
        if let Some(advice) = advice
            && self.streams.take_advice_turn()
        {
            self.warn(advice);
        }
    }

    pub(super) fn is_channel(&self, flow: &FlowShared) -> bool {
        self.carriers.is_channel(flow.index)
    }

    /// Changes from the channel to a direct connection, if there is one: the channel copies everything
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

    /// UDP carries everything again; one stream stays open for the next time.
    pub(super) fn let_streams_go(&mut self) {
        let flows = self.shared.flow_list();
        for flow in flows.iter().filter(|flow| flow.is_stream && !is_ended(flow)) {
            self.use_stream(flow, false);
        }
        self.streams.let_go(self.shared.elapsed());
    }

    /// Ends all idle streams but one, once they have delivered what they had.
    fn end_idle_streams(&mut self, streams: &[Arc<FlowShared>], now: Duration) {
        if !self.streams.is_long_idle(now) {
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
        let Some(most) = self.rates.rate().rate_bps else { return };
        // A stream that gets nothing new may still deliver what it has.
        let has_more = |flow: &FlowShared| {
            flow.active.load(Ordering::Acquire) || flow.backlog.load(Ordering::Relaxed) > 0
        };
        let carrying: Vec<_> = streams.iter().filter(|flow| is_up(flow) && has_more(flow)).collect();
        let share = self.streams.share(most, !udp.is_empty(), carrying.len());
        for flow in carrying {
            flow.ceiling_ppm.store((1e6 * share) as u32, Ordering::Relaxed);
        }
    }

    // ---- policed UDP ----------------------------------------------------------------------------

    /// Watches at the sender whether much is lost although there is no queue, whatever is sent.
    fn watch_for_policing(&mut self, udp: &[Arc<FlowShared>], streams: &[Arc<FlowShared>], now: Duration) {
        let is_alone = !streams.iter().any(|flow| flow.active.load(Ordering::Acquire) && !is_ended(flow));
        let may_try =
            matches!(self.rates.rate().policy, Policy::Fair | Policy::High) && !self.options.udp_only;
        let is_one_path = self.shared.path_count() == 1 && udp.iter().any(|flow| is_up(flow));
        // A path that takes nothing at all is another matter.
        let answers = |flow: &Arc<FlowShared>| {
            now.saturating_sub(Duration::from_millis(flow.answered_ms.load(Ordering::Relaxed))) < ANSWER_TIME
        };
        let is_one_path = is_one_path && udp.iter().any(answers);
        let is_possible =
            self.is_sender && may_try && is_alone && is_one_path && !self.shared.is_all_queued();
        let looks_policed = is_possible && {
            let controller = self.shared.controller(0);
            controller.loss() >= POLICED_LOSS && controller.has_spare_rate()
        };
        if self.streams.watch_for_policing(looks_policed, self.shared.is_initiator, now) {
            self.shared.say(&[SessionMessage::WantStreams]);
        }
    }

    /// The sender at the other end has seen that UDP looks policed.
    pub(super) fn want_trial(&mut self) {
        self.streams.want_trial(self.shared.elapsed());
    }

    /// Returns whether most of the streams that carry are held back by loss alone.
    fn is_slowed_by_loss(&self, streams: &[Arc<FlowShared>]) -> bool {
        let carrying = || streams.iter().filter(|flow| is_up(flow) && flow.active.load(Ordering::Acquire));
        let slowed = carrying().filter(|flow| flow.is_slowed_by_loss.load(Ordering::Relaxed)).count();
        slowed > 0 && 2 * slowed >= carrying().count()
    }

    fn judge_trial(&mut self, udp: &[Arc<FlowShared>], streams: &[Arc<FlowShared>], now: Duration) {
        match self.streams.judge(!udp.is_empty(), moved(streams), now) {
            StreamVerdict::GoOn => {}
            StreamVerdict::LetGo => self.let_streams_go(),
            StreamVerdict::Both => self.set_carrier(Carrier::UdpAndTcp),
            StreamVerdict::StreamsOnly => {
                self.set_carrier(Carrier::Tcp);
                self.shared.say(&[SessionMessage::UdpUse { is_used: false }]);
                // Some path may be used, as UDP was in use until now.
                let _ = self.obey_udp_use(false);
            }
        }
    }

    /// The result of a trial, for the report.
    pub(crate) fn policed(&self) -> Option<String> {
        let policed = self.streams.policed()?;
        let flows: Vec<_> = self.shared.flow_list().into_iter().filter(|flow| flow.is_stream).collect();
        let time = self.shared.elapsed().saturating_sub(policed.since).as_secs_f64();
        let streams = moved(&flows).saturating_sub(policed.bytes) as f64 / time.max(0.1);
        let mbps = |rate: f64| format!("{:.0} Mbit/s", rate * 8e-6);
        let used =
            if self.carriers.carrier() == Carrier::UdpAndTcp { "both were used" } else { "so TCP was used" };
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
    use super::super::tests::start;
    use super::*;
    use crate::content_role::ContentRole;
    use crate::flows::flow_shared::FlowPlace;
    use crate::options::RateOptions;
    use crate::setup::local_pair;

    #[test]
    fn a_stream_that_gets_nothing_new_shares_the_ceiling_until_it_is_empty() {
        let (near, far) = local_pair().unwrap();
        let (mut sender, receiver) = (start(near, ContentRole::Sender), start(far, ContentRole::Receiver));
        sender.rates.set(RateOptions { rate_bps: Some(1_000_000), ..sender.rates.rate() });
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
