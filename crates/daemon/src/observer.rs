//! The interface for observers of what clients do. The service is one: it counts and records.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use farhaul_copy::Report;
use farhaul_session::Handle;
use farhaul_words::{Error, SessionReport};

/// Observes all sessions of a daemon.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A client was let in.
    fn arrives(&self, visitor: Arc<ClientInfo>) -> Box<dyn SessionObserver>;
}

/// Observes the requests of one session.
pub trait SessionObserver: Send + Sync {
    /// A request begins. The result is dropped when the request is over, however it ends.
    fn begins(&self, handle: &Handle) -> Arc<dyn Any + Send + Sync>;

    /// A request has ended. A request that ends with a fault of this program is not reported.
    fn ended(&self, ended: &RequestEnd<'_>);
}

/// The client of a session.
#[derive(Debug)]
pub struct ClientInfo {
    /// The address, with a port.
    pub peer: String,
    /// The fingerprint of the principal's key.
    pub key: String,
    /// The comment of that key in the file of keys.
    pub comment: String,
    /// The key that has come on the principal's behalf, with a grant.
    pub bearer: Option<String>,
}

/// How a request has ended.
#[derive(Debug)]
pub struct RequestEnd<'a> {
    /// `push` or `pull`, seen from the client; `read`; `third` for a copy with another daemon on behalf of
    /// the client; `none` if the request was not understood.
    pub direction: &'static str,
    /// Paths as the client has written them: the destination of a push, the sources of a pull, or this end's
    /// path of a copy with another daemon.
    pub paths: Vec<String>,
    /// The location at the other daemon, if there is one.
    pub far: Option<String>,
    /// True if content went out from here.
    pub sends: bool,
    /// The session's report.
    pub session: &'a SessionReport,
    /// The report about the files; `None` for reads.
    pub report: Option<&'a Report>,
    /// Why it ended early, if it did.
    pub error: Option<&'a Error>,
}
