//! Converts the IP bytes that a session may move into the rate of its pacers, and back.
//!
//! A pacer counts the UDP payload of packets with content (repairs included) and of the session's own
//! messages. On the wire each datagram also has IP and UDP headers, and some packets are not paced: feedback,
//! probes, and the packets of the other direction. So the pace is the part without the unpaced packets and
//! without the headers of the paced ones.
//!
//! | what | how it is known |
//! | --- | --- |
//! | datagrams sent and received, with all that is in them | exactly: counted where they pass, but for first ones at a daemon's door |
//! | their headers | exactly: 28 bytes with IPv4, 48 with IPv6; options and tunnels are not seen |
//! | TCP: bytes and segments both ways, those sent again | exactly, as the kernel counts (Linux 4.19); headers are taken for 52 or 72 bytes |
//! | the channel, and TCP of an older kernel | an estimate: [`STREAM_OVERHEAD`] |
//! | handshakes before the session | not counted: a few thousand bytes |
//! | headers and unpaced packets of the second to come | an estimate: those of the last one or two |
//! | content that was lost before it came here | counted by the pace of its sender, not where it never arrives |
//!
//! A pacer that is woken late cannot make up for that, and the path loses some packets. So a session that
//! stays a little behind its pace gets a higher one, by at most [`BEHIND_MAX`], until it is no longer behind.
//!
//! Always true: the pace is at most the part with this addition, and at least the smallest rate.

use std::time::{Duration, Instant};

use crate::options::RATE_MIN_BPS;
use crate::setup::Transport;

/// The IP bytes for each byte of a stream whose segments are not known: headers of 52 bytes for 1448, and
/// half as many segments in the other direction.
const STREAM_OVERHEAD: f64 = 1.0 + 1.5 * 52.0 / 1448.0;
/// The IP bytes for each paced byte before anything is measured: headers of 28 bytes for 1200.
const FIRST: f64 = 1.0 + 28.0 / 1200.0;
/// How often the traffic is measured, and the weight of a new measurement.
const EVERY: Duration = Duration::from_millis(250);
const SMOOTHING: f64 = 0.3;
/// Fewer bytes than this say nothing of the headers.
const BYTES_MIN: u64 = 20_000;
/// The largest share of a part that unpaced packets take.
const UNPACED_MAX: f64 = 0.5;
/// A session that moves less than this share of its pace is held back by something else. For one that moves
/// more: how fast its pace is raised, and by how much at most.
const BEHIND_LEAST: f64 = 0.7;
const BEHIND_SMOOTHING: f64 = 0.4;
const BEHIND_MAX: f64 = 1.10;
/// The headers of a datagram, and of a TCP segment with time stamps; for IPv4 and IPv6.
const UDP_HEADERS: [u64; 2] = [20 + 8, 40 + 8];
const TCP_HEADERS: [u64; 2] = [20 + 32, 40 + 32];

/// The traffic of flows so far, both ways together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrafficCounts {
    /// All IP bytes.
    pub ip: u64,
    /// The bytes that a pacer here or at the far end has counted, and the IP bytes of the same packets.
    pub paced: u64,
    pub paced_ip: u64,
    /// IP bytes received besides granted content: headers, messages, and duplicates.
    pub beside_content: u64,
}

impl std::ops::Add for TrafficCounts {
    type Output = TrafficCounts;

    fn add(self, other: TrafficCounts) -> TrafficCounts {
        TrafficCounts {
            ip: self.ip + other.ip,
            paced: self.paced + other.paced,
            paced_ip: self.paced_ip + other.paced_ip,
            beside_content: self.beside_content + other.beside_content,
        }
    }
}

/// The bytes of a datagram's headers.
pub(crate) fn of_datagram(is_ipv6: bool) -> u64 {
    UDP_HEADERS[usize::from(is_ipv6)]
}

/// The bytes of a TCP segment's headers.
pub(crate) fn of_segment(is_ipv6: bool) -> u64 {
    TCP_HEADERS[usize::from(is_ipv6)]
}

/// The IP bytes of a stream whose segments are not known.
pub(crate) fn of_stream(bytes: u64) -> u64 {
    (bytes as f64 * STREAM_OVERHEAD) as u64
}

/// How much of a session's part headers and unpaced packets take.
#[derive(Debug)]
pub(crate) struct HeaderShare {
    /// True if nothing goes over a network.
    is_local: bool,
    /// The IP bytes for each paced byte.
    each: f64,
    /// The bits a second of unpaced packets.
    unpaced_bps: f64,
    /// The factor by which the pace is raised, because less than it arrives.
    behind: f64,
    looked: Option<(Instant, TrafficCounts)>,
}

impl HeaderShare {
    pub(crate) fn new(transport: Transport) -> HeaderShare {
        let is_local = transport == Transport::Local;
        HeaderShare {
            is_local,
            each: if is_local { 1.0 } else { FIRST },
            unpaced_bps: 0.0,
            behind: 1.0,
            looked: None,
        }
    }

