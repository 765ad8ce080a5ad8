//! Handles arriving packets and timeouts.

use super::close::CloseState;
use super::config::{FlowEvent, ReceivedPacket, SegmentVerdict};
use super::incoming_blocks::SegmentArrival;
use super::priority::RepairEstimate;
use super::{Flow, FlowIndex};
use crate::ack::FeedbackCause;
use crate::control::ControlStream;
use crate::error::{Error, TransportMisbehaviour};
use crate::rate::{Controller, FeedbackReport};
use crate::recovery::PacketKind;
use crate::time::Timestamp;
use crate::wire::frame::{self, Feedback, Frame};
use std::time::Duration;

/// The most blocks that a peer can grant: block numbers have 40 bits.
const CREDIT_MAX: u64 = 1 << 40;

impl Flow {
    /// Whether a packet of this number has arrived before: a cheap test before opening it.
    #[inline]
    pub fn is_replay(&self, number: u64) -> bool {
        self.arrivals.is_replay(number)
    }

    /// Handles a packet whose tag was right.
    pub fn handle_packet(
        &mut self,
        now: Timestamp,
        received: &ReceivedPacket<'_>,
        control: &mut ControlStream,
        controller: &mut Controller,
    ) -> Result<SegmentVerdict, Error> {
        if !self.count(now, received) {
            return Ok(SegmentVerdict::Replayed);
        }
        if !received.control.is_empty() {
            self.handle_control(now, received, control, controller)?;
        }
        self.take_segment(now, received)
    }

    /// Handles a packet without control frames, as most packets with content are. It needs nothing that flows
    /// share.
    pub fn handle_content(
        &mut self,
        now: Timestamp,
        received: &ReceivedPacket<'_>,
    ) -> Result<SegmentVerdict, Error> {
        debug_assert!(received.control.is_empty(), "control frames need the control stream");
        if self.count(now, received) {
            self.take_segment(now, received)
        } else {
            Ok(SegmentVerdict::Replayed)
        }
    }

    /// Counts an authentic packet; returns `false` if it has arrived before.
    #[inline]
    fn count(&mut self, now: Timestamp, received: &ReceivedPacket<'_>) -> bool {
        if self.arrivals.is_replay(received.number) {
            self.stats.packets_replayed += 1;
            return false;
        }
        self.last_heard = now;
        self.stats.packets_received += 1;
        self.stats.packets_overtaken += u64::from(self.arrivals.is_overtaken(received.number));
        self.stats.bytes_received += u64::from(received.wire_len);
        self.announced.ecn_ce += u64::from(received.ecn_ce);
        true
    }

    #[inline]
    fn take_segment(
        &mut self,
        now: Timestamp,
        received: &ReceivedPacket<'_>,
    ) -> Result<SegmentVerdict, Error> {
        if self.state != CloseState::Open {
            return Ok(SegmentVerdict::Nothing);
        }
        let Some(segment) = received.segment else {
            self.stats.control_bytes_received += u64::from(received.wire_len);
            self.arrivals.insert(received.number, now);
            return Ok(SegmentVerdict::Nothing);
        };
        let arrived = self.incoming.insert(segment)?;
        if arrived == SegmentArrival::NotGranted {
            return Ok(SegmentVerdict::Refused);
        }
        self.arrivals.insert(received.number, now);
        self.notes.on_segment(received.number, now);
        self.stats.segments_received += 1;
        self.feedback.want(now, self.feedback_interval(), FeedbackCause::Content);
        match arrived {
            SegmentArrival::New | SegmentArrival::NotGranted => Ok(SegmentVerdict::Place),
            SegmentArrival::Completed(len) => {
                self.announced.granted_more |= self.incoming.grant_allowed();
                self.events.push_back(FlowEvent::BlockComplete { block: segment.block, len });
                Ok(SegmentVerdict::Place)
            }
            SegmentArrival::Known => {
                self.stats.segments_duplicate += 1;
                Ok(SegmentVerdict::Duplicate)
            }
        }
    }

