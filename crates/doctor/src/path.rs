//! Judges what tests of a path have measured, and explains what they can find.
//!
//! Always true: the judgement is a pure function of the figures. What can be this host's own doing (a full socket buffer,
//! a rate that this host did not reach) is not blamed on the path.

use farhaul_words::PathSigns;
use serde::Serialize;

use crate::check::Weight;
use crate::hops::SeveralWays;

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

/// What the sender saw between two looks, about a tenth of a second apart, while more and more was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PathMoment {
    /// The number of packets that were sent.
    pub packets_sent: u64,
    /// The number of packets that were found lost.
    pub packets_lost: u64,
    /// The number of packets that the network has marked.
    pub packets_marked: u64,
    /// The round trip at the end.
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
    /// The same test in its moments, one after the other.
    pub moments: Vec<PathMoment>,
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
    /// Whether routers choose among several ways by ports.
    pub several_ways: Option<SeveralWays>,
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
    /// Its rows in the project's list of checks; empty if it has none.
    pub row: &'static str,
    /// What is expected of mending it.
    pub gain: &'static str,
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
const MANAGED: &str = "nothing to do: whoever slows down at the first loss or mark keeps the queue short";
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
const SEVERAL: &str = "more flows use more of the ways: --flows 4; one flow has one way";
const SKEW: &str =
    "synchronise both clocks (chrony, systemd-timesyncd): times of files and logs are compared across hosts";
const ASYMMETRY: &str =
    "compare the two directions with the network's people: another route, a rule, or a busy link";
const SHAPED: &str = "ask for the rule on UDP; Farhaul uses TCP beside it by itself";

