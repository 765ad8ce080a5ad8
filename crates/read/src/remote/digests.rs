//! Digests of many files: each is asked for before the ones before it are there, so that a long way does not count for each.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver as Channel, bounded};
use farhaul_session::error::{Error, Failure};
use farhaul_volume::Algorithm;

use super::super::messages::Message;
use super::Remote;
use super::hearing::Link;
use super::waiting::Waiting;

/// Files whose digests are asked for at a time; a far end has fewer open than it may.
const AT_ONCE: usize = 256;

/// Digests of files in the order of their paths, with the numbers of bytes that they are of. Dropped, those under way are cancelled.
pub struct Digests<'a, I> {
    remote: &'a Remote,
    algorithm: Algorithm,
    paths: I,
    flying: VecDeque<Flying>,
}

struct Flying {
    link: Arc<Link>,
    path: Vec<u8>,
    file: u64,
    op: u64,
    answer: Channel<Result<(u64, Vec<u8>), Failure>>,
}

impl<'a, I: Iterator<Item = Vec<u8>>> Digests<'a, I> {
    pub(super) fn new(remote: &'a Remote, algorithm: Algorithm, paths: I) -> Digests<'a, I> {
        Digests { remote, algorithm, paths, flying: VecDeque::new() }
    }

    fn ask(&mut self, path: Vec<u8>) -> Result<(), Error> {
        let (link, algorithm) = (self.remote.link.clone(), self.algorithm);
        // What keeps it from being opened comes as the digest's failure, too.
        let (opening, _) = bounded(1);
        let file = link.open(self.remote.full(&path), opening)?;
        let (put, answer) = bounded(1);
        let asked = link.ask(Waiting::Digest(put), |op| Message::Digest { op, file, range: None, algorithm });
        match asked {
            Ok(op) => self.flying.push_back(Flying { link, path, file, op, answer }),
            Err(error) => {
                link.close(file);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl<I: Iterator<Item = Vec<u8>>> Iterator for Digests<'_, I> {
    /// A path, and its digest.
    type Item = (Vec<u8>, Result<(Vec<u8>, u64), Error>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.flying.len() < AT_ONCE {
            let Some(path) = self.paths.next() else { break };
            if let Err(error) = self.ask(path.clone()) {
                return Some((path, Err(error)));
            }
        }
        let flying = self.flying.pop_front()?;
        let answer = flying.link.wait(&flying.answer);
        let digest =
            answer.and_then(|answer| answer.map_err(Error::from)).map(|(bytes, digest)| (digest, bytes));
        Some((flying.path.clone(), digest))
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        self.link.cancel(self.op);
        self.link.close(self.file);
    }
}
