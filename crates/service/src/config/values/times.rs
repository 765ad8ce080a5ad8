//! Weekly windows of a cap's schedule, and time zones.

use std::fmt::{self, Display, Formatter};

use jiff::tz::TimeZone;

use super::amounts::RateValue;
use super::{TextValue, written};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// A weekly window and the rate in it: `mon-fri 09:00-18:00 2G`. If it ends earlier than it begins, it ends
/// on the next day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeeklyWindow {
    /// The days on which it begins: bit 0 is Monday.
    pub days: u8,
    /// When it begins, in minutes after midnight.
    pub from: u16,
    /// When it ends, in minutes after midnight, at most 24:00. Never the same as `from`.
    pub to: u16,
    /// The rate; `None` means no limit.
    pub rate: Option<RateValue>,
}

/// The name of a time zone in the IANA list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZoneName(String);

written!(WeeklyWindow, TimeZoneName);

impl TextValue for WeeklyWindow {
    const EXPECTED: &'static str = "days, hours and a rate or \"none\", such as \"mon-fri 09:00-18:00 2G\" or \"daily 22:00-06:00 none\"";

    fn read(text: &str) -> Option<WeeklyWindow> {
        let mut words = text.split_ascii_whitespace();
        let (days, hours, rate) = (words.next()?, words.next()?, words.next()?);
        let (from, to) = hours.split_once('-')?;
        let (from, to) = (minutes(from)?, minutes(to)?);
        let rate = match rate {
            "none" => None,
            rate => Some(RateValue::read(rate)?),
        };
        let is_window = words.next().is_none() && from < MIDNIGHT && from != to;
        is_window.then_some(WeeklyWindow { days: read_days(days)?, from, to, rate })
    }
}

/// 24:00 in minutes.
const MIDNIGHT: u16 = 24 * 60;

fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_number)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let all = hours * 60 + minutes;
    (minutes < 60 && all <= MIDNIGHT).then_some(all)
}

/// Reads `mon-fri,sun` or `daily`. A range may pass the end of the week.
fn read_days(text: &str) -> Option<u8> {
    if text == "daily" {
        return Some(0x7f);
    }
    let day = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
    let mut days = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        days |= 1 << at;
        while at != last {
            at = (at + 1) % DAYS.len();
            days |= 1 << at;
        }
    }
    Some(days)
}

impl Display for WeeklyWindow {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let has = |day: usize| self.days >> day & 1 == 1;
        let mut parts = Vec::new();
        let mut at = 0;
        while at < DAYS.len() {
            let len = (at..DAYS.len()).take_while(|&day| has(day)).count();
            match len {
                0 => {}
                1 => parts.push(DAYS[at].to_string()),
                len => parts.push(format!("{}-{}", DAYS[at], DAYS[at + len - 1])),
            }
            at += len.max(1);
        }
        let days = if self.days == 0x7f { "daily".to_string() } else { parts.join(",") };
        let [from, to] = [self.from, self.to].map(|all| format!("{:02}:{:02}", all / 60, all % 60));
        match self.rate {
            Some(rate) => write!(formatter, "{days} {from}-{to} {rate}"),
            None => write!(formatter, "{days} {from}-{to} none"),
        }
    }
}

impl TimeZoneName {
    /// The zone itself.
    pub fn zone(&self) -> TimeZone {
        // The name was looked up when it was read, and the list of zones is part of the program.
        TimeZone::get(&self.0).unwrap_or(TimeZone::UTC)
    }
}

impl TextValue for TimeZoneName {
    const EXPECTED: &'static str = "a time zone such as \"Europe/Berlin\" or \"UTC\"";

    fn read(text: &str) -> Option<TimeZoneName> {
        TimeZone::get(text).is_ok().then(|| TimeZoneName(text.to_string()))
    }
}

impl Display for TimeZoneName {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn windows_of_a_week() {
        check::<WeeklyWindow>(&[
            ("mon-fri 09:00-18:00 2G", Some("mon-fri 09:00-18:00 2G")),
            ("Mon,wed 9:00-18:00 2G", None),
            ("mon,wed  00:00-24:00  none", Some("mon,wed 00:00-24:00 none")),
            ("fri-mon 22:00-06:00 1G", Some("mon,fri-sun 22:00-06:00 1G")),
            ("daily 22:00-06:00 1G", Some("daily 22:00-06:00 1G")),
            ("mon-sun 22:00-06:00 1G", Some("daily 22:00-06:00 1G")),
            ("mon 09:00-09:00 1G", None),
            ("mon 24:00-09:00 1G", None),
            ("mon 09:60-10:00 1G", None),
            ("mon 09:00-10:00", None),
            ("mon 09:00-10:00 1G x", None),
            ("may 09:00-10:00 1G", None),
            ("mon- 09:00-10:00 1G", None),
            ("", None),
        ]);
        check::<TimeZoneName>(&[
            ("Europe/Berlin", Some("Europe/Berlin")),
            ("UTC", Some("UTC")),
            ("Mars/Base", None),
            ("", None),
        ]);
    }
}
