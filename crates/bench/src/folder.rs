//! A folder for files that are measured and then removed.
//!
//! Always true: the folder did not exist before, and is removed with all its content when the value is
//! dropped.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::{Code, Misbehaviour};
use rustix::fs::Advice;
use tempfile::TempDir;

/// Removing is tried again, as a transfer that was ended may still be writing a file there.
const REMOVE_TRIES: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct BenchFolder {
    folder: Option<TempDir>,
    path: PathBuf,
}

impl BenchFolder {
    /// Makes a new folder below `parent`, which needs `room` free bytes.
    pub(crate) fn make(parent: &Path, room: u64) -> Result<BenchFolder, Error> {
        let failed = |source| failed(parent, "make a folder in", source);
        let parent_path = std::path::absolute(parent).map_err(failed)?;
        let folder =
            tempfile::Builder::new().prefix(".farhaul-bench-").tempdir_in(parent_path).map_err(failed)?;
        let free = rustix::fs::statvfs(folder.path()).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        if let Ok(free) = free
            && free < room
        {
            return Err(Error::new(
                Code::NoSpace,
                format!(
                    "too little room in {}: {} MiB needed, {} MiB free",
                    parent.display(),
                    room >> 20,
                    free >> 20
                ),
            )
            .with_hint("free space, name another directory, or give a smaller --size"));
        }
        Ok(BenchFolder { path: folder.path().to_path_buf(), folder: Some(folder) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file to the disk and drops it from the cache, as far as the kernel follows that advice.
    pub(crate) fn settle(&self, name: &str) -> Result<(), Error> {
        let path = self.file(name)?;
        let settled = File::open(&path).and_then(|file| {
            file.sync_data()?;
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
            Ok(())
        });
        settled.map_err(|source| failed(&path, "sync", source))
    }

    /// Removes a file, if it exists.
    pub(crate) fn forget(&self, name: &str) -> Result<(), Error> {
        let path = self.file(name)?;
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(&path, "remove", source)),
            _ => Ok(()),
        }
    }

    fn file(&self, name: &str) -> Result<PathBuf, Error> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(Error::misbehaved(
                Misbehaviour::BenchFile,
                format!("{name:?} is not a file of the folder"),
            ));
        }
        Ok(self.path.join(name))
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        // `TempDir` gives up after one try, so the folder is removed here.
        let path = folder.keep();
        for _ in 0..REMOVE_TRIES {
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(REMOVE_PAUSE),
                _ => return,
            }
        }
    }
}

fn failed(path: &Path, action: &str, source: io::Error) -> Error {
    Error::with_source(Code::of_files(&source), format!("cannot {action} {}", path.display()), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_removed_with_its_files() {
        let temp = tempfile::tempdir().unwrap();
        let folder = BenchFolder::make(temp.path(), 1).unwrap();
        std::fs::write(folder.path().join("source"), "x").unwrap();
        folder.settle("source").unwrap();
        folder.forget("source").unwrap();
        folder.forget("source").unwrap();
        std::fs::write(folder.path().join(".part"), "x").unwrap();
        drop(folder);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_room_and_files_elsewhere_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        assert!(
            matches!(BenchFolder::make(temp.path(), u64::MAX), Err(error) if error.code() == Code::NoSpace)
        );
        assert!(
            matches!(BenchFolder::make(Path::new("/no/such"), 1), Err(error) if error.code() == Code::NotFound)
        );
        let folder = BenchFolder::make(temp.path(), 1).unwrap();
        for name in ["", "..", "../x", "/x", ".x"] {
            assert_eq!(Misbehaviour::of(&folder.forget(name)), Some(Misbehaviour::BenchFile), "{name}");
        }
    }
}
