//! The end that reads: it keeps a session with a far location open.
//!
//! How to read it: [`Remote`] has the calls of a program. One thread ("read") keeps the session going and
//! gets the server's messages (`remote/client_session.rs`), another one hands arriving content to the calls
//! that wait for it. All waiting calls are in one table (`remote/pending_calls.rs`). [`RemoteFile`],
//! [`RangeQueue`] and [`RangeReader`] are in `remote/file.rs`, [`RemoteList`] is in `remote/list.rs`. A
//! [`LastingRemote`] holds a [`Remote`] and begins another one when it was lost (`remote/lasting.rs`).
//!
//! Always true: a waiting call is woken by an answer or by the end of the session. Content that a server
//! sends unasked ends the session.

mod answers;
mod client_session;
mod file;
mod lasting;
mod list;
mod pending_calls;
mod spans;
mod stream_inlet;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::bounded;
use farhaul_connect as connect;
use farhaul_connect::hello::SessionOpening;
use farhaul_connect::{DialRequester, EstablishedSession, HelloParams, PathPrefixes};
use farhaul_copy::{ConfinedPath, Confines, Location, LocationSpec};
use farhaul_session::handle::Handle;
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_text::plain;
use farhaul_volume::{Algorithm, Root, is_way_out};
use farhaul_words::{Code, Error, Failure, SessionReport};

use super::messages::{FileIdentity, FileRange, ListEntry, ReadMessage};
use super::request::{ReadRequest, own_features};
use super::serve::serve_here;
pub use answers::Answers;
use client_session::ClientSession;
pub use file::{RangeQueue, RangeReader, RemoteFile};
pub use lasting::{Dial, LastingFile, LastingRemote, Patience};
pub use list::{Depth, ListItem, RemoteList};
use pending_calls::PendingCall;

/// A location on a far host or on this one, whose files can be read. Any number of threads may call it, and
/// wait at the same time: all share one session. Dropping it ends the session.
pub struct Remote {
    link: Arc<ClientSession>,
    /// The directory where relative paths begin.
    base: Vec<u8>,
    thread: Option<JoinHandle<()>>,
    /// The thread of the far end, if that is in this process.
    serving: Option<JoinHandle<()>>,
    keys: Option<KeyNames>,
}

/// The fingerprints of the keys that two ends have proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyNames {
    /// This end's key.
    pub own: String,
    /// The key of the far end.
    pub far: String,
}

impl Remote {
    /// Connects to a location, which is written as for `farhaul cp`: a local path, `[user@]host:path` over
    /// SSH, `fh://host[:port]/path` at a daemon. Later paths begin there, unless they begin with a slash.
    pub fn open(place: impl AsRef<OsStr>) -> Result<Remote, Error> {
        Remote::at(&LocationSpec::parse(place.as_ref())?.to_location(), NetworkOptions::default())
    }

    /// The same, with options for the network.
    pub fn at(location: &Location, network: NetworkOptions) -> Result<Remote, Error> {
        Remote::called_by(&Handle::new(), location, network)
    }

    /// As [`Remote::called_by`], for somebody who may use only what lies below these directories of the far
    /// host; `None` is everything. A far end that cannot keep to them is refused.
    pub fn kept_within(
        requester: &dyn DialRequester,
        within: Option<PathPrefixes>,
        location: &Location,
        network: NetworkOptions,
    ) -> Result<Remote, Error> {
        match location {
            Location::Local(_) if within.is_some() => Err(Error::new(
                Code::Misuse,
                "a place on this host is kept within directories by Remote::within",
            )),
            location => Remote::asking(requester, ReadRequest { within }, location, network),
        }
    }

    /// The same. The requester is told if the far end takes long to answer, and can cancel while it has not
    /// answered.
    pub fn called_by(
        requester: &dyn DialRequester,
        location: &Location,
        network: NetworkOptions,
    ) -> Result<Remote, Error> {
        Remote::asking(requester, ReadRequest::default(), location, network)
    }

