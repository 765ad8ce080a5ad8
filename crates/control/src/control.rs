//! The steering end: a session with one daemon, which is asked in it for grants and for copies with another
//! daemon.
//!
//! Always true: the daemon's key is the one that the handshake of this very session has proved.

use std::time::{Duration, Instant};

use farhaul_connect as connect;
use farhaul_connect::hello::HelloSecret;
use farhaul_connect::{DaemonTarget, DialRequester, GrantWish, HelloParams};
use farhaul_copy::{ManifestCopy, Report};
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_words::{Code, Error, Snapshot, TransferState};

use super::commission::Commission;
use super::copy_status;
use super::messages::{ControlMessage, DocumentParts, parts, refusal};
use super::request::{opening, own_features};

/// How long a daemon that was told to end a copy has to report how the copy has ended.
const CANCEL_TIME: Duration = Duration::from_secs(15);
/// How long a daemon may take to answer a request for a grant, for which it need not wait for anybody.
const GRANT_TIME: Duration = Duration::from_secs(10);
/// How long both ends may take to say that they have finished.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// A session with a daemon. Dropping it ends the session; a copy that runs in it stops and can be resumed.
pub struct ControlSession {
    dialogue: Dialogue,
    key: String,
    next_op: u64,
}

/// A grant that a daemon has given.
#[derive(Debug, Clone)]
pub struct IssuedGrant {
    /// The token that the holder has to show.
    pub token: HelloSecret,
    /// How long from now the grant is valid.
    pub lifetime: Duration,
}

impl ControlSession {
    /// Connects to a daemon, as `farhaul cp` does, unless `requester` cancels. If `is_kept_within`, what is asked
    /// for names directories of the daemon that it does not leave.
    pub fn open(
        target: &DaemonTarget,
        is_kept_within: bool,
        requester: &dyn DialRequester,
    ) -> Result<ControlSession, Error> {
        let opening = opening(is_kept_within)?;
        let params = HelloParams { opening, features: own_features(), udp: true, early: false };
        let established = connect::daemon_connect(target, params, requester)?;
        requester.has_begun_nothing();
        let key = established.peer_key.clone();
        let key = key.ok_or_else(|| Error::new(Code::NotFarhaul, "the far end has shown no key"))?;
        let network = established.opening.network;
        // The session has a handle of its own: whoever watches a copy is not interested in this session.
        let (session, handle) = (established.session, Handle::new());
        let (_, dialogue) =
            Session::start(session, network, ContentRole::Receiver, DeliveryOrder::Any, &handle)?;
        Ok(ControlSession { dialogue, key, next_op: 0 })
    }

    /// The fingerprint of the daemon's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Asks for a grant. `is_cancelled` says whether nobody wants it any more.
    pub fn grant(&mut self, wish: GrantWish, is_cancelled: impl Fn() -> bool) -> Result<IssuedGrant, Error> {
        let GrantWish { key, errand, lifetime } = wish;
        let until = Instant::now() + GRANT_TIME;
        let asked = self.next_op();
        self.say(&ControlMessage::Grant { op: asked, key, errand, seconds: lifetime.as_secs() });
        loop {
            match self.dialogue.step()? {
                DialogueStep::Message(bytes) => match ControlMessage::decode(bytes).map_err(senseless)? {
                    ControlMessage::Granted { op, seconds, token } if op == asked => {
                        return Ok(IssuedGrant { token, lifetime: Duration::from_secs(seconds) });
                    }
                    ControlMessage::Refused { op, failure, hint } if op == asked => {
                        return Err(refusal(failure, hint));
                    }
                    other => return Err(unexpected(other.name())),
                },
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Idle if is_cancelled() => return Err(Error::interrupted()),
                DialogueStep::Idle if Instant::now() >= until => {
                    let seconds = GRANT_TIME.as_secs();
                    let what = format!("it has not answered the request for a grant for {seconds} s");
                    return Err(Error::new(Code::PeerSilent, what));
                }
                DialogueStep::Idle => {}
            }
        }
    }

