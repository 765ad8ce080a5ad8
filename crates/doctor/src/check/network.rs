//! Checks of the network stack: buffers, TCP, UDP, queues of the kernel.

use super::sources::*;
use super::{BY_HAND, Certainty, Check, Effect, Finding, Group, Measurement, NOTHING, PUT_BACK, Weight};
use crate::case::{Case, NicKind, bytes_words};
use crate::target::{Role, Target};

const SYSCTL: &str = "sysctl -w NAME=VALUE";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "socket-buffers",
        row: "N1",
        title: "Largest socket buffers",
        reads: "proc/sys/net/core/rmem_max, wmem_max",
        advice: "64 MiB for a node at 10G (256 MiB for a host that measures), 128 MiB (512 MiB) at 40G, 2147483647 from 100G on.",
        why: "A buffer smaller than what is on the way caps the rate: buffer / round trip. Programs get no more than this.",
        sources: &[FDTUNE, OSG, MINI],
        certainty: Certainty::Measured,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "a burst of datagrams over loopback: how much of it a socket keeps",
        effect: Effect::Here(Measurement::UdpBurst),
        group: Some(Group::Buffers),
        judge: socket_buffers,
    },
    Check {
        id: "tcp-rmem",
        row: "N2",
        title: "Largest receive window of TCP",
        reads: "proc/sys/net/ipv4/tcp_rmem",
        advice: "32 MiB for a node at 10G (128 MiB to measure), 64 MiB (256 MiB) at 40G, 1 GiB from 100G on; at least twice rate x round trip.",
        why: "TCP (ssh, the fallback of Farhaul, other tools) goes no faster than window / round trip.",
        sources: &[FDTUNE, OSG],
        certainty: Certainty::Practice,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "a TCP connection over loopback; over a long path `iperf3 -c HOST`",
        effect: Effect::Here(Measurement::TcpLoopback),
        group: Some(Group::Buffers),
        judge: |case, target| tcp_memory(case, target, "tcp_rmem", [4096, 131_072]),
    },
    Check {
        id: "tcp-wmem",
        row: "N3",
        title: "Largest send window of TCP",
        reads: "proc/sys/net/ipv4/tcp_wmem",
        advice: "As tcp-rmem.",
        why: "The sender keeps all that is not acknowledged; beyond this it stops.",
        sources: &[FDTUNE],
        certainty: Certainty::Practice,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "as tcp-rmem",
        effect: Effect::Here(Measurement::TcpLoopback),
        group: Some(Group::Buffers),
        judge: |case, target| tcp_memory(case, target, "tcp_wmem", [4096, 65_536]),
    },
    Check {
        id: "optmem",
        row: "N4",
        title: "Memory beside a socket's buffers",
        reads: "proc/sys/net/core/optmem_max",
        advice: "1048576 from 100G on.",
        why: "Sending without copies (MSG_ZEROCOPY) keeps its notices there; with too little it copies after all.",
        sources: &[FDTUNE, INDIS],
        certainty: Certainty::Measured,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "iperf3 --zerocopy=z to another host",
        effect: Effect::WithPeer,
        group: Some(Group::Buffers),
        judge: optmem,
    },
    Check {
        id: "qdisc",
        row: "N5",
        title: "Queueing discipline",
        reads: "proc/sys/net/core/default_qdisc, asked/qdisc/NIC",
        advice: "fq on the interfaces of data.",
        why: "fq paces each flow, so that bursts do not overflow switches with small buffers; Farhaul paces itself, TCP of other tools does not.",
        sources: &[FDTUNE, OSG, PSON, M_FQ],
        certainty: Certainty::Practice,
        set: "sysctl -w net.core.default_qdisc=fq; tc qdisc replace dev NIC root fq (below mq: one for each queue)",
        undo: BY_HAND,
        measure: "retransmissions of `iperf3` over a long path before and after",
        effect: Effect::WithPeer,
        group: Some(Group::Qdisc),
        judge: qdisc,
    },
    Check {
        id: "pacing",
        row: "N6",
        title: "Pacing of each flow",
        reads: "asked/qdisc/NIC",
        advice: "From 40G on a maxrate of fq, such as a fifth of the card for each flow of TCP tools that run several.",
        why: "One unpaced flow at full speed loses packets at the first slower link.",
        sources: &[FDTUNE, OSG],
        certainty: Certainty::Practice,
        set: "tc qdisc replace dev NIC root fq maxrate RATE",
        undo: BY_HAND,
        measure: "retransmissions of `iperf3 -P 8` over a long path",
        effect: Effect::WithPeer,
        group: Some(Group::Qdisc),
        judge: pacing,
    },
    Check {
        id: "congestion-control",
        row: "N7",
        title: "Congestion control of TCP",
        reads: "proc/sys/net/ipv4/tcp_congestion_control, tcp_available_congestion_control",
        advice: "bbr, cubic or htcp; never reno on a long path. Sources disagree which of the three is best: measure on your paths.",
        why: "reno needs hours to grow back after one loss at 10G and 100 ms. Farhaul's own rate control is not concerned.",
        sources: &[OSG, PSON, SPRACE, FASTERDATA],
        certainty: Certainty::Disputed,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "`iperf3 -C NAME` over a long path",
        effect: Effect::WithPeer,
        group: None,
        judge: congestion_control,
    },
    Check {
        id: "mtu-probing",
        row: "N8",
        title: "TCP finds the path's MTU",
        reads: "proc/sys/net/ipv4/tcp_mtu_probing, sys/class/net/NIC/mtu",
        advice: "1 where an interface has an MTU above 1500.",
        why: "Where a part of the path carries only 1500 and its messages are filtered, TCP with jumbo frames hangs for ever.",
        sources: &[OSG, PSON, FDSYS, XRDMTU],
        certainty: Certainty::Documented,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "a connection through the black hole goes on",
        effect: Effect::WithPeer,
        group: None,
        judge: mtu_probing,
    },
    Check {
        id: "metrics-save",
        row: "N9",
        title: "TCP remembers earlier connections",
        reads: "proc/sys/net/ipv4/tcp_no_metrics_save",
        advice: "1 on a node.",
        why: "Otherwise one bad connection lowers the first window of the next ones to the same host.",
        sources: &[FDTUNE, K_IP],
        certainty: Certainty::Practice,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "short TCP transfers after one with loss",
        effect: Effect::WithPeer,
        group: None,
        judge: |case, target| {
            when_tuned(case, target, "tcp_no_metrics_save", 1, "one bad connection slows down the next ones")
        },
    },
    Check {
        id: "tcp-options",
        row: "N10",
        title: "Options of TCP",
        reads: "proc/sys/net/ipv4/tcp_window_scaling, tcp_sack, tcp_timestamps",
        advice: "All 1. FDT advises against timestamps, everybody else for them.",
        why: "Without window scaling a window ends at 64 KiB: 5 Mbit/s at 100 ms. Without SACK each loss costs a round trip.",
        sources: &[OSG, K_IP],
        certainty: Certainty::Documented,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "a TCP connection over a long path",
        effect: Effect::WithPeer,
        group: None,
        judge: tcp_options,
    },
    Check {
        id: "rcvbuf-tuning",
        row: "N11",
        title: "TCP adapts its receive buffer",
        reads: "proc/sys/net/ipv4/tcp_moderate_rcvbuf",
        advice: "1.",
        why: "Otherwise every connection keeps the small buffer that it began with.",
        sources: &[FDT, K_IP],
        certainty: Certainty::Documented,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "a TCP connection over loopback, and over a long path",
        effect: Effect::Here(Measurement::TcpLoopback),
        group: Some(Group::Buffers),
        judge: rcvbuf_tuning,
    },
    Check {
        id: "backlog",
        row: "N12",
        title: "Packets that wait for the kernel",
        reads: "proc/sys/net/core/netdev_max_backlog",
        advice: "250000 at 10G, 500000 at 100G, 1000000 at 400G, on hosts with RPS or drivers without NAPI.",
        why: "A longer queue survives a longer pause of the core; drivers with NAPI do not use it.",
        sources: &[OSG, DTN_LECTURE, K_NET],
        certainty: Certainty::Practice,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "the second column of /proc/net/softnet_stat does not grow",
        effect: Effect::WithPeer,
        group: None,
        judge: backlog,
    },
    Check {
        id: "softirq-budget",
        row: "N13",
        title: "Time for packets in one go",
        reads: "proc/sys/net/core/netdev_budget, netdev_budget_usecs, proc/net/softnet_stat",
        advice: "Twice as much where the third column of softnet_stat grows.",
        why: "The kernel has stopped to take packets although more were there.",
        sources: &[K_NET, K_SCALING],
        certainty: Certainty::Documented,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "the third column of /proc/net/softnet_stat during a transfer",
        effect: Effect::WithPeer,
        group: None,
        judge: softirq_budget,
    },
    Check {
        id: "softnet-drops",
        row: "N14",
        title: "Packets dropped by the kernel before the stack",
        reads: "proc/net/softnet_stat",
        advice: "None during a transfer.",
        why: "A core could not keep up with the packets that were given to it.",
        sources: &[K_NET, K_SCALING],
        certainty: Certainty::Documented,
        set: "sysctl -w net.core.netdev_max_backlog=250000; spread the interrupts",
        undo: PUT_BACK,
        measure: "the second column of /proc/net/softnet_stat during a transfer",
        effect: Effect::WithPeer,
        group: None,
        judge: softnet_drops,
    },
    Check {
        id: "udp-errors",
        row: "N15",
        title: "Datagrams lost at the sockets of this host",
        reads: "proc/net/snmp",
        advice: "RcvbufErrors does not grow during a transfer.",
        why: "They have come all the way and were thrown away, as no room was left in a socket's buffer.",
        sources: &[NDRSS],
        certainty: Certainty::Practice,
        set: "larger socket buffers (socket-buffers, udp-buffer)",
        undo: PUT_BACK,
        measure: "`nstat -az UdpRcvbufErrors` before and after a transfer",
        effect: Effect::Here(Measurement::UdpBurst),
        group: Some(Group::Buffers),
        judge: udp_errors,
    },
    Check {
        id: "udp-buffer",
        row: "N16",
        title: "Buffer that a UDP socket gets",
        reads: "asked/socket, proc/sys/net/core/rmem_max",
        advice: "7.5 MB at least; what arrives in 20 ms where that is more.",
        why: "While the receiver's thread does not run for some milliseconds, everything that arrives has to fit. As root Farhaul takes more than the sysctl allows.",
        sources: &[UDPB],
        certainty: Certainty::Practice,
        set: "sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000",
        undo: PUT_BACK,
        measure: "a burst of datagrams over loopback: how much of it a socket keeps",
        effect: Effect::Here(Measurement::UdpBurst),
        group: Some(Group::Buffers),
        judge: udp_buffer,
    },
    Check {
        id: "udp-memory",
        row: "N17",
        title: "Memory of all UDP sockets together",
        reads: "proc/sys/net/ipv4/udp_mem",
        advice: "Room for 16 buffers of the size that a socket may have.",
        why: "Beyond the third value, the kernel drops datagrams of every socket.",
        sources: &[K_IP],
        certainty: Certainty::Documented,
        set: SYSCTL,
        undo: PUT_BACK,
        measure: "`UDP: inuse ... mem` in /proc/net/sockstat stays below it",
        effect: Effect::WithPeer,
        group: Some(Group::Buffers),
        judge: udp_memory,
    },
    Check {
        id: "udp-segmentation",
        row: "N18",
        title: "Many datagrams in one call (GSO and GRO)",
        reads: "asked/socket, asked/ethtool/NIC/features",
        advice: "Both in the kernel (4.18 and 5.0); tx-udp-segmentation on in the card where it can.",
        why: "One call for 64 KiB costs a tenth of one call for each datagram.",
        sources: &[IPERF, K_OFFLOADS],
        certainty: Certainty::Documented,
        set: "ethtool -K NIC tx-udp-segmentation on",
        undo: PUT_BACK,
        measure: "`farhaul bench link HOST`: the sender's busy cores",
        effect: Effect::WithPeer,
        group: None,
        judge: udp_segmentation,
    },
    Check {
        id: "big-tcp",
        row: "N19",
        title: "Packets of TCP beyond 64 KiB in the host (BIG TCP)",
        reads: "sys/class/net/NIC/gso_max_size, asked/ethtool/NIC/driver",
        advice: "From 100G on above 65536 where card and kernel can (6.3 with IPv4).",
        why: "Fewer, larger packets go through the stack. It helps TCP only.",
        sources: &[INDIS],
        certainty: Certainty::Measured,
        set: "ip link set dev NIC gso_max_size 185000 gro_max_size 185000 gso_ipv4_max_size 185000 gro_ipv4_max_size 185000",
        undo: "the same with 65536",
        measure: "`iperf3` to another host",
        effect: Effect::WithPeer,
        group: None,
        judge: big_tcp,
    },
    Check {
        id: "ipv6",
        row: "N20",
        title: "A global address of IPv6",
        reads: "proc/net/if_inet6",
        advice: "Research networks expect one on a node.",
        why: "Some partners are reached by IPv6 only, and often by a better path.",
        sources: &[OSG],
        certainty: Certainty::Practice,
        set: "ask your network's people",
        undo: NOTHING,
        measure: "`ip -6 route get ADDRESS`",
        effect: Effect::NotByRate,
        group: None,
        judge: ipv6,
    },
];

