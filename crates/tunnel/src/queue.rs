//! Bytes that wait for a socket, in chunks, so that many small pieces take little more memory than their bytes.

use std::collections::VecDeque;

/// The most bytes of a chunk.
const CHUNK: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct ByteQueue {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that are gone.
    gone: usize,
}

impl ByteQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.chunks.back().is_none_or(|last| last.len() == CHUNK) {
                self.chunks.push_back(Vec::with_capacity(bytes.len().min(CHUNK)));
            }
            let Some(last) = self.chunks.back_mut() else { return };
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK - last.len()));
            last.extend_from_slice(now);
            bytes = rest;
        }
    }

    /// The next bytes; `None` if there are none.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.chunks.front().map(|first| &first[self.gone..])
    }

    /// Forgets `count` bytes of the front.
    pub(crate) fn consume(&mut self, count: usize) {
        self.gone += count;
        if self.chunks.front().is_some_and(|first| self.gone >= first.len()) {
            self.chunks.pop_front();
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let content: Vec<u8> = (0..300_000u32).map(|byte| (byte % 251) as u8).collect();
        let (mut queue, mut out) = (ByteQueue::default(), Vec::new());
        for (number, piece) in content.chunks(7001).enumerate() {
            queue.push(piece);
            if number % 3 == 0
                && let Some(front) = queue.front()
            {
                let count = front.len().min(5000);
                out.extend_from_slice(&front[..count]);
                queue.consume(count);
            }
        }
        while let Some(front) = queue.front() {
            out.extend_from_slice(front);
            let count = front.len();
            queue.consume(count);
        }
        assert!(out == content && queue.is_empty());
    }
}
