//! What an operation does when the process runs out of descriptors at each of its steps: it fails, and what is
//! there stays as it was. A file of its own, as the limit is that of the whole process.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use farhaul_volume::{
    CHUNK, ChunkCv, FileTime, GlobAllowance, GlobBase, Partial, PartialError, RelPath, Resume, Root,
    SourceIdentity, SourceState, chunk_cv, expand, is_out_of_descriptors,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than any of these operations needs.
const ENOUGH: u64 = 40;

/// Runs `work` with `count` descriptors that it may open.
fn with_descriptors<T>(count: u64, work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let lowest = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest + count), ..before }).unwrap();
    let done = work();
    setrlimit(Resource::Nofile, before).unwrap();
    done
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn path(path: &str) -> RelPath {
    RelPath::from_bytes(path.as_bytes()).unwrap()
}

/// An interrupted file keeps what has arrived.
fn partial_files_stay() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let content = vec![7; 3 * CHUNK as usize];
    std::fs::write(folder.join("file"), vec![6; content.len()]).unwrap();
    let mtime = FileTime::new(1_700_000_000, 5);
    let state = SourceState { ctime: mtime, ino: 12, dev: 34 };
    let identity = SourceIdentity { size: content.len() as u64, mtime, state, sparse: false };
    let target = path("folder/file");
    // The directory is opened anew each time.
    let open = || Partial::open(&Root::open(temp.path()).unwrap(), &target, &identity, Resume::Any);
    let open_over = || Partial::open_over(&Root::open(temp.path()).unwrap(), &target, &identity, Resume::Any);

    let partial = open().unwrap();
    let chunk = &content[..CHUNK as usize];
    assert!(partial.write_chunk(1, chunk).unwrap());
    partial.mark(1, ChunkCv(chunk_cv(chunk))).unwrap();
    partial.checkpoint().unwrap();
    drop(partial);
    let before = names(&folder);

    let mut failed = 0;
    for count in 1..ENOUGH {
        for is_over in [false, true] {
            let opened = with_descriptors(count, || if is_over { open_over() } else { open() });
            match opened {
                Ok(partial) => assert_eq!(partial.have_ranges(), [(1, 1)], "{count} {is_over}"),
                Err(PartialError::Io { source, .. }) => {
                    assert!(is_out_of_descriptors(&source), "{count} {is_over}: {source}");
                    failed += 1;
                }
                Err(error) => panic!("{count} {is_over}: {error}"),
            }
            assert_eq!(names(&folder), before, "{count} {is_over}");
        }
    }
    assert!(failed >= 4, "the steps of opening have been tried");
    assert_eq!(open().unwrap().have_ranges(), [(1, 1)]);
}

/// A pattern matches the same names, or it fails.
fn patterns_match_all_or_fail() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["a/x/1", "b/x/2", "c/y/3"] {
        std::fs::create_dir_all(temp.path().join(name)).unwrap();
    }
    let look = |pattern: &str| {
        let base = GlobBase::Root(Root::open(temp.path()).unwrap());
        expand(&base, pattern.as_bytes(), &mut GlobAllowance::default())
    };
    for pattern in ["*/x/*", "a/*/1", "?/y", "b/*/"] {
        let expected = look(pattern).unwrap();
        let mut failed = 0;
        for count in 1..ENOUGH {
            match with_descriptors(count, || look(pattern)) {
                Ok(found) => assert_eq!(found, expected, "{pattern} {count}"),
                Err(error) => {
                    assert!(is_out_of_descriptors(&error), "{pattern} {count}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 0, "{pattern}");
    }
}

/// Directories that are only kept for later do not stand in the way.
fn kept_directories_make_room() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let make = |number: u64| {
        root.create_dir(&path(&format!("{number}")))?;
        root.create_dir(&path(&format!("{number}/below")))
    };
    with_descriptors(ENOUGH, || (0..3 * ENOUGH).try_for_each(make)).unwrap();
    assert_eq!(names(temp.path()).len() as u64, 3 * ENOUGH);
}

#[test]
fn what_lacks_descriptors_fails_and_changes_nothing() {
    partial_files_stay();
    patterns_match_all_or_fail();
    kept_directories_make_room();
}
