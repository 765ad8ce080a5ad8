//! The end of the service: no job begins any more, running jobs get some time, and what is left then stops in
//! a way that it can go on later.
//!
//! Always true: the service manager knows that the service is ending, and until when to wait for it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_daemon::ShutdownHook;
use farhaul_handover::Held as _;

use crate::node::{Node, STOP_TIME};
use crate::notify::Manager;

/// How often the service manager is told what the service waits for.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// When the service manager is told again, at the latest.
const NEXT_TELLING: Duration = Duration::from_secs(60);
/// How long the rest takes after all transfers have stopped: requests end, and the store is written.
const REST_TIME: Duration = Duration::from_secs(30);

/// Ends the service.
pub(crate) struct Drain<T> {
    node: Arc<Node>,
    /// How long running jobs and sessions may go on. It is asked when the end begins, as the configuration
    /// may have changed.
    time: T,
    told: Mutex<Option<Instant>>,
}

impl<T: Fn() -> Duration> Drain<T> {
    pub(crate) fn new(node: Arc<Node>, time: T) -> Drain<T> {
        Drain { node, time, told: Mutex::default() }
    }

    /// Tells the service manager what the service waits for, but at most every [`TELL_EVERY`].
    fn tell(&self, jobs: usize, sessions: usize) {
        let mut told = self.told.lock().in_any_case();
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            Manager.stopping(&status(jobs, sessions), Some(NEXT_TELLING));
        }
    }
}

fn status(jobs: usize, sessions: usize) -> String {
    let count = |number: usize, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    let (jobs, sessions) =
        (count(jobs, "job", "jobs"), count(sessions, "session of a client", "sessions of clients"));
    format!("ending: waiting for {jobs} and {sessions}")
}

impl<T: Fn() -> Duration + Send + Sync> ShutdownHook for Drain<T> {
    fn begin(&self) -> Duration {
        self.node.drain();
        (self.time)()
    }

    fn is_busy(&self, sessions: usize) -> bool {
        let jobs = self.node.transfers();
        if jobs > 0 || sessions > 0 {
            self.tell(jobs, sessions);
        }
        jobs > 0
    }

    fn stop(&self) {
        Manager.stopping("ending", Some(STOP_TIME + REST_TIME));
        self.node.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_said_in_words() {
        assert_eq!(status(1, 0), "ending: waiting for 1 job and 0 sessions of clients");
        assert_eq!(status(2, 1), "ending: waiting for 2 jobs and 1 session of a client");
    }

    #[test]
    fn the_unit_of_systemd_leaves_time_for_it() {
        let unit = include_str!("../../../deploy/farhaul.service");
        let allowed = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix('s'));
        let allowed = Duration::from_secs(allowed.and_then(|seconds| seconds.parse().ok()).unwrap());
        let drain = crate::config::Config::default().serve.drain.0;
        assert!(allowed >= drain + STOP_TIME + REST_TIME, "{allowed:?}");
        // The time that was announced does not run out before the manager is told again.
        assert!(NEXT_TELLING > TELL_EVERY * 2);
    }
}
