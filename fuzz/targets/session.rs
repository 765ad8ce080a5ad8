//! Conversations: one end of a session, with its threads and files, and a peer that sends anything in any
//! order.
//!
//! `copy/src/fuzzing/mod.rs` says what an input means.

use std::path::Path;

use farhaul_copy::fuzzing::{FuzzedEnd, converse};

use crate::scratch;
use crate::target;

target!(receiver, 150, |bytes: &[u8]| {
    let folder = scratch::folder();
    let there = folder.path().join("there");
    std::fs::create_dir(&there).expect("it can be made");
    // Files that exist already, with names that the seeds use.
    std::fs::write(there.join("small"), b"older").expect("it can be made");
    std::fs::create_dir(there.join("surplus")).expect("it can be made");
    std::fs::write(there.join("surplus/file"), b"ssss").expect("it can be made");
    let _ = converse(FuzzedEnd::Receiver, bytes, folder.path());
});

target!(sender, 100, |bytes: &[u8]| {
    let folder = scratch::folder();
    source(&folder.path().join("there"));
    let _ = converse(FuzzedEnd::Sender, bytes, folder.path());
});

/// The byte that the files of a source are filled with.
pub(crate) const FILL: u8 = b's';

/// A small tree with one entry of each kind; the larger files have two and three chunks.
pub(crate) fn source(folder: &Path) {
    let made = (|| {
        std::fs::create_dir_all(folder.join("folder/below"))?;
        std::fs::write(folder.join("small"), [FILL; 5])?;
        std::fs::write(folder.join("empty"), b"")?;
        std::fs::write(folder.join("folder/two"), vec![FILL; (1 << 20) + 70_000])?;
        std::fs::write(folder.join("folder/below/another"), [FILL; 5000])?;
        std::os::unix::fs::symlink("small", folder.join("link"))?;
        std::fs::hard_link(folder.join("small"), folder.join("hard"))?;
        let sparse = std::fs::File::create(folder.join("sparse"))?;
        sparse.set_len(3 << 20)
    })();
    made.expect("a source can be made");
}
