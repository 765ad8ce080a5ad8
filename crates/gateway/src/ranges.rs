//! Which bytes of a file a request wants (RFC 9110, section 14).

use farhaul::read::FileRange;

/// The most ranges of a request. A reader of columns asks for hundreds at a time.
const RANGES_MAX: usize = 4096;

/// The bytes that a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WantedBytes {
    /// All of them: nothing else was asked for in a way that can be understood.
    All,
    /// These ranges, each of which the file has. There is at least one.
    Ranges(Vec<FileRange>),
    /// Ranges that the file does not have.
    Outside,
}

impl WantedBytes {
    /// Reads a header `Range`, for a file of this size.
    pub(crate) fn of(header: &str, size: u64) -> WantedBytes {
        let Some((unit, list)) = header.split_once('=') else { return WantedBytes::All };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return WantedBytes::All;
        }
        let mut ranges = Vec::new();
        let (mut count, mut total) = (0_usize, 0_u64);
        for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            count += 1;
            if count > RANGES_MAX {
                return WantedBytes::All;
            }
            match range(one, size) {
                None => return WantedBytes::All,
                Some(Some(range)) => {
                    total = total.saturating_add(range.len);
                    ranges.push(range);
                }
                // Of several ranges, those that the file has are sent.
                Some(None) => {}
            }
        }
        match (count, ranges.is_empty()) {
            (0, _) => WantedBytes::All,
            (_, true) => WantedBytes::Outside,
            // Ranges that overlap so much make more work than the whole file.
            _ if ranges.len() > 1 && total > size => WantedBytes::All,
            _ => WantedBytes::Ranges(ranges),
        }
    }
}

/// One range: `None` if it makes no sense, `Some(None)` if the file does not have it.
#[allow(clippy::option_option, reason = "the two kinds of nothing are different answers")]
fn range(text: &str, size: u64) -> Option<Option<FileRange>> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        let len = number(last)?.min(size);
        return Some((len > 0).then(|| FileRange { offset: size - len, len }));
    }
    let offset = number(first)?;
    let end = match last.is_empty() {
        true => size,
        false => {
            let last = number(last)?;
            if last < offset {
                return None;
            }
            last.saturating_add(1).min(size)
        }
    };
    Some((offset < size).then(|| FileRange { offset, len: end - offset }))
}

/// A number of digits only. One that is too large stands for the largest one.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(header: &str) -> WantedBytes {
        WantedBytes::of(header, 1000)
    }

    fn ranges(list: &[(u64, u64)]) -> WantedBytes {
        WantedBytes::Ranges(
            list.iter().map(|(offset, len)| FileRange { offset: *offset, len: *len }).collect(),
        )
    }

    #[test]
    fn ranges_are_those_of_the_file() {
        assert_eq!(of("bytes=0-0"), ranges(&[(0, 1)]));
        assert_eq!(of("Bytes = 0-499"), ranges(&[(0, 500)]));
        assert_eq!(of("bytes=900-"), ranges(&[(900, 100)]));
        assert_eq!(of("bytes=900-99999999999999999999999"), ranges(&[(900, 100)]));
        assert_eq!(of("bytes=-1"), ranges(&[(999, 1)]));
        assert_eq!(of("bytes=-5000"), ranges(&[(0, 1000)]));
        assert_eq!(of("bytes=0-0, 5-6 ,,-2"), ranges(&[(0, 1), (5, 2), (998, 2)]));
        assert_eq!(of("bytes=5000-,1-1"), ranges(&[(1, 1)]));
    }

    #[test]
    fn what_the_file_does_not_have_is_outside() {
        for header in ["bytes=1000-", "bytes=1000-1001", "bytes=-0", "bytes=2000-3000,4000-"] {
            assert_eq!(of(header), WantedBytes::Outside, "{header}");
        }
        assert_eq!(WantedBytes::of("bytes=0-", 0), WantedBytes::Outside);
    }

    #[test]
    fn what_makes_no_sense_is_no_wish() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "lines=1-2",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=1",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=1-2x",
            "bytes=0-1,7",
            "bytes=0x1-2",
        ] {
            assert_eq!(of(header), WantedBytes::All, "{header}");
        }
        assert_eq!(of("bytes=0-900,1-901"), WantedBytes::All, "more than the file");
        let many = format!("bytes={}", "0-0,".repeat(5000));
        assert_eq!(of(&many), WantedBytes::All);
    }

    proptest! {
        #[test]
        fn no_header_leads_out_of_the_file(header in "(bytes=)?[0-9,\\- ]{0,40}", size: u64) {
            if let WantedBytes::Ranges(ranges) = WantedBytes::of(&header, size) {
                prop_assert!(!ranges.is_empty());
                for FileRange { offset, len } in ranges {
                    prop_assert!(len > 0 && offset.checked_add(len).is_some_and(|end| end <= size));
                }
            }
        }
    }
}
