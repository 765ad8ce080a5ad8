//! The end that asks: it keeps a session with a far location open.
//!
//! Always true: an answer belongs to the change that was asked for; a session that has failed once fails each later call
//! with the same error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use farhaul_connect as connect;
use farhaul_connect::{DialRequester, HelloParams, PathPrefixes};
use farhaul_copy::{Location, LocationSpec};
use farhaul_fork::Origin;
use farhaul_handover::Held as _;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_volume::FileTime;
use farhaul_words::{Code, Error};

use super::messages::{IntoDirectory, NamesMessage, RemoveExtent, RenameRule};
use super::request::{NamesRequest, own_features};
use super::serve::change_here;

/// How long the far end may take to say that it has heard the end.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// A location on a far host or on this one, whose names can be changed. Any number of threads may call it; the changes
/// are made one after another. Dropping it ends the session.
pub struct RemoteNames {
    origin: Origin,
    handle: Handle,
    /// The directory where relative paths begin.
    base: Vec<u8>,
    /// `None` on this host.
    session: Option<Mutex<NamesSession>>,
}

struct NamesSession {
    dialogue: Option<Dialogue>,
    next_op: u64,
    failed: Option<Error>,
}

impl RemoteNames {
    /// Connects to a location, which is written as for `farhaul cp`. Later paths begin there, unless they begin with a
    /// slash.
    pub fn open(place: impl AsRef<OsStr>) -> Result<RemoteNames, Error> {
        let location = LocationSpec::parse(place.as_ref())?.to_location();
        RemoteNames::called_by(&Handle::new(), None, &location, NetworkOptions::default())
    }

    /// The same, with options for the network, and for somebody who may use only what lies below these directories of
    /// the far host; `None` is everything. The requester is told if the far end takes long to answer, and can cancel
    /// while it has not answered.
    pub fn called_by(
        requester: &dyn DialRequester,
        within: Option<PathPrefixes>,
        location: &Location,
        network: NetworkOptions,
    ) -> Result<RemoteNames, Error> {
        contained(|| {
            let opening = NamesRequest { within }.opening(network)?;
            let params = HelloParams { opening, features: own_features(), udp: true, early: false };
            let (established, base) = match location {
                Location::Ssh { target, path } => {
                    (connect::ssh_connect(target, params, requester)?, path.clone())
                }
                Location::Daemon { target, path } => {
                    (connect::daemon_connect(target, params, requester)?, path.clone())
                }
                Location::Local(path) => {
                    let base = path.as_os_str().as_bytes().to_vec();
                    let handle = Handle::new();
                    return Ok(RemoteNames { origin: Origin::here(), handle, base, session: None });
                }
                Location::Pipe => return Err(Error::new(Code::BadLocation, "a pipe has no names")),
            };
            requester.has_begun_nothing();
            let handle = Handle::new();
            let network = established.opening.network;
            let started = Session::start(
                established.session,
                network,
                ContentRole::Receiver,
                DeliveryOrder::Any,
                &handle,
            )?;
            let session = NamesSession { dialogue: Some(started.1), next_op: 0, failed: None };
            Ok(RemoteNames { origin: Origin::here(), handle, base, session: Some(Mutex::new(session)) })
        })
        .flatten()
    }

    /// The handle of the session; cancelling it ends a call that waits.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Makes a directory. With `parents` those above it are made, too, and it may be there.
    pub fn make_directory(&self, path: &[u8], parents: bool) -> Result<(), Error> {
        let path = self.full(path);
        self.change(|op| NamesMessage::MakeDirectory { op, path, parents })
    }

    /// Gives an entry another name.
    pub fn rename(&self, from: &[u8], to: &[u8], into: IntoDirectory, rule: RenameRule) -> Result<(), Error> {
        let (from, to) = (self.full(from), self.full(to));
        self.change(|op| NamesMessage::Rename { op, from, to, into, rule })
    }

    /// Removes an entry; a link itself, and not what it leads to.
    pub fn remove(&self, path: &[u8], extent: RemoveExtent) -> Result<(), Error> {
        let path = self.full(path);
        self.change(|op| NamesMessage::Remove { op, path, extent })
    }

    /// Sets the time of the last change of an entry's content.
    pub fn set_time(&self, path: &[u8], mtime: FileTime) -> Result<(), Error> {
        let path = self.full(path);
        self.change(|op| NamesMessage::SetTime { op, path, mtime })
    }

    /// Returns whether the session has failed, so that nothing more can be asked.
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.lock().in_any_case().failed.is_some())
    }

    fn change(&self, message: impl FnOnce(u64) -> NamesMessage) -> Result<(), Error> {
        if !self.origin.is_here() {
            return Err(Error::forked("the session"));
        }
        contained(|| match &self.session {
            None => change_here(message(0)),
            Some(session) => session.lock().in_any_case().ask(message, &self.handle),
        })
        .flatten()
    }

    fn full(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() {
            return self.base.clone();
        }
        if path.starts_with(b"/") || self.base.is_empty() {
            return path.to_vec();
        }
        let base = self.base.strip_suffix(b"/").unwrap_or(&self.base);
        [base, b"/", path].concat()
    }
}

impl NamesSession {
    fn ask(&mut self, message: impl FnOnce(u64) -> NamesMessage, handle: &Handle) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(dialogue) = &mut self.dialogue else { return Err(Error::bug("a session of names")) };
        self.next_op += 1;
        let message = message(self.next_op);
        dialogue.request.send_encoded(|out| message.encode(out));
        let answered = await_answer(dialogue, self.next_op, handle);
        match answered {
            Ok(outcome) => outcome,
            Err(error) => {
                dialogue.abort(&error);
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn finish(&mut self) {
        let Some(mut dialogue) = self.dialogue.take() else { return };
        if self.failed.is_none() {
            dialogue.say_finished(Vec::new());
            let end = Instant::now() + FINISH_TIME;
            while Instant::now() < end {
                match dialogue.step_after_finish() {
                    Ok(DialogueStep::Finish(_)) | Err(_) => break,
                    Ok(DialogueStep::Message(_) | DialogueStep::Idle) => {}
                }
            }
        }
        dialogue.close(self.failed.as_ref());
    }
}

/// The outcome of the change; the outer error ends the session.
fn await_answer(dialogue: &mut Dialogue, asked: u64, handle: &Handle) -> Result<Result<(), Error>, Error> {
    loop {
        match dialogue.step()? {
            DialogueStep::Message(bytes) => match NamesMessage::decode(bytes).map_err(senseless)? {
                NamesMessage::Changed { op } if op == asked => return Ok(Ok(())),
                NamesMessage::Failed { op, failure } if op == asked => return Ok(Err(failure.into())),
                other => return Err(unexpected(other.name())),
            },
            DialogueStep::Finish(_) => return Err(unexpected("finish")),
            DialogueStep::Idle if handle.is_cancelled() => return Err(Error::interrupted()),
            DialogueStep::Idle => {}
        }
    }
}

impl Drop for RemoteNames {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if !self.origin.is_here() {
            // The session goes on in the parent, and nothing of it is touched here.
            return std::mem::forget(session);
        }
        session.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).finish();
    }
}
