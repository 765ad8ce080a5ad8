//! The values that options take: rates in bits a second, sizes in bytes, port ranges, and names from a list.
//!
//! Always true: nothing overflows or rounds a non-zero value to zero. The crate `farhaul` (`amounts`) parses rates and
//! sizes, as configuration files have them, too.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use farhaul::copy::LocationSpec;
use farhaul::options::{Algorithm, InterfaceName, PathAddresses};
use farhaul::sisters::amounts;
use serde::de::DeserializeOwned;

/// Bits a second: `2G`, `800M`, `1.5g`, `64000`, `2Gbit/s`, `2Gbps`.
pub fn rate(text: &str) -> Result<u64, String> {
    amounts::rate(text)
        .ok_or_else(|| format!("'{text}' is not a rate; write bits a second, such as 800M or 2G"))
}

/// A file or directory of this host, for verbs that look at no other. What exists here under this name is
/// taken for it, also if it looks like a location at another host.
pub fn path_here() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let elsewhere = LocationSpec::parse(path.as_os_str());
        match elsewhere {
            Ok(LocationSpec::Ssh(..) | LocationSpec::Daemon(..)) if path.symlink_metadata().is_err() => {
                Err("it must be on this host: run farhaul on the other one, over ssh")
            }
            _ => Ok(path),
        }
    })
}

/// A file to write. Elsewhere `-` is a standard stream, so it is not taken for a name here.
pub fn file_to_write() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("give the name of a file (./- if it is called so); it cannot go to standard output"),
        false => Ok(path),
    })
}

/// scp's `-l`: kilobits a second.
pub fn kilobits(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a number of kilobits a second");
    text.parse::<u64>()
        .ok()
        .filter(|value| *value > 0)
        .and_then(|value| value.checked_mul(1000))
        .ok_or_else(bad)
}

/// A digest by its name.
pub fn algorithm(text: &str) -> Result<Algorithm, String> {
    let known = || Algorithm::ALL.map(Algorithm::name).join(", ");
    Algorithm::from_name(text).ok_or_else(|| format!("'{text}' is not a digest; write one of {}", known()))
}

/// Bytes: `64M`, `1G`, `1GiB`, `1048576`.
pub fn size(text: &str) -> Result<u64, String> {
    amounts::size(text).ok_or_else(|| format!("'{text}' is not a size; write bytes, such as 256M or 1G"))
}

/// Seconds, up to an hour: `3`, `0.5`.
pub fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.001..=3600.0).contains(value));
    value.ok_or_else(|| format!("'{text}' is not a time; write seconds, such as 3 or 0.5"))
}

/// As [`size`], but `0` is allowed.
pub fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size(text) }
}

/// Seconds: `90`, `90s`, `30m`, `12h`, `7d`, `2w`.
pub fn age(text: &str) -> Result<u64, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    let unit = units.into_iter().find_map(|(name, seconds)| Some((text.strip_suffix(name)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let value = number.parse::<u64>().ok().filter(|_| is_number).and_then(|value| value.checked_mul(seconds));
    value.ok_or_else(|| {
        format!("'{text}' is not a length of time; write a number with s, m, h, d or w, such as 12h or 7d")
    })
}

/// Mode bits of group and others, in octal: `027`.
pub fn mask(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| is_octal && bits & !0o077 == 0);
    bits.ok_or_else(|| format!("'{text}' is not a mask; write octal bits of group and others, such as 027"))
}

/// The value of `--flows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowCount {
    Auto,
    Number(u16),
}

/// `4`, `auto`.
pub fn flows(text: &str) -> Result<FlowCount, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(FlowCount::Auto),
        (_, Ok(flows)) => Ok(FlowCount::Number(flows)),
        (_, Err(_)) => Err(format!("'{text}' is not a number of flows; write one from 1 to 16, or auto")),
    }
}

/// `2222`.
pub fn port(text: &str) -> Result<u16, String> {
    let port = text.parse::<u16>().ok().filter(|&port| port > 0);
    port.ok_or_else(|| format!("'{text}' is not a port; write a number from 1 to 65535"))
}

