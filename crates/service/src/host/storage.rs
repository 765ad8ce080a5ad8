//! Disks, and what is mounted.

use std::path::Path;

use serde::Serialize;
use utoipa::ToSchema;

use super::files;

/// Bytes of a sector in the kernel's counts, whatever the disk has.
const SECTOR: u64 = 512;
/// Mounts that are shown.
const MOUNTS_MAX: usize = 64;

/// One disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct DiskView {
    /// Such as `nvme0n1`.
    pub name: String,
    /// What its maker calls it.
    pub model: Option<String>,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Seconds in which something was asked of it.
    pub busy_s: f64,
    /// It is made of others, whose counts have the same bytes: a RAID, a mapping.
    pub is_made_of_others: bool,
}

/// What is mounted somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct MountView {
    /// Where.
    pub point: String,
    /// From where.
    pub device: String,
    /// Such as `ext4`.
    pub file_system: String,
    /// All that it holds.
    pub bytes: u64,
    /// What this node's user could still write.
    pub free_bytes: u64,
}

/// How much a file system holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystemSize {
    pub(crate) bytes: u64,
    pub(crate) free_bytes: u64,
}

/// Whole disks that were ever used. From: the kernel's Documentation/admin-guide/iostats.rst.
pub(super) fn disks(root: &Path) -> Vec<DiskView> {
    let text = files::text(&root.join("proc/diskstats")).unwrap_or_default();
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, name, _, _, sectors_read, _, _, _, sectors_written, _, _, busy_ms, ..] = fields[..] else {
            return None;
        };
        // Partitions have no directory of their own there; some names have a slash in them.
        let folder = root.join("sys/block").join(name.replace('/', "!"));
        if !folder.exists() {
            return None;
        }
        let bytes = |sectors: &str| sectors.parse::<u64>().ok().map(|sectors| sectors.saturating_mul(SECTOR));
        let (read_bytes, written_bytes) = (bytes(sectors_read)?, bytes(sectors_written)?);
        let model = files::text(&folder.join("device/model")).map(|model| model.trim().to_string());
        (read_bytes + written_bytes > 0).then(|| DiskView {
            name: name.into(),
            model: model.filter(|model| !model.is_empty()),
            read_bytes,
            written_bytes,
            busy_s: busy_ms.parse::<u64>().unwrap_or(0) as f64 / 1e3,
            is_made_of_others: !files::entries(&folder.join("slaves")).is_empty(),
        })
    };
    text.lines().filter_map(read).collect()
}

/// File systems on disks and of other hosts, each once. From: proc_pid_mountinfo(5).
pub(super) fn mounts(root: &Path, size_of: &dyn Fn(&str) -> Option<FileSystemSize>) -> Vec<MountView> {
    let text = files::text(&root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut seen: Vec<String> = Vec::new();
    let read = |line: &str| {
        let (head, tail) = line.split_once(" - ")?;
        let device_number = head.split(' ').nth(2)?.to_string();
        let point = unescaped(head.split(' ').nth(4)?);
        let mut tail = tail.split(' ');
        let (file_system, device) = (tail.next()?, unescaped(tail.next()?));
        if !is_of_interest(file_system) || seen.contains(&device_number) {
            return None;
        }
        seen.push(device_number);
        Some((point, device, file_system.to_string()))
    };
    let mut all: Vec<(String, String, String)> = Vec::new();
    for mount in text.lines().filter_map(read).take(MOUNTS_MAX) {
        // The later one of two at the same place hides the other.
        all.retain(|(point, ..)| *point != mount.0);
        all.push(mount);
    }
    let sized = all.into_iter().filter_map(|(point, device, file_system)| {
        let FileSystemSize { bytes, free_bytes } = size_of(&point)?;
        (bytes > 0).then_some(MountView { point, device, file_system, bytes, free_bytes })
    });
    sized.collect()
}

/// What lies on disks of this host, which answer when they are asked how full they are: a server of other hosts may not.
fn is_of_interest(file_system: &str) -> bool {
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "vfat", "exfat", "ntfs3"]
        .contains(&file_system)
}

/// Spaces and the like are written as `\040`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let octal = (first == b'\\').then(|| behind.get(..3)).flatten();
        let value = octal.and_then(|octal| u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok());
        match value {
            Some(value) => {
                bytes.push(value);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_are_read() {
        for (text, name) in
            [("/a\\040b", "/a b"), ("/a\\", "/a\\"), ("/a\\134", "/a\\"), ("/\\x41", "/\\x41"), ("", "")]
        {
            assert_eq!(unescaped(text), name);
        }
    }
}
