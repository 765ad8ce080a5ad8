//! One running direction: reads super-packets from the hosts of one side, asks the model, and hands pieces to
//! the other side.
//!
//! Always true: a frame costs one read and, if nothing of it is lost, as many writes as it has slices; no
//! packet costs a lock, nor an allocation once the link has been as full as it gets. The thread sleeps until
//! a host sends, a command comes or a piece is due, and reads the clock once a round.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::arena::Arena;
use super::pending_pieces::{PendingPiece, PendingPieces};
use super::report::DirectionTotals;
use crate::model::{LinkModel, TrainPiece};
use crate::packet::{
    FrameKind, FrameLayout, HEADERS_MAX, PacketRun, Router, VNET_LEN, corrupt, destination, too_big,
};
use crate::settings::{DirectionProfile, JitterOrder, OversizePolicy};
use crate::sys;

/// The number of frames read before due pieces are handed over: few, so that they are still in the cache by
/// then.
const READ_ROUND: usize = 8;
/// The number of pieces handed over before the hosts are read again. It is more than a round of reading
/// brings, or pieces would pile up.
const DELIVER_ROUND: usize = 1024;
/// The most ranges that are handed over as one frame; a super-packet has at most about 45 full packets.
const RANGES_MAX: usize = 48;
/// A shorter sleep is spent waiting awake: going to sleep and waking up takes about as long.
const SPIN_NS: u64 = 8_000;
/// Sleeps end late by some time as a rule; at most this much is taken off in advance.
const OVERSLEEP_MAX_NS: u64 = 150_000;
/// If more time passes between reading the clock and reading a frame, the worker has stood still or had much
/// to hand over.
const STOOD_STILL_NS: u64 = 300_000;
/// How often the sums are published; `SLEEP_MAX_NS` is the longest sleep.
const PUBLISH_NS: u64 = 20_000_000;
const SLEEP_MAX_NS: u64 = 100_000_000;

/// A command for a running worker.
#[derive(Debug)]
pub(crate) enum WorkerCommand {
    Change { profile: Box<DirectionProfile>, rtt_ns: u64 },
    Cut { ns: u64 },
    Stop,
}

/// What a worker shares with other threads: commands in, sums out.
#[derive(Debug)]
pub(crate) struct WorkerMailbox {
    commands: Mutex<Vec<WorkerCommand>>,
    is_full: AtomicBool,
    bell: OwnedFd,
    sums: Mutex<DirectionTotals>,
}

