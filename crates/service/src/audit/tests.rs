//! Tests of lines, full disks, rotation and chains.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use proptest::prelude::*;

use super::line::LINE_MAX;
use super::*;

const SIZE: u64 = 1 << 30;
const NOW: i64 = 1_790_000_000_123;

fn entry<'a>(action: &'a str, details: &'a [(&'a str, &'a str)]) -> AuditEntry<'a> {
    AuditEntry {
        caller: "token ci",
        address: Some("192.0.2.7:5000"),
        action,
        target: "job 7",
        outcome: AuditOutcome::Refused,
        code: Some(Code::Forbidden),
        details,
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_string).collect()
}

#[test]
fn a_line_says_who_did_what() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(&path, Chain::Off, SIZE).unwrap();
    audit.note(NOW, &entry("job.cancel", &[("reason", "not theirs\n\u{202e}\u{7f}")]));
    let plain = AuditEntry {
        caller: "user 7",
        address: None,
        action: "job.create",
        target: "job 8",
        outcome: AuditOutcome::Ok,
        code: None,
        details: &[],
    };
    audit.note(NOW + 1000, &plain);
    assert_eq!(
        lines(&path),
        [
            r#"{"time":"2026-09-21T14:13:20.123Z","caller":"token ci","address":"192.0.2.7:5000","action":"job.cancel","target":"job 7","outcome":"refused","code":"FH-FORBIDDEN","details":{"reason":"not theirs\n\u202e\u007f"}}"#,
            r#"{"time":"2026-09-21T14:13:21.123Z","caller":"user 7","action":"job.create","target":"job 8","outcome":"ok"}"#,
        ]
    );
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(audit.lost(), 0);
}

#[test]
fn only_a_file_of_ours_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), b"").unwrap();
    std::fs::set_permissions(at("file"), std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(Audit::open(&at("file"), Chain::Off, SIZE).unwrap());
    assert_eq!(std::fs::metadata(at("file")).unwrap().mode() & 0o777, 0o600);
    symlink(at("file"), at("link")).unwrap();
    assert!(Audit::open(&at("link"), Chain::Off, SIZE).is_err());
    assert!(Audit::open(&at("none/file"), Chain::Off, SIZE).is_err());
    assert!(Audit::open(folder.path(), Chain::Off, SIZE).is_err());
    assert_eq!(Audit::open(Path::new("/dev/null"), Chain::Off, SIZE).unwrap_err().code(), Code::BadState);
}

#[test]
fn after_a_rotation_it_goes_on_in_the_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
    let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
    audit.note(NOW, &entry("one", &[]));
    std::fs::rename(&path, &old).unwrap();
    audit.note(NOW, &entry("two", &[]));
    audit.reopen().unwrap();
    audit.note(NOW, &entry("three", &[]));
    assert_eq!((lines(&old).len(), lines(&path).len()), (2, 1));
    let digest = blake3::hash(lines(&old)[1].as_bytes()).to_hex();
    assert!(lines(&path)[0].contains(&format!("\"previous\":\"{digest}\"")), "the chain goes on");
    // If the new file cannot be opened, the old one stays in use.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(audit.reopen().is_err());
    audit.note(NOW, &entry("four", &[]));
    assert_eq!(audit.lost(), 0);
}

#[test]
fn a_chain_shows_what_was_changed_or_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    for run in 0..3 {
        let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
        for line in 0..3 {
            audit.note(NOW, &entry(&format!("run {run} line {line}"), &[]));
        }
    }
    let whole = lines(&path);
    let fine = CheckedChain { lines: 9, chained: 9, faults: vec![] };
    assert_eq!(check(&path).unwrap(), fine);
    let write = |lines: &[String]| {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        check(&path).unwrap().faults
    };
    let broken = "the line before it was changed or removed";
    for at in 1..8 {
        let mut removed = whole.clone();
        removed.remove(at);
        assert_eq!(write(&removed), [(at as u64 + 1, broken)]);
        let mut changed = whole.clone();
        changed[at] = changed[at].replace("refused", "ok");
        assert_eq!(write(&changed), [(at as u64 + 2, broken)]);
    }
    // A line that was inserted before them shows, too.
    let mut older = vec![r#"{"time":"x","caller":"y"}"#.to_string()];
    older.extend(whole);
    assert_eq!(write(&older), [(2, broken)]);
    let audit = Audit::open(&path, Chain::Off, SIZE).unwrap();
    audit.note(NOW, &entry("unchained", &[]));
    audit.set_chain(Chain::Kept);
    audit.note(NOW, &entry("chained", &[]));
    assert_eq!(check(&path).unwrap().faults, [(2, broken)]);
}

