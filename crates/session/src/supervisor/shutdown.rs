//! How a session ends: normally, by an error at this end, or by a peer that has got everything and leaves
//! first.

use std::time::Duration;

use super::super::messages::{Complaint, SessionMessage};
use super::super::supervisor::Supervisor;
use super::carriers::is_live_udp;
use crate::flows::flow_shared::FlowState;
use farhaul_words::Error;

/// The last messages get this much time to arrive ...
const LAST_WORDS: Duration = Duration::from_secs(3);
/// ... unless they fit into the packets of a close.
const LAST_WORDS_BYTES: u64 = 2 << 10;

/// A peer whose session is revoked gets the message within this time, or not at all.
const GOODBYE: Duration = Duration::from_millis(300);

impl Supervisor {
    /// The peer is no longer allowed to do what it does: tells it so, if that takes no time.
    pub(super) fn revoked(&self, why: Error) -> Error {
        // `send` would wait for a peer that takes nothing.
        self.shared.say(&[SessionMessage::Abort(Complaint::of(&why))]);
        self.shared.flush(GOODBYE);
        why
    }

    /// Waits until the last messages have arrived. A client over UDP need not wait, as they go with the
    /// close.
    pub(crate) fn wait_for_last_words(&self) {
        let flows = self.shared.flow_list();
        let is_udp = flows.iter().any(|flow| is_live_udp(flow) && flow.state() == FlowState::Up);
        let goes_with_close = is_udp && self.shared.control.lock().unacked() <= LAST_WORDS_BYTES;
        if !(self.shared.is_initiator && goes_with_close) {
            self.shared.flush(LAST_WORDS);
        }
    }

    /// Ends the flows; if there is an `error`, the peer is told.
    pub fn close(mut self, error: Option<&Error>) {
        if let Some(error) = error {
            self.shared.set_goodbye(error);
        }
        self.shared.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // Who has answered on a flow has agreed, so its reply is on the way, however the session has ended.
        if let Some(pending) = self.pending.take().filter(|_| error.is_none() || self.was_up) {
            pending.settle(LAST_WORDS);
        }
        let flows = self.shared.flow_list();
        let peer = |path: usize| {
            let mut used = flows.iter().filter(|flow| flow.path == path && !flow.is_stream);
            used.find_map(|flow| flow.peer_ip.get().copied())
        };
        self.paths.keep_memories(peer, self.shared.elapsed());
        if let Some(process) = self.control_process.take().filter(|_| error.is_none()) {
            process.leave();
        }
    }
}
