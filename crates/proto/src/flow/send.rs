//! What goes out: feedback first, then what keeps the flow alive, then the control stream, repairs and new
//! segments.

use super::Flow;
use super::close::CloseState;
use super::config::{ControlSpan, PacketPlan, PlannedPacket, SendLimit, segment_datagram};
use super::outgoing_blocks::NextSegment;
use super::priority::DeliveryEstimate;
use crate::ack::{FeedbackCause, WordRange};
use crate::control::ControlStream;
use crate::rate::{Controller, PacerRequest};
use crate::recovery::{PacketKind, SentPacket};
use crate::time::Timestamp;
use crate::wire::frame::{self, FEEDBACK_OVERHEAD, Feedback, STREAM_OVERHEAD};
use crate::wire::{HEADER_LEN, SEGMENT_OVERHEAD, Segment, TAG_LEN};
use std::time::Duration;

/// The most packets of one feedback: enough for 280,000 packet numbers even if every second one is lost. The
/// rotation reaches the rest.
const FEEDBACK_PACKETS_MAX: usize = 32;
/// The most bytes of map in one feedback frame.
const MAP_MAX: usize = 1000;
/// The most packets of a close.
const LAST_WORDS_PACKETS: usize = 4;
/// Roughly one of this many packet numbers is left out.
const SKIP_EVERY: u64 = 2048;
/// On shorter paths feedback arrives before a copy would.
const TAIL_RTT_MIN: Duration = Duration::from_millis(5);
/// The smallest window of a flow: two packets.
const WINDOW_MIN: u64 = 2 * 1500;
/// The most unacknowledged bytes on a reliable carrier; this only bounds memory.
const RELIABLE_WINDOW: u64 = 64 << 20;

/// How many pings follow the last segment of blocks with a deadline: one may be lost.
const MARKERS: u32 = 2;

/// What may still be sent in this call.
struct SendBudget {
    window: u64,
    rate: Option<f64>,
    /// The rate is the configured one, and not what the path allows.
    is_ceiling: bool,
    tokens: f64,
}

impl Flow {
    /// Appends packets that may leave now to `out`, until it is full; returns their number.
    pub fn poll_transmit(
        &mut self,
        now: Timestamp,
        control: &mut ControlStream,
        controller: &Controller,
        out: &mut PacketPlan,
    ) -> usize {
        let before = out.packets.len();
        self.want.paced_until = None;
        if self.state != CloseState::Open {
            self.send_close(now, control, out);
            return out.packets.len() - before;
        }
        self.give_up_expired(now);
        // Also when no deadline is left: copies that nobody needs any more must not wake the flow for ever.
        self.outgoing.let_copies_go(now);
        if self.outgoing.deadline().is_some() {
            self.loss = controller.path_loss().max(controller.loss());
            self.mark(now);
        } else {
            self.want.markers = None;
        }
        self.announced.limit_is_news = control.limit_is_news();
        self.send_feedback(now, control, out);
        self.send_requests(now, control, out);
        self.send_notices(now, out);
        let mut budget = self.budget(now, controller);
        self.send_stream(now, control, &mut budget, out);
        self.send_segments(now, &mut budget, out);
        self.send_tail(now, controller, &mut budget, out);
        self.note_limit(now, control, &budget, out);
        out.packets.len() - before
    }

    /// Sends a ping if nothing has left for the time by which a packet may be late: with blocks that have a deadline, the
    /// loss of the last segments cannot wait for the next ones, or for a probe timeout.
    fn mark(&mut self, now: Timestamp) {
        let Some((_, left)) = self.want.markers.take_if(|next| next.0 <= now) else { return };
        self.want.ping = true;
        if left > 1 {
            self.want.markers = Some((now + self.ledger.window(&self.rtt) / 2, left - 1));
        }
    }

    /// Plans a packet that asks the peer for an answer;
    /// [`FlowEvent::PathAnswered`](super::FlowEvent::PathAnswered) reports it. The caller sends the packet to
    /// the address that it wants to check, and repeats it, as it may get lost.
    pub fn plan_challenge(&mut self, now: Timestamp, token: [u8; 8], out: &mut PacketPlan) {
        if out.room() > 0 && self.state == CloseState::Open {
            let start = out.control.len();
            frame::put_challenge(&mut out.control, token);
            self.push_control(now, start, PacketKind::Passive, (0, 0), 0, out);
        }
    }

