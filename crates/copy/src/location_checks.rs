//! Checks the locations of a job before anything is done: a copy may not go onto itself or into itself, has to
//! stay within its confines, and a receipt needs two ends that can sign.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use farhaul_volume::GeneratedSource;
use farhaul_words::{Code, Error};

use super::confines::{self, Confines, resolved};
use super::job::{CopyJob, Location, spread_of};
use super::last_component;
use crate::options::{SpreadOptions, in_each};

/// Refuses a receipt for a copy between these ends, if there can be none.
pub fn receipt_is_possible(sources: &[Location], destination: &Location) -> Result<(), Error> {
    why_no_receipt(sources, destination).map_or(Ok(()), |why| Err(no_receipt(why)))
}

pub(super) fn no_receipt(why: &str) -> Error {
    Error::new(Code::BadOption, format!("there can be no receipt: {why}"))
}

pub(super) fn why_no_receipt(sources: &[Location], destination: &Location) -> Option<&'static str> {
    let ends = || sources.iter().chain([destination]);
    let keeps_nothing = match destination {
        Location::Pipe => true,
        Location::Local(path) => super::is_null(path),
        Location::Ssh { path, .. } | Location::Daemon { path, .. } => {
            super::is_null(Path::new(OsStr::from_bytes(path)))
        }
    };
    if ends().any(|location| matches!(location, Location::Ssh { .. })) {
        Some("over SSH neither end has a key that it could sign with; copy from or to a daemon (fh://)")
    } else if !ends().any(|location| matches!(location, Location::Daemon { .. })) {
        Some("within one host there is nobody who could sign; copy from or to a daemon (fh://)")
    } else if keeps_nothing {
        Some("content for null: or for standard output is on no disk")
    } else {
        None
    }
}

/// Refuses a job if a local path of it lies, or leads, outside the confines.
pub(super) fn check_within(job: &CopyJob, confines: &Confines) -> Result<(), Error> {
    for (location, is_destination) in
        job.sources.iter().map(|source| (source, false)).chain([(&job.destination, true)])
    {
        match location {
            Location::Ssh { .. } | Location::Daemon { .. } => {}
            Location::Pipe => {
                let what = "a pipe cannot be used here: name a file";
                return Err(Error::new(Code::Forbidden, what));
            }
            Location::Local(path) if is_destination && super::is_null(path) => {}
            Location::Local(path) if GeneratedSource::parse(path.as_os_str().as_bytes()).is_some() => {}
            Location::Local(path) => drop(confines.spot(path)?),
        }
    }
    let SpreadOptions { source, target } = spread_of(job)?;
    let sides = [(job.sources.iter().any(Location::is_far), source), (job.destination.is_far(), target)];
    let local = sides.into_iter().filter(|(is_far, _)| !is_far).flat_map(|(_, directories)| directories);
    for directory in local {
        confines.spot(Path::new(OsStr::from_bytes(&directory)))?;
    }
    Ok(())
}

/// The local files that the job would write at the top of its destination: the destination itself, or each
/// source's name in it.
pub(super) fn written_places(job: &CopyJob) -> Vec<PathBuf> {
    let Location::Local(to) = &job.destination else { return Vec::new() };
    if !to.is_dir() && !to.as_os_str().as_bytes().ends_with(b"/") {
        return vec![to.clone()];
    }
    let name = |source: &Location| match source {
        Location::Local(path) => last_component(path.as_os_str().as_bytes()).map(<[u8]>::to_vec),
        Location::Ssh { path, .. } | Location::Daemon { path, .. } => {
            last_component(path).map(<[u8]>::to_vec)
        }
        Location::Pipe => None,
    };
    job.sources.iter().filter_map(name).map(|name| to.join(OsStr::from_bytes(&name))).collect()
}

/// Refuses to copy a file of this host onto itself, or a directory into itself, since it would be read while
/// it grows. If the job lists names, only these are read of the directory.
pub(super) fn check_destination(
    job: &CopyJob,
    spread: &SpreadOptions,
    confines: Option<&Confines>,
) -> Result<(), Error> {
    let Location::Local(to) = &job.destination else { return Ok(()) };
    let spread_paths =
        |path: &Path, directories: &[Vec<u8>]| match in_each(directories, path.as_os_str().as_bytes()) {
            None => vec![path.to_path_buf()],
            Some(paths) => paths.into_iter().map(|path| OsString::from_vec(path).into()).collect(),
        };
    let is_read = |inner: &Path| match &job.names {
        None => true,
        Some(names) => names.iter().any(|name| inner.starts_with(without_dots(name))),
    };
    let targets: Vec<PathBuf> = match super::is_null(to) {
        true => Vec::new(),
        false => spread_paths(to, &spread.target).iter().filter_map(|to| resolved(confines, to)).collect(),
    };
    for source in &job.sources {
        let Location::Local(source) = source else { continue };
        for from in spread_paths(source, &spread.source) {
            let is_directory = confines::is_directory(confines, &from) == Some(true);
            let Some(from) = resolved(confines, &from) else { continue };
            if !is_directory {
                check_not_same_file(source, &from, to, &targets)?;
                continue;
            }
            if targets.iter().any(|to| below(&from, to).is_some_and(|inner| is_read(&inner))) {
                let (from, to) = (source.display(), to.display());
                return Err(Error::new(
                    Code::IntoItself,
                    format!("cannot copy a directory into itself: {to} is in {from}"),
                ));
            }
        }
    }
    Ok(())
}

/// The rest of `path` below the directory `outer`, also if a bind mount leads there; `None` if it is not in it.
pub(super) fn below(outer: &Path, path: &Path) -> Option<PathBuf> {
    if let Ok(rest) = path.strip_prefix(outer) {
        return Some(rest.to_path_buf());
    }
    let id = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let outer = id(outer)?;
    let above = path.ancestors().find(|above| id(above) == Some(outer))?;
    path.strip_prefix(above).ok().map(Path::to_path_buf)
}

/// Refuses to copy a file onto itself. `source` leads to `from`. `to` leads to `targets`, each of them a file
/// or the directory that the file would go into.
fn check_not_same_file(source: &Path, from: &Path, to: &Path, targets: &[PathBuf]) -> Result<(), Error> {
    // The file goes under its own name, even if it is a link to another.
    let name = last_component(source.as_os_str().as_bytes()).map(OsStr::from_bytes);
    for target in targets {
        let (shown, place) = match (target.is_dir(), name) {
            (true, Some(name)) => (to.join(name), target.join(name)),
            _ => (to.to_path_buf(), target.clone()),
        };
        if is_same_file(from, &place) {
            let what = format!("{} and {} are the same file", source.display(), shown.display());
            return Err(Error::new(Code::SameFile, what));
        }
    }
    Ok(())
}

/// Whether two paths lead to the same file, through symbolic or hard links.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let meta = |path: &Path| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let both = meta(one).zip(meta(other));
    both.is_some_and(|(one, other)| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// The path of a listed name, or of a path below a root, without dots and slashes that mean nothing.
pub(crate) fn without_dots(name: &[u8]) -> PathBuf {
    let parts = Path::new(OsStr::from_bytes(name)).components();
    parts.filter(|part| matches!(part, Component::Normal(_))).collect()
}
