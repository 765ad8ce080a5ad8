//! The far end of a session: does what the client's hello asked for, below the directory it is confined to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farhaul_connect::{Established, Guest};
use farhaul_session::budget::Budget;
use farhaul_session::contained::contained;
use farhaul_session::error::{Code, Error};
use farhaul_session::options::NetworkOptions;
use farhaul_session::progress::Progress;
use farhaul_session::session::{Opened, Session};
use farhaul_session::supervisor::Order;
use farhaul_session::testing::Testing;

use super::destination::is_null;
use super::outcome::Outcome;
use super::paths;
use super::paths::{Confinement, Wish};
use super::report::Report;
use super::request::{CopyRequest, Direction};
use super::{Agreed, Destination, Side, Terms, converse, refuse, run};

/// Bytes of blocks that one client of a daemon may have.
const CLIENT_MEMORY_MAX: u64 = 1 << 30;
/// Disks that one client of a daemon may keep busy; each takes two threads.
const CLIENT_LANES_MAX: usize = 16;

/// How a far end serves those whom it has let in. What each of them may do is in its
/// [`Rights`](farhaul_connect::Rights).
#[derive(Debug, Clone, PartialEq)]
pub struct ServerPolicy {
    /// Paths of requests are resolved beneath it, or beneath the directory in it that a client may use.
    pub root: PathBuf,
    /// Whether set-user-id and set-group-id bits are taken off what arrives.
    pub strip_setuid: bool,
    /// Mode bits of group and others that nothing gets here.
    pub mask: u32,
    /// What goes wrong at this end, for tests.
    pub testing: Testing,
}

/// What a far end can say of a session that it has served.
#[derive(Debug)]
pub struct SessionSummary {
    /// None if the request was not understood.
    pub direction: Option<Direction>,
    pub report: Report,
    pub error: Option<Error>,
}

/// Serves a client that came over the daemon's port (`policy` given), or over ssh as the user that it runs as. The client's options
/// say nothing of what goes wrong here on purpose: the policy does, or over ssh whoever made `established`.
pub fn serve(established: Established, policy: Option<&ServerPolicy>) -> SessionSummary {
    serve_in(Confinement::User, established, policy)
}

/// The far end of a copy within this host.
pub(crate) fn serve_here(established: Established) -> SessionSummary {
    serve_in(Confinement::Local, established, None)
}

/// A policy says by itself what its clients are confined to.
fn serve_in(
    confinement: Confinement,
    mut established: Established,
    policy: Option<&ServerPolicy>,
) -> SessionSummary {
    if let Some(policy) = policy {
        // What a client allows this host to use is not the client's to say alone.
        let network = &mut established.opening.network;
        network.memory_bytes = network.memory_bytes.min(CLIENT_MEMORY_MAX);
        network.testing = policy.testing;
    }
    let progress = Arc::new(Progress::unheard());
    let terms = Terms {
        strip_setuid: policy.is_some_and(|policy| policy.strip_setuid),
        mask: policy.map_or(0, |policy| policy.mask),
        lanes_max: policy.map(|_| CLIENT_LANES_MAX),
        names: None,
        log: None,
    };
    let asked = contained(|| CopyRequest::of(&established.opening)).flatten();
    let is_too_much = established.opening.many && policy.is_some();
    let asked = match asked {
        Ok(_) if is_too_much => {
            Err(Error::new(Code::OneRequestOnly, "this daemon takes one request a session"))
        }
        asked => asked,
    };
    let direction = asked.as_ref().ok().map(|request| request.direction);
    let budget = &established.session.budget;
    let judged = asked.and_then(|request| {
        let confinement =
            contained(|| confined(confinement, established.guest.as_ref(), policy)).flatten()?;
        let side = contained(|| side(&confinement, &request, budget)).flatten()?;
        Ok((request, side, confinement))
    });
    let outcome = match judged {
        Ok((request, side, confinement)) if established.opening.many => {
            serve_many(confinement, Agreed::new(established, request), side, &terms, &progress)
        }
        Ok((request, side, _)) => run(Agreed::new(established, request), side, &terms, &progress),
        Err(error) => refuse(established, error, &progress),
    };
    let Outcome { report, error } = outcome;
    SessionSummary { direction, report, error }
}

