//! Flows: their threads, packets and keys, and the content of their blocks.

pub mod block_content;
pub mod cipher;
pub(crate) mod flow_shared;
pub(crate) mod flow_thread;
pub(crate) mod packets;
pub mod secret;
