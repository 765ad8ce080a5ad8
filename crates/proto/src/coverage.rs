//! A set of positions as sorted, disjoint, non-touching ranges. Appending at the end is the fast case.

/// Whether an insertion added anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// At least one byte was new.
    New,
    /// All of it was covered before.
    Known,
}

/// A set of positions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    ranges: Vec<(u64, u64)>,
}

impl Coverage {
    /// Adds `start..end`. Appending at or behind the end, the common case, touches one range only.
    #[inline]
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> Insertion {
        debug_assert!(start < end, "segments are not empty");
        match self.ranges.last_mut() {
            Some(last) if start == last.1 => last.1 = end,
            Some(last) if start < last.1 => return self.insert_inside(start, end),
            _ => self.ranges.push((start, end)),
        }
        Insertion::New
    }

    fn insert_inside(&mut self, start: u64, end: u64) -> Insertion {
        // Ranges first..after touch or overlap the new one.
        let first = self.ranges.partition_point(|range| range.1 < start);
        let after = first + self.ranges[first..].partition_point(|range| range.0 <= end);
        if first == after {
            self.ranges.insert(first, (start, end));
            return Insertion::New;
        }
        let merged = (start.min(self.ranges[first].0), end.max(self.ranges[after - 1].1));
        if after - first == 1 && merged == self.ranges[first] {
            return Insertion::Known;
        }
        self.ranges[first] = merged;
        self.ranges.drain(first + 1..after);
        Insertion::New
    }

    /// Takes everything below `end` out.
    pub(crate) fn remove_below(&mut self, end: u64) {
        let gone = self.ranges.partition_point(|range| range.1 <= end);
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(end);
        }
    }

    /// Takes up to `max` positions out of the front.
    pub(crate) fn take_front(&mut self, max: u64) -> Option<(u64, u64)> {
        let first = self.ranges.first_mut()?;
        let taken = (first.0, first.1.min(first.0 + max));
        first.0 = taken.1;
        if first.0 == first.1 {
            self.ranges.remove(0);
        }
        Some(taken)
    }

    /// Takes `start..end` out.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        let first = self.ranges.partition_point(|range| range.1 <= start);
        let after = first + self.ranges[first..].partition_point(|range| range.0 < end);
        if first == after {
            return;
        }
        let (left, right) = ((self.ranges[first].0, start), (end, self.ranges[after - 1].1));
        let keep = [left, right].into_iter().filter(|range| range.0 < range.1);
        self.ranges.splice(first..after, keep);
    }

    /// Whether all of `start..end` is covered.
    pub(crate) fn contains(&self, start: u64, end: u64) -> bool {
        let first = self.ranges.partition_point(|range| range.1 < end);
        self.ranges.get(first).is_some_and(|range| range.0 <= start && end <= range.1)
    }

    /// Whether exactly `0..end` is covered.
    pub(crate) fn is_complete(&self, end: u64) -> bool {
        self.ranges.len() == 1 && self.ranges[0] == (0, end)
    }

    /// First position behind the range that begins at `start`, or `start` itself.
    pub(crate) fn end_of_front(&self, start: u64) -> u64 {
        self.ranges.first().filter(|range| range.0 <= start).map_or(start, |range| range.1.max(start))
    }

    /// First position behind everything.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, u64),
        Remove(u64, u64),
        RemoveBelow(u64),
        TakeFront(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0u64..60, 1u64..12).prop_map(|(start, len)| (start, start + len));
        prop_oneof![
            6 => range.clone().prop_map(|(start, end)| Step::Insert(start, end)),
            2 => range.prop_map(|(start, end)| Step::Remove(start, end)),
            1 => (0u64..20).prop_map(Step::RemoveBelow),
            1 => (1u64..9).prop_map(Step::TakeFront),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut fast, mut naive) = (Coverage::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(start, end) => {
                        let new = (start..end).filter(|&at| naive.insert(at)).count() > 0;
                        prop_assert_eq!(fast.insert(start, end) == Insertion::New, new);
                    }
                    Step::Remove(start, end) => {
                        fast.remove(start, end);
                        naive.retain(|&at| at < start || at >= end);
                    }
                    Step::RemoveBelow(end) => {
                        fast.remove_below(end);
                        naive.retain(|&at| at >= end);
                    }
                    Step::TakeFront(max) => {
                        if let Some((start, end)) = fast.take_front(max) {
                            prop_assert!(end - start <= max);
                            prop_assert_eq!(Some(&start), naive.first());
                            for at in start..end { prop_assert!(naive.remove(&at)); }
                        } else { prop_assert!(naive.is_empty()); }
                    }
                }
                let spread: Vec<u64> = fast.iter().flat_map(|(start, end)| start..end).collect();
                prop_assert_eq!(&spread, &naive.iter().copied().collect::<Vec<_>>());
                prop_assert!(fast.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert_eq!(fast.contains(5, 9), (5..9).all(|at| naive.contains(&at)));
            }
        }
    }
}