const CORE: &str = "proc/sys/net/core";
const IPV4: &str = "proc/sys/net/ipv4";

fn socket_buffers(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let wanted = target.socket_buffer();
    let names = ["rmem_max", "wmem_max"];
    let small: Vec<(String, &str, u64)> = names
        .into_iter()
        .filter_map(|name| Some((format!("{CORE}/{name}"), name, case.number(&format!("{CORE}/{name}"))?)))
        .filter(|&(_, _, bytes)| bytes < wanted)
        .collect();
    if !target.is_tuned() || small.is_empty() {
        return Vec::new();
    }
    let words: Vec<String> =
        small.iter().map(|(_, name, bytes)| format!("{name} {}", bytes_words(*bytes))).collect();
    let advice = format!("allow {} for {}", bytes_words(wanted), target.rate_words());
    let finding =
        Finding::new(Weight::Warn, "", format!("socket buffers end at {}", words.join(", ")), advice);
    vec![small.into_iter().fold(finding, |finding, (place, _, _)| finding.change(place, wanted))]
}

fn tcp_memory(case: &Case<'_>, target: &Target, name: &str, first: [u64; 2]) -> Vec<Finding> {
    let place = format!("{IPV4}/{name}");
    let [least, usual, most] = case.numbers(&place)[..] else { return Vec::new() };
    // Below 1 MiB even a plain host is slow everywhere but in its own building.
    let wanted = if target.is_tuned() { target.tcp_window() } else { 1 << 20 };
    if most >= wanted {
        return Vec::new();
    }
    let wanted = wanted.max(target.tcp_window().min(16 << 20));
    let what = format!("a window of TCP ends at {} ({name})", bytes_words(most));
    let advice =
        format!("allow {}; this is for ssh and other tools, not for Farhaul's UDP", bytes_words(wanted));
    let value = format!("{} {} {wanted}", least.max(first[0]), usual.max(first[1]));
    vec![Finding::new(Weight::Warn, "", what, advice).change(place, value)]
}

