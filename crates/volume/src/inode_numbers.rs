//! Which file systems keep inode numbers: a file has one number as long as it lives, and no other file has it.
//! Programs that provide a file system (FUSE), and some network file systems, make numbers up, and FAT and
//! exFAT give others each time that they are mounted.

use std::os::fd::AsFd;

use rustix::fs;

/// File systems that number their files themselves, or whose protocol does: ext2 to ext4, XFS, btrfs, tmpfs,
/// ramfs, ZFS, F2FS, NFS, overlayfs, bcachefs, JFS, ReiserFS, NILFS, OCFS2, GFS2, UBIFS, HFS+, NTFS (the
/// kernel's), Ceph, Lustre, GPFS, SquashFS, EROFS. From `statfs(2)`, linux/magic.h and their sources.
const KNOWN: [u64; 23] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0x6969,
    0x794c_7630,
    0xca45_1a4e,
    0x3153_464a,
    0x5265_4973,
    0x3434,
    0x7461_636f,
    0x0116_1970,
    0x2405_1905,
    0x482b,
    0x7366_746e,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x4750_4653,
    0x7371_7368,
    0xe0f5_e1e2,
];

/// Whether the file system of a file or directory is known to keep inode numbers. One that cannot be asked is
/// one that nothing is known of.
pub(crate) fn are_kept(there: impl AsFd) -> bool {
    // The field is signed on some architectures, and has 32 bits on others.
    fs::fstatfs(there).is_ok_and(|stat| KNOWN.contains(&(stat.f_type as u64 & 0xffff_ffff)))
}
