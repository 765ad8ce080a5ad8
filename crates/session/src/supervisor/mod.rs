//! Watches over a session: hands the peer's messages to its requests, notices paths and peers that are gone,
//! and changes over to the stream carrier if UDP does not get through.
//!
//! A path counts as dead if the peer has not proved for [`SILENCE`](crate::intervals::SILENCE) that it hears
//! us, although flows send something at least every 0.7 s. If the stream carrier is alive then, the UDP flows
//! are retired, and everything that they had under way goes there. If both are silent, the network is gone, and
//! everything is kept for five minutes.
//!
//! Components own their state, decide on what they are told, and are tested without a session:
//! `rate_follower.rs` has the rate, `path_set.rs` the paths, `carrier_set.rs` the carriers, `stream_carrier.rs`
//! whether streams carry, `flow_factory.rs` the parts of a flow, `limit_history.rs` what limits the session,
//! `judge/mod.rs` what follows from silence, and `start_plan.rs` how memory is divided at the start.
//!
//! The others carry the decisions out: `startup.rs` begins a session; `flows.rs` opens a flow; `check.rs` looks
//! at everything regularly; `rate.rs`, `carriers.rs`, `streams.rs`, `usage.rs` and `further_paths.rs` change the
//! session; `peer_loss.rs` has the messages about a peer that is gone; `reply.rs` handles a late reply to the
//! hello; `shutdown.rs` ends a session.

mod account;
mod carrier_set;
mod carriers;
mod check;
mod flow_factory;
mod flows;
mod further_paths;
mod judge;
mod limit_history;
mod memory;
mod path_set;
mod peer_loss;
mod rate;
mod rate_follower;
mod reply;
mod shutdown;
mod start_plan;
mod startup;
mod status;
mod stream_carrier;
mod streams;
mod usage;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul_words::{Code, Error, Event, ExitCode};

use super::budget::Charge;
use super::hello_reply::PendingReply;
use super::intervals::CHECK_INTERVAL;
use super::messages::{Complaint, InboxItem, MessageInbox, SessionMessage, senseless};
use super::placement::Placement;
use super::setup::{ControlProcess, StopFlag};
use super::shared_state::SessionShared;
use crate::options::NetworkOptions;
pub(crate) use account::SessionAccount;
use carrier_set::CarrierSet;
use flow_factory::FlowFactory;
use limit_history::LimitHistory;
pub use memory::{MemoryMinimum, overflow_bytes_max, session_bytes_max, session_bytes_min};
use path_set::PathSet;
use rate_follower::RateFollower;
use stream_carrier::StreamCarrier;

/// A peer has this much time to hear of a cancellation, and as much again to leave everything in order.
const LAST_CHANGES_MAX: Duration = Duration::from_millis(300);

/// A session, for the thread that leads it.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<SessionShared>,
    options: NetworkOptions,
    is_sender: bool,
    inbox: MessageInbox,
    /// True if there may be messages that the caller has not seen.
    is_behind: bool,
    next_check: Instant,
    was_up: bool,
    threads: Vec<JoinHandle<()>>,
    rates: RateFollower,
    paths: PathSet,
    // Declared before `control_process`, because its pipes must close first.
    carriers: CarrierSet,
    streams: StreamCarrier,
    factory: FlowFactory,
    judged: LimitHistory,
    peer: String,
    warnings: Vec<String>,
    short_buffer_said: bool,
    /// The charge for what the control stream holds.
    control_kept: Charge,
    stop: StopFlag,
    /// When it was first seen that the user wants the session to end.
    cancelled_at: Option<Instant>,
    /// The hello is not answered yet.
    pending: Option<PendingReply>,
    // Dropped in this order: once the flows have ended, the ids are free, and the process of the channel is waited for.
    _keeps: Option<Box<dyn Send>>,
    control_process: Option<ControlProcess>,
    placement: Option<Placement>,
}

impl Supervisor {
    /// Leads the session: hands the requests what has come for them. Waits for at most `wait` if nothing has.
    pub(crate) fn drive(&mut self, wait: Duration) -> Result<(), Error> {
        let mut is_heard = false;
        loop {
            // Also between messages, as hundreds of thousands may have come at once, and obeying them takes
            // long.
            self.watch()?;
            match self.inbox.take().map_err(senseless)? {
                Some(InboxItem::Words(request)) => self.shared.requests.hear(request, self.inbox.words())?,
                Some(InboxItem::Own(message)) => self.obey(message)?,
                None if is_heard => return Ok(()),
                None => {
                    self.is_behind = false;
                    if self.shared.requests.is_full() {
                        return Ok(());
                    }
                    if self.shared.receive(&mut self.inbox, wait) == 0 {
                        return Ok(());
                    }
                    self.is_behind = true;
                    continue;
                }
            }
            is_heard = true;
        }
    }

