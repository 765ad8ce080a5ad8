//! Reads rates and sizes as people write them, on the command line and in files.
//!
//! Always true: a rate's units are decimal (2G = 2,000,000,000 bit/s), a size's are binary (1M = 1,048,576
//! bytes); nothing overflows or rounds a non-zero value to zero.

/// Bits a second from text such as `2G`, `800M`, `1.5g`, `64000`, `2Gbit/s` or `2Gbps`; `None` if the text is
/// no rate.
pub fn rate(text: &str) -> Option<u64> {
    let number = ["bit/s", "bps", "bit"].iter().find_map(|end| text.strip_suffix(end)).unwrap_or(text);
    scaled(number, 1000)
}

/// Bytes from text such as `64M`, `1G`, `1GiB` or `1048576`; `None` if the text is no size.
pub fn size(text: &str) -> Option<u64> {
    scaled(text.strip_suffix("iB").unwrap_or(text), 1024)
}

/// Reads a positive decimal number with an optional unit k, M, G or T (either case), which are powers of
/// `base`.
fn scaled(text: &str, base: u64) -> Option<u64> {
    let (number, power) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1),
        (at, 'm' | 'M') => (&text[..at], 2),
        (at, 'g' | 'G') => (&text[..at], 3),
        (at, 't' | 'T') => (&text[..at], 4),
        _ => (text, 0),
    };
    let unit = base.pow(power);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || !digits(whole)
        || !digits(fraction)
        || (number.contains('.') && fraction.is_empty())
    {
        return None;
    }
    // Nine digits behind the point are enough for any link's rate; the rest is cut off.
    let fraction = &fraction[..fraction.len().min(9)];
    let nanos = format!("{fraction:0<9}").parse::<u64>().ok()?;
    let part = u128::from(nanos) * u128::from(unit) / 1_000_000_000;
    let value = whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(u64::try_from(part).ok()?)?;
    (value > 0).then_some(value)
}
