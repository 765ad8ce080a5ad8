use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::sys::bytes_read;

const SIZE: u64 = 5 * CHUNK + 777;

struct Fixture {
    temp: tempfile::TempDir,
    root: Root,
    path: RelPath,
    identity: SourceIdentity,
}

fn place(sparse: bool) -> Fixture {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let state = SourceState { ctime: FileTime::new(1_700_000_000, 6), ino: 12, dev: 34 };
    let identity = SourceIdentity { size: SIZE, mtime: FileTime::new(1_700_000_000, 5), state, sparse };
    Fixture { temp, root, path: RelPath::from_bytes(b"target").unwrap(), identity }
}

/// Waits for the lock: a process that another test starts holds our locks between its fork and its exec.
fn when_free<T>(open: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        match open() {
            Err(Error::Locked) if Instant::now() < patience => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

impl Fixture {
    fn open(&self) -> Partial {
        when_free(|| Partial::open(&self.root, &self.path, &self.identity, Resume::Any)).unwrap()
    }

    fn file(&self, name: &[u8]) -> PathBuf {
        self.temp.path().join(std::str::from_utf8(name).unwrap())
    }

    fn part(&self) -> PathBuf {
        self.file(&self.root.partial_names(&self.path)[0])
    }

    fn journal(&self) -> PathBuf {
        self.part().with_extension("fhjournal")
    }

    fn names(&self) -> usize {
        std::fs::read_dir(self.temp.path()).unwrap().count()
    }
}

fn content() -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    blake3::Hasher::new().update(b"content").finalize_xof().fill(&mut bytes);
    bytes
}

fn put(partial: &Partial, bytes: &[u8], index: u64) {
    let chunk = bytes.chunks(CHUNK as usize).nth(index as usize).unwrap();
    let cv = ChunkCv(chunk_cv(chunk));
    assert!(partial.write_chunk(index, chunk).unwrap());
    partial.mark(index, cv).unwrap();
}

#[test]
fn chunks_from_several_threads_make_the_file() {
    let place = place(false);
    let bytes = content();
    let partial = place.open();
    std::thread::scope(|scope| {
        for index in 0..6 {
            let (partial, bytes) = (&partial, &bytes);
            scope.spawn(move || put(partial, bytes, index));
        }
    });
    assert!(partial.is_complete() && !place.file(b"target").exists());
    partial.checkpoint().unwrap();
    assert!(partial.readback(|| true).unwrap());
    let options = WriteOptions {
        mode: 0o640,
        mtime: Some(place.identity.mtime),
        durable: true,
        ..WriteOptions::default()
    };
    let digest = partial.finish(&options).unwrap();
    drop(partial);
    assert_eq!(digest.0, whole_digest(&bytes));
    assert!(std::fs::read(place.file(b"target")).unwrap() == bytes);
    let meta = place.root.metadata(&place.path).unwrap().unwrap();
    assert_eq!((meta.mode, meta.mtime), (0o640, place.identity.mtime));
    assert_eq!(place.names(), 1);
}

#[test]
fn the_same_source_goes_on_and_another_starts_anew() {
    let mut place = place(false);
    let bytes = content();
    let partial = place.open();
    put(&partial, &bytes, 1);
    put(&partial, &bytes, 5);
    let chunk = &bytes[..CHUNK as usize];
    partial.write_chunk(0, chunk).unwrap();
    drop(partial);
    let partial = place.open();
    assert_eq!(partial.have_ranges(), [(1, 1), (5, 1)], "a chunk that was not marked is not there");
    assert!(partial.finish(&WriteOptions::default()).is_err());
    for index in [0, 2, 3, 4] {
        put(&partial, &bytes, index);
    }
    drop(partial);
    let partial = place.open();
    assert_eq!((partial.missing(), partial.digest().0), (0, whole_digest(&bytes)));
    drop(partial);
    place.identity.mtime.nanos += 1;
    let partial = place.open();
    assert!(partial.have().is_empty());
    drop(partial);
    assert_eq!(place.names(), 0, "an empty partial file is removed");
}

#[test]
fn what_came_without_digests_is_not_there_for_a_run_that_has_them() {
    let place = place(false);
    let bytes = content();
    let partial = place.open();
    for (index, chunk) in bytes.chunks(CHUNK as usize).enumerate().skip(1) {
        assert!(partial.write_chunk(index as u64, chunk).unwrap());
        partial.mark(index as u64, NO_CV).unwrap();
    }
    put(&partial, &bytes, 0);
    drop(partial);
    assert_eq!(place.open().chunks_there(), 6, "a run without digests can use them");
    let digested =
        || when_free(|| Partial::open(&place.root, &place.path, &place.identity, Resume::Digested)).unwrap();
    assert_eq!(digested().have_ranges(), [(0, 1)]);
    let partial = digested();
    (1..6).for_each(|index| put(&partial, &bytes, index));
    assert!(partial.readback(|| true).unwrap());
    assert_eq!(partial.finish(&WriteOptions::default()).unwrap().0, whole_digest(&bytes));
}

impl Fixture {
    fn open_as(&self, ctime: i64, resume: Resume) -> Partial {
        let state = SourceState { ctime: FileTime::new(ctime, 0), ..self.identity.state };
        let identity = SourceIdentity { state, ..self.identity };
        when_free(|| Partial::open(&self.root, &self.path, &identity, resume)).unwrap()
    }
}

fn kept(partial: &Partial) -> Vec<u64> {
    partial.kept().into_iter().map(|(index, _)| index).collect()
}

#[test]
fn what_came_of_another_state_of_the_source_is_kept_and_not_believed() {
    let place = place(false);
    let bytes = content();
    let partial = place.open_as(1, Resume::Digested);
    (0..4).for_each(|index| put(&partial, &bytes, index));
    drop(partial);
    let partial = place.open_as(2, Resume::Digested);
    assert_eq!((kept(&partial), partial.chunks_there(), partial.kept_end()), (vec![0, 1, 2, 3], 0, 4));
    assert_eq!(partial.keep(1).unwrap(), PatchOutcome::Written);
    assert_eq!(partial.keep(1).unwrap(), PatchOutcome::There);
    // The source's third chunk has changed.
    let other = vec![7; CHUNK as usize];
    assert!(partial.write_chunk(2, &other).unwrap());
    partial.discard_if_empty();
    drop(partial);
    let partial = place.open_as(2, Resume::Digested);
    assert_eq!(
        (kept(&partial), partial.have_ranges()),
        (vec![0, 3], vec![(1, 1)]),
        "a chunk that was only written does not count"
    );
    drop(partial);
    for (ctime, resume) in [(2, Resume::Compared), (1, Resume::Digested), (2, Resume::Any)] {
        let partial = place.open_as(ctime, resume);
        assert_eq!((kept(&partial), partial.chunks_there()), (vec![0, 1, 3], 0), "{ctime} {resume:?}");
    }
    let partial = place.open_as(2, Resume::Digested);
    for index in [0, 1, 3] {
        assert_eq!(partial.keep(index).unwrap(), PatchOutcome::Written);
    }
    for (index, data) in [(2, &other[..]), (4, &bytes[4 << 20..5 << 20]), (5, &bytes[5 << 20..])] {
        assert!(partial.write_chunk(index, data).unwrap());
        partial.mark(index, ChunkCv(chunk_cv(data))).unwrap();
    }
    let expected = [&bytes[..2 << 20], &other, &bytes[3 << 20..]].concat();
    assert!(partial.readback(|| true).unwrap());
    assert_eq!(partial.finish(&WriteOptions::default()).unwrap().0, whole_digest(&expected));
    assert!(std::fs::read(place.file(b"target")).unwrap() == expected);
}

#[test]
fn without_values_nothing_of_another_state_is_kept() {
    let place = place(false);
    let bytes = content();
    let partial = place.open_as(1, Resume::Any);
    assert!(partial.write_chunk(0, &bytes[..CHUNK as usize]).unwrap());
    partial.mark(0, NO_CV).unwrap();
    put(&partial, &bytes, 1);
    drop(partial);
    assert_eq!(place.open_as(1, Resume::Any).have_ranges(), [(0, 2)]);
    let partial = place.open_as(2, Resume::Any);
    assert_eq!((kept(&partial), partial.chunks_there()), (vec![1], 0));
    drop(partial);
    assert_eq!(kept(&place.open_as(1, Resume::Any)), [1], "the chunk without a value does not come back");
}

#[test]
fn a_kept_chunk_is_taken_back_before_anything_is_written_over_it() {
    let place = place(false);
    let bytes = content();
    let partial = place.open_as(1, Resume::Digested);
    put(&partial, &bytes, 0);
    put(&partial, &bytes, 1);
    drop(partial);
    let partial = place.open_as(2, Resume::Digested);
    assert!(partial.write_chunk(0, &vec![1; CHUNK as usize]).unwrap());
    drop(partial);
    // The source is in its former state again: only chunks that are still there count, whatever was begun in
    // between.
    assert_eq!(kept(&place.open_as(1, Resume::Digested)), [1]);
}

#[test]
fn a_second_transfer_is_locked_out() {
    let place = place(false);
    let partial = place.open();
    let other = Root::open(place.temp.path()).unwrap();
    let second = Partial::open(&other, &place.path, &place.identity, Resume::Any);
    assert!(matches!(second, Err(Error::Locked)));
    drop(partial);
    place.open();
}

#[test]
fn what_is_not_ours_under_our_name_stays_and_another_name_serves() {
    let place = place(false);
    let bytes = content();
    let in_the_way: &[&dyn Fn(&PathBuf)] = &[
        &|part| std::os::unix::fs::symlink("/dev/null", part).unwrap(),
        &|part| std::fs::create_dir(part).unwrap(),
        &|part| std::fs::write(part, "a user's").unwrap(),
        &|part| {
            std::fs::write(part, "theirs").unwrap();
            let _ = std::os::unix::fs::chown(part, Some(4242), None);
        },
    ];
    let names = place.root.partial_names(&place.path);
    for (number, put_there) in in_the_way.iter().enumerate() {
        put_there(&place.file(&names[number]));
        put(&place.open(), &bytes, number as u64);
        assert_eq!(
            place.open().chunks_there(),
            u64::from(number < 3),
            "{number}: it is resumed, unless all four names are taken"
        );
        place.root.remove_partial(&place.path).unwrap();
    }
    assert_eq!(std::fs::read(place.file(&names[2])).unwrap(), b"a user's");
    assert_eq!(std::fs::read(place.file(&names[3])).unwrap(), b"theirs");
}

#[test]
fn a_partial_file_is_known_by_its_journal_and_a_copy_of_both_is_not() {
    let place = place(false);
    put(&place.open(), &content(), 0);
    let listed = |place: &Fixture| {
        let dir = place.root.dir(b"").unwrap();
        let there = std::fs::read_dir(place.temp.path()).unwrap();
        let mut names: Vec<_> =
            there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !crate::own_files::is_ours(&dir, name.as_bytes()));
        names.sort();
        names
    };
    assert_eq!((listed(&place), place.names()), (vec![], 2));
    for name in [".0123456789abcdef.fhpart", ".0123456789abcdef.fhjournal", ".0123456789abcdef.fhtmp"] {
        std::fs::write(place.file(name.as_bytes()), "a user's").unwrap();
    }
    std::fs::copy(place.part(), place.file(b".fedcba9876543210.fhpart")).unwrap();
    std::fs::copy(place.journal(), place.file(b".fedcba9876543210.fhjournal")).unwrap();
    let users = [
        ".0123456789abcdef.fhjournal",
        ".0123456789abcdef.fhpart",
        ".0123456789abcdef.fhtmp",
        ".fedcba9876543210.fhjournal",
        ".fedcba9876543210.fhpart",
    ];
    assert_eq!(listed(&place), users);
    // The power failed before any of the journal was on the disk.
    std::fs::write(place.journal(), [0; 500]).unwrap();
    assert_eq!(listed(&place), users);
    assert!(place.open().have().is_empty());
    assert!(!place.part().exists(), "it was taken over, and removed as it had nothing");
    put(&place.open(), &content(), 0);
    std::fs::write(place.journal(), [7; 500]).unwrap();
    assert_eq!(listed(&place).len(), users.len() + 2);
}