/// `33001-33100`, or one port.
pub fn port_range(text: &str) -> Result<(u16, u16), String> {
    let bad = || format!("'{text}' is not a range of ports; write it as 33001-33100");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = first.parse::<u16>().map_err(|_| bad())?;
    let last = last.parse::<u16>().map_err(|_| bad())?;
    if first == 0 || first > last { Err(bad()) } else { Ok((first, last)) }
}

/// The value of `--path`: the two ends of one path, or `auto`, by which the hosts find the paths themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathChoice {
    Auto,
    Named(PathAddresses),
}

/// The value of `--range`: which bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// `len` bytes from `offset` on.
    From { offset: u64, len: u64 },
    /// This many bytes at the end.
    Last(u64),
}

/// `A-B` (both included), `A-`, `-N`.
pub fn byte_range(text: &str) -> Result<ByteRange, String> {
    let wrong = || format!("{text} is not a range of bytes; write A-B, A- or -N");
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().map_err(|_| wrong()),
        false => Err(wrong()),
    };
    match text.split_once('-').ok_or_else(wrong)? {
        ("", last) => Ok(ByteRange::Last(number(last)?)),
        (first, "") => {
            let offset = number(first)?;
            Ok(ByteRange::From { offset, len: u64::MAX - offset })
        }
        (first, last) => {
            let (offset, last) = (number(first)?, number(last)?);
            let len =
                last.checked_sub(offset).ok_or_else(|| format!("{text}: the range ends before it begins"))?;
            Ok(ByteRange::From { offset, len: len.saturating_add(1).min(u64::MAX - offset) })
        }
    }
}

/// `auto`, or `LOCAL=REMOTE`, two IP addresses; IPv6 with or without brackets.
pub fn path(text: &str) -> Result<PathChoice, String> {
    let wrong = || {
        format!(
            "{text:?} is not a path; write LOCAL=REMOTE, two IP addresses such as 10.0.1.5=10.0.1.9, or auto"
        )
    };
    if text == "auto" {
        return Ok(PathChoice::Auto);
    }
    let (local, remote) = text.split_once('=').ok_or_else(wrong)?;
    let ((local, here), (remote, there)) = address(local).zip(address(remote)).ok_or_else(wrong)?;
    let interface = match (here, there) {
        (Some(here), Some(there)) if here != there => {
            return Err(format!(
                "{text:?} names two interfaces; both addresses must be on the same interface of this host"
            ));
        }
        (here, there) => here.or(there),
    };
    if interface.is_some() && ![local, remote].iter().any(is_link_local) {
        return Err(format!(
            "{text:?} names an interface; only link-local addresses such as fe80::1 take one"
        ));
    }
    Ok(PathChoice::Named(PathAddresses { local, remote, interface }))
}

/// An IP address and, if the text has a `%`, the interface of this host that follows it.
fn address(text: &str) -> Option<(IpAddr, Option<InterfaceName>)> {
    let text = text.trim_start_matches('[').trim_end_matches(']');
    let Some((ip, interface)) = text.split_once('%') else { return Some((text.parse().ok()?, None)) };
    Some((ip.parse().ok()?, Some(InterfaceName::try_from(interface).ok()?)))
}

/// Returns whether an address is valid on one link only.
fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local())
}

/// The value of `--spread`: directories, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryList(pub Vec<Vec<u8>>);

pub fn directories(text: &str) -> Result<DirectoryList, String> {
    let list: Vec<_> = text.split(',').map(|directory| directory.as_bytes().to_vec()).collect();
    match list.len() >= 2 && !list.contains(&Vec::new()) {
        true => Ok(DirectoryList(list)),
        false => Err(format!("{text:?} is not a list of at least two directories, such as /nvme0,/nvme1")),
    }
}

