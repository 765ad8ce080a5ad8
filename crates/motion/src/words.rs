//! How the motions are written on a command line: the same words in simulator and lab.

use crate::Error;
use crate::delay::DelayMotion;
use crate::rate::{RateMotion, TraceFile};
use std::fmt;
use std::str::FromStr;

/// The forms of [`DelayMotion`], for help and errors.
pub const DELAY_FORMS: &str = "white:5, white:5:reorder, walk:5:10, steps:17:15000:100, bursts:20 or still";
/// The forms of [`RateMotion`].
pub const RATE_FORMS: &str = "walk:0.1:100, cellular, trace:FILE or still";

/// The longest time, an hour. The shortest time between two events (`EVERY_MS_MIN`) is a microsecond.
const MS_MAX: f64 = 3_600_000.0;
const EVERY_MS_MIN: f64 = 0.001;

/// `white:5`, `walk:5:10`, `steps:17:15000:100`, `bursts:20`: in milliseconds, or with a unit
/// (`walk:5ms:1s`).
impl FromStr for DelayMotion {
    type Err = Error;

    fn from_str(word: &str) -> Result<DelayMotion, Error> {
        motion(word).ok_or_else(|| Error::Delay(word.into()))
    }
}

fn motion(word: &str) -> Option<DelayMotion> {
    let (word, reorders) = match word.strip_suffix(":reorder") {
        Some(rest) => (rest, true),
        None => (word, false),
    };
    let (kind, numbers) = word.split_once(':').unwrap_or((word, ""));
    let numbers: Vec<f64> =
        numbers.split(':').filter(|text| !text.is_empty()).map(milliseconds).collect::<Option<_>>()?;
    let is_apart = |every_ms: f64| every_ms >= EVERY_MS_MIN;
    match (kind, numbers.as_slice()) {
        ("white", &[most_ms]) => Some(DelayMotion::White { most_ms, reorders }),
        _ if reorders => None,
        ("still", []) => Some(DelayMotion::Still),
        ("walk", &[most_ms, every_ms]) if is_apart(every_ms) => Some(DelayMotion::Walk { most_ms, every_ms }),
        ("steps", &[most_ms, every_ms]) if is_apart(every_ms) => {
            Some(DelayMotion::Steps { most_ms, every_ms, gap_ms: 0.0 })
        }
        ("steps", &[most_ms, every_ms, gap_ms]) if is_apart(every_ms) => {
            Some(DelayMotion::Steps { most_ms, every_ms, gap_ms })
        }
        ("bursts", &[every_ms]) if is_apart(every_ms) => Some(DelayMotion::Bursts { every_ms }),
        _ => None,
    }
}

impl fmt::Display for DelayMotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DelayMotion::Still => write!(f, "still"),
            DelayMotion::White { most_ms, reorders: false } => write!(f, "white:{most_ms}"),
            DelayMotion::White { most_ms, reorders: true } => write!(f, "white:{most_ms}:reorder"),
            DelayMotion::Walk { most_ms, every_ms } => write!(f, "walk:{most_ms}:{every_ms}"),
            DelayMotion::Steps { most_ms, every_ms, gap_ms } => {
                write!(f, "steps:{most_ms}:{every_ms}:{gap_ms}")
            }
            DelayMotion::Bursts { every_ms } => write!(f, "bursts:{every_ms}"),
        }
    }
}

/// `walk:0.1:100`, `cellular`, `trace:FILE`; the file is read.
impl FromStr for RateMotion {
    type Err = Error;

    fn from_str(word: &str) -> Result<RateMotion, Error> {
        let wrong = || Error::Rate(word.into());
        if let Some(path) = word.strip_prefix("trace:") {
            return TraceFile::read(path).map(|trace| RateMotion::Trace(trace.into()));
        }
        match word {
            "still" => Ok(RateMotion::Still),
            "cellular" => Ok(RateMotion::Cellular),
            _ => {
                let (least, every) =
                    word.strip_prefix("walk:").and_then(|rest| rest.split_once(':')).ok_or_else(wrong)?;
                let least = plain(least).filter(|least| (0.0..=1.0).contains(least)).ok_or_else(wrong)?;
                let every_ms =
                    milliseconds(every).filter(|every| *every >= EVERY_MS_MIN).ok_or_else(wrong)?;
                Ok(RateMotion::Walk { least, every_ms })
            }
        }
    }
}

impl fmt::Display for RateMotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RateMotion::Still => write!(f, "still"),
            RateMotion::Walk { least, every_ms } => write!(f, "walk:{least}:{every_ms}"),
            RateMotion::Cellular => write!(f, "cellular"),
            RateMotion::Trace(trace) => write!(f, "trace:{}", trace.path.display()),
        }
    }
}

/// `5`, `5ms`, `1.5s` or `300us` in milliseconds.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("ms", 1.0), ("us", 1e-3), ("s", 1e3), ("", 1.0)];
    let (number, scale) =
        units.iter().find_map(|(unit, scale)| text.strip_suffix(unit).map(|number| (number, scale)))?;
    plain(number).map(|number| number * scale).filter(|ms| *ms <= MS_MAX)
}

/// A plain decimal number: no sign, exponent or name.
fn plain(text: &str) -> Option<f64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in() {
        for word in ["still", "white:5", "white:5:reorder", "walk:5:10", "steps:17:15000:100", "bursts:2.5"] {
            assert_eq!(
                word.parse::<DelayMotion>().map(|motion| motion.to_string()).ok().as_deref(),
                Some(word)
            );
        }
        for word in ["still", "walk:0.1:100", "cellular"] {
            assert_eq!(
                word.parse::<RateMotion>().map(|motion| motion.to_string()).ok().as_deref(),
                Some(word)
            );
        }
        for (word, same) in [
            ("walk:5ms:1s", "walk:5:1000"),
            ("steps:17ms:15s", "steps:17:15000:0"),
            ("bursts:500us", "bursts:0.5"),
        ] {
            assert_eq!(word.parse::<DelayMotion>().ok(), same.parse().ok(), "{word}");
        }
    }

    #[test]
    fn every_form_that_help_names_is_one() {
        let forms =
            |text: &str| text.replace(" or ", ", ").split(", ").map(str::to_owned).collect::<Vec<_>>();
        assert!(forms(DELAY_FORMS).iter().all(|form| form.parse::<DelayMotion>().is_ok()));
        let rates = forms(RATE_FORMS);
        assert!(
            rates.iter().filter(|form| *form != "trace:FILE").all(|form| form.parse::<RateMotion>().is_ok())
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for word in [
            "",
            "white",
            "white:-5",
            "white:x",
            "white:nan",
            "white:1e3",
            "white:2h",
            "walk:5",
            "walk:5:0",
            "walk:5:10:reorder",
            "steps:1",
            "bursts:0",
            "bursts:0.0001",
            "still:1",
            "white:5000s",
        ] {
            assert!(word.parse::<DelayMotion>().is_err(), "{word}");
        }
        for word in [
            "",
            "walk",
            "walk:0.1",
            "walk:2:100",
            "walk:0.1:0",
            "cellular:1",
            "trace:/no/such/file",
            "trace:/",
        ] {
            let error = word.parse::<RateMotion>().expect_err(word).to_string();
            assert!(word.strip_prefix("trace:").is_none_or(|path| error.contains(path)), "{error}");
        }
    }
}
