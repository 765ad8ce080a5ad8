//! The options of a transfer, grouped as they are judged.

use farhaul_api::{JobKind, JobSpan};
use farhaul_copy::{
    BackupOptions, EarlierOptions, FileOptions, IntegrityOptions, OwnerOptions, SelectOptions, SpreadOptions,
    SyncOptions, TransferOptions,
};
use farhaul_session::NetworkOptions;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

use super::{bytes, bytes_of};

/// The options of a job, grouped as they are judged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct JobOptions {
    /// How content travels.
    pub network: NetworkOptions,
    /// How files are written.
    pub files: FileOptions,
    /// Which entries are taken.
    pub select: SelectRules,
    /// How integrity is ensured.
    pub integrity: IntegrityOptions,
    /// Lists of directories, each on a device of its own. A location in one of them is spread over all
    /// directories of its list.
    pub spread: Vec<Vec<String>>,
    /// Directories at the destination's host that hold earlier copies.
    #[serde(skip_serializing_if = "EarlierRules::is_empty")]
    pub earlier: EarlierRules,
    /// Whom the entries at the destination belong to.
    #[serde(skip_serializing_if = "is_usual")]
    pub owners: OwnerOptions,
    /// How what is replaced or deleted at the destination is kept; `null`: it is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupRules>,
    /// Options that a sync has beyond those of a copy. Only for the kind `sync`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncOptions>,
    /// True to decide and list only, and to change nothing.
    pub dry_run: bool,
}

/// Directories with earlier copies. A relative path begins at the destination.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct EarlierRules {
    /// A file that one of them has, and the destination lacks, becomes a hard link to it.
    #[cfg_attr(feature = "schema", schema(max_items = 20))]
    pub link: Vec<String>,
    /// An entry that one of them has, and the destination lacks, is left out.
    #[cfg_attr(feature = "schema", schema(max_items = 20))]
    pub compare: Vec<String>,
}

impl EarlierRules {
    fn is_empty(&self) -> bool {
        self.link.is_empty() && self.compare.is_empty()
    }
}

fn is_usual(owners: &OwnerOptions) -> bool {
    *owners == OwnerOptions::default()
}

/// How what is replaced or deleted is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BackupRules {
    /// The directory at the destination's host that takes it, under the path that it had below the destination. A
    /// relative path begins at the destination. `null`: it stays in its own directory.
    pub dir: Option<String>,
    /// The end of its other name. `null`: `~`, or none with `dir`.
    pub suffix: Option<String>,
}

impl BackupRules {
    fn options(&self) -> Result<BackupOptions, Error> {
        if self.dir.as_ref().is_some_and(String::is_empty) {
            return Err(Error::new(Code::BadOption, "options.backup.dir must not be empty"));
        }
        let usual = || Ok(BackupOptions::default_suffix(self.dir.is_some()).to_vec());
        Ok(BackupOptions {
            dir: self.dir.as_deref().map(bytes).transpose()?.unwrap_or_default(),
            suffix: self.suffix.as_deref().map_or_else(usual, bytes)?,
        })
    }
}

/// Which entries of the sources are taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SelectRules {
    /// Filter rules, in the form of `--filter`: `- *.tmp`, `+ /keep/**`.
    pub rules: Vec<String>,
    /// Takes only these names from the single source directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Takes only files of at least this many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_min: Option<u64>,
    /// Takes only files of at most this many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_max: Option<u64>,
    /// Takes only files that have not changed for this long when the run begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub age_min: Option<JobSpan>,
    /// Takes only files that have changed within this long before the run begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub age_max: Option<JobSpan>,
    /// True to leave out the content of directories on which something is mounted. The directories
    /// themselves are taken.
    pub one_file_system: bool,
    /// Nothing is done unless every source has these entries: paths below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<String>,
}

impl JobOptions {
    /// The options of a run of this kind that begins at `now_s` (seconds since 1970). Lists of names and of
    /// directories are not among them: see [`JobOptions::names`] and [`JobOptions::spread_lists`].
    pub fn transfer_options(&self, kind: JobKind, now_s: i64) -> Result<TransferOptions, Error> {
        let JobOptions { network, files, select, integrity, earlier, owners, backup, sync, dry_run, .. } =
            self;
        let ago = |span: JobSpan| now_s.saturating_sub_unsigned(span.0);
        let select_options = SelectOptions {
            rules: bytes_of(&select.rules)?,
            size_min: select.size_min,
            size_max: select.size_max,
            mtime_min: select.age_max.map(ago),
            mtime_max: select.age_min.map(ago),
            by_name: select.names.is_some(),
            one_file_system: select.one_file_system,
            require: bytes_of(&select.require)?,
        };
        Ok(TransferOptions {
            network: network.clone(),
            files: *files,
            select: select_options,
            integrity: integrity.clone(),
            spread: SpreadOptions::default(),
            earlier: EarlierOptions { link: bytes_of(&earlier.link)?, compare: bytes_of(&earlier.compare)? },
            owners: owners.clone(),
            backup: backup.as_ref().map(BackupRules::options).transpose()?,
            sync: match kind {
                JobKind::Copy => None,
                JobKind::Sync => Some(sync.unwrap_or_default()),
            },
            dry_run: *dry_run,
        })
    }

    /// The names of [`SelectRules::names`].
    pub fn names(&self) -> Result<Option<Vec<Vec<u8>>>, Error> {
        self.select.names.as_deref().map(bytes_of).transpose()
    }

    /// The lists of [`JobOptions::spread`].
    pub fn spread_lists(&self) -> Result<Vec<Vec<Vec<u8>>>, Error> {
        self.spread.iter().map(|list| bytes_of(list)).collect()
    }
}