#[test]
fn a_journal_that_a_power_failure_left_alone_and_empty_can_be_cleaned_up() {
    let place = place(false);
    let dir = place.root.dir(b"").unwrap();
    let name = b".0123456789abcdef.fhjournal";
    for (content, is_lost) in [(vec![], true), (vec![0; 500], true), (b"a user's".to_vec(), false)] {
        std::fs::write(place.file(name), content).unwrap();
        // The file may still be a user's, so it is copied like any other.
        assert!(!crate::own_files::is_ours(&dir, name));
        assert_eq!(crate::own_files::leading(&dir, name).is_some(), is_lost);
        assert_eq!(crate::own_files::remove(&dir, name).unwrap(), is_lost);
        assert_eq!(place.file(name).exists(), !is_lost);
    }
}

#[test]
fn a_file_in_the_partial_ones_place_never_gets_the_targets_name() {
    let place = place(false);
    let partial = place.open();
    let bytes = content();
    (0..6).for_each(|index| put(&partial, &bytes, index));
    std::fs::write(place.file(b"other"), "a user's").unwrap();
    std::fs::rename(place.file(b"other"), place.part()).unwrap();
    assert!(partial.finish(&WriteOptions::default()).is_err());
    assert!(!place.file(b"target").exists());
}

#[test]
fn a_torn_or_damaged_record_ends_what_counts() {
    let bytes = content();
    for damage in [1, 20, 55] {
        let place = place(false);
        let partial = place.open();
        for index in 0..3 {
            put(&partial, &bytes, index);
        }
        drop(partial);
        let journal = place.journal();
        let len = std::fs::metadata(&journal).unwrap().len();
        let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
        if damage == 1 {
            file.write_all_at(&[0xff], len - 30).unwrap();
        } else {
            file.set_len(len - damage).unwrap();
        }
        let partial = place.open();
        assert_eq!(partial.have_ranges(), [(0, 2)], "damage {damage}");
        put(&partial, &bytes, 4);
        drop(partial);
        assert_eq!(place.open().have_ranges(), [(0, 2), (4, 1)], "the torn record was overwritten");
    }
}

