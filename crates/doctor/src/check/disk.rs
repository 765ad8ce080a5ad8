//! Checks of disks, arrays and file systems.

use super::sources::*;
use super::{
    CHANGE_BACK, Certainty, Check, Effect, Finding, NOTHING, PUT_BACK, Weight, is_network_file_system,
};
use crate::case::{Case, Mount, bytes_words};
use crate::target::Target;

const BENCH: &str = "`farhaul bench disk FILE` before and after";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "io-scheduler",
        row: "D1",
        title: "Scheduler of the disk",
        reads: "sys/block/DISK/queue/scheduler, rotational",
        advice: "none for NVMe and SSD, mq-deadline for disks that turn.",
        why: "Sorting requests costs a core and gains nothing where there is no head to move; bfq limits fast disks.",
        sources: &[IOS, ORACLE],
        certainty: Certainty::Disputed,
        set: "echo none > /sys/block/DISK/queue/scheduler",
        undo: PUT_BACK,
        measure: BENCH,
        effect: Effect::NotByRate,
        group: None,
        judge: io_scheduler,
    },
    Check {
        id: "request-size",
        row: "D2",
        title: "Largest request to the disk",
        reads: "sys/block/DISK/queue/max_sectors_kb, max_hw_sectors_kb, rotational",
        advice: "1024 KiB, Farhaul's block, on disks that turn.",
        why: "A block that is cut into many requests moves the head between them.",
        sources: &[K_QUEUE],
        certainty: Certainty::Documented,
        set: "echo 1024 > /sys/block/DISK/queue/max_sectors_kb",
        undo: PUT_BACK,
        measure: BENCH,
        effect: Effect::NotByRate,
        group: None,
        judge: request_size,
    },
    Check {
        id: "read-ahead",
        row: "D3",
        title: "Read-ahead",
        reads: "sys/block/DISK/queue/read_ahead_kb",
        advice: "4096 KiB on disks that turn and arrays of them; without meaning where Farhaul reads past the page cache.",
        why: "Buffered reads wait for the disk each time the read-ahead is used up.",
        sources: &[OSG, K_QUEUE],
        certainty: Certainty::Practice,
        set: "echo 4096 > /sys/block/DISK/queue/read_ahead_kb",
        undo: PUT_BACK,
        measure: BENCH,
        effect: Effect::NotByRate,
        group: None,
        judge: read_ahead,
    },
    Check {
        id: "raid",
        row: "D4",
        title: "RAID arrays",
        reads: "proc/mdstat",
        advice: "No array that lacks a disk or is being rebuilt; chunks that divide 1 MiB.",
        why: "A degraded array computes each read from parity. A block that is no multiple of the stripe is read before it is written.",
        sources: &[ESCP, K_MD],
        certainty: Certainty::Documented,
        set: "mdadm --add /dev/ARRAY /dev/DISK",
        undo: NOTHING,
        measure: BENCH,
        effect: Effect::NotByRate,
        group: None,
        judge: raid,
    },
    Check {
        id: "stripe-cache",
        row: "D16",
        title: "Stripe cache of RAID 5 and 6",
        reads: "sys/block/ARRAY/md/stripe_cache_size",
        advice: "4096 or more on a node.",
        why: "With 256 stripes, writes of several threads do not become whole stripes.",
        sources: &[K_MD],
        certainty: Certainty::Practice,
        set: "echo 4096 > /sys/block/ARRAY/md/stripe_cache_size",
        undo: PUT_BACK,
        measure: "`farhaul bench disk --write DIR` before and after",
        effect: Effect::NotByRate,
        group: None,
        judge: stripe_cache,
    },
    Check {
        id: "direct-io",
        row: "D6",
        title: "Files can be opened past the page cache",
        reads: "asked/directory",
        advice: "Yes; else Farhaul goes through the cache by itself.",
        why: "From some 20 Gbit/s on, the copy through the page cache costs more than the disk.",
        sources: &[ESCP, M_OPEN],
        certainty: Certainty::Documented,
        set: "use XFS or ext4; zfs can from version 2.3 on",
        undo: NOTHING,
        measure: BENCH,
        effect: Effect::NotByRate,
        group: None,
        judge: direct_io,
    },
    Check {
        id: "free-space",
        row: "D7",
        title: "Free space and inodes",
        reads: "asked/space",
        advice: "At least 5 % of the bytes and of the inodes.",
        why: "A full file system ends transfers, and nearly full ones are slow: free blocks lie in many pieces.",
        sources: &[M_OPEN, FASTERDATA],
        certainty: Certainty::Practice,
        set: "remove what is not needed",
        undo: NOTHING,
        measure: "df, df -i",
        effect: Effect::NotByRate,
        group: None,
        judge: free_space,
    },
    Check {
        id: "trim",
        row: "D9",
        title: "TRIM",
        reads: "proc/self/mounts, sys/block/DISK/queue/discard_max_bytes, etc/systemd/system/timers.target.wants",
        advice: "fstrim.timer, or the mount option discard.",
        why: "An SSD that does not know which blocks are free writes more and more slowly.",
        sources: &[DTN_LECTURE, M_FSTRIM],
        certainty: Certainty::Practice,
        set: "systemctl enable --now fstrim.timer",
        undo: "systemctl disable --now fstrim.timer",
        measure: "`farhaul bench disk --write DIR` over weeks",
        effect: Effect::NotByRate,
        group: None,
        judge: trim,
    },
    Check {
        id: "swap",
        row: "D10",
        title: "Swapping",
        reads: "proc/sys/vm/swappiness, proc/swaps",
        advice: "swappiness of 1 to 10 on a node, and no swap on the SSDs of data.",
        why: "The page cache of a transfer pushes out programs, which then wait for the disk that the transfer uses.",
        sources: &[DTN_LECTURE, K_VM],
        certainty: Certainty::Practice,
        set: "sysctl -w vm.swappiness=1",
        undo: PUT_BACK,
        measure: "the columns si and so of `vmstat 1` during a transfer",
        effect: Effect::NotByRate,
        group: None,
        judge: swap,
    },
    Check {
        id: "dirty-limits",
        row: "D11",
        title: "Written data that waits in memory",
        reads: "proc/sys/vm/dirty_background_ratio, proc/meminfo",
        advice: "A small background share (1 %) on hosts with much memory, where files are written through the cache.",
        why: "With 10 % of 512 GiB, writing begins after 51 GiB, and then everything waits for it.",
        sources: &[K_VM],
        certainty: Certainty::Practice,
        set: "sysctl -w vm.dirty_background_ratio=1",
        undo: PUT_BACK,
        measure: "`farhaul bench transfer --write --here DIR HOST`: evenness",
        effect: Effect::NotByRate,
        group: None,
        judge: dirty_limits,
    },
    Check {
        id: "nvme-heat",
        row: "D19",
        title: "Temperature and link of NVMe disks",
        reads: "sys/class/nvme/DISK/hwmon*/temp1_input, temp1_max, device/current_link_speed",
        advice: "Below the warning temperature, and the whole PCIe link.",
        why: "A hot disk slows itself down, to a tenth in the end. Benchmarks that write are never run by the doctor.",
        sources: &[DTN_LECTURE, K_PCI],
        certainty: Certainty::Practice,
        set: "air, heat sinks; another slot",
        undo: NOTHING,
        measure: BENCH,
        effect: Effect::NotByRate,
        group: None,
        judge: nvme_heat,
    },
    Check {
        id: "network-file-system",
        row: "D13",
        title: "Network file systems",
        reads: "proc/self/mounts",
        advice: "nconnect of 4 to 16 for NFS; many stripes for large files on Lustre.",
        why: "One TCP connection, or one storage target, is a fraction of what servers give.",
        sources: &[M_NFS, LUSTRE],
        certainty: Certainty::Documented,
        set: "mount option nconnect=8; lfs setstripe -c -1 DIR before files are written",
        undo: CHANGE_BACK,
        measure: BENCH,
        effect: Effect::NotByRate,
        group: None,
        judge: network_file_system,
    },
    Check {
        id: "mount-options",
        row: "D14",
        title: "Options of mounts",
        reads: "proc/self/mounts",
        advice: "relatime or noatime; no sync.",
        why: "strictatime writes for each read, and sync waits for the disk at each write.",
        sources: &[M_MOUNT],
        certainty: Certainty::Documented,
        set: "mount -o remount,relatime DIR, and /etc/fstab",
        undo: CHANGE_BACK,
        measure: "`farhaul bench disk --write DIR`, and a copy of many small files",
        effect: Effect::NotByRate,
        group: None,
        judge: mount_options,
    },
    Check {
        id: "log-directory",
        row: "D15",
        title: "Directory of logs and state",
        reads: "proc/self/mounts",
        advice: "/var and /var/log on a local disk.",
        why: "A service waits for each line of its log; on a slow remote mount every session waits.",
        sources: &[DTN_LECTURE],
        certainty: Certainty::Practice,
        set: "mount a local disk there",
        undo: CHANGE_BACK,
        measure: "`farhaul serve` answers while the mount is slow",
        effect: Effect::NotByRate,
        group: None,
        judge: log_directory,
    },
];

