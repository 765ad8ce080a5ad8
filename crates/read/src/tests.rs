//! Both ends in one process.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use farhaul_volume::Algorithm;
use farhaul_words::Code;

use super::*;

fn remote(path: &Path) -> Remote {
    Remote::open(path).unwrap()
}

/// Bytes that show at which place they stand.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at) as u8).collect()
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

#[test]
fn a_directory_for_somebody_who_may_use_no_other_leads_nowhere_else() {
    let folder = folder(&[("a/in/file", b"a"), ("b/secret", b"b"), ("ab/secret", b"ab")]);
    let top = folder.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("../../b", top.join("a/in/out")).unwrap();
    std::os::unix::fs::symlink("file", top.join("a/in/link")).unwrap();
    let within = |directory: &str| Remote::within(&top.join(directory), &[top.join("a")]);
    let remote = within("a/in").unwrap();
    for path in [&b"file"[..], b"/file", b"link", b"/./link"] {
        assert_eq!(remote.file(path).unwrap().read_at(0, 9).unwrap(), b"a");
    }
    for path in
        [&b"out/secret"[..], b"../../b/secret", b"/../b/secret", top.join("b/secret").as_os_str().as_bytes()]
    {
        assert!(remote.file(path).is_err(), "{}", String::from_utf8_lossy(path));
    }
    for outside in ["", "b", "ab", "a/../b", "a/in/out"] {
        assert!(within(outside).is_err_and(|error| error.code() == Code::Forbidden), "{outside}");
    }
    assert!(within("a/none").is_err_and(|error| error.code() == Code::NotFound));
}

