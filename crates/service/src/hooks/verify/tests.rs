use std::fs::{self, File};
use std::time::Instant;

use super::*;

fn hook(script: &str) -> VerifyHook {
    VerifyHook {
        name: "scan".into(),
        program: Program { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()] },
        limit: Duration::from_secs(20),
        at_once: 2,
        files: 1,
        quarantine: None,
    }
}

fn judge(hooks: &[VerifyHook], contents: &[&str]) -> Vec<CheckVerdict> {
    judge_while(hooks, contents, &|| true).expect("they are wanted")
}

fn judge_while(
    hooks: &[VerifyHook],
    contents: &[&str],
    is_wanted: &dyn Fn() -> bool,
) -> Option<Vec<CheckVerdict>> {
    let folder = tempfile::tempdir().unwrap();
    let opened: Vec<OwnedFd> = contents
        .iter()
        .enumerate()
        .map(|(index, content)| {
            let path = folder.path().join(index.to_string());
            fs::write(&path, content).unwrap();
            File::open(path).unwrap().into()
        })
        .collect();
    let names: Vec<String> = (0..contents.len()).map(|index| format!("d/f\n{index}")).collect();
    let files: Vec<_> = opened
        .iter()
        .zip(&names)
        .zip(contents)
        .map(|((opened, name), content)| UncheckedFile {
            content: opened,
            path: name.as_bytes(),
            directory: b"/srv",
            size: content.len() as u64,
            digest: Some([7; 32]),
        })
        .collect();
    let all = VerifyHooks::default();
    all.set(hooks);
    all.judge_for(&files, ("SHA256:abc", Some("4k2m")), is_wanted)
}

fn refused(why: &str) -> CheckVerdict {
    CheckVerdict::Refused(why.into())
}

fn failed(why: &str) -> CheckVerdict {
    CheckVerdict::Failed(why.into())
}

#[test]
fn the_exit_code_judges_one_file_and_the_last_line_says_why() {
    let script =
        "cat \"$FARHAUL_CONTENT\" | grep -q virus && { echo note; echo Virus FOUND; exit 1; }; exit 0";
    assert_eq!(
        judge(&[hook(script)], &["fine", "a virus"]),
        [CheckVerdict::Accepted, refused("Virus FOUND")]
    );
    for (script, expected) in [
        ("exit 3", "exited with 3 after"),
        ("printf 'a\\033[31mb\\r\\n'; exit 1", "a [31mb"),
        ("head -c 100000 /dev/zero | tr '\\0' x; exit 1", "xxx"),
    ] {
        let [CheckVerdict::Refused(why)] = &judge(&[hook(script)], &["x"])[..] else { panic!("{script}") };
        assert!(why.starts_with(expected) && why.chars().count() <= 310, "{why}");
    }
}

