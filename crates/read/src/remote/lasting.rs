//! A location whose session is begun when it is needed, and begun again when it was lost; and a file there that is
//! opened again with it.
//!
//! Always true: at most one thread connects, whatever number of callers waits for it, and none of them is held up by it;
//! a far end that breaks the protocol is not asked the same again; a file's bytes are of one version.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_session::handle::Handle;
use farhaul_words::{Code, Error};

use super::{FileIdentity, Remote, RemoteFile};

/// Connects to the location; the handle cancels that.
pub type Dial = Box<dyn Fn(&Handle) -> Result<Remote, Error> + Send + Sync>;

/// How long a failure to connect is the answer to all callers that take one.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);
/// How often it is tried to connect: the first pause and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(5));
/// A waiting caller looks this often whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a caller that takes a failure for an answer asks the same: a far end may be lost by what it is asked.
const ASKED_MAX: u32 = 2;

/// What a caller does while there is no session.
#[derive(Clone, Copy)]
pub enum Patience<'a> {
    /// It waits for one attempt to connect, whose failure is its answer.
    OneAttempt,
    /// It waits for as many attempts as it takes, while this says so.
    While(&'a dyn Fn() -> bool),
}

/// A location that may be lost and found again. Any number of threads may call it; all share one session.
pub struct LastingRemote {
    dial: Dial,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    session: Option<(u64, Arc<Remote>)>,
    next: u64,
    /// Cancels the attempt that is under way.
    attempt: Option<Handle>,
    /// The last attempt that has failed, and when that was.
    failed: Option<(Instant, Error)>,
    /// When somebody has last wanted a session who waits for several attempts.
    wanted: Option<Instant>,
    is_closed: bool,
}

impl LastingRemote {
    /// A location to which nobody connects before something is asked.
    pub fn new(dial: Dial) -> Arc<LastingRemote> {
        Arc::new(LastingRemote { dial, state: Mutex::default(), changed: Condvar::new() })
    }

    /// A location with which there is a session already.
    pub fn begun(dial: Dial, first: Remote) -> Arc<LastingRemote> {
        let state = State { session: Some((0, Arc::new(first))), next: 1, ..State::default() };
        Arc::new(LastingRemote { dial, state: Mutex::new(state), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().in_any_case()
    }

    /// The session and its number. Waits while there is none.
    pub fn session(self: &Arc<Self>, patience: Patience<'_>) -> Result<(u64, Arc<Remote>), Error> {
        let asked = Instant::now();
        let mut state = self.state();
        loop {
            if state.is_closed {
                return Err(Error::interrupted());
            }
            if let Some((number, remote)) = &state.session {
                if remote.ended().is_none() {
                    return Ok((*number, remote.clone()));
                }
                state.session = None;
            }
            match patience {
                Patience::While(goes_on) if !goes_on() => return Err(Error::interrupted()),
                Patience::While(_) => state.wanted = Some(Instant::now()),
                Patience::OneAttempt => {
                    if let Some((at, error)) = &state.failed
                        && (*at >= asked || holds(*at, error))
                    {
                        return Err(error.clone());
                    }
                }
            }
            if state.attempt.is_none() {
                self.begin_attempts(&mut state)?;
            }
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.map_or_else(|poison| poison.into_inner().0, |waited| waited.0);
        }
    }

    /// Asks the far end. If the session is lost meanwhile, the next one is asked: once more, or as often as the
    /// patience goes.
    pub fn ask<T>(
        self: &Arc<Self>,
        patience: Patience<'_>,
        question: impl Fn(&Remote) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.ask_numbered(patience, |_, remote| question(remote))
    }

    fn ask_numbered<T>(
        self: &Arc<Self>,
        patience: Patience<'_>,
        question: impl Fn(u64, &Remote) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for times in 1.. {
            let (number, remote) = self.session(patience)?;
            let error = match question(number, &remote) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_last = matches!(patience, Patience::OneAttempt) && times == ASKED_MAX;
            match remote.ended() {
                // This far end would do it again.
                Some(ended) if ended.code() == Code::Misbehaved => return Err(ended),
                Some(_) if !is_last => {}
                _ => return Err(error),
            }
        }
        Err(Error::bug("the end of asking"))
    }

    /// Ends the session, or the attempt to begin one. Calls under way fail, and the next call begins another session.
    pub fn interrupt(&self) {
        let mut state = self.state();
        if let Some(attempt) = &state.attempt {
            attempt.cancel();
        }
        let session = state.session.take();
        drop(state);
        if let Some((_, remote)) = &session {
            remote.handle().cancel();
        }
        // Whoever still reads lets the session go.
        drop(session);
    }

    /// The same for good: whoever waits, and whoever calls later, gets an error.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
        self.interrupt();
    }

    /// Returns whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    fn begin_attempts(self: &Arc<Self>, state: &mut State) -> Result<(), Error> {
        let attempt = Handle::new();
        let (place, handle) = (Arc::downgrade(self), attempt.clone());
        let dialling = std::thread::Builder::new().name("dial".into()).spawn(move || dial(&place, handle));
        dialling.map_err(Error::no_thread)?;
        state.attempt = Some(attempt);
        Ok(())
    }
}

