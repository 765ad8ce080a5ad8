//! Values of the command line, or of a script that writes one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use farhaul::copy::LocationSpec;

use crate::{target, values};

target!(places, 5000, |bytes: &[u8]| {
    if bytes.contains(&0) {
        return;
    }
    let argument = OsStr::from_bytes(bytes);
    if let Ok(place) = LocationSpec::parse(argument) {
        assert!(place.is_beside(&place) || place.host().is_none());
        let _ = (place.is_sink(), place.is_made());
    }
    let _ = LocationSpec::parse_host(argument);
});

target!(values, 5000, |bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let is_zero = |text: &str| text.chars().all(|c| !('1'..='9').contains(&c));
    if let Ok(rate) = values::rate(text) {
        assert!(rate > 0 || is_zero(text), "a rate became 0 by rounding");
    }
    if let Ok(size) = values::size(text) {
        assert!(size > 0 || is_zero(text), "a size became 0 by rounding");
    }
    let _ = (values::kilobits(text), values::seconds(text), values::age(text), values::size_or_none(text));
    let _ = (values::flows(text).is_ok(), values::port(text), values::path(text).is_ok());
    let _ = values::directories(text).is_ok();
    if let Ok((first, last)) = values::port_range(text) {
        assert!(first <= last);
    }
});
