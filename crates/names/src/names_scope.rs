//! The files that a client can reach, and the place that each of its paths names.
//!
//! Always true: at a daemon a path is resolved below its root, whatever it begins with. Links above its last name are
//! followed as long as they stay there; the last name itself is never followed, as it is the name that changes.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use farhaul_connect::PathPrefixes;
use farhaul_copy::Confines;
use farhaul_volume::{RelPath, Root, expand_home, is_way_out};
use farhaul_words::{Code, Error, Failure};

/// The files that can be reached.
pub(crate) enum NamesScope {
    /// Everything that the user who runs this can reach; relative paths start at the working directory.
    User,
    /// The files below a daemon's root.
    Root(Root),
    /// Only the files below certain directories: of this host, or below a daemon's root.
    Within(Confines),
}

/// Where an entry is: its directory, and its one name there.
pub(crate) struct Place {
    pub(crate) directory: Root,
    pub(crate) name: RelPath,
}

/// A path, as far as it is resolved without looking at names: what it starts from, and the rest.
struct Spot {
    root: Root,
    path: RelPath,
}

impl NamesScope {
    /// The files of a client that comes over SSH, if it is to be kept within these directories.
    pub(crate) fn over_ssh(within: Option<&PathPrefixes>) -> Result<NamesScope, Error> {
        Ok(match within {
            None => NamesScope::User,
            Some(within) => NamesScope::Within(Confines::of(within.directories())?),
        })
    }

    /// The files of a daemon's client that may use this root, if it is to be kept within these directories.
    pub(crate) fn below(root: Root, within: Option<PathPrefixes>) -> Result<NamesScope, Error> {
        Ok(match within {
            None => NamesScope::Root(root),
            Some(within) => NamesScope::Within(Confines::below(root, within.directories())?),
        })
    }

    /// The place of the entry that a path names.
    pub(crate) fn place(&self, path: &[u8]) -> Result<Place, Failure> {
        let Spot { root, path } = self.spot(path)?;
        let Some(name) = path.file_name() else {
            return Err(Failure::new(
                Code::BadPath,
                "it is the whole of what may be used here, and has no name",
            ));
        };
        let name = RelPath::from_bytes(name).map_err(|error| Failure::new(Code::BadPath, error.why()))?;
        let directory = match path.parent().unwrap_or_default() {
            parent if parent.is_empty() => root,
            parent => root.follow(&parent).map_err(|error| unreachable_place(&error))?,
        };
        Ok(Place { directory, name })
    }

    /// The paths from the top down to this one, for making all that is missing on the way.
    pub(crate) fn steps(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let whole = match self {
            NamesScope::User => own(path)?.into_os_string().into_vec(),
            NamesScope::Root(_) | NamesScope::Within(_) => path.to_vec(),
        };
        let ends = (1..whole.len()).filter(|&at| whole[at] == b'/' && whole[at - 1] != b'/');
        let mut steps: Vec<_> = ends.map(|at| whole[..at].to_vec()).collect();
        if !whole.ends_with(b"/") {
            steps.push(whole);
        }
        Ok(steps)
    }

    /// Whether a path leads to a directory, also through links.
    pub(crate) fn is_directory(&self, path: &[u8]) -> Result<bool, Failure> {
        if matches!(self, NamesScope::User) {
            // A link may lead this user anywhere.
            return match std::fs::metadata(own(path)?) {
                Ok(there) => Ok(there.is_dir()),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    Ok(false)
                }
                Err(error) => Err(Failure::cannot("look it up", &error)),
            };
        }
        let Spot { root, path } = self.spot(path)?;
        if path.is_empty() {
            return Ok(true);
        }
        let there = root.metadata_followed(&path).map_err(|error| unreachable_place(&error))?;
        Ok(there.is_some_and(|meta| meta.is_dir()))
    }

    fn spot(&self, path: &[u8]) -> Result<Spot, Failure> {
        match self {
            NamesScope::User => {
                let path = own(path)?;
                let Some(name) = path.file_name() else {
                    return Err(Failure::new(Code::BadPath, "a path must end with a name"));
                };
                let above = match path.parent() {
                    Some(above) if !above.as_os_str().is_empty() => above,
                    _ => Path::new("."),
                };
                let root = Root::open(above).map_err(|error| unreachable_place(&error))?;
                let path = RelPath::from_bytes(name.as_bytes());
                Ok(Spot { root, path: path.map_err(|error| Failure::new(Code::BadPath, error.why()))? })
            }
            NamesScope::Root(root) => {
                // A daemon's root is `/` to its clients.
                let path = RelPath::from_written(without_slashes(path));
                let path = path.map_err(|error| Failure::new(Code::BadPath, error.why()))?;
                Ok(Spot { root: root.clone(), path })
            }
            NamesScope::Within(confines) => {
                let spot = confines.written(Path::new(std::ffi::OsStr::from_bytes(path)));
                let spot = spot.map_err(|error| Failure::new(error.code(), error.to_string()))?;
                Ok(Spot { root: spot.root, path: spot.path })
            }
        }
    }
}

/// A path of the user's own, without slashes at its end. No shell has expanded a `~`.
fn own(path: &[u8]) -> Result<PathBuf, Failure> {
    let path = expand_home(path);
    if path.is_empty() {
        return Err(Failure::new(Code::BadPath, "the path is empty"));
    }
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(1, |at| at + 1);
    Ok(PathBuf::from(OsString::from_vec(path[..end].to_vec())))
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    &path[start..]
}

fn unreachable_place(error: &io::Error) -> Failure {
    if is_way_out(error) {
        return Failure::new(Code::Forbidden, "a symbolic link in it leads out of what may be used here");
    }
    Failure::cannot("open its directory", error)
}
