//! Datagrams that have arrived, in the buffer where the kernel put them. One read holds several datagrams if
//! the kernel merged them (GRO).
//!
//! Always true: the pieces lie inside the buffer, ascending, without overlap, so each can be handed out as a
//! mutable slice.

use std::net::SocketAddr;

/// The bytes for one read of a socket: a merged (GRO) read is never longer.
pub(crate) const SLOT_LEN: usize = 1 << 16;
/// The number of reads in one system call. The buffer is touched only as far as it is filled, so an idle link
/// stays in the cache.
const SLOTS: usize = 16;

#[derive(Debug, Clone, Copy)]
struct MergedRead {
    start: u32,
    len: u32,
    source: u16,
    ecn_ce: bool,
}

/// One datagram that has arrived. Its bytes may be changed (opened) in place.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// The payload.
    pub bytes: &'a mut [u8],
    /// The sender's address; `None` if the link has only one remote and the kernel checks it.
    pub from: Option<&'a SocketAddr>,
    /// Whether a router marked congestion on the way.
    pub ecn_ce: bool,
}

/// Datagrams that [`crate::Link::recv`] has received. Takes 1 MiB of address space.
#[derive(Debug)]
pub struct RecvBatch {
    buffer: Box<[u8]>,
    pieces: Vec<MergedRead>,
    sources: Vec<Option<SocketAddr>>,
}

impl RecvBatch {
    /// An empty batch.
    pub fn new() -> RecvBatch {
        RecvBatch {
            buffer: vec![0; SLOTS * SLOT_LEN].into_boxed_slice(),
            pieces: Vec::with_capacity(1024),
            sources: Vec::with_capacity(SLOTS),
        }
    }

    /// Number of datagrams.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the batch has no datagrams.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The datagrams in order of arrival. This may be called again; changes to the bytes remain.
    pub fn datagrams(&mut self) -> Datagrams<'_> {
        Datagrams { rest: &mut self.buffer, base: 0, pieces: self.pieces.iter(), sources: &self.sources }
    }

    /// Drops each datagram for which `keep` returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let buffer = &self.buffer;
        self.pieces.retain(|piece| keep(&buffer[piece.start as usize..][..piece.len as usize]));
    }

    /// Adds one datagram behind the others; returns `false` if there is no room.
    pub(crate) fn append(&mut self, bytes: &[u8], from: Option<SocketAddr>, ecn_ce: bool) -> bool {
        let start = self.pieces.last().map_or(0, |last| (last.start + last.len) as usize);
        let Some(room) = self.buffer.get_mut(start..start + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.source(from);
        self.push(start, bytes.len(), 0, ecn_ce);
        true
    }

    /// Sum of the datagrams' lengths.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.len)).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.sources.clear();
    }

    /// The whole buffer, for a back end to fill before it names the pieces.
    pub(crate) fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    pub(crate) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Sets the sender of the pieces that are added from now on.
    pub(crate) fn source(&mut self, from: Option<SocketAddr>) {
        self.sources.push(from);
    }

    /// Adds `len` bytes at `start` as datagrams of `stride` bytes, of which the last may be shorter. The
    /// caller has set a source.
    pub(crate) fn push(&mut self, start: usize, len: usize, stride: usize, ecn_ce: bool) {
        assert!(
            start + len <= self.buffer.len() && !self.sources.is_empty(),
            "a piece lies inside the buffer"
        );
        debug_assert!(
            self.pieces.last().is_none_or(|last| (last.start + last.len) as usize <= start),
            "ascending"
        );
        let stride = if stride == 0 { len.max(1) } else { stride };
        let source = (self.sources.len() - 1) as u16;
        let mut at = start;
        let end = start + len;
        while at < end {
            let len = stride.min(end - at);
            self.pieces.push(MergedRead { start: at as u32, len: len as u32, source, ecn_ce });
            at += len;
        }
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        RecvBatch::new()
    }
}

/// Iterator over the datagrams of a [`RecvBatch`].
#[derive(Debug)]
pub struct Datagrams<'a> {
    rest: &'a mut [u8],
    base: usize,
    pieces: std::slice::Iter<'a, MergedRead>,
    sources: &'a [Option<SocketAddr>],
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Datagram<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a>> {
        let piece = self.pieces.next()?;
        let rest = std::mem::take(&mut self.rest);
        let (_, rest) = rest.split_at_mut(piece.start as usize - self.base);
        let (bytes, rest) = rest.split_at_mut(piece.len as usize);
        self.rest = rest;
        self.base = (piece.start + piece.len) as usize;
        Some(Datagram { bytes, from: self.sources[usize::from(piece.source)].as_ref(), ecn_ce: piece.ecn_ce })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pieces.size_hint()
    }
}

impl ExactSizeIterator for Datagrams<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_read_is_split_by_stride_and_dropped_one_by_one() {
        let mut batch = RecvBatch::new();
        let from: Option<SocketAddr> = Some("[::1]:7".parse().unwrap());
        batch.buffer_mut()[..250].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        batch.source(None);
        batch.push(0, 250, 100, true);
        batch.source(from);
        batch.push(SLOT_LEN, 30, 0, false);
        batch.source(from);
        batch.push(2 * SLOT_LEN, 0, 0, false);
        let seen: Vec<_> = batch
            .datagrams()
            .map(|one| (one.bytes.len(), one.bytes[0], one.from.copied(), one.ecn_ce))
            .collect();
        assert_eq!(
            seen,
            [(100, 0, None, true), (100, 100, None, true), (50, 200, None, true), (30, 0, from, false)]
        );
        batch.retain(|bytes| bytes[0] != 100);
        assert_eq!(batch.len(), 3);
        assert_eq!(batch.bytes(), 180);
        assert_eq!(batch.datagrams().map(|one| one.bytes[0]).collect::<Vec<_>>(), [0, 200, 0]);
        batch.clear();
        assert!(batch.is_empty());
    }
}