/// One of `names`, which are the names that serde knows for the type of the crate `farhaul`.
pub fn choice<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names)
        .try_map(|name| serde_json::from_value::<T>(serde_json::Value::String(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_verb_looks_at_must_be_here() {
        let here = |text: &str| {
            let command = clap::Command::new("x");
            path_here().parse_ref(&command, None, std::ffi::OsStr::new(text)).map(PathBuf::into_os_string)
        };
        for text in ["a", "/data", "./a:b", ".", "-", "zero:1"] {
            assert_eq!(here(text).unwrap(), text, "{text}");
        }
        for text in ["host:/data", "user@host:", "fh://host/data", "ssh://host/data"] {
            assert!(here(text).unwrap_err().to_string().contains("must be on this host"), "{text}");
        }
    }

    #[test]
    fn masks_are_octal_and_leave_the_owner_alone() {
        let table = [("027", Some(0o027)), ("0", Some(0)), ("0077", Some(0o077)), ("22", Some(0o22))];
        let wrong = ["", "8", "127", "0o27", "+27", " 27", "-1", "1000"].map(|text| (text, None));
        for (text, bits) in table.into_iter().chain(wrong) {
            assert_eq!(mask(text).ok(), bits, "{text:?}");
        }
    }

    #[test]
    fn rates_are_decimal_bits() {
        let table = [
            ("2G", Some(2_000_000_000)),
            ("1.5g", Some(1_500_000_000)),
            ("800M", Some(800_000_000)),
            ("64k", Some(64_000)),
            ("64K", Some(64_000)),
            ("100000", Some(100_000)),
            ("2Gbit/s", Some(2_000_000_000)),
            ("10Mbps", Some(10_000_000)),
            ("0.1G", Some(100_000_000)),
            ("0.0000000001k", None),
            ("0", None),
            ("", None),
            ("G", None),
            (".5G", None),
            ("1.G", None),
            ("-1", None),
            ("+1", None),
            ("2GB", None),
            ("2 G", None),
            ("1e9", None),
            ("99999999999T", None),
            ("2Gé", None),
        ];
        for (text, value) in table {
            assert_eq!(rate(text).ok(), value, "{text:?}");
        }
    }

    #[test]
    fn sizes_are_binary_bytes() {
        let table = [
            ("256M", Some(256 << 20)),
            ("1GiB", Some(1 << 30)),
            ("1g", Some(1 << 30)),
            ("16777216", Some(16 << 20)),
            ("0.5K", Some(512)),
            ("iB", None),
            ("1GB", None),
        ];
        for (text, value) in table {
            assert_eq!(size(text).ok(), value, "{text:?}");
        }
    }

    #[test]
    fn ages_are_seconds() {
        for (text, value) in [
            ("90", Some(90)),
            ("0", Some(0)),
            ("90s", Some(90)),
            ("2m", Some(120)),
            ("1h", Some(3600)),
            ("7d", Some(604_800)),
            ("2w", Some(1_209_600)),
            ("", None),
            ("d", None),
            ("-1d", None),
            ("+1d", None),
            ("1.5h", None),
            ("1y", None),
            ("99999999999999999999w", None),
            ("9999999999999999999w", None),
        ] {
            assert_eq!(age(text).ok(), value, "{text:?}");
        }
        assert_eq!((size_or_none("0"), size_or_none("1k")), (Ok(0), Ok(1024)));
    }

    #[test]
    fn scp_limit_is_in_kilobits() {
        assert_eq!(kilobits("8000"), Ok(8_000_000));
        assert!(kilobits("0").is_err());
        assert!(kilobits("8M").is_err());
        assert!(kilobits("18446744073709551615").is_err());
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!((seconds("3"), seconds("0.5")), (Ok(3.0), Ok(0.5)));
        for text in ["", "0", "-1", "nan", "inf", "3601", "3s"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn port_ranges() {
        assert_eq!(port_range("33001-33100"), Ok((33001, 33100)));
        assert_eq!(port_range("5000"), Ok((5000, 5000)));
        for text in ["", "-", "0", "0-5", "9-8", "1-65536", "1-2-3", "a-b"] {
            assert!(port_range(text).is_err(), "{text:?}");
        }
    }
}
