//! What is kept of transfers that have ended.

pub(crate) mod curve;
