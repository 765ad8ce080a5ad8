//! Checks of cores, interrupts, NUMA nodes, memory and power.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::*;
use super::{
    BY_HAND, CHANGE_BACK, Certainty, Check, Effect, Finding, Group, Measurement, NOTHING, PUT_BACK, Weight,
};
use crate::case::{Case, Nic, ranges};
use crate::target::{Role, Target};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "governor",
        row: "C1",
        title: "Governor of the cores' clock",
        reads: "sys/devices/system/cpu/CPU/cpufreq/scaling_governor",
        advice: "performance on a node.",
        why: "powersave and ondemand raise the clock only after work has come, and bursts are over by then.",
        sources: &[OSG, K_FREQUENCY],
        certainty: Certainty::Practice,
        set: "echo performance > /sys/devices/system/cpu/CPU/cpufreq/scaling_governor, for each core",
        undo: PUT_BACK,
        measure: "the rate at which one core computes digests",
        effect: Effect::Here(Measurement::Core),
        group: Some(Group::Cores),
        judge: governor,
    },
    Check {
        id: "idle-states",
        row: "C2",
        title: "Sleep of idle cores",
        reads: "sys/devices/system/cpu/cpu0/cpuidle/STATE/latency, disable, sys/module/intel_idle/parameters/max_cstate",
        advice: "From 100G on no state that takes longer than 100 us to leave, while transfers run.",
        why: "At 100G, 100 us are 800 packets of 1500 bytes: the shorter half of a ring.",
        sources: &[K_IDLE],
        certainty: Certainty::Practice,
        set: "cpupower idle-set -D 100, or tuned's profile network-latency while you measure",
        undo: "cpupower idle-set -E",
        measure: "loss in the card (explain nic-drops) at the begin of transfers",
        effect: Effect::WithPeer,
        group: Some(Group::Cores),
        judge: idle_states,
    },
    Check {
        id: "smt",
        row: "C3",
        title: "Two threads for each core (SMT)",
        reads: "sys/devices/system/cpu/smt/active",
        advice: "Sources disagree: off for even times, on for throughput of many streams. Measure.",
        why: "Two threads share one core's units; a flow on each is slower than alone and more together.",
        sources: &[OSG, FASTERDATA],
        certainty: Certainty::Disputed,
        set: "echo off > /sys/devices/system/cpu/smt/control",
        undo: "echo on > /sys/devices/system/cpu/smt/control",
        measure: "`farhaul bench link --flows 8 HOST` with both",
        effect: Effect::WithPeer,
        group: None,
        judge: smt,
    },
    Check {
        id: "iommu",
        row: "C4",
        title: "IOMMU",
        reads: "sys/class/iommu, proc/cmdline",
        advice: "iommu=pt where an IOMMU is on, from 40G on.",
        why: "Without it each buffer is mapped and unmapped for the card, which costs cores and takes locks.",
        sources: &[OSG, K_PARAMETERS],
        certainty: Certainty::Practice,
        set: "iommu=pt on the kernel's command line (GRUB_CMDLINE_LINUX), then a restart",
        undo: CHANGE_BACK,
        measure: "`farhaul bench link HOST` before and after",
        effect: Effect::WithPeer,
        group: None,
        judge: iommu,
    },
    Check {
        id: "irqbalance",
        row: "C5",
        title: "irqbalance",
        reads: "asked/processes",
        advice: "Off on a host from 40G on whose interrupts are pinned.",
        why: "It moves interrupts of the card while transfers run, also to the far socket.",
        sources: &[NVG, FASTERDATA],
        certainty: Certainty::Practice,
        set: "systemctl disable --now irqbalance, then set_irq_affinity_cpulist.sh or the driver's own script",
        undo: "systemctl enable --now irqbalance",
        measure: "`farhaul bench link HOST`: spread over ten runs",
        effect: Effect::WithPeer,
        group: None,
        judge: irqbalance,
    },
    Check {
        id: "irq-spread",
        row: "C6",
        title: "Interrupts of the card over the cores",
        reads: "proc/interrupts, proc/irq/IRQ/effective_affinity_list",
        advice: "Over several cores of the card's NUMA node, and not all on core 0.",
        why: "The core that takes the interrupts takes the packets; one core carries 10 to 30 Gbit/s.",
        sources: &[NVG, K_SCALING, DTN_LECTURE],
        certainty: Certainty::Documented,
        set: "echo CPU > /proc/irq/IRQ/smp_affinity_list for each, or start irqbalance",
        undo: BY_HAND,
        measure: "/proc/interrupts and busy cores during `farhaul bench link --flows 8 HOST`",
        effect: Effect::WithPeer,
        group: None,
        judge: irq_spread,
    },
    Check {
        id: "nic-node",
        row: "C7",
        title: "NUMA node of the card",
        reads: "sys/class/net/NIC/device/numa_node, local_cpulist",
        advice: "Farhaul keeps to the cores near the card by itself if there are four or more; try the other node as well: sources disagree.",
        why: "Memory of the far socket is slower, and its bus carries less; the near one may be full of interrupts.",
        sources: &[NVG, ESCP],
        certainty: Certainty::Disputed,
        set: "farhaul serve --cpus LIST, farhaul cp --cpus LIST",
        undo: "leave the option out",
        measure: "`farhaul bench transfer --cpus LIST HOST` with either node",
        effect: Effect::WithPeer,
        group: None,
        judge: nic_node,
    },
    Check {
        id: "disk-node",
        row: "C8",
        title: "NUMA nodes of disks and card",
        reads: "sys/class/nvme/DISK/device/numa_node, sys/class/net/NIC/device/numa_node",
        advice: "The same, or know that they are not.",
        why: "What is read on one socket and sent from the other goes over the bus between them twice.",
        sources: &[DTN_LECTURE],
        certainty: Certainty::Practice,
        set: "move card or disks to other slots",
        undo: CHANGE_BACK,
        measure: "`farhaul bench transfer --from FILE HOST` against memory to memory",
        effect: Effect::WithPeer,
        group: None,
        judge: disk_node,
    },
    Check {
        id: "numa-balancing",
        row: "C9",
        title: "Balancing of memory between NUMA nodes",
        reads: "proc/sys/kernel/numa_balancing",
        advice: "0 on a node from 40G on.",
        why: "The kernel takes pages away to see who uses them, and moves them while they carry data.",
        sources: &[K_KERNEL],
        certainty: Certainty::Practice,
        set: "sysctl -w kernel.numa_balancing=0",
        undo: PUT_BACK,
        measure: "`farhaul bench link HOST`: spread over ten runs",
        effect: Effect::WithPeer,
        group: None,
        judge: numa_balancing,
    },
    Check {
        id: "huge-pages",
        row: "C10",
        title: "Huge pages",
        reads: "sys/kernel/mm/transparent_hugepage/enabled",
        advice: "madvise or always. Reserved pages (nr_hugepages) are for DPDK and AF_XDP only.",
        why: "With `never` each megabyte of the pool takes 256 entries of the cache of addresses.",
        sources: &[K_HUGE],
        certainty: Certainty::Documented,
        set: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        undo: PUT_BACK,
        measure: "`farhaul bench cpu`: copies",
        effect: Effect::WithPeer,
        group: None,
        judge: huge_pages,
    },
    Check {
        id: "crypto",
        row: "C11",
        title: "Instructions for encryption",
        reads: "proc/cpuinfo",
        advice: "aes (and vaes from 100G on); on arm64 aes and pmull.",
        why: "Without them a core seals about 2 Gbit/s with AES, and ChaCha20 is faster.",
        sources: &[FASTERDATA],
        certainty: Certainty::Practice,
        set: "--cipher chacha20-poly1305; in a virtual machine let the processor's flags through (host-passthrough)",
        undo: "leave the option out",
        measure: "`farhaul bench cpu`",
        effect: Effect::NotByRate,
        group: None,
        judge: crypto,
    },
    Check {
        id: "memory-channels",
        row: "C12",
        title: "Channels of memory",
        reads: "asked/memory, sys/devices/system/node/NODE/meminfo",
        advice: "Memory in every channel, and on every NUMA node about as much. Only root sees the slots.",
        why: "Each byte of a transfer crosses memory several times: at 100G some 50 GB/s with a disk.",
        sources: &[DTN_LECTURE, SMBIOS, M_DMIDECODE],
        certainty: Certainty::Practice,
        set: "fill one slot of every channel",
        undo: NOTHING,
        measure: "`farhaul bench cpu`: copies, one on each core",
        effect: Effect::NotByRate,
        group: None,
        judge: memory_channels,
    },
    Check {
        id: "cache-size",
        row: "C13",
        title: "Size of the last cache",
        reads: "sys/devices/system/cpu/cpu0/cache/index3/size",
        advice: "Know it: content that stays in it never goes to memory.",
        why: "A pool of blocks larger than its share sends each byte to memory and back.",
        sources: &[ESCP],
        certainty: Certainty::Practice,
        set: "`--memory` of a transfer bounds its pool",
        undo: "leave the option out",
        measure: "`farhaul bench transfer --memory SIZE HOST` with several sizes",
        effect: Effect::WithPeer,
        group: None,
        judge: cache_size,
    },
    Check {
        id: "virtual-card",
        row: "C14",
        title: "Card of a virtual machine",
        reads: "asked/ethtool/NIC/driver, sys/class/net/NIC/device/physfn",
        advice: "A virtual function (SR-IOV) from 10G on; virtio below.",
        why: "virtio costs a core of the host below for each queue; a function of the card goes straight to it.",
        sources: &[K_SRIOV, SPRACE],
        certainty: Certainty::Measured,
        set: "give the machine a virtual function; with virtio several queues and vhost-net",
        undo: CHANGE_BACK,
        measure: "`farhaul bench link HOST`",
        effect: Effect::WithPeer,
        group: None,
        judge: virtual_card,
    },
    Check {
        id: "steal",
        row: "C15",
        title: "Time taken by other machines (steal)",
        reads: "proc/stat",
        advice: "Below 2 % of the time.",
        why: "While another machine has the core, packets wait and are lost.",
        sources: &[K_SRIOV, FASTERDATA],
        certainty: Certainty::Practice,
        set: "another size or kind of machine, with cores of its own",
        undo: NOTHING,
        measure: "the column st of `vmstat 1` during a transfer",
        effect: Effect::WithPeer,
        group: None,
        judge: steal,
    },
    Check {
        id: "isolated-cores",
        row: "C16",
        title: "Cores that are kept from programs",
        reads: "sys/devices/system/cpu/isolated, online",
        advice: "None, or name them by `--cpus`.",
        why: "The kernel puts no program on an isolated core unless it is told to, so that they stand idle while the others are full.",
        sources: &[K_PARAMETERS],
        certainty: Certainty::Documented,
        set: "farhaul serve --cpus LIST, farhaul cp --cpus LIST; or take isolcpus= from the kernel's command line",
        undo: "leave the option out",
        measure: "`farhaul bench transfer --cpus LIST HOST` with and without them",
        effect: Effect::WithPeer,
        group: None,
        judge: isolated_cores,
    },
    Check {
        id: "power",
        row: "P9",
        title: "Measured power",
        reads: "sys/class/powercap",
        advice: "Readable, if you want joules for each gigabyte.",
        why: "The counters of processor and memory are root's only since 2020.",
        sources: &[K_POWERCAP],
        certainty: Certainty::Documented,
        set: "chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj, if you accept what it tells others of this host",
        undo: "chmod go-r of the same file",
        measure: "the counter before and after a transfer",
        effect: Effect::NotByRate,
        group: None,
        judge: power,
    },
];

