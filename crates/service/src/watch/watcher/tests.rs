use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use tempfile::TempDir;

use super::super::FileStatus;
use super::*;

const SETTLE: u64 = 30;

/// A watched folder, a clock that the test moves, and the rows that a service would store.
struct Rig {
    folder: TempDir,
    time: Arc<Mutex<Duration>>,
    watcher: Watcher,
    store: BTreeMap<WatchedName, WatchedFile>,
    taken: Vec<String>,
    notices: Vec<Notice>,
}

fn clock(time: &Arc<Mutex<Duration>>) -> FolderClock {
    let time = Arc::clone(time);
    Box::new(move || {
        let steady = *time.lock().unwrap();
        FolderMoment { steady, unix_ms: steady.as_millis() as i64 }
    })
}

impl Rig {
    fn new() -> Rig {
        Rig::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut FolderWatch)) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let time = Arc::new(Mutex::new(Duration::from_secs(1000)));
        // Scans come only when a test asks for them, so that changes must be seen by events.
        let mut watch = FolderWatch { rescan_s: Some(86_400), ..FolderWatch::new(folder.path()) };
        change(&mut watch);
        let watcher = Watcher::new(watch, [], clock(&time)).unwrap();
        let mut rig = Rig { folder, time, watcher, store: BTreeMap::new(), taken: vec![], notices: vec![] };
        rig.turn();
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn keep(&mut self, changes: Vec<StoreChange>) {
        for change in changes {
            match change {
                StoreChange::Put(entry) => drop(self.store.insert(entry.name.clone(), entry)),
                StoreChange::Remove(name) => drop(self.store.remove(&name)),
            }
        }
    }

    /// One turn that hardly waits. Offered files become jobs.
    fn turn(&mut self) {
        let WatcherTurn { takes, changes, notices } = self.watcher.turn(Duration::from_millis(5));
        self.keep(changes);
        self.notices.extend(notices);
        for take in takes {
            let job = format!("job{}", self.taken.len());
            let (has, changes) = self.watcher.taken(&take, &job);
            assert!(has);
            self.keep(changes);
            self.taken.push(take.name.to_string());
        }
    }

    /// Turns until the condition holds. Fails after a time that only a fault takes.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Rig) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {:?}", self.statuses());
            self.turn();
        }
    }

    fn pass(&mut self, seconds: u64) {
        *self.time.lock().unwrap() += Duration::from_secs(seconds);
    }

    /// Lets this much time pass, a second at a time.
    fn live(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.pass(1);
            self.turn();
        }
    }

    fn statuses(&self) -> Vec<(String, &'static str)> {
        self.watcher.folder().entries().map(|entry| (entry.name.to_string(), entry.status.name())).collect()
    }

    fn status(&self, name: &str) -> &'static str {
        self.watcher.folder().entry(&WatchedName::new(name)).map_or("none", |entry| entry.status.name())
    }

    fn restart(&mut self) {
        let rows: Vec<_> = self.store.values().cloned().collect();
        self.watcher = Watcher::new(self.watcher.watch.clone(), rows, clock(&self.time)).unwrap();
        self.turn();
    }

    fn rescan(&mut self) {
        self.pass(86_400);
        self.turn();
    }
}

#[test]
fn a_file_is_seen_by_an_event_and_taken_when_it_stands_still() {
    let mut rig = Rig::new();
    rig.write("a.h5", "x");
    rig.until("seen", |rig| rig.status("a.h5") == "new");
    rig.live(SETTLE - 1);
    assert_eq!(rig.taken, [""; 0]);
    rig.live(2);
    assert_eq!((rig.taken.as_slice(), rig.status("a.h5")), (&["a.h5".to_string()][..], "taken"));
    assert_eq!(rig.notices, []);
}

