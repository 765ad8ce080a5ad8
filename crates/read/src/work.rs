//! The tasks of a server: small answers are in one queue, everything else is in another, so that no small
//! answer waits for the rest.
//!
//! Always true: waiting tasks are bounded, and are counted until they are done or cancelled; nothing more is
//! begun of a cancelled operation.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_session::budget::Charge;
use farhaul_session::producer_token::ProducerToken;
use farhaul_session::request::Request;
use farhaul_volume::Algorithm;
use farhaul_words::{Error, Misbehaviour};

use super::files::ServedFile;
use super::messages::FileRange;
use super::record_stream::RecordStream;

/// The most ranges and other operations that may wait at a time.
pub(crate) const OUTSTANDING_MAX: usize = 1 << 17;
/// The most streams that may be under way at a time, as each keeps a scan.
pub(crate) const STREAMS_MAX: usize = 64;
/// The memory of a waiting range or operation, with its share of the tables.
const WAITING_BYTES: u64 = 256;
/// The further memory of a stream: records that wait for room, and its scan.
const STREAM_BYTES: u64 = 256 << 10;
/// The further memory of a digest; BLAKE3 needs the most.
const DIGESTING_BYTES: u64 = 2 << 10;
/// Cancelled tasks are looked for once they are one in this many of all that may wait, as the search takes
/// long if there are many.
const SWEPT_SHARE: usize = 4;
/// How often a thread that waits for work looks whether the session is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// An operation of the client: what all of its parts share.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) number: u64,
    is_cancelled: AtomicBool,
    /// For a stream: the bytes for which the client still has room.
    room: AtomicU64,
}

impl Operation {
    fn new(number: u64) -> Operation {
        Operation { number, is_cancelled: AtomicBool::new(false), room: AtomicU64::new(0) }
    }

    pub(crate) fn room(&self) -> u64 {
        self.room.load(Ordering::Acquire)
    }

    /// Takes `bytes` off the room.
    pub(crate) fn use_room(&self, bytes: u64) {
        let less = |room: u64| Some(room.saturating_sub(bytes));
        let _ = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    pub(crate) fn add_room(&self, bytes: u64) {
        let more = |room: u64| Some(room.saturating_add(bytes));
        let _ = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// Cancels the operation; returns true on the first call.
    fn cancel(&self) -> bool {
        !self.is_cancelled.swap(true, Ordering::AcqRel)
    }
}

/// A range of an operation, with its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperationPart {
    pub(crate) number: u64,
    /// The range as the client wants it.
    pub(crate) range: FileRange,
    /// The number of bytes that are done.
    pub(crate) at: u64,
}

/// Something to do.
pub(crate) enum Task {
    Open {
        file: u64,
        open: Arc<ServedFile>,
    },
    /// Ranges near one another, in the order of their offsets; or a single one, which may be long.
    Read {
        op: Arc<Operation>,
        open: Arc<ServedFile>,
        parts: Vec<OperationPart>,
    },
    Stat {
        op: Arc<Operation>,
        path: Vec<u8>,
        follow: bool,
    },
    Advise {
        open: Arc<ServedFile>,
        ranges: Vec<FileRange>,
    },
    List(Box<RecordStream>),
    Digest {
        op: Arc<Operation>,
        open: Arc<ServedFile>,
        range: Option<FileRange>,
        digesting: Box<DigestTask>,
    },
}

/// A digest that is computed in several turns.
pub(crate) struct DigestTask {
    pub(crate) algorithm: Algorithm,
    pub(crate) hashers: farhaul_volume::Hashers,
    pub(crate) done: u64,
}

impl Task {
    fn op(&self) -> Option<&Arc<Operation>> {
        match self {
            Task::Open { .. } | Task::Advise { .. } => None,
            Task::Read { op, .. } | Task::Stat { op, .. } | Task::Digest { op, .. } => Some(op),
            Task::List(listing) => Some(&listing.op),
        }
    }

    /// How much the task counts.
    fn weight(&self) -> usize {
        match self {
            Task::Read { parts, .. } => parts.len(),
            Task::Advise { ranges, .. } => 1 + ranges.len(),
            Task::Open { .. } | Task::Stat { .. } | Task::List(_) | Task::Digest { .. } => 1,
        }
    }

    /// The memory that it takes while it waits; the same from its beginning to its end.
    fn bytes(&self) -> u64 {
        let besides = match self {
            Task::Stat { path, .. } => path.len() as u64,
            Task::List(_) => STREAM_BYTES,
            Task::Digest { .. } => DIGESTING_BYTES,
            Task::Open { .. } | Task::Read { .. } | Task::Advise { .. } => 0,
        };
        self.weight() as u64 * WAITING_BYTES + besides
    }

    fn streams(&self) -> usize {
        usize::from(matches!(self, Task::List(_)))
    }

    fn is_cancelled(&self) -> bool {
        self.op().is_some_and(|op| op.is_cancelled())
    }
}

/// How urgent a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskPriority {
    /// A small answer that somebody waits for.
    Small,
    Bulk,
}

