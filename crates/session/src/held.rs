//! Where the content of a block lies while it is on its way.

use farhaul_blocks::{Block, Parked};

use crate::error::{Code, Error};

pub enum Held {
    Here(Block),
    /// In the overflow: memory is too small for what the path holds.
    Away(Parked),
}

impl From<Block> for Held {
    fn from(block: Block) -> Held {
        Held::Here(block)
    }
}

/// No path can help with this one.
pub(crate) fn cannot_park(error: std::io::Error) -> Error {
    Error::new(Code::NoOverflow, format!("cannot keep blocks in a file beside memory: {error}"))
        .with_hint("set TMPDIR to a directory with room, or give --memory more")
}
