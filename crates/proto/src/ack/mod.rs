//! The packets that have arrived: a bitmap over packet numbers, which feedback maps describe to the peer.
//!
//! Always true: a number is accepted once; at most [`SPAN_WORDS`] words are kept, whatever numbers a peer
//! uses.
//! From: WDT and UDT, which keep range lists. A bitmap costs the same at any loss and is cheap to repeat,
//! while RFC 9000's ranges grow with loss.

mod clock;
mod train;

pub(crate) use clock::{FeedbackCause, FeedbackClock};
pub(crate) use train::{FirstTrain, TrainArrival, TrainArrivals};

use crate::time::Timestamp;
use crate::wire::varint;
use std::collections::VecDeque;

/// The most words of 64 packets that are kept: sixteen million packets, 2 MiB. Senders keep at most half of
/// that outstanding.
const SPAN_WORDS: u64 = 1 << 18;
/// The number of feedbacks that report a new packet at least, before the rotation reaches it again.
const RECENT_INTERVALS: usize = 4;

/// The packets that have arrived.
#[derive(Debug)]
pub(crate) struct Arrivals {
    words: VecDeque<u64>,
    /// Index of the first word kept.
    base: u64,
    newest: Option<(u64, Timestamp)>,
    /// The lowest number that arrived in the current interval and in those before it.
    lowest: [u64; RECENT_INTERVALS],
    rotation: u64,
}

/// How feedbacks report the older numbers: each takes one of `parts` parts, of at least `words_min` words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation {
    pub parts: u64,
    pub words_min: u64,
}

/// The words to report: the first one, and the one behind the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordRange {
    pub start: u64,
    pub end: u64,
}

