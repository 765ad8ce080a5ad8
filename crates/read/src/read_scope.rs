//! The files that a client can reach, and what its paths lead to.
//!
//! Always true: at a daemon every path is resolved anew each time, below its root, whatever it begins with
//! and whatever links are in it. Nothing is opened for writing.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use farhaul_connect::PathPrefixes;
use farhaul_copy::{ConfinedPath, Confines};
use farhaul_volume::{
    FileKind, GlobAllowance, GlobBase, Metadata, RelPath, Root, Source, SpecialNode, expand, expand_home,
};
use farhaul_words::{Code, Error, Failure};
use rustix::fs::{self, AtFlags, Mode, OFlags};

use super::messages::{FileIdentity, ListEntry, PathKind};

/// The files that can be reached.
#[derive(Clone)]
pub(crate) enum ReadScope {
    /// Everything that the user who runs this can reach; relative paths start at the working directory. With
    /// `expands`, `~` at the front of a path is expanded here, as no shell of that host has seen the path.
    User { expands: bool },
    /// The files below a daemon's root.
    Root(Root),
    /// Only the files below certain directories: of this host, or below a daemon's root.
    Within(Confines),
}

/// Whether a file of size 0 has content all the same, as most files of /proc have. What is read of a file is
/// bounded by its size, so nothing of such a file would be.
fn has_content(file: &File) -> bool {
    let is_read = file.read_at(&mut [0], 0).is_ok_and(|len| len > 0);
    // It may have grown meanwhile.
    is_read && file.metadata().is_ok_and(|meta| meta.len() == 0)
}

impl ReadScope {
    /// The files of a client that comes over SSH, if it is to be kept within these directories.
    pub(crate) fn over_ssh(within: Option<&PathPrefixes>) -> Result<ReadScope, Error> {
        Ok(match within {
            None => ReadScope::User { expands: true },
            Some(within) => ReadScope::Within(Confines::of(within.directories())?),
        })
    }

    /// The files of a daemon's client that may use this root, if it is to be kept within these directories.
    pub(crate) fn below(root: Root, within: Option<PathPrefixes>) -> Result<ReadScope, Error> {
        Ok(match within {
            None => ReadScope::Root(root),
            Some(within) => ReadScope::Within(Confines::below(root, within.directories())?),
        })
    }

    /// The place of a path below the root that it cannot leave; `None` if it may lead anywhere. Unless `follow`, a
    /// link at its end is not looked into.
    fn spot(&self, path: &[u8], follow: bool) -> Result<Option<(Root, RelPath)>, Failure> {
        match self {
            ReadScope::User { .. } => Ok(None),
            ReadScope::Root(root) => Ok(Some((root.clone(), below(path)?))),
            ReadScope::Within(confines) => {
                let path = Path::new(OsStr::from_bytes(path));
                let spot = if follow { confines.spot(path) } else { confines.written(path) };
                let ConfinedPath { root, path, .. } = spot.map_err(|error| failure(&error))?;
                Ok(Some((root, path)))
            }
        }
    }

