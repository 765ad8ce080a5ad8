//! Checks of file systems, quotas and the wear of disks.

use super::sources::*;
use super::{CHANGE_BACK, Certainty, Check, Effect, Finding, NOTHING, Weight};
use crate::case::{Case, Mount, bytes_words};
use crate::target::Target;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "file-system",
        row: "D5",
        title: "File systems and the stripes below them",
        reads: "proc/self/mounts, proc/mdstat",
        advice: "XFS or ext4 for data, which know the stripe of the array that they lie on.",
        why: "Writes that are not aligned to stripes of RAID 5 or 6 read before they write. vfat has no files from 4 GiB on.",
        sources: &[M_XFS, K_EXT4, M_VFAT],
        certainty: Certainty::Documented,
        set: "mount -o remount,stripe=BLOCKS for ext4; sunit= and swidth= at the next mount of XFS",
        undo: CHANGE_BACK,
        measure: "`farhaul bench disk --write DIR` before and after",
        effect: Effect::NotByRate,
        group: None,
        judge: file_system,
    },
    Check {
        id: "zfs",
        row: "D17",
        title: "ZFS",
        reads: "proc/self/mounts, sys/module/zfs/version, proc/spl/kstat/zfs/arcstats",
        advice: "Version 2.3 or newer from 10G on, recordsize of 1M for large files, and a cache that leaves memory to programs.",
        why: "Before 2.3 all content is copied through the cache (ARC), which may take most of the memory.",
        sources: &[ZFS_DIRECT, ZFS_RECORD],
        certainty: Certainty::Practice,
        set: "zfs set recordsize=1M DATASET, before files are written; zfs_arc_max in /etc/modprobe.d",
        undo: CHANGE_BACK,
        measure: "`farhaul bench disk FILE` before and after",
        effect: Effect::NotByRate,
        group: None,
        judge: zfs,
    },
    Check {
        id: "gpfs",
        row: "D18",
        title: "GPFS (Storage Scale)",
        reads: "proc/self/mounts, var/mmfs/gen/mmfs.cfg",
        advice: "A pagepool of 4 GiB or more on a node.",
        why: "What does not fit into the pagepool is read and written one request after the other; the default is 1 GiB.",
        sources: &[GPFS_POOL],
        certainty: Certainty::Documented,
        set: "mmchconfig pagepool=8G -i -N NODE",
        undo: "mmchconfig with the earlier value",
        measure: "`farhaul bench disk FILE` before and after",
        effect: Effect::NotByRate,
        group: None,
        judge: gpfs,
    },
    Check {
        id: "quota",
        row: "D8",
        title: "Quotas",
        reads: "asked/quota, proc/self/mounts",
        advice: "At least a tenth of your quota free; know where there are some.",
        why: "A transfer that meets a quota ends with FH-NO-SPACE although df shows room.",
        sources: &[M_QUOTACTL, GLOBUS],
        certainty: Certainty::Documented,
        set: "remove what is not needed, or ask for more",
        undo: NOTHING,
        measure: "`quota -s`",
        effect: Effect::NotByRate,
        group: None,
        judge: quota,
    },
    Check {
        id: "disk-wear",
        row: "D12",
        title: "Wear of NVMe disks",
        reads: "asked/wear/DISK",
        advice: "Below 90 % of the life that its maker gives it, and spare blocks above the maker's limit.",
        why: "A worn disk writes slowly, then only reads, then is gone.",
        sources: &[NVME, DTN_LECTURE],
        certainty: Certainty::Documented,
        set: "replace the disk",
        undo: NOTHING,
        measure: "`nvme smart-log /dev/DISK`",
        effect: Effect::NotByRate,
        group: None,
        judge: disk_wear,
    },
];

/// Whether a mount may hold the data of transfers.
fn is_for_data(mount: &Mount) -> bool {
    mount.device.starts_with("/dev/")
        && !["/boot", "/efi", "/snap", "/run"].iter().any(|start| mount.place.starts_with(start))
}

fn file_system(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    let arrays = case.whole("proc/mdstat").unwrap_or_default();
    let is_striped = |device: &str| {
        let name = device.rsplit('/').next().unwrap_or_default();
        let line = arrays.lines().find(|line| line.split_once(" : ").is_some_and(|(array, _)| array == name));
        line.is_some_and(|line| ["raid5", "raid6", "raid4"].iter().any(|level| line.contains(level)))
    };
    for mount in case.mounts().iter().filter(|mount| is_for_data(mount) && target.is_tuned()) {
        let Mount { device, place, kind, .. } = mount;
        let has_stripe = match kind.as_str() {
            "xfs" => mount.option("sunit").is_some(),
            "ext4" => mount.option("stripe").is_some(),
            "vfat" | "msdos" | "exfat" | "ntfs" | "ntfs3" | "fuseblk" | "ext2" | "ext3" | "hfsplus" => {
                let what = format!("{place} is {kind}, which is not made for large data");
                found.push(Finding::new(Weight::Warn, "", what, "keep data on XFS or ext4"));
                continue;
            }
            _ => continue,
        };
        if !has_stripe && is_striped(device) {
            let what = format!("{place} ({kind}) does not know the stripes of the array below it");
            found.push(Finding::new(
                Weight::Note,
                "",
                what,
                "tell it: sunit and swidth for XFS, stripe for ext4",
            ));
        }
    }
    found
}

