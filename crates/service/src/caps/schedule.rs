//! When a cap has another rate: windows in the week, such as `mon-fri 09:00-18:00 2G`.
//!
//! Always true: of windows that overlap, the one that stands last counts; a window whose end is not later than its beginning ends
//! on the next day. Times are those that clocks show in the cap's time zone: an hour that a change of the clock leaves out
//! has no rate, one that there is twice has its rate twice.

use std::fmt;
use std::str::FromStr;

use farhaul::amounts;
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A window in the week and the rate that holds in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Monday is bit 0.
    days: u8,
    from: Time,
    to: Time,
    /// None for no limit.
    rate_bps: Option<u64>,
}

const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

/// The text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no window of a schedule; write days, times and a rate, such as 'mon-fri 09:00-18:00 2G', or none for the rate"
)]
pub struct NoWindow(String);

impl FromStr for Window {
    type Err = NoWindow;

    fn from_str(text: &str) -> Result<Window, NoWindow> {
        let parse = || {
            let mut words = text.split_whitespace();
            let window = Window {
                days: days(words.next()?)?,
                from: Time::midnight(),
                to: Time::midnight(),
                rate_bps: None,
            };
            let (from, to) = words.next()?.split_once('-')?;
            let (from, to) = (time(from)?, time(to)?);
            let rate_bps = match words.next()? {
                "none" => None,
                rate => Some(amounts::rate(rate).filter(|rate| *rate >= super::RATE_MIN_BPS)?),
            };
            words.next().is_none().then_some(Window { from, to, rate_bps, ..window })
        };
        parse().ok_or_else(|| NoWindow(farhaul_text::printable(text.as_bytes(), 80)))
    }
}

/// `mon-fri`, `sat,sun`, `daily`.
fn days(text: &str) -> Option<u8> {
    if text == "daily" {
        return Some(0x7f);
    }
    let index = |name: &str| DAYS.iter().position(|(day, _)| *day == name);
    let mut days = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (index(first)?, index(last)?);
        // fri-mon goes over the end of the week.
        let count = (last + 7 - first) % 7;
        for day in 0..=count {
            days |= 1 << ((first + day) % 7);
        }
    }
    Some(days)
}

