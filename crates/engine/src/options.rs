//! What the user may choose for a transfer. The same struct travels in the hello, so that both ends work by one set
//! of options. `Default` works; nothing in here is judged but in [`TransferOptions::checked`].
#![deny(missing_docs)]

use std::net::IpAddr;

use farhaul_volume::{Algorithm, Filter, Limits, ScanOptions};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::testing::Testing;

/// What happens to a destination file that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overwrite {
    /// Send and replace whatever is there.
    Always,
    /// Replace only what is older than the source.
    Older,
    /// Skip what has the same size and modification time, replace the rest.
    #[default]
    Different,
    /// Leave everything that exists.
    Never,
}

/// How the receiver makes sure that it has what the sender read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// The seal of each datagram only; with `cipher none` a checksum, which stops nobody who changes contents on purpose.
    Transit,
    /// A BLAKE3 tree over every file, from the sender's read buffer to the receiver's write buffer.
    #[default]
    Digest,
    /// As `Digest`, and the receiver reads the file back before it gets its name.
    Readback,
}

/// The cipher of the data packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Cipher {
    /// AES with 128 bits.
    #[default]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// AES with 256 bits.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// For processors without AES.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
    /// Block bytes travel in the clear, with where in a block they belong; everything else stays sealed. A far end with rules of
    /// its own must allow it.
    #[serde(rename = "none")]
    None,
}

impl Cipher {
    /// The name as on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "aes-128-gcm",
            Cipher::Aes256Gcm => "aes-256-gcm",
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305",
            Cipher::None => "none",
        }
    }
}

/// How the sending rate is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Shares the path, guided by its delay and delivery rate; random loss does not slow it down.
    #[default]
    Fair,
    /// As fair, with about two shares.
    High,
    /// Takes what others leave.
    Low,
    /// Holds the rate given whatever happens.
    Fixed,
}

/// A way between the two hosts: an address of the client and one of the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathAddresses {
    /// Of this end, if it is the one that connects.
    pub local: IpAddr,
    /// Of the far end.
    pub remote: IpAddr,
}

/// Which of the sources' entries are taken. Judged in [`SelectOptions::scan`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectOptions {
    /// Filter rules as lines, see [`farhaul_volume::RuleList`]. At most 4096, and 64 KiB.
    #[serde(with = "crate::connect::hello::base64_list")]
    pub rules: Vec<Vec<u8>>,
    /// Bytes of a file. Default none.
    pub size_min: Option<u64>,
    /// The same, at most.
    pub size_max: Option<u64>,
    /// Modification time of a file in seconds since 1970. Default none.
    pub mtime_min: Option<i64>,
    /// The same, at the latest.
    pub mtime_max: Option<i64>,
    /// Directories on which something is mounted are taken without what is in them.
    pub one_file_system: bool,
    /// Only what a list of names asks for; on a pull it follows on the control stream.
    pub by_name: bool,
}

impl SelectOptions {
    /// What a scan has to know of them, but for the names.
    pub(crate) fn scan(&self) -> Result<ScanOptions, Error> {
        let usage = |error: farhaul_volume::FilterError| Error::Usage(error.to_string());
        let filter = Filter::new(&self.rules).map_err(usage)?;
        let limits = Limits {
            size_min: self.size_min,
            size_max: self.size_max,
            mtime_min: self.mtime_min,
            mtime_max: self.mtime_max,
        };
        let one_file_system = self.one_file_system;
        Ok(ScanOptions { filter, limits, one_file_system, ..ScanOptions::default() })
    }
}

/// Directories, each on a device of its own, that together are the one place of a source or of the destination.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpreadOptions {
    /// A source that lies in one of these lies in all of them. Empty, or 2 to 64.
    #[serde(with = "crate::connect::hello::base64_list")]
    pub source: Vec<Vec<u8>>,
    /// The destination, which lies in one of these, is in all of them.
    #[serde(with = "crate::connect::hello::base64_list")]
    pub target: Vec<Vec<u8>>,
}

/// Most directories that one place may be spread over.
pub const SPREAD_MAX: usize = 64;

impl SpreadOptions {
    /// Files that have to be under way at a time so that each directory has one.
    pub(crate) fn lanes(&self) -> usize {
        self.source.len().max(self.target.len()).max(1)
    }

