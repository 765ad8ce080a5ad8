//! The end that has the files. It makes the changes one after another, in the order in which they are asked for.

use std::path::PathBuf;

use farhaul_connect::hello::Refusal;
use farhaul_connect::{AllowedRequest, EstablishedSession, PathPrefixes};
use farhaul_copy::open_root;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::panic_guard::contained;
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_session::test_hooks::TestHooks;
use farhaul_words::{Code, Error, Failure, SessionReport};

use super::changes;
use super::messages::{NamesMessage, RenameRule};
use super::names_scope::NamesScope;
use super::request::NamesRequest;

/// The rules of a daemon.
#[derive(Debug, Clone)]
pub struct NamesServerPolicy {
    /// Nothing outside of this directory is changed.
    pub root: PathBuf,
    /// Faults at this end, for tests.
    pub testing: TestHooks,
}

/// Hears of each change that is made, for a log.
pub trait NameObserver {
    /// `change` is a word of the wire (`remove`), and `path` what the client has named.
    fn changed(&self, _change: &'static str, _path: &[u8]) {}
}

/// An observer that does nothing.
impl NameObserver for () {}

/// How a served session has ended.
#[derive(Debug)]
pub struct NamesOutcome {
    /// The session's report.
    pub report: SessionReport,
    /// Why it ended early, if it did.
    pub error: Option<Error>,
    /// The number of changes that were made.
    pub changed: u64,
}

/// Serves changes until the client wants no more: at a daemon within the client's rights, over ssh everything that the
/// user may change.
pub fn serve(
    established: EstablishedSession,
    policy: Option<&NamesServerPolicy>,
    observer: &dyn NameObserver,
    handle: &Handle,
) -> NamesOutcome {
    handle.begin();
    let served = contained(|| run(established, policy, observer, handle)).flatten();
    let served = served.unwrap_or_else(|error| NamesOutcome {
        report: SessionReport::default(),
        error: Some(error),
        changed: 0,
    });
    handle.end(served.error.is_none(), served.error.as_ref());
    served
}

fn run(
    established: EstablishedSession,
    policy: Option<&NamesServerPolicy>,
    observer: &dyn NameObserver,
    handle: &Handle,
) -> Result<NamesOutcome, Error> {
    let scope = scope_of(&established, policy);
    let rights = established.guest.as_ref().map(|guest| NameRights::of(&guest.allowed)).unwrap_or_default();
    let mut network = established.opening.network;
    if let Some(policy) = policy {
        network.testing = policy.testing;
    }
    let started =
        Session::start(established.session, network, ContentRole::Sender, DeliveryOrder::Any, handle)?;
    let mut dialogue = started.1;
    let mut changed = 0;
    let result = scope.and_then(|scope| converse(&mut dialogue, (&scope, rights), observer, &mut changed));
    if let Err(error) = &result {
        dialogue.abort(error);
    }
    let figures = SessionFigures { ours: dialogue.figures(), theirs: Default::default() };
    let (report, error) = (dialogue.report(&figures, 0), result.err());
    dialogue.close(error.as_ref());
    Ok(NamesOutcome { report, error, changed })
}

fn scope_of(
    established: &EstablishedSession,
    policy: Option<&NamesServerPolicy>,
) -> Result<NamesScope, Error> {
    let asked = NamesRequest::of(&established.opening).map_err(Refusal::into_error)?;
    match (policy, &established.guest) {
        (None, _) => NamesScope::over_ssh(asked.within.as_ref()),
        (Some(policy), Some(guest)) => {
            let within = PathPrefixes::both(guest.allowed.within(), asked.within.as_ref());
            NamesScope::below(open_root(&policy.root, &guest.allowed)?, within)
        }
        // A daemon serves no client whose rights it has not judged, so this does not happen.
        (Some(_), None) => {
            Err(Error::new(Code::Forbidden, "nobody is served here without a key that this daemon knows"))
        }
    }
}

fn converse(
    dialogue: &mut Dialogue,
    (scope, rights): (&NamesScope, NameRights),
    observer: &dyn NameObserver,
    changed: &mut u64,
) -> Result<(), Error> {
    loop {
        let message = match dialogue.step()? {
            DialogueStep::Message(bytes) => NamesMessage::decode(bytes).map_err(senseless)?,
            DialogueStep::Finish(_) => {
                dialogue.finish();
                return Ok(());
            }
            DialogueStep::Idle => continue,
        };
        let is_stopped = || dialogue.request.is_stopped();
        let word = message.name();
        let (op, path, outcome) = change(scope, rights, message, &is_stopped)?;
        let answer = match outcome {
            Ok(()) => {
                *changed += 1;
                observer.changed(word, &path);
                NamesMessage::Changed { op }
            }
            Err(failure) => NamesMessage::Failed { op, failure },
        };
        dialogue.request.send_encoded(|out| answer.encode(out));
    }
}

/// The rights that a key may lack although it may write.
#[derive(Debug, Clone, Copy)]
struct NameRights {
    overwrites: bool,
    deletes: bool,
}

impl Default for NameRights {
    fn default() -> NameRights {
        NameRights { overwrites: true, deletes: true }
    }
}

impl NameRights {
    fn of(allowed: &AllowedRequest) -> NameRights {
        NameRights { overwrites: allowed.overwrites(), deletes: allowed.deletes() }
    }

    /// A rename takes a name away, as a removal does.
    fn may_remove(self) -> Result<(), Failure> {
        match self.deletes {
            true => Ok(()),
            false => Err(Failure::new(Code::Forbidden, "you may not remove or rename anything here")),
        }
    }

    fn may_change(self) -> Result<(), Failure> {
        match self.overwrites {
            true => Ok(()),
            false => Err(Failure::new(Code::Forbidden, "you may not change what is here")),
        }
    }

    fn of_rename(self, rule: RenameRule) -> RenameRule {
        if self.overwrites { rule } else { RenameRule::Keep }
    }
}

type Change = (u64, Vec<u8>, Result<(), Failure>);

fn change(
    scope: &NamesScope,
    rights: NameRights,
    message: NamesMessage,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Change, Error> {
    Ok(match message {
        NamesMessage::MakeDirectory { op, path, parents } => {
            let made = changes::make_directory(scope, &path, parents);
            (op, path, made)
        }
        NamesMessage::Rename { op, from, to, into, rule } => {
            let renamed = rights
                .may_remove()
                .and_then(|()| changes::rename(scope, &from, &to, into, rights.of_rename(rule)));
            (op, from, renamed)
        }
        NamesMessage::Remove { op, path, extent } => {
            let removed =
                rights.may_remove().and_then(|()| changes::remove(scope, &path, extent, is_stopped));
            (op, path, removed)
        }
        NamesMessage::SetTime { op, path, mtime } => {
            let set = rights.may_change().and_then(|()| changes::set_time(scope, &path, mtime));
            (op, path, set)
        }
        NamesMessage::Changed { .. } | NamesMessage::Failed { .. } => {
            return Err(unexpected(message.name()));
        }
    })
}

/// Makes a change within this host.
pub(crate) fn change_here(message: NamesMessage) -> Result<(), Error> {
    let (_, _, outcome) = change(&NamesScope::User, NameRights::default(), message, &|| false)?;
    outcome.map_err(Error::from)
}
