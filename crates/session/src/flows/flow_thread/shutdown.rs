//! The end of a flow: it says goodbye, and hands over what others have to carry on with.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_proto::BlockClass;
use farhaul_words::Error;

use super::super::flow_thread::FlowLoop;
use crate::flows::flow_shared::FlowState;
use crate::messages::Complaint;

/// How often a flow that ends looks for memory that the writers have given back.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const GOODBYES: u32 = 4;
/// In the transport's time; no real time passes.
const GOODBYE_INTERVAL: Duration = Duration::from_secs(10);

impl FlowLoop {
    /// Hands over what others have to carry on with, and says goodbye if the session ends.
    pub(super) fn end(&mut self) {
        let thread = &mut self.thread;
        // A stream in use reaches the peer even before it is up; without a goodbye the peer would have to
        // guess why it has ended.
        let is_up = thread.own.state() == FlowState::Up;
        let is_stream = thread.own.is_stream && thread.own.active.load(Ordering::Acquire);
        if thread.shared.is_stopped() && (is_up || is_stream) {
            self.say_goodbye();
        }
        let thread = &mut self.thread;
        let unacked = thread.flow.abandon(&mut thread.shared.control.lock());
        if !thread.shared.is_stopped() {
            for (number, _) in unacked {
                if let Some(filled) = self.outgoing.take(number) {
                    thread.shared.content_resent.fetch_add(u64::from(filled.content), Ordering::Relaxed);
                    let queue = if filled.class == BlockClass::Urgent {
                        &thread.shared.urgent
                    } else {
                        &thread.shared.returned
                    };
                    queue.push(filled);
                }
            }
            thread.shared.wake_flows();
        }
        self.publish_figures();
        // Granted blocks that have not begun will not come any more.
        let unused = self.granted.saturating_sub(self.used());
        self.thread.shared.rate_shares.give_back_blocks(unused);
    }

    /// Complete blocks have been acknowledged, so the writers get them whatever happens to the flow.
    pub(super) fn hand_over_rest(&mut self) -> Result<(), Error> {
        self.incoming.drop_open();
        while self.incoming.is_waiting() && !self.thread.shared.is_stopped() {
            self.incoming.set_released(self.thread.own.released.load(Ordering::Acquire));
            let ready = self.incoming.next()?;
            if ready.is_none() {
                std::thread::sleep(LOOK_EVERY);
            }
            self.collect(ready)?;
            self.hand_over()?;
        }
        Ok(())
    }

    /// Sends a close frame, so that the peer need not wait for a path that is silent for good.
    fn say_goodbye(&mut self) {
        let Complaint { code, reason, .. } = self.thread.shared.goodbye();
        self.thread.flow.close(code, &reason);
        self.send_batch.clear();
        let now = self.thread.shared.now();
        // Sent several times, as nobody is left to repeat it. The transport repeats a close when time has
        // passed.
        for round in 0..GOODBYES {
            let _ = self.transmit(now + GOODBYE_INTERVAL * round);
        }
    }
}
