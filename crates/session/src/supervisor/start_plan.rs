//! How a session begins: how many flows and paths it has, and how its memory is divided among them.
//!
//! Always true: it follows from the numbers that both ends know; nothing is opened or allocated here.

use super::super::BLOCK_BYTES;
use super::super::shared_state::FILLED_MAX;
use super::flow_factory::FlowWindow;
use super::memory::OVERFLOW;
use crate::flows::flow_thread::FILLING_MAX;

/// A window is never smaller than this.
const WINDOW_LEAST: u64 = 4;

/// What a session begins with.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartFacts {
    /// The flows that are there.
    pub(super) flows: usize,
    /// With a daemon reached over TCP, the UDP flows wait for their paths: how many, on how many paths.
    pub(super) waiting: Option<(usize, usize)>,
    /// The paths that may be added, and the flows of each.
    pub(super) further_paths: usize,
    pub(super) flows_of_path: u16,
    /// The bytes that this end may use for blocks.
    pub(super) memory_bytes: u64,
    /// True if blocks that come too early must not lack memory.
    pub(super) keeps_blocks: bool,
}

/// The division of a session's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartPlan {
    /// The flows that it begins with, or waits for.
    pub(super) flow_count: u16,
    /// The paths that it begins with, and all with those that may be added.
    pub(super) first_paths: usize,
    pub(super) paths: usize,
    pub(super) window: FlowWindow,
    /// The blocks of the pools, and those that may lie in the overflow.
    pub(super) outgoing_blocks: usize,
    pub(super) incoming_blocks: usize,
    pub(super) overflow_blocks: u32,
}

impl StartPlan {
    pub(super) fn new(facts: StartFacts) -> StartPlan {
        let (waiting_flows, first_paths) = facts.waiting.unwrap_or((0, 1));
        let flow_count = waiting_flows.max(facts.flows);
        let shares = (flow_count + facts.further_paths * usize::from(facts.flows_of_path)) as u64;
        let here = (facts.memory_bytes / BLOCK_BYTES as u64 / shares).max(WINDOW_LEAST);
        let beside = if facts.keeps_blocks { 0 } else { OVERFLOW * here };
        StartPlan {
            flow_count: flow_count as u16,
            first_paths,
            paths: first_paths + facts.further_paths,
            window: FlowWindow { here, beside },
            outgoing_blocks: (here * shares) as usize + FILLED_MAX,
            // One share more than the flows need, for the stream carrier that may take over from them.
            incoming_blocks: (here * (shares + 1)) as usize,
            overflow_blocks: u32::try_from((beside + FILLING_MAX) * shares).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: StartFacts = StartFacts {
        flows: 2,
        waiting: None,
        further_paths: 0,
        flows_of_path: 1,
        memory_bytes: 100 * BLOCK_BYTES as u64,
        keeps_blocks: false,
    };

    #[test]
    fn flows_divide_the_memory_evenly() {
        let plan = StartPlan::new(FACTS);
        assert_eq!((plan.flow_count, plan.first_paths, plan.paths), (2, 1, 1));
        assert_eq!(plan.window, FlowWindow { here: 50, beside: 50 * OVERFLOW });
        assert_eq!((plan.outgoing_blocks, plan.incoming_blocks), (100 + FILLED_MAX, 150));
    }

    #[test]
    fn flows_that_are_not_there_yet_have_their_share() {
        let plan = StartPlan::new(StartFacts { flows: 1, waiting: Some((4, 2)), ..FACTS });
        assert_eq!((plan.flow_count, plan.first_paths, plan.window.here), (4, 2, 25));
        let plan = StartPlan::new(StartFacts { further_paths: 3, flows_of_path: 2, ..FACTS });
        assert_eq!((plan.flow_count, plan.paths, plan.window.here), (2, 4, 100 / 8));
    }

    #[test]
    fn a_flow_has_some_blocks_however_little_memory_there_is() {
        let plan = StartPlan::new(StartFacts { memory_bytes: 1, ..FACTS });
        assert_eq!(plan.window.here, WINDOW_LEAST);
    }

    #[test]
    fn blocks_that_must_stay_in_memory_have_only_the_overflow_of_those_being_filled() {
        let plan = StartPlan::new(StartFacts { keeps_blocks: true, ..FACTS });
        assert_eq!((plan.window.beside, u64::from(plan.overflow_blocks)), (0, 2 * FILLING_MAX));
    }
}
