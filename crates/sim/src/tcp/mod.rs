//! Models of TCP as competitors: a bulk sender with selective acknowledgements, and what answers it.
//!
//! Always true: a number is sent once. A lost segment counts as lost and a later number carries its bytes, so what arrives is
//! goodput; order, the receive window and delayed acknowledgements are left out.
//! From: RFC 6675 (three later ones have arrived), RFC 6298 (retransmission timeout), RFC 9438, BBR v1 as in Linux 4.20.

mod bbr;
mod cubic;

use bbr::Bbr;
use cubic::Cubic;
use std::collections::VecDeque;

/// Bytes of a segment on the wire, and of its payload.
pub(crate) const WIRE: u32 = 1500;
pub(crate) const PAYLOAD: u64 = 1448;
/// A segment is lost when one so much later has arrived.
const REORDERING: u64 = 3;
/// Linux sends no shorter retransmission timeout than this beyond the round trip.
const RTO_MIN: f64 = 0.2;

/// Which congestion control a sender has.
#[derive(Debug)]
enum Law {
    Cubic(Cubic),
    Bbr(Bbr),
}

/// What acknowledgements that came together say. Times in seconds.
#[derive(Debug, Clone, Copy)]
struct Acked {
    now: f64,
    count: f64,
    lost: f64,
    in_flight: f64,
    rtt: f64,
    /// Delivery rate sample in segments a second.
    rate: f64,
    /// All segments delivered so far, and as of the sending of the newest one acknowledged.
    delivered: u64,
    delivered_at_send: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    at: u64,
    delivered: u64,
    delivered_at: u64,
    open: bool,
}

/// A sender of bulk data, or of so many segments.
#[derive(Debug)]
pub(crate) struct TcpSender {
    law: Law,
    segments: u64,
    sent: VecDeque<Sent>,
    /// Number of the first of `sent`; the fate of all before is known.
    first: u64,
    highest: u64,
    in_flight: u64,
    delivered: u64,
    delivered_at: u64,
    recovery_until: u64,
    srtt: f64,
    heard_at: u64,
    paced_until: f64,
    pub(crate) lost: u64,
    pub(crate) rtt_latest: f64,
}

impl TcpSender {
    pub(crate) fn cubic() -> Self {
        TcpSender::new(Law::Cubic(Cubic::new()))
    }

    pub(crate) fn bbr(seed: u64) -> Self {
        TcpSender::new(Law::Bbr(Bbr::new(seed)))
    }

    fn new(law: Law) -> Self {
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
            srtt: 0.0,
            heard_at: 0,
            paced_until: 0.0,
            lost: 0,
            rtt_latest: 0.0,
        }
    }

    /// It sends until so many segments have arrived.
    pub(crate) fn with_end(self, segments: u64) -> Self {
        TcpSender { segments, ..self }
    }

    /// Whether the window, and what there is to send, let one more go.
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
            Law::Cubic(cubic) => cubic.cwnd(),
            Law::Bbr(bbr) => bbr.cwnd(),
        }
    }

    fn pacing_rate(&self) -> Option<f64> {
        match &self.law {
            Law::Cubic(_) => None,
            Law::Bbr(bbr) => bbr.pacing_rate(),
        }
    }

    pub(crate) fn handle_ack(&mut self, now: u64, numbers: &[u64]) {
        let mut count = 0;
        let mut newest: Option<Sent> = None;
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
        let acked = Acked {
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
            Law::Cubic(cubic) => {
                let recovering = self.first <= self.recovery_until;
                cubic.on_ack(&acked, fresh_loss, recovering);
            }
            Law::Bbr(bbr) => bbr.on_ack(&acked),
        }
    }

    fn next_number(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Decides the fate of everything that enough later segments have overtaken.
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
        [timeout, paced].into_iter().flatten().min()
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
            put(self.next_number());
            self.sent.push_back(Sent {
                at: now,
                delivered: self.delivered,
                delivered_at: self.delivered_at,
                open: true,
            });
            self.in_flight += 1;
            if let Some(rate) = rate {
                // A pause earns no more than a millisecond of credit.
                self.paced_until = self.paced_until.max(now as f64 - 1e6) + 1e9 / rate.max(1.0);
            }
        }
    }

    fn time_out(&mut self, now: u64) {
        self.lost += self.in_flight;
        self.first = self.next_number();
        self.sent.clear();
        (self.in_flight, self.heard_at, self.recovery_until) = (0, now, 0);
        if let Law::Cubic(cubic) = &mut self.law {
            cubic.on_timeout();
        }
    }
}

/// Acknowledges once a turn, each number in three acknowledgements: what cumulative and selective ones do together.
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

    /// The acknowledgement that this turn is to send.
    pub(crate) fn ack(&mut self) -> Option<Vec<u64>> {
        if self.fresh.is_empty() {
            return None;
        }
        self.batches.push_front(std::mem::take(&mut self.fresh));
        self.batches.truncate(3);
        Some(self.batches.iter().flatten().copied().collect())
    }
}