    fn handle_control(
        &mut self,
        now: Timestamp,
        received: &ReceivedPacket<'_>,
        control: &mut ControlStream,
        controller: &mut Controller,
    ) -> Result<(), Error> {
        let interval = self.feedback_interval();
        let mut rest = received.control;
        while !rest.is_empty() {
            let frame = frame::take(&mut rest)?;
            if self.state != CloseState::Open && !matches!(frame, Frame::Close { .. }) {
                continue;
            }
            match frame {
                Frame::Ping => self.feedback.want(now, interval, FeedbackCause::Notice),
                Frame::Report => self.feedback.want(now, interval, FeedbackCause::Report),
                Frame::Feedback(feedback) => self.handle_feedback(now, &feedback, control, controller)?,
                Frame::Stream { offset, bytes } => {
                    self.feedback.want(now, interval, FeedbackCause::Content);
                    if control.on_received(offset, bytes)? {
                        self.events.push_back(FlowEvent::ControlReadable);
                    }
                }
                Frame::Floor(floor) => self.arrivals.set_floor(floor),
                Frame::Close { code, reason } => {
                    if self.state != CloseState::Closed {
                        self.events.push_back(FlowEvent::PeerClosed { code, reason: reason.to_owned() });
                    }
                    self.state = CloseState::Closed;
                }
                Frame::Challenge(token) => self.want.answer = Some(token),
                Frame::Answer(token) => self.events.push_back(FlowEvent::PathAnswered(token)),
                Frame::Arrivals(body) => self.train.on_notes(frame::notes(body)),
                Frame::GivenUp(body) => self.handle_given_up(now, body)?,
                Frame::Note(body) => self.events.push_back(FlowEvent::Note(body.to_vec())),
                Frame::Unknown => {}
            }
        }
        self.announced.limit_is_news = control.limit_is_news();
        Ok(())
    }

    fn handle_given_up(&mut self, now: Timestamp, body: &[u8]) -> Result<(), Error> {
        self.feedback.want(now, self.feedback_interval(), FeedbackCause::Content);
        for blocks in frame::given_up(body) {
            self.incoming.give_up(blocks?, |gone| self.events.push_back(FlowEvent::PeerGaveUp(gone)))?;
        }
        self.announced.granted_more |= self.incoming.grant_allowed();
        Ok(())
    }

    fn handle_feedback(
        &mut self,
        now: Timestamp,
        feedback: &Feedback<'_>,
        control: &mut ControlStream,
        controller: &mut Controller,
    ) -> Result<(), Error> {
        self.stats.feedbacks_received += 1;
        self.stats.segments_duplicate_at_peer =
            self.stats.segments_duplicate_at_peer.max(feedback.duplicates);
        if feedback.credit > CREDIT_MAX {
            return Err(TransportMisbehaviour::Credit.into());
        }
        if self.outgoing.set_credit(feedback.credit) {
            self.events.push_back(FlowEvent::CreditAvailable);
        }
        control.on_peer_limit(feedback.max_data);
        if feedback.map.is_empty() {
            return Ok(());
        }
        self.outcome.clear();
        let map_end = self.ledger.on_feedback(now, feedback, &self.rtt, &mut self.outcome)?;
        let rtt = self.outcome.rtt;
        if let Some(rtt) = rtt {
            let guessed = self.feedback_interval();
            self.rtt.sample(rtt);
            // This is only for paths shorter than the guess: on a longer one the first feedback comes within
            // a round trip anyway, and the start needs no more of them.
            if self.rtt.samples == 1 && rtt < guessed {
                self.feedback.on_first_round_trip(self.feedback_interval());
            }
        }
        let receive_time = self.receive_time(feedback);
        if !self.config.reliable {
            self.ledger.on_time(now, &self.rtt, &mut self.outcome);
        }
        self.stats.bytes_acked += self.outcome.acked_bytes;
        self.apply_outcome(now, control);
        let packets_marked = feedback.ecn_ce.saturating_sub(self.stats.packets_marked);
        self.stats.packets_marked += packets_marked;
        let report = FeedbackReport {
            delivered: self.outcome.acked_bytes,
            lost: self.outcome.lost_bytes,
            packets_delivered: self.outcome.settled.arrived,
            datagram: u32::from(self.segment_datagram()),
            packets_lost: self.outcome.settled.lost,
            packets_marked,
            loss_runs: self.outcome.settled.runs,
            receive_time,
            rtt,
            in_flight: self.ledger.open_bytes(),
            saturated: std::mem::take(&mut self.want.saturated),
            train_rate: self.train.rate(),
        };
        let index = self.register(controller);
        if !self.config.reliable {
            self.tell(now, index, report, map_end > feedback.newest / 64, controller);
        }
        Ok(())
    }

