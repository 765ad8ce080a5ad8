//! Checks of network cards: link, rings, offloads, hash, PCIe.

use super::sources::*;
use super::{BY_HAND, CHANGE_BACK, Certainty, Check, Effect, Finding, Group, NOTHING, PUT_BACK, Weight};
use crate::case::{Case, Nic, NicKind, ranges};
use crate::target::Target;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "link",
        row: "E1",
        title: "Speed of the link",
        reads: "sys/class/net/NIC/speed, duplex, carrier",
        advice: "At least the speed that the host is judged for; full duplex.",
        why: "A bad cable or transceiver, or a wrong port of a switch, gives a slower link without an error.",
        sources: &[FDTUNE, M_ETHTOOL],
        certainty: Certainty::Documented,
        set: "another cable, transceiver or port; ethtool -s NIC autoneg on",
        undo: CHANGE_BACK,
        measure: "`ethtool NIC`",
        effect: Effect::WithPeer,
        group: None,
        judge: link,
    },
    Check {
        id: "mtu",
        row: "E2",
        title: "MTU",
        reads: "sys/class/net/NIC/mtu",
        advice: "9000 from 10G on, if the whole path agrees; else 1500.",
        why: "Larger packets cost a core less for each byte. One hop that carries only 1500 makes it a black hole instead.",
        sources: &[FDTUNE, XRDMTU, FASTERDATA],
        certainty: Certainty::Practice,
        set: "ip link set dev NIC mtu 9000, after `ping -M do -s 8972 HOST` got an answer from every partner",
        undo: "ip link set dev NIC mtu 1500",
        measure: "`farhaul bench link --packet 9000 HOST`",
        effect: Effect::WithPeer,
        group: None,
        judge: mtu,
    },
    Check {
        id: "rings",
        row: "E4",
        title: "Rings of the card",
        reads: "asked/ethtool/NIC/rings",
        advice: "8192, or the most that the card has, from 10G on.",
        why: "At 100G a ring of 1024 packets of 1500 bytes is full after 0.12 ms without a core; what comes then is lost.",
        sources: &[FDTUNE, OSG, LIBREQOS],
        certainty: Certainty::Measured,
        set: "ethtool -G NIC rx 8192 tx 8192",
        undo: PUT_BACK,
        measure: "counters of lost packets (explain nic-drops) during a transfer",
        effect: Effect::WithPeer,
        group: Some(Group::Rings),
        judge: rings,
    },
    Check {
        id: "txqueuelen",
        row: "E5",
        title: "Length of the transmit queue",
        reads: "sys/class/net/NIC/tx_queue_len, asked/qdisc/NIC",
        advice: "10000 at 10G, 25000 at 100G, with pfifo_fast; it has little meaning under fq.",
        why: "pfifo_fast drops what does not fit.",
        sources: &[FDTUNE, OSG],
        certainty: Certainty::Practice,
        set: "ip link set dev NIC txqueuelen 10000",
        undo: PUT_BACK,
        measure: "`tc -s qdisc show dev NIC`: dropped does not grow",
        effect: Effect::WithPeer,
        group: Some(Group::Qdisc),
        judge: tx_queue_len,
    },
    Check {
        id: "offloads",
        row: "E6",
        title: "Offloads",
        reads: "asked/ethtool/NIC/features",
        advice: "GRO, GSO, TSO and checksums on; LRO off on what forwards.",
        why: "Without them a core handles each packet by itself: a tenth of the rate.",
        sources: &[OSG, K_OFFLOADS],
        certainty: Certainty::Practice,
        set: "ethtool -K NIC gro on gso on tso on rx on tx on",
        undo: PUT_BACK,
        measure: "`farhaul bench link HOST`: busy cores",
        effect: Effect::WithPeer,
        group: None,
        judge: offloads,
    },
    Check {
        id: "pause-frames",
        row: "E7",
        title: "Pause frames",
        reads: "asked/ethtool/NIC/pause, statistics",
        advice: "Know their state: their counters tell of congestion at the switch or in this host.",
        why: "A host that sends pauses cannot take what comes; a switch that sends them holds up everybody on this port.",
        sources: &[FDTUNE, M_ETHTOOL],
        certainty: Certainty::Practice,
        set: "ethtool -A NIC rx on tx on, or off, as the switch has it",
        undo: BY_HAND,
        measure: "`ethtool -S NIC | grep pause` before and after a transfer",
        effect: Effect::WithPeer,
        group: None,
        judge: pause_frames,
    },
    Check {
        id: "coalescing",
        row: "E8",
        title: "Interrupts for many packets (coalescing)",
        reads: "asked/ethtool/NIC/coalesce",
        advice: "Adaptive, or rx-usecs of 16 to 75, from 10G on.",
        why: "An interrupt for each packet costs more than the packet; too long a wait fills the ring.",
        sources: &[DTN_LECTURE, FCS],
        certainty: Certainty::Disputed,
        set: "ethtool -C NIC adaptive-rx on",
        undo: PUT_BACK,
        measure: "`farhaul bench link HOST`: busy cores and loss",
        effect: Effect::WithPeer,
        group: Some(Group::Rings),
        judge: coalescing,
    },
    Check {
        id: "channels",
        row: "E9",
        title: "Queues of the card",
        reads: "asked/ethtool/NIC/channels, sys/class/net/NIC/device/local_cpulist",
        advice: "More than one, and no more than cores of the card's NUMA node.",
        why: "One queue is one core. Queues beyond the node's cores are served from the far socket.",
        sources: &[NVG],
        certainty: Certainty::Documented,
        set: "ethtool -L NIC combined N",
        undo: PUT_BACK,
        measure: "`farhaul bench link --flows 8 HOST`",
        effect: Effect::WithPeer,
        group: Some(Group::Rings),
        judge: channels,
    },
    Check {
        id: "udp-hash",
        row: "E10",
        title: "Hash of UDP flows",
        reads: "asked/ethtool/NIC/hash",
        advice: "sdfn: addresses and ports.",
        why: "Without ports all of Farhaul's flows from one host land in one queue, on one core.",
        sources: &[RSS, NDRSS],
        certainty: Certainty::Documented,
        set: "ethtool -N NIC rx-flow-hash udp4 sdfn; the same with udp6",
        undo: PUT_BACK,
        measure: "counters of the queues during a transfer with several flows",
        effect: Effect::WithPeer,
        group: None,
        judge: udp_hash,
    },
    Check {
        id: "queue-balance",
        row: "E11",
        title: "Packets over the card's queues",
        reads: "asked/ethtool/NIC/statistics",
        advice: "Even over a transfer with as many flows as queues.",
        why: "A queue that gets most of the packets is a core that limits all.",
        sources: &[NDRSS],
        certainty: Certainty::Practice,
        set: "explain udp-hash, explain irq-spread; more flows (`--flows`)",
        undo: PUT_BACK,
        measure: "`ethtool -S NIC | grep packets` before and after a transfer",
        effect: Effect::WithPeer,
        group: None,
        judge: queue_balance,
    },
    Check {
        id: "nic-drops",
        row: "E12",
        title: "Packets lost in the card",
        reads: "asked/ethtool/NIC/statistics, sys/class/net/NIC/statistics",
        advice: "No growth during a transfer.",
        why: "They arrived, and no buffer was free: rings too short, cores too busy, or PCIe too slow.",
        sources: &[NDRSS],
        certainty: Certainty::Practice,
        set: "explain rings, irq-spread, pcie-link",
        undo: PUT_BACK,
        measure: "the same counters before and after a transfer",
        effect: Effect::WithPeer,
        group: Some(Group::Rings),
        judge: nic_drops,
    },
    Check {
        id: "nic-driver",
        row: "E13",
        title: "Driver and firmware of the card",
        reads: "asked/ethtool/NIC/driver",
        advice: "Current ones. This says which they are; whether they are current, the maker's page says.",
        why: "Faults of firmware look like loss.",
        sources: &[OSG],
        certainty: Certainty::Practice,
        set: "mlxfwmanager, nvmupdate64e, or the server's own tool",
        undo: CHANGE_BACK,
        measure: "`farhaul bench link HOST` before and after",
        effect: Effect::WithPeer,
        group: None,
        judge: nic_driver,
    },
    Check {
        id: "bond-hash",
        row: "E14",
        title: "Hash of a bond",
        reads: "proc/net/bonding/NIC",
        advice: "layer3+4 where several links are used at a time.",
        why: "With layer2 everything to one router goes over one link.",
        sources: &[K_BONDING],
        certainty: Certainty::Documented,
        set: "xmit_hash_policy layer3+4 in the bond's configuration",
        undo: PUT_BACK,
        measure: "`farhaul bench link --flows 8 HOST`, and the links' counters",
        effect: Effect::WithPeer,
        group: None,
        judge: bond_hash,
    },
    Check {
        id: "pcie-link",
        row: "E15",
        title: "PCIe link of the card",
        reads: "sys/class/net/NIC/device/current_link_speed, current_link_width, max_link_speed, max_link_width",
        advice: "The most that the card has, and more than the card's links together carry.",
        why: "A card for 100G in eight lanes of generation 3 ends at about 50 Gbit/s, with loss and pauses.",
        sources: &[DTN_LECTURE, K_PCI],
        certainty: Certainty::Documented,
        set: "another slot; bifurcation, generation and power settings of the firmware",
        undo: CHANGE_BACK,
        measure: "`farhaul bench link HOST`",
        effect: Effect::WithPeer,
        group: None,
        judge: pcie_link,
    },
    Check {
        id: "relaxed-ordering",
        row: "E16",
        title: "Relaxed ordering of PCIe",
        reads: "asked/ethtool/NIC/private",
        advice: "On, above all on hosts with several NUMA nodes.",
        why: "With strict ordering a card whose memory is on the far socket was held to 10 Gbit/s; relaxed, it reached 40.",
        sources: &[RO],
        certainty: Certainty::Measured,
        set: "PCI_WR_ORDERING=1 by mlxconfig, or the firmware's setting",
        undo: CHANGE_BACK,
        measure: "`farhaul bench transfer --cpus LIST HOST` with the far cores",
        effect: Effect::WithPeer,
        group: None,
        judge: relaxed_ordering,
    },
    Check {
        id: "shared-slot",
        row: "E17",
        title: "Two ports in one slot",
        reads: "sys/class/net/NIC/device",
        advice: "Know what the slot carries: two ports do not double it.",
        why: "Both ports share one PCIe link: 2 x 100G in generation 3 x16 is about 110 Gbit/s.",
        sources: &[DTN_LECTURE],
        certainty: Certainty::Practice,
        set: NOTHING,
        undo: NOTHING,
        measure: "`farhaul bench link` over each port, and over both at a time",
        effect: Effect::WithPeer,
        group: None,
        judge: shared_slot,
    },
];

