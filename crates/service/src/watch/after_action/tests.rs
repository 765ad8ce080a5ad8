use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};

use tempfile::TempDir;

use super::*;

fn confirmed() -> Confirmation {
    Confirmation { job: "j1".into() }
}

fn watch(folder: &Path, after: &AfterAction) -> FolderWatch {
    FolderWatch { after: after.clone(), ..FolderWatch::new(folder) }
}

/// A folder with `run/a.h5` in it, and that file's name and version.
fn folder() -> (TempDir, (WatchedName, FileVersion)) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("run")).unwrap();
    fs::write(folder.path().join("run/a.h5"), "content").unwrap();
    let file = seen(&folder, "run/a.h5");
    (folder, file)
}

fn seen(folder: &TempDir, name: &str) -> (WatchedName, FileVersion) {
    let root = FolderReach::default().open(folder.path()).unwrap();
    let name = WatchedName::new(name);
    let stat = tree::look(root, &name).unwrap().unwrap();
    (name, FileVersion::of(&stat))
}

fn act_on(
    folder: &TempDir,
    after: &AfterAction,
    file: &(WatchedName, FileVersion),
) -> Result<AfterOutcome, String> {
    let mut results = act(&watch(folder.path(), after), &confirmed(), std::slice::from_ref(file));
    results.pop().unwrap().map_err(|error| error.to_string())
}

fn all(folder: &TempDir) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.path().to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path.strip_prefix(folder.path()).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

fn actions() -> [AfterAction; 4] {
    [AfterAction::Keep, AfterAction::Mark, AfterAction::Move("sent".into()), AfterAction::Delete]
}

#[test]
fn each_action_does_what_it_says() {
    let expected: [(AfterOutcome, &[&str]); 4] = [
        (AfterOutcome::Left, &["run/a.h5"]),
        (AfterOutcome::Marked, &["run/a.h5", "run/a.h5.farhaul-done"]),
        (AfterOutcome::Moved("sent/run/a.h5".into()), &["sent/run/a.h5"]),
        (AfterOutcome::Deleted, &[]),
    ];
    for (after, (acted, left)) in actions().iter().zip(expected) {
        let (folder, file) = folder();
        let acted = match acted {
            AfterOutcome::Moved(path) => AfterOutcome::Moved(folder.path().join(path)),
            other => other,
        };
        assert_eq!(act_on(&folder, after, &file), Ok(acted), "{after:?}");
        assert_eq!(all(&folder), left, "{after:?}");
        // The same call again, as after a crash before the result was stored.
        let again = act_on(&folder, after, &file);
        match after {
            AfterAction::Keep | AfterAction::Mark => assert!(again.is_ok(), "{again:?}"),
            AfterAction::Move(_) | AfterAction::Delete => assert_eq!(again, Ok(AfterOutcome::Gone)),
        }
        assert_eq!(all(&folder), left, "{after:?}");
    }
}

#[test]
fn a_marker_says_for_what() {
    let (folder, file) = folder();
    act_on(&folder, &AfterAction::Mark, &file).unwrap();
    let text = fs::read_to_string(folder.path().join("run/a.h5.farhaul-done")).unwrap();
    let words: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((words["job"].as_str(), words["size"].as_u64()), (Some("j1"), Some(7)));
}

