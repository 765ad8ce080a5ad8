//! Decides how many blocks a receiver grants to a flow.
//!
//! Always true: granted and not yet written blocks never exceed memory and the room reserved in the overflow.
//! If there is room, they are more than twice what is written in a round trip, so that a sender on a long
//! path waits for the network and not for the receiver. A slow writer on a short path gets little credit, so
//! that its blocks stay in the processor's cache.
//! From: receive buffer tuning of TCP and QUIC (a window is too small if half of it is used up within a round
//! trip).

use std::time::Duration;

use farhaul_proto::Timestamp;

use crate::BLOCK_BYTES;

/// The blocks that a flow may have however little the session has.
pub(crate) const WINDOW_MIN: u64 = 4;
/// Blocks granted before anything is known of the path: enough to overlap receiving and writing.
const WINDOW_START: u64 = 16;
/// Bytes a second for which credit is granted at once when the round trip is known, as a sender that
/// remembers the path begins at its old rate.
const RATE_START: f64 = 600e6;

pub(super) struct CreditWindow {
    window: u64,
    /// The blocks that memory holds, and the most blocks that may be granted at once with the overflow.
    memory: u64,
    window_max: u64,
    granted: u64,
    is_path_known: bool,
    /// When this round trip began, and how many blocks had been written then.
    round_began: Timestamp,
    released_before: u64,
}

impl CreditWindow {
    pub(super) fn new(now: Timestamp, memory: u64, beside: u64) -> CreditWindow {
        CreditWindow {
            window: WINDOW_MIN.min(memory),
            memory,
            window_max: memory + beside,
            granted: 0,
            is_path_known: false,
            round_began: now,
            released_before: 0,
        }
    }

    /// The number of blocks granted in all, if it has grown. `open` blocks have arrived in part, `released`
    /// blocks were written. `afford` says whether the session may have that many blocks in memory, `reserve`
    /// whether that many can be kept with the overflow.
    pub(super) fn grant(
        &mut self,
        now: Timestamp,
        round_trip: Option<Duration>,
        open: u64,
        released: u64,
        mut afford: impl FnMut(u64) -> bool,
        mut reserve: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        let reserve = &mut Room { afford: &mut afford, beside: &mut reserve };
        if self.granted == 0 {
            self.widen(WINDOW_START, reserve);
        }
        if let Some(round_trip) = round_trip {
            self.look_at_round(now, round_trip, released, reserve);
        }
        // Losses keep many blocks open: more than arrive in a round trip.
        if open * 2 >= self.window {
            self.widen(self.window * 2, reserve);
        }
        let granted = released + self.window;
        (granted > self.granted).then(|| {
            self.granted = granted;
            granted
        })
    }

    fn look_at_round(&mut self, now: Timestamp, round_trip: Duration, released: u64, reserve: &mut Room<'_>) {
        if !std::mem::replace(&mut self.is_path_known, true) {
            let bytes = RATE_START * round_trip.as_secs_f64();
            let window = WINDOW_START + (bytes / BLOCK_BYTES as f64) as u64;
            self.widen(window.min(self.memory), reserve);
        }
        let is_used_up = (released - self.released_before) * 2 >= self.window;
        let is_over = now - self.round_began > round_trip;
        if is_used_up && !is_over {
            self.widen(self.window * 2, reserve);
        }
        if is_used_up || is_over {
            (self.round_began, self.released_before) = (now, released);
        }
    }

    fn widen(&mut self, window: u64, room: &mut Room<'_>) {
        let mut window = window.min(self.window_max);
        if window <= self.window || !(room.afford)(window.min(self.memory)) {
            return;
        }
        if window > self.memory && !(room.beside)(window) {
            window = self.memory;
            self.window_max = self.window.max(window);
        }
        self.window = self.window.max(window);
    }
}

