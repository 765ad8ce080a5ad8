//! The first train of content: its packets leave back to back, and the gaps between their arrivals show the
//! bottleneck's rate.
//!
//! Always true: a rate is reported only if the receiver's clock could measure it: both halves of the train
//! lasted long enough, and their rates agree.
//! From: packet trains (Jain 1989, Dovrolis 2001). Halves are compared because a receiver whose thread ran
//! late takes many packets at one time, and the rate would then come out too high.

use crate::time::Timestamp;
use std::time::Duration;

/// The number of a flow's first segments whose arrivals are noted.
const NOTED_SEGMENTS: u64 = 64;
/// The number of feedbacks that carry the notes, as one may get lost.
const REPEATS: u8 = 4;
/// The fewest packets of a train that shows a rate.
const TRAIN_MIN: u64 = 16;
/// The shortest time that half a train must take: three times as long as interrupts and GRO hold packets
/// back.
const HALF_MIN: Duration = Duration::from_micros(150);

/// A packet number, and when it was the newest to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrainArrival {
    pub number: u64,
    pub at_us: u64,
}

/// When the first segments arrived: the receiver's side.
#[derive(Debug, Default)]
pub(crate) struct TrainArrivals {
    notes: Vec<TrainArrival>,
    segments: u64,
    repeats_left: u8,
}

impl TrainArrivals {
    #[inline]
    pub(crate) fn on_segment(&mut self, number: u64, now: Timestamp) {
        if self.segments < NOTED_SEGMENTS {
            self.note(number, now);
        }
    }

    #[cold]
    fn note(&mut self, number: u64, now: Timestamp) {
        self.segments += 1;
        let note = TrainArrival { number, at_us: now.as_micros() };
        match self.notes.last_mut() {
            Some(last) if number <= last.number => return,
            Some(last) if last.at_us == note.at_us => *last = note,
            _ => self.notes.push(note),
        }
        self.repeats_left = REPEATS;
    }

    /// The notes that the next feedback should carry.
    pub(crate) fn take(&mut self) -> &[TrainArrival] {
        if self.repeats_left == 0 {
            return &[];
        }
        self.repeats_left -= 1;
        &self.notes
    }
}

/// The first train: the sender's side.
#[derive(Debug, Default)]
pub(crate) struct FirstTrain {
    sent: Option<SentTrain>,
    rate: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct SentTrain {
    first: u64,
    last: u64,
    packet: f64,
}

impl FirstTrain {
    /// Whether no content has been sent yet: the first packets may leave all at once.
    pub(crate) fn is_due(&self) -> bool {
        self.sent.is_none()
    }

    /// The first content has left, in packets of `packet` bytes.
    pub(crate) fn on_sent(&mut self, first: u64, last: u64, packet: u16) {
        self.sent = Some(SentTrain { first, last, packet: f64::from(packet) });
    }

    pub(crate) fn on_notes(&mut self, notes: impl Iterator<Item = TrainArrival>) {
        let Some(sent) = self.sent.filter(|sent| sent.last - sent.first + 1 >= TRAIN_MIN) else { return };
        let notes: Vec<TrainArrival> =
            notes.filter(|note| (sent.first..=sent.last).contains(&note.number)).take(64).collect();
        self.rate = rate_of(&notes).map(|packets| packets * sent.packet);
    }

    /// The bottleneck's rate in bytes a second, if the train has shown it.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate
    }
}

/// Packets a second of the slower half, if both halves can be trusted.
fn rate_of(notes: &[TrainArrival]) -> Option<f64> {
    let (first, last) = (notes.first()?, notes.last()?);
    if last.number < first.number + TRAIN_MIN / 2 {
        return None;
    }
    let half = (first.number + last.number) / 2;
    let middle = notes.iter().min_by_key(|note| note.number.abs_diff(half))?;
    let rate = |from: &TrainArrival, to: &TrainArrival| {
        let elapsed = Duration::from_micros(to.at_us.checked_sub(from.at_us)?);
        (elapsed >= HALF_MIN).then(|| (to.number - from.number) as f64 / elapsed.as_secs_f64())
    };
    let (one, other) = (rate(first, middle)?, rate(middle, last)?);
    (one.max(other) <= 2.0 * one.min(other)).then(|| one.min(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(times_us: impl IntoIterator<Item = u64>) -> TrainArrivals {
        let mut notes = TrainArrivals::default();
        for (number, micros) in times_us.into_iter().enumerate() {
            notes.on_segment(10 + number as u64, Timestamp::from_nanos(micros * 1_000));
        }
        notes
    }

    fn rate(times_us: impl IntoIterator<Item = u64>) -> Option<f64> {
        let mut train = FirstTrain::default();
        train.on_sent(10, 41, 1500);
        train.on_notes(arrivals(times_us).take().iter().copied());
        train.rate()
    }

    #[test]
    fn the_spacing_of_a_train_is_the_bottlenecks_rate() {
        // 1500 bytes each 120 us are 100 Mbit/s, also when they arrive in pairs or the last six are missing.
        let wanted = 12.5e6;
        for times in [
            (0..32).map(|step| step * 120).collect::<Vec<_>>(),
            (0..32).map(|step| step / 2 * 240).collect(),
            (0..26).map(|step| step * 120).collect(),
        ] {
            let rate = rate(times).expect("a rate");
            assert!((rate / wanted - 1.0).abs() < 0.1, "{rate}");
        }
    }

    #[test]
    fn a_receiver_that_was_late_tells_no_rate() {
        assert_eq!(rate((0..32).map(|_| 5_000)), None, "all at one time");
        let late_once = (0..32).map(|step| if (8..16).contains(&step) { 1_900 } else { step * 120 });
        assert!(rate(late_once).is_none_or(|rate| (rate / 12.5e6 - 1.0).abs() < 0.1), "half of a half");
        assert_eq!(rate((0..32).map(|step| step * 5)), None, "faster than interrupts");
        assert_eq!(rate((0..6).map(|step| step * 120)), None, "too few");
    }

    #[test]
    fn notes_are_few_and_told_four_times() {
        let mut notes = arrivals((0..1000).map(|step| step * 100));
        assert_eq!(notes.take().len() as u64, NOTED_SEGMENTS);
        assert_eq!((0..6).filter(|_| !notes.take().is_empty()).count(), 3);
        let mut out_of_order = TrainArrivals::default();
        [3, 1, 2, 5]
            .iter()
            .for_each(|&number| out_of_order.on_segment(number, Timestamp::from_nanos(number * 9_000)));
        assert_eq!(out_of_order.take().iter().map(|note| note.number).collect::<Vec<_>>(), [3, 5]);
    }
}
