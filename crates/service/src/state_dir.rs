//! The state directory, and the folder and the socket of the API.
//!
//! How to read it: [`StateDir::open`] makes, judges and locks the directory, [`StateDir::room_for_a_job`]
//! looks at what is left on its disk, [`Socket::listen`] does the same for the Unix socket.
//! `judge_file_system` is the list of what is refused.
//!
//! Always true: who has a [`StateDir`] is the only process that has it, and nobody else can look into it or
//! write there.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use farhaul::{Code, Error};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, fstatfs, fstatvfs, open, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use crate::config::lies_in;

/// A new job is refused when the file system has less: its rows, its record and the store's log of what
/// changes fit many times.
const ROOM_MIN_BYTES: u64 = 64 << 20;

/// Files that the store and its copies still can make.
const ROOM_MIN_FILES: u64 = 64;

/// Made, judged and locked.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    directory: OwnedFd,
    /// Holds the lock, which ends with it.
    _lock: File,
}

/// What is left on a file system for this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
    /// Files, where the file system counts them.
    pub files: Option<u64>,
}

impl StateDir {
    /// Opens the directory, which is made if it is not there. `root` is what clients are served.
    pub fn open(path: &Path, root: Option<&Path>) -> Result<StateDir, Error> {
        if let Some(root) = root.filter(|root| lies_in(path, root)) {
            let what = format!(
                "the state directory {} lies in {}, which is served: clients could read or replace it",
                path.display(),
                root.display()
            );
            return Err(Error::new(Code::UnsafeRoot, what).with_hint(ELSEWHERE));
        }
        let directory = open_private(path, "the state directory")?;
        let kind = kind_of_mount(&directory).unwrap_or_default();
        let magic = fstatfs(&directory).map_err(|errno| failed(path, "look at", errno))?.f_type;
        // The kernel's numbers have 32 bits; the type of the field differs by machine.
        if let Some(name) = judge_file_system(magic as u32, &kind) {
            let what = format!(
                "the state directory {} is on a network file system ({name}), where its database could be damaged",
                path.display()
            );
            return Err(Error::new(Code::BadState, what).with_hint(ELSEWHERE));
        }
        let lock = lock(path, &directory)?;
        Ok(StateDir { path: path.to_path_buf(), directory, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is left on its file system.
    pub fn room(&self) -> Result<Room, Error> {
        let left = fstatvfs(&self.directory).map_err(|errno| failed(&self.path, "look at", errno))?;
        Ok(Room {
            bytes: left.f_bavail.saturating_mul(left.f_frsize),
            files: (left.f_files > 0).then_some(left.f_favail),
        })
    }

    /// An error if a new job has no room.
    pub fn room_for_a_job(&self) -> Result<(), Error> {
        self.room()?.judge(&self.path)
    }
}

const ELSEWHERE: &str = "name a directory on a local disk with `state` in [serve]";

impl Room {
    fn judge(self, path: &Path) -> Result<(), Error> {
        let what = match self {
            Room { bytes, .. } if bytes < ROOM_MIN_BYTES => {
                format!("{} MiB are free, {} MiB are needed", bytes >> 20, ROOM_MIN_BYTES >> 20)
            }
            Room { files: Some(files), .. } if files < ROOM_MIN_FILES => {
                format!("{files} inodes are free, {ROOM_MIN_FILES} are needed")
            }
            Room { .. } => return Ok(()),
        };
        let what = format!("no room for a new job in {}: {what}", path.display());
        Err(Error::new(Code::NoSpace, what).with_hint("free space there; jobs that run go on"))
    }
}

fn failed(path: &Path, verb: &str, errno: Errno) -> Error {
    let error = io::Error::from(errno);
    Error::with_source(Code::of_files(&error), format!("cannot {verb} {}", path.display()), error)
}

/// A directory of this user's, which nobody else can look into. `what` is its name in errors.
fn open_private(path: &Path, what: &str) -> Result<OwnedFd, Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let not_made = |error: io::Error| {
        Error::with_source(Code::of_files(&error), format!("cannot make {what} {}", path.display()), error)
    };
    match made {
        Ok(()) => {}
        // A link to a directory, or something that the next call has words for.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(not_made(error)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(|errno| failed(path, "open", errno))?;
    let meta = fstat(&directory).map_err(|errno| failed(path, "look at", errno))?;
    let refused = |reason: String, hint: &str| {
        Error::new(Code::BadState, format!("{what} {} {reason}", path.display())).with_hint(hint)
    };
    let (owner, us) = (meta.st_uid, geteuid().as_raw());
    if owner != us {
        let hint = "run the service as that user, or name another directory";
        return Err(refused(format!("belongs to user {owner}, and this is user {us}"), hint));
    }
    if meta.st_mode & 0o022 != 0 {
        let hint = format!("look at what is in it, then chmod 700 {}", path.display());
        return Err(refused("may be written by others".into(), &hint));
    }
    if meta.st_mode & 0o055 != 0 {
        fchmod(&directory, Mode::from_raw_mode(0o700)).map_err(|errno| failed(path, "chmod", errno))?;
    }
    Ok(directory)
}

/// Taken until the process ends; the file says which process that is.
fn lock(path: &Path, directory: &OwnedFd) -> Result<File, Error> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(directory, "lock", flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| failed(&path.join("lock"), "open", errno))?;
    let taken = flock(&file, FlockOperation::NonBlockingLockExclusive);
    let mut file = File::from(file);
    match taken {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // Who it is helps; that there is one decides.
            let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut pid);
            let pid = pid.trim();
            let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
            let who = if is_number { format!("process {pid}") } else { "another process".into() };
            let what = format!("{who} has the state directory {}", path.display());
            let hint = "one process has it at a time; stop that one, or name another directory with `state`";
            return Err(Error::new(Code::AlreadyRuns, what).with_hint(hint));
        }
        Err(errno) => return Err(failed(&path.join("lock"), "lock", errno)),
    }
    let noted = file.set_len(0).and_then(|()| file.rewind());
    let noted = noted.and_then(|()| writeln!(file, "{}", std::process::id()));
    match noted {
        // On a full disk the lock holds without a number.
        Err(error) if !matches!(Code::of_files(&error), Code::NoSpace) => Err(Error::with_source(
            Code::of_files(&error),
            format!("cannot write {}", path.join("lock").display()),
            error,
        )),
        Ok(()) | Err(_) => Ok(file),
    }
}

