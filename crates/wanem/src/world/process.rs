//! Processes of a lab: which die together, and which signals they get.

use std::cell::Cell;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, set_parent_process_death_signal, wait,
};

use crate::{Error, sys};

/// Ties pid 1 of a lab to the process that started it, by one end of a pipe and a signal at that process's
/// death.
#[derive(Debug)]
pub struct Leash {
    pipe: OwnedFd,
}

impl Leash {
    /// Makes the pipe. The starting process keeps the writing end until it dies; the child gets the number of
    /// the reading end.
    pub fn make() -> Result<(PipeWriter, PipeReader, i32), Error> {
        let failed = || Error::io("cannot make a pipe");
        let (reader, writer) = io::pipe().map_err(failed())?;
        sys::keep_on_exec(reader.as_fd()).map_err(failed())?;
        let number = reader.as_raw_fd();
        Ok((writer, reader, number))
    }

    /// Takes the reading end: from now on, this process dies with the one that started it.
    pub fn take(number: i32) -> Result<Leash, Error> {
        let failed = || Error::io("this verb is for farhaul itself");
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| failed()(error.into()))?;
        // Opening it by its path needs no trust in the number: a number that is not a descriptor gives an
        // error.
        let path = format!("/proc/self/fd/{number}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let pipe = open(path, flags, Mode::empty()).map_err(|error| failed()(error.into()))?;
        sys::close_on_exec(number).map_err(failed())?;
        let leash = Leash { pipe };
        if leash.is_cut() {
            // The starting process died before the signal was set.
            return Err(failed()(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(leash)
    }

    /// Whether the process at the other end is gone.
    pub fn is_cut(&self) -> bool {
        let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&Timespec::default()));
        ready.is_ok_and(|ready| ready > 0)
    }
}

/// The signals that ask a lab to end.
#[derive(Debug)]
pub struct Signals(());

impl Signals {
    /// From now on, these signals are remembered instead of ending the process.
    pub fn catch() -> Result<Signals, Error> {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            sys::catch(signal).map_err(Error::io("cannot watch for signals"))?;
        }
        Ok(Signals(()))
    }

    /// Whether a signal has come since the last call that asks for an end, whatever its source. A terminal's
    /// keys do not count.
    pub fn wants_end(&self) -> bool {
        matches!(self.take(), Some(libc::SIGTERM | libc::SIGHUP))
    }

    /// A signal that has come since the last call.
    pub fn take(&self) -> Option<i32> {
        sys::take_caught()
    }
}

/// Waits for the second process of a lab and returns its exit code as a shell would. Requests to end are
/// passed on; signals of a terminal reach the process by themselves.
pub fn wait_for_child(child: &mut Child, signals: &Signals) -> Result<u8, Error> {
    let pid = Pid::from_child(child);
    loop {
        if let Some(status) = wait_a_while(child)? {
            return Ok(code(status));
        }
        if signals.wants_end() {
            // The process may have ended meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn wait_a_while(child: &mut Child) -> Result<Option<ExitStatus>, Error> {
    sleep_until_end(handle_of(Pid::from_child(child)).as_ref(), Duration::from_millis(500));
    child.try_wait().map_err(Error::io("cannot wait for the lab"))
}

/// A descriptor that is ready when the process has ended; `None` if it has been collected already, and on
/// kernels before 5.3 or behind a filter that refuses the call.
fn handle_of(pid: Pid) -> Option<OwnedFd> {
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Sleeps until the process has ended, a signal comes or the time is over; without a handle for a moment only.
fn sleep_until_end(handle: Option<&OwnedFd>, time: Duration) {
    match handle {
        Some(handle) => sleep_on(handle, time),
        None => std::thread::sleep(time.min(Duration::from_millis(10))),
    }
}

/// The processes that pid 1 has to collect when they end: its own children, and orphans.
#[derive(Debug)]
pub struct Orphans {
    /// The process whose end is waited for; `None` once it is collected, as its number may be used again.
    main: Cell<Option<Pid>>,
    handle: Option<OwnedFd>,
}

impl Orphans {
    /// Watches the process `pid`.
    pub fn of(pid: u32) -> Orphans {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Orphans { main: Cell::new(pid), handle: pid.and_then(handle_of) }
    }

    /// Sends SIGTERM to the watched process.
    pub fn ask_to_end(&self) {
        if let Some(main) = self.main.get() {
            // The process may have ended meanwhile.
            let _ = kill_process(main, Signal::TERM);
        }
    }

    /// Sleeps until the watched process has ended, a signal comes or the time is over. Returns all processes
    /// that have ended.
    pub fn collect(&self, time: Duration) -> Vec<(u32, ExitStatus)> {
        sleep_until_end(self.handle.as_ref(), time);
        let next = || wait(WaitOptions::NOHANG).ok().flatten();
        std::iter::from_fn(next)
            .map(|(pid, status)| {
                if self.main.get() == Some(pid) {
                    self.main.set(None);
                }
                (pid.as_raw_nonzero().get().cast_unsigned(), ExitStatus::from_raw(status.as_raw()))
            })
            .collect()
    }
}

/// Sleeps until the descriptor is ready, a signal comes or the time is over.
pub(crate) fn sleep_on(fd: &OwnedFd, time: Duration) {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // An interruption is one of the reasons to wake.
    let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout));
}

/// The exit code, or 128 plus the signal's number.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).map_or(u8::MAX, |code| code as u8)
}