fn at(nic: &Nic, what: &str) -> String {
    format!("sys/class/net/{}/{what}", nic.name)
}

fn asked(nic: &Nic, what: &str) -> String {
    format!("asked/ethtool/{}/{what}", nic.name)
}

fn gbit(bps: u64) -> String {
    format!("{} Gbit/s", bps as f64 / 1e9)
}

fn link(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card()) {
        if case.text(&at(nic, "duplex")).as_deref() == Some("half") {
            found.push(Finding::new(
                Weight::Fail,
                &nic.name,
                "half duplex",
                "let both ends negotiate: ethtool -s NIC autoneg on",
            ));
        }
    }
    // A host may have a slow card for its management beside the one for data.
    let fastest = case.nics().iter().filter(|nic| nic.carries_data()).max_by_key(|nic| nic.speed_bps);
    if let Some(nic) = fastest
        && let Some(speed) = nic.speed_bps
        && speed < target.rate_bps
    {
        let what = format!(
            "the fastest link has {}, less than the {} it is judged for",
            gbit(speed),
            target.rate_words()
        );
        found.push(Finding::new(
            Weight::Fail,
            &nic.name,
            what,
            "look at cable, transceiver, switch and autonegotiation (ethtool NIC)",
        ));
    }
    found
}

fn mtu(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case
        .nics()
        .iter()
        .filter(|nic| nic.carries_data() && nic.speed_bps.is_some_and(|bps| bps >= 10_000_000_000))
    {
        if target.is_tuned()
            && let Some(mtu @ ..8000) = case.number(&at(nic, "mtu"))
        {
            let what = format!("packets of {mtu} bytes");
            let advice = "if every hop to your partners carries 9000 (ping -M do -s 8972 HOST), use it";
            found.push(
                Finding::new(Weight::Note, &nic.name, what, advice)
                    .command(format!("ip link set dev {} mtu 9000", nic.name)),
            );
        }
    }
    found
}

