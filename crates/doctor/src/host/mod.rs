//! The one port through which everything about a host is read: files below /proc and /sys, and answers of the
//! kernel that are shown as if they were files.
//!
//! A *place* names one fact. `proc/...` and `sys/...` are files. `asked/...` are answers of the kernel to ioctls,
//! netlink and system calls, as lines of `key value`; `#key` behind a place names one of these lines. So a recording
//! of files stands for a whole machine, and a setting of a network card is read and written like a sysctl.

mod asked;
mod busy;
mod firewall;
mod machine;
mod memory_slots;
mod netlink;
mod own_name;
mod processes;
mod qdisc;
mod quota;
mod recording;
mod routes;
mod scrub;
mod wear;
mod wire;

pub use machine::Machine;
pub use recording::{Recorder, Recording};

use crate::Error;

/// A text without addresses and long identifiers, for somebody at another host.
pub fn without_names(text: &str) -> String {
    scrub::text(text)
}

/// Why a place shows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unseen {
    /// The host has no such thing, or does not show it here.
    Absent,
    /// This user may not see it.
    Denied,
}

/// A machine, or a recording of one.
pub trait Host {
    /// Returns the text at a place without `#`.
    fn read(&self, place: &str) -> Result<String, Unseen>;

    /// Returns the names in a directory, sorted; nothing if there is none.
    fn list(&self, place: &str) -> Vec<String>;

    /// Returns where a link leads.
    fn link(&self, place: &str) -> Option<String>;

    /// Gives a setting another value. With `#key` only that line is set.
    fn write(&self, place: &str, value: &str) -> Result<(), Error>;
}

/// The mounts of file systems on this host's own devices: device and place.
fn own_mounts() -> Vec<(String, String)> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some((words.next().filter(|device| device.starts_with("/dev/"))?, words.next()?))
    };
    mounts.lines().filter_map(mount).collect()
}

/// Splits a place into its file and the key behind `#`.
pub(crate) fn split(place: &str) -> (&str, Option<&str>) {
    match place.split_once('#') {
        Some((file, key)) => (file, Some(key)),
        None => (place, None),
    }
}

/// Returns the value of a key in lines of `key value`.
pub(crate) fn keyed<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim())
    })
}

/// Returns the value of a place, which may end with `#key`.
pub(crate) fn value(host: &dyn Host, place: &str) -> Option<String> {
    let (file, key) = split(place);
    let text = host.read(file).ok()?;
    match key {
        Some(key) => keyed(&text, key).map(str::to_owned),
        None => Some(text.trim().to_owned()),
    }
}
