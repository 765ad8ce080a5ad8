//! Lists of a far place, taken record by record as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver as Channel, unbounded};
use farhaul_session::error::{Code, Error, Misbehaviour};

use super::super::messages::{ListEntry, ReadMessage, RecordCodec, StreamRecord};
use super::client_session::ClientSession;
use super::pending_calls::{PendingCall, PendingStream, StreamChunk};

/// Bytes of a list that may be under way or wait here: what a long fast way holds, and no more than a program notices.
const ROOM: u64 = 32 << 20;

/// How far below a directory a list goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What is in the directory itself.
    One,
    /// What is in it and in directories below it, so many levels in all.
    Levels(u64),
    /// All of it.
    All,
}

impl Depth {
    pub(super) fn number(self) -> u64 {
        match self {
            Depth::One => 1,
            Depth::Levels(levels) => levels.max(1),
            Depth::All => 0,
        }
    }
}

/// What a list has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListItem {
    /// Something in the directory, or below it. The directory itself is the first, with an empty path.
    Entry(ListEntry),
    /// This could not be looked at; the rest follows.
    Failed {
        /// Below what is listed.
        path: Vec<u8>,
        /// What kind of error it is.
        code: Code,
        /// Why.
        reason: String,
    },
    /// What is in this directory is not listed, since something is mounted there.
    NotEntered(Vec<u8>),
}

/// A list that is under way, in the order in which the far end comes upon things. Dropped, it is cancelled.
pub struct RemoteList {
    link: Arc<ClientSession>,
    op: u64,
    chunks: Channel<StreamChunk>,
    held: VecDeque<u8>,
    records: RecordCodec,
    /// Bytes that were taken since the far end was told of it.
    taken: u64,
    is_over: bool,
}

impl RemoteList {
    pub(super) fn begin(
        link: &Arc<ClientSession>,
        message: impl FnOnce(u64, u64) -> ReadMessage,
    ) -> Result<RemoteList, Error> {
        let (to, chunks) = unbounded();
        let op = link.ask(PendingCall::Stream(PendingStream::new(to, ROOM)), |op| message(op, ROOM))?;
        let (held, records) = Default::default();
        Ok(RemoteList { link: link.clone(), op, chunks, held, records, taken: 0, is_over: false })
    }

    /// What a pattern stands for.
    pub(super) fn paths(mut self) -> Result<Vec<Vec<u8>>, Error> {
        let mut paths = Vec::new();
        while let Some(record) = self.record()? {
            match record {
                StreamRecord::Path(path) => paths.push(path),
                _ => return Err(senseless()),
            }
        }
        Ok(paths)
    }

    fn record(&mut self) -> Result<Option<StreamRecord>, Error> {
        loop {
            let bytes = self.held.make_contiguous();
            if let Some((record, taken)) = self.records.take(bytes).map_err(|_| senseless())? {
                self.held.drain(..taken);
                return Ok(Some(record));
            }
            if self.is_over {
                return if self.held.is_empty() { Ok(None) } else { Err(senseless()) };
            }
            match self.link.wait(&self.chunks)?? {
                Some(chunk) => {
                    self.taken += chunk.len() as u64;
                    self.held.extend(chunk);
                    if self.taken >= ROOM / 2 {
                        self.link.more(self.op, std::mem::take(&mut self.taken));
                    }
                }
                None => self.is_over = true,
            }
        }
    }
}

impl Iterator for RemoteList {
    type Item = Result<ListItem, Error>;

    fn next(&mut self) -> Option<Result<ListItem, Error>> {
        let listed = match self.record().transpose()? {
            Ok(StreamRecord::Entry(entry)) => Ok(ListItem::Entry(entry)),
            Ok(StreamRecord::Failed { path, failure }) => {
                Ok(ListItem::Failed { path, code: failure.code, reason: failure.reason })
            }
            Ok(StreamRecord::NotEntered(path)) => Ok(ListItem::NotEntered(path)),
            Ok(StreamRecord::Path(_)) => Err(senseless()),
            Err(error) => Err(error),
        };
        if listed.is_err() {
            self.is_over = true;
            self.held.clear();
        }
        Some(listed)
    }
}

impl Drop for RemoteList {
    fn drop(&mut self) {
        self.link.cancel(self.op);
    }
}

fn senseless() -> Error {
    Error::from(Misbehaviour::SenselessRecords)
}
