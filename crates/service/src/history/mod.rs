//! What is kept of transfers that have ended.

pub(crate) mod curve;
pub(crate) mod recent_curve;
