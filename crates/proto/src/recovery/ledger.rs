//! The ledger of sent packets: it finds out from feedback maps which packets arrived and which are lost.
//!
//! Always true: a packet is declared lost at most once, and only after a feedback has reported it missing
//! while a later packet had arrived. So lost feedback delays repairs, but never causes one. Nothing here
//! reads a clock or sends.
//! From: RACK (RFC 8985). Differs: what counts is the time between the *sending* of the missing packet and of
//! the later one that arrived, so neither delayed feedback nor a busy machine looks like loss.

use super::Rtt;
use crate::error::TransportMisbehaviour;
use crate::time::{Timestamp, nanos};
use crate::wire::frame::{Feedback, MapPiece, MapPieces};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// The most packet numbers that may be outstanding: half of what receivers keep. 100 Gbit/s over a second
/// with 30 % loss needs four million.
const SPAN_MAX: usize = 1 << 23;
/// The most slots that are kept: half a minute, which is longer than any window.
const SLOTS_MAX: usize = 1 << 18;
/// The shortest reordering window; otherwise it is an eighth of the round trip.
const WINDOW_MIN: Duration = Duration::from_millis(1);

/// What a packet carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// A segment: `what` is the block.
    Segment,
    /// Control stream bytes: `what` is their offset.
    Stream,
    /// Asks for feedback.
    Ping,
    /// Reports blocks that were given up: `what` is the notice.
    GivenUp,
    /// Tries a datagram size; its loss says nothing about congestion.
    MtuProbe,
    /// Carries nothing that has to be acknowledged.
    Passive,
    /// A number that was never used.
    Skipped,
}

/// A packet on its way, in 32 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentPacket {
    pub at: Timestamp,
    pub what: u64,
    pub offset: u32,
    pub len: u16,
    pub wire_len: u16,
    pub kind: PacketKind,
    /// A feedback has reported it missing.
    pub suspect: bool,
}

/// Segments of one size that follow each other in a block, or one packet of another kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckedSegments {
    pub what: u64,
    pub offset: u32,
    pub len: u32,
    pub count: u32,
    /// The length of each packet.
    pub wire_len: u16,
    pub kind: PacketKind,
}

#[derive(Debug, Clone, Copy, Default)]
struct StatusWord {
    /// Sent, to be acknowledged, fate unknown.
    open: u64,
    /// Declared lost.
    lost: u64,
    /// Numbers never used.
    skipped: u64,
}

/// What a feedback, or the passing of time, has decided. The lists are reused.
#[derive(Debug, Default)]
pub(crate) struct FeedbackOutcome {
    pub acked: Vec<AckedSegments>,
    pub lost: Vec<SentPacket>,
    /// Wire bytes newly acknowledged, spuriously lost ones included.
    pub acked_bytes: u64,
    pub lost_bytes: u64,
    /// The fate of packets sent so early that the fate of their neighbours is known, too.
    pub settled: PacketTally,
    /// Round trip sample without the receiver's delay.
    pub rtt: Option<Duration>,
    /// Whether this feedback reports a larger newest number than all before.
    pub newest_is_new: bool,
    pub spurious: u64,
    /// The numbers of acknowledged pings, of which there are few.
    pub pings_acked: Vec<u64>,
    pub pings_lost: Vec<u64>,
}

/// The fate of packets that were sent at about the same time, counted once it is known of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PacketTally {
    pub arrived: u32,
    pub lost: u32,
    /// Runs of consecutive numbers among the lost.
    pub runs: u32,
}

impl PacketTally {
    fn add(&mut self, other: PacketTally) {
        self.arrived = self.arrived.saturating_add(other.arrived);
        self.lost = self.lost.saturating_add(other.lost);
        self.runs = self.runs.saturating_add(other.runs);
    }
}

impl FeedbackOutcome {
    pub(crate) fn clear(&mut self) {
        self.acked.clear();
        self.lost.clear();
        self.pings_acked.clear();
        self.pings_lost.clear();
        (self.acked_bytes, self.lost_bytes, self.spurious) = (0, 0, 0);
        (self.rtt, self.newest_is_new, self.settled) = (None, false, PacketTally::default());
    }

