use proptest::collection::vec;
use proptest::prelude::*;

use farhaul::errors::Code;

use super::*;

const SETTLE: u64 = 30;

fn at(second: u64) -> FolderMoment {
    FolderMoment { steady: Duration::from_secs(second), unix_ms: second as i64 * 1000 }
}

fn version(inode: u64, mtime: i64) -> FileVersion {
    FileVersion { inode, size: 10, mtime_ns: mtime, ctime_ns: mtime }
}

fn sight(version: FileVersion, writer: WriterPresence) -> Sight {
    Sight { version, writer }
}

fn name() -> WatchedName {
    WatchedName::new("a.h5")
}

fn folder(rows: Vec<WatchedFile>) -> Folder {
    folder_at(0, rows)
}

fn folder_at(second: u64, rows: Vec<WatchedFile>) -> Folder {
    Folder::new(at(second), Duration::from_secs(SETTLE), rows)
}

fn status(folder: &Folder) -> Option<FileStatus> {
    folder.entry(&name()).map(|entry| entry.status)
}

/// True if the file is taken if these things are seen at these seconds, in this order.
fn is_taken(sights: &[(u64, i64, WriterPresence)]) -> bool {
    let mut folder = folder(vec![]);
    for (second, mtime, writer) in sights {
        folder.handle_seen(at(*second), &name(), sight(version(1, *mtime), *writer));
    }
    folder.poll_take().is_some()
}

#[test]
fn a_file_is_taken_when_it_stands_still() {
    use WriterPresence::{NoneSeen, NotLooked, Open};
    for (sights, expected) in [
        (&[(0, 1, NotLooked)][..], false),
        (&[(0, 1, NotLooked), (29, 1, NoneSeen)], false),
        (&[(0, 1, NotLooked), (30, 1, NoneSeen)], true),
        // A scan does not check who has the file open.
        (&[(0, 1, NotLooked), (30, 1, NotLooked)], false),
        (&[(0, 1, NotLooked), (30, 1, NotLooked), (31, 1, NoneSeen)], true),
        // It has changed.
        (&[(0, 1, NotLooked), (30, 2, NoneSeen)], false),
        (&[(0, 1, NotLooked), (30, 2, NoneSeen), (59, 2, NoneSeen)], false),
        (&[(0, 1, NotLooked), (30, 2, NoneSeen), (60, 2, NoneSeen)], true),
        (&[(0, 1, NotLooked), (20, 2, NotLooked), (30, 2, NoneSeen)], false),
        // Somebody has it open.
        (&[(0, 1, NotLooked), (30, 1, Open)], false),
        (&[(0, 1, NotLooked), (30, 1, Open), (31, 1, NoneSeen)], false),
        (&[(0, 1, NotLooked), (30, 1, Open), (60, 1, NoneSeen)], true),
        // Its time goes back.
        (&[(0, 5, NotLooked), (30, 4, NoneSeen)], false),
        // It is offered, and changes before a job is made of it.
        (&[(0, 1, NotLooked), (30, 1, NoneSeen), (31, 2, NotLooked)], false),
    ] {
        assert_eq!(is_taken(sights), expected, "{sights:?}");
    }
}

