use std::os::unix::fs::symlink;

use farhaul_volume::{CHUNK, whole_digest};
use farhaul_words::Code;

use super::super::manifest::{EntryFate, ManifestLog, ManifestRecord, RecordKind};
use super::super::report::Report;
use super::*;
use crate::failures::Failure;

fn record(path: &str, kind: RecordKind, digest: Option<[u8; 32]>) -> ManifestRecord {
    ManifestRecord { kind, digest, mode: 0o644, ..ManifestRecord::of_path(path.as_bytes(), EntryFate::Sent) }
}

/// A tree and its manifest, and the directory that has both.
fn tree() -> (tempfile::TempDir, VerifyJob) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("tree");
    std::fs::create_dir_all(root.join("d")).unwrap();
    let log = ManifestLog::create(&temp.path().join("m"), false, &Handle::new()).unwrap();
    let large: Vec<u8> = (0..70 * CHUNK + 5).map(|at| (at / 4096) as u8).collect();
    for (name, content) in [("a", &b"abc"[..]), ("d/b", b""), ("large", &large)] {
        std::fs::write(root.join(name), content).unwrap();
        log.add(record(name, RecordKind::File { size: content.len() as u64 }, Some(whole_digest(content))));
    }
    std::fs::hard_link(root.join("a"), root.join("h")).unwrap();
    symlink("nowhere", root.join("l")).unwrap();
    log.add(record("h", RecordKind::HardLink { to: b"a".to_vec() }, None));
    log.add(record("l", RecordKind::Symlink { target: b"nowhere".to_vec() }, None));
    log.add(record("d", RecordKind::Directory, None));
    log.add(record("", RecordKind::Directory, None));
    log.add(record("never", RecordKind::File { size: 1 }, None).failed(&Failure::new(Code::NotFound, "no")));
    log.finish(&Report::default()).unwrap();
    let job = VerifyJob {
        list: temp.path().join("m"),
        directory: root,
        algorithm: Algorithm::Sha256,
        extra: true,
        metadata: false,
        modify_window_secs: 0,
        quick: false,
    };
    (temp, job)
}

fn found(job: &VerifyJob) -> Vec<String> {
    let mut told = Vec::new();
    let (report, error) = verify(job, &Handle::new(), &mut |finding| {
        told.push(format!("{} {}", finding.difference.name(), finding.path));
    });
    assert!(error.is_none(), "{error:?}");
    assert_eq!(report.ok, told.is_empty());
    assert_eq!(report.findings.len(), told.len());
    told.sort();
    told
}

#[test]
fn a_tree_that_is_as_it_was_has_nothing_to_tell() {
    let (_temp, job) = tree();
    let (report, error) = verify(&job, &Handle::new(), &mut |finding| panic!("{finding:?}"));
    assert!(report.ok && error.is_none() && report.warnings.is_empty(), "{report:?}");
    assert_eq!((report.entries, report.left_out, report.bytes), (7, 1, 70 * CHUNK + 8));
}

#[test]
fn every_difference_is_found() {
    let (_temp, job) = tree();
    let at = |name: &str| job.directory.join(name);
    std::fs::remove_file(at("d/b")).unwrap();
    std::fs::write(at("d/new"), "").unwrap();
    std::fs::create_dir_all(at("more/deep")).unwrap();
    std::fs::remove_file(at("l")).unwrap();
    symlink("elsewhere", at("l")).unwrap();
    std::fs::remove_file(at("h")).unwrap();
    std::fs::copy(at("a"), at("h")).unwrap();
    std::fs::write(at("a"), "abd").unwrap();
    let mut large = std::fs::read(at("large")).unwrap();
    large[55 * CHUNK as usize] ^= 1;
    std::fs::write(at("large"), large).unwrap();
    let expected =
        ["changed a", "changed h", "changed l", "changed large", "extra d/new", "extra more/", "missing d/b"];
    assert_eq!(found(&job), expected);
    let quick = VerifyJob { quick: true, extra: false, ..job };
    assert_eq!(found(&quick), ["changed l", "missing d/b"]);
}

#[test]
fn a_file_with_the_same_content_stands_for_a_hard_link_but_for_metadata() {
    let (_temp, job) = tree();
    let at = |name: &str| job.directory.join(name);
    std::fs::remove_file(at("h")).unwrap();
    std::fs::copy(at("a"), at("h")).unwrap();
    assert_eq!(found(&job), [""; 0]);
    let metadata = VerifyJob { metadata: true, ..job.clone() };
    assert!(found(&metadata).contains(&"changed h".to_string()));
    std::fs::write(at("h"), "abd").unwrap();
    assert_eq!(found(&job), ["changed h"]);
    std::fs::remove_file(at("a")).unwrap();
    assert_eq!(found(&job), ["changed h", "missing a"]);
}

