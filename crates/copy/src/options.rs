//! What the user may choose for a transfer. The same struct travels to the far end, so that both ends work by one set of
//! options. `Default` works; nothing in here is judged but in [`TransferOptions::checked`].
#![deny(missing_docs)]

use farhaul_session::error::{Code, Error};
use farhaul_session::options::NetworkOptions;
use farhaul_volume::{Algorithm, AttributeKinds, Filter, ScanOptions, SizeLimits};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What happens to a destination file that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum OverwriteMode {
    /// Send and replace whatever is there.
    Always,
    /// Replace only what is older than the source.
    Older,
    /// Skip what has the same size and modification time, replace the rest.
    #[default]
    Different,
    /// Skip what has the same content, whatever its times are, and give it mode and time; replace the rest.
    Content,
    /// Leave everything that exists.
    Never,
}

/// How the receiver makes sure that it has what the sender read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum VerifyMode {
    /// The seal of each datagram only; with `cipher none` a checksum, which stops nobody who changes contents on purpose.
    Transit,
    /// A BLAKE3 tree over every file, from the sender's read buffer to the receiver's write buffer.
    #[default]
    Digest,
    /// As `Digest`, and the receiver reads the file back before it gets its name.
    Readback,
}

/// Which of the sources' entries are taken. Judged before a scan begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectOptions {
    /// Filter rules as lines, see [`farhaul_volume::RuleList`]. At most 4096, and 64 KiB.
    #[serde(with = "crate::request::base64_list")]
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
    fn checked(&self) -> Result<(), Error> {
        self.scan()?;
        if self.size_min.zip(self.size_max).is_some_and(|(min, max)| min > max) {
            return bad("--min-size must not be above --max-size");
        }
        if self.mtime_min.zip(self.mtime_max).is_some_and(|(min, max)| min > max) {
            return bad("--min-age must not be above --max-age");
        }
        Ok(())
    }

    /// What a scan has to know of them, but for the names.
    pub(crate) fn scan(&self) -> Result<ScanOptions, Error> {
        let usage = |error: farhaul_volume::FilterError| Error::new(Code::BadPattern, error.to_string());
        let filter = Filter::new(&self.rules).map_err(usage)?;
        let limits = SizeLimits {
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
    #[serde(with = "crate::request::base64_list")]
    pub source: Vec<Vec<u8>>,
    /// The destination, which lies in one of these, is in all of them.
    #[serde(with = "crate::request::base64_list")]
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
                return Err(Error::new(
                    Code::BadOption,
                    "--spread takes 2 to 64 directories, separated by commas",
                ));
            }
            if (0..count).any(|one| (0..count).any(|other| one != other && is_below(one, other))) {
                let what = "--spread takes different directories, none of them in another one";
                return Err(Error::new(Code::BadOption, what));
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ManifestOptions {
    /// Digests also of files that were there already, which are read for it.
    pub unchanged: bool,
    /// Digests by which other tools know a file. Each file that has arrived is read once for all of them.
    #[serde(serialize_with = "to_names", deserialize_with = "from_names")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, default = json!([])))]
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

/// When data count as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Durability {
    /// When the system has them. Against power loss it holds that a next run notices what was lost.
    #[default]
    No,
    /// Success is reported only after all were synced to the disk.
    End,
    /// Each file is synced, and the directory that holds it, before it counts as arrived.
    File,
}

/// How files are compared, made and changed, and what of them is kept beside names, contents, modes and times. Those that the
/// command line has in the same form have their names and help from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FileOptions {
    /// What happens to files that exist.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub overwrite: OverwriteMode,
    /// Of a large file that is there in another version, only what differs is sent. Default: if the ends are on different hosts.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub delta: Option<bool>,
    /// Such a file is changed where it is, not beside it: without its room twice, and half new if that is interrupted.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub in_place: bool,
    /// What is appended to a file while it is sent is sent too, until it has not grown for so many seconds. Default: it is taken
    /// as it was listed.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub follow_growth_secs: Option<u64>,
    /// Each file gets its name by a rename, so that one event (`IN_MOVED_TO`) tells programs that watch a directory of every file
    /// that is whole. Default: a new small file is linked there, of which they hear as `IN_CREATE`.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub announce: bool,
    /// Set-user-id and set-group-id bits are kept (a daemon takes them off all the same).
    #[cfg_attr(feature = "clap", arg(skip))]
    pub keep_setuid: bool,
    /// Times that are no further apart than so many seconds are the same. Default: what the destination's
    /// file system keeps of a time is the same as that time.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub modify_window_secs: u64,
    /// Leave modes as the receiver's umask and directories make them
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub no_perms: bool,
    /// Leave modification times as they come; then the next run sends files again, unless it goes by
    /// --checksum
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub no_times: bool,
    /// Leave the modification times of directories
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub omit_dir_times: bool,
    /// Keep extended attributes (as root, not at a daemon, also trusted.*)
    #[cfg_attr(feature = "clap", arg(short = 'X', long, help_heading = KEEP))]
    pub xattrs: bool,
    /// Keep access control lists; users and groups in them are numbers
    #[cfg_attr(feature = "clap", arg(short = 'A', long, help_heading = KEEP))]
    pub acls: bool,
    /// Make pipes and sockets, which are skipped otherwise
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub specials: bool,
    /// Make devices, which are skipped otherwise (as root, not at a daemon)
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub devices: bool,
    /// Take symbolic links for what they lead to
    #[cfg_attr(feature = "clap", arg(short = 'L', long, help_heading = KEEP))]
    pub follow: bool,
    /// Skip symbolic links that lead out of what is copied
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub safe_links: bool,
    /// Skip symbolic links
    #[cfg_attr(feature = "clap", arg(long, conflicts_with = "follow", help_heading = KEEP))]
    pub no_links: bool,
    /// Where a directory comes, use a symbolic link to a directory that the receiver has (its user's, or root's)
    #[cfg_attr(feature = "clap", arg(short = 'K', long, help_heading = KEEP))]
    pub keep_dirlinks: bool,
}

/// Where the command line lists them.
#[cfg(feature = "clap")]
const KEEP: &str = "Keep";

/// How it is made sure that what arrives is what was sent, and stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IntegrityOptions {
    /// How arrival is verified.
    pub verify: VerifyMode,
    /// When it counts.
    pub durable: Durability,
    /// None when nobody writes a manifest, and there is no receipt.
    pub manifest: Option<ManifestOptions>,
    /// The name of this transfer in its receipt: 32 hexadecimal digits; none for no receipt. A job sets it by its
    /// [`ReceiptOptions`](crate::ReceiptOptions).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub receipt: Option<String>,
}