#[test]
fn a_journal_of_garbage_starts_anew() {
    let place = place(false);
    let bytes = content();
    put(&place.open(), &bytes, 0);
    std::fs::write(place.journal(), [0xab; 5000]).unwrap();
    assert!(place.open().have().is_empty());
}

#[test]
fn data_without_their_journal_or_cut_short_start_anew() {
    let place = place(false);
    let bytes = content();
    put(&place.open(), &bytes, 0);
    let part = place.part();
    std::fs::OpenOptions::new().write(true).open(&part).unwrap().set_len(100).unwrap();
    assert!(place.open().have().is_empty());
    put(&place.open(), &bytes, 0);
    std::fs::remove_file(place.journal()).unwrap();
    assert!(place.open().have().is_empty());
}

#[test]
fn a_sparse_tebibyte_costs_no_reading_and_no_room() {
    let mut place = place(true);
    place.identity.size = (1 << 40) + 5;
    let before = bytes_read();
    let partial = place.open();
    let mut chunk = vec![0; CHUNK as usize];
    chunk[500_000] = 7;
    let cv = ChunkCv(chunk_cv(&chunk));
    partial.write_chunk(777_777, &chunk).unwrap();
    partial.mark(777_777, cv).unwrap();
    drop(partial);
    let partial = place.open();
    assert_eq!(partial.have_ranges(), [(777_777, 1)]);
    assert!(partial.readback(|| true).unwrap());
    partial.finish(&WriteOptions::default()).unwrap();
    let read = bytes_read() - before;
    assert!(read <= 64 << 20, "{read} bytes were read");
    let meta = std::fs::metadata(place.file(b"target")).unwrap();
    assert_eq!(meta.len(), (1 << 40) + 5);
    assert!(meta.blocks() * 512 <= 64 << 10, "{} blocks", meta.blocks());
}

