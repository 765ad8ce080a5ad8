//! Ending a session: a close is sent several times, as nobody acknowledges it.

use crate::time::Timestamp;
use std::time::Duration;

const TIMES: u8 = 4;

/// Whether the flow is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CloseState {
    Open,
    /// We have ended it, and will send the close `left` more times.
    Closing {
        code: u16,
        reason: String,
        left: u8,
        next: Timestamp,
    },
    /// The peer has ended it, or we gave the flow up.
    Closed,
}

impl CloseState {
    pub(super) fn closing(code: u16, reason: &str, reliable: bool) -> CloseState {
        CloseState::Closing {
            code,
            reason: reason.to_owned(),
            left: if reliable { 1 } else { TIMES },
            next: Timestamp::ZERO,
        }
    }

    /// Code and reason, if a close is to be sent now.
    pub(super) fn take_word(&mut self, now: Timestamp, pause: Duration) -> Option<(u16, &str)> {
        match self {
            CloseState::Closing { code, reason, left, next } if *left > 0 && now >= *next => {
                *left -= 1;
                *next = now + pause;
                Some((*code, reason))
            }
            CloseState::Open | CloseState::Closing { .. } | CloseState::Closed => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self {
            CloseState::Closing { left, next, .. } if *left > 0 => Some(*next),
            CloseState::Open | CloseState::Closing { .. } | CloseState::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_said_four_times() {
        let mut state = CloseState::closing(3, "done", false);
        let pause = Duration::from_millis(50);
        let said =
            (0..1000).filter(|&ms| state.take_word(Timestamp::from_nanos(ms * 1_000_000), pause).is_some());
        assert_eq!(said.collect::<Vec<_>>(), [0, 50, 100, 150]);
        assert_eq!(state.deadline(), None);
    }
}