    /// Lets the daemon make a copy with another one, and waits for its end. Events are passed to `handle`,
    /// and wishes that are made through it are passed to the daemon; what becomes of the entries goes into
    /// `manifest`.
    pub(crate) fn copy(
        &mut self,
        commission: &Commission,
        mut manifest: Option<&mut ManifestCopy>,
        handle: &Handle,
    ) -> Result<(Report, Option<Error>), Error> {
        let (document, is_dry) = (commission.write()?, commission.copy.options.dry_run);
        while !handle.may_ask_to_begin() && !handle.is_cancelled() {
            match self.dialogue.step()? {
                DialogueStep::Idle => {}
                DialogueStep::Message(_) | DialogueStep::Finish(_) => return Err(unexpected("message")),
            }
        }
        // The daemon may have begun before its first snapshot comes.
        handle.set_state_there(TransferState::Starting);
        let this = self.next_op();
        for (is_last, part) in parts(&document) {
            self.say(&ControlMessage::Begin { op: this, is_last, part });
        }
        let (mut ending, mut steering) = (DocumentParts::default(), SteeredCopy::default());
        loop {
            self.steer(handle, &mut steering)?;
            match self.dialogue.step()? {
                DialogueStep::Message(bytes) => match ControlMessage::decode(bytes).map_err(senseless)? {
                    ControlMessage::Event(json) => {
                        if let Some(event) = copy_status::event(&json) {
                            handle.tell(event);
                        }
                    }
                    ControlMessage::Snapshot { hold, json } => {
                        if let Some(snapshot) = copy_status::snapshot(&json) {
                            show(&snapshot, hold == steering.hold, handle);
                        }
                    }
                    ControlMessage::Entries { op, part } if op == this => match &mut manifest {
                        Some(manifest) => manifest.take(&part)?,
                        None => return Err(unexpected("entries")),
                    },
                    ControlMessage::Ended { op, is_last, part } if op == this => {
                        if let Some(whole) = ending.take(is_last, &part, copy_status::ENDING_MAX)? {
                            return copy_status::ending(&whole, is_dry);
                        }
                    }
                    other => return Err(unexpected(other.name())),
                },
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Idle => {}
            }
        }
    }

    /// Passes on the wishes that were made since the last call.
    fn steer(&self, handle: &Handle, steering: &mut SteeredCopy) -> Result<(), Error> {
        let is_held = handle.is_paused();
        if std::mem::replace(&mut steering.is_held, is_held) != is_held {
            steering.hold += 1;
            handle.set_state_there(TransferState::Running);
            self.say(&ControlMessage::Hold { number: steering.hold, is_held });
        }
        if let Some(rate) = handle.take_rate_wish() {
            self.say(&ControlMessage::Rate(rate));
        }
        match steering.cancelled {
            None if handle.is_cancelled() => {
                self.say(&ControlMessage::Cancel);
                steering.cancelled = Some(Instant::now());
                Ok(())
            }
            Some(since) if since.elapsed() >= CANCEL_TIME => Err(Error::interrupted()),
            None | Some(_) => Ok(()),
        }
    }

    fn next_op(&mut self) -> u64 {
        self.next_op += 1;
        self.next_op
    }

    fn say(&self, message: &ControlMessage) {
        self.dialogue.request.send_encoded(|out| message.encode(out));
    }

    /// Ends the session: nothing more will be asked for.
    pub fn finish(mut self) {
        self.dialogue.say_finished(Vec::new());
        let end = Instant::now() + FINISH_TIME;
        while Instant::now() < end {
            match self.dialogue.step_after_finish() {
                Ok(DialogueStep::Finish(_)) | Err(_) => break,
                Ok(DialogueStep::Message(_) | DialogueStep::Idle) => {}
            }
        }
        self.dialogue.close(None);
    }
}

/// The wishes for a copy that the daemon has been told of.
#[derive(Default)]
struct SteeredCopy {
    is_held: bool,
    /// The number of the last *hold*.
    hold: u64,
    cancelled: Option<Instant>,
}

/// Shows the state of a remote copy in this end's handle. A snapshot that is not current was made before the daemon
/// obeyed the last wish for a pause or for its end.
fn show(snapshot: &Snapshot, is_current: bool, handle: &Handle) {
    use std::sync::atomic::Ordering::Relaxed;
    let counts = handle.counts();
    for (count, value) in [
        (&counts.bytes_total, snapshot.bytes_total),
        (&counts.files_total, snapshot.files_total),
        (&counts.bytes_done, snapshot.bytes_done),
        (&counts.files_done, snapshot.files_done),
        (&counts.bytes_skipped, snapshot.bytes_skipped),
        (&counts.failed, snapshot.failed),
        (&counts.vanished, snapshot.vanished),
    ] {
        count.store(value, Relaxed);
    }
    counts.scan_done.store(snapshot.totals_known, Relaxed);
    if is_current {
        handle.set_state_there(snapshot.state);
    }
    handle.set_facts(snapshot.facts.clone());
}
