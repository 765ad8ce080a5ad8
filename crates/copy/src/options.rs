//! The options of a transfer that the user may choose. The same struct travels to the far end, so both ends
//! work by the same options. `Default` works; [`TransferOptions::checked`] is the only place that judges
//! options.
#![deny(missing_docs)]

use farhaul_session::options::NetworkOptions;
use farhaul_volume::{Algorithm, AttributeKinds, Filter, RelPath, ScanOptions, SizeLimits};
use farhaul_words::{Code, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::owners::OwnerOptions;

/// What happens to a destination file that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum OverwriteMode {
    /// Send and replace whatever is there.
    Always,
    /// Replace only what is older than the source.
    Older,
    /// Skip a file of the same size and modification time, replace the rest.
    #[default]
    Different,
    /// Skip a file of the same content, whatever its times are, but set its mode and time; replace the rest.
    Content,
    /// Leave everything that exists as it is.
    Never,
}

/// How the receiver makes sure that it has what the sender read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum VerifyMode {
    /// The seal of each datagram only. With `cipher none` that is a checksum, which does not stop anybody
    /// from changing content on purpose.
    Transit,
    /// A BLAKE3 tree over every file, from the sender's read buffer to the receiver's write buffer.
    #[default]
    Digest,
    /// As `Digest`, and the receiver reads the file back before it gets its name.
    Readback,
}

/// Selects which of the sources' entries are taken; checked before a scan begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectOptions {
    /// Filter rules, one a line, see [`farhaul_volume::RuleList`]. At most 4096 rules and 64 KiB.
    #[serde(with = "crate::request::base64_list")]
    pub rules: Vec<Vec<u8>>,
    /// The smallest size of a file, in bytes. Default: none.
    pub size_min: Option<u64>,
    /// The largest size of a file, in bytes. Default: none.
    pub size_max: Option<u64>,
    /// The earliest modification time of a file, in seconds since 1970. Default: none.
    pub mtime_min: Option<i64>,
    /// The latest modification time of a file. Default: none.
    pub mtime_max: Option<i64>,
    /// Directories on which something is mounted are taken without their content.
    pub one_file_system: bool,
    /// Only the entries of a list of names are taken; on a pull the list follows on the control stream.
    pub by_name: bool,
    /// Nothing is done unless every source has these entries: paths below it. At most 64.
    #[serde(with = "crate::request::base64_list")]
    pub require: Vec<Vec<u8>>,
}

/// The most entries that a source can be required to have.
const REQUIRED_MAX: usize = 64;

impl SelectOptions {
    fn checked(&self) -> Result<(), Error> {
        self.scan()?;
        self.required()?;
        if self.size_min.zip(self.size_max).is_some_and(|(min, max)| min > max) {
            return bad("`min-size` must not be above `max-size`");
        }
        if self.mtime_min.zip(self.mtime_max).is_some_and(|(min, max)| min > max) {
            return bad("`min-age` must not be above `max-age`");
        }
        Ok(())
    }

    /// The entries that every source must have.
    pub(crate) fn required(&self) -> Result<Vec<RelPath>, Error> {
        if self.require.len() > REQUIRED_MAX {
            return bad("`require` names at most 64 entries");
        }
        let path = |path: &Vec<u8>| {
            RelPath::from_bytes(path).map_err(|error| {
                let path = farhaul_text::printable(path, 200);
                let what = format!("`require` {path}: {error}");
                Error::new(Code::BadOption, what).with_hint("name an entry by its path below the source")
            })
        };
        self.require.iter().map(path).collect()
    }

    /// The options of a scan, without the names.
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

/// Directories, each on a device of its own, that together are one source or the destination.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpreadOptions {
    /// A source that lies in one of these directories lies in all of them. Empty, or 2 to 64.
    #[serde(with = "crate::request::base64_list")]
    pub source: Vec<Vec<u8>>,
    /// A destination that lies in one of these directories lies in all of them.
    #[serde(with = "crate::request::base64_list")]
    pub target: Vec<Vec<u8>>,
}

/// The most directories that one location may be spread over.
pub const SPREAD_MAX: usize = 64;

impl SpreadOptions {
    /// The number of files that have to be under way at a time so that each directory has one.
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
                    "`spread` takes 2 to 64 directories, separated by commas",
                ));
            }
            if (0..count).any(|one| (0..count).any(|other| one != other && is_below(one, other))) {
                let what = "`spread` takes different directories, none of them in another one";
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

/// The part of `path` behind `directory`; `None` if it does not lie below that.
fn below<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(directory).filter(|rest| rest.is_empty() || rest[0] == b'/')
}

