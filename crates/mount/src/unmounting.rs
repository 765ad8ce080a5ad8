//! Ends a mount, also one whose process is gone or whose far host is away.
//!
//! Always true: nothing here asks the mount itself, which might never answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farhaul::Error;
use farhaul::errors::Code;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// The kind of these mounts in the list of mounts.
pub(crate) const KIND: &str = "fuse.farhaul";

/// Whether a mount ends that processes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountForce {
    /// It stays, and that is an error; a mount without a process ends in any case.
    IfUnused,
    /// It ends. What processes wait for fails, and what they have open does.
    Always,
}

/// A line of the list of mounts.
struct Listed {
    minor: u64,
    target: PathBuf,
    kind: String,
}

/// Ends the mount on `target`.
pub fn unmount(target: &Path, force: UnmountForce) -> Result<(), Error> {
    let target = place(target)?;
    let cannot = |error: std::io::Error| Error::of_host("cannot read the list of mounts", error);
    let list = std::fs::read("/proc/self/mountinfo").map_err(cannot)?;
    let found = list.split(|&byte| byte == b'\n').filter_map(read).rfind(|listed| listed.target == target);
    let Some(found) = found.filter(|listed| listed.kind == KIND) else {
        return Err(Error::new(
            Code::NotFound,
            format!("nothing of farhaul is mounted on {}", target.display()),
        ));
    };
    let connection = format!("/sys/fs/fuse/connections/{}", found.minor);
    if force == UnmountForce::Always {
        // What waits for the far host ends at once.
        let _ = std::fs::write(format!("{connection}/abort"), "1");
        if rustix::process::geteuid().is_root() {
            // The same where /sys/fs/fuse is not mounted. It may already end the mount as well.
            let _ = rustix::mount::unmount(&target, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
        }
    }
    let is_lazy = force == UnmountForce::Always || is_dead(&target);
    match rustix::process::geteuid().is_root() {
        true => by_system(&target, is_lazy),
        false => by_fusermount(&target, is_lazy),
    }
}

/// Whether no process serves the mount. The kernel says so at once; it does not ask anybody.
fn is_dead(target: &Path) -> bool {
    // A mount that is served may take long to answer this, so it is asked for something that the kernel has at hand.
    let waiting = rustix::fs::open(
        target,
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    matches!(
        waiting.and_then(|there| rustix::fs::fstatfs(&there).map(drop)),
        Err(Errno::NOTCONN | Errno::CONNABORTED)
    )
}

fn busy(target: &Path) -> Error {
    Error::new(Code::FilesFailed, format!("{} is in use", target.display()))
        .with_hint("end it by force, and what processes have open there fails")
}

fn by_system(target: &Path, is_lazy: bool) -> Result<(), Error> {
    let flags = if is_lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    rustix::mount::unmount(target, flags | UnmountFlags::NOFOLLOW).or_else(|error| match error {
        // It has ended meanwhile.
        Errno::INVAL => Ok(()),
        Errno::BUSY => Err(busy(target)),
        error => Err(Error::of_host(format!("cannot unmount {}", target.display()), error.into())),
    })
}

fn by_fusermount(target: &Path, is_lazy: bool) -> Result<(), Error> {
    let options = if is_lazy { ["-u", "-z"].as_slice() } else { &["-u"] };
    for program in ["fusermount3", "fusermount"] {
        let ran = Command::new(program)
            .args(options)
            .args([OsStr::new("--"), target.as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output();
        match ran {
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr).trim().to_string();
                if said.contains("busy") {
                    return Err(busy(target));
                }
                return Err(Error::new(
                    Code::HostFailed,
                    format!("cannot unmount {}: {said}", target.display()),
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::of_host("cannot run fusermount3", error)),
        }
    }
    Err(Error::new(Code::HostFailed, "there is no fusermount3 here").with_hint("unmount as root"))
}

/// The path of the mount without links; its last name is not looked at, as a dead mount cannot be.
fn place(target: &Path) -> Result<PathBuf, Error> {
    let cannot = |error: std::io::Error| {
        Error::new(
            Code::of_files(&error),
            format!("cannot find {}: {}", target.display(), farhaul::sisters::plain(&error)),
        )
    };
    let Some(name) = target.file_name() else { return target.canonicalize().map_err(cannot) };
    let above = match target.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    Ok(above.canonicalize().map_err(cannot)?.join(name))
}

/// From: proc(5), `/proc/pid/mountinfo`.
fn read(line: &[u8]) -> Option<Listed> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(words.nth(2)?).ok()?;
    let target = unescaped(words.nth(1)?);
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    Some(Listed {
        minor: device.split_once(':')?.1.parse().ok()?,
        target: PathBuf::from(std::ffi::OsString::from_vec(target)),
        kind: String::from_utf8_lossy(kind).into_owned(),
    })
}

/// Blanks and some other bytes are written as three octal digits behind a backslash.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut at) = (Vec::with_capacity(word.len()), 0);
    while at < word.len() {
        let digits = word
            .get(at + 1..at + 4)
            .filter(|digits| word[at] == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) => {
                let number = digits.iter().fold(0_u32, |number, digit| number * 8 + u32::from(digit - b'0'));
                plain.push(u8::try_from(number).unwrap_or(b'?'));
                at += 4;
            }
            None => {
                plain.push(word[at]);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn the_list_of_mounts_is_read() {
        let line = br"36 35 0:42 / /mnt/my\040files ro,nosuid - fuse.farhaul host:/data ro,user_id=0";
        let listed = read(line).unwrap();
        assert_eq!((listed.minor, listed.kind.as_str()), (42, KIND));
        assert_eq!(listed.target.as_os_str().as_bytes(), b"/mnt/my files");
        let optional =
            read(b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw").unwrap();
        assert_eq!((optional.minor, optional.kind.as_str()), (0, "ext3"));
        for line in
            [&b""[..], b"36 35 0:42 /", b"36 35 042 / /mnt ro - fuse x y", b"36 35 0:42 / /mnt ro fuse x y"]
        {
            assert!(read(line).is_none());
        }
        assert_eq!(unescaped(br"a\\134b\1x\7"), br"a\\b\1x\7");
    }
}