fn queue(disk: &str, what: &str) -> String {
    format!("sys/block/{disk}/queue/{what}")
}

fn io_scheduler(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for disk in case.disks().iter().filter(|_| target.is_tuned()) {
        let place = queue(&disk.name, "scheduler");
        let Some(text) = case.text(&place) else { continue };
        let Some(now) = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        else {
            continue;
        };
        let wanted = match (disk.is_rotating, now) {
            (true, "mq-deadline" | "deadline" | "bfq") => continue,
            (true, _) => "mq-deadline",
            (false, "none" | "noop") => continue,
            // SATA and SAS disks have one queue, for which mq-deadline is the kernel's own choice.
            (false, "mq-deadline" | "kyber") if !disk.is_nvme => continue,
            (false, _) => "none",
        };
        if !text.split_whitespace().any(|word| word.trim_matches(['[', ']']) == wanted) {
            continue;
        }
        let weight = if disk.is_nvme || disk.is_rotating { Weight::Warn } else { Weight::Note };
        let what = format!("requests are sorted by {now}");
        found.push(
            Finding::new(weight, &disk.name, what, format!("use {wanted}, and measure"))
                .change(place, wanted),
        );
    }
    found
}

fn request_size(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for disk in case.disks().iter().filter(|disk| target.is_tuned() && disk.is_rotating) {
        let place = queue(&disk.name, "max_sectors_kb");
        let (Some(now), Some(most)) =
            (case.number(&place), case.number(&queue(&disk.name, "max_hw_sectors_kb")))
        else {
            continue;
        };
        let wanted = most.min(1024);
        if now < wanted {
            let what = format!("a request to the disk has at most {now} KiB");
            found.push(
                Finding::new(Weight::Note, &disk.name, what, format!("allow {wanted}")).change(place, wanted),
            );
        }
    }
    found
}