    /// The session has moved `moved` in all. `steady_bps` is the pace of its pacers, both ways together, if
    /// it has not changed since this last returned `true`. Returns whether the pace should be set anew.
    pub(crate) fn look(&mut self, moved: TrafficCounts, steady_bps: Option<u64>, now: Instant) -> bool {
        let Some((at, before)) = self.looked else {
            self.looked = Some((now, moved));
            return false;
        };
        let time = now.saturating_duration_since(at);
        if time < EVERY || self.is_local {
            return false;
        }
        self.looked = Some((now, moved));
        let paced = moved.paced.saturating_sub(before.paced);
        let paced_ip = moved.paced_ip.saturating_sub(before.paced_ip);
        let ip = moved.ip.saturating_sub(before.ip);
        if paced >= BYTES_MIN {
            let each = (paced_ip as f64 / paced as f64).clamp(1.0, 2.0);
            self.each += SMOOTHING * (each - self.each);
        }
        if let Some(set_bps) = steady_bps {
            let brought = 8.0 * paced as f64 / (time.as_secs_f64() * set_bps.max(1) as f64);
            let aim = if brought > BEHIND_LEAST { (1.0 / brought).clamp(1.0, BEHIND_MAX) } else { 1.0 };
            let smoothing = if aim < self.behind { 1.0 } else { BEHIND_SMOOTHING };
            self.behind += smoothing * (aim - self.behind);
        }
        let unpaced_bps = 8.0 * ip.saturating_sub(paced_ip) as f64 / time.as_secs_f64();
        self.unpaced_bps += SMOOTHING * (unpaced_bps - self.unpaced_bps);
        true
    }

    /// The pace for a part of this many bits of IP a second.
    pub(crate) fn pace(&self, part_bps: u64) -> u64 {
        if self.is_local {
            return part_bps;
        }
        let part = part_bps as f64;
        let pace = (part - self.unpaced_bps.min(UNPACED_MAX * part)) / self.each * self.behind;
        (pace as u64).max(RATE_MIN_BPS)
    }

    /// The bits of IP a second for this pace.
    pub(crate) fn of_pace(&self, bps: u64) -> u64 {
        if self.is_local {
            return bps;
        }
        (bps as f64 * self.each + self.unpaced_bps) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_and_unpaced_packets_are_taken_off() {
        let begin = Instant::now();
        let mut headers = HeaderShare::new(Transport::Udp);
        // 1000 datagrams a second of 1472 bytes, and 10,000 bytes of feedback.
        let mut moved = TrafficCounts::default();
        for step in 0..40 {
            headers.look(moved, None, begin + step * EVERY);
            moved.paced += 250 * 1472;
            moved.paced_ip += 250 * 1500;
            moved.ip += 250 * 1500 + 2500;
        }
        let part = 8 * (1000 * 1500 + 10_000);
        let is_near = |value: u64, to: u64| value.abs_diff(to) < to / 1000;
        assert!(is_near(headers.pace(part), 8 * 1000 * 1472), "{}", headers.pace(part));
        assert!(is_near(headers.of_pace(8 * 1000 * 1472), part));
        // However many packets are unpaced, half of the part is left for the paced ones.
        assert!(headers.pace(100_000) > 49_000 * 1472 / 1500);
        assert_eq!(headers.pace(0), RATE_MIN_BPS);
    }

    #[test]
    fn who_is_somewhat_behind_its_pace_has_a_higher_one_until_it_is_not() {
        let (begin, part) = (Instant::now(), 10_000_000);
        let mut headers = HeaderShare::new(Transport::Udp);
        let mut moved = TrafficCounts::default();
        let (mut rates, mut sets) = (Vec::new(), Vec::new());
        for step in 0..40u32 {
            let set = headers.pace(part);
            headers.look(moved, Some(set), begin + step * EVERY);
            let set = headers.pace(part);
            // The pacer wakes late for 5 s, then something else holds the session back.
            let brought = if step < 20 {
                0.95
            } else if step < 30 {
                1.0
            } else {
                0.4
            };
            let paced = (set as f64 * brought / 32.0) as u64;
            moved = moved + TrafficCounts { paced, paced_ip: paced, ip: paced, beside_content: 0 };
            rates.push(32.0 * paced as f64 / part as f64);
            sets.push(set as f64 / part as f64);
        }
        assert!((rates[19] - 1.0).abs() < 0.01, "{rates:?}");
        // For one look it exceeds its part by a twentieth.
        assert!(rates[20..24].iter().sum::<f64>() < 4.06 && (rates[29] - 1.0).abs() < 0.01, "{rates:?}");
        assert!((sets[39] - 1.0).abs() < 0.01, "{sets:?}");
    }

    #[test]
    fn before_anything_is_known_small_datagrams_are_assumed() {
        assert!(HeaderShare::new(Transport::Udp).pace(12_280_000).abs_diff(12_000_000) <= 1);
        assert_eq!(HeaderShare::new(Transport::Local).pace(12_280_000), 12_280_000);
    }

    proptest! {
        #[test]
        fn the_pace_is_no_more_than_the_part_and_what_it_is_behind(
            part in RATE_MIN_BPS..u64::MAX / 4,
            steps in proptest::collection::vec((0u64..1_000_000, 0u64..50_000, 0u64..1_000_000), 1..20),
        ) {
            let begin = Instant::now();
            let mut headers = HeaderShare::new(Transport::Udp);
            let mut moved = TrafficCounts::default();
            for (step, (paced, more, unpaced)) in steps.into_iter().enumerate() {
                headers.look(moved, Some(8_000_000), begin + step as u32 * EVERY);
                moved = moved + TrafficCounts { paced, paced_ip: paced + more, ip: paced + more + unpaced, beside_content: 0 };
                prop_assert!(headers.pace(part) as f64 <= part as f64 * BEHIND_MAX);
            }
        }
    }
}