#[test]
fn the_status_changes_and_so_does_all_that_belongs_to_it() {
    let mut folder = folder(vec![]);
    folder.handle_seen(at(0), &name(), sight(version(1, 1), WriterPresence::NotLooked));
    // Only its permissions have changed: somebody is still working on it.
    let ctime = FileVersion { ctime_ns: 9, ..version(1, 1) };
    folder.handle_seen(at(30), &name(), sight(ctime, WriterPresence::NoneSeen));
    assert_eq!((folder.poll_take(), status(&folder)), (None, Some(FileStatus::Settling)));
    folder.handle_seen(at(60), &name(), sight(ctime, WriterPresence::NoneSeen));
    let take = folder.poll_take().unwrap();
    assert_eq!((folder.poll_take(), folder.poll_timeout()), (None, None));
    assert!(folder.handle_taken(at(60), &take, "j1"));
    assert!(!folder.handle_taken(at(60), &take, "j2"), "only one job may have it");
    assert_eq!(status(&folder), Some(FileStatus::Taken { job: "j1".into() }));
    // The version that the job has is seen again.
    folder.handle_seen(at(61), &name(), sight(ctime, WriterPresence::Open));
    assert!(!folder.handle_result(at(62), &name(), "j2", Ok(())));
    assert!(folder.handle_result(at(62), &name(), "j1", Ok(())));
    assert!(!folder.handle_result(at(62), &name(), "j1", Ok(())), "a result counts once");
    assert_eq!(status(&folder), Some(FileStatus::Done { job: "j1".into() }));
    folder.handle_seen(at(1000), &name(), sight(ctime, WriterPresence::NoneSeen));
    assert_eq!((folder.poll_take(), folder.poll_timeout()), (None, None));
    // Another version of the file, which has the size and the time of the first.
    let again = FileVersion { ctime_ns: 10, ..ctime };
    folder.handle_seen(at(1001), &name(), sight(again, WriterPresence::NoneSeen));
    assert_eq!(status(&folder), Some(FileStatus::Settling));
    assert_eq!(folder.poll_timeout(), Some(Duration::from_secs(1001 + SETTLE)));
}