    fn budget(&mut self, now: Timestamp, controller: &Controller) -> SendBudget {
        let (share, pace, window) = if self.config.reliable {
            // The carrier has a rate control of its own.
            (self.ceiling_share, controller.ceiling(), RELIABLE_WINDOW)
        } else {
            let share = controller.share(self.index);
            let window = ((controller.window() as f64 * share) as u64).max(WINDOW_MIN);
            (share, controller.pacing_rate(), window)
        };
        let rate = pace.map(|rate| rate * share);
        let packet = usize::from(self.segment_datagram());
        let asked = PacerRequest { share, packet, is_first: self.train.is_due() };
        let tokens = rate.map_or(f64::INFINITY, |rate| self.pacer.budget(now, rate, &asked));
        SendBudget { window, rate, is_ceiling: pace == controller.ceiling(), tokens }
    }

    /// Adds to the close what the peer may not have of the control stream, if that is little: later nobody
    /// will be there to repair it.
    fn send_close(&mut self, now: Timestamp, control: &ControlStream, out: &mut PacketPlan) {
        let pause = self.rtt.smoothed.max(Duration::from_millis(50));
        let packets = out.room().min(LAST_WORDS_PACKETS);
        if packets == 0 {
            return;
        }
        let mut close = Vec::new();
        let Some((code, reason)) = self.state.take_word(now, pause) else { return };
        frame::put_close(&mut close, code, reason);
        let piece_max = self.control_room().saturating_sub(STREAM_OVERHEAD + close.len());
        // On a reliable carrier, everything sent before arrives before the close does.
        let words_max = if self.config.reliable { 0 } else { packets * piece_max };
        let mut words = control.last_words(words_max);
        loop {
            let start = out.control.len();
            let len = piece_max.min((words.end - words.start) as usize);
            if len > 0 {
                frame::put_stream_head(&mut out.control, words.start, len);
                control.copy_piece(words.start, len, &mut out.control);
                words.start += len as u64;
            }
            let is_last = words.is_empty();
            if is_last {
                // The close is in one packet with the last piece: a peer that has heard a close no longer
                // listens.
                out.control.extend_from_slice(&close);
            }
            self.push_control(now, start, PacketKind::Passive, (0, 0), 0, out);
            if is_last {
                return;
            }
        }
    }

    fn send_feedback(&mut self, now: Timestamp, control: &ControlStream, out: &mut PacketPlan) {
        if out.room() == 0 {
            return;
        }
        let interval = self.feedback_interval();
        if self.announced.granted_more {
            self.feedback.want(now, interval, FeedbackCause::Notice);
        }
        let announce = self.announce_deadline().is_some_and(|at| at <= now);
        match self.feedback.take(now, interval, self.config.reliable) {
            Some(everything) => self.send_report(now, everything, announce, control, out),
            None if announce => self.send_report(now, false, true, control, out),
            None => {}
        }
    }

    /// Sends the maps of one feedback, in as many packets as they take.
    fn send_report(
        &mut self,
        now: Timestamp,
        everything: bool,
        ask: bool,
        control: &ControlStream,
        out: &mut PacketPlan,
    ) {
        let none = WordRange { start: 0, end: 0 };
        let [mut older, mut recent] = match self.arrivals.newest() {
            Some(_) => self.arrivals.next_ranges(everything, self.rotation()),
            None => [none, none],
        };
        self.announced.granted_more = false;
        let mut ask = ask;
        for first in std::iter::once(true).chain(std::iter::repeat_n(false, FEEDBACK_PACKETS_MAX - 1)) {
            if out.room() == 0 || (!first && older.is_empty() && recent.is_empty()) {
                break;
            }
            let start = out.control.len();
            let mut room = self.control_room().min(MAP_MAX + 2 * FEEDBACK_OVERHEAD);
            // The recent numbers come first, as the peer does not know them yet.
            for range in [&mut recent, &mut older] {
                if room > FEEDBACK_OVERHEAD + 64 && (!range.is_empty() || out.control.len() == start) {
                    let at = out.control.len();
                    range.start =
                        self.put_feedback(now, *range, room - FEEDBACK_OVERHEAD, control, &mut out.control);
                    room = room.saturating_sub(out.control.len() - at);
                }
            }
            let notes = if first && room > frame::ARRIVALS_MAX { self.notes.take() } else { &[] };
            if !notes.is_empty() {
                frame::put_arrivals(&mut out.control, notes);
            }
            self.put_floor(now, &mut out.control);
            let kind = if std::mem::take(&mut ask) { PacketKind::Ping } else { PacketKind::Passive };
            if kind == PacketKind::Ping {
                frame::put_ping(&mut out.control);
                let values = (self.ledger_number(), self.incoming.granted(), control.limit_for_peer());
                self.announced.asked = Some(values);
                self.announced.asked_at = Some(now);
            }
            self.push_control(now, start, kind, (0, 0), 0, out);
        }
        // A requested report begins with the oldest numbers each time, and does not move the rotation.
        if !everything && !older.is_empty() {
            self.arrivals.go_on_from(older.start);
        }
    }