    /// Opens a plain file; links on the way are followed.
    pub(crate) fn open(&self, path: &[u8]) -> Result<(File, Metadata), Failure> {
        let cannot = |error: io::Error| Failure::cannot("open", &error);
        let file: File = match self.spot(path, true)? {
            // Non-blocking, so that a pipe does not block the thread.
            None => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                fs::openat(fs::CWD, self.own(path), flags, Mode::empty())
                    .map_err(|error| cannot(error.into()))?
                    .into()
            }
            Some((root, path)) => root.open_read_followed(&path).map_err(cannot)?,
        };
        let meta = Metadata::from(&fs::fstat(&file).map_err(|error| cannot(error.into()))?);
        match meta.kind {
            FileKind::File if meta.size == 0 && has_content(&file) => {
                let what = "its file system does not say how large it is; `farhaul cp FILE -` prints it";
                Err(Failure::new(Code::BadPath, what))
            }
            FileKind::File => Ok((file, meta)),
            FileKind::Dir => Err(Failure::new(Code::BadPath, "it is a directory")),
            FileKind::Symlink | FileKind::Special(_) => {
                Err(Failure::new(Code::BadPath, "it is no plain file"))
            }
        }
    }

    /// The attributes of a path, and the target of a symbolic link unless the link is followed.
    pub(crate) fn stat(&self, path: &[u8], follow: bool) -> Result<ListEntry, Failure> {
        let cannot = |error: io::Error| Failure::cannot("look it up", &error);
        let (meta, target) = match self.spot(path, follow)? {
            None => {
                let own = self.own(path);
                let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let meta =
                    Metadata::from(&fs::statat(fs::CWD, &own, flags).map_err(|error| cannot(error.into()))?);
                let target = match meta.kind {
                    FileKind::Symlink => {
                        std::fs::read_link(&own).map_err(cannot)?.into_os_string().into_vec()
                    }
                    _ => Vec::new(),
                };
                (meta, target)
            }
            Some((root, path)) => {
                let found = match follow {
                    true => root.metadata_followed(&path).map(|found| found.map(|meta| (meta, Vec::new()))),
                    false => root.entry_followed(&path),
                };
                found.map_err(cannot)?.ok_or_else(|| cannot(rustix::io::Errno::NOENT.into()))?
            }
        };
        Ok(entry(path.to_vec(), &meta, target))
    }

    /// A directory, as a scan takes it.
    pub(crate) fn directory(&self, path: &[u8]) -> Result<Source, Failure> {
        let entry = self.stat(path, true)?;
        if entry.kind != PathKind::Directory {
            return Err(Failure::new(Code::NotADirectory, "it is no directory"));
        }
        let (path, beneath) = match self.spot(path, true)? {
            None => (self.own(path), Vec::new()),
            Some((root, path)) => {
                let path = if path.is_empty() { &b"."[..] } else { path.as_bytes() };
                (PathBuf::from(OsStr::from_bytes(path)), vec![root])
            }
        };
        Ok(Source { path, also: Vec::new(), dest: RelPath::empty(), beneath, generated: None })
    }

    /// The paths that match a pattern, sorted.
    pub(crate) fn find(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let base = match self {
            ReadScope::User { expands: false } => return Ok(vec![pattern.to_vec()]),
            ReadScope::User { expands: true } => GlobBase::User,
            ReadScope::Root(root) => GlobBase::Root(root.clone()),
            ReadScope::Within(confines) => {
                let found = confines.expand(pattern, &mut GlobAllowance::default());
                return found.map_err(|error| failure(&error));
            }
        };
        let found = expand(&base, pattern, &mut GlobAllowance::default());
        found.map_err(|error| Failure::cannot("look for it", &error))
    }

    /// A path of the user's own.
    fn own(&self, path: &[u8]) -> PathBuf {
        let path = match self {
            ReadScope::User { expands: true } => expand_home(path),
            ReadScope::User { expands: false } | ReadScope::Root(_) | ReadScope::Within(_) => path.to_vec(),
        };
        // An empty path is the home directory, where the far end starts, as with scp.
        let path = if path.is_empty() { b".".to_vec() } else { path };
        PathBuf::from(std::ffi::OsString::from_vec(path))
    }
}

fn failure(error: &Error) -> Failure {
    Failure::new(error.code(), error.to_string())
}

/// A daemon's root is `/` to its clients.
fn below(path: &[u8]) -> Result<RelPath, Failure> {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    RelPath::from_written(&path[start..]).map_err(|error| Failure::new(Code::BadPath, error.why()))
}

/// Returns whether an open file has not changed since it was opened.
pub(crate) fn is_as_it_was(file: &impl std::os::fd::AsFd, was: &Metadata) -> io::Result<bool> {
    let now = Metadata::from(&fs::fstat(file)?);
    Ok((now.size, now.mtime, now.ctime) == (was.size, was.mtime, was.ctime))
}

pub(crate) fn identity(meta: &Metadata) -> FileIdentity {
    let Metadata { size, mtime, ctime, ino, dev, .. } = *meta;
    FileIdentity { size, mtime, ctime, inode: ino, device: dev }
}

pub(crate) fn kind(kind: FileKind) -> PathKind {
    match kind {
        FileKind::File => PathKind::File,
        FileKind::Dir => PathKind::Directory,
        FileKind::Symlink => PathKind::Symlink,
        FileKind::Special(SpecialNode::Fifo) => PathKind::Fifo,
        FileKind::Special(SpecialNode::Socket) => PathKind::Socket,
        FileKind::Special(SpecialNode::CharDevice { .. }) => PathKind::CharDevice,
        FileKind::Special(SpecialNode::BlockDevice { .. }) => PathKind::BlockDevice,
    }
}

