//! The check of every [`CHECK_INTERVAL`]: takes the facts, has them judged (`judge/mod.rs`), and carries out the
//! decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farhaul_words::{Carrier, Code, Error};

use super::super::messages::SessionMessage;
use super::super::supervisor::Supervisor;
use super::carriers::is_live_udp;
use super::judge::{CheckAction, CheckFacts, SessionEnd, StreamFlow, UdpFlow, judge};
use super::peer_loss::lost;
use super::streams::is_up;
use crate::flows::flow_shared::{FlowShared, FlowState};
use crate::intervals::CHECK_INTERVAL;

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
            // The peer's last messages may still be on their way to the inbox; they are handled first.
            return if self.has_last_words() { Ok(()) } else { Err(self.closed(complaint)) };
        }
        self.tend()?;
        let facts = self.facts()?;
        for act in judge(&facts) {
            self.act(act)?;
        }
        Ok(())
    }

    /// The work of every check, whatever the state of the session.
    fn tend(&mut self) -> Result<(), Error> {
        self.shared.note_silence(self.silence());
        self.obey_wishes();
        self.watch_rate_shares();
        let held = self.shared.control.lock().held_bytes() + self.shared.requests.held_bytes();
        self.control_kept.hold(held)?;
        self.obey_path_wishes()?;
        self.ask_for_paths();
        // Sends what was queued without waiting.
        self.shared.pour();
        self.publish();
        Ok(())
    }

    /// Takes in what has happened outside the flows, then collects the facts.
    fn facts(&mut self) -> Result<CheckFacts, Error> {
        let now = self.shared.elapsed();
        self.poll_reply()?;
        self.poll_fallback()?;
        // Without the spares that are opened now, as nothing is known of them yet.
        let flows = self.shared.flow_list();
        self.open_spares(&flows)?;
        let udp: Vec<_> = flows.iter().filter(|flow| is_live_udp(flow)).cloned().collect();
        let streams: Vec<_> = flows.iter().filter(|flow| flow.is_stream).cloned().collect();
        let were_up: Vec<bool> = streams.iter().map(|flow| is_up(flow)).collect();
        self.tend_streams(&udp, &streams, now)?;
        let since =
            |stamp: &AtomicU64| now.saturating_sub(Duration::from_millis(stamp.load(Ordering::Relaxed)));
        let see_udp = |flow: &Arc<FlowShared>| UdpFlow {
            index: flow.index,
            is_up: flow.state() == FlowState::Up,
            is_spare: flow.is_spare,
            is_path_used: self.is_used(flow.path),
            unanswered: since(&flow.answered_ms),
        };
        let see_stream = |(flow, was_up): (&Arc<FlowShared>, bool)| {
            let is_active = flow.active.load(Ordering::Acquire);
            StreamFlow {
                index: flow.index,
                is_channel: self.is_channel(flow),
                is_down: flow.state() == FlowState::Down,
                was_up,
                is_active,
                is_carrying: is_active && is_up(flow),
                silent: since(&flow.heard_ms),
            }
        };
        Ok(CheckFacts {
            now,
            udp: udp.iter().map(see_udp).collect(),
            streams: streams.iter().zip(were_up).map(see_stream).collect(),
            silent: flows.iter().map(|flow| since(&flow.heard_ms)).min().unwrap_or(now),
            refused: self.refused_for(),
            was_up: self.was_up,
            is_initiator: self.shared.is_initiator,
            is_udp_only: self.options.udp_only,
            is_noted: self.carriers.is_noted(),
            may_get_direct: self.carriers.may_get_direct(),
            has_better_streams: self.streams.has_better_streams(),
            taken_up: self.carriers.taken_up(),
            has_unseen: self.has_unseen(),
        })
    }

    fn act(&mut self, act: CheckAction) -> Result<(), Error> {
        match act {
            CheckAction::TakeUp(newest) => self.carriers.take_up(newest),
            CheckAction::LetStreamsGo => {
                self.set_carrier(Carrier::Udp);
                self.let_streams_go();
            }
            CheckAction::SayAlive => self.say_alive(),
            CheckAction::ForgetNote => self.carriers.forget_note(),
            CheckAction::UseAllPaths => {
                self.apply_paths(0)?;
                self.shared.say(&[SessionMessage::PathsUnused(0)]);
            }
            CheckAction::Dial => self.dial(),
            CheckAction::Retire(index) => self.retire_silent(index),
            CheckAction::ChangeOver(index) => self.change_over(index),
            CheckAction::HearLastWords => {
                if self.shared.peer_closed().is_none() && !self.has_last_words() {
                    return Err(self.gone());
                }
            }
            CheckAction::End(SessionEnd::Gone) => return Err(self.gone()),
            CheckAction::End(SessionEnd::Silent(silence)) => return Err(self.silent_too_long(silence)),
            CheckAction::End(SessionEnd::Unreachable) => return Err(self.unreachable()),
        }
        Ok(())
    }

    /// Returns whether the caller has not yet seen everything that the peer has said.
    pub(super) fn has_unseen(&self) -> bool {
        self.is_behind || self.shared.requests.is_behind()
    }

    /// Returns whether the peer has said something that the caller has not seen; waits a moment for it.
    pub(super) fn has_last_words(&mut self) -> bool {
        self.is_behind = self.has_unseen() || self.shared.receive(&mut self.inbox, CHECK_INTERVAL) > 0;
        self.is_behind
    }

    fn publish(&mut self) {
        self.watch_rate();
        self.say_short_buffer(&self.shared.flow_list());
        self.publish_facts();
    }
}
