//! One question about many paths. Each is asked before the earlier answers have come, so that they do not
//! cost a round trip each.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::bounded;
use farhaul_session::error::Error;
use farhaul_volume::Algorithm;

use super::super::messages::{ListEntry, ReadMessage};
use super::Remote;
use super::client_session::ClientSession;
use super::file::RemoteFile;
use super::pending_calls::PendingCall;

/// The most questions under way at a time; it is below the number of files that a far end may have open.
const AT_ONCE: usize = 256;
/// The most files that are open ahead of the one that is read.
const OPEN_AHEAD: usize = 16;

/// Answers in the order of their paths. Dropping it cancels the questions under way.
pub struct Answers<'a, I, T> {
    remote: &'a Remote,
    paths: I,
    ask: AskFn<T>,
    at_once: usize,
    flying: VecDeque<(Vec<u8>, PendingAnswer<T>)>,
}

/// Asks about a path.
type AskFn<T> = Box<dyn Fn(&Remote, &[u8]) -> Result<PendingAnswer<T>, Error> + Send>;

struct PendingAnswer<T> {
    link: Arc<ClientSession>,
    op: Option<u64>,
    /// The file that was opened for the question, until the question is answered or dropped.
    file: Option<u64>,
    /// Waits for the answer.
    answer: Option<AnswerFn<T>>,
}

/// Waits for an answer; the file that was opened for it belongs to the answer from here on.
type AnswerFn<T> = Box<dyn FnOnce(&Arc<ClientSession>) -> Result<T, Error> + Send>;

impl<'a, I: Iterator<Item = Vec<u8>>> Answers<'a, I, ListEntry> {
    pub(super) fn stats(remote: &'a Remote, follow: bool, paths: I) -> Answers<'a, I, ListEntry> {
        let ask = move |remote: &Remote, path: &[u8]| {
            let (put, answer) = bounded(1);
            let (link, path) = (remote.link.clone(), remote.full(path));
            let op = link.ask(PendingCall::Stat(put), |op| ReadMessage::Stat { op, path, follow })?;
            let answer = move |link: &Arc<ClientSession>| link.wait(&answer)?.map_err(Error::from);
            Ok(PendingAnswer { link, op: Some(op), file: None, answer: Some(Box::new(answer)) })
        };
        Answers { remote, paths, ask: Box::new(ask), at_once: AT_ONCE, flying: VecDeque::new() }
    }
}

impl<'a, I: Iterator<Item = Vec<u8>>> Answers<'a, I, (Vec<u8>, u64)> {
    pub(super) fn digests(
        remote: &'a Remote,
        algorithm: Algorithm,
        paths: I,
    ) -> Answers<'a, I, (Vec<u8>, u64)> {
        let ask = move |remote: &Remote, path: &[u8]| {
            let link = remote.link.clone();
            // If the file cannot be opened, the digest fails with the reason.
            let (opening, _) = bounded(1);
            let file = link.open(remote.full(path), opening)?;
            let (put, answer) = bounded(1);
            let digest = |op| ReadMessage::Digest { op, file, range: None, algorithm };
            let op = link.ask(PendingCall::Digest(put), digest).inspect_err(|_| link.close(file))?;
            let answer = move |link: &Arc<ClientSession>| {
                let answer = link.wait(&answer);
                link.close(file);
                let (bytes, digest) = answer??;
                Ok((digest, bytes))
            };
            Ok(PendingAnswer { link, op: Some(op), file: Some(file), answer: Some(Box::new(answer)) })
        };
        Answers { remote, paths, ask: Box::new(ask), at_once: AT_ONCE, flying: VecDeque::new() }
    }
}

impl<'a, I: Iterator<Item = Vec<u8>>> Answers<'a, I, RemoteFile> {
    pub(super) fn files(remote: &'a Remote, paths: I) -> Answers<'a, I, RemoteFile> {
        let ask = move |remote: &Remote, path: &[u8]| {
            let (put, answer) = bounded(1);
            let link = remote.link.clone();
            let number = link.open(remote.full(path), put)?;
            let answer = move |link: &Arc<ClientSession>| {
                let opened = link.wait(&answer)?.inspect_err(|_| link.close(number));
                Ok(RemoteFile::new(link.clone(), number, opened?))
            };
            Ok(PendingAnswer { link, op: None, file: Some(number), answer: Some(Box::new(answer)) })
        };
        Answers { remote, paths, ask: Box::new(ask), at_once: OPEN_AHEAD, flying: VecDeque::new() }
    }
}

impl<I: Iterator<Item = Vec<u8>>, T> Iterator for Answers<'_, I, T> {
    type Item = (Vec<u8>, Result<T, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.flying.len() < self.at_once {
            let Some(path) = self.paths.next() else { break };
            match (self.ask)(self.remote, &path) {
                Ok(flying) => self.flying.push_back((path, flying)),
                Err(error) => return Some((path, Err(error))),
            }
        }
        let (path, mut flying) = self.flying.pop_front()?;
        flying.file = None;
        let answer = flying.answer.take().map(|answer| answer(&flying.link));
        Some((path, answer.unwrap_or_else(|| Err(Error::bug("an answer")))))
    }
}

impl<T> Drop for PendingAnswer<T> {
    fn drop(&mut self) {
        if let Some(op) = self.op {
            self.link.cancel(op);
        }
        if let Some(file) = self.file {
            self.link.close(file);
        }
    }
}
