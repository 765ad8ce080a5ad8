//! Frames that may be dropped, kept until they are whole and it is their turn.
//!
//! Always true: frames are handed out in their order, each whole; a frame that was dropped is left out.

use std::collections::BTreeMap;

use farhaul::Error;
use farhaul::errors::Code;

use super::{Manner, Sink};
use crate::label::{PIECE, PieceLabel};

pub(crate) struct WholeFrames {
    sink: Sink,
    frames: BTreeMap<u64, KeptFrame>,
    bytes: u64,
    bytes_max: u64,
}

struct KeptFrame {
    size: u64,
    time: u64,
    /// The pieces by their number.
    pieces: BTreeMap<u64, Vec<u8>>,
    is_whole: bool,
}

impl WholeFrames {
    pub(crate) fn new(sink: Sink, manner: Manner) -> Result<WholeFrames, Error> {
        if manner.frame_max > manner.memory {
            let what = format!(
                "frames of up to {} bytes are kept until they are whole, and there is room for {}",
                manner.frame_max, manner.memory
            );
            return Err(Error::new(Code::TooLarge, what)
                .with_hint("allow more with `memory`, or take dir: as the place"));
        }
        Ok(WholeFrames { sink, frames: BTreeMap::new(), bytes: 0, bytes_max: manner.memory })
    }

    pub(crate) fn write(&mut self, label: &PieceLabel<'_>, bytes: &[u8]) -> Result<(), Error> {
        let new =
            || KeptFrame { size: label.size, time: label.time, pieces: BTreeMap::new(), is_whole: false };
        let frame = self.frames.entry(label.frame).or_insert_with(new);
        self.bytes += bytes.len() as u64;
        frame.pieces.insert(label.offset / PIECE, bytes.to_vec());
        Ok(())
    }

    pub(crate) fn complete(&mut self, frame: u64) {
        if let Some(frame) = self.frames.get_mut(&frame) {
            frame.is_whole = true;
        }
    }

    pub(crate) fn forget(&mut self, frame: u64) {
        if let Some(frame) = self.frames.remove(&frame) {
            self.bytes -= frame.len();
        }
    }

    pub(crate) fn over(&mut self, next: u64) -> Result<(), Error> {
        while let Some(first) =
            self.frames.first_entry().filter(|first| *first.key() < next && first.get().is_whole)
        {
            let (number, frame) = first.remove_entry();
            self.bytes -= frame.len();
            for (piece, bytes) in &frame.pieces {
                let offset = piece * PIECE;
                let label = PieceLabel { frame: number, size: frame.size, offset, time: 0, metadata: b"" };
                self.sink.write(&label, bytes)?;
            }
            self.sink.complete(number, frame.size)?;
            self.sink.over(number + 1)?;
        }
        Ok(())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    pub(crate) fn waiting(&self) -> Option<(u64, u64)> {
        self.frames.iter().find(|(_, frame)| frame.is_whole).map(|(&number, frame)| (number, frame.time))
    }

    pub(crate) fn can_begin_again(&self) -> bool {
        self.sink.can_begin_again()
    }

    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.over(u64::MAX)?;
        self.sink.finish()
    }
}

impl KeptFrame {
    fn len(&self) -> u64 {
        self.pieces.values().map(|piece| piece.len() as u64).sum()
    }
}
