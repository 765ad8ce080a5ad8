//! Delay that moves by itself, as `farhaul-motion` has it. Its time begins with the first packet that meets
//! it, so that a lab that stood for an hour and one that has just come up have the same story to tell.

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

    /// When a packet of `now` arrives that would without motion at `due`; `None` if it falls into a gap.
    pub(super) fn arrival(&mut self, now: u64, due: u64) -> Option<(u64, JitterOrder)> {
        let began = *self.began.get_or_insert(now);
        let order = if self.moving.reorders() { JitterOrder::Free } else { JitterOrder::Kept };
        self.moving.arrival(due - began).map(|arrival| (began + arrival, order))
    }

    /// Goes on while nothing is sent.
    pub(super) fn pass_time(&mut self, now: u64) {
        if let Some(began) = self.began {
            self.moving.pass_time(now.saturating_sub(began));
        }
    }
}
