//! The frames of a stream with deadlines that will not arrive, and what the receiver has to be told of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::stream::StreamSender;

use crate::words::{self, RANGES_MAX, SenderWord};

/// Frames that will not arrive: those that were never put, and those of which the transport has given up a block.
#[derive(Default)]
pub(super) struct DroppedFrames {
    /// What the receiver has to be told, as it would wait for these frames.
    untold: VecDeque<(u64, u64)>,
    /// Frames whose blocks may still be given up.
    under_way: VecDeque<FrameUnderWay>,
}

struct FrameUnderWay {
    frame: u64,
    /// The number of its first block.
    block: u64,
    put: Instant,
    is_dropped: bool,
}

impl DroppedFrames {
    pub(super) fn add(&mut self, from: u64, to: u64) {
        match self.untold.back_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.untold.push_back((from, to)),
        }
    }

    /// The frame's first block was put.
    pub(super) fn note_put(&mut self, frame: u64, block: u64, kept: Duration) {
        let now = Instant::now();
        while self.under_way.front().is_some_and(|first| now.saturating_duration_since(first.put) > kept) {
            self.under_way.pop_front();
        }
        self.under_way.push_back(FrameUnderWay { frame, block, put: now, is_dropped: false });
    }

    /// Learns which blocks were given up. Returns the number of frames that are dropped by that.
    pub(super) fn learn(&mut self, sender: &StreamSender) -> u64 {
        let mut count = 0;
        while let Some(block) = sender.next_given_up() {
            let place = self.under_way.partition_point(|frame| frame.block <= block).checked_sub(1);
            if let Some(frame) =
                place.and_then(|place| self.under_way.get_mut(place)).filter(|frame| !frame.is_dropped)
            {
                frame.is_dropped = true;
                count += 1;
                let number = frame.frame;
                self.add(number, number + 1);
            }
        }
        count
    }

    /// Whether a block of the frame that was begun last is given up.
    pub(super) fn has_dropped_last(&self) -> bool {
        self.under_way.back().is_some_and(|frame| frame.is_dropped)
    }

    pub(super) fn tell(&mut self, sender: &StreamSender) -> Result<(), Error> {
        while !self.untold.is_empty() {
            let count = self.untold.len().min(RANGES_MAX);
            let ranges = self.untold.drain(..count).collect();
            sender.send_message(&words::bytes(&SenderWord::Dropped { ranges }))?;
        }
        Ok(())
    }
}