fn read_ahead(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for disk in case.disks().iter().filter(|disk| target.is_tuned() && disk.is_rotating) {
        let place = queue(&disk.name, "read_ahead_kb");
        if let Some(kib @ ..1024) = case.number(&place) {
            let what = format!("reads ahead by {kib} KiB");
            found.push(
                Finding::new(
                    Weight::Note,
                    &disk.name,
                    what,
                    "use 4096 where files are read through the cache",
                )
                .change(place, 4096),
            );
        }
    }
    found
}

/// The arrays of mdstat: name, and the lines about it.
fn arrays(case: &Case<'_>) -> Vec<(String, String)> {
    let text = case.whole("proc/mdstat").unwrap_or_default();
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some((name, rest)) = line.split_once(" : ").filter(|(name, _)| name.starts_with("md")) {
            found.push((name.to_owned(), rest.to_owned()));
        } else if line.starts_with(' ')
            && let Some((_, lines)) = found.last_mut()
        {
            lines.push('\n');
            lines.push_str(line);
        }
    }
    found
}

fn raid(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, text) in arrays(case) {
        let lacks = text
            .split_whitespace()
            .any(|word| word.starts_with('[') && word.contains('_') && word.ends_with(']'));
        if lacks {
            found.push(Finding::new(
                Weight::Fail,
                &name,
                "the array lacks a disk",
                "replace it: reads are computed from parity, and the next loss may be data",
            ));
        } else if let Some(work) = ["recovery", "resync", "reshape", "check"]
            .into_iter()
            .find(|work| text.contains(&format!("{work} =")))
        {
            found.push(Finding::new(
                Weight::Warn,
                &name,
                format!("the array is busy: {work}"),
                "measure when it is done",
            ));
        }
        let chunk = text.split_whitespace().find_map(|word| word.strip_suffix('k')?.parse::<u64>().ok());
        if let Some(kib) = chunk.filter(|&kib| kib > 0 && 1024 % kib != 0) {
            let what = format!("chunks of {kib} KiB do not divide Farhaul's blocks of 1 MiB");
            found.push(Finding::new(Weight::Note, &name, what, "for a new array choose 512k or less"));
        }
    }
    found
}

