//! The bytes of this protocol version, message by message, for tests: any change of a byte on the wire
//! changes a file beside this one, where it is seen.
//!
//! A file has a line for each message: its name, a space, and its bytes in hexadecimal.
//! `FARHAUL_VECTORS=write cargo test` writes what the tests find, if a change is intended.
#![forbid(unsafe_code)]

use std::path::PathBuf;

/// Compares these messages with the file of that name.
///
/// # Panics
/// If they differ.
pub fn compare(file: &str, messages: &[(String, Vec<u8>)]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("{file}.txt"));
    let line = |(name, bytes): &(String, Vec<u8>)| format!("{name} {}\n", hexadecimal(bytes));
    let found: String = messages.iter().map(line).collect();
    if std::env::var_os("FARHAUL_VECTORS").is_some_and(|wish| wish == "write") {
        std::fs::write(&path, &found).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the file can be read");
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "the bytes on the wire have changed: see {}", path.display());
    }
    assert_eq!(
        found.lines().count(),
        expected.lines().count(),
        "{} has another number of messages",
        path.display()
    );
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
