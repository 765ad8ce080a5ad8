//! Lists of a far location, taken record by record as they come.
//!
//! Always true: the path of an item is the empty one of the listed directory, or a plain one below it and not
//! deeper than asked, whatever the far end sends; so a program may join it to a path of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use farhaul_volume::{GlobAllowance, RelPath};
use farhaul_words::{Code, Error, Misbehaviour};

use super::super::messages::{ListEntry, ReadMessage, RecordCodec, StreamRecord};
use super::client_session::ClientSession;
use super::pending_calls::{PendingCall, PendingStream, unasked};
use super::stream_inlet::{StreamOutlet, stream};

/// The most bytes of a list that may be under way or wait here: enough to fill a long fast path, and little
/// memory for a program.
const ROOM: u64 = 32 << 20;

/// How far below a directory a list goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only what is in the directory itself.
    One,
    /// The entries of the directory and of those below it, this many levels in all.
    Levels(u64),
    /// Everything.
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

/// An item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListItem {
    /// Something in the directory, or below it. The directory itself is the first one, with an empty path.
    Entry(ListEntry),
    /// An entry that could not be looked at; the list goes on.
    Failed {
        /// The path below the listed directory.
        path: Vec<u8>,
        /// The kind of error.
        code: Code,
        /// The reason.
        reason: String,
    },
    /// The content of this directory is not listed, as something is mounted there.
    NotEntered(Vec<u8>),
}

/// A list that is under way, in the order in which the far end finds things. Dropping it cancels it.
pub struct RemoteList {
    session: Arc<ClientSession>,
    op: u64,
    arrived: StreamOutlet,
    /// Bytes that have come and are not decoded yet.
    buffered: VecDeque<u8>,
    records: RecordCodec,
    /// Bytes that were taken since the far end was last given room.
    taken: u64,
    /// The most bytes that may be under way or wait here.
    room: u64,
    /// How many levels were asked for; 0 for all.
    levels: u64,
    is_over: bool,
}

impl RemoteList {
    pub(super) fn begin(
        session: &Arc<ClientSession>,
        message: impl FnOnce(u64, u64) -> ReadMessage,
    ) -> Result<RemoteList, Error> {
        RemoteList::begin_within(session, ROOM, message)
    }

    pub(super) fn begin_within(
        session: &Arc<ClientSession>,
        room: u64,
        message: impl FnOnce(u64, u64) -> ReadMessage,
    ) -> Result<RemoteList, Error> {
        let (inlet, arrived) = stream();
        let op = session.ask(PendingCall::Stream(PendingStream::new(inlet, room)), |op| message(op, room))?;
        Ok(RemoteList {
            session: session.clone(),
            op,
            arrived,
            buffered: VecDeque::new(),
            records: RecordCodec::default(),
            taken: 0,
            room,
            levels: 0,
            is_over: false,
        })
    }

    /// The same list, whose items lie at most so many levels below the directory; 0 for any number.
    pub(super) fn down_to(mut self, levels: u64) -> RemoteList {
        self.levels = levels;
        self
    }

    /// Whether a path may be an item's.
    fn is_below(&self, path: &[u8]) -> bool {
        let depth = path.iter().filter(|byte| **byte == b'/').count() as u64 + 1;
        path.is_empty() || (self.levels == 0 || depth <= self.levels) && RelPath::from_bytes(path).is_ok()
    }

    /// The paths that match a pattern.
    pub(super) fn paths(mut self) -> Result<Vec<Vec<u8>>, Error> {
        let (mut paths, mut allowance) = (Vec::new(), GlobAllowance::default());
        while let Some(record) = self.record()? {
            match record {
                StreamRecord::Path(path) => {
                    // The far end must not find more than it may find here.
                    allowance.find(&path).map_err(|_| unasked("more paths than a pattern may match"))?;
                    paths.push(path);
                }
                _ => return Err(senseless()),
            }
        }
        Ok(paths)
    }

    fn record(&mut self) -> Result<Option<StreamRecord>, Error> {
        loop {
            let bytes = self.buffered.make_contiguous();
            if let Some((record, taken)) = self.records.take(bytes).map_err(|_| senseless())? {
                self.buffered.drain(..taken);
                return Ok(Some(record));
            }
            if self.is_over {
                return if self.buffered.is_empty() { Ok(None) } else { Err(senseless()) };
            }
            match self.arrived.next(&self.session)? {
                Some(chunk) => {
                    self.taken += chunk.len() as u64;
                    self.buffered.extend(chunk);
                    if self.taken >= self.room / 2 {
                        self.session.more(self.op, std::mem::take(&mut self.taken));
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
            Ok(record) if record.below().is_some_and(|path| !self.is_below(path)) => Err(senseless()),
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
            self.buffered.clear();
        }
        Some(listed)
    }
}

impl Drop for RemoteList {
    fn drop(&mut self) {
        self.session.cancel(self.op);
    }
}

fn senseless() -> Error {
    Error::from(Misbehaviour::SenselessRecords)
}
