//! Acts on a file at its source after the file has arrived.
//!
//! Always true: nothing is done without a [`Confirmation`], which only a receiver's report can give; nothing
//! is done to another version of a file than the one that was taken, nor to a file that a process is seen to
//! write; before a file is deleted it is renamed, checked again under the new name, which nobody else uses,
//! and gets its own name back if it has changed. A crash in between leaves a file whose name begins with a
//! dot; calling this again finishes the deletion.
//!
//! One case is missed: a process of which we cannot see that it has the file open, and which writes after the
//! last check.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use farhaul::{Code, Durability, Error, Report, escape};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fstat, mkdirat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;

use super::config::AfterAction;
use super::entry::{FileVersion, WatchedName};
use super::tree;
use super::writers;

/// The ending of a marker's name.
pub const MARKER: &str = ".farhaul-done";
/// The most names that are tried if files with the same name were moved to the directory before.
const NAMES_MAX: u32 = 10_000;

/// Confirms that all files of a job are on the receiver's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmation {
    job: String,
}

impl Confirmation {
    /// Takes the confirmation from the report of a run that was asked to be durable. The error says what is
    /// missing.
    pub fn of(job: &str, report: &Report, durable: Durability) -> Result<Confirmation, Error> {
        let missing = if !report.has_no_failure() || !report.complete || report.error.is_some() {
            "it did not end well"
        } else if report.not_taken_count > 0 {
            "entries were not taken"
        } else if durable == Durability::No {
            "the receiver has not synced its disk (durable)"
        } else {
            return Ok(Confirmation { job: job.into() });
        };
        Err(Error::new(Code::Misuse, format!("job {job} does not confirm its files: {missing}")))
    }
}

/// The action that was done on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterOutcome {
    /// Nothing, as nothing was asked for.
    Left,
    /// A marker was put beside it.
    Marked,
    /// It was moved to this path.
    Moved(PathBuf),
    /// It was deleted.
    Deleted,
    /// Nothing, as it is another version now, or somebody is writing to it.
    Changed,
    /// Nothing, as it was already gone.
    Gone,
}

/// Acts on the files of a job. Each file has its own result: if a full disk or a missing permission stops the
/// action on one, the others go on.
pub fn act(
    folder: &Path,
    after: &AfterAction,
    confirmed: &Confirmation,
    files: &[(WatchedName, FileVersion)],
) -> Vec<Result<AfterOutcome, Error>> {
    let root = match tree::open_root(folder) {
        Ok(root) => root,
        Err(error) => {
            let error = Error::of_host(format!("cannot open {}", folder.display()), error);
            return files.iter().map(|_| Err(error.clone())).collect();
        }
    };
    let found = |name| tree::look(&root, name).ok().flatten().map(|stat| (stat.st_dev, stat.st_ino));
    let ids: BTreeMap<&WatchedName, writers::FileId> =
        files.iter().filter_map(|(name, _)| found(name).map(|id| (name, id))).collect();
    let written = match after {
        AfterAction::Keep => BTreeSet::new(),
        AfterAction::Mark | AfterAction::Move(_) | AfterAction::Delete => {
            writers::open_for_writing(&ids.values().copied().collect())
        }
    };
    let one = |(name, version): &(WatchedName, FileVersion)| {
        if ids.get(name).is_some_and(|id| written.contains(id)) {
            return Ok(AfterOutcome::Changed);
        }
        let place = FilePlace::of(&root, folder, name, *version)?;
        let Some(place) = place else { return Ok(AfterOutcome::Gone) };
        let (verb, done) = match after {
            AfterAction::Keep => ("keep", Ok(AfterOutcome::Left)),
            AfterAction::Mark => ("mark", place.mark(confirmed)),
            AfterAction::Move(to) => ("move", place.move_to(&folder.join(to))),
            AfterAction::Delete => ("delete", place.delete()),
        };
        done.map_err(|error| {
            Error::of_host(format!("cannot {verb} {} in {}", escape(name.bytes()), folder.display()), error)
        })
    };
    files.iter().map(one).collect()
}

/// A file, and the directory that it is in.
struct FilePlace<'a> {
    parent: OwnedFd,
    /// The path of that directory below the folder.
    above: &'a [u8],
    last: &'a [u8],
    version: FileVersion,
}

