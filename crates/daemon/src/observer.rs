//! Who wants to see what clients do: the service, which counts and records it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use farhaul_copy::Report;
use farhaul_session::{Error, Handle, SessionReport};

/// Sees all sessions of a daemon.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A client has been let in.
    fn arrives(&self, visitor: Arc<ClientInfo>) -> Box<dyn SessionObserver>;
}

/// Sees the requests of one session.
pub trait SessionObserver: Send + Sync {
    /// A request begins. What this returns is dropped when the request is over, however it ends.
    fn begins(&self, handle: &Handle) -> Arc<dyn Any + Send + Sync>;

    /// A request has ended. One that ends in a fault of our own is not told.
    fn ended(&self, ended: &RequestEnd<'_>);
}

/// Who has come.
#[derive(Debug)]
pub struct ClientInfo {
    /// The address, with a port.
    pub peer: String,
    /// Fingerprint of the key.
    pub key: String,
    /// What the list of keys calls it.
    pub comment: String,
    /// Whose key has come in its place.
    pub bearer: Option<String>,
}

/// How a request has ended.
#[derive(Debug)]
pub struct RequestEnd<'a> {
    /// `push` or `pull`, seen from the client, `read`, or `third` for what this daemon did with another one for the client; `none` if
    /// it was not understood.
    pub direction: &'static str,
    /// Paths as the client has written them: the destination of a push, the sources of a pull, this end's of what was done
    /// with another daemon.
    pub paths: Vec<String>,
    /// The location at the other daemon, if there is one.
    pub far: Option<String>,
    /// Content went out from here.
    pub sends: bool,
    /// What the session has to say.
    pub session: &'a SessionReport,
    /// What has become of the files; none for reads.
    pub report: Option<&'a Report>,
    /// Why it ended early, if it did.
    pub error: Option<&'a Error>,
}
