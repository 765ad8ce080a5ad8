//! Which mount, and which device of it, something lies on: where one ends, another begins.
//!
//! The kernel numbers mounts (Linux 5.8), so that a directory bound over another one of the same file system counts. A btrfs
//! subvolume is the same mount with another device. Where the kernel does not tell the mount, the device alone decides.

use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, StatxFlags};

/// What deletion, or a scan, may be told not to go beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// Something is mounted on it, or it is a subvolume.
    MountPoint,
    /// Something is mounted on a directory above it, or that is a subvolume.
    Beyond,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountId {
    device: u64,
    /// None if the kernel does not tell.
    number: Option<u64>,
}

impl MountId {
    /// Where an open file or directory lies.
    pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<MountId> {
        MountId::look(fd, b"", AtFlags::EMPTY_PATH)
    }

    /// Where what is called `name` in a directory lies. Nothing is mounted by asking.
    pub(crate) fn of_name(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<MountId> {
        MountId::look(dir, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn look(dir: impl AsFd, name: &[u8], flags: AtFlags) -> rustix::io::Result<MountId> {
        let dir = dir.as_fd();
        let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID;
        match fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, wanted) {
            Ok(told) => {
                let number = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::MNT_ID);
                Ok(MountId {
                    device: fs::makedev(told.stx_dev_major, told.stx_dev_minor),
                    number: number.then_some(told.stx_mnt_id),
                })
            }
            // Filters of containers refuse calls that they do not know.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                let device = if name.is_empty() { fs::fstat(dir) } else { fs::statat(dir, name, flags) };
                Ok(MountId { device: device?.st_dev, number: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether this is another mount than `above`, which cannot be removed while it is there. A subvolume is none.
    pub(crate) fn is_mounted_on(self, above: MountId) -> bool {
        match (self.number, above.number) {
            (Some(one), Some(other)) => one != other,
            _ => self.device != above.device,
        }
    }
}
