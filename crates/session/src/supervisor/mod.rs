//! Watches over a session: hands the peer's messages to its requests, notices paths and peers that are gone,
//! and changes over to the stream carrier if UDP does not get through.
//!
//! A path counts as dead if the peer has not proved for [`SILENCE`] that it hears us, although flows send
//! something at least every 0.7 s. If the stream carrier is alive then, the UDP flows are retired, and
//! everything that they had under way goes there. If both are silent, the network is gone, and everything is
//! kept for five minutes.
//!
//! The parts: `supervisor/startup.rs` begins a session; `flows.rs` opens a flow; `check.rs` looks at
//! everything regularly, and `judge/mod.rs` decides what is done about it; `carriers.rs` changes carriers;
//! `peer_loss.rs` has the messages about a peer that is gone; `usage.rs` says which paths are used, and what
//! the host lacks for them; `further_paths.rs` adds paths; `reply.rs` handles a late reply to the hello;
//! `shutdown.rs` ends a session.

mod account;
mod carriers;
mod check;
mod flows;
mod further_paths;
mod judge;
mod memory;
mod peer_loss;
mod rate;
mod reply;
mod shutdown;
mod startup;
mod status;
mod stream_carrier;
mod usage;

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::budget::Charge;
use super::carrier::Carrier;
use super::events::Event;
use super::hello_reply::PendingReply;
use super::messages::{InboxItem, MessageInbox, SessionMessage, senseless};
use super::options::RateOptions;
use super::path_memory::PathKnowledge;
use super::placement::Placement;
use super::secret::Secret;
use super::setup::{CarrierFallback, ControlProcess, FlowSetup, SpareFlow, StopFlag};
use super::shared_state::SessionShared;
use super::udp_blocks::UdpBlockNotes;
use crate::error::{Code, Error, ExitCode};
use crate::options::NetworkOptions;
pub(crate) use account::SessionAccount;
use further_paths::FurtherPaths;
pub use memory::{MemoryMinimum, overflow_bytes_max, session_bytes_max, session_bytes_min};
use rate::RateWatch;
use status::LimitHistory;
use stream_carrier::StreamCarrier;

/// After this long without an answer, the path does not work.
pub(super) const SILENCE: Duration = Duration::from_secs(3);
/// After this long without a first packet by any carrier, there is no way to the peer.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(20);
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A peer has this much time to hear of a cancellation, and as much again to leave everything in order.
const LAST_CHANGES_MAX: Duration = Duration::from_millis(300);

/// The result of a thread that dials.
type DialResult = Result<FlowSetup, Error>;

/// A session, for the thread that leads it.
pub struct Supervisor {
    pub shared: Arc<SessionShared>,
    options: NetworkOptions,
    is_sender: bool,
    master: Secret,
    inbox: MessageInbox,
    /// True if there may be messages that the caller has not seen.
    is_behind: bool,
    next_check: Instant,
    was_up: bool,
    threads: Vec<JoinHandle<()>>,
    fallback: CarrierFallback,
    last_dial: Option<Instant>,
    dial_failed: Option<Instant>,
    dialing: Vec<Receiver<DialResult>>,
    streams: StreamCarrier,
    /// The newest spare that has brought UDP back.
    taken_up: Option<u16>,
    /// The flow on the ssh channel.
    channel: Option<u16>,
    /// The notes of far ends that UDP does not reach.
    blocked: Option<UdpBlockNotes>,
    window_max: u64,
    beside_max: u64,
    /// The credit that is kept for urgent blocks.
    urgent_reserve: u32,
    carrier: Carrier,
    /// What streams are called when they carry everything.
    stream_carrier: Carrier,
    peer: String,
    shown: Option<IpAddr>,
    udp_ports: Vec<u16>,
    warnings: Vec<String>,
    judged: LimitHistory,
    /// One for each path, if this end learns what paths carry.
    memories: Vec<PathKnowledge>,
    /// The flows that may replace others, and those whose turn it is.
    spares: Vec<SpareFlow>,
    due_spares: Vec<SpareFlow>,
    further: FurtherPaths,
    flow_count: u16,
    /// Paths on which nothing comes back.
    dead_paths: Vec<usize>,
    /// The rate that the users wish, the rate that is set now, the rate that the peer assumes, and the paths
    /// that get nothing new (bits by their numbers).
    rate_wish: RateOptions,
    rate: RateOptions,
    rate_taken: RateOptions,
    rate_watch: RateWatch,
    unused_paths: u64,
    short_buffer_said: bool,
    /// The charge for what the control stream holds.
    control_kept: Charge,
    stop: StopFlag,
    /// When it was first seen that the user wants the session to end.
    cancelled_at: Option<Instant>,
    /// The hello is not answered yet.
    pending: Option<PendingReply>,
    // Dropped in this order: once the flows have ended, the ids are free, and ssh is waited for.
    _keeps: Option<Box<dyn Send>>,
    control_process: Option<ControlProcess>,
    placement: Option<Placement>,
}

/// The purpose of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowPurpose {
    First,
    /// A stream carrier that is used only if nothing else is left.
    StandBy,
    Spare,
}

/// The direction of the content, seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRole {
    Sender,
    Receiver,
}

/// The order in which a receiver hands blocks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryOrder {
    Any,
    /// A receiver keeps blocks that come too early, so the one it waits for must not lack memory.
    Kept,
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
            SessionMessage::Open { request, words } => requests.open(&self.shared, request, words)?,
            SessionMessage::Finish { request, figures } => requests.finish(request, figures)?,
            SessionMessage::Fail { request, complaint } => {
                let error = match complaint.exit == ExitCode::Lost as u8 && complaint.hint.is_empty() {
                    true => self.closed(complaint),
                    false => Error::told(complaint),
                };
                requests.fail(request, error)?;
            }
            SessionMessage::Abort(complaint) => return Err(Error::told(complaint)),
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
        let is_still = || self.shared.requests.all().iter().all(|request| request.is_still_at_both_ends());
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
            self.shared.say(&[SessionMessage::Abort(told.complaint())]);
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
    pub fn warn(&mut self, text: String) {
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
    use crate::handle::Handle;
    use crate::messages::{Complaint, put_message};
    use crate::request::FIRST;
    use crate::session::{Dialogue, DialogueStep, Session};
    use crate::setup::{Setup, local_pair};
    use crate::shared_state::FlowState;

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
        dialogue.request.requests.hear(FIRST, &words).unwrap();
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
        dialogue.request.handle.cancel();
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
        near.shared.requests.clear();
        let weak = Arc::downgrade(&near.shared);
        drop(near);
        // A thread that is not waited for may hold the session for a moment more.
        let until = Instant::now() + Duration::from_secs(20);
        while weak.upgrade().is_some() {
            assert!(Instant::now() < until, "a thread is left");
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = until_end(&mut far);
        assert!(error.to_string().contains("oh"), "{error}");
    }

    #[test]
    fn what_a_peer_that_is_gone_has_said_is_looked_at_first() {
        let (mut dialogue, _far, _) = behind();
        assert!(matches!(dialogue.step(), Ok(DialogueStep::Message(_))));
        dialogue.request.set_peer_closed(Complaint::default());
        assert_eq!(seen(&mut dialogue), MESSAGES - 1);
        dialogue.close(None);
    }
}