fn cards<'a>(case: &'a Case<'_>) -> impl Iterator<Item = &'a Nic> {
    case.nics().iter().filter(|nic| nic.is_card())
}

fn governor(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if !target.is_tuned() {
        return Vec::new();
    }
    let cores = case
        .list("sys/devices/system/cpu")
        .into_iter()
        .filter(|name| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok()));
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for core in cores {
        let place = format!("sys/devices/system/cpu/{core}/cpufreq/scaling_governor");
        if let Some(name) = case.text(&place).filter(|name| name != "performance") {
            by_name.entry(name).or_default().push(place);
        }
    }
    let Some((name, places)) = by_name.into_iter().max_by_key(|(_, places)| places.len()) else {
        return Vec::new();
    };
    let what = format!("the clock of {} cores is governed by {name}", places.len());
    let finding =
        Finding::new(Weight::Warn, "", what, "use performance, so that bursts do not meet slow cores");
    vec![places.into_iter().fold(finding, |finding, place| finding.change(place, "performance"))]
}

fn idle_states(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let directory = "sys/devices/system/cpu/cpu0/cpuidle";
    let deepest = case
        .list(directory)
        .into_iter()
        .filter(|state| case.number(&format!("{directory}/{state}/disable")) == Some(0))
        .filter_map(|state| {
            Some((
                case.number(&format!("{directory}/{state}/latency"))?,
                case.text(&format!("{directory}/{state}/name"))?,
            ))
        })
        .max();
    match deepest {
        Some((us @ 101.., name)) if target.is_at_least(100) => {
            let what = format!("idle cores sleep as deep as {name}, {us} us from work");
            vec![
                Finding::new(Weight::Note, "", what, "forbid states beyond 100 us while transfers run")
                    .command("cpupower idle-set -D 100"),
            ]
        }
        _ => Vec::new(),
    }
}

