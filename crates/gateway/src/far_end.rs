//! The session with the far end. It is begun when it is needed, and begun again when it has ended.
//!
//! Always true: one thread at a time connects; while the far end cannot be reached, it is asked once a second at most,
//! whatever number of requests waits for it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul::copy::Location;
use farhaul::options::NetworkOptions;
use farhaul::read::{PathKind, Remote};
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error, ExitCode};

/// How long a failure to connect is the answer to all requests.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);

pub(crate) struct FarEnd {
    place: Location,
    network: NetworkOptions,
    session: Mutex<Session>,
}

#[derive(Default)]
struct Session {
    remote: Option<Arc<Remote>>,
    /// When the last attempt to connect has failed, and why.
    failed: Option<(Instant, Code, String)>,
}

impl FarEnd {
    /// Connects, so that a place that is not there is known before anybody asks.
    pub(crate) fn open(place: Location, network: NetworkOptions) -> Result<FarEnd, Error> {
        let far_end = FarEnd { place, network, session: Mutex::default() };
        let remote = far_end.connect()?;
        let entry = remote.stat(b"")?;
        far_end.session.lock().in_any_case().remote = Some(Arc::new(remote));
        match entry.kind {
            PathKind::Directory => Ok(far_end),
            _ => Err(Error::new(Code::NotADirectory, "what is to be served is not a directory")),
        }
    }

    /// Calls `work` with the session. If it was lost meanwhile, another one is begun, and `work` is called once more.
    /// Blocks.
    pub(crate) fn with<T>(&self, work: impl Fn(&Remote) -> Result<T, Error>) -> Result<T, Error> {
        let remote = self.remote()?;
        match work(&remote) {
            Err(error) if error.exit_code() == ExitCode::Lost && remote.ended().is_some() => {
                work(&*self.remote()?)
            }
            done => done,
        }
    }

    fn connect(&self) -> Result<Remote, Error> {
        match &self.place {
            // Readers get nothing that lies elsewhere on this host, whatever links there are.
            Location::Local(directory) => Remote::within(directory, std::slice::from_ref(directory)),
            place => Remote::at(place, self.network.clone()),
        }
    }

    /// The session. Blocks while it is begun.
    pub(crate) fn remote(&self) -> Result<Arc<Remote>, Error> {
        let mut session = self.session.lock().in_any_case();
        if let Some(remote) = session.remote.as_ref().filter(|remote| remote.ended().is_none()) {
            return Ok(remote.clone());
        }
        if let Some((at, code, what)) = &session.failed
            && at.elapsed() < FAILURE_HOLDS
        {
            return Err(Error::new(*code, what.clone()));
        }
        match self.connect() {
            Ok(remote) => {
                let remote = Arc::new(remote);
                *session = Session { remote: Some(remote.clone()), failed: None };
                Ok(remote)
            }
            Err(error) => {
                tracing::warn!(%error, "the far end cannot be reached");
                session.remote = None;
                session.failed = Some((Instant::now(), error.code(), error.what().to_string()));
                Err(error)
            }
        }
    }
}
