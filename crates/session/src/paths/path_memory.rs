//! Keeps the last good rate, round trip time and loss of a path for the next transfer on it (RFC 9959).
//!
//! One small file has all paths, by the far end's address. It is only advice: if it cannot be read or
//! written, or is old, the transfer goes on without. If two transfers end at once, one of their notes may be
//! lost.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farhaul_proto::PathMemory;
use farhaul_words::Policy;
use serde::{Deserialize, Serialize};

use crate::intervals::CHECK_INTERVAL;
use crate::options::RateOptions;
use crate::setup::{FlowLink, FlowSetup};
use crate::state_folder::state_folder;

/// A note is forgotten after this, as networks change.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The most paths in the file.
const PATHS_MAX: usize = 256;
/// A file that is longer than this is not ours.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Note {
    rate_bps: u64,
    rtt_us: u64,
    #[serde(default)]
    loss_ppm: u32,
    unix_s: u64,
}

type Notes = BTreeMap<IpAddr, Note>;

/// The knowledge that a sender has, and gathers, of one of its paths.
pub(crate) struct PathKnowledge {
    file: PathBuf,
    peer_addresses: Vec<IpAddr>,
    pub(crate) watch: ControllerWatch,
}

impl PathKnowledge {
    /// The knowledge of path `path` among `paths`, which these flows use.
    pub(crate) fn new(flows: &[FlowSetup], path: usize, paths: usize) -> PathKnowledge {
        let peer_addresses = peer_addresses(flows, path, paths);
        PathKnowledge { file: default_path(), peer_addresses, watch: ControllerWatch::default() }
    }

    pub(crate) fn recall(&self) -> Option<PathMemory> {
        recall(&self.file, self.peer_addresses.iter().copied())
    }

    /// Writes a note of what the path to `used` has carried.
    pub(crate) fn keep(&self, used: Option<IpAddr>, elapsed: Duration) {
        let (Some(path), Some(peer)) = (self.watch.result(elapsed), used) else { return };
        if let Err(error) = keep(&self.file, peer, path) {
            tracing::debug!(file = %self.file.display(), %error, "cannot note what the path carries");
        }
    }
}

/// Returns whether a sender learns what a path carries; one that is held back does not.
pub(crate) fn says_what_a_path_carries(rate: RateOptions) -> bool {
    rate.rate_bps.is_none() && matches!(rate.policy, Policy::Fair | Policy::High)
}

