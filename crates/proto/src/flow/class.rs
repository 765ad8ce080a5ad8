//! Classes of blocks: how urgent a block is.

use crate::time::Timestamp;

/// While bulk has segments to send, at least one of this many segments is bulk's.
pub(super) const BULK_EVERY: u32 = 16;

/// How a block is treated when other blocks wait, too.
///
/// Urgent blocks go first, in the order in which they were queued, then those with a deadline, then bulk.
/// This holds for repairs as well as for new segments. Of the blocks with a deadline, the sender takes the
/// one with the earliest deadline that, going by the path's rate, delay and loss, can still be acknowledged
/// in time. If no block can, it takes the one with the latest deadline. So a path that is too slow for all of
/// them carries some blocks whole instead of parts of each.
///
/// No class waits for ever. One of sixteen segments is bulk's as long as bulk has any. Urgent blocks that use
/// half of the credit leave a quarter of it to the others, as long as the receiver gives an urgent block's
/// credit back when the block arrives. Bulk and blocks with a deadline share their credit in the order in
/// which they are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockClass {
    /// Content that nobody waits for.
    #[default]
    Bulk,
    /// Small answers that somebody waits for. Only urgent blocks may use the credit that
    /// [`FlowConfig::urgent_reserve`](super::FlowConfig::urgent_reserve) sets aside.
    Urgent,
    /// Given up whole at this moment, as by [`Flow::give_up`](super::Flow::give_up), unless it has been
    /// acknowledged by then. Segments that have left before may still complete it at the receiver. Whoever
    /// needs the block at the receiver by some moment subtracts the one-way delay from it. The last repair that can
    /// leave before this moment is sent several times.
    Until(Timestamp),
}
