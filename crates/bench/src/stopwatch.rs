//! Measures wall time and processor time.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Both clocks of one thread, from its start on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    began: Instant,
    cpu: f64,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { began: Instant::now(), cpu: thread_cpu() }
    }

    pub(crate) fn wall(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The processor seconds of the calling thread, which must be the one that started this stopwatch.
    pub(crate) fn cpu(&self) -> f64 {
        thread_cpu() - self.cpu
    }
}

fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The seconds so far that the calling thread was ready to run but had no core, because other work had it; 0
/// if the kernel does not count that. Reads a file, so call it only at the beginning and the end of a
/// measurement.
pub(crate) fn starved_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}