/// Whether a failed attempt is the answer to later callers, too. One that was cancelled says nothing about the place.
fn holds(at: Instant, error: &Error) -> bool {
    error.code() != Code::Interrupted && at.elapsed() < FAILURE_HOLDS
}

/// Connects until there is a session, or nobody waits for several attempts.
fn dial(place: &Weak<LastingRemote>, mut attempt: Handle) {
    let mut pause = PAUSES.0;
    loop {
        let Some(here) = place.upgrade() else { return };
        let dialled = (here.dial)(&attempt);
        let mut state = here.state();
        match dialled {
            // Whoever has closed the place meanwhile gets no session.
            Ok(remote) if !state.is_closed => {
                let number = state.next;
                state.next += 1;
                state.session = Some((number, Arc::new(remote)));
                (state.attempt, state.failed) = (None, None);
                drop(state);
                here.changed.notify_all();
                return;
            }
            Ok(_) => {}
            Err(error) => state.failed = Some((Instant::now(), error)),
        }
        let is_wanted = state.wanted.is_some_and(|wanted| wanted.elapsed() <= PAUSES.1);
        if state.is_closed || !is_wanted {
            state.attempt = None;
            drop(state);
            here.changed.notify_all();
            return;
        }
        attempt = Handle::new();
        state.attempt = Some(attempt.clone());
        drop(state);
        here.changed.notify_all();
        drop(here);
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// A file of a [`LastingRemote`]. Each session opens it anew, and reads it only as long as it is the version that was
/// opened first.
pub struct LastingFile {
    place: Arc<LastingRemote>,
    path: Vec<u8>,
    identity: FileIdentity,
    /// The open file, and the number of the session that it belongs to.
    open: Mutex<Option<(u64, Arc<RemoteFile>)>>,
}

impl LastingFile {
    /// Opens a file.
    pub fn open(
        place: &Arc<LastingRemote>,
        path: &[u8],
        patience: Patience<'_>,
    ) -> Result<LastingFile, Error> {
        let (number, file) =
            place.ask_numbered(patience, |number, remote| Ok((number, Arc::new(remote.file(path)?))))?;
        let identity = *file.identity();
        let open = Mutex::new(Some((number, file)));
        Ok(LastingFile { place: place.clone(), path: path.to_vec(), identity, open })
    }

    /// A file that is to be opened when it is read, and must be this version then.
    pub fn expected(place: &Arc<LastingRemote>, path: &[u8], identity: FileIdentity) -> LastingFile {
        LastingFile { place: place.clone(), path: path.to_vec(), identity, open: Mutex::default() }
    }

    /// The identity of the version that is read.
    pub fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.identity.size
    }

    /// Does something with the open file. If the session is lost meanwhile, it is done once more with the next one, as
    /// [`LastingRemote::ask`] asks.
    pub fn ask<T>(
        &self,
        patience: Patience<'_>,
        question: impl Fn(&RemoteFile) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.place.ask_numbered(patience, |number, remote| question(&*self.opened(number, remote)?))
    }

    /// Opens the file, if this session has not done so.
    pub fn opened_within(&self, patience: Patience<'_>) -> Result<(), Error> {
        self.ask(patience, |_| Ok(()))
    }

    /// Lets the far end close the file; the next read opens it again.
    pub fn let_go(&self) {
        *self.open.lock().in_any_case() = None;
    }

    fn opened(&self, number: u64, remote: &Remote) -> Result<Arc<RemoteFile>, Error> {
        if let Some((of, file)) = &*self.open.lock().in_any_case()
            && *of == number
        {
            return Ok(file.clone());
        }
        let file = Arc::new(remote.file(&self.path)?);
        if !is_same(file.identity(), &self.identity) {
            return Err(Error::new(Code::SourceChanged, "the file has changed since it was opened"));
        }
        *self.open.lock().in_any_case() = Some((number, file.clone()));
        Ok(file)
    }
}

/// Whether both are one version. The number of a file system may change when its host is started anew.
fn is_same(one: &FileIdentity, other: &FileIdentity) -> bool {
    FileIdentity { device: 0, ..*one } == FileIdentity { device: 0, ..*other }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

    use super::*;

    /// A directory of this host; `fails` says how many attempts to connect to it fail first.
    fn place(directory: &Path, fails: u32) -> (Arc<LastingRemote>, Arc<AtomicU32>) {
        let (directory, attempts) = (directory.to_path_buf(), Arc::new(AtomicU32::new(0)));
        let counted = attempts.clone();
        let dial = move |_: &Handle| match counted.fetch_add(1, SeqCst) {
            number if number < fails => Err(Error::new(Code::NotListening, format!("attempt {number}"))),
            _ => Remote::open(&directory),
        };
        (LastingRemote::new(Box::new(dial)), attempts)
    }

    #[test]
    fn a_lost_session_is_begun_again_and_a_file_is_opened_again_with_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"content").unwrap();
        let (place, attempts) = place(folder.path(), 0);
        let file = LastingFile::open(&place, b"file", Patience::OneAttempt).unwrap();
        for session in 0..3 {
            assert_eq!(file.ask(Patience::OneAttempt, |file| file.read_at(3, 4)).unwrap(), b"tent");
            assert_eq!(place.session(Patience::OneAttempt).unwrap().0, session);
            place.interrupt();
        }
        assert_eq!(attempts.load(SeqCst), 3);
    }

    #[test]
    fn another_version_is_not_read_after_a_session_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"old content").unwrap();
        let (place, _) = place(folder.path(), 0);
        let file = LastingFile::open(&place, b"file", Patience::OneAttempt).unwrap();
        place.interrupt();
        std::fs::write(folder.path().join("new"), b"new content").unwrap();
        std::fs::rename(folder.path().join("new"), path).unwrap();
        let read = file.ask(Patience::OneAttempt, |file| file.read_at(0, 100));
        assert!(read.is_err_and(|error| error.code() == Code::SourceChanged));
    }

    #[test]
    fn one_attempt_fails_for_everybody_and_many_attempts_find_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let (place, attempts) = place(folder.path(), 3);
        for _ in 0..10 {
            let failed = place.session(Patience::OneAttempt).err().unwrap();
            assert!(failed.to_string().contains("attempt"), "{failed}");
        }
        assert!(attempts.load(SeqCst) < 4);
        let found = place.session(Patience::While(&|| true)).unwrap();
        assert_eq!((found.0, attempts.load(SeqCst)), (0, 4));
    }

    #[test]
    fn an_attempt_that_was_cancelled_is_no_answer_to_later_callers() {
        let folder = tempfile::tempdir().unwrap();
        let (path, attempts) = (folder.path().to_path_buf(), AtomicU32::new(0));
        let dial = move |_: &Handle| match attempts.fetch_add(1, SeqCst) {
            0 => Err(Error::interrupted()),
            _ => Remote::open(&path),
        };
        let place = LastingRemote::new(Box::new(dial));
        assert_eq!(place.session(Patience::OneAttempt).err().unwrap().code(), Code::Interrupted);
        assert_eq!(place.session(Patience::OneAttempt).unwrap().0, 0);
    }

    #[test]
    fn whoever_waits_is_let_go_when_it_is_not_wanted_or_the_place_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (place, _) = place(folder.path(), u32::MAX);
        let goes_on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let waits = || place.session(Patience::While(&|| goes_on.load(SeqCst))).err().unwrap();
            let waiting = scope.spawn(waits);
            goes_on.store(false, SeqCst);
            assert_eq!(waiting.join().unwrap().code(), Code::Interrupted);
            let waiting = scope.spawn(|| place.session(Patience::While(&|| true)).err().unwrap());
            place.close();
            assert_eq!(waiting.join().unwrap().code(), Code::Interrupted);
        });
        assert_eq!(place.session(Patience::OneAttempt).err().unwrap().code(), Code::Interrupted);
    }
}
