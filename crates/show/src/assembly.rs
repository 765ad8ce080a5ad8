//! Which pieces of which frames have arrived: judges each piece, and says when a frame is whole.
//!
//! Always true: a frame is over once (whole or dropped); a piece is accepted once; what is kept for frames that are
//! open is bounded by [`OPEN_MAX`] and [`AHEAD_MAX`], whatever the sender says. No bytes of frames are here.

use std::collections::{BTreeMap, BTreeSet};

use farhaul::errors::Misbehaviour;

use crate::label::{PIECE, PieceLabel, piece_count};

/// The most frames that have begun and are not over.
const OPEN_MAX: usize = 4096;
/// An honest sender is never this far ahead of a frame that is not over.
const AHEAD_MAX: u64 = 1 << 16;

/// What the sender has announced of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The most bytes of a frame.
    pub(crate) frame_max: u64,
    /// The bytes of each frame but the last one, if all are equal.
    pub(crate) frame_len: Option<u64>,
    /// The number of frames, if the sender knows it.
    pub(crate) frames: Option<u64>,
    /// Whether frames may be dropped. If so, pieces of frames that are over may still arrive.
    pub(crate) may_drop: bool,
}

/// What has become of a frame by a piece of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The frame has begun or goes on.
    Part,
    /// This was the last piece that was missing.
    Whole,
    /// The frame is over already; the piece is of no use.
    TooLate,
}

#[derive(Debug)]
struct OpenFrame {
    size: u64,
    time: u64,
    /// A bit for each piece that has arrived.
    arrived: Vec<u64>,
    missing: u64,
}

/// The frames of one stream.
#[derive(Debug)]
pub(crate) struct Assembly {
    agreed: Agreed,
    /// All frames below are over.
    next: u64,
    /// Frames above `next` that are over.
    over: BTreeSet<u64>,
    open: BTreeMap<u64, OpenFrame>,
}

impl Assembly {
    pub(crate) fn new(agreed: Agreed) -> Assembly {
        Assembly { agreed, next: 0, over: BTreeSet::new(), open: BTreeMap::new() }
    }

    /// The first frame that is not over.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Takes a piece; an error if no honest sender can have sent it.
    pub(crate) fn accept(&mut self, label: &PieceLabel<'_>) -> Result<Accepted, Misbehaviour> {
        let Agreed { frame_max, frame_len, frames, may_drop } = self.agreed;
        if label.size > frame_max || frame_len.is_some_and(|len| label.size > len) {
            return Err(Misbehaviour::WrongFrameSize);
        }
        let is_beyond = frames.is_some_and(|frames| label.frame >= frames);
        if is_beyond || label.frame >= self.next.saturating_add(AHEAD_MAX) {
            return Err(Misbehaviour::ImpossibleFrame);
        }
        if label.frame < self.next || self.over.contains(&label.frame) {
            return if may_drop { Ok(Accepted::TooLate) } else { Err(Misbehaviour::ImpossibleFrame) };
        }
        if !self.open.contains_key(&label.frame) && self.open.len() >= OPEN_MAX {
            return Err(Misbehaviour::ImpossibleFrame);
        }
        let pieces = piece_count(label.size);
        let frame = self.open.entry(label.frame).or_insert_with(|| OpenFrame {
            size: label.size,
            time: label.time,
            arrived: vec![0; pieces.div_ceil(64) as usize],
            missing: pieces,
        });
        if (frame.size, frame.time) != (label.size, label.time) {
            return Err(Misbehaviour::WrongFrameSize);
        }
        let index = label.offset / PIECE;
        let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
        if frame.arrived[word] & bit != 0 {
            return Err(Misbehaviour::PieceTwice);
        }
        frame.arrived[word] |= bit;
        frame.missing -= 1;
        if frame.missing > 0 {
            return Ok(Accepted::Part);
        }
        self.open.remove(&label.frame);
        self.end(label.frame);
        Ok(Accepted::Whole)
    }