/// The status that follows from each status and each event.
#[test]
fn every_status_and_every_event() {
    let job = || "j".to_string();
    let why = || "full".to_string();
    let lasting = || FileFailure { code: Code::PermissionDenied, why: why(), passes: false, whole: false };
    let taken = FileStatus::Taken { job: job() };
    let changed = FileStatus::Changed { job: job() };
    let done = FileStatus::Done { job: job() };
    let failed = FileStatus::Failed { job: job(), why: why() };
    let gone = |past| FileStatus::Gone { past };
    let (past_taken, past_done) = (PastStatus::Taken { job: job() }, PastStatus::Done { job: job() });
    let past_failed = PastStatus::Failed { job: job(), why: why() };
    let (new, settling) = (FileStatus::New, FileStatus::Settling);
    // before; then: seen unchanged, seen in another version, gone, job done, job failed, retry
    let table = [
        (
            new.clone(),
            [
                Some(new.clone()),
                Some(settling.clone()),
                None,
                Some(new.clone()),
                Some(new.clone()),
                Some(new.clone()),
            ],
        ),
        (
            settling.clone(),
            [
                Some(settling.clone()),
                Some(settling.clone()),
                None,
                Some(settling.clone()),
                Some(settling.clone()),
                Some(settling.clone()),
            ],
        ),
        (
            taken.clone(),
            [
                Some(taken.clone()),
                Some(changed.clone()),
                Some(gone(past_taken.clone())),
                Some(done.clone()),
                Some(failed.clone()),
                Some(taken.clone()),
            ],
        ),
        (
            changed.clone(),
            [
                Some(taken.clone()),
                Some(changed.clone()),
                Some(gone(past_taken.clone())),
                Some(settling.clone()),
                Some(settling.clone()),
                Some(changed.clone()),
            ],
        ),
        (
            done.clone(),
            [
                Some(done.clone()),
                Some(settling.clone()),
                Some(gone(past_done.clone())),
                Some(done.clone()),
                Some(done.clone()),
                Some(done.clone()),
            ],
        ),
        (
            failed.clone(),
            [
                Some(failed.clone()),
                Some(settling.clone()),
                Some(gone(past_failed.clone())),
                Some(done.clone()),
                Some(failed.clone()),
                Some(settling.clone()),
            ],
        ),
        (
            gone(past_taken.clone()),
            [
                Some(taken.clone()),
                Some(changed.clone()),
                Some(gone(past_taken.clone())),
                Some(gone(past_done.clone())),
                Some(gone(past_failed.clone())),
                Some(gone(past_taken.clone())),
            ],
        ),
        (
            gone(past_done.clone()),
            [
                Some(done.clone()),
                Some(new.clone()),
                Some(gone(past_done.clone())),
                Some(gone(past_done.clone())),
                Some(gone(past_done.clone())),
                Some(gone(past_done.clone())),
            ],
        ),
        (
            gone(past_failed.clone()),
            [
                Some(failed.clone()),
                Some(new.clone()),
                Some(gone(past_failed.clone())),
                Some(gone(past_done.clone())),
                Some(gone(past_failed.clone())),
                Some(gone(past_failed.clone())),
            ],
        ),
    ];
    for (before, after) in table {
        for (event, expected) in after.iter().enumerate() {
            let (version_then, status_then) = (version(1, 1), before.clone());
            let row = WatchedFile {
                name: name(),
                version: version_then,
                status: status_then,
                since_ms: 0,
                failing: None,
            };
            let mut folder = folder(vec![row]);
            if matches!(before, FileStatus::New | FileStatus::Settling) {
                folder.handle_seen(at(1), &name(), sight(version(1, 1), WriterPresence::NotLooked));
            }
            match event {
                0 => folder.handle_seen(at(2), &name(), sight(version(1, 1), WriterPresence::NotLooked)),
                1 => folder.handle_seen(at(2), &name(), sight(version(1, 2), WriterPresence::NotLooked)),
                2 => folder.handle_gone(at(2), &name()),
                3 => drop(folder.handle_result(at(2), &name(), "j", Ok(()))),
                4 => drop(folder.handle_result(at(2), &name(), "j", Err(lasting()))),
                _ => drop(folder.retry(at(2), &name())),
            }
            assert_eq!(status(&folder), *expected, "{before:?}, event {event}");
            // A change is reported to the store if there is one, and only then.
            let changes = folder.changes();
            // One more failure counts.
            let has_failed =
                matches!(before, FileStatus::Failed { .. }) || before == gone(past_failed.clone());
            let has_failed_again = event == 4 && has_failed;
            match expected {
                Some(status) if *status == before && !has_failed_again => {
                    assert_eq!(changes, [], "{before:?}, event {event}")
                }
                Some(_) => assert_eq!(changes, [StoreChange::Put(folder.entry(&name()).unwrap())]),
                None => assert_eq!(changes, [StoreChange::Remove(name())]),
            }
            // A file is looked at if and only if it waits.
            let waits = matches!(expected, Some(FileStatus::New | FileStatus::Settling));
            assert_eq!(folder.poll_timeout().is_some(), waits, "{before:?}, event {event}");
        }
    }
}

/// A file that a job has taken at the second 60.
fn with_taken(job: &str) -> Folder {
    let mut folder = folder(vec![]);
    folder.handle_seen(at(0), &name(), sight(version(1, 1), WriterPresence::NotLooked));
    folder.handle_seen(at(60), &name(), sight(version(1, 1), WriterPresence::NoneSeen));
    let take = folder.poll_take().unwrap();
    assert!(folder.handle_taken(at(60), &take, job));
    folder
}

fn away() -> FileFailure {
    FileFailure { whole: true, ..FileFailure::of_file(Code::NotListening, "nobody listens") }
}

fn failing(folder: &Folder) -> Option<(u32, Option<i64>)> {
    folder.failing_one(&name()).map(|(failing, due_ms)| (failing.tries, due_ms))
}

/// The seconds from a failure to the moment at which the file is offered again. The job `j` takes it then.
fn offered_after(folder: &mut Folder, failed_at: u64) -> u64 {
    let due = folder.poll_timeout().unwrap();
    let (before, after) = (at(due.as_secs() - 1), at(due.as_secs() + 1));
    assert_eq!((folder.poll_look(before, 9), folder.poll_take()), (vec![], None));
    assert_eq!(folder.poll_look(after, 9), [name()]);
    folder.handle_seen(after, &name(), sight(version(1, 1), WriterPresence::NoneSeen));
    let take = folder.poll_take().unwrap();
    assert!(folder.handle_taken(after, &take, "j"));
    due.as_secs() - failed_at
}

