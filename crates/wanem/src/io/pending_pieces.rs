//! Pieces under way, in the order in which they arrive.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::model::TrainPiece;
use crate::settings::JitterOrder;

/// A piece, and the frame that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingPiece {
    pub frame: u64,
    pub piece: TrainPiece,
}

/// Pieces that keep the order stand in a queue, which costs nothing; the others in a heap.
#[derive(Debug)]
pub(crate) struct PendingPieces {
    ordered: VecDeque<PendingPiece>,
    free: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// The heap's entries, by their slot number.
    pieces: Vec<PendingPiece>,
    unused: Vec<u32>,
    serial: u64,
}

impl PendingPieces {
    pub(crate) fn new() -> PendingPieces {
        PendingPieces {
            ordered: VecDeque::with_capacity(1 << 16),
            free: BinaryHeap::new(),
            pieces: Vec::new(),
            unused: Vec::new(),
            serial: 0,
        }
    }

    pub(crate) fn push(&mut self, entry: PendingPiece) {
        match entry.piece.order {
            JitterOrder::Kept => self.ordered.push_back(entry),
            JitterOrder::Free => {
                let slot = self.unused.pop().unwrap_or_else(|| {
                    self.pieces.push(entry);
                    self.pieces.len() as u32 - 1
                });
                self.pieces[slot as usize] = entry;
                self.free.push(Reverse((entry.piece.due, self.serial, slot)));
                self.serial += 1;
            }
        }
    }

    /// When the next piece arrives.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let ordered = self.ordered.front().map(|entry| entry.piece.due);
        let free = self.free.peek().map(|Reverse((due, ..))| *due);
        ordered.into_iter().chain(free).min()
    }

    /// The next piece, if it has arrived by `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<PendingPiece> {
        let due = self.next_due().filter(|due| *due <= now)?;
        if self.ordered.front().is_some_and(|entry| entry.piece.due == due) {
            return self.ordered.pop_front();
        }
        let Reverse((_, _, slot)) = self.free.pop()?;
        self.unused.push(slot);
        Some(self.pieces[slot as usize])
    }

    /// The next piece, if it keeps the order and is due exactly at `due`.
    pub(crate) fn peek_beside(&self, due: u64) -> Option<&PendingPiece> {
        self.ordered.front().filter(|entry| entry.piece.due == due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_out_by_time_whichever_way_they_wait() {
        let mut waiting = PendingPieces::new();
        for (due, order) in [
            (5, JitterOrder::Kept),
            (9, JitterOrder::Kept),
            (7, JitterOrder::Free),
            (1, JitterOrder::Free),
            (7, JitterOrder::Free),
        ] {
            let piece = TrainPiece { first: 0, count: 1, due, marked: false, corrupt: false, order };
            waiting.push(PendingPiece { frame: due, piece });
        }
        assert_eq!(waiting.next_due(), Some(1));
        let out: Vec<u64> = std::iter::from_fn(|| waiting.pop(8)).map(|entry| entry.piece.due).collect();
        assert_eq!(out, [1, 5, 7, 7]);
        assert!(waiting.peek_beside(9).is_some() && waiting.pop(9).is_some() && waiting.next_due().is_none());
    }
}
