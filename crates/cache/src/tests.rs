//! The cache against a model, with kills between any two calls of the system, damage of any kind, and several processes.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;

use proptest::prelude::*;

use super::address::{CHUNK, ChunkAddress, FileVersion, Place};
use super::cache::Cache;
use super::directory::CacheError;

const LIMIT: u64 = 1 << 30;

fn address(file: u8, index: u64) -> ChunkAddress {
    let place = Place { host: "far".into(), ..Place::default() };
    ChunkAddress::new(
        &place,
        &FileVersion { path: vec![b'a' + file], size: 99, ..FileVersion::default() },
        index,
    )
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("above/cache");
    (temp, path)
}

/// All files of the cache.
fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

#[test]
fn a_chunk_is_found_by_its_address_and_by_its_digest() {
    let (_temp, path) = folder();
    let cache = Cache::open(&path, LIMIT).unwrap();
    let (first, second) = (content(1, CHUNK), content(2, 5));
    assert!(cache.put(&address(0, 0), &first) && cache.put(&address(0, 1), &second));
    assert!(cache.put(&address(1, 0), &first), "the same content has a second address");
    for cache in [&cache, &Cache::open(&path, LIMIT).unwrap()] {
        assert_eq!(cache.get(&address(0, 0)).as_ref(), Some(&first));
        assert_eq!(cache.get(&address(1, 0)).as_ref(), Some(&first));
        assert_eq!(cache.get(&address(0, 1)).as_ref(), Some(&second));
        assert_eq!(cache.get(&address(0, 2)), None);
        assert_eq!(cache.get_digest(blake3::hash(&first).as_bytes()).as_ref(), Some(&first));
        assert_eq!(cache.get_digest(&[3; 32]), None);
        let usage = cache.usage().unwrap();
        assert_eq!((usage.chunks, usage.bytes), (2, CHUNK as u64 + 5));
    }
    // Another version of the file has come meanwhile, under the same address for some reason.
    assert!(cache.put(&address(0, 0), &second));
    assert_eq!(cache.get(&address(0, 0)).as_ref(), Some(&second));
    assert!(!cache.put(&address(0, 3), &content(3, CHUNK + 1)) && !cache.put(&address(0, 3), &[]));
    let mut told = Vec::new();
    Cache::clean(&path, true, &mut |file| told.push(file.clone())).unwrap();
    assert_eq!((told.len(), cache.usage().unwrap().chunks), (2, 2));
    Cache::clean(&path, false, &mut |_| {}).unwrap();
    assert!(cache.get(&address(0, 0)).is_none() && cache.usage().unwrap().chunks == 0);
    assert!(files(&path).iter().all(|path| path.ends_with("lock")), "{:?}", files(&path));
    Cache::clean(&path.join("none"), false, &mut |_| panic!("nothing is there")).unwrap();
}

#[test]
fn only_a_directory_of_ones_own_is_used() {
    let (temp, path) = folder();
    drop(Cache::open(&path, LIMIT).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    for mode in [0o701, 0o750, 0o777] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(Cache::open(&path, LIMIT), Err(CacheError::NotPrivate { .. })), "{mode:o}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(Cache::open(&link, LIMIT), Err(CacheError::NotPrivate { .. })));
    std::fs::write(temp.path().join("file"), "").unwrap();
    assert!(Cache::open(&temp.path().join("file"), LIMIT).is_err());
    assert!(Cache::open(&temp.path().join("file/below"), LIMIT).is_err());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(matches!(Cache::open(&path, LIMIT), Err(CacheError::NotPrivate { .. })));
    }
}

/// Sets all chunks back in time, so that the next use counts.
fn age(path: &Path) {
    for (age, file) in files(&path.join("v1/chunks")).iter().enumerate() {
        let accessed = std::fs::metadata(file).unwrap().accessed().unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(1000 + age as u64);
        let times = std::fs::FileTimes::new().set_accessed(accessed).set_modified(old);
        std::fs::File::options().write(true).open(file).unwrap().set_times(times).unwrap();
    }
}