fn optmem(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let place = format!("{CORE}/optmem_max");
    match case.number(&place) {
        Some(bytes @ ..1_048_576) if target.is_at_least(100) => {
            let what = format!("optmem_max is {bytes}");
            vec![
                Finding::new(Weight::Warn, "", what, "MSG_ZEROCOPY of other tools needs 1048576")
                    .change(place, 1_048_576),
            ]
        }
        _ => Vec::new(),
    }
}

fn qdisc(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if !target.is_tuned() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let place = format!("{CORE}/default_qdisc");
    let is_default_right = case.text(&place).is_none_or(|name| name == "fq" || name == "noqueue");
    for nic in case.nics().iter().filter(|nic| nic.carries_data() && nic.kind != NicKind::Pair) {
        let lines = case.pairs(&format!("asked/qdisc/{}", nic.name));
        let kind = |value: &str| value.split(' ').next().unwrap_or_default().to_owned();
        let is_parent = |name: &str| ["mq", "mqprio", "noqueue", "tbf", "htb"].contains(&name);
        let wrong = lines.iter().map(|(_, value)| kind(value)).find(|name| name != "fq" && !is_parent(name));
        let Some(wrong) = wrong else { continue };
        let finding = Finding::new(
            Weight::Warn,
            &nic.name,
            format!("{wrong} sends without pacing"),
            "use fq, so that bursts of other tools do not overflow switches",
        );
        found.push(finding.command(format!("tc qdisc replace dev {} root fq", nic.name)));
    }
    if !is_default_right && let Some(first) = found.first_mut() {
        first.changes.push(super::Change { place, value: "fq".into() });
    }
    found
}