fn trimmed(directory: &[u8]) -> &[u8] {
    let end = directory.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    &directory[..end]
}

/// Directories at the destination's host that hold earlier copies of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EarlierOptions {
    /// A file that one of them has, and the destination lacks, becomes a hard link to it. At most 20; a relative
    /// path begins at the destination.
    #[serde(with = "crate::request::base64_list")]
    pub link: Vec<Vec<u8>>,
    /// An entry that one of them has, and the destination lacks, is left out. Only if `link` is empty.
    #[serde(with = "crate::request::base64_list")]
    pub compare: Vec<Vec<u8>>,
}

/// The most directories with earlier copies, as in rsync.
const EARLIER_MAX: usize = 20;

impl EarlierOptions {
    pub(crate) fn is_empty(&self) -> bool {
        self.link.is_empty() && self.compare.is_empty()
    }

    fn checked(&self, integrity: &IntegrityOptions) -> Result<(), Error> {
        if !self.link.is_empty() && !self.compare.is_empty() {
            return bad("`link-dest` and `compare-dest` contradict each other: leave one of them out");
        }
        let all = || self.link.iter().chain(&self.compare);
        if all().count() > EARLIER_MAX || all().any(Vec::is_empty) {
            return bad("`link-dest` and `compare-dest` take up to 20 directories");
        }
        let reads_all = integrity.manifest.as_ref().is_some_and(|manifest| manifest.unchanged);
        if !self.compare.is_empty() && (integrity.receipt.is_some() || reads_all) {
            return bad(
                "with `compare-dest` the destination lacks files, so there is no receipt, and `checksum-unchanged` has nothing to read",
            );
        }
        Ok(())
    }
}

/// Keeps what is replaced or deleted at the destination under another name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupOptions {
    /// The directory at the destination's host that takes what is kept, under the path that it had below the
    /// destination; a relative path begins at the destination. Empty: it stays in its own directory.
    #[serde(with = "crate::request::base64_bytes")]
    pub dir: Vec<u8>,
    /// Is added to its name; must not be empty if `dir` is.
    #[serde(with = "crate::request::base64_bytes")]
    pub suffix: Vec<u8>,
}

/// The longest suffix: half of the longest name.
const SUFFIX_MAX: usize = 127;

impl BackupOptions {
    /// The suffix that is used if the user names none, as in rsync.
    pub fn default_suffix(has_directory: bool) -> &'static [u8] {
        if has_directory { b"" } else { b"~" }
    }

    fn checked(&self) -> Result<(), Error> {
        if self.suffix.contains(&b'/') || self.suffix.contains(&0) || self.suffix.len() > SUFFIX_MAX {
            return bad("`suffix` takes the end of a name: up to 127 bytes without a slash");
        }
        if self.dir.is_empty() && self.suffix.is_empty() {
            return bad("`suffix` must not be empty without `backup-dir`: what is kept needs another name");
        }
        Ok(())
    }

    /// The path of the directory below the destination, as far as its text says that it lies there.
    pub(crate) fn own_directory(&self) -> Option<RelPath> {
        let plain =
            crate::resolution::earlier_path(b"", &self.dir).filter(|_| !self.dir.starts_with(b"/"))?;
        RelPath::from_bytes(plain.strip_prefix(b"/")?).ok()
    }

    /// The name that `path` is kept under, for people.
    pub(crate) fn shown(&self, path: &[u8]) -> String {
        let dir = if self.dir.is_empty() || self.dir.ends_with(b"/") { &b""[..] } else { b"/" };
        farhaul_text::escape(&[&self.dir, dir, path, &self.suffix].concat())
    }
}

/// When surplus entries are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DeleteWhen {
    /// Before anything is sent; the source is listed twice for that.
    Before,
    /// After everything else.
    #[default]
    After,
}

/// The most that one run may remove; if more would go, nothing is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DeleteLimit {
    /// This many entries.
    Entries(u64),
    /// This share of the destination's entries: `10%`.
    Share(Percent),
}

/// A whole number of percent, written as `10%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
pub struct Percent(u8);

impl Percent {
    /// The number.
    pub fn value(self) -> u8 {
        self.0
    }
}

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Percent, String> {
        let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
        number.filter(|&number| number <= 100).map(Percent).ok_or_else(|| {
            format!(
                "write a share as 10%, from 0% to 100%, and not '{}'",
                farhaul_text::printable(text.as_bytes(), 40)
            )
        })
    }
}