#[test]
fn what_was_used_again_outlives_a_scan_and_ghosts_come_back_to_stay() {
    let (_temp, path) = folder();
    let limit = 64 << 20;
    let cache = Cache::open(&path, limit).unwrap();
    for index in 0..40 {
        assert!(cache.put(&address(0, index), &content(index, CHUNK)));
    }
    age(&path);
    // These are used again.
    assert!((0..10).all(|index| cache.get(&address(0, index)).is_some()));
    for index in 100..300 {
        assert!(cache.put(&address(0, index), &content(index, CHUNK)));
        let bytes = cache.usage().unwrap().bytes;
        assert!(bytes <= limit + (17 << 20), "{bytes}");
    }
    for index in 0..10 {
        assert_eq!(cache.get(&address(0, index)), Some(content(index, CHUNK)), "{index}");
    }
    assert!((10..40).all(|index| cache.get(&address(0, index)).is_none()));
    // One of the scan comes again, and stands where the used ones are.
    assert!(cache.put(&address(0, 110), &content(110, CHUNK)));
    let file = path.join("v1").join(super::cache::chunk(blake3::hash(&content(110, CHUNK)).as_bytes()));
    let accessed = std::fs::metadata(file).unwrap().accessed().unwrap();
    assert_eq!(accessed.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs(), 4);
}

#[test]
fn pinned_files_stay_and_when_there_is_no_other_room_nothing_is_put() {
    let (_temp, path) = folder();
    let cache = Cache::open(&path, 64 << 20).unwrap();
    let place = Place { host: "far".into(), ..Place::default() };
    let version = |name: &str| FileVersion { path: name.into(), size: 100 << 20, ..FileVersion::default() };
    let at = |name: &str, index| ChunkAddress::new(&place, &version(name), index);
    cache.pin(b"far:/keep").unwrap();
    for name in ["/keep/a", "/other"] {
        cache.note(&place, &version(name));
    }
    for index in 0..20 {
        assert!(cache.put(&at("/keep/a", index), &content(index, CHUNK)));
    }
    for index in 0..100 {
        assert!(cache.put(&at("/other", index), &content(1000 + index, CHUNK)));
    }
    let files = cache.files().unwrap();
    assert_eq!(
        files.iter().map(|file| file.name()).collect::<Vec<_>>(),
        [b"far:/keep/a".to_vec(), b"far:/other".to_vec()]
    );
    assert_eq!(cache.held(&files[0]).chunks, 20);
    let put = (20..100).filter(|&index| cache.put(&at("/keep/a", index), &content(index, CHUNK))).count();
    assert!((20..70).contains(&put), "{put}");
    assert!(cache.usage().unwrap().bytes <= 81 << 20);
    assert!(cache.unpin(b"far:/keep") && !cache.unpin(b"far:/keep") && cache.pins().unwrap().is_empty());
    let dropped = cache.drop_file(&files[0]);
    assert_eq!(dropped.chunks, 20 + put as u64);
    assert!((0..100).all(|index| cache.get(&at("/keep/a", index)).is_none()));
    assert!(cache.files().unwrap().len() <= 1);
}

