//! Brings what was written to the disk before success is reported: one sync of each file system at the end. A
//! thread of its own does it, since it may take minutes in which the session has to answer its peer.
//!
//! Always true: a file system does not count as synced if it has reported an error since it was written to.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_session::panic_guard::contained;
use farhaul_volume::{RelPath, Root};
use farhaul_words::{Code, Error};

use super::super::failures::plain;

/// A directory on each file system that was written to. The file systems of the roots are always synced.
#[derive(Default)]
pub(super) struct FileSystems(Mutex<BTreeMap<u64, (Root, RelPath)>>);

/// A sync that is running, and its outcome once that is known.
#[derive(Debug)]
pub(super) struct RunningSync(Receiver<io::Result<()>>);

/// How long a look at the outcome waits. The notification of a sync that ends before the session waits for
/// one would be lost.
const PATIENCE: Duration = Duration::from_millis(1);

impl FileSystems {
    /// Notes that something was written in this directory.
    pub(super) fn note(&self, root: &Root, path: &RelPath) {
        if let Ok(Some(meta)) = root.metadata(path) {
            self.0.lock().whole().entry(meta.dev).or_insert_with(|| (root.clone(), path.clone()));
        }
    }

    /// Starts a sync; `tell` is called when it has ended.
    pub(super) fn sync(&self, roots: &[Root], tell: impl FnOnce() + Send + 'static) -> RunningSync {
        let mut places: Vec<_> = self.0.lock().whole().values().cloned().collect();
        places.extend(roots.iter().map(|root| (root.clone(), RelPath::empty())));
        let (put, outcome) = mpsc::sync_channel(1);
        let work = move || {
            // Nobody receives the outcome if the session has failed meanwhile.
            let sync = || places.iter().try_for_each(|(root, place)| root.sync_file_system(place));
            let _ =
                put.send(contained(sync).unwrap_or_else(|panic| Err(io::Error::other(panic.to_string()))));
            drop(put);
            tell();
        };
        // If no thread can be started, the channel is closed, which `outcome` reports.
        let _ = std::thread::Builder::new().name("sync".into()).spawn(work);
        RunningSync(outcome)
    }
}

impl RunningSync {
    /// The outcome of the sync, once it has ended.
    pub(super) fn outcome(&self) -> Option<Result<(), Error>> {
        let hint =
            "what has arrived may be lost if the host goes down; look at its disk, and run the command again";
        let failed = |what: &str| {
            let what = format!("the destination cannot be synced to the disk: {what}");
            Error::new(Code::NotOnDisk, what).with_hint(hint)
        };
        match self.0.recv_timeout(PATIENCE) {
            Ok(Ok(())) => Some(Ok(())),
            Ok(Err(error)) => Some(Err(failed(&plain(&error)))),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(failed("no thread could be started for it"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_sync_of_all_file_systems_ends_once() {
        let temp = std::env::temp_dir();
        let root = Root::open(&temp).unwrap();
        let systems = FileSystems::default();
        systems.note(&root, &RelPath::empty());
        systems.note(&root, &RelPath::from_bytes(b"no/such/directory").unwrap());
        assert_eq!(systems.0.lock().unwrap().len(), 1);
        let told = Arc::new(AtomicUsize::new(0));
        let sync = systems.sync(&[root], {
            let told = told.clone();
            move || {
                told.fetch_add(1, Ordering::SeqCst);
            }
        });
        let outcome = loop {
            if let Some(outcome) = sync.outcome() {
                break outcome;
            }
        };
        assert!(outcome.is_ok());
        while told.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert!(sync.outcome().is_some_and(|again| again.is_err()), "its outcome was taken");
    }
}
