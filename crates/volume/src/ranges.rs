//! Sets of chunk numbers, stored as ranges: the memory for a file depends only on what was set, not on its
//! claimed size.
//!
//! Always true: ranges are not empty, do not overlap and do not touch.

use std::collections::BTreeMap;

/// A set of chunk numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunkMap {
    /// First chunk -> one past the last.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl ChunkMap {
    pub fn new() -> ChunkMap {
        ChunkMap::default()
    }

    /// The set of these (first, count) ranges. `None` if one overflows, or if two overlap.
    pub fn from_ranges(ranges: &[(u64, u64)]) -> Option<ChunkMap> {
        let mut map = ChunkMap::new();
        for &(first, count) in ranges {
            let end = first.checked_add(count)?;
            if count == 0 || map.next_set(first).is_some_and(|next| next < end) {
                return None;
            }
            map.insert_range(first, end);
        }
        Some(map)
    }

    pub fn contains(&self, index: u64) -> bool {
        self.ranges.range(..=index).next_back().is_some_and(|(_, &end)| index < end)
    }

    /// Adds one chunk; returns false if it was there.
    pub fn insert(&mut self, index: u64) -> bool {
        if index == u64::MAX || self.contains(index) {
            return false;
        }
        self.insert_range(index, index + 1);
        true
    }

    /// Removes one chunk; returns false if it was not there.
    pub fn remove(&mut self, index: u64) -> bool {
        let Some((&first, &end)) = self.ranges.range(..=index).next_back() else { return false };
        if index >= end {
            return false;
        }
        self.ranges.remove(&first);
        if first < index {
            self.ranges.insert(first, index);
        }
        if index + 1 < end {
            self.ranges.insert(index + 1, end);
        }
        self.count -= 1;
        true
    }

    /// Adds a range that overlaps no other.
    fn insert_range(&mut self, first: u64, end: u64) {
        self.count += end - first;
        let (mut start, mut stop) = (first, end);
        if let Some((&before, &edge)) = self.ranges.range(..first).next_back()
            && edge == first
        {
            start = before;
        }
        if let Some(edge) = self.ranges.remove(&end) {
            stop = edge;
        }
        self.ranges.insert(start, stop);
    }

    /// How many chunks are in the set.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The ranges in order, as (first, count).
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.ranges.iter().map(|(&first, &end)| (first, end - first)).collect()
    }

    /// The ranges below `total` that are not in the set, as (first, end).
    pub fn gaps(&self, total: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let edges = self.ranges.iter().map(|(&first, &end)| (first, end)).chain([(u64::MAX, u64::MAX)]);
        let mut from = 0;
        edges.filter_map(move |(first, end)| {
            let gap = (from, first.min(total));
            from = end;
            (gap.0 < gap.1).then_some(gap)
        })
    }

    fn next_set(&self, from: u64) -> Option<u64> {
        if self.contains(from) {
            return Some(from);
        }
        self.ranges.range(from..).next().map(|(&first, _)| first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn overlapping_or_endless_ranges_are_refused() {
        assert!(ChunkMap::from_ranges(&[(0, 5), (4, 2)]).is_none());
        assert!(ChunkMap::from_ranges(&[(4, 2), (0, 5)]).is_none());
        assert!(ChunkMap::from_ranges(&[(u64::MAX, 2)]).is_none());
        assert!(ChunkMap::from_ranges(&[(3, 0)]).is_none());
        assert_eq!(ChunkMap::from_ranges(&[(0, 5), (5, 2)]).unwrap().ranges(), [(0, 7)]);
    }

    proptest! {
        #[test]
        fn acts_as_a_set(steps in proptest::collection::vec((any::<bool>(), 0u64..40), 0..200)) {
            let (mut map, mut set) = (ChunkMap::new(), BTreeSet::new());
            for (add, index) in steps {
                if add {
                    prop_assert_eq!(map.insert(index), set.insert(index));
                } else {
                    prop_assert_eq!(map.remove(index), set.remove(&index));
                }
                prop_assert_eq!(map.count(), set.len() as u64);
            }
            let ranges = map.ranges();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
            prop_assert_eq!(ChunkMap::from_ranges(&ranges), Some(map.clone()));
            let missing: Vec<u64> = map.gaps(30).flat_map(|(first, end)| first..end).collect();
            let expected: Vec<u64> = (0..30).filter(|index| !set.contains(index)).collect();
            prop_assert_eq!(missing, expected);
        }
    }
}