/// `24:00` is the end of a day.
fn time(text: &str) -> Option<Time> {
    match text {
        "24:00" => Some(Time::midnight()),
        text if text.len() == 5 => text.parse().ok(),
        _ => None,
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = DAYS.iter().enumerate().filter(|(index, _)| self.days >> index & 1 == 1);
        let days = named.map(|(_, (name, _))| *name).collect::<Vec<_>>().join(",");
        let days = if self.days == 0x7f { "daily" } else { &days };
        write!(f, "{days} {}-{} ", self.from.strftime("%H:%M"), self.to.strftime("%H:%M"))?;
        match self.rate_bps {
            None => f.write_str("none"),
            Some(rate) if rate % 1_000_000_000 == 0 => write!(f, "{}G", rate / 1_000_000_000),
            Some(rate) if rate % 1_000_000 == 0 => write!(f, "{}M", rate / 1_000_000),
            Some(rate) if rate % 1_000 == 0 => write!(f, "{}k", rate / 1_000),
            Some(rate) => write!(f, "{rate}"),
        }
    }
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Window, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Window {
    fn has(&self, day: Weekday, time: Time) -> bool {
        let is_on = |day: Weekday| self.days >> day.to_monday_zero_offset() & 1 == 1;
        match self.from < self.to {
            true => is_on(day) && (self.from..self.to).contains(&time),
            // Over midnight: today's evening, or what is left of yesterday's.
            false => is_on(day) && time >= self.from || is_on(day.previous()) && time < self.to,
        }
    }
}

/// The rate that holds at `now`; `usual` outside of all windows.
pub(crate) fn rate_at(
    windows: &[Window],
    usual: Option<u64>,
    now: Timestamp,
    zone: &TimeZone,
) -> Option<u64> {
    let here = now.to_zoned(zone.clone());
    let holds = windows.iter().rev().find(|window| window.has(here.weekday(), here.time()));
    holds.map_or(usual, |window| window.rate_bps)
}

/// When the rate may be another one after `now`: the next time of day at which any window begins or ends.
pub(crate) fn next_change(windows: &[Window], now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let here = now.to_zoned(zone.clone());
    let tomorrow = here.date().checked_add(1.day()).ok()?;
    let times = windows.iter().flat_map(|window| [window.from, window.to]);
    let moments = times.flat_map(|time| [here.date(), tomorrow].map(|date| date.to_datetime(time)));
    let moments =
        moments.filter_map(|moment| moment.to_zoned(zone.clone()).ok()).map(|moment| moment.timestamp());
    // A change of the clock is one, too, and is looked for every day.
    moments.filter(|moment| *moment > now).min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn windows(texts: &[&str]) -> Vec<Window> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn zurich() -> TimeZone {
        TimeZone::get("Europe/Zurich").unwrap()
    }

    fn rate(texts: &[&str], at: &str) -> Option<u64> {
        rate_at(&windows(texts), Some(8), at.parse().unwrap(), &zurich())
    }

    #[test]
    fn a_week_has_its_rates() {
        let week = ["mon-fri 09:00-18:00 2G", "wed 12:00-13:00 none", "sat,sun 22:00-06:00 500M"];
        // 2026-11-27 is a Friday; Zurich is an hour ahead of UTC.
        for (at, expected) in [
            ("2026-11-27T07:59:59Z", Some(8)),
            ("2026-11-27T08:00:00Z", Some(2_000_000_000)),
            ("2026-11-27T16:59:59Z", Some(2_000_000_000)),
            ("2026-11-27T17:00:00Z", Some(8)),
            ("2026-11-28T10:00:00Z", Some(8)),
            ("2026-11-28T21:00:00Z", Some(500_000_000)),
            ("2026-11-30T04:59:59Z", Some(500_000_000)),
            ("2026-11-30T05:00:00Z", Some(8)),
            ("2026-12-02T11:30:00Z", None),
        ] {
            assert_eq!(rate(&week, at), expected, "{at}");
        }
        let next =
            |at: &str| next_change(&windows(&week), at.parse().unwrap(), &zurich()).unwrap().to_string();
        assert_eq!(next("2026-11-27T07:59:59Z"), "2026-11-27T08:00:00Z");
        assert_eq!(next("2026-11-27T08:00:00Z"), "2026-11-27T11:00:00Z");
        assert_eq!(next("2026-11-27T21:30:00Z"), "2026-11-28T05:00:00Z");
    }

    #[test]
    fn windows_are_read_and_written() {
        for (text, again) in [
            ("mon-fri 09:00-18:00 2G", "mon,tue,wed,thu,fri 09:00-18:00 2G"),
            ("fri-mon 00:00-24:00 1500M", "mon,fri,sat,sun 00:00-00:00 1500M"),
            ("daily 22:00-06:00 none", "daily 22:00-06:00 none"),
        ] {
            let window: Window = text.parse().unwrap();
            assert_eq!(window.to_string(), again);
            assert_eq!(again.parse::<Window>().unwrap(), window);
        }
        for wrong in [
            "",
            "mon",
            "mon 09:00 2G",
            "mon 9:00-18:00 2G",
            "mon 09:00-25:00 2G",
            "mo 09:00-18:00 2G",
            "mon- 09:00-18:00 2G",
            "mon 09:00-18:00 fast",
            "mon 09:00-18:00 1k",
            "mon 09:00-18:00 2G x",
        ] {
            assert!(wrong.parse::<Window>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_whole_day_is_one() {
        assert_eq!(rate(&["fri 00:00-24:00 1G"], "2026-11-27T22:59:59Z"), Some(1_000_000_000));
        assert_eq!(rate(&["fri 00:00-24:00 1G"], "2026-11-27T23:00:00Z"), Some(8));
        assert_eq!(rate(&["fri 00:00-24:00 1G"], "2026-11-26T22:59:59Z"), Some(8));
    }

    proptest! {
        /// Between one change and the next the rate stays.
        #[test]
        fn the_rate_changes_only_when_it_is_said_to(
            start in 1_700_000_000..1_900_000_000_i64,
            list in proptest::collection::vec((1..128_u8, 0..24_i8, 0..60_i8, 0..24_i8, 0..60_i8, 1..9_u64), 1..5),
            shares in proptest::collection::vec(0.0..1.0_f64, 8),
        ) {
            let windows: Vec<Window> = list.iter().map(|(days, h, m, to_h, to_m, rate)| Window {
                days: *days,
                from: jiff::civil::time(*h, *m, 0, 0),
                to: jiff::civil::time(*to_h, *to_m, 0, 0),
                rate_bps: Some(rate * 1_000_000),
            }).collect();
            // Without changes of the clock, which are looked for every day.
            let zone = TimeZone::fixed(jiff::tz::offset(3));
            let now = Timestamp::from_second(start).unwrap();
            let next = next_change(&windows, now, &zone).unwrap();
            let rate = rate_at(&windows, None, now, &zone);
            for share in shares {
                let between = start + ((next.as_second() - start - 1) as f64 * share) as i64;
                let between = Timestamp::from_second(between).unwrap();
                prop_assert_eq!(rate_at(&windows, None, between, &zone), rate);
            }
        }
    }
}