#[test]
fn a_torn_line_is_ended_before_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    drop({
        let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
        audit.note(NOW, &entry("one", &[]));
        audit
    });
    let mut text = std::fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"time\":\"half of a li");
    std::fs::write(&path, text).unwrap();
    let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
    audit.note(NOW, &entry("two", &[]));
    assert_eq!(lines(&path).len(), 3);
    assert_eq!(check(&path).unwrap().faults, [(2, "this is not a line of an audit log")]);
    assert!(check(&folder.path().join("none")).is_err());
}

/// Lines that do not fit are counted, and their number is noted when there is room again.
#[test]
fn a_full_disk_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
    audit.note(NOW, &entry("one", &[]));
    // A file that stays full.
    let full = File::options().append(true).open("/dev/full").unwrap();
    let good = std::mem::replace(&mut audit.shared.writer.lock().unwrap().file, Arc::new(full));
    audit.note(NOW, &entry("two", &[]));
    audit.note(NOW, &entry("three", &[]));
    assert_eq!(audit.lost(), 2);
    audit.shared.writer.lock().unwrap().file = good;
    audit.note(NOW, &entry("four", &[]));
    let lines = lines(&path);
    assert!(lines[1].contains("audit.lost") && lines[1].contains(r#""lines":"2""#), "{}", lines[1]);
    assert!(lines[2].contains("four") && lines.len() == 3);
    assert_eq!((audit.lost(), check(&path).unwrap().faults), (2, vec![]));
}

/// Writes lines until the file may not grow any more, and then goes on. The limit is that of a process, so
/// this runs in a process of its own.
#[test]
#[ignore = "the other test starts it"]
fn service_whose_disk_fills() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let path = PathBuf::from(std::env::var_os("AUDIT_FILE").unwrap());
    let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
    while audit.lost() < 3 {
        audit.note(NOW, &entry("fill", &[]));
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
    audit.note(NOW, &entry("after", &[]));
    assert_eq!(audit.lost(), 3);
}

#[test]
fn a_line_that_is_cut_by_a_full_disk_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    // Without the signal a write fails at the limit, as on a full disk.
    let script =
        "trap '' XFSZ; ulimit -S -f 8; exec \"$0\" --exact audit::tests::service_whose_disk_fills --ignored";
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", script]).arg(std::env::current_exe().unwrap()).env("AUDIT_FILE", &path);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let all = lines(&path);
    let [.., torn, lost, after] = &all[..] else { panic!("{all:?}") };
    assert!(serde_json::from_str::<serde_json::Value>(torn).is_err(), "{torn}");
    assert!(lost.contains(r#""action":"audit.lost""#) && lost.contains(r#""lines":"3""#), "{lost}");
    assert!(after.contains(r#""action":"after""#), "{after}");
    let at = all.len() as u64 - 2;
    assert_eq!(check(&path).unwrap().faults, [(at, "this is not a line of an audit log")]);
}

#[test]
fn what_is_noted_is_synced_at_most_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(&path, Chain::Off, SIZE).unwrap();
    let shared = audit.shared.clone();
    let began = Instant::now();
    for _ in 0..2000 {
        audit.note(NOW, &entry("x", &[]));
    }
    let most = began.elapsed().as_secs() + 2;
    assert!(shared.syncs.load(Relaxed) <= most, "{} syncs", shared.syncs.load(Relaxed));
    drop(audit);
    assert!(!shared.writer.lock().unwrap().is_dirty, "dropping the log does not sync it");
    assert_eq!(lines(&path).len(), 2000);
}

#[test]
fn many_threads_do_not_mix_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let audit = &audit;
            scope.spawn(move || {
                for _ in 0..100 {
                    audit.note(NOW, &entry(&format!("thread {thread}"), &[]));
                }
            });
        }
    });
    assert_eq!(check(&path).unwrap(), CheckedChain { lines: 400, chained: 400, faults: vec![] });
}