#[test]
fn what_passes_is_taken_again_with_growing_pauses() {
    let mut folder = with_taken("j");
    let (mut now, mut waited) = (60, vec![]);
    for tries in 1..=9 {
        assert!(folder.handle_result(at(now), &name(), "j", Err(away())));
        assert_eq!(failing(&folder).unwrap().0, tries);
        let seconds = offered_after(&mut folder, now);
        assert_eq!(folder.failing().len(), 1, "it fails as long as it has not arrived");
        waited.push(seconds);
        now += seconds + 1;
    }
    let even = [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600];
    for (seconds, even) in waited.iter().zip(even) {
        assert!((even * 9 / 10 - 1..=even * 11 / 10 + 1).contains(seconds), "{waited:?}");
    }
    assert!(folder.handle_result(at(now), &name(), "j", Ok(())));
    assert_eq!((folder.failing().len(), failing(&folder), folder.poll_timeout()), (0, None, None));
}

#[test]
fn what_does_not_pass_waits_for_a_change_or_for_somebody() {
    let lasting = || FileFailure::of_file(Code::PermissionDenied, "not allowed");
    let mut folder = with_taken("j");
    assert!(folder.handle_result(at(61), &name(), "j", Err(lasting())));
    assert_eq!((failing(&folder), folder.poll_timeout()), (Some((1, None)), None));
    assert_eq!(folder.poll_look(at(1_000_000), 9), []);
    // Somebody asks.
    assert!(folder.retry(at(1_000_000), &name()));
    assert_eq!(folder.poll_look(at(1_000_000), 9), [name()], "it has stood still before");
    folder.handle_seen(at(1_000_000), &name(), sight(version(1, 1), WriterPresence::NoneSeen));
    let take = folder.poll_take().unwrap();
    assert!(folder.handle_taken(at(1_000_000), &take, "k"));
    assert!(folder.handle_result(at(1_000_001), &name(), "k", Err(lasting())));
    // It changes, and has to stand still then.
    folder.handle_seen(at(1_000_002), &name(), sight(version(1, 2), WriterPresence::NotLooked));
    assert_eq!(folder.poll_timeout(), Some(Duration::from_secs(1_000_002 + SETTLE)));
    assert_eq!((failing(&folder), folder.failing().len()), (Some((0, None)), 1));
    folder.handle_gone(at(1_000_003), &name());
    assert_eq!(folder.failing().len(), 0, "what is gone does not fail");
}

#[test]
fn a_restart_forgets_no_failure_and_no_time() {
    let mut folder = with_taken("j");
    assert!(folder.handle_result(at(60), &name(), "j", Err(away())));
    let (_, due_ms) = failing(&folder).unwrap();
    let rows: Vec<_> = folder.entries().collect();
    for (second, expected) in [(70, due_ms.unwrap() as u64 / 1000), (5000, 5000)] {
        let again = folder_at(second, rows.clone());
        assert_eq!(failing(&again), Some((1, due_ms)));
        assert_eq!(again.poll_timeout().unwrap().as_secs(), expected);
    }
    // A clock that was set back by a year makes it wait for no longer than the longest pause.
    let back = FolderMoment { steady: Duration::from_secs(9), unix_ms: -31_536_000_000 };
    let again = Folder::new(back, Duration::from_secs(SETTLE), rows);
    assert!(again.poll_timeout().unwrap() <= Duration::from_secs(9 + 3960));
}

