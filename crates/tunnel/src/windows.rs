//! The memory that the far end may fill: each channel has a window, and all windows have a limit together.
//!
//! Always true: a new channel has the least window, and beyond these the windows of all channels have at most the
//! limit. What is promised is charged to the session.

use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_words::Failure;

/// The window of a new channel.
pub(crate) const WINDOW_START: u64 = 64 << 10;

pub(crate) struct Windows {
    limit: u64,
    state: Mutex<State>,
}

struct State {
    charge: Charge,
    promised: u64,
    channels: u64,
}


impl Windows {
    pub(crate) fn new(limit: u64, budget: &Budget) -> Windows {
        let state = State { charge: budget.nothing(), promised: 0, channels: 0 };
        Windows { limit, state: Mutex::new(state) }
    }

    /// Takes the least window for a new channel.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().in_any_case();
        let promised = state.promised + WINDOW_START;
        let charged = state.charge.hold(promised);
        charged.map_err(|full| {
            let error = farhaul_words::Error::from(full);
            Failure::new(error.code(), error.what())
        })?;
        (state.promised, state.channels) = (promised, state.channels + 1);
        Ok(())
    }

    /// Gives back the window of a channel that is over.
    pub(crate) fn end(&self, bytes: u64) {
        let mut state = self.state.lock().in_any_case();
        (state.promised, state.channels) = (state.promised - bytes, state.channels - 1);
        // Giving back cannot fail.
        let promised = state.promised;
        let _ = state.charge.hold(promised);
    }

    /// The window that a channel gets in place of `now`, if it has use for `wanted`. One channel never gets more than
    /// its part of the limit, as others may come.
    pub(crate) fn change(&self, now: u64, wanted: u64) -> u64 {
        let mut state = self.state.lock().in_any_case();
        let part = (self.limit / (state.channels + 1)).max(WINDOW_START);
        let others = state.promised - now;
        let left = self.limit.saturating_sub(others).max(WINDOW_START);
        let bytes = wanted.min(part).min(if wanted > now { left.max(now) } else { wanted });
        let promised = others + bytes;
        match state.charge.hold(promised) {
            Ok(()) => {
                state.promised = promised;
                bytes
            }
            Err(_) => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(limit: u64) -> Windows {
        Windows::new(limit, &Budget::default())
    }

    #[test]
    fn one_channel_has_half_and_many_share_evenly() {
        let windows = windows(100 << 20);
        windows.begin().unwrap();
        let one = windows.change(WINDOW_START, 1 << 40);
        assert_eq!(one, 50 << 20);
        for _ in 0..99 {
            windows.begin().unwrap();
        }
        let shrunk = windows.change(one, one * 2);
        assert_eq!(shrunk, (100 << 20) / 101);
        assert_eq!(windows.change(WINDOW_START, 1 << 40), (100 << 20) / 101);
    }

    #[test]
    fn idle_channels_with_large_windows_leave_the_others_the_least() {
        let windows = windows(1 << 20);
        windows.begin().unwrap();
        let hog = windows.change(WINDOW_START, 1 << 20);
        let mut all = hog;
        for _ in 0..50 {
            windows.begin().unwrap();
            let got = windows.change(WINDOW_START, 1 << 20);
            assert!(got >= WINDOW_START);
            all += got;
        }
        assert!(all <= (1 << 20) + 51 * WINDOW_START, "{all}");
    }

    #[test]
    fn a_session_without_memory_refuses_channels_and_larger_windows() {
        let budget = Budget::new("this test", farhaul_session::ResourceLimits::memory(1 << 20));
        let windows = Windows::new(1 << 30, &budget);
        windows.begin().unwrap();
        assert_eq!(windows.change(WINDOW_START, 1 << 24), WINDOW_START);
        let refused = (0..100).find_map(|_| windows.begin().err()).expect("it is full");
        assert_eq!(refused.code, farhaul_words::Code::ShareUsed);
    }
}