/// File systems that several hosts may have at a time, by the number of `statfs` (linux/magic.h and the file
/// systems' own sources).
const NETWORK: [(u32, &str); 18] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x00c3_6400, "CephFS"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
    (0x786f_4256, "vboxsf"),
];

/// `statfs` says no more of a file system in user space; its mount has the name.
const FUSE: u32 = 0x6573_5546;

/// Those of them that are known to be elsewhere, as the mount calls them behind `fuse.`.
const NETWORK_FUSE: [&str; 28] = [
    "sshfs",
    "glusterfs",
    "s3fs",
    "s3ql",
    "gcsfuse",
    "rclone",
    "davfs",
    "davfs2",
    "curlftpfs",
    "ceph-fuse",
    "ceph",
    "mfs",
    "moosefs",
    "lizardfs",
    "saunafs",
    "juicefs",
    "JuiceFS",
    "goofys",
    "smbnetfs",
    "cvmfs2",
    "hdfs",
    "fuse_dfs",
    "seaweedfs",
    "mountpoint-s3",
    "blobfuse",
    "blobfuse2",
    "beegfs",
    "onedata",
];

/// Names of mounts that have no number of their own, or share one.
const NETWORK_KINDS: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "wekafs", "pvfs2", "beegfs"];

/// The name of a file system on which SQLite's locks and shared memory cannot be relied on; none if it is one
/// of this host.
fn judge_file_system(magic: u32, kind: &str) -> Option<String> {
    if let Some((_, name)) = NETWORK.iter().find(|(number, _)| *number == magic) {
        return Some((*name).to_string());
    }
    let in_user_space = kind.strip_prefix("fuse.").filter(|_| magic == FUSE);
    let is_elsewhere =
        in_user_space.is_some_and(|name| NETWORK_FUSE.contains(&name)) || NETWORK_KINDS.contains(&kind);
    is_elsewhere.then(|| farhaul::escape(kind.as_bytes()))
}

/// The type of the mount that a directory is on, as /proc says it.
fn kind_of_mount(directory: &OwnedFd) -> Option<String> {
    let device = fstat(directory).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    kind_of_device(&String::from_utf8_lossy(&mounts), &device)
}

/// Of lines such as `36 35 98:0 / /mnt rw shared:1 - ext4 /dev/sda rw`.
fn kind_of_device(mounts: &str, device: &str) -> Option<String> {
    let mut of_device = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(device));
    let kind = |line: &str| Some(line.split_once(" - ")?.1.split(' ').next()?.to_string());
    of_device.find_map(kind)
}