    /// Obeys a message of the peer.
    fn obey(&mut self, message: SessionMessage) -> Result<(), Error> {
        let requests = &self.shared.requests;
        match message {
            SessionMessage::Start => {}
            SessionMessage::Open { request, words } => self.shared.open_request(request, words)?,
            SessionMessage::Finish { request, figures } => requests.finish(request, figures)?,
            SessionMessage::Fail { request, complaint } => {
                let error = match complaint.exit == ExitCode::Lost as u8 && complaint.hint.is_empty() {
                    true => self.closed(complaint),
                    false => complaint.into_error(),
                };
                requests.fail(request, error)?;
            }
            SessionMessage::Abort(complaint) => return Err(complaint.into_error()),
            SessionMessage::FlowDown { index } => self.retire_flow(index),
            SessionMessage::StreamUse { index, is_used } => self.obey_stream_use(index, is_used),
            SessionMessage::UdpUse { is_used } => self.obey_udp_use(is_used)?,
            SessionMessage::WantStreams => self.want_trial(),
            SessionMessage::Rate(rate) => self.obey_rate(rate),
            SessionMessage::Stages(stages) => self.judged.hear(stages),
            SessionMessage::PathsUnused(paths) => self.apply_paths(paths)?,
            SessionMessage::PathAdd { path, addresses } => self.open_added_path(path, addresses)?,
            SessionMessage::PathOpen { path, is_open, ports } => {
                self.begin_added_path(path, is_open, &ports)?
            }
        }
        Ok(())
    }

    // ---- watching -------------------------------------------------------------------------------

    /// Makes the next check due, as if [`CHECK_INTERVAL`] had passed.
    #[cfg(test)]
    pub(super) fn let_a_check_be_due(&mut self) {
        self.next_check = Instant::now();
    }

    /// A transfer that was cancelled ends when nothing changes any more at the far end, so that this is true for
    /// whoever hears of the end.
    fn is_time_to_cancel(&mut self) -> bool {
        let since = self.cancelled_at.get_or_insert_with(Instant::now).elapsed();
        let is_still =
            || self.shared.requests.all().iter().all(|request| self.shared.is_still_at_both_ends(request));
        since >= self.shared.halt_patience() || is_still()
    }

    /// Waits a moment until a peer that knows of the cancellation has closed the session: by then it has removed
    /// what nothing could go on with, and nothing changes there any more.
    fn wait_for_close(&self) {
        let end = Instant::now() + LAST_CHANGES_MAX;
        while self.shared.was_peer_heard()
            && !self.shared.has_peer_halted()
            && self.shared.peer_closed().is_none()
            && Instant::now() < end
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn watch(&mut self) -> Result<(), Error> {
        if self.shared.is_stopped() {
            return Err(self.shared.take_failure().unwrap_or_else(Error::interrupted));
        }
        if self.shared.is_cancelled() && self.is_time_to_cancel() {
            let told = Error::new(Code::Interrupted, "it was interrupted at the other end");
            self.shared.say(&[SessionMessage::Abort(Complaint::of(&told))]);
            self.shared.flush(LAST_CHANGES_MAX);
            self.wait_for_close();
            return Err(Error::interrupted());
        }
        if !self.was_up {
            self.watch_for_connection();
        }
        if self.shared.rate_shares.take_news() {
            self.follow_part(Instant::now());
        }
        if Instant::now() >= self.next_check {
            self.check()?;
            self.next_check = Instant::now() + CHECK_INTERVAL;
        }
        Ok(())
    }

    /// Warns both users of something that has not failed.
    pub(crate) fn warn(&mut self, text: String) {
        self.shared.tell(&Event::warning(&*text));
        self.warnings.push(text);
    }
}

/// However the session ends, even if a thread could not be started or something panicked, none of its threads
/// is left, and its parts of shared rates go back to the others.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.leave_caps();
        self.shared.drop_waiting_blocks();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::content_role::{ContentRole, DeliveryOrder};
    use crate::flows::flow_shared::FlowState;
    use crate::messages::{Complaint, put_message};
    use crate::requests::handle::Handle;
    use crate::requests::request_state::FIRST;
    use crate::session::{Dialogue, DialogueStep, Session};
    use crate::setup::{Setup, local_pair};

