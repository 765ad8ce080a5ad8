//! Keeps SIGPIPE from ending the program: a C program has no handler for it as a rule, and a connection or a pipe to
//! ssh whose other end is gone is an error of a call.
//!
//! The signal is blocked while a call runs, and so in all threads of the library, which inherit the mask of the thread
//! that starts them. What a call has caused is taken before the mask is as it was.

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks the signal on this thread until it is dropped.
pub(crate) struct BrokenPipe {
    /// The mask to go back to; `None` if the signal was blocked before.
    before: Option<libc::sigset_t>,
}

/// The set with this signal only.
fn sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call makes the set, the second one changes it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the first call fills the set, which the second one reads.
    unsafe {
        libc::sigpending(pending.as_mut_ptr()) == 0 && libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
    }
}

impl BrokenPipe {
    pub(crate) fn block() -> BrokenPipe {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets live as long as the call, which fills the second one.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe(), before.as_mut_ptr()) };
        if blocked != 0 {
            return BrokenPipe { before: None };
        }
        // SAFETY: the call has filled it.
        let before = unsafe { before.assume_init() };
        // SAFETY: the set is whole.
        let was_blocked = unsafe { libc::sigismember(&before, libc::SIGPIPE) } == 1;
        BrokenPipe { before: (!was_blocked).then_some(before) }
    }
}

impl Drop for BrokenPipe {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        if is_pending() {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the set and the time live as long as the call; it takes the signal, which is blocked.
            unsafe { libc::sigtimedwait(&sigpipe(), ptr::null_mut(), &now) };
        }
        // SAFETY: the mask is the one that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    }
}