fn rings(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_at_least(10)) {
        let number = |key: &str| case.number(&asked(nic, &format!("rings#{key}")));
        let small = |key: &'static str| {
            let (now, most) = (number(key)?, number(&format!("{key}_max"))?);
            let wanted = most.min(8192);
            (now < wanted).then_some((key, now, wanted))
        };
        let small: Vec<_> = ["rx", "tx"].into_iter().filter_map(small).collect();
        if small.is_empty() {
            continue;
        }
        let words: Vec<String> =
            small.iter().map(|(key, now, wanted)| format!("{key} {now} of {wanted}")).collect();
        let finding = Finding::new(
            Weight::Warn,
            &nic.name,
            format!("short rings: {}", words.join(", ")),
            "use the longest: bursts are lost in the card while a core is late",
        );
        found.push(small.into_iter().fold(finding, |finding, (key, _, wanted)| {
            finding.change(asked(nic, &format!("rings#{key}")), wanted)
        }));
    }
    found
}

fn tx_queue_len(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let wanted = if target.is_at_least(100) { 25_000 } else { 10_000 };
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_at_least(10)) {
        let is_fifo = case
            .pairs(&format!("asked/qdisc/{}", nic.name))
            .iter()
            .any(|(_, value)| value.starts_with("pfifo"));
        let place = at(nic, "tx_queue_len");
        if let (true, Some(packets)) = (is_fifo, case.number(&place))
            && packets < wanted
        {
            let what = format!("the transmit queue drops what is beyond {packets} packets");
            let advice = format!("use fq (explain qdisc), or {wanted}");
            found.push(Finding::new(Weight::Note, &nic.name, what, advice).change(place, wanted));
        }
    }
    found
}

