//! Runs copies, syncs and verifications as a program does, and the example `tree` as a process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul::copy::{CopyJob, Location, Transfer};
use farhaul::errors::{Code, ExitCode};
use farhaul::events::{Carrier, Event, EventLevel, TransferState};
use farhaul::options::{DeleteOptions, ManifestOptions, SyncOptions};
use farhaul::sisters::{CheckLimits, CheckVerdict, ContentCheck, ReceiverCheck, UncheckedFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Makes a tree of some files, and a folder to copy it to.
fn tree() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::create_dir(&from).unwrap();
    std::fs::create_dir(&to).unwrap();
    for number in 0..20u8 {
        std::fs::write(from.join(format!("file{number}")), vec![number; 70_000]).unwrap();
    }
    (folder, from, to)
}

fn with_slash(path: &Path) -> String {
    format!("{}/", path.display())
}

#[test]
fn a_copy_tells_what_happens_and_how_far_it_is() {
    let (_folder, from, to) = tree();
    let (heard, seen) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (hear, see) = (heard.clone(), seen.clone());
    let report = farhaul::copy([with_slash(&from)], &to)
        .on_event(move |stamped| hear.lock().unwrap().push(stamped.event.clone()))
        .on_progress(Duration::from_millis(10), move |snapshot| see.lock().unwrap().push(snapshot.clone()))
        .run()
        .unwrap();
    assert_eq!((report.files, report.session.bytes), (20, 1_400_000));
    let heard = heard.lock().unwrap();
    assert!(matches!(heard.first(), Some(Event::Started { .. })), "{heard:?}");
    assert!(
        matches!(heard.last(), Some(Event::Ended { ok: true, error: None, code: None, exit_code: 0 })),
        "{heard:?}"
    );
    let done = heard.iter().filter(|event| matches!(event, Event::EntryDone { dry_run: false, .. })).count();
    assert_eq!(done, 20);
    let last = seen.lock().unwrap().last().cloned().unwrap();
    assert_eq!((last.state, last.bytes_done, last.files_done), (TransferState::Ended, 1_400_000, 20));
    assert_eq!((last.facts.transport, last.totals_known), (Some(Carrier::Local), true));
}

#[test]
fn what_fails_is_a_failure_with_a_report() {
    let (_folder, from, to) = tree();
    std::fs::create_dir(to.join("file3")).unwrap();
    std::fs::write(to.join("file3/in the way"), b"").unwrap();
    let failed = farhaul::copy([with_slash(&from)], &to).run().unwrap_err();
    assert!(failed.error.is_none() && failed.report.files == 19, "{failed:?}");
    assert!(failed.to_string().starts_with("1 entries failed, such as file3: "), "{failed}");
    let failed = farhaul::copy(["host:a"], "other:b").run().unwrap_err();
    assert_eq!(failed.error.as_ref().map(farhaul::Error::exit_code), Some(ExitCode::Usage));
    let failed = farhaul::copy([from.join("none")], &to).run().unwrap_err();
    assert_eq!(failed.error.as_ref().map(farhaul::Error::exit_code), Some(ExitCode::Files));
}

#[test]
fn a_sync_deletes_and_a_verification_finds() {
    let (folder, from, to) = tree();
    std::fs::write(to.join("surplus"), b"").unwrap();
    let list = folder.path().join("list");
    let manifest = list.clone();
    let report = farhaul::sync(with_slash(&from), &to)
        .sync_options(SyncOptions { delete: Some(DeleteOptions::default()), ..SyncOptions::default() })
        .with(move |job| {
            job.manifest = Some(manifest);
            job.options.integrity.manifest = Some(ManifestOptions::default());
        })
        .run()
        .unwrap();
    assert_eq!((report.files, report.deleted), (20, 1));
    let report = farhaul::verify(&list, &to).run().unwrap();
    assert_eq!((report.entries, report.bytes), (21, 1_400_000), "the directory is one, too");
    std::fs::write(to.join("file7"), vec![0; 70_000]).unwrap();
    let failed = farhaul::verify(&list, &to).run().unwrap_err();
    assert!(failed.error.is_none() && failed.report.changed == 1, "{failed:?}");
    assert!(failed.to_string().starts_with("1 differ, such as file7: "), "{failed}");
}