    const MESSAGES: u64 = 512;

    /// A session of this end alone.
    pub(crate) fn start(setup: Setup, role: ContentRole) -> Supervisor {
        let options = NetworkOptions::default();
        Supervisor::start(setup, options, role, DeliveryOrder::Any, &Handle::new()).unwrap()
    }

    /// Leads it until it fails.
    fn until_end(supervisor: &mut Supervisor) -> Error {
        loop {
            if let Err(error) = supervisor.drive(CHECK_INTERVAL) {
                return error;
            }
        }
    }

    /// The first request of a session for which very many messages have come at once.
    fn behind() -> (Dialogue, Setup, StopFlag) {
        let (near, far) = local_pair().unwrap();
        let stop = near.stop.clone();
        let (_, dialogue) = Session::start(
            near,
            NetworkOptions::default(),
            ContentRole::Receiver,
            DeliveryOrder::Any,
            &Handle::new(),
        )
        .unwrap();
        let mut words = Vec::new();
        // Messages of a service, whatever they mean there.
        for _ in 0..MESSAGES {
            put_message(&mut words, |out| out.push(17));
        }
        dialogue.request.session().requests.hear(FIRST, &words).unwrap();
        (dialogue, far, stop)
    }

    /// The number of messages that are handed out until the session ends, if each of them takes the service a
    /// long time.
    fn seen(dialogue: &mut Dialogue) -> u64 {
        let mut seen = 0;
        while let Ok(step) = dialogue.step() {
            seen += u64::from(matches!(step, DialogueStep::Message(_)));
            dialogue.let_a_check_be_due();
        }
        seen
    }

    #[test]
    fn an_interruption_does_not_wait_for_the_messages_that_have_come() {
        let (mut dialogue, _far, _) = behind();
        assert!(matches!(dialogue.step(), Ok(DialogueStep::Message(_))));
        dialogue.request.handle().cancel();
        assert!(matches!(dialogue.step(), Err(error) if error.code() == Code::Interrupted));
        dialogue.close(None);
    }

    #[test]
    fn the_session_is_watched_while_messages_are_worked_off() {
        let (mut dialogue, _far, stop) = behind();
        stop.stop();
        assert!(seen(&mut dialogue) < MESSAGES);
        dialogue.close(None);
    }

    #[test]
    fn a_panic_in_any_thread_is_the_failure_of_its_session_at_both_ends() {
        // The goodbye is a datagram. On a busy machine the far end may learn before it that the port is closed.
        for _ in 0..5 {
            let error = far_end_of_a_panic();
            if error.to_string().contains("oh") {
                return;
            }
            assert_eq!(error.code(), Code::PeerGone, "{error}");
        }
        panic!("the far end never hears why");
    }

    /// What ends the far end of a session in which a thread panics.
    fn far_end_of_a_panic() -> Error {
        let (near, far) = local_pair().unwrap();
        let (mut near, mut far) = (start(near, ContentRole::Receiver), start(far, ContentRole::Receiver));
        // A flow that nobody has answered yet says no goodbye.
        while near.shared.flow_list().iter().any(|flow| flow.state() != FlowState::Up) {
            near.drive(CHECK_INTERVAL).unwrap();
            far.drive(CHECK_INTERVAL).unwrap();
        }
        let shared = near.shared.clone();
        std::thread::spawn(move || shared.work(|| panic!("oh"))).join().unwrap();
        let error = until_end(&mut near);
        assert!(error.code() == Code::Bug && error.what().ends_with("oh"), "{error}");
        near.shared.clear_requests();
        let weak = Arc::downgrade(&near.shared);
        drop(near);
        // A thread that is not waited for may hold the session for a moment more.
        let until = Instant::now() + Duration::from_secs(20);
        while weak.upgrade().is_some() {
            assert!(Instant::now() < until, "a thread is left");
            std::thread::sleep(Duration::from_millis(1));
        }
        until_end(&mut far)
    }

    #[test]
    fn what_a_peer_that_is_gone_has_said_is_looked_at_first() {
        let (mut dialogue, _far, _) = behind();
        assert!(matches!(dialogue.step(), Ok(DialogueStep::Message(_))));
        dialogue.request.session().set_peer_closed(Complaint::default());
        assert_eq!(seen(&mut dialogue), MESSAGES - 1);
        dialogue.close(None);
    }
}
