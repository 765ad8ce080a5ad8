//! Watches over a session: hands its requests what the peer says, notices paths and peers that are gone,
//! and changes over to the stream carrier when UDP does not get through.
//!
//! A path counts as dead when the peer has not been seen to hear us for [`SILENCE`], although flows say something at
//! least every 0.7 s. If then the stream carrier is alive, the UDP flows are retired and everything that they had under
//! way goes there. If both are silent it is the network that is gone, and everything is kept for five minutes.
//!
//! How a session begins is in `supervisor/startup.rs`; what a flow gets when it is opened, in `flows.rs`; what is
//! looked at again and again, in `check.rs`; what is done about it, in `judge.rs`; how carriers change, in `carriers.rs`;
//! what is said of a peer that is gone, in `peer_loss.rs`; which paths are used, and what of the host is in their way, in
//! `usage.rs`; how paths are added, in `further_paths.rs`; what a late reply to the hello changes, in `reply.rs`; how a
//! session ends, in `shutdown.rs`.

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
use super::events::Event;
use super::hello_reply::PendingReply;
use super::messages::{InboxItem, MessageInbox, SessionMessage, senseless};
use super::options::RateOptions;
use super::path_memory::PathKnowledge;
use super::placement::Placement;
use super::secret::Secret;
use super::setup::{CarrierFallback, ControlProcess, FlowSetup, SpareFlow, StopFlag};
use super::shared::SessionShared;
use super::udp_blocks::UdpBlockNotes;
use crate::error::{Code, Error, ExitCode};
use crate::options::NetworkOptions;
pub(crate) use account::SessionAccount;
use further_paths::FurtherPaths;
pub use memory::{MemoryMinimum, overflow_bytes_max, session_bytes_max, session_bytes_min};
use rate::RateWatch;
use status::LimitHistory;
use stream_carrier::StreamCarrier;

/// No answer for this long: the path does not work.
pub(super) const SILENCE: Duration = Duration::from_secs(3);
/// No first packet by any carrier for this long: there is no way.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(20);
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// What a thread that dials hands back.
type DialResult = Result<FlowSetup, Error>;

/// One session, seen by whoever looks after it.
pub struct Supervisor {
    pub shared: Arc<SessionShared>,
    options: NetworkOptions,
    is_sender: bool,
    master: Secret,
    inbox: MessageInbox,
    /// There may be messages that the caller has not seen.
    is_behind: bool,
    next_check: Instant,
    was_up: bool,
    threads: Vec<JoinHandle<()>>,
    fallback: CarrierFallback,
    last_dial: Option<Instant>,
    dial_failed: Option<Instant>,
    dialing: Vec<Receiver<DialResult>>,
    streams: StreamCarrier,
    /// The newest spare that has taken up UDP again.
    taken_up: Option<u16>,
    /// The flow on the ssh channel.
    channel: Option<u16>,
    /// Where it is noted that UDP does not get through.
    blocked: Option<UdpBlockNotes>,
    window_max: u64,
    beside_max: u64,
    /// Credit that is kept for urgent blocks.
    urgent_reserve: u32,
    transport: &'static str,
    stream_transport: &'static str,
    peer: String,
    shown: Option<IpAddr>,
    udp_ports: Vec<u16>,
    warnings: Vec<String>,
    judged: LimitHistory,
    /// One a path, if this end learns what they carry.
    memories: Vec<PathKnowledge>,
    /// Flows that may take others' places, and those whose turn it is.
    spares: Vec<SpareFlow>,
    due_spares: Vec<SpareFlow>,
    further: FurtherPaths,
    flow_count: u16,
    /// Paths by which nothing comes back.
    dead_paths: Vec<usize>,
    /// How the two users want the rate to be set, how it is set now, what the peer takes it for, and the
    /// paths that get nothing new, by the bits of their numbers.
    rate_wish: RateOptions,
    rate: RateOptions,
    rate_taken: RateOptions,
    rate_watch: RateWatch,
    unused_paths: u64,
    short_buffer_said: bool,
    /// For what the control stream holds.
    control_kept: Charge,
    stop: StopFlag,
    /// The hello was not answered yet.
    pending: Option<PendingReply>,
    // Dropped in this order: the ids are free and ssh is waited for when the flows have ended.
    _keeps: Option<Box<dyn Send>>,
    control_process: Option<ControlProcess>,
    placement: Option<Placement>,
}

/// What a flow is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowPurpose {
    First,
    /// A stream carrier that is only used when nothing else is left.
    StandBy,
    Spare,
}

/// Which way the content goes, seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRole {
    Sender,
    Receiver,
}

/// Whether blocks wait for those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryOrder {
    Any,
    /// A receiver keeps those that came too early, so that the awaited one may not wait for memory.
    Kept,
}

impl Supervisor {
    /// Looks after the session, and hands the requests what has come for them; waits for at most `wait` if nothing has.
    pub(crate) fn drive(&mut self, wait: Duration) -> Result<(), Error> {
        let mut is_heard = false;
        loop {
            // Also between messages: to obey hundreds of thousands that have come at once takes long.
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

    /// Does what the peer says.
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
            SessionMessage::Pause { request, is_paused } => self.obey_pause(request, is_paused),
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

    // ---- watching ----------------------------------------------------------------------------------------------

    /// As if [`CHECK_INTERVAL`] had passed.
    #[cfg(test)]
    pub(super) fn let_a_check_be_due(&mut self) {
        self.next_check = Instant::now();
    }

    fn watch(&mut self) -> Result<(), Error> {
        if self.shared.is_stopped() {
            return Err(self.shared.take_failure().unwrap_or_else(Error::interrupted));
        }
        if self.shared.is_cancelled() {
            let told = Error::new(Code::Interrupted, "it was interrupted at the other end");
            self.shared.say(&[SessionMessage::Abort(told.complaint())]);
            self.shared.flush(Duration::from_millis(300));
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

    /// Something that both users should know although nothing failed.
    pub fn warn(&mut self, text: String) {
        self.shared.tell(&Event::warning(&*text));
        self.warnings.push(text);
    }
}

/// Whatever the session was left by, a thread that could not be started or a panic, none of its threads stays behind, and what it has
/// together with others is theirs again.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.leave_caps();
        self.shared.let_go();
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

    const MESSAGES: u64 = 512;

    /// A session of this end, by itself.
    pub(crate) fn start(setup: Setup, role: ContentRole) -> Supervisor {
        let options = NetworkOptions::default();
        Supervisor::start(setup, options, role, DeliveryOrder::Any, &Handle::new()).unwrap()
    }

    /// Looks after it until it fails.
    fn until_end(supervisor: &mut Supervisor) -> Error {
        loop {
            if let Err(error) = supervisor.drive(CHECK_INTERVAL) {
                return error;
            }
        }
    }

    /// The first request of a session for which a great many messages have come at once.
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
        // Of a service, whatever it means there.
        for _ in 0..MESSAGES {
            put_message(&mut words, |out| out.push(17));
        }
        dialogue.request.requests.hear(FIRST, &words).unwrap();
        (dialogue, far, stop)
    }

    /// How many messages are handed out, each of which takes the service a long time, until the session ends.
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
        let shared = near.shared.clone();
        std::thread::spawn(move || shared.work(|| panic!("oh"))).join().unwrap();
        let error = until_end(&mut near);
        assert!(error.code() == Code::Bug && error.what().ends_with("oh"), "{error}");
        near.shared.requests.clear();
        let weak = Arc::downgrade(&near.shared);
        drop(near);
        assert!(weak.upgrade().is_none(), "a thread is left");
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