#[test]
fn a_slow_writer_is_waited_for() {
    let mut rig = Rig::new();
    let mut file = File::create(rig.path("a.h5")).unwrap();
    rig.until("seen", |rig| rig.status("a.h5") == "new");
    for _ in 0..5 {
        rig.live(SETTLE - 1);
        file.write_all(b"more").unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(rig.taken, [""; 0]);
    // The writer has stopped writing, but has not closed the file.
    rig.live(3 * SETTLE);
    assert_eq!((rig.taken.len(), rig.status("a.h5")), (0, "settling"));
    // The file must be unchanged for the settle time after it was last seen open.
    drop(file);
    rig.live(SETTLE + 2);
    assert_eq!(rig.taken, ["a.h5"]);
}

#[test]
fn a_file_that_grows_by_short_visits_is_waited_for() {
    let mut rig = Rig::new();
    rig.write("log", "0");
    for _ in 0..5 {
        rig.live(SETTLE - 5);
        OpenOptions::new().append(true).open(rig.path("log")).unwrap().write_all(b"more").unwrap();
        let len = fs::metadata(rig.path("log")).unwrap().len();
        rig.until("seen", |rig| {
            rig.watcher
                .folder()
                .entry(&WatchedName::new("log"))
                .is_some_and(|entry| entry.version.size == len)
        });
    }
    assert_eq!(rig.taken, [""; 0]);
    rig.live(SETTLE + 1);
    assert_eq!(rig.taken, ["log"]);
}

#[test]
fn names_that_come_by_renames_are_taken_and_those_that_go_are_not() {
    let mut rig = Rig::with(|watch| watch.exclude = vec!["*.part".into()]);
    rig.write("a.h5.part", "x");
    rig.live(2 * SETTLE);
    assert_eq!((rig.taken.len(), rig.status("a.h5.part")), (0, "none"));
    fs::rename(rig.path("a.h5.part"), rig.path("a.h5")).unwrap();
    rig.until("renamed", |rig| rig.status("a.h5") == "new");
    fs::rename(rig.path("a.h5"), rig.path("b.h5")).unwrap();
    rig.until("renamed again", |rig| rig.status("b.h5") == "new" && rig.status("a.h5") == "none");
    rig.live(SETTLE + 1);
    assert_eq!(rig.taken, ["b.h5"]);
}

#[test]
fn a_replaced_file_is_taken_again_after_its_job() {
    let mut rig = Rig::new();
    rig.write("a.h5", "one");
    rig.until("seen", |rig| rig.status("a.h5") == "new");
    rig.live(SETTLE + 1);
    rig.write("tmp", "two");
    fs::rename(rig.path("tmp"), rig.path("a.h5")).unwrap();
    rig.until("changed", |rig| rig.status("a.h5") == "changed");
    rig.live(3 * SETTLE);
    assert_eq!(rig.taken, ["a.h5"], "never two jobs at a time");
    let changes = rig.watcher.ended(&WatchedName::new("a.h5"), "job0", Ok(()));
    rig.keep(changes);
    rig.live(SETTLE + 1);
    assert_eq!(rig.taken, ["a.h5", "a.h5"]);
    let changes = rig.watcher.ended(&WatchedName::new("a.h5"), "job1", Ok(()));
    rig.keep(changes);
    fs::remove_file(rig.path("a.h5")).unwrap();
    rig.until("gone", |rig| rig.status("a.h5") == "gone");
}

#[test]
fn a_directory_that_is_made_and_filled_at_once_is_seen_whole() {
    let mut rig = Rig::new();
    for round in 0..20 {
        let top = rig.path(&format!("run{round}"));
        let writer = thread::spawn(move || {
            for number in 0..10 {
                let directory = top.join(format!("d{number}/e/f"));
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("a"), "x").unwrap();
                fs::write(directory.join("../b"), "x").unwrap();
            }
        });
        rig.turn();
        writer.join().unwrap();
    }
    rig.until("seen", |rig| rig.statuses().len() == 400);
    // A tree is moved away, and comes back under another name.
    let outside = tempfile::tempdir().unwrap();
    fs::rename(rig.path("run0"), outside.path().join("run0")).unwrap();
    rig.until("moved away", |rig| rig.statuses().len() == 380);
    fs::rename(outside.path().join("run0"), rig.path("again")).unwrap();
    fs::rename(rig.path("run1"), rig.path("other")).unwrap();
    rig.until("moved back", |rig| rig.statuses().len() == 400 && rig.status("other/d9/e/f/a") == "new");
    // Events come from its new place.
    fs::write(rig.path("other/d9/e/f/late"), "x").unwrap();
    rig.until("seen late", |rig| rig.status("other/d9/e/f/late") == "new");
    rig.live(SETTLE + 1);
    assert_eq!(rig.taken.len(), 401);
}