#[test]
fn files_come_back_together_and_when_a_job_gets_through() {
    let names = ["a", "b", "c"].map(WatchedName::new);
    let mut folder = folder(vec![]);
    for name in &names {
        folder.handle_seen(at(0), name, sight(version(1, 1), WriterPresence::NotLooked));
        folder.handle_seen(at(60), name, sight(version(1, 1), WriterPresence::NoneSeen));
    }
    for job in ["j0", "j1", "j2"] {
        let take = folder.poll_take().unwrap();
        assert!(folder.handle_taken(at(60), &take, job));
    }
    // The second fails 15 seconds after the first, and comes along with it.
    assert!(folder.handle_result(at(60), &names[0], "j0", Err(away())));
    assert!(folder.handle_result(at(75), &names[1], "j1", Err(away())));
    let due = folder.poll_timeout().unwrap().as_secs() + 1;
    assert_eq!(folder.poll_look(at(due), 9), [names[0].clone(), names[1].clone()]);
    for name in &names[..2] {
        folder.handle_seen(at(due), name, sight(version(1, 1), WriterPresence::NoneSeen));
        let take = folder.poll_take().unwrap();
        assert!(folder.handle_taken(at(due), &take, "j3"));
        assert!(folder.handle_result(at(due), name, "j3", Err(away())));
    }
    assert_eq!(folder.poll_look(at(due + 1), 9), []);
    assert!(folder.handle_result(at(due + 1), &names[2], "j2", Ok(())));
    folder.handle_through(at(due + 1));
    assert_eq!(folder.poll_look(at(due + 1), 9), [names[0].clone(), names[1].clone()]);
}

#[test]
fn a_job_that_somebody_has_run_again_has_its_files() {
    let mut folder = with_taken("j");
    assert!(folder.handle_result(at(60), &name(), "j", Err(away())));
    folder.handle_job_again(at(61), "other");
    assert!(folder.poll_timeout().is_some());
    folder.handle_job_again(at(61), "j");
    assert_eq!(status(&folder), Some(FileStatus::Taken { job: "j".into() }));
    assert_eq!((folder.poll_timeout(), folder.failing().len()), (None, 1), "no second job takes it");
}

#[test]
fn a_walk_shows_what_is_gone() {
    let row = |text: &str| WatchedFile {
        name: WatchedName::new(text),
        version: version(1, 1),
        status: FileStatus::Done { job: "j".into() },
        since_ms: 0,
        failing: None,
    };
    let mut folder = folder(["a", "b", "locked/c", "lockedd"].map(row).to_vec());
    folder.begin_walk();
    folder.handle_seen(at(1), &WatchedName::new("a"), sight(version(1, 1), WriterPresence::NotLooked));
    folder.end_walk(at(1), &[WatchedName::new("locked")]);
    let gone: Vec<_> = folder
        .entries()
        .filter(|entry| matches!(entry.status, FileStatus::Gone { .. }))
        .map(|entry| entry.name.to_string())
        .collect();
    assert_eq!(gone, ["b", "lockedd"]);
    // As if the file system had not been mounted for a while.
    folder.begin_walk();
    for text in ["a", "b", "locked/c", "lockedd"] {
        folder.handle_seen(at(2), &WatchedName::new(text), sight(version(1, 1), WriterPresence::NotLooked));
    }
    folder.end_walk(at(2), &[]);
    assert!(folder.entries().all(|entry| matches!(entry.status, FileStatus::Done { .. })));
    assert_eq!(folder.poll_timeout(), None);
    // In the end they are forgotten.
    folder.begin_walk();
    folder.end_walk(at(3), &[]);
    assert_eq!(folder.entries().count(), 4);
    folder.begin_walk();
    folder.end_walk(at(40 * 24 * 3600), &[]);
    assert_eq!((folder.entries().count(), folder.gone.len()), (0, 0));
}

#[test]
fn files_are_bounded() {
    let mut folder = Folder { files_max: 2, ..folder(vec![]) };
    for (second, text) in [(0, "a"), (1, "b"), (2, "c"), (3, "c")] {
        folder.handle_seen(
            at(second),
            &WatchedName::new(text),
            sight(version(1, 1), WriterPresence::NotLooked),
        );
    }
    assert_eq!((folder.entries().count(), folder.too_many()), (2, 2));
    folder.handle_gone(at(4), &WatchedName::new("a"));
    folder.begin_walk();
    for text in ["b", "c"] {
        folder.handle_seen(at(5), &WatchedName::new(text), sight(version(1, 1), WriterPresence::NotLooked));
    }
    folder.end_walk(at(5), &[]);
    assert_eq!((folder.entries().count(), folder.too_many()), (2, 0));
}

