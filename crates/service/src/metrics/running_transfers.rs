//! Running transfers: the growth of their figures is added to counters, and their present state becomes
//! gauges.
//!
//! Always true: each byte and file is counted once, however often and by whomever metrics are read; a
//! transfer that begins again takes nothing back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use farhaul_session::Handle;
use farhaul_words::{Snapshot, Stage};

use super::{CounterMetrics, DirectionLabel, DirectionLabels, FileLabels, Metrics, OriginLabel};

/// A transfer to watch.
#[derive(Debug)]
pub(crate) struct WatchedTransfer {
    pub(crate) handle: Handle,
    pub(crate) origin: OriginLabel,
    /// `None` for a client's transfer: its session says who sends.
    pub(crate) direction: Option<DirectionLabel>,
    pub(crate) session: Arc<SessionCounters>,
}

/// How much of a session's figures is counted. All requests of a session share these figures.
#[derive(Debug, Default)]
pub(crate) struct SessionCounters(Mutex<Wire>);

#[derive(Debug, Clone, Copy, Default)]
struct Wire {
    bytes: u64,
    retransmitted: u64,
}

/// Keeps a transfer in the metrics. Whoever runs the transfer holds it.
pub(crate) struct WatchGuard {
    metrics: Arc<Metrics>,
    key: u64,
}

impl WatchGuard {
    pub(super) fn new(metrics: Arc<Metrics>, key: u64) -> WatchGuard {
        WatchGuard { metrics, key }
    }
}

impl std::fmt::Debug for WatchGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WatchGuard").field(&self.key).finish()
    }
}

impl Drop for WatchGuard {
    /// Counts what the transfer has done since the last look.
    fn drop(&mut self) {
        self.metrics.unwatch(self.key);
    }
}

/// All running transfers.
#[derive(Debug, Default)]
pub(super) struct RunningTransfers {
    next: u64,
    all: BTreeMap<u64, (WatchedTransfer, CountedPart)>,
}

/// How much of one transfer is counted.
#[derive(Debug, Clone, Copy, Default)]
struct CountedPart {
    bytes: u64,
    files: u64,
    failed: u64,
}

/// Sums over all running transfers.
#[derive(Debug, Default)]
pub(super) struct TransferSums {
    pub(super) running: BTreeMap<(OriginLabel, DirectionLabel), i64>,
    pub(super) goodput_bps: BTreeMap<DirectionLabel, f64>,
    pub(super) target_bps: f64,
    pub(super) rtt_s: Spread,
    pub(super) loss: Spread,
    pub(super) stages: BTreeMap<(&'static str, &'static str), f64>,
}

/// Mean and maximum of several figures.
#[derive(Debug, Default)]
pub(super) struct Spread {
    sum: f64,
    max: f64,
    count: u32,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.max = self.max.max(value);
        self.count += 1;
    }

    pub(super) fn mean_and_max(&self) -> Option<(f64, f64)> {
        (self.count > 0).then(|| (self.sum / f64::from(self.count), self.max))
    }
}

/// The growth of a count since the last look. If the count is lower than before, its session has begun again,
/// and all of it is new.
pub(super) fn grown(now: u64, before: &mut u64) -> u64 {
    let new = if now < *before { now } else { now - *before };
    *before = now;
    new
}

impl WatchedTransfer {
    fn direction(&self, seen: &Snapshot) -> DirectionLabel {
        self.direction.unwrap_or(if seen.facts.sends {
            DirectionLabel::Sent
        } else {
            DirectionLabel::Received
        })
    }

    fn count(&self, seen: &Snapshot, done: &mut CountedPart, counted: &CounterMetrics) {
        let direction = self.direction(seen).name();
        let bytes = grown(seen.bytes_moved, &mut done.bytes);
        if bytes > 0 {
            counted.bytes.get_or_create(&DirectionLabels { direction }).inc_by(bytes);
        }
        let files = [
            ("arrived", grown(seen.files_done, &mut done.files)),
            ("failed", grown(seen.failed, &mut done.failed)),
        ];
        for (outcome, count) in files.into_iter().filter(|(_, count)| *count > 0) {
            counted.files.get_or_create(&FileLabels { direction, outcome }).inc_by(count);
        }
        let mut wire = self.session.0.lock().in_any_case();
        let (bytes, retransmitted) = (seen.facts.wire_bytes_sent, seen.facts.segments_retransmitted);
        match self.origin {
            OriginLabel::Job => {
                counted.wire_bytes.inc_by(grown(bytes, &mut wire.bytes));
                counted.retransmitted.inc_by(grown(retransmitted, &mut wire.retransmitted));
            }
            // Several requests show the figures of one session, and requests that have ended show old
            // figures.
            OriginLabel::Client => {
                counted.wire_bytes.inc_by(bytes.saturating_sub(wire.bytes));
                counted.retransmitted.inc_by(retransmitted.saturating_sub(wire.retransmitted));
                wire.bytes = wire.bytes.max(bytes);
                wire.retransmitted = wire.retransmitted.max(retransmitted);
            }
        }
    }
}

