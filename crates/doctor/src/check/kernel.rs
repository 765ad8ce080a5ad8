//! Checks of the kernel, of its limits, and of where it runs.

use super::sources::*;
use super::{CHANGE_BACK, Certainty, Check, Effect, Finding, NOTHING, PUT_BACK, Weight};
use crate::case::{Case, bytes_words};
use crate::target::Target;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "kernel-version",
        row: "K1",
        title: "Version of the kernel",
        reads: "proc/sys/kernel/osrelease",
        advice: "Linux 6.8 or newer from 10G on; 5.15 works.",
        why: "Linux 6.8 carries up to 38 % more over long paths and 30 % more over short ones than 5.15 on the same hosts.",
        sources: &[INDIS],
        certainty: Certainty::Measured,
        set: "install a newer kernel of your distribution (hwe on Ubuntu, backports on Debian, kernel-ml from ELRepo)",
        undo: "boot the earlier kernel",
        measure: "`farhaul bench link HOST` before and after",
        effect: Effect::WithPeer,
        group: None,
        judge: kernel_version,
    },
    Check {
        id: "virtual-machine",
        row: "K2",
        title: "Virtual machine or container",
        reads: "proc/cpuinfo, proc/1/cgroup, proc/self/mounts",
        advice: "Know that this host is one: parts of it are the host's below it.",
        why: "Cards, cores and limits that are shown here may be shared, and some settings can only be changed outside.",
        sources: &[K_CGROUP, K_SRIOV],
        certainty: Certainty::Documented,
        set: NOTHING,
        undo: NOTHING,
        measure: "`farhaul bench cpu` here and on the host below",
        effect: Effect::NotByRate,
        group: None,
        judge: virtual_machine,
    },
    Check {
        id: "cgroup-limits",
        row: "K3",
        title: "Limits of the control group",
        reads: "proc/self/cgroup, sys/fs/cgroup/.../cpu.max, memory.max",
        advice: "At least two whole cores, and 1 GiB of memory, for a transfer; from 10G on as many cores as flows.",
        why: "A group at its limit of processor time is stopped for the rest of each tenth of a second, and packets are lost meanwhile.",
        sources: &[K_CGROUP],
        certainty: Certainty::Documented,
        set: "raise CPUQuota= and MemoryMax= of the unit, or --cpus and --memory of the container",
        undo: CHANGE_BACK,
        measure: "nr_throttled in cpu.stat of the group does not grow during a transfer",
        effect: Effect::WithPeer,
        group: None,
        judge: cgroup_limits,
    },
    Check {
        id: "tuned-profile",
        row: "K4",
        title: "Profile of tuned",
        reads: "etc/tuned/active_profile, asked/processes",
        advice: "`network-throughput` where tuned runs on a node.",
        why: "The profiles for saving power lower clock rates, and tuned sets its values again at each start.",
        sources: &[OSG, TUNED],
        certainty: Certainty::Practice,
        set: "tuned-adm profile network-throughput",
        undo: "tuned-adm profile EARLIER",
        measure: "`farhaul bench cpu` before and after",
        effect: Effect::NotByRate,
        group: None,
        judge: tuned_profile,
    },
    Check {
        id: "clock-source",
        row: "K5",
        title: "Clock source of the kernel",
        reads: "sys/devices/system/clocksource/clocksource0/current_clocksource",
        advice: "tsc, or kvm-clock and the like in virtual machines.",
        why: "hpet and acpi_pm are read over a slow bus, and everything that paces packets asks for the time all the while.",
        sources: &[K_PARAMETERS],
        certainty: Certainty::Practice,
        set: "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if available_clocksource lists it",
        undo: PUT_BACK,
        measure: "`farhaul bench link HOST` before and after",
        effect: Effect::NotByRate,
        group: None,
        judge: clock_source,
    },
    Check {
        id: "clock-sync",
        row: "K6",
        title: "The clock is kept in step",
        reads: "asked/clock, asked/processes",
        advice: "Let chrony, ntpd, systemd-timesyncd or ptp4l keep the clock.",
        why: "Tokens and certificates are refused when clocks differ, and logs of two hosts cannot be compared.",
        sources: &[PSON, CHRONY],
        certainty: Certainty::Documented,
        set: "apt install chrony, or dnf install chrony && systemctl enable --now chronyd",
        undo: "systemctl disable --now chronyd",
        measure: "`chronyc tracking` shows an offset below a millisecond",
        effect: Effect::NotByRate,
        group: None,
        judge: clock_sync,
    },
    Check {
        id: "io-uring",
        row: "K7",
        title: "io_uring is allowed",
        reads: "proc/sys/kernel/io_uring_disabled",
        advice: "Nothing for Farhaul, which does not use it; other tools on this host may.",
        why: "A value of 1 or 2 keeps programs from using io_uring; some of them fall back to slower calls without a word.",
        sources: &[K_KERNEL],
        certainty: Certainty::Documented,
        set: "sysctl -w kernel.io_uring_disabled=0",
        undo: PUT_BACK,
        measure: "fio with ioengine=io_uring runs",
        effect: Effect::NotByRate,
        group: None,
        judge: io_uring,
    },
    Check {
        id: "process-limits",
        row: "K8",
        title: "Limits of processes",
        reads: "proc/self/limits",
        advice: "At least 65536 open files on a node.",
        why: "A tree of many files, and a service with many clients, have many files open at a time.",
        sources: &[M_LIMITS],
        certainty: Certainty::Practice,
        set: "LimitNOFILE=65536 in the unit, or nofile in /etc/security/limits.conf",
        undo: CHANGE_BACK,
        measure: "`ulimit -Hn` in a new session",
        effect: Effect::NotByRate,
        group: None,
        judge: process_limits,
    },
    Check {
        id: "conntrack",
        row: "K9",
        title: "Connection tracking in the path of data",
        reads: "proc/sys/net/netfilter/nf_conntrack_count, nf_conntrack_max, nf_conntrack_udp_timeout_stream",
        advice: "A table that is at most three quarters full; from 40G on no tracking of the ports of data (NOTRACK).",
        why: "A full table drops new connections; below that, each packet costs a look-up. Tracked UDP is forgotten after its timeout.",
        sources: &[K_CONNTRACK],
        certainty: Certainty::Documented,
        set: "sysctl -w net.netfilter.nf_conntrack_max=MORE, or nft add rule inet raw prerouting udp dport 33001-33100 notrack",
        undo: "set the earlier value; nft delete rule",
        measure: "`dmesg` has no `table full`; `farhaul bench link HOST` before and after",
        effect: Effect::WithPeer,
        group: None,
        judge: conntrack,
    },
];