    fn checked(&self) -> Result<(), Error> {
        for directories in [&self.source, &self.target] {
            let directories: Vec<_> = directories.iter().map(|directory| trimmed(directory)).collect();
            let is_below = |one: usize, other: usize| below(directories[one], directories[other]).is_some();
            let count = directories.len();
            if count == 1 || count > SPREAD_MAX || directories.contains(&&b""[..]) {
                return Err(Error::Usage("--spread takes 2 to 64 directories, separated by commas".into()));
            }
            if (0..count).any(|one| (0..count).any(|other| one != other && is_below(one, other))) {
                let what = "--spread takes different directories, none of them in another one";
                return Err(Error::Usage(what.into()));
            }
        }
        Ok(())
    }
}

/// `path` in each of `directories`, if it lies in one of them.
pub(crate) fn in_each(directories: &[Vec<u8>], path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let rest = directories.iter().find_map(|directory| below(trimmed(directory), path))?;
    Some(directories.iter().map(|directory| [trimmed(directory), rest].concat()).collect())
}

/// What of `path` comes behind `directory`.
fn below<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(directory).filter(|rest| rest.is_empty() || rest[0] == b'/')
}

fn trimmed(directory: &[u8]) -> &[u8] {
    let end = directory.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    &directory[..end]
}

/// When what is too much is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeleteWhen {
    /// Before anything is sent; the source is listed twice.
    Before,
    /// When everything else is done.
    #[default]
    After,
}

/// What the destination has and the source has not is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeleteOptions {
    /// Default: after everything else.
    pub when: DeleteWhen,
    /// What filter rules exclude is removed too.
    pub excluded: bool,
    /// At most so many entries. Default: no limit.
    pub max: Option<u64>,
    /// What is mounted below the destination is emptied too.
    pub across_mounts: bool,
}

/// The destination is made like the content of the one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncOptions {
    /// Files of the same size are compared by their digests, not by their times.
    pub checksum: bool,
    /// A file that the destination has under another name is taken from there.
    pub detect_renames: bool,
    /// None: nothing is removed.
    pub delete: Option<DeleteOptions>,
}

/// What the receiver finds out for the client's manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ManifestOptions {
    /// Digests also of files that were there already, which are read for it.
    pub unchanged: bool,
    /// Digests by which other tools know a file. Each file that has arrived is read once for all of them.
    #[serde(serialize_with = "to_names", deserialize_with = "from_names")]
    pub extra: Vec<Algorithm>,
}

fn to_names<S: Serializer>(algorithms: &[Algorithm], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(algorithms.iter().map(|algorithm| algorithm.name()))
}

fn from_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Algorithm>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let unknown = |name: &String| serde::de::Error::custom(format!("no digest is called {name}"));
    names.iter().map(|name| Algorithm::from_name(name).ok_or_else(|| unknown(name))).collect()
}

