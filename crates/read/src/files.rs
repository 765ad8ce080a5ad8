//! The files that a client has open at the server, by the numbers that it has given them.
//!
//! Always true: a file is opened once, by the first thread that needs it, and is read only while it stays
//! unchanged; the table is bounded.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge, Resource};
use farhaul_volume::Metadata;
use farhaul_words::{Code, Error, Failure, Misbehaviour};

use super::read_scope::{ReadScope, is_as_it_was};

/// The most files that may be open at a time.
pub(crate) const OPEN_MAX: usize = 1024;

/// A file that is to be read.
pub(crate) struct ServedFile {
    path: Vec<u8>,
    /// The charge for its descriptor, or the failure if none was left.
    descriptor: Result<Charge, Failure>,
    opened: OnceLock<Result<OpenedFile, Failure>>,
}

/// A file that is open.
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) meta: Metadata,
}

impl ServedFile {
    /// The open file; the first call opens it.
    pub(crate) fn get_or_open(&self, scope: &ReadScope) -> Result<&OpenedFile, Failure> {
        let open = || {
            self.descriptor.as_ref().map_err(Failure::clone)?;
            let (file, meta) = scope.open(&self.path)?;
            Ok(OpenedFile { file, meta })
        };
        self.opened.get_or_init(open).as_ref().map_err(Failure::clone)
    }
}

impl OpenedFile {
    /// Fails if the file has changed since it was opened.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match is_as_it_was(&self.file, &self.meta) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::new(Code::SourceChanged, "it has changed since it was opened")),
            Err(error) => Err(Failure::cannot("look it up", &error)),
        }
    }
}

/// All files of the client.
pub(crate) struct ServedFiles {
    budget: Budget,
    open: Mutex<HashMap<u64, Arc<ServedFile>>>,
}

impl ServedFiles {
    pub(crate) fn new(budget: &Budget) -> ServedFiles {
        ServedFiles { budget: budget.clone(), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<ServedFile>>> {
        self.open.lock().whole()
    }

    /// Adds the file at `path` under this number.
    pub(crate) fn add(&self, number: u64, path: Vec<u8>) -> Result<Arc<ServedFile>, Error> {
        let mut open = self.open();
        if open.len() == OPEN_MAX {
            return Err(Error::misbehaved(
                Misbehaviour::TooMuchAsked,
                format!("it has more than {OPEN_MAX} files open"),
            ));
        }
        let descriptor = self.budget.charge_of(Resource::LargeFiles, 1);
        let descriptor = descriptor.map_err(|full| Failure::new(Code::ShareUsed, full.to_string()));
        let file = Arc::new(ServedFile { path, descriptor, opened: OnceLock::new() });
        if open.insert(number, file.clone()).is_some() {
            return Err(Error::misbehaved(
                Misbehaviour::FileNumber,
                format!("it opens file {number} for the second time"),
            ));
        }
        Ok(file)
    }

    pub(crate) fn get(&self, number: u64) -> Result<Arc<ServedFile>, Error> {
        self.open().get(&number).cloned().ok_or_else(|| unknown(number))
    }

    /// Frees the number. Reads that have begun go on.
    pub(crate) fn close(&self, number: u64) -> Result<(), Error> {
        self.open().remove(&number).map(drop).ok_or_else(|| unknown(number))
    }
}

fn unknown(number: u64) -> Error {
    Error::misbehaved(Misbehaviour::FileNumber, format!("it named file {number}, which is not open"))
}
