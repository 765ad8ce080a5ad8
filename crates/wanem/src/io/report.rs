//! What a direction has done, how well the emulator kept up, and whether a figure that was measured meanwhile
//! is valid.

use serde::Serialize;

use crate::model::DirectionCounters;

/// The buckets of a lateness: its logarithm to base 2 in microseconds; the last one takes the rest.
const BUCKETS: usize = 24;
/// A packet that is later than this is late: half of the error that a round trip may have.
const LATE_NS: u64 = 1_000_000;
/// A larger share of late packets spoils a figure.
const LATE_SHARE_MAX: f64 = 0.01;
/// A worker that runs for a larger share of the time cannot keep up.
const CPU_SHARE_MAX: f64 = 0.97;

/// Sums since the start of a direction. The worker publishes a copy now and then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DirectionTotals {
    /// When the copy was published.
    pub at_ns: u64,
    pub counters: DirectionCounters,
    pub queue_ns: u64,
    pub delivered_packets: u64,
    pub delivered_bytes: u64,
    /// Packets with no destination: multicast, unknown addresses. They do not count as the link's.
    pub unroutable: u64,
    pub faults: EmulatorFaults,
    pub lateness: Lateness,
    pub cpu_ns: u64,
}

/// Faults of the emulator, counted in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EmulatorFaults {
    /// Packets that a host sent while the device's queue was full, because the emulator did not read in time.
    pub device_full: u64,
    /// Packets for which no memory was left.
    pub memory_full: u64,
    /// Packets that the kernel refused on the far side.
    pub refused: u64,
}

/// How late packets were handed over, as a histogram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lateness {
    packets: [u64; BUCKETS],
    late: u64,
    sum_ns: u64,
}

impl Lateness {
    pub(crate) fn add(&mut self, ns: u64, packets: u64) {
        let bucket = (u64::BITS - (ns / 1_000).leading_zeros()) as usize;
        self.packets[bucket.min(BUCKETS - 1)] += packets;
        self.late += if ns > LATE_NS { packets } else { 0 };
        self.sum_ns += ns * packets;
    }

    fn since(&self, before: &Lateness) -> Lateness {
        let mut packets = self.packets;
        packets.iter_mut().zip(before.packets).for_each(|(now, before)| *now -= before);
        Lateness { packets, late: self.late - before.late, sum_ns: self.sum_ns - before.sum_ns }
    }

    fn count(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// The upper bound of the bucket that holds this share of the packets.
    fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.packets.iter().position(|packets| {
            seen += packets;
            seen >= wanted && seen > 0
        });
        bucket.map_or(0, |bucket| 1 << bucket)
    }
}

/// One direction during one interval, or since the start.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// Length of the interval.
    pub seconds: f64,
    /// The model's counts; `queue_max_ns` is since the start.
    #[serde(flatten)]
    pub counters: DirectionCounters,
    /// The bits a second that were handed over.
    pub rate_bps: f64,
    /// Wait before the bottleneck at the end of the interval.
    pub queue_ns: u64,
    /// Packets to addresses that are not a host of this link.
    pub unroutable: u64,
    /// What the emulator did wrong.
    pub faults: EmulatorFaults,
    /// Mean lateness of the packets handed over.
    pub late_mean_us: f64,
    /// Half of the packets were at most this late (a power of two).
    pub late_p50_us: u64,
    /// 99 of 100 packets were at most this late.
    pub late_p99_us: u64,
    /// All packets were at most this late.
    pub late_max_us: u64,
    /// The number of packets that were over 1 ms late, so that intervals can be added up.
    pub late_packets: u64,
    /// Share of a core that the worker used.
    pub cpu_share: f64,
    /// Why the emulator itself was the bottleneck; empty if it was not. A figure that was measured meanwhile
    /// is not valid.
    pub overloaded: Vec<&'static str>,
}

impl DirectionReport {
    pub(crate) fn between(before: &DirectionTotals, now: &DirectionTotals) -> DirectionReport {
        let seconds = (now.at_ns.saturating_sub(before.at_ns)) as f64 / 1e9;
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let lateness = now.lateness.since(&before.lateness);
        let count = lateness.count().max(1) as f64;
        let faults = EmulatorFaults {
            device_full: now.faults.device_full - before.faults.device_full,
            memory_full: now.faults.memory_full - before.faults.memory_full,
            refused: now.faults.refused - before.faults.refused,
        };
        let cpu_share = per_second((now.cpu_ns - before.cpu_ns) as f64 / 1e9);
        let reasons = [
            (faults.device_full > 0, "a device's queue ran over"),
            (faults.memory_full > 0, "no memory was left for packets under way"),
            (faults.refused > 0, "the kernel refused packets"),
            (
                lateness.late as f64 / count > LATE_SHARE_MAX,
                "more than 1 % of the packets were over 1 ms late",
            ),
            (cpu_share > CPU_SHARE_MAX, "the worker had no processor time left"),
        ];
        DirectionReport {
            seconds,
            counters: now.counters.since(&before.counters),
            rate_bps: per_second(8.0 * (now.delivered_bytes - before.delivered_bytes) as f64),
            queue_ns: now.queue_ns,
            unroutable: now.unroutable - before.unroutable,
            faults,
            late_mean_us: lateness.sum_ns as f64 / 1e3 / count,
            late_p50_us: lateness.quantile_us(0.5),
            late_p99_us: lateness.quantile_us(0.99),
            late_max_us: lateness.quantile_us(1.0),
            late_packets: lateness.late,
            cpu_share,
            overloaded: reasons.iter().filter(|(is_so, _)| *is_so).map(|(_, reason)| *reason).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_what_came_between() {
        let mut before = DirectionTotals { at_ns: 1_000_000_000, ..DirectionTotals::default() };
        before.lateness.add(5_000_000, 10);
        before.faults.refused = 3;
        let mut now = before;
        now.at_ns = 3_000_000_000;
        now.delivered_bytes = 250_000_000;
        now.cpu_ns = 1_000_000_000;
        now.lateness.add(3_000, 98);
        now.lateness.add(100_000, 2);
        let report = DirectionReport::between(&before, &now);
        assert_eq!((report.seconds, report.rate_bps, report.cpu_share), (2.0, 1e9, 0.5));
        assert_eq!((report.late_p50_us, report.late_p99_us, report.late_max_us), (4, 128, 128));
        assert_eq!(report.late_packets, 0);
        assert!(report.overloaded.is_empty(), "{:?}", report.overloaded);
    }

    #[test]
    fn each_fault_of_the_emulator_is_told() {
        let faults: [fn(&mut DirectionTotals); 5] = [
            |sums| sums.faults.device_full = 1,
            |sums| sums.faults.memory_full = 1,
            |sums| sums.faults.refused = 1,
            |sums| sums.lateness.add(2_000_000, 1),
            |sums| sums.cpu_ns = 1_000_000_000,
        ];
        for fault in faults {
            let mut now = DirectionTotals { at_ns: 1_000_000_000, ..DirectionTotals::default() };
            fault(&mut now);
            assert_eq!(DirectionReport::between(&DirectionTotals::default(), &now).overloaded.len(), 1);
        }
    }
}