    /// Reports a feedback to the controller as a whole. A long feedback comes in several packets, oldest
    /// numbers first; each alone would show losses without the arrivals beside them.
    fn tell(
        &mut self,
        now: Timestamp,
        index: FlowIndex,
        report: FeedbackReport,
        is_to_the_end: bool,
        controller: &mut Controller,
    ) {
        if self.outcome.newest_is_new {
            if self.is_feedback_open {
                controller.on_report(now, index, &std::mem::take(&mut self.untold));
            }
            self.is_feedback_open = true;
        }
        self.is_feedback_open &= !is_to_the_end;
        self.untold = std::mem::take(&mut self.untold).and(report);
        if !self.is_feedback_open {
            controller.on_report(now, index, &std::mem::take(&mut self.untold));
        }
    }

    fn register(&mut self, controller: &mut Controller) -> FlowIndex {
        *self.index.get_or_insert_with(|| controller.add_flow())
    }

    /// The time at the receiver between the newest arrivals of the last feedback and of this one.
    fn receive_time(&mut self, feedback: &Feedback<'_>) -> Duration {
        if !self.outcome.newest_is_new {
            return Duration::ZERO;
        }
        let before = self.progress.arrived_us.replace(feedback.arrived_us);
        Duration::from_micros(before.map_or(0, |before| feedback.arrived_us.saturating_sub(before)))
    }

    /// Acts on the acknowledgements and losses that the ledger has found.
    fn apply_outcome(&mut self, now: Timestamp, control: &mut ControlStream) {
        let mut outcome = std::mem::take(&mut self.outcome);
        if !outcome.acked.is_empty() {
            self.probe_timer.on_progress(now);
        }
        for acked in &outcome.acked {
            match acked.kind {
                PacketKind::Segment => {
                    // A short segment does not prove that the path carries long ones.
                    if acked.wire_len >= self.lost_len_max.min(self.segment_datagram()) {
                        self.stats.segments_proven += u64::from(acked.count);
                        self.lost_len_max = 0;
                    }
                    if self.outgoing.on_acked(acked.what, acked.offset, acked.len) {
                        self.events.push_back(FlowEvent::BlockAcked(acked.what));
                    }
                    self.mtu.on_acked(acked.wire_len, now, self.rtt.smoothed);
                }
                PacketKind::Stream => {
                    control.on_acked(acked.what, acked.len as usize);
                    self.mtu.on_acked(acked.wire_len, now, self.rtt.smoothed);
                }
                PacketKind::MtuProbe => {
                    if let Some(size) = self.mtu.on_probe_acked(acked.wire_len) {
                        self.events.push_back(FlowEvent::DatagramMax(size));
                    }
                }
                PacketKind::Ping => self.mtu.on_acked(acked.wire_len, now, self.rtt.smoothed),
                PacketKind::GivenUp => {
                    self.notices.on_acked(acked.what);
                    self.mtu.on_acked(acked.wire_len, now, self.rtt.smoothed);
                }
                PacketKind::Passive | PacketKind::Skipped => {}
            }
        }
        self.outgoing.trim();
        for &number in &outcome.pings_acked {
            if let Some((_, credit, limit)) = self.announced.asked.take_if(|asked| asked.0 <= number) {
                self.announced.credit_confirmed = self.announced.credit_confirmed.max(credit);
                control.on_limit_confirmed(limit);
            }
        }
        self.apply_losses(now, &outcome.lost, control);
        for &number in &outcome.pings_lost {
            self.announced.asked.take_if(|asked| asked.0 == number);
        }
        self.announced.limit_is_news = control.limit_is_news();
        self.stats.packets_lost_spuriously += outcome.spurious;
        outcome.lost.clear();
        self.outcome = outcome;
        self.ledger.sweep(now, &self.rtt);
    }

