//! One direction of a link without any I/O: what becomes of each packet, and when it arrives.
//!
//! How to read it: [`LinkModel::offer`] is called with each train that arrives (the wire packets of one GSO
//! super-packet, or a single packet), and answers with pieces: runs of packets that travel on together.
//! `queue.rs` is what happens up to the bottleneck, `loss.rs` and `delay.rs` what happens behind it;
//! `random.rs` is the random generator.
//!
//! The queue holds no packets. At a known rate, a packet's departure is known when it arrives, so a queue is
//! one time: when the bottleneck will be free. Packets that wait while the rate is changed leave at the rate
//! at which they came.
//!
//! Always true: the same seed, profile and offers give the same answers; time is an argument and never goes
//! back; each packet is judged by itself; pieces that keep the order have arrival times that never decrease.

mod delay;
mod loss;
mod queue;
mod random;

use farhaul_motion::{DelayMotion, LinkDirection};
use serde::Serialize;

use crate::settings::{DirectionProfile, Jitter, JitterOrder, LossPlace};
use delay::MovingDelay;
use loss::GilbertLoss;
use queue::{Bottleneck, PolicerBucket, QueueVerdict};
use random::{EventDraw, XorShift64};

/// Packets of a train that leave the bottleneck within this time travel as one piece. A receiver's interface
/// gathers arrivals for about as long, and so there are only thousands of hand-overs a second.
const SLICE_NS: u64 = 200_000;

/// If a larger share is lost, the survivors of one slice arrive together.
const BATCH_LOSS: f64 = 0.05;

/// The wire packets of one super-packet. All have the same length, only the last one may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketTrain {
    /// The number of packets, at least one.
    pub count: u32,
    /// The IP length of each packet but the last, in bytes.
    pub packet_len: u32,
    /// The IP length of the last packet.
    pub last_len: u32,
    /// Whether the packets may be marked with "congestion experienced".
    pub ecn: Ecn,
}

/// Whether the sender supports ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// Not-ECT: a packet can only be dropped.
    Forbidden,
    /// ECT(0) or ECT(1), or marked already.
    Capable,
}

/// A run of a train's packets that arrives at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainPiece {
    /// Index of its first packet in the train.
    pub first: u32,
    /// The number of packets.
    pub count: u32,
    /// When it arrives, in nanoseconds of the caller's clock.
    pub due: u64,
    /// Whether it is marked with "congestion experienced".
    pub marked: bool,
    /// Whether a bit is wrong; the piece is then a single packet.
    pub corrupt: bool,
    /// Whether it may arrive before pieces that were offered earlier.
    pub order: JitterOrder,
}

/// Why a packet does not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DropCause {
    Queue,
    Codel,
    Policer,
    Loss,
    BurstLoss,
    Gap,
    PathMtu,
    Cut,
}

/// Dropped packets by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DropCounts {
    /// The queue before the bottleneck was full.
    pub queue: u64,
    /// CoDel.
    pub codel: u64,
    /// The policer.
    pub policer: u64,
    /// Random loss.
    pub loss: u64,
    /// Burst loss.
    pub burst_loss: u64,
    /// The gap before a step of the delay.
    pub gap: u64,
    /// Longer than the path's MTU.
    pub path_mtu: u64,
    /// The link was cut.
    pub cut: u64,
}

/// What a direction has done since its start. Bytes are those of IP packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DirectionCounters {
    /// Packets that came to the link.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that got through; a duplicate counts once.
    pub passed_packets: u64,
    /// Their bytes.
    pub passed_bytes: u64,
    /// Packets that did not get through.
    pub dropped: DropCounts,
    /// Packets marked with congestion experienced.
    pub marked: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets with a wrong bit.
    pub corrupted: u64,
    /// Packets that were delayed to reorder them.
    pub reordered: u64,
    /// Longest wait before the bottleneck.
    pub queue_max_ns: u64,
}