fn pacing(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if !target.is_at_least(40) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card()) {
        let lines = case.pairs(&format!("asked/qdisc/{}", nic.name));
        let fq: Vec<&str> =
            lines.iter().map(|(_, value)| value.as_str()).filter(|value| value.starts_with("fq")).collect();
        if !fq.contains(&"fq") || fq.iter().any(|value| value.contains("maxrate")) {
            continue;
        }
        let gbit = nic.speed_bps.unwrap_or(target.rate_bps) / 5_000_000_000;
        let advice =
            "for TCP tools with several flows, limit each to a fifth of the card; Farhaul paces itself";
        found.push(
            Finding::new(Weight::Note, &nic.name, "fq has no maxrate", advice)
                .command(format!("tc qdisc replace dev {} root fq maxrate {gbit}gbit", nic.name)),
        );
    }
    found
}

fn congestion_control(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let place = format!("{IPV4}/tcp_congestion_control");
    let Some(name) = case.text(&place).filter(|name| name == "reno" || name == "vegas") else {
        return Vec::new();
    };
    let available = case.text(&format!("{IPV4}/tcp_available_congestion_control")).unwrap_or_default();
    let better = ["bbr", "cubic", "htcp"]
        .into_iter()
        .find(|one| available.split_whitespace().any(|word| word == *one));
    let weight = if target.is_tuned() { Weight::Warn } else { Weight::Note };
    let finding = Finding::new(
        weight,
        "",
        format!("TCP uses {name}, which needs hours to grow back after a loss on a long, fast path"),
        format!("use {}", better.unwrap_or("cubic (modprobe tcp_cubic)")),
    );
    vec![match better {
        Some(better) => finding.change(place, better),
        None => finding.command("modprobe tcp_cubic && sysctl -w net.ipv4.tcp_congestion_control=cubic"),
    }]
}

