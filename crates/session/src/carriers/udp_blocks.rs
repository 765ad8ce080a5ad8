//! Remembers for a day where UDP does not get through, so that the next transfer does not wait for it.
//!
//! One small file has all places. It is only advice: if it cannot be read or written, or is old, the transfer
//! goes on without. UDP is tried all the same, beside what carries the transfer.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::state_folder::state_folder;

/// A note is forgotten after this, as firewalls change.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The most places in the file.
const PLACES_MAX: usize = 256;
/// A file that is longer than this is not ours.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// When UDP was found blocked, in seconds since 1970, by place.
type Notes = BTreeMap<String, u64>;

/// The notes of one far end.
#[derive(Debug)]
pub struct UdpBlockNotes {
    file: PathBuf,
    places: Vec<String>,
    was_noted: bool,
}

impl UdpBlockNotes {
    /// The notes of the way from here to any of these addresses. `ports` is a daemon's port, or the range
    /// from which far ends beside a channel take theirs.
    pub fn towards(addresses: impl IntoIterator<Item = IpAddr>, ports: &str) -> UdpBlockNotes {
        UdpBlockNotes::in_file(state_folder().join("blocked.json"), addresses, ports)
    }

    fn in_file(file: PathBuf, addresses: impl IntoIterator<Item = IpAddr>, ports: &str) -> UdpBlockNotes {
        // A host in another network has another way to the far end.
        let place = |ip: IpAddr| {
            let from = farhaul_net::source_address(ip).map(|from| from.to_string()).unwrap_or_default();
            format!("{from} {} {ports}", ip.to_canonical())
        };
        let mut places: Vec<_> = addresses.into_iter().map(place).collect();
        places.sort_unstable();
        places.dedup();
        let notes = load(&file);
        let was_noted = places.iter().any(|place| notes.get(place).is_some_and(|&at| is_fresh(at, now())));
        UdpBlockNotes { file, places, was_noted }
    }

    /// Returns whether UDP did not get through when it was last tried.
    pub fn was_noted(&self) -> bool {
        self.was_noted
    }

    pub fn note(&mut self) {
        let now = now();
        self.change(|notes, places| {
            notes.extend(places.iter().map(|place| (place.clone(), now)));
            while notes.len() > PLACES_MAX {
                let oldest = notes.iter().min_by_key(|&(_, &at)| at).map(|(place, _)| place.clone());
                oldest.and_then(|place| notes.remove(&place));
            }
        });
        self.was_noted = true;
    }

    /// Deletes the note, as UDP gets through.
    pub fn forget(&mut self) {
        if self.was_noted {
            self.was_noted = false;
            self.change(|notes, places| notes.retain(|place, _| !places.contains(place)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Notes, &[String])) {
        let mut notes = load(&self.file);
        notes.retain(|_, &mut at| is_fresh(at, now()));
        change(&mut notes, &self.places);
        if let Err(error) = store(&self.file, &notes) {
            tracing::debug!(file = %self.file.display(), %error, "cannot note where UDP is blocked");
        }
    }
}

fn store(file: &Path, notes: &Notes) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Others may write at the same time: each writes a file of its own and renames it.
    let mut own = tempfile::NamedTempFile::new_in(folder)?;
    own.write_all(&serde_json::to_vec(notes)?)?;
    own.persist(file).map_err(|error| error.error)?;
    Ok(())
}

fn load(file: &Path) -> Notes {
    let is_ours = std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() <= FILE_BYTES_MAX);
    let text = if is_ours { std::fs::read(file).unwrap_or_default() } else { Vec::new() };
    serde_json::from_slice(&text).unwrap_or_default()
}

/// A note from the future was written by a wrong clock, and is not fresh.
fn is_fresh(at: u64, now: u64) -> bool {
    now.abs_diff(at) <= AGE_MAX.as_secs()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn named(ports: &[u16]) -> String {
    match ports {
        [] => "UDP".to_string(),
        [port] => format!("UDP port {port}"),
        [first, .., last] => format!("UDP ports {first}-{last}"),
    }
}

/// The warning for a user whose UDP does not get through.
pub fn udp_blocked_warning(host: &str, ports: &[u16], instead: &str) -> String {
    let ports = named(ports);
    format!("{ports} of {host} cannot be reached (a firewall?); going on over {instead}, which is slower")
}

/// The same if UDP has carried until now, so that no firewall is the cause.
pub fn udp_lost_warning(host: &str, ports: &[u16], instead: &str) -> String {
    let ports = named(ports);
    format!(
        "nothing comes from {ports} of {host} any more (has a host slept, or its network changed?); going on over {instead}, \
         and trying UDP beside it"
    )
}

/// The same if UDP did not get through in an earlier transfer.
pub fn udp_noted_warning(host: &str, ports: &[u16], instead: &str) -> String {
    let what = match ports {
        [port] => format!("UDP port {port} of {host}"),
        [] | [..] => format!("UDP of {host}"),
    };
    format!("{what} could not be reached last time; going on over {instead}, and trying UDP beside it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

    #[test]
    fn what_is_noted_holds_for_this_place_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let file = || folder.path().join("state/blocked.json");
        let towards = |ports| UdpBlockNotes::in_file(file(), HERE, ports);
        assert!(!towards("33001").was_noted());
        towards("33001").note();
        assert!(towards("33001").was_noted() && !towards("ssh").was_noted());
        towards("ssh").note();
        towards("33001").forget();
        assert!(!towards("33001").was_noted() && towards("ssh").was_noted());
    }

    #[test]
    fn old_and_damaged_notes_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("blocked.json");
        UdpBlockNotes::in_file(file.clone(), HERE, "1").note();
        let mut notes = load(&file);
        notes.values_mut().for_each(|at| *at -= AGE_MAX.as_secs() + 5);
        store(&file, &notes).unwrap();
        assert!(!UdpBlockNotes::in_file(file.clone(), HERE, "1").was_noted());
        for damage in ["", "{", "[1]", "{\"a\": -1}"] {
            std::fs::write(&file, damage).unwrap();
            assert!(!UdpBlockNotes::in_file(file.clone(), HERE, "1").was_noted(), "{damage}");
        }
    }

    #[test]
    fn a_firewall_is_suspected_only_where_nothing_came_through() {
        assert!(udp_blocked_warning("dtn", &[], "TCP").contains("a firewall?"));
        let lost = udp_lost_warning("dtn", &[33001], "TCP");
        assert!(lost.starts_with("nothing comes from UDP port 33001 of dtn any more"), "{lost}");
        assert!(!lost.contains("firewall"), "{lost}");
    }

    #[test]
    fn the_warning_names_the_ports() {
        assert!(udp_blocked_warning("dtn", &[33001], "TCP").starts_with("UDP port 33001 of dtn"));
        assert!(
            udp_blocked_warning("dtn", &[33001, 33002], "ssh").starts_with("UDP ports 33001-33002 of dtn")
        );
    }
}
