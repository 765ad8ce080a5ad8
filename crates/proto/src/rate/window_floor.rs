//! The floor of the window on near paths: it keeps an end busy while the other one stands still for a moment.
//!
//! ```text
//! floor = f * min(12 ms * r, 2 MiB, half of the receiver's socket buffer)
//! f     -> 0.8 f  after 50 ms whose shortest queue was above 3 ms,  else 1.1 f, at most 1
//! ```
//!
//! Below 2 ms of round trip, delay is mostly scheduling: packets wait in the receiver's socket until its
//! thread runs, and with less in flight than the floor the path would be idle meanwhile. A router's queue
//! that never empties within 50 ms is no such pause. The floor would fill and overflow that queue, so it
//! gives way.
//!
//! While a test looks for an overflow that we cause, and for a minute after one is confirmed, a near path is
//! paced, and the law takes its round trip for 5 ms (`path`). Feedback comes every half millisecond and
//! datagrams leave in lumps of a quarter of one, so a law that acts within 0.2 ms would act on noise and
//! overflow small buffers again and again.

use crate::time::Timestamp;
use std::time::Duration;

/// The floor is what arrives in this many seconds, while a busy receiver leaves its socket unread;
/// `BYTES_MAX` is the most.
const PAUSE: f64 = 0.012;
const BYTES_MAX: f64 = (2u64 << 20) as f64;
/// How long an end may stand still: a queue must stand longer than this.
const SPAN: Duration = Duration::from_millis(50);
/// In seconds: a shorter queue cannot be told from a busy receiver.
pub(super) const QUEUE: f64 = 0.003;

#[derive(Debug)]
pub(super) struct WindowFloor {
    part: f64,
    shortest: f64,
    began: Option<Timestamp>,
}

impl Default for WindowFloor {
    fn default() -> Self {
        WindowFloor { part: 1.0, shortest: f64::INFINITY, began: None }
    }
}

impl WindowFloor {
    /// Takes the queueing delay of a feedback.
    pub(super) fn on_queue(&mut self, now: Timestamp, queue: f64) {
        let began = *self.began.get_or_insert(now);
        self.shortest = self.shortest.min(queue);
        if now - began >= SPAN {
            let stands = self.shortest > QUEUE;
            self.part = if stands { 0.8 * self.part } else { (1.1 * self.part).min(1.0) };
            (self.began, self.shortest) = (Some(now), f64::INFINITY);
        }
    }

    /// The network has marked a packet.
    pub(super) fn on_mark(&mut self, factor: f64) {
        self.part *= factor;
    }

    /// The floor at a rate of `rate` bytes a second, if the receiver's socket holds `socket` bytes.
    pub(super) fn bytes(&self, rate: f64, socket: f64) -> f64 {
        self.part * (PAUSE * rate).min(BYTES_MAX).min(socket / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(floor: &mut WindowFloor, from_ms: u64, queues: impl Fn(u64) -> f64) {
        for ms in from_ms..from_ms + 1000 {
            floor.on_queue(Timestamp::from_nanos(ms * 1_000_000), queues(ms));
        }
    }

    #[test]
    fn a_busy_receiver_keeps_it_and_a_standing_queue_does_not() {
        let mut floor = WindowFloor::default();
        after(&mut floor, 0, |ms| if ms % 20 == 0 { 0.0002 } else { 0.012 });
        assert_eq!(floor.bytes(125e6, f64::INFINITY), 1.5e6);
        after(&mut floor, 1000, |ms| 0.009 + 0.001 * (ms % 3) as f64);
        assert!(floor.bytes(125e6, f64::INFINITY) < 0.1e6);
        (2..5).for_each(|second| after(&mut floor, 1000 * second, |_| 0.0));
        assert_eq!(floor.bytes(125e6, f64::INFINITY), 1.5e6);
    }

    #[test]
    fn is_bounded_by_the_socket_and_by_itself() {
        let floor = WindowFloor::default();
        assert_eq!(floor.bytes(1e9, f64::INFINITY), BYTES_MAX);
        assert_eq!(floor.bytes(1e9, 200_000.0), 100_000.0);
    }
}
