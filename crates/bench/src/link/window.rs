//! How much of a flow may be in flight: the window doubles with every round without loss up to its maximum,
//! and is halved by a round with loss, so that a slow path is not flooded. This code works with plain numbers
//! and knows no clock and no socket.
//!
//! From: TCP's slow start and congestion avoidance, RFC 5681. Differs: a little loss is tolerated, as this
//! measures paths that have loss of their own.

/// Loss of up to one datagram in this many does not shrink the window.
const TOLERATED_ONE_IN: u64 = 50;
/// The number of datagrams in the first window, and in the smallest one.
const MIN_DATAGRAMS: u64 = 16;

#[derive(Debug)]
pub(super) struct FlowWindow {
    /// Length of a datagram.
    len: u64,
    bytes: u64,
    max: u64,
    /// Whether the window still doubles.
    is_starting: bool,
    /// Loss of datagrams before this number has already halved the window.
    recovered: u64,
    /// The receiver has told of all datagrams below this number.
    next: u64,
    /// How many of them have arrived.
    count: u64,
}

impl FlowWindow {
    /// A window that adapts, for a flow without a given rate.
    pub(super) fn adapting(len: usize, max: u64) -> FlowWindow {
        let len = len as u64;
        let bytes = (MIN_DATAGRAMS * len).min(max);
        FlowWindow { len, bytes, max, is_starting: true, recovered: 0, next: 0, count: 0 }
    }

    /// A window that stays the same, for a flow whose rate the user has given.
    pub(super) fn fixed(len: usize, max: u64) -> FlowWindow {
        FlowWindow { bytes: max, is_starting: false, recovered: u64::MAX, ..FlowWindow::adapting(len, max) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The receiver has told that `count` datagrams of those numbered below `next` have arrived. `sent`
    /// datagrams were sent so far.
    pub(super) fn on_feedback(&mut self, next: u64, count: u64, sent: u64) {
        let told = next.saturating_sub(self.next);
        let arrived = count.saturating_sub(self.count);
        (self.next, self.count) = (self.next.max(next), self.count.max(count));
        let is_loss = told.saturating_sub(arrived) * TOLERATED_ONE_IN > told;
        if is_loss && next >= self.recovered {
            self.bytes = (self.bytes / 2).max((MIN_DATAGRAMS * self.len).min(self.max));
            self.is_starting = false;
            self.recovered = sent;
        } else if !is_loss {
            let arrived = arrived * self.len;
            let growth = if self.is_starting { arrived } else { self.len * arrived / self.bytes.max(1) };
            self.bytes = self.bytes.saturating_add(growth).min(self.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_loss_reaches_the_largest_window() {
        let mut window = FlowWindow::adapting(1000, 2 << 20);
        let mut number = 0;
        for _ in 0..8 {
            number += window.bytes() / 1000;
            window.on_feedback(number, number, number);
        }
        assert_eq!(window.bytes(), 2 << 20);
    }

    #[test]
    fn a_path_with_a_small_buffer_is_not_flooded() {
        let mut window = FlowWindow::adapting(1000, 2 << 20);
        let (mut number, mut count, mut lost, mut rounds_lost) = (0, 0, 0, 0);
        for _ in 0..100 {
            let round = window.bytes() / 1000;
            number += round;
            // The path holds a hundred datagrams.
            count += round.min(100);
            lost += round.saturating_sub(100);
            rounds_lost += u64::from(round > 100);
            window.on_feedback(number, count, number);
        }
        assert!(lost * 20 < number, "{lost} of {number} lost");
        assert!(rounds_lost < 10, "{rounds_lost}");
    }

    #[test]
    fn a_loss_halves_the_window_once_and_a_little_loss_does_not() {
        let mut window = FlowWindow::adapting(1000, 64_000);
        window.on_feedback(100, 99, 300);
        let full = window.bytes();
        assert_eq!(full, 64_000);
        window.on_feedback(200, 150, 400);
        assert_eq!(window.bytes(), full / 2);
        window.on_feedback(300, 200, 500);
        assert_eq!(window.bytes(), full / 2);
        window.on_feedback(400, 250, 600);
        assert_eq!(window.bytes(), full / 4);
        let mut fixed = FlowWindow::fixed(1000, 64_000);
        fixed.on_feedback(100, 1, 200);
        assert_eq!(fixed.bytes(), 64_000);
    }
}
