//! How a flow waits: when it lets arrivals gather, what it sleeps on and for how long, and how its waits are
//! booked.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_proto::{SendLimit, Timestamp};

use super::super::flow_thread::{FlowLoop, PROBE_INTERVAL};
use crate::flows::flow_shared::FlowState;

/// A receiver that finds fewer datagrams than this lets more of them gather for [`GATHER`] ...
const GATHER_MIN: usize = 32;
const GATHER: Duration = Duration::from_micros(200);
/// ... on paths with at least this round trip time.
const GATHER_RTT_MIN: Duration = Duration::from_millis(10);
/// A receiver that has taken more, and finds none now, looks again after this long before it asks to be
/// woken.
const GATHER_DENSE: Duration = Duration::from_micros(50);
/// Both need this much buffer for what gathers: 400 us at 10 Gbit/s.
const GATHER_BUFFER_MIN: usize = 512 << 10;
/// How often a flow looks for what comes through the listening socket, whose hand-over has no descriptor to
/// wait for.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(2);
/// The same for a flow that waits for a path to come back.
const SPARE_ACCEPT_INTERVAL: Duration = Duration::from_millis(50);
/// The longest sleep; after it the flow looks at the session's flags.
const SLEEP_MAX: Duration = Duration::from_millis(100);

pub(super) fn has_room_to_gather(recv_buffer_bytes: usize) -> bool {
    recv_buffer_bytes >= GATHER_BUFFER_MIN
}

impl FlowLoop {
    /// How long to let arrivals gather. If packets come one by one, waking for each costs more than all other
    /// work. On a long path the fraction of a millisecond does not matter.
    pub(super) fn pause(&self, arrived: usize) -> Option<Duration> {
        let rtt = self.thread.flow.rtt().smoothed;
        let is_thin = (1..GATHER_MIN).contains(&arrived) && !self.incoming.is_empty();
        (is_thin && rtt >= GATHER_RTT_MIN && self.can_gather).then_some(GATHER)
    }

    /// Waits when nothing is left to do. A receiver to which many datagrams have come only pauses for a
    /// moment, as more will come: waking it for the next train would interrupt an idle core, which on a
    /// virtual machine takes as long as dozens of packets.
    pub(super) fn wait(&mut self, now: Timestamp) -> std::io::Result<()> {
        let is_dense = std::mem::take(&mut self.unslept) >= GATHER_MIN;
        if is_dense && !self.is_sender && self.can_gather && self.is_open() {
            std::thread::sleep(GATHER_DENSE);
            return Ok(());
        }
        self.sleep(now)
    }

    fn sleep(&mut self, now: Timestamp) -> std::io::Result<()> {
        let own = self.thread.own.clone();
        // Whoever asks while the flow sleeps finds the newest figures.
        self.publish_figures();
        let shared = &self.thread.shared;
        if own.sleep.may_sleep() && !shared.is_stopped() && !own.retire.load(Ordering::Acquire) {
            // Until the link takes more, or the peer's address has answered, a datagram that is due cannot be
            // sent anyway.
            let due = if self.blocked || self.is_held { None } else { self.thread.flow.poll_timeout() };
            let until = due.map_or(SLEEP_MAX, |due| (due - now).min(SLEEP_MAX));
            let until = match own.state() {
                FlowState::Connecting if !self.thread.peer.is_accepting() => until.min(PROBE_INTERVAL / 2),
                FlowState::Connecting if own.is_spare => until.min(SPARE_ACCEPT_INTERVAL),
                FlowState::Connecting => until.min(ACCEPT_INTERVAL),
                FlowState::Up | FlowState::Down => until,
            };
            let until = self.challenge_due().map_or(until, |due| until.min(due - now));
            self.fds.clear();
            self.thread.link.poll_fds(self.blocked, &mut self.fds);
            self.fds.push(own.waker().poll_fd());
            let slept_at = Instant::now();
            farhaul_net::wait(&mut self.fds, Some(until))?;
            self.book_wait(slept_at.elapsed());
        }
        own.awake();
        Ok(())
    }

    /// Books what the sender has waited for, if there was something left to send.
    fn book_wait(&self, time: Duration) {
        if !self.is_sender
            || !self.is_open()
            || self.thread.shared.is_all_queued() && self.outgoing.is_empty()
        {
            return;
        }
        let waits = &self.meters.waits;
        match self.thread.flow.limited_by() {
            _ if self.blocked => waits.network.add(time),
            SendLimit::Window | SendLimit::Pacing => waits.network.add(time),
            SendLimit::Ceiling => waits.rate.add(time),
            SendLimit::Credit => waits.receiver.add(time),
            SendLimit::Application => waits.content.add(time),
        }
    }
}
