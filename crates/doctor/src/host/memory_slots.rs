//! Slots of memory, as the firmware describes them (SMBIOS, structure 17).
//!
//! From: DMTF DSP0134, section 7.18.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;

use super::Unseen;

const ENTRIES: &str = "/sys/firmware/dmi/entries";
const LENGTH_AT: usize = 1;
const SIZE_AT: usize = 0x0c;
const PLACE_AT: usize = 0x10;
const BANK_AT: usize = 0x11;

/// Returns a line for each slot: `slot filled|empty PLACE`, where the place names its bank.
pub(super) fn slots() -> Result<String, Unseen> {
    let mut out = String::new();
    for index in 0..256 {
        match fs::read(format!("{ENTRIES}/17-{index}/raw")) {
            Ok(bytes) => out.push_str(&line(&bytes)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Unseen::Denied),
            Err(_) => break,
        }
    }
    if out.is_empty() { Err(Unseen::Absent) } else { Ok(out) }
}

fn line(bytes: &[u8]) -> String {
    let size = bytes.get(SIZE_AT..SIZE_AT + 2).map_or(0, |size| u16::from_le_bytes([size[0], size[1]]));
    // 0 is an empty slot, and all ones a slot of which nothing is known.
    let is_filled = size != 0 && size != u16::MAX;
    let mut out = String::new();
    let state = if is_filled { "filled" } else { "empty" };
    let _ = writeln!(out, "slot {state} {} {}", string(bytes, BANK_AT), string(bytes, PLACE_AT));
    out
}

/// The string whose number stands at an offset: strings follow the structure, each with a zero behind it.
fn string(bytes: &[u8], at: usize) -> String {
    let Some(number) = bytes.get(at).copied().filter(|&number| number > 0) else { return String::new() };
    let length = usize::from(bytes.get(LENGTH_AT).copied().unwrap_or(0));
    let strings = bytes.get(length..).unwrap_or_default();
    let text = strings.split(|&byte| byte == 0).nth(usize::from(number) - 1).unwrap_or_default();
    String::from_utf8_lossy(text).trim().replace(char::is_whitespace, "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(size: u16, strings: &[u8]) -> Vec<u8> {
        let mut bytes = vec![17, 0x28, 0, 0];
        bytes.resize(0x28, 0);
        bytes[SIZE_AT..SIZE_AT + 2].copy_from_slice(&size.to_le_bytes());
        (bytes[PLACE_AT], bytes[BANK_AT]) = (1, 2);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn filled_and_empty_slots_are_told_apart() {
        assert_eq!(line(&slot(0x7fff, b"DIMM_A1\0P0 CHANNEL A\0\0")), "slot filled P0_CHANNEL_A DIMM_A1\n");
        assert_eq!(line(&slot(0, b"DIMM_A2\0P0 CHANNEL A\0\0")), "slot empty P0_CHANNEL_A DIMM_A2\n");
        for end in 0..60 {
            let whole = slot(1, b"DIMM_A1\0P0 CHANNEL A\0\0");
            let _ = line(&whole[..end.min(whole.len())]);
        }
    }
}
