//! Judges what tests of a path have measured, and explains what they can find.
//!
//! Always true: the judgement is a pure function of the figures. What can be this host's own doing (a full socket buffer,
//! a rate that this host did not reach) is not blamed on the path.

use farhaul_words::PathSigns;
use serde::Serialize;

use crate::check::Weight;

/// What was seen of a path while packets were sent at one rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PathStep {
    /// The rate that was to be sent, in bits a second.
    pub asked_bps: u64,
    /// The rate that was sent.
    pub sent_bps: f64,
    /// The number of packets that were sent.
    pub packets_sent: u64,
    /// The share of them that was lost, 0 to 1.
    pub lost: f64,
    /// Packets that the receiving host's sockets had no room for.
    pub full_sockets: u64,
    /// The round trip at the end of the step.
    pub rtt_ms: f64,
}

/// What was measured of one way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WayFacts {
    /// "to" or "from" the other host.
    pub way: String,
    /// Whether content could travel over UDP.
    pub has_udp: bool,
    /// Content bits a second, as a transfer reaches them.
    pub bps: f64,
    /// The same without UDP, if that could be measured.
    pub tcp_bps: Option<f64>,
    /// The smallest round trip.
    pub rtt_min_ms: f64,
    /// What was seen at each rate over UDP alone, the slowest first.
    pub steps: Vec<PathStep>,
    /// What the path has done to the packets of the tests; the worst of all counts.
    pub signs: PathSigns,
}

/// What was measured of a path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathFacts {
    /// The way there, and the way back.
    pub ways: Vec<WayFacts>,
    /// How much the far end's clock is ahead of this host's.
    pub clock_offset_ms: Option<f64>,
    /// By how much that may be wrong.
    pub clock_doubt_ms: f64,
    /// Whether the far end sees another address than this host has.
    pub is_translated: Option<bool>,
}

/// Something that was found on a path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathFinding {
    /// The ID under which it is explained.
    pub id: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// "to" or "from" the other host; empty if it is about both.
    pub way: String,
    /// What is so.
    pub what: String,
    /// What to do.
    pub advice: &'static str,
}

impl PathFinding {
    /// The finding in one line, as those of checks are.
    pub fn line(&self) -> String {
        let way = if self.way.is_empty() { String::new() } else { format!("the way {}: ", self.way) };
        format!("{}  {way}{}; {}  [{}]", self.weight.name(), self.what, self.advice, self.id)
    }
}

/// A kind of finding, explained.
pub struct PathSign {
    /// The ID.
    pub id: &'static str,
    /// What is found.
    pub title: &'static str,
    /// How it is found, and what it means.
    pub meaning: &'static str,
    /// What to do.
    pub advice: &'static str,
    /// Who says so.
    pub source: (&'static str, &'static str),
}

const FIREWALL: &str = "open the UDP port in the firewalls of both hosts and between them";
const POLICER: &str =
    "ask the network's people to raise or lift the rule; until then --rate just below it loses nothing";
const BLACK_HOLE: &str = "let routers and firewalls pass ICMP 'fragmentation needed' and 'packet too big', or set the MTU that fits; net.ipv4.tcp_mtu_probing=1 helps TCP";
const BLOAT: &str = "others on the path feel it: --policy low keeps the queue short; the router needs a shorter queue, or CoDel";
const LOSS: &str = "look for bad cables, optics or duplex on the way; Farhaul holds its rate, TCP does not";
const SOCKETS: &str =
    "raise net.core.rmem_max there (farhaul doctor at the receiver), or use more flows: --flows 4";
const REORDER: &str =
    "packets of one flow take several ways: hash per flow and not per packet in bonds and routers";
const ECN: &str = "a device on the way throws packets away that may be marked: Farhaul goes on without marks; have it mended";
const MARKED: &str =
    "nothing to do: the router marks packets in place of dropping them, and Farhaul heeds the marks";
const NAT: &str =
    "keep the UDP timeout of the device above 30 s; how long it is, is not measured, as that takes minutes";
const SKEW: &str =
    "synchronise both clocks (chrony, systemd-timesyncd): times of files and logs are compared across hosts";
const ASYMMETRY: &str =
    "compare the two directions with the network's people: another route, a rule, or a busy link";
const SHAPED: &str = "ask for the rule on UDP; Farhaul uses TCP beside it by itself";

