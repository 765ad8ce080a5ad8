//! Models of TCP as competitors: a bulk sender with selective acknowledgements, and its receiver.
//!
//! Always true: a number is sent once. If a segment is lost, a later number carries its bytes, so all that
//! arrives is goodput. Order, the receive window and delayed acknowledgements are left out.
//! From: RFC 6675 (a segment is lost when one three numbers later has arrived), RFC 6298 (retransmission
//! timeout), RFC 8985 (tail loss probe), RFC 9438, BBR v1 as in Linux 4.20.

mod bbr;
mod cubic;

use bbr::Bbr;
use cubic::Cubic;
use std::collections::VecDeque;

/// Bytes of a segment on the wire, and of its payload.
pub(crate) const WIRE: u32 = 1500;
pub(crate) const PAYLOAD: u64 = 1448;
/// A segment is lost when one this many numbers later has arrived.
const REORDERING: u64 = 3;
/// The seconds that Linux adds to the round trip at least before a retransmission timeout.
const RTO_MIN: f64 = 0.2;

/// Which congestion control a sender has.
#[derive(Debug)]
enum CongestionControl {
    Cubic(Cubic),
    Bbr(Bbr),
}

/// The summary of acknowledgements that came together. Times in seconds.
#[derive(Debug, Clone, Copy)]
struct AckSummary {
    now: f64,
    count: f64,
    lost: f64,
    in_flight: f64,
    rtt: f64,
    /// Delivery rate sample in segments a second.
    rate: f64,
    /// The number of segments delivered so far; `delivered_at_send` is that number when the newest
    /// acknowledged one was sent.
    delivered: u64,
    delivered_at_send: u64,
}

#[derive(Debug, Clone, Copy)]
struct SentSegment {
    at: u64,
    delivered: u64,
    delivered_at: u64,
    open: bool,
}

/// A sender of endless data, or of a number of segments.
#[derive(Debug)]
pub(crate) struct TcpSender {
    law: CongestionControl,
    segments: u64,
    sent: VecDeque<SentSegment>,
    /// The number of the first of `sent`; the fate of all before it is known.
    first: u64,
    highest: u64,
    in_flight: u64,
    delivered: u64,
    delivered_at: u64,
    recovery_until: u64,
    /// The number of the tail loss probe, sent behind the last segment to find out about those before it.
    probe: Option<u64>,
    srtt: f64,
    heard_at: u64,
    paced_until: f64,
    pub(crate) lost: u64,
    pub(crate) rtt_latest: f64,
}

impl TcpSender {
    pub(crate) fn cubic() -> Self {
        TcpSender::new(CongestionControl::Cubic(Cubic::new()))
    }

    pub(crate) fn bbr(seed: u64) -> Self {
        TcpSender::new(CongestionControl::Bbr(Bbr::new(seed)))
    }

    fn new(law: CongestionControl) -> Self {
        TcpSender {
            law,
            segments: u64::MAX,
            sent: VecDeque::new(),
            first: 1,
            highest: 0,
            in_flight: 0,
            delivered: 0,
            delivered_at: 0,
            recovery_until: 0,
            probe: None,
            srtt: 0.0,
            heard_at: 0,
            paced_until: 0.0,
            lost: 0,
            rtt_latest: 0.0,
        }
    }

    /// Sends until this many segments have arrived.
    pub(crate) fn with_end(self, segments: u64) -> Self {
        TcpSender { segments, ..self }
    }

    /// Whether the window allows one more segment, and there is one to send.
    fn may_send(&self) -> bool {
        self.in_flight < self.cwnd() as u64 && self.delivered + self.in_flight < self.segments
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight * u64::from(WIRE)
    }

    pub(crate) fn window(&self) -> u64 {
        (self.cwnd() * f64::from(WIRE)) as u64
    }

    fn cwnd(&self) -> f64 {
        match &self.law {
            CongestionControl::Cubic(cubic) => cubic.cwnd(),
            CongestionControl::Bbr(bbr) => bbr.cwnd(),
        }
    }

