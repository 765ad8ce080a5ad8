//! Mounts that only the lab sees: its own /proc, and a folder in memory for what its hosts need.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
};

use crate::Error;

/// The folder of what a lab keeps in memory: keys, sockets, logs, homes. It vanishes with the lab.
pub const RUN_FOLDER: &str = "/run/farhaul-lab";

/// Makes the lab's view of the file system. Everything except /proc, /run and later mounts stays as it is.
pub(crate) fn prepare() -> Result<(), Error> {
    let failed = |what: &str| Error::io(format!("cannot set up the lab's own view of {what}"));
    let own = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", own).map_err(|error| failed("/")(error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(|error| failed("/proc")(error.into()))?;
    mirror_run().map_err(failed("/run"))?;
    fs::create_dir_all(RUN_FOLDER).map_err(failed(RUN_FOLDER))
}

/// Puts a file system in memory over /run that shows everything that was there. A new folder can then be made
/// in /run without touching the user's disk.
fn mirror_run() -> io::Result<()> {
    let below = open("/run", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let entries: Vec<fs::DirEntry> = fs::read_dir("/run")?.flatten().collect();
    let kinds: Vec<_> = entries.iter().map(|entry| (entry.file_name(), entry.file_type().ok())).collect();
    mount("farhaul-lab", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755")?;
    for (name, kind) in kinds {
        // Named network namespaces are not the lab's, and a mount of one would keep it alive.
        if name == "netns" {
            continue;
        }
        let (from, to) = (format!("/proc/self/fd/{}", below.as_raw_fd()), Path::new("/run").join(&name));
        let from = Path::new(&from).join(&name);
        // Entries that cannot be shown are missing, which matters only to programs that need them.
        let _ = match kind {
            Some(kind) if kind.is_dir() => {
                fs::create_dir(&to).and_then(|()| Ok(mount_bind_recursive(&from, &to)?))
            }
            Some(kind) if kind.is_symlink() => {
                fs::read_link(&from).and_then(|target| std::os::unix::fs::symlink(target, &to))
            }
            Some(_) => File::create(&to).and_then(|_| Ok(mount_bind(&from, &to)?)),
            None => Ok(()),
        };
    }
    Ok(())
}

/// Shows `file` in place of `over`.
pub(crate) fn show(file: &Path, over: &Path) -> io::Result<()> {
    Ok(mount_bind(file, over)?)
}
