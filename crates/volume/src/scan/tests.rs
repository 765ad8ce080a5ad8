use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::source_file::SourceFile;
use crate::sys::bytes_read;

fn source(path: &Path, dest: &[u8]) -> Source {
    Source {
        path: path.into(),
        also: Vec::new(),
        dest: RelPath::from_bytes(dest).unwrap(),
        beneath: Vec::new(),
        generated: None,
    }
}

fn scan(source: Source) -> Vec<ScanItem> {
    Scanner::new(vec![source], ScanOptions::default()).collect()
}

fn entries(items: &[ScanItem]) -> BTreeMap<Vec<u8>, Entry> {
    let entry = |item: &ScanItem| match item {
        ScanItem::Entry { path, entry, .. } => Some((path.as_bytes().to_vec(), entry.clone())),
        _ => None,
    };
    items.iter().filter_map(entry).collect()
}

/// Checks that every directory ends after everything in it, and that nothing else comes between.
fn check_order(items: &[ScanItem]) {
    let mut open: Vec<RelPath> = Vec::new();
    for item in items {
        match item {
            ScanItem::Entry { path, entry, .. } => {
                if let Some(top) = open.last() {
                    assert_eq!(path.parent().as_ref(), Some(top));
                }
                if entry.kind == EntryKind::Dir {
                    open.push(path.clone());
                }
            }
            ScanItem::DirEnd { path, .. } => assert_eq!(open.pop().as_ref(), Some(path)),
            ScanItem::Unlisted { path } => assert_eq!(open.last(), Some(path)),
            ScanItem::LeftOut { .. } | ScanItem::Failed { .. } | ScanItem::Vanished { .. } => {}
        }
    }
    assert!(open.is_empty());
}

#[test]
fn a_tree_with_everything_in_it() {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().join("top");
    std::fs::create_dir_all(top.join("empty")).unwrap();
    std::fs::write(top.join("file"), "content").unwrap();
    std::fs::hard_link(top.join("file"), top.join("hard")).unwrap();
    std::os::unix::fs::symlink("/nowhere", top.join("link")).unwrap();
    let inside = crate::Root::open(&top).unwrap();
    let state = crate::SourceState { ctime: crate::FileTime::default(), ino: 1, dev: 1 };
    let identity =
        crate::SourceIdentity { size: 5 << 20, mtime: crate::FileTime::default(), state, sparse: false };
    let target = RelPath::from_bytes(b"x").unwrap();
    let _ours = crate::Partial::open(&inside, &target, &identity, crate::Resume::Any).unwrap();
    std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    let items = scan(source(&top, b"dest"));
    check_order(&items);
    let found = entries(&items);
    let names: Vec<_> = found.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
    assert_eq!(names, ["dest", "dest/empty", "dest/file", "dest/hard", "dest/link", "dest/socket"]);
    assert_eq!(found[&b"dest/link"[..]].kind, EntryKind::Symlink { target: b"/nowhere".to_vec() });
    assert_eq!(found[&b"dest/socket"[..]].kind, EntryKind::Special(crate::SpecialNode::Socket));
    assert_eq!(
        (found[&b"dest/file"[..]].nlink, found[&b"dest/file"[..]].ino),
        (2, found[&b"dest/hard"[..]].ino)
    );
    let items = scan(Source { dest: RelPath::empty(), ..source(&top, b"x") });
    check_order(&items);
    let names: Vec<_> = entries(&items).into_keys().collect();
    assert_eq!(names, [&b""[..], b"empty", b"file", b"hard", b"link", b"socket"]);
}

#[test]
fn a_link_on_the_command_line_is_followed_and_a_missing_source_is_told() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("file"), "content").unwrap();
    std::os::unix::fs::symlink("file", temp.path().join("link")).unwrap();
    let items = scan(source(&temp.path().join("link"), b"link"));
    let [ScanItem::Entry { entry, handle, .. }] = &items[..] else { panic!("{items:?}") };
    assert_eq!(entry.kind, EntryKind::File { size: 7, sparse: false });
    let file = SourceFile::open(handle, entry).unwrap();
    let mut buffer = [0; 20];
    assert_eq!(file.read_whole(&mut buffer).unwrap(), 7);
    assert!(file.unchanged().unwrap());
    std::fs::write(temp.path().join("file"), "changed!").unwrap();
    assert!(!file.unchanged().unwrap());
    assert!(SourceFile::open(handle, entry).is_err());
    let missing = scan(source(&temp.path().join("missing"), b"missing"));
    assert!(
        matches!(&missing[..], [ScanItem::Failed { error, .. }] if error.kind() == io::ErrorKind::NotFound)
    );
}

