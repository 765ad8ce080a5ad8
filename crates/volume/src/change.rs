//! Every system call by which this crate changes a file, a directory or a name. A thread that works for a transfer
//! may make them only while the transfer is not paused ([`permit`](farhaul_handover::permit)).
//!
//! Always true: no other module of this crate calls one of these directly; `clippy.toml` sees to that.
#![allow(clippy::disallowed_methods, reason = "these are the only calls")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use farhaul_handover::permit::check;
use rustix::fs;
use rustix::fs::{
    AtFlags, Dev, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

// ---- names -----------------------------------------------------------------------------------------------------------

/// Opens a file that is made by that.
pub(crate) fn create<P: Arg, Fd: AsFd>(dir: Fd, name: P, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    check();
    fs::openat(dir, name, flags, mode)
}

pub(crate) fn unlinkat<P: Arg, Fd: AsFd>(dir: Fd, name: P, flags: AtFlags) -> Result<()> {
    check();
    fs::unlinkat(dir, name, flags)
}

pub(crate) fn renameat<P: Arg, Q: Arg, Fd: AsFd, To: AsFd>(dir: Fd, name: P, to: To, new: Q) -> Result<()> {
    check();
    fs::renameat(dir, name, to, new)
}

/// Gives an entry another name if nothing has that name. A file system that cannot promise that (some of those in user
/// space, and kernels before 3.15) is asked before, and somebody could put an entry there in between.
pub(crate) fn rename_new<P: Arg + Copy, Q: Arg + Copy, Fd: AsFd, To: AsFd>(
    dir: Fd,
    name: P,
    to: To,
    new: Q,
) -> Result<()> {
    check();
    match fs::renameat_with(&dir, name, &to, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => match fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => fs::renameat(dir, name, to, new),
            Err(error) => Err(error),
        },
        renamed => renamed,
    }
}

pub(crate) fn linkat<P: Arg, Q: Arg, Fd: AsFd, To: AsFd>(
    dir: Fd,
    name: P,
    to: To,
    new: Q,
    flags: AtFlags,
) -> Result<()> {
    check();
    fs::linkat(dir, name, to, new, flags)
}

pub(crate) fn symlinkat<P: Arg, Q: Arg, Fd: AsFd>(target: P, dir: Fd, name: Q) -> Result<()> {
    check();
    fs::symlinkat(target, dir, name)
}

pub(crate) fn mkdirat<P: Arg, Fd: AsFd>(dir: Fd, name: P, mode: Mode) -> Result<()> {
    check();
    fs::mkdirat(dir, name, mode)
}

pub(crate) fn mknodat<P: Arg, Fd: AsFd>(
    dir: Fd,
    name: P,
    kind: FileType,
    mode: Mode,
    device: Dev,
) -> Result<()> {
    check();
    fs::mknodat(dir, name, kind, mode, device)
}

// ---- owners, modes, times and attributes -------------------------------------------------------------------------------------

pub(crate) fn fchmod<Fd: AsFd>(file: Fd, mode: Mode) -> Result<()> {
    check();
    fs::fchmod(file, mode)
}

pub(crate) fn chmodat<P: Arg, Fd: AsFd>(dir: Fd, name: P, mode: Mode, flags: AtFlags) -> Result<()> {
    check();
    fs::chmodat(dir, name, mode, flags)
}

pub(crate) fn fchown<Fd: AsFd>(file: Fd, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    check();
    fs::fchown(file, uid, gid)
}

pub(crate) fn chownat<P: Arg, Fd: AsFd>(
    dir: Fd,
    name: P,
    uid: Option<Uid>,
    gid: Option<Gid>,
    flags: AtFlags,
) -> Result<()> {
    check();
    fs::chownat(dir, name, uid, gid, flags)
}

pub(crate) fn futimens<Fd: AsFd>(file: Fd, times: &Timestamps) -> Result<()> {
    check();
    fs::futimens(file, times)
}

pub(crate) fn utimensat<P: Arg, Fd: AsFd>(
    dir: Fd,
    name: P,
    times: &Timestamps,
    flags: AtFlags,
) -> Result<()> {
    check();
    fs::utimensat(dir, name, times, flags)
}

pub(crate) fn setxattr<P: Arg, N: Arg>(path: P, name: N, value: &[u8], flags: XattrFlags) -> Result<()> {
    check();
    fs::setxattr(path, name, value, flags)
}

pub(crate) fn removexattr<P: Arg, N: Arg>(path: P, name: N) -> Result<()> {
    check();
    fs::removexattr(path, name)
}

// ---- content ---------------------------------------------------------------------------------------------------------

pub(crate) fn write_all_at(file: &File, data: &[u8], offset: u64) -> io::Result<()> {
    check();
    file.write_all_at(data, offset)
}

pub(crate) fn write_at(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    check();
    file.write_at(data, offset)
}

pub(crate) fn write_all(mut file: &File, data: &[u8]) -> io::Result<()> {
    check();
    file.write_all(data)
}

pub(crate) fn set_len(file: &File, len: u64) -> io::Result<()> {
    check();
    file.set_len(len)
}

pub(crate) fn fallocate<Fd: AsFd>(file: Fd, flags: FallocateFlags, offset: u64, len: u64) -> Result<()> {
    check();
    fs::fallocate(file, flags, offset, len)
}

pub(crate) fn ioctl_ficlone<Fd: AsFd, From: AsFd>(file: Fd, from: From) -> Result<()> {
    check();
    fs::ioctl_ficlone(file, from)
}

pub(crate) fn copy_file_range<From: AsFd, Fd: AsFd>(
    from: From,
    from_offset: Option<&mut u64>,
    file: Fd,
    offset: Option<&mut u64>,
    len: usize,
) -> Result<usize> {
    check();
    fs::copy_file_range(from, from_offset, file, offset, len)
}