fn mtu_probing(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let place = format!("{IPV4}/tcp_mtu_probing");
    if case.number(&place) != Some(0) {
        return Vec::new();
    }
    // A pair in a container has the MTU that its bridge has, and TCP of this host is what is judged.
    let jumbo = case.nics().iter().filter(|nic| nic.carries_data()).find_map(|nic| {
        let mtu = case.number(&format!("sys/class/net/{}/mtu", nic.name))?;
        (mtu > 1500 && mtu < 65536).then_some((nic.name.clone(), mtu))
    });
    let Some((nic, mtu)) = jumbo else { return Vec::new() };
    let what = format!("packets of {mtu} bytes, and TCP does not probe the path's MTU");
    let advice = "turn probing on: where a router drops large packets without a word, TCP hangs";
    vec![Finding::new(Weight::Warn, &nic, what, advice).change(place, 1)]
}

/// A sysctl of TCP that should have one value on a tuned host.
fn when_tuned(case: &Case<'_>, target: &Target, name: &str, wanted: u64, why: &str) -> Vec<Finding> {
    let place = format!("{IPV4}/{name}");
    match case.number(&place) {
        Some(value) if value != wanted && target.is_tuned() => {
            vec![
                Finding::new(
                    Weight::Note,
                    "",
                    format!("{name} is {value}: {why}"),
                    format!("set it to {wanted}"),
                )
                .change(place, wanted),
            ]
        }
        _ => Vec::new(),
    }
}