fn kernel_version(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let Some(release) = case.text("proc/sys/kernel/osrelease") else { return Vec::new() };
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version.0 == 0 || version >= (6, 8) || !target.is_at_least(10) {
        return Vec::new();
    }
    let weight = if version < (5, 15) { Weight::Warn } else { Weight::Note };
    vec![Finding::new(
        weight,
        "",
        format!("Linux {release}"),
        "Linux 6.8 carries up to 38 % more over long paths than 5.15",
    )]
}

fn virtual_machine(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    if case.is_container() {
        let advice =
            "what belongs to the host below is not shown, or is the host's; run the doctor there, too";
        found.push(Finding::new(Weight::Note, "", "this is a container", advice));
    }
    if case.is_virtual() {
        let advice = "cores and card may be shared with others; compare `farhaul bench cpu` at several times";
        found.push(Finding::new(Weight::Note, "", "this is a virtual machine", advice));
    }
    found
}

/// Looks at the limits of this process's group and of those above it.
fn cgroup_limits(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let groups = case.whole("proc/self/cgroup").unwrap_or_default();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::")) else { return Vec::new() };
    let mut group = own.trim().trim_end_matches('/').to_owned();
    let mut found = Vec::new();
    loop {
        let at = |file: &str| format!("sys/fs/cgroup{group}/{file}");
        if let Some((quota, period)) = case.text(&at("cpu.max")).and_then(|text| {
            let (quota, period) = text.split_once(' ')?;
            Some((quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?))
        }) {
            let cores = quota / period.max(1.0);
            let wanted = if target.is_at_least(10) { 4.0 } else { 2.0 };
            if cores < wanted {
                let what = format!("the control group may use {cores:.1} cores");
                let advice =
                    format!("allow {wanted} cores or more (CPUQuota= of the unit, --cpus of the container)");
                found.push(Finding::new(Weight::Warn, "", what, advice));
            }
        }
        if let Some(bytes) = case.number(&at("memory.max")).filter(|&bytes| bytes < 1 << 30) {
            let what = format!("the control group may use {} of memory", bytes_words(bytes));
            found.push(Finding::new(
                Weight::Warn,
                "",
                what,
                "allow 1 GiB or more (MemoryMax= of the unit, --memory of the container)",
            ));
        }
        match group.rfind('/') {
            Some(end) => group.truncate(end),
            None => return found,
        }
    }
}

