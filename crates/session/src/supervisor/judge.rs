//! What is to be done about a session as it looks now: which flows are given up, what is opened, who takes over, and
//! whether there is anybody to go on with.
//!
//! Always true: nothing here reads a clock, takes a lock or opens anything. What is to be done is named in the order in
//! which it is done. A change over to a stream and an end come last, and never both.

use std::time::Duration;

use super::super::supervisor::{CONNECT_MAX, SILENCE};

/// A connection is opened for the case that UDP does not answer before it is certain.
const FORESIGHT: Duration = Duration::from_millis(1500);
/// The ssh channel leaves a direct connection so much time to come about.
const DIRECT_TIME: Duration = Duration::from_millis(500);
/// UDP that is not answered is given so much time while streams carry beside it: nothing waits for it, and a policer may let very
/// little through.
const SILENCE_BESIDE: Duration = Duration::from_secs(10);
/// A port that answers "closed" for this long, with nothing authentic meanwhile: the peer is gone.
const REFUSED: Duration = Duration::from_secs(2);
/// Nothing at all for this long: the transfer ends, resumable.
const PATIENCE: Duration = Duration::from_secs(300);

/// A UDP flow that somebody relies on: it has not ended, was not given up, and does not wait for its path to come back.
#[derive(Debug, Clone, Copy)]
pub(super) struct UdpFlow {
    pub(super) index: u16,
    pub(super) is_up: bool,
    /// It has taken the place of one that was given up.
    pub(super) is_spare: bool,
    pub(super) is_path_used: bool,
    /// For how long the peer has not been seen to hear us.
    pub(super) unanswered: Duration,
}

/// A flow on a stream, also one that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamFlow {
    pub(super) index: u16,
    pub(super) is_channel: bool,
    pub(super) is_down: bool,
    /// It was up before the streams were looked after: one that has just been let go can still take over.
    pub(super) was_up: bool,
    /// It gets what is new, if it is up.
    pub(super) is_active: bool,
    /// It is up and gets what is new.
    pub(super) is_carrying: bool,
    /// For how long nothing has come by it.
    pub(super) silent: Duration,
}

/// What a check finds.
#[derive(Debug, Clone)]
pub(super) struct CheckFacts {
    /// Since the session began.
    pub(super) now: Duration,
    pub(super) udp: Vec<UdpFlow>,
    pub(super) streams: Vec<StreamFlow>,
    /// For how long nothing has come, by any flow that there ever was.
    pub(super) silent: Duration,
    /// For how long each flow has found the peer's port closed.
    pub(super) refused: Duration,
    /// The peer has answered by a flow before.
    pub(super) was_up: bool,
    pub(super) is_initiator: bool,
    pub(super) is_udp_only: bool,
    /// It is noted that UDP did not get through when it was last tried.
    pub(super) is_noted: bool,
    /// A better stream than the ssh channel may come.
    pub(super) may_get_direct: bool,
    /// A trial has shown that streams bring more than UDP.
    pub(super) has_better_streams: bool,
    /// The newest spare that has taken up UDP again, as far as that was seen.
    pub(super) taken_up: Option<u16>,
    /// The caller has not seen all that the peer has said.
    pub(super) has_unseen: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckAction {
    /// Remembers this one as the newest spare that has taken up UDP again.
    TakeUp(u16),
    /// UDP carries everything again.
    LetStreamsGo,
    /// Paths whose spares are up are used again.
    SayAlive,
    /// UDP gets through, whatever was noted.
    ForgetNote,
    /// A path that was not wanted is better than none.
    UseAllPaths,
    /// Opens a connection, unless that was tried a moment ago.
    Dial,
    /// Gives up a UDP flow: the others take what it had.
    Retire(u16),
    /// From now on everything travels on this stream.
    ChangeOver(u16),
    /// The far process has ended. Its last words may have come together with its end; if not, the session ends.
    HearLastWords,
    End(SessionEnd),
}

/// Why a session ends here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    Gone,
    /// Nothing has been heard of the peer for so long.
    Silent(Duration),
    /// UDP does not get through, and there is nothing else.
    Unreachable,
}