fn offloads(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    const WANTED: [(&str, &str); 6] = [
        ("rx-gro", "GRO"),
        ("tx-generic-segmentation", "GSO"),
        ("tx-tcp-segmentation", "TSO"),
        ("tx-scatter-gather", "scatter-gather"),
        ("rx-checksum", "receive checksums"),
        ("tx-checksum-ip-generic", "transmit checksums"),
    ];
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.carries_data()) {
        let features = case.pairs(&asked(nic, "features"));
        // ` fixed` stands behind what the driver does not let anybody change.
        let is = |name: &str, state: &str| features.iter().any(|(one, value)| one == name && value == state);
        // A pair has no card below it: its kernel leaves GRO off, as packets come whole.
        let counts = |name: &str| nic.kind != NicKind::Pair || name != "rx-gro";
        let off: Vec<_> = WANTED.into_iter().filter(|(name, _)| is(name, "off") && counts(name)).collect();
        if !off.is_empty() {
            let words: Vec<&str> = off.iter().map(|(_, words)| *words).collect();
            let finding = Finding::new(
                Weight::Warn,
                &nic.name,
                format!("{} off", words.join(", ")),
                "turn on: without it a core handles every packet by itself",
            );
            found.push(off.into_iter().fold(finding, |finding, (name, _)| {
                finding.change(asked(nic, &format!("features#{name}")), "on")
            }));
        }
        let forwards = case.text("proc/sys/net/ipv4/ip_forward").as_deref() == Some("1");
        if is("rx-lro", "on") && forwards {
            found.push(
                Finding::new(
                    Weight::Warn,
                    &nic.name,
                    "LRO on, and this host forwards packets",
                    "turn LRO off: it breaks forwarded TCP",
                )
                .change(asked(nic, "features#rx-lro"), "off"),
            );
        }
    }
    found
}

