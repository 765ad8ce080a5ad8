//! Schedules of caps: weekly windows with a rate, such as `mon-fri 09:00-18:00 2G`.
//!
//! Always true: of windows that overlap, the last one in the list counts; a window whose end is not later
//! than its beginning ends on the next day. Times are local times of the cap's time zone. When clocks are put
//! forward, windows within the skipped hour do not apply; when they are put back, windows in the repeated
//! hour apply twice.

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

pub(crate) use crate::config::values::WeeklyWindow;

/// How far ahead a change is looked for: a week, and a day for windows that have begun.
const DAYS: i32 = 8;

fn has(window: &WeeklyWindow, day: Weekday, time: Time) -> bool {
    let is_on = |day: Weekday| window.days >> day.to_monday_zero_offset() & 1 == 1;
    let minute = i16::from(time.hour()) * 60 + i16::from(time.minute());
    let minute = u16::try_from(minute).unwrap_or(0);
    match window.from < window.to {
        true => is_on(day) && (window.from..window.to).contains(&minute),
        // The window passes midnight: this is today's evening, or the rest of yesterday's window.
        false => is_on(day) && minute >= window.from || is_on(day.previous()) && minute < window.to,
    }
}

/// A window's minute as a time of day; 24:00 is the beginning of the next day.
fn time(minute: u16) -> Time {
    let [hour, minute] = [minute / 60 % 24, minute % 60].map(|part| i8::try_from(part).unwrap_or(0));
    jiff::civil::time(hour, minute, 0, 0)
}

/// The rate that holds at `now`; `usual` if no window applies.
pub(crate) fn rate_at(
    windows: &[WeeklyWindow],
    usual: Option<u64>,
    now: Timestamp,
    zone: &TimeZone,
) -> Option<u64> {
    let here = now.to_zoned(zone.clone());
    let holds = windows.iter().rev().find(|window| has(window, here.weekday(), here.time()));
    holds.map_or(usual, |window| window.rate.map(|rate| rate.0))
}

