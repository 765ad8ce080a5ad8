//! Rates: the caps that sessions share, and how fast content moves.

pub(crate) mod content_rate;
pub mod rate_cap;
