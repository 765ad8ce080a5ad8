//! The difference between the sender's clock and the receiver's, from questions and answers: of all answers, the one
//! with the shortest round trip is taken, as in NTP.
//!
//! Always true: nothing here reads a clock.

/// What is known of the sender's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SenderClock {
    /// The sender's clock minus this one, and the round trip of the answer that says so, in nanoseconds.
    best: Option<(i128, u64)>,
}

impl SenderClock {
    /// An answer: this end asked at `asked` and has it at `now`; the sender's clock showed `heard` in between.
    pub(crate) fn answer(&mut self, asked: u64, heard: u64, now: u64) {
        let Some(round_trip) = now.checked_sub(asked) else { return };
        if self.best.is_none_or(|(_, best)| round_trip <= best) {
            let middle = i128::from(asked) + i128::from(round_trip / 2);
            self.best = Some((i128::from(heard) - middle, round_trip));
        }
    }

    /// Whether there was an answer.
    pub(crate) fn is_known(&self) -> bool {
        self.best.is_some()
    }

    /// Nanoseconds from `then` by the sender's clock to `now` by this one. Never negative.
    pub(crate) fn since(&self, then: u64, now: u64) -> u64 {
        let offset = self.best.map_or(0, |(offset, _)| offset);
        u64::try_from((i128::from(now) + offset - i128::from(then)).max(0)).unwrap_or(u64::MAX)
    }

    /// How wrong [`SenderClock::since`] may be, in nanoseconds.
    pub(crate) fn error(&self) -> u64 {
        self.best.map_or(0, |(_, round_trip)| round_trip / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_with_the_shortest_round_trip_counts() {
        let mut clock = SenderClock::default();
        assert!(!clock.is_known());
        // The sender's clock is 1000 ahead; one way takes 50, and once the way back takes 450.
        clock.answer(100, 1150, 600);
        clock.answer(700, 1750, 800);
        clock.answer(900, 1950, 1400);
        assert_eq!((clock.since(1750, 800), clock.error()), (50, 50));
        assert_eq!(clock.since(2000, 800), 0, "a frame from the future");
        clock.answer(5, 5, 4);
        assert_eq!(clock.error(), 50, "a clock that went back tells nothing");
    }
}
