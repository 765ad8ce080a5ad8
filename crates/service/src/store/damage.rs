//! Says what a start finds of a store that was damaged: one that is empty although it cannot be, and pages that
//! cannot be read.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// True if an earlier process has left a log of changes: it was killed, or the power failed.
pub(super) fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_os_string();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// Says that a new store has taken the place of one that was lost, if the files beside it show that there was one.
pub(super) fn tell_loss(path: &Path) {
    let Some(folder) = path.parent() else { return };
    let manifests = std::fs::read_dir(folder.join("manifests")).map_or(0, Iterator::count);
    if manifests > 0 {
        tracing::error!(
            store = %path.display(), manifests,
            "the store was empty, but manifests of earlier jobs are there: its jobs, history and tokens are lost; \
             go back to a copy (docs/guide/node.md), or delete the manifests"
        );
    }
}

/// Looks through the store in the background, and says if a part of it cannot be read.
pub(super) fn look(path: &Path) {
    let path = path.to_path_buf();
    let look = move || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let found = Connection::open_with_flags(&path, flags).and_then(|connection| {
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        });
        let fault = match found {
            Ok(found) if found == "ok" => return,
            Ok(found) => found,
            Err(error) => error.to_string(),
        };
        let fault = farhaul_text::printable(fault.as_bytes(), 200);
        tracing::error!(
            store = %path.display(), fault,
            "the store is damaged; what can be read goes on: look with farhaul store check, and go back to a copy"
        );
    };
    // Without a thread the damage shows when somebody reads it.
    let _ = std::thread::Builder::new().name("store-check".into()).spawn(look);
}