/// How often it is looked whether a session goes on while it has nothing to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serves copies until the client has no more; says how the first one ended.
fn serve_many(
    confinement: Confinement,
    agreed: Agreed,
    side: Side,
    terms: &Terms,
    progress: &Arc<Progress>,
) -> Outcome {
    let Agreed { session, request } = agreed;
    let network = request.options.network.clone();
    let budget = session.budget.clone();
    let started = Session::start(session, network.clone(), side.role(), Order::Any, progress);
    let (session, first) = match started {
        Ok(started) => started,
        Err(error) => return Outcome::failed(error),
    };
    session.stay();
    let further = &Further { confinement: &confinement, budget: &budget, network: &network, terms };
    let outcome = std::thread::scope(|scope| {
        let run_first =
            || contained(|| converse(first, request, side, terms)).unwrap_or_else(Outcome::failed);
        let first = std::thread::Builder::new().name("request".into()).spawn_scoped(scope, run_first);
        let first = match first {
            Ok(first) => first,
            Err(source) => {
                return Outcome::failed(Error::no_thread(source));
            }
        };
        // It ends with the session.
        while let Ok(next) = session.accept(LOOK_EVERY) {
            let Some((opened, words)) = next else { continue };
            let refused = opened.clone();
            let serve = move || further.serve(opened, &words);
            if let Err(error) = std::thread::Builder::new().name("request".into()).spawn_scoped(scope, serve)
            {
                refused.refuse(&Error::of_host("the far end cannot start a thread", error));
            }
        }
        first.join().unwrap_or_else(|_| Outcome::failed(Error::bug("a request")))
    });
    session.close(None);
    outcome
}

/// What the requests of a session have in common.
struct Further<'a> {
    confinement: &'a Confinement,
    budget: &'a Budget,
    network: &'a NetworkOptions,
    terms: &'a Terms,
}

impl Further<'_> {
    fn serve(&self, opened: Opened, words: &[u8]) {
        let judged = contained(|| {
            let request = CopyRequest::read(words, self.network)?;
            let side = side(self.confinement, &request, self.budget)?;
            Ok((request, side))
        });
        let (request, side) = match judged.flatten() {
            Ok(judged) => judged,
            Err(error) => return opened.refuse(&error),
        };
        let dialogue = opened.begin(side.role());
        let outcome = contained(|| converse(dialogue, request, side, self.terms));
        if let Some(error) = outcome.unwrap_or_else(Outcome::failed).error {
            tracing::debug!(%error, "a further request of a session");
        }
    }
}

/// What a daemon's client is confined to; another one stays where it is.
fn confined(
    confinement: Confinement,
    guest: Option<&Guest>,
    policy: Option<&ServerPolicy>,
) -> Result<Confinement, Error> {
    match (policy, guest) {
        (Some(policy), Some(guest)) => {
            Ok(Confinement::Root(paths::open_root(&policy.root, guest.allowed.root())?))
        }
        // Nobody comes here without having been judged.
        (Some(_), None) => Err(Error::new(Code::Forbidden, "you were not let in here")),
        (None, _) => Ok(confinement),
    }
}

fn side(confinement: &Confinement, request: &CopyRequest, budget: &Budget) -> Result<Side, Error> {
    match request.direction {
        Direction::Pull => Ok(Side::Send(paths::far_origin(confinement, request, budget)?)),
        Direction::Push => {
            let path = request
                .paths
                .first()
                .ok_or_else(|| Error::new(Code::BadRequest, "it named no destination"))?;
            if is_null(Path::new(OsStr::from_bytes(path))) {
                return Ok(Side::Receive(Destination::Null));
            }
            let wish = Wish {
                is_directory: request.target_is_directory,
                is_name: request.target_is_name,
                dry_run: request.options.dry_run,
            };
            let target = paths::far_target(confinement, path, wish, &request.options.spread.target)?;
            Ok(Side::Receive(Destination::Tree(Box::new(target))))
        }
    }
}