/// Changes to a file between the check and the action.
#[test]
fn a_file_that_has_changed_is_left_alone() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 8] = [
        ("written", |path| fs::write(path, "new content").unwrap()),
        ("written in the same length, with its time set back", |path| {
            let before = fs::metadata(path).unwrap();
            let changed = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
            // The kernel counts the time of changes in ticks.
            while changed(&fs::metadata(path).unwrap()) == changed(&before) {
                fs::write(path, "CONTENT").unwrap();
                let file = File::options().write(true).open(path).unwrap();
                file.set_modified(before.modified().unwrap()).unwrap();
            }
        }),
        ("written in the same length", |path| fs::write(path, "CONTENT").unwrap()),
        ("replaced", |path| {
            fs::write(path.with_extension("tmp"), "content").unwrap();
            fs::rename(path.with_extension("tmp"), path).unwrap();
        }),
        ("cut", |path| File::create(path).map(drop).unwrap()),
        ("a directory", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
            fs::write(path.join("x"), "content").unwrap();
        }),
        ("a link", |path| {
            fs::rename(path, path.with_extension("real")).unwrap();
            symlink(path.with_extension("real"), path).unwrap();
        }),
        ("a link for the directory above", |path| {
            let run = path.parent().unwrap();
            fs::rename(run, run.with_extension("real")).unwrap();
            symlink(run.with_extension("real"), run).unwrap();
        }),
    ];
    for (what, change) in changes {
        for after in actions() {
            let (folder, file) = folder();
            // The file is old, so that its time differs after the change even if the clock's ticks are long.
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
            let path = folder.path().join("run/a.h5");
            File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
            let file = (file.0, seen(&folder, "run/a.h5").1);
            change(&path);
            let before = all(&folder);
            let acted = act_on(&folder, &after, &file);
            let is_left =
                matches!(acted, Ok(AfterOutcome::Left | AfterOutcome::Changed | AfterOutcome::Gone));
            assert!(is_left, "{what}, {after:?}: {acted:?}");
            assert_eq!(all(&folder), before, "{what}, {after:?}");
        }
    }
}

#[test]
fn a_file_that_somebody_writes_is_left_alone() {
    let (folder, file) = folder();
    let path = folder.path().join("run/a.h5");
    let writer = File::options().append(true).open(&path).unwrap();
    for after in &actions()[1..] {
        assert_eq!(act_on(&folder, after, &file), Ok(AfterOutcome::Changed));
    }
    assert_eq!(all(&folder), ["run/a.h5"]);
    drop(writer);
    assert_eq!(act_on(&folder, &AfterAction::Delete, &file), Ok(AfterOutcome::Deleted));
}

#[test]
fn what_was_moved_before_is_not_replaced() {
    let (folder, file) = folder();
    act_on(&folder, &AfterAction::Move("sent".into()), &file).unwrap();
    for number in 2..5 {
        fs::write(folder.path().join("run/a.h5"), format!("content {number}")).unwrap();
        let file = seen(&folder, "run/a.h5");
        let Ok(AfterOutcome::Moved(path)) = act_on(&folder, &AfterAction::Move("sent".into()), &file) else {
            panic!()
        };
        assert_eq!(path, folder.path().join(format!("sent/run/a.h5.{number}")));
        assert_eq!(fs::read_to_string(path).unwrap(), format!("content {number}"));
    }
    assert_eq!(fs::read_to_string(folder.path().join("sent/run/a.h5")).unwrap(), "content");
}

#[test]
fn a_move_keeps_to_its_file_system() {
    let (folder, file) = folder();
    let other = Path::new("/dev/shm");
    let here = fs::metadata(folder.path()).unwrap().dev();
    if fs::metadata(other).map_or(true, |meta| meta.dev() == here) {
        return;
    }
    let target = tempfile::tempdir_in(other).unwrap();
    let error = act_on(&folder, &AfterAction::Move(target.path().into()), &file).unwrap_err();
    assert!(error.contains("another file system") && error.contains("run/a.h5"), "{error}");
    assert_eq!(all(&folder), ["run/a.h5"]);
}