/// The fate of one packet.
#[derive(Debug, Clone, Copy)]
enum PacketFate {
    Dropped(DropCause),
    Passed { departs: u64, due: u64, marked: bool, corrupt: bool, order: JitterOrder },
}

/// One direction of a link.
#[derive(Debug)]
pub struct LinkModel {
    profile: DirectionProfile,
    seed: u64,
    way: LinkDirection,
    random: XorShift64,
    bottleneck: Bottleneck,
    policing: Option<PolicerBucket>,
    loss: EventDraw,
    burst_loss: Option<GilbertLoss>,
    duplicate: EventDraw,
    corrupt: EventDraw,
    reorder: EventDraw,
    /// Set if the delay moves by itself.
    moving: Option<MovingDelay>,
    cut_until: u64,
    /// The arrival time of the last piece that keeps the order.
    last_due: u64,
    counters: DirectionCounters,
}

impl LinkModel {
    /// One direction of a link that behaves as `profile` says. An automatic queue is sized by `rtt_ns`.
    pub fn new(profile: &DirectionProfile, rtt_ns: u64, seed: u64, way: LinkDirection) -> LinkModel {
        let mut random = XorShift64::new(seed.wrapping_add(way as u64));
        LinkModel {
            bottleneck: Bottleneck::new(profile, rtt_ns, seed, way),
            policing: profile.policer.map(PolicerBucket::new),
            loss: EventDraw::new(profile.loss, &mut random),
            burst_loss: profile.burst_loss.map(|burst| GilbertLoss::new(burst, &mut random)),
            duplicate: EventDraw::new(profile.duplicate, &mut random),
            corrupt: EventDraw::new(profile.corrupt, &mut random),
            reorder: EventDraw::new(profile.reorder.map_or(0.0, |reorder| reorder.share), &mut random),
            moving: moving_delay(profile, seed, way),
            cut_until: 0,
            last_due: 0,
            counters: DirectionCounters::default(),
            profile: profile.clone(),
            seed,
            way,
            random,
        }
    }

    /// What the link has done so far.
    pub fn counters(&self) -> &DirectionCounters {
        &self.counters
    }

    /// Whether the survivors of a slice arrive together.
    pub fn joins_survivors(&self) -> bool {
        self.profile.loss + self.profile.burst_loss.map_or(0.0, |burst| burst.share) > BATCH_LOSS
    }

    /// The profile that is in force.
    pub fn profile(&self) -> &DirectionProfile {
        &self.profile
    }

    /// How long a packet that arrives now would wait before the bottleneck.
    pub fn queue_ns(&self, now: u64) -> u64 {
        self.bottleneck.wait_ns(now)
    }

    /// Continues as `profile` says; packets that are under way are not affected.
    pub fn change(&mut self, profile: &DirectionProfile, rtt_ns: u64) {
        self.bottleneck.change(profile, rtt_ns);
        if profile.policer != self.profile.policer {
            self.policing = profile.policer.map(PolicerBucket::new);
        }
        if profile.burst_loss != self.profile.burst_loss {
            self.burst_loss = profile.burst_loss.map(|burst| GilbertLoss::new(burst, &mut self.random));
        }
        if profile.jitter != self.profile.jitter {
            self.moving = moving_delay(profile, self.seed, self.way);
        }
        let reorder = profile.reorder.map_or(0.0, |reorder| reorder.share);
        for (events, share) in [
            (&mut self.loss, profile.loss),
            (&mut self.duplicate, profile.duplicate),
            (&mut self.corrupt, profile.corrupt),
            (&mut self.reorder, reorder),
        ] {
            if events.share() != share {
                *events = EventDraw::new(share, &mut self.random);
            }
        }
        self.profile = profile.clone();
    }

    /// Says that the time is `now`, even if nothing has come. Motions advance meanwhile, and need not make up
    /// for all of it with the next packet.
    pub fn pass_time(&mut self, now: u64) {
        self.bottleneck.pass_time(now);
        if let Some(moving) = &mut self.moving {
            moving.pass_time(now);
        }
    }

