//! Curves of transfers: that of a whole run, and the last minutes of a running one.

pub(crate) mod curve;
pub(crate) mod recent_curve;