    /// Gives up these frames, as far as they are not over, and returns their number. Calls `each` for those that had begun.
    pub(crate) fn drop_frames(
        &mut self,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64),
    ) -> Result<u64, Misbehaviour> {
        let reaches_far = from > self.next && to > self.next.saturating_add(AHEAD_MAX);
        if from > to || reaches_far || self.agreed.frames.is_some_and(|frames| to > frames) {
            return Err(Misbehaviour::ImpossibleFrame);
        }
        let from = from.max(self.next);
        if from >= to {
            return Ok(0);
        }
        let begun: Vec<u64> = self.open.range(from..to).map(|(&frame, _)| frame).collect();
        for frame in begun {
            self.open.remove(&frame);
            each(frame);
        }
        let count = to - from - self.over.range(from..to).count() as u64;
        if from == self.next {
            self.over = self.over.split_off(&to);
            self.next = to;
            self.advance();
        } else {
            self.over.extend(from..to);
        }
        Ok(count)
    }

    /// Forgets the pieces of all frames that are not over: a new session brings these frames from their beginning.
    /// Calls `each` for every one.
    pub(crate) fn begin_again(&mut self, mut each: impl FnMut(u64)) {
        for (frame, _) in std::mem::take(&mut self.open) {
            each(frame);
        }
    }

    /// The open frame with the lowest number.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.open.keys().next().copied()
    }

    fn end(&mut self, frame: u64) {
        self.over.insert(frame);
        self.advance();
    }

    fn advance(&mut self) {
        while self.over.remove(&self.next) {
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agreed(may_drop: bool) -> Agreed {
        Agreed { frame_max: 4 * PIECE, frame_len: None, frames: Some(100), may_drop }
    }

    fn label(frame: u64, size: u64, piece: u64) -> PieceLabel<'static> {
        PieceLabel { frame, size, offset: piece * PIECE, time: frame, metadata: b"" }
    }

    #[test]
    fn a_frame_is_whole_with_its_last_piece_in_any_order() {
        let mut assembly = Assembly::new(agreed(false));
        for (frame, piece, accepted) in
            [(0, 2, Accepted::Part), (1, 0, Accepted::Part), (0, 0, Accepted::Part), (0, 1, Accepted::Whole)]
        {
            assert_eq!(assembly.accept(&label(frame, 3 * PIECE, piece)), Ok(accepted));
        }
        assert_eq!((assembly.next(), assembly.oldest()), (1, Some(1)));
    }

    #[test]
    fn what_no_honest_sender_sends_is_refused() {
        let mut assembly = Assembly::new(agreed(false));
        assembly.accept(&label(0, 2 * PIECE, 0)).unwrap();
        for (wrong, how) in [
            (label(0, 2 * PIECE, 0), Misbehaviour::PieceTwice),
            (label(0, 3 * PIECE, 1), Misbehaviour::WrongFrameSize),
            (PieceLabel { time: 9, ..label(0, 2 * PIECE, 1) }, Misbehaviour::WrongFrameSize),
            (label(1, 5 * PIECE, 0), Misbehaviour::WrongFrameSize),
            (label(100, PIECE, 0), Misbehaviour::ImpossibleFrame),
        ] {
            assert_eq!(assembly.accept(&wrong), Err(how), "{wrong:?}");
        }
        assembly.accept(&label(0, 2 * PIECE, 1)).unwrap();
        assert_eq!(assembly.accept(&label(0, 2 * PIECE, 1)), Err(Misbehaviour::ImpossibleFrame));
        for (from, to) in [(5, 4), (0, 101)] {
            assert!(assembly.drop_frames(from, to, |_| panic!("nothing is dropped")).is_err());
        }
        let mut endless = Assembly::new(Agreed { frames: None, frame_len: Some(PIECE), ..agreed(false) });
        assert_eq!(endless.accept(&label(AHEAD_MAX, PIECE, 0)), Err(Misbehaviour::ImpossibleFrame));
        assert_eq!(endless.accept(&label(0, 2 * PIECE, 0)), Err(Misbehaviour::WrongFrameSize));
    }

    #[test]
    fn the_number_of_open_frames_is_bounded() {
        let mut assembly = Assembly::new(Agreed { frames: None, ..agreed(true) });
        for frame in 0..OPEN_MAX as u64 {
            assembly.accept(&label(frame, 2 * PIECE, 0)).unwrap();
        }
        assert_eq!(
            assembly.accept(&label(OPEN_MAX as u64, 2 * PIECE, 0)),
            Err(Misbehaviour::ImpossibleFrame)
        );
    }

    #[test]
    fn a_dropped_frame_is_over_and_its_late_pieces_are_of_no_use() {
        let mut assembly = Assembly::new(agreed(true));
        assembly.accept(&label(1, 2 * PIECE, 0)).unwrap();
        let mut dropped = Vec::new();
        assert_eq!(assembly.drop_frames(0, 3, |frame| dropped.push(frame)), Ok(3));
        assert_eq!(dropped, [1]);
        assert_eq!(assembly.next(), 3);
        assert_eq!(assembly.accept(&label(1, 2 * PIECE, 1)), Ok(Accepted::TooLate));
        assert_eq!(assembly.accept(&label(4, PIECE, 0)), Ok(Accepted::Whole));
        assert_eq!(assembly.drop_frames(0, 5, |_| panic!("no frame has begun")), Ok(1));
        assert_eq!(assembly.next(), 5);
        assert_eq!(assembly.drop_frames(7, 9, |_| ()), Ok(2));
        assert_eq!((assembly.next(), assembly.drop_frames(5, 8, |_| ())), (5, Ok(2)));
        assert_eq!(assembly.next(), 9);
    }

    #[test]
    fn a_gap_of_any_length_costs_nothing() {
        let mut assembly = Assembly::new(Agreed { frames: None, ..agreed(true) });
        assert_eq!(assembly.drop_frames(0, u64::MAX, |_| ()), Ok(u64::MAX));
        assert_eq!(assembly.accept(&label(7, PIECE, 0)), Ok(Accepted::TooLate));
        assert_eq!(assembly.accept(&label(u64::MAX, PIECE, 0)), Err(Misbehaviour::ImpossibleFrame));
    }

    #[test]
    fn a_new_session_brings_open_frames_again() {
        let mut assembly = Assembly::new(agreed(false));
        assembly.accept(&label(0, PIECE, 0)).unwrap();
        assembly.accept(&label(1, 2 * PIECE, 0)).unwrap();
        assembly.begin_again(|frame| assert_eq!(frame, 1));
        assert_eq!(assembly.next(), 1);
        assert_eq!(assembly.accept(&label(1, 2 * PIECE, 0)), Ok(Accepted::Part));
    }

    proptest! {
        #[test]
        fn any_order_of_all_pieces_completes_all_frames(
            sizes in proptest::collection::vec(0..4 * PIECE, 1..8),
            seed: u64,
        ) {
            let mut pieces: Vec<_> = (0..).zip(&sizes)
                .flat_map(|(frame, &size)| (0..piece_count(size)).map(move |piece| label(frame, size, piece)))
                .collect();
            let mut state = seed | 1;
            for at in (1..pieces.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(at, (state >> 33) as usize % (at + 1));
            }
            let mut assembly = Assembly::new(agreed(false));
            let whole = pieces.iter().filter(|piece| assembly.accept(piece) == Ok(Accepted::Whole)).count();
            prop_assert_eq!(whole, sizes.len());
            prop_assert_eq!(assembly.next(), sizes.len() as u64);
            prop_assert!(assembly.oldest().is_none());
        }
    }
}
