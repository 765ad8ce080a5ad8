//! What a link does to packets, and the words for it that users, scripts and the control socket use.
//!
//! Always true: one function reads all values ([`LinkSettings::set`]), so the command line, a timeline and
//! `farhaul lab set` understand the same words; a value that is out of range changes nothing.
//!
//! A value may be given for each direction, A to B first: `rate=1g/100m`, `loss=1%/0%`. A single value is for
//! both.

use std::fmt;

use farhaul_motion::{DelayMotion, RateMotion};
use serde::{Serialize, Serializer};

use crate::Error;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// Both directions of one link.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct LinkSettings {
    /// From A to B.
    pub forward: DirectionProfile,
    /// From B to A.
    pub backward: DirectionProfile,
}

/// The settings of one direction. The default is a wire: nothing is lost, delayed or limited.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DirectionProfile {
    /// The rate of the bottleneck in bits a second, including the headers of IP and above; `None` is
    /// unlimited.
    pub rate_bps: Option<u64>,
    /// How that rate moves by itself.
    #[serde(serialize_with = "as_word")]
    pub rate_motion: RateMotion,
    /// The queue before the bottleneck.
    pub queue: QueueSettings,
    /// Controlled delay (RFC 8289) in the queue.
    pub codel: Option<CodelSettings>,
    /// A policer in front of the queue.
    pub policer: Option<Policer>,
    /// Packets with ECN are marked once they have waited this long; with CoDel, they are marked instead of
    /// being dropped.
    pub ecn_ns: Option<u64>,
    /// The propagation delay, behind the bottleneck.
    pub delay_ns: u64,
    /// How the propagation delay varies.
    #[serde(serialize_with = "as_word")]
    pub jitter: Jitter,
    /// Share of packets lost at random, 0 to 1.
    pub loss: f64,
    /// Where random loss happens.
    pub loss_place: LossPlace,
    /// Losses in bursts, behind the bottleneck.
    pub burst_loss: Option<BurstLoss>,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets in which a bit is wrong.
    pub corrupt: f64,
    /// Packets that are delayed, so that later ones overtake them.
    pub reorder: Option<Reordering>,
    /// The longest IP packet that fits, in bytes; `None` has no limit.
    pub path_mtu: Option<u32>,
    /// Whether the sender of a longer packet is told.
    pub too_big: OversizePolicy,
}

/// How the delay varies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// Each packet draws a delay that differs from the propagation delay by up to `ns`, either way.
    Around {
        /// The largest difference, either way.
        ns: u64,
        /// Whether packets may overtake each other.
        order: JitterOrder,
    },
    /// The delay exceeds propagation by a process that the simulator has as well.
    Moves(DelayMotion),
}

/// The room before the bottleneck. Packets that do not fit are dropped at the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueSettings {
    /// As long as the round trip, at least 10 and at most 100 ms.
    Auto,
    /// This many bytes of IP packets.
    Bytes(u64),
    /// As many bytes as leave in this many nanoseconds at the bottleneck's rate.
    Nanos(u64),
}

/// The two times of RFC 8289.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CodelSettings {
    /// The acceptable standing queue (target).
    pub target_ns: u64,
    /// How long the queue may exceed the target (interval).
    pub interval_ns: u64,
}

/// A token bucket without a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Policer {
    /// Tokens a second, in bits.
    pub rate_bps: u64,
    /// Depth of the bucket.
    pub burst_bytes: u64,
}

/// Gilbert's model: a good state without losses and a bad one in which all is lost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BurstLoss {
    /// Share of packets lost in the long run.
    pub share: f64,
    /// The mean number of packets in a burst.
    pub burst_len: f64,
}

/// Late packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reordering {
    /// Share of packets that are late.
    pub share: f64,
    /// By how much they are late.
    pub late_ns: u64,
}

/// Where random loss happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossPlace {
    /// Behind the bottleneck: lost packets have used its rate.
    Behind,
    /// In front of the bottleneck: lost packets never reach the queue.
    Front,
}