#[test]
fn a_program_that_does_not_come_to_a_verdict_accepts_nothing() {
    let limited = VerifyHook { limit: Duration::from_secs(1), ..hook("sleep 60") };
    let absent = VerifyHook { program: Program { program: "/nonexistent".into(), args: vec![] }, ..hook("") };
    for (hook, expected) in [
        (hook("kill -SEGV $$"), "the program ended by signal 11"),
        (hook("echo clamd is away; exit 75"), "clamd is away"),
        (hook("exec /nonexistent"), "nonexistent"),
        (limited, "the program took longer than its limit of 1 s"),
        (absent, "cannot run /nonexistent"),
    ] {
        let [CheckVerdict::Failed(why)] = &judge(&[hook], &["x"])[..] else { panic!("{expected}") };
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn a_program_for_several_files_answers_line_by_line() {
    let several = |script: &str| VerifyHook { files: 10, ..hook(script) };
    let reader = "n=0; while read -r line; do echo \"note $n\"; \
                  case $n in 1) echo '{\"id\":1,\"accept\":false,\"reason\":\"no\\u001bschema\"}';; \
                  2) ;; *) echo \"{\\\"id\\\":$n,\\\"accept\\\":true}\";; esac; n=$((n+1)); done";
    let unanswered = failed("the program has not answered for it");
    assert_eq!(
        judge(&[several(reader)], &["a", "b", "c", "d"]),
        [CheckVerdict::Accepted, refused("no schema"), unanswered.clone(), CheckVerdict::Accepted]
    );
    // A refusal stands, whatever else is said; answers about other files do not count; a bad end spoils all.
    let both = "echo '{\"id\":0,\"accept\":false}'; echo '{\"id\":0,\"accept\":true}'; echo '{\"id\":9,\"accept\":true}'";
    assert_eq!(judge(&[several(both)], &["a", "b"]), [refused("it gave no reason"), unanswered]);
    let broken = "echo '{\"id\":0,\"accept\":true}'; exit 1";
    assert!(matches!(&judge(&[several(broken)], &["a"])[..], [CheckVerdict::Failed(_)]));
}

#[test]
fn a_program_hears_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (line, variables) = (folder.path().join("line"), folder.path().join("env"));
    let script = format!("cat > {}; env > {}", line.display(), variables.display());
    assert_eq!(judge(&[hook(&script)], &["abc"]), [CheckVerdict::Accepted]);
    let told: serde_json::Value = serde_json::from_str(&fs::read_to_string(line).unwrap()).unwrap();
    let digest = format!("blake3-tree-1MiB:{}", "07".repeat(32));
    for (name, expected) in [
        ("event", "verify"),
        ("path", "/srv/d/f\\n0"),
        ("name", "f\\n0"),
        ("sender", "SHA256:abc"),
        ("job", "4k2m"),
        ("digest", &digest),
    ] {
        assert_eq!(told[name], expected, "{told}");
    }
    assert_eq!((&told["id"], &told["bytes"], &told["schema"]), (&0.into(), &3.into(), &1.into()));
    assert!(told["content"].as_str().is_some_and(|path| path.starts_with("/proc/")), "{told}");
    let variables = fs::read_to_string(variables).unwrap();
    for line in
        ["EVENT=verify", "PATH=/srv/d/f\\n0", "NAME=f\\n0", "BYTES=3", "SENDER=SHA256:abc", "JOB=4k2m"]
    {
        assert!(variables.lines().any(|there| there == format!("FARHAUL_{line}")), "{line} in {variables}");
    }
}

#[test]
fn a_later_program_does_not_get_what_an_earlier_one_has_refused() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let first = hook("grep -q bad \"$FARHAUL_CONTENT\" && { echo bad; exit 1; }; exit 0");
    // It reads by the descriptor itself, which the first one may have moved.
    let second = hook(&format!("cat \"$FARHAUL_CONTENT\" >> {}", seen.display()));
    assert_eq!(judge(&[first, second], &["bad", "good"]), [refused("bad"), CheckVerdict::Accepted]);
    assert_eq!(fs::read_to_string(seen).unwrap(), "good");
}

#[test]
fn nobody_waits_for_a_check_that_is_not_wanted_any_more() {
    let began = Instant::now();
    let is_wanted = || began.elapsed() < Duration::from_millis(300);
    assert_eq!(judge_while(&[hook("sleep 60")], &["x"], &is_wanted), None);
    assert!(began.elapsed() < Duration::from_secs(10));
    let busy = ProgramSlots { free: Mutex::new(0), given_back: Condvar::new() };
    assert!(busy.take(&|| false).is_none());
}

#[test]
fn what_is_refused_goes_to_quarantine_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let keeping = VerifyHook { quarantine: Some(folder.path().into()), ..hook("echo no; exit 1") };
    assert_eq!(judge(std::slice::from_ref(&keeping), &["evil", "evil too"]), [refused("no"), refused("no")]);
    let mut kept: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    kept.sort();
    assert_eq!(kept.len(), 4, "{kept:?}");
    assert!(kept.iter().any(|path| fs::read_to_string(path).unwrap() == "evil"));
    let note: serde_json::Value = serde_json::from_str(
        &fs::read_to_string(
            kept.iter().find(|path| path.extension().is_some_and(|end| end == "json")).unwrap(),
        )
        .unwrap(),
    )
    .unwrap();
    assert_eq!((&note["hook"], &note["reason"]), (&"scan".into(), &"no".into()));
    assert_eq!(note["file"]["sender"], "SHA256:abc");
    // Without room for it the file is refused all the same.
    let elsewhere = VerifyHook { quarantine: Some("/nonexistent".into()), ..keeping };
    assert_eq!(judge(&[elsewhere], &["evil"]), [refused("no")]);
}
