//! What an application does besides sending bulk: urgent blocks, blocks with a deadline, cancelled blocks,
//! and a slow reader at the other end.

use farhaul_proto::{BlockClass, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The configuration of both ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MixConfig {
    /// The interval of urgent blocks in milliseconds, and their length in bytes.
    pub urgent: Option<(f64, u32)>,
    /// The same for blocks with a deadline, and how many milliseconds later the deadline is.
    pub timed: Option<(f64, (u32, f64))>,
    /// The second at which these blocks begin.
    pub from_s: f64,
    /// The second at which the sender gives up every second block.
    pub cancel_s: Option<f64>,
    /// The rate at which the receiver's application reads bulk.
    pub reader_bps: Option<u64>,
    /// Whether this end makes blocks.
    pub is_sender: bool,
}

impl MixConfig {
    /// Whether the fate of each block is noted.
    fn is_noted(&self) -> bool {
        self.urgent.is_some() || self.timed.is_some() || self.cancel_s.is_some()
    }
}

/// What became of a block. It is noted only if some blocks are not bulk or some are cancelled.
#[derive(Debug, Clone, Copy)]
pub struct BlockFate {
    /// Its class.
    pub class: BlockClass,
    /// Its length.
    pub len: u32,
    /// When the application had it, in seconds.
    pub made_s: f64,
    /// When the sender heard that it was acknowledged.
    pub acked_s: Option<f64>,
    /// When the sender heard that it was given up.
    pub given_up_s: Option<f64>,
    /// When the receiver had all of it.
    pub complete_s: Option<f64>,
    /// When the receiver heard that it was given up.
    pub told_s: Option<f64>,
    /// Payload sent of it, copies included.
    pub sent: u64,
    /// Of this, sent after its deadline, or after it was given up.
    pub sent_late: u64,
}

impl BlockFate {
    fn new(class: BlockClass, len: u32, made: Timestamp) -> BlockFate {
        BlockFate {
            class,
            len,
            made_s: seconds(made),
            acked_s: None,
            given_up_s: None,
            complete_s: None,
            told_s: None,
            sent: 0,
            sent_late: 0,
        }
    }

    /// The seconds from when the application made the block until the receiver had all of it.
    pub fn took_s(&self) -> Option<f64> {
        self.complete_s.map(|at| at - self.made_s)
    }

    /// Its deadline in seconds.
    pub fn deadline_s(&self) -> Option<f64> {
        match self.class {
            BlockClass::Until(at) => Some(seconds(at)),
            BlockClass::Bulk | BlockClass::Urgent => None,
        }
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_nanos() as f64 / 1e9
}

/// A flow of an end, and a block's number in it.
pub(crate) type BlockName = (usize, u64);

/// Something that comes at regular intervals.
#[derive(Debug)]
struct Beat {
    every: Duration,
    next: Timestamp,
    /// When blocks were made that found no room in the queue yet.
    waiting: VecDeque<Timestamp>,
}

impl Beat {
    fn new(every_ms: f64, from: Timestamp) -> Beat {
        let every = Duration::from_secs_f64(every_ms / 1e3).max(Duration::from_micros(1));
        Beat { every, next: from, waiting: VecDeque::new() }
    }

    fn tick(&mut self, now: Timestamp) {
        while self.next <= now {
            self.waiting.push_back(self.next);
            self.next = self.next + self.every;
        }
    }
}

/// The state of one end: at the sender, blocks made and what became of them; at the receiver, blocks that
/// wait for the reader.
#[derive(Debug)]
pub(crate) struct MixState {
    mix: MixConfig,
    urgent: Option<Beat>,
    timed: Option<Beat>,
    cancel_at: Option<Timestamp>,
    pub fates: BTreeMap<BlockName, BlockFate>,
    /// When the application is done with each block, and the block's flow.
    reading: VecDeque<(Timestamp, usize)>,
    read_until: Timestamp,
}

impl MixState {
    pub(crate) fn new(mix: MixConfig) -> MixState {
        let at = |seconds: f64| Timestamp::ZERO + Duration::from_secs_f64(seconds);
        let beat = |every_ms: f64| mix.is_sender.then(|| Beat::new(every_ms, at(mix.from_s)));
        MixState {
            mix,
            urgent: mix.urgent.and_then(|urgent| beat(urgent.0)),
            timed: mix.timed.and_then(|timed| beat(timed.0)),
            cancel_at: mix.cancel_s.filter(|_| mix.is_sender).map(at),
            fates: BTreeMap::new(),
            reading: VecDeque::new(),
            read_until: Timestamp::ZERO,
        }
    }

    pub(crate) fn is_noted(&self) -> bool {
        self.mix.is_noted()
    }

    /// The block to queue now, if there is room: class, length, and when it was made. After queueing it, the
    /// caller calls [`MixState::on_queued`].
    pub(crate) fn next(
        &mut self,
        now: Timestamp,
        has_room: impl Fn(BlockClass) -> bool,
    ) -> Option<(BlockClass, u32, Timestamp)> {
        if let (Some(beat), Some((_, len))) = (&mut self.urgent, self.mix.urgent) {
            beat.tick(now);
            if has_room(BlockClass::Urgent)
                && let Some(made) = beat.waiting.pop_front()
            {
                return Some((BlockClass::Urgent, len, made));
            }
        }
        let (beat, (_, (len, deadline_ms))) = self.timed.as_mut().zip(self.mix.timed)?;
        beat.tick(now);
        let later = Duration::from_secs_f64(deadline_ms / 1e3);
        // A block that finds no room is dropped when the next one comes, so that no old block is queued.
        while beat.waiting.len() > 1 {
            beat.waiting.pop_front();
        }
        let class = BlockClass::Until(*beat.waiting.front()? + later);
        let made = if has_room(class) { beat.waiting.pop_front() } else { None }?;
        Some((class, len, made))
    }

    pub(crate) fn on_queued(&mut self, name: BlockName, class: BlockClass, len: u32, made: Timestamp) {
        self.note(|fates| {
            fates.insert(name, BlockFate::new(class, len, made));
        });
    }

    pub(crate) fn on_sent(&mut self, now: Timestamp, name: BlockName, len: u32) {
        self.note(|fates| {
            let Some(fate) = fates.get_mut(&name) else { return };
            let is_late = fate.given_up_s.is_some() || fate.deadline_s().is_some_and(|at| at < seconds(now));
            fate.sent += u64::from(len);
            fate.sent_late += if is_late { u64::from(len) } else { 0 };
        });
    }

    pub(crate) fn on_over(
        &mut self,
        now: Timestamp,
        name: BlockName,
        how: fn(&mut BlockFate) -> &mut Option<f64>,
    ) {
        self.note(|fates| {
            // The receiver does not know a block before its fate.
            let unknown = BlockFate::new(BlockClass::Bulk, 0, Timestamp::ZERO);
            let slot = how(fates.entry(name).or_insert(unknown));
            assert!(slot.is_none(), "block {name:?} is over twice");
            *slot = Some(seconds(now));
        });
    }

    fn note(&mut self, change: impl FnOnce(&mut BTreeMap<BlockName, BlockFate>)) {
        if self.mix.is_noted() {
            change(&mut self.fates);
        }
    }

    /// Once the time to cancel has come: every second block that is not over. Later calls return nothing.
    pub(crate) fn cancelled(&mut self, now: Timestamp) -> Vec<BlockName> {
        if self.cancel_at.take_if(|at| *at <= now).is_none() {
            return Vec::new();
        }
        let open = self.fates.iter().filter(|(_, fate)| fate.acked_s.is_none() && fate.given_up_s.is_none());
        open.map(|(&name, _)| name).step_by(2).collect()
    }

    /// A block of bulk is complete; returns whether the application is done with it at once.
    pub(crate) fn is_read_at_once(&mut self, now: Timestamp, flow: usize, len: u32) -> bool {
        let Some(bps) = self.mix.reader_bps else { return true };
        let takes = Duration::from_secs_f64(f64::from(len) * 8.0 / bps as f64);
        self.read_until = self.read_until.max(now) + takes;
        self.reading.push_back((self.read_until, flow));
        false
    }

    /// The flow of a block that the application is done with by now.
    pub(crate) fn read(&mut self, now: Timestamp) -> Option<usize> {
        self.reading.pop_front_if(|next| next.0 <= now).map(|next| next.1)
    }

    /// When there is something to do next.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let beats = [&self.urgent, &self.timed].into_iter().flatten().map(|beat| beat.next);
        let reader = self.reading.front().map(|next| next.0);
        beats.chain(self.cancel_at).chain(reader).min()
    }
}