fn pause_frames(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_tuned()) {
        let counters = case.pairs(&asked(nic, "statistics"));
        let frames = |way: &str| -> u64 {
            let names = [
                format!("{way}_pause_ctrl_phy"),
                format!("{way}_pause_frames"),
                format!("{way}_flow_control_xoff"),
                format!("{way}_pause"),
                format!("{way}_flow_control_xoff.nic"),
                format!("{way}_link_xoff.nic"),
            ];
            counters
                .iter()
                .filter(|(name, _)| names.contains(name))
                .filter_map(|(_, value)| value.parse::<u64>().ok())
                .max()
                .unwrap_or(0)
        };
        if frames("tx") > 1000 {
            let what = format!("{} pauses since the start: this host could not take what came", frames("tx"));
            found.push(Finding::new(
                Weight::Warn,
                &nic.name,
                what,
                "see rings, irq-spread and pcie-link; others on the switch wait, too",
            ));
        } else if frames("rx") > 1000 {
            let what = format!("{} pauses from the switch since the start", frames("rx"));
            found.push(Finding::new(
                Weight::Note,
                &nic.name,
                what,
                "something behind the switch is slower; ask for its counters",
            ));
        }
    }
    found
}

fn coalescing(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_at_least(10)) {
        let number = |key: &str| case.number(&asked(nic, &format!("coalesce#{key}")));
        let (Some(usecs), Some(0)) = (number("rx_usecs"), number("adaptive_rx")) else { continue };
        if (3..=150).contains(&usecs) {
            continue;
        }
        let what = format!("an interrupt after {usecs} us, and not adaptive");
        found.push(
            Finding::new(Weight::Note, &nic.name, what, "let it adapt, or try 16 to 75 us")
                .change(asked(nic, "coalesce#adaptive_rx"), 1),
        );
    }
    found
}

fn channels(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.carries_data() && target.is_tuned()) {
        let place = asked(nic, "channels#combined");
        let (Some(now), Some(most)) =
            (case.number(&place), case.number(&asked(nic, "channels#combined_max")))
        else {
            continue;
        };
        let near = ranges(&case.text(&at(nic, "device/local_cpulist")).unwrap_or_default()).len();
        let near = if near == 0 { case.cores() } else { near } as u64;
        if now == 1 && most > 1 && near > 1 {
            let wanted = most.min(near).min(8);
            let what = format!("one queue of {most}: one core takes all packets");
            found.push(
                Finding::new(Weight::Warn, &nic.name, what, format!("use {wanted}")).change(place, wanted),
            );
        } else if case.nodes() > 1 && now > near && near > 0 {
            let what = format!("{now} queues for {near} cores of the card's NUMA node");
            found.push(
                Finding::new(
                    Weight::Note,
                    &nic.name,
                    what,
                    format!("use {near}, or the far socket serves some"),
                )
                .change(place, near),
            );
        }
    }
    found
}

fn udp_hash(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_tuned()) {
        // One queue needs no hash.
        if case.number(&asked(nic, "channels#combined")).is_some_and(|queues| queues < 2) {
            continue;
        }
        let is_without_ports = |key: &&str| {
            case.text(&asked(nic, &format!("hash#{key}")))
                .is_some_and(|fields| fields.contains('s') && !(fields.contains('f') && fields.contains('n')))
        };
        let wrong: Vec<&str> = ["udp4", "udp6"].into_iter().filter(is_without_ports).collect();
        if wrong.is_empty() {
            continue;
        }
        let what = format!("UDP is spread over queues by addresses only ({})", wrong.join(", "));
        let finding = Finding::new(
            Weight::Fail,
            &nic.name,
            what,
            "add ports (sdfn): else all flows from one host land on one core",
        );
        found.push(
            wrong
                .into_iter()
                .fold(finding, |finding, key| finding.change(asked(nic, &format!("hash#{key}")), "sdfn")),
        );
    }
    found
}

/// The packets of each receive queue, as drivers name them: rx0_packets, rx_queue_0_packets, queue_0_rx_cnt, rx-0.packets.
fn queue_packets(case: &Case<'_>, nic: &Nic) -> Vec<u64> {
    let is_queue = |name: &str| {
        name.contains("rx")
            && name.contains("packets")
            && name.bytes().any(|byte| byte.is_ascii_digit())
            && !name.contains("xdp")
            && !name.contains("_to_")
            && !name.contains("prio")
    };
    case.pairs(&asked(nic, "statistics"))
        .into_iter()
        .filter(|(name, _)| is_queue(name))
        .filter_map(|(_, value)| value.parse().ok())
        .collect()
}

