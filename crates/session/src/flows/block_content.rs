//! The content of a block on its way: in memory, or in the overflow.

use std::io;

use farhaul_blocks::{Block, Overflow, OverflowReservation, ParkedBlock};
use farhaul_words::{Code, Error};

use crate::budget::{Budget, Charge, Resource};

pub enum BlockContent {
    Here(Block),
    /// In the overflow, because memory is too small for what the path holds.
    Away(ParkedBlock),
}

impl From<Block> for BlockContent {
    fn from(block: Block) -> BlockContent {
        BlockContent::Here(block)
    }
}

/// A flow's room in the overflow; the session's budget counts it.
pub(crate) struct OverflowRoom {
    share: OverflowReservation,
    charge: Charge,
    slot_bytes: u64,
}

impl OverflowRoom {
    /// Empty room, for blocks of at most `slot_bytes`.
    pub(crate) fn new(overflow: &Overflow, budget: &Budget, slot_bytes: usize) -> OverflowRoom {
        let charge = budget.nothing_of(Resource::Overflow);
        OverflowRoom { share: overflow.share(), charge, slot_bytes: slot_bytes as u64 }
    }

    /// How many blocks the room holds.
    pub(crate) fn slots(&self) -> u32 {
        self.share.slots()
    }

    /// Grows to at least `slots` blocks; returns false if the budget or the file system refuses.
    pub(crate) fn grow(&mut self, slots: u32) -> bool {
        if slots <= self.slots() {
            return true;
        }
        let before = u64::from(self.slots()) * self.slot_bytes;
        if self.charge.set(u64::from(slots) * self.slot_bytes).is_err() {
            return false;
        }
        let is_there = self.share.grow(slots);
        if !is_there {
            // Giving back is never refused.
            let _ = self.charge.set(before);
        }
        is_there
    }

    /// Writes a block to the overflow; fails with [`io::ErrorKind::StorageFull`] if there is no room for it.
    pub(crate) fn park(&self, bytes: &[u8]) -> io::Result<ParkedBlock> {
        self.share.park(bytes)
    }
}

/// The error of a failed write to the overflow; it ends the session, as another path would not help.
pub(crate) fn cannot_park(error: io::Error) -> Error {
    Error::with_source(Code::NoOverflow, "cannot keep blocks in the overflow file", error)
        .with_hint("set TMPDIR to a directory with room, or give `memory` more")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::budget::ResourceLimits;

    #[test]
    fn room_beside_memory_is_counted_while_it_is_there() {
        // Not in `/tmp`, which may be in memory.
        let overflow = Overflow::in_dir(Path::new(env!("CARGO_MANIFEST_DIR")), 1000, 6).expect("a file");
        let budget =
            Budget::new("this key", ResourceLimits { overflow_bytes: 8000, ..ResourceLimits::default() });
        let room = || OverflowRoom::new(&overflow, &budget, 1000);
        let (mut one, mut other) = (room(), room());
        assert!(one.grow(4) && one.grow(2) && other.grow(2));
        assert_eq!(budget.used_of(Resource::Overflow), 6000);
        assert!(!other.grow(3), "the file has no more");
        assert_eq!((budget.used_of(Resource::Overflow), other.slots()), (6000, 2));
        drop(one);
        let _kept = budget.charge_of(Resource::Overflow, 4000).unwrap();
        assert!(!other.grow(6) && other.grow(4), "the budget has no more");
        assert!(other.park(&[1; 1000]).is_ok());
        drop(other);
        assert_eq!(budget.used_of(Resource::Overflow), 4000);
    }
}