fn entry(path: Vec<u8>, meta: &Metadata, target: Vec<u8>) -> ListEntry {
    let identity = identity(meta);
    ListEntry { path, kind: kind(meta.kind), mode: meta.mode, links: meta.nlink, target, identity }
}

/// Tells the kernel that it may read ahead.
pub(crate) fn advise(file: &File, offset: u64, len: u64) {
    // This is only advice, so a failure does not matter.
    let len = std::num::NonZeroU64::new(len);
    let _ = fs::fadvise(file, offset, len, fs::Advice::WillNeed);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The two kinds of scope that stay within `in`: of this host, and below a daemon's root. With each, what its
    /// paths begin with.
    fn scopes(top: &Path) -> [(ReadScope, String); 2] {
        let within = |path: PathBuf| PathPrefixes::new([path]).unwrap();
        let over_ssh = ReadScope::over_ssh(Some(&within(top.join("in")))).unwrap();
        let at_daemon = ReadScope::below(Root::open(top).unwrap(), Some(within("/in".into()))).unwrap();
        [(over_ssh, top.display().to_string()), (at_daemon, String::new())]
    }

    #[test]
    fn a_path_leads_to_what_has_it_now() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let scope = ReadScope::below(Root::open(&top).unwrap(), None).unwrap();
        for number in 1..4 {
            std::fs::create_dir(top.join("sub")).unwrap();
            std::fs::write(top.join("sub/file"), vec![0; number]).unwrap();
            symlink("sub", top.join("link")).unwrap();
            for path in [&b"/sub/file"[..], b"/link/file"] {
                assert_eq!(scope.stat(path, false).unwrap().identity.size, number as u64);
                assert_eq!(scope.stat(path, true).unwrap().identity.size, number as u64);
            }
            assert_eq!(scope.stat(b"/link", false).unwrap().target, b"sub");
            assert_eq!(scope.stat(b"/", false).unwrap().kind, PathKind::Directory);
            std::fs::rename(top.join("sub"), top.join(format!("old{number}"))).unwrap();
            std::fs::remove_file(top.join("link")).unwrap();
            assert!(scope.stat(b"/sub/file", false).is_err_and(|failure| failure.code == Code::NotFound));
        }
    }

    #[test]
    fn who_is_kept_within_a_directory_sees_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("in/sub")).unwrap();
        std::fs::create_dir(top.join("out")).unwrap();
        std::fs::write(top.join("in/sub/file"), "mine").unwrap();
        std::fs::write(top.join("out/secret"), "secret").unwrap();
        symlink("sub", top.join("in/stays")).unwrap();
        symlink("../out", top.join("in/up")).unwrap();
        symlink(top.join("out"), top.join("in/away")).unwrap();
        symlink("/proc/self/root", top.join("in/whole")).unwrap();
        for (scope, begin) in scopes(&top) {
            let at = |path: &str| format!("{begin}{path}").into_bytes();
            assert!(scope.open(&at("/in/stays/file")).is_ok() && scope.directory(&at("/in")).is_ok());
            assert_eq!(
                scope.stat(&at("/in/up"), false).unwrap().target,
                b"../out",
                "a link itself may be seen"
            );
            let found = scope.find(&at("/in/s*/f*")).unwrap();
            assert_eq!(found, [at("/in/stays/file"), at("/in/sub/file")]);
            assert!(found.iter().all(|path| scope.open(path).is_ok()));
            for path in [
                "/in/up/secret",
                "/in/away/secret",
                "/out/secret",
                "/in/../out/secret",
                "/in/whole/etc/passwd",
            ] {
                assert!(scope.open(&at(path)).is_err() && scope.stat(&at(path), true).is_err(), "{path}");
            }
            for path in ["/in/up", "/in/away", "/out", "", "/", "/in/whole", "/in/whole/etc"] {
                assert!(scope.directory(&at(path)).is_err(), "{path}");
            }
            let through = scope.find(&at("/in/up/s*")).unwrap();
            assert_eq!(through, [at("/in/up/s*")], "nothing matches beyond a link that leads out");
            assert_eq!(scope.find(&at("/o*/secret")).unwrap_err().code, Code::Forbidden);
        }
    }
}