    fn apply_losses(
        &mut self,
        now: Timestamp,
        lost: &[crate::recovery::SentPacket],
        control: &mut ControlStream,
    ) {
        let path = RepairEstimate { now, rtt: self.rtt.smoothed, loss: self.loss };
        for sent in lost {
            if sent.kind == PacketKind::Segment {
                self.lost_len_max = self.lost_len_max.max(sent.wire_len);
            }
            match sent.kind {
                PacketKind::Segment if self.tail.has_another(sent.what, sent.offset) => {}
                PacketKind::Segment => {
                    self.outgoing.on_lost(sent.what, sent.offset, u32::from(sent.len), path)
                }
                PacketKind::Stream => control.on_lost(sent.what, usize::from(sent.len)),
                PacketKind::GivenUp => self.notices.on_lost(sent.what),
                PacketKind::MtuProbe => {
                    self.mtu.on_probe_lost(sent.wire_len);
                    continue;
                }
                // A number that was never sent cannot be lost.
                PacketKind::Skipped => continue,
                PacketKind::Ping | PacketKind::Passive => {}
            }
            self.stats.packets_lost += 1;
            if let Some(size) = self.mtu.on_lost(sent.wire_len) {
                self.events.push_back(FlowEvent::DatagramMax(size));
            }
        }
    }

    /// Says that time has passed. Early or late calls do no harm.
    pub fn handle_timeout(
        &mut self,
        now: Timestamp,
        control: &mut ControlStream,
        controller: &mut Controller,
    ) {
        if self.state != CloseState::Open {
            return;
        }
        self.give_up_expired(now);
        if self.config.reliable {
            return;
        }
        if self.ledger.suspect_deadline(&self.rtt).is_some_and(|at| at <= now) {
            self.outcome.clear();
            self.ledger.on_time(now, &self.rtt, &mut self.outcome);
            self.apply_outcome(now, control);
            let lost = FeedbackReport {
                lost: self.outcome.lost_bytes,
                packets_lost: self.outcome.settled.lost,
                loss_runs: self.outcome.settled.runs,
                in_flight: self.ledger.open_bytes(),
                ..FeedbackReport::default()
            };
            let index = self.register(controller);
            if self.is_feedback_open {
                // The controller has not been told of the arrivals of the same time yet.
                self.untold = lost.and(std::mem::take(&mut self.untold));
            } else if lost.lost > 0 {
                controller.on_report(now, index, &lost);
            }
        }
        if self.probe_deadline().is_some_and(|at| at <= now) {
            self.stats.probe_timeouts += 1;
            self.probe_timer.timeouts += 1;
            self.want.report = true;
            // On a near path, silence mostly means a busy machine: ask first, and copy only if asking did not
            // help. A path that stays silent is asked again and again, but gets no more copies.
            let far = self.rtt.smoothed > Duration::from_millis(20);
            self.want.copy = self.probe_timer.timeouts == 2 || (far && self.probe_timer.timeouts == 1);
        }
    }
}