#[test]
fn holes_are_clean_after_an_interrupted_write() {
    let place = place(true);
    let bytes = content();
    let partial = place.open();
    put(&partial, &bytes, 0);
    // The chunk was written but not marked, as if the run was killed in between.
    partial.write_chunk(2, &bytes[..CHUNK as usize]).unwrap();
    drop(partial);
    let partial = place.open();
    assert!(partial.readback(|| true).unwrap());
    let digest = partial.finish(&WriteOptions::default()).unwrap();
    let mut expected = vec![0; SIZE as usize];
    expected[..CHUNK as usize].copy_from_slice(&bytes[..CHUNK as usize]);
    assert!(std::fs::read(place.file(b"target")).unwrap() == expected);
    assert_eq!(digest.0, whole_digest(&expected));
}

#[test]
fn after_an_error_of_the_disk_only_what_was_synced_before_counts() {
    let place = place(false);
    let bytes = content();
    let partial = place.open();
    (0..2).for_each(|index| put(&partial, &bytes, index));
    partial.checkpoint().unwrap();
    (2..6).for_each(|index| put(&partial, &bytes, index));
    partial.give_up(&io::Error::from_raw_os_error(libc::EIO));
    let is_told = |result: io::Result<()>| result.unwrap_err().raw_os_error() == Some(libc::EIO);
    assert!(is_told(partial.checkpoint()) && is_told(partial.wait()));
    assert!(is_told(partial.write_chunk(2, &bytes[2 << 20..3 << 20]).map(drop)));
    let refused = partial.finish(&WriteOptions::default()).unwrap_err();
    assert!(
        matches!(&refused, Error::Io { source, .. } if source.raw_os_error() == Some(libc::EIO)),
        "{refused}"
    );
    drop(partial);
    assert!(!place.file(b"target").exists());
    let again = place.open();
    assert_eq!(again.have_ranges(), [(0, 2)]);
    (2..6).for_each(|index| put(&again, &bytes, index));
    again.finish(&WriteOptions::default()).unwrap();
    assert!(std::fs::read(place.file(b"target")).unwrap() == bytes);
}