#[test]
fn a_byte_that_changes_on_the_disk_is_never_returned_and_verify_finds_it() {
    let (_temp, path) = folder();
    let cache = Cache::open(&path, LIMIT).unwrap();
    for index in 0..8 {
        assert!(cache.put(&address(0, index), &content(index, CHUNK)));
        assert_eq!(cache.get_part(&address(0, index), 5, 10), Some(content(index, CHUNK)[5..15].to_vec()));
        assert_eq!(cache.get_part(&address(0, index), CHUNK - 1, 10).unwrap().len(), 1);
        assert_eq!(cache.get_part(&address(0, index), CHUNK, 10).unwrap().len(), 0);
    }
    let flip = |file: &PathBuf| {
        let mut bytes = std::fs::read(file).unwrap();
        bytes[700_000] ^= 1;
        std::fs::write(file, bytes).unwrap();
    };
    let chunks = files(&path.join("v1/chunks"));
    flip(&chunks[0]);
    let found: Vec<_> = (0..8).filter(|&index| cache.get_part(&address(0, index), 0, 10).is_some()).collect();
    assert_eq!(found.len(), 7, "the changed one is gone, although other bytes of it were asked for");
    flip(&chunks[1]);
    let mut faulty = Vec::new();
    assert_eq!(cache.verify(true, &mut |chunk| faulty.push(chunk.clone())).unwrap().chunks, 6);
    assert_eq!(cache.verify(false, &mut |_| {}).unwrap().chunks, 6);
    assert!(faulty.len() == 1 && !path.join(&faulty[0].path).exists());
    let place = Place::default();
    cache.put_sum(&place, &FileVersion::default(), "adler32", b"1234");
    assert_eq!(cache.sum(&place, &FileVersion::default(), "adler32"), Some(b"1234".to_vec()));
    assert_eq!(cache.sum(&place, &FileVersion::default(), "crc32c"), None);
}

#[derive(Debug, Clone)]
enum Step {
    Put {
        file: u8,
        index: u64,
        seed: u64,
        len: usize,
    },
    Get {
        file: u8,
        index: u64,
    },
    Clean,
    /// Opens the cache with so little room that something has to go.
    Narrow(u64),
    /// Changes a file as a power cut may: cuts it, fills it with zeros, empties it or changes a byte.
    Damage {
        file: prop::sample::Index,
        kind: u8,
        at: prop::sample::Index,
    },
}

fn a_step() -> impl Strategy<Value = Step> {
    let (file, index) = (0..3_u8, 0..3_u64);
    prop_oneof![
        6 => (file.clone(), index.clone(), 0..4_u64, 1..3000_usize)
            .prop_map(|(file, index, seed, len)| Step::Put { file, index, seed, len }),
        4 => (file, index).prop_map(|(file, index)| Step::Get { file, index }),
        1 => Just(Step::Clean),
        1 => (1000..20_000_u64).prop_map(Step::Narrow),
        2 => (any::<prop::sample::Index>(), 0..5_u8, any::<prop::sample::Index>())
            .prop_map(|(file, kind, at)| Step::Damage { file, kind, at }),
    ]
}

/// The call at which a run is killed. The first put of a run looks through the whole cache, so most kills are later.
fn a_kill() -> impl Strategy<Value = i64> {
    prop_oneof![1 => 0..LOOK, 3 => LOOK..LOOK + 80, 2 => Just(i64::MAX)]
}

/// The calls of a sweep that removes nothing.
const LOOK: i64 = 258;

fn damage(path: &Path, file: prop::sample::Index, kind: u8, at: prop::sample::Index) {
    let files = files(&path.join("v1"));
    if files.is_empty() {
        return;
    }
    let file = &files[file.index(files.len())];
    if file.is_symlink() {
        let target = std::fs::read_link(file).unwrap().into_os_string().into_string().unwrap();
        std::fs::remove_file(file).unwrap();
        let other = match kind {
            0 => return,
            1 => target[..target.len() / 2].to_string(),
            // Another link's target may stand there.
            2 => address(0, 0).target_to(blake3::hash(b"other").as_bytes()),
            _ => target.chars().rev().collect(),
        };
        return std::os::unix::fs::symlink(other, file).unwrap();
    }
    let mut bytes = std::fs::read(file).unwrap();
    if bytes.is_empty() {
        return;
    }
    let at = at.index(bytes.len());
    match kind {
        0 => bytes.truncate(at),
        1 => bytes.clear(),
        2 => bytes[at..].fill(0),
        3 => bytes[at] ^= 1,
        _ => bytes.extend([0; 5000]),
    }
    std::fs::write(file, bytes).unwrap();
}