    /// Adds an acknowledged packet. Segments mostly arrive in order, so those that follow each other become
    /// one entry, and the work for an entry is done once.
    #[inline]
    fn push_acked(&mut self, sent: &SentPacket) {
        let SentPacket { what, offset, wire_len, kind, .. } = *sent;
        let len = u32::from(sent.len);
        match self.acked.last_mut() {
            Some(last)
                if kind == PacketKind::Segment
                    && last.kind == kind
                    && (last.what, last.wire_len) == (what, wire_len)
                    && last.offset + last.len == offset =>
            {
                last.len += len;
                last.count += 1;
            }
            _ => self.acked.push(AckedSegments { what, offset, len, count: 1, wire_len, kind }),
        }
    }
}

/// The fate of packets whose neighbours may still be declared lost, by the time of their sending. A loss is
/// found a reordering window after the arrivals around it, or a little sooner by time alone, and if a
/// feedback was lost, the next one reports both. If arrivals and losses were counted when they are found,
/// every change of rate would look like a change of loss.
#[derive(Debug, Default)]
struct UnsettledPackets {
    /// All slots below this one are settled; the first entry of `tallies` belongs to this one.
    slot: u64,
    tallies: VecDeque<PacketTally>,
}

impl UnsettledPackets {
    /// The slot of a time. Slots are 131 us long, a fraction of the shortest window.
    fn slot(nanos: u64) -> u64 {
        nanos >> 17
    }

    /// Settles all packets sent until then.
    fn settle(&mut self, until_nanos: u64, settled: &mut PacketTally) {
        let slots = Self::slot(until_nanos).saturating_sub(self.slot);
        self.slot += slots;
        let known = usize::try_from(slots).unwrap_or(usize::MAX).min(self.tallies.len());
        self.tallies.drain(..known).for_each(|tally| settled.add(tally));
    }

    fn count_arrived(&mut self, sent_at: Timestamp, arrived: u32, settled: &mut PacketTally) {
        if arrived > 0 {
            self.count(sent_at, PacketTally { arrived, ..PacketTally::default() }, settled);
        }
    }

    /// Counts the fate of packets: at once if their slot is settled, otherwise with their neighbours.
    #[inline]
    fn count(&mut self, sent_at: Timestamp, tally: PacketTally, settled: &mut PacketTally) {
        let Some(index) = Self::slot(sent_at.as_nanos()).checked_sub(self.slot) else {
            return settled.add(tally);
        };
        // An honest peer reports nothing sent after the newest arrival, which is one window after the first
        // slot.
        let index = usize::try_from(index).unwrap_or(usize::MAX).min(SLOTS_MAX);
        if index >= self.tallies.len() {
            self.tallies.resize(index + 1, PacketTally::default());
        }
        self.tallies[index].add(tally);
    }
}

