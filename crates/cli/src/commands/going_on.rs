//! Going on by itself: a daemon that is restarted, or replaced by another version, ends its sessions, and a copy with it goes
//! on when the daemon is back.
//!
//! Always true: a copy goes on only after its daemon has ended a session, and for a limited time without one. A daemon that
//! ends session after session soon after their beginning has a fault, and is given up. Only a copy that can be made again
//! goes on: what came through a pipe is gone, and a manifest or receipt would miss what an earlier session has brought.

use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::copy::{LocationSpec, Report};
use farhaul::errors::Code;

use crate::args::TransferArgs;

/// The pause before the daemon is dialled again: about the time in which a process starts.
const PAUSE: Duration = Duration::from_millis(500);

/// A session that a daemon has ended sooner than this counts as short.
const SHORT_SECONDS: f64 = 10.0;
/// The most short sessions in a row after which the copy goes on.
const SHORT_MAX: u32 = 2;

pub(super) struct GoingOn {
    /// How long the daemon may be away; `None` for a copy that does not go on.
    wait: Option<Duration>,
    /// When the daemon ended the last session.
    ended: Option<Instant>,
    /// How many sessions in a row were short.
    short: u32,
}

impl GoingOn {
    pub(super) fn new(places: &[LocationSpec], transfer: &TransferArgs, wait: Duration) -> GoingOn {
        let is_repeatable = |place: &LocationSpec| {
            let is_pipe = match place {
                LocationSpec::Local(path) => {
                    path.metadata().is_ok_and(|what| !what.is_file() && !what.is_dir())
                }
                _ => false,
            };
            !is_pipe && !place.is_input() && !place.is_made() && !place.is_sink()
        };
        let has_daemon = places.iter().any(|place| matches!(place, LocationSpec::Daemon(..)));
        let is_listed = transfer.manifest.is_some() || transfer.receipt.is_some();
        let may = places.iter().all(is_repeatable) && has_daemon && !is_listed && !wait.is_zero();
        GoingOn { wait: may.then_some(wait), ended: None, short: 0 }
    }

    /// Returns after which pause the copy is tried again; `None` if it has come to its end.
    pub(super) fn next_pause(
        &mut self,
        report: &Report,
        error: Option<&Error>,
        now: Instant,
    ) -> Option<Duration> {
        let wait = self.wait?;
        let ended = match (error?.code(), self.ended) {
            (Code::PeerEnded, _) => {
                self.short = if report.session.seconds < SHORT_SECONDS { self.short + 1 } else { 0 };
                now
            }
            // So it is seen while it is away, and while it begins.
            (Code::NotListening | Code::Unreachable | Code::UdpBlocked | Code::Busy, Some(ended)) => ended,
            _ => return None,
        };
        self.ended = Some(ended);
        (self.short <= SHORT_MAX && now.duration_since(ended) + PAUSE < wait).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn going_on(words: &str, transfer: &TransferArgs) -> GoingOn {
        let places: Vec<_> =
            words.split(' ').map(|word| LocationSpec::parse(OsStr::new(word)).unwrap()).collect();
        GoingOn::new(&places, transfer, WAIT)
    }

    /// The report of a session of so many seconds.
    fn lasted(seconds: f64) -> Report {
        let mut report = Report::default();
        report.session.seconds = seconds;
        report
    }

    fn ended() -> Error {
        Error::new(Code::PeerEnded, "ended")
    }

    fn unreachable() -> Error {
        Error::new(Code::NotListening, "refused")
    }

    #[test]
    fn only_what_can_be_made_again_goes_on() {
        let (plain, now) = (TransferArgs::default(), Instant::now());
        let tried = |words: &str, transfer: &TransferArgs| {
            going_on(words, transfer).next_pause(&lasted(60.0), Some(&ended()), now).is_some()
        };
        for words in ["a fh://h/b", "fh://h/a b", "fh://h/a fh://g/b"] {
            assert!(tried(words, &plain), "{words}");
        }
        for words in
            ["a h:b", "h:a b", "a b", "- fh://h/b", "fh://h/a -", "random:1G fh://h/b", "fh://h/a null:"]
        {
            assert!(!tried(words, &plain), "{words}");
        }
        let listed = TransferArgs { manifest: Some("m".into()), ..TransferArgs::default() };
        assert!(!tried("a fh://h/b", &listed));
    }

    #[test]
    fn a_daemon_that_stays_away_is_given_up() {
        let (mut going_on, now) = (going_on("a fh://h/b", &TransferArgs::default()), Instant::now());
        let none = lasted(0.0);
        assert!(going_on.next_pause(&none, Some(&unreachable()), now).is_none(), "it has never been there");
        assert!(going_on.next_pause(&lasted(60.0), Some(&ended()), now).is_some());
        for (seconds, goes_on) in [(1, true), (29, true), (30, false)] {
            let then = now + Duration::from_secs(seconds);
            assert_eq!(
                going_on.next_pause(&none, Some(&unreachable()), then).is_some(),
                goes_on,
                "{seconds}"
            );
        }
    }

    #[test]
    fn a_daemon_may_be_restarted_any_number_of_times_but_not_end_each_session_at_once() {
        let mut going_on = going_on("a fh://h/b", &TransferArgs::default());
        let now = Instant::now();
        let mut goes_on = |seconds| going_on.next_pause(&lasted(seconds), Some(&ended()), now).is_some();
        assert!((0..100).all(|_| goes_on(60.0)));
        assert!(goes_on(1.0) && goes_on(1.0) && goes_on(60.0));
        assert!(goes_on(1.0) && goes_on(1.0) && !goes_on(1.0));
    }

    #[test]
    fn the_end_of_a_copy_is_its_end() {
        let mut going_on = going_on("a fh://h/b", &TransferArgs::default());
        assert!(going_on.next_pause(&lasted(60.0), Some(&ended()), Instant::now()).is_some());
        let full = Error::new(Code::FilesFailed, "full");
        assert!(going_on.next_pause(&lasted(60.0), Some(&full), Instant::now()).is_none());
        assert!(going_on.next_pause(&lasted(60.0), None, Instant::now()).is_none());
    }
}
