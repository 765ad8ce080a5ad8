//! Explains the limits that the report of a transfer names by `limit_id`.

/// A limit of transfers, explained.
pub struct Limit {
    /// The ID under which it is explained.
    pub id: &'static str,
    /// What limits the transfer.
    pub title: &'static str,
    /// What that means, and how to see it.
    pub meaning: &'static str,
    /// What to do, the first first.
    pub remedies: &'static [&'static str],
    /// The checks that look for causes.
    pub checks: &'static [&'static str],
}

/// Every limit.
pub const LIMITS: &[Limit] = &[
    Limit {
        id: "slow-network",
        title: "The network takes no more",
        meaning: "Both ends wait for the path: its bottleneck is full, it loses packets, or somebody holds UDP to a rate. If the report \
                  says that UDP is policed, a device on the way drops what is beyond that rate.",
        remedies: &[
            "compare with what the path should carry: farhaul bench link --rate RATE HOST",
            "look at both ends: farhaul doctor here and there",
            "if UDP is policed, the transfer uses TCP as well, by itself; ask the network's people for the rule",
            "if other transfers share the path, --policy fair shares with them; several paths: --path",
        ],
        checks: &[
            "link",
            "udp-errors",
            "udp-buffer",
            "socket-buffers",
            "nic-drops",
            "rings",
            "pause-frames",
            "mtu-probing",
        ],
    },
    Limit {
        id: "rate-limit",
        title: "The rate that was set",
        meaning: "Neither host nor path: --rate, the policy, a cap of the node, or max-rate of the key at the daemon.",
        remedies: &[
            "farhaul cp --help: --rate, --policy",
            "at a node: farhaul cap list; in the daemon's list of keys: max-rate=",
        ],
        checks: &[],
    },
    Limit {
        id: "slow-sender-disk",
        title: "The sender reads its source slowly",
        meaning: "The sender waits for content, and reading it is the busiest part of getting it: the disk, the array, the file \
                  system's server, or the program that feeds a pipe.",
        remedies: &[
            "measure the disk by itself: farhaul bench disk FILE",
            "many small files are slow to open: compare with one large file",
            "data on several disks without a RAID are read from all at a time: --spread",
        ],
        checks: &[
            "io-scheduler",
            "read-ahead",
            "raid",
            "network-file-system",
            "nvme-heat",
            "disk-node",
            "direct-io",
        ],
    },
    Limit {
        id: "slow-sender-scan",
        title: "The sender lists directories slowly",
        meaning: "There are many entries for each byte, or the file system answers each question slowly, as network file systems do.",
        remedies: &["exclude what is not needed: --exclude", "run it on the host that has the disks"],
        checks: &["network-file-system", "mount-options"],
    },
    Limit {
        id: "slow-sender-digest",
        title: "The sender's cores compute digests slowly",
        meaning: "The digest needs more of the cores than they have left.",
        remedies: &[
            "farhaul bench cpu shows what one core does",
            "give it more cores; --verify transit leaves digests out, and with them what they find",
        ],
        checks: &["governor", "steal", "cgroup-limits", "idle-states"],
    },
    Limit {
        id: "slow-sender-program",
        title: "The program that fills the blocks is slow",
        meaning: "A stream's sender waits for the program that gives it blocks.",
        remedies: &["measure the program by itself", "let it fill several blocks at a time"],
        checks: &["governor", "cgroup-limits"],
    },
    Limit {
        id: "slow-sender-core",
        title: "The sender's core is full with packets",
        meaning: "A flow is one thread, and that thread works all the time: sealing, or system calls.",
        remedies: &[
            "more flows: --flows 4",
            "larger packets: an MTU of 9000 if the whole path has it",
            "farhaul bench cpu: if sealing is slow, another cipher (--cipher)",
        ],
        checks: &[
            "udp-segmentation",
            "crypto",
            "governor",
            "offloads",
            "mtu",
            "iommu",
            "nic-node",
            "kernel-version",
        ],
    },
    Limit {
        id: "slow-sender-overflow",
        title: "The sender writes blocks to its overflow file",
        meaning: "More blocks wait for acknowledgement than memory has room for, so that they go to a file and back.",
        remedies: &[
            "more memory: --memory 2G",
            "look why so much is unacknowledged: round trip x rate, or loss",
        ],
        checks: &["cgroup-limits", "swap"],
    },
    Limit {
        id: "slow-receiver-disk",
        title: "The receiver writes slowly",
        meaning: "The sender waits for room at the receiver, and writing is the busiest part there: the disk, the array, the file \
                  system's server, or the reader of a pipe.",
        remedies: &[
            "measure the disk by itself, at the receiver: farhaul bench disk --write DIR",
            "farhaul doctor at the receiver shows schedulers, arrays and mounts",
            "write to another disk; on Lustre give the directory more stripes before",
        ],
        checks: &[
            "raid",
            "stripe-cache",
            "io-scheduler",
            "free-space",
            "mount-options",
            "network-file-system",
            "trim",
            "nvme-heat",
            "dirty-limits",
            "direct-io",
        ],
    },
    Limit {
        id: "slow-receiver-digest",
        title: "The receiver's cores compute digests slowly",
        meaning: "The digest of what arrives needs more of the cores than they have left.",
        remedies: &["farhaul bench cpu at the receiver", "give it more cores"],
        checks: &["governor", "steal", "cgroup-limits"],
    },
    Limit {
        id: "slow-receiver-finish",
        title: "The receiver finishes files slowly",
        meaning: "Each file gets its times, modes and name; with many small files, or --durable=file, the file system takes long for that.",
        remedies: &[
            "--durable syncs once at the end, --durable=file for each file",
            "local file systems finish files faster than network ones",
        ],
        checks: &["mount-options", "network-file-system", "free-space"],
    },
    Limit {
        id: "slow-receiver-program",
        title: "The program that uses the blocks is slow",
        meaning: "A stream's receiver has no room, as the program that takes its blocks is slow.",
        remedies: &["measure the program by itself", "let it return blocks before it works on them"],
        checks: &["governor", "cgroup-limits"],
    },
    Limit {
        id: "slow-receiver-core",
        title: "The receiver's core is full with packets",
        meaning: "A flow is one thread, and the receiver's works all the time: system calls, or opening packets.",
        remedies: &[
            "more flows: --flows 4",
            "spread UDP over the card's queues, and the queues over cores",
            "larger packets: an MTU of 9000 if the whole path has it",
        ],
        checks: &[
            "udp-hash",
            "irq-spread",
            "channels",
            "offloads",
            "crypto",
            "governor",
            "mtu",
            "iommu",
            "nic-node",
        ],
    },
];

/// Returns the explanation with this ID, or of a limit as events name it (`sender read`).
pub fn find(id: &str) -> Option<&'static Limit> {
    let id = farhaul_words::limit_id(id).unwrap_or(id);
    LIMITS.iter().find(|limit| limit.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_that_a_report_can_name_is_explained() {
        let explained: Vec<&str> = LIMITS.iter().map(|limit| limit.id).collect();
        assert_eq!(farhaul_words::limit_ids().collect::<Vec<_>>(), explained);
    }

    #[test]
    fn each_check_that_a_limit_names_exists() {
        for limit in LIMITS {
            assert!(!limit.remedies.is_empty(), "{}", limit.id);
            for id in limit.checks {
                assert!(crate::check::find(id).is_some(), "{} names {id}", limit.id);
            }
            assert!(crate::check::find(limit.id).is_none(), "{} is a check, too", limit.id);
        }
    }
}
