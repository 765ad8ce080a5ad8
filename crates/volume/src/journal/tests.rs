use proptest::prelude::*;

use super::*;

const STATE: SourceState = SourceState { ctime: FileTime { secs: 5, nanos: 6 }, ino: 3, dev: 4 };

fn identity() -> SourceIdentity {
    SourceIdentity { size: 100 * crate::CHUNK, mtime: FileTime::new(1, 2), state: STATE, sparse: false }
}

fn directory() -> (tempfile::TempDir, OwnedFd) {
    let temp = tempfile::tempdir().unwrap();
    let fd = std::fs::File::open(temp.path()).unwrap().into();
    (temp, fd)
}

#[test]
fn after_another_boot_only_synced_chunks_are_sure() {
    let (_temp, dir) = directory();
    let mut journal = Journal::create(&dir, b"j", &identity(), 9, [&[]; 2]).unwrap();
    for index in 0..6 {
        journal.chunk_there(index, ChunkCv([index as u8; 32])).unwrap();
        if index == 3 {
            // The checkpoint covers the opening and chunks 0 to 2; chunk 3 was written while the sync ran.
            journal.checkpoint(4).unwrap();
        }
    }
    journal.chunk_gone(5).unwrap();
    let same = Journal::load(&dir, b"j", &identity(), Some(9)).unwrap().unwrap();
    assert_eq!(same.sure.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(same.doubtful.is_empty());
    drop(journal);
    let mut journal = same.journal;
    journal.append(OPENED, 0, &[0xee; 32]).unwrap();
    let other = Journal::load(&dir, b"j", &identity(), Some(9)).unwrap().unwrap();
    assert_eq!(other.sure.into_keys().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(other.doubtful.into_keys().collect::<Vec<_>>(), [3, 4]);
    // A run that is killed while it checks doubtful chunks has not settled anything.
    let mut again = Journal::load(&dir, b"j", &identity(), Some(9)).unwrap().unwrap();
    assert_eq!(again.doubtful.into_keys().collect::<Vec<_>>(), [3, 4]);
    again.journal.opened().unwrap();
    let settled = Journal::load(&dir, b"j", &identity(), Some(9)).unwrap().unwrap();
    assert_eq!(settled.sure.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn chunks_of_another_state_of_the_source_are_told_from_those_of_this_one() {
    let (_temp, dir) = directory();
    let now = SourceIdentity { state: SourceState { ctime: FileTime::new(5, 7), ..STATE }, ..identity() };
    let mut journal = Journal::create(&dir, b"j", &identity(), 9, [&[]; 2]).unwrap();
    journal.chunk_there(0, ChunkCv([0; 32])).unwrap();
    journal.chunk_there(1, ChunkCv([1; 32])).unwrap();
    journal.checkpoint(3).unwrap();
    let earlier = |identity: &SourceIdentity| {
        let loaded = Journal::load(&dir, b"j", identity, Some(9)).unwrap().unwrap();
        (loaded.earlier.into_iter().collect::<Vec<_>>(), loaded.is_same_source)
    };
    assert_eq!((earlier(&identity()), earlier(&now)), ((vec![], true), (vec![0, 1], false)));
    journal.source(&now.state).unwrap();
    journal.chunk_there(1, ChunkCv([7; 32])).unwrap();
    journal.chunk_there(2, ChunkCv([2; 32])).unwrap();
    assert_eq!((earlier(&identity()), earlier(&now)), ((vec![0, 1, 2], false), (vec![0], true)));
    for other in [SourceState { ino: 30, ..now.state }, SourceState { dev: 40, ..now.state }] {
        assert!(!earlier(&SourceIdentity { state: other, ..identity() }).1);
    }
    // After another boot, chunks that may have been overwritten are read back, whether synced or not.
    journal.append(OPENED, 0, &[0xee; 32]).unwrap();
    journal.checkpoint(7).unwrap();
    let loaded = Journal::load(&dir, b"j", &now, Some(9)).unwrap().unwrap();
    assert_eq!(loaded.doubtful.into_keys().collect::<Vec<_>>(), [0]);
    assert_eq!(loaded.sure.into_keys().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn another_source_or_partial_file_does_not_count() {
    let (_temp, dir) = directory();
    Journal::create(&dir, b"j", &identity(), 9, [&[]; 2]).unwrap();
    assert!(Journal::load(&dir, b"j", &identity(), Some(9)).unwrap().is_some());
    assert!(Journal::load(&dir, b"j", &identity(), Some(8)).unwrap().is_none());
    assert!(
        Journal::load(&dir, b"j", &SourceIdentity { mtime: FileTime::new(1, 3), ..identity() }, Some(9))
            .unwrap()
            .is_none()
    );
    assert!(Journal::load(&dir, b"none", &identity(), Some(9)).unwrap().is_none());
    std::os::unix::fs::symlink("j", _temp.path().join("link")).unwrap();
    assert!(Journal::load(&dir, b"link", &identity(), Some(9)).unwrap().is_none());
}

#[test]
fn a_partial_file_is_known_by_how_it_begins_before_and_after_a_change() {
    let (temp, dir) = directory();
    let mut journal = Journal::create(&dir, b"j", &identity(), 9, [b"id", b""]).unwrap();
    let known = |beginning: &[u8]| {
        let file = std::fs::File::open(temp.path().join("j")).unwrap();
        Journal::partial_of(&file, b"j").unwrap().has(beginning)
    };
    let content = vec![7; 3 * BEGINNING];
    assert!(known(b"id") && known(b"") && known(&[0; BEGINNING]) && !known(&content));
    journal.will_begin(&content).unwrap();
    assert!(!known(b"id") && known(b"") && known(&content) && known(&content[..BEGINNING]));
    assert!(!known(&content[1..BEGINNING]), "zeros follow the end of a file");
    let file = std::fs::File::open(temp.path().join("j")).unwrap();
    assert!(Journal::partial_of(&file, b".00000000000000ff.fhjournal").is_none(), "it was renamed");
    assert_eq!(Journal::load(&dir, b"j", &identity(), None).unwrap().unwrap().partial_inode, 9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damage_anywhere_leaves_a_prefix(at in 0usize..(RECORDS_AT + RECORD_LEN * 21), with in 1u8..=255, cut in any::<bool>()) {
        let (temp, dir) = directory();
        let mut journal = Journal::create(&dir, b"j", &identity(), 9, [&[]; 2]).unwrap();
        for index in 0..20 {
            journal.chunk_there(index, ChunkCv([index as u8; 32])).unwrap();
        }
        let file = temp.path().join("j");
        let mut bytes = std::fs::read(&file).unwrap();
        if cut { bytes.truncate(at) } else { bytes[at] ^= with }
        std::fs::write(&file, &bytes).unwrap();
        match Journal::load(&dir, b"j", &identity(), Some(9)).unwrap() {
            None => prop_assert!(at < RECORDS_AT),
            Some(loaded) => {
                // The marks say nothing of the chunks.
                let at = if at < RECORDS_AT { usize::MAX } else { at };
                let whole = (at.saturating_sub(RECORDS_AT) / RECORD_LEN).saturating_sub(1).min(20) as u64;
                // Without its opening, the journal belongs to an unknown boot.
                let mut found = loaded.sure;
                found.extend(loaded.doubtful);
                prop_assert_eq!(found.into_keys().collect::<Vec<_>>(), (0..whole).collect::<Vec<_>>());
            }
        }
    }
}