#[test]
fn a_source_in_several_places_is_one_tree() {
    let temp = tempfile::tempdir().unwrap();
    let place = |name: &str| temp.path().join(name);
    let write = |name: &str, content: &str, secs: u64| {
        std::fs::create_dir_all(place(name).parent().unwrap()).unwrap();
        std::fs::write(place(name), content).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        std::fs::File::open(place(name)).unwrap().set_modified(time).unwrap();
    };
    for name in ["one/a", "one/d/x", "one/only/z", "two/b", "two/d/y", "two/d/e/w", "three/c"] {
        write(name, name, 5);
    }
    for name in ["one/d/same", "two/d/same"] {
        write(name, "same", 7);
    }
    let spread = |also: &[&str]| Source {
        also: also.iter().map(|name| place(name)).collect(),
        dest: RelPath::empty(),
        ..source(&place("one"), b"x")
    };
    let shown = |items: &[ScanItem]| {
        let names = entries(items).into_keys().map(|name| String::from_utf8(name).unwrap());
        names.collect::<Vec<_>>().join(" ")
    };
    let items = scan(spread(&["two", "three", "none"]));
    check_order(&items);
    assert_eq!(shown(&items), " a b c d d/e d/e/w d/same d/x d/y only only/z");
    let content = |items: &[ScanItem], name: &str| {
        let of = |item: &ScanItem| match item {
            ScanItem::Entry { path, entry, handle } if path.as_bytes() == name.as_bytes() => {
                let mut buffer = [0; 20];
                let len = SourceFile::open(handle, entry).unwrap().read_whole(&mut buffer).unwrap();
                Some(String::from_utf8(buffer[..len].to_vec()).unwrap())
            }
            _ => None,
        };
        items.iter().find_map(of)
    };
    for (name, place) in [("a", "one/a"), ("d/y", "two/d/y"), ("d/e/w", "two/d/e/w"), ("c", "three/c")] {
        assert_eq!(content(&items, name).as_deref(), Some(place));
    }
    // Names that are asked for are found in any place.
    let names = ["d/y", "c", "gone"].map(|name| name.as_bytes().to_vec()).to_vec();
    let only = Some(Selection::new(names).unwrap());
    let options = ScanOptions { only, ..ScanOptions::default() };
    let items: Vec<_> = Scanner::new(vec![spread(&["two", "three"])], options).collect();
    assert_eq!(shown(&items), " c d d/y");
    // Other content or another kind is an error that names both places, and neither is taken.
    write("two/a", "other", 6);
    write("three/d", "a file", 6);
    let items = scan(spread(&["two", "three"]));
    assert_eq!(shown(&items), " b c only only/z");
    let failed = items.iter().filter_map(|item| match item {
        ScanItem::Failed { path, error } => Some((path.clone(), error.to_string())),
        _ => None,
    });
    let failed: Vec<_> = failed.collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    for (path, error) in failed {
        let other = if path == b"a" { "two" } else { "three" };
        for name in ["one", other] {
            assert!(error.contains(place(name).to_str().unwrap()), "{error}");
        }
    }
}

