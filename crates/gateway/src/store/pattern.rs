//! How a file is read: by somebody who goes through it, or by somebody who jumps.
//!
//! Who goes through a file gets whole chunks, which are kept, and ever more of them fetched ahead. Who jumps gets just the
//! ranges that were asked for, and a whole chunk when somebody comes back to one.

use std::collections::VecDeque;

use farhaul::read::FileRange;

use super::CHUNK;

/// The most chunks that are fetched ahead of a reader, and the fewest.
const AHEAD: (u64, u64) = (4, 64);
/// How many chunks and readers of a file are remembered.
const REMEMBERED: usize = 64;
/// Ranges that cover less than this part of their chunks are read by themselves: one of so many.
const SPARSE: u64 = 4;

/// Where an answer takes its bytes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From chunks, which are fetched if they are not here, and kept.
    Chunks,
    /// Straight from the far end.
    Ranges,
}

/// What is known about the readers of a file.
#[derive(Debug, Default)]
pub(crate) struct Pattern {
    /// Where readers would go on, and the bytes that each has read without a jump. The latest is the last.
    readers: VecDeque<(u64, u64)>,
    /// Chunks in which somebody has read after a jump.
    touched: VecDeque<u64>,
}

impl Pattern {
    /// Decides about the ranges of a request, and which chunks are fetched ahead.
    pub(crate) fn plan(
        &mut self,
        ranges: &[FileRange],
        size: u64,
        is_here: impl Fn(u64) -> bool,
    ) -> (Way, Vec<u64>) {
        let chunks_of =
            |range: &FileRange| range.offset / CHUNK..=(range.offset + range.len.max(1) - 1) / CHUNK;
        let mut chunks: Vec<u64> = ranges.iter().flat_map(chunks_of).collect();
        chunks.dedup();
        let wanted: u64 = ranges.iter().map(|range| range.len).sum();
        let mut ahead = Vec::new();
        if let [range] = ranges {
            let end = range.offset + range.len;
            // Who reads the same once more does not go on.
            let near = |at: u64| at <= range.offset + CHUNK / 4 && range.offset <= at + CHUNK / 4 && at < end;
            let known = self.readers.iter().position(|(at, _)| near(*at));
            let run = known.and_then(|at| self.readers.remove(at)).map(|(_, run)| run);
            if self.readers.len() == REMEMBERED {
                self.readers.pop_front();
            }
            self.readers.push_back((end, run.map_or(range.len, |run| run.saturating_add(range.len))));
            if let Some(run) = run {
                let count = (AHEAD.0 + 2 * (run / CHUNK)).min(AHEAD.1);
                let next = (end.saturating_sub(1)) / CHUNK + 1;
                ahead = (next..next + count).take_while(|index| index * CHUNK < size).collect();
                return (Way::Chunks, ahead);
            }
        }
        let is_dense = wanted.saturating_mul(SPARSE) >= (chunks.len() as u64).saturating_mul(CHUNK).min(size);
        if is_dense || size <= CHUNK {
            return (Way::Chunks, ahead);
        }
        let mut is_known = true;
        for index in chunks {
            let known = self.touched.contains(&index);
            if !known {
                if self.touched.len() == REMEMBERED {
                    self.touched.pop_front();
                }
                self.touched.push_back(index);
            }
            is_known = is_known && (known || is_here(index));
        }
        (if is_known { Way::Chunks } else { Way::Ranges }, ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 40;

    fn one(pattern: &mut Pattern, offset: u64, len: u64) -> (Way, usize) {
        let (way, ahead) = pattern.plan(&[FileRange { offset, len }], SIZE, |_| false);
        (way, ahead.len())
    }

    #[test]
    fn who_reads_on_has_ever_more_fetched_ahead() {
        let mut pattern = Pattern::default();
        assert_eq!(one(&mut pattern, 0, 4096), (Way::Ranges, 0), "it may want no more than the head");
        let mut before = 0;
        for part in 1..2000_u64 {
            // Two readers at once do not disturb each other, nor does one that jumps.
            one(&mut pattern, (1 << 35) + (part << 16), 1 << 16);
            one(&mut pattern, part * 977 * CHUNK, 100);
            let (way, ahead) = one(&mut pattern, 4096 + ((part - 1) << 16), 1 << 16);
            assert!(way == Way::Chunks && ahead >= before, "{part}");
            before = ahead;
        }
        assert_eq!(before as u64, AHEAD.1);
        let (_, ahead) =
            pattern.plan(&[FileRange { offset: 4096 + (1999 << 16), len: 10 }], 130 << 20, |_| false);
        assert_eq!(ahead.last(), Some(&129), "nothing lies behind the end");
    }

    #[test]
    fn who_jumps_gets_ranges_until_a_chunk_is_wanted_again_or_is_here() {
        let mut pattern = Pattern::default();
        for jump in 1..50 {
            assert_eq!(one(&mut pattern, jump * 50 * CHUNK, 4096).0, Way::Ranges);
        }
        assert_eq!(one(&mut pattern, 20 * 50 * CHUNK + 900_000, 4096).0, Way::Chunks);
        assert_eq!(pattern.plan(&[FileRange { offset: 77 * CHUNK, len: 9 }], SIZE, |_| true).0, Way::Chunks);
        let sparse: Vec<_> =
            (0..500).map(|at| FileRange { offset: (1000 + at) * CHUNK, len: 4096 }).collect();
        assert_eq!(pattern.plan(&sparse, SIZE, |_| false).0, Way::Ranges);
        let dense: Vec<_> = (0..500).map(|at| FileRange { offset: at * 4000, len: 3000 }).collect();
        assert_eq!(pattern.plan(&dense, SIZE, |_| false).0, Way::Chunks);
        assert_eq!(
            Pattern::default().plan(&[FileRange { offset: 5, len: 1 }], 1000, |_| false).0,
            Way::Chunks
        );
    }
}
