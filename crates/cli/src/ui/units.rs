//! Numbers as people read them: sizes in binary units, rates in decimal bits a second, times in two parts.

use std::time::Duration;

/// `512 B`, `4.00 GiB`; three significant digits.
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// `9.41 Gbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    if !bits_per_second.is_finite() || bits_per_second < 1.0 {
        return "0 bit/s".into();
    }
    scaled(bits_per_second, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// `3.2 s`, `4 min 05 s`, `2 h 07 min`, `3 d 04 h`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", (time.as_secs_f64() * 10.0).floor() / 10.0),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// `2026-11-27T18:00:05Z`, from seconds since 1970. It is in UTC, as two hosts may be in different time
/// zones.
pub fn date(secs: i64) -> String {
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // The calendar repeats every 400 years. Years are counted from the first of March here, so that a leap
    // day is the last day of its year.
    let days = i128::from(days) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        (era * 400 + year + i128::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `1 file`, `3 files`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // 999.5 would be printed as 1000: it belongs to the next unit.
    while value >= base.min(999.5) && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (secs, expected) in table {
            assert_eq!(date(secs), expected);
        }
        // A peer may say anything.
        assert!(date(i64::MAX).ends_with('Z') && date(i64::MIN).ends_with('Z'));
    }

    #[test]
    fn sizes() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1 << 30, "1.00 GiB"),
            (10 << 20, "10.0 MiB"),
            (999 << 20, "999 MiB"),
            (1023 << 20, "1.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn rates() {
        let table = [
            (0.0, "0 bit/s"),
            (f64::NAN, "0 bit/s"),
            (f64::INFINITY, "0 bit/s"),
            (500.0, "500 bit/s"),
            (9.41e9, "9.41 Gbit/s"),
            (99.96e6, "100 Mbit/s"),
            (999.6e6, "1.00 Gbit/s"),
            (2e15, "2000 Tbit/s"),
        ];
        for (value, text) in table {
            assert_eq!(rate(value), text);
        }
    }

    #[test]
    fn times() {
        let table = [
            (Duration::from_millis(3250), "3.2 s"),
            (Duration::from_millis(59_990), "59.9 s"),
            (Duration::from_secs(245), "4 min 05 s"),
            (Duration::from_secs(7_640), "2 h 07 min"),
            (Duration::from_secs(273_700), "3 d 04 h"),
        ];
        for (value, text) in table {
            assert_eq!(time(value), text);
        }
    }
}
