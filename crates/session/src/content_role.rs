//! The direction in which content goes, and the order in which it is handed on.

/// The direction of the content, seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRole {
    Sender,
    Receiver,
}

/// The order in which a receiver hands blocks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryOrder {
    Any,
    /// A receiver keeps blocks that come too early, so the one it waits for must not lack memory.
    Kept,
}
