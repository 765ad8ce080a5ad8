//! The CPU time of a session's threads, and the memory of the process.
//!
//! A daemon has many sessions in one process, so the clock of the process would count all sessions together.

use std::sync::Mutex;
use std::time::Duration;

use farhaul_handover::Held as _;
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

/// CPU time of a session's threads.
#[derive(Debug, Default)]
pub(crate) struct CpuTime(Mutex<Threads>);

#[derive(Debug, Default)]
struct Threads {
    /// The running threads: the kernel's id of each, and the time it had used when it entered.
    running: Vec<(i32, Duration)>,
    /// The time of threads that have ended.
    ended: Duration,
}

impl CpuTime {
    /// Runs `work` as one of the session's threads.
    pub(crate) fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        self.enter();
        let result = work();
        self.leave();
        result
    }

    /// Counts the calling thread's time for the session from here on.
    pub(crate) fn enter(&self) {
        self.0.lock().in_any_case().running.push((this_thread(), thread_time()));
    }

    fn leave(&self) {
        let (this, now) = (this_thread(), thread_time());
        let mut threads = self.0.lock().in_any_case();
        if let Some(at) = threads.running.iter().position(|&(thread, _)| thread == this) {
            let (_, begin) = threads.running.swap_remove(at);
            threads.ended += now.saturating_sub(begin);
        }
    }

    /// The time that all threads have used so far.
    pub(crate) fn total(&self) -> Duration {
        let threads = self.0.lock().in_any_case();
        let running = threads.running.iter().map(|&(thread, begin)| time_of(thread).saturating_sub(begin));
        threads.ended + running.sum::<Duration>()
    }
}

fn this_thread() -> i32 {
    gettid().as_raw_nonzero().get()
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The CPU time of a thread of this process; zero if the kernel does not count it.
fn time_of(thread: i32) -> Duration {
    let account = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let nanos = account.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// The most resident memory that this process has had; 0 if /proc does not say.
pub(crate) fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works until the thread has used `span` of CPU time.
    fn burn(span: Duration) {
        let end = thread_time() + span;
        while thread_time() < end {}
    }

    #[test]
    fn only_the_sessions_own_threads_count() {
        let span = Duration::from_millis(20);
        let cpu = CpuTime::default();
        std::thread::scope(|scope| {
            scope.spawn(|| cpu.count(|| burn(span)));
            scope.spawn(|| burn(10 * span));
        });
        let used = cpu.total();
        assert!(used >= span && used < 10 * span, "{used:?}");
    }

    #[test]
    fn a_thread_that_still_runs_counts() {
        let span = Duration::from_millis(20);
        let cpu = CpuTime::default();
        burn(span);
        cpu.enter();
        burn(span);
        let used = cpu.total();
        assert!(used >= span / 2 && used < 10 * span, "{used:?}");
    }

    #[test]
    fn a_process_has_used_some_memory() {
        assert!(peak_rss_bytes() > 0);
    }
}