/// Every kind of finding.
pub const PATH_SIGNS: &[PathSign] = &[
    PathSign {
        id: "udp-blocked",
        title: "UDP does not get through",
        meaning: "A test that may use UDP has gone over TCP or SSH, as no datagram was answered: a firewall drops UDP, at one of the \
                  hosts or between them. TCP slows down with distance and loss.",
        advice: FIREWALL,
        source: ("RFC 8085", "https://www.rfc-editor.org/rfc/rfc8085"),
    },
    PathSign {
        id: "policer",
        title: "A policer drops what is beyond a rate",
        meaning: "Below a rate nothing is lost, above it just the excess is, and the round trip does not grow: nothing waits in a queue. \
                  A rule of a router, a provider or a cloud holds the traffic to that rate. A bottleneck with next to no queue looks \
                  the same.",
        advice: POLICER,
        source: (
            "Flach et al., An Internet-Wide Analysis of Traffic Policing",
            "https://research.google/pubs/pub45411/",
        ),
    },
    PathSign {
        id: "udp-shaped",
        title: "UDP is slower than TCP",
        meaning: "The same content is more than half as fast again without UDP. Some networks hold UDP to a rate of its own.",
        advice: SHAPED,
        source: ("RFC 8085", "https://www.rfc-editor.org/rfc/rfc8085"),
    },
    PathSign {
        id: "mtu-black-hole",
        title: "Large packets vanish without a word",
        meaning: "Packets of the size that the system believes in do not arrive, smaller ones do, and no router has said so. Farhaul finds \
                  the size that works by itself; TCP hangs there as soon as it sends full packets.",
        advice: BLACK_HOLE,
        source: ("RFC 8899", "https://www.rfc-editor.org/rfc/rfc8899"),
    },
    PathSign {
        id: "bufferbloat",
        title: "A queue on the way holds packets for long",
        meaning: "When more is sent than the path carries, the round trip grows by more than 50 ms. Everybody on the path waits that long. \
                  The queue may be longer than the test has filled it. The test does not slow down, so a queue under CoDel can show it, too.",
        advice: BLOAT,
        source: ("RFC 8289", "https://www.rfc-editor.org/rfc/rfc8289"),
    },
    PathSign {
        id: "path-loss",
        title: "Packets get lost at every rate",
        meaning: "Packets get lost even at a tenth of what the path carries, so that no queue can be the cause: a bad cable, a dirty optic, \
                  radio, or a device that is broken.",
        advice: LOSS,
        source: (
            "ESnet, fasterdata",
            "https://fasterdata.es.net/network-tuning/tcp-issues-explained/packet-loss/",
        ),
    },
    PathSign {
        id: "full-sockets",
        title: "The receiver's socket buffers are full",
        meaning: "Packets have crossed the path and were dropped at the receiving host, as the buffer of its socket was full.",
        advice: SOCKETS,
        source: ("quic-go, UDP buffer sizes", "https://github.com/quic-go/quic-go/wiki/UDP-Buffer-Sizes"),
    },
    PathSign {
        id: "reordering",
        title: "Packets overtake each other",
        meaning: "Packets came after they had been taken for lost. Farhaul waits longer then; TCP slows down.",
        advice: REORDER,
        source: ("RFC 4737", "https://www.rfc-editor.org/rfc/rfc4737"),
    },
    PathSign {
        id: "ecn-dropped",
        title: "Packets that may be marked are dropped",
        meaning: "Datagrams with the ECN bits set were not answered, and those without were.",
        advice: ECN,
        source: ("RFC 3168", "https://www.rfc-editor.org/rfc/rfc3168"),
    },
    PathSign {
        id: "ecn-marks",
        title: "A router marks packets",
        meaning: "Packets have come with the mark of congestion (ECN): the bottleneck has active queue management.",
        advice: MARKED,
        source: ("RFC 3168", "https://www.rfc-editor.org/rfc/rfc3168"),
    },
    PathSign {
        id: "nat",
        title: "A device on the way translates addresses",
        meaning: "The far end sees another address than this host has. Such a device forgets a silent UDP flow after a time.",
        advice: NAT,
        source: ("RFC 4787, section 4.3", "https://www.rfc-editor.org/rfc/rfc4787#section-4.3"),
    },
    PathSign {
        id: "asymmetry",
        title: "The two ways differ much",
        meaning: "One way carries less than half of what the other one does.",
        advice: ASYMMETRY,
        source: ("ESnet, fasterdata", "https://fasterdata.es.net/performance-testing/"),
    },
    PathSign {
        id: "clock-skew",
        title: "The clocks of the hosts differ",
        meaning: "The far end's clock is off by more than a second, as far as the round trip lets that be known.",
        advice: SKEW,
        source: ("chrony, frequently asked questions", "https://chrony-project.org/faq.html"),
    },
];

