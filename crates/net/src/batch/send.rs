//! Datagrams on their way out, placed one behind another in trains that the kernel can take as one (GSO).
//!
//! Always true: the datagrams of a train follow each other without a gap and have the size of the first, only
//! the last may be shorter; a train is within the kernel's limits; everything before the cursor is sent or
//! given up.

use std::net::SocketAddr;

use super::DATAGRAM_LEN_MAX;

/// The longest train: it is the payload of one send call, and must fit the length field of one IP packet.
const TRAIN_LEN_MAX: usize = DATAGRAM_LEN_MAX;
/// The most datagrams of a train: UDP_MAX_SEGMENTS of Linux up to 6.8. Later kernels take 128, but longer
/// trains gain nothing measurable.
pub(crate) const TRAIN_DATAGRAMS_MAX: usize = 64;

#[derive(Debug, Clone, Copy)]
struct GsoTrain {
    start: usize,
    len: usize,
    /// Length of every datagram but the last.
    gso_size: usize,
    open: bool,
    to: Option<SocketAddr>,
}

/// Bytes of one or several datagrams that are still to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingPayload<'a> {
    pub bytes: &'a [u8],
    /// The length of each datagram; at least `bytes.len()` if this is one datagram.
    pub gso_size: usize,
    pub to: Option<SocketAddr>,
}

impl PendingPayload<'_> {
    pub fn datagrams(&self) -> usize {
        self.bytes.len().div_ceil(self.gso_size)
    }
}

/// Datagrams to send, in one buffer that is filled in place.
#[derive(Debug)]
pub struct SendBatch {
    buffer: Box<[u8]>,
    used: usize,
    trains: Vec<GsoTrain>,
    datagrams: usize,
    to: Option<SocketAddr>,
    /// The cursor: the first train that is not all sent, and the bytes of it that are.
    next_train: usize,
    next_offset: usize,
}

impl SendBatch {
    /// An empty batch with room for `capacity` bytes, at least one datagram of the largest size.
    pub fn new(capacity: usize) -> SendBatch {
        SendBatch {
            buffer: vec![0; capacity.max(DATAGRAM_LEN_MAX)].into_boxed_slice(),
            used: 0,
            trains: Vec::with_capacity(64),
            datagrams: 0,
            to: None,
            next_train: 0,
            next_offset: 0,
        }
    }

    /// Drops all datagrams, sent or not, and resets the destination to the link's remote.
    pub fn clear(&mut self) {
        self.used = 0;
        self.trains.clear();
        self.datagrams = 0;
        self.to = None;
        self.next_train = 0;
        self.next_offset = 0;
    }

    /// The bytes of the next datagram. They hold old content, and the caller writes all of them. Returns
    /// `None` if the batch is full, or `len` is 0 or above [`DATAGRAM_LEN_MAX`].
    pub fn datagram(&mut self, len: usize) -> Option<&mut [u8]> {
        debug_assert!(len > 0 && len <= DATAGRAM_LEN_MAX, "no datagram has {len} bytes");
        let start = self.used;
        if len == 0 || len > DATAGRAM_LEN_MAX || len > self.buffer.len() - start {
            return None;
        }
        match self.trains.last_mut() {
            Some(train) if train.takes(len) => {
                train.len += len;
                train.open = len == train.gso_size;
            }
            _ => self.trains.push(GsoTrain { start, len, gso_size: len, open: true, to: self.to }),
        }
        self.used += len;
        self.datagrams += 1;
        Some(&mut self.buffer[start..start + len])
    }

    /// As [`SendBatch::datagram`], but in a train of its own: if the network refuses this datagram, no other
    /// one is lost with it.
    pub fn datagram_apart(&mut self, len: usize) -> Option<&mut [u8]> {
        self.close_train();
        self.datagram(len)?;
        self.close_train();
        Some(&mut self.buffer[self.used - len..self.used])
    }

    fn close_train(&mut self) {
        if let Some(train) = self.trains.last_mut() {
            train.open = false;
        }
    }