impl From<Percent> for String {
    fn from(percent: Percent) -> String {
        format!("{}%", percent.0)
    }
}

impl std::str::FromStr for DeleteLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<DeleteLimit, String> {
        match text.parse() {
            Ok(entries) => Ok(DeleteLimit::Entries(entries)),
            Err(_) if text.ends_with('%') => Percent::try_from(text.to_string()).map(DeleteLimit::Share),
            Err(_) => Err("write a number of entries, or a share as 10%".into()),
        }
    }
}

impl std::fmt::Display for DeleteLimit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeleteLimit::Entries(entries) => write!(formatter, "{entries}"),
            DeleteLimit::Share(Percent(percent)) => write!(formatter, "{percent}%"),
        }
    }
}

/// The place that a source was found in: another disk has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRoot {
    /// The number of its file system.
    pub file_system: u64,
    /// The inode of its directory.
    pub inode: u64,
}

/// Removes what the destination has and the source has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeleteOptions {
    /// Default: after everything else.
    pub when: DeleteWhen,
    /// Remove also what filter rules exclude.
    pub excluded: bool,
    /// If more than this would be removed, remove nothing. Default: with the guard more than half of the
    /// entries and more than 100, and without it no limit.
    pub max: Option<DeleteLimit>,
    /// Empty also what is mounted below the destination.
    pub across_mounts: bool,
    /// Remove nothing if the source looks as if its disk were not mounted: it is empty, it is another
    /// directory than at the last run, or most entries would go. Default: on in a job, off on a terminal.
    pub guard: Option<bool>,
    /// Let one run go in spite of the guard and of `max`; of a job that repeats, the first one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub anyway: bool,
    /// The source of the last run, for the guard.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub last_root: Option<SourceRoot>,
}

impl DeleteOptions {
    /// Whether the deletions are counted before the first one, and may be too many.
    pub(crate) fn is_judged(&self) -> bool {
        !self.anyway && (self.guard == Some(true) || self.max.is_some())
    }
}

/// Makes the destination like the content of the one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SyncOptions {
    /// Compare files of the same size by their digests, not by their times.
    pub checksum: bool,
    /// Take a file from the destination if it is there under another name.
    pub detect_renames: bool,
    /// How surplus entries are removed. `None`: nothing is removed.
    pub delete: Option<DeleteOptions>,
}

/// The digests that the receiver computes for the client's manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ManifestOptions {
    /// Compute digests also of files that were there already; they are read for that.
    pub unchanged: bool,
    /// Digests of other algorithms, for other tools. Each file that has arrived is read once for all of them.
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
    /// When the system has them. After a power loss, the next run notices what was lost.
    #[default]
    No,
    /// Success is reported only after all data were synced to the disk.
    End,
    /// A file counts as arrived only after it and its directory were synced.
    File,
}

/// How files are compared, made and changed, and what is kept of them beside names, contents, modes and
/// times. Options that the command line has in the same form get their names and help texts from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FileOptions {
    /// How files are treated that exist at the destination.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub overwrite: OverwriteMode,
    /// If another version of a large file is there, send only what differs. Default: if the ends are on
    /// different hosts.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub delta: Option<bool>,
    /// Change such a file in place, not beside it. That takes no additional room, but an interrupted run
    /// leaves a file that is half new.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub in_place: bool,
    /// Send also what is appended to a file meanwhile, until the file has not grown for this many seconds.
    /// Default: the file is taken as it was listed.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub follow_growth_secs: Option<u64>,
    /// Name each file by a rename, so that programs that watch a directory get one event (`IN_MOVED_TO`) for
    /// every whole file. Default: a new small file gets its name by a link, which they see as `IN_CREATE`.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub announce: bool,
    /// Take names with one inode number as one file (hard links). Default: on file systems that are known to
    /// keep inode numbers, and not on others, such as those of programs (FUSE).
    #[cfg_attr(feature = "clap", arg(skip))]
    pub hard_links: Option<bool>,
    /// Keep set-user-id and set-group-id bits (a daemon still takes them off).
    #[cfg_attr(feature = "clap", arg(skip))]
    pub keep_setuid: bool,
    /// Times that differ by at most this many seconds are taken as equal. Default: a time is equal to what
    /// the destination's file system keeps of it.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub modify_window_secs: u64,
    /// Leave modes as the receiver's umask and directories make them
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub no_perms: bool,
    /// Leave modification times as they come; the next run then sends all files again, unless it uses
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
    /// Copy what symbolic links lead to, not the links
    #[cfg_attr(feature = "clap", arg(short = 'L', long, help_heading = KEEP))]
    pub follow: bool,
    /// Skip symbolic links that lead out of what is copied
    #[cfg_attr(feature = "clap", arg(long, help_heading = KEEP))]
    pub safe_links: bool,
    /// Skip symbolic links
    #[cfg_attr(feature = "clap", arg(long, conflicts_with = "follow", help_heading = KEEP))]
    pub no_links: bool,
    /// Keep a symbolic link to a directory (the receiving user's, or root's) where a directory arrives
    #[cfg_attr(feature = "clap", arg(short = 'K', long, help_heading = KEEP))]
    pub keep_dirlinks: bool,
}