#[test]
fn rules_limits_and_names_choose() {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().join("top");
    std::fs::create_dir_all(top.join("dir/below")).unwrap();
    for (name, size) in [("a.o", 1), ("b.c", 10), ("dir/c.c", 20), ("dir/below/d", 30), ("e", 5)] {
        std::fs::write(top.join(name), vec![0; size]).unwrap();
    }
    let content = || Source { dest: RelPath::empty(), ..source(&top, b"x") };
    let scan = |options| {
        let items: Vec<_> = Scanner::new(vec![content()], options).collect();
        check_order(&items);
        let names = entries(&items).into_keys().map(|name| String::from_utf8(name).unwrap());
        let left_out = items.iter().filter(|item| matches!(item, ScanItem::LeftOut { .. })).count();
        let failed = items.iter().filter(|item| matches!(item, ScanItem::Failed { .. })).count();
        (names.collect::<Vec<_>>().join(" "), left_out, failed)
    };
    let filter = Filter::new(&[b"- *.o".to_vec(), b"- /dir/below/".to_vec()]).unwrap();
    assert_eq!(scan(ScanOptions { filter, ..ScanOptions::default() }), (" b.c dir dir/c.c e".into(), 0, 0));
    let filter = Filter::new(&[b"- *".to_vec()]).unwrap();
    assert_eq!(scan(ScanOptions { filter, ..ScanOptions::default() }), (String::new(), 0, 0));
    let limits = SizeLimits { size_min: Some(5), size_max: Some(20), ..SizeLimits::default() };
    let expected = (" b.c dir dir/below dir/c.c e".into(), 2, 0);
    assert_eq!(scan(ScanOptions { limits, ..ScanOptions::default() }), expected);
    let limits = SizeLimits { mtime_max: Some(1), ..SizeLimits::default() };
    assert_eq!(scan(ScanOptions { limits, ..ScanOptions::default() }).1, 5);
    let names = ["dir/below", "e", "dir/none", "a.o/x"].map(|name| name.as_bytes().to_vec()).to_vec();
    let only = Some(Selection::new(names).unwrap());
    let expected = (" dir dir/below dir/below/d e".into(), 0, 2);
    assert_eq!(scan(ScanOptions { only, ..ScanOptions::default() }), expected);
}