/// Whether jitter keeps the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JitterOrder {
    /// A late packet holds up those behind it.
    Kept,
    /// Each packet comes at its own time.
    Free,
}

/// Whether anything but a drop happens to a packet longer than the path's MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OversizePolicy {
    /// The sender gets the ICMP message.
    Answered,
    /// The sender is not told.
    Silent,
}

impl Default for DirectionProfile {
    fn default() -> DirectionProfile {
        DirectionProfile {
            rate_bps: None,
            rate_motion: RateMotion::Still,
            queue: QueueSettings::Auto,
            codel: None,
            policer: None,
            ecn_ns: None,
            delay_ns: 0,
            jitter: Jitter::Around { ns: 0, order: JitterOrder::Kept },
            loss: 0.0,
            loss_place: LossPlace::Behind,
            burst_loss: None,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: None,
            path_mtu: None,
            too_big: OversizePolicy::Answered,
        }
    }
}

/// All names that [`LinkSettings::set`] knows, with the forms of their values.
pub const NAMES: &[(&str, &str)] = &[
    ("rtt", "100ms"),
    ("delay", "50ms"),
    ("rate", "1g or unlimited"),
    ("rate-motion", "walk:0.1:100, cellular or still (or trace:FILE: when packets leave)"),
    ("queue", "auto, 100ms or 500k (bytes)"),
    ("codel", "on, off or 5ms:100ms"),
    ("policer", "off or 100m:64k"),
    ("ecn", "off or 1ms"),
    ("jitter", "2ms, 2ms:reorder, white:5, white:5:reorder, walk:5:10, steps:17:15000:100 or bursts:20"),
    ("loss", "1%"),
    ("loss-place", "behind or front"),
    ("burst-loss", "off or 1%:20"),
    ("duplicate", "0.1%"),
    ("corrupt", "0.1%"),
    ("reorder", "off or 1%:2ms"),
    ("path-mtu", "off or 1400"),
    ("too-big", "answered or silent"),
];

impl LinkSettings {
    /// Changes one setting: for both directions or, with `there/back`, for each.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let (there, back) = value.split_once('/').unwrap_or((value, value));
        let mut changed = self.clone();
        let done = match name {
            "rtt" if value.contains('/') => None,
            "rtt" => time(value).map(|rtt| {
                changed.forward.delay_ns = rtt / 2;
                changed.backward.delay_ns = rtt - rtt / 2;
            }),
            "rate-motion" => {
                let (there, back) = rate_motions(value)?;
                (changed.forward.rate_motion, changed.backward.rate_motion) = (there, back);
                Some(())
            }
            _ => changed.forward.set(name, there.trim()).and(changed.backward.set(name, back.trim())),
        };
        let Some((_, form)) = NAMES.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
            return Err(Error::Usage(format!("a link has no '{name}'; it has {}", names.join(", "))));
        };
        if done.is_none() {
            return Err(Error::Usage(format!("'{value}' is not a value for {name}; write {form}")));
        }
        *self = changed;
        Ok(())
    }

    /// Reads `rtt=100ms,loss=1%`.
    pub fn set_all(&mut self, text: &str) -> Result<(), Error> {
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| Error::Usage(format!("'{part}' is not a setting; write rtt=100ms,loss=1%")))?;
            self.set(name.trim(), value.trim())?;
        }
        Ok(())
    }

    /// Checks settings that depend on each other.
    pub fn judged(self) -> Result<LinkSettings, Error> {
        for profile in [&self.forward, &self.backward] {
            if profile.rate_motion != RateMotion::Still && profile.whole_bps().is_none() {
                let motion = &profile.rate_motion;
                return Err(Error::Usage(format!(
                    "a rate that moves as {motion} needs a rate: give one with --rate"
                )));
            }
        }
        Ok(self)
    }

    /// The base round trip.
    pub fn rtt_ns(&self) -> u64 {
        self.forward.delay_ns + self.backward.delay_ns
    }
}

impl DirectionProfile {
    /// The rate of the bottleneck, or the largest one if it moves. For a file of delivery times without a
    /// rate, it is their mean.
    pub fn whole_bps(&self) -> Option<u64> {
        match &self.rate_motion {
            RateMotion::Trace(trace) => self.rate_bps.or(Some(trace.rate_bps())),
            _ => self.rate_bps,
        }
    }