#[test]
fn what_is_refused_is_offered_again() {
    let mut folder = folder(vec![]);
    folder.handle_seen(at(0), &name(), sight(version(1, 1), WriterPresence::NotLooked));
    folder.handle_seen(at(30), &name(), sight(version(1, 1), WriterPresence::NoneSeen));
    let take = folder.poll_take().unwrap();
    folder.handle_refused(at(30), &take);
    assert_eq!(folder.poll_look(at(59), 10), []);
    assert_eq!(folder.poll_look(at(60), 10), [name()]);
    folder.handle_seen(at(60), &name(), sight(version(1, 1), WriterPresence::NoneSeen));
    assert_eq!(folder.poll_take(), Some(take));
}

#[test]
fn what_is_offered_anew_is_offered_once() {
    let mut folder = folder(vec![]);
    for (second, mtime) in [(0, 1), (30, 1), (31, 2), (61, 2)] {
        folder.handle_seen(at(second), &name(), sight(version(1, mtime), WriterPresence::NoneSeen));
    }
    let take = folder.poll_take();
    assert_eq!(take.map(|take| take.version), Some(version(1, 2)));
    assert_eq!(folder.poll_take(), None);
}

#[test]
fn a_file_may_change_or_go_while_its_job_is_made() {
    let offered = || {
        let mut folder = folder(vec![]);
        folder.handle_seen(at(0), &name(), sight(version(1, 1), WriterPresence::NotLooked));
        folder.handle_seen(at(30), &name(), sight(version(1, 1), WriterPresence::NoneSeen));
        let take = folder.poll_take().unwrap();
        (folder, take)
    };
    let job = || "j".to_string();
    let (mut folder, take) = offered();
    folder.handle_seen(at(31), &name(), sight(version(1, 2), WriterPresence::NotLooked));
    assert!(folder.handle_taken(at(31), &take, "j"));
    let row = folder.entry(&name()).unwrap();
    assert_eq!((row.status, row.version), (FileStatus::Changed { job: job() }, version(1, 1)));
    assert_eq!(folder.poll_timeout(), None, "it must not be looked at before the job has ended");
    folder.handle_result(at(40), &name(), "j", Ok(()));
    folder.handle_seen(at(70), &name(), sight(version(1, 2), WriterPresence::NoneSeen));
    assert_eq!(folder.poll_take().map(|take| take.version), Some(version(1, 2)));

    let (mut folder, take) = offered();
    folder.handle_gone(at(31), &name());
    assert!(folder.handle_taken(at(31), &take, "j"));
    assert_eq!(status(&folder), Some(FileStatus::Gone { past: PastStatus::Taken { job: job() } }));
    // The same version is there again: the job still has it.
    folder.handle_seen(at(32), &name(), sight(version(1, 1), WriterPresence::NotLooked));
    assert_eq!(status(&folder), Some(FileStatus::Taken { job: job() }));
}