/// Every kind of finding.
pub const PATH_SIGNS: &[PathSign] = &[
    PathSign {
        id: "udp-blocked",
        row: "N22, P3",
        gain: "on short paths little; on long or lossy ones several times what TCP carries",
        title: "UDP does not get through",
        meaning: "A test that may use UDP has gone over TCP or SSH, as no datagram was answered: a firewall drops UDP, at one of the \
                  hosts or between them. TCP slows down with distance and loss.",
        advice: FIREWALL,
        source: ("RFC 9308, section 2", "https://www.rfc-editor.org/rfc/rfc9308#section-2"),
    },
    PathSign {
        id: "policer",
        row: "P2",
        gain: "what the path carries without the rule; with --rate the same rate without loss",
        title: "A policer drops what is beyond a rate",
        meaning: "Below a rate nothing is lost, above it just the excess is, and the round trip does not grow: nothing waits in a queue. \
                  A rule of a router, a provider or a cloud holds the traffic to that rate. A bottleneck with next to no queue looks \
                  the same.",
        advice: POLICER,
        source: (
            "Flach et al., An Internet-Wide Analysis of Traffic Policing",
            "https://usc-nsl.github.io/policing-detection/",
        ),
    },
    PathSign {
        id: "udp-shaped",
        row: "P3",
        gain: "next to nothing for Farhaul, which uses TCP as well",
        title: "UDP is slower than TCP",
        meaning: "The same content is more than half as fast again without UDP. Some networks hold UDP to a rate of its own.",
        advice: SHAPED,
        source: ("RFC 8085", "https://www.rfc-editor.org/rfc/rfc8085"),
    },
    PathSign {
        id: "mtu-black-hole",
        row: "E3",
        gain: "TCP and ssh work at all; Farhaul gets larger packets, up to a fifth more for each core",
        title: "Large packets vanish without a word",
        meaning: "Packets of the size that the system believes in do not arrive, smaller ones do, and no router has said so. Farhaul finds \
                  the size that works by itself; TCP hangs there as soon as it sends full packets.",
        advice: BLACK_HOLE,
        source: ("RFC 8899", "https://www.rfc-editor.org/rfc/rfc8899"),
    },
    PathSign {
        id: "bufferbloat",
        row: "P1",
        gain: "no more for this transfer; the others on the path wait less",
        title: "A queue on the way holds packets for long",
        meaning: "When more is sent than the path carries, the round trip grows by more than 50 ms. Everybody on the path waits that long. \
                  The queue may be longer than the test has filled it. Nothing is lost while the queue grows, so that nobody is told to slow down.",
        advice: BLOAT,
        source: ("RFC 8289", "https://www.rfc-editor.org/rfc/rfc8289"),
    },
    PathSign {
        id: "managed-queue",
        row: "P1",
        gain: "nothing: it is as it should be",
        title: "A router keeps its queue short",
        meaning: "The round trip grows under a load that does not slow down, but packets are dropped or marked as soon as it begins to: \
                  CoDel, PIE or the like manage the queue.",
        advice: MANAGED,
        source: ("RFC 8289", "https://www.rfc-editor.org/rfc/rfc8289"),
    },
    PathSign {
        id: "path-loss",
        row: "P2",
        gain: "next to nothing for Farhaul below 10 % of loss; several times as much for TCP and ssh",
        title: "Packets get lost at every rate",
        meaning: "Packets get lost even at a tenth of what the path carries, so that no queue can be the cause: a bad cable, a dirty optic, \
                  radio, or a device that is broken.",
        advice: LOSS,
        source: (
            "ESnet, fasterdata",
            "https://fasterdata.es.net/performance-testing/troubleshooting/network-performance-expectations/",
        ),
    },
    PathSign {
        id: "full-sockets",
        row: "N16",
        gain: "as much as was lost, and up to the rate of the path",
        title: "The receiver's socket buffers are full",
        meaning: "Packets have crossed the path and were dropped at the receiving host, as the buffer of its socket was full.",
        advice: SOCKETS,
        source: ("quic-go, UDP buffer sizes", "https://github.com/quic-go/quic-go/wiki/UDP-Buffer-Sizes"),
    },
    PathSign {
        id: "reordering",
        row: "P4",
        gain: "next to nothing for Farhaul; up to several times as much for TCP and ssh",
        title: "Packets overtake each other",
        meaning: "More than one packet in a thousand arrived after one that was sent later. Farhaul waits for such packets; TCP may \
                  take them for lost and slow down.",
        advice: REORDER,
        source: ("RFC 4737", "https://www.rfc-editor.org/rfc/rfc4737"),
    },
    PathSign {
        id: "ecn-dropped",
        row: "",
        gain: "marks in place of losses where a router gives them",
        title: "Packets that may be marked are dropped",
        meaning: "Datagrams with the ECN bits set were not answered, and those without were.",
        advice: ECN,
        source: ("RFC 3168", "https://www.rfc-editor.org/rfc/rfc3168"),
    },
    PathSign {
        id: "ecn-marks",
        row: "",
        gain: "nothing: it is as it should be",
        title: "A router marks packets",
        meaning: "Packets have come with the mark of congestion (ECN): the bottleneck has active queue management.",
        advice: MARKED,
        source: ("RFC 3168", "https://www.rfc-editor.org/rfc/rfc3168"),
    },
    PathSign {
        id: "nat",
        row: "",
        gain: "no session that is forgotten after a pause",
        title: "A device on the way translates addresses",
        meaning: "The far end sees another address than this host has. Such a device forgets a silent UDP flow after a time.",
        advice: NAT,
        source: ("RFC 4787, section 4.3", "https://www.rfc-editor.org/rfc/rfc4787#section-4.3"),
    },
    PathSign {
        id: "several-paths",
        row: "P10",
        gain: "up to as many times as there are ways, if one of them is full",
        title: "Routers choose among several ways (ECMP)",
        meaning: "Small datagrams with limits of hops were sent from eight ports, and at one distance other routers have answered for other \
                  ports, the same again for each. A hash of addresses and ports decides which way a flow takes. Routers that say \
                  nothing are not seen.",
        advice: SEVERAL,
        source: ("RFC 9198", "https://www.rfc-editor.org/rfc/rfc9198"),
    },
    PathSign {
        id: "asymmetry",
        row: "P5",
        gain: "up to the rate of the other way",
        title: "The two ways differ much",
        meaning: "One way carries less than half of what the other one does.",
        advice: ASYMMETRY,
        source: ("RFC 3449", "https://www.rfc-editor.org/rfc/rfc3449"),
    },
    PathSign {
        id: "clock-skew",
        row: "P7",
        gain: "no more speed; times of files and logs that can be compared",
        title: "The clocks of the hosts differ",
        meaning: "The far end's clock is off by more than a second, as far as the round trip lets that be known.",
        advice: SKEW,
        source: ("chrony, frequently asked questions", "https://chrony-project.org/faq.html"),
    },
];