fn smt(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if case.text("sys/devices/system/cpu/smt/active").as_deref() != Some("1")
        || target.role == Role::Plain
        || !target.is_at_least(100)
    {
        return Vec::new();
    }
    vec![Finding::new(
        Weight::Note,
        "",
        "two threads share each core",
        "sources disagree: measure with SMT on and off",
    )]
}

fn iommu(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let command_line = case.text("proc/cmdline").unwrap_or_default();
    let passes = ["iommu=pt", "iommu.passthrough=1", "iommu=off", "intel_iommu=off", "amd_iommu=off"];
    let is_off = command_line.split_whitespace().any(|word| passes.contains(&word));
    if case.list("sys/class/iommu").is_empty() || is_off || !target.is_at_least(40) || case.is_virtual() {
        return Vec::new();
    }
    let what = "the IOMMU translates every buffer of the card";
    vec![Finding::new(Weight::Warn, "", what, "add iommu=pt to the kernel's command line, and restart")]
}

fn irqbalance(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if !case.runs("irqbalance") || !target.is_at_least(40) {
        return Vec::new();
    }
    let what = "irqbalance moves interrupts while transfers run";
    let advice = "pin the card's interrupts to its NUMA node, then stop it";
    vec![Finding::new(Weight::Warn, "", what, advice).command("systemctl disable --now irqbalance")]
}

