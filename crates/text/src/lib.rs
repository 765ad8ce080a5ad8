//! Text from others (a peer, a name of a file, the system) that is shown to people.
//!
//! Always true: no text that these functions return can control a terminal, or hide a character that has no
//! shape of its own. [`plain`] leaves that to whoever wrote the error's own words. Two texts may still look alike: by
//! letters of several scripts that have one shape, and by spaces of several widths. These are shown as they are, as
//! people use them in names.
#![forbid(unsafe_code)]

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory, PrependedConcatenationMark};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Whether a character is unsafe to show. All text that is shown to people is checked by this.
///
/// A terminal acts on controls (also those of C1) and on the line ends of Unicode. Characters that Unicode calls
/// default-ignorable, and other format characters, have no shape or change the order of others, so that one text
/// looks like another. The format characters that have a shape, such as the sign before an Arabic number, are safe.
pub fn is_unprintable(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    match CodePointMapData::<GeneralCategory>::new().get(character) {
        GeneralCategory::Control | GeneralCategory::LineSeparator | GeneralCategory::ParagraphSeparator => {
            true
        }
        GeneralCategory::Format => !CodePointSetData::new::<PrependedConcatenationMark>().contains(character),
        _ => CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character),
    }
}

/// An I/O error's text to stand inside a sentence: the system's words without their number and without the
/// capital letter that they begin with. The words of an error that is not the system's stay as they are, as
/// they may begin with a name.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let words = text.rsplit_once(" (os error ").filter(|(_, number)| is_error_number(number));
    let words = words.map_or(&text[..], |(words, _)| words);
    match error.raw_os_error() {
        Some(_) => {
            let mut rest = words.chars();
            rest.next().map(|first| first.to_lowercase().chain(rest).collect()).unwrap_or_default()
        }
        None => words.to_string(),
    }
}

/// Whether this is the end of the number that the standard library writes behind the system's words.
fn is_error_number(text: &str) -> bool {
    text.strip_suffix(')').is_some_and(|number| number.parse::<i32>().is_ok())
}

/// Bytes as text for terminals. Unprintable characters, bytes that are not UTF-8 and backslashes are escaped,
/// so that different names never look the same.
pub fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for piece in bytes.utf8_chunks() {
        for character in piece.valid().chars() {
            if character == '\\' || is_unprintable(character) {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in piece.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The bytes that [`escape`] turned into this text; `None` for a text that it never returns.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let kind = rest.chars().next()?;
        rest = &rest[kind.len_utf8()..];
        match kind {
            '\\' => bytes.push(b'\\'),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'x' => {
                bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
                rest = &rest[2..];
            }
            'u' => {
                let (number, behind) = rest.strip_prefix('{')?.split_once('}')?;
                let character = char::from_u32(u32::from_str_radix(number, 16).ok()?)?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = behind;
            }
            _ => return None,
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

/// A text without the byte order mark that programs of Windows put at the beginning of UTF-8. It would make the
/// first line another one, which nobody sees.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Text from the network for one line of a terminal: bounded, and with spaces for all unprintable characters.
pub fn printable(bytes: &[u8], chars_max: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(chars_max * 4)]);
    let safe = text.trim_end().chars().map(|c| if is_unprintable(c) { ' ' } else { c });
    safe.take(chars_max).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_stands_inside_a_sentence_and_keeps_names() {
        use std::io::Error;
        let of = |number: i32| Error::from_raw_os_error(number);
        assert_eq!(plain(&of(2)), "no such file or directory");
        assert_eq!(plain(&Error::other(format!("/Data: {}", of(2)))), "/Data: No such file or directory");
        for own in ["Run (os error log)/a: it differs", "Data: permission denied", ""] {
            assert_eq!(plain(&Error::other(own)), own);
        }
    }

    #[test]
    fn terminals_see_no_control_characters() {
        assert_eq!(escape(b"a\x1b[31m\r\n\xff\\"), "a\\u{1b}[31m\\r\\n\\xff\\\\");
        assert_eq!(escape("é\u{202e}x".as_bytes()), "é\\u{202e}x");
        for hidden in "\u{61c}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{2060}\u{2066}\u{2069}\u{9b}\u{e0041}".chars() {
            assert_eq!(escape(hidden.to_string().as_bytes()), hidden.escape_default().to_string());
        }
        for shown in "日本語 العربية עברית 👍🏽 ǅ ́\u{600}\u{6dd}\u{a0}\u{202f}\u{3000}\u{fffd}\u{e000}".chars()
        {
            assert!(!is_unprintable(shown), "{shown:?}");
        }
    }

    #[test]
    fn what_has_no_shape_is_unprintable() {
        let ranges = [
            ('\0', '\u{1f}'),
            ('\u{7f}', '\u{9f}'),
            ('\u{ad}', '\u{ad}'),
            ('\u{34f}', '\u{34f}'),
            ('\u{61c}', '\u{61c}'),
            ('\u{115f}', '\u{1160}'),
            ('\u{17b4}', '\u{17b5}'),
            ('\u{180b}', '\u{180f}'),
            ('\u{200b}', '\u{200f}'),
            ('\u{2028}', '\u{202e}'),
            ('\u{2060}', '\u{206f}'),
            ('\u{3164}', '\u{3164}'),
            ('\u{fe00}', '\u{fe0f}'),
            ('\u{feff}', '\u{feff}'),
            ('\u{ffa0}', '\u{ffa0}'),
            ('\u{fff0}', '\u{fffb}'),
            ('\u{13430}', '\u{1343f}'),
            ('\u{1bca0}', '\u{1bca3}'),
            ('\u{1d173}', '\u{1d17a}'),
            ('\u{e0000}', '\u{e0fff}'),
        ];
        let expected: Vec<char> = ranges.into_iter().flat_map(|(first, last)| first..=last).collect();
        let found: Vec<char> = ('\0'..=char::MAX).filter(|character| is_unprintable(*character)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_was_never_escaped_is_not_unescaped() {
        for text in ["\\", "\\q", "\\x", "\\x1", "\\xzz", "\\x\u{e9}", "\\u{d800}", "\\u{41", "\\u41"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }

    #[test]
    fn a_text_from_a_peer_is_one_line_of_bounded_length() {
        assert_eq!(printable(b"a\x1b[31m\nb\xff \n", 40), "a [31m b\u{fffd}");
        assert_eq!(printable(b"abcdef", 3), "abc");
    }

    proptest! {
        #[test]
        fn escaped_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40), text in ".{0,20}") {
            prop_assert_eq!(unescape(&escape(&bytes)), Some(bytes));
            prop_assert_eq!(unescape(&escape(text.as_bytes())), Some(text.into_bytes()));
        }
    }
}
