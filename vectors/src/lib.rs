//! Golden files, for tests: pages, texts and bytes that the tests find, kept where a change of them is seen.
//!
//! `GOLDEN=write cargo test` writes all golden files of the tests that it runs, if a change is intended. That is the
//! only switch. The files beside this one have the bytes of this protocol version, so that any change of a byte on the
//! wire changes one of them. Such a file has a line for each message: its name, a space, and its bytes in hexadecimal.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// Returns whether golden files are to be written.
pub fn is_writing() -> bool {
    std::env::var_os("GOLDEN").is_some_and(|wish| wish == "write")
}

/// Compares a text with the golden file at this path, and writes the file first if that is wished.
///
/// # Panics
/// If they differ, or the file cannot be written.
pub fn compare_text(path: &Path, found: &str) {
    if is_writing() {
        std::fs::write(path, found).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    if found == expected {
        return;
    }
    let (mut found, mut expected) = (found.lines(), expected.lines());
    let (number, found, expected) = (1..)
        .map(|number| (number, found.next(), expected.next()))
        .find(|(_, found, expected)| found != expected || found.is_none())
        .expect("a difference, or the end of both");
    panic!(
        "{}:{number} differs; if that is right, run with GOLDEN=write\n   found: {}\nexpected: {}",
        path.display(),
        found.unwrap_or("the end of the text"),
        expected.unwrap_or("the end of the text"),
    );
}

/// Compares these messages with the file of that name.
///
/// # Panics
/// If they differ.
pub fn compare(file: &str, messages: &[(String, Vec<u8>)]) {
    let line = |(name, bytes): &(String, Vec<u8>)| format!("{name} {}\n", hexadecimal(bytes));
    let found: String = messages.iter().map(line).collect();
    compare_text(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("{file}.txt")), &found);
}

/// A message of a release, by its name, in bytes.
pub type ReleasedMessage = (String, Vec<u8>);

/// The messages in the file of that name, of each release that has one: `(release, messages)`. They never change, so a
/// test that reads them finds what a later version could not read any more.
///
/// # Panics
/// If there is no release, or a file that cannot be read.
pub fn of_releases(file: &str) -> Vec<(String, Vec<ReleasedMessage>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("released");
    let releases = std::fs::read_dir(folder).expect("the directory of releases can be read");
    let mut found = Vec::new();
    for release in releases {
        let release = release.expect("the directory of releases can be read");
        let path = release.path().join(format!("{file}.txt"));
        if let Ok(text) = std::fs::read_to_string(&path) {
            let messages = text
                .lines()
                .map(|line| released(line).unwrap_or_else(|| panic!("{}: {line}", path.display())));
            found.push((release.file_name().to_string_lossy().into_owned(), messages.collect()));
        }
    }
    assert!(!found.is_empty(), "no release has {file}.txt");
    found
}

fn released(line: &str) -> Option<ReleasedMessage> {
    let (name, digits) = line.split_once(' ')?;
    let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
    Some((name.to_string(), bytes.collect::<Option<_>>()?))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("session.txt");
        let text = std::fs::read_to_string(&path).unwrap();
        compare_text(&path, &text);
        if is_writing() {
            return;
        }
        let differs = |text: String| {
            let panic = std::panic::catch_unwind(|| compare_text(&path, &text)).unwrap_err();
            panic.downcast::<String>().unwrap()
        };
        assert!(
            differs(format!("x{text}"))
                .contains("session.txt:1 differs; if that is right, run with GOLDEN=write")
        );
        assert!(differs(format!("{text}more\n")).contains("found: more\nexpected: the end of the text"));
        assert!(differs(text.trim_end().to_string()).contains("the end of the text"));
    }
}