impl WorkerMailbox {
    pub(crate) fn new() -> std::io::Result<WorkerMailbox> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (commands, sums) = (Mutex::default(), Mutex::default());
        Ok(WorkerMailbox { commands, is_full: AtomicBool::new(false), bell, sums })
    }

    pub(crate) fn send(&self, command: WorkerCommand) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.is_full.store(true, Ordering::Release);
        // A counter that is full wakes the worker as well.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(crate) fn sums(&self) -> DirectionTotals {
        *self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<WorkerCommand> {
        if !self.is_full.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The devices of one side. The host with index `i` has addresses that end in `first_address + i`.
#[derive(Debug, Clone)]
pub(crate) struct SideDevices {
    pub devices: Vec<Arc<OwnedFd>>,
    pub first_address: u8,
}

/// One direction.
pub(crate) struct LinkWorker {
    from: SideDevices,
    to: SideDevices,
    router: Router,
    model: LinkModel,
    arena: Arena,
    waiting: PendingPieces,
    pieces: Vec<TrainPiece>,
    /// Entries that are handed over as one frame.
    joined: Vec<PendingPiece>,
    mailbox: Arc<WorkerMailbox>,
    sums: DirectionTotals,
    /// By how much recent sleeps have been too long.
    oversleep_ns: u64,
    /// When the last frames came.
    arrived_at: u64,
}

impl LinkWorker {
    pub(crate) fn new(
        (from, to): (SideDevices, SideDevices),
        router: Router,
        model: LinkModel,
        memory_bytes: usize,
        mailbox: Arc<WorkerMailbox>,
    ) -> LinkWorker {
        let sums = DirectionTotals { at_ns: now(), ..DirectionTotals::default() };
        *mailbox.sums.lock().unwrap_or_else(PoisonError::into_inner) = sums;
        let (waiting, pieces) = (PendingPieces::new(), Vec::with_capacity(1 << 12));
        let joined = Vec::with_capacity(RANGES_MAX);
        LinkWorker {
            from,
            to,
            router,
            model,
            arena: Arena::new(memory_bytes),
            waiting,
            pieces,
            joined,
            mailbox,
            sums,
            oversleep_ns: 0,
            arrived_at: 0,
        }
    }

    /// Works until it gets the command to stop.
    pub(crate) fn run(mut self) {
        // Without these calls (the first needs root), sleeps are longer than asked, which is reported as
        // lateness.
        let _ = sys::prefer_this_thread();
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut woken_late_ns = 0;
        loop {
            let time = now();
            if self.obey(time).is_err() {
                return;
            }
            let busy = self.deliver(time) | self.read(time - woken_late_ns) | self.deliver(time);
            woken_late_ns = 0;
            if time >= self.sums.at_ns + PUBLISH_NS {
                self.publish(time);
            }
            if !busy {
                woken_late_ns = self.sleep(time);
            }
        }
    }

    fn obey(&mut self, time: u64) -> Result<(), WorkerStopped> {
        for command in self.mailbox.take() {
            match command {
                WorkerCommand::Change { profile, rtt_ns } => self.model.change(&profile, rtt_ns),
                WorkerCommand::Cut { ns } => self.model.cut(time + ns),
                WorkerCommand::Stop => {
                    self.publish(time);
                    return Err(WorkerStopped);
                }
            }
        }
        Ok(())
    }

    /// Reads what the hosts have sent by `time`; returns whether there was anything.
    fn read(&mut self, time: u64) -> bool {
        self.arrived_at = self.arrived_at.max(time);
        let mut any = false;
        for index in 0..self.from.devices.len() {
            for _ in 0..READ_ROUND.div_ceil(self.from.devices.len()) {
                let Some(room) = self.arena.room() else {
                    any |= self.discard(index);
                    break;
                };
                let Ok(len) = rustix::io::read(&self.from.devices[index], room) else { break };
                any = true;
                self.arrived_at = arrival(self.arrived_at, now());
                self.take(self.arrived_at, index, len);
            }
        }
        any
    }

    /// Handles one frame, whose `len` bytes stand in the arena's room.
    fn take(&mut self, time: u64, source: usize, len: usize) {
        let frame = self.arena.incoming(len);
        let host = destination(frame).and_then(|byte| self.to.index_of(byte));
        let (Some(layout), Some(host)) = (FrameLayout::read(frame), host) else {
            self.sums.unroutable += 1;
            return;
        };
        let too_long = self.model.counters().dropped.path_mtu;
        self.model.offer(time, layout.train(), &mut self.pieces);
        if self.model.counters().dropped.path_mtu > too_long {
            answer_too_big(&self.from.devices[source], frame, &layout, self.model.profile(), &self.router);
        }
        if self.pieces.is_empty() {
            return;
        }
        let frame = self.arena.keep(len, layout, host, self.pieces.len() as u32);
        for piece in &self.pieces {
            self.waiting.push(PendingPiece { frame, piece: *piece });
        }
    }

    /// The arena is full: drops the next frame, and counts it as the emulator's fault.
    #[cold]
    fn discard(&mut self, index: usize) -> bool {
        let mut scrap = vec![0; crate::packet::FRAME_MAX];
        match rustix::io::read(&self.from.devices[index], &mut scrap[..]) {
            Ok(len) => {
                let count = FrameLayout::read(&scrap[..len]).map_or(1, |layout| layout.count());
                self.sums.faults.memory_full += count as u64;
                true
            }
            Err(_) => false,
        }
    }

    /// Hands over pieces that are due; returns whether there were any.
    fn deliver(&mut self, time: u64) -> bool {
        let mut any = false;
        for _ in 0..DELIVER_ROUND {
            let Some(entry) = self.waiting.pop(time) else { break };
            any = true;
            self.hand_over(time, entry);
        }
        any
    }

    fn hand_over(&mut self, time: u64, entry: PendingPiece) {
        self.joined.clear();
        self.joined.push(entry);
        while self.model.joins_survivors()
            && self.joined.len() < RANGES_MAX
            && let Some(next) = self.waiting.peek_beside(entry.piece.due)
            && self.joined.last().is_some_and(|last| joins(&self.arena, last, next))
        {
            self.joined.push(*next);
            self.waiting.pop(time);
        }
        let (frame, bytes) = self.arena.frame(entry.frame);
        let device = &self.to.devices[frame.host];
        let (packets, len, written) = if entry.piece.corrupt {
            write_corrupt(device, bytes, &frame.layout, &entry.piece)
        } else {
            write(device, bytes, &frame.layout, &self.joined)
        };
        match written {
            Ok(_) => {
                self.sums.delivered_packets += packets;
                self.sums.delivered_bytes += len;
                self.sums.lateness.add(time.saturating_sub(entry.piece.due), packets);
            }
            Err(_) => self.sums.faults.refused += packets,
        }
        self.arena.release(entry.frame, self.joined.len() as u32);
    }

    #[cold]
    fn publish(&mut self, time: u64) {
        self.model.pass_time(time);
        self.sums.at_ns = time;
        self.sums.counters = *self.model.counters();
        self.sums.queue_ns = self.model.queue_ns(time);
        self.sums.cpu_ns = nanos(ClockId::ThreadCPUTime);
        *self.mailbox.sums.lock().unwrap_or_else(PoisonError::into_inner) = self.sums;
    }

    /// Sleeps until there is something to do. If a host has sent, returns how long ago that must have been:
    /// waking up for a packet takes as long as for a timer.
    fn sleep(&mut self, time: u64) -> u64 {
        let until = self.waiting.next_due().unwrap_or(u64::MAX);
        let ns = until.saturating_sub(time).min(SLEEP_MAX_NS);
        // Waking up early means waiting awake, so it is done only if that is a small part of the sleep.
        let ns = if ns >= 4 * self.oversleep_ns { ns - self.oversleep_ns } else { ns };
        if ns < SPIN_NS {
            std::hint::spin_loop();
            return 0;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: ns as i64 };
        let bell = PollFd::from_borrowed_fd(self.mailbox.bell.as_fd(), PollFlags::IN);
        // One device is the common case and needs no allocation; several need a list at each sleep.
        let woken = match &self.from.devices[..] {
            [device] => poll(&mut [bell, PollFd::new(device, PollFlags::IN)], Some(&timeout)),
            devices => {
                let mut fds: Vec<PollFd<'_>> =
                    devices.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
                fds.push(bell);
                poll(&mut fds, Some(&timeout))
            }
        };
        if woken == Ok(0) {
            let oversleep = now().saturating_sub(time + ns).min(OVERSLEEP_MAX_NS);
            self.oversleep_ns = (7 * self.oversleep_ns + oversleep) / 8;
            return 0;
        }
        self.oversleep_ns.min(now().saturating_sub(time))
    }
}

/// The arrival time of a frame that was read at `read_at`. It came by then, and as a rule just after
/// `looked_at`, when the clock was last read. But if the thread has stood still in between, it may have come
/// at the end of that time: a link that is shorter than configured is worse than one that is late.
fn arrival(looked_at: u64, read_at: u64) -> u64 {
    if read_at.saturating_sub(looked_at) > STOOD_STILL_NS { read_at } else { looked_at }
}

/// The worker was told to stop.
struct WorkerStopped;

impl SideDevices {
    fn index_of(&self, address: u8) -> Option<usize> {
        let index = usize::from(address.checked_sub(self.first_address)?);
        (index < self.devices.len()).then_some(index)
    }
}

/// Whether `next` can follow `last` in one frame: both are datagrams of the same super-packet, and only the
/// last one is short.
fn joins(arena: &Arena, last: &PendingPiece, next: &PendingPiece) -> bool {
    last.frame == next.frame
        && last.piece.order == JitterOrder::Kept
        && !last.piece.corrupt
        && !next.piece.corrupt
        && last.piece.marked == next.piece.marked
        && last.piece.first + last.piece.count <= next.piece.first
        && arena.frame(next.frame).0.layout.kind == FrameKind::Udp
}

/// Writes pieces of one frame as one frame; returns their number of packets and bytes of IP.
fn write(
    device: &OwnedFd,
    bytes: &[u8],
    layout: &FrameLayout,
    entries: &[PendingPiece],
) -> (u64, u64, Result<usize, Errno>) {
    let first = &entries[0].piece;
    let total = layout.count();
    if first.count as usize == total && !first.marked {
        return (total as u64, layout_bytes(layout, total, layout.len), rustix::io::write(device, bytes));
    }
    let mut slices = [IoSlice::new(&[]); RANGES_MAX + 1];
    let mut run = PacketRun {
        first: first.first as usize,
        count: 0,
        payload_len: 0,
        has_last: false,
        marked: first.marked,
    };
    for (slice, entry) in slices[1..].iter_mut().zip(entries) {
        let (first, count) = (entry.piece.first as usize, entry.piece.count as usize);
        let range = layout.payload(first, count);
        run.count += count;
        run.payload_len += range.len();
        run.has_last |= first + count == total;
        *slice = IoSlice::new(&bytes[range]);
    }
    let mut headers = [0; HEADERS_MAX];
    let len = layout.write_headers(bytes, run, &mut headers);
    slices[0] = IoSlice::new(&headers[..len]);
    let written = rustix::io::writev(device, &slices[..=entries.len()]);
    (run.count as u64, layout_bytes(layout, run.count, layout.payload_at + run.payload_len), written)
}

/// Bytes of IP on the wire: each packet has its own headers.
fn layout_bytes(layout: &FrameLayout, packets: usize, len: usize) -> u64 {
    (len + (packets - 1) * layout.payload_at) as u64
}

#[cold]
fn write_corrupt(
    device: &OwnedFd,
    bytes: &[u8],
    layout: &FrameLayout,
    piece: &TrainPiece,
) -> (u64, u64, Result<usize, Errno>) {
    let mut headers = [0; HEADERS_MAX];
    let run = layout.run(piece.first as usize, 1, piece.marked);
    let len = layout.write_headers(bytes, run, &mut headers);
    let mut whole = [&headers[..len], &bytes[layout.payload(run.first, 1)]].concat();
    corrupt(&mut whole);
    (1, (whole.len() - VNET_LEN) as u64, rustix::io::write(device, &whole))
}

#[cold]
fn answer_too_big(
    device: &OwnedFd,
    frame: &[u8],
    layout: &FrameLayout,
    profile: &DirectionProfile,
    router: &Router,
) {
    let (OversizePolicy::Answered, Some(mtu)) = (profile.too_big, profile.path_mtu) else { return };
    if let Some(answer) = too_big(frame, layout, mtu, router) {
        // As on any network, the message may be lost.
        let _ = rustix::io::write(device, &answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_the_worker_stands_still_is_not_dated_before_that() {
        let looked_at = 1_000_000_000;
        assert_eq!(arrival(looked_at, looked_at + 20_000), looked_at);
        assert_eq!(arrival(looked_at, looked_at + 32_000_000), looked_at + 32_000_000);
        // A frame that woke the worker is dated back by the time that waking up takes.
        assert_eq!(arrival(looked_at - OVERSLEEP_MAX_NS, looked_at), looked_at - OVERSLEEP_MAX_NS);
    }
}
