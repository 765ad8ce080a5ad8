//! The memory that the far end may fill: each channel has room for some bytes, and all have a limit together.
//!
//! Always true: a new channel has the least room; what all channels have beyond that is at most the limit. What is
//! promised is charged to the session.

use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_words::Failure;

/// The room of a new channel.
pub(crate) const ROOM_START: u64 = 64 << 10;

pub(crate) struct Rooms {
    limit: u64,
    state: Mutex<State>,
}

struct State {
    charge: Charge,
    promised: u64,
    channels: u64,
}

impl Rooms {
    pub(crate) fn new(limit: u64, budget: &Budget) -> Rooms {
        let state = State { charge: budget.nothing(), promised: 0, channels: 0 };
        Rooms { limit, state: Mutex::new(state) }
    }

    /// Takes the least room for a new channel.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().in_any_case();
        let promised = state.promised + ROOM_START;
        let charged = state.charge.hold(promised);
        charged.map_err(|full| {
            let error = farhaul_words::Error::from(full);
            Failure::new(error.code(), error.what())
        })?;
        (state.promised, state.channels) = (promised, state.channels + 1);
        Ok(())
    }

    /// Gives back the room of a channel that is over.
    pub(crate) fn end(&self, bytes: u64) {
        let mut state = self.state.lock().in_any_case();
        (state.promised, state.channels) = (state.promised - bytes, state.channels - 1);
        // Giving back cannot fail.
        let promised = state.promised;
        let _ = state.charge.hold(promised);
    }

    /// The room that a channel gets in place of `now`, if it has use for `wanted`. One channel never gets more than
    /// its part of the limit, as others may come.
    pub(crate) fn change(&self, now: u64, wanted: u64) -> u64 {
        let mut state = self.state.lock().in_any_case();
        let part = (self.limit / (state.channels + 1)).max(ROOM_START);
        let others = state.promised - now;
        let left = self.limit.saturating_sub(others).max(ROOM_START);
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

    fn of(limit: u64) -> Rooms {
        Rooms::new(limit, &Budget::default())
    }

    #[test]
    fn one_channel_has_half_and_many_share_evenly() {
        let rooms = of(100 << 20);
        rooms.begin().unwrap();
        let one = rooms.change(ROOM_START, 1 << 40);
        assert_eq!(one, 50 << 20);
        for _ in 0..99 {
            rooms.begin().unwrap();
        }
        let shrunk = rooms.change(one, one * 2);
        assert_eq!(shrunk, (100 << 20) / 101);
        assert_eq!(rooms.change(ROOM_START, 1 << 40), (100 << 20) / 101);
    }

    #[test]
    fn idle_channels_with_much_room_leave_the_others_the_least() {
        let rooms = of(1 << 20);
        rooms.begin().unwrap();
        let hog = rooms.change(ROOM_START, 1 << 20);
        let mut all = hog;
        for _ in 0..50 {
            rooms.begin().unwrap();
            let got = rooms.change(ROOM_START, 1 << 20);
            assert!(got >= ROOM_START);
            all += got;
        }
        assert!(all <= (1 << 20) + 51 * ROOM_START, "{all}");
    }

    #[test]
    fn a_session_without_memory_refuses_channels_and_more_room() {
        let budget = Budget::new("this test", farhaul_session::ResourceLimits::memory(1 << 20));
        let rooms = Rooms::new(1 << 30, &budget);
        rooms.begin().unwrap();
        assert_eq!(rooms.change(ROOM_START, 1 << 24), ROOM_START);
        let refused = (0..100).find_map(|_| rooms.begin().err()).expect("it is full");
        assert_eq!(refused.code, farhaul_words::Code::ShareUsed);
    }
}
