//! Delay that moves by itself, as `farhaul-motion` has it. Its time begins with the first packet, so that a
//! lab that has run for an hour behaves like one that has just started.

use farhaul_motion::{DelayMotion, DelayProcess, LinkDirection};

use crate::settings::JitterOrder;

/// The delay of one direction beyond propagation.
#[derive(Debug)]
pub(super) struct MovingDelay {
    moving: DelayProcess,
    began: Option<u64>,
}

impl MovingDelay {
    pub(super) fn new(motion: DelayMotion, seed: u64, way: LinkDirection) -> MovingDelay {
        MovingDelay { moving: DelayProcess::new(motion, seed, way), began: None }
    }

    /// When a packet that entered at `now` arrives, if it would arrive at `due` without motion; `None` if it
    /// falls into a gap.
    pub(super) fn arrival(&mut self, now: u64, due: u64) -> Option<(u64, JitterOrder)> {
        let began = *self.began.get_or_insert(now);
        let order = if self.moving.reorders() { JitterOrder::Free } else { JitterOrder::Kept };
        self.moving.arrival(due - began).map(|arrival| (began + arrival, order))
    }

    /// Advances the motion while nothing is sent.
    pub(super) fn pass_time(&mut self, now: u64) {
        if let Some(began) = self.began {
            self.moving.pass_time(now.saturating_sub(began));
        }
    }
}
