//! Explains the limits that the report of a transfer names by `limit_id`.

use serde::Serialize;

/// A limit of transfers, explained.
pub struct Limit {
    /// The ID under which it is explained.
    pub id: &'static str,
    /// What limits the transfer.
    pub title: &'static str,
    /// What that means, and how to see it.
    pub meaning: &'static str,
    /// What to do, the first first.
    pub remedies: &'static [Remedy],
    /// The checks that look for causes.
    pub checks: &'static [&'static str],
}

/// Something to do about a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What to do.
    pub what: &'static str,
    /// What is expected of it, as long as no other stage becomes the limit.
    pub gain: &'static str,
}

/// Every limit.
pub const LIMITS: &[Limit] = &[
    Limit {
        id: "slow-network",
        title: "The network takes no more",
        meaning: "Both ends wait for the path: its bottleneck is full, it loses packets, or somebody holds UDP to a rate. If the report \
                  says that UDP is policed, a device on the way drops what is beyond that rate.",
        remedies: &[
            Remedy {
                what: "compare with what the path should carry: farhaul bench link --rate RATE HOST",
                gain: "nothing by itself: it shows how far this is from what the path should carry",
            },
            Remedy {
                what: "look at both ends: farhaul doctor here and there",
                gain: "with buffers that are too small, up to the rate of the path; else nothing",
            },
            Remedy {
                what: "if UDP is policed, the transfer uses TCP as well, by itself; ask the network's people for the rule",
                gain: "up to what TCP reaches beside it; with the rule lifted, what the path carries",
            },
            Remedy {
                what: "if other transfers share the path, --policy fair shares with them; several paths: --path",
                gain: "an equal share of the path; with several paths, about their sum",
            },
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
            "several-routes",
        ],
    },
    Limit {
        id: "rate-limit",
        title: "The rate that was set",
        meaning: "Neither host nor path: --rate, the policy, a cap of the node, or max-rate of the key at the daemon.",
        remedies: &[
            Remedy {
                what: "farhaul cp --help: --rate, --policy",
                gain: "up to the rate that is set, while the path carries it",
            },
            Remedy {
                what: "at a node: farhaul cap list; in the daemon's list of keys: max-rate=",
                gain: "up to the cap that is set, while the path carries it",
            },
        ],
        checks: &[],
    },
    Limit {
        id: "slow-sender-disk",
        title: "The sender reads its source slowly",
        meaning: "The sender waits for content, and reading it is the busiest part of getting it: the disk, the array, the file \
                  system's server, or the program that feeds a pipe.",
        remedies: &[
            Remedy {
                what: "measure the disk by itself: farhaul bench disk FILE",
                gain: "nothing by itself: it says what the disk gives at most",
            },
            Remedy {
                what: "many small files are slow to open: compare with one large file",
                gain: "several times as fast, if opening files is what takes the time",
            },
            Remedy {
                what: "data on several disks without a RAID are read from all at a time: --spread",
                gain: "as many times as there are disks, until the network is the limit",
            },
        ],
        checks: &[
            "io-scheduler",
            "read-ahead",
            "raid",
            "network-file-system",
            "nvme-heat",
            "disk-node",
            "direct-io",
            "file-system",
            "zfs",
            "gpfs",
        ],
    },
    Limit {
        id: "slow-sender-scan",
        title: "The sender lists directories slowly",
        meaning: "There are many entries for each byte, or the file system answers each question slowly, as network file systems do.",
        remedies: &[
            Remedy {
                what: "exclude what is not needed: --exclude",
                gain: "as much time as listing the rest takes",
            },
            Remedy {
                what: "run it on the host that has the disks",
                gain: "ten times as many entries a second and more, against a file system in the network",
            },
        ],
        checks: &["network-file-system", "mount-options"],
    },
    Limit {
        id: "slow-sender-digest",
        title: "The sender's cores compute digests slowly",
        meaning: "The digest needs more of the cores than they have left.",
        remedies: &[
            Remedy {
                what: "farhaul bench cpu shows what one core does",
                gain: "nothing by itself: it says what a core gives at most",
            },
            Remedy {
                what: "give it more cores; --verify transit leaves digests out, and with them what they find",
                gain: "as many times as there are more cores; without digests, all of their time",
            },
        ],
        checks: &["governor", "steal", "cgroup-limits", "idle-states", "busy-core"],
    },
    Limit {
        id: "slow-sender-program",
        title: "The program that fills the blocks is slow",
        meaning: "A stream's sender waits for the program that gives it blocks.",
        remedies: &[
            Remedy {
                what: "measure the program by itself",
                gain: "nothing by itself: it says what the program gives at most",
            },
            Remedy {
                what: "let it fill several blocks at a time",
                gain: "up to as many times as blocks are filled at a time",
            },
        ],
        checks: &["governor", "cgroup-limits"],
    },
    Limit {
        id: "slow-sender-core",
        title: "The sender's core is full with packets",
        meaning: "A flow is one thread, and that thread works all the time: sealing, or system calls.",
        remedies: &[
            Remedy { what: "more flows: --flows 4", gain: "up to four times as fast, with four idle cores" },
            Remedy {
                what: "larger packets: an MTU of 9000 if the whole path has it",
                gain: "two to four times as much for each core",
            },
            Remedy {
                what: "farhaul bench cpu: if sealing is slow, another cipher (--cipher)",
                gain: "what the table of farhaul bench cpu shows between the two ciphers",
            },
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
            "busy-core",
        ],
    },
    Limit {
        id: "slow-sender-overflow",
        title: "The sender writes blocks to its overflow file",
        meaning: "More blocks wait for acknowledgement than memory has room for, so that they go to a file and back.",
        remedies: &[
            Remedy {
                what: "more memory: --memory 2G",
                gain: "no more blocks on disk: up to the rate of the path",
            },
            Remedy {
                what: "look why so much is unacknowledged: round trip x rate, or loss",
                gain: "nothing by itself: it tells whether memory or the path is to be mended",
            },
        ],
        checks: &["cgroup-limits", "swap"],
    },
    Limit {
        id: "slow-receiver-disk",
        title: "The receiver writes slowly",
        meaning: "The sender waits for room at the receiver, and writing is the busiest part there: the disk, the array, the file \
                  system's server, or the reader of a pipe.",
        remedies: &[
            Remedy {
                what: "measure the disk by itself, at the receiver: farhaul bench disk --write DIR",
                gain: "nothing by itself: it says what the disk takes at most",
            },
            Remedy {
                what: "farhaul doctor at the receiver shows schedulers, arrays and mounts",
                gain: "from a tenth (scheduler, read-ahead) to several times (a degraded array, sync mounts)",
            },
            Remedy {
                what: "write to another disk; on Lustre give the directory more stripes before",
                gain: "up to what farhaul bench disk --write says of that disk; with more stripes about as many times",
            },
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
            "file-system",
            "zfs",
            "gpfs",
            "quota",
            "disk-wear",
        ],
    },
    Limit {
        id: "slow-receiver-digest",
        title: "The receiver's cores compute digests slowly",
        meaning: "The digest of what arrives needs more of the cores than they have left.",
        remedies: &[
            Remedy {
                what: "farhaul bench cpu at the receiver",
                gain: "nothing by itself: it says what a core gives at most",
            },
            Remedy { what: "give it more cores", gain: "as many times as there are more cores" },
        ],
        checks: &["governor", "steal", "cgroup-limits", "busy-core"],
    },
    Limit {
        id: "slow-receiver-finish",
        title: "The receiver finishes files slowly",
        meaning: "Each file gets its times, modes and name; with many small files, or --durable=file, the file system takes long for that.",
        remedies: &[
            Remedy {
                what: "--durable syncs once at the end, --durable=file for each file",
                gain: "many times as fast with small files: one sync in place of one for each",
            },
            Remedy {
                what: "local file systems finish files faster than network ones",
                gain: "ten times as many files a second and more",
            },
        ],
        checks: &["mount-options", "network-file-system", "free-space"],
    },
    Limit {
        id: "slow-receiver-program",
        title: "The program that uses the blocks is slow",
        meaning: "A stream's receiver has no room, as the program that takes its blocks is slow.",
        remedies: &[
            Remedy {
                what: "measure the program by itself",
                gain: "nothing by itself: it says what the program gives at most",
            },
            Remedy {
                what: "let it return blocks before it works on them",
                gain: "up to as many times as blocks are worked on at a time",
            },
        ],
        checks: &["governor", "cgroup-limits"],
    },
    Limit {
        id: "slow-receiver-core",
        title: "The receiver's core is full with packets",
        meaning: "A flow is one thread, and the receiver's works all the time: system calls, or opening packets.",
        remedies: &[
            Remedy { what: "more flows: --flows 4", gain: "up to four times as fast, with four idle cores" },
            Remedy {
                what: "spread UDP over the card's queues, and the queues over cores",
                gain: "as many times as there are queues on cores of their own, with as many flows",
            },
            Remedy {
                what: "larger packets: an MTU of 9000 if the whole path has it",
                gain: "two to four times as much for each core",
            },
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
            "busy-core",
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
            assert!(limit.remedies.iter().all(|remedy| remedy.gain.len() > 20), "{}", limit.id);
            for id in limit.checks {
                assert!(crate::check::find(id).is_some(), "{} names {id}", limit.id);
            }
            assert!(crate::check::find(limit.id).is_none(), "{} is a check, too", limit.id);
        }
    }
}
