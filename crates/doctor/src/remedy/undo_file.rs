//! The undo file: every setting that the doctor has changed, with the value that it had before.
//!
//! The file is replaced as a whole, and synced, at each step, so that it is always either the one before the step or
//! the one after it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The check that asked for it.
    pub(super) check: String,
    /// The setting.
    pub(super) place: String,
    /// The value before.
    pub(super) before: String,
    /// The value that it was given; what the system has made of it once that is known.
    pub(super) after: String,
    /// The kernel's ID of its run: settings of an earlier run are gone.
    pub(super) boot: String,
    /// Whether it is set again at each start.
    pub(super) is_persistent: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct Document {
    schema: u32,
    records: Vec<Record>,
}

/// The undo file, held for this process alone.
pub struct UndoFile {
    path: PathBuf,
    pub(super) records: Vec<Record>,
    /// The lock lives as long as this.
    _lock: File,
}

impl UndoFile {
    /// Where it lies unless somebody says otherwise.
    pub const PATH: &str = "/var/lib/farhaul/doctor/undo.json";

    /// Opens the undo file, and waits for another process that has it.
    pub fn open(path: &Path) -> Result<UndoFile, Error> {
        UndoFile::opened(path)
            .map_err(|error| Error::UndoFile { path: path.display().to_string(), reason: error.to_string() })
    }

    fn opened(path: &Path) -> io::Result<UndoFile> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let lock = File::create(path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let records = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice::<Document>(&bytes)?.records,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(UndoFile { path: path.to_owned(), records, _lock: lock })
    }

    /// Whether nothing is left to undo.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The settings that are set again at each start, with their values.
    pub(super) fn persistent(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.is_persistent)
    }

    /// Puts the records on the disk. When this returns, they are there.
    pub(super) fn save(&self) -> Result<(), Error> {
        self.saved().map_err(|error| Error::UndoFile {
            path: self.path.display().to_string(),
            reason: error.to_string(),
        })
    }

    fn saved(&self) -> io::Result<()> {
        let next = self.path.with_extension("next");
        let mut file = File::create(&next)?;
        let document = Document { schema: 1, records: self.records.clone() };
        serde_json::to_writer_pretty(&mut file, &document)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&next, &self.path)?;
        let directory =
            self.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}
