//! Sends for a flow: plans of packets become sealed datagrams, which the link takes in batches.

use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_net::SendStatus;
use farhaul_proto::Timestamp;
use farhaul_words::Error;

use super::super::flow_thread::FlowLoop;
use crate::flows::flow_shared::FlowState;
use crate::flows::packets::SegmentPayload;

const PROBE_LEN: usize = 1200;
/// How many segments ahead of the one being sealed the payload is prefetched.
const FETCH_AHEAD: usize = 2;

impl FlowLoop {
    pub(super) fn transmit(&mut self, now: Timestamp) -> Result<bool, Error> {
        self.challenge(now);
        let mut moved = false;
        loop {
            if self.send_batch.is_empty() {
                let started = Instant::now();
                if self.fill_batch(now)? == 0 {
                    return Ok(moved);
                }
                self.meters.seal.add(started.elapsed());
            }
            let started = Instant::now();
            let sent = self.thread.link.send(&mut self.send_batch).map_err(Error::io("cannot send"))?;
            self.meters.send.add(started.elapsed());
            self.blocked = matches!(sent, SendStatus::Blocked);
            if self.blocked {
                return Ok(moved);
            }
            self.send_batch.clear();
            moved = true;
            // A turn ends here, so that receiving goes on even if sending could go on for ever.
            if self.thread.own.state() == FlowState::Up {
                return Ok(true);
            }
        }
    }

    /// Plans and seals one batch; returns the number of datagrams.
    fn fill_batch(&mut self, now: Timestamp) -> Result<usize, Error> {
        let room = self.thread.peer.standing().and_then(|standing| standing.room(now));
        self.is_held = room.is_some_and(|room| room < self.longest());
        match room {
            _ if self.is_held => Ok(0),
            None => self.fill(now, usize::MAX),
            Some(room) => {
                // One by one, as each datagram has to be allowed.
                std::mem::swap(&mut self.plan, &mut self.single);
                let filled = self.fill(now, room);
                std::mem::swap(&mut self.plan, &mut self.single);
                filled
            }
        }
    }

    /// The most bytes of a datagram that is no path MTU probe.
    fn longest(&self) -> usize {
        usize::from(self.thread.flow.datagram_max()) + self.thread.packets.extra()
    }

    /// As [`FlowLoop::fill_batch`], limited to the plan's room and to datagrams of `room` bytes.
    fn fill(&mut self, now: Timestamp, room: usize) -> Result<usize, Error> {
        let carries_control = self.carries_control();
        let longest = self.longest();
        let thread = &mut self.thread;
        self.plan.clear();
        if thread.own.is_stream {
            let share = thread.own.ceiling_ppm.load(Ordering::Relaxed);
            thread.flow.set_ceiling_share(f64::from(share) / 1e6);
        }
        let planned = if carries_control {
            let mut control = thread.shared.control.lock();
            let controller = thread.shared.controller(thread.own.path);
            thread.flow.poll_transmit(now, &mut control, &controller, &mut self.plan)
        } else {
            let controller = thread.shared.controller(thread.own.path);
            thread.flow.poll_transmit(now, &mut self.nothing, &controller, &mut self.plan)
        };
        if planned == 0 {
            return Ok(0);
        }
        let connecting = thread.own.state() == FlowState::Connecting;
        let targets = thread.peer.targets();
        for (index, packet) in self.plan.packets.iter().enumerate() {
            let mut packet = *packet;
            if let Some(next) = self.plan.packets.get(index + FETCH_AHEAD).and_then(|next| next.segment) {
                self.outgoing.prefetch(&next);
            }
            let len = thread.packets.datagram_len(&packet);
            let probe_len = PROBE_LEN.min(longest);
            if connecting && !thread.own.is_stream && len < probe_len {
                // The probe is as long as the first datagrams with data: a path that passes only short ones
                // is useless.
                packet.padding += (probe_len - len) as u16;
            }
            let len = thread.packets.datagram_len(&packet);
            if len > room {
                // A path MTU probe is dropped, as if it had not got through.
                continue;
            }
            if room < usize::MAX
                && !targets.is_empty()
                && let Some(standing) = thread.peer.standing()
            {
                standing.on_sent(len * targets.len(), now);
            }
            let control = &self.plan.control[packet.control.range()];
            let payload = match packet.segment {
                Some(segment) => self.outgoing.payload(&segment)?,
                None => SegmentPayload::Sealed(&[]),
            };
            let mut written: Option<Vec<u8>> = None;
            for &address in targets.iter() {
                self.send_batch.to(address);
                // A path MTU probe that the system refuses must not take the datagrams behind it along.
                let out = match packet.wire_len() > usize::from(thread.flow.datagram_max()) {
                    true => self.send_batch.datagram_apart(len),
                    false => self.send_batch.datagram(len),
                };
                let out = out.expect("a plan fits the batch");
                match &written {
                    // Every candidate gets the same sealed bytes: a packet number is never sealed twice.
                    Some(bytes) => out.copy_from_slice(bytes),
                    None => {
                        thread.packets.seal(&packet, control, payload, out);
                        if connecting {
                            written = Some(out.to_vec());
                        }
                    }
                }
            }
        }
        if !self.is_open() || self.plan.packets.iter().any(|packet| packet.segment.is_some()) {
            self.last_sent = now;
        }
        Ok(self.send_batch.datagrams())
    }
}