    fn put_feedback(
        &mut self,
        now: Timestamp,
        range: WordRange,
        map_max: usize,
        control: &ControlStream,
        out: &mut Vec<u8>,
    ) -> u64 {
        let mut map = std::mem::take(&mut self.map);
        map.clear();
        let end = self.arrivals.encode_map(range, map_max, &mut map);
        let (newest, arrived) = self.arrivals.newest().unwrap_or((0, now));
        let feedback = Feedback {
            newest,
            arrived_us: arrived.as_micros(),
            delay_us: u64::try_from((now - arrived).as_micros()).unwrap_or(0),
            duplicates: self.stats.segments_duplicate,
            ecn_ce: self.announced.ecn_ce,
            credit: self.incoming.granted(),
            max_data: control.limit_for_peer(),
            map_start: range.start,
            map: &map,
        };
        frame::put_feedback(out, &feedback);
        self.map = map;
        end
    }

    /// Adds the floor to a packet that is sent anyway, if it has risen.
    fn put_floor(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        let floor = self.ledger.floor();
        if floor > self.want.floor_told {
            frame::put_floor(out, floor);
            self.want.floor_told = floor;
            self.want.floor_told_at = Some(now);
        }
    }

    /// Sends pings, requests for a report after a probe timeout, path answers, MTU probes, and the floor if
    /// it was not sent for long.
    fn send_requests(&mut self, now: Timestamp, control: &ControlStream, out: &mut PacketPlan) {
        if self.want.report && out.room() >= 2 {
            self.want.report = false;
            let start = out.control.len();
            frame::put_report(&mut out.control);
            // Sent again, in case the last floor was lost: the answer would begin with numbers that are long
            // decided.
            self.want.floor_told = 0;
            self.put_floor(now, &mut out.control);
            let copied =
                std::mem::take(&mut self.want.copy).then(|| self.ledger.oldest_open_segment()).flatten();
            self.push_control(now, start, PacketKind::Ping, (0, 0), 0, out);
            let again =
                copied.and_then(|sent| self.outgoing.unacked(sent.what, sent.offset, u32::from(sent.len)));
            if let Some(segment) = again.filter(|segment| segment.len <= self.segment_max()) {
                self.stats.segments_proactive += 1;
                self.push_segment(now, segment, out);
            }
            if self.has_news() {
                self.send_report(now, false, false, control, out);
            }
        }
        if std::mem::take(&mut self.want.ping) {
            if out.room() == 0 {
                self.want.ping = true;
                return;
            }
            let start = out.control.len();
            frame::put_ping(&mut out.control);
            self.push_control(now, start, PacketKind::Ping, (0, 0), 0, out);
        }
        if let Some(token) = self.want.answer.filter(|_| out.room() > 0) {
            self.want.answer = None;
            let start = out.control.len();
            frame::put_answer(&mut out.control, token);
            self.push_control(now, start, PacketKind::Passive, (0, 0), 0, out);
        }
        if out.room() > 0
            && let Some(note) = self.want.note.take()
        {
            let start = out.control.len();
            frame::put_note(&mut out.control, &note);
            self.push_control(now, start, PacketKind::Passive, (0, 0), 0, out);
        }
        self.send_mtu_probes(now, out);
        let floor_due = self.want.floor_told_at.is_none_or(|at| now - at >= self.floor_pause());
        if self.ledger.floor() > self.want.floor_told + 64 && floor_due && out.room() > 0 {
            let start = out.control.len();
            self.put_floor(now, &mut out.control);
            self.push_control(now, start, PacketKind::Passive, (0, 0), 0, out);
        }
    }

    fn floor_pause(&self) -> Duration {
        (self.rtt.smoothed / 4).max(Duration::from_millis(2))
    }

    fn send_mtu_probes(&mut self, now: Timestamp, out: &mut PacketPlan) {
        while self.rtt.samples > 0 && self.mtu.wants_probe() && out.room() > 0 {
            let Some(size) = self.mtu.next_probe() else { return };
            let start = out.control.len();
            frame::put_ping(&mut out.control);
            let padding = size - (HEADER_LEN + TAG_LEN + 2) as u16;
            self.push_control(now, start, PacketKind::MtuProbe, (0, 0), padding, out);
        }
    }