/// A Unix socket that is listened on; its name goes with it.
#[derive(Debug)]
pub struct Socket {
    /// What clients connect to.
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the name: another one's is left alone.
    identity: (u64, u64),
}

impl Socket {
    /// Listens at `path`, for this user alone: mode 0600 in a directory of 0700, which is made if it is not
    /// there. A name that nobody listens on any more is taken over.
    pub fn listen(path: &Path) -> Result<Socket, Error> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let directory = open_private(folder, "the directory of the socket,")?;
        // Two processes that find the same old name do not take it from each other.
        flock(&directory, FlockOperation::LockExclusive).map_err(|errno| failed(folder, "lock", errno))?;
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let cannot = |error: io::Error| {
            let code = match error.kind() {
                io::ErrorKind::InvalidInput => Code::BadPath,
                _ => Code::CannotListen,
            };
            Error::with_source(code, format!("cannot listen on {}", path.display()), error)
                .with_hint("name another place with `socket` in [api]; a socket's path has at most 107 bytes")
        };
        let listener = listener.map_err(cannot)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(cannot)?;
        let meta = std::fs::symlink_metadata(path).map_err(cannot)?;
        Ok(Socket { listener, path: path.to_path_buf(), identity: (meta.dev(), meta.ino()) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let is_ours =
            std::fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity);
        if is_ours {
            // What stays is taken over by the next one.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), Error> {
    let meta = std::fs::symlink_metadata(path);
    if !meta.is_ok_and(|meta| meta.file_type().is_socket()) {
        let what = format!("cannot listen on {}: something else is there", path.display());
        return Err(
            Error::new(Code::AlreadyExists, what).with_hint("name another place with `socket` in [api]")
        );
    }
    match is_listened_on(path) {
        Ok(false) => {
            std::fs::remove_file(path).map_err(Error::io(format!("cannot remove {}", path.display())))
        }
        Ok(true) => {
            let what = format!("another process listens on {}", path.display());
            Err(Error::new(Code::AlreadyRuns, what)
                .with_hint("stop that one, or name another place with `socket` in [api]"))
        }
        Err(errno) => Err(failed(path, "connect to", errno)),
    }
}

fn is_listened_on(path: &Path) -> Result<bool, Errno> {
    // Without waiting: one whose queue is full would have us wait for good.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(socket.as_fd(), &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        // A socket of another kind has an owner, too.
        Err(Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_is_made_private_and_one_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/state");
        let state = StateDir::open(&path, None).unwrap();
        assert_eq!(
            (mode(&path), mode(&path.join("lock")), mode(&folder.path().join("a"))),
            (0o700, 0o600, 0o700)
        );
        let second = StateDir::open(&path, None).unwrap_err();
        assert_eq!(second.code(), Code::AlreadyRuns);
        assert_eq!(
            second.what(),
            format!("process {} has the state directory {}", std::process::id(), path.display())
        );
        drop(state);
        StateDir::open(&path, None).unwrap();
    }

    #[test]
    fn a_lock_file_with_anything_in_it_is_no_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        drop(StateDir::open(&path, None).unwrap());
        std::fs::write(path.join("lock"), "\u{1b}[31m not a number, and long").unwrap();
        let state = StateDir::open(&path, None).unwrap();
        std::fs::write(path.join("lock"), "\u{1b}").unwrap();
        let error = StateDir::open(&path, None).unwrap_err();
        assert!(error.what().starts_with("another process has"), "{error}");
        drop(state);
        std::fs::remove_file(path.join("lock")).unwrap();
        symlink("/etc/passwd", path.join("lock")).unwrap();
        assert!(StateDir::open(&path, None).is_err());
    }

    #[test]
    fn what_others_can_change_is_refused_and_what_they_can_read_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::create_dir(&path).unwrap();
        for (bits, after) in [(0o755, Some(0o700)), (0o750, Some(0o700)), (0o770, None), (0o702, None)] {
            chmod(&path, bits);
            let opened = StateDir::open(&path, None);
            match after {
                Some(after) => assert!(opened.is_ok() && mode(&path) == after, "{bits:o}"),
                None => {
                    let error = opened.unwrap_err();
                    assert!(
                        error.code() == Code::BadState && error.what().contains("written by others"),
                        "{error}"
                    );
                }
            }
        }
        std::fs::write(folder.path().join("file"), b"").unwrap();
        let error = StateDir::open(&folder.path().join("file"), None).unwrap_err();
        assert_eq!(error.code(), Code::NotADirectory, "{error}");
    }

