//! The far end of a session: does what the client's hello asks for, below the directory that it is confined
//! to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use farhaul_connect::{AllowedRequest, EstablishedSession, Guest};
use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Resource};
use farhaul_session::content_role::DeliveryOrder;
use farhaul_session::handle::Handle;
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_session::session::{OpenedRequest, Session};
use farhaul_session::test_hooks::TestHooks;
use farhaul_words::{Code, Error};

use super::confines::Confines;
use super::content_check::ReceiverCheck;
use super::copy_outcome::CopyOutcome;
use super::destination::is_null;
use super::report::Report;
use super::request::{CopyDirection, CopyRequest};
use super::resolution;
use super::resolution::{Confinement, DestinationWish};
use super::{AgreedCopy, CopySide, Destination, Terms, converse, refuse, run};

/// The most bytes of blocks that one client of a daemon may have.
pub(crate) const CLIENT_MEMORY_MAX: u64 = 1 << 30;
/// The most disks that one client of a daemon may keep busy; each takes two threads.
pub(crate) const CLIENT_LANES_MAX: usize = 16;

/// How a far end serves the clients that it has let in. The rights of each are in its
/// [`Rights`](farhaul_connect::Rights).
#[derive(Debug, Clone, PartialEq)]
pub struct CopyServerPolicy {
    /// Paths of requests are resolved below this, or below the directory in it that a client may use.
    pub root: PathBuf,
    /// Whether set-user-id and set-group-id bits are taken off what arrives.
    pub strip_setuid: bool,
    /// Mode bits of group and others that are taken off everything that is created here.
    pub mask: u32,
    /// Faults that this end makes on purpose, for tests.
    pub testing: TestHooks,
    /// Looks at each file that arrives before it gets its name.
    pub check: ReceiverCheck,
}

/// A far end's summary of a session, or of a further request, that it has served.
#[derive(Debug)]
pub struct SessionSummary {
    /// `None` if the request was not understood.
    pub direction: Option<CopyDirection>,
    /// The paths as the client wrote them: the sources of a pull, or the destination of a push.
    pub paths: Vec<Vec<u8>>,
    pub report: Report,
    pub error: Option<Error>,
}

/// Observes what is served.
pub trait CopyObserver: Sync {
    /// A session begins, or a further request in one; the handle shows its progress, steers it and stops it.
    fn begins(&self, _handle: &Handle) {}

    /// A further request of a session has ended.
    fn further_ended(&self, _handle: &Handle, _summary: &SessionSummary) {}
}

/// Observes nothing.
pub struct NoCopyObserver;

impl CopyObserver for NoCopyObserver {}

/// Serves a client that came over the daemon's port (`policy` given), or over ssh as the user that it runs
/// as. Faults for tests are never the client's choice: the policy sets them, or over ssh whoever made
/// `established`. Returns the summary of the session's first request; `watch` hears of all.
pub fn serve(
    established: EstablishedSession,
    policy: Option<&CopyServerPolicy>,
    watch: &dyn CopyObserver,
) -> SessionSummary {
    let check = policy.map(|policy| policy.check.clone()).unwrap_or_default();
    let sender = established.guest.as_ref().map(|guest| guest.principal.id.name());
    serve_in(None, established, policy, (check, sender), watch)
}

/// Serves the far end of a copy within this host; if `confines` are given, everything has to lie in them.
/// `check` looks at what arrives.
pub(crate) fn serve_here(
    established: EstablishedSession,
    confines: Option<Confines>,
    check: ReceiverCheck,
) -> SessionSummary {
    let here = Some(Confinement::of_local(confines.as_ref()));
    serve_in(here, established, None, (check, None), &NoCopyObserver)
}

