//! Packets and scripts of the lab.

use farhaul_wanem::{LinkSettings, Timeline, fuzzing};

use crate::target;

target!(frame, 5000, fuzzing::frame);

target!(script, 3000, |bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Timeline::parse(text);
        let _ = LinkSettings::default().set_all(text);
    }
});
