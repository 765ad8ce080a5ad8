//! This machine.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::{Host, Unseen, asked, split};
use crate::Error;

/// The machine that this process runs on.
#[derive(Debug, Default)]
pub struct Machine;

impl Host for Machine {
    fn read(&self, place: &str) -> Result<String, Unseen> {
        if let Some(question) = place.strip_prefix("asked/") {
            return asked::answer(question);
        }
        match fs::read(Path::new("/").join(place)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Unseen::Denied),
            // Among others, /sys/class/net/X/speed is EINVAL while the link is down.
            Err(_) => Err(Unseen::Absent),
        }
    }

    fn list(&self, place: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(Path::new("/").join(place)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn link(&self, place: &str) -> Option<String> {
        Some(fs::read_link(Path::new("/").join(place)).ok()?.to_string_lossy().into_owned())
    }

    fn write(&self, place: &str, value: &str) -> Result<(), Error> {
        let outcome = match (place.strip_prefix("asked/"), split(place)) {
            (Some(question), _) => asked::set(question, value),
            (None, (file, None)) => fs::write(Path::new("/").join(file), value),
            (None, (_, Some(_))) => Err(std::io::Error::from(ErrorKind::Unsupported)),
        };
        outcome.map_err(|error| Error::not_set(place, value, error))
    }
}
