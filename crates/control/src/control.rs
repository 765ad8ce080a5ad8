//! The end that steers: a session with one daemon, by which it is asked for grants and for copies with
//! another one.
//!
//! Always true: the daemon's key is the one that this very session's handshake has proved.

use std::time::{Duration, Instant};

use farhaul_connect as connect;
use farhaul_connect::features::Features;
use farhaul_connect::hello::HelloSecret;
use farhaul_connect::{Caller, DaemonTarget, GrantWish, HelloParams};
use farhaul_copy::{ManifestCopy, Report};
use farhaul_session::error::{Code, Error};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_session::snapshot::Snapshot;
use farhaul_session::supervisor::{ContentRole, DeliveryOrder};

use super::commission::Commission;
use super::copy_status;
use super::messages::{ControlMessage, DocumentParts, parts, refusal};
use super::request::opening;

/// A daemon that was told to end a copy has so long to say how that has ended.
const CANCEL_TIME: Duration = Duration::from_secs(10);
/// What both ends may take to say that they have finished.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// A session with a daemon. Dropped, it ends, and what runs in it stops resumably.
pub struct ControlSession {
    dialogue: Dialogue,
    key: String,
    next_op: u64,
}

/// A grant that a daemon has given.
#[derive(Debug, Clone)]
pub struct IssuedGrant {
    /// What has to be shown for it.
    pub token: HelloSecret,
    /// For so long from now.
    pub lifetime: Duration,
}

impl ControlSession {
    /// Connects with a daemon, as `farhaul cp` does, unless `caller` wants no more.
    pub fn open(target: &DaemonTarget, caller: &dyn Caller) -> Result<ControlSession, Error> {
        let params =
            HelloParams { opening: opening()?, features: Features::default(), udp: true, early: false };
        let established = connect::daemon_connect(target, params, caller)?;
        let key = established.peer_key.clone();
        let key = key.ok_or_else(|| Error::new(Code::NotFarhaul, "the far end has shown no key"))?;
        let network = established.opening.network;
        // Its own handle: who looks at a copy is not interested in this session.
        let (session, handle) = (established.session, Handle::new());
        let (_, dialogue) =
            Session::start(session, network, ContentRole::Receiver, DeliveryOrder::Any, &handle)?;
        Ok(ControlSession { dialogue, key, next_op: 0 })
    }

    /// Fingerprint of the daemon's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Asks for a grant. `is_cancelled` says that nobody wants it any more.
    pub fn grant(&mut self, wish: GrantWish, is_cancelled: impl Fn() -> bool) -> Result<IssuedGrant, Error> {
        let GrantWish { key, errand, lifetime } = wish;
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
                DialogueStep::Idle => {}
            }
        }
    }

    /// Has the daemon make a copy with another one, to its end. What happens is told to `handle`, and what is
    /// wished by it is done there; what becomes of the entries goes into `manifest`.
    pub(crate) fn copy(
        &mut self,
        commission: &Commission,
        mut manifest: Option<&mut ManifestCopy>,
        handle: &Handle,
    ) -> Result<(Report, Option<Error>), Error> {
        let document = commission.write()?;
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
                    ControlMessage::Snapshot(json) => {
                        if let Some(snapshot) = copy_status::snapshot(&json) {
                            show(&snapshot, handle);
                        }
                    }
                    ControlMessage::Entries { op, part } if op == this => match &mut manifest {
                        Some(manifest) => manifest.take(&part)?,
                        None => return Err(unexpected("entries")),
                    },
                    ControlMessage::Ended { op, is_last, part } if op == this => {
                        if let Some(whole) = ending.take(is_last, &part, copy_status::ENDING_MAX)? {
                            return copy_status::ending(&whole);
                        }
                    }
                    other => return Err(unexpected(other.name())),
                },
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Idle => {}
            }
        }
    }

    /// Passes on what was wished since the last look.
    fn steer(&self, handle: &Handle, steering: &mut SteeredCopy) -> Result<(), Error> {
        let is_held = handle.is_paused();
        if std::mem::replace(&mut steering.is_held, is_held) != is_held {
            self.say(&ControlMessage::Hold { is_held });
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

    /// Nothing more will be asked for.
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

/// What the daemon was told of a copy.
#[derive(Default)]
struct SteeredCopy {
    is_held: bool,
    cancelled: Option<Instant>,
}

/// What is known of a copy elsewhere, for who looks at it here.
fn show(snapshot: &Snapshot, handle: &Handle) {
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
    handle.set_facts(snapshot.facts.clone());
}
