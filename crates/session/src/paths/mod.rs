//! Paths: what is remembered of them, and at which address a flow's peer is.

pub(crate) mod address_standing;
pub(crate) mod address_trial;
pub mod path_memory;
pub(crate) mod peer_address;