/// The options of one transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferOptions {
    /// What happens to files that exist.
    pub overwrite: Overwrite,
    /// How arrival is verified.
    pub verify: Verify,
    /// How the data are sealed.
    pub cipher: Cipher,
    /// How the rate is set.
    pub policy: Policy,
    /// Bits per second; the target for `fixed`, the ceiling for the others. Default none.
    pub rate_bps: Option<u64>,
    /// Bits per second that all but `fixed` send at least, whatever happens. Default none.
    pub rate_min_bps: Option<u64>,
    /// Number of flows on each path, 1 to 16. Default 1.
    pub flows: u16,
    /// Paths to use at once, each at its own rate. Default: the one that the system chooses.
    pub paths: Vec<PathAddresses>,
    /// The paths are found by both ends: the one that the system chooses, and those of further interfaces.
    pub auto_paths: bool,
    /// Paths that can be added while a stream runs. Memory is divided as if they were in use. Default 0.
    pub further_paths: u16,
    /// Largest IP packet to use, in bytes. Default: found by probing.
    pub mtu: Option<u16>,
    /// Bytes that this transfer may hold in blocks on either end. Default 256 MiB.
    pub memory_bytes: u64,
    /// Success is reported only after the data were synced to the disk.
    pub durable: bool,
    /// Each file is synced, and the directory that holds it, before it counts as arrived. Only with `durable`.
    pub durable_each: bool,
    /// Decide and list, but change nothing.
    pub dry_run: bool,
    /// Of a large file that is there in another version, only what differs is sent. Default: if the ends are on different hosts.
    pub delta: Option<bool>,
    /// Such a file is changed where it is, not beside it: without its room twice, and half new if that is interrupted.
    pub in_place: bool,
    /// What is appended to a file while it is sent is sent too, until it has not grown for so many seconds. Default: it is taken
    /// as it was listed.
    pub follow_growth_secs: Option<u64>,
    /// Set-user-id and set-group-id bits are kept (a daemon takes them off all the same).
    pub keep_setuid: bool,
    /// Extended attributes of users (as root also `trusted.*`) are kept.
    pub xattrs: bool,
    /// Access control lists are kept.
    pub acls: bool,
    /// Pipes and sockets are made, not skipped.
    pub specials: bool,
    /// Devices are made, not skipped; the receiver has to be root.
    pub devices: bool,
    /// Symbolic links are taken for what they lead to.
    pub follow: bool,
    /// Symbolic links that lead out of what is copied are skipped.
    pub safe_links: bool,
    /// A symbolic link that was at the receiver before, and leads to a directory, is used where a directory comes.
    pub keep_dirlinks: bool,
    /// Default: everything is taken.
    pub select: SelectOptions,
    /// Default: each location is one place.
    pub spread: SpreadOptions,
    /// None for a copy.
    pub sync: Option<SyncOptions>,
    /// None when nobody writes a manifest.
    pub manifest: Option<ManifestOptions>,
    /// Never fall back to TCP or the SSH channel.
    pub udp_only: bool,
    /// First and last UDP port that the far end may bind (over SSH).
    pub udp_ports: (u16, u16),
    /// Of this process alone: it does not travel, and a far end has its own.
    #[serde(skip)]
    pub testing: Testing,
}

impl Default for TransferOptions {
    fn default() -> Self {
        TransferOptions {
            overwrite: Overwrite::default(),
            verify: Verify::default(),
            cipher: Cipher::default(),
            policy: Policy::default(),
            rate_bps: None,
            rate_min_bps: None,
            flows: 1,
            paths: Vec::new(),
            auto_paths: false,
            further_paths: 0,
            mtu: None,
            memory_bytes: 256 << 20,
            durable: false,
            durable_each: false,
            dry_run: false,
            delta: None,
            in_place: false,
            follow_growth_secs: None,
            keep_setuid: false,
            xattrs: false,
            acls: false,
            specials: false,
            devices: false,
            follow: false,
            safe_links: false,
            keep_dirlinks: false,
            select: SelectOptions::default(),
            spread: SpreadOptions::default(),
            sync: None,
            manifest: None,
            udp_only: false,
            udp_ports: (33001, 33100),
            testing: Testing::default(),
        }
    }
}

/// How a sender sets its rate: what of its options can be changed while a transfer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateOptions {
    /// How the rate is set.
    pub policy: Policy,
    /// As [`TransferOptions::rate_bps`].
    pub rate_bps: Option<u64>,
    /// As [`TransferOptions::rate_min_bps`].
    pub rate_min_bps: Option<u64>,
}

impl RateOptions {
    /// The one place that judges them.
    pub fn checked(self) -> Result<Self, Error> {
        let bad = |text: &str| Err(Error::Usage(text.to_string()));
        if self.policy == Policy::Fixed && self.rate_bps.is_none() {
            return bad("--policy fixed needs --rate");
        }
        if [self.rate_bps, self.rate_min_bps].into_iter().flatten().any(|rate| rate < 8_000) {
            return bad("--rate and --min-rate must be at least 8k (bits per second)");
        }
        if self.policy == Policy::Fixed && self.rate_min_bps.is_some() {
            return bad("--min-rate makes no sense with --policy fixed, which holds --rate");
        }
        if self.rate_bps.zip(self.rate_min_bps).is_some_and(|(most, least)| least > most) {
            return bad("--min-rate must not be above --rate");
        }
        Ok(self)
    }
}

/// Most flows of a session at a time.
pub const FLOWS_MAX: usize = 16;
/// Smallest budget that still lets blocks overlap on the way through the stages.
pub const MEMORY_MIN: u64 = 16 << 20;

