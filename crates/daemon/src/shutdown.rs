//! How a daemon ends: nobody is let in any more, running sessions get some time, and the rest stops so that
//! it can go on later.
//!
//! Always true: each signal brings the end nearer; whatever happens, the daemon ends when the time is over.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use farhaul_connect::DaemonStop;
use farhaul_handover::Held as _;

/// How often to look whether anything still runs.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whatever else ends together with a daemon.
pub trait ShutdownHook: Send + Sync {
    /// Nothing new begins from now on. Returns how long running work may take to end by itself.
    fn begin(&self) -> Duration;

    /// Returns whether something still runs besides the daemon's `sessions`. Called several times a second.
    fn is_busy(&self, sessions: usize) -> bool;

    /// The time is over: stops what still runs, so that it can go on later.
    fn stop(&self);
}

/// The end of a daemon.
pub(crate) struct Shutdown {
    daemon: DaemonStop,
    others: Arc<dyn ShutdownHook>,
    phase: Mutex<Phase>,
    hurry: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Running work may end by itself.
    Draining,
    /// Running work is told to stop.
    Stopping,
}

/// The effect of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalOutcome {
    /// The daemon is ending.
    Ending,
    /// The daemon was already told to stop: the process should not wait any longer.
    Again,
}

impl Shutdown {
    pub(crate) fn new(daemon: DaemonStop, others: Arc<dyn ShutdownHook>) -> Arc<Shutdown> {
        Arc::new(Shutdown { daemon, others, phase: Mutex::new(Phase::Serving), hurry: Condvar::new() })
    }

    /// A signal tells the daemon to end: the first one begins the end, the next one ends the wait.
    pub(crate) fn signal(self: &Arc<Self>, signal: &'static str) -> SignalOutcome {
        let mut phase = self.phase.lock().in_any_case();
        match *phase {
            Phase::Serving => {
                *phase = Phase::Draining;
                drop(phase);
                let ending = self.clone();
                let drain = move || ending.drain(signal);
                if let Err(error) = std::thread::Builder::new().name("ending".into()).spawn(drain) {
                    tracing::warn!(%error, "cannot start the thread that waits for running work");
                    self.stop();
                }
                SignalOutcome::Ending
            }
            Phase::Draining => {
                *phase = Phase::Stopping;
                self.hurry.notify_all();
                SignalOutcome::Ending
            }
            Phase::Stopping => SignalOutcome::Again,
        }
    }

    fn drain(&self, signal: &'static str) {
        self.daemon.shut();
        let time = self.others.begin();
        let sessions = self.daemon.sessions();
        tracing::info!(signal, sessions, drain_s = time.as_secs_f64(), "ending");
        // Without a limit, if it lies beyond what the clock can represent.
        let until = Instant::now().checked_add(time);
        while self.waits(until) {}
        self.stop();
    }

    /// Waits a moment; returns whether there is still something to wait for.
    fn waits(&self, until: Option<Instant>) -> bool {
        let sessions = self.daemon.sessions();
        if !self.others.is_busy(sessions) && sessions == 0 {
            return false;
        }
        let left = until.map_or(LOOK_EVERY, |until| until.saturating_duration_since(Instant::now()));
        let phase = self.phase.lock().in_any_case();
        if left.is_zero() || *phase == Phase::Stopping {
            tracing::info!(sessions, "what still runs is stopped; it can go on later");
            return false;
        }
        drop(self.hurry.wait_timeout(phase, left.min(LOOK_EVERY)));
        true
    }

    fn stop(&self) {
        *self.phase.lock().in_any_case() = Phase::Stopping;
        self.others.stop();
        self.daemon.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[derive(Debug, Default)]
    struct TestHook {
        time: Duration,
        is_busy: AtomicBool,
        asked: AtomicUsize,
        is_stopped: AtomicBool,
    }

    impl ShutdownHook for TestHook {
        fn begin(&self) -> Duration {
            self.time
        }

        fn is_busy(&self, _: usize) -> bool {
            self.asked.fetch_add(1, SeqCst);
            self.is_busy.load(SeqCst)
        }

        fn stop(&self) {
            self.is_stopped.store(true, SeqCst);
        }
    }

    fn ending(seconds: u64, is_busy: bool) -> (Arc<Shutdown>, Arc<TestHook>) {
        let others = Arc::new(TestHook {
            time: Duration::from_secs(seconds),
            is_busy: is_busy.into(),
            ..TestHook::default()
        });
        (Shutdown::new(DaemonStop::default(), others.clone()), others)
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_daemon_that_has_nothing_to_do_or_no_time_stops_at_once() {
        for (seconds, is_busy) in [(u64::MAX, false), (0, true)] {
            let (ending, others) = ending(seconds, is_busy);
            assert_eq!(ending.signal("SIGTERM"), SignalOutcome::Ending);
            wait_until(|| others.is_stopped.load(SeqCst));
            wait_until(|| ending.signal("SIGTERM") == SignalOutcome::Again);
        }
    }

    #[test]
    fn what_runs_is_waited_for_until_it_ends() {
        let (ending, others) = ending(u64::MAX, true);
        ending.signal("SIGTERM");
        wait_until(|| others.asked.load(SeqCst) > 3);
        assert!(!others.is_stopped.load(SeqCst));
        others.is_busy.store(false, SeqCst);
        wait_until(|| others.is_stopped.load(SeqCst));
    }

    #[test]
    fn a_second_signal_ends_the_wait_and_a_third_the_process() {
        let (ending, others) = ending(3600, true);
        assert_eq!(ending.signal("SIGINT"), SignalOutcome::Ending);
        wait_until(|| others.asked.load(SeqCst) > 1);
        assert_eq!(ending.signal("SIGINT"), SignalOutcome::Ending);
        assert_eq!(ending.signal("SIGINT"), SignalOutcome::Again);
        wait_until(|| others.is_stopped.load(SeqCst));
    }
}
