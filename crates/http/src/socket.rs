//! A Unix socket that only this user can reach.
//!
//! Always true: a socket that somebody listens on, and a file that is not a socket, are left alone.

use std::fs::Permissions;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use farhaul_words::{Code, Error};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::private_directory::{failed, private_directory};

/// A Unix socket that is listened on. Its name is removed when it is dropped.
#[derive(Debug)]
pub struct PrivateSocket {
    /// The listener that clients connect to.
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the name: if somebody has replaced it, the new one is left alone.
    identity: (u64, u64),
}

impl PrivateSocket {
    /// Listens at `path`, for this user alone: the socket has mode 0600 in a directory of mode 0700, which is
    /// made if needed. A socket that nobody listens on any more is replaced.
    pub fn listen(path: &Path) -> Result<PrivateSocket, Error> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let directory = private_directory(folder, "the directory of the socket,")?;
        // Locked, so that two processes that find the same old socket do not both replace it.
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
                .with_hint("name another place; a socket's path has at most 107 bytes")
        };
        let listener = listener.map_err(cannot)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(cannot)?;
        let meta = std::fs::symlink_metadata(path).map_err(cannot)?;
        Ok(PrivateSocket { listener, path: path.to_path_buf(), identity: (meta.dev(), meta.ino()) })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        let is_ours =
            std::fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity);
        if is_ours {
            // If this fails, the next process replaces the socket.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody listens on. An error if somebody does, or if it is something else.
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
    // Does not wait: if the listener's queue is full, connecting could wait forever.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(socket.as_fd(), &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        // A socket of another kind is in use, too.
        Err(Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn an_old_socket_is_taken_over_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/api.sock");
        let socket = PrivateSocket::listen(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let error = PrivateSocket::listen(&path).unwrap_err();
        assert_eq!(error.code(), Code::AlreadyRuns, "{error}");
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        // As after a kill: the name stays.
        drop(socket);
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = PrivateSocket::listen(&path).unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/api.sock");
        let socket = PrivateSocket::listen(&path).unwrap();
        // A file that has replaced the socket is not removed.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"x").unwrap();
        drop(socket);
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
        assert_eq!(PrivateSocket::listen(&path).unwrap_err().code(), Code::AlreadyExists);
        chmod(path.parent().unwrap(), 0o777);
        assert_eq!(PrivateSocket::listen(&path).unwrap_err().code(), Code::BadState);
        let long = folder.path().join("x".repeat(120)).join("api.sock");
        assert_eq!(PrivateSocket::listen(&long).unwrap_err().code(), Code::BadPath);
    }
}
