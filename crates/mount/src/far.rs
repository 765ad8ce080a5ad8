//! The session with the far host. When it breaks, a thread makes a new one as long as somebody wants it, and what was
//! asked meanwhile is asked again.
//!
//! Always true: at most one thread connects; a far end that breaks the protocol is not asked the same again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use farhaul::errors::Code;
use farhaul::read::Remote;
use farhaul::{Error, Handle};
use farhaul_handover::Held as _;
use rustix::io::Errno;

/// Connects to the location; the handle cancels that.
pub type Dial = Box<dyn Fn(&Handle) -> Result<Remote, Error> + Send + Sync>;

/// How often it is tried to connect: the first pause and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(5));
/// A waiting thread looks this often whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Far {
    dial: Dial,
    caller: Handle,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    session: Option<(u64, Arc<Remote>)>,
    next: u64,
    is_dialling: bool,
    /// When somebody has last wanted a session.
    wanted: Instant,
    is_closed: bool,
}

impl Far {
    pub(crate) fn new(dial: Dial, caller: Handle, first: Remote) -> Arc<Far> {
        let state = State {
            session: Some((0, Arc::new(first))),
            next: 1,
            is_dialling: false,
            wanted: Instant::now(),
            is_closed: false,
        };
        Arc::new(Far { dial, caller, state: Mutex::new(state), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().in_any_case()
    }

    /// The session and its number; waits for one while `goes_on` says so.
    pub(crate) fn session(self: &Arc<Far>, goes_on: &dyn Fn() -> bool) -> Result<(u64, Arc<Remote>), Errno> {
        let mut state = self.state();
        loop {
            if state.is_closed || !goes_on() {
                return Err(Errno::IO);
            }
            if let Some((number, remote)) = &state.session {
                if remote.ended().is_none() {
                    return Ok((*number, remote.clone()));
                }
                state.session = None;
            }
            state.wanted = Instant::now();
            if !state.is_dialling {
                state.is_dialling = true;
                let far = Arc::downgrade(self);
                let dialling = std::thread::Builder::new().name("dial".into()).spawn(move || redial(&far));
                state.is_dialling = dialling.is_ok();
            }
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.map_or_else(|poison| poison.into_inner().0, |waited| waited.0);
        }
    }

    /// Asks the far end, again after each loss of the session while `goes_on` says so.
    pub(crate) fn ask<T>(
        self: &Arc<Far>,
        goes_on: &dyn Fn() -> bool,
        question: impl Fn(u64, &Remote) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        loop {
            let (number, remote) = self.session(goes_on)?;
            let error = match question(number, &remote) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match remote.ended() {
                // This far end would do it again.
                Some(ended) if ended.code() == Code::Misbehaved => return Err(Errno::IO),
                Some(_) => continue,
                None => return Err(errno_of(&error)),
            }
        }
    }

    /// Ends the session; whoever waits gets an error.
    pub(crate) fn close(&self) {
        self.caller.cancel();
        let mut state = self.state();
        state.is_closed = true;
        let session = state.session.take();
        drop(state);
        self.changed.notify_all();
        if let Some((_, remote)) = &session {
            remote.handle().cancel();
        }
        // Whoever still reads lets the session go.
        drop(session);
    }
}

/// Connects until there is a session, or nobody has wanted one for a while.
fn redial(far: &Weak<Far>) {
    let mut pause = PAUSES.0;
    loop {
        let Some(here) = far.upgrade() else { return };
        let dialled = (here.dial)(&here.caller);
        let mut state = here.state();
        if let Ok(remote) = dialled {
            let number = state.next;
            state.next += 1;
            state.session = Some((number, Arc::new(remote)));
            state.is_dialling = false;
            drop(state);
            here.changed.notify_all();
            return;
        }
        if state.is_closed || state.wanted.elapsed() > PAUSES.1 {
            state.is_dialling = false;
            return;
        }
        drop(state);
        drop(here);
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

pub(crate) fn errno_of(error: &Error) -> Errno {
    match error.code() {
        Code::NotFound | Code::SourceVanished => Errno::NOENT,
        Code::Forbidden | Code::PermissionDenied => Errno::ACCESS,
        Code::NotADirectory => Errno::NOTDIR,
        Code::SourceChanged => Errno::STALE,
        Code::BadPath => Errno::NAMETOOLONG,
        _ => Errno::IO,
    }
}