    fn asking(
        requester: &dyn DialRequester,
        request: ReadRequest,
        location: &Location,
        network: NetworkOptions,
    ) -> Result<Remote, Error> {
        contained(|| {
            let opening = request.opening(network)?;
            let params = || HelloParams {
                opening: opening.clone(),
                features: own_features(),
                udp: true,
                early: false,
            };
            let (established, base) = match location {
                Location::Ssh { target, path } => {
                    (connect::ssh_connect(target, params(), requester)?, path.clone())
                }
                Location::Daemon { target, path } => {
                    (connect::daemon_connect(target, params(), requester)?, path.clone())
                }
                Location::Local(path) => {
                    return Remote::here(path.as_os_str().as_bytes().to_vec(), None, &opening);
                }
                Location::Pipe => {
                    return Err(Error::new(Code::BadLocation, "files cannot be read from a pipe"));
                }
            };
            let keys = established.keys.as_ref().zip(established.peer_key.clone());
            let keys = keys.map(|(keys, far)| KeyNames { own: keys.own.fingerprint(), far });
            let (link, thread) = begin(established)?;
            Ok(Remote { link, base, thread: Some(thread), serving: None, keys })
        })
        .flatten()
    }

    /// A directory of this host, for somebody who may use only what lies below `directories`. Paths are
    /// resolved below the directory, whatever they begin with and whatever links are in them.
    pub fn within(directory: &Path, directories: &[PathBuf]) -> Result<Remote, Error> {
        contained(|| {
            let ConfinedPath { root, path, .. } = Confines::of(directories)?.spot(directory)?;
            let root = root.follow(&path).map_err(|error| {
                let what = format!("cannot open {}: {}", directory.display(), plain(&error));
                // Somebody has put the link there since it was judged.
                let code = if is_way_out(&error) { Code::Forbidden } else { Code::of_files(&error) };
                Error::new(code, what)
            })?;
            let opening = ReadRequest::default().opening(NetworkOptions::default())?;
            Remote::here(Vec::new(), Some(root), &opening)
        })
        .flatten()
    }

    /// Both ends in this process.
    fn here(base: Vec<u8>, below: Option<Root>, opening: &SessionOpening) -> Result<Remote, Error> {
        let (near, far) = connect::local_pair(opening, &own_features())?;
        let serve = move || drop(serve_here(far, below));
        let serving = std::thread::Builder::new().name("far-end".into()).spawn(serve);
        let serving = Some(serving.map_err(Error::no_thread)?);
        let (link, thread) = begin(near)?;
        Ok(Remote { link, base, thread: Some(thread), serving, keys: None })
    }

