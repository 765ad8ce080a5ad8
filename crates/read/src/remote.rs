//! The end that reads: a far place, held open.
//!
//! How to read it: [`Remote`] has the calls of a program. A thread ("read") keeps the session going and hears the server
//! (`remote/client_session.rs`), another one puts what arrives where it is waited for; what is waited for is in one table
//! (`remote/pending_calls.rs`). [`RemoteFile`], [`RangeQueue`] and [`RangeReader`] are in `remote/file.rs`, [`RemoteList`] in `remote/list.rs`.
//!
//! Always true: whoever waits is woken by an answer or by the end of the session; what a server sends unasked ends that.

mod answers;
mod client_session;
mod file;
mod list;
mod pending_calls;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::bounded;
use farhaul_connect as connect;
use farhaul_connect::hello::SessionOpening;
use farhaul_connect::{Caller, EstablishedSession, HelloParams};
use farhaul_copy::{ConfinedPath, LocalConfines, Location, LocationSpec};
use farhaul_session::error::{Code, Error, Failure, plain};
use farhaul_session::handle::Handle;
use farhaul_session::options::NetworkOptions;
use farhaul_session::report::SessionReport;
use farhaul_volume::{Algorithm, Root};

use super::messages::{FileIdentity, ListEntry, ReadMessage};
use super::request::{ReadRequest, own_features};
use super::serve::serve_here;
pub use answers::Answers;
use client_session::ClientSession;
pub use file::{RangeQueue, RangeReader, RemoteFile};
pub use list::{Depth, ListItem, RemoteList};
use pending_calls::PendingCall;

/// A far place, or one of this host, whose files can be read. Its calls may come from any number of threads, and any number of
/// them may wait at once: all of them share one session. Dropped, it ends the session.
pub struct Remote {
    link: Arc<ClientSession>,
    /// Where relative paths begin.
    base: Vec<u8>,
    thread: Option<JoinHandle<()>>,
    /// The far end, where that is here.
    serving: Option<JoinHandle<()>>,
}

impl Remote {
    /// Connects with a place, which is written as for `farhaul cp`: a local path, `[user@]host:path` over SSH,
    /// `fh://host[:port]/path` at a daemon. Paths that are asked for later begin there, if they do not begin with a slash.
    pub fn open(place: impl AsRef<OsStr>) -> Result<Remote, Error> {
        Remote::at(&LocationSpec::parse(place.as_ref())?.to_location(), NetworkOptions::default())
    }

    /// The same, with options for the network.
    pub fn at(location: &Location, network: NetworkOptions) -> Result<Remote, Error> {
        Remote::called_by(&Handle::new(), location, network)
    }

    /// The same. The caller is told when the far end takes long to answer, and can call it off until it has.
    pub fn called_by(
        caller: &dyn Caller,
        location: &Location,
        network: NetworkOptions,
    ) -> Result<Remote, Error> {
        let opening = ReadRequest::default().opening(network)?;
        let params =
            || HelloParams { opening: opening.clone(), features: own_features(), udp: true, early: false };
        let (established, base) = match location {
            Location::Ssh { target, path } => (connect::ssh_connect(target, params(), caller)?, path.clone()),
            Location::Daemon { target, path } => {
                (connect::daemon_connect(target, params(), caller)?, path.clone())
            }
            Location::Local(path) => {
                return Remote::here(path.as_os_str().as_bytes().to_vec(), None, &opening);
            }
            Location::Pipe => {
                return Err(Error::new(Code::BadLocation, "a pipe is no place that can be looked at"));
            }
        };
        let (link, thread) = begin(established)?;
        Ok(Remote { link, base, thread: Some(thread), serving: None })
    }

    /// A directory of this host for somebody who may use nothing of it but what lies below `directories`: where it does, paths are
    /// resolved below it, whatever they begin with and whatever links are in them.
    pub fn within(directory: &Path, directories: &[PathBuf]) -> Result<Remote, Error> {
        let ConfinedPath { root, path } = LocalConfines::of(directories)?.spot(directory)?;
        let root = root.follow(&path).map_err(|error| {
            let what = format!("cannot open {}: {}", directory.display(), plain(&error));
            Error::new(Code::of_files(&error), what)
        })?;
        let opening = ReadRequest::default().opening(NetworkOptions::default())?;
        Remote::here(Vec::new(), Some(root), &opening)
    }

    /// Both ends in this process.
    fn here(base: Vec<u8>, below: Option<Root>, opening: &SessionOpening) -> Result<Remote, Error> {
        let (near, far) = connect::local_pair(opening, &own_features())?;
        let serve = move || drop(serve_here(far, below));
        let serving = std::thread::Builder::new().name("far-end".into()).spawn(serve);
        let serving = Some(serving.map_err(Error::no_thread)?);
        let (link, thread) = begin(near)?;
        Ok(Remote { link, base, thread: Some(thread), serving })
    }

    /// Opens many files, some of them ahead of the one that is read, in the order of their paths.
    pub fn files<I: IntoIterator<Item = Vec<u8>>>(&self, paths: I) -> Answers<'_, I::IntoIter, RemoteFile> {
        Answers::files(self, paths.into_iter())
    }

    /// What there is at many paths, in their order; links are followed or not.
    pub fn stats<I: IntoIterator<Item = Vec<u8>>>(
        &self,
        paths: I,
        follow: bool,
    ) -> Answers<'_, I::IntoIter, ListEntry> {
        Answers::stats(self, follow, paths.into_iter())
    }

    /// Digests of many files, computed there, in the order of their paths; and of how many bytes each is.
    pub fn digests<I: IntoIterator<Item = Vec<u8>>>(
        &self,
        algorithm: Algorithm,
        paths: I,
    ) -> Answers<'_, I::IntoIter, (Vec<u8>, u64)> {
        Answers::digests(self, algorithm, paths.into_iter())
    }

    /// By which it is seen, and its rate set.
    pub fn handle(&self) -> &Handle {
        self.link.handle()
    }

    /// What there is at a path, through symbolic links.
    pub fn stat(&self, path: &[u8]) -> Result<ListEntry, Error> {
        self.stat_of(path, true)
    }

    /// The same, of a symbolic link itself.
    pub fn stat_link(&self, path: &[u8]) -> Result<ListEntry, Error> {
        self.stat_of(path, false)
    }

    fn stat_of(&self, path: &[u8], follow: bool) -> Result<ListEntry, Error> {
        let (put, answer) = bounded(1);
        let path = self.full(path);
        self.link.ask(PendingCall::Stat(put), |op| ReadMessage::Stat { op, path, follow })?;
        self.link.wait(&answer)?.map_err(Error::from)
    }

    /// Opens a file for reading.
    pub fn file(&self, path: &[u8]) -> Result<RemoteFile, Error> {
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
    }

    /// What is in a directory, as it comes.
    pub fn list(&self, path: &[u8], depth: Depth) -> Result<RemoteList, Error> {
        let (path, depth) = (self.full(path), depth.number());
        RemoteList::begin(&self.link, |op, room| ReadMessage::List { op, path, depth, room })
    }

    /// The paths that a pattern stands for, as `cp` understands it; they are to be asked for as they are.
    pub fn find(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let pattern = self.full(pattern);
        RemoteList::begin(&self.link, |op, room| ReadMessage::Find { op, pattern, room })?.paths()
    }

    /// Why nothing more can be asked for, if the session has ended by itself.
    pub fn ended(&self) -> Option<Error> {
        self.link.ended()
    }

    /// Ends the session; both ends' figures come back.
    pub fn finish(mut self) -> Result<SessionReport, Error> {
        self.end();
        self.link.outcome()
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
