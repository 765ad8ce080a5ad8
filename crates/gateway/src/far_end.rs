//! The session with the far end. It is begun when it is needed, and begun again when it has ended.

use std::sync::Arc;

use farhaul::Handle;
use farhaul::copy::Location;
use farhaul::options::NetworkOptions;
use farhaul::read::{Dial, LastingRemote, PathKind, Patience, Remote};
use farhaul_words::{Code, Error};

pub(crate) struct FarEnd(Arc<LastingRemote>);

impl FarEnd {
    /// Connects, so that a place that is not there is known before anybody asks.
    pub(crate) fn open(place: Location, network: NetworkOptions) -> Result<FarEnd, Error> {
        let connect = move |caller: &Handle| match &place {
            // Readers get nothing that lies elsewhere on this host, whatever links there are.
            Location::Local(directory) => Remote::within(directory, std::slice::from_ref(directory)),
            place => Remote::called_by(caller, place, network.clone()),
        };
        let remote = connect(&Handle::new())?;
        if remote.stat(b"")?.kind != PathKind::Directory {
            return Err(Error::new(Code::NotADirectory, "what is to be served is not a directory"));
        }
        let again: Dial = Box::new(move |caller| {
            connect(caller).inspect_err(|error| tracing::warn!(%error, "the far end cannot be reached"))
        });
        Ok(FarEnd(LastingRemote::begun(again, remote)))
    }

    /// Calls `work` with the session. If it was lost meanwhile, another one is begun, and `work` is called once more.
    /// Blocks.
    pub(crate) fn with<T>(&self, work: impl Fn(&Remote) -> Result<T, Error>) -> Result<T, Error> {
        self.0.ask(Patience::OneAttempt, work)
    }

    /// The session. Blocks while it is begun.
    pub(crate) fn remote(&self) -> Result<Arc<Remote>, Error> {
        self.0.session(Patience::OneAttempt).map(|(_, remote)| remote)
    }
}
