//! The parts of an answer that have come, by their offsets.
//!
//! Always true: the spans do not touch each other, and there are at most [`SPANS_MAX`]; so whatever a server sends,
//! they take little memory.

use std::collections::BTreeMap;

use farhaul_words::Error;

use super::pending_calls::unasked;

/// The most parts of an answer that may be apart from each other. A server sends an answer from its beginning to its
/// end; parts are apart only as far as blocks overtake each other, of which a session has a few thousand under way.
pub(super) const SPANS_MAX: usize = 1 << 14;

/// Spans of an answer, each from an offset up to another one.
#[derive(Debug, Default)]
pub(super) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// Adds a span. Returns false if it was there already, as a block is sent again if the path loses it. A span that
    /// overlaps others in part comes from no block that was sent before.
    pub(super) fn add(&mut self, from: u64, to: u64) -> Result<bool, Error> {
        if from >= to {
            return Ok(false);
        }
        let before = self.0.range(..=from).next_back().map(|(&from, &to)| (from, to));
        if before.is_some_and(|(_, end)| to <= end) {
            return Ok(false);
        }
        let after = self.0.range(from..).next().map(|(&from, &to)| (from, to));
        if before.is_some_and(|(_, end)| end > from) || after.is_some_and(|(start, _)| start < to) {
            return Err(unasked("a piece that overlaps another one"));
        }
        let start = before.filter(|(_, end)| *end == from).map_or(from, |(start, _)| start);
        let end = match after.filter(|(start, _)| *start == to) {
            Some((next, end)) => {
                self.0.remove(&next);
                end
            }
            None => to,
        };
        self.0.insert(start, end);
        if self.0.len() > SPANS_MAX {
            return Err(unasked(&format!("an answer in more than {SPANS_MAX} parts that are apart")));
        }
        Ok(true)
    }

    /// The end of the last span.
    pub(super) fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// True if everything before `end` has come, and nothing behind it.
    pub(super) fn is_whole(&self, end: u64) -> bool {
        match self.0.first_key_value() {
            Some((0, first)) => self.0.len() == 1 && *first == end,
            Some(_) => false,
            None => end == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spans_join_and_repeats_are_passed_over() {
        let mut spans = Spans::default();
        assert!(spans.is_whole(0) && !spans.is_whole(1));
        assert!(spans.add(4, 6).unwrap() && spans.add(0, 2).unwrap() && !spans.is_whole(6));
        assert!(!spans.add(4, 6).unwrap() && !spans.add(5, 6).unwrap() && !spans.add(3, 3).unwrap());
        assert!(spans.add(2, 4).unwrap() && spans.is_whole(6) && !spans.is_whole(7));
        assert_eq!((spans.0.len(), spans.end()), (1, 6));
        for (from, to) in [(5, 7), (0, 7)] {
            assert!(spans.add(from, to).is_err());
        }
        assert!(spans.add(8, 9).unwrap() && spans.add(7, 9).is_err() && spans.add(7, 10).is_err());
    }

    #[test]
    fn an_answer_in_too_many_parts_is_refused() {
        let mut spans = Spans::default();
        let parts = (0..=SPANS_MAX as u64).map(|number| spans.add(2 * number + 1, 2 * number + 2));
        let refused: Vec<_> = parts.map(|added| added.is_err()).collect();
        assert!(!refused[..SPANS_MAX].contains(&true) && refused[SPANS_MAX]);
    }

    proptest! {
        #[test]
        fn spans_are_those_of_a_naive_map(parts in proptest::collection::vec((0..60u64, 0..20u64), 0..40)) {
            let (mut spans, mut naive) = (Spans::default(), [false; 80]);
            for (from, len) in parts {
                let span = &mut naive[from as usize..(from + len) as usize];
                match spans.add(from, from + len) {
                    Ok(true) => {
                        prop_assert!(len > 0 && !span.contains(&true));
                        span.fill(true);
                    }
                    Ok(false) => prop_assert!(!span.contains(&false)),
                    Err(_) => prop_assert!(span.contains(&true) && span.contains(&false)),
                }
                let end = naive.iter().rposition(|there| *there).map_or(0, |at| at as u64 + 1);
                prop_assert_eq!(spans.end(), end);
                prop_assert_eq!(spans.is_whole(end), !naive[..end as usize].contains(&false));
            }
        }
    }
}
