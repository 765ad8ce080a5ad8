//! Time on the wall and on the processor.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Both clocks of one thread, from a moment on.
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

    /// Seconds that the calling thread, which must be the one that started this, was on a core.
    pub(crate) fn cpu(&self) -> f64 {
        thread_cpu() - self.cpu
    }
}

fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds so far that the calling thread could have run and got no core, as other work had them; 0 where the kernel does
/// not keep it. Reads a file, so it is for the beginning and the end of a measurement.
pub(crate) fn starved_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}
