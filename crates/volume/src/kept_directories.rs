//! How many directories the process keeps open only for later, so that these never take the descriptors that
//! others need now. Each keeper closes its own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// All keepers together have at most one part in so many of the process's descriptors.
const SHARE: u64 = 8;

static KEPT: AtomicU64 = AtomicU64::new(0);

/// Returns whether one must be closed before another is kept. A keeper that has none which it could close may
/// keep one all the same.
pub(crate) fn are_enough() -> bool {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
    KEPT.load(Relaxed) >= most
}

pub(crate) fn keep_one() {
    KEPT.fetch_add(1, Relaxed);
}

pub(crate) fn close(count: usize) {
    KEPT.fetch_sub(count as u64, Relaxed);
}

/// Runs work that needs a descriptor. If there is none, it runs once more after `close_unused`, which returns
/// whether it has closed any.
pub(crate) fn with_descriptor<T>(
    close_unused: impl FnOnce() -> bool,
    work: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    match work() {
        Err(error) if is_out_of_descriptors(&error) && close_unused() => work(),
        done => done,
    }
}

/// Returns whether the process or the host has no descriptor left.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