/// Serves a session. The client is confined by the policy, if there is one; within this host by `here`; else by
/// its own requests alone.
fn serve_in(
    here: Option<Confinement>,
    mut established: EstablishedSession,
    policy: Option<&CopyServerPolicy>,
    (check, sender): (ReceiverCheck, Option<String>),
    watch: &dyn CopyObserver,
) -> SessionSummary {
    if let Some(policy) = policy {
        // The client's options must not exceed what this host allows.
        let network = &mut established.opening.network;
        network.memory_bytes = network.memory_bytes.min(CLIENT_MEMORY_MAX);
        network.testing = policy.testing;
    }
    let handle = Handle::new();
    watch.begins(&handle);
    handle.begin();
    let terms = Terms {
        strip_setuid: policy.is_some_and(|policy| policy.strip_setuid),
        mask: policy.map_or(0, |policy| policy.mask),
        lanes_max: policy.map(|_| CLIENT_LANES_MAX),
        names: None,
        more_paths: None,
        log: None,
        keys: established.keys.take(),
        check,
        sender,
    };
    let asked = contained(|| CopyRequest::of(&established.opening)).flatten();
    let direction = asked.as_ref().ok().map(|request| request.direction);
    let paths = asked.as_ref().map(|request| request.paths.clone()).unwrap_or_default();
    let confinement = match policy {
        Some(policy) => SessionConfinement::Daemon { policy, guest: established.guest.clone() },
        None => here.map_or(SessionConfinement::Ssh, SessionConfinement::Here),
    };
    let budget = &established.session.budget;
    let judged = asked.and_then(|request| {
        let side = contained(|| side(&confinement.of_first(&request)?, &request, budget)).flatten()?;
        Ok((request, side))
    });
    let outcome = match judged {
        Ok((request, side)) if established.opening.many => {
            serve_many(&confinement, AgreedCopy::new(established, request), side, (&terms, watch), &handle)
        }
        Ok((request, side)) => run(AgreedCopy::new(established, request), side, &terms, &handle),
        Err(error) => refuse(established, error, &handle),
    };
    let CopyOutcome { report, error } = outcome;
    handle.end_with(report.exit_code(error.as_ref()), error.as_ref());
    SessionSummary { direction, paths, report, error }
}

/// How often an idle session is checked for having ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The most requests of a session that are served at a time, as each has threads of its own. Further ones
/// wait.
const SERVED_MAX: usize = 8;

/// Serves copies until the client has no more; returns the outcome of the first one.
fn serve_many(
    confinement: &SessionConfinement,
    agreed: AgreedCopy,
    side: CopySide,
    (terms, watch): (&Terms, &dyn CopyObserver),
    handle: &Handle,
) -> CopyOutcome {
    let AgreedCopy { session, request } = agreed;
    let network = request.options.network.clone();
    let budget = session.budget.clone();
    let started = Session::start(session, network.clone(), side.role(), DeliveryOrder::Any, handle);
    let (session, first) = match started {
        Ok(started) => started,
        Err(error) => return CopyOutcome::failed(error),
    };
    session.stay();
    let turns = &Permits::new(SERVED_MAX);
    let further = &FurtherRequests { confinement, budget: &budget, network: &network, terms, watch };
    let outcome = std::thread::scope(|scope| {
        let turn = turns.take();
        let run_first = move || {
            let _turn = turn;
            contained(|| converse(first, request, side, terms)).unwrap_or_else(CopyOutcome::failed)
        };
        let first = std::thread::Builder::new().name("request".into()).spawn_scoped(scope, run_first);
        let first = match first {
            Ok(first) => first,
            Err(source) => {
                return CopyOutcome::failed(Error::no_thread(source));
            }
        };
        // The loop ends with the session.
        while let Ok(next) = session.accept(LOOK_EVERY) {
            let Some((opened, words)) = next else { continue };
            // The running requests look after the session meanwhile, and end with it.
            let turn = turns.take();
            let refused = opened.clone();
            let serve = move || {
                let _turn = turn;
                further.serve(opened, &words);
            };
            if let Err(error) = std::thread::Builder::new().name("request".into()).spawn_scoped(scope, serve)
            {
                refused.refuse(&Error::of_host("the far end cannot start a thread", error));
            }
        }
        first.join().unwrap_or_else(|_| CopyOutcome::failed(Error::bug("a request")))
    });
    session.close(None);
    outcome
}

/// A number of permits to do something at a time.
struct Permits {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// One permit; dropping it gives it to the next.
struct Permit<'a>(&'a Permits);

impl Permits {
    fn new(count: usize) -> Permits {
        Permits { free: Mutex::new(count), given_back: Condvar::new() }
    }

    /// Waits for a permit.
    fn take(&self) -> Permit<'_> {
        let free = self.free.lock().in_any_case();
        let mut free = self.given_back.wait_while(free, |free| *free == 0).in_any_case();
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().in_any_case() += 1;
        self.0.given_back.notify_one();
    }
}

