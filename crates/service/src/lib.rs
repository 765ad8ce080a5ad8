//! The transfer service: jobs that outlive the terminal, their history, caps, and an API for all of it.
#![forbid(unsafe_code)]

pub mod audit;
pub mod config;
pub mod notify;
pub mod state_dir;