/// Returns the explanation of a kind of finding, by its ID or a row.
pub fn find(id: &str) -> Option<&'static PathSign> {
    let is_row =
        |sign: &&PathSign| sign.row.split(", ").any(|row| !row.is_empty() && row.eq_ignore_ascii_case(id));
    PATH_SIGNS.iter().find(|sign| sign.id == id).or_else(|| PATH_SIGNS.iter().find(is_row))
}

/// What is expected of mending a finding.
pub fn gain(id: &str) -> &'static str {
    find(id).map_or("", |sign| sign.gain)
}

/// A loss that is nobody's fault.
const LOSS_NONE: f64 = 0.005;
/// From this loss on packets are dropped by rule or for lack of room.
const LOSS_MUCH: f64 = 0.03;
/// The round trip may grow by this much under load.
const BLOAT_MS: f64 = 50.0;
/// A round trip that is longer by this much than at lower rates has a queue in it.
const QUEUE_MS: f64 = 5.0;
/// A queue that begins to grow: from here on a router that manages it drops packets.
const GROWING_MS: f64 = 10.0;
/// A queue that is this share of the longest one or less is far from full.
const GROWING_SHARE: f64 = 0.6;
/// In so many moments a growing queue must have lost packets, and in one of so many: CoDel drops ten a second and more, and
/// a pause of a host some packets once.
const MANAGED_MOMENTS: usize = 3;
const MANAGED_SHARE: usize = 3;
/// TCP that is this much faster than UDP is so by somebody's rule.
const SHAPED_RATIO: f64 = 1.5;
/// A larger share of late packets is more than chance.
const REORDERED: f64 = 0.001;
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
    if let Some(SeveralWays { hop, ways }) = facts.several_ways {
        let what =
            format!("{ways} ways were seen behind router {hop}, and the port decides which one a flow takes");
        found.push(of("several-paths", Weight::Note, "to", what));
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
    // A sender that has paused has waited itself.
    let loaded = seen.iter().filter(|step| has_reached(step));
    let longest = loaded.map(|step| step.rtt_ms).fold(0.0, f64::max);
    if longest - facts.rtt_min_ms > BLOAT_MS {
        let grows =
            format!("the round trip grows from {:.0} ms to at least {longest:.0} ms", facts.rtt_min_ms);
        if is_managed(facts, longest - facts.rtt_min_ms, base) {
            let what = format!(
                "{grows} under a load that does not slow down, and packets are dropped or marked early"
            );
            add("managed-queue", Weight::Note, what);
        } else {
            add("bufferbloat", Weight::Warn, format!("{grows} when more is sent than the path carries"));
        }
    }
    if let Some(limit) = policed(facts, &of_path, base) {
        let tcp = facts.tcp_bps.filter(|tcp| *tcp > 1.3 * limit);
        let beside = tcp.map_or(String::new(), |tcp| format!(", while TCP reaches {}", rate(tcp)));
        add(
            "policer",
            Weight::Fail,
            format!("packets beyond {} are dropped and never queued{beside}", rate(limit)),
        );
    } else if let Some(tcp) =
        facts.tcp_bps.filter(|tcp| facts.bps > 0.0 && *tcp > SHAPED_RATIO * udp_bps(facts))
    {
        add(
            "udp-shaped",
            Weight::Warn,
            format!("UDP reaches {}, and TCP {}", rate(udp_bps(facts)), rate(tcp)),
        );
    }
    // A far end that does not count those that were overtaken still has those that came too late.
    let late = facts.signs.packets_overtaken.max(facts.signs.packets_late);
    if late >= PACKETS_MIN && late as f64 > REORDERED * facts.signs.packets_sent as f64 {
        let what = format!("{late} of {} packets came after later ones", facts.signs.packets_sent);
        add("reordering", Weight::Warn, what);
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

/// Whether packets were dropped or marked while the queue was growing and far from full, more than the path loses anyway.
fn is_managed(facts: &WayFacts, longest_ms: f64, base: f64) -> bool {
    let is_growing = |moment: &PathMoment| {
        let queue = moment.rtt_ms - facts.rtt_min_ms;
        queue > GROWING_MS && queue <= GROWING_SHARE * longest_ms
    };
    // A full queue that a pause of the sender empties loses packets before the pause.
    let growing: Vec<&PathMoment> = facts
        .moments
        .windows(2)
        .filter(|pair| {
            is_growing(&pair[1]) && pair[0].rtt_ms - facts.rtt_min_ms <= GROWING_SHARE * longest_ms
        })
        .map(|pair| &pair[1])
        .collect();
    let is_told = |moment: &&&PathMoment| {
        let expected = base * moment.packets_sent as f64;
        let lost = moment.packets_lost as f64 > 2.0 * expected + 3.0 * expected.sqrt();
        lost || moment.packets_marked > 0
    };
    let told = growing.iter().filter(is_told).count();
    told >= MANAGED_MOMENTS && told * MANAGED_SHARE >= growing.len()
}

/// Whether the sender has come near the rate that it was to send.
fn has_reached(step: &PathStep) -> bool {
    step.sent_bps >= REACHED * step.asked_bps as f64
}

/// The most that UDP has carried in any test.
fn udp_bps(facts: &WayFacts) -> f64 {
    facts.steps.iter().map(|step| step.sent_bps * (1.0 - step.lost)).fold(facts.bps, f64::max)
}

/// Whether the receiving host has lost most of what a step has lost.
fn is_of_sockets(step: &PathStep) -> bool {
    let lost = step.lost * step.packets_sent as f64;
    step.lost > LOSS_NONE && step.full_sockets as f64 > lost / 2.0
}

/// The rate that a policer lets through: from some rate on packets get lost, although none of them waits in a queue.
fn policed(facts: &WayFacts, steps: &[&PathStep], base: f64) -> Option<f64> {
    let is_lossy = |step: &PathStep| step.lost > base + LOSS_MUCH;
    let first = steps.iter().position(|step| is_lossy(step))?;
    let (below, above) = steps.split_at(first);
    let reached: Vec<&&PathStep> = above.iter().filter(|step| has_reached(step)).collect();
    // The middle one: a pause of a host makes one of them longer.
    let mut below_ms: Vec<f64> = below.iter().map(|step| step.rtt_ms).collect();
    below_ms.sort_by(f64::total_cmp);
    let usual_ms =
        below_ms.get(below_ms.len().saturating_sub(1) / 2).map_or(0.0, |ms| ms.max(facts.rtt_min_ms));
    let is_queued = |step: &PathStep| step.rtt_ms > usual_ms + QUEUE_MS;
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
    let best = |way: &WayFacts| udp_bps(way).max(way.tcp_bps.unwrap_or(0.0));
    let (slow, fast) = if best(one) < best(other) { (one, other) } else { (other, one) };
    let (least, most) = (best(slow), best(fast));
    (least > 0.0 && most > 2.0 * least && slow.has_udp == fast.has_udp).then(|| {
        let what = format!("it carries {}, and the other way {}", rate(least), rate(most));
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
            moments: Vec::new(),
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
        // One of the rates was held up by a pause of this host.
        let paused = [
            (10, 0.0, 20.2),
            (60, 0.0, 164.0),
            (85, 0.0, 21.4),
            (100, 0.04, 37.0),
            (120, 0.28, 39.3),
            (150, 0.4, 39.0),
        ];
        assert!(!ids(way_of(&paused)).contains(&"policer"));
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

    /// A queue that grows to 400 ms: (lost, marked, round trip) of each moment.
    fn growing(moments: &[(u64, u64, f64)]) -> WayFacts {
        let moment = |&(packets_lost, packets_marked, rtt_ms): &(u64, u64, f64)| PathMoment {
            packets_sent: 1000,
            packets_lost,
            packets_marked,
            rtt_ms,
        };
        let mut facts = way_of(&[(10, 0.0, 10.1), (100, 0.0, 12.0), (120, 0.01, 150.0), (150, 0.1, 400.0)]);
        facts.moments = moments.iter().map(moment).collect();
        facts
    }

    #[test]
    fn a_queue_that_drops_packets_while_it_is_short_is_managed() {
        let of_codel =
            [(0, 0, 11.0), (0, 0, 20.0), (1, 0, 40.0), (2, 0, 70.0), (4, 0, 130.0), (90, 0, 390.0)];
        assert_eq!(ids(growing(&of_codel)), ["managed-queue"]);
        let of_marks = of_codel.map(|(lost, _, rtt_ms)| (0, lost, rtt_ms));
        assert!(ids(growing(&of_marks)).contains(&"managed-queue"));
        // Near misses: losses only when it is full, all at once, and as many as are lost at any rate.
        let full =
            [(0, 0, 20.0), (0, 0, 70.0), (90, 0, 380.0), (90, 0, 150.0), (90, 0, 400.0), (90, 0, 200.0)];
        let once =
            [(0, 0, 20.0), (40, 0, 70.0), (0, 0, 150.0), (0, 0, 200.0), (90, 0, 400.0), (90, 0, 400.0)];
        for moments in [full, once] {
            assert_eq!(ids(growing(&moments)), ["bufferbloat"], "{moments:?}");
        }
        let mut lossy =
            growing(&[(20, 0, 20.0), (24, 0, 70.0), (17, 0, 150.0), (21, 0, 200.0), (110, 0, 400.0)]);
        lossy.steps.iter_mut().for_each(|step| step.lost += 0.02);
        assert_eq!(ids(lossy), ["path-loss", "bufferbloat"]);
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
        // UDP was slow in one test, and as fast as TCP in another one.
        assert_eq!(ids(WayFacts { bps: 60e6, ..healthy() }), Vec::<&str>::new());
        assert_eq!(ids(WayFacts { tcp_bps: Some(120e6), ..healthy() }), Vec::<&str>::new());
        assert_eq!(ids(signed(|signs| signs.packets_late = 600)), ["reordering"]);
        assert_eq!(ids(signed(|signs| signs.packets_late = 20)), Vec::<&str>::new());
        // Two in a hundred came late, and the sender has waited long enough for almost all of them.
        assert_eq!(
            ids(signed(|signs| (signs.packets_overtaken, signs.packets_late) = (1000, 7))),
            ["reordering"]
        );
        assert_eq!(ids(signed(|signs| signs.packets_overtaken = 40)), Vec::<&str>::new());
        assert_eq!(ids(signed(|signs| signs.are_marks_thrown_away = true)), ["ecn-dropped"]);
        assert_eq!(ids(signed(|signs| signs.packets_marked = 9)), ["ecn-marks"]);
        let both = |from_bps| {
            let steps = vec![PathStep { asked_bps: 0, sent_bps: from_bps, ..PathStep::default() }];
            let from = WayFacts { way: "from".into(), bps: from_bps, tcp_bps: None, steps, ..healthy() };
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
        let several_ways = Some(SeveralWays { hop: 2, ways: 3 });
        let found = judge(&PathFacts { several_ways, ..PathFacts::default() });
        assert!(found[0].id == "several-paths" && found[0].what.starts_with("3 ways"));
    }

    #[test]
    fn every_finding_is_explained_with_a_source() {
        for sign in PATH_SIGNS {
            assert!(
                !sign.meaning.is_empty()
                    && !sign.advice.is_empty()
                    && sign.gain.len() > 10
                    && sign.source.1.starts_with("https://")
            );
            assert!(
                crate::check::find(sign.id).is_none() && crate::limit::find(sign.id).is_none(),
                "{}",
                sign.id
            );
        }
    }
}
