//! The far end of a session: does what the client's hello asked for, below the directory it is confined to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::destination::is_null;
use super::outcome::Outcome;
use super::paths;
use super::paths::{Confinement, Wish};
use super::report::Report;
use super::{Destination, Side, Terms, refuse, run};
use crate::connect::Established;
use crate::connect::hello::{Direction, ServerPolicy};
use crate::error::Error;
use crate::session::contained::contained;
use crate::session::options::Cipher;
use crate::session::progress::Progress;

/// Bytes of blocks that one client of a daemon may have.
const CLIENT_MEMORY_MAX: u64 = 1 << 30;
/// Disks that one client of a daemon may keep busy; each takes two threads.
const CLIENT_LANES_MAX: usize = 16;

/// What a far end can say of a session that it has served.
#[derive(Debug)]
pub struct SessionSummary {
    pub direction: Direction,
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
    let direction = established.request.direction;
    if let Some(policy) = policy {
        // What a client allows this host to use is not the client's to say alone.
        let options = &mut established.request.options;
        options.network.memory_bytes = options.network.memory_bytes.min(CLIENT_MEMORY_MAX);
        options.network.testing = policy.testing;
    }
    let progress = Arc::new(Progress::unheard());
    let terms = Terms {
        strip_setuid: policy.is_some_and(|policy| policy.strip_setuid),
        mask: established.mask,
        lanes_max: policy.map(|_| CLIENT_LANES_MAX),
        names: None,
        log: None,
    };
    let side = contained(|| side(confinement, &established, policy)).flatten();
    let outcome = match side {
        Ok(side) => run(established, side, &terms, &progress),
        Err(error) => refuse(established, error, &progress),
    };
    let Outcome { report, error } = outcome;
    SessionSummary { direction, report, error }
}

fn side(
    confinement: Confinement,
    established: &Established,
    policy: Option<&ServerPolicy>,
) -> Result<Side, Error> {
    let request = &established.request;
    if request.stream.is_some() {
        return Err(Error::Usage("this end has files, no streams of a program's own".into()));
    }
    request.options.clone().checked()?;
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
        Direction::Pull => {
            Ok(Side::Send(paths::far_origin(&confinement, request, &established.session.budget)?))
        }
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