    /// Sets the destination of the datagrams that follow; `None` is the link's remote.
    pub fn to(&mut self, addr: Option<SocketAddr>) {
        if addr != self.to {
            self.to = addr;
            self.close_train();
        }
    }

    /// Whether no datagram was added since the last `clear`.
    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Whether something is left to send.
    pub fn has_unsent(&self) -> bool {
        self.next_train < self.trains.len()
    }

    /// Datagrams added since the last `clear`, sent or not.
    pub fn datagrams(&self) -> usize {
        self.datagrams
    }

    /// Bytes added since the last `clear`, sent or not.
    pub fn bytes(&self) -> usize {
        self.used
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.buffer.len() - self.used
    }

    /// Drops all unsent datagrams and returns their number.
    pub fn discard_unsent(&mut self) -> usize {
        let count = self.unsent_trains().map(|train| train.datagrams()).sum();
        self.next_train = self.trains.len();
        self.next_offset = 0;
        count
    }

    /// The unsent trains.
    pub(crate) fn unsent_trains(&self) -> impl Iterator<Item = PendingPayload<'_>> {
        let mut offset = self.next_offset;
        self.trains[self.next_train..].iter().map(move |train| {
            let from = train.start + std::mem::take(&mut offset);
            let bytes = &self.buffer[from..train.start + train.len];
            PendingPayload { bytes, gso_size: train.gso_size, to: train.to }
        })
    }

    /// The unsent datagrams, one by one.
    pub(crate) fn unsent_datagrams(&self) -> impl Iterator<Item = PendingPayload<'_>> {
        self.unsent_trains().flat_map(|train| {
            let PendingPayload { gso_size, to, .. } = train;
            train.bytes.chunks(gso_size).map(move |bytes| PendingPayload { bytes, gso_size, to })
        })
    }

    /// Moves the cursor over `count` trains.
    pub(crate) fn advance_trains(&mut self, count: usize) {
        debug_assert!(self.next_train + count <= self.trains.len(), "the cursor stays inside");
        self.next_train += count;
        self.next_offset = 0;
    }

    /// Moves the cursor over `count` datagrams.
    pub(crate) fn advance_datagrams(&mut self, mut count: usize) {
        while count > 0 && self.has_unsent() {
            let train = &self.trains[self.next_train];
            let left = (train.len - self.next_offset).div_ceil(train.gso_size);
            if count >= left {
                count -= left;
                self.advance_trains(1);
            } else {
                self.next_offset += count * train.gso_size;
                count = 0;
            }
        }
    }
}