#[test]
fn what_somebody_has_written_to_the_file_since_does_not_count() {
    let place = place(false);
    let bytes = content();
    let partial = place.open();
    (0..4).for_each(|index| put(&partial, &bytes, index));
    drop(partial);
    let part = std::fs::File::options().write(true).open(place.part()).unwrap();
    part.write_all_at(b"evil", CHUNK + 5).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(3);
    part.set_times(std::fs::FileTimes::new().set_modified(later)).unwrap();
    let again = place.open();
    assert_eq!(again.have_ranges(), [(0, 1), (2, 2)]);
    [1, 4, 5].into_iter().for_each(|index| put(&again, &bytes, index));
    again.finish(&WriteOptions::default()).unwrap();
    assert!(std::fs::read(place.file(b"target")).unwrap() == bytes);
}

#[test]
fn readback_sees_a_changed_byte() {
    let place = place(false);
    let bytes = content();
    let partial = place.open();
    for index in 0..6 {
        put(&partial, &bytes, index);
    }
    assert!(partial.readback(|| true).unwrap());
    partial.file.write_all_at(&[bytes[3_000_000] ^ 1], 3_000_000).unwrap();
    assert!(!partial.readback(|| true).unwrap());
    partial.discard();
    drop(partial);
    assert_eq!(place.names(), 0);
}

#[test]
fn a_duplicate_of_a_chunk_in_anothers_hand_is_not_booked() {
    let place = place(false);
    let bytes = content();
    let partial = place.open();
    let (chunk, cv) = (&bytes[..CHUNK as usize], ChunkCv([1; 32]));
    partial.state().in_hand.insert(0);
    assert!(!partial.write_chunk(0, chunk).unwrap());
    partial.mark(0, cv).unwrap();
    assert_eq!(partial.chunks_there(), 0);
    partial.state().in_hand.remove(0);
    assert!(partial.write_chunk(0, chunk).unwrap());
    assert!(!partial.write_chunk(0, chunk).unwrap(), "the chunk is written, but not marked");
    partial.mark(0, cv).unwrap();
    assert!(!partial.write_chunk(0, chunk).unwrap(), "the chunk is marked");
    assert_eq!(partial.chunks_there(), 1);
}