/// The heading of these options in the command line's help.
#[cfg(feature = "clap")]
const KEEP: &str = "Keep";

/// How arrival is verified and secured against a crash.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IntegrityOptions {
    /// How arrival is verified.
    pub verify: VerifyMode,
    /// When data count as safe.
    pub durable: Durability,
    /// The digests for a manifest. `None` if nobody writes one and there is no receipt.
    pub manifest: Option<ManifestOptions>,
    /// The name of this transfer in its receipt: 32 hexadecimal digits; `None` for no receipt. A job sets it
    /// by its [`ReceiptOptions`](crate::ReceiptOptions).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub receipt: Option<String>,
}

impl IntegrityOptions {
    /// Checks the options, and makes those of a receipt complete: what is signed has to be computed and on
    /// the disk.
    fn checked(&mut self, dry_run: bool) -> Result<(), Error> {
        let Some(transfer) = &self.receipt else { return Ok(()) };
        if transfer.len() != 32 || !transfer.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return bad("the name of a transfer in a receipt has 32 hexadecimal digits");
        }
        if dry_run {
            return bad("`receipt` and `dry-run` contradict each other: a dry run copies nothing");
        }
        if self.verify == VerifyMode::Transit {
            return bad("a receipt needs digests: use `verify` digest or readback");
        }
        if self.durable == Durability::No {
            self.durable = Durability::End;
        }
        self.manifest.get_or_insert_default();
        Ok(())
    }
}

/// The options of one transfer, in groups. Each group is checked and passed as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferOptions {
    /// The session's options, which travel beside the others in the hello.
    #[serde(skip)]
    pub network: NetworkOptions,
    /// How files are compared, made and changed.
    pub files: FileOptions,
    /// Default: everything is taken.
    pub select: SelectOptions,
    /// How arrival is verified.
    pub integrity: IntegrityOptions,
    /// Directories that a source or the destination is spread over. Default: each location is one directory.
    pub spread: SpreadOptions,
    /// Directories with earlier copies. Default: none.
    pub earlier: EarlierOptions,
    /// Whom the entries at the destination belong to. Default: who runs the receiver, or who owns the file that
    /// is replaced.
    pub owners: OwnerOptions,
    /// How what is replaced or deleted is kept. Default: it is not kept.
    pub backup: Option<BackupOptions>,
    /// The options of a sync; `None` for a copy.
    pub sync: Option<SyncOptions>,
    /// Decide and list, but change nothing.
    pub dry_run: bool,
}

/// Leaves all other options at their defaults.
impl From<NetworkOptions> for TransferOptions {
    fn from(network: NetworkOptions) -> Self {
        TransferOptions { network, ..TransferOptions::default() }
    }
}

/// The longest time that a file may have to grow; larger times would overflow the clock.
const FOLLOW_GROWTH_SECS_MAX: u64 = 7 * 24 * 3600;

/// The largest window. A day covers the changes of clocks that affect a file system with local times.
const MODIFY_WINDOW_SECS_MAX: u64 = 24 * 3600;

impl TransferOptions {
    /// Whether files of the same size are compared by their digests.
    pub(crate) fn compares_content(&self) -> bool {
        compares_content(&self.files, self.sync.as_ref())
    }
}

/// As [`TransferOptions::compares_content`].
pub(crate) fn compares_content(files: &FileOptions, sync: Option<&SyncOptions>) -> bool {
    files.overwrite == OverwriteMode::Content || sync.is_some_and(|sync| sync.checksum)
}

impl FileOptions {
    /// The kinds of extended attributes that are kept.
    pub(crate) fn attributes(&self, is_daemon: bool) -> AttributeKinds {
        AttributeKinds::chosen(self.xattrs, self.acls, is_daemon, self.keep_setuid)
    }