    #[test]
    fn it_does_not_lie_in_what_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        symlink(&root, folder.path().join("link")).unwrap();
        for path in ["root/state", "root", "link/state"] {
            let path = folder.path().join(path);
            let error = StateDir::open(&path, Some(&root)).unwrap_err();
            assert_eq!(error.code(), Code::UnsafeRoot, "{}", path.display());
        }
        assert!(!root.join("state").exists());
        StateDir::open(&folder.path().join("state"), Some(&root)).unwrap();
    }

    #[test]
    fn network_file_systems_are_refused() {
        for (magic, kind, name) in [
            (0xef53, "ext4", None),
            (0x5846_5342, "xfs", None),
            (0x9123_683e, "btrfs", None),
            (0x0102_1994, "tmpfs", None),
            (0x794c_7630, "overlay", None),
            (0x2fc1_2fc1, "zfs", None),
            (0x6969, "nfs4", Some("NFS")),
            (0xff53_4d42, "cifs", Some("CIFS")),
            (0xfe53_4d42, "smb3", Some("SMB")),
            (0x0bd0_0bd0, "lustre", Some("Lustre")),
            (0x00c3_6400, "ceph", Some("CephFS")),
            (0x0102_1997, "9p", Some("9p")),
            (0x5346_414f, "afs", Some("AFS")),
            (0x4750_4653, "gpfs", Some("GPFS")),
            (FUSE, "fuse.sshfs", Some("fuse.sshfs")),
            (FUSE, "fuse.glusterfs", Some("fuse.glusterfs")),
            (FUSE, "fuseblk", None),
            (FUSE, "fuse.fuse-overlayfs", None),
            (FUSE, "", None),
            (0x1234, "wekafs", Some("wekafs")),
        ] {
            assert_eq!(judge_file_system(magic, kind).as_deref(), name, "{kind}");
        }
        let mounts = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      22 1 0:44 / /home/a\\040b rw - fuse.sshfs host:/ rw\nnonsense\n23 1 0:45 / /x rw -\n";
        assert_eq!(kind_of_device(mounts, "8:1").as_deref(), Some("ext4"));
        assert_eq!(kind_of_device(mounts, "0:44").as_deref(), Some("fuse.sshfs"));
        assert_eq!((kind_of_device(mounts, "0:45"), kind_of_device(mounts, "0:46")), (None, None));
    }

    #[test]
    fn a_new_job_needs_room() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state"), None).unwrap();
        assert!(state.room().unwrap().bytes > 0);
        let fine = Room { bytes: ROOM_MIN_BYTES, files: Some(ROOM_MIN_FILES) };
        let at = Path::new("/state");
        assert!(fine.judge(at).is_ok());
        assert!(Room { files: None, ..fine }.judge(at).is_ok());
        let error = Room { bytes: (3 << 20) + 5, ..fine }.judge(at).unwrap_err();
        assert_eq!(error.code(), Code::NoSpace);
        assert_eq!(error.what(), "no room for a new job in /state: 3 MiB are free, 64 MiB are needed");
        let error = Room { files: Some(3), ..fine }.judge(at).unwrap_err();
        assert_eq!(error.what(), "no room for a new job in /state: 3 inodes are free, 64 are needed");
    }

    #[test]
    fn an_old_socket_is_taken_over_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/api.sock");
        let socket = Socket::listen(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let error = Socket::listen(&path).unwrap_err();
        assert_eq!(error.code(), Code::AlreadyRuns, "{error}");
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        // The name stays when a process is killed.
        drop(socket);
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = Socket::listen(&path).unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/api.sock");
        let socket = Socket::listen(&path).unwrap();
        // Another one's name is not removed with ours.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"x").unwrap();
        drop(socket);
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
        assert_eq!(Socket::listen(&path).unwrap_err().code(), Code::AlreadyExists);
        chmod(path.parent().unwrap(), 0o777);
        assert_eq!(Socket::listen(&path).unwrap_err().code(), Code::BadState);
        let long = folder.path().join("x".repeat(120)).join("api.sock");
        assert_eq!(Socket::listen(&long).unwrap_err().code(), Code::BadPath);
    }
}
