//! Entry points for `fuzz/` to private parsers of bytes from a disk. Not part of the API.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::entry::FileTime;
use crate::journal::Journal;
use crate::partial::SourceIdentity;

/// Loads a journal of these bytes, once as they are and once with valid checksums, as somebody may have
/// manipulated the disk. Whatever is understood must be understood again in the same way. `folder` is an
/// empty directory.
pub fn journal(bytes: &[u8], folder: &Path) -> usize {
    load(bytes, folder) + load(&crate::journal::sealed(bytes, &identity(), INODE), folder)
}

/// The bytes of a journal as a transfer leaves it.
pub fn journal_of(chunks: u64, synced: u64, folder: &Path) -> Vec<u8> {
    let dir = OwnedFd::from(std::fs::File::open(folder).expect("a directory"));
    let mut journal = Journal::create(&dir, NAME, &identity(), INODE, [&[]; 2]).expect("it can be made");
    for index in 0..chunks {
        journal.chunk_there(index * 3, crate::ChunkCv([index as u8; 32])).expect("it can be written");
        if index == synced {
            journal.checkpoint(synced).expect("it can be written");
        }
    }
    journal.chunk_gone(0).expect("it can be written");
    std::fs::read(folder.join("j")).expect("it is there")
}

const NAME: &[u8] = b"j";
const INODE: u64 = 9;

fn identity() -> SourceIdentity {
    let state = crate::SourceState { ctime: FileTime::new(5, 6), ino: 3, dev: 4 };
    SourceIdentity { size: 100 * crate::CHUNK, mtime: FileTime::new(1, 2), state, sparse: false }
}

fn load(bytes: &[u8], folder: &Path) -> usize {
    let dir = OwnedFd::from(std::fs::File::open(folder).expect("a directory"));
    std::fs::write(folder.join("j"), bytes).expect("it can be written");
    let Ok(Some(first)) = Journal::load(&dir, NAME, &identity(), Some(INODE)) else { return 0 };
    let count = first.sure.len() + first.doubtful.len();
    assert!(
        first.sure.keys().chain(first.doubtful.keys()).all(|&index| index < 100),
        "a chunk that the file does not have"
    );
    assert!(
        first.sure.keys().all(|index| !first.doubtful.contains_key(index)),
        "a chunk that is sure and doubtful"
    );
    drop(first.journal);
    let again =
        Journal::load(&dir, NAME, &identity(), Some(INODE)).expect("it can be opened").expect("it was there");
    assert!(
        again.sure == first.sure && again.doubtful == first.doubtful,
        "it reads differently the second time"
    );
    count
}
