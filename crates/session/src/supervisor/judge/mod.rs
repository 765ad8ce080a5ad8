//! Decides what is done about a session in its present state: which flows are given up, what is opened, who
//! takes over, and whether the session goes on.
//!
//! Always true: nothing here reads a clock, takes a lock or opens anything. Actions are listed in the order
//! in which they are done. A change over to a stream and an end come last, and never both.

use std::time::Duration;

use crate::intervals::{CONNECT_MAX, SILENCE};

/// After this long without an answer over UDP a connection is opened, so that it is ready if none comes.
const FORESIGHT: Duration = Duration::from_millis(1500);
/// How long the channel waits for a direct connection before it takes over.
const DIRECT_TIME: Duration = Duration::from_millis(500);
/// The silence that is allowed to UDP while streams carry beside it: nothing waits for it, and a policer may
/// let very little through.
const SILENCE_BESIDE: Duration = Duration::from_secs(10);
/// After this long with the peer's port closed, and nothing authentic meanwhile, the peer is gone.
const REFUSED: Duration = Duration::from_secs(2);
/// After this long without anything from the peer the transfer ends, and can be resumed.
const PATIENCE: Duration = Duration::from_secs(300);

/// A UDP flow that somebody relies on: it has not ended, was not given up, and is not waiting for its path to
/// come back.
#[derive(Debug, Clone, Copy)]
pub(super) struct UdpFlow {
    pub(super) index: u16,
    pub(super) is_up: bool,
    /// True if it has replaced a flow that was given up.
    pub(super) is_spare: bool,
    pub(super) is_path_used: bool,
    /// How long the peer has not proved that it hears this end.
    pub(super) unanswered: Duration,
}

/// A flow on a stream, including one that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamFlow {
    pub(super) index: u16,
    pub(super) is_channel: bool,
    pub(super) is_down: bool,
    /// True if it was up before this check tended the streams: one that was just released can still take
    /// over.
    pub(super) was_up: bool,
    /// True if it gets new blocks as long as it is up.
    pub(super) is_active: bool,
    /// True if it is up and gets new blocks.
    pub(super) is_carrying: bool,
    /// How long nothing has come on it.
    pub(super) silent: Duration,
}

/// The facts of a check.
#[derive(Debug, Clone)]
pub(super) struct CheckFacts {
    /// The time since the session began.
    pub(super) now: Duration,
    pub(super) udp: Vec<UdpFlow>,
    pub(super) streams: Vec<StreamFlow>,
    /// How long nothing has come on any flow that ever existed.
    pub(super) silent: Duration,
    /// How long all flows have found the peer's port closed.
    pub(super) refused: Duration,
    /// True if the peer has ever answered on a flow.
    pub(super) was_up: bool,
    pub(super) is_initiator: bool,
    pub(super) is_udp_only: bool,
    /// True if there is a note that UDP did not get through when it was last tried.
    pub(super) is_noted: bool,
    /// True if a better stream than the channel may come.
    pub(super) may_get_direct: bool,
    /// True if a trial has shown that streams bring more than UDP.
    pub(super) has_better_streams: bool,
    /// The newest spare that is known to have brought UDP back.
    pub(super) taken_up: Option<u16>,
    /// True if the caller has not seen everything that the peer has said.
    pub(super) has_unseen: bool,
}

/// The actions that a check may decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckAction {
    /// Remember this flow as the newest spare that has brought UDP back.
    TakeUp(u16),
    /// Stop using streams: UDP carries everything again.
    LetStreamsGo,
    /// Use those paths again whose spares are up.
    SayAlive,
    /// Forget the note about UDP: it gets through.
    ForgetNote,
    /// Use all paths: an unwanted path is better than none.
    UseAllPaths,
    /// Open a connection, unless that was tried a moment ago.
    Dial,
    /// Give up a UDP flow: the others take what it had.
    Retire(u16),
    /// Move everything to this stream.
    ChangeOver(u16),
    /// Read what is left of the peer's messages, as the far process has ended; if nothing is left, the
    /// session ends.
    HearLastWords,
    End(SessionEnd),
}

/// Why this end gives the session up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    Gone,
    /// Nothing has come from the peer for this long.
    Silent(Duration),
    /// UDP does not get through, and there is no other carrier.
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
        // Each spare does so once, as streams may carry beside it later.
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
    // If a note says that UDP is blocked, streams begin, and UDP is tried beside them.
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
    /// The actions if no UDP flow was answered within `patience`.
    fn without_udp(&self, unanswered: Duration, patience: Duration, is_noted: bool) -> Vec<CheckAction> {
        let is_coming =
            self.may_get_direct && self.direct_alive().is_none() && unanswered < patience + DIRECT_TIME;
        if let Some(stream) = self.stream_alive().filter(|_| !self.is_udp_only && !is_coming) {
            return vec![CheckAction::ChangeOver(stream.index)];
        }
        if is_noted && unanswered < SILENCE {
            return Vec::new();
        }
        // Only the initiator's user is told, so the initiator gives up first, with its own message.
        let is_hopeless = self.is_udp_only && self.is_initiator;
        if !self.was_up && (is_hopeless || unanswered > CONNECT_MAX) {
            return vec![CheckAction::End(SessionEnd::Unreachable)];
        }
        if self.silent > PATIENCE { self.give_up(SessionEnd::Silent(self.silent)) } else { Vec::new() }
    }

    /// Ends the session, unless the caller has not seen everything that the peer has said: the last message
    /// may say why.
    fn give_up(&self, end: SessionEnd) -> Vec<CheckAction> {
        if self.has_unseen { Vec::new() } else { vec![CheckAction::End(end)] }
    }

    fn are_streams_down(&self) -> bool {
        self.streams.iter().all(|flow| flow.is_down)
    }

    /// Returns whether the far process has ended: the channel closes with it, and without the process
    /// nobody is left to talk to.
    fn is_far_process_gone(&self) -> bool {
        let is_ssh_gone = self.streams.iter().any(|flow| flow.is_channel && flow.is_down);
        is_ssh_gone || self.are_streams_down() && !self.streams.is_empty() && self.udp.is_empty()
    }

    fn direct_alive(&self) -> Option<&StreamFlow> {
        self.streams.iter().find(|flow| flow.is_alive() && !flow.is_channel)
    }

    /// A live stream: a direct connection rather than the channel, which is slower.
    fn stream_alive(&self) -> Option<&StreamFlow> {
        self.direct_alive().or_else(|| self.streams.iter().find(|flow| flow.is_alive()))
    }

    /// Returns whether streams are stopped when UDP gets through again. Only the initiator decides that, and
    /// it keeps streams that have been seen to bring more.
    fn lets_streams_go(&self) -> bool {
        let have_carried = self.streams.iter().any(|flow| flow.is_active);
        have_carried && self.is_initiator && !self.has_better_streams
    }
}

#[cfg(test)]
mod tests;