/// Somebody changes the path after it was judged, so the directory that was opened counts.
#[test]
fn nothing_is_done_outside_of_what_the_owner_reaches() {
    let (folder, file) = folder();
    let (inside, outside) = (folder.path().join("run"), tempfile::tempdir().unwrap());
    let reach = FolderReach(Some(vec![inside]));
    let name = WatchedName::new("a.h5");
    for after in &actions()[1..] {
        let watch = FolderWatch { reach: reach.clone(), ..watch(folder.path(), after) };
        let error = act(&watch, &confirmed(), std::slice::from_ref(&file)).remove(0).unwrap_err();
        assert!(error.to_string().contains("may reach"), "{error}");
    }
    symlink(outside.path(), folder.path().join("run/way")).unwrap();
    for to in ["way", "way/new"] {
        let after = AfterAction::Move(to.into());
        let watch = FolderWatch { reach: reach.clone(), ..watch(&folder.path().join("run"), &after) };
        let error = act(&watch, &confirmed(), &[(name.clone(), file.1)]).remove(0).unwrap_err();
        assert!(error.to_string().contains("may reach"), "{error}");
    }
    assert_eq!(all(&folder), ["run/a.h5"]);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_deletion_that_was_cut_off_goes_on() {
    let (folder, file) = folder();
    let own = format!("run/.{:016x}.fhdone", file.1.inode);
    fs::rename(folder.path().join("run/a.h5"), folder.path().join(&own)).unwrap();
    // Somebody has made a new file with that name since.
    fs::write(folder.path().join("run/a.h5"), "another").unwrap();
    assert_eq!(act_on(&folder, &AfterAction::Delete, &file), Ok(AfterOutcome::Deleted));
    assert_eq!(all(&folder), ["run/a.h5"]);
    // If something else has the name for the deletion, both it and the file stay.
    let file = seen(&folder, "run/a.h5");
    let own = format!("run/.{:016x}.fhdone", file.1.inode);
    fs::write(folder.path().join(&own), "mine").unwrap();
    let error = act_on(&folder, &AfterAction::Delete, &file).unwrap_err();
    assert!(error.contains("cannot delete run/a.h5"), "{error}");
    assert_eq!(all(&folder), [own, "run/a.h5".to_string()]);
}

/// Between the check and the rename another file has got the name, or somebody has opened the file.
#[test]
fn what_is_renamed_by_mistake_gets_its_name_back() {
    let (folder, (name, version)) = folder();
    let root = FolderReach::default().open(folder.path()).unwrap();
    let renamed = |version: FileVersion| {
        let place = FilePlace::of(&root, folder.path(), &name, version).unwrap().unwrap();
        rename_new(&place.parent, b"a.h5", &place.parent, b".own").unwrap();
        RenamedFile::of(place, None, b".own".to_vec(), RenamedEnd::Delete).unwrap()
    };
    let other = FileVersion { mtime_ns: version.mtime_ns - 1, ..version };
    assert_eq!(renamed(other).finish(false).unwrap(), AfterOutcome::Changed);
    assert_eq!(all(&folder), ["run/a.h5"]);
    assert_eq!(renamed(version).finish(true).unwrap(), AfterOutcome::Changed);
    assert_eq!(all(&folder), ["run/a.h5"]);
    // It does not replace the file that has its name meanwhile.
    let file = renamed(other);
    fs::write(folder.path().join("run/a.h5"), "newer").unwrap();
    let error = file.finish(false).unwrap_err().to_string();
    assert!(error.contains("a.h5.2"), "{error}");
    assert_eq!(all(&folder), ["run/a.h5", "run/a.h5.2"]);
    assert_eq!(fs::read_to_string(folder.path().join("run/a.h5")).unwrap(), "newer");
}

/// A program opens a file after the first look at writers, and goes on writing when the file is renamed.
#[test]
fn a_writer_that_came_in_time_keeps_its_file() {
    let (folder, (name, version)) = folder();
    let root = FolderReach::default().open(folder.path()).unwrap();
    let place = FilePlace::of(&root, folder.path(), &name, version).unwrap().unwrap();
    let BegunAction::Renamed(file) = place.begin_deletion().unwrap() else { panic!("it is the right file") };
    assert!(writers::open_for_writing(&BTreeSet::from([file.id])).is_empty());
    let own = folder.path().join(format!("run/.{:016x}.fhdone", version.inode));
    let _writer = File::options().append(true).open(&own).unwrap();
    let written = writers::open_for_writing(&BTreeSet::from([file.id]));
    assert_eq!(file.finish(written.contains(&file.id)).unwrap(), AfterOutcome::Changed);
    assert_eq!(all(&folder), ["run/a.h5"]);
}

/// Names that a marker was once written under, in a folder of others.
#[test]
fn a_marker_is_a_new_file_whatever_lies_there() {
    for what in ["pipe", "hard link", "link", "directory"] {
        let (folder, file) = folder();
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        for name in ["run/.a.h5.fhtmp", "run/a.h5.farhaul-done"] {
            let path = folder.path().join(name);
            match what {
                "pipe" => {
                    let mode = Mode::from_raw_mode(0o600);
                    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
                }
                "hard link" => fs::hard_link(&precious, path).unwrap(),
                "link" => symlink(&precious, path).unwrap(),
                _ => fs::create_dir(path).unwrap(),
            }
        }
        let marked = act_on(&folder, &AfterAction::Mark, &file);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious", "{what}");
        let marker = folder.path().join("run/a.h5.farhaul-done");
        if what == "directory" {
            assert!(marked.is_err_and(|error| error.contains("cannot mark run/a.h5")));
        } else {
            assert_eq!(marked, Ok(AfterOutcome::Marked), "{what}");
            assert!(fs::read_to_string(marker).unwrap().contains("j1"), "{what}");
        }
        // Nothing is left behind that was not there before.
        let left = fs::read_dir(folder.path().join("run")).unwrap().count();
        assert_eq!(left, 3, "{what}: {:?}", all(&folder));
    }
}

#[test]
fn one_failure_does_not_keep_others() {
    let (folder, file) = folder();
    fs::write(folder.path().join("b"), "b").unwrap();
    let gone = (WatchedName::new("gone"), file.1);
    let files = [gone, seen(&folder, "b"), file];
    let results = act(&watch(folder.path(), &AfterAction::Delete), &confirmed(), &files);
    let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [AfterOutcome::Gone, AfterOutcome::Deleted, AfterOutcome::Deleted]);
    let nowhere = act(&watch(Path::new("/nonexistent"), &AfterAction::Delete), &confirmed(), &files);
    assert!(nowhere.len() == 3 && nowhere.iter().all(Result::is_err));
}