impl GsoTrain {
    fn takes(&self, len: usize) -> bool {
        self.open
            && len <= self.gso_size
            && self.len + len <= TRAIN_LEN_MAX
            && self.len < self.gso_size * TRAIN_DATAGRAMS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trains(batch: &SendBatch) -> Vec<(usize, usize)> {
        batch.unsent_trains().map(|train| (train.bytes.len(), train.gso_size)).collect()
    }

    fn filled(lens: &[usize]) -> SendBatch {
        let mut batch = SendBatch::new(1 << 20);
        for (index, &len) in lens.iter().enumerate() {
            batch.datagram(len).expect("room").fill(index as u8);
        }
        batch
    }

    #[test]
    fn same_size_coalesces_and_a_shorter_one_ends_the_train() {
        assert_eq!(trains(&filled(&[100, 100, 40, 40, 100])), [(240, 100), (40, 40), (100, 100)]);
        assert_eq!(trains(&filled(&[40, 100, 100])), [(40, 40), (200, 100)]);
    }

    #[test]
    fn a_datagram_apart_shares_its_train_with_none() {
        let mut batch = filled(&[100, 100]);
        batch.datagram_apart(100).unwrap().fill(7);
        batch.datagram(40).unwrap();
        assert_eq!(trains(&batch), [(200, 100), (100, 100), (40, 40)]);
        assert_eq!(batch.unsent_datagrams().nth(2).unwrap().bytes, [7; 100]);
        assert!(filled(&[60_000]).datagram_apart(1000).is_some());
    }

    #[test]
    fn trains_stay_within_the_kernels_limits() {
        for len in [1, 64, 1023, 1024, 1200, 1472, 8972, 40_000, DATAGRAM_LEN_MAX] {
            let mut batch = SendBatch::new(1 << 20);
            while batch.datagram(len).is_some() {}
            assert_eq!(batch.datagrams(), (1 << 20) / len);
            for train in batch.unsent_trains() {
                assert!(train.bytes.len() <= 65_507 && train.datagrams() <= 64, "{len}");
            }
        }
    }

    #[test]
    fn another_destination_starts_another_train() {
        let mut batch = SendBatch::new(0);
        let to: Option<SocketAddr> = Some("127.0.0.1:9".parse().unwrap());
        batch.datagram(10).unwrap();
        batch.to(to);
        batch.datagram(10).unwrap();
        batch.to(to);
        batch.datagram(10).unwrap();
        let seen: Vec<_> = batch.unsent_trains().map(|train| (train.bytes.len(), train.to)).collect();
        assert_eq!(seen, [(10, None), (20, to)]);
    }

    #[test]
    fn the_cursor_moves_by_datagrams_and_trains() {
        let mut batch = filled(&[100, 100, 100, 40, 200, 200]);
        batch.advance_datagrams(2);
        assert_eq!(trains(&batch), [(140, 100), (400, 200)]);
        let lens: Vec<_> = batch.unsent_datagrams().map(|one| (one.bytes.len(), one.bytes[0])).collect();
        assert_eq!(lens, [(100, 2), (40, 3), (200, 4), (200, 5)]);
        batch.advance_datagrams(3);
        assert_eq!(trains(&batch), [(200, 200)]);
        batch.advance_trains(1);
        assert!(!batch.has_unsent() && !batch.is_empty());
        batch.clear();
        assert!(batch.is_empty() && batch.datagrams() == 0);
    }

    #[test]
    fn discarding_counts_what_was_left() {
        let mut batch = filled(&[100, 100, 100, 40]);
        batch.advance_datagrams(1);
        assert_eq!(batch.discard_unsent(), 3);
        assert!(!batch.has_unsent());
    }

    proptest::proptest! {
        /// Compares the batch with a plain list: whatever is added and however the cursor moves, what is left
        /// is the list's tail.
        #[test]
        fn what_is_unsent_is_what_was_added_and_not_passed(
            lens in proptest::collection::vec(proptest::prop_oneof![1..9_usize, 1471..1473_usize, 1..9000_usize], 1..200),
            steps in proptest::collection::vec((proptest::bool::ANY, 1..40_usize), 0..20),
        ) {
            let mut batch = SendBatch::new(1 << 20);
            let mut added = Vec::new();
            for (index, &len) in lens.iter().enumerate() {
                let Some(bytes) = batch.datagram(len) else { break };
                bytes.fill(index as u8);
                added.push((len, index as u8));
            }
            proptest::prop_assert_eq!(batch.datagrams(), added.len());
            let mut passed = 0;
            for (by_train, count) in steps {
                if by_train {
                    let count = count.min(batch.unsent_trains().count()).min(2);
                    passed += batch.unsent_trains().take(count).map(|train| train.datagrams()).sum::<usize>();
                    batch.advance_trains(count);
                } else {
                    passed = added.len().min(passed + count);
                    batch.advance_datagrams(count);
                }
                let left: Vec<_> = batch.unsent_datagrams().map(|one| (one.bytes.len(), one.bytes[0])).collect();
                proptest::prop_assert_eq!(&left[..], &added[passed..]);
                proptest::prop_assert_eq!(batch.has_unsent(), passed < added.len());
            }
            proptest::prop_assert_eq!(batch.discard_unsent(), added.len() - passed);
        }
    }
}