/// The result of [`WorkQueues::next`].
pub(crate) enum WorkItem {
    Task(Task),
    /// There is nothing now.
    Nothing,
    Over,
}

/// The queues.
pub(crate) struct WorkQueues {
    request: Arc<Request>,
    queues: Mutex<Queues>,
    small: Condvar,
    bulk: Condvar,
    is_over: AtomicBool,
}

struct Queues {
    small: VecDeque<Task>,
    bulk: VecDeque<Task>,
    /// Streams that wait until the client has room.
    parked: HashMap<u64, Box<RecordStream>>,
    ops: HashMap<u64, KnownOperation>,
    /// The weight of all tasks that wait or are worked on, how many of them are streams, and the memory that
    /// they take.
    outstanding: usize,
    streams: usize,
    bytes: u64,
    /// How much of that weight was cancelled since cancelled tasks were last removed.
    cancelled: usize,
    cancelled_streams: usize,
    charge: Charge,
    /// Held while there is anything to do. More content is then to come, so the flows need not repair their
    /// tails ahead of feedback.
    unread: Option<ProducerToken>,
}

/// An operation that has tasks.
struct KnownOperation {
    op: Arc<Operation>,
    weight: usize,
    streams: usize,
}

impl WorkQueues {
    pub(crate) fn new(request: &Arc<Request>) -> WorkQueues {
        let queues = Queues {
            small: VecDeque::new(),
            bulk: VecDeque::new(),
            parked: HashMap::new(),
            ops: HashMap::new(),
            outstanding: 0,
            streams: 0,
            bytes: 0,
            cancelled: 0,
            cancelled_streams: 0,
            charge: request.budget().nothing(),
            unread: None,
        };
        WorkQueues {
            request: request.clone(),
            queues: Mutex::new(queues),
            small: Condvar::new(),
            bulk: Condvar::new(),
            is_over: AtomicBool::new(false),
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().whole()
    }

    // ---- calls of the thread that reads messages ------------------------------------------------

    /// The operation with this number; a new one, unless it has tasks already.
    pub(crate) fn op(&self, number: u64) -> Arc<Operation> {
        let queues = self.queues();
        match queues.ops.get(&number) {
            Some(known) => known.op.clone(),
            None => Arc::new(Operation::new(number)),
        }
    }

    /// Queues tasks.
    pub(crate) fn add(&self, priority: TaskPriority, tasks: Vec<Task>) -> Result<(), Error> {
        let mut queues = self.queues();
        for task in tasks {
            let (weight, streams) = (task.weight(), task.streams());
            queues.make_room(weight, streams);
            if queues.outstanding + weight > OUTSTANDING_MAX {
                return Err(Error::misbehaved(
                    Misbehaviour::TooMuchAsked,
                    format!("it has more than {OUTSTANDING_MAX} ranges and other operations outstanding"),
                ));
            }
            if queues.streams + streams > STREAMS_MAX {
                return Err(Error::misbehaved(
                    Misbehaviour::TooMuchAsked,
                    format!("it has more than {STREAMS_MAX} lists under way"),
                ));
            }
            queues.outstanding += weight;
            queues.streams += streams;
            queues.bytes += task.bytes();
            if let Some(op) = task.op() {
                let known = queues.ops.entry(op.number).or_insert_with(|| KnownOperation::new(op));
                known.weight += weight;
                known.streams += streams;
            }
            match (priority, &task) {
                (TaskPriority::Small, _) => queues.small.push_back(task),
                // Its beginning is a small answer: it waits for a thread of bulk, but not for all the bulk
                // tasks.
                (TaskPriority::Bulk, Task::List(_)) => queues.bulk.push_front(task),
                (TaskPriority::Bulk, _) => queues.bulk.push_back(task),
            }
        }
        let bytes = queues.bytes;
        queues.charge.hold(bytes)?;
        if queues.outstanding > 0 && queues.unread.is_none() {
            queues.unread = Some(ProducerToken::new(&self.request));
        }
        drop(queues);
        match priority {
            TaskPriority::Small => self.small.notify_one(),
            TaskPriority::Bulk => self.bulk.notify_all(),
        }
        Ok(())
    }

    /// Cancels an operation. Returns false if it was cancelled before, or is over already.
    pub(crate) fn cancel(&self, number: u64) -> bool {
        let mut queues = self.queues();
        let parked = queues.parked.remove(&number).map(Task::List);
        let Some(known) = queues.ops.get(&number) else { return false };
        let (weight, streams) = (known.weight, known.streams);
        let is_first = known.op.cancel();
        if is_first {
            queues.cancelled += weight;
            queues.cancelled_streams += streams;
        }
        if let Some(parked) = parked {
            self.settle(&mut queues, &parked);
        }
        is_first
    }

    /// The client has room for `room` more bytes of a stream; for a stream that is over this has no effect.
    pub(crate) fn more(&self, number: u64, room: u64) {
        let mut queues = self.queues();
        let Some(known) = queues.ops.get(&number) else { return };
        known.op.add_room(room);
        if let Some(parked) = queues.parked.remove(&number) {
            queues.bulk.push_back(Task::List(parked));
            drop(queues);
            self.bulk.notify_one();
        }
    }

    /// Ends all work.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.queues().unread = None;
        self.small.notify_all();
        self.bulk.notify_all();
    }