    fn checked(self) -> Result<FileOptions, Error> {
        if self.in_place && self.delta == Some(false) {
            return bad(
                "`inplace` changes only what differs, and `whole-file` sends everything: leave one of them out",
            );
        }
        if self.in_place && self.overwrite == OverwriteMode::Older {
            return bad(
                "`inplace` and `overwrite` older contradict each other: a file that is half new is not older",
            );
        }
        if self.no_perms && self.keep_setuid {
            return bad("`preserve` keeps all bits of modes, and `no-perms` none: leave one of them out");
        }
        if self.modify_window_secs > MODIFY_WINDOW_SECS_MAX {
            return bad("`modify-window` takes at most a day");
        }
        if self.follow_growth_secs.is_some_and(|secs| secs > FOLLOW_GROWTH_SECS_MAX) {
            return bad("`follow-growth` takes at most a week");
        }
        Ok(self)
    }
}

fn bad<T>(text: &str) -> Result<T, Error> {
    Err(Error::new(Code::BadOption, text))
}

impl TransferOptions {
    /// Checks the options, whoever they came from; nothing else judges them.
    pub fn checked(mut self) -> Result<Self, Error> {
        self.network = self.network.checked()?;
        self.select.checked()?;
        self.spread.checked()?;
        self.earlier.checked(&self.integrity)?;
        let files = self.files.checked()?;
        if files.in_place && self.integrity.verify == VerifyMode::Transit {
            return bad("`inplace` needs a digest: use `verify` digest or readback");
        }
        if files.follow && !self.spread.source.is_empty() {
            return bad("`follow` and a source that is spread over several directories do not go together");
        }
        if !self.earlier.is_empty() && !self.spread.target.is_empty() {
            return bad(
                "`link-dest` and `compare-dest` look in one directory only, not in those of `spread`",
            );
        }
        self.owners.checked()?;
        if let Some(backup) = &self.backup {
            backup.checked()?;
            if !self.spread.target.is_empty() {
                return bad("`backup` keeps files of one directory only, not of those of `spread`");
            }
        }
        if self.sync.is_some_and(|sync| sync.detect_renames) && !self.spread.target.is_empty() {
            return bad("`detect-renames` looks in one directory only, not in those of `spread`");
        }
        if let Some(SyncOptions { detect_renames: true, delete: Some(delete), .. }) = &mut self.sync {
            // A file that is deleted first cannot be renamed.
            delete.when = DeleteWhen::After;
        }
        if let Some(sync) = &self.sync {
            if sync.checksum && !matches!(files.overwrite, OverwriteMode::Different | OverwriteMode::Content)
            {
                return bad("`checksum` and `overwrite` contradict each other: leave one of them out");
            }
            if sync.delete.is_some() && self.select.by_name {
                return bad(
                    "`delete` and `files-from` contradict each other: a list of names is not the whole source",
                );
            }
        }
        self.integrity.checked(self.dry_run)?;
        let manifest = self.integrity.manifest.as_ref();
        if manifest.is_some_and(|manifest| manifest.extra.len() > Algorithm::ALL.len()) {
            return bad("`checksum-extra`: the same digest is asked for twice");
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
        let required = |path: &str| SelectOptions { require: vec![path.into()], ..none() };
        assert!(judge(required("a/b"), None));
        assert!(!judge(required("/a"), None) && !judge(required("../a"), None) && !judge(required(""), None));
    }

    #[test]
    fn earlier_copies_that_contradict_other_options_are_refused() {
        let judge = |link: usize, compare: usize, change: &dyn Fn(&mut TransferOptions)| {
            let list = |count| vec![b"../monday".to_vec(); count];
            let earlier = EarlierOptions { link: list(link), compare: list(compare) };
            let mut options = TransferOptions { earlier, ..TransferOptions::default() };
            change(&mut options);
            options.checked().is_ok()
        };
        assert!(judge(0, 0, &|_| {}) && judge(20, 0, &|_| {}) && judge(0, 20, &|_| {}));
        assert!(!judge(1, 1, &|_| {}) && !judge(21, 0, &|_| {}) && !judge(0, 21, &|_| {}));
        assert!(!judge(1, 0, &|options| options.earlier.link[0].clear()));
        let signed = |options: &mut TransferOptions| options.integrity.receipt = Some("0".repeat(32));
        assert!(judge(1, 0, &signed) && !judge(0, 1, &signed));
        let spread =
            |options: &mut TransferOptions| options.spread.target = vec![b"/a".to_vec(), b"/b".to_vec()];
        assert!(!judge(1, 0, &spread) && judge(0, 0, &spread));
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