impl IntegrityOptions {
    /// What is signed has been computed, and is on the disk.
    fn checked(&mut self, dry_run: bool) -> Result<(), Error> {
        let Some(transfer) = &self.receipt else { return Ok(()) };
        if transfer.len() != 32 || !transfer.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return bad("the name of a transfer in a receipt has 32 hexadecimal digits");
        }
        if dry_run {
            return bad("--receipt and --dry-run contradict each other: nothing is brought");
        }
        if self.verify == VerifyMode::Transit {
            return bad("a receipt needs digests: use --verify digest or readback");
        }
        if self.durable == Durability::No {
            self.durable = Durability::End;
        }
        self.manifest.get_or_insert_default();
        Ok(())
    }
}

/// The options of one transfer, in groups, each of which is judged and passed as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferOptions {
    /// What the session has of them, which a hello has beside them.
    #[serde(skip)]
    pub network: NetworkOptions,
    /// How files are made.
    pub files: FileOptions,
    /// Default: everything is taken.
    pub select: SelectOptions,
    /// How it is made sure that all is right.
    pub integrity: IntegrityOptions,
    /// Default: each location is one place.
    pub spread: SpreadOptions,
    /// None for a copy.
    pub sync: Option<SyncOptions>,
    /// Decide and list, but change nothing.
    pub dry_run: bool,
}