fn stripe_cache(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, text) in arrays(case) {
        let place = format!("sys/block/{name}/md/stripe_cache_size");
        if let (true, Some(stripes @ ..2048)) =
            (text.contains("raid5") || text.contains("raid6"), case.number(&place))
            && target.is_tuned()
        {
            let what = format!("a cache of {stripes} stripes");
            found.push(
                Finding::new(Weight::Note, &name, what, "use 4096, so that writes become whole stripes")
                    .change(place, 4096),
            );
        }
    }
    found
}

fn direct_io(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if case.text("asked/directory#direct").as_deref() != Some("no") || !target.is_tuned() {
        return Vec::new();
    }
    vec![Finding::new(
        Weight::Note,
        "",
        "files in this directory cannot be opened past the page cache",
        "Farhaul goes through the cache; XFS and ext4 can do both",
    )]
}

fn free_space(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for (place, rest) in case.pairs("asked/space") {
        // Images and boot partitions are full by design.
        if ["/boot", "/snap", "/efi", "/run"].iter().any(|start| place.starts_with(start)) {
            continue;
        }
        let words: Vec<&str> = rest.split(' ').collect();
        let number = |name: &str| -> Option<u64> {
            words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)?.parse().ok())
        };
        let is_read_only = case
            .mounts()
            .iter()
            .any(|mount| mount.place == place && (mount.option("ro").is_some() || mount.kind == "squashfs"));
        let (Some(total), Some(free), false) = (number("total"), number("free"), is_read_only) else {
            continue;
        };
        if total > 0 && free < total / 20 {
            let what = format!("{place} has {} of {} free", bytes_words(free), bytes_words(total));
            found.push(Finding::new(Weight::Fail, "", what, "make room before the next transfer"));
        } else if let (Some(all @ 1..), Some(free)) = (number("inodes"), number("inodes_free"))
            && free < all / 20
        {
            let what = format!("{place} has {free} of {all} inodes free");
            found.push(Finding::new(Weight::Fail, "", what, "make room: each file needs one"));
        }
    }
    found
}

/// Whether a mount holds files of users on a disk of this host.
fn is_local(mount: &Mount) -> bool {
    mount.device.starts_with("/dev/")
        && !mount.device.starts_with("/dev/loop")
        && ["ext4", "xfs", "btrfs", "f2fs", "ext3"].contains(&mount.kind.as_str())
}

fn trim(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let can = case.disks().iter().any(|disk| {
        !disk.is_rotating
            && case.number(&queue(&disk.name, "discard_max_bytes")).is_some_and(|bytes| bytes > 0)
    });
    let has_timer = case.link("etc/systemd/system/timers.target.wants/fstrim.timer").is_some();
    let local: Vec<&Mount> = case.mounts().iter().filter(|mount| is_local(mount)).collect();
    let is_covered =
        has_timer || local.iter().all(|mount| mount.option("discard").is_some() || mount.kind == "btrfs");
    if !can || is_covered || local.is_empty() || !target.is_tuned() || case.is_container() {
        return Vec::new();
    }
    vec![
        Finding::new(Weight::Note, "", "SSDs are not told which blocks are free", "turn on fstrim.timer")
            .command("systemctl enable --now fstrim.timer"),
    ]
}

fn swap(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let place = "proc/sys/vm/swappiness";
    let swaps = case
        .whole("proc/swaps")
        .unwrap_or_default()
        .lines()
        .skip(1)
        .filter(|line| !line.contains("zram"))
        .count();
    match case.number(place) {
        Some(value @ 11..) if target.is_tuned() && swaps > 0 => {
            let what = format!("swappiness is {value}, and there is swap on disk");
            vec![
                Finding::new(
                    Weight::Warn,
                    "",
                    what,
                    "use 1: a transfer's cache should not push out programs",
                )
                .change(place, 1),
            ]
        }
        _ => Vec::new(),
    }
}

