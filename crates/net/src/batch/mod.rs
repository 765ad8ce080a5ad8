//! The bytes of datagrams on their way out and in, in batches that a back end moves with few system calls.

mod receive;
mod send;

pub use receive::{Datagram, Datagrams, RecvBatch};
pub use send::SendBatch;

pub(crate) use receive::SLOT_LEN;
pub(crate) use send::{PendingPayload, TRAIN_DATAGRAMS_MAX};

/// The longest datagram that a batch carries: the longest payload of UDP over IPv4.
pub const DATAGRAM_LEN_MAX: usize = 65_507;
