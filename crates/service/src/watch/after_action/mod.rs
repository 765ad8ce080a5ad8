//! Acts on a file at its source after the file has arrived.
//!
//! Always true: nothing is done without a [`Confirmation`], which only a receiver's report can give; nothing
//! is done to another version of a file than the one that was taken, nor to a file that a process is seen to
//! write. A file that is to go is first renamed, so that no program can open it by its name any more, then
//! judged (the same file, the same content, no writer), and only then deleted; if it is not that file, it gets
//! its name back. A crash in between leaves a file whose name begins with a dot; calling this again finishes the
//! deletion. Nothing that lies in the folder is opened for writing: what is written is a new file.
//!
//! One case is missed: a process of which we cannot see that it has the file open, and which writes after the
//! last check.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use farhaul::Error;
use farhaul::copy::Report;
use farhaul::errors::Code;
use farhaul::options::Durability;
use farhaul::sisters::escape;
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Stat, fstat, mkdirat, openat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::config::{AfterAction, FolderWatch};
use super::entry::{FileVersion, WatchedName};
use super::tree::{self, FolderReach};
use super::writers;

/// The ending of a marker's name.
pub const MARKER: &str = ".farhaul-done";
/// The most names that are tried if files with the same name were moved to the directory before.
const NAMES_MAX: u32 = 10_000;
/// The most names that are tried for a new file.
const TRIES: u128 = 16;

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
    watch: &FolderWatch,
    confirmed: &Confirmation,
    files: &[(WatchedName, FileVersion)],
) -> Vec<Result<AfterOutcome, Error>> {
    let (folder, after) = (watch.folder.as_path(), &watch.after);
    let root = match watch.reach.open(folder) {
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
    let cannot = |name: &WatchedName, error| {
        let what = format!("cannot {} {} in {}", after.verb(), escape(name.bytes()), folder.display());
        Error::of_host(what, error)
    };
    let mut begun: Vec<Result<BegunAction<'_>, Error>> = Vec::with_capacity(files.len());
    for (name, version) in files {
        if ids.get(name).is_some_and(|id| written.contains(id)) {
            begun.push(Ok(BegunAction::Over(AfterOutcome::Changed)));
            continue;
        }
        begun.push(FilePlace::of(&root, folder, name, *version).and_then(|place| {
            let Some(place) = place else { return Ok(BegunAction::Over(AfterOutcome::Gone)) };
            let begun = match after {
                AfterAction::Keep => Ok(BegunAction::Over(AfterOutcome::Left)),
                AfterAction::Mark => place.mark(confirmed).map(BegunAction::Over),
                AfterAction::Move(to) => place.begin_move(&folder.join(to), &watch.reach),
                AfterAction::Delete => place.begin_deletion(),
            };
            begun.map_err(|error| cannot(name, error))
        }));
    }
    // Whoever has opened a file by its name has done so before it lost that name.
    let renamed = begun.iter().filter_map(|one| match one {
        Ok(BegunAction::Renamed(file)) => Some(file.id),
        Ok(BegunAction::Over(_)) | Err(_) => None,
    });
    let written = writers::open_for_writing(&renamed.collect());
    let end = |((name, _), begun): (&(WatchedName, FileVersion), Result<BegunAction<'_>, Error>)| match begun?
    {
        BegunAction::Over(outcome) => Ok(outcome),
        BegunAction::Renamed(file) => {
            file.finish(written.contains(&file.id)).map_err(|error| cannot(name, error))
        }
    };
    files.iter().zip(begun).map(end).collect()
}

/// An action on a file that was begun.
enum BegunAction<'a> {
    Over(AfterOutcome),
    /// The file has another name now, and is to be judged under that.
    Renamed(RenamedFile<'a>),
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

    /// `Some` says why nothing must be done. Opening the file proves that it is a regular file, and which
    /// one.
    fn differs(&self) -> io::Result<Option<AfterOutcome>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.parent, self.last, flags, Mode::empty()) {
            Ok(file) => {
                let stat = fstat(&file)?;
                let is_it = tree::is_file(&stat) && FileVersion::of(&stat) == self.version;
                Ok((!is_it).then_some(AfterOutcome::Changed))
            }
            Err(Errno::NOENT) => Ok(Some(AfterOutcome::Gone)),
            Err(error) => Err(error.into()),
        }
    }

    /// True if this is the file, which has another name now.
    fn is_renamed(&self, stat: &Stat) -> bool {
        tree::is_file(stat) && FileVersion::of(stat).may_be_renamed(&self.version)
    }

    fn mark(&self, confirmed: &Confirmation) -> io::Result<AfterOutcome> {
        if let Some(acted) = self.differs()? {
            return Ok(acted);
        }
        let marker = [self.last, MARKER.as_bytes()].concat();
        let (mut file, temporary) = self.new_file()?;
        let FileVersion { size, mtime_ns, .. } = self.version;
        let words = serde_json::json!({ "job": confirmed.job, "size": size, "mtime_ns": mtime_ns });
        let put = writeln!(file, "{words}")
            .and_then(|()| Ok(renameat(&self.parent, &temporary, &self.parent, &marker)?));
        if put.is_err() {
            let _ = unlinkat(&self.parent, &temporary, AtFlags::empty());
        }
        put.map(|()| AfterOutcome::Marked)
    }

    /// Makes a file under a name that nothing has: whatever lies there may be a pipe, which waits for a reader,
    /// or a link, which leads to another file.
    fn new_file(&self) -> io::Result<(File, Vec<u8>)> {
        let begin = &self.last[..self.last.len().min(64)];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut last = Errno::EXIST;
        for number in 0..TRIES {
            let end = format!(".{:x}-{:x}.fhtmp", std::process::id(), now.wrapping_add(number));
            let name = [b".", begin, end.as_bytes()].concat();
            match openat(&self.parent, &name, flags, Mode::from_raw_mode(0o644)) {
                Ok(file) => return Ok((file.into(), name)),
                Err(Errno::EXIST) => {}
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
        Err(last.into())
    }

    fn begin_deletion(self) -> io::Result<BegunAction<'a>> {
        let own = format!(".{:016x}.fhdone", self.version.inode).into_bytes();
        // An earlier call was interrupted at this point.
        let is_left = self.stat(&own)?.is_some_and(|stat| self.is_renamed(&stat));
        if !is_left {
            if let Some(acted) = self.differs()? {
                return Ok(BegunAction::Over(acted));
            }
            rename_new(&self.parent, self.last, &self.parent, &own)?;
        }
        RenamedFile::of(self, None, own, RenamedEnd::Delete).map(BegunAction::Renamed)
    }

    fn begin_move(self, target: &Path, reach: &FolderReach) -> io::Result<BegunAction<'a>> {
        if let Some(acted) = self.differs()? {
            return Ok(BegunAction::Over(acted));
        }
        let directory = make_directories(target, self.above, reach)?;
        if fstat(&directory)?.st_dev != fstat(&self.parent)?.st_dev {
            let what = format!("{} is on another file system", target.display());
            return Err(io::Error::new(io::ErrorKind::CrossesDevices, what));
        }
        let name = rename_to_free(&self.parent, self.last, &directory, self.last)?;
        let below = Path::new(OsStr::from_bytes(self.above));
        let path = target.join(below).join(OsStr::from_bytes(&name));
        RenamedFile::of(self, Some(directory), name, RenamedEnd::Keep(path)).map(BegunAction::Renamed)
    }
}

