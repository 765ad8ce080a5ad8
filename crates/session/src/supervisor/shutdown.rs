//! How a session ends: well, by an error at this end, or by a peer that has heard all and leaves first.

use std::time::Duration;

use super::super::messages::SessionMessage;
use super::super::shared::FlowState;
use super::super::supervisor::Supervisor;
use super::carriers::is_live_udp;
use crate::error::Error;

/// What was said last gets so much time to arrive ...
const LAST_WORDS: Duration = Duration::from_secs(3);
/// ... unless it fits the packets of a close.
const LAST_WORDS_BYTES: u64 = 2 << 10;

/// What somebody hears who is thrown out gets so much time.
const GOODBYE: Duration = Duration::from_millis(300);

impl Supervisor {
    /// The peer may not do any more what it does: it hears so, if it takes no time, and that is all.
    pub(super) fn revoked(&self, why: Error) -> Error {
        // Not `send`, which waits for a peer that takes nothing.
        self.shared.say(&[SessionMessage::Abort(why.complaint())]);
        self.shared.flush(GOODBYE);
        why
    }

    /// What was said last arrives, or goes with the close of a client over UDP.
    pub(crate) fn wait_for_last_words(&self) {
        let flows = self.shared.flow_list();
        let is_udp = flows.iter().any(|flow| is_live_udp(flow) && flow.state() == FlowState::Up);
        let goes_with_close = is_udp && self.shared.control.lock().unacked() <= LAST_WORDS_BYTES;
        if !(self.shared.is_initiator && goes_with_close) {
            self.shared.flush(LAST_WORDS);
        }
    }

    /// Ends the flows; with `error` the peer is told why.
    pub fn close(mut self, error: Option<&Error>) {
        if let Some(error) = error {
            self.shared.set_goodbye(error);
        }
        self.shared.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(pending) = self.pending.take().filter(|_| error.is_none()) {
            pending.settle(LAST_WORDS);
        }
        let flows = self.shared.flow_list();
        for (path, memory) in self.memories.iter().enumerate() {
            let mut used = flows.iter().filter(|flow| flow.path == path && !flow.is_stream);
            memory.keep(used.find_map(|flow| flow.peer_ip.get().copied()), self.shared.elapsed());
        }
        if let Some(process) = self.control_process.take().filter(|_| error.is_none()) {
            process.leave();
        }
    }
}
