//! Makes a mount: as root by the system's calls, for others by `fusermount3`, which may mount for them.

use std::ffi::{CString, OsStr};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use farhaul::errors::Code;
use farhaul::read::{Dial, LastingRemote};
use farhaul::{Error, Handle};
use farhaul_cache::{Cache, Place};
use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::content::Store;
use super::file_system::FileSystem;
use super::server::{Waits, serve};
use super::unmounting::{KIND, UnmountForce, unmount};
use super::workers::Workers;

/// The threads that fetch ahead, of all readers.
const AHEAD_THREADS: usize = 96;
const FUSE_CONF: &str = "/etc/fuse.conf";

/// How a location is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The name of the source in the list of mounts.
    pub source: String,
    /// How long names, attributes and links are taken as they were.
    pub metadata_time: Duration,
    /// How long a read waits for the far host before it fails.
    pub read_wait: Duration,
    /// How long everything else waits for it.
    pub metadata_wait: Duration,
    /// Other users may use the mount, as far as modes allow it.
    pub allow_other: bool,
    /// The directory of the cache and the bytes that it may have; `None` keeps nothing on the disk.
    pub cache: Option<(PathBuf, u64)>,
    /// Bytes of memory for what was fetched.
    pub memory: u64,
    /// Who reads and where, for the cache. The keys of a daemon and its client are taken from the connection.
    pub place: Place,
    /// The directory there.
    pub base: Vec<u8>,
}

/// A mount that is not served yet.
pub struct Mounted {
    device: Arc<OwnedFd>,
    files: Arc<FileSystem>,
    waits: Waits,
    target: PathBuf,
}

/// Connects to a location, which must be a directory, and mounts it on `target`. `caller` cancels the connecting.
pub fn mount(dial: Dial, caller: &Handle, target: &Path, options: &MountOptions) -> Result<Mounted, Error> {
    let target = directory(target)?;
    if options.allow_other {
        may_allow_others()?;
    }
    let cache = options.cache.as_ref().map(|(directory, limit)| Cache::open(directory, *limit));
    let cache = cache.transpose().map_err(|error| {
        Error::new(Code::FilesFailed, error.to_string())
            .with_hint("name another directory for the cache, or give it the size 0 to keep nothing")
    })?;
    let remote = dial(caller)?;
    let root = remote.stat(b"")?;
    if root.kind != farhaul::read::PathKind::Directory {
        return Err(Error::new(Code::NotADirectory, format!("{} is not a directory", options.source)));
    }
    let mut place = options.place.clone();
    if let Some(keys) = remote.keys() {
        (place.identity, place.key) = (keys.own.clone(), keys.far.clone());
    }
    let far = LastingRemote::begun(dial, remote);
    let store = Store {
        far,
        cache,
        place,
        base: options.base.clone(),
        memory: options.memory,
        used: AtomicU64::new(0),
        ahead: Workers::new("mount-ahead", AHEAD_THREADS),
    };
    let files = Arc::new(FileSystem::new(store, root, options.metadata_time));
    let device = match rustix::process::geteuid().is_root() {
        true => by_system(&target, options)?,
        false => by_fusermount(&target, options)?,
    };
    let waits = Waits { read: options.read_wait, metadata: options.metadata_wait };
    Ok(Mounted { device: Arc::new(device), files, waits, target })
}

impl Mounted {
    /// Answers what processes ask, until somebody unmounts.
    pub fn serve(self) -> Result<(), Error> {
        let served = serve(&self.device, &self.files, self.waits);
        served.map_err(|error| Error::of_host("the mount was lost", error.into()))
    }

    /// The directory on which it is mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Ends the mount, whoever uses it. To be called by another thread.
    pub fn ender(&self) -> impl Fn() + Send + 'static {
        let target = self.target.clone();
        move || {
            // The end of the process ends what is left.
            let _ = unmount(&target, UnmountForce::Always);
        }
    }
}

/// The absolute path of the directory that is to be mounted on.
fn directory(target: &Path) -> Result<PathBuf, Error> {
    let cannot = |error: std::io::Error| {
        let code = Code::of_files(&error);
        let text = format!("cannot mount on {}: {}", target.display(), farhaul::sisters::plain(&error));
        let error = Error::new(code, text);
        if code == Code::FilesFailed {
            error.with_hint("if a mount there has lost its process, end it with `farhaul umount`")
        } else {
            error
        }
    };
    let real = target.canonicalize().map_err(cannot)?;
    let meta = std::fs::metadata(&real).map_err(cannot)?;
    if !meta.is_dir() {
        return Err(Error::new(
            Code::NotADirectory,
            format!("cannot mount on {}: it is not a directory", target.display()),
        ));
    }
    Ok(real)
}

/// Only root, or whoever root allows it, shows files to others.
fn may_allow_others() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let conf = std::fs::read_to_string(FUSE_CONF).unwrap_or_default();
    if conf.lines().any(|line| line.trim() == "user_allow_other") {
        return Ok(());
    }
    let what = "to let others in is for root, and for users of a host whose root has put user_allow_other into /etc/fuse.conf";
    Err(Error::new(Code::BadOption, what))
}

fn no_fuse(error: rustix::io::Errno) -> Error {
    let why = farhaul::sisters::plain(&error.into());
    Error::new(Code::FilesFailed, format!("cannot open /dev/fuse: {why}"))
        .with_hint("load the kernel's module fuse; a container needs the device")
}

fn by_system(target: &Path, options: &MountOptions) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(no_fuse)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    if options.allow_other {
        data.push_str(",allow_other,default_permissions");
    }
    let data = CString::new(data).map_err(|_| Error::bug("the options of a mount"))?;
    let source = CString::new(options.source.as_bytes()).unwrap_or_default();
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(&source, target, KIND, flags, data.as_c_str()).map_err(|error| {
        let why = farhaul::sisters::plain(&error.into());
        Error::new(Code::FilesFailed, format!("cannot mount on {}: {why}", target.display()))
    })?;
    Ok(device)
}

/// `fusermount3` mounts, and sends the descriptor of the device over a socket.
fn by_fusermount(target: &Path, options: &MountOptions) -> Result<OwnedFd, Error> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(|error| Error::of_host("cannot make a socket", error.into()))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())
        .map_err(|error| Error::of_host("cannot pass a socket on", error.into()))?;
    let escaped = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = format!("ro,nosuid,nodev,subtype=farhaul,fsname={escaped}");
    if options.allow_other {
        words.push_str(",allow_other,default_permissions");
    }
    let mut said = String::new();
    for program in ["fusermount3", "fusermount"] {
        let ran = Command::new(program)
            .args([
                OsStr::new("-o"),
                OsStr::new(&words),
                OsStr::new("--"),
                OsStr::from_bytes(target.as_os_str().as_bytes()),
            ])
            .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output();
        match ran {
            Ok(done) if done.status.success() => return received(&ours),
            Ok(done) => {
                said = String::from_utf8_lossy(&done.stderr).trim().to_string();
                break;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                said = "there is no fusermount3 here".into();
            }
            Err(error) => return Err(Error::of_host("cannot run fusermount3", error)),
        }
    }
    Err(Error::new(Code::FilesFailed, format!("cannot mount on {}: {said}", target.display()))
        .with_hint("install the package fuse3, or mount as root"))
}

fn received(socket: &OwnedFd) -> Result<OwnedFd, Error> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)
        .map_err(|error| Error::of_host("fusermount3 has sent nothing", error.into()))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(device);
        }
    }
    Err(Error::new(Code::HostFailed, "fusermount3 has sent no device"))
}