fn tuned_profile(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let Some(profile) = case.text("etc/tuned/active_profile").filter(|_| case.runs("tuned")) else {
        return Vec::new();
    };
    if !target.is_tuned() || profile.contains("throughput") || profile.contains("hpc-compute") {
        return Vec::new();
    }
    let what = format!("tuned uses the profile {profile}");
    vec![
        Finding::new(Weight::Note, "", what, "use network-throughput")
            .command("tuned-adm profile network-throughput"),
    ]
}

fn clock_source(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let directory = "sys/devices/system/clocksource/clocksource0";
    let place = format!("{directory}/current_clocksource");
    let Some(source) = case.text(&place) else { return Vec::new() };
    if !["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"].contains(&source.as_str())
        || !target.is_tuned()
    {
        return Vec::new();
    }
    let available = case.text(&format!("{directory}/available_clocksource")).unwrap_or_default();
    let better = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"]
        .into_iter()
        .find(|one| available.split_whitespace().any(|word| word == *one));
    let what = format!("the kernel's clock is {source}, which is slow to read");
    vec![match better {
        Some(better) => Finding::new(Weight::Warn, "", what, format!("use {better}")).change(place, better),
        None => Finding::new(
            Weight::Warn,
            "",
            what,
            "the kernel does not trust tsc here: see dmesg, and update the firmware",
        ),
    }]
}

fn clock_sync(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let is_kept =
        ["chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys"].iter().any(|program| case.runs(program));
    if case.text("asked/clock#synchronised").as_deref() != Some("no") || is_kept && !target.is_tuned() {
        return Vec::new();
    }
    // A machine below may keep the clock of a container or of a small guest.
    if !target.is_tuned() && (case.is_container() || case.is_virtual()) {
        return Vec::new();
    }
    let advice = if is_kept {
        "see why: chronyc tracking"
    } else {
        "install chrony; tokens and certificates need the right time"
    };
    vec![Finding::new(Weight::Warn, "", "nobody keeps the clock in step", advice)]
}

fn io_uring(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let place = "proc/sys/kernel/io_uring_disabled";
    match case.number(place) {
        Some(value @ 1..) if target.is_tuned() => {
            let what = format!("io_uring is not allowed (kernel.io_uring_disabled={value})");
            let advice = "Farhaul does not need it; other tools may be slower without a word";
            vec![Finding::new(Weight::Note, "", what, advice).change(place, 0)]
        }
        _ => Vec::new(),
    }
}

fn process_limits(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let text = case.whole("proc/self/limits").unwrap_or_default();
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("Max open files")) else {
        return Vec::new();
    };
    // Farhaul raises the first limit, the soft one, to the second by itself.
    let hard = line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    match hard {
        Some(files @ ..65536) if target.is_tuned() => {
            let what = format!("a process may have {files} files open");
            vec![Finding::new(
                Weight::Warn,
                "",
                what,
                "allow 65536 (LimitNOFILE= of the unit, nofile in /etc/security/limits.conf)",
            )]
        }
        _ => Vec::new(),
    }
}

fn conntrack(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let number = |name: &str| case.number(&format!("proc/sys/net/netfilter/{name}"));
    let (Some(count), Some(max)) = (number("nf_conntrack_count"), number("nf_conntrack_max")) else {
        return Vec::new();
    };
    if count.saturating_mul(4) > max.saturating_mul(3) {
        let what = format!("the table of tracked connections holds {count} of {max}");
        let place = "proc/sys/net/netfilter/nf_conntrack_max";
        return vec![
            Finding::new(Weight::Fail, "", what, "a full table drops new connections: make it larger")
                .change(place, max.saturating_mul(4)),
        ];
    }
    if let Some(seconds @ ..30) = number("nf_conntrack_udp_timeout_stream") {
        let what = format!("tracked UDP is forgotten after {seconds} s of silence");
        let advice = "paused transfers may come back to a closed firewall: allow 120 s";
        let place = "proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream";
        return vec![Finding::new(Weight::Warn, "", what, advice).change(place, 120)];
    }
    if target.is_at_least(40) && count > 0 {
        let what = "connection tracking looks at every packet";
        return vec![
            Finding::new(Weight::Note, "", what, "leave the ports of data out")
                .command("nft add table inet raw")
                .command("nft 'add chain inet raw prerouting { type filter hook prerouting priority raw; }'")
                .command("nft add rule inet raw prerouting udp dport 33001-33100 notrack"),
        ];
    }
    Vec::new()
}