/// A step of a user or of the service.
#[derive(Debug, Clone)]
enum Step {
    /// A file is made, or replaced.
    Create(u8),
    Write(u8),
    Open(u8),
    Close(u8),
    Delete(u8),
    Rename(u8, u8),
    /// An event about the file arrives.
    Event(u8),
    Walk,
    /// Time passes, and files that are due are looked at, unless the look is lost.
    Pass(u64, bool),
    /// Offers become jobs, or the process dies before that.
    Take(bool),
    /// The jobs end.
    End(bool),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0_u8..4;
    prop_oneof![
        file.clone().prop_map(Step::Create),
        file.clone().prop_map(Step::Write),
        file.clone().prop_map(Step::Write),
        file.clone().prop_map(Step::Open),
        file.clone().prop_map(Step::Close),
        file.clone().prop_map(Step::Delete),
        (file.clone(), file.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        file.prop_map(Step::Event),
        Just(Step::Walk),
        (1_u64..20, any::<bool>()).prop_map(|(seconds, looks)| Step::Pass(seconds, looks)),
        (1_u64..20).prop_map(|seconds| Step::Pass(seconds, true)),
        any::<bool>().prop_map(Step::Take),
        Just(Step::Take(true)),
        any::<bool>().prop_map(Step::End),
        Just(Step::Restart),
    ]
}

#[derive(Debug, Clone, Copy)]
struct File {
    version: FileVersion,
    /// The last second in which it was written or open.
    busy: u64,
    open: bool,
}

/// The actual files, and the folder under test.
struct World {
    files: BTreeMap<WatchedName, File>,
    folder: Folder,
    store: BTreeMap<WatchedName, WatchedFile>,
    now: u64,
    ticks: i64,
    /// Each version that a job was made of.
    taken: Vec<(WatchedName, FileVersion)>,
    /// Files of which another version was seen since the last one was taken.
    other: BTreeSet<WatchedName>,
    jobs: Vec<(WatchedName, String)>,
    /// True if some offer was not answered.
    unanswered: bool,
}

impl World {
    fn new() -> World {
        World {
            files: BTreeMap::new(),
            folder: folder(vec![]),
            store: BTreeMap::new(),
            now: 0,
            ticks: 0,
            taken: vec![],
            other: BTreeSet::new(),
            jobs: vec![],
            unanswered: false,
        }
    }

    fn name(number: u8) -> WatchedName {
        WatchedName::new([b'a' + number])
    }

    fn tick(&mut self) -> i64 {
        self.ticks += 1;
        self.ticks
    }

    fn look(&mut self, name: &WatchedName, writers: bool) {
        match self.files.get(name) {
            None => self.folder.handle_gone(at(self.now), name),
            Some(file) => {
                let last = self.taken.iter().rev().find(|(taken, _)| taken == name);
                if last.is_some_and(|(_, version)| *version != file.version) {
                    self.other.insert(name.clone());
                }
                let writer = match (writers, file.open) {
                    (false, _) => WriterPresence::NotLooked,
                    (true, true) => WriterPresence::Open,
                    (true, false) => WriterPresence::NoneSeen,
                };
                self.folder.handle_seen(at(self.now), name, sight(file.version, writer));
            }
        }
    }

    fn walk(&mut self) {
        self.folder.begin_walk();
        for name in self.files.keys().cloned().collect::<Vec<_>>() {
            self.look(&name, false);
        }
        self.folder.end_walk(at(self.now), &[]);
    }

    fn save(&mut self) {
        for change in self.folder.changes() {
            match change {
                StoreChange::Put(entry) => drop(self.store.insert(entry.name.clone(), entry)),
                StoreChange::Remove(name) => drop(self.store.remove(&name)),
            }
        }
    }

    fn take(&mut self) {
        while let Some(take) = self.folder.poll_take() {
            // An offered file has not changed since the look that offered it, unless nobody has seen the
            // change.
            let job = format!("job{}", self.taken.len());
            if !self.folder.handle_taken(at(self.now), &take, &job) {
                continue;
            }
            let last = self.taken.iter().rev().find(|(name, _)| *name == take.name);
            let again = last.is_some_and(|(_, version)| *version == take.version);
            assert!(!again || self.other.remove(&take.name), "taken twice: {take:?}");
            self.taken.push((take.name.clone(), take.version));
            self.jobs.push((take.name, job));
        }
        self.save();
    }

    fn due(&mut self) {
        for name in self.folder.poll_look(at(self.now), 100) {
            let offered = self.folder.takes.len();
            self.look(&name, true);
            if self.folder.takes.len() > offered {
                let file = self.files[&name];
                assert!(
                    !file.open && self.now - file.busy >= SETTLE,
                    "taken while it changes: {file:?} at {}",
                    self.now
                );
            }
        }
    }