#[test]
fn each_name_below_what_is_missing_or_no_directory_fails_by_itself() {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().join("top");
    std::fs::create_dir_all(top.join("there")).unwrap();
    std::fs::write(top.join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", top.join("link")).unwrap();
    std::fs::write(top.join("there/in"), "").unwrap();
    let asked = [
        "gone/a",
        "gone/b/c",
        "gone/b/c/d",
        "there",
        "there/none/x",
        "there/in",
        "there/in/w",
        "file",
        "file/y",
        "link/z",
        "alone",
        "alone/in",
    ];
    for (also, follow) in [(Vec::new(), false), (Vec::new(), true), (vec![temp.path().join("other")], false)]
    {
        let names = asked.iter().map(|name| name.as_bytes().to_vec()).collect();
        let only = Some(Selection::new(names).unwrap());
        let source = Source { dest: RelPath::empty(), also, ..source(&top, b"x") };
        let items: Vec<_> =
            Scanner::new(vec![source], ScanOptions { only, follow, ..ScanOptions::default() }).collect();
        check_order(&items);
        let failed = items.iter().filter_map(|item| match item {
            ScanItem::Failed { path, .. } => Some(std::str::from_utf8(path).unwrap()),
            _ => None,
        });
        let mut failed: Vec<_> = failed.collect();
        failed.sort_unstable();
        let mut expected = vec!["alone", "alone/in", "file/y", "gone/a", "gone/b/c", "gone/b/c/d", "link/z"];
        expected.extend(["there/in/w", "there/none/x"]);
        assert_eq!(failed, expected, "links are followed: {follow}");
        assert_eq!(entries(&items).len(), 4, "the top, there, there/in and file");
    }
}

#[test]
fn what_goes_while_it_is_listed_has_vanished_and_not_failed() {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().join("top");
    std::fs::create_dir(&top).unwrap();
    let names = ["a", "b", "c"].map(|name| top.join(name));
    for also in [Vec::new(), vec![temp.path().join("other")]] {
        names.iter().for_each(|name| std::fs::write(name, "").unwrap());
        let mut scanner = Scanner::new(vec![Source { also, ..source(&top, b"t") }], ScanOptions::default());
        // The source's own entry and the first one in it: by then, all names have been listed.
        let mut items: Vec<_> = scanner.by_ref().take(2).collect();
        names.iter().for_each(|name| std::fs::remove_file(name).unwrap());
        items.extend(scanner);
        check_order(&items);
        let vanished = items.iter().filter(|item| matches!(item, ScanItem::Vanished { is_open: false, .. }));
        assert_eq!(vanished.count(), 2, "{items:?}");
        assert!(!items.iter().any(|item| matches!(item, ScanItem::Failed { .. })), "{items:?}");
    }
}

#[test]
fn a_directory_that_goes_before_it_is_listed_has_vanished_and_its_source_has_failed() {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().join("top");
    std::fs::create_dir_all(top.join("dir")).unwrap();
    let mut scanner = Scanner::new(vec![source(&top, b"t")], ScanOptions::default());
    let mut items: Vec<_> = scanner.by_ref().take(2).collect();
    std::fs::remove_dir(top.join("dir")).unwrap();
    items.extend(scanner);
    check_order(&items);
    let vanished =
        |item: &ScanItem| matches!(item, ScanItem::Vanished { path, is_open: true } if path == b"t/dir");
    assert_eq!(items.iter().filter(|item| vanished(item)).count(), 1, "{items:?}");
    let mut scanner = Scanner::new(vec![source(&top, b"t")], ScanOptions::default());
    let mut items: Vec<_> = scanner.by_ref().take(1).collect();
    std::fs::remove_dir(&top).unwrap();
    items.extend(scanner);
    assert!(items.iter().any(|item| matches!(item, ScanItem::Failed { .. })), "{items:?}");
}

#[test]
fn below_a_root_no_link_leads_out() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("root/dir")).unwrap();
    std::fs::write(temp.path().join("root/dir/file"), "1").unwrap();
    std::os::unix::fs::symlink("/etc", temp.path().join("root/out")).unwrap();
    let root = Root::open(temp.path().join("root")).unwrap();
    let below = |path: &str| Source { beneath: vec![root.clone()], ..source(Path::new(path), b"name") };
    let items = scan(below("dir//./"));
    assert_eq!(entries(&items).len(), 2);
    let file = items.iter().find_map(|item| match item {
        ScanItem::Entry { entry, handle, .. } if entry.kind != EntryKind::Dir => {
            Some(SourceFile::open(handle, entry))
        }
        _ => None,
    });
    assert_eq!(file.unwrap().unwrap().size(), 1);
    for hostile in ["out/passwd", "../root/dir", "/etc", "dir/../../x"] {
        assert!(matches!(scan(below(hostile))[..], [ScanItem::Failed { .. }]), "{hostile}");
    }
    assert!(matches!(scan(below("out"))[..], [ScanItem::Failed { .. }]), "nor by its own name");
    std::os::unix::fs::symlink("dir", temp.path().join("root/in")).unwrap();
    for named in ["in", "in/", "in/../in"] {
        let found = entries(&scan(below(named)));
        assert_eq!(found.len(), if named.contains("..") { 0 } else { 2 }, "{named}");
    }
    assert_eq!(
        entries(&scan(below("in/file")))[&b"name"[..]].kind,
        entries(&scan(below("dir/file")))[&b"name"[..]].kind
    );
    std::fs::remove_file(temp.path().join("root/in")).unwrap();
    let all = Source { dest: RelPath::empty(), ..below(".") };
    assert_eq!(entries(&scan(all)).len(), 4);
}

#[test]
fn a_component_replaced_by_a_link_is_not_followed_when_read() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("top/dir")).unwrap();
    std::fs::create_dir(temp.path().join("outside")).unwrap();
    for name in ["top/dir/file", "outside/file"] {
        std::fs::write(temp.path().join(name), "1").unwrap();
    }
    let items = scan(source(&temp.path().join("top"), b"top"));
    let found = items.into_iter().find_map(|item| match item {
        ScanItem::Entry { path, entry, handle } if path.as_bytes() == b"top/dir/file" => {
            Some((entry, handle))
        }
        _ => None,
    });
    let (entry, handle) = found.unwrap();
    std::fs::remove_dir_all(temp.path().join("top/dir")).unwrap();
    std::os::unix::fs::symlink("../outside", temp.path().join("top/dir")).unwrap();
    assert!(SourceFile::open(&handle, &entry).is_err());
}

