//! Decides who carries a session's packets: a flow is given up if nothing comes back on it, a spare replaces
//! it when its path returns, and the stream carrier takes over if no UDP is left.
//!
//! Always true: what a flow had under way goes to another flow; a flow index, and so its keys, is used only
//! once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_words::{Code, Error, Event, ExitCode};

use super::super::messages::SessionMessage;
use super::super::supervisor::Supervisor;
use super::flow_factory::FlowPurpose;
use super::peer_loss::lost;
use super::status::ends;
use crate::carriers::udp_blocks::{udp_blocked_warning, udp_lost_warning, udp_noted_warning};
use crate::flows::flow_shared::{FlowShared, FlowState};

/// The flow before a spare has not ended yet.
const NOT_YET: std::io::ErrorKind = std::io::ErrorKind::WouldBlock;

impl Supervisor {
    /// Opens the first connection of the stream carrier, unless that was tried a moment ago.
    pub(super) fn dial(&mut self) {
        if self.carriers.is_dial_due(Instant::now()) {
            self.dial_beside();
        }
    }

    /// The same while the channel carries, so that there is no hurry.
    pub(super) fn dial_again(&mut self) {
        if self.carriers.is_better_dial_due(Instant::now()) {
            self.dial_beside();
        }
    }

    /// Opens a connection on a thread of its own.
    pub(super) fn dial_beside(&mut self) {
        let Some((dialer, done)) = self.carriers.begin_dial(Instant::now()) else { return };
        let shared = self.shared.clone();
        let dial = move || {
            shared.work(|| {
                let _ = done.send(dialer.dial());
            });
        };
        // If no thread can be started, the end of the channel is gone, and another try follows.
        let _ = std::thread::Builder::new().name("dial".into()).spawn(dial);
    }

    pub(super) fn poll_fallback(&mut self) -> Result<(), Error> {
        while let Some(flow) = self.carriers.take_arrived()? {
            self.open_flow(flow, FlowPurpose::StandBy)?;
        }
        let results = self.carriers.take_dialled();
        for result in results {
            match result {
                Ok(flow) => {
                    let index = flow.index;
                    self.open_flow(flow, FlowPurpose::StandBy)?;
                    self.begin_stream(index);
                }
                // The far end has given the session up, or is another process than before: it does not come
                // back.
                Err(error) if error.exit_code() == ExitCode::Lost => {
                    if self.has_last_words() {
                        return Ok(());
                    }
                    return Err(lost(Code::PeerEnded, format!("{} has given the session up", self.peer)));
                }
                // The whole network may be gone; another try follows.
                Err(error) => {
                    self.carriers.note_failed_dial(Instant::now());
                    tracing::debug!(%error, "cannot open the stream carrier");
                }
            }
        }
        Ok(())
    }

    /// Moves everything to this stream.
    pub(super) fn change_over(&mut self, index: u16) {
        let flows = self.shared.flow_list();
        let Some(stream) = flows.iter().find(|flow| flow.index == index) else { return };
        self.activate(stream);
        let udp: Vec<_> = self.shared.flow_list().into_iter().filter(|flow| !flow.is_stream).collect();
        let mut messages = Vec::new();
        for flow in &udp {
            if is_live_udp(flow) {
                self.retire(flow);
                messages.push(SessionMessage::FlowDown { index: flow.index });
            }
        }
        self.shared.say(&messages);
    }

    /// Makes a flow hand over what it has and end; a spare replaces it when its path comes back.
    fn retire(&mut self, flow: &FlowShared) {
        flow.retire.store(true, Ordering::Release);
        flow.wake();
        let others = self.shared.flow_list();
        if !others.iter().any(|other| other.path == flow.path && is_live_udp(other)) {
            self.say_dead(flow.path);
        }
        self.paths.replace(flow.index);
    }

    /// Opens spares whose predecessor has ended, so that they try its path.
    pub(super) fn open_spares(&mut self, flows: &[Arc<FlowShared>]) -> Result<(), Error> {
        let has_ended =
            |index: u16| flows.iter().any(|flow| flow.index == index && flow.state() == FlowState::Down);
        for (spare, before) in self.paths.take_due() {
            let opened = if before.is_none_or(has_ended) { spare.open() } else { Err(NOT_YET.into()) };
            match opened {
                Ok(flow) => self.open_flow(flow, FlowPurpose::Spare)?,
                // Its port may not be free yet, or the network of its address may be gone.
                Err(_) => self.paths.keep_due(spare),
            }
        }
        Ok(())
    }

    /// Nothing comes back on any flow of a path: the other paths get its share of the rate, and the user is
    /// told if paths were named.
    fn say_dead(&mut self, path: usize) {
        if !self.paths.mark_dead(path) {
            return;
        }
        self.apply_rate(self.rates.rate());
        if let Some(addresses) = self.addresses_of(path).filter(|_| self.shared.is_initiator) {
            let event = Event::PathDown(ends(path, addresses));
            self.warnings.extend(event.as_warning());
            self.shared.tell(&event);
        }
    }