/// Returns the explanation of a kind of finding.
pub fn find(id: &str) -> Option<&'static PathSign> {
    PATH_SIGNS.iter().find(|sign| sign.id == id)
}

/// A loss that is nobody's fault.
const LOSS_NONE: f64 = 0.005;
/// From this loss on packets are dropped by rule or for lack of room.
const LOSS_MUCH: f64 = 0.03;
/// The round trip may grow by this much under load.
const BLOAT_MS: f64 = 50.0;
/// A round trip that is longer by this much than at lower rates has a queue in it.
const QUEUE_MS: f64 = 5.0;
/// Fewer packets of a step say nothing.
const PACKETS_MIN: u64 = 50;
/// A step in which less than this share of its rate was sent is limited by the sender.
const REACHED: f64 = 0.6;
/// What surrounds the payload of a datagram, at most: the headers of IPv6 and UDP.
const HEADERS: u16 = 48;
/// The payloads that the transport tries beyond its first one; see [the wire](docs/reference/wire.md).
const TRIED: [u16; 4] = [1452, 1472, 8952, 8972];

/// Says what the figures mean, the heaviest first.
pub fn judge(facts: &PathFacts) -> Vec<PathFinding> {
    let mut found: Vec<PathFinding> = facts.ways.iter().flat_map(way).collect();
    found.extend(asymmetry(&facts.ways));
    if facts.is_translated == Some(true) {
        found.push(of("nat", Weight::Note, "", "the far end sees another address than this host has".into()));
    }
    if let Some(ahead) = facts.clock_offset_ms.filter(|ahead| ahead.abs() - facts.clock_doubt_ms > 1000.0) {
        let (seconds, word) = (ahead.abs() / 1e3, if ahead > 0.0 { "ahead" } else { "behind" });
        let what = format!("the far end's clock is {seconds:.1} s {word}");
        found.push(of("clock-skew", Weight::Warn, "", what));
    }
    found.sort_by_key(|finding| finding.weight);
    found
}

fn of(id: &'static str, weight: Weight, way: &str, what: String) -> PathFinding {
    let advice = find(id).map_or("", |sign| sign.advice);
    PathFinding { id, weight, way: way.into(), what, advice }
}