    /// Sends which blocks were given up. Goes ahead of window and pacer, as it is little and lets the
    /// receiver give credit back.
    fn send_notices(&mut self, now: Timestamp, out: &mut PacketPlan) {
        while self.notices.has_pending() && out.room() > 0 {
            let start = out.control.len();
            let notice = self.notices.put(self.control_room(), &mut out.control);
            self.push_control(now, start, PacketKind::GivenUp, (notice, 0), 0, out);
        }
    }

    fn send_stream(
        &mut self,
        now: Timestamp,
        control: &mut ControlStream,
        budget: &mut SendBudget,
        out: &mut PacketPlan,
    ) {
        let max = self.control_room() - STREAM_OVERHEAD;
        while control.has_pending() && self.may_send(budget, out) {
            let Some((offset, len)) = control.take_piece(max) else { return };
            let start = out.control.len();
            frame::put_stream_head(&mut out.control, offset, len);
            control.copy_piece(offset, len, &mut out.control);
            let sent = self.push_control(now, start, PacketKind::Stream, (offset, len), 0, out);
            self.pay(budget, sent);
        }
    }

    fn send_segments(&mut self, now: Timestamp, budget: &mut SendBudget, out: &mut PacketPlan) {
        let max = self.segment_max();
        let first = self.ledger.next_number();
        while self.may_send(budget, out) {
            let ahead = match self.outgoing.has_others() {
                true => self.next_of_others(now, max, budget),
                false => None,
            };
            let Some(segment) = ahead.or_else(|| self.outgoing.next_new(max)) else { break };
            let sent = self.push_segment(now, segment, out);
            self.pay(budget, sent);
        }
        if !self.config.reliable && self.outgoing.deadline().is_some() && self.ledger.next_number() > first {
            self.want.markers = Some((now + self.ledger.window(&self.rtt), MARKERS));
        }
        if self.train.is_due() && self.ledger.next_number() > first {
            self.train.on_sent(first, self.ledger.next_number() - 1, self.segment_datagram());
        }
    }

    /// The next segment, if something besides new bulk waits.
    #[inline(never)]
    fn next_of_others(&mut self, now: Timestamp, max: u32, budget: &SendBudget) -> Option<Segment> {
        let pace = DeliveryEstimate { now, rate: budget.rate, rtt: self.rtt.smoothed, loss: self.loss };
        match self.outgoing.next_of_others(max, pace)? {
            NextSegment::New(segment) => Some(segment),
            NextSegment::Repair(segment) => {
                self.stats.segments_retransmitted += 1;
                self.tail.on_repair(segment);
                Some(segment)
            }
        }
    }

    /// If there is nothing else to send at the end, repeats segments that may be lost.
    fn send_tail(
        &mut self,
        now: Timestamp,
        controller: &Controller,
        budget: &mut SendBudget,
        out: &mut PacketPlan,
    ) {
        let over = !self.outgoing.has_uncut() && !self.outgoing.has_repairs();
        if !over || self.config.reliable || self.rtt.smoothed < TAIL_RTT_MIN || !controller.has_spare_rate() {
            return;
        }
        let end = self.ledger.next_number();
        self.tail.begin(
            controller.path_loss().max(controller.loss()),
            self.ledger.open_bytes(),
            self.ledger.floor(),
            end,
        );
        while self.tail.is_on() && self.may_send(budget, out) {
            let (outgoing, ledger) = (&self.outgoing, &self.ledger);
            let unacked = |block, offset, len| outgoing.unacked(block, offset, len);
            let copy = self.tail.next(
                |segment| unacked(segment.block, segment.offset, segment.len).is_some(),
                |number| {
                    let sent = ledger.open_segment(number)?;
                    unacked(sent.what, sent.offset, u32::from(sent.len))
                },
            );
            let Some(segment) = copy.filter(|segment| segment.len <= self.segment_max()) else { return };
            self.stats.segments_proactive += 1;
            let sent = self.push_segment(now, segment, out);
            self.tail.on_copy(segment, sent);
            self.pay(budget, sent);
        }
        if let Some(rate) = budget.rate.filter(|_| budget.tokens < 0.0 && self.tail.wants_more()) {
            self.want.paced_until = Some(self.pacer.wake_at(now, rate));
        }
    }

    #[inline]
    fn may_send(&self, budget: &SendBudget, out: &PacketPlan) -> bool {
        let within = self.ledger.open_bytes() < budget.window && budget.tokens >= 0.0;
        within && self.ledger.has_room() && out.room() > 0
    }

