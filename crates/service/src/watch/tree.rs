//! Looks at files and directories below a folder. It follows no symbolic link, so nothing leads out of the
//! folder.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use farhaul_beneath::{FileSystems, Links};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, statat};
use rustix::io::Errno;

use super::entry::{FileVersion, WatchedName};
use super::names::NameFilter;

/// How deep directories may lie in each other; deeper ones are not looked into.
pub(super) const DEPTH_MAX: usize = 64;

/// File systems on which other hosts can change files without this kernel knowing. The numbers are those of
/// statfs(2).
const SHARED: [u64; 15] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and later
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x7375_7245, // Coda
    0x7461_636f, // OCFS2
    0x0116_1970, // GFS2
    0x2003_0528, // PVFS
];

/// The directories that the owner of a watch may reach; `None` for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderReach(pub Option<Vec<PathBuf>>);

/// The error if a path, or a symbolic link in it, leads out of what the owner may reach.
#[derive(Debug, thiserror::Error)]
#[error("a link leads it out of what the watch's owner may reach")]
struct LeadsOut;

/// True if a path was refused because it leads out of what its owner may reach.
pub(crate) fn leads_out(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<LeadsOut>())
}

impl FolderReach {
    /// Opens a directory. It is resolved below the directory that the owner may reach, so that nothing outside is
    /// ever opened, whatever links are in the path and whoever swaps them meanwhile. A link may lead elsewhere
    /// below that directory. The directory of the owner itself has no link in its path, as for jobs.
    pub(crate) fn open(&self, directory: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        let Some(prefixes) = &self.0 else {
            return Ok(openat(CWD, directory, flags | OFlags::CLOEXEC, Mode::empty())?);
        };
        let within = prefixes.iter().find_map(|prefix| Some((prefix, directory.strip_prefix(prefix).ok()?)));
        let (prefix, below) = within.ok_or_else(|| io::Error::new(ErrorKind::PermissionDenied, LeadsOut))?;
        let top = openat(CWD, "/", PLACE | OFlags::CLOEXEC, Mode::empty())?;
        let whole = prefix.strip_prefix("/").unwrap_or(prefix);
        let prefix = resolve(&top, whole, PLACE, Links::Refused)?;
        resolve(&prefix, below, flags, Links::Followed)
    }
}

/// How a directory is opened that others are opened from.
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Opens what a path leads to below a directory, and nothing elsewhere.
fn resolve(root: impl AsFd, path: &Path, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
    match open_path(root, path.as_os_str().as_bytes(), flags, links) {
        Err(Errno::XDEV) => Err(io::Error::new(ErrorKind::PermissionDenied, LeadsOut)),
        Err(Errno::LOOP) if links == Links::Refused => {
            Err(io::Error::new(ErrorKind::PermissionDenied, LeadsOut))
        }
        other => Ok(other?),
    }
}

/// Opens something below the folder.
pub(super) fn open_below(root: impl AsFd, name: &WatchedName, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(open_path(root, name.bytes(), flags | OFlags::NOFOLLOW, Links::Refused)?)
}

fn open_path(root: impl AsFd, path: &[u8], flags: OFlags, links: Links) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    farhaul_beneath::open(root, path, flags, links, FileSystems::Any)
}