fn queue_balance(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_tuned()) {
        let queues = queue_packets(case, nic);
        let all = queues.iter().copied().fold(0u64, u64::saturating_add);
        let largest = queues.iter().copied().max().unwrap_or(0);
        // A host that has hardly received anything says nothing.
        if queues.len() < 4 || all < 100_000_000 || largest < all / 100 * 80 {
            continue;
        }
        let what = format!(
            "one of {} queues got {} % of all packets",
            queues.len(),
            (largest as f64 / all as f64 * 100.0) as u64
        );
        found.push(Finding::new(Weight::Warn, &nic.name, what, "see udp-hash; use several flows (--flows)"));
    }
    found
}

fn nic_drops(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    const NAMES: [&str; 12] = [
        "rx_out_of_buffer",
        "rx_discards_phy",
        "rx_missed_errors",
        "rx_no_buffer_count",
        "port.rx_dropped",
        "rx_discards",
        "port_rx_nodesc_drops",
        "rx_dropped.nic",
        "rx_no_dma_resources",
        "rx_drops_no_pbuf",
        "rx_fifo_errors",
        "rx_overruns",
    ];
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.carries_data()) {
        let mut counters = case.pairs(&asked(nic, "statistics"));
        counters.extend(
            ["rx_missed_errors", "rx_fifo_errors"].into_iter().filter_map(|name| {
                Some((name.to_owned(), case.text(&at(nic, &format!("statistics/{name}")))?))
            }),
        );
        let is_drop = |name: &str| NAMES.contains(&name) || name.ends_with("empty_rx_ring");
        let worst = counters
            .iter()
            .filter(|(name, _)| is_drop(name))
            .filter_map(|(name, value)| Some((value.parse::<u64>().ok()?, name)))
            .max();
        let received = case.number(&at(nic, "statistics/rx_packets")).unwrap_or(0);
        if let Some((lost @ 1000.., name)) = worst
            && lost >= received / 1_000_000
        {
            let what = format!("{lost} packets since the start were lost in the card ({name})");
            found.push(Finding::new(
                Weight::Fail,
                &nic.name,
                what,
                "see if that grows during a transfer; lengthen the rings, spread the interrupts",
            ));
        }
    }
    found
}

fn nic_driver(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_at_least(40)) {
        let field = |key: &str| case.text(&asked(nic, &format!("driver#{key}"))).unwrap_or_default();
        if let (driver, firmware) = (field("driver"), field("firmware"))
            && !firmware.is_empty()
        {
            found.push(Finding::new(
                Weight::Note,
                &nic.name,
                format!("{driver}, firmware {firmware}"),
                "compare with the maker's newest",
            ));
        }
    }
    found
}

fn bond_hash(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_up && nic.kind == NicKind::Bond) {
        let text = case.whole(&format!("proc/net/bonding/{}", nic.name)).unwrap_or_default();
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        let mode = field("Bonding Mode:");
        let links = text.lines().filter(|line| line.starts_with("Slave Interface:")).count();
        let policy = field("Transmit Hash Policy:");
        if links < 2
            || !(mode.contains("802.3ad") || mode.contains("xor"))
            || policy.contains("layer3+4")
            || policy.is_empty()
        {
            continue;
        }
        let what = format!(
            "{links} links, chosen by {}: all to one router goes over one",
            policy.split(' ').next().unwrap_or_default()
        );
        found.push(
            Finding::new(Weight::Warn, &nic.name, what, "use layer3+4, and several flows")
                .change(at(nic, "bonding/xmit_hash_policy"), "layer3+4"),
        );
    }
    found
}

/// What a PCIe link carries, in bits a second, after its own overhead.
fn pcie_bps(speed: &str, width: u64) -> Option<u64> {
    // GT/s, and what is left of a lane after coding and packet headers: about 8 of 10 bits, then 0.85.
    let gt: f64 = speed.split(' ').next()?.parse().ok()?;
    let coding = if gt > 5.5 { 128.0 / 130.0 } else { 0.8 };
    Some((gt * coding * 0.86 * width as f64 * 1e9) as u64)
}