    /// Sets one value; `None` if the name is unknown or the value does not fit it.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "rate" => self.rate_bps = if value == "unlimited" { None } else { Some(bits(value)?) },
            "queue" => self.queue = queue(value)?,
            "codel" => self.codel = codel(value)?,
            "policer" => self.policer = unless_off(value, policer)?,
            "ecn" => self.ecn_ns = unless_off(value, time)?,
            "delay" => self.delay_ns = time(value)?,
            "jitter" => self.jitter = jitter(value)?,
            "loss" => self.loss = share(value)?,
            "loss-place" => {
                self.loss_place =
                    choice(value, &[("behind", LossPlace::Behind), ("front", LossPlace::Front)])?
            }
            "burst-loss" => self.burst_loss = unless_off(value, burst_loss)?,
            "duplicate" => self.duplicate = share(value)?,
            "corrupt" => self.corrupt = share(value)?,
            "reorder" => self.reorder = unless_off(value, reorder)?,
            "path-mtu" => {
                self.path_mtu =
                    unless_off(value, |text| text.parse().ok().filter(|mtu| (576..=65535).contains(mtu)))?
            }
            "too-big" => {
                self.too_big = choice(
                    value,
                    &[("answered", OversizePolicy::Answered), ("silent", OversizePolicy::Silent)],
                )?
            }
            _ => return None,
        }
        Some(())
    }
}

fn unless_off<T>(value: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if value == "off" { Some(None) } else { read(value).map(Some) }
}

fn choice<T: Copy>(value: &str, choices: &[(&str, T)]) -> Option<T> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice)
}

fn queue(value: &str) -> Option<QueueSettings> {
    match value {
        "auto" => Some(QueueSettings::Auto),
        _ if value.ends_with('s') => time(value).map(QueueSettings::Nanos),
        _ => {
            scaled(value, 1000).filter(|bytes| *bytes >= 1.0).map(|bytes| QueueSettings::Bytes(bytes as u64))
        }
    }
}

fn codel(value: &str) -> Option<Option<CodelSettings>> {
    match value {
        "off" => Some(None),
        "on" => Some(Some(CodelSettings { target_ns: 5 * MS, interval_ns: 100 * MS })),
        _ => {
            let (target, interval) = value.split_once(':')?;
            let codel = CodelSettings { target_ns: time(target)?, interval_ns: time(interval)? };
            (codel.target_ns > 0 && codel.interval_ns > 0).then_some(Some(codel))
        }
    }
}

fn policer(value: &str) -> Option<Policer> {
    let (rate, burst) = value.split_once(':')?;
    let burst_bytes = scaled(burst, 1000).filter(|bytes| *bytes >= 1.0)? as u64;
    Some(Policer { rate_bps: bits(rate)?, burst_bytes })
}

fn jitter(value: &str) -> Option<Jitter> {
    let (most, order) = match value.strip_suffix(":reorder") {
        Some(most) => (most, JitterOrder::Free),
        None => (value, JitterOrder::Kept),
    };
    match time(most) {
        Some(ns) => Some(Jitter::Around { ns, order }),
        None => value.parse().ok().map(Jitter::Moves),
    }
}

/// The motion of the rate in both directions. A file's name may have slashes, so `there/back` is only tried
/// if the whole value is not a motion.
fn rate_motions(value: &str) -> Result<(RateMotion, RateMotion), Error> {
    let whole: Result<RateMotion, _> = value.parse();
    match whole {
        Ok(both) => Ok((both.clone(), both)),
        Err(error) => value
            .match_indices('/')
            .find_map(|(at, _)| {
                let back = value[at + 1..].trim().parse().ok()?;
                Some((value[..at].trim().parse().ok()?, back))
            })
            .ok_or_else(|| Error::Usage(error.to_string())),
    }
}