fn tcp_options(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let options = [
        ("tcp_window_scaling", Weight::Fail, "windows end at 64 KiB: 5 Mbit/s at 100 ms"),
        ("tcp_sack", Weight::Fail, "each lost packet costs a round trip"),
        (
            "tcp_timestamps",
            Weight::Note,
            "round trips are measured badly, and sequence numbers wrap within seconds at 10G",
        ),
    ];
    let mut found = Vec::new();
    for (name, weight, effect) in options {
        let place = format!("{IPV4}/{name}");
        if case.number(&place) == Some(0) {
            found.push(
                Finding::new(weight, "", format!("{name} is off: {effect}"), "turn it on").change(place, 1),
            );
        }
    }
    found
}

fn rcvbuf_tuning(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let place = format!("{IPV4}/tcp_moderate_rcvbuf");
    if case.number(&place) != Some(0) {
        return Vec::new();
    }
    let what = "tcp_moderate_rcvbuf is off: connections keep the small buffer that they begin with";
    vec![Finding::new(Weight::Fail, "", what, "turn it on").change(place, 1)]
}

fn backlog(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let wanted = match target.rate_bps {
        400_000_000_000.. => 1_000_000,
        100_000_000_000.. => 500_000,
        10_000_000_000.. => 250_000,
        _ => return Vec::new(),
    };
    let place = format!("{CORE}/netdev_max_backlog");
    match case.number(&place) {
        Some(packets) if packets < wanted => {
            let what = format!("{packets} packets may wait for a core");
            let advice = format!("allow {wanted} where RPS is used; drivers with NAPI do not use this queue");
            vec![Finding::new(Weight::Note, "", what, advice).change(place, wanted)]
        }
        _ => Vec::new(),
    }
}

/// The sum of a column of softnet_stat over all cores, and of its first, the packets.
fn softnet(case: &Case<'_>, column: usize) -> (u64, u64) {
    let text = case.whole("proc/net/softnet_stat").unwrap_or_default();
    let sum = |column: usize| {
        text.lines()
            .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok())
            .fold(0, u64::saturating_add)
    };
    (sum(column), sum(0))
}

fn softirq_budget(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let (squeezed, packets) = softnet(case, 2);
    // A few squeezes in a long life are nothing.
    if !target.is_tuned() || squeezed < 1000 || squeezed < packets / 100_000 {
        return Vec::new();
    }
    let what = format!("{squeezed} times the kernel stopped taking packets although more were there");
    let mut finding =
        Finding::new(Weight::Note, "", what, "if that grows during a transfer, double the budget");
    for name in ["netdev_budget", "netdev_budget_usecs"] {
        let place = format!("{CORE}/{name}");
        if let Some(value) = case.number(&place) {
            finding = finding.change(place, value.saturating_mul(2));
        }
    }
    vec![finding]
}

fn softnet_drops(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let (dropped, packets) = softnet(case, 1);
    if dropped == 0 || dropped < packets / 1_000_000 {
        return Vec::new();
    }
    let what = format!("{dropped} packets since the start were dropped because no core took them");
    vec![Finding::new(
        Weight::Warn,
        "",
        what,
        "see if that grows during a transfer; spread the interrupts (explain irq-spread)",
    )]
}

/// The counters of UDP by their names.
fn udp_counters(case: &Case<'_>) -> Vec<(String, u64)> {
    let text = case.whole("proc/net/snmp").unwrap_or_default();
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(values)) = (rows.next(), rows.next()) else { return Vec::new() };
    let values = values.split_whitespace().map(|value| value.parse().unwrap_or(0));
    names.split_whitespace().map(str::to_owned).zip(values).collect()
}

fn udp_errors(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let counters = udp_counters(case);
    let of = |name: &str| counters.iter().find(|(one, _)| one == name).map_or(0, |&(_, value)| value);
    let (lost, received) = (of("RcvbufErrors"), of("InDatagrams"));
    // One in ten thousand is where a transfer begins to be disturbed.
    if lost < 1000 || lost < received / 10_000 {
        return Vec::new();
    }
    let what = format!(
        "{lost} of {} datagrams since the start were lost at full sockets",
        received.saturating_add(lost)
    );
    vec![Finding::new(
        Weight::Fail,
        "",
        what,
        "see if that grows during a transfer (nstat -az UdpRcvbufErrors); enlarge socket buffers",
    )]
}