    fn pacing_rate(&self) -> Option<f64> {
        match &self.law {
            CongestionControl::Cubic(_) => None,
            CongestionControl::Bbr(bbr) => bbr.pacing_rate(),
        }
    }

    pub(crate) fn handle_ack(&mut self, now: u64, numbers: &[u64]) {
        let mut count = 0;
        let mut newest: Option<SentSegment> = None;
        for &number in numbers {
            let Some(sent) =
                number.checked_sub(self.first).and_then(|index| self.sent.get_mut(index as usize))
            else {
                continue;
            };
            if std::mem::take(&mut sent.open) {
                count += 1;
                if newest.is_none_or(|newest| sent.at >= newest.at) {
                    newest = Some(*sent);
                }
            }
            self.highest = self.highest.max(number);
            if self.probe == Some(number) {
                // The probe came so much later than the other segments that these are lost.
                (self.probe, self.highest) = (None, self.highest.max(number + REORDERING));
            }
        }
        let Some(newest) = newest else { return };
        (self.in_flight, self.delivered, self.heard_at) =
            (self.in_flight - count, self.delivered + count, now);
        self.delivered_at = now;
        let lost = self.find_lost();
        self.rtt_latest = (now - newest.at) as f64 / 1e9;
        self.srtt =
            if self.srtt == 0.0 { self.rtt_latest } else { 0.875 * self.srtt + 0.125 * self.rtt_latest };
        let elapsed = (now - newest.delivered_at.min(newest.at)).max(1) as f64 / 1e9;
        let acked = AckSummary {
            now: now as f64 / 1e9,
            count: count as f64,
            lost: lost as f64,
            in_flight: self.in_flight as f64,
            rtt: self.rtt_latest,
            rate: (self.delivered - newest.delivered) as f64 / elapsed,
            delivered: self.delivered,
            delivered_at_send: newest.delivered,
        };
        let fresh_loss = lost > 0 && self.first > self.recovery_until;
        if fresh_loss {
            self.recovery_until = self.next_number() - 1;
        }
        match &mut self.law {
            CongestionControl::Cubic(cubic) => {
                let recovering = self.first <= self.recovery_until;
                cubic.on_ack(&acked, fresh_loss, recovering);
            }
            CongestionControl::Bbr(bbr) => bbr.on_ack(&acked),
        }
    }

    fn next_number(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Decides the fate of all segments that enough later ones have overtaken.
    fn find_lost(&mut self) -> u64 {
        let mut lost = 0;
        while let Some(front) = self.sent.front() {
            if front.open {
                if self.first + REORDERING > self.highest {
                    break;
                }
                lost += 1;
                self.in_flight -= 1;
            }
            self.sent.pop_front();
            self.first += 1;
        }
        self.lost += lost;
        lost
    }

    /// When to look again if no acknowledgement comes.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let timeout = (self.in_flight > 0).then(|| self.heard_at + self.rto_ns());
        let paced = self.may_send().then_some(self.paced_until as u64);
        [timeout, paced, self.probe_at()].into_iter().flatten().min()
    }

    /// When to send the tail loss probe: once all remaining segments are under way and nothing has been heard
    /// for two round trips.
    fn probe_at(&self) -> Option<u64> {
        let is_tail = self.in_flight > 0 && self.delivered + self.in_flight >= self.segments;
        let may_probe = is_tail && self.probe.is_none() && self.srtt > 0.0;
        may_probe.then(|| self.heard_at + (2e9 * self.srtt) as u64)
    }

    fn rto_ns(&self) -> u64 {
        let rto = if self.srtt == 0.0 { 1.0 } else { self.srtt * 1.5 + RTO_MIN };
        (rto * 1e9) as u64
    }