#[test]
fn ranges_are_the_bytes_of_the_file() {
    let bytes = content((5 << 20) + 77);
    let folder = folder(&[("file", &bytes)]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    assert_eq!(file.size(), bytes.len() as u64);
    for (offset, len) in [(0, 1), (0, 0), (1 << 20, 4096), (17, (4 << 20) + 5), (0, bytes.len())] {
        assert!(
            file.read_at(offset as u64, len as u64).unwrap() == bytes[offset..offset + len],
            "{offset} {len}"
        );
    }
    // At the end there is less, and behind it nothing, however much is asked for.
    let end = bytes.len() as u64;
    assert!(file.read_at(end - 5, 100).unwrap() == bytes[bytes.len() - 5..]);
    assert!(file.read_at(0, u64::MAX >> 1).unwrap() == bytes);
    assert!(file.read_at(end, 10).unwrap().is_empty());
    assert!(file.read_at(u64::MAX - 5, 5).unwrap().is_empty());
    assert!(file.read_at(u64::MAX, 5).is_err_and(|error| error.code() == Code::Misuse));
    let report = remote.finish().unwrap();
    assert!(report.bytes >= 2 * end, "{report:?}");
}

#[test]
fn a_range_is_read_into_memory_of_the_caller() {
    let bytes = content(5 << 20);
    let folder = folder(&[("file", &bytes), ("empty", b"")]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    for (offset, len) in [(0, 1), (7, 4 << 20), (1 << 20, 100), (0, bytes.len()), (bytes.len() - 5, 5)] {
        let mut buffer = vec![0xee; len + 3];
        assert_eq!(file.read_into(offset as u64, &mut buffer[..len]).unwrap(), len);
        assert!(buffer[..len] == bytes[offset..offset + len] && buffer[len..] == [0xee; 3]);
    }
    let mut buffer = [0xee; 100];
    let end = bytes.len() as u64;
    assert_eq!(file.read_into(end - 5, &mut buffer).unwrap(), 5, "the file ends");
    assert!(buffer[..5] == bytes[bytes.len() - 5..] && buffer[5..].iter().all(|byte| *byte == 0xee));
    for offset in [end, end + 1, u64::MAX] {
        assert_eq!(file.read_into(offset, &mut buffer).unwrap(), 0);
    }
    assert_eq!(file.read_into(0, &mut []).unwrap(), 0);
    assert_eq!(remote.file(b"empty").unwrap().read_into(0, &mut buffer).unwrap(), 0);
    std::fs::write(folder.path().join("file"), b"other").unwrap();
    assert!(file.read_into(0, &mut buffer).is_err_and(|error| error.code() == Code::SourceChanged));
}

#[test]
fn vectors_of_near_far_and_overlapping_ranges_come_as_they_are() {
    let bytes = content(3 << 20);
    let folder = folder(&[("file", &bytes)]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    let mut ranges: Vec<_> = (0..5000u64)
        .map(|number| FileRange { offset: number * 7919 % (3 << 20), len: number % 300 })
        .collect();
    // Neighbours with and without gaps, the same ranges again, long ones between short ones, and some beyond
    // the end.
    ranges.extend((0..500).map(|number| FileRange { offset: number * 1000, len: 900 }));
    ranges.extend((0..500).map(|number| FileRange { offset: number * 900, len: 900 }));
    ranges.extend([FileRange { offset: 5, len: 2 << 20 }, FileRange { offset: (3 << 20) - 10, len: 1000 }]);
    let mut queue = file.read_vectored(&ranges).unwrap();
    let mut seen = vec![false; ranges.len()];
    while let Some((number, read)) = queue.next() {
        let FileRange { offset, len } = ranges[number as usize];
        let end = (offset + len).min(bytes.len() as u64);
        assert!(read.unwrap() == bytes[offset as usize..end as usize], "{offset} {len}");
        assert!(!std::mem::replace(&mut seen[number as usize], true));
    }
    assert!(seen.into_iter().all(|seen| seen));
}

#[test]
fn many_callers_share_a_session() {
    let bytes = content(2 << 20);
    let folder = folder(&[("file", &bytes)]);
    let remote = remote(folder.path());
    std::thread::scope(|scope| {
        for caller in 0..8usize {
            let (remote, bytes) = (&remote, &bytes);
            scope.spawn(move || {
                let file = remote.file(b"file").unwrap();
                for number in 0..200 {
                    let offset = (caller * 7001 + number * 131) % bytes.len();
                    let read = file.read_at(offset as u64, 5000).unwrap();
                    assert!(read == bytes[offset..(offset + 5000).min(bytes.len())]);
                }
            });
        }
    });
}

#[test]
fn a_reader_has_all_of_it_in_order() {
    let bytes = content((40 << 20) + 3);
    let folder = folder(&[("file", &bytes)]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    let mut read = Vec::new();
    file.reader(FileRange { offset: 0, len: u64::MAX }).read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    let mut part = Vec::new();
    file.reader(FileRange { offset: 12345, len: 3 << 20 }).read_to_end(&mut part).unwrap();
    assert!(part == bytes[12345..12345 + (3 << 20)]);
    assert!(file.reader(FileRange { offset: 1 << 40, len: 1 }).next_chunk().unwrap().is_none());
}

#[test]
fn a_file_that_changes_is_not_read_on() {
    let folder = folder(&[("file", &content(1 << 20))]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    file.read_at(0, 10).unwrap();
    // The clock of a file system may stand still for some milliseconds.
    std::thread::sleep(Duration::from_millis(30));
    let open = std::fs::File::options().write(true).open(folder.path().join("file")).unwrap();
    open.write_all_at(b"new", 500).unwrap();
    assert!(file.read_at(0, 10).is_err_and(|error| error.code() == Code::SourceChanged));
    assert!(file.digest(Algorithm::Sha256, None).is_err_and(|error| error.code() == Code::SourceChanged));
    let again = remote.file(b"file").unwrap();
    assert_ne!(again.identity(), file.identity());
    assert_eq!(again.read_at(500, 3).unwrap(), b"new");
}

#[test]
fn what_is_not_there_is_said() {
    let folder = folder(&[("file", b"x"), ("dir/inside", b"y")]);
    let remote = remote(folder.path());
    let code = |result: Result<RemoteFile, farhaul_words::Error>| result.err().map(|error| error.code());
    assert_eq!(code(remote.file(b"none")), Some(Code::NotFound));
    assert_eq!(code(remote.file(b"dir")), Some(Code::BadPath));
    assert_eq!(code(remote.file(b"file/below")), Some(Code::NotADirectory));
    assert!(remote.stat(b"none").is_err_and(|error| error.code() == Code::NotFound));
    let mut list = remote.list(b"file", Depth::One).unwrap();
    assert!(list.next().unwrap().is_err_and(|error| error.code() == Code::NotADirectory));
    assert!(list.next().is_none());
    // The session goes on.
    assert_eq!(remote.file(b"file").unwrap().read_at(0, 10).unwrap(), b"x");
}

#[test]
fn entries_say_what_they_are() {
    let folder = folder(&[("dir/file", &content(1000)), ("dir/sub/deep", b"z")]);
    std::os::unix::fs::symlink("file", folder.path().join("dir/link")).unwrap();
    let remote = remote(folder.path());
    let names = |depth| {
        let mut names: Vec<_> = remote
            .list(b"dir", depth)
            .unwrap()
            .map(|listed| match listed.unwrap() {
                ListItem::Entry(entry) => (String::from_utf8(entry.path).unwrap(), entry.kind),
                other => panic!("{other:?}"),
            })
            .collect();
        names.sort();
        names
    };
    let near = [
        ("", PathKind::Directory),
        ("file", PathKind::File),
        ("link", PathKind::Symlink),
        ("sub", PathKind::Directory),
    ];
    let near: Vec<_> = near.iter().map(|(name, kind)| (name.to_string(), *kind)).collect();
    assert_eq!(names(Depth::One), near);
    let all = [&near[..], &[("sub/deep".to_string(), PathKind::File)]].concat();
    assert_eq!(names(Depth::All), all);
    assert_eq!(names(Depth::Levels(2)), all);
    let (link, file) = (remote.stat_link(b"dir/link").unwrap(), remote.stat(b"dir/link").unwrap());
    assert_eq!((link.kind, &link.target[..]), (PathKind::Symlink, &b"file"[..]));
    assert_eq!((file.kind, file.identity.size), (PathKind::File, 1000));
}

#[test]
fn a_long_list_comes_whole_though_it_waits_for_room() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..3000 {
        std::fs::File::create(folder.path().join(format!("{number:0>200}"))).unwrap();
    }
    let remote = remote(folder.path());
    assert_eq!(remote.list(b"", Depth::One).unwrap().count(), 3001);
    // A list that is dropped takes nothing else with it.
    let mut list = remote.list(b"", Depth::One).unwrap();
    assert!(list.next().unwrap().is_ok());
    drop(list);
    assert!(remote.stat(b"").unwrap().kind == PathKind::Directory);
}

#[test]
fn digests_are_what_the_tools_tell() {
    let bytes = content((9 << 20) + 1);
    let folder = folder(&[("file", &bytes)]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    for algorithm in Algorithm::ALL {
        let expected = |bytes: &[u8]| {
            let mut hashers = farhaul_volume::Hashers::new(&[algorithm]);
            hashers.update(bytes);
            hashers.finish().remove(0).1
        };
        assert_eq!(file.digest(algorithm, None).unwrap(), (expected(&bytes), bytes.len() as u64));
        let range = FileRange { offset: 5, len: 1 << 20 };
        assert_eq!(file.digest(algorithm, Some(range)).unwrap().0, expected(&bytes[5..5 + (1 << 20)]));
        let beyond = FileRange { offset: 1 << 40, len: 1 };
        assert_eq!(file.digest(algorithm, Some(beyond)).unwrap(), (expected(b""), 0));
    }
}

#[test]
fn parts_of_many_files_come_in_the_order_in_which_they_are_asked_for() {
    let bytes = content((5 << 20) + 1);
    let folder = folder(&[("large", &bytes), ("small", b"0123456789"), ("empty", b"")]);
    let remote = remote(folder.path());
    let part = |path: &str, offset, len| (path.as_bytes().to_vec(), FileRange { offset, len });
    let whole = |path| part(path, 0, u64::MAX);
    let asked = (0..400).flat_map(|number| {
        [part("small", number % 10, 3), whole("nothing"), whole("empty"), part("small", 1 << 62, u64::MAX)]
    });
    let asked: Vec<_> = [whole("large"), part("large", 7, 2 << 20), part("large", u64::MAX, 9)]
        .into_iter()
        .chain(asked)
        .collect();
    let got: Vec<_> = remote.parts(asked.clone()).collect();
    assert_eq!(got.len(), asked.len());
    for ((about, read), expected) in got.into_iter().zip(asked) {
        assert_eq!(about, expected);
        let (path, range) = about;
        let content = match &path[..] {
            b"large" => &bytes[..],
            b"small" => b"0123456789",
            b"empty" => b"",
            _ => {
                assert!(read.is_err_and(|error| error.code() == Code::NotFound));
                continue;
            }
        };
        let from = usize::try_from(range.offset).unwrap().min(content.len());
        let to = usize::try_from(range.offset.saturating_add(range.len)).unwrap().min(content.len());
        assert!(read.unwrap() == content[from..to], "{range:?}");
    }
    assert!(remote.file(b"small").is_ok());
}

/// The kernel's own files have the size of a page, and less content.
#[test]
fn a_digest_of_a_file_that_has_less_than_it_says_has_an_end() {
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let Ok(bytes) = std::fs::read(path) else { return };
    let remote = remote(Path::new("/"));
    let file = remote.file(path.to_str().unwrap().as_bytes()).unwrap();
    assert!(file.size() > bytes.len() as u64);
    assert_eq!(file.digest(Algorithm::Md5, None).unwrap().1, bytes.len() as u64);
    assert_eq!(file.read_at(0, 1 << 20).unwrap(), bytes);
}

#[test]
fn more_lists_than_a_server_has_at_a_time_wait_for_one_another() {
    let folder = folder(&[("file", b"x")]);
    let remote = remote(folder.path());
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| assert_eq!(remote.list(b"", Depth::One).unwrap().count(), 2));
        }
    });
    let held: Vec<_> = (0..200).map(|_| remote.list(b"", Depth::One).unwrap()).collect();
    assert!(held.into_iter().all(|list| list.count() == 2));
    remote.finish().unwrap();
}

#[test]
fn a_file_too_many_is_refused_and_the_others_stay() {
    let folder = folder(&[("file", b"x")]);
    let remote = remote(folder.path());
    let mut files: Vec<_> = (0..1024).map(|_| remote.file(b"file").unwrap()).collect();
    assert!(remote.file(b"file").is_err_and(|error| error.code() == Code::Misuse));
    files.pop();
    files.push(remote.file(b"file").unwrap());
    assert!(files.iter().all(|file| file.read_at(0, 1).unwrap() == b"x"));
}

#[test]
fn what_is_cancelled_makes_room_for_more_at_once() {
    let folder = folder(&[("file", b"x")]);
    std::fs::File::options().write(true).open(folder.path().join("file")).unwrap().set_len(1 << 40).unwrap();
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    for _ in 0..8 {
        let ranges = vec![FileRange { offset: 0, len: 1 << 20 }; 60_000];
        drop(file.read_vectored(&ranges).unwrap());
    }
    assert_eq!(file.read_at(0, 1).unwrap(), b"x");
    drop(file);
    remote.finish().unwrap();
}

#[test]
fn digests_of_many_files_come_in_their_order_with_what_failed() {
    let names: Vec<String> = (0..700).map(|number| format!("f{number:03}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], name.as_bytes())).collect();
    let folder = folder(&files);
    std::fs::remove_file(folder.path().join("f300")).unwrap();
    let remote = remote(folder.path());
    let paths = names.iter().map(|name| name.as_bytes().to_vec());
    let found: Vec<_> = remote.digests(Algorithm::Blake3, paths).collect();
    assert_eq!(found.len(), 700);
    for ((path, digest), name) in found.into_iter().zip(&names) {
        assert_eq!(path, name.as_bytes());
        match digest {
            Ok((digest, 4)) => assert_eq!(digest, farhaul_volume::whole_digest(name.as_bytes())),
            Err(error) => assert_eq!((&name[..], error.code()), ("f300", Code::NotFound)),
            other => panic!("{other:?}"),
        }
    }
    // Digests under way are cancelled.
    drop(remote.digests(Algorithm::Md5, names.iter().map(|name| name.as_bytes().to_vec())).next());
    assert_eq!(remote.file(b"f000").unwrap().read_at(0, 9).unwrap(), b"f000");
}

#[test]
fn many_files_are_opened_in_their_order_and_not_more_than_may_be() {
    let names: Vec<String> = (0..1500).map(|number| format!("f{number:04}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], name.as_bytes())).collect();
    let folder = folder(&files);
    std::fs::remove_file(folder.path().join("f0300")).unwrap();
    let remote = remote(folder.path());
    let paths = || names.iter().map(|name| name.as_bytes().to_vec());
    let mut missing = Vec::new();
    for (path, file) in remote.files(paths()) {
        match file {
            Ok(file) => assert_eq!(file.read_at(0, 9).unwrap(), path),
            Err(error) => missing.push((path, error.code())),
        }
    }
    assert_eq!(missing, [(b"f0300".to_vec(), Code::NotFound)]);
    // A file whose answer is not awaited is closed, too.
    for _ in 0..100 {
        assert!(remote.files(paths()).next().unwrap().1.is_ok());
    }
}

#[test]
fn what_is_cancelled_holds_up_nothing() {
    let folder = folder(&[("file", &content(64 << 20))]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    for _ in 0..50 {
        let mut queue = file.queue();
        for number in 0..200 {
            queue.submit(FileRange { offset: number << 10, len: 32 << 20 }).unwrap();
        }
    }
    assert_eq!(file.read_at(0, 4).unwrap(), content(4));
}

#[test]
fn who_cancels_by_the_handle_is_told_and_so_is_who_waits() {
    let folder = folder(&[("file", &content(1 << 20))]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    remote.handle().cancel();
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while file.read_at(0, 1).is_ok() {
        assert!(std::time::Instant::now() < until, "it never ends");
    }
    assert!(remote.stat(b"").is_err_and(|error| error.code() == Code::Interrupted));
    assert!(remote.finish().is_err_and(|error| error.code() == Code::Interrupted));
}

#[test]
fn a_small_answer_does_not_wait_for_the_bulk_that_was_asked_for_before_it() {
    const BULK: u64 = 400;
    let folder = folder(&[("file", &content(8 << 20))]);
    let remote = remote(folder.path());
    let file = remote.file(b"file").unwrap();
    for _ in 0..5 {
        let before = remote.handle().snapshot().bytes_done;
        let mut bulk = file.queue();
        for number in 0..BULK {
            bulk.submit(FileRange { offset: (number % 7) << 20, len: 1 << 20 }).unwrap();
        }
        assert_eq!(file.read_at(5, 4).unwrap(), content(9)[5..]);
        let came = remote.handle().snapshot().bytes_done - before;
        assert!(came < (BULK << 20) / 2, "{came} bytes of bulk came first");
        while let Some((_, read)) = bulk.next() {
            assert_eq!(read.unwrap().len(), 1 << 20);
        }
    }
}