/// The answer is what was last put there, or nothing.
fn check(
    cache: &Cache,
    model: &HashMap<(u8, u64), Vec<Vec<u8>>>,
    key: (u8, u64),
) -> Result<(), TestCaseError> {
    if let Some(found) = cache.get(&address(key.0, key.1)) {
        let put = model.get(&key).map_or(&[][..], Vec::as_slice);
        prop_assert!(put.contains(&found), "{key:?}: {} bytes that were never put", found.len());
    }
    Ok(())
}

proptest! {
    /// Each run of steps is killed at some call, and the next run opens what is left. While a put is under way, the
    /// earlier content of its address may be found as well as the new one.
    #[test]
    fn no_kill_and_no_damage_leads_to_a_wrong_byte(
        lives in proptest::collection::vec((proptest::collection::vec(a_step(), 1..12), a_kill()), 1..6),
    ) {
        let (_temp, path) = folder();
        let mut model: HashMap<(u8, u64), Vec<Vec<u8>>> = HashMap::new();
        for (steps, kill_after) in lives {
            let mut cache = Cache::open(&path, LIMIT).unwrap();
            let arm = |cache: &Cache| {
                cache.directory.kill.steps_left.store(kill_after, SeqCst);
                cache.directory.kill.is_armed.store(true, SeqCst);
            };
            arm(&cache);
            for step in steps {
                match step {
                    Step::Put { file, index, seed, len } => {
                        let content = content(seed, len);
                        let key = (file, index);
                        let is_put = cache.put(&address(file, index), &content);
                        let known = model.entry(key).or_default();
                        if is_put {
                            known.clear();
                        }
                        known.push(content);
                    }
                    Step::Get { file, index } => check(&cache, &model, (file, index))?,
                    Step::Clean => {
                        let _ = Cache::clean(&path, false, &mut |_| {});
                    }
                    Step::Narrow(limit) => {
                        cache = Cache::open(&path, limit).unwrap();
                        arm(&cache);
                    }
                    Step::Damage { file, kind, at } => damage(&path, file, kind, at),
                }
            }
        }
        let cache = Cache::open(&path, LIMIT).unwrap();
        for file in 0..3 {
            for index in 0..3 {
                check(&cache, &model, (file, index))?;
                // Whatever was left there is in nobody's way.
                let new = content(77, 4000);
                prop_assert!(cache.put(&address(file, index), &new));
                prop_assert_eq!(cache.get(&address(file, index)), Some(new));
            }
        }
    }
}

/// The child of the next test: it puts and gets until it is killed, and ends with an error if a byte is wrong.
#[test]
fn child_that_puts_and_gets() {
    let Some(path) = std::env::var_os("FARHAUL_CACHE_CHILD") else { return };
    let seed = u64::from(std::process::id());
    let cache = Cache::open(Path::new(&path), 24 << 20).unwrap();
    for round in 0.. {
        let index = (seed + round * 7) % 60;
        let expected = content(index, CHUNK - index as usize);
        match cache.get(&address(0, index)) {
            Some(found) => assert!(found == expected, "a wrong byte in {index}"),
            None => drop(cache.put(&address(0, index), &expected)),
        }
    }
}

#[test]
fn processes_that_are_killed_while_they_share_a_cache_leave_no_wrong_byte() {
    let (_temp, path) = folder();
    drop(Cache::open(&path, LIMIT).unwrap());
    let mut children: Vec<_> = (0..3).map(|_| None).collect();
    for round in 0..12_u64 {
        for child in &mut children {
            let started = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::child_that_puts_and_gets", "--nocapture"])
                .env("FARHAUL_CACHE_CHILD", &path)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            *child = Some(started);
        }
        std::thread::sleep(std::time::Duration::from_millis(60 + 37 * (round % 5)));
        for child in children.iter_mut().flatten() {
            assert!(child.try_wait().unwrap().is_none(), "a child found a wrong byte");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    let cache = Cache::open(&path, LIMIT).unwrap();
    let found = (0..60).filter(|&index| match cache.get(&address(0, index)) {
        Some(found) => {
            assert!(found == content(index, CHUNK - index as usize), "{index}");
            true
        }
        None => false,
    });
    assert!(found.count() > 0, "nothing was ever put");
}