pub(super) fn judge(facts: &CheckFacts) -> Vec<CheckAction> {
    let CheckFacts { udp, streams, .. } = facts;
    if facts.is_far_process_gone() && facts.stream_alive().is_none() {
        return vec![CheckAction::HearLastWords];
    }
    let Some(unanswered) = udp.iter().map(|flow| flow.unanswered).min() else {
        let silent = streams.iter().map(|flow| flow.silent).min().unwrap_or(facts.now);
        return if silent > PATIENCE { facts.give_up(SessionEnd::Silent(PATIENCE)) } else { Vec::new() };
    };
    if facts.was_up && facts.are_streams_down() && facts.refused >= REFUSED {
        return facts.give_up(SessionEnd::Gone);
    }
    let mut acts = Vec::new();
    let mut lets_streams_go = false;
    if let Some(newest) = udp.iter().filter(|flow| flow.is_spare).map(|flow| flow.index).max() {
        // Each begins once: streams may carry beside it later.
        if Some(newest) > facts.taken_up {
            acts.push(CheckAction::TakeUp(newest));
            lets_streams_go = facts.lets_streams_go();
            acts.extend(lets_streams_go.then_some(CheckAction::LetStreamsGo));
        }
        acts.push(CheckAction::SayAlive);
    }
    let is_any_up = udp.iter().any(|flow| flow.is_up);
    if facts.is_noted && is_any_up {
        acts.push(CheckAction::ForgetNote);
    }
    if !udp.iter().any(|flow| flow.is_path_used) {
        acts.push(CheckAction::UseAllPaths);
    }
    // Where a note says that UDP is blocked, the streams begin, and UDP goes on as it does after that.
    let is_noted = facts.is_noted && !is_any_up && !facts.was_up;
    let has_stream = streams.iter().any(|flow| !flow.is_down && !flow.is_channel);
    if (unanswered >= FORESIGHT || is_noted) && !has_stream && !facts.is_udp_only {
        acts.push(CheckAction::Dial);
    }
    let is_beside = !lets_streams_go && streams.iter().any(|flow| flow.is_carrying && flow.is_heard());
    let patience = match (is_noted, is_beside) {
        (true, _) => Duration::ZERO,
        (false, true) => SILENCE_BESIDE,
        (false, false) => SILENCE,
    };
    if unanswered < patience {
        let is_silent = |flow: &&UdpFlow| flow.unanswered >= SILENCE;
        acts.extend(udp.iter().filter(is_silent).map(|flow| CheckAction::Retire(flow.index)));
        return acts;
    }
    acts.extend(facts.without_udp(unanswered, patience, is_noted));
    acts
}

impl StreamFlow {
    fn is_heard(&self) -> bool {
        self.silent < SILENCE
    }

    fn is_alive(&self) -> bool {
        self.was_up && self.is_heard()
    }
}

impl CheckFacts {
    /// No UDP flow was answered within `patience`.
    fn without_udp(&self, unanswered: Duration, patience: Duration, is_noted: bool) -> Vec<CheckAction> {
        let is_coming =
            self.may_get_direct && self.direct_alive().is_none() && unanswered < patience + DIRECT_TIME;
        if let Some(stream) = self.stream_alive().filter(|_| !self.is_udp_only && !is_coming) {
            return vec![CheckAction::ChangeOver(stream.index)];
        }
        if is_noted && unanswered < SILENCE {
            return Vec::new();
        }
        // The initiator's user is the one to tell, so it is the first to give up, in words of its own.
        let is_hopeless = self.is_udp_only && self.is_initiator;
        if !self.was_up && (is_hopeless || unanswered > CONNECT_MAX) {
            return vec![CheckAction::End(SessionEnd::Unreachable)];
        }
        if self.silent > PATIENCE { self.give_up(SessionEnd::Silent(self.silent)) } else { Vec::new() }
    }

    /// The peer is not there any more, unless the caller has not yet seen all that it said: its last word may say why.
    fn give_up(&self, end: SessionEnd) -> Vec<CheckAction> {
        if self.has_unseen { Vec::new() } else { vec![CheckAction::End(end)] }
    }

    fn are_streams_down(&self) -> bool {
        self.streams.iter().all(|flow| flow.is_down)
    }

    /// The ssh channel closes with the process at its other end; without it there is nobody to speak to.
    fn is_far_process_gone(&self) -> bool {
        let is_ssh_gone = self.streams.iter().any(|flow| flow.is_channel && flow.is_down);
        is_ssh_gone || self.are_streams_down() && !self.streams.is_empty() && self.udp.is_empty()
    }

    fn direct_alive(&self) -> Option<&StreamFlow> {
        self.streams.iter().find(|flow| flow.is_alive() && !flow.is_channel)
    }

    /// A connection of our own before the ssh channel, which is the slower one.
    fn stream_alive(&self) -> Option<&StreamFlow> {
        self.direct_alive().or_else(|| self.streams.iter().find(|flow| flow.is_alive()))
    }

    /// Where UDP gets through again. The initiator says so, and keeps to the streams where it has seen that they bring more.
    fn lets_streams_go(&self) -> bool {
        let have_carried = self.streams.iter().any(|flow| flow.is_active);
        have_carried && self.is_initiator && !self.has_better_streams
    }
}

#[cfg(test)]
mod tests;
