//! The far end of a session: does what the client's hello asked for, below the directory it is confined to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farhaul_connect::Established;
use farhaul_session::budget::Budget;
use farhaul_session::contained::contained;
use farhaul_session::error::Error;
use farhaul_session::options::Cipher;
use farhaul_session::progress::Progress;
use farhaul_session::testing::Testing;

use super::destination::is_null;
use super::outcome::Outcome;
use super::paths;
use super::paths::{Confinement, Wish};
use super::report::Report;
use super::request::{Direction, Request};
use super::{Agreed, Destination, Side, Terms, refuse, run};

/// Bytes of blocks that one client of a daemon may have.
const CLIENT_MEMORY_MAX: u64 = 1 << 30;
/// Disks that one client of a daemon may keep busy; each takes two threads.
const CLIENT_LANES_MAX: usize = 16;

/// What a far end allows whoever it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerPolicy {
    /// Paths of requests are resolved beneath it.
    pub root: PathBuf,
    /// Whether `--cipher none` may be asked for.
    pub allow_cipher_none: bool,
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
    let asked = contained(|| Request::of(&established.opening)).flatten();
    let direction = asked.as_ref().ok().map(|request| request.direction);
    let budget = &established.session.budget;
    let judged = asked.and_then(|request| {
        let side = contained(|| side(confinement, &request, budget, policy)).flatten()?;
        Ok((request, side))
    });
    let outcome = match judged {
        Ok((request, side)) => run(Agreed::new(established, request), side, &terms, &progress),
        Err(error) => refuse(established, error, &progress),
    };
    let Outcome { report, error } = outcome;
    SessionSummary { direction, report, error }
}

fn side(
    confinement: Confinement,
    request: &Request,
    budget: &Budget,
    policy: Option<&ServerPolicy>,
) -> Result<Side, Error> {
    if request.options.network.cipher == Cipher::None
        && policy.is_some_and(|policy| !policy.allow_cipher_none)
    {
        let what = "this daemon does not allow transfers without encryption".to_string();
        return Err(Error::Auth { what, hint: Some("leave out --cipher none".into()) });
    }
    let confinement = match policy {
        Some(policy) => Confinement::Root(paths::open_root(&policy.root)?),
        None => confinement,
    };
    match request.direction {
        Direction::Pull => Ok(Side::Send(paths::far_origin(&confinement, request, budget)?)),
        Direction::Push => {
            let path =
                request.paths.first().ok_or_else(|| Error::Misbehaved("it named no destination".into()))?;
            if is_null(Path::new(OsStr::from_bytes(path))) {
                return Ok(Side::Receive(Destination::Null));
            }
            let wish = Wish {
                is_directory: request.target_is_directory,
                is_name: request.target_is_name,
                dry_run: request.options.dry_run,
            };
            let target = paths::far_target(&confinement, path, wish, &request.options.spread.target)?;
            Ok(Side::Receive(Destination::Tree(Box::new(target))))
        }
    }
}