/// All else as it is by default.
impl From<NetworkOptions> for TransferOptions {
    fn from(network: NetworkOptions) -> Self {
        TransferOptions { network, ..TransferOptions::default() }
    }
}

/// A file that has not grown for so long is done; times that end the clock are refused with it.
const FOLLOW_GROWTH_SECS_MAX: u64 = 7 * 24 * 3600;

/// Enough for what a change of the clocks does to times that a file system keeps as local ones.
const MODIFY_WINDOW_SECS_MAX: u64 = 24 * 3600;

impl TransferOptions {
    /// Files of the same size are compared by their digests.
    pub(crate) fn compares_content(&self) -> bool {
        compares_content(&self.files, self.sync.as_ref())
    }
}

/// As [`TransferOptions::compares_content`].
pub(crate) fn compares_content(files: &FileOptions, sync: Option<&SyncOptions>) -> bool {
    files.overwrite == OverwriteMode::Content || sync.is_some_and(|sync| sync.checksum)
}

impl FileOptions {
    /// Extended attributes that are kept.
    pub(crate) fn attributes(&self, is_daemon: bool) -> AttributeKinds {
        AttributeKinds::chosen(self.xattrs, self.acls, is_daemon, self.keep_setuid)
    }

    fn checked(self) -> Result<FileOptions, Error> {
        if self.in_place && self.delta == Some(false) {
            return bad(
                "--inplace changes only what differs, and --whole-file sends everything: leave one of them",
            );
        }
        if self.in_place && self.overwrite == OverwriteMode::Older {
            return bad(
                "--inplace and --overwrite older contradict each other: a file that is half new is not older",
            );
        }
        if self.no_perms && self.keep_setuid {
            return bad("-p keeps all bits of modes, and --no-perms none: leave one of them");
        }
        if self.modify_window_secs > MODIFY_WINDOW_SECS_MAX {
            return bad("--modify-window takes at most a day");
        }
        if self.follow_growth_secs.is_some_and(|secs| secs > FOLLOW_GROWTH_SECS_MAX) {
            return bad("--follow-growth takes at most a week");
        }
        Ok(self)
    }
}

fn bad<T>(text: &str) -> Result<T, Error> {
    Err(Error::new(Code::BadOption, text))
}

impl TransferOptions {
    /// The one place that judges options, whoever they came from.
    pub fn checked(mut self) -> Result<Self, Error> {
        self.network = self.network.checked()?;
        self.select.checked()?;
        self.spread.checked()?;
        let files = self.files.checked()?;
        if files.in_place && self.integrity.verify == VerifyMode::Transit {
            return bad("--inplace needs a digest: use --verify digest or readback");
        }
        if files.follow && !self.spread.source.is_empty() {
            return bad("--follow and a source that is spread over several directories do not go together");
        }
        if self.sync.is_some_and(|sync| sync.detect_renames) && !self.spread.target.is_empty() {
            return bad("--detect-renames looks in one directory only, not in those of --spread");
        }
        if let Some(SyncOptions { detect_renames: true, delete: Some(delete), .. }) = &mut self.sync {
            // What is deleted first cannot be renamed.
            delete.when = DeleteWhen::After;
        }
        if let Some(sync) = &self.sync {
            if sync.checksum && !matches!(files.overwrite, OverwriteMode::Different | OverwriteMode::Content)
            {
                return bad("--checksum and --overwrite contradict each other: leave one of them");
            }
            if sync.delete.is_some() && self.select.by_name {
                return bad(
                    "--delete and --files-from contradict each other: a list of names is not the whole source",
                );
            }
        }
        self.integrity.checked(self.dry_run)?;
        let manifest = self.integrity.manifest.as_ref();
        if manifest.is_some_and(|manifest| manifest.extra.len() > Algorithm::ALL.len()) {
            return bad("--checksum-extra: the same digest is asked for twice");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