/// Enough chunks for both modes of writing, in aligned memory, and a short last one; with one interruption.
#[test]
fn chunks_past_the_cache_and_through_it_make_one_file() {
    const CHUNKS: u64 = 80;
    let mut place = place(false);
    place.identity.size = (CHUNKS - 1) * CHUNK + 777;
    let pool = farhaul_blocks::BlockPool::new(2, CHUNK as usize).unwrap();
    let write = |partial: &Partial, indices: std::ops::Range<u64>| {
        std::thread::scope(|scope| {
            for parity in 0..2 {
                let (pool, indices) = (&pool, indices.clone());
                scope.spawn(move || {
                    let mut block = pool.take();
                    for index in indices.filter(|index| index % 2 == parity) {
                        block.fill(index as u8);
                        let data = &block[..partial.chunk_len(index)];
                        let cv = ChunkCv(chunk_cv(data));
                        assert!(partial.write_chunk(index, data).unwrap());
                        partial.mark(index, cv).unwrap();
                    }
                });
            }
        });
    };
    let partial = place.open();
    write(&partial, 0..30);
    drop(partial);
    let partial = place.open();
    assert_eq!(partial.have_ranges(), [(0, 30)]);
    write(&partial, 30..CHUNKS);
    assert!(partial.readback(|| true).unwrap());
    assert!(partial.allocated_bytes() <= CHUNKS * CHUNK + (1 << 20));
    partial.finish(&WriteOptions::default()).unwrap();
    let bytes = std::fs::read(place.file(b"target")).unwrap();
    assert_eq!(bytes.len() as u64, place.identity.size);
    for (index, chunk) in bytes.chunks(CHUNK as usize).enumerate() {
        assert!(chunk.iter().all(|&byte| byte == index as u8), "chunk {index}");
    }
}

#[test]
fn chunks_that_do_not_exist_are_refused() {
    let place = place(false);
    let partial = place.open();
    let cv = ChunkCv([1; 32]);
    for (index, len) in [(6, 1), (u64::MAX, 1), (5, CHUNK as usize), (0, 5), (5, 778)] {
        assert!(partial.write_chunk(index, &vec![1; len]).is_err());
        partial.mark(index, cv).unwrap();
    }
    assert_eq!(partial.chunks_there(), 0);
}

#[test]
fn absurd_sizes_are_an_error() {
    let mut place = place(false);
    for size in [u64::MAX, i64::MAX as u64, 1 << 60] {
        place.identity.size = size;
        assert!(Partial::open(&place.root, &place.path, &place.identity, Resume::Any).is_err(), "{size}");
        assert_eq!(place.names(), 0);
    }
}

