//! Names that change where they are.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};

use farhaul::copy::Location;
use farhaul::errors::Code;
use farhaul::names::{IntoDirectory, RemoteNames, RemoveExtent, RenameRule};
use farhaul::options::NetworkOptions;
use farhaul::sisters::MEMORY_MIN;
use farhaul::{Error, Handle};

use crate::arguments::{bytes, flag, number};
use crate::border::done;
use crate::codes::{FH_REMOVE_DIRECTORY, FH_REMOVE_FILE, FH_REMOVE_TREE};
use crate::context::MemoryShare;
use crate::handles;
use crate::reads::{OpenRemote, fh_remote};

/// The session of a remote that changes names. It begins with the first change.
pub(crate) struct Names {
    location: Location,
    network: NetworkOptions,
    /// Cancelling it ends the wait for the far end while the session begins.
    caller: Handle,
    session: Mutex<Option<Session>>,
}

struct Session {
    names: Arc<RemoteNames>,
    /// Given back behind the session.
    _memory: MemoryShare,
}

impl Names {
    pub(crate) fn at(location: Location, network: NetworkOptions) -> Names {
        Names { location, network, caller: Handle::new(), session: Mutex::default() }
    }

    /// Ends the calls that wait, and all that come later.
    pub(crate) fn cancel(&self) {
        self.caller.cancel();
        // A session that is just beginning looks at the caller once it is there.
        if let Ok(session) = self.session.try_lock()
            && let Some(session) = &*session
        {
            session.names.handle().cancel();
        }
    }
}

impl OpenRemote {
    fn names(&self) -> Result<Arc<RemoteNames>, Error> {
        let Names { location, network, caller, session } = &self.names;
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is asked for once the remote was cancelled: the far end would still do it.
        if caller.is_cancelled() {
            return Err(Error::new(Code::Interrupted, "the remote was cancelled"));
        }
        let names = match &*session {
            Some(session) => session.names.clone(),
            None => {
                let memory = MemoryShare::of(self.memory.context(), Some(MEMORY_MIN))?;
                let names = Arc::new(RemoteNames::called_by(caller, None, location, network.clone())?);
                *session = Some(Session { names: names.clone(), _memory: memory });
                names
            }
        };
        if caller.is_cancelled() {
            names.handle().cancel();
        }
        Ok(names)
    }
}

/// Makes a directory below a remote. With `parents` 1 those above it are made, too, and it may be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_mkdir(remote: *mut fh_remote, path: *const c_char, parents: u32) -> i32 {
    let handle = number(remote);
    done(handle, || {
        let remote = handles::remote(handle)?;
        // SAFETY: as the header says.
        let path = unsafe { bytes(path, "path")? };
        let parents = flag(parents, "parents")?;
        remote.names()?.make_directory(path, parents)
    })
}

/// Gives a file, a directory or a link below a remote another name there. With `replace` 1 a file that has the new name
/// is replaced, and an empty directory by a directory; with 0 that fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_rename(
    remote: *mut fh_remote,
    from: *const c_char,
    to: *const c_char,
    replace: u32,
) -> i32 {
    let handle = number(remote);
    done(handle, || {
        let remote = handles::remote(handle)?;
        // SAFETY: as the header says.
        let (from, to) = unsafe { (bytes(from, "from")?, bytes(to, "to")?) };
        let rule = if flag(replace, "replace")? { RenameRule::Replace } else { RenameRule::Keep };
        remote.names()?.rename(from, to, IntoDirectory::Never, rule)
    })
}

/// Removes what is below a remote: with FH_REMOVE_FILE anything but a directory (a link itself), with FH_REMOVE_DIRECTORY an empty
/// directory, with FH_REMOVE_TREE anything, and everything in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_remove(remote: *mut fh_remote, path: *const c_char, extent: u32) -> i32 {
    let handle = number(remote);
    done(handle, || {
        let remote = handles::remote(handle)?;
        // SAFETY: as the header says.
        let path = unsafe { bytes(path, "path")? };
        let extent = match extent {
            FH_REMOVE_FILE => RemoveExtent::File,
            FH_REMOVE_DIRECTORY => RemoveExtent::EmptyDirectory,
            FH_REMOVE_TREE => RemoveExtent::Tree,
            _ => {
                let what = "`extent` is neither FH_REMOVE_FILE nor FH_REMOVE_DIRECTORY nor FH_REMOVE_TREE";
                return Err(Error::new(Code::BadOption, what));
            }
        };
        remote.names()?.remove(path, extent)
    })
}