#[test]
fn a_file_that_many_copies_stand_for_links_to_is_read_once() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("tree");
    std::fs::create_dir_all(&root).unwrap();
    let log = ManifestLog::create(&temp.path().join("m"), false, &Handle::new()).unwrap();
    let content = vec![7; CHUNK as usize];
    std::fs::write(root.join("a"), &content).unwrap();
    log.add(record("a", RecordKind::File { size: CHUNK }, None));
    for number in 0..20 {
        let name = format!("copy{number}");
        std::fs::copy(root.join("a"), root.join(&name)).unwrap();
        log.add(record(&name, RecordKind::HardLink { to: b"a".to_vec() }, None));
    }
    log.finish(&Report::default()).unwrap();
    let job = VerifyJob { list: temp.path().join("m"), directory: root.clone(), extra: false, ..tree().1 };
    let (report, error) = verify(&job, &Handle::new(), &mut |finding| panic!("{finding:?}"));
    assert!(report.ok && error.is_none(), "{report:?}");
    assert_eq!(report.bytes, 21 * CHUNK, "20 copies, and the file once");
    // A change of the file is found for each of them.
    std::fs::write(root.join("a"), vec![8; CHUNK as usize]).unwrap();
    assert_eq!(found(&job).len(), 20);
}

#[test]
fn absolute_paths_of_a_list_may_lie_in_the_directory() {
    let (temp, job) = tree();
    let by_link = temp.path().join("link");
    symlink(&job.directory, &by_link).unwrap();
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let list = temp.path().join("list");
    std::fs::write(&list, format!("{digest}  {}/a\n", job.directory.display())).unwrap();
    for directory in [job.directory.clone(), by_link] {
        assert_eq!(found(&VerifyJob { list: list.clone(), extra: false, directory, ..job.clone() }), [""; 0]);
    }
}

#[test]
fn the_progress_counts_what_is_read_for_any_kind_of_digest() {
    let (temp, job) = tree();
    let list = temp.path().join("list");
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    std::fs::write(&list, format!("{digest}  a\n")).unwrap();
    for (list, extra) in [(job.list.clone(), true), (list, false)] {
        let handle = Handle::new();
        let job = VerifyJob { list, extra, ..job.clone() };
        let (report, error) = verify(&job, &handle, &mut |finding| panic!("{finding:?}"));
        assert!(error.is_none() && report.bytes > 0, "{report:?}");
        assert_eq!(handle.counts().bytes_done.load(Relaxed), report.bytes);
    }
}

#[test]
fn nothing_outside_is_looked_at() {
    let (temp, job) = tree();
    let list = temp.path().join("list");
    let hex = "00".repeat(32);
    std::fs::write(&list, format!("{hex}  ../m\n{hex}  /etc/passwd\n")).unwrap();
    let job = VerifyJob { list, extra: false, ..job };
    assert_eq!(found(&job), ["unreadable ../m", "unreadable /etc/passwd"]);
}

#[test]
fn a_list_that_is_none_is_an_error_and_one_that_was_cut_says_so() {
    let (temp, job) = tree();
    let with = |text: &[u8]| {
        let list = temp.path().join("list");
        std::fs::write(&list, text).unwrap();
        verify(&VerifyJob { list, extra: false, ..job.clone() }, &Handle::new(), &mut |_| {})
    };
    for text in [&b""[..], b"hello\n", b"{\"manifest\":1}\n{}\n", b"{\"manifest\":7}\n"] {
        assert!(with(text).1.is_some_and(|error| error.code() == Code::BadManifest), "{}", escape(text));
    }
    let whole = std::fs::read(&job.list).unwrap();
    for cut in [whole.len() - 3, whole.len() / 2] {
        let (report, error) = with(&whole[..cut]);
        assert!(error.is_none() && report.ok && report.warnings.len() == 1, "{report:?}");
    }
}

#[test]
fn the_words_of_differences_do_not_change() {
    let all = [Difference::Missing, Difference::Changed, Difference::Extra, Difference::Unreadable];
    assert_eq!(all.map(Difference::name), ["missing", "changed", "extra", "unreadable"]);
}
