//! Checks of how others reach this host: firewalls, names, routes; and of what else it does meanwhile.

use super::sources::*;
use super::{CHANGE_BACK, Certainty, Check, Effect, Finding, NOTHING, PUT_BACK, Weight};
use crate::case::Case;
use crate::target::{Role, Target};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "firewall",
        row: "N23",
        title: "Firewall of this host",
        reads: "asked/firewall",
        advice: "If packets are dropped by default: a rule for Farhaul's UDP and TCP ports. Only root sees firewalls.",
        why: "A transfer whose UDP is dropped goes over TCP or SSH, which slow down with distance and loss.",
        sources: &[M_NFT],
        certainty: Certainty::Documented,
        set: "nft add rule inet filter input udp dport PORT accept; the same with tcp",
        undo: "nft delete rule inet filter input handle NUMBER",
        measure: "`farhaul doctor --peer HOST` does not find udp-blocked",
        effect: Effect::WithPeer,
        group: None,
        judge: firewall,
    },
    Check {
        id: "reverse-dns",
        row: "N21",
        title: "Name and address in the DNS",
        reads: "asked/own-name",
        advice: "A public address of a node has a name, and the name has the address.",
        why: "Services with certificates and many sites' rules look up the name of an address, and refuse or wait without one.",
        sources: &[OSG],
        certainty: Certainty::Practice,
        set: "ask those who run your DNS for the record (PTR, A, AAAA)",
        undo: CHANGE_BACK,
        measure: "`getent hosts ADDRESS`, and then `getent hosts NAME`",
        effect: Effect::NotByRate,
        group: None,
        judge: reverse_dns,
    },
    Check {
        id: "several-routes",
        row: "N24",
        title: "Routes with several ways (ECMP)",
        reads: "asked/routes, proc/sys/net/ipv4/fib_multipath_hash_policy, proc/sys/net/ipv6/fib_multipath_hash_policy",
        advice: "A hash over ports as well (1), so that several flows use several ways.",
        why: "With 0 all flows between two hosts take one way, however many there are.",
        sources: &[K_IP],
        certainty: Certainty::Documented,
        set: "sysctl -w net.ipv4.fib_multipath_hash_policy=1",
        undo: PUT_BACK,
        measure: "`farhaul bench link --flows 8 HOST` before and after",
        effect: Effect::WithPeer,
        group: None,
        judge: several_routes,
    },
    Check {
        id: "busy-core",
        row: "C18",
        title: "Cores that are busy now",
        reads: "asked/busy",
        advice: "Idle cores before a transfer: one for each flow, and some for disks.",
        why: "A flow is one thread. On a core that another program has, it gets half of the time and loses packets meanwhile.",
        sources: &[M_STAT],
        certainty: Certainty::Documented,
        set: "end the program, or keep transfers from its core: --cpus LIST",
        undo: NOTHING,
        measure: "`top`, then 1: the core is idle",
        effect: Effect::NotByRate,
        group: None,
        judge: busy_core,
    },
    Check {
        id: "vhost",
        row: "C19",
        title: "Virtual machines on this host",
        reads: "asked/processes, sys/class/misc",
        advice: "vhost-net where virtual machines with virtio cards run.",
        why: "Without it each packet of a machine goes through its qemu, which costs a core at a few Gbit/s.",
        sources: &[VHOST],
        certainty: Certainty::Documented,
        set: "modprobe vhost_net, then start the machine with vhost=on",
        undo: "modprobe -r vhost_net",
        measure: "`farhaul bench link` between the machine and another host",
        effect: Effect::WithPeer,
        group: None,
        judge: vhost,
    },
];