fn way(facts: &WayFacts) -> Vec<PathFinding> {
    let mut found = Vec::new();
    let mut add = |id, weight, what: String| found.push(of(id, weight, &facts.way, what));
    if !facts.has_udp {
        add(
            "udp-blocked",
            Weight::Fail,
            "UDP does not get through, so TCP or SSH carries the content".into(),
        );
        return found;
    }
    let seen: Vec<&PathStep> = facts.steps.iter().filter(|step| step.packets_sent >= PACKETS_MIN).collect();
    if let Some((limit, rate)) = black_hole(facts) {
        add(
            "mtu-black-hole",
            Weight::Fail,
            format!(
                "packets of more than {rate} bytes vanish without a word, and the system believes in {limit}"
            ),
        );
    }
    let full: Vec<&&PathStep> = seen.iter().filter(|step| is_of_sockets(step)).collect();
    if let Some(step) = full.first() {
        let what = format!(
            "at {} the receiver's sockets had no room for {} packets, {:.1} % of what was sent",
            rate(step.sent_bps),
            step.full_sockets,
            100.0 * step.full_sockets as f64 / step.packets_sent as f64
        );
        add("full-sockets", Weight::Fail, what);
    }
    let of_path: Vec<&PathStep> = seen.iter().filter(|step| !is_of_sockets(step)).copied().collect();
    let base = of_path.first().map_or(0.0, |step| step.lost);
    if base > LOSS_NONE {
        add(
            "path-loss",
            Weight::Fail,
            format!("{:.1} % of the packets get lost even at {}", base * 100.0, of_first(&of_path)),
        );
    }
    let longest = seen.iter().map(|step| step.rtt_ms).fold(0.0, f64::max);
    if longest - facts.rtt_min_ms > BLOAT_MS {
        add(
            "bufferbloat",
            Weight::Warn,
            format!(
                "the round trip grows from {:.0} ms to at least {longest:.0} ms when more is sent than the path carries",
                facts.rtt_min_ms
            ),
        );
    }
    if let Some(limit) = policed(facts, &of_path, base) {
        let tcp = facts.tcp_bps.filter(|tcp| *tcp > 1.3 * limit);
        let beside = tcp.map_or(String::new(), |tcp| format!(", while TCP reaches {}", rate(tcp)));
        add(
            "policer",
            Weight::Fail,
            format!("packets beyond {} are dropped and never queued{beside}", rate(limit)),
        );
    } else if let Some(tcp) = facts.tcp_bps.filter(|tcp| *tcp > 1.5 * facts.bps && facts.bps > 0.0) {
        add("udp-shaped", Weight::Warn, format!("UDP reaches {}, and TCP {}", rate(facts.bps), rate(tcp)));
    }
    if facts.signs.packets_late >= PACKETS_MIN
        && facts.signs.packets_late as f64 > 0.001 * facts.signs.packets_sent as f64
    {
        add(
            "reordering",
            Weight::Warn,
            format!(
                "{} of {} packets came after later ones, by up to {:.1} ms",
                facts.signs.packets_late, facts.signs.packets_sent, facts.signs.reordering_ms
            ),
        );
    }
    if facts.signs.are_marks_thrown_away {
        add("ecn-dropped", Weight::Warn, "packets that may be marked (ECN) do not get through".into());
    } else if facts.signs.packets_marked > 0 {
        add("ecn-marks", Weight::Note, format!("a router has marked {} packets", facts.signs.packets_marked));
    }
    found
}

fn of_first(steps: &[&PathStep]) -> String {
    steps.first().map_or_else(String::new, |step| rate(step.sent_bps))
}

/// Whether the receiving host has lost most of what a step has lost.
fn is_of_sockets(step: &PathStep) -> bool {
    let lost = step.lost * step.packets_sent as f64;
    step.lost > LOSS_NONE && step.full_sockets as f64 > lost / 2.0
}

/// The rate that a policer lets through: from some rate on packets get lost, although none of them waits in a queue.
fn policed(facts: &WayFacts, steps: &[&PathStep], base: f64) -> Option<f64> {
    let sent = |step: &&&PathStep| step.sent_bps >= REACHED * step.asked_bps as f64;
    let is_lossy = |step: &PathStep| step.lost > base + LOSS_MUCH;
    let first = steps.iter().position(|step| is_lossy(step))?;
    let (below, above) = steps.split_at(first);
    let reached: Vec<&&PathStep> = above.iter().filter(sent).collect();
    let longest_below = below.iter().map(|step| step.rtt_ms).fold(facts.rtt_min_ms, f64::max);
    let is_queued = |step: &PathStep| step.rtt_ms > longest_below + QUEUE_MS;
    // A rate without loss must be known, and at least two beyond it, of which each loses its excess.
    if below.is_empty() || reached.len() < 2 || above.iter().any(|step| is_queued(step)) {
        return None;
    }
    let through: Vec<f64> = reached.iter().map(|step| step.sent_bps * (1.0 - step.lost)).collect();
    let (least, most) =
        through.iter().fold((f64::MAX, 0.0f64), |(least, most), bps| (least.min(*bps), most.max(*bps)));
    (least > 0.75 * most).then_some(most)
}

/// The size that the system believes in, and the one that gets through, if they do not fit.
fn black_hole(facts: &WayFacts) -> Option<(u16, u16)> {
    let believed = facts.signs.system_mtu?;
    let tried = TRIED.iter().copied().filter(|payload| payload + HEADERS <= believed).max()?;
    let is_known = facts.signs.datagram_max > 0 && facts.signs.packets_sent >= 1000;
    // `cipher none` takes some bytes of each payload.
    (is_known && facts.signs.datagram_max + 16 < tried).then_some((believed, facts.signs.datagram_max + 28))
}