/// Needs the right to mount; without it, there is nothing to test on.
#[test]
fn a_full_disk_is_a_clean_error() {
    let temp = tempfile::tempdir().unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"])
        .arg(temp.path())
        .output();
    if !mount.is_ok_and(|output| output.status.success()) {
        return;
    }
    let root = Root::open(temp.path()).unwrap();
    let (small, large) = (RelPath::from_bytes(b"small").unwrap(), RelPath::from_bytes(b"large").unwrap());
    let state = SourceState { ctime: FileTime::default(), ino: 1, dev: 1 };
    let identity = SourceIdentity { size: SIZE, mtime: FileTime::default(), state, sparse: false };
    let bytes = content();
    let partial = when_free(|| Partial::open(&root, &large, &identity, Resume::Any)).unwrap();
    let mut failed = None;
    for (index, chunk) in bytes.chunks(CHUNK as usize).enumerate() {
        let cv = ChunkCv(chunk_cv(chunk));
        match partial.write_chunk(index as u64, chunk) {
            Ok(_) => drop(partial.mark(index as u64, cv)),
            Err(error) => failed = Some(error),
        }
    }
    let had = partial.chunks_there();
    let error =
        crate::small_file::write_whole(&root, &small, &bytes[..CHUNK as usize], &WriteOptions::default())
            .unwrap_err();
    drop(partial);
    let resumed = when_free(|| Partial::open(&root, &large, &identity, Resume::Any))
        .map(|partial| partial.chunks_there());
    let names = std::fs::read_dir(temp.path()).unwrap().count();
    drop(root);
    std::process::Command::new("umount").arg("-l").arg(temp.path()).status().unwrap();
    assert_eq!(failed.unwrap().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(had >= 1);
    assert_eq!(resumed.unwrap(), had, "what had arrived is still there");
    assert_eq!(names, 2, "partial file and journal, and no leftover of the small file");
}

#[test]
fn the_holder_sees_who_waits_and_only_as_long() {
    let place = place(false);
    let partial = place.open();
    assert!(!partial.is_requested());
    assert!(matches!(
        Partial::open(&place.root, &place.path, &place.identity, Resume::Any),
        Err(Error::Locked)
    ));
    let request = Partial::request(&place.root, &place.path).expect("a journal is there");
    assert!(partial.is_requested());
    drop(request);
    assert!(!partial.is_requested());
}

#[test]
fn nobody_is_asked_where_there_is_no_journal() {
    let place = place(false);
    let partial =
        when_free(|| Partial::open(&place.root, &place.path, &place.identity, Resume::Never)).unwrap();
    assert!(Partial::request(&place.root, &place.path).is_none());
    assert!(!partial.is_requested());
}

// ---- other versions ----------------------------------------------------------------------------------------------------

/// Turns the content of `partial` into `new`, as a sender would that gets the marks; returns the bytes that
/// it sent.
fn bring_to(partial: &Partial, new: &[u8]) -> usize {
    let (mut buffer, mut out) = (Vec::new(), vec![0; CHUNK as usize]);
    let mut sent = 0;
    for (index, chunk) in new.chunks(CHUNK as usize).enumerate() {
        let index = index as u64;
        let ours = crate::Marks::of(chunk);
        let theirs = partial.marks(index, &mut buffer).unwrap();
        let patch = theirs.and_then(|theirs| crate::write_patch(chunk, &ours, &theirs.bytes, &mut out));
        match patch {
            Some(len) => {
                let patch = crate::Patch::parse(&out[..len], chunk.len()).unwrap();
                assert_eq!(
                    partial.patch(index, &patch, ours.cv, &mut buffer).unwrap(),
                    PatchOutcome::Written
                );
                sent += len;
            }
            None if partial.have().contains(index) => {}
            None => {
                put(partial, new, index);
                sent += chunk.len();
            }
        }
    }
    sent
}

#[test]
fn an_old_version_is_made_the_new_one_whatever_its_length() {
    for (old_len, sparse) in
        [(SIZE, false), (2 * CHUNK + 99, false), (SIZE + CHUNK, true), (CHUNK - 1, false)]
    {
        let place = place(sparse);
        let new = content();
        let mut old = new.clone();
        old.resize(old_len as usize, 7);
        old[5000] ^= 1;
        std::fs::write(place.file(b"target"), &old).unwrap();
        let partial = Partial::open_over(&place.root, &place.path, &place.identity, Resume::Any).unwrap();
        let sent = bring_to(&partial, &new) as u64;
        let missing = if old_len < CHUNK { SIZE } else { SIZE.saturating_sub(old_len) };
        assert!(sent <= missing + CHUNK + 20_000, "{old_len}: {sent}");
        assert!(partial.readback(|| true).unwrap());
        assert_eq!(partial.finish(&WriteOptions::default()).unwrap().0, whole_digest(&new));
        assert!(std::fs::read(place.file(b"target")).unwrap() == new, "{old_len}");
        assert_eq!(place.names(), 1);
    }
}

#[test]
fn what_was_brought_of_another_source_is_used_for_this_one() {
    let mut place = place(false);
    let mut new = content();
    let partial = place.open();
    (0..4).for_each(|index| put(&partial, &new, index));
    drop(partial);
    place.identity.mtime.secs += 1;
    new[CHUNK as usize + 9] ^= 1;
    let partial = Partial::open_over(&place.root, &place.path, &place.identity, Resume::Any).unwrap();
    assert_eq!(partial.chunks_there(), 0, "nothing counts before it was compared");
    let sent = bring_to(&partial, &new) as u64;
    assert!(sent <= SIZE - 4 * CHUNK + 10_000, "{sent}");
    partial.finish(&WriteOptions::default()).unwrap();
    assert!(std::fs::read(place.file(b"target")).unwrap() == new);
}

#[test]
fn an_interrupted_patching_goes_on_with_what_was_booked() {
    let place = place(false);
    let new = content();
    let mut old = new.clone();
    old[7] ^= 1;
    std::fs::write(place.file(b"target"), &old).unwrap();
    let partial = Partial::open_over(&place.root, &place.path, &place.identity, Resume::Any).unwrap();
    let mut buffer = Vec::new();
    let marks = partial.marks(1, &mut buffer).unwrap().unwrap();
    assert_eq!(partial.adopt(1, marks.cv).unwrap(), PatchOutcome::Written);
    assert_eq!(partial.adopt(1, marks.cv).unwrap(), PatchOutcome::There);
    assert!(partial.marks(1, &mut buffer).unwrap().is_none());
    partial.marks(2, &mut buffer).unwrap().unwrap();
    drop(partial);
    assert!(std::fs::read(place.file(b"target")).unwrap() == old);
    let partial = Partial::open_over(&place.root, &place.path, &place.identity, Resume::Any).unwrap();
    assert_eq!(partial.have_ranges(), [(1, 1)]);
    assert!((bring_to(&partial, &new) as u64) < CHUNK / 10);
    partial.finish(&WriteOptions::default()).unwrap();
    assert!(std::fs::read(place.file(b"target")).unwrap() == new);
}

#[test]
fn a_patch_that_does_not_make_the_chunk_changes_nothing() {
    let place = place(false);
    let old = content();
    std::fs::write(place.file(b"target"), &old).unwrap();
    let partial = Partial::open_over(&place.root, &place.path, &place.identity, Resume::Any).unwrap();
    let mut buffer = Vec::new();
    let marks = partial.marks(0, &mut buffer).unwrap().unwrap();
    let mut content = vec![0; 32 + crate::PIECE];
    content[0] = 1;
    let patch = crate::Patch::parse(&content, CHUNK as usize).unwrap();
    assert_eq!(partial.patch(0, &patch, marks.cv, &mut buffer).unwrap(), PatchOutcome::Differs);
    assert_eq!(partial.marks(0, &mut buffer).unwrap().unwrap(), marks);
    assert_eq!(partial.chunks_there(), 0);
}

#[test]
fn a_file_is_changed_in_its_place_only_when_asked() {
    let place = place(false);
    let new = content();
    assert!(matches!(Partial::open_in_place(&place.root, &place.path, &place.identity), Ok(InPlace::Absent)));
    let mut old = new.clone();
    old.extend(vec![1; 10_000]);
    old[CHUNK as usize] ^= 1;
    std::fs::write(place.file(b"target"), &old).unwrap();
    std::fs::hard_link(place.file(b"target"), place.file(b"other")).unwrap();
    let look = || Partial::open_in_place(&place.root, &place.path, &place.identity);
    assert!(matches!(look(), Ok(InPlace::HasOtherNames)), "its other name must not get the new content");
    std::fs::remove_file(place.file(b"other")).unwrap();
    let open = || match look()? {
        InPlace::Open(partial) => Ok(*partial),
        other => panic!("{other:?}"),
    };
    let partial = when_free(open).unwrap();
    assert!(matches!(open(), Err(Error::Locked)));
    assert!(std::fs::read(place.file(b"target")).unwrap() == old, "it may still be refused");
    partial.begin_in_place().unwrap();
    assert!((bring_to(&partial, &new) as u64) < CHUNK / 10);
    partial.finish(&WriteOptions { mode: 0o600, ..WriteOptions::default() }).unwrap();
    drop(partial);
    assert!(std::fs::read(place.file(b"target")).unwrap() == new);
    drop(when_free(open).unwrap());
    assert!(place.file(b"target").exists(), "what is left unfinished is left there");
    std::fs::remove_file(place.file(b"target")).unwrap();
    std::fs::write(place.file(b"other"), &old).unwrap();
    std::os::unix::fs::symlink("other", place.file(b"target")).unwrap();
    assert!(look().is_err(), "never through a link");
}

#[test]
fn a_version_that_needs_no_journal_leaves_none() {
    for size in [2 * CHUNK, 10] {
        let mut place = place(false);
        put(&place.open(), &content(), 0);
        assert_eq!(place.names(), 2);
        place.identity.size = size;
        if size > CHUNK {
            let partial =
                Partial::open_over(&place.root, &place.path, &place.identity, Resume::Never).unwrap();
            (0..2).for_each(|index| put(&partial, &content(), index));
            partial.finish(&WriteOptions::default()).unwrap();
        } else {
            crate::write_whole(&place.root, &place.path, &[1; 10], &WriteOptions::default()).unwrap();
        }
        assert_eq!(place.names(), 1, "{size}");
    }
}

#[test]
fn a_partial_file_is_removed_unless_somebody_has_it_in_hand() {
    let place = place(false);
    let partial = place.open();
    put(&partial, &content(), 0);
    assert_eq!(place.root.partials(&RelPath::empty()).unwrap(), place.root.partial_names(&place.path)[..1]);
    place.root.remove_partial(&place.path).unwrap();
    drop(partial);
    assert_eq!(place.names(), 2, "it is there to be resumed");
    let patience = Instant::now() + Duration::from_secs(5);
    while place.names() > 0 && Instant::now() < patience {
        place.root.remove_partial(&place.path).unwrap();
    }
    assert_eq!(place.names(), 0);
}
