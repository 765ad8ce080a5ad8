//! Values that are rates, sizes, times and masks.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use farhaul::sisters::amounts;

use super::{TextValue, written};

/// A rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RateValue(pub u64);

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeValue(pub u64);

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

/// Mode bits of group and others that new files do not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeMask(pub u32);

written!(RateValue, SizeValue, TimeSpan, ModeMask);

impl TextValue for RateValue {
    const EXPECTED: &'static str = "a rate such as \"2G\" or \"800M\" (bits per second)";

    fn read(text: &str) -> Option<RateValue> {
        amounts::rate(text).map(RateValue)
    }

    fn of_number(number: u64) -> Option<RateValue> {
        (number > 0).then_some(RateValue(number))
    }
}

impl Display for RateValue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write_scaled(formatter, self.0, 1000, ["", "k", "M", "G", "T"])
    }
}

impl TextValue for SizeValue {
    const EXPECTED: &'static str = "a size such as \"512M\" or \"2G\" (bytes)";

    fn read(text: &str) -> Option<SizeValue> {
        amounts::size(text).map(SizeValue)
    }

    fn of_number(number: u64) -> Option<SizeValue> {
        (number > 0).then_some(SizeValue(number))
    }
}

impl Display for SizeValue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write_scaled(formatter, self.0, 1024, ["", "K", "M", "G", "T"])
    }
}

/// Writes a number with the largest unit that divides it.
fn write_scaled(formatter: &mut Formatter<'_>, value: u64, base: u64, units: [&str; 5]) -> fmt::Result {
    let (mut number, mut unit) = (value, 0);
    while number > 0 && number.is_multiple_of(base) && unit + 1 < units.len() {
        number /= base;
        unit += 1;
    }
    write!(formatter, "{number}{}", units[unit])
}

/// The units of time, longest first.
const UNITS_MS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The longest time in a configuration: a hundred years, so that sums of a few times cannot overflow.
const SPAN_MAX_MS: u64 = 100 * 366 * 86_400_000;

impl TextValue for TimeSpan {
    const EXPECTED: &'static str = "a time such as \"30s\", \"15m\", \"12h\" or \"7d\"";

    fn read(text: &str) -> Option<TimeSpan> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit_ms = match unit {
            "" => 1000,
            unit => UNITS_MS.iter().find(|(name, _)| *name == unit)?.1,
        };
        let ms = number.parse::<u64>().ok()?.checked_mul(unit_ms).filter(|&ms| ms <= SPAN_MAX_MS)?;
        Some(TimeSpan(Duration::from_millis(ms)))
    }

    fn of_number(number: u64) -> Option<TimeSpan> {
        let ms = number.checked_mul(1000).filter(|&ms| ms <= SPAN_MAX_MS)?;
        Some(TimeSpan(Duration::from_millis(ms)))
    }
}

impl Display for TimeSpan {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        // Weeks are read but not written: 90d is easier to read than a mix of weeks and days.
        let exact =
            UNITS_MS[1..].iter().find(|(_, unit_ms)| ms > 0 && ms.is_multiple_of(u128::from(*unit_ms)));
        match exact {
            Some((unit, unit_ms)) => write!(formatter, "{}{unit}", ms / u128::from(*unit_ms)),
            None => formatter.write_str("0s"),
        }
    }
}

impl TextValue for ModeMask {
    const EXPECTED: &'static str = "octal bits of group and others such as \"027\"";

    fn read(text: &str) -> Option<ModeMask> {
        let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        u32::from_str_radix(text, 8).ok().filter(|bits| is_octal && bits & !0o077 == 0).map(ModeMask)
    }
}

impl Display for ModeMask {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:03o}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn amounts_are_written_as_people_write_them() {
        check::<RateValue>(&[
            ("2G", Some("2G")),
            ("1.5G", Some("1500M")),
            ("2Gbit/s", Some("2G")),
            ("8001", Some("8001")),
            ("0", None),
            ("fast", None),
        ]);
        check::<SizeValue>(&[
            ("512M", Some("512M")),
            ("1GiB", Some("1G")),
            ("2048", Some("2K")),
            ("", None),
            ("-1", None),
        ]);
        check::<TimeSpan>(&[
            ("30s", Some("30s")),
            ("90", Some("90s")),
            ("120s", Some("2m")),
            ("2w", Some("14d")),
            ("500ms", Some("500ms")),
            ("0", Some("0s")),
            ("1.5h", None),
            ("s", None),
            ("", None),
            ("3 s", None),
            ("1y", None),
            ("99999999999999999999s", None),
            ("999999999999999w", None),
            ("3é", None),
        ]);
        check::<ModeMask>(&[
            ("027", Some("027")),
            ("22", Some("022")),
            ("8", None),
            ("700", None),
            ("", None),
        ]);
    }
}