fn asymmetry(ways: &[WayFacts]) -> Option<PathFinding> {
    let [one, other] = ways else { return None };
    let (slow, fast) = if one.bps < other.bps { (one, other) } else { (other, one) };
    (slow.bps > 0.0 && fast.bps > 2.0 * slow.bps && slow.has_udp == fast.has_udp).then(|| {
        let what = format!("it carries {}, and the other way {}", rate(slow.bps), rate(fast.bps));
        of("asymmetry", Weight::Warn, &slow.way, what)
    })
}

fn rate(bps: f64) -> String {
    match bps {
        1e9.. => format!("{:.1} Gbit/s", bps / 1e9),
        _ => format!("{:.0} Mbit/s", bps / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way whose link carries 100 Mbit/s at 10 ms; each step is (rate in Mbit/s, loss, round trip).
    fn way_of(steps: &[(u64, f64, f64)]) -> WayFacts {
        let step = |&(mbit, lost, rtt_ms): &(u64, f64, f64)| PathStep {
            asked_bps: mbit * 1_000_000,
            sent_bps: mbit as f64 * 1e6,
            packets_sent: 10_000,
            lost,
            full_sockets: 0,
            rtt_ms,
        };
        WayFacts {
            way: "to".into(),
            has_udp: true,
            bps: 95e6,
            tcp_bps: Some(90e6),
            rtt_min_ms: 10.0,
            steps: steps.iter().map(step).collect(),
            signs: PathSigns {
                packets_sent: 50_000,
                datagram_max: 1472,
                system_mtu: Some(1500),
                ..PathSigns::default()
            },
        }
    }

    fn healthy() -> WayFacts {
        way_of(&[(10, 0.0, 10.2), (60, 0.0, 10.5), (100, 0.001, 15.0), (120, 0.15, 35.0), (150, 0.3, 35.0)])
    }

    /// A healthy way with other signs.
    fn signed(set: impl FnOnce(&mut PathSigns)) -> WayFacts {
        let mut facts = healthy();
        set(&mut facts.signs);
        facts
    }

    fn ids(facts: WayFacts) -> Vec<&'static str> {
        judge(&PathFacts { ways: vec![facts], ..PathFacts::default() }).iter().map(|found| found.id).collect()
    }

    #[test]
    fn a_link_with_a_short_queue_is_all_right() {
        assert_eq!(ids(healthy()), Vec::<&str>::new());
    }

    #[test]
    fn a_policer_is_a_loss_of_the_excess_without_a_queue() {
        let steps = [(10, 0.0, 10.1), (60, 0.0, 10.1), (100, 0.4, 10.2), (120, 0.5, 10.2), (150, 0.6, 10.2)];
        let found = judge(&PathFacts { ways: vec![way_of(&steps)], ..PathFacts::default() });
        assert_eq!(found[0].id, "policer");
        assert!(
            found[0].what.contains("beyond 60 Mbit/s") && found[0].what.contains("TCP reaches 90"),
            "{found:?}"
        );
        // Near misses: a queue, too few rates beyond it, and a share that does not depend on the rate.
        let queued = [(10, 0.0, 10.1), (60, 0.0, 10.1), (100, 0.4, 40.0), (120, 0.5, 40.0), (150, 0.6, 40.0)];
        let once = [(10, 0.0, 10.1), (60, 0.0, 10.1), (100, 0.0, 10.2), (120, 0.0, 10.2), (150, 0.2, 10.2)];
        let uneven =
            [(10, 0.0, 10.1), (60, 0.05, 10.1), (100, 0.05, 10.2), (120, 0.05, 10.2), (150, 0.05, 10.2)];
        let short =
            [(10, 0.0, 20.2), (60, 0.0, 21.4), (100, 0.04, 37.0), (120, 0.28, 39.3), (150, 0.4, 39.0)];
        for steps in [queued, once, uneven, short] {
            assert!(!ids(way_of(&steps)).contains(&"policer"), "{steps:?}");
        }
    }

    #[test]
    fn loss_at_every_rate_is_no_policer() {
        let steps =
            [(10, 0.02, 10.1), (60, 0.02, 10.1), (100, 0.021, 12.0), (120, 0.17, 35.0), (150, 0.3, 35.0)];
        assert_eq!(ids(way_of(&steps)), ["path-loss"]);
        assert_eq!(ids(way_of(&[(10, 0.004, 10.1), (60, 0.004, 10.1)])), Vec::<&str>::new());
    }

    #[test]
    fn a_long_queue_is_bufferbloat() {
        let steps = [(10, 0.0, 10.1), (100, 0.0, 12.0), (120, 0.0, 150.0), (150, 0.1, 400.0)];
        assert_eq!(ids(way_of(&steps)), ["bufferbloat"]);
        assert_eq!(ids(way_of(&[(10, 0.0, 10.1), (120, 0.0, 55.0)])), Vec::<&str>::new());
    }

    #[test]
    fn large_packets_that_vanish_are_a_black_hole_unless_the_system_knows() {
        let with = |datagram_max, system_mtu| {
            signed(|signs| (signs.datagram_max, signs.system_mtu) = (datagram_max, Some(system_mtu)))
        };
        assert_eq!(ids(with(1200, 1500)), ["mtu-black-hole"]);
        assert_eq!(ids(with(1472, 9000)), ["mtu-black-hole"]);
        for (datagram_max, system_mtu) in [(1452, 1500), (1472, 1500), (8952, 9000), (1200, 1400), (0, 1500)]
        {
            assert_eq!(
                ids(with(datagram_max, system_mtu)),
                Vec::<&str>::new(),
                "{datagram_max} {system_mtu}"
            );
        }
        let mut few = with(1200, 1500);
        few.signs.packets_sent = 10;
        assert_eq!(ids(few), Vec::<&str>::new());
    }

    #[test]
    fn what_the_receiver_drops_is_not_blamed_on_the_path() {
        let mut facts = way_of(&[(10, 0.0, 10.1), (60, 0.1, 10.1), (100, 0.4, 10.2), (120, 0.5, 10.2)]);
        for step in &mut facts.steps[1..] {
            step.full_sockets = (step.lost * step.packets_sent as f64) as u64;
        }
        assert_eq!(ids(facts.clone()), ["full-sockets"]);
        facts.steps[1..].iter_mut().for_each(|step| step.full_sockets /= 3);
        assert!(!ids(facts).contains(&"full-sockets"));
    }

    #[test]
    fn other_signs_need_their_facts() {
        assert_eq!(ids(WayFacts { has_udp: false, ..healthy() }), ["udp-blocked"]);
        assert_eq!(ids(WayFacts { tcp_bps: Some(190e6), ..healthy() }), ["udp-shaped"]);
        assert_eq!(ids(WayFacts { tcp_bps: Some(120e6), ..healthy() }), Vec::<&str>::new());
        assert_eq!(ids(signed(|signs| signs.packets_late = 600)), ["reordering"]);
        assert_eq!(ids(signed(|signs| signs.packets_late = 20)), Vec::<&str>::new());
        assert_eq!(ids(signed(|signs| signs.are_marks_thrown_away = true)), ["ecn-dropped"]);
        assert_eq!(ids(signed(|signs| signs.packets_marked = 9)), ["ecn-marks"]);
        let both = |from_bps| {
            let from = WayFacts { way: "from".into(), bps: from_bps, tcp_bps: None, ..healthy() };
            judge(&PathFacts { ways: vec![healthy(), from], ..PathFacts::default() })
        };
        assert_eq!(both(60e6).len(), 0);
        assert!(both(40e6)[0].line().starts_with("warn  the way from: it carries 40 Mbit/s, and"));
    }

    #[test]
    fn clocks_and_addresses_are_compared() {
        let at = |offset, doubt, is_translated| PathFacts {
            clock_offset_ms: Some(offset),
            clock_doubt_ms: doubt,
            is_translated: Some(is_translated),
            ..PathFacts::default()
        };
        assert!(judge(&at(900.0, 1.0, false)).is_empty() && judge(&at(-1500.0, 600.0, false)).is_empty());
        assert!(judge(&at(-5000.0, 10.0, false))[0].what.contains("5.0 s behind"));
        assert_eq!(judge(&at(0.0, 1.0, true))[0].id, "nat");
    }

    #[test]
    fn every_finding_is_explained_with_a_source() {
        for sign in PATH_SIGNS {
            assert!(
                !sign.meaning.is_empty() && !sign.advice.is_empty() && sign.source.1.starts_with("https://")
            );
            assert!(
                crate::check::find(sign.id).is_none() && crate::limit::find(sign.id).is_none(),
                "{}",
                sign.id
            );
        }
    }
}
