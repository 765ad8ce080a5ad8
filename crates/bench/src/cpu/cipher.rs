//! Sealing and opening datagrams as a flow's thread does it, without the network between.

use farhaul::options::Cipher;
use farhaul_session::{Packets, SegmentPayload};

use crate::bps;
use crate::findings::CipherRow;
use crate::seal::{ends, packet};
use crate::stopwatch::Stopwatch;

/// The size of the batch that datagrams are sealed into, as `farhaul_net::Capabilities::batch_bytes` of a UDP
/// socket has it.
const BATCH_BYTES: usize = 256 << 10;

/// Cuts a block into segments again and again, seals and opens them. The clocks are read once a batch.
pub(super) fn measure(cipher: Cipher, segment_bytes: usize, block: &[u8], seconds: f64) -> CipherRow {
    let (mut sealing, mut opening) = ends(&[7; 32], 0, cipher);
    let mut arrived = vec![0; block.len()];
    let mut datagrams = DatagramCutter { number: 0, offset: 0, segment_bytes };
    let mut batch = vec![0; BATCH_BYTES];
    // One batch is not measured, as it touches memory and code for the first time.
    datagrams.seal(&mut sealing, block, &mut batch);

    let whole = Stopwatch::start();
    let (mut count, mut seal, mut open) = (0_u64, 0.0, 0.0);
    while whole.wall() < seconds || count == 0 {
        let watch = Stopwatch::start();
        let (filled, len) = datagrams.seal(&mut sealing, block, &mut batch);
        seal += watch.cpu();
        let watch = Stopwatch::start();
        for datagram in batch[..filled * len].chunks_exact_mut(len) {
            let opened = opening.open(datagram).expect("what was sealed with the same secret opens");
            let (segment, payload) = opened.segment.expect("each carries a segment");
            arrived[segment.offset as usize..segment.end() as usize].copy_from_slice(payload);
        }
        open += watch.cpu();
        count += filled as u64;
    }
    std::hint::black_box(&arrived);
    let bytes = count * segment_bytes as u64;
    CipherRow {
        cipher: cipher.name().into(),
        segment_bytes,
        seal_bps: bps(bytes, seal),
        open_bps: bps(bytes, open),
        seal_ns: seal * 1e9 / count as f64,
        open_ns: open * 1e9 / count as f64,
    }
}

/// Cuts the block into datagrams, and keeps its position.
struct DatagramCutter {
    number: u64,
    offset: usize,
    segment_bytes: usize,
}

impl DatagramCutter {
    /// Fills the batch; returns the number and the length of its datagrams.
    fn seal(&mut self, packets: &mut Packets, block: &[u8], batch: &mut [u8]) -> (usize, usize) {
        let len = packets.datagram_len(&packet(0, 0, self.segment_bytes));
        let mut filled = 0;
        for out in batch.chunks_exact_mut(len) {
            if self.offset + self.segment_bytes > block.len() {
                self.offset = 0;
            }
            let packet = packet(self.number, self.offset, self.segment_bytes);
            let content = SegmentPayload::Content(&block[self.offset..][..self.segment_bytes]);
            packets.seal(&packet, &[], content, out);
            self.number += 1;
            self.offset += self.segment_bytes;
            filled += 1;
        }
        (filled, len)
    }
}

const _: () = assert!(BATCH_BYTES > 9000, "a batch holds a datagram of any usual packet");
