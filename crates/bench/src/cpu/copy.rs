//! Copying blocks through memory: as `memcpy` does it, and past the cache, which avoids reading the bytes
//! that are overwritten.

use farhaul::Error;
use farhaul_blocks::BlockPool;
use farhaul_volume::CHUNK;

use super::{fill, rate};
use crate::findings::{CopyRow, FindingRow, Findings};

/// The bounds of the working set, which is otherwise twice the cache.
const SET_MIN: u64 = 128 << 20;
const SET_MAX: u64 = 512 << 20;

pub(super) fn measure(seconds: f64, findings: &mut Findings) -> Result<(), Error> {
    // A run of zero seconds is a test, and need not touch as much memory.
    let set = if seconds > 0.0 { (2 * cache_bytes()).clamp(SET_MIN, SET_MAX) } else { 8 * CHUNK };
    let blocks = (set / CHUNK / 2) as usize;
    let no_memory = |source| Error::of_host("no memory for the copies", source);
    let mut from = BlockPool::new(1, blocks * CHUNK as usize).map_err(no_memory)?.take();
    let mut to = BlockPool::new(1, blocks * CHUNK as usize).map_err(no_memory)?.take();
    fill(&mut from);
    to.fill(0);
    let mut line = |how: &str, copy: fn(&[u8], &mut [u8])| {
        let mut index = 0;
        let bps = rate(seconds, CHUNK as usize, || {
            let range = index * CHUNK as usize..(index + 1) * CHUNK as usize;
            copy(&from[range.clone()], &mut to[range]);
            index = (index + 1) % blocks;
        });
        let row = CopyRow { how: how.into(), segment_bytes: CHUNK as usize, working_set_bytes: set, bps };
        findings.rows.push(FindingRow::Copy(row));
    };
    line("plain", |from, to| to.copy_from_slice(from));
    #[cfg(target_arch = "x86_64")]
    line("non-temporal", streaming::copy);
    #[cfg(not(target_arch = "x86_64"))]
    findings.skip("non-temporal copy", "only known for x86-64 processors");
    Ok(())
}

/// The bytes of the largest cache that the system reports; 0 if it reports none.
fn cache_bytes() -> u64 {
    let sizes = (0..8).filter_map(|index| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()
    });
    sizes.filter_map(|text| parse_size(text.trim())).max().unwrap_or(0)
}

/// Parses `32768K`, `32M`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => (text.strip_suffix('M')?, 1 << 20),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(target_arch = "x86_64")]
mod streaming {
    #![allow(unsafe_code, reason = "stores past the cache have no safe form")]

    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LANE: usize = size_of::<__m128i>();

    /// Copies the part that is aligned in `to` past the cache, and the rest plainly.
    ///
    /// If the lengths differ.
    pub(super) fn copy(from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "a copy is as long as its source");
        // SAFETY: an `__m128i` is sixteen bytes of which any are valid.
        let (head, lanes, tail) = unsafe { to.align_to_mut::<__m128i>() };
        let (from_head, rest) = from.split_at(head.len());
        let (from_lanes, from_tail) = rest.split_at(lanes.len() * LANE);
        head.copy_from_slice(from_head);
        for (lane, bytes) in lanes.iter_mut().zip(from_lanes.chunks_exact(LANE)) {
            // SAFETY: `bytes` has the sixteen bytes that are read, at any alignment; `lane` is an aligned
            // `__m128i` that is borrowed mutably. Every x86-64 processor has SSE2.
            unsafe { _mm_stream_si128(lane, _mm_loadu_si128(bytes.as_ptr().cast())) };
        }
        // Such stores are not ordered with later ones; a thread that reads `to` after this must see them.
        // SAFETY: a fence touches no memory, and every x86-64 processor has SSE.
        unsafe { _mm_sfence() };
        tail.copy_from_slice(from_tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_are_read() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("16M"), Some(16 << 20));
        assert_eq!(parse_size("many"), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_goes_past_the_cache_arrives_at_any_alignment() {
        let mut from = vec![0; 4200];
        fill(&mut from);
        for start in 0..33 {
            for len in [0, 1, 15, 16, 17, 100, 4096] {
                let mut to = vec![0; 4200];
                streaming::copy(&from[start..start + len], &mut to[3..3 + len]);
                assert_eq!(to[3..3 + len], from[start..start + len], "{len} bytes from {start}");
                assert!(to[..3].iter().chain(&to[3 + len..]).all(|&byte| byte == 0));
            }
        }
    }
}
