//! When each frame is due.
//!
//! Always true: nothing here reads a clock.

use std::time::Duration;

/// The pace of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As fast as it goes.
    Free,
    /// This many frames a second.
    Fps(f64),
}

impl Pace {
    /// When a frame is due, counted from the first one; `None`: as soon as it is there.
    pub(crate) fn due(self, frame: u64) -> Option<Duration> {
        match self {
            Pace::Free => None,
            Pace::Fps(fps) => Some(Duration::try_from_secs_f64(frame as f64 / fps).unwrap_or(Duration::MAX)),
        }
    }

    /// The first frame that is not due yet after this time.
    pub(crate) fn frame_at(self, elapsed: Duration) -> Option<u64> {
        match self {
            Pace::Free => None,
            Pace::Fps(fps) => Some((elapsed.as_secs_f64() * fps).ceil() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_at_their_rate() {
        assert_eq!(Pace::Free.due(7), None);
        assert_eq!(Pace::Fps(25.0).due(50), Some(Duration::from_secs(2)));
        assert_eq!(Pace::Fps(0.5).due(1), Some(Duration::from_secs(2)));
        assert_eq!(Pace::Fps(25.0).frame_at(Duration::from_millis(90)), Some(3));
        assert_eq!(Pace::Fps(25.0).frame_at(Duration::ZERO), Some(0));
        assert_eq!(Pace::Fps(1e-9).due(u64::MAX), Some(Duration::MAX));
    }
}