/// An interrupt of a card: its number, and how often each core took it.
struct Irq {
    number: String,
    counts: Vec<u64>,
}

/// The interrupts of a card, by its name, its PCI address, or `virtioN-`.
fn irqs(case: &Case<'_>, nic: &Nic) -> Vec<Irq> {
    let text = case.whole("proc/interrupts").unwrap_or_default();
    let device = case
        .link(&format!("sys/class/net/{}/device", nic.name))
        .and_then(|link| Some(link.rsplit('/').next()?.to_owned()));
    let cores = text.lines().next().map_or(0, |line| line.split_whitespace().count());
    let is_ours = |label: &str| {
        label.split(|c: char| c.is_whitespace() || c == '@' || c == ',').any(|word| {
            let word = word.strip_prefix("pci:").unwrap_or(word);
            word == nic.name
                || word.starts_with(&format!("{}-", nic.name))
                || device
                    .as_deref()
                    .is_some_and(|device| word == device || word.starts_with(&format!("{device}-")))
                || word.contains(&format!("-{}-", nic.name))
        })
    };
    let irq = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let counts: Vec<u64> = words.by_ref().take(cores).map_while(|word| word.parse().ok()).collect();
        is_ours(&words.collect::<Vec<_>>().join(" "))
            .then(|| Irq { number: number.trim().to_owned(), counts })
    };
    text.lines().skip(1).filter_map(irq).collect()
}

fn irq_spread(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.carries_data() && target.is_tuned()) {
        let irqs = irqs(case, nic);
        let cores = irqs.iter().map(|irq| irq.counts.len()).max().unwrap_or(0);
        if irqs.len() < 3 || cores < 4 {
            continue;
        }
        let mut by_core = vec![0u64; cores];
        irqs.iter()
            .flat_map(|irq| irq.counts.iter().enumerate())
            .for_each(|(core, count)| by_core[core] = by_core[core].saturating_add(*count));
        let all = by_core.iter().copied().fold(0, u64::saturating_add);
        let (busiest, largest) =
            by_core.iter().copied().enumerate().max_by_key(|&(_, count)| count).unwrap_or((0, 0));
        if all > 1_000_000 && largest > all / 100 * 75 {
            let what = format!(
                "core {busiest} took {:.0} % of the card's interrupts",
                largest as f64 / all as f64 * 100.0
            );
            let advice = "spread them over cores of the card's NUMA node (the driver's set_irq_affinity script, or irqbalance)";
            found.push(Finding::new(Weight::Warn, &nic.name, what, advice));
            continue;
        }
        let near = ranges(
            &case.text(&format!("sys/class/net/{}/device/local_cpulist", nic.name)).unwrap_or_default(),
        );
        let far: BTreeSet<u32> = irqs
            .iter()
            .filter(|irq| irq.counts.iter().any(|&count| count > 0))
            .flat_map(|irq| {
                ranges(
                    &case
                        .text(&format!("proc/irq/{}/effective_affinity_list", irq.number))
                        .unwrap_or_default(),
                )
            })
            .filter(|core| !near.is_empty() && !near.contains(core))
            .collect();
        if case.nodes() > 1 && !far.is_empty() {
            let what = format!("{} cores of another NUMA node take interrupts of the card", far.len());
            found.push(Finding::new(
                Weight::Warn,
                &nic.name,
                what,
                "pin them to the card's node (set_irq_affinity_cpulist.sh)",
            ));
        }
    }
    found
}