    /// Returns whether all work has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.request.is_stopped()
    }

    // ---- calls of the workers -------------------------------------------------------------------

    /// The next task; waits for one if `waits`. It must be [settled](WorkQueues::done) or [put
    /// back](WorkQueues::put_back).
    pub(crate) fn next(&self, priority: TaskPriority, waits: bool) -> WorkItem {
        let mut queues = self.queues();
        loop {
            if self.is_over() {
                return WorkItem::Over;
            }
            let queue = match priority {
                TaskPriority::Small => &mut queues.small,
                TaskPriority::Bulk => &mut queues.bulk,
            };
            match queue.pop_front() {
                Some(task) if task.is_cancelled() => self.settle(&mut queues, &task),
                Some(task) => return WorkItem::Task(task),
                None if !waits => return WorkItem::Nothing,
                None => {
                    let bell = match priority {
                        TaskPriority::Small => &self.small,
                        TaskPriority::Bulk => &self.bulk,
                    };
                    (queues, _) = bell.wait_timeout(queues, LOOK_EVERY).in_any_case();
                }
            }
        }
    }

    /// Queues the rest of a task again; a stream without room waits for room.
    pub(crate) fn put_back(&self, task: Task) {
        let mut queues = self.queues();
        match task {
            Task::List(listing) if listing.op.room() == 0 && !listing.op.is_cancelled() => {
                // If a client uses a number twice, it gets one of the two streams.
                if let Some(other) = queues.parked.insert(listing.op.number, listing) {
                    self.settle(&mut queues, &Task::List(other));
                }
            }
            task => {
                queues.bulk.push_back(task);
                drop(queues);
                self.bulk.notify_one();
            }
        }
    }

    /// A task is done.
    pub(crate) fn done(&self, task: &Task) {
        self.settle(&mut self.queues(), task);
    }

    /// `weight` parts of an operation are done.
    pub(crate) fn done_parts(&self, op: &Operation, weight: usize) {
        let mut queues = self.queues();
        queues.bytes -= weight as u64 * WAITING_BYTES;
        queues.forget(op.number, weight, 0);
        self.rest(&mut queues);
    }

    fn settle(&self, queues: &mut Queues, task: &Task) {
        queues.settle(task);
        self.rest(queues);
    }

    fn rest(&self, queues: &mut Queues) {
        // A smaller charge is never refused.
        let _ = queues.charge.hold(queues.bytes);
        if queues.outstanding == 0 {
            queues.unread = None;
        }
    }
}

impl Queues {
    /// Removes cancelled tasks that still wait, if that may make room for this much. Otherwise they would be
    /// in the client's way as long as the threads are held up.
    fn make_room(&mut self, weight: usize, streams: usize) {
        let is_much = self.outstanding + weight > OUTSTANDING_MAX
            && self.cancelled >= OUTSTANDING_MAX / SWEPT_SHARE
            || self.streams + streams > STREAMS_MAX && self.cancelled_streams >= STREAMS_MAX / SWEPT_SHARE;
        if !is_much {
            return;
        }
        (self.cancelled, self.cancelled_streams) = (0, 0);
        let (small, bulk) = (std::mem::take(&mut self.small), std::mem::take(&mut self.bulk));
        for (priority, tasks) in [(TaskPriority::Small, small), (TaskPriority::Bulk, bulk)] {
            let (cancelled, wanted): (VecDeque<_>, VecDeque<_>) =
                tasks.into_iter().partition(Task::is_cancelled);
            cancelled.iter().for_each(|task| self.settle(task));
            match priority {
                TaskPriority::Small => self.small = wanted,
                TaskPriority::Bulk => self.bulk = wanted,
            }
        }
    }

    fn settle(&mut self, task: &Task) {
        self.bytes -= task.bytes();
        self.streams -= task.streams();
        match task.op() {
            Some(op) => self.forget(op.number, task.weight(), task.streams()),
            None => self.outstanding -= task.weight(),
        }
    }

    fn forget(&mut self, number: u64, weight: usize, streams: usize) {
        self.outstanding -= weight;
        if let Some(known) = self.ops.get_mut(&number) {
            known.weight -= weight;
            known.streams -= streams;
            if known.weight == 0 {
                self.ops.remove(&number);
            }
        }
    }
}

impl KnownOperation {
    fn new(op: &Arc<Operation>) -> KnownOperation {
        KnownOperation { op: op.clone(), weight: 0, streams: 0 }
    }
}
