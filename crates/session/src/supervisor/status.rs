//! The wishes of a session's users while it runs, and what they are told of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;

use super::super::bottleneck::{BottleneckVerdict, verdict};
use super::super::carrier::Carrier;
use super::super::events::{Event, PathEnds};
use super::super::figures::StageFigures;
use super::super::messages::SessionMessage;
use super::super::options::PathAddresses;
use super::super::shared_state::{FlowShared, FlowState};
use super::super::snapshot::SessionFacts;
use super::super::supervisor::Supervisor;

/// The limit of a session is judged by this much of its recent time.
const JUDGED: Duration = Duration::from_secs(5);

/// The most characters of a stage's name.
const STAGE_NAME_MAX: usize = 24;

/// The recent limit of the session, and the figures by which it is judged.
pub(super) struct LimitHistory {
    since: Instant,
    /// How busy the stages were until `since`, and what had been moved.
    stages: Vec<StageFigures>,
    moved: u64,
    limit: String,
    /// How busy the stages of this end, and those of the far end, were when the limit was last judged.
    ours: Vec<StageFigures>,
    theirs: Vec<StageFigures>,
}

impl LimitHistory {
    pub(super) fn new() -> LimitHistory {
        LimitHistory {
            since: Instant::now(),
            stages: Vec::new(),
            moved: 0,
            limit: String::new(),
            ours: Vec::new(),
            theirs: Vec::new(),
        }
    }

    /// The far end has reported how busy its stages are. Entries that are no valid stage are ignored.
    pub(super) fn hear(&mut self, mut stages: Vec<StageFigures>) {
        stages.retain(is_stage);
        self.theirs = stages;
    }

    /// The stages of both ends, the sender's first.
    fn both(&self) -> Vec<StageFigures> {
        let mut both: Vec<StageFigures> = self.ours.iter().chain(&self.theirs).cloned().collect();
        both.sort_by(|one, other| other.end.cmp(&one.end));
        both
    }
}

fn is_stage(stage: &StageFigures) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    let is_name =
        !stage.name.is_empty() && stage.name.len() <= STAGE_NAME_MAX && stage.name.bytes().all(is_plain);
    is_name && (stage.end == "sender" || stage.end == "receiver")
}

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
            if let Some(event) = request.take_pause_news() {
                request.handle.tell(event);
            }
            request.handle.look();
        }
        self.shared.follow_pauses();
    }

    /// Content takes this carrier from now on.
    pub(super) fn set_carrier(&mut self, to: Carrier) {
        let from = std::mem::replace(&mut self.carrier, to);
        if from != to {
            let (from, to) = (from.name(), to.name());
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
        let (cipher, flows) = (self.options.cipher.name(), self.flow_count);
        self.shared.tell(&Event::Connected {
            peer: self.peer.clone(),
            transport: self.carrier.name(),
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
            transport: self.carrier.name().to_string(),
            paths: self.paths(),
            stages_now: self.judged.both(),
            limit: self.judged.limit.clone(),
            ..SessionFacts::default()
        });
    }

    /// Judges now and then what has limited the session since the last time.
    fn judge_limit(&mut self) {
        let lasted = self.judged.since.elapsed();
        if lasted < JUDGED || !self.was_up {
            return;
        }
        let flows = self.shared.flow_list();
        let moved: u64 = flows.iter().map(|flow| flow.figures.lock().in_any_case().bytes_both_ways).sum();
        let (stages, seconds) = (self.shared.meters.stages_in_seconds(), lasted.as_secs_f64());
        let recent: Vec<StageFigures> = stages
            .iter()
            .map(|stage| {
                let before = self.judged.stages.iter().find(|before| before.name == stage.name);
                let busy = stage.busy - before.map_or(0.0, |before| before.busy);
                StageFigures { busy: busy.max(0.0) / seconds, ..stage.clone() }
            })
            .collect();
        let is_idle = self.shared.is_paused() || moved == self.judged.moved;
        self.judged.ours = if is_idle { Vec::new() } else { recent.clone() };
        if !is_idle {
            self.shared.say(&[SessionMessage::Stages(recent)]);
        }
        let both = self.judged.both();
        let BottleneckVerdict { limit, text } =
            verdict(&both, moved.saturating_sub(self.judged.moved), seconds);
        if !is_idle && limit != self.judged.limit {
            self.shared.tell(&Event::StageVerdict { limit: limit.clone(), text });
            self.judged.limit = limit;
        }
        (self.judged.since, self.judged.stages, self.judged.moved) = (Instant::now(), stages, moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(end: &str, name: &str) -> StageFigures {
        StageFigures { name: name.into(), end: end.into(), busy: 0.5 }
    }

    #[test]
    fn of_what_the_far_end_says_only_stages_are_heard() {
        let mut judged = LimitHistory::new();
        judged.ours = vec![stage("receiver", "write")];
        judged.hear(vec![
            stage("sender", "wait-network"),
            stage("sender", "\u{1b}[2J"),
            stage("sender", ""),
            stage("sender", &"x".repeat(25)),
            stage("both", "read"),
            stage("sender", "read"),
        ]);
        let both: Vec<_> = judged.both().into_iter().map(|stage| (stage.end, stage.name)).collect();
        let pairs = [("sender", "wait-network"), ("sender", "read"), ("receiver", "write")];
        assert_eq!(both, pairs.map(|(end, name)| (end.to_string(), name.to_string())));
        judged.hear(Vec::new());
        assert_eq!(judged.both(), [stage("receiver", "write")]);
    }
}