    /// Drops all packets that come before `until`.
    pub fn cut(&mut self, until: u64) {
        self.cut_until = until;
    }

    /// A train arrives. Fills `pieces` (cleared first) with the packets that arrive and their times.
    pub fn offer(&mut self, now: u64, train: PacketTrain, pieces: &mut Vec<TrainPiece>) {
        pieces.clear();
        let mut slices = Slices::new(pieces, self.joins_survivors());
        for index in 0..train.count {
            let len = if index + 1 == train.count { train.last_len } else { train.packet_len };
            self.counters.packets += 1;
            self.counters.bytes += u64::from(len);
            match self.judge(now, len, train.ecn) {
                PacketFate::Dropped(cause) => self.counters.dropped.count(cause),
                PacketFate::Passed { departs, due, marked, corrupt, order } => {
                    let twice = self.duplicate.happens(&mut self.random);
                    slices.add(
                        departs,
                        TrainPiece { first: index, count: 1, due, marked, corrupt, order },
                        twice,
                    );
                    self.counters.passed_packets += 1;
                    self.counters.passed_bytes += u64::from(len);
                    self.counters.marked += u64::from(marked);
                    self.counters.corrupted += u64::from(corrupt);
                    self.counters.duplicated += u64::from(twice);
                }
            }
        }
        slices.close();
    }

    /// Follows one packet along the link: in front of the bottleneck, through it, and behind it.
    fn judge(&mut self, now: u64, len: u32, ecn: Ecn) -> PacketFate {
        if now < self.cut_until {
            return PacketFate::Dropped(DropCause::Cut);
        }
        if self.profile.path_mtu.is_some_and(|mtu| len > mtu) {
            return PacketFate::Dropped(DropCause::PathMtu);
        }
        let in_front = self.profile.loss_place == LossPlace::Front;
        if in_front && self.loss.happens(&mut self.random) {
            return PacketFate::Dropped(DropCause::Loss);
        }
        if self.policing.as_mut().is_some_and(|policing| !policing.admits(now, len)) {
            return PacketFate::Dropped(DropCause::Policer);
        }
        let (departs, marked) = match self.bottleneck.pass(now, len, ecn) {
            QueueVerdict::Departs { at, marked } => (at, marked),
            QueueVerdict::TailDropped => return PacketFate::Dropped(DropCause::Queue),
            QueueVerdict::CodelDropped => return PacketFate::Dropped(DropCause::Codel),
        };
        self.counters.queue_max_ns = self.counters.queue_max_ns.max(departs - now);
        if !in_front && self.loss.happens(&mut self.random) {
            return PacketFate::Dropped(DropCause::Loss);
        }
        if self.burst_loss.as_mut().is_some_and(|burst| burst.loses(&mut self.random)) {
            return PacketFate::Dropped(DropCause::BurstLoss);
        }
        let corrupt = self.corrupt.happens(&mut self.random);
        let Some((due, order)) = self.arrival(now, departs) else {
            return PacketFate::Dropped(DropCause::Gap);
        };
        PacketFate::Passed { departs, due, marked, corrupt, order }
    }

    /// When a packet that entered at `now` and leaves the bottleneck at `departs` arrives; `None` if it falls
    /// into a gap.
    fn arrival(&mut self, now: u64, departs: u64) -> Option<(u64, JitterOrder)> {
        let mut due = departs + self.profile.delay_ns;
        let mut order = JitterOrder::Kept;
        match (self.profile.jitter, &mut self.moving) {
            (_, Some(moving)) => (due, order) = moving.arrival(now, due)?,
            (Jitter::Around { ns, order: asked }, _) if ns > 0 => {
                let moved = self.random.below(2 * ns + 1);
                due = (due + moved).saturating_sub(ns).max(departs);
                order = asked;
            }
            _ => {}
        }
        if self.reorder.happens(&mut self.random) {
            self.counters.reordered += 1;
            return Some((
                due + self.profile.reorder.map_or(0, |reorder| reorder.late_ns),
                JitterOrder::Free,
            ));
        }
        if order == JitterOrder::Kept {
            self.last_due = self.last_due.max(due);
            due = self.last_due;
        }
        Some((due, order))
    }
}