#[test]
fn a_tree_deeper_than_the_open_levels_comes_back_to_every_name() {
    let temp = tempfile::tempdir().unwrap();
    let depth = 3 * OPEN_LEVELS;
    let mut at = temp.path().join("top");
    std::fs::create_dir(&at).unwrap();
    for _ in 0..depth {
        for name in ["a", "b", "z"] {
            std::fs::write(at.join(name), "").unwrap();
        }
        at.push("m");
        std::fs::create_dir(&at).unwrap();
    }
    let items = scan(source(&temp.path().join("top"), b"top"));
    check_order(&items);
    assert_eq!(entries(&items).len(), 1 + depth * 4);
    assert_eq!(items.len(), entries(&items).len() + 1 + depth);
    for item in &items {
        if let ScanItem::Entry { entry, handle, .. } = item
            && entry.kind != EntryKind::Dir
        {
            SourceFile::open(handle, entry).unwrap();
        }
    }
}

#[test]
fn a_big_directory_is_listed_once_each() {
    let temp = tempfile::tempdir().unwrap();
    for number in 0..5000 {
        std::fs::write(temp.path().join(format!("a rather long name that fills the buffer {number}")), "")
            .unwrap();
    }
    let items = scan(source(temp.path(), b"top"));
    assert_eq!(items.len(), 5002);
    assert_eq!(entries(&items).len(), 5001);
}

#[test]
fn the_data_of_a_sparse_tebibyte_is_found_without_reading_it() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 700 << 30).unwrap();
    let items = scan(source(&path, b"sparse"));
    let [ScanItem::Entry { entry, handle, .. }] = &items[..] else { panic!("{items:?}") };
    assert_eq!(entry.kind, EntryKind::File { size: 1 << 40, sparse: true });
    let file = SourceFile::open(handle, entry).unwrap();
    let before = bytes_read();
    assert_eq!(file.next_data_chunk(0), Some(700 << 10));
    assert_eq!(file.next_data_chunk((700 << 10) + 1), None);
    assert_eq!(file.next_data_chunk(u64::MAX), None);
    let read = bytes_read() - before;
    assert!(read <= 1 << 20, "{read} bytes were read to find the data");
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_goes_on() {
    let temp = tempfile::tempdir().unwrap();
    let mut deep = temp.path().join("top");
    std::fs::create_dir(&deep).unwrap();
    std::fs::write(deep.join("file"), "").unwrap();
    // Makes a path, step by step, that is longer than any that can be announced.
    let name = "n".repeat(250);
    let mut dir = std::fs::File::open(&deep).unwrap();
    for _ in 0..17 {
        fs::mkdirat(&dir, &name, fs::Mode::RWXU).unwrap();
        let flags = fs::OFlags::RDONLY | fs::OFlags::DIRECTORY;
        dir = fs::openat(&dir, &name, flags, fs::Mode::empty()).unwrap().into();
    }
    let items = scan(source(&deep, b"top"));
    check_order(&items);
    assert!(items.iter().any(|item| matches!(item, ScanItem::Failed { .. })));
    assert!(entries(&items).contains_key(&b"top/file"[..]));
    deep.push("x");
}

/// Makes a tree from a set of paths; directories end in a slash.
fn build(top: &Path, files: &[(Vec<u8>, Vec<u8>)]) -> BTreeMap<Vec<u8>, u64> {
    let mut expected = BTreeMap::new();
    for (dir, name) in files {
        use std::os::unix::ffi::OsStrExt;
        let dir_path = top.join(OsStr::from_bytes(dir));
        if std::fs::create_dir(&dir_path).is_err() && !dir_path.is_dir() {
            continue;
        }
        if std::fs::write(dir_path.join(OsStr::from_bytes(name)), name).is_ok() {
            expected.insert([b"t/", &dir[..], b"/", name].concat(), name.len() as u64);
        }
    }
    expected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn random_trees_with_names_of_any_bytes(files in proptest::collection::vec((name(), name()), 0..30)) {
        let temp = tempfile::tempdir().unwrap();
        let expected = build(temp.path(), &files);
        let items = scan(source(temp.path(), b"t"));
        check_order(&items);
        let found: BTreeMap<Vec<u8>, u64> = entries(&items).into_iter().filter_map(|(path, entry)| match entry.kind {
            EntryKind::File { size, .. } => Some((path, size)),
            _ => None,
        }).collect();
        prop_assert_eq!(found, expected);
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(1u8..=255, 1..20).prop_map(|mut name| {
        name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_');
        if name == b"." || name == b".." {
            name.push(b'x')
        }
        name
    })
}