/// The parameters that all requests of a session share.
struct FurtherRequests<'a> {
    confinement: &'a SessionConfinement<'a>,
    budget: &'a Budget,
    network: &'a NetworkOptions,
    terms: &'a Terms,
    watch: &'a dyn CopyObserver,
}

impl FurtherRequests<'_> {
    fn serve(&self, opened: OpenedRequest, words: &[u8]) {
        let handle = opened.handle().clone();
        self.watch.begins(&handle);
        handle.begin();
        let asked = contained(|| CopyRequest::read(words, self.network)).flatten();
        let direction = asked.as_ref().ok().map(|request| request.direction);
        let paths = asked.as_ref().map(|request| request.paths.clone()).unwrap_or_default();
        let judged = asked.and_then(|request| {
            let side = contained(|| side(&self.confinement.of_further(&request)?, &request, self.budget))
                .flatten()?;
            Ok((request, side))
        });
        let thread = self.budget.charge_of(Resource::Threads, 1).map_err(Error::from);
        let outcome = match judged.and_then(|judged| Ok((judged, thread?))) {
            Ok(((request, side), _thread)) => {
                let dialogue = opened.begin(side.role());
                contained(|| converse(dialogue, request, side, self.terms))
                    .unwrap_or_else(CopyOutcome::failed)
            }
            Err(error) => {
                opened.refuse(&error);
                CopyOutcome::failed(error)
            }
        };
        let CopyOutcome { report, error } = outcome;
        handle.end_with(report.exit_code(error.as_ref()), error.as_ref());
        self.watch.further_ended(&handle, &SessionSummary { direction, paths, report, error });
    }
}

/// The confinement of a session's requests.
enum SessionConfinement<'a> {
    /// At a daemon: below the directory that each request may use by its rights.
    Daemon { policy: &'a CopyServerPolicy, guest: Option<Guest> },
    /// Over SSH: what the user may use, as far as each request wants it.
    Ssh,
    /// Within this host: the same for all requests.
    Here(Confinement),
}

impl SessionConfinement<'_> {
    /// The confinement of the request that was judged before the session began.
    fn of_first(&self, request: &CopyRequest) -> Result<Confinement, Error> {
        self.below(request, |guest| Ok(guest.allowed.clone()))
    }

    /// The confinement of a further request, which is judged here before anything is opened for it.
    fn of_further(&self, request: &CopyRequest) -> Result<Confinement, Error> {
        self.below(request, |guest| guest.judge(request.asked()))
    }

    fn below(
        &self,
        request: &CopyRequest,
        allowed: impl FnOnce(&Guest) -> Result<AllowedRequest, Error>,
    ) -> Result<Confinement, Error> {
        match self {
            SessionConfinement::Daemon { policy, guest: Some(guest) } => {
                Confinement::at_daemon(&policy.root, &allowed(guest)?, request.within.as_ref())
            }
            // A client without rights never gets this far.
            SessionConfinement::Daemon { guest: None, .. } => {
                Err(Error::new(Code::Forbidden, "nobody is served here without a key that this daemon knows"))
            }
            SessionConfinement::Ssh => Confinement::over_ssh(request.within.as_ref()),
            SessionConfinement::Here(confinement) => Ok(confinement.clone()),
        }
    }
}

fn side(confinement: &Confinement, request: &CopyRequest, budget: &Budget) -> Result<CopySide, Error> {
    match request.direction {
        CopyDirection::Pull => Ok(CopySide::Send(resolution::far_origin(confinement, request, budget)?)),
        CopyDirection::Push => {
            let path = request
                .paths
                .first()
                .ok_or_else(|| Error::new(Code::BadRequest, "it named no destination"))?;
            if is_null(Path::new(OsStr::from_bytes(path))) {
                if request.options.integrity.receipt.is_some() {
                    return Err(Error::new(
                        Code::BadOption,
                        "null: keeps nothing that a receipt could be for",
                    ));
                }
                return Ok(CopySide::Receive(Destination::Null));
            }
            let wish = DestinationWish {
                is_directory: request.target_is_directory,
                is_name: request.target_is_name,
                dry_run: request.options.dry_run,
            };
            let mut target = resolution::far_target(confinement, path, wish, &request.options.spread.target)?;
            resolution::place_beside(confinement, path, &mut target, &request.options)?;
            Ok(CopySide::Receive(Destination::Tree(Box::new(target))))
        }
    }
}