fn pcie_link(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card()) {
        let text = |what: &str| case.text(&at(nic, &format!("device/{what}")));
        let (Some(speed), Some(width)) = (text("current_link_speed"), text("current_link_width")) else {
            continue;
        };
        let Ok(width) = width.parse::<u64>() else { continue };
        let Some(now) = pcie_bps(&speed, width) else { continue };
        let most = text("max_link_speed")
            .zip(text("max_link_width"))
            .and_then(|(speed, width)| pcie_bps(&speed, width.parse().ok()?));
        let needed = nic.speed_bps.unwrap_or(0);
        let words = format!("PCIe {} x{width}", speed.split(" PCIe").next().unwrap_or_default());
        if now < needed {
            let what = format!(
                "{words} carries about {:.0} Gbit/s, less than the link's {}",
                now as f64 / 1e9,
                gbit(needed)
            );
            found.push(Finding::new(
                Weight::Fail,
                &nic.name,
                what,
                "move the card to a slot with more lanes, or a newer generation",
            ));
        } else if most.is_some_and(|most| now < most) && target.is_tuned() && now < needed.saturating_mul(2) {
            // A card may carry its own link with half of its lanes, and have no reserve for a second port.
            let what = format!("{words}, less than the card can use");
            found.push(Finding::new(
                Weight::Note,
                &nic.name,
                what,
                "it is enough for this link; another slot would give a reserve",
            ));
        }
    }
    found
}

fn relaxed_ordering(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in case.nics().iter().filter(|nic| nic.is_card() && target.is_at_least(40) && case.nodes() > 1) {
        let flags = case.pairs(&asked(nic, "private"));
        if flags.iter().any(|(name, state)| name.contains("relaxed_ordering") && state == "off") {
            let advice = "turn it on by mlxconfig or the firmware, then compare";
            found.push(Finding::new(
                Weight::Note,
                &nic.name,
                "strict ordering of PCIe writes on a host with several NUMA nodes",
                advice,
            ));
        }
    }
    found
}

fn shared_slot(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let slot = |nic: &Nic| -> Option<String> {
        let address = case.link(&at(nic, "device"))?.rsplit('/').next()?.to_owned();
        // 0000:3b:00.1: what is in front of the dot is the slot.
        let (slot, function) = address.rsplit_once('.')?;
        function.parse::<u32>().ok().map(|_| slot.to_owned())
    };
    let cards: Vec<(&Nic, String)> = case
        .nics()
        .iter()
        .filter(|nic| nic.is_card() && target.is_at_least(10))
        .filter_map(|nic| Some((nic, slot(nic)?)))
        .collect();
    let mut found = Vec::new();
    for (index, (nic, slot)) in cards.iter().enumerate() {
        let others: Vec<&Nic> =
            cards[index + 1..].iter().filter(|(_, other)| other == slot).map(|(nic, _)| *nic).collect();
        let is_first = !cards[..index].iter().any(|(_, other)| other == slot);
        if others.is_empty() || !is_first {
            continue;
        }
        let together =
            others.iter().filter_map(|nic| nic.speed_bps).chain(nic.speed_bps).fold(0, u64::saturating_add);
        let text = |what: &str| case.text(&at(nic, &format!("device/{what}")));
        let carries = text("current_link_speed")
            .zip(text("current_link_width"))
            .and_then(|(speed, width)| pcie_bps(&speed, width.parse().ok()?));
        if let Some(carries) = carries.filter(|&carries| carries < together) {
            let names: Vec<&str> = others.iter().map(|nic| nic.name.as_str()).collect();
            let what = format!(
                "shares a slot that carries about {:.0} Gbit/s with {}: together they have {}",
                carries as f64 / 1e9,
                names.join(", "),
                gbit(together)
            );
            found.push(Finding::new(
                Weight::Note,
                &nic.name,
                what,
                "expect the slot's rate of both together",
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pcie_link_carries_what_cards_reach_on_it() {
        let gbit = |speed, width| pcie_bps(speed, width).unwrap() / 1_000_000_000;
        // ConnectX cards reach about 50 Gbit/s on gen3 x8, and 100G fits gen3 x16 and gen4 x8.
        assert_eq!(gbit("8.0 GT/s PCIe", 8), 54);
        assert!(gbit("8.0 GT/s PCIe", 16) > 100 && gbit("16.0 GT/s PCIe", 8) > 100);
        assert!(gbit("16.0 GT/s PCIe", 16) > 200 && gbit("8.0 GT/s PCIe", 16) < 200);
        assert_eq!(gbit("5.0 GT/s PCIe", 8), 27);
        assert_eq!(pcie_bps("Unknown", 8), None);
    }
}
