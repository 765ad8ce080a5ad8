//! Sleeping until a link or another thread wakes the caller, or until a time with nanosecond precision.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::sys;

/// A descriptor to sleep on, and afterwards what happened to it.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct PollFd(pub(crate) libc::pollfd);

impl PollFd {
    /// Wakes when `fd` has something to read, or has ended.
    pub fn readable(fd: RawFd) -> PollFd {
        PollFd(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
    }

    /// Wakes when `fd` takes bytes.
    pub fn writable(fd: RawFd) -> PollFd {
        PollFd(libc::pollfd { fd, events: libc::POLLOUT, revents: 0 })
    }

    /// Wakes when `fd` can be read, and also when it can be written if `writable`.
    pub fn readable_or(fd: RawFd, writable: bool) -> PollFd {
        let events = if writable { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        PollFd(libc::pollfd { fd, events, revents: 0 })
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.fd
    }

    /// Whether this descriptor was ready when the last [`wait`] ended.
    pub fn is_ready(&self) -> bool {
        self.0.revents != 0
    }
}

/// Sleeps until a descriptor is ready, the timeout is over, or a signal has come. `None` waits for ever.
pub fn wait(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<()> {
    match sys::poll(fds, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            fds.iter_mut().for_each(|fd| fd.0.revents = 0);
            Ok(())
        }
        result => result,
    }
}

/// Keeps the calling thread from interrupting others when it wakes (SCHED_BATCH). It runs at once if a core
/// is free; otherwise it waits some milliseconds for its turn. A policy that was chosen for it (`chrt`)
/// stays.
pub fn sched_batch() -> io::Result<()> {
    sys::sched_batch()
}

/// Makes timeouts of the calling thread as exact as the kernel can (1 ns of slack instead of 50 us).
pub fn timer_slack_min() -> io::Result<()> {
    sys::timer_slack_min()
}

/// Wakes a thread that sleeps in [`wait`]. A wake before the sleep counts, and several count as one.
#[derive(Debug, Clone)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// A waker that nobody has woken.
    pub fn new() -> io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waker { event: Arc::new(event) })
    }

    /// Ends the present or next sleep of the thread that waits on [`Waker::poll_fd`].
    pub fn wake(&self) {
        // It fails only if the counter is full, and then the sleeper is woken anyway.
        let _ = rustix::io::write(self.event.as_fd(), &1_u64.to_ne_bytes());
    }

    /// Forgets all wakes so far; returns whether there was one.
    pub fn drain(&self) -> bool {
        rustix::io::read(self.event.as_fd(), &mut [0_u8; 8]).is_ok()
    }

    /// The descriptor that the sleeper passes to [`wait`].
    pub fn poll_fd(&self) -> PollFd {
        PollFd::readable(self.event.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_from_another_thread_ends_the_sleep() {
        let waker = Waker::new().unwrap();
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        let mut fds = vec![waker.poll_fd()];
        wait(&mut fds, None).unwrap();
        assert!(fds[0].is_ready());
        thread.join().unwrap();
        assert!(waker.drain());
        assert!(!waker.drain());
    }

    #[test]
    fn wakes_are_remembered_and_merge() {
        let waker = Waker::new().unwrap();
        (0..1000).for_each(|_| waker.wake());
        let mut fds = vec![waker.poll_fd()];
        wait(&mut fds, Some(Duration::ZERO)).unwrap();
        assert!(fds[0].is_ready());
        assert!(waker.drain());
        wait(&mut fds, Some(Duration::from_micros(10))).unwrap();
        assert!(!fds[0].is_ready());
    }

    #[test]
    fn a_thread_works_as_batch() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38).map(str::to_owned)
        };
        std::thread::spawn(move || {
            let before = policy();
            sched_batch().unwrap();
            // 0 is the usual policy, 3 is batch.
            let expected = if before.as_deref() == Some("0") { Some("3".to_owned()) } else { before };
            assert_eq!(policy(), expected);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn timer_slack_can_be_set() {
        timer_slack_min().unwrap();
    }
}
