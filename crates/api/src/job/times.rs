//! Times in a job's document: spans such as `15m`, and the time by which a job must be finished.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in whole seconds, written as `30s`, `15m`, `2h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobSpan(pub u64);

const UNITS: [(char, u64); 5] = [('w', 7 * 86400), ('d', 86400), ('h', 3600), ('m', 60), ('s', 1)];
/// The longest span: ten years. A longer one is probably a typing mistake.
const SPAN_MAX: u64 = 3660 * 86400;

impl JobSpan {
    /// The span as a standard duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// The text is not a span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a length of time; write 30s, 15m, 2h or 7d")]
pub struct SpanError(String);

impl FromStr for JobSpan {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<JobSpan, SpanError> {
        let bad = || SpanError(farhaul_text::printable(text.as_bytes(), 40));
        let unit = text.chars().next_back().ok_or_else(bad)?;
        let (digits, seconds) = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, seconds)) => (&text[..text.len() - 1], *seconds),
            None => (text, 1),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        let span = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(seconds));
        span.filter(|span| *span <= SPAN_MAX).map(JobSpan).ok_or_else(bad)
    }
}

impl fmt::Display for JobSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, seconds)| self.0 >= *seconds && self.0.is_multiple_of(*seconds));
        let (name, seconds) = whole.copied().unwrap_or(('s', 1));
        write!(f, "{}{name}", self.0 / seconds)
    }
}

/// When a job must be finished: at one moment, or at the next time of day after the beginning of each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishBy {
    /// A moment.
    At(Timestamp),
    /// A time of day, such as `06:00`, in the job's time zone.
    Daily(Time),
}

impl FinishBy {
    /// The moment for a run that begins now, in the host's time zone.
    pub fn from_now(self) -> Timestamp {
        self.of_run(Timestamp::now(), &TimeZone::system())
    }

    /// The moment for a run that begins at `start`.
    pub fn of_run(self, start: Timestamp, zone: &TimeZone) -> Timestamp {
        match self {
            FinishBy::At(moment) => moment,
            FinishBy::Daily(time) => next_time_of_day(start, time, zone).unwrap_or(start),
        }
    }
}

/// The first moment after `start` at which clocks in `zone` show `time`. If a change of the clock skips that
/// time, it is the moment just after the gap.
fn next_time_of_day(start: Timestamp, time: Time, zone: &TimeZone) -> Option<Timestamp> {
    let now: Zoned = start.to_zoned(zone.clone());
    let on = |date: jiff::civil::Date| Some(date.to_datetime(time).to_zoned(zone.clone()).ok()?.timestamp());
    let today = on(now.date())?;
    if today > start { Some(today) } else { on(now.date().checked_add(1.day()).ok()?) }
}

/// The text is neither a moment nor a time of day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time; write 06:00 or 2027-01-31T06:00:00+01:00")]
pub struct MomentError(String);

impl FromStr for FinishBy {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<FinishBy, MomentError> {
        if let Ok(moment) = text.parse::<Timestamp>() {
            return Ok(FinishBy::At(moment));
        }
        let is_short = text.len() <= 8 && text.contains(':');
        let time = text.parse::<Time>().ok().filter(|_| is_short);
        time.map(FinishBy::Daily).ok_or_else(|| MomentError(farhaul_text::printable(text.as_bytes(), 40)))
    }
}

impl fmt::Display for FinishBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FinishBy::At(moment) => moment.fmt(f),
            FinishBy::Daily(time) => time.fmt(f),
        }
    }
}

macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
as_text!(JobSpan);
as_text!(FinishBy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, seconds, again) in [
            ("30s", 30, "30s"),
            ("15m", 900, "15m"),
            ("90m", 5400, "90m"),
            ("24h", 86400, "1d"),
            ("7", 7, "7s"),
            ("0s", 0, "0s"),
        ] {
            let span: JobSpan = text.parse().unwrap();
            assert_eq!((span.0, span.to_string()), (seconds, again.to_string()));
        }
        for wrong in ["", "m", "-1s", "1.5h", "1x", "99999999999999999999s", "9999d", "1 m", "ü"] {
            assert!(wrong.parse::<JobSpan>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_of_day_is_the_next_one() {
        let zone = TimeZone::get("Europe/Zurich").unwrap();
        let by: FinishBy = "06:00".parse().unwrap();
        let at = |start: &str| by.of_run(start.parse().unwrap(), &zone).to_string();
        assert_eq!(at("2026-11-27T20:00:00Z"), "2026-11-28T05:00:00Z");
        assert_eq!(at("2026-11-28T04:59:59Z"), "2026-11-28T05:00:00Z");
        assert_eq!(at("2026-11-28T05:00:00Z"), "2026-11-29T05:00:00Z");
        // 02:30 is skipped on the last Sunday of March, and comes twice on the last Sunday of October.
        let night: FinishBy = "02:30".parse().unwrap();
        let at = |start: &str| night.of_run(start.parse().unwrap(), &zone).to_string();
        assert_eq!(at("2027-03-28T00:00:00Z"), "2027-03-28T01:30:00Z");
        assert_eq!(at("2026-10-24T23:00:00Z"), "2026-10-25T00:30:00Z");
        let moment: FinishBy = "2027-01-31T06:00:00+01:00".parse().unwrap();
        assert_eq!(moment.to_string(), "2027-01-31T05:00:00Z");
        for wrong in ["", "6", "25:00", "tomorrow", "06:00 today", "2027-01-31"] {
            assert!(wrong.parse::<FinishBy>().is_err(), "{wrong}");
        }
    }
}