/// A file that has not grown for so long is done; times that end the clock are refused with it.
const FOLLOW_GROWTH_SECS_MAX: u64 = 7 * 24 * 3600;

impl TransferOptions {
    /// Paths that are used at once.
    pub fn path_count(&self) -> usize {
        self.paths.len().max(1)
    }

    /// Flows of all paths together.
    pub fn flow_count(&self) -> usize {
        usize::from(self.flows) * self.path_count()
    }

    /// Flows of all paths that may be added.
    pub(crate) fn further_flows(&self) -> usize {
        usize::from(self.flows) * usize::from(self.further_paths)
    }

    /// The path of a flow, by its index.
    pub fn path_of(&self, flow: usize) -> usize {
        flow % self.path_count()
    }

    /// What of them can be changed while the transfer runs.
    pub fn rate_options(&self) -> RateOptions {
        RateOptions { policy: self.policy, rate_bps: self.rate_bps, rate_min_bps: self.rate_min_bps }
    }

    /// The one place that judges options, whoever they came from.
    pub fn checked(mut self) -> Result<Self, Error> {
        let bad = |text: &str| Err(Error::Usage(text.to_string()));
        if self.flows == 0 || self.flow_count() + self.further_flows() > FLOWS_MAX {
            return bad("--flows, times the number of paths that there can be, must be between 1 and 16");
        }
        if self.auto_paths && !self.paths.is_empty() {
            return bad("--path auto finds the paths itself: leave it, or those that you name");
        }
        if self.paths.iter().any(|path| path.local.is_ipv4() != path.remote.is_ipv4()) {
            return bad("--path: both addresses must be IPv4, or both IPv6");
        }
        if self.paths.iter().any(|path| path.local.is_unspecified() || path.remote.is_unspecified()) {
            return bad("--path: 0.0.0.0 and :: are no addresses of a host");
        }
        let is_repeated = |index: usize| self.paths[..index].contains(&self.paths[index]);
        if (0..self.paths.len()).any(is_repeated) {
            return bad("--path: the same path is given twice");
        }
        if self.memory_bytes < MEMORY_MIN {
            return bad("--memory must be at least 16M");
        }
        if self.mtu.is_some_and(|mtu| !(576..=65535).contains(&mtu)) {
            return bad("--mtu must be between 576 and 65535");
        }
        self.rate_options().checked()?;
        if self.in_place && self.delta == Some(false) {
            return bad(
                "--inplace changes only what differs, and --whole-file sends everything: leave one of them",
            );
        }
        if self.in_place && self.overwrite == Overwrite::Older {
            return bad(
                "--inplace and --overwrite older contradict each other: a file that is half new is not older",
            );
        }
        if self.in_place && self.verify == Verify::Transit {
            return bad("--inplace needs a digest: use --verify digest or readback");
        }
        if self.udp_ports.0 == 0 || self.udp_ports.0 > self.udp_ports.1 {
            return bad("--udp-ports must be a range such as 33001-33100");
        }
        if self.follow_growth_secs.is_some_and(|secs| secs > FOLLOW_GROWTH_SECS_MAX) {
            return bad("--follow-growth takes at most a week");
        }
        self.select.scan()?;
        self.spread.checked()?;
        if self.follow && !self.spread.source.is_empty() {
            return bad("--follow and a source that is spread over several directories do not go together");
        }
        if self.sync.is_some_and(|sync| sync.detect_renames) && !self.spread.target.is_empty() {
            return bad("--detect-renames looks in one directory only, not in those of --spread");
        }
        let select = &self.select;
        if select.size_min.zip(select.size_max).is_some_and(|(min, max)| min > max) {
            return bad("--min-size must not be above --max-size");
        }
        if select.mtime_min.zip(select.mtime_max).is_some_and(|(min, max)| min > max) {
            return bad("--min-age must not be above --max-age");
        }
        if let Some(SyncOptions { detect_renames: true, delete: Some(delete), .. }) = &mut self.sync {
            // What is deleted first cannot be renamed.
            delete.when = DeleteWhen::After;
        }
        if let Some(sync) = &self.sync {
            if sync.checksum && self.overwrite != Overwrite::Different {
                return bad("--checksum and --overwrite contradict each other: leave one of them");
            }
            if sync.delete.is_some() && select.by_name {
                return bad(
                    "--delete and --files-from contradict each other: a list of names is not the whole source",
                );
            }
        }
        if self.manifest.as_ref().is_some_and(|manifest| manifest.extra.len() > Algorithm::ALL.len()) {
            return bad("--checksum-extra: the same digest is asked for twice");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_make_no_sense_are_refused() {
        let path = |local: &str, remote: &str| PathAddresses {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
        let judge =
            |flows, paths| TransferOptions { flows, paths, ..TransferOptions::default() }.checked().is_ok();
        let (one, other) = (path("10.0.0.1", "10.0.0.2"), path("fd00::1", "fd00::2"));
        assert!(judge(1, vec![one, other]) && judge(8, vec![one, other]));
        assert!(!judge(9, vec![one, other]), "more than 16 flows");
        assert!(!judge(1, vec![one, one]) && !judge(1, vec![path("10.0.0.1", "fd00::2")]));
        assert!(!judge(1, vec![path("0.0.0.0", "10.0.0.2")]));
    }

    #[test]
    fn a_choice_that_contradicts_itself_is_refused() {
        let judge = |select: SelectOptions, sync: Option<SyncOptions>| {
            TransferOptions { select, sync, ..TransferOptions::default() }.checked().is_ok()
        };
        let none = SelectOptions::default;
        assert!(judge(SelectOptions { rules: vec![b"- *.o".to_vec()], ..none() }, None));
        assert!(!judge(SelectOptions { rules: vec![b"*.o".to_vec()], ..none() }, None));
        assert!(!judge(SelectOptions { rules: vec![b"- x".to_vec(); 5000], ..none() }, None));
        assert!(!judge(SelectOptions { size_min: Some(2), size_max: Some(1), ..none() }, None));
        assert!(!judge(SelectOptions { mtime_min: Some(2), mtime_max: Some(1), ..none() }, None));
        let delete =
            || Some(SyncOptions { delete: Some(DeleteOptions::default()), ..SyncOptions::default() });
        assert!(judge(none(), delete()));
        assert!(!judge(SelectOptions { by_name: true, ..none() }, delete()));
    }

    #[test]
    fn a_location_in_one_of_the_directories_is_in_all_of_them() {
        let list = |text: &str| text.split(',').map(|one| one.as_bytes().to_vec()).collect::<Vec<_>>();
        for (directories, path, expected) in [
            ("/a,/b", "/a/run7", Some("/a/run7,/b/run7")),
            ("/a/,/b", "/b/run7/", Some("/a/run7/,/b/run7/")),
            ("/a,/b", "/a", Some("/a,/b")),
            ("/a,/b", "/a/", Some("/a/,/b/")),
            ("/a,/b", "/ab", None),
            ("/a,/b", "a/x", None),
        ] {
            assert_eq!(
                in_each(&list(directories), path.as_bytes()),
                expected.map(list),
                "{directories} {path}"
            );
        }
        let judge = |directories: &str| {
            let spread = SpreadOptions { target: list(directories), ..SpreadOptions::default() };
            TransferOptions { spread, ..TransferOptions::default() }.checked().is_ok()
        };
        assert!(judge("/a,/b") && judge("a,b,c"));
        for wrong in ["/a", "/a,/a/", "/a,/a/b", "/a,", "/,/a"] {
            assert!(!judge(wrong), "{wrong}");
        }
    }

    #[test]
    fn rates_that_contradict_each_other_are_refused() {
        let judge = |policy, rate_bps, rate_min_bps| {
            TransferOptions { policy, rate_bps, rate_min_bps, ..TransferOptions::default() }.checked().is_ok()
        };
        for policy in [Policy::Fair, Policy::High, Policy::Low] {
            assert!(judge(policy, None, None) && judge(policy, Some(10_000), Some(10_000)), "{policy:?}");
            assert!(!judge(policy, Some(10_000), Some(10_001)), "{policy:?}");
            assert!(!judge(policy, None, Some(7_999)) && !judge(policy, Some(7_999), None), "{policy:?}");
        }
        assert!(judge(Policy::Fixed, Some(10_000), None));
        assert!(!judge(Policy::Fixed, None, None) && !judge(Policy::Fixed, Some(10_000), Some(9_000)));
    }
}