/// A version as numbers.
fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn zfs(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let places: Vec<&str> =
        case.mounts().iter().filter(|mount| mount.kind == "zfs").map(|mount| mount.place.as_str()).collect();
    if places.is_empty() || !target.is_tuned() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Some(text) = case.text("sys/module/zfs/version").filter(|text| version(text) < (2, 3)) {
        let what = format!("ZFS {text} copies all content through its cache ({})", places.join(", "));
        found.push(
            Finding::new(
                Weight::Note,
                "",
                what,
                "version 2.3 reads and writes past it; use records of 1 MiB",
            )
            .command("zfs get recordsize,compression,atime"),
        );
    }
    let stats = case.whole("proc/spl/kstat/zfs/arcstats").unwrap_or_default();
    let most = stats.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("c_max")).then(|| words.nth(1)?.parse::<u64>().ok()).flatten()
    });
    let memory = case.memory_bytes();
    if let Some(most) = most.filter(|&most| memory > 0 && most / 4 > memory / 5) {
        let what = format!("the cache of ZFS may take {} of {}", bytes_words(most), bytes_words(memory));
        found.push(Finding::new(
            Weight::Note,
            "",
            what,
            "leave a fifth of the memory to programs (zfs_arc_max)",
        ));
    }
    found
}

fn gpfs(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let is_used = case.mounts().iter().any(|mount| mount.kind == "gpfs");
    let Some(pool) = case
        .whole("var/mmfs/gen/mmfs.cfg")
        .filter(|_| is_used && target.is_tuned())
        .and_then(|text| text.lines().find_map(|line| line.trim().strip_prefix("pagepool ").and_then(sized)))
    else {
        return Vec::new();
    };
    if pool >= 4 << 30 {
        return Vec::new();
    }
    let what = format!("the pagepool of GPFS has {}", bytes_words(pool));
    vec![
        Finding::new(Weight::Warn, "", what, "give it 4 GiB or more on a node")
            .command("mmchconfig pagepool=8G -i -N NODE"),
    ]
}

/// A number of bytes such as `1G`.
fn sized(text: &str) -> Option<u64> {
    let text = text.trim();
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
    number.parse::<u64>().ok()?.checked_shl(shift)
}

fn quota(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for (place, rest) in case.pairs("asked/quota") {
        let words: Vec<&str> = rest.split(' ').collect();
        let number = |name: &str| -> u64 {
            let at = words.iter().position(|word| *word == name);
            at.and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(0)
        };
        let is_near = |used: u64, limit: u64| limit > 0 && used > limit - limit / 10;
        let (used, limit, files, files_limit) =
            (number("used"), number("limit"), number("files"), number("files_limit"));
        if is_near(used, limit) {
            let left = bytes_words(limit.saturating_sub(used));
            let what = format!("your quota on {place} has {left} of {} left", bytes_words(limit));
            found.push(Finding::new(Weight::Fail, "", what, "make room before the next transfer"));
        } else if is_near(files, files_limit) {
            let what = format!(
                "your quota on {place} has {} of {files_limit} files left",
                files_limit.saturating_sub(files)
            );
            found.push(Finding::new(Weight::Fail, "", what, "make room: each file needs one"));
        }
    }
    let names = ["usrquota", "grpquota", "usrjquota", "prjquota", "uquota", "gquota", "pquota", "quota"];
    let has = |mount: &&Mount| names.iter().any(|name| mount.option(name).is_some());
    let places: Vec<&str> = case.mounts().iter().filter(has).map(|mount| mount.place.as_str()).collect();
    if found.is_empty() && !places.is_empty() && target.is_tuned() {
        let what = format!("quotas on {}", places.join(", "));
        found.push(Finding::new(Weight::Note, "", what, "`quota -s` shows how near yours is"));
    }
    found
}

fn disk_wear(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    let is_controller = |name: &String| {
        name.strip_prefix("nvme")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    for disk in case.list("sys/class/nvme").into_iter().filter(is_controller) {
        let number = |what: &str| case.number(&format!("asked/wear/{disk}#{what}"));
        let Some(used) = number("percentage_used") else { continue };
        let is_short = number("spare").zip(number("spare_limit")).is_some_and(|(spare, limit)| spare < limit);
        if is_short {
            found.push(Finding::new(
                Weight::Fail,
                &disk,
                "it has used up its spare blocks",
                "replace it soon",
            ));
        } else if used >= 90 {
            let what = format!("{used} % of its life is used");
            found.push(Finding::new(Weight::Warn, &disk, what, "plan for another one, and write less to it"));
        }
    }
    found
}