#[test]
fn thousands_of_files_are_taken_once_each() {
    let mut rig = Rig::new();
    for number in 0..5000 {
        rig.write(&format!("f{number}"), "x");
        if number % 500 == 0 {
            rig.turn();
        }
    }
    rig.until("seen", |rig| rig.watcher.folder().entries().count() == 5000);
    rig.live(SETTLE + 2);
    rig.rescan();
    let mut taken = rig.taken.clone();
    taken.sort();
    taken.dedup();
    assert_eq!((rig.taken.len(), taken.len()), (5000, 5000));
}

#[test]
fn lost_hints_are_made_good_by_a_walk() {
    let mut rig = Rig::new();
    rig.write("a", "x");
    // As if the queue had overflowed: the event is read and thrown away, and only the loss is known.
    rig.until("told", |rig| {
        let mut wanted =
            [PollFd::from_borrowed_fd(rig.watcher.events.as_ref().unwrap().descriptor(), PollFlags::IN)];
        poll(&mut wanted, Some(&Timespec::default())).unwrap() > 0
    });
    let hints = rig.watcher.events.as_mut().unwrap().hints();
    assert!(hints.contains(&WatchHint::File(WatchedName::new("a"))), "{hints:?}");
    rig.watcher.follow(vec![WatchHint::Lost]);
    rig.turn();
    assert_eq!(rig.status("a"), "none", "there must be at most one scan a second");
    rig.pass(1);
    rig.turn();
    assert_eq!(rig.status("a"), "new");
}

#[test]
fn directories_beyond_the_limit_are_seen_by_walks() {
    let mut rig = Rig::new();
    rig.watcher.events.as_mut().unwrap().limit(1);
    fs::create_dir(rig.path("sub")).unwrap();
    rig.until("noticed", |rig| rig.notices.contains(&Notice::WatchLimit));
    rig.rescan();
    rig.write("sub/a", "x");
    rig.turn();
    assert_eq!(rig.status("sub/a"), "none");
    rig.rescan();
    assert_eq!(rig.status("sub/a"), "new");
    assert!(rig.watcher.notices().any(|notice| *notice == Notice::WatchLimit));
    assert_eq!(pause(None, true, Duration::ZERO), RESCAN_BLIND);
}

#[test]
fn what_is_too_deep_is_said_and_does_not_count_as_gone() {
    let mut rig = Rig::new();
    let within: PathBuf = std::iter::repeat_n("d", tree::DEPTH_MAX).collect();
    let beyond = within.join("d");
    fs::create_dir_all(rig.folder.path().join(&beyond)).unwrap();
    fs::write(rig.folder.path().join(&beyond).join("a"), "x").unwrap();
    fs::write(rig.folder.path().join(&within).join("b"), "x").unwrap();
    let name = |path: &Path| WatchedName::new(path.as_os_str().as_encoded_bytes());
    let version = FileVersion { inode: 1, size: 1, mtime_ns: 1, ctime_ns: 1 };
    let status = FileStatus::Done { job: "j".into() };
    let row_name = name(&beyond.join("a"));
    let row = WatchedFile { name: row_name, version, status: status.clone(), since_ms: 0, failing: None };
    rig.store.insert(row.name.clone(), row.clone());
    rig.restart();
    assert!(matches!(rig.watcher.notices().next(), Some(Notice::Unread { why, .. }) if why.contains("64")));
    assert_eq!(rig.watcher.folder().entry(&row.name).map(|entry| entry.status), Some(status));
    assert!(rig.watcher.folder().entry(&name(&within.join("b"))).is_some());
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let mut rig = Rig::new();
    for name in ["done", "taken", "failed", "waiting"] {
        rig.write(name, "x");
        rig.until("seen", |rig| rig.status(name) == "new");
        if name != "waiting" {
            rig.live(SETTLE + 1);
        }
    }
    assert_eq!(rig.taken, ["done", "taken", "failed"]);
    let changes = rig.watcher.ended(&WatchedName::new("done"), "job0", Ok(()));
    rig.keep(changes);
    let lasting = FileFailure::of_file(farhaul::errors::Code::PermissionDenied, "no");
    let changes = rig.watcher.ended(&WatchedName::new("failed"), "job2", Err(lasting));
    rig.keep(changes);
    rig.live(SETTLE - 5);
    rig.restart();
    let statuses = |rig: &Rig| ["done", "taken", "failed", "waiting"].map(|name| rig.status(name));
    assert_eq!(statuses(&rig), ["done", "taken", "failed", "new"]);
    rig.live(SETTLE - 1);
    assert_eq!(rig.taken.len(), 3, "the file begins to wait again");
    rig.live(2);
    assert_eq!(rig.taken[3..], ["waiting"]);
    // The folder is not mounted for a while.
    let away = rig.folder.path().with_extension("away");
    fs::rename(rig.folder.path(), &away).unwrap();
    rig.rescan();
    assert!(matches!(rig.notices.last(), Some(Notice::Missing(_))), "{:?}", rig.notices);
    fs::create_dir(rig.folder.path()).unwrap();
    rig.rescan();
    assert_eq!(statuses(&rig), ["gone", "gone", "gone", "gone"]);
    rig.restart();
    fs::remove_dir(rig.folder.path()).unwrap();
    fs::rename(&away, rig.folder.path()).unwrap();
    rig.rescan();
    rig.rescan();
    assert_eq!(statuses(&rig), ["done", "taken", "failed", "taken"]);
    rig.live(2 * SETTLE);
    assert_eq!(rig.taken.len(), 4);
    assert_eq!(rig.watcher.retry_failed().len(), 1);
    rig.live(SETTLE + 1);
    assert_eq!(rig.taken[4..], ["failed"]);
}

