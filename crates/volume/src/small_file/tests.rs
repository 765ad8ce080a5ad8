use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
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
            let mtime = FileTime::new(1_234_567_890, 987_654_321);
            write_whole(
                &root,
                &path("file"),
                b"content",
                &WriteOptions { mode, mtime: Some(mtime), durable, sparse, ..WriteOptions::default() },
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
fn a_new_file_never_has_another_name() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    if root.dir(b"").unwrap().create_nameless(0o600).is_none() {
        eprintln!("this file system has no files without names");
        return;
    }
    // The same mode twice: for the second file it is known without looking.
    for (number, mode) in
        [0o644, 0o644, 0o600, 0o400, 0o000, 0o777, 0o777, 0o4755, 0o1666].into_iter().enumerate()
    {
        for (sparse, durable) in [(false, false), (true, true)] {
            let name = path(&format!("file-{number}-{sparse}"));
            let mtime = FileTime::new(1_234_567_890, 987_654_321);
            let options =
                WriteOptions { mode, mtime: Some(mtime), durable, sparse, ..WriteOptions::default() };
            let made = UnnamedFile::new(&root, &name, b"content", &options).unwrap();
            assert!(
                matches!(made.at, TempLocation::Nowhere { .. }) && root.metadata(&name).unwrap().is_none()
            );
            made.finish().unwrap();
            let meta = root.metadata(&name).unwrap().unwrap();
            assert_eq!((meta.mode, meta.mtime, meta.size, meta.nlink), (mode, mtime, 7, 1));
            assert_eq!(std::fs::read(temp.path().join(name.to_string())).unwrap(), b"content");
        }
    }
    assert_eq!(names_in(temp.path()), 18);
}

#[test]
fn what_is_there_after_all_is_replaced_and_a_directory_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    std::fs::write(temp.path().join("file"), "somebody's, and longer").unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    write_new(&root, &path("file"), b"content", &WriteOptions::default()).unwrap();
    assert_eq!(std::fs::read(temp.path().join("file")).unwrap(), b"content");
    assert!(write_new(&root, &path("dir"), b"content", &WriteOptions::default()).is_err());
    assert_eq!(names_in(temp.path()), 2);
    assert!(
        root.dir(b"").unwrap().create_nameless(0o644).is_some(),
        "a name that is taken says nothing of others"
    );
}

#[test]
fn without_nameless_files_a_temporary_name_serves() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    root.dir(b"").unwrap().refuse_nameless();
    let made = UnnamedFile::new(&root, &path("file"), b"content", &WriteOptions::default()).unwrap();
    assert!(matches!(made.at, TempLocation::Beside(_)));
    drop(made);
    write_new(&root, &path("file"), b"content", &WriteOptions::default()).unwrap();
    assert_eq!(std::fs::read(temp.path().join("file")).unwrap(), b"content");
}

#[test]
fn a_directory_removed_behind_our_back_is_made_again_by_its_maker() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    root.create_dir(&path("d")).unwrap();
    write_new(&root, &path("d/one"), b"1", &WriteOptions::default()).unwrap();
    std::fs::remove_dir_all(temp.path().join("d")).unwrap();
    assert!(write_new(&root, &path("d/two"), b"2", &WriteOptions::default()).is_err());
    root.create_dir(&path("d")).unwrap();
    write_new(&root, &path("d/two"), b"2", &WriteOptions::default()).unwrap();
    assert_eq!(std::fs::read(temp.path().join("d/two")).unwrap(), b"2");
}

#[test]
fn the_mode_is_as_given_whatever_a_directory_passes_on() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    // A default access control list: owner rwx, group ---, others ---. From: linux/posix_acl_xattr.h.
    let entry = |tag: u16, rights: u16| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
    };
    let list = [2u32.to_le_bytes().to_vec(), entry(1, 7), entry(4, 0), entry(0x20, 0)].concat();
    let dir = std::fs::File::open(temp.path()).unwrap();
    if rustix::fs::fsetxattr(&dir, "system.posix_acl_default", &list, rustix::fs::XattrFlags::empty())
        .is_err()
    {
        return;
    }
    for number in 0..3 {
        let name = path(&format!("f{number}"));
        write_new(&root, &name, b"x", &WriteOptions { mode: 0o644, ..WriteOptions::default() }).unwrap();
        assert_eq!(root.metadata(&name).unwrap().unwrap().mode, 0o644);
    }
}

#[test]
fn a_leftover_is_known_by_its_inode() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let dir = root.dir(b"").unwrap();
    for is_nameless in [true, false] {
        if !is_nameless {
            dir.try_nameless();
            dir.refuse_nameless();
        }
        // As if the run was killed before the rename.
        let CreatedTemp { file, name, .. } = temp_file::create(&dir, 0o600).unwrap();
        let name = name.unwrap_or_else(|| temp_file::give_name(&file, &dir).unwrap());
        assert!(crate::own_files::is_ours(&dir, &name), "{is_nameless}");
        std::fs::copy(temp.path().join(OsStr::from_bytes(&name)), temp.path().join("copy")).unwrap();
        drop(file);
        assert!(crate::own_files::remove(&dir, &name).unwrap());
        std::fs::rename(temp.path().join("copy"), temp.path().join(OsStr::from_bytes(&name))).unwrap();
        assert!(!crate::own_files::is_ours(&dir, &name), "a copy is a file like any other");
        std::fs::remove_file(temp.path().join(OsStr::from_bytes(&name))).unwrap();
        for content in [&b"content"[..], b"new"] {
            write_whole(&root, &path("file"), content, &WriteOptions::default()).unwrap();
            assert_eq!(std::fs::read(temp.path().join("file")).unwrap(), content);
        }
        drop(TempFile::create(&root, &path("file")).unwrap());
        assert_eq!(names_in(temp.path()), 1);
    }
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let file = TempFile::create(&root, &path("file")).unwrap();
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
                    let write = if number % 2 == 0 { write_new } else { write_whole };
                    let _ = write(&root, &path("same"), &[number; 20_000], &WriteOptions::default());
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