fn moving_delay(profile: &DirectionProfile, seed: u64, way: LinkDirection) -> Option<MovingDelay> {
    match profile.jitter {
        Jitter::Around { .. } | Jitter::Moves(DelayMotion::Still) => None,
        Jitter::Moves(motion) => Some(MovingDelay::new(motion, seed, way)),
    }
}

impl DirectionCounters {
    /// The counts since `before`; the longest wait stays that since the start.
    pub(crate) fn since(&self, before: &DirectionCounters) -> DirectionCounters {
        let (now, then) = (&self.dropped, &before.dropped);
        DirectionCounters {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            passed_packets: self.passed_packets - before.passed_packets,
            passed_bytes: self.passed_bytes - before.passed_bytes,
            dropped: DropCounts {
                queue: now.queue - then.queue,
                codel: now.codel - then.codel,
                policer: now.policer - then.policer,
                loss: now.loss - then.loss,
                burst_loss: now.burst_loss - then.burst_loss,
                gap: now.gap - then.gap,
                path_mtu: now.path_mtu - then.path_mtu,
                cut: now.cut - then.cut,
            },
            marked: self.marked - before.marked,
            duplicated: self.duplicated - before.duplicated,
            corrupted: self.corrupted - before.corrupted,
            reordered: self.reordered - before.reordered,
            queue_max_ns: self.queue_max_ns,
        }
    }
}

impl DropCounts {
    fn count(&mut self, cause: DropCause) {
        *match cause {
            DropCause::Queue => &mut self.queue,
            DropCause::Codel => &mut self.codel,
            DropCause::Policer => &mut self.policer,
            DropCause::Loss => &mut self.loss,
            DropCause::BurstLoss => &mut self.burst_loss,
            DropCause::Gap => &mut self.gap,
            DropCause::PathMtu => &mut self.path_mtu,
            DropCause::Cut => &mut self.cut,
        } += 1;
    }
}

/// Gathers packets into pieces: neighbours that leave within one slice and have the same fate.
struct Slices<'a> {
    pieces: &'a mut Vec<TrainPiece>,
    /// Whether all pieces of a slice arrive with its last one.
    together: bool,
    /// When the slice's first packet left, and the index of the slice's first piece.
    began: u64,
    first_piece: usize,
}

impl<'a> Slices<'a> {
    fn new(pieces: &'a mut Vec<TrainPiece>, together: bool) -> Slices<'a> {
        Slices { pieces, together, began: 0, first_piece: 0 }
    }

    fn add(&mut self, departs: u64, packet: TrainPiece, twice: bool) {
        let same_slice = !self.pieces.is_empty() && departs - self.began <= SLICE_NS;
        if !same_slice {
            self.close();
            self.began = departs;
        }
        match self.pieces.last_mut() {
            Some(last) if same_slice && last.takes(&packet) => {
                last.count += 1;
                last.due = packet.due;
            }
            _ => self.pieces.push(packet),
        }
        if twice {
            self.pieces.push(packet);
        }
    }

    fn close(&mut self) {
        if self.together
            && let Some(due) = self.kept_order().last().map(|piece| piece.due)
        {
            self.kept_order().for_each(|piece| piece.due = due);
        }
        self.first_piece = self.pieces.len();
    }

    fn kept_order(&mut self) -> impl DoubleEndedIterator<Item = &mut TrainPiece> {
        self.pieces[self.first_piece..].iter_mut().filter(|piece| piece.order == JitterOrder::Kept)
    }
}

impl TrainPiece {
    /// Whether `next` can join this piece.
    fn takes(&self, next: &TrainPiece) -> bool {
        self.first + self.count == next.first
            && self.marked == next.marked
            && !self.corrupt
            && !next.corrupt
            && self.order == JitterOrder::Kept
            && next.order == JitterOrder::Kept
    }
}

#[cfg(test)]
mod tests;