/// When the rate changes after `now`: `None` if it stays the same for a week.
pub(crate) fn next_change(
    windows: &[WeeklyWindow],
    usual: Option<u64>,
    now: Timestamp,
    zone: &TimeZone,
) -> Option<Timestamp> {
    let rate = rate_at(windows, usual, now, zone);
    let today = now.to_zoned(zone.clone()).date();
    let days: Vec<_> = (0..=DAYS).filter_map(|days| today.checked_add(days.days()).ok()).collect();
    let last = now.checked_add((i64::from(DAYS) * 24).hours()).ok()?;
    // When clocks are put back, a time of day comes twice.
    let begins_and_ends =
        windows.iter().flat_map(|window| [window.from, window.to].map(time)).flat_map(|time| {
            days.iter().flat_map(move |day| {
                let moment = zone.to_ambiguous_timestamp(day.to_datetime(time));
                [moment.earlier(), moment.later()].into_iter().flatten()
            })
        });
    let clock_changes =
        zone.following(now).map(|change| change.timestamp()).take_while(|change| *change <= last);
    begins_and_ends
        .chain(clock_changes)
        .filter(|moment| *moment > now && rate_at(windows, usual, *moment, zone) != rate)
        .min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::values::{RateValue, TextValue as _};

    fn windows(texts: &[&str]) -> Vec<WeeklyWindow> {
        texts.iter().map(|text| WeeklyWindow::read(text).unwrap()).collect()
    }

    fn zurich() -> TimeZone {
        TimeZone::get("Europe/Zurich").unwrap()
    }

    fn rate(texts: &[&str], at: &str) -> Option<u64> {
        rate_at(&windows(texts), Some(8), at.parse().unwrap(), &zurich())
    }

    fn next(texts: &[&str], at: &str) -> String {
        next_change(&windows(texts), Some(8), at.parse().unwrap(), &zurich()).unwrap().to_string()
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
        assert_eq!(next(&week, "2026-11-27T07:59:59Z"), "2026-11-27T08:00:00Z");
        // On a Friday nothing changes at noon, and on a Sunday nothing but the end of Saturday's window.
        assert_eq!(next(&week, "2026-11-27T08:00:00Z"), "2026-11-27T17:00:00Z");
        assert_eq!(next(&week, "2026-11-27T17:00:00Z"), "2026-11-28T21:00:00Z");
        assert_eq!(next(&week, "2026-11-28T21:00:00Z"), "2026-11-29T05:00:00Z");
        assert_eq!(next(&["mon 09:00-18:00 1G"], "2026-11-30T17:00:00Z"), "2026-12-07T08:00:00Z");
    }

    #[test]
    fn a_rate_that_stays_the_same_does_not_change() {
        let at = "2026-11-27T07:59:59Z".parse().unwrap();
        let next = |texts: &[&str]| next_change(&windows(texts), Some(8), at, &zurich());
        assert_eq!(next(&[]), None);
        assert_eq!(next(&["mon-sun 00:00-24:00 1G"]), None);
        assert_eq!(next(&["mon-sun 00:00-12:00 1G", "mon-sun 12:00-24:00 1G"]), None);
    }

    #[test]
    fn changes_of_the_clock_are_foreseen() {
        // Clocks are put back at 01:00 UTC on 25 October 2026, so 02:30 comes twice.
        let night = ["sun 02:30-05:00 1G"];
        assert_eq!(next(&night, "2026-10-25T00:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(next(&night, "2026-10-25T00:30:00Z"), "2026-10-25T01:00:00Z");
        assert_eq!(next(&night, "2026-10-25T01:00:00Z"), "2026-10-25T01:30:00Z");
        // Clocks are put forward at 01:00 UTC on 28 March 2027, so 02:30 does not come.
        assert_eq!(next(&night, "2027-03-28T00:00:00Z"), "2027-03-28T01:00:00Z");
    }

    #[test]
    fn a_whole_day_is_one() {
        assert_eq!(rate(&["fri 00:00-24:00 1G"], "2026-11-27T22:59:59Z"), Some(1_000_000_000));
        assert_eq!(rate(&["fri 00:00-24:00 1G"], "2026-11-27T23:00:00Z"), Some(8));
        assert_eq!(rate(&["fri 00:00-24:00 1G"], "2026-11-26T22:59:59Z"), Some(8));
    }

    proptest! {
        /// The rate stays the same between two changes.
        #[test]
        fn the_rate_changes_only_when_it_is_said_to(
            start in 1_700_000_000..1_900_000_000_i64,
            list in proptest::collection::vec((1..128_u8, 0..1440_u16, 1..1441_u16, 1..9_u64), 1..5),
            shares in proptest::collection::vec(0.0..1.0_f64, 8),
        ) {
            let window = |(days, from, to, rate): &(u8, u16, u16, u64)| {
                WeeklyWindow { days: *days, from: *from, to: *to, rate: Some(RateValue(*rate)) }
            };
            let windows: Vec<WeeklyWindow> = list.iter().filter(|one| one.1 != one.2).map(window).collect();
            prop_assume!(!windows.is_empty());
            let zone = zurich();
            let now = Timestamp::from_second(start).unwrap();
            let rate = rate_at(&windows, None, now, &zone);
            let next = next_change(&windows, None, now, &zone);
            if let Some(next) = next {
                prop_assert_ne!(rate_at(&windows, None, next, &zone), rate);
            }
            let end = next.map_or(start + 7 * 24 * 3600, Timestamp::as_second);
            for share in shares {
                let between = start + ((end - start - 1) as f64 * share) as i64;
                let between = Timestamp::from_second(between).unwrap();
                prop_assert_eq!(rate_at(&windows, None, between, &zone), rate);
            }
        }
    }
}
