//! The wishes of a session's users while it runs, and what they are told of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_handover::Held as _;
use farhaul_words::{Carrier, Event, PathEnds, SessionFacts};

use super::super::bottleneck::BottleneckVerdict;
use super::super::messages::SessionMessage;
use super::super::options::PathAddresses;
use super::super::supervisor::Supervisor;
use super::limit_history::LimitNews;
use crate::flows::flow_shared::{FlowShared, FlowState};

/// A path for people.
pub(super) fn ends(path: usize, PathAddresses { local, remote, .. }: PathAddresses) -> PathEnds {
    PathEnds { path, local, remote }
}

impl Supervisor {
    /// Does what the users at this end have asked for since the last call.
    pub(super) fn obey_wishes(&mut self) {
        let requests = self.shared.requests.all();
        for request in &requests {
            if let Some(weight) = request.handle.take_weight_wish() {
                self.shared.rate_shares.set_weight(weight, Instant::now());
            }
            if let Some(guarantee) = request.handle.take_guarantee_wish() {
                self.wish_guarantee(guarantee);
            }
            if let Some(rate) = request.handle.take_rate_wish() {
                self.wish_rate(rate);
                self.tell_rate();
            }
            if let Some(event) = self.shared.take_pause_news(request) {
                request.handle.tell(event);
            }
            request.handle.look();
        }
        self.shared.follow_pauses();
    }

    /// Content takes this carrier from now on.
    pub(super) fn set_carrier(&mut self, to: Carrier) {
        if let Some(from) = self.carriers.set(to) {
            self.shared.tell(&Event::CarrierChanged { peer: self.peer.clone(), from, to });
        }
    }

    /// Reports the connection when the peer has answered on a flow for the first time.
    pub(super) fn watch_for_connection(&mut self) {
        let is_up =
            |flow: &Arc<FlowShared>| flow.state() == FlowState::Up && flow.active.load(Ordering::Acquire);
        if !self.shared.flow_list().iter().any(is_up) {
            return;
        }
        self.was_up = true;
        self.publish_facts();
        let (cipher, flows) = (self.options.cipher, self.paths.flow_count());
        self.shared.tell(&Event::Connected {
            peer: self.peer.clone(),
            transport: self.carriers.carrier(),
            cipher,
            flows,
        });
    }

    /// Publishes the facts about the whole session, for snapshots.
    pub(super) fn publish_facts(&mut self) {
        self.judge_limit();
        self.shared.set_facts(SessionFacts {
            is_connected: self.was_up,
            peer: self.peer.clone(),
            transport: Some(self.carriers.carrier()),
            paths: self.paths(),
            stages_now: self.judged.both(),
            limit: self.judged.limit().to_string(),
            ..SessionFacts::default()
        });
    }

    /// Judges now and then what has limited the session since the last time.
    fn judge_limit(&mut self) {
        let now = Instant::now();
        if !self.was_up || !self.judged.is_due(now) {
            return;
        }
        let flows = self.shared.flow_list();
        let moved: u64 = flows.iter().map(|flow| flow.figures.lock().in_any_case().bytes_both_ways).sum();
        let stages = self.shared.meters.stages_in_seconds();
        let LimitNews { stages, verdict } = self.judged.judge(stages, moved, self.shared.is_paused(), now);
        if let Some(stages) = stages {
            self.shared.say(&[SessionMessage::Stages(stages)]);
        }
        if let Some(BottleneckVerdict { limit, text }) = verdict {
            self.shared.tell(&Event::StageVerdict { limit, text });
        }
    }
}