proptest! {
    #[test]
    fn any_text_is_one_bounded_line_that_reads_back(text in any::<String>(), name in ".{0,8}", count in 0..20usize, repeat in 1..300usize) {
        let long = text.repeat(repeat);
        let details: Vec<(&str, &str)> = std::iter::repeat_n((name.as_str(), long.as_str()), count).collect();
        let line = line::written(NOW, &AuditEntry { target: &long, ..entry(&text, &details) }, Some("x"));
        prop_assert!(line.len() <= LINE_MAX && !line.contains(farhaul::sisters::is_unprintable));
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        let target = read["target"].as_str().unwrap();
        prop_assert!(long.starts_with(target) && (target.len() == long.len() || target.len() > 1020));
    }

    #[test]
    fn any_file_can_be_checked_and_gone_on_with(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        std::fs::write(&path, &bytes).unwrap();
        let before = check(&path).unwrap();
        let audit = Audit::open(&path, Chain::Kept, SIZE).unwrap();
        audit.note(NOW, &entry("x", &[]));
        let after = check(&path).unwrap();
        prop_assert!(after.chained >= 1 && after.lines >= before.lines.max(1));
    }
}

#[test]
fn all_files_together_have_a_bounded_size_and_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(&path, Chain::Kept, 4 << 20).unwrap();
    let long = "x".repeat(1000);
    // Three times as much as the files may have.
    for _ in 0..9 << 10 {
        audit.note(NOW, &entry("job.cancel", &[("reason", &long)]));
    }
    drop(audit);
    let mut files: Vec<_> = (1..9).rev().map(|number| older_files::older(&path, number)).collect();
    files.push(path.clone());
    files.retain(|file| file.exists());
    let sizes: Vec<u64> = files.iter().map(|file| std::fs::metadata(file).unwrap().len()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(sizes.iter().all(|size| *size <= (1 << 20) + LINE_MAX as u64), "{sizes:?}");
    let mut before: Option<String> = None;
    for file in &files {
        let checked = check(file).unwrap();
        assert!(checked.faults.is_empty() && checked.chained == checked.lines, "{checked:?}");
        let all = lines(file);
        if let Some(before) = before {
            assert!(all[0].contains(blake3::hash(before.as_bytes()).to_hex().as_str()), "{}", all[0]);
        }
        before = all.last().cloned();
    }
    // The next process goes on with the file that is not full.
    let audit = Audit::open(&path, Chain::Kept, 4 << 20).unwrap();
    audit.note(NOW, &entry("job.create", &[]));
    drop(audit);
    assert!(check(&path).unwrap().faults.is_empty() && lines(&path).last().unwrap().contains("job.create"));
}

#[test]
fn a_log_that_cannot_begin_a_new_file_goes_on_in_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(&path, Chain::Off, 0).unwrap();
    // A directory with something in it cannot be replaced.
    std::fs::create_dir_all(folder.path().join("audit.log.older-1/x")).unwrap();
    std::fs::create_dir_all(folder.path().join("audit.log.older-2/x")).unwrap();
    std::fs::create_dir_all(folder.path().join("audit.log.older-3/x")).unwrap();
    let long = "x".repeat(1000);
    (0..3 << 10).for_each(|_| audit.note(NOW, &entry("job.cancel", &[("reason", &long)])));
    drop(audit);
    assert_eq!(lines(&path).len(), 3 << 10);
}