/// The status of a regular file; `None` if there is none. An error means that it cannot be found out.
pub(super) fn look(root: impl AsFd, name: &WatchedName) -> io::Result<Option<Stat>> {
    match open_below(root, name, OFlags::PATH) {
        Ok(file) => Ok(Some(fstat(file)?).filter(is_file)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if the error means that the file does not exist, or is something else.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
    error.raw_os_error().is_some_and(|number| gone.contains(&Errno::from_raw_os_error(number)))
}

pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// True if other hosts may change files there, which the kernel does not report.
pub(super) fn is_shared(directory: impl AsFd) -> bool {
    // The kernel's number has 32 bits, whatever the width and sign of the field.
    fstatfs(directory).is_ok_and(|found| SHARED.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

/// Receives what a scan finds.
pub(super) trait TreeVisitor {
    /// False if the scan must end now.
    fn goes_on(&self) -> bool;
    /// A directory is about to be read.
    fn directory(&mut self, name: &WatchedName, directory: &OwnedFd);
    /// A regular file that is to be taken.
    fn file(&mut self, name: &WatchedName, version: FileVersion);
    /// A directory could not be read, or lies too deep.
    fn unread(&mut self, name: &WatchedName, error: io::Error);
}

/// Scans from a directory on. Each directory is reported before it is read, so that a visitor that begins to
/// watch it then misses nothing.
pub(super) fn walk(root: impl AsFd, from: &WatchedName, names: &NameFilter, visitor: &mut impl TreeVisitor) {
    let depth = from.bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count();
    let mut open = vec![(from.clone(), depth)];
    while visitor.goes_on()
        && let Some((name, depth)) = open.pop()
    {
        if depth > DEPTH_MAX {
            visitor.unread(&name, io::Error::other(format!("more than {DEPTH_MAX} directories deep")));
            continue;
        }
        let mut found = Vec::new();
        match read(&root, &name, names, visitor, &mut found) {
            Ok(()) => open.extend(found.into_iter().map(|name| (name, depth + 1))),
            // It has gone since its name was read.
            Err(error) if is_gone(&error) && !name.bytes().is_empty() => {}
            Err(error) => visitor.unread(&name, error),
        }
    }
}

fn read(
    root: impl AsFd,
    name: &WatchedName,
    names: &NameFilter,
    visitor: &mut impl TreeVisitor,
    directories: &mut Vec<WatchedName>,
) -> io::Result<()> {
    let directory = open_below(root, name, OFlags::DIRECTORY | OFlags::RDONLY)?;
    visitor.directory(name, &directory);
    for entry in Dir::read_from(&directory)? {
        if !visitor.goes_on() {
            return Ok(());
        }
        let entry = entry?;
        let last = entry.file_name().to_bytes();
        if last == b"." || last == b".." {
            continue;
        }
        let path = name.child(last);
        let kind = entry.file_type();
        let may_be_file =
            matches!(kind, FileType::RegularFile | FileType::Unknown) && names.takes(path.bytes());
        let may_be_directory =
            matches!(kind, FileType::Directory | FileType::Unknown) && names.enters(path.bytes());
        if kind == FileType::Directory && may_be_directory {
            directories.push(path);
            continue;
        }
        if !may_be_file && !may_be_directory {
            continue;
        }
        match statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_file(&stat) && may_be_file => visitor.file(&path, FileVersion::of(&stat)),
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && may_be_directory => {
                directories.push(path);
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use rustix::fs::{RenameFlags, renameat_with};

    use super::*;

    #[test]
    fn nothing_outside_is_opened_while_a_link_is_swapped_in() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        for name in ["mine/in/deep", "mine/other/deep", "secret/deep"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let real = std::fs::metadata(at("mine/in/deep")).unwrap().ino();
        symlink(at("secret"), at("mine/link")).unwrap();
        symlink("../../secret", at("mine/other/climbing")).unwrap();
        symlink("other", at("mine/near")).unwrap();
        symlink(at("mine"), at("mine_too")).unwrap();
        let reach = FolderReach(Some(vec![at("mine")]));
        for out in
            ["mine/link", "mine/link/deep", "mine/other/climbing/deep", "secret/deep", "mine/../secret"]
        {
            assert!(leads_out(&reach.open(&at(out)).unwrap_err()), "{out}");
        }
        assert!(reach.open(&at("mine/near/deep")).is_ok(), "a link may lead elsewhere below the prefix");
        assert!(!leads_out(&reach.open(&at("mine/missing")).unwrap_err()));
        let by_link = FolderReach(Some(vec![at("mine_too")]));
        assert!(leads_out(&by_link.open(&at("mine_too/in")).unwrap_err()));
        let (is_over, mut seen) = (AtomicBool::new(false), [0, 0]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let exchange = RenameFlags::EXCHANGE;
                    renameat_with(CWD, at("mine/in"), CWD, at("mine/link"), exchange).unwrap();
                }
            });
            for _ in 0..3000 {
                match reach.open(&at("mine/in/deep")) {
                    Ok(opened) => {
                        assert_eq!(fstat(&opened).unwrap().st_ino, real);
                        seen[0] += 1;
                    }
                    Err(error) => {
                        assert!(leads_out(&error), "{error}");
                        seen[1] += 1;
                    }
                }
            }
            is_over.store(true, Relaxed);
        });
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}
