//! Measures whether a disk's readers or writers do anything but wait for it, over a few dozen chunks at a
//! time.
//!
//! Always true: it reads no clock. The first span after a pause is not judged, since at first all threads
//! wait, and memory is touched for the first time, which would be counted as time of the disk.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;

/// Chunks that are judged together.
const SPAN: u64 = 32;
/// If nobody was busy for this long, the next chunk belongs to another transfer.
const PAUSE: Duration = Duration::from_secs(1);
/// A thread that spends this share of its time on the disk does nothing else. (A thread that also digests,
/// which takes a third of the disk's time, stays below it.)
const WAITED_FOR_PERCENT: u128 = 75;

/// How busy a disk's readers, or its writers, are.
#[derive(Debug, Default)]
pub(crate) struct IoLoad(Mutex<Series>);

#[derive(Debug, Default)]
struct Series {
    now: u32,
    span: Option<Span>,
    /// The time at which the last chunk ended.
    ended: Option<Instant>,
    is_settled: bool,
    is_waited_for: bool,
}

#[derive(Debug)]
struct Span {
    since: Instant,
    most: u32,
    chunks: u64,
    busy: Duration,
}

impl Span {
    fn new(since: Instant, most: u32) -> Span {
        Span { since, most, chunks: 0, busy: Duration::ZERO }
    }

    fn is_waited_for(&self, end: Instant) -> bool {
        let all = end.saturating_duration_since(self.since).as_nanos() * u128::from(self.most);
        self.busy.as_nanos() * 100 >= all * WAITED_FOR_PERCENT
    }
}

impl IoLoad {
    /// Notes that the reading or writing of a chunk begins.
    pub(crate) fn enter(&self, begin: Instant) {
        let mut series = self.series();
        let pause = series.ended.map_or(Duration::ZERO, |ended| begin.saturating_duration_since(ended));
        if series.now == 0 && pause >= PAUSE {
            *series = Series::default();
        }
        series.now += 1;
        let now = series.now;
        let span = series.span.get_or_insert_with(|| Span::new(begin, now));
        span.most = span.most.max(now);
    }

    /// Notes that it has ended or failed.
    pub(crate) fn leave(&self, begin: Instant, end: Instant) {
        let mut series = self.series();
        series.now = series.now.saturating_sub(1);
        series.ended = Some(end);
        let now = series.now;
        let Some(span) = &mut series.span else { return };
        span.chunks += 1;
        span.busy += end.saturating_duration_since(begin);
        if span.chunks == SPAN {
            let is_waited_for = span.is_waited_for(end);
            *span = Span::new(end, now);
            series.is_waited_for = series.is_settled && is_waited_for;
            series.is_settled = true;
        }
    }

    /// Whether the time of a chunk is that of the disk.
    pub(crate) fn is_settled(&self) -> bool {
        self.series().is_settled
    }

    /// Whether the threads spent most of the last span waiting for the disk.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.series().is_waited_for
    }

    fn series(&self) -> MutexGuard<'_, Series> {
        // The fields are plain numbers, and each change is complete.
        self.0.lock().in_any_case()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Two chunks at a time, each busy for `busy` of 10 ms; returns the end of the last.
    fn spans(load: &IoLoad, mut at: Instant, count: u64, busy: u32) -> Instant {
        for _ in 0..count * SPAN / 2 {
            let end = at + MS * busy;
            load.enter(at);
            load.enter(at);
            load.leave(at, end);
            load.leave(at, end);
            at += MS * 10;
        }
        at
    }

    #[test]
    fn who_does_nothing_else_is_waited_for() {
        let load = IoLoad::default();
        let at = spans(&load, Instant::now(), 1, 10);
        assert!(load.is_settled() && !load.is_waited_for(), "the first span says nothing");
        let at = spans(&load, at, 1, 9);
        assert!(load.is_waited_for());
        let at = spans(&load, at, 1, 5);
        assert!(!load.is_waited_for(), "only the last span counts");
        spans(&load, at, 1, 9);
        assert!(load.is_waited_for());
    }

    #[test]
    fn one_of_two_is_not_all() {
        let load = IoLoad::default();
        let mut at = spans(&load, Instant::now(), 1, 10);
        for _ in 0..SPAN {
            load.enter(at);
            // Another thread comes by for a moment.
            load.enter(at);
            load.leave(at, at);
            at += MS * 10;
            load.leave(at - MS * 10, at);
        }
        assert!(!load.is_waited_for());
    }

    #[test]
    fn a_pause_begins_anew() {
        let load = IoLoad::default();
        let at = spans(&load, Instant::now(), 2, 10);
        assert!(load.is_waited_for());
        load.enter(at + PAUSE);
        assert!(!load.is_settled() && !load.is_waited_for());
        // A chunk that takes longer than a pause is not one.
        load.leave(at + PAUSE, at + PAUSE * 3);
        let at = spans(&load, at + PAUSE * 3, 1, 10);
        load.enter(at);
        load.enter(at + PAUSE * 2);
        assert!(load.is_settled());
    }
}
