//! Signals that end a process, such as that of Ctrl-C: the first one ends the transfer in an orderly way, a
//! later one ends the process at once. When a file grows beyond the limit on file sizes, that file fails and
//! the process goes on.
//!
//! Always true: a signal that was ignored when the process was started (`nohup`, a background job of a
//! script) stays ignored. Signals that come within half a second count as one, as `timeout` sends one to the
//! process and another one to its group.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farhaul::Handle;
use farhaul::errors::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// "File size limit exceeded"; tokio has no name for this signal.
const SIGXFSZ: i32 = rustix::process::Signal::XFSZ.as_raw();

/// A signal that comes within this time after the first one does not count.
const SAME_WITHIN: Duration = Duration::from_millis(500);

/// The signal that has ended the work of this process; 0 for none.
static ENDED_BY: AtomicU8 = AtomicU8::new(0);

/// Whether [`end_on_signal`] watches, so that the first signal does not end the process by itself.
static IS_WATCHING: AtomicBool = AtomicBool::new(false);

/// Returns whether the first signal leaves it to the work to end.
pub fn is_watching() -> bool {
    IS_WATCHING.load(Ordering::Relaxed)
}

/// Returns whether a signal has told the work to end.
pub fn has_ended_work() -> bool {
    ENDED_BY.load(Ordering::Relaxed) != 0
}

/// Returns the exit code of a process whose work was interrupted: 128 plus the number of the signal, as in a
/// shell. Any other interruption counts as Ctrl-C.
pub fn interrupted_code() -> u8 {
    match ENDED_BY.load(Ordering::Relaxed) {
        0 => ExitCode::Interrupted as u8,
        signal => 128 + signal,
    }
}

/// Watches for signals from now on, until the process ends. The first one cancels by `handle`.
pub fn cancel_on_signal(handle: Handle) -> io::Result<()> {
    end_on_signal(move || handle.cancel())
}

/// The same for work that has another handle from time to time. `cancel` is called after [`has_ended_work`] is true.
pub fn end_on_signal(cancel: impl Fn() + Send + 'static) -> io::Result<()> {
    let ignored = ignored_signals();
    let (ready, is_ready) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async move {
            let wanted = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [mut interrupt, mut terminate, mut hangup] = wanted.map(|kind| listen(kind, ignored));
            // The receiver waits only for this message; an error means that it no longer does.
            let _ = ready.send(());
            let mut heard = Heard::default();
            loop {
                let kind = tokio::select! {
                    () = received(&mut interrupt) => SignalKind::interrupt(),
                    () = received(&mut terminate) => SignalKind::terminate(),
                    () = received(&mut hangup) => SignalKind::hangup(),
                };
                match heard.take(Instant::now()) {
                    Meaning::End => {
                        ENDED_BY.store(u8::try_from(kind.as_raw_value()).unwrap_or(0), Ordering::Relaxed);
                        cancel();
                    }
                    Meaning::Same => {}
                    Meaning::EndAtOnce => std::process::exit(interrupted_code().into()),
                }
            }
        });
    })?;
    IS_WATCHING.store(true, Ordering::Relaxed);
    // An error here means that the thread has ended, and then signals act as if there were no handler.
    let _ = is_ready.recv();
    Ok(())
}

/// The effect of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    End,
    /// None: it counts as one with the first signal.
    Same,
    EndAtOnce,
}

/// When the first signal came.
#[derive(Default)]
struct Heard(Option<Instant>);

impl Heard {
    fn take(&mut self, now: Instant) -> Meaning {
        match self.0 {
            None => {
                self.0 = Some(now);
                Meaning::End
            }
            Some(first) if now.saturating_duration_since(first) < SAME_WITHIN => Meaning::Same,
            Some(_) => Meaning::EndAtOnce,
        }
    }
}

/// From now on, a write beyond the limit on the size of files (`ulimit -f`, LimitFSIZE=) fails with "file too
/// large". Without a handler the kernel would end the process. A handler that does nothing is better than
/// ignoring the signal, because programs that this one starts do not inherit it.
pub fn survive_file_size_limit() {
    let ignored = ignored_signals();
    // The handler stays when the runtime is dropped. If it cannot be set up, all is as without it.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() {
        let _inside = runtime.enter();
        drop(listen(SignalKind::from_raw(SIGXFSZ), ignored));
    }
}

/// Calls `hear` for each of these signals from now on, until it yields `false` or the process ends.
pub fn watch(
    kinds: Vec<SignalKind>,
    hear: impl Fn(SignalKind) -> bool + Send + Sync + 'static,
) -> io::Result<()> {
    let ignored = ignored_signals();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut listening: Vec<(SignalKind, Signal)> = Vec::new();
    {
        let _inside = runtime.enter();
        listening.extend(kinds.into_iter().filter_map(|kind| Some((kind, listen(kind, ignored)?))));
    }
    let watch = async move {
        let (told, mut heard) = tokio::sync::mpsc::channel(16);
        for (kind, mut signal) in listening {
            let told = told.clone();
            tokio::spawn(
                async move { while signal.recv().await.is_some() && told.send(kind).await.is_ok() {} },
            );
        }
        while heard.recv().await.is_some_and(&hear) {}
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(watch)).map(|_| ())
}

fn listen(kind: SignalKind, ignored: u64) -> Option<Signal> {
    let bit = u32::try_from(kind.as_raw_value() - 1).ok()?;
    if ignored.checked_shr(bit).unwrap_or(0) & 1 == 1 {
        return None;
    }
    signal(kind).ok()
}

/// Waits for the signal; for ever if there is no listener for it.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => match signal.recv().await {
            Some(()) => {}
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Returns the mask of ignored signals, in which bit 0 is signal 1; 0 if the system does not say.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status").ok().and_then(|status| ignored_mask(&status)).unwrap_or(0)
}

fn ignored_mask(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert_eq!(ignored_mask("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t1\n"), Some(0x1001));
        assert_eq!(ignored_mask("Name:\tx\n"), None);
    }

    #[test]
    fn what_comes_twice_within_half_a_second_is_one() {
        let (mut heard, first) = (Heard::default(), Instant::now());
        assert_eq!(heard.take(first), Meaning::End);
        assert_eq!(heard.take(first), Meaning::Same);
        assert_eq!(heard.take(first + Duration::from_millis(499)), Meaning::Same);
        assert_eq!(heard.take(first + Duration::from_millis(500)), Meaning::EndAtOnce);
    }

    #[test]
    fn an_ignored_signal_gets_no_listener() {
        assert!(listen(SignalKind::hangup(), 1).is_none());
    }
}