/// Serializes a value in the form in which users write it; a file of delivery times by its name.
fn as_word<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Jitter::Around { ns, order } => {
                let reorder = if *order == JitterOrder::Free { ":reorder" } else { "" };
                write!(f, "{}ms{reorder}", *ns as f64 / MS as f64)
            }
            Jitter::Moves(motion) => motion.fmt(f),
        }
    }
}

fn burst_loss(value: &str) -> Option<BurstLoss> {
    let (part, len) = value.split_once(':')?;
    let burst = BurstLoss { share: share(part)?, burst_len: len.parse().ok()? };
    (burst.burst_len >= 1.0 && burst.burst_len < 1e9 && burst.share < 1.0).then_some(burst)
}

fn reorder(value: &str) -> Option<Reordering> {
    let (part, late) = value.split_once(':').unwrap_or((value, "2ms"));
    Some(Reordering { share: share(part)?, late_ns: time(late)? })
}

/// Parses `1%`, `0.1%` or `0.001`.
fn share(value: &str) -> Option<f64> {
    let share = match value.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(value)?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// Parses `100ms`, `1.5s`, `20us` into nanoseconds, at most an hour.
pub(crate) fn time(value: &str) -> Option<u64> {
    let units = [("ms", 1e6), ("us", 1e3), ("ns", 1.0), ("s", 1e9)];
    let (unit, scale) = units.iter().find(|(unit, _)| value.ends_with(unit))?;
    let nanos = number(&value[..value.len() - unit.len()])? * scale;
    (nanos <= 3600e9).then_some(nanos as u64)
}

/// Parses `1g`, `200m`, `2Gbit/s` into bits a second, from 1 kbit/s to 1 Tbit/s.
fn bits(value: &str) -> Option<u64> {
    let text = ["bit/s", "bps", "bit"].iter().find_map(|end| value.strip_suffix(end)).unwrap_or(value);
    scaled(text, 1000).filter(|bits| (1e3..=1e12).contains(bits)).map(|bits| bits as u64)
}

fn scaled(value: &str, base: u32) -> Option<f64> {
    let (text, power) = match value.chars().next_back()?.to_ascii_lowercase() {
        'k' => (&value[..value.len() - 1], 1),
        'm' => (&value[..value.len() - 1], 2),
        'g' => (&value[..value.len() - 1], 3),
        't' => (&value[..value.len() - 1], 4),
        _ => (value, 0),
    };
    let scaled = number(text)? * f64::from(base).powi(power);
    (scaled < 1e15).then_some(scaled)
}

/// Parses a plain decimal number, without sign, exponent or name.
fn number(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> LinkSettings {
        let mut settings = LinkSettings::default();
        settings.set_all(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        settings
    }

    #[test]
    fn one_value_is_for_both_directions_and_two_are_for_each() {
        let made = settings("rtt=101ms, loss=1%/0, rate=1g/100M");
        assert_eq!((made.forward.delay_ns, made.backward.delay_ns), (50_500_000, 50_500_000));
        assert_eq!((made.forward.loss, made.backward.loss), (0.01, 0.0));
        assert_eq!((made.forward.rate_bps, made.backward.rate_bps), (Some(1_000_000_000), Some(100_000_000)));
        assert_eq!(made.rtt_ns(), 101 * MS);
    }

    #[test]
    fn every_form_in_the_list_of_names_is_understood() {
        for (name, forms) in NAMES {
            // The part in brackets is an explanation.
            let forms = forms.split(" (").next().unwrap();
            for form in forms.split(',').flat_map(|part| part.split(" or ")) {
                let mut made = LinkSettings::default();
                assert!(made.set(name, form.trim()).is_ok(), "{name}={form}");
            }
        }
    }

    #[test]
    fn what_is_out_of_range_or_unknown_changes_nothing() {
        for text in [
            "loss=101%",
            "loss=-1%",
            "loss=x",
            "loss=",
            "rate=0",
            "rate=2t",
            "rate=1e9",
            "rtt=5",
            "rtt=1ms/2ms",
            "rtt=2h",
            "jitter=1ms:x",
            "jitter=walk:5",
            "jitter=walk:5:10:reorder",
            "rate-motion=walk:2:100",
            "rate-motion=trace:/no/such/file",
            "rate-motion=still/x",
            "burst-loss=1%",
            "burst-loss=100%:5",
            "path-mtu=100",
            "queue=0",
            "speed=1g",
            "loss",
            "codel=0ms:0ms",
            "rate=1g/x",
            "loss-place=under",
            "rate=é",
            "loss=nan",
        ] {
            let mut made = settings("rtt=10ms");
            assert!(made.set_all(text).is_err(), "{text}");
            assert_eq!(made, settings("rtt=10ms"), "{text}");
        }
    }

    #[test]
    fn values_arrive_in_their_units() {
        let made =
            settings("queue=500k,codel=on,policer=100m:64k,ecn=1ms,jitter=2ms:reorder,burst-loss=1%:20")
                .forward;
        assert_eq!(made.queue, QueueSettings::Bytes(500_000));
        assert_eq!(made.codel, Some(CodelSettings { target_ns: 5 * MS, interval_ns: 100 * MS }));
        assert_eq!(made.policer, Some(Policer { rate_bps: 100_000_000, burst_bytes: 64_000 }));
        assert_eq!(
            (made.ecn_ns, made.jitter),
            (Some(MS), Jitter::Around { ns: 2 * MS, order: JitterOrder::Free })
        );
        assert_eq!(made.burst_loss, Some(BurstLoss { share: 0.01, burst_len: 20.0 }));
        let made = settings("queue=1.5s,reorder=1%,path-mtu=1400,too-big=silent,ecn=off").forward;
        assert_eq!(made.queue, QueueSettings::Nanos(1500 * MS));
        assert_eq!(made.reorder, Some(Reordering { share: 0.01, late_ns: 2 * MS }));
        assert_eq!((made.path_mtu, made.too_big, made.ecn_ns), (Some(1400), OversizePolicy::Silent, None));
    }

    #[test]
    fn what_moves_is_written_as_in_the_simulator_and_read_back_as_it_was() {
        for word in ["2ms", "0.5ms:reorder", "white:5", "white:5:reorder", "walk:5:10", "bursts:20"] {
            let made = settings(&format!("jitter={word}/walk:5ms:10ms"));
            assert_eq!(made.forward.jitter.to_string(), word);
            assert_eq!(
                made.backward.jitter,
                Jitter::Moves(DelayMotion::Walk { most_ms: 5.0, every_ms: 10.0 })
            );
            let json = serde_json::to_value(&made).unwrap();
            assert_eq!(
                (&json["forward"]["jitter"], &json["forward"]["rate_motion"]),
                (&word.into(), &"still".into())
            );
        }
    }

    #[test]
    fn a_rate_moves_in_one_direction_or_both_and_by_a_file_whose_name_has_slashes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times");
        std::fs::write(&path, "0\n1\n").unwrap();
        let trace = format!("trace:{}", path.display());
        for (text, there, back) in [
            ("walk:0.1:100", "walk:0.1:100", "walk:0.1:100"),
            ("cellular/still", "cellular", "still"),
            (&trace, &*trace, &*trace),
            (&format!("{trace}/still"), &trace, "still"),
            (&format!("still/{trace}"), "still", &trace),
            (&format!("{trace}/{trace}"), &trace, &trace),
        ] {
            let made = settings(&format!("rate-motion={text}"));
            let words = [&made.forward, &made.backward].map(|profile| profile.rate_motion.to_string());
            assert_eq!(words, [there, back], "{text}");
        }
        // 12,000 bits each millisecond.
        assert_eq!(settings(&format!("rate-motion={trace}")).forward.whole_bps(), Some(12_000_000));
        let mut made = LinkSettings::default();
        let error = made.set("rate-motion", "trace:/no/such/file/still").unwrap_err().to_string();
        assert!(error.contains("/no/such/file/still: No such file"), "{error}");
    }

    #[test]
    fn a_rate_that_moves_needs_one() {
        assert!(settings("rate-motion=cellular").judged().is_err());
        assert!(settings("rate-motion=still/cellular,rate=unlimited/1g").judged().is_ok());
    }
}
