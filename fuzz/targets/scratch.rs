//! Directories for one input at a time, in memory if the system has such a place.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// An empty directory in `TMPDIR` or, if that is not set, in memory.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    match std::env::var_os("TMPDIR").is_none() && memory.is_dir() {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    }
    .expect("a directory can be made")
}

/// A file that is written anew for each input.
pub(crate) struct Scratch {
    folder: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { folder: folder() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("file");
        std::fs::write(&path, bytes).expect("it can be written");
        path
    }
}
