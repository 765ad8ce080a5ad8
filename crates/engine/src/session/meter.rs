//! How busy each stage of a session is: every thread books the time that it works, by stage; at the end the busiest
//! one gives the report's `bottleneck`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::report::Stage;

/// Time that one thread has spent in one stage.
#[derive(Debug)]
pub(crate) struct Meter {
    stage: &'static str,
    /// Threads are told apart so that two half-busy readers do not look like a full one.
    thread: u64,
    busy_ns: AtomicU64,
}

impl Meter {
    pub(crate) fn add(&self, busy: Duration) {
        self.busy_ns.fetch_add(busy.as_nanos() as u64, Relaxed);
    }

    /// Books the time that `work` takes.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.add(start.elapsed());
        result
    }
}

/// All meters of one end of a session.
#[derive(Debug)]
pub(crate) struct Meters {
    /// "sender" or "receiver".
    end: &'static str,
    start: Instant,
    all: Mutex<Vec<Arc<Meter>>>,
}

impl Meters {
    pub(crate) fn new(end: &'static str) -> Meters {
        Meters { end, start: Instant::now(), all: Mutex::default() }
    }

    /// A new meter; meters of one thread share the number `thread`.
    pub(crate) fn meter(&self, stage: &'static str, thread: u64) -> Arc<Meter> {
        let meter = Arc::new(Meter { stage, thread, busy_ns: AtomicU64::new(0) });
        self.all.lock().expect("no thread panics while it holds the list of meters").push(meter.clone());
        meter
    }

    /// Busy share of each stage: that of its busiest thread.
    pub(crate) fn stages(&self) -> Vec<Stage> {
        let elapsed = self.start.elapsed().as_nanos().max(1) as f64;
        let mut stages: Vec<Stage> = Vec::new();
        for meter in self.all.lock().expect("no thread panics while it holds the list of meters").iter() {
            let busy = meter.busy_ns.load(Relaxed) as f64 / elapsed;
            match stages.iter_mut().find(|stage| stage.name == meter.stage) {
                Some(stage) => stage.busy = stage.busy.max(busy),
                None => stages.push(Stage { name: meter.stage.into(), end: self.end.into(), busy }),
            }
        }
        stages
    }

    /// The busy share of the busiest thread, and the stage that takes most of its time.
    pub(crate) fn busiest_thread(&self) -> Option<(f64, &'static str)> {
        let all = self.all.lock().expect("no thread panics while it holds the list of meters");
        let elapsed = self.start.elapsed().as_nanos().max(1) as f64;
        let total = |thread| -> u64 {
            all.iter().filter(|meter| meter.thread == thread).map(|meter| meter.busy_ns.load(Relaxed)).sum()
        };
        let thread = all.iter().map(|meter| meter.thread).max_by_key(|&thread| total(thread))?;
        let stage = all
            .iter()
            .filter(|meter| meter.thread == thread)
            .max_by_key(|meter| meter.busy_ns.load(Relaxed))
            .map(|meter| meter.stage)?;
        Some((total(thread) as f64 / elapsed, stage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_is_named_by_its_longest_stage() {
        let meters = Meters::new("sender");
        meters.meter("read", 1).add(Duration::from_secs(4));
        meters.meter("read", 2).add(Duration::from_secs(4));
        meters.meter("seal", 3).add(Duration::from_secs(3));
        meters.meter("send", 3).add(Duration::from_secs(2));
        let (_, stage) = meters.busiest_thread().unwrap();
        assert_eq!(stage, "seal");
        assert_eq!(meters.stages().len(), 3);
    }
}