#[test]
fn links_and_directories_are_not_files() {
    let mut rig = Rig::with(|watch| watch.after = super::super::AfterAction::Move("sent".into()));
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "x").unwrap();
    std::os::unix::fs::symlink(outside.path(), rig.path("way")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), rig.path("link")).unwrap();
    std::os::unix::net::UnixListener::bind(rig.path("socket")).unwrap();
    fs::create_dir_all(rig.path("sent/run")).unwrap();
    rig.write("sent/run/old", "x");
    rig.write("real", "x");
    rig.until("seen", |rig| rig.status("real") == "new");
    rig.rescan();
    rig.live(SETTLE + 1);
    assert_eq!(rig.taken, ["real"]);
    assert_eq!(rig.statuses().len(), 1);
}

#[test]
fn a_turn_sleeps_until_it_is_woken() {
    let mut rig = Rig::new();
    let waker = rig.watcher.waker();
    let wakes = Arc::new(AtomicBool::new(false));
    let told = wakes.clone();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        told.store(true, Ordering::SeqCst);
        waker.wake();
    });
    // It ends today only because it is woken.
    rig.watcher.turn(Duration::from_secs(24 * 3600));
    assert!(wakes.load(Ordering::SeqCst), "it has ended before it was woken");
    other.join().unwrap();
}

#[test]
fn a_scan_ends_when_the_watch_does() {
    let mut rig = Rig::new();
    rig.write("a", "x");
    rig.until("seen", |rig| rig.status("a") == "new");
    rig.watcher.waker().end();
    let turn = rig.watcher.turn(Duration::from_secs(24 * 3600));
    assert!(turn.takes.is_empty() && turn.changes.is_empty());
    // A scan that was cut off has not seen that a file is gone.
    rig.watcher.walk();
    assert_eq!(rig.watcher.folder().entries().count(), 1);
}

#[test]
fn walks_of_large_folders_are_rare() {
    let second = Duration::from_secs;
    assert_eq!(pause(None, false, Duration::from_millis(10)), second(60));
    assert_eq!(pause(None, false, second(2)), second(400));
    assert_eq!(pause(None, true, second(2)), second(40));
    assert_eq!(pause(Some(600), false, second(2)), second(600));
    assert_eq!(pause(None, false, second(1000)), RESCAN_MAX);
}

#[test]
fn notices_are_lines() {
    for notice in [
        Notice::Missing("x".into()),
        Notice::Shared,
        Notice::NoEvents("x".into()),
        Notice::WatchLimit,
        Notice::Unread { directory: "d".into(), why: "x".into() },
        Notice::TooMany(3),
    ] {
        let text = notice.text();
        assert!(text.len() > 20 && !text.contains("  ") && !text.contains('\n'), "{text}");
    }
}