fn udp_buffer(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let Some(bytes) = case.number("asked/socket#receive_buffer") else { return Vec::new() };
    let wanted =
        if target.role == Role::Plain { target.udp_buffer().min(7_500_000) } else { target.udp_buffer() };
    // The sysctl may be large enough for what is asked here, and the check of it says the rest.
    if bytes >= wanted || !socket_buffers(case, target).is_empty() {
        return Vec::new();
    }
    let what = format!("a UDP socket gets a buffer of {}", bytes_words(bytes));
    let advice =
        format!("allow {}, so that nothing is lost while the receiver waits for a core", bytes_words(wanted));
    let finding = Finding::new(Weight::Warn, "", what, advice);
    let places = ["rmem_max", "wmem_max"].map(|name| format!("{CORE}/{name}"));
    let small = places.into_iter().filter(|place| case.number(place).is_some_and(|value| value < wanted));
    vec![small.fold(finding, |finding, place| finding.change(place, wanted))]
}

fn udp_memory(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    const PAGE: u64 = 4096;
    let place = format!("{IPV4}/udp_mem");
    let [.., most] = case.numbers(&place)[..] else { return Vec::new() };
    // No node fills 16 buffers of 2 GiB; 64 MiB each is what a burst at 100G needs.
    let wanted = 16 * target.udp_buffer().min(64 << 20) / PAGE;
    if most >= wanted || !target.is_tuned() {
        return Vec::new();
    }
    let what = format!("all UDP sockets together may hold {}", bytes_words(most.saturating_mul(PAGE)));
    let value = format!("{} {} {wanted}", wanted / 2, wanted / 4 * 3);
    vec![
        Finding::new(Weight::Warn, "", what, format!("allow {}", bytes_words(wanted * PAGE)))
            .change(place, value),
    ]
}

fn udp_segmentation(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    if case.text("asked/socket#udp_segment").as_deref() == Some("no") {
        let what = "the kernel cannot take many datagrams in one call (UDP GSO)";
        return vec![Finding::new(
            Weight::Warn,
            "",
            what,
            "use Linux 4.18 or newer; outside a container the kernel may know it",
        )];
    }
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.carries_data() && nic.kind != NicKind::Bond) {
        let place = format!("asked/ethtool/{}/features#tx-udp-segmentation", nic.name);
        if case.text(&place).as_deref() == Some("off") {
            let what = "the card could cut UDP packets, and does not (tx-udp-segmentation off)";
            found.push(Finding::new(Weight::Warn, &nic.name, what, "turn it on").change(place, "on"));
        }
    }
    found
}

fn big_tcp(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_at_least(100)) {
        let able = ["mlx5_core", "ice", "idpf", "gve"]
            .contains(&case.driver(&nic.name).unwrap_or_default().as_str());
        if able && case.number(&format!("sys/class/net/{}/gso_max_size", nic.name)) == Some(65536) {
            let advice = "let TCP of other tools use larger packets inside the host (Linux 6.3)";
            found.push(
                Finding::new(Weight::Note, &nic.name, "packets inside the host end at 64 KiB", advice)
                    .command(format!(
                        "ip link set dev {} gso_ipv4_max_size 185000 gro_ipv4_max_size 185000",
                        nic.name
                    )),
            );
        }
    }
    found
}

fn ipv6(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let text = case.whole("proc/net/if_inet6");
    let is_global = |line: &str| line.split_whitespace().nth(3) == Some("00") && !line.ends_with(" lo");
    let has_one = text.as_deref().unwrap_or_default().lines().any(is_global);
    if !target.is_tuned() || has_one {
        return Vec::new();
    }
    vec![Finding::new(
        Weight::Note,
        "",
        "no global address of IPv6",
        "some partners are reached by IPv6 only: ask your network's people",
    )]
}
