//! How much of a flow may be in flight: the window doubles with every round without loss up to its maximum,
//! and is halved by a round with loss, so that a slow path is not flooded. This code works with plain numbers
//! and knows no clock and no socket.
//!
//! From: TCP's slow start and congestion avoidance, RFC 5681. Differs: a little loss is tolerated, as this
//! measures paths that have loss of their own.

/// Loss is tolerated up to one datagram in this many.
const BORNE: u64 = 50;
/// The number of datagrams in the first window, and in the smallest one.
const SMALLEST: u64 = 16;

#[derive(Debug)]
pub(super) struct FlowWindow {
    /// Length of a datagram.
    len: u64,
    bytes: u64,
    most: u64,
    /// Whether the window still doubles.
    is_starting: bool,
    /// Loss before this number has been answered already.
    answered: u64,
    arrived: u64,
    count: u64,
}

impl FlowWindow {
    /// A window that adapts, for a flow without a given rate.
    pub(super) fn adapting(len: usize, most: u64) -> FlowWindow {
        let len = len as u64;
        let bytes = (SMALLEST * len).min(most);
        FlowWindow { len, bytes, most, is_starting: true, answered: 0, arrived: 0, count: 0 }
    }

    /// A window that stays the same, for a flow whose rate the user has given.
    pub(super) fn fixed(len: usize, most: u64) -> FlowWindow {
        FlowWindow { bytes: most, is_starting: false, answered: u64::MAX, ..FlowWindow::adapting(len, most) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes news: `count` datagrams have arrived, of those numbered below `next`; `sent` datagrams were
    /// sent.
    pub(super) fn on_news(&mut self, next: u64, count: u64, sent: u64) {
        let gone = next.saturating_sub(self.arrived);
        let came = count.saturating_sub(self.count);
        (self.arrived, self.count) = (self.arrived.max(next), self.count.max(count));
        let is_loss = gone.saturating_sub(came) * BORNE > gone;
        if is_loss && next >= self.answered {
            self.bytes = (self.bytes / 2).max((SMALLEST * self.len).min(self.most));
            self.is_starting = false;
            self.answered = sent;
        } else if !is_loss {
            let arrived = came * self.len;
            let growth = if self.is_starting { arrived } else { self.len * arrived / self.bytes.max(1) };
            self.bytes = self.bytes.saturating_add(growth).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_path_gets_all_that_is_allowed() {
        let mut window = FlowWindow::adapting(1000, 2 << 20);
        let mut number = 0;
        for _ in 0..8 {
            number += window.bytes() / 1000;
            window.on_news(number, number, number);
        }
        assert_eq!(window.bytes(), 2 << 20);
    }

    #[test]
    fn a_path_that_drops_what_is_too_much_is_not_flooded() {
        let mut window = FlowWindow::adapting(1000, 2 << 20);
        let (mut number, mut count, mut lost, mut rounds_lost) = (0, 0, 0, 0);
        for _ in 0..100 {
            let round = window.bytes() / 1000;
            number += round;
            // The path holds a hundred datagrams.
            count += round.min(100);
            lost += round.saturating_sub(100);
            rounds_lost += u64::from(round > 100);
            window.on_news(number, count, number);
        }
        assert!(lost * 20 < number, "{lost} of {number} lost");
        assert!(rounds_lost < 10, "{rounds_lost}");
    }

    #[test]
    fn a_loss_is_answered_once_and_a_little_of_it_borne_with() {
        let mut window = FlowWindow::adapting(1000, 64_000);
        window.on_news(100, 99, 300);
        let full = window.bytes();
        assert_eq!(full, 64_000);
        window.on_news(200, 150, 400);
        assert_eq!(window.bytes(), full / 2);
        window.on_news(300, 200, 500);
        assert_eq!(window.bytes(), full / 2);
        window.on_news(400, 250, 600);
        assert_eq!(window.bytes(), full / 4);
        let mut fixed = FlowWindow::fixed(1000, 64_000);
        fixed.on_news(100, 1, 200);
        assert_eq!(fixed.bytes(), 64_000);
    }
}