    fn step(&mut self, step: Step) {
        let (now, tick) = (self.now, self.tick());
        match step {
            Step::Create(number) => {
                let file = File { version: version(tick as u64, tick), busy: now, open: false };
                self.files.insert(World::name(number), file);
            }
            Step::Write(number) => {
                if let Some(file) = self.files.get_mut(&World::name(number)) {
                    file.version = version(file.version.inode, tick);
                    file.busy = now;
                }
            }
            Step::Open(number) | Step::Close(number) => {
                if let Some(file) = self.files.get_mut(&World::name(number)) {
                    file.open = matches!(step, Step::Open(_));
                    file.busy = if file.open { file.busy } else { now.min(file.busy) };
                }
            }
            Step::Delete(number) => drop(self.files.remove(&World::name(number))),
            Step::Rename(from, to) => {
                if let Some(file) = self.files.remove(&World::name(from)) {
                    self.files.insert(World::name(to), file);
                }
            }
            Step::Event(number) => self.look(&World::name(number), false),
            Step::Walk => self.walk(),
            Step::Pass(seconds, looks) => {
                for _ in 0..seconds {
                    self.now += 1;
                    match looks {
                        true => self.due(),
                        false => drop(self.folder.poll_look(at(self.now), 1)),
                    }
                }
            }
            Step::Take(true) => self.take(),
            Step::Take(false) => self.unanswered |= self.folder.poll_take().is_some(),
            Step::End(well) => {
                for (name, job) in std::mem::take(&mut self.jobs) {
                    // Every other failure can pass, and then the same version is taken again.
                    let passes = !well && self.tick() % 2 == 0;
                    if passes {
                        self.other.insert(name.clone());
                    }
                    let (code, why) = (Code::PeerGone, "lost".into());
                    let failure = FileFailure { code, why, passes, whole: passes };
                    let result = if well { Ok(()) } else { Err(failure) };
                    self.folder.handle_result(at(now), &name, &job, result);
                }
                self.save();
            }
            Step::Restart => {
                self.save();
                let rows: Vec<_> = self.store.values().cloned().collect();
                self.folder = folder_at(self.now, rows);
                self.walk();
            }
        }
    }

    /// Nobody writes any more, and time passes.
    fn settle(&mut self) {
        for file in self.files.values_mut() {
            file.open = false;
        }
        // Offers that were never answered, as by a process that has died.
        if self.unanswered {
            self.step(Step::Restart);
        }
        for _ in 0..4 {
            self.walk();
            for _ in 0..2 * SETTLE {
                self.now += 1;
                self.due();
            }
            self.take();
            self.step(Step::End(true));
        }
    }
}

proptest! {
    #[test]
    fn none_is_taken_while_it_changes_none_is_lost_and_none_taken_twice(steps in vec(step(), 0..120)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.settle();
        for (name, file) in &world.files {
            let has =
                |one: &(WatchedName, FileVersion)| one.0 == *name && one.1 == file.version;
            prop_assert!(world.taken.iter().any(has), "lost: {name} {file:?} {:?}", world.folder.entry(name));
            let status = world.folder.entry(name).map(|entry| entry.status);
            prop_assert!(matches!(status, Some(FileStatus::Done { .. } | FileStatus::Failed { .. })), "{status:?}");
        }
        for row in world.folder.entries() {
            let is_there = world.files.contains_key(&row.name);
            prop_assert!(is_there || matches!(row.status, FileStatus::Gone { .. }), "{row:?}");
        }
        let kept: Vec<_> = world.store.values().map(|row| (row.name.clone(), row.status.clone())).collect();
        let known: Vec<_> = world.folder.entries().map(|row| (row.name, row.status)).collect();
        prop_assert_eq!(kept, known);
    }
}