fn nic_node(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if case.nodes() < 2 || !target.is_tuned() {
        return Vec::new();
    }
    cards(case)
        .filter(|nic| nic.speed_bps.is_some_and(|bps| bps >= 10_000_000_000))
        .filter_map(|nic| {
            let at = |what: &str| format!("sys/class/net/{}/device/{what}", nic.name);
            let node = case.text(&at("numa_node"))?.parse::<u32>().ok()?;
            let near = case.text(&at("local_cpulist"))?;
            let what = format!("the card is on NUMA node {node}, cores {near}");
            Some(Finding::new(
                Weight::Note,
                &nic.name,
                what,
                format!("compare --cpus {near} with the other node's cores"),
            ))
        })
        .collect()
}

fn disk_node(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if case.nodes() < 2 || !target.is_tuned() {
        return Vec::new();
    }
    let node = |place: String| case.text(&place).and_then(|node| node.parse::<u32>().ok());
    let fastest = cards(case).max_by_key(|nic| nic.speed_bps);
    let Some((nic, near)) =
        fastest.and_then(|nic| Some((nic, node(format!("sys/class/net/{}/device/numa_node", nic.name))?)))
    else {
        return Vec::new();
    };
    let far: Vec<String> = case
        .list("sys/class/nvme")
        .into_iter()
        .filter(|disk| {
            node(format!("sys/class/nvme/{disk}/device/numa_node")).is_some_and(|node| node != near)
        })
        .collect();
    if far.is_empty() {
        return Vec::new();
    }
    let what = format!("{} on another NUMA node than {} (node {near})", far.join(", "), nic.name);
    vec![Finding::new(Weight::Note, "", what, "expect less than from disks near the card; measure both")]
}

fn numa_balancing(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let place = "proc/sys/kernel/numa_balancing";
    match case.number(place) {
        Some(1..) if target.is_at_least(40) && case.nodes() > 1 => {
            let what = "the kernel moves memory between NUMA nodes while it is used";
            vec![Finding::new(Weight::Note, "", what, "turn that off while transfers run").change(place, 0)]
        }
        _ => Vec::new(),
    }
}

fn huge_pages(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let place = "sys/kernel/mm/transparent_hugepage/enabled";
    match case.text(place) {
        Some(text) if text.contains("[never]") && target.is_tuned() => {
            vec![
                Finding::new(
                    Weight::Note,
                    "",
                    "huge pages are off",
                    "allow them to programs that ask (madvise)",
                )
                .change(place, "madvise"),
            ]
        }
        _ => Vec::new(),
    }
}

fn crypto(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let flags = case.cpu_flags();
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    if flags.is_empty() {
        return Vec::new();
    }
    if !has("aes") {
        let what = "no instructions for AES: a core seals about 2 Gbit/s with it";
        return vec![Finding::new(
            Weight::Warn,
            "",
            what,
            "use --cipher chacha20-poly1305; in a virtual machine let the processor's flags through",
        )];
    }
    let is_x86 = has("pclmulqdq") || has("sse2");
    if is_x86 && !has("vaes") && target.is_at_least(100) {
        let what = "AES without vectors (no vaes): more cores for the same rate";
        return vec![Finding::new(
            Weight::Note,
            "",
            what,
            "measure with `farhaul bench cpu`, and use more flows",
        )];
    }
    Vec::new()
}

