use rustix::fs::{self, Mode, OFlags};

use super::*;

fn path(text: &str) -> RelPath {
    RelPath::from_bytes(text.as_bytes()).unwrap()
}

fn tree() -> (tempfile::TempDir, Root) {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("root/d/e")).unwrap();
    std::fs::create_dir(temp.path().join("outside")).unwrap();
    for name in ["root/d/a", "root/d/e/b", "root/f", "outside/x"] {
        std::fs::write(temp.path().join(name), "").unwrap();
    }
    std::os::unix::fs::symlink("../../outside", temp.path().join("root/d/link")).unwrap();
    let root = Root::open(temp.path().join("root")).unwrap();
    (temp, root)
}

fn remove(root: &Root, filter: &Filter, dry_run: bool, left: u64, at: &str) -> (bool, Vec<String>) {
    let mut said = Vec::new();
    let free = HashSet::from([path("d/e/b")]);
    let mut removal = Removal { dry_run, left, ..Removal::new(root, filter, &free) };
    let is_dir = root.metadata(&path(at)).unwrap().unwrap().is_dir();
    let is_gone = removal.remove(&RelPath::empty(), at.as_bytes(), is_dir, &mut |path, removed| {
        said.push(match removed {
            RemovalOutcome::Gone | RemovalOutcome::Moved => path.to_string(),
            RemovalOutcome::OverLimit => format!("{path}: over"),
            RemovalOutcome::Left(border) => format!("{path}: {border:?}"),
            RemovalOutcome::Failed(error) => format!("{path}: {error}"),
        });
        true
    });
    said.sort();
    (is_gone, said)
}

#[test]
fn a_directory_goes_with_all_that_is_in_it_and_nothing_outside() {
    let (temp, root) = tree();
    let all = ["d", "d/a", "d/e", "d/e/b", "d/link"].map(str::to_string).to_vec();
    assert_eq!(remove(&root, &Filter::default(), true, 99, "d"), (true, all.clone()));
    assert!(temp.path().join("root/d/e/b").exists(), "a dry run");
    assert_eq!(remove(&root, &Filter::default(), false, 99, "d"), (true, all));
    assert!(!temp.path().join("root/d").exists() && temp.path().join("outside/x").exists());
    assert_eq!(remove(&root, &Filter::default(), false, 1, "f"), (true, vec!["f".into()]));
}

#[test]
fn what_is_protected_stays_with_the_directories_above_it() {
    let (temp, root) = tree();
    let filter = Filter::new(&[b"- b".to_vec()]).unwrap();
    let (is_gone, said) = remove(&root, &filter, false, 99, "d");
    assert_eq!((is_gone, said), (false, vec!["d/a".into(), "d/link".into()]));
    assert!(temp.path().join("root/d/e/b").exists());
}

#[test]
fn no_more_go_than_may() {
    let (temp, root) = tree();
    for left in 0..4 {
        let (is_gone, said) = remove(&root, &Filter::default(), true, left, "d");
        let counted = said.iter().filter(|line| *line != "d/e/b").count() as u64;
        assert!(
            !is_gone && counted == left + 1 && said.iter().any(|line| line.ends_with("over")),
            "{said:?}"
        );
    }
    assert!(temp.path().join("root/d/e/b").exists());
}

/// Makes nested directories, each with a file in it.
fn deep(top: &std::path::Path, levels: usize, name: &str) {
    std::fs::create_dir(top).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = fs::openat(fs::CWD, top, flags, Mode::empty()).unwrap();
    for _ in 1..levels {
        fs::openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        fs::mkdirat(&at, name, Mode::RWXU).unwrap();
        at = fs::openat(&at, name, flags, Mode::empty()).unwrap();
    }
}

#[test]
fn a_tree_that_is_deeper_than_a_path_is_long_goes() {
    for (levels, name) in [(400, "a-name-of-twenty-two-by"), (3000, "level")] {
        let temp = tempfile::tempdir().unwrap();
        deep(&temp.path().join("deep"), levels, name);
        let root = Root::open(temp.path()).unwrap();
        for dry_run in [true, false] {
            let (is_gone, said) = remove(&root, &Filter::default(), dry_run, u64::MAX, "deep");
            assert!(is_gone && said.len() == 2 * levels - 1, "{} said", said.len());
            assert_eq!(temp.path().join("deep").exists(), dry_run);
        }
    }
}

#[test]
fn of_a_deep_tree_only_what_is_above_a_protected_name_stays() {
    let temp = tempfile::tempdir().unwrap();
    deep(&temp.path().join("deep"), 600, "d");
    std::fs::write(temp.path().join("deep/d/d/keep"), "").unwrap();
    let root = Root::open(temp.path()).unwrap();
    let filter = Filter::new(&[b"- keep".to_vec()]).unwrap();
    let (is_gone, said) = remove(&root, &filter, false, u64::MAX, "deep");
    assert!(!is_gone && said.len() == 2 * 600 - 1 - 3);
    assert!(temp.path().join("deep/d/d/keep").exists() && !temp.path().join("deep/d/d/d").exists());
}

#[test]
fn a_path_that_is_too_long_is_told_by_its_ends() {
    let path = [&b"top/"[..], &b"middle/".repeat(2000), &b"n".repeat(300)].concat();
    let (shown, is_whole) = told(&path);
    let shown = shown.to_string();
    assert!(!is_whole && shown.starts_with("top/middle/") && shown.contains("/\u{2026}/n"));
    assert!(shown.len() < 1300 && shown.ends_with(&"n".repeat(200)));
}

#[test]
fn what_runs_have_left_goes_and_what_a_transfer_has_in_hand_stays() {
    let (temp, root) = tree();
    let state = crate::SourceState { ctime: crate::FileTime::default(), ino: 1, dev: 1 };
    let identity = crate::SourceIdentity { size: 9 << 20, mtime: state.ctime, state, sparse: false };
    let target = path("d/e/large");
    let partial = crate::Partial::open(&root, &target, &identity, crate::Resume::Any).unwrap();
    assert!(partial.write_chunk(0, &vec![1; 1 << 20]).unwrap());
    partial.mark(0, crate::ChunkCv([1; 32])).unwrap();
    let (is_gone, said) = remove(&root, &Filter::default(), false, 99, "d");
    assert!(!is_gone && said.iter().any(|line| line.starts_with("d/e: ")), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("fhpart")), "{said:?}");
    drop(partial);
    let part = format!("d/e/{}", String::from_utf8_lossy(&root.partial_names(&target)[0]));
    let all = vec!["d".to_string(), "d/e".into(), part];
    assert_eq!(remove(&root, &Filter::default(), true, 99, "d"), (true, all.clone()));
    assert_eq!(remove(&root, &Filter::default(), false, 99, "d"), (true, all));
    assert!(!temp.path().join("root/d").exists());
}