/// All packets from the floor on.
#[derive(Debug)]
pub(crate) struct Ledger {
    sent: VecDeque<SentPacket>,
    /// The number of the first entry of `sent`: the fate of all packets below it is known.
    floor: u64,
    words: VecDeque<StatusWord>,
    open_count: usize,
    open_bytes: u64,
    newest_acked: Option<u64>,
    /// Numbers that were reported missing, the oldest first: after a lost feedback, older ones are reported
    /// after younger ones. The first one is open and holds the floor, so there are no more of them than
    /// packets may be outstanding.
    suspects: BinaryHeap<Reverse<u64>>,
    /// The longest reordering seen so far.
    reordering: Duration,
    /// The last number declared lost.
    lost_last: u64,
    unsettled: UnsettledPackets,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Ledger {
            sent: VecDeque::new(),
            floor: 0,
            words: VecDeque::new(),
            open_count: 0,
            open_bytes: 0,
            newest_acked: None,
            suspects: BinaryHeap::new(),
            reordering: Duration::ZERO,
            lost_last: 0,
            unsettled: UnsettledPackets::default(),
        }
    }

    /// The number that the next packet gets.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.floor + self.sent.len() as u64
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Wire bytes in flight.
    #[inline]
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// Whether something waits for an acknowledgement.
    pub(crate) fn has_open(&self) -> bool {
        self.open_count > 0
    }

    /// Whether the span of outstanding numbers leaves room for more.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.sent.len() < SPAN_MAX
    }

    /// Notes a packet that is being sent now, and returns its number.
    #[inline]
    pub(crate) fn push(&mut self, sent: SentPacket) -> u64 {
        let number = self.next_number();
        let bit = 1u64 << (number % 64);
        if self.sent.is_empty() {
            self.words.clear();
        }
        let index = (number / 64 - self.floor / 64) as usize;
        if index >= self.words.len() {
            self.words.push_back(StatusWord::default());
        }
        let word = &mut self.words[index];
        match sent.kind {
            PacketKind::Skipped => word.skipped |= bit,
            PacketKind::Passive => {}
            PacketKind::Segment
            | PacketKind::Stream
            | PacketKind::Ping
            | PacketKind::GivenUp
            | PacketKind::MtuProbe => {
                word.open |= bit;
                self.open_count += 1;
                self.open_bytes += u64::from(sent.wire_len);
            }
        }
        self.sent.push_back(sent);
        number
    }

    /// The longest reordering seen so far.
    pub(crate) fn reordering(&self) -> Duration {
        self.reordering
    }

    /// The reordering window: a missing packet is lost if a packet that was sent at least this much later has
    /// arrived.
    pub(crate) fn window(&self, rtt: &Rtt) -> Duration {
        let most = rtt.smoothed.max(WINDOW_MIN);
        (rtt.min / 8).max(WINDOW_MIN).max(self.reordering.min(most))
    }

    /// Reads a feedback; returns the first word beyond its map. `outcome` was cleared by the caller.
    pub(crate) fn on_feedback(
        &mut self,
        now: Timestamp,
        feedback: &Feedback<'_>,
        rtt: &Rtt,
        outcome: &mut FeedbackOutcome,
    ) -> Result<u64, TransportMisbehaviour> {
        if feedback.newest >= self.next_number() || self.was_skipped(feedback.newest) {
            return Err(TransportMisbehaviour::AckOfUnsent);
        }
        self.sample_rtt(now, feedback, outcome);
        let window = self.window(rtt);
        let mut judge = Judge { newest: feedback.newest, newest_at: self.sent_at(feedback.newest), window };
        if let Some(newest_at) = judge.newest_at {
            // Packets sent earlier would have been declared lost by now, by this feedback or by time. The
            // second limit is for round trips that become shorter: the smoothed one lags, so losses by time
            // come late, and their arrivals must not be counted before them.
            let until = newest_at.as_nanos().min(now.as_nanos().saturating_sub(nanos(rtt.smoothed)));
            self.unsettled.settle(until.saturating_sub(nanos(window)), &mut outcome.settled);
        }
        let mut at = feedback.map_start;
        let mut pieces = MapPieces::new(feedback.map);
        while let Some(piece) = pieces.next_piece()? {
            match piece {
                MapPiece::Full(count) => {
                    let end = at.checked_add(count).filter(|&end| end <= self.next_number() / 64);
                    let end = end.ok_or(TransportMisbehaviour::AckOfUnsent)?;
                    for word in at.max(self.floor / 64)..end {
                        self.read_word(word, u64::MAX, &mut judge, outcome)?;
                    }
                    at = end;
                }
                MapPiece::Raw(raw) => {
                    for bytes in raw {
                        self.read_word(at, u64::from_le_bytes(*bytes), &mut judge, outcome)?;
                        at += 1;
                    }
                }
            }
        }
        Ok(at)
    }

    fn sample_rtt(&mut self, now: Timestamp, feedback: &Feedback<'_>, outcome: &mut FeedbackOutcome) {
        if self.newest_acked.is_some_and(|newest| feedback.newest <= newest) {
            return;
        }
        self.newest_acked = Some(feedback.newest);
        outcome.newest_is_new = true;
        let Some(at) = self.sent_at(feedback.newest) else { return };
        let whole = now - at;
        let delay = Duration::from_micros(feedback.delay_us);
        outcome.rtt = Some(whole.checked_sub(delay).unwrap_or(whole));
    }

    fn was_skipped(&self, number: u64) -> bool {
        let index = (number / 64).checked_sub(self.floor / 64).and_then(|index| usize::try_from(index).ok());
        let word = index.and_then(|index| self.words.get(index));
        word.is_some_and(|word| word.skipped >> (number % 64) & 1 == 1)
    }

    fn sent_at(&self, number: u64) -> Option<Timestamp> {
        let index = number.checked_sub(self.floor)?;
        self.sent.get(usize::try_from(index).ok()?).map(|sent| sent.at)
    }

    #[inline]
    fn read_word(
        &mut self,
        at: u64,
        bits: u64,
        judge: &mut Judge,
        outcome: &mut FeedbackOutcome,
    ) -> Result<(), TransportMisbehaviour> {
        let Some(index) = at.checked_sub(self.floor / 64) else { return Ok(()) };
        let Some(word) = self.words.get(index as usize).copied() else {
            let honest = bits & beyond(at, self.next_number()) == 0;
            return if honest { Ok(()) } else { Err(TransportMisbehaviour::AckOfUnsent) };
        };
        if bits & (word.skipped | beyond(at, self.next_number())) != 0 {
            return Err(TransportMisbehaviour::AckOfUnsent);
        }
        let acked = bits & (word.open | word.lost);
        let missing = word.open & !bits & !beyond(at, judge.newest);
        if acked != 0 {
            self.take_acked(at, acked, judge, outcome);
        }
        if missing != 0 {
            self.judge_missing(at, missing, judge, outcome);
        }
        Ok(())
    }

    fn take_acked(&mut self, at: u64, acked: u64, judge: &Judge, outcome: &mut FeedbackOutcome) {
        let word = &mut self.words[(at - self.floor / 64) as usize];
        let open = word.open & acked;
        word.open &= !acked;
        word.lost &= !acked;
        let late = acked & !open;
        self.open_count -= open.count_ones() as usize;
        let (first, mut bits) = (at * 64, acked);
        // Packets of a batch were sent at one time.
        let (mut batch_at, mut arrived) = (Timestamp::ZERO, 0);
        while bits != 0 {
            let bit = bits.trailing_zeros();
            bits &= bits - 1;
            let number = first + u64::from(bit);
            let sent = &self.sent[(number - self.floor) as usize];
            outcome.acked_bytes += u64::from(sent.wire_len);
            if sent.at != batch_at {
                self.unsettled.count_arrived(batch_at, arrived, &mut outcome.settled);
                (batch_at, arrived) = (sent.at, 0);
            }
            arrived += 1;
            if late >> bit & 1 == 1 {
                outcome.spurious += 1;
            } else {
                self.open_bytes -= u64::from(sent.wire_len);
            }
            if sent.suspect
                && let Some(newest_at) = judge.newest_at
            {
                // The packet came after a later one: this path reorders by nearly this much.
                self.reordering = self.reordering.max((newest_at - sent.at) * 5 / 4);
            }
            if sent.kind == PacketKind::Ping {
                outcome.pings_acked.push(number);
            }
            outcome.push_acked(sent);
        }
        self.unsettled.count_arrived(batch_at, arrived, &mut outcome.settled);
    }

    fn judge_missing(&mut self, at: u64, missing: u64, judge: &Judge, outcome: &mut FeedbackOutcome) {
        let (first, mut bits) = (at * 64, missing);
        while bits != 0 {
            let number = first + u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            let sent = &mut self.sent[(number - self.floor) as usize];
            if judge.newest_at.is_some_and(|newest_at| newest_at - sent.at >= judge.window) {
                self.declare_lost(number, outcome);
            } else if !sent.suspect {
                sent.suspect = true;
                self.suspects.push(Reverse(number));
            }
        }
    }

    fn declare_lost(&mut self, number: u64, outcome: &mut FeedbackOutcome) {
        let sent = self.sent[(number - self.floor) as usize];
        let bit = 1u64 << (number % 64);
        let word = &mut self.words[(number / 64 - self.floor / 64) as usize];
        word.open &= !bit;
        word.lost |= bit;
        self.open_count -= 1;
        self.open_bytes -= u64::from(sent.wire_len);
        // A probe that is too long for the path says nothing about congestion (RFC 8899, section 3).
        if sent.kind != PacketKind::MtuProbe {
            outcome.lost_bytes += u64::from(sent.wire_len);
            let runs = u32::from(number != self.lost_last + 1);
            self.lost_last = number;
            self.unsettled.count(
                sent.at,
                PacketTally { lost: 1, runs, ..PacketTally::default() },
                &mut outcome.settled,
            );
        }
        if sent.kind == PacketKind::Ping {
            outcome.pings_lost.push(number);
        }
        outcome.lost.push(sent);
    }

    /// When a suspect becomes lost by time alone.
    pub(crate) fn suspect_deadline(&self, rtt: &Rtt) -> Option<Timestamp> {
        let Reverse(front) = self.suspects.peek()?;
        // A suspect that is below the floor has a known fate and is swept at once.
        Some(self.sent_at(*front).map_or(Timestamp::ZERO, |at| at + rtt.smoothed + self.window(rtt)))
    }

    /// Declares suspects lost whose time has come: packets after them had arrived, and they have not been
    /// acknowledged since.
    pub(crate) fn on_time(&mut self, now: Timestamp, rtt: &Rtt, outcome: &mut FeedbackOutcome) {
        let patience = rtt.smoothed + self.window(rtt);
        while let Some(&Reverse(number)) = self.suspects.peek() {
            if self.is_open(number) {
                let at = self.sent[(number - self.floor) as usize].at;
                if now < at + patience {
                    return;
                }
                self.declare_lost(number, outcome);
            }
            self.suspects.pop();
        }
    }

    fn is_open(&self, number: u64) -> bool {
        let index = (number / 64).checked_sub(self.floor / 64);
        index
            .and_then(|index| self.words.get(index as usize))
            .is_some_and(|word| word.open >> (number % 64) & 1 == 1)
    }

    /// Drops packets at the front whose fate is known. A lost packet stays for a while, as it may turn out to
    /// be late.
    pub(crate) fn sweep(&mut self, now: Timestamp, rtt: &Rtt) {
        while self.suspects.peek().is_some_and(|&Reverse(number)| !self.is_open(number)) {
            self.suspects.pop();
        }
        let patience = nanos(rtt.smoothed) * 2 + nanos(self.window(rtt)) * 2;
        // With so many packets, three round trips of them would cost much memory and not fit into the span.
        let is_long = self.sent.len() > SPAN_MAX / 16;
        while let Some(front) = self.sent.front() {
            let is_whole = self.floor.is_multiple_of(64) && self.words.len() > 1;
            let word = &mut self.words[0];
            if is_whole && word.open | word.lost == 0 {
                // The common case: all 64 have arrived.
                self.sent.drain(..64);
                self.floor += 64;
                self.words.pop_front();
                continue;
            }
            let bit = 1u64 << (self.floor % 64);
            let waits = word.lost & bit != 0 && nanos(now - front.at) < patience && !is_long;
            if word.open & bit != 0 || waits {
                return;
            }
            (word.lost, word.skipped) = (word.lost & !bit, word.skipped & !bit);
            self.sent.pop_front();
            self.floor += 1;
            if self.floor.is_multiple_of(64) {
                self.words.pop_front();
            }
        }
    }

    /// The oldest outstanding segment.
    pub(crate) fn oldest_open_segment(&self) -> Option<SentPacket> {
        let open = |index: usize| self.is_open(self.floor + index as u64);
        let found = self
            .sent
            .iter()
            .enumerate()
            .find(|(index, sent)| sent.kind == PacketKind::Segment && open(*index));
        found.map(|(_, sent)| *sent)
    }

    /// The packet of this number, if it carried a segment whose fate is unknown.
    pub(crate) fn open_segment(&self, number: u64) -> Option<SentPacket> {
        let sent = self.sent.get(usize::try_from(number.checked_sub(self.floor)?).ok()?)?;
        (sent.kind == PacketKind::Segment && self.is_open(number)).then_some(*sent)
    }

    /// Everything outstanding, in order.
    pub(crate) fn open(&self) -> impl Iterator<Item = &SentPacket> {
        self.sent
            .iter()
            .enumerate()
            .filter(|(index, _)| self.is_open(self.floor + *index as u64))
            .map(|(_, sent)| sent)
    }
}

struct Judge {
    newest: u64,
    newest_at: Option<Timestamp>,
    window: Duration,
}

/// The bits of word `at` whose numbers are `number` or more.
#[inline]
fn beyond(at: u64, number: u64) -> u64 {
    match number.saturating_sub(at.saturating_mul(64)) {
        0 => u64::MAX,
        below @ 1..64 => u64::MAX << below,
        _ => 0,
    }
}