    /// Opens many files, in the order of their paths; some are opened ahead of the one that is read.
    pub fn files<I: IntoIterator<Item = Vec<u8>>>(&self, paths: I) -> Answers<'_, I::IntoIter, RemoteFile> {
        Answers::files(self, paths.into_iter())
    }

    /// The attributes of many paths, in their order; links are followed or not.
    pub fn stats<I: IntoIterator<Item = Vec<u8>>>(
        &self,
        paths: I,
        follow: bool,
    ) -> Answers<'_, I::IntoIter, ListEntry> {
        Answers::stats(self, follow, paths.into_iter())
    }

    /// The digests of many files, computed at the far end, in the order of their paths; each with the number
    /// of bytes that it covers.
    pub fn digests<I: IntoIterator<Item = Vec<u8>>>(
        &self,
        algorithm: Algorithm,
        paths: I,
    ) -> Answers<'_, I::IntoIter, (Vec<u8>, u64)> {
        Answers::digests(self, algorithm, paths.into_iter())
    }

    /// Parts of many files, in the order in which they are asked for, each of the version that its file has when its turn
    /// comes. A range may go beyond the end of its file. Each answer is in memory as a whole.
    pub fn parts<I: IntoIterator<Item = (Vec<u8>, FileRange)>>(
        &self,
        parts: I,
    ) -> Answers<'_, I::IntoIter, Vec<u8>> {
        Answers::parts(self, parts.into_iter())
    }

    /// The handle by which the session is watched, and its rate set.
    pub fn handle(&self) -> &Handle {
        self.link.handle()
    }

    /// The attributes of a path; symbolic links are followed.
    pub fn stat(&self, path: &[u8]) -> Result<ListEntry, Error> {
        self.stat_of(path, true)
    }

    /// The same of a symbolic link itself.
    pub fn stat_link(&self, path: &[u8]) -> Result<ListEntry, Error> {
        self.stat_of(path, false)
    }

    fn stat_of(&self, path: &[u8], follow: bool) -> Result<ListEntry, Error> {
        contained(|| {
            let (put, answer) = bounded(1);
            let path = self.full(path);
            self.link.ask(PendingCall::Stat(put), |op| ReadMessage::Stat { op, path, follow })?;
            self.link.wait(&answer)?.map_err(Error::from)
        })
        .flatten()
    }

    /// Opens a file for reading.
    pub fn file(&self, path: &[u8]) -> Result<RemoteFile, Error> {
        contained(|| {
            let (put, answer) = bounded(1);
            let number = self.link.open(self.full(path), put)?;
            let opened: Result<FileIdentity, Failure> = self.link.wait(&answer)?;
            match opened {
                Ok(identity) => Ok(RemoteFile::new(self.link.clone(), number, identity)),
                Err(failure) => {
                    self.link.close(number);
                    Err(failure.into())
                }
            }
        })
        .flatten()
    }

    /// The entries of a directory, as they come.
    pub fn list(&self, path: &[u8], depth: Depth) -> Result<RemoteList, Error> {
        contained(|| {
            let (path, depth) = (self.full(path), depth.number());
            let list = RemoteList::begin(&self.link, |op, room| ReadMessage::List { op, path, depth, room })?;
            Ok(list.down_to(depth))
        })
        .flatten()
    }

    /// The same, with at most `room` bytes of the list under way or waiting here, for a caller that has little
    /// memory or stops early.
    pub fn list_within(&self, path: &[u8], depth: Depth, room: u64) -> Result<RemoteList, Error> {
        contained(|| {
            let (path, depth) = (self.full(path), depth.number());
            let message = |op, room| ReadMessage::List { op, path, depth, room };
            Ok(RemoteList::begin_within(&self.link, room, message)?.down_to(depth))
        })
        .flatten()
    }

    /// The paths that match a pattern, as `cp` understands it; they can be used as they are.
    pub fn find(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        contained(|| {
            let pattern = self.full(pattern);
            RemoteList::begin(&self.link, |op, room| ReadMessage::Find { op, pattern, room })?.paths()
        })
        .flatten()
    }

    /// The keys that both ends have proved; `None` over ssh, which knows its own, and within this host.
    pub fn keys(&self) -> Option<&KeyNames> {
        self.keys.as_ref()
    }

    /// The error with which the session has ended, if it has ended by itself.
    pub fn ended(&self) -> Option<Error> {
        self.link.ended()
    }

    /// Ends the session, and returns the figures of both ends.
    pub fn finish(mut self) -> Result<SessionReport, Error> {
        contained(|| {
            self.end();
            self.link.outcome()
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

    fn end(&mut self) {
        if self.link.is_here().is_err() {
            // The session goes on in the parent. A thread's handle that is dropped joins nothing.
            return std::mem::forget(self.link.clone());
        }
        self.link.finish();
        for thread in [self.thread.take(), self.serving.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end();
    }
}

fn begin(established: EstablishedSession) -> Result<(Arc<ClientSession>, JoinHandle<()>), Error> {
    let (started, starting) = bounded(1);
    let run = move || {
        client_session::run(established, |link| {
            let _ = started.send(link);
        });
    };
    let thread = std::thread::Builder::new().name("read".into()).spawn(run).map_err(Error::no_thread)?;
    let link = starting.recv().map_err(|_| Error::bug("the start of a read"))??;
    Ok((link, thread))
}

#[cfg(test)]
mod tests;