#[test]
fn a_copy_is_held_by_its_handle() {
    let running = farhaul::copy(["random:"], "null:").start().unwrap();
    let handle = running.handle().clone();
    let events = handle.events(EventLevel::Trace);
    let await_event = |is_it: &dyn Fn(&Event) -> bool| {
        while !is_it(&events.next(Duration::from_secs(60)).expect("it comes").event) {}
    };
    while handle.snapshot().bytes_done == 0 {
        std::thread::yield_now();
    }
    handle.pause();
    await_event(&|event| matches!(event, Event::Paused { by_peer: false }));
    // What is on the way still arrives; after that, nothing more does.
    let mut before = handle.snapshot();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = handle.snapshot();
        assert_eq!(now.state, TransferState::Paused);
        if now.bytes_done == before.bytes_done {
            break;
        }
        before = now;
    }
    handle.resume();
    await_event(&|event| matches!(event, Event::Resumed));
    while handle.snapshot().bytes_done == before.bytes_done {
        std::thread::yield_now();
    }
    handle.cancel();
    let failed = running.wait().unwrap_err();
    assert_eq!(failed.error.as_ref().map(farhaul::Error::exit_code), Some(ExitCode::Interrupted));
    await_event(&|event| matches!(event, Event::Ended { ok: false, exit_code: 130, .. }));
    assert!(events.is_over() && handle.snapshot().state == TransferState::Ended);
}

#[test]
fn the_example_copies_a_tree() {
    let (_folder, from, to) = tree();
    let own = std::env::current_exe().unwrap();
    let example = own.ancestors().nth(2).unwrap().join("examples/tree");
    let done = Command::new(example).args([with_slash(&from), with_slash(&to)]).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.lines().any(|line| line == "file7") && text.contains("20 files, limited by "), "{text}");
    assert_eq!(std::fs::read(to.join("file7")).unwrap(), vec![7; 70_000]);
}

/// A check of files that has a fault.
struct FaultyCheck;

impl ContentCheck for FaultyCheck {
    fn limits(&self) -> Option<CheckLimits> {
        Some(CheckLimits { threads: 1, files: 1 })
    }

    fn judge(&self, _: &[UncheckedFile<'_>], _: &str, _: &dyn Fn() -> bool) -> Option<Vec<CheckVerdict>> {
        panic!("a planted fault")
    }
}

#[test]
fn a_panic_inside_is_an_error_and_not_one_of_the_program() {
    let (_folder, from, to) = tree();
    let failed = farhaul::copy([with_slash(&from)], &to)
        .with(|job| job.check = ReceiverCheck(Some(Arc::new(FaultyCheck))))
        .run()
        .unwrap_err();
    let error = failed.error.expect("the transfer has ended early");
    assert!(error.code() == Code::Bug && error.what().contains("a planted fault"), "{error}");
    // A callback that panics is a fault of the program, and harms no transfer.
    let report =
        farhaul::copy([with_slash(&from)], &to).on_event(|_| panic!("a planted fault")).run().unwrap();
    assert_eq!(report.files, 20);
}

#[test]
fn a_job_has_defaults_for_everything_but_its_locations() {
    let (_folder, from, to) = tree();
    let job = CopyJob::new([Location::Local(with_slash(&from).into())], Location::Local(to));
    assert_eq!(Transfer::of(job).run().unwrap().files, 20);
}

#[test]
fn the_events_are_read_in_a_loop_over_descriptors() {
    let (_folder, from, to) = tree();
    let running = farhaul::copy([with_slash(&from)], &to).start().unwrap();
    let events = running.handle().events(EventLevel::Trace);
    let mut heard = Vec::new();
    while !events.is_over() {
        let fd = events.as_fd().unwrap();
        let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&minute)).unwrap(), 1, "{heard:?}");
        heard.extend(events.take().into_iter().map(|timed| timed.event));
    }
    assert!(matches!(heard.last(), Some(Event::Ended { ok: true, .. })), "{heard:?}");
    running.wait().unwrap();
}
