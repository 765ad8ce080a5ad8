//! How much of a hurry a block is in.

use crate::time::Timestamp;

/// Of so many segments at least one is bulk's while it has some.
pub(super) const BULK_EVERY: u32 = 16;

/// What becomes of a block when others wait, too.
///
/// Urgent blocks go first, in the order in which they were queued, then those with a deadline, then bulk:
/// repairs as well as what was never sent. Of those with a deadline the earliest goes first that can be
/// acknowledged before it, repairs included, by what is known of the path; if there is none, the one with
/// most time. So a path that is too slow for all of them carries some of them whole, and not parts of each.
///
/// Nobody waits for ever. Of sixteen segments one is bulk's as long as it has any. Where urgent blocks have
/// half of the credit they leave the others a quarter, as long as the receiver is done with them when they
/// come. Between bulk and blocks with a deadline, credit is whose comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockClass {
    /// Whatever takes as long as it takes.
    #[default]
    Bulk,
    /// Small answers that somebody waits for. Only they may use the credit that
    /// [`FlowConfig::urgent_reserve`](super::FlowConfig::urgent_reserve) sets aside.
    Urgent,
    /// Given up whole at this moment, as by [`Flow::give_up`](super::Flow::give_up), unless it has been
    /// acknowledged. What has left before may still complete it at the receiver: who wants it there in time
    /// takes the way's delay off.
    Until(Timestamp),
}
