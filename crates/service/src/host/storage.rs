//! Disks and mounted file systems.

use farhaul_api::{DiskView, MountView};
use std::path::Path;

use super::files;

/// The size of a sector in the kernel's counters, whatever the disk's own is.
const SECTOR: u64 = 512;
/// The most mounts that are listed.
const MOUNTS_MAX: usize = 64;

/// The size of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystemSize {
    pub(crate) bytes: u64,
    pub(crate) free_bytes: u64,
}

/// Whole disks that were used at least once. From: the kernel's Documentation/admin-guide/iostats.rst.
pub(super) fn disks(root: &Path) -> Vec<DiskView> {
    let text = files::text(&root.join("proc/diskstats")).unwrap_or_default();
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, name, _, _, sectors_read, _, _, _, sectors_written, _, _, busy_ms, ..] = fields[..] else {
            return None;
        };
        // Partitions have no directory in sys/block. There a slash in a name is a `!`.
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

/// File systems that are on disks of this host, each once. From: proc_pid_mountinfo(5).
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
        // Of two file systems at the same mount point, the later one hides the other.
        all.retain(|(point, ..)| *point != mount.0);
        all.push(mount);
    }
    let sized = all.into_iter().filter_map(|(point, device, file_system)| {
        let FileSystemSize { bytes, free_bytes } = size_of(&point)?;
        (bytes > 0).then_some(MountView { point, device, file_system, bytes, free_bytes })
    });
    sized.collect()
}

/// True if a file system lies on a disk of this host. Only these are asked for their size, as a server of
/// another host may not answer.
fn is_of_interest(file_system: &str) -> bool {
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "vfat", "exfat", "ntfs3"]
        .contains(&file_system)
}

/// Decodes `\040`, which stands for a space, and the like.
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