    #[inline]
    fn pay(&mut self, budget: &mut SendBudget, bytes: usize) {
        if budget.rate.is_some() {
            self.pacer.on_sent(bytes);
            budget.tokens -= bytes as f64;
        }
    }

    fn note_limit(&mut self, now: Timestamp, control: &ControlStream, budget: &SendBudget, out: &PacketPlan) {
        let waiting = control.has_pending() || self.outgoing.has_repairs() || self.outgoing.has_uncut();
        self.want.limit = if !waiting {
            if self.outgoing.lacks_credit() { SendLimit::Credit } else { SendLimit::Application }
        } else if self.ledger.open_bytes() >= budget.window || !self.ledger.has_room() {
            SendLimit::Window
        } else if budget.tokens < 0.0 {
            if budget.is_ceiling { SendLimit::Ceiling } else { SendLimit::Pacing }
        } else {
            SendLimit::Application
        };
        self.want.saturated |=
            matches!(self.want.limit, SendLimit::Window | SendLimit::Pacing | SendLimit::Ceiling);
        if let (SendLimit::Pacing | SendLimit::Ceiling, Some(rate)) = (self.want.limit, budget.rate) {
            self.want.paced_until = Some(self.pacer.wake_at(now, rate));
        } else if waiting && out.room() == 0 {
            self.want.paced_until = Some(now);
        }
    }

    /// Bytes of control frames that fit in a packet.
    fn control_room(&self) -> usize {
        usize::from(self.mtu.current()) - HEADER_LEN - TAG_LEN
    }

    /// Bytes of a segment's payload that fit in a packet.
    fn segment_max(&self) -> u32 {
        u32::from(self.segment_datagram()) - SEGMENT_OVERHEAD as u32
    }

    /// Length of the datagram of a full segment.
    pub(super) fn segment_datagram(&self) -> u16 {
        segment_datagram(self.mtu.current(), self.config.sealed_multiple)
    }

    /// The number of the next packet. Leaves out a number now and then: a peer that acknowledges such a
    /// number is guessing.
    #[inline]
    fn ledger_number(&mut self) -> u64 {
        let number = self.ledger.next_number();
        if number < self.want.skip_at {
            return number;
        }
        self.skip_number(number)
    }

    #[cold]
    fn skip_number(&mut self, number: u64) -> u64 {
        self.want.skip_at = number + 2 + self.random.below(2 * SKIP_EVERY);
        if !self.ledger.has_open() {
            // An idle flow keeps no sent packets, so it could not recognise a guess.
            return number;
        }
        self.ledger.push(SentPacket {
            at: Timestamp::ZERO,
            what: 0,
            offset: 0,
            len: 0,
            wire_len: 0,
            kind: PacketKind::Skipped,
            suspect: false,
        });
        number + 1
    }

    #[inline]
    fn push_segment(&mut self, now: Timestamp, segment: Segment, out: &mut PacketPlan) -> usize {
        let wire_len = segment.len as usize + SEGMENT_OVERHEAD;
        let number = self.ledger_number();
        self.ledger.push(SentPacket {
            at: now,
            what: segment.block,
            offset: segment.offset,
            len: segment.len as u16,
            wire_len: wire_len as u16,
            kind: PacketKind::Segment,
            suspect: false,
        });
        self.probe_timer.on_sent(now);
        self.stats.segments_sent += 1;
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += wire_len as u64;
        let control = ControlSpan { start: out.control.len() as u32, len: 0 };
        out.packets.push(PlannedPacket { number, control, segment: Some(segment), padding: 0 });
        wire_len
    }

    fn push_control(
        &mut self,
        now: Timestamp,
        start: usize,
        kind: PacketKind,
        (what, len): (u64, usize),
        padding: u16,
        out: &mut PacketPlan,
    ) -> usize {
        let control = ControlSpan { start: start as u32, len: (out.control.len() - start) as u32 };
        let wire_len = HEADER_LEN + control.len as usize + usize::from(padding) + TAG_LEN;
        let number = self.ledger_number();
        let (len, wire) = (len as u16, wire_len as u16);
        self.ledger.push(SentPacket { at: now, what, offset: 0, len, wire_len: wire, kind, suspect: false });
        if kind != PacketKind::Passive {
            self.probe_timer.on_sent(now);
        }
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += wire_len as u64;
        if kind != PacketKind::Stream {
            self.stats.unpaced_packets_sent += 1;
            self.stats.unpaced_bytes_sent += wire_len as u64;
        }
        out.packets.push(PlannedPacket { number, control, segment: None, padding });
        wire_len
    }
}
