//! Requests: what a service may do in one, what the session knows of it, how it is paused, and its handle.

pub mod crew;
pub mod event_feed;
pub mod exchange;
pub(crate) mod gate;
pub mod handle;
pub mod inlet;
pub(crate) mod notes;
pub(crate) mod pausing;
pub mod producer_token;
pub mod request;
pub(crate) mod request_state;
pub(crate) mod request_table;
