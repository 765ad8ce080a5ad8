//! Reads frames ahead into blocks of the stream, so that the disk does not show when a frame is due.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{SendTimeoutError, Sender};
use farhaul::Error;
use farhaul::stream::{ClaimedBlock, StreamSender};

use crate::control::{LOOK_EVERY, ShowControl};
use crate::label::{PIECE, piece_len};
use crate::source::{FrameStart, Source};

/// What the reading thread hands to the one that puts.
pub(super) enum ReadAhead {
    Piece {
        frame: u64,
        start: Option<FrameStart>,
        size: u64,
        offset: u64,
        block: ClaimedBlock,
    },
    /// The source has no more frames than this, or cannot go on.
    End(Result<u64, Error>),
}

/// Reads frames ahead, from `first` on, until there are no more or nobody wants them.
pub(super) fn read_ahead(
    source: &mut Source,
    first: u64,
    frames: Option<u64>,
    sender: &StreamSender,
    control: &ShowControl,
    quits: &AtomicBool,
    out: &Sender<ReadAhead>,
) {
    let quit = || quits.load(Ordering::Acquire);
    let mut frame = first;
    let end = loop {
        if control.is_stopped() || frames.is_some_and(|frames| frame >= frames) {
            break Ok(frame);
        }
        match read_frame(source, frame, sender, &quit, out) {
            Ok(Progress::Read) => frame += 1,
            Ok(Progress::NoMore) => break Ok(frame),
            Ok(Progress::Unwanted) => return,
            Err(error) => break Err(error),
        }
    };
    give(out, ReadAhead::End(end), &quit);
}

enum Progress {
    Read,
    NoMore,
    Unwanted,
}

fn read_frame(
    source: &mut Source,
    frame: u64,
    sender: &StreamSender,
    quit: &dyn Fn() -> bool,
    out: &Sender<ReadAhead>,
) -> Result<Progress, Error> {
    let Some(start) = source.begin(frame)? else { return Ok(Progress::NoMore) };
    let size = start.size;
    let mut start = Some(start);
    let mut offset = 0;
    while let Some(len) = piece_len(size, offset) {
        let mut block = loop {
            if quit() {
                return Ok(Progress::Unwanted);
            }
            if let Some(block) = sender.claim_timeout(LOOK_EVERY)? {
                break block;
            }
        };
        block.set_len(len as usize);
        source.read(offset, block.as_mut_slice())?;
        if !give(out, ReadAhead::Piece { frame, start: start.take(), size, offset, block }, quit) {
            return Ok(Progress::Unwanted);
        }
        offset += PIECE;
    }
    Ok(Progress::Read)
}

/// Hands over what was read; false if nobody wants it.
fn give(out: &Sender<ReadAhead>, mut item: ReadAhead, quit: &dyn Fn() -> bool) -> bool {
    while !quit() {
        match out.send_timeout(item, LOOK_EVERY) {
            Ok(()) => return true,
            Err(SendTimeoutError::Timeout(back)) => item = back,
            Err(SendTimeoutError::Disconnected(_)) => return false,
        }
    }
    false
}