/// Asks whether there is room for a number of blocks: in the session's memory, and in the overflow.
struct Room<'a> {
    afford: &'a mut dyn FnMut(u64) -> bool,
    beside: &'a mut dyn FnMut(u64) -> bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(300);

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// The number of blocks written in a round trip, after twenty round trips in which the sender has used
    /// all of its credit.
    fn settled(memory: u64, beside: u64, round_trip_ms: u64, rate_max: u64) -> u64 {
        let mut credit = CreditWindow::new(at(0), memory, beside);
        let round_trip = Duration::from_millis(round_trip_ms);
        let (mut granted, mut released) =
            (credit.grant(at(0), None, 0, 0, |_| true, |_| true).expect("a first grant"), 0);
        let mut written = 0;
        for round in 0..20 {
            // The credit of a round trip ago is used now, evenly.
            written = (granted - released).min(rate_max);
            for step in 1..=written {
                let now = at(round * round_trip_ms + step * round_trip_ms / (written + 1));
                granted = credit
                    .grant(now, Some(round_trip), 1, released + step, |_| true, |_| true)
                    .unwrap_or(granted);
            }
            released += written;
        }
        written
    }

    #[test]
    fn a_long_path_without_loss_is_filled() {
        assert_eq!(settled(4096, 0, 300, 1000), 1000);
        assert_eq!(settled(4096, 0, 500, 2000), 2000);
    }

    #[test]
    fn memory_is_the_limit() {
        assert_eq!(settled(100, 0, 300, 1000), 100);
        assert_eq!(settled(4, 0, 300, 1000), 4);
    }

    #[test]
    fn what_memory_does_not_hold_lies_beside_it() {
        assert_eq!(settled(100, 700, 300, 300), 300);
        assert_eq!(settled(100, 100, 300, 300), 200);
        let mut credit = CreditWindow::new(at(0), 16, 100);
        assert_eq!(credit.grant(at(0), None, 0, 0, |_| true, |_| false), Some(16));
        assert_eq!(credit.grant(at(0), None, 16, 0, |_| true, |_| false), None);
        // A refused reservation is not repeated at once.
        assert_eq!(credit.grant(at(0), None, 16, 0, |_| true, |_| true), None);
    }

    #[test]
    fn a_near_path_keeps_to_few_blocks() {
        let mut credit = CreditWindow::new(at(0), 4096, 0);
        let near = Some(Duration::from_micros(200));
        let mut granted = 0;
        for ms in 0..1000 {
            granted = credit.grant(at(ms), near, 1, ms, |_| true, |_| true).unwrap_or(granted);
        }
        assert_eq!(granted, 999 + WINDOW_START);
    }

    #[test]
    fn a_known_path_is_granted_what_a_remembered_rate_sends() {
        let mut credit = CreditWindow::new(at(0), 4096, 0);
        assert!(
            credit.grant(at(0), Some(LONG), 0, 0, |_| true, |_| true).is_some_and(|granted| granted > 150)
        );
    }

    #[test]
    fn what_the_session_may_not_have_is_not_granted() {
        let mut credit = CreditWindow::new(at(0), 4096, 0);
        assert_eq!(credit.grant(at(0), None, 0, 0, |_| false, |_| true), Some(WINDOW_MIN));
        assert_eq!(credit.grant(at(1), None, 4, 0, |_| false, |_| true), None);
        assert_eq!(credit.grant(at(2), None, 4, 0, |blocks| blocks <= 8, |_| true), Some(8));
        assert_eq!(credit.grant(at(3), None, 8, 8, |blocks| blocks <= 8, |_| true), Some(16));
    }

    #[test]
    fn what_is_open_widens_the_window() {
        let mut credit = CreditWindow::new(at(0), 4096, 0);
        assert_eq!(credit.grant(at(0), None, 8, 0, |_| true, |_| true), Some(32));
        assert_eq!(credit.grant(at(0), None, 8, 0, |_| true, |_| true), None);
    }
}
