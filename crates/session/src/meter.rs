//! Measures how busy each stage of a session is: every thread books its working time by stage. At the end,
//! the busiest stage is the report's `bottleneck`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_words::{Stage, StageFigures};

use crate::content_role::ContentRole;

/// The time that one thread has spent in one stage.
#[derive(Debug)]
pub struct Meter {
    stage: Stage,
    busy_ns: AtomicU64,
}

impl Meter {
    pub fn add(&self, busy: Duration) {
        self.busy_ns.fetch_add(busy.as_nanos() as u64, Relaxed);
    }

    /// All time that it has booked.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.load(Relaxed))
    }

    /// Runs `work` and books the time that it takes.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.add(start.elapsed());
        result
    }
}

/// All meters of one end of a session.
#[derive(Debug)]
pub struct Meters {
    since: Mutex<Since>,
    all: Mutex<Vec<Arc<Meter>>>,
}

/// The present subject of the meters.
#[derive(Debug, Clone, Copy)]
struct Since {
    /// "sender" or "receiver".
    end: &'static str,
    start: Instant,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters { since: Mutex::new(Since { end: "sender", start: Instant::now() }), all: Mutex::default() }
    }
}

impl Meters {
    /// A request begins. If it is `alone`, all meters begin anew, for an end with this `role`.
    pub(crate) fn begin(&self, role: ContentRole, alone: bool) {
        if alone {
            let end = if role == ContentRole::Sender { "sender" } else { "receiver" };
            *self.since.lock().in_any_case() = Since { end, start: Instant::now() };
            let mut all = self.all.lock().in_any_case();
            // Meters of threads that have ended are dropped.
            all.retain(|meter| Arc::strong_count(meter) > 1);
            all.iter().for_each(|meter| meter.busy_ns.store(0, Relaxed));
        }
    }

    /// A new meter for one thread. Threads do not share one, as two half-busy readers must not look like a
    /// busy one.
    pub fn meter(&self, stage: Stage) -> Arc<Meter> {
        let meter = Arc::new(Meter { stage, busy_ns: AtomicU64::new(0) });
        self.all.lock().in_any_case().push(meter.clone());
        meter
    }

    /// The busy share of each stage, which is that of its busiest thread.
    pub(crate) fn stages(&self) -> Vec<StageFigures> {
        let Since { end, start } = *self.since.lock().in_any_case();
        self.stages_of(end, start.elapsed().as_nanos().max(1) as f64)
    }

    /// As [`Meters::stages`], but with `busy` in seconds.
    pub(crate) fn stages_in_seconds(&self) -> Vec<StageFigures> {
        let Since { end, .. } = *self.since.lock().in_any_case();
        self.stages_of(end, 1e9)
    }

    fn stages_of(&self, end: &str, elapsed: f64) -> Vec<StageFigures> {
        let mut stages: Vec<StageFigures> = Vec::new();
        for meter in self.all.lock().in_any_case().iter() {
            let busy = meter.busy_ns.load(Relaxed) as f64 / elapsed;
            match stages.iter_mut().find(|stage| stage.name == meter.stage.name()) {
                Some(stage) => stage.busy = stage.busy.max(busy),
                None => stages.push(StageFigures { name: meter.stage.name().into(), end: end.into(), busy }),
            }
        }
        stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_as_busy_as_its_busiest_thread() {
        let meters = Meters::default();
        meters.meter(Stage::Read).add(Duration::from_secs(4));
        meters.meter(Stage::Read).add(Duration::from_secs(3));
        meters.meter(Stage::Seal).add(Duration::from_secs(1));
        let stages = meters.stages();
        assert_eq!(stages.len(), 2);
        assert!(stages[0].busy > 3.0 * stages[1].busy && stages[0].busy < 5.0 * stages[1].busy);
    }
}