impl WordRange {
    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Arrivals {
            words: VecDeque::new(),
            base: 0,
            newest: None,
            lowest: [u64::MAX; RECENT_INTERVALS],
            rotation: 0,
        }
    }

    /// Whether a packet of this number has arrived before, or is so old that nobody knows.
    #[inline]
    pub(crate) fn is_replay(&self, number: u64) -> bool {
        let word = number / 64;
        if word < self.base {
            return true;
        }
        self.words.get((word - self.base) as usize).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// Whether a packet with a larger number has arrived.
    #[inline]
    pub(crate) fn is_overtaken(&self, number: u64) -> bool {
        self.newest.is_some_and(|(newest, _)| newest > number)
    }

    /// Notes an arrival; the caller has checked [`Arrivals::is_replay`].
    #[inline]
    pub(crate) fn insert(&mut self, number: u64, now: Timestamp) {
        let word = number / 64;
        if word < self.base {
            // The packet itself has raised the floor above its own number.
            return;
        }
        let index = word - self.base;
        if index >= self.words.len() as u64 {
            self.extend_to(word);
        }
        let index = (word - self.base) as usize;
        self.words[index] |= 1 << (number % 64);
        self.lowest[0] = self.lowest[0].min(number);
        if self.newest.is_none_or(|(newest, _)| number > newest) {
            self.newest = Some((number, now));
        }
    }

    fn extend_to(&mut self, word: u64) {
        if word + 1 > self.base + SPAN_WORDS {
            self.drop_below(word + 1 - SPAN_WORDS);
        }
        self.words.resize((word - self.base + 1) as usize, 0);
    }

    fn drop_below(&mut self, word: u64) {
        let gone = (word - self.base).min(self.words.len() as u64);
        self.words.drain(..gone as usize);
        self.base = word;
    }

    /// The peer knows the fate of all packets below `floor`.
    pub(crate) fn set_floor(&mut self, floor: u64) {
        let Some((newest, _)) = self.newest else { return };
        let word = floor.min(newest) / 64;
        if word > self.base {
            self.drop_below(word);
        }
    }

    /// Largest number that has arrived, and when.
    pub(crate) fn newest(&self) -> Option<(u64, Timestamp)> {
        self.newest
    }

    fn all(&self) -> WordRange {
        WordRange { start: self.base, end: self.base + self.words.len() as u64 }
    }

    /// What the next feedback covers: a part of the older numbers, then the recent ones. Begins a new
    /// interval.
    pub(crate) fn next_ranges(&mut self, everything: bool, rotation: Rotation) -> [WordRange; 2] {
        let all = self.all();
        let lowest = self.lowest.iter().copied().min().unwrap_or(u64::MAX);
        self.lowest.rotate_right(1);
        self.lowest[0] = u64::MAX;
        // The newest word is always reported, as it shows which numbers are missing around the newest one.
        let recent_start = (lowest / 64).clamp(all.start, all.end.saturating_sub(1).max(all.start));
        let recent = WordRange { start: recent_start, end: all.end };
        if everything {
            return [WordRange { start: all.start, end: recent.start }, recent];
        }
        let length = ((recent.start - all.start) / rotation.parts.max(1)).max(rotation.words_min);
        let start =
            if (all.start..recent.start).contains(&self.rotation) { self.rotation } else { all.start };
        let end = (start + length).min(recent.start);
        // The rotation starts again once it reaches the recent numbers: these move on, and if it followed
        // them, it would never come back to the old ones.
        self.rotation = if end < recent.start { end } else { 0 };
        [WordRange { start, end }, recent]
    }

    /// The last feedback had room only for the older numbers below `word`; the next one continues there.
    pub(crate) fn go_on_from(&mut self, word: u64) {
        self.rotation = word;
    }

    /// Appends a map of the words from `range.start` on, at most `max` bytes of it; returns the first word
    /// not covered.
    pub(crate) fn encode_map(&self, range: WordRange, max: usize, out: &mut Vec<u8>) -> u64 {
        let word =
            |index: u64| self.words.get((index.wrapping_sub(self.base)) as usize).copied().unwrap_or(0);
        let begin = out.len();
        let mut at = range.start;
        while at < range.end {
            let full = (at..range.end).take_while(|&index| word(index) == u64::MAX).count() as u64;
            let raw_start = at + full;
            // A single full word costs fewer bytes among the raw words than as a piece of its own.
            let raw = (raw_start..range.end)
                .take_while(|&index| word(index) != u64::MAX || word(index + 1) != u64::MAX)
                .count() as u64;
            let room = max.saturating_sub(out.len() - begin + 8) as u64 / 8;
            let raw = raw.min(room);
            if raw == 0 && (full == 0 || raw_start < range.end) {
                if full > 0 {
                    varint::put(out, full);
                }
                return raw_start;
            }
            varint::put(out, full);
            varint::put(out, raw);
            (raw_start..raw_start + raw).for_each(|index| out.extend_from_slice(&word(index).to_le_bytes()));
            at = raw_start + raw;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{MapPiece, MapPieces};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const ROTATION: Rotation = Rotation { parts: 8, words_min: 16 };

    fn decode(start: u64, map: &[u8]) -> Vec<(u64, u64)> {
        let (mut at, mut words, mut pieces) = (start, Vec::new(), MapPieces::new(map));
        while let Some(piece) = pieces.next_piece().expect("our own map") {
            match piece {
                MapPiece::Full(count) => (0..count).for_each(|step| words.push((at + step, u64::MAX))),
                MapPiece::Raw(raw) => words.extend(
                    raw.iter()
                        .enumerate()
                        .map(|(step, bytes)| (at + step as u64, u64::from_le_bytes(*bytes))),
                ),
            }
            at = start + words.len() as u64;
        }
        words
    }

    #[test]
    fn memory_is_bounded_and_old_numbers_are_replays() {
        let mut arrivals = Arrivals::new();
        arrivals.insert(5, Timestamp::ZERO);
        arrivals.insert(1 << 39, Timestamp::ZERO);
        assert_eq!(arrivals.words.len() as u64, SPAN_WORDS);
        assert!(arrivals.is_replay(6) && arrivals.is_replay(1 << 39) && !arrivals.is_replay((1 << 39) - 1));
        arrivals.set_floor(u64::MAX >> 24);
        assert_eq!(arrivals.words.len(), 1);
    }

    #[test]
    fn a_packet_below_the_floor_that_it_brings_is_forgotten() {
        let mut arrivals = Arrivals::new();
        arrivals.insert(1000, Timestamp::ZERO);
        assert!(!arrivals.is_replay(70));
        arrivals.set_floor(1000);
        arrivals.insert(70, Timestamp::ZERO);
        assert!(arrivals.is_replay(70));
        assert_eq!(arrivals.newest(), Some((1000, Timestamp::ZERO)));
    }

    #[test]
    fn the_rotation_comes_round_while_numbers_grow() {
        let mut arrivals = Arrivals::new();
        let mut told = 0;
        for step in 0..200u64 {
            (step * 640..step * 640 + 640).for_each(|number| arrivals.insert(number, Timestamp::ZERO));
            told += u32::from(arrivals.next_ranges(false, ROTATION)[0].start == 0 && step > 20);
        }
        assert!(told > 5, "the first word was reported {told} times");
    }

    #[test]
    fn each_packet_is_reported_four_times_and_rotation_comes_round() {
        let mut arrivals = Arrivals::new();
        (0..6400).for_each(|number| arrivals.insert(number, Timestamp::ZERO));
        let mut seen = [0; 100];
        for step in 0..16 {
            arrivals.insert(6400 + step, Timestamp::ZERO);
            for range in arrivals.next_ranges(false, ROTATION) {
                (range.start..range.end.min(100)).for_each(|word| seen[word as usize] += 1);
            }
        }
        assert!(seen.iter().all(|&times| times >= 4), "{seen:?}");
        assert!(seen.iter().all(|&times| times <= 7), "{seen:?}");
    }

    proptest! {
        #[test]
        fn maps_say_what_arrived(numbers in proptest::collection::btree_set(0u64..3000, 1..600), gaps: bool, max in 40usize..300) {
            let numbers: BTreeSet<u64> = if gaps { numbers } else { (0..3000).filter(|n| !numbers.contains(n) || n % 7 > 0).collect() };
            let mut arrivals = Arrivals::new();
            for &number in &numbers {
                prop_assert!(!arrivals.is_replay(number));
                arrivals.insert(number, Timestamp::ZERO);
                prop_assert!(arrivals.is_replay(number));
            }
            let mut range = arrivals.all();
            let mut told = BTreeSet::new();
            while !range.is_empty() {
                let mut map = Vec::new();
                let end = arrivals.encode_map(range, max, &mut map);
                prop_assert!(map.len() <= max && end > range.start);
                let words = decode(range.start, &map);
                prop_assert_eq!(words.len() as u64, end - range.start);
                for (word, bits) in words {
                    told.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 64 + bit));
                }
                range.start = end;
            }
            prop_assert_eq!(told, numbers);
        }
    }
}
