use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;

use super::*;

fn path(text: &str) -> RelPath {
    RelPath::from_bytes(text.as_bytes()).unwrap()
}

fn names_in(dir: &std::path::Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_file_arrives_with_mode_and_time_and_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    for mode in [0o644, 0o600, 0o400, 0o000, 0o777, 0o4755, 0o1666] {
        for (sparse, durable) in [(false, false), (true, true)] {
            let mtime = Time::new(1_234_567_890, 987_654_321);
            write_whole(
                &root,
                &path("file"),
                b"content",
                &WriteOptions { mode, mtime, durable, sparse, ..WriteOptions::default() },
            )
            .unwrap();
            let meta = root.metadata(&path("file")).unwrap().unwrap();
            assert_eq!((meta.mode, meta.mtime, meta.size), (mode, mtime, 7));
            assert_eq!(std::fs::read(temp.path().join("file")).unwrap(), b"content");
            assert_eq!(names_in(temp.path()), 1);
        }
    }
}

#[test]
fn a_leftover_of_ours_is_taken_over() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    std::fs::write(
        temp.path().join(std::str::from_utf8(&names::part(b"file")).unwrap()),
        "longer than the content",
    )
    .unwrap();
    write_whole(&root, &path("file"), b"content", &WriteOptions::default()).unwrap();
    assert_eq!(std::fs::read(temp.path().join("file")).unwrap(), b"content");
    assert_eq!(names_in(temp.path()), 1);
}

#[test]
fn a_link_or_a_file_of_another_user_in_the_way_is_not_touched() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let part = temp.path().join(std::str::from_utf8(&names::part(b"file")).unwrap());
    std::fs::write(temp.path().join("victim"), "victim").unwrap();
    std::os::unix::fs::symlink("victim", &part).unwrap();
    assert!(write_whole(&root, &path("file"), b"x", &WriteOptions::default()).is_err());
    std::fs::remove_file(&part).unwrap();
    std::fs::hard_link(temp.path().join("victim"), &part).unwrap();
    assert!(write_whole(&root, &path("file"), b"x", &WriteOptions::default()).is_err());
    assert_eq!(std::fs::read(temp.path().join("victim")).unwrap(), b"victim");
    std::fs::remove_file(&part).unwrap();
    if rustix::process::geteuid().is_root() {
        std::fs::write(&part, "theirs").unwrap();
        std::os::unix::fs::chown(&part, Some(4242), None).unwrap();
        let error = write_whole(&root, &path("file"), b"x", &WriteOptions::default()).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
        assert_eq!(std::fs::read(&part).unwrap(), b"theirs");
    }
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let file = TempFile::create(&root, &path("file")).unwrap();
    let second = TempFile::create(&root, &path("file")).map(drop).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    drop(file);
    assert_eq!(names_in(temp.path()), 0);
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    assert!(write_whole(&root, &path("dir"), b"x", &WriteOptions::default()).is_err());
    assert_eq!(names_in(temp.path()), 1, "only the directory");
}

#[test]
fn threads_that_write_the_same_name_never_show_a_mixture() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    std::thread::scope(|scope| {
        for number in 1..=4u8 {
            let root = Root::open(temp.path()).unwrap();
            scope.spawn(move || {
                for _ in 0..300 {
                    // Being locked out is fine; showing less than a whole file is not.
                    let _ = write_whole(&root, &path("same"), &[number; 20_000], &WriteOptions::default());
                }
            });
        }
        for _ in 0..300 {
            if let Ok(seen) = std::fs::read(temp.path().join("same")) {
                assert!(seen.len() == 20_000 && seen.iter().all(|&byte| byte == seen[0]));
            }
        }
    });
    write_whole(&root, &path("same"), b"end", &WriteOptions::default()).unwrap();
    assert_eq!(names_in(temp.path()), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_name_and_any_content(name in proptest::collection::vec(1u8..=255, 1..=255), pages in proptest::collection::vec((any::<u8>(), 1usize..9000), 0..6), sparse in any::<bool>()) {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let Ok(path) = RelPath::from_bytes(&name) else { return Ok(()) };
        prop_assume!(!name.contains(&b'/'));
        let data: Vec<u8> = pages.iter().flat_map(|&(byte, len)| vec![if byte < 128 { 0 } else { byte }; len]).collect();
        write_whole(&root, &path, &data, &WriteOptions { sparse, ..WriteOptions::default() }).unwrap();
        use std::os::unix::ffi::OsStrExt;
        let file = temp.path().join(std::ffi::OsStr::from_bytes(&name));
        prop_assert_eq!(std::fs::read(&file).unwrap(), data);
        prop_assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o644);
    }
}
