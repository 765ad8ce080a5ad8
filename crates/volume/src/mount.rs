//! Tells which mount and which device an entry lies on, to find where one ends and another begins.
//!
//! The kernel numbers mounts (since Linux 5.8), so a directory that is bound over another of the same file
//! system is noticed, too. A btrfs subvolume is the same mount with another device. If the kernel does not
//! tell the mount, the device alone decides.

use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, StatxFlags};

/// A border that a deletion or a scan may have to stop at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// Something is mounted on the entry, or it is a subvolume.
    MountPoint,
    /// The entry is below a mount point or the top of a subvolume.
    Beyond,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountId {
    device: u64,
    /// `None` if the kernel does not tell it.
    number: Option<u64>,
}

impl MountId {
    /// The mount of an open file or directory.
    pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<MountId> {
        MountId::look(fd, b"", AtFlags::EMPTY_PATH)
    }

    /// The mount of the entry called `name` in a directory. Asking does not mount anything.
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
            // Filters of containers refuse system calls that they do not know.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                let device = if name.is_empty() { fs::fstat(dir) } else { fs::statat(dir, name, flags) };
                Ok(MountId { device: device?.st_dev, number: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether this is another mount than `above`, whose mount point cannot be removed while it is mounted. A
    /// subvolume is not another mount.
    pub(crate) fn is_mounted_on(self, above: MountId) -> bool {
        match (self.number, above.number) {
            (Some(one), Some(other)) => one != other,
            _ => self.device != above.device,
        }
    }
}