impl<'a> FilePlace<'a> {
    /// `None` if the directory is gone.
    fn of(
        root: &OwnedFd,
        folder: &Path,
        name: &'a WatchedName,
        version: FileVersion,
    ) -> Result<Option<FilePlace<'a>>, Error> {
        let bytes = name.bytes();
        let split = bytes.iter().rposition(|byte| *byte == b'/');
        let (above, last) = split.map_or((&b""[..], bytes), |at| (&bytes[..at], &bytes[at + 1..]));
        match tree::open_below(root, &WatchedName::new(above), OFlags::DIRECTORY | OFlags::RDONLY) {
            Ok(parent) => Ok(Some(FilePlace { parent, above, last, version })),
            Err(error) if tree::is_gone(&error) => Ok(None),
            Err(error) => {
                Err(Error::of_host(format!("cannot open {} in {}", escape(above), folder.display()), error))
            }
        }
    }

    /// The status of the file with this name in the directory, if there is one.
    fn stat(&self, name: &[u8]) -> io::Result<Option<Stat>> {
        match statat(&self.parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn is_it(&self, stat: &Stat) -> bool {
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file && FileVersion::of(stat).is_same_content(&self.version)
    }

    /// `Some` says why nothing must be done. Opening the file proves that it is a regular file, and which
    /// one.
    fn differs(&self) -> io::Result<Option<AfterOutcome>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.parent, self.last, flags, Mode::empty()) {
            Ok(file) if self.is_it(&fstat(&file)?) => Ok(None),
            Ok(_) => Ok(Some(AfterOutcome::Changed)),
            Err(Errno::NOENT) => Ok(Some(AfterOutcome::Gone)),
            Err(error) => Err(error.into()),
        }
    }

    fn mark(&self, confirmed: &Confirmation) -> io::Result<AfterOutcome> {
        if let Some(acted) = self.differs()? {
            return Ok(acted);
        }
        let marker = [self.last, MARKER.as_bytes()].concat();
        let temporary = [b".", &self.last[..self.last.len().min(64)], b".fhtmp"].concat();
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file =
            std::fs::File::from(openat(&self.parent, &temporary, flags, Mode::from_raw_mode(0o644))?);
        let FileVersion { size, mtime_ns, .. } = self.version;
        let words = serde_json::json!({ "job": confirmed.job, "size": size, "mtime_ns": mtime_ns });
        writeln!(file, "{words}")?;
        renameat(&self.parent, &temporary, &self.parent, &marker)?;
        Ok(AfterOutcome::Marked)
    }

    fn delete(&self) -> io::Result<AfterOutcome> {
        let own = format!(".{:016x}.fhdone", self.version.inode).into_bytes();
        // An earlier call was interrupted at this point.
        let is_left = self.stat(&own)?.is_some_and(|stat| self.is_it(&stat));
        if !is_left {
            if let Some(acted) = self.differs()? {
                return Ok(acted);
            }
            if !self.rename(self.last, &self.parent, &own)? {
                return Ok(AfterOutcome::Changed);
            }
        }
        match unlinkat(&self.parent, &own, AtFlags::empty()) {
            Ok(()) => Ok(AfterOutcome::Deleted),
            Err(error) => {
                // A file that cannot be deleted should be found under its own name.
                let _ = rename_new(&self.parent, &own, &self.parent, self.last);
                Err(error.into())
            }
        }
    }

    fn move_to(&self, target: &Path) -> io::Result<AfterOutcome> {
        if let Some(acted) = self.differs()? {
            return Ok(acted);
        }
        let directory = make_directories(target, self.above)?;
        if fstat(&directory)?.st_dev != fstat(&self.parent)?.st_dev {
            let what = format!("{} is on another file system", target.display());
            return Err(io::Error::new(io::ErrorKind::CrossesDevices, what));
        }
        for number in 1..=NAMES_MAX {
            let name = numbered(self.last, number);
            match self.rename(self.last, &directory, &name) {
                Ok(true) => {
                    let below = Path::new(std::ffi::OsStr::from_bytes(self.above));
                    return Ok(AfterOutcome::Moved(
                        target.join(below).join(std::ffi::OsStr::from_bytes(&name)),
                    ));
                }
                Ok(false) => return Ok(AfterOutcome::Changed),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("there are already {NAMES_MAX} files with this name"),
        ))
    }

    /// Renames the file, and checks whether it was the right one. If not, it gets its old name back, and the
    /// result is false.
    fn rename(&self, from: &[u8], directory: &OwnedFd, to: &[u8]) -> io::Result<bool> {
        rename_new(&self.parent, from, directory, to)?;
        let stat = statat(directory, to, AtFlags::SYMLINK_NOFOLLOW)?;
        if self.is_it(&stat) {
            return Ok(true);
        }
        rename_new(directory, to, &self.parent, from)?;
        Ok(false)
    }
}

/// Renames a file without replacing another one.
fn rename_new(from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> io::Result<()> {
    match renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Some file systems (NFS) cannot guarantee this. Here a check before the rename is enough, as nobody
        // else uses such names.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(renameat(from, name, to, new)?),
                Ok(_) => Err(Errno::EXIST.into()),
                Err(error) => Err(error.into()),
            }
        }
        other => Ok(other?),
    }
}

/// Makes the directories of the path `below` in `target`, where they are missing. Also makes `target` itself,
/// but nothing above it.
fn make_directories(target: &Path, below: &[u8]) -> io::Result<OwnedFd> {
    match std::fs::create_dir(target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut directory = tree::open_root(target)?;
    for part in below.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        match mkdirat(directory.as_fd(), part, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        directory = openat(directory.as_fd(), part, flags, Mode::empty())?;
    }
    Ok(directory)
}

/// The first file keeps its name, the second one gets `.2` at the end, and so on.
fn numbered(name: &[u8], number: u32) -> Vec<u8> {
    match number {
        1 => name.to_vec(),
        _ => [name, format!(".{number}").as_bytes()].concat(),
    }
}

#[cfg(test)]
mod tests;