    /// The opposite of [`Supervisor::say_dead`], for paths that are used again.
    pub(super) fn say_alive(&mut self) {
        let flows = self.shared.flow_list();
        let is_back = |flow: &FlowShared| is_live_udp(flow) && flow.is_spare && flow.state() == FlowState::Up;
        let is_used = |path: usize| flows.iter().any(|flow| flow.path == path && is_back(flow));
        let back = self.paths.take_back(is_used);
        if !back.is_empty() {
            self.apply_rate(self.rates.rate());
        }
        for path in back.into_iter().filter(|_| self.shared.is_initiator) {
            if let Some(addresses) = self.addresses_of(path) {
                self.shared.tell(&Event::PathUp(ends(path, addresses)));
            }
        }
    }

    fn activate(&mut self, stream: &Arc<FlowShared>) {
        let was_udp = self.carriers.carrier().has_udp();
        self.set_carrier(self.carriers.of_stream(stream.index));
        let is_noted = self.carriers.is_noted();
        // Only the initiator's user is told; the ports to open are the far end's.
        if self.shared.is_initiator && was_udp && !self.streams.has_better_streams() {
            let (peer, ports, instead) =
                (&self.peer, self.carriers.udp_ports(), self.carriers.carrier().name());
            let warning = match (self.was_up, is_noted) {
                (true, _) => udp_lost_warning(peer, ports, instead),
                (false, true) => udp_noted_warning(peer, ports, instead),
                (false, false) => udp_blocked_warning(peer, ports, instead),
            };
            self.warn(warning);
            if !self.was_up {
                self.carriers.note_blocked();
            }
        }
        let was_used = stream.active.swap(true, Ordering::AcqRel);
        if self.shared.is_initiator && !was_used {
            self.shared.say(&[SessionMessage::StreamUse { index: stream.index, is_used: true }]);
        }
        stream.wake();
        self.say_advice(stream);
    }

    /// Retires a flow that does not get through (such as a bad path of a bundle); the others take what it
    /// had.
    pub(super) fn retire_silent(&mut self, index: u16) {
        let flows = self.shared.flow_list();
        let Some(flow) = flows.iter().find(|flow| flow.index == index) else { return };
        self.retire(flow);
        self.shared.say(&[SessionMessage::FlowDown { index }]);
    }

    /// The peer no longer uses flow `index`.
    pub(super) fn retire_flow(&mut self, index: u16) {
        let flows = self.shared.flow_list();
        if let Some(stream) = flows.iter().find(|flow| flow.index == index && flow.is_stream) {
            self.retire_stream(stream);
            return;
        }
        let found = flows.iter().find(|flow| flow.index == index && !flow.is_stream);
        if let Some(flow) = found.filter(|flow| !flow.retire.load(Ordering::Acquire)) {
            self.retire(flow);
        }
        let udp_left = flows.iter().any(|flow| is_live_udp(flow));
        let is_left = |flow: &&Arc<FlowShared>| flow.is_stream && flow.state() != FlowState::Down;
        // Prefers a stream that already carries, in case the peer has announced that first.
        let stream = flows.iter().filter(is_left).max_by_key(|flow| flow.active.load(Ordering::Acquire));
        if let Some(stream) = stream.filter(|_| !udp_left).cloned() {
            self.activate(&stream);
        }
    }
}

pub(super) fn is_live_udp(flow: &FlowShared) -> bool {
    let is_ended = flow.state() == FlowState::Down || flow.retire.load(Ordering::Acquire);
    !flow.is_stream && !is_ended && !flow.is_dormant()
}

#[cfg(test)]
mod tests {
    use super::super::tests::start;
    use super::*;
    use crate::content_role::ContentRole;
    use crate::setup::local_pair;
    use farhaul_words::Misbehaviour;

    #[test]
    fn a_flow_index_and_with_it_its_keys_are_used_once() {
        let (near, _far) = local_pair().unwrap();
        let mut supervisor = start(near, ContentRole::Receiver);
        let mut further = |index| {
            let (other, _) = local_pair().unwrap();
            let flow = other.flows.into_iter().next().unwrap();
            supervisor.open_flow(crate::setup::FlowSetup { index, ..flow }, FlowPurpose::StandBy)
        };
        assert!(
            matches!(further(0), Err(error) if error.misbehaviour() == Some(Misbehaviour::FlowIndexTwice))
        );
        assert!(further(1).is_ok());
        assert!(
            matches!(further(1), Err(error) if error.misbehaviour() == Some(Misbehaviour::FlowIndexTwice))
        );
        supervisor.close(None);
    }
}
