//! What was written is on the disk before success is reported: one sync of each file system at the end, in a thread of
//! its own, since it may take minutes in which the session has to show that it lives.
//!
//! Always true: nothing counts as synced whose file system reported an error since it was written.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::JoinHandle;

use farhaul_store::{RelPath, Root};

use super::super::failures::plain;
use crate::error::Error;

/// A directory on each file system that was written to; those of the roots are always synced.
#[derive(Default)]
pub(super) struct FileSystems(Mutex<BTreeMap<u64, (Root, RelPath)>>);

/// A sync that runs.
#[derive(Debug)]
pub(super) struct Sync(Option<JoinHandle<std::io::Result<()>>>);

const LOCK: &str = "no thread panics while it holds the file systems";

impl FileSystems {
    /// Something was written in this directory.
    pub(super) fn note(&self, root: &Root, path: &RelPath) {
        if let Ok(Some(meta)) = root.metadata(path) {
            self.0.lock().expect(LOCK).entry(meta.dev).or_insert_with(|| (root.clone(), path.clone()));
        }
    }

    pub(super) fn sync(&self, roots: &[Root]) -> Sync {
        let mut places: Vec<_> = self.0.lock().expect(LOCK).values().cloned().collect();
        places.extend(roots.iter().map(|root| (root.clone(), RelPath::empty())));
        let work = move || places.iter().try_for_each(|(root, place)| root.sync_file_system(place));
        Sync(std::thread::Builder::new().name("sync".into()).spawn(work).ok())
    }
}

impl Sync {
    pub(super) fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn result(&mut self) -> Result<(), Error> {
        let failed = |what: &str| {
            Error::Files {
            what: format!("the destination cannot be synced to the disk: {what}"),
            hint: Some("what has arrived may be lost if the host goes down; look at its disk, and run the command again".into()),
        }
        };
        match self.0.take().map(JoinHandle::join) {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(failed(&plain(&error))),
            Some(Err(_)) | None => Err(failed("no thread could do it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_of_all_file_systems_ends_once() {
        let temp = std::env::temp_dir();
        let root = Root::open(&temp).unwrap();
        let systems = FileSystems::default();
        systems.note(&root, &RelPath::empty());
        systems.note(&root, &RelPath::from_bytes(b"no/such/directory").unwrap());
        assert_eq!(systems.0.lock().unwrap().len(), 1);
        let mut sync = systems.sync(&[root]);
        while !sync.is_over() {
            std::thread::yield_now();
        }
        assert!(sync.result().is_ok());
        assert!(sync.result().is_err(), "its result was taken");
    }
}