fn firewall(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let text = case.whole("asked/firewall").unwrap_or_default();
    let mut found = Vec::new();
    let rules_of = |hook: &str, policy: &str| -> Option<u64> {
        let counts = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            (words.next() == Some(hook) && words.next() == Some(policy))
                .then(|| words.next()?.parse::<u64>().ok())?
        });
        counts.reduce(u64::saturating_add)
    };
    if let Some(rules) = rules_of("input", "drop").or_else(|| rules_of("prerouting", "drop")) {
        let what = format!("a firewall drops what no rule lets in ({rules} rules)");
        found.push(
            Finding::new(Weight::Note, "", what, "look for a rule that lets in Farhaul's UDP and TCP ports")
                .command("nft list ruleset"),
        );
        return found;
    }
    let rules: u64 = ["input", "prerouting"].iter().filter_map(|hook| rules_of(hook, "accept")).sum();
    if rules > 0 || text.contains("iptables filter") {
        let what = match rules {
            0 => "a firewall (iptables) looks at packets".to_owned(),
            rules => format!("a firewall looks at what comes in ({rules} rules)"),
        };
        let advice = "if farhaul doctor --peer says udp-blocked, look at its rules first";
        found.push(Finding::new(Weight::Note, "", what, advice).command("nft list ruleset; iptables-save"));
    }
    if target.is_tuned() { found } else { found.into_iter().filter(|_| rules > 0).collect() }
}

fn reverse_dns(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    if target.role == Role::Plain {
        return Vec::new();
    }
    let what = match case.text("asked/own-name#reverse").as_deref() {
        Some("none") => "the public address of this host has no name in the DNS",
        Some("differs") => "the name of this host's public address has another address",
        _ => return Vec::new(),
    };
    vec![Finding::new(Weight::Note, "", what, "have both records made: services look up who calls")]
}

fn several_routes(case: &Case<'_>, _target: &Target) -> Vec<Finding> {
    let mut found = Vec::new();
    let text = case.whole("asked/routes").unwrap_or_default();
    for family in ["ipv4", "ipv6"] {
        let ways =
            text.lines().filter_map(|line| line.strip_prefix(family)?.trim().parse::<u64>().ok()).max();
        let place = format!("proc/sys/net/{family}/fib_multipath_hash_policy");
        if let (Some(ways), Some(0)) = (ways, case.number(&place)) {
            let what =
                format!("a route of {family} has {ways} ways, and all flows to a host take the same one");
            found.push(
                Finding::new(Weight::Warn, "", what, "choose the way by ports as well").change(place, 1),
            );
        }
    }
    found
}

fn busy_core(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let cores: Vec<(String, u64)> = case
        .pairs("asked/busy")
        .into_iter()
        .filter_map(|(core, share)| Some((core, share.parse().ok()?)))
        .collect();
    let busy: Vec<&str> =
        cores.iter().filter(|(_, share)| *share >= 95).map(|(core, _)| core.as_str()).collect();
    // Somebody's program on one core of a plain host is none of a transfer's business.
    if busy.is_empty() || !target.is_tuned() && busy.len() < cores.len() {
        return Vec::new();
    }
    let what = match busy.len() == cores.len() {
        true => format!("all {} cores are busy now", cores.len()),
        false => format!("{} of {} cores are busy now: {}", busy.len(), cores.len(), busy.join(", ")),
    };
    vec![Finding::new(
        Weight::Warn,
        "",
        what,
        "end what runs there, or keep transfers from these cores (--cpus)",
    )]
}

fn vhost(case: &Case<'_>, target: &Target) -> Vec<Finding> {
    let has_machines =
        ["qemu-system-x86", "qemu-system-aar", "qemu-kvm"].iter().any(|program| case.runs(program));
    let has_vhost = case.list("sys/class/misc").iter().any(|name| name == "vhost-net");
    if !has_machines || has_vhost || !target.is_at_least(10) {
        return Vec::new();
    }
    let what = "virtual machines run here, and each of their packets goes through qemu";
    vec![
        Finding::new(Weight::Note, "", what, "load vhost_net, and start them with it")
            .command("modprobe vhost_net"),
    ]
}