fn dirty_limits(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let share = case.number("proc/sys/vm/dirty_background_ratio").unwrap_or(0);
    let bytes = case.memory_bytes() / 100 * share;
    // Fewer bytes than a disk writes in some seconds do no harm.
    if bytes < 16 << 30 || !target.is_tuned() {
        return Vec::new();
    }
    let what =
        format!("writing begins after {} in memory (dirty_background_ratio {share})", bytes_words(bytes));
    vec![
        Finding::new(Weight::Note, "", what, "where files are written through the cache, begin at 1 %")
            .change("proc/sys/vm/dirty_background_ratio", 1),
    ]
}

fn nvme_heat(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for disk in case.list("sys/class/nvme") {
        let directory = format!("sys/class/nvme/{disk}");
        for sensor in case.list(&directory).into_iter().filter(|name| name.starts_with("hwmon")) {
            let number = |what: &str| case.number(&format!("{directory}/{sensor}/{what}"));
            if let (Some(now), Some(most)) = (number("temp1_input"), number("temp1_max"))
                && now >= most
            {
                let what = format!("{} degrees, {} is its limit", now / 1000, most / 1000);
                found.push(Finding::new(Weight::Warn, &disk, what, "give it air: it slows itself down"));
            }
        }
        let text = |what: &str| case.text(&format!("{directory}/device/{what}"));
        if let (Some(now), Some(most)) = (text("current_link_width"), text("max_link_width"))
            && now.parse::<u32>().unwrap_or(0) < most.parse::<u32>().unwrap_or(0)
        {
            let what = format!("PCIe x{now} of x{most}");
            found.push(Finding::new(Weight::Warn, &disk, what, "use a slot with all lanes"));
        }
    }
    found
}

fn network_file_system(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for mount in case.mounts().iter().filter(|mount| target.is_tuned() && is_network_file_system(&mount.kind))
    {
        match mount.kind.as_str() {
            "nfs" | "nfs4" if mount.option("nconnect").is_none() => {
                let what = format!("{} is NFS over one connection", mount.place);
                found.push(Finding::new(Weight::Note, "", what, "mount with nconnect=8"));
            }
            "lustre" => {
                let what = format!("{} is Lustre", mount.place);
                let advice = "give directories for large files many stripes before they are written";
                found.push(
                    Finding::new(Weight::Note, "", what, advice)
                        .command(format!("lfs getstripe -d {0}; lfs setstripe -c -1 {0}/DIR", mount.place)),
                );
            }
            _ => {}
        }
    }
    found
}

fn mount_options(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for mount in case.mounts().iter().filter(|mount| is_local(mount)) {
        if mount.option("sync").is_some() {
            let what = format!("{} is mounted with sync: each write waits for the disk", mount.place);
            found.push(Finding::new(
                Weight::Fail,
                "",
                what,
                format!("mount -o remount,async {}", mount.place),
            ));
        } else if mount.option("strictatime").is_some() && target.is_tuned() {
            let what = format!("{} is mounted with strictatime: each read writes", mount.place);
            found.push(Finding::new(
                Weight::Note,
                "",
                what,
                format!("mount -o remount,relatime {}", mount.place),
            ));
        }
    }
    found
}

fn log_directory(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for directory in ["/var/log", "/var/lib/farhaul"] {
        // The mount with the longest name that the directory lies in, and of these the last one, which hides the others.
        let lies_in = |mount: &&Mount| {
            mount.place == "/"
                || directory == mount.place
                || directory.starts_with(&format!("{}/", mount.place))
        };
        let mount = case.mounts().iter().filter(lies_in).max_by_key(|mount| mount.place.len());
        if let Some(mount) = mount.filter(|mount| is_network_file_system(&mount.kind)) {
            let what = format!("{directory} is on {} ({})", mount.place, mount.kind);
            found.push(Finding::new(
                Weight::Warn,
                "",
                what,
                "keep logs and state on a local disk: services wait for them",
            ));
        }
    }
    found
}
