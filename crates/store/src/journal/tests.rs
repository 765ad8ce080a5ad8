use proptest::prelude::*;

use super::*;
use crate::entry::Time;

fn identity() -> Identity {
    Identity { size: 100 * crate::CHUNK, mtime: Time::new(1, 2), ino: 3, dev: 4, sparse: false }
}

fn directory() -> (tempfile::TempDir, OwnedFd) {
    let temp = tempfile::tempdir().unwrap();
    let fd = std::fs::File::open(temp.path()).unwrap().into();
    (temp, fd)
}

#[test]
fn after_another_boot_only_synced_chunks_are_sure() {
    let (_temp, dir) = directory();
    let mut journal = Journal::create(&dir, b"j", &identity(), 9).unwrap();
    for index in 0..6 {
        journal.chunk_there(index, ChunkCv([index as u8; 32])).unwrap();
        if index == 3 {
            // The opening and chunks 0 to 2: chunk 3 was written while the sync ran.
            journal.checkpoint(4).unwrap();
        }
    }
    journal.chunk_gone(5).unwrap();
    let same = Journal::load(&dir, b"j", &identity(), 9).unwrap();
    assert_eq!(same.sure.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(same.doubtful.is_empty());
    drop(journal);
    let mut journal = same.journal;
    journal.append(OPENED, 0, &[0xee; 32]).unwrap();
    let other = Journal::load(&dir, b"j", &identity(), 9).unwrap();
    assert_eq!(other.sure.into_keys().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(other.doubtful.into_keys().collect::<Vec<_>>(), [3, 4]);
    // A run that is killed while it looks at what is doubtful has not settled anything.
    let mut again = Journal::load(&dir, b"j", &identity(), 9).unwrap();
    assert_eq!(again.doubtful.into_keys().collect::<Vec<_>>(), [3, 4]);
    again.journal.opened().unwrap();
    let settled = Journal::load(&dir, b"j", &identity(), 9).unwrap();
    assert_eq!(settled.sure.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn another_source_or_partial_file_does_not_count() {
    let (_temp, dir) = directory();
    Journal::create(&dir, b"j", &identity(), 9).unwrap();
    assert!(Journal::load(&dir, b"j", &identity(), 9).is_some());
    assert!(Journal::load(&dir, b"j", &identity(), 8).is_none());
    assert!(Journal::load(&dir, b"j", &Identity { ino: 33, ..identity() }, 9).is_none());
    assert!(Journal::load(&dir, b"none", &identity(), 9).is_none());
    std::os::unix::fs::symlink("j", _temp.path().join("link")).unwrap();
    assert!(Journal::load(&dir, b"link", &identity(), 9).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damage_anywhere_leaves_a_prefix(at in 0usize..(64 + 56 * 21), with in 1u8..=255, cut in any::<bool>()) {
        let (temp, dir) = directory();
        let mut journal = Journal::create(&dir, b"j", &identity(), 9).unwrap();
        for index in 0..20 {
            journal.chunk_there(index, ChunkCv([index as u8; 32])).unwrap();
        }
        let file = temp.path().join("j");
        let mut bytes = std::fs::read(&file).unwrap();
        if cut { bytes.truncate(at) } else { bytes[at] ^= with }
        std::fs::write(&file, &bytes).unwrap();
        match Journal::load(&dir, b"j", &identity(), 9) {
            None => prop_assert!(at < HEADER_LEN),
            Some(loaded) => {
                let whole = ((at - HEADER_LEN) / RECORD_LEN).saturating_sub(1) as u64;
                // Without its opening, the journal is of an unknown boot.
                let mut found = loaded.sure;
                found.extend(loaded.doubtful);
                prop_assert_eq!(found.into_keys().collect::<Vec<_>>(), (0..whole).collect::<Vec<_>>());
            }
        }
    }
}
