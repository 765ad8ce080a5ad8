//! Finds file systems on which a database is not safe: those that several hosts can use at a time.

use std::os::fd::OwnedFd;

use rustix::fs::fstat;

/// File systems that several hosts can use at a time, by their number in `statfs` (from linux/magic.h and the
/// file systems' own sources).
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

/// The number of every file system in user space. The type of the mount says which one it is.
const FUSE: u32 = 0x6573_5546;

/// Network file systems in user space, by the part of the mount's type after `fuse.`.
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

/// Types of mounts whose file systems have no number of their own, or share one.
const NETWORK_KINDS: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "wekafs", "pvfs2", "beegfs"];

/// The name of a file system on which SQLite's locks and shared memory are not reliable; `None` for a file
/// system of this host.
pub(super) fn judge_file_system(magic: u32, kind: &str) -> Option<String> {
    if let Some((_, name)) = NETWORK.iter().find(|(number, _)| *number == magic) {
        return Some((*name).to_string());
    }
    let in_user_space = kind.strip_prefix("fuse.").filter(|_| magic == FUSE);
    let is_elsewhere =
        in_user_space.is_some_and(|name| NETWORK_FUSE.contains(&name)) || NETWORK_KINDS.contains(&kind);
    is_elsewhere.then(|| farhaul::sisters::escape(kind.as_bytes()))
}

/// The type of the mount that a directory is on, from /proc.
pub(super) fn kind_of_mount(directory: &OwnedFd) -> Option<String> {
    let device = fstat(directory).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    kind_of_device(&String::from_utf8_lossy(&mounts), &device)
}

/// Reads lines such as `36 35 98:0 / /mnt rw shared:1 - ext4 /dev/sda rw`.
fn kind_of_device(mounts: &str, device: &str) -> Option<String> {
    let mut of_device = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(device));
    let kind = |line: &str| Some(line.split_once(" - ")?.1.split(' ').next()?.to_string());
    of_device.find_map(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