impl RunningTransfers {
    pub(super) fn add(&mut self, watched: WatchedTransfer) -> u64 {
        self.next += 1;
        self.all.insert(self.next, (watched, CountedPart::default()));
        self.next
    }

    pub(super) fn remove(&mut self, key: u64, counted: &CounterMetrics) {
        if let Some((watched, mut done)) = self.all.remove(&key) {
            watched.count(&watched.handle.snapshot(), &mut done, counted);
        }
    }

    /// Counts the growth of all figures, and sums up the present state.
    pub(super) fn look(&mut self, counted: &CounterMetrics) -> TransferSums {
        let mut sums = TransferSums::default();
        for (watched, done) in self.all.values_mut() {
            let seen = watched.handle.snapshot();
            watched.count(&seen, done, counted);
            sums.add(watched, &seen);
        }
        sums
    }
}

impl TransferSums {
    fn add(&mut self, watched: &WatchedTransfer, seen: &Snapshot) {
        let direction = watched.direction(seen);
        *self.running.entry((watched.origin, direction)).or_default() += 1;
        *self.goodput_bps.entry(direction).or_default() += seen.goodput_bps;
        let facts = &seen.facts;
        self.target_bps += facts.rate_target_bps.unwrap_or(0.0);
        if facts.rtt_ms > 0.0 {
            self.rtt_s.add(facts.rtt_ms / 1e3);
            self.loss.add(facts.loss_fraction);
        }
        for stage in &facts.stages {
            let name = Stage::of_name(&stage.name).map(Stage::name);
            let end = ["sender", "receiver"].into_iter().find(|end| *end == stage.end);
            if let (Some(end), Some(name)) = (end, name) {
                let busy = self.stages.entry((end, name)).or_default();
                *busy = busy.max(stage.busy.min(1.0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn watched(handle: &Handle, origin: OriginLabel) -> WatchedTransfer {
        let direction = (origin == OriginLabel::Job).then_some(DirectionLabel::Sent);
        WatchedTransfer { handle: handle.clone(), origin, direction, session: Arc::default() }
    }

    fn bytes(counted: &CounterMetrics, direction: &'static str) -> u64 {
        counted.bytes.get_or_create(&DirectionLabels { direction }).get()
    }

    #[test]
    fn what_is_done_is_counted_once_and_nothing_is_taken_back() {
        let (counted, mut flows, handle) =
            (CounterMetrics::new(), RunningTransfers::default(), Handle::new());
        let key = flows.add(watched(&handle, OriginLabel::Job));
        handle.counts().bytes_done.store(100, Relaxed);
        flows.look(&counted);
        flows.look(&counted);
        assert_eq!(bytes(&counted, "sent"), 100);
        // Content that was already there has not moved.
        handle.counts().found(1000);
        handle.counts().bytes_done.fetch_add(50, Relaxed);
        flows.look(&counted);
        assert_eq!(bytes(&counted, "sent"), 150);
        handle.begin_again();
        flows.look(&counted);
        handle.counts().bytes_done.store(30, Relaxed);
        handle.counts().files_done.store(2, Relaxed);
        flows.remove(key, &counted);
        assert_eq!(bytes(&counted, "sent"), 180);
        let files = FileLabels { direction: "sent", outcome: "arrived" };
        assert_eq!(counted.files.get_or_create(&files).get(), 2);
        assert!(flows.look(&counted).running.is_empty());
    }

    #[test]
    fn a_client_whose_session_receives_sends_to_us() {
        let (counted, mut flows, handle) =
            (CounterMetrics::new(), RunningTransfers::default(), Handle::new());
        flows.add(watched(&handle, OriginLabel::Client));
        handle.counts().bytes_done.store(7, Relaxed);
        let sums = flows.look(&counted);
        assert_eq!(bytes(&counted, "received"), 7);
        assert_eq!(sums.running.get(&(OriginLabel::Client, DirectionLabel::Received)), Some(&1));
    }

    #[test]
    fn several_requests_of_a_session_have_its_figures_together() {
        let (counted, handle) = (CounterMetrics::new(), Handle::new());
        let session = Arc::new(SessionCounters::default());
        let request =
            || WatchedTransfer { session: session.clone(), ..watched(&handle, OriginLabel::Client) };
        let (first, second) = (request(), request());
        let seen = |wire_bytes_sent| {
            let mut seen = Snapshot::default();
            seen.facts.wire_bytes_sent = wire_bytes_sent;
            seen
        };
        for (request, wire) in [(&first, 10), (&second, 30), (&first, 20), (&second, 40)] {
            request.count(&seen(wire), &mut CountedPart::default(), &counted);
        }
        assert_eq!(counted.wire_bytes.get(), 40);
    }
}
