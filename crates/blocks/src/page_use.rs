//! Which pages blocks lie in: how much memory pools have now, and how much of it is huge pages.
//!
//! The kernel says it for each mapping, in /proc/self/smaps. It makes one mapping of two that are alike and touch each other;
//! those of pools do not (`pool.rs`).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use crate::pool::BlockPool;

/// The memory that blocks have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageUse {
    /// Bytes of blocks that have memory.
    pub bytes: u64,
    /// Bytes of these that lie in huge pages; all others lie in ordinary ones.
    pub huge_bytes: u64,
}

/// How much memory these pools have; `None` if the kernel does not say it of them alone.
pub fn page_use(pools: &[&BlockPool]) -> Option<PageUse> {
    let ranges: Vec<_> = pools.iter().map(|pool| pool.addresses()).collect();
    let smaps = BufReader::new(File::open("/proc/self/smaps").ok()?);
    sum_of(smaps, &ranges)
}

fn sum_of(mut smaps: impl BufRead, ranges: &[Range<u64>]) -> Option<PageUse> {
    let mut sum = PageUse { bytes: 0, huge_bytes: 0 };
    let mut left: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut is_ours = false;
    let mut line = String::new();
    loop {
        line.clear();
        if smaps.read_line(&mut line).ok()? == 0 {
            break;
        }
        if let Some(mapping) = addresses_of(&line) {
            if left == 0 {
                break;
            }
            let within = |range: &Range<u64>| {
                mapping.end.min(range.end).saturating_sub(mapping.start.max(range.start))
            };
            let ours: u64 = ranges.iter().map(within).sum();
            is_ours = ours > 0;
            if is_ours && ours != mapping.end - mapping.start {
                return None;
            }
            left -= ours;
        } else if is_ours {
            let figure = |name: &str| {
                let amount = line.strip_prefix(name)?.trim().strip_suffix(" kB")?;
                amount.parse::<u64>().ok()?.checked_mul(1024)
            };
            sum.bytes += figure("Rss:").unwrap_or(0);
            sum.huge_bytes += figure("AnonHugePages:").unwrap_or(0);
        }
    }
    (left == 0).then_some(sum)
}

/// The addresses in the first line of a mapping, such as `7f0000000000-7f0000200000 rw-p ...`.
fn addresses_of(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0
Size:                  8 kB
Rss:                   4 kB
AnonHugePages:         0 kB
VmFlags: rd wr mr mw me ac dc sd hg
3000-403000 rw-p 00000000 00:00 0
Rss:                3072 kB
AnonHugePages:      2048 kB
403000-404000 r--p 00000000 fe:00 77                   /usr/lib/a-b c.so
Rss:                   4 kB
";

    #[test]
    fn mappings_of_pools_are_added_up_and_no_others() {
        let sum =
            |ranges: &[Range<u64>]| sum_of(SMAPS.as_bytes(), ranges).map(|sum| (sum.bytes, sum.huge_bytes));
        let [first, second] = [0x1000..0x3000, 0x3000..0x40_3000];
        assert_eq!(sum(std::slice::from_ref(&first)), Some((4096, 0)));
        assert_eq!(sum(&[second.clone(), first.clone()]), Some((3 << 20 | 4096, 2 << 20)));
        assert_eq!(sum(&[0x1000..0x2000, second]), None, "the mapping has somebody else's memory, too");
        assert_eq!(sum(&[first, 0x50_0000..0x50_1000]), None, "a mapping is missing");
        assert_eq!(sum(&[]), Some((0, 0)));
    }

    #[test]
    fn a_pool_says_how_much_memory_its_used_blocks_have() {
        const BLOCK: usize = 4 << 20;
        let pools: Vec<_> = (0..3).map(|_| BlockPool::new(4, BLOCK).unwrap()).collect();
        let mut blocks: Vec<_> = pools.iter().map(BlockPool::take).collect();
        assert_eq!(page_use(&[&pools[1]]).map(|before| before.bytes), Some(0));
        blocks[0].fill(1);
        assert_eq!(page_use(&[&pools[1]]).unwrap().bytes, 0);
        blocks[1].fill(1);
        let after = page_use(&[&pools[1]]).unwrap();
        assert!((BLOCK as u64..=2 * BLOCK as u64).contains(&after.bytes), "{after:?}");
        assert!(after.huge_bytes <= after.bytes && after.huge_bytes.is_multiple_of(1 << 16), "{after:?}");
        let all = page_use(&[&pools[0], &pools[1], &pools[2]]).unwrap();
        assert!(all.bytes >= 2 * BLOCK as u64, "{all:?}");
    }
}