/// The channels of memory and how many of them have none, by the names that the firmware gives to banks: those of one
/// channel contain the same `CHANNEL X`.
fn empty_channels(case: &Case<'_>) -> Option<(usize, usize)> {
    let mut channels: BTreeMap<String, bool> = BTreeMap::new();
    for line in case.whole("asked/memory")?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["slot", state, bank, place] = words[..] else { continue };
        let name = [bank, place]
            .iter()
            .map(|name| name.to_ascii_uppercase())
            .find(|name| name.contains("CHANNEL"))?;
        // Behind the channel's letter may stand the number of the slot.
        let (before, after) = name.split_once("CHANNEL")?;
        let letter: String = after.trim_start_matches(['_', '-']).chars().take(1).collect();
        *channels.entry(format!("{before}CHANNEL{letter}")).or_default() |= state == "filled";
    }
    (!channels.is_empty()).then(|| (channels.values().filter(|has| !**has).count(), channels.len()))
}

fn memory_channels(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if let Some((empty @ 1.., all)) = empty_channels(case).filter(|_| target.is_tuned()) {
        let what = format!("{empty} of {all} channels of memory have none");
        return vec![Finding::new(Weight::Note, "", what, "fill one slot of every channel")];
    }
    let nodes = case
        .list("sys/devices/system/node")
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok()));
    let sizes: Vec<(String, u64)> = nodes
        .filter_map(|node| {
            let text = case.whole(&format!("sys/devices/system/node/{node}/meminfo"))?;
            let line = text.lines().find(|line| line.contains("MemTotal:"))?;
            let kib = line.split_whitespace().rev().nth(1)?.parse().ok()?;
            Some((node, kib))
        })
        .collect();
    let most = sizes.iter().map(|&(_, kib)| kib).max().unwrap_or(0);
    match sizes.iter().min_by_key(|&&(_, kib)| kib) {
        // Firmware and the kernel keep some of a node's memory, never half.
        Some((node, kib)) if *kib < most / 2 && target.is_tuned() && sizes.len() > 1 => {
            let what = format!("{node} has {} GiB of memory, another node {}", kib >> 20, most >> 20);
            vec![Finding::new(
                Weight::Note,
                "",
                what,
                "fill one slot of every channel (dmidecode -t memory shows them)",
            )]
        }
        _ => Vec::new(),
    }
}

fn cache_size(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let Some(size) = case.text("sys/devices/system/cpu/cpu0/cache/index3/size") else { return Vec::new() };
    if !target.is_at_least(100) {
        return Vec::new();
    }
    vec![Finding::new(
        Weight::Note,
        "",
        format!("the last cache has {size}"),
        "try --memory below it: content then stays in the cache",
    )]
}

fn virtual_card(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_up && nic.kind == crate::case::NicKind::Paravirtual) {
        if target.is_at_least(10) {
            let driver = case.driver(&nic.name).unwrap_or_default();
            let what = format!("{driver}, a card made by the host below");
            found.push(Finding::new(
                Weight::Note,
                &nic.name,
                what,
                "a virtual function (SR-IOV) carries more with less",
            ));
        }
    }
    found
}

fn steal(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let text = case.whole("proc/stat").unwrap_or_default();
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("cpu ")) else { return Vec::new() };
    let times: Vec<u64> = line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
    let (all, stolen) =
        (times.iter().copied().fold(0, u64::saturating_add), times.get(7).copied().unwrap_or(0));
    // Idle time is no claim to a core, so what counts is the share of the time in which this machine wanted one.
    let idle = times.get(3).copied().unwrap_or(0).saturating_add(times.get(4).copied().unwrap_or(0));
    let wanted = all.saturating_sub(idle);
    if stolen < 1000 || stolen < wanted / 50 {
        return Vec::new();
    }
    let what = format!(
        "other machines had the core for {:.0} % of the time in which this one wanted it",
        stolen as f64 / wanted as f64 * 100.0
    );
    vec![Finding::new(Weight::Warn, "", what, "use a machine with cores of its own")]
}

fn isolated_cores(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let text = case.text("sys/devices/system/cpu/isolated").unwrap_or_default();
    let isolated = ranges(&text);
    if isolated.is_empty() || !target.is_tuned() {
        return Vec::new();
    }
    let what = format!("{} of {} cores are kept from programs ({text})", isolated.len(), case.cores());
    vec![Finding::new(Weight::Note, "", what, "name them by --cpus if they are meant for transfers")]
}

fn power(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let place = "sys/class/powercap/intel-rapl:0/energy_uj";
    let is_there = case.list("sys/class/powercap").iter().any(|name| name == "intel-rapl:0");
    if !is_there || case.text(place).is_some() || !target.is_tuned() {
        return Vec::new();
    }
    vec![Finding::new(
        Weight::Note,
        "",
        "the counters of energy are root's only",
        "let somebody read them if you want joules for each gigabyte",
    )]
}