#[test]
fn only_a_good_and_durable_report_confirms() {
    let good = || Report { ok: true, complete: true, ..Report::default() };
    let of =
        |report: Report, durable| Confirmation::of("j1", &report, durable).map_err(|error| error.to_string());
    for durable in [Durability::End, Durability::File] {
        assert_eq!(of(good(), durable).map(|proof| proof.job), Ok("j1".into()));
        // All content has arrived; only metadata could not be set.
        let not_set = Report { ok: false, not_set_count: 1, ..good() };
        assert_eq!(of(not_set, durable).map(|proof| proof.job), Ok("j1".into()));
    }
    let vanished = Report { ok: false, vanished_count: 1, ..good() };
    assert!(
        of(vanished.clone(), Durability::End).is_ok(),
        "vanished files must not keep the others from being confirmed"
    );
    for (report, durable, expected) in [
        (Report { failed_count: 1, ..vanished.clone() }, Durability::End, "did not end well"),
        (Report { error: Some("no".into()), ..vanished }, Durability::End, "did not end well"),
        (good(), Durability::No, "synced"),
        (Report { ok: false, ..good() }, Durability::End, "did not end well"),
        (Report { complete: false, ..good() }, Durability::End, "did not end well"),
        (Report { failed_count: 1, ..good() }, Durability::End, "did not end well"),
        (
            Report { ok: false, failed_count: 1, not_set_count: 1, ..good() },
            Durability::End,
            "did not end well",
        ),
        (Report { not_taken_count: 1, ..good() }, Durability::End, "not taken"),
    ] {
        let error = of(report, durable).unwrap_err();
        assert!(error.contains(expected) && error.contains("j1"), "{error}");
    }
}