/// A file that has lost its name, so that nobody opens it by that any more.
struct RenamedFile<'a> {
    place: FilePlace<'a>,
    /// The directory that it is in now, if that is another one.
    directory: Option<OwnedFd>,
    name: Vec<u8>,
    id: writers::FileId,
    end: RenamedEnd,
}

/// What becomes of a renamed file that is the right one.
enum RenamedEnd {
    Delete,
    /// It stays under its new name, which is this path.
    Keep(PathBuf),
}

impl<'a> RenamedFile<'a> {
    fn of(
        place: FilePlace<'a>,
        directory: Option<OwnedFd>,
        name: Vec<u8>,
        end: RenamedEnd,
    ) -> io::Result<RenamedFile<'a>> {
        let mut file = RenamedFile { place, directory, name, id: (0, 0), end };
        let stat = statat(file.directory(), &file.name, AtFlags::SYMLINK_NOFOLLOW)?;
        file.id = (stat.st_dev, stat.st_ino);
        Ok(file)
    }

    fn directory(&self) -> &OwnedFd {
        self.directory.as_ref().unwrap_or(&self.place.parent)
    }

    /// Judges the file under its new name, and ends the action; `is_written` says that a process has it open
    /// for writing. If this is not the version that was taken, it gets its name back.
    fn finish(&self, is_written: bool) -> io::Result<AfterOutcome> {
        let stat = statat(self.directory(), &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_written || !self.place.is_renamed(&stat) {
            self.give_back()?;
            return Ok(AfterOutcome::Changed);
        }
        match &self.end {
            RenamedEnd::Keep(path) => Ok(AfterOutcome::Moved(path.clone())),
            RenamedEnd::Delete => match unlinkat(self.directory(), &self.name, AtFlags::empty()) {
                Ok(()) => Ok(AfterOutcome::Deleted),
                Err(error) => {
                    // A file that cannot be deleted should be found under its own name.
                    let _ = self.give_back();
                    Err(error.into())
                }
            },
        }
    }

    /// Gives the file its name back, or a name like that if another file has it meanwhile.
    fn give_back(&self) -> io::Result<()> {
        let name = rename_to_free(self.directory(), &self.name, &self.place.parent, self.place.last)?;
        if name == self.place.last {
            return Ok(());
        }
        let what = format!("it has changed, and another file has its name: it is {} now", escape(&name));
        Err(io::Error::other(what))
    }
}

/// Renames a file to `new`, or to the first name like it that is free. Yields the name that it got.
fn rename_to_free(from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> io::Result<Vec<u8>> {
    for number in 1..=NAMES_MAX {
        let free = numbered(new, number);
        match rename_new(from, name, to, &free) {
            Ok(()) => return Ok(free),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let what = format!("there are already {NAMES_MAX} files with this name");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
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
fn make_directories(target: &Path, below: &[u8], reach: &FolderReach) -> io::Result<OwnedFd> {
    let mut directory = match (reach.open(target), target.parent(), target.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            let parent = reach.open(parent)?;
            match mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            reach.open(target)?
        }
        (opened, _, _) => opened?,
    };
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
