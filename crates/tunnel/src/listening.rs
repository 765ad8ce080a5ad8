//! Takes connections of a listening socket until somebody wants no more of them.
//!
//! Always true: a connection that nobody has joined with a channel ends with a reset.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::mux::reset;

/// How soon a waiting thread notices the end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The pause when the process has no descriptor left for a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Calls `take` for each connection until `is_over`.
pub(crate) fn take_all(listener: &TcpListener, is_over: &dyn Fn() -> bool, mut take: impl FnMut(Taken)) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as _ };
    while !is_over() {
        let mut watched = [PollFd::new(listener, PollFlags::IN)];
        if !matches!(poll(&mut watched, Some(&wait)), Ok(1..)) {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                // Without it, small messages wait; nothing else depends on it.
                let _ = stream.set_nodelay(true);
                take(Taken(Some(stream)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // The connection is gone again, or there is no descriptor for it now.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// A connection that has come.
pub(crate) struct Taken(Option<TcpStream>);

impl Taken {
    /// Its socket, to be joined with a channel.
    pub(crate) fn into_socket(mut self) -> Option<OwnedFd> {
        self.0.take().map(OwnedFd::from)
    }

    /// The connection, for a conversation before it is joined.
    pub(crate) fn stream(&self) -> Option<&TcpStream> {
        self.0.as_ref()
    }

    /// Ends the connection without a reset: its other end has been told why.
    pub(crate) fn end(mut self) {
        self.0.take();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            reset(stream);
        }
    }
}
