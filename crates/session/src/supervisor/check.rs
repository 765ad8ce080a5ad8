//! What is looked at every [`CHECK_INTERVAL`](super::CHECK_INTERVAL), and what is done about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::blocked::Blocked;
use super::super::messages::Message;
use super::super::shared::{FlowShared, FlowState};
use super::super::supervisor::{CHECK_INTERVAL, CONNECT_MAX, SILENCE, Supervisor};
use super::carriers::is_live_udp;
use super::gone::lost;
use super::streams::{DIRECT_TIME, FORESIGHT};
use crate::error::{Code, Error};

/// The same while streams carry beside it.
const SILENCE_BESIDE: Duration = Duration::from_secs(10);
/// A port that answers "closed" for this long, with nothing authentic meanwhile: the peer is gone.
const REFUSED: Duration = Duration::from_secs(2);
/// Nothing at all for this long: the transfer ends, resumable.
const PATIENCE: Duration = Duration::from_secs(300);

impl Supervisor {
    pub(super) fn check(&mut self) -> Result<(), Error> {
        if let Some(why) = self.stop.take_revocation() {
            return Err(self.revoked(why));
        }
        if self.stop.is_set() {
            return Err(lost(
                Code::PeerEnded,
                format!("the session with {} was ended by the far end", self.peer),
            ));
        }
        if let Some(complaint) = self.shared.peer_closed() {
            // What it said last may still be on its way to the inbox; it is looked at first.
            if self.has_last_words() {
                return Ok(());
            }
            return Err(self.closed(complaint));
        }
        self.obey_wishes();
        self.watch_rate_share();
        let held = self.shared.control.lock().held_bytes() + self.shared.requests.held_bytes();
        self.control_kept.hold(held)?;
        self.obey_path_wishes()?;
        self.ask_for_paths();
        // What was said without waiting.
        self.shared.pour();
        self.publish();
        let now = self.shared.elapsed();
        self.poll_reply()?;
        self.poll_fallback()?;
        let flows = self.shared.flow_list();
        let silent =
            |stamp: &AtomicU64| now.saturating_sub(Duration::from_millis(stamp.load(Ordering::Relaxed)));
        self.open_spares(&flows)?;
        let udp: Vec<_> = flows.iter().filter(|flow| is_live_udp(flow)).cloned().collect();
        let streams: Vec<_> = flows.iter().filter(|flow| flow.is_stream).cloned().collect();
        let is_alive = |flow: &&Arc<FlowShared>| {
            let is_up = flow.state() == FlowState::Up && !flow.retire.load(Ordering::Acquire);
            is_up && silent(&flow.heard_ms) < SILENCE
        };
        // A connection of our own before the ssh channel, which is the slower one.
        let direct_alive = streams.iter().filter(is_alive).find(|flow| !self.is_channel(flow));
        let stream_alive = direct_alive.or_else(|| streams.iter().find(is_alive));
        self.tend_streams(&udp, &streams, now)?;
        // The ssh channel closes with the process at its other end; without it there is nobody to speak to.
        let is_down = |flow: &Arc<FlowShared>| flow.state() == FlowState::Down;
        let are_all_down = streams.iter().all(is_down);
        let ssh_gone = streams.iter().any(|flow| self.is_channel(flow) && is_down(flow));
        let is_gone = ssh_gone || are_all_down && !streams.is_empty() && udp.is_empty();
        if is_gone && stream_alive.is_none() {
            // Its last words may have come together with its end.
            if self.shared.peer_closed().is_some() || self.has_last_words() {
                return Ok(());
            }
            return Err(self.gone());
        }
        if udp.is_empty() {
            let heard = streams.iter().map(|flow| silent(&flow.heard_ms)).min().unwrap_or(now);
            return if heard > PATIENCE { self.give_up(self.silent_too_long(PATIENCE)) } else { Ok(()) };
        }
        if self.was_up && are_all_down && self.is_refused_for(REFUSED) {
            return self.give_up(self.gone());
        }
        if udp.iter().any(|flow| flow.is_spare) {
            // Each begins once: streams may carry beside it later.
            let newest = udp.iter().filter(|flow| flow.is_spare).map(|flow| flow.index).max();
            if newest > self.taken_up {
                self.taken_up = newest;
                self.take_up_udp(&streams);
            }
            self.say_alive(&udp);
        }
        if let Some(blocked) =
            self.blocked.as_mut().filter(|_| udp.iter().any(|flow| flow.state() == FlowState::Up))
        {
            blocked.forget();
        }
        if udp.iter().all(|flow| !self.is_used(flow.path)) {
            // A path that was not wanted is better than none.
            self.apply_paths(0)?;
            self.shared.say(&[Message::PathsUnused(0)]);
        }
        let answered = udp.iter().map(|flow| silent(&flow.answered_ms)).min().unwrap_or(now);
        let is_noted = !self.was_up && self.blocked.as_ref().is_some_and(Blocked::was_noted);
        let has_none = !streams.iter().any(|flow| flow.state() != FlowState::Down && !self.is_channel(flow));
        if (answered >= FORESIGHT || is_noted) && has_none && !self.options.udp_only {
            self.dial();
        }
        // Where a note says that UDP is blocked, the streams begin, and UDP goes on as it does after that.
        let is_beside = streams.iter().any(|flow| is_alive(&flow) && flow.active.load(Ordering::Acquire));
        let patience = match (is_noted, is_beside) {
            (true, _) => Duration::ZERO,
            // Nothing waits for it, and a policer may let very little through.
            (false, true) => SILENCE_BESIDE,
            (false, false) => SILENCE,
        };
        if answered < patience {
            self.retire_silent(&udp, now);
            return Ok(());
        }
        let is_coming = self.may_get_direct() && direct_alive.is_none() && answered < patience + DIRECT_TIME;
        if let Some(stream) = stream_alive.filter(|_| !self.options.udp_only && !is_coming).cloned() {
            self.change_over(&stream);
            return Ok(());
        }
        if is_noted && answered < SILENCE {
            return Ok(());
        }
        // The initiator's user is the one to tell, so it is the first to give up, in words of its own.
        let is_hopeless = self.options.udp_only && self.shared.is_initiator;
        if !self.was_up && (is_hopeless || answered > CONNECT_MAX) {
            return Err(self.unreachable());
        }
        let heard = flows.iter().map(|flow| silent(&flow.heard_ms)).min().unwrap_or(now);
        if heard > PATIENCE { self.give_up(self.silent_too_long(heard)) } else { Ok(()) }
    }

    /// The peer is not there any more, unless the caller has not yet seen all that it said: its last word may say why.
    pub(super) fn give_up(&self, error: Error) -> Result<(), Error> {
        if self.is_behind || self.shared.requests.is_behind() { Ok(()) } else { Err(error) }
    }

    /// Whether there is something of the peer's that the caller has not seen; it is given a moment to come.
    pub(super) fn has_last_words(&mut self) -> bool {
        self.is_behind = self.is_behind
            || self.shared.requests.is_behind()
            || self.shared.receive(&mut self.inbox, CHECK_INTERVAL) > 0;
        self.is_behind
    }

    fn publish(&mut self) {
        self.watch_rate();
        self.say_short_buffer(&self.shared.flow_list());
        self.publish_facts();
    }
}