    /// Sends what may leave now: calls `put` with each number.
    pub(crate) fn send(&mut self, now: u64, mut put: impl FnMut(u64)) {
        if self.in_flight > 0 && now >= self.heard_at + self.rto_ns() {
            self.time_out(now);
        }
        if self.in_flight == 0 {
            (self.heard_at, self.delivered_at) = (now, now);
        }
        let rate = self.pacing_rate();
        while self.may_send() && (rate.is_none() || self.paced_until <= now as f64) {
            self.send_next(now, &mut put);
            if let Some(rate) = rate {
                // A pause earns at most a millisecond of credit.
                self.paced_until = self.paced_until.max(now as f64 - 1e6) + 1e9 / rate.max(1.0);
            }
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            (self.probe, self.heard_at) = (Some(self.next_number()), now);
            self.send_next(now, &mut put);
        }
    }

    fn send_next(&mut self, now: u64, put: &mut impl FnMut(u64)) {
        put(self.next_number());
        self.sent.push_back(SentSegment {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            open: true,
        });
        self.in_flight += 1;
    }

    fn time_out(&mut self, now: u64) {
        self.lost += self.in_flight;
        self.first = self.next_number();
        self.sent.clear();
        (self.in_flight, self.heard_at, self.recovery_until, self.probe) = (0, now, 0, None);
        if let CongestionControl::Cubic(cubic) = &mut self.law {
            cubic.on_timeout();
        }
    }
}

/// Acknowledges once a turn. Each number is in three acknowledgements, which models cumulative and selective
/// ones together.
#[derive(Debug, Default)]
pub(crate) struct TcpReceiver {
    batches: VecDeque<Vec<u64>>,
    fresh: Vec<u64>,
    pub(crate) received: u64,
}

impl TcpReceiver {
    pub(crate) fn receive(&mut self, number: u64) {
        self.received += 1;
        self.fresh.push(number);
    }

    /// The acknowledgement to send in this turn.
    pub(crate) fn ack(&mut self) -> Option<Vec<u64>> {
        if self.fresh.is_empty() {
            return None;
        }
        self.batches.push_front(std::mem::take(&mut self.fresh));
        self.batches.truncate(3);
        Some(self.batches.iter().flatten().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds until a receiver over a round trip of 50 ms has `segments` segments. The first
    /// transmissions of the numbers in `lost` never arrive.
    fn seconds(mut sender: TcpSender, segments: u64, lost: &[u64]) -> f64 {
        let mut receiver = TcpReceiver::default();
        let (mut under_way, mut acks) = (VecDeque::new(), VecDeque::new());
        for now in (0..10_000_000_000).step_by(1_000_000) {
            sender.send(now, |number| {
                if !lost.contains(&number) {
                    under_way.push_back((now + 25_000_000, number));
                }
            });
            while under_way.front().is_some_and(|(at, _)| *at <= now) {
                under_way.pop_front().into_iter().for_each(|(_, number)| receiver.receive(number));
            }
            if receiver.received >= segments {
                return now as f64 / 1e9;
            }
            acks.extend(receiver.ack().map(|numbers| (now + 25_000_000, numbers)));
            while acks.front().is_some_and(|(at, _)| *at <= now) {
                acks.pop_front()
                    .into_iter()
                    .for_each(|(_, numbers): (u64, Vec<u64>)| sender.handle_ack(now, &numbers));
            }
        }
        panic!("the transfer does not end");
    }

    #[test]
    fn a_short_sender_ends_and_its_lost_tail_costs_no_timeout() {
        for sender in [TcpSender::cubic, || TcpSender::bbr(1)] {
            let short = |lost: &[u64]| seconds(sender().with_end(10), 10, lost);
            assert!((0.02..0.03).contains(&short(&[])), "one way for ten segments at once");
            // Two round trips of silence, one for the probe, and half of one for the segments that replace it
            // and the lost ones.
            assert!((0.15..0.32).contains(&short(&[9, 10])), "{}", short(&[9, 10]));
            assert!(short(&[10]) < short(&[9, 10]), "the probe itself replaces the last segment");
            assert!((0.07..0.2).contains(&seconds(sender().with_end(30), 30, &[])));
        }
    }
}