/// The addresses that the far end may have on path `path` among `paths`.
fn peer_addresses(flows: &[FlowSetup], path: usize, paths: usize) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for flow in flows.iter().filter(|flow| usize::from(flow.index) % paths == path) {
        match &flow.link {
            FlowLink::Udp { candidates, .. } => addresses.extend(candidates.iter().map(SocketAddr::ip)),
            FlowLink::Accept { clients, .. } => addresses.extend(clients.last()),
            FlowLink::Stream(_) => {}
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn default_path() -> PathBuf {
    state_folder().join("paths.json")
}

/// Returns what is known of the path to one of `peers`: the newest note, if there are several.
pub fn recall(file: &Path, peers: impl IntoIterator<Item = IpAddr>) -> Option<PathMemory> {
    let notes = load(file);
    let now = unix_now();
    let known = peers.into_iter().filter_map(|peer| notes.get(&peer.to_canonical()));
    let note = known.filter(|note| is_fresh(note, now)).max_by_key(|note| note.unix_s)?;
    let rtt = Duration::from_micros(note.rtt_us);
    Some(PathMemory { rate_bps: note.rate_bps, rtt, loss_ppm: note.loss_ppm })
}

/// Writes a note of what the path to `peer` has carried.
pub fn keep(file: &Path, peer: IpAddr, path: PathMemory) -> std::io::Result<()> {
    let now = unix_now();
    let mut notes = load(file);
    notes.retain(|_, note| is_fresh(note, now));
    let PathMemory { rate_bps, rtt, loss_ppm } = path;
    let note = Note { rate_bps, rtt_us: rtt.as_micros() as u64, loss_ppm, unix_s: now };
    notes.insert(peer.to_canonical(), note);
    while notes.len() > PATHS_MAX {
        let oldest = notes.iter().min_by_key(|(_, note)| note.unix_s).map(|(&peer, _)| peer);
        oldest.and_then(|peer| notes.remove(&peer));
    }
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Others may write at the same time: each writes a file of its own, whose name nobody can foresee, and
    // renames it.
    let mut own = tempfile::NamedTempFile::new_in(folder)?;
    own.write_all(&serde_json::to_vec(&notes)?)?;
    own.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// A note from the future was written by a wrong clock, and is not fresh.
fn is_fresh(note: &Note, now: u64) -> bool {
    now.abs_diff(note.unix_s) <= AGE_MAX.as_secs()
}

fn load(file: &Path) -> Notes {
    let is_ours = std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() <= FILE_BYTES_MAX);
    let text = if is_ours { std::fs::read(file).unwrap_or_default() } else { Vec::new() };
    serde_json::from_slice(&text).unwrap_or_default()
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Watches the controller of a sender and keeps its best recent rate, as there is little left to send at the
/// end of a transfer.
#[derive(Debug, Default)]
pub(crate) struct ControllerWatch {
    held: Option<PathMemory>,
    /// The latest rates, the newest last.
    recent: VecDeque<u64>,
}

/// The factor by which the kept rate falls with each further look; the supervisor looks when it checks.
const FADE: f64 = 0.98;
/// The fewest looks for which a rate must last to count as good, and the most that are kept.
const LOOKS_MIN: usize = 4;
const LOOKS_MAX: usize = 64;
/// A rate must also last for this many round trips: a queue that drains lets data arrive faster than the path
/// carries, for one round trip.
const ROUNDS_GOOD: u32 = 2;
/// The fewest round trips of sending after which a note is written.
const ROUNDS_MIN: u32 = 10;

impl ControllerWatch {
    /// Takes the controller's figures while there was content to send.
    pub(crate) fn look(&mut self, seen: PathMemory) {
        let rounds = (ROUNDS_GOOD * seen.rtt).as_nanos().div_ceil(CHECK_INTERVAL.as_nanos()) as usize;
        let wanted = rounds.clamp(LOOKS_MIN, LOOKS_MAX);
        self.recent.push_back(seen.rate_bps);
        while self.recent.len() > wanted {
            self.recent.pop_front();
        }
        let lasted = self.recent.iter().copied().min().filter(|_| self.recent.len() == wanted);
        let faded = self.held.map(|held| (held.rate_bps as f64 * FADE) as u64);
        self.held = lasted.max(faded).map(|rate_bps| PathMemory { rate_bps, ..seen });
    }

    /// Returns what is worth a note after sending for `time`.
    pub(crate) fn result(&self, time: Duration) -> Option<PathMemory> {
        self.held.filter(|held| time >= held.rtt * ROUNDS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate_bps: u64) -> PathMemory {
        PathMemory { rate_bps, rtt: Duration::from_millis(100), loss_ppm: 10_000 }
    }

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn what_is_kept_is_recalled_for_this_peer_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/paths.json");
        keep(&file, peer(1), path(1000)).unwrap();
        keep(&file, peer(2), path(2000)).unwrap();
        keep(&file, peer(1), path(3000)).unwrap();
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(recall(&file, [peer(9), mapped]), Some(path(3000)));
        assert_eq!(recall(&file, [peer(2)]), Some(path(2000)));
        assert_eq!(recall(&file, [peer(3)]), None);
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn old_notes_do_not_count_and_the_oldest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("paths.json");
        let old = |unix_s| Note { rate_bps: 1, rtt_us: 1, loss_ppm: 0, unix_s };
        let mut notes = Notes::new();
        notes.insert(peer(1), old(unix_now() - AGE_MAX.as_secs() - 5));
        for index in 0..PATHS_MAX {
            let peer = IpAddr::from([10, 1, (index >> 8) as u8, index as u8]);
            notes.insert(peer, old(unix_now() - 1000 + index as u64));
        }
        std::fs::write(&file, serde_json::to_vec(&notes).unwrap()).unwrap();
        assert_eq!(recall(&file, [peer(1)]), None);
        keep(&file, peer(7), path(5)).unwrap();
        let notes = load(&file);
        assert_eq!(notes.len(), PATHS_MAX);
        assert!(notes.contains_key(&peer(7)) && !notes.contains_key(&peer(1)));
        assert!(!notes.contains_key(&IpAddr::from([10, 1, 0, 0])), "the oldest");
    }

    #[test]
    fn a_damaged_file_is_as_if_it_were_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("paths.json");
        for damage in ["", "{", "[1,2]", "{\"10.0.0.1\": {\"rate_bps\": -1}}", "{\"nonsense\": {}}"] {
            std::fs::write(&file, damage).unwrap();
            assert_eq!(recall(&file, [peer(1)]), None, "{damage}");
        }
        keep(&file, peer(1), path(9)).unwrap();
        assert_eq!(recall(&file, [peer(1)]), Some(path(9)));
    }

    #[test]
    fn a_slow_end_does_not_spoil_the_rate() {
        let mut watch = ControllerWatch::default();
        for _ in 0..LOOKS_MIN {
            watch.look(path(1_000_000));
        }
        for _ in 0..4 {
            watch.look(path(10));
        }
        assert!(watch.result(Duration::from_secs(2)).unwrap().rate_bps > 900_000);
        assert_eq!(watch.result(Duration::from_millis(900)), None, "too few round trips");
        for _ in 0..1000 {
            watch.look(path(10));
        }
        assert!(watch.result(Duration::from_secs(9)).unwrap().rate_bps < 100);
    }

    #[test]
    fn what_drains_from_a_queue_is_no_rate() {
        let mut watch = ControllerWatch::default();
        for look in 0..40 {
            watch.look(path(if look % 10 < 3 { 1_200_000 } else { 1_000_000 }));
        }
        assert_eq!(watch.result(Duration::from_secs(2)), Some(path(1_000_000)));
    }
}
