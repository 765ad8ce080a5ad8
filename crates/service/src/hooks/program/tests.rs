use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use serde_json::{Value, json};

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn sh(script: &str) -> Program {
    Program { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()] }
}

fn run_sh(script: &str, input: &Value, limit: Duration) -> ProgramEnd {
    run(&sh(script), input, &[], limit, None).expect("a shell is there")
}

fn text(finished: &ProgramEnd) -> String {
    String::from_utf8_lossy(&finished.output).into_owned()
}

/// The living processes of this group, from /proc.
fn members(group: i32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<_> = rest.split(' ').collect();
        // Zombies whose parent is not this process are reaped by the system's first process.
        if fields[2] == group.to_string() && fields[0] != "Z" {
            found.push(stat);
        }
    }
    found
}

/// A process that was killed may take a while to end on a busy machine.
fn until_gone(group: i32) {
    for _ in 0..1000 {
        if members(group).is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("left: {:?}", members(group));
}

#[test]
fn output_and_exit_of_a_program_are_reported() {
    let finished = run_sh("cat; echo out; echo err >&2; exit 3", &json!({"event": "post"}), LONG);
    assert_eq!(text(&finished), "{\"event\":\"post\"}\nout\nerr\n");
    assert_eq!((finished.status, finished.signal), (Some(3), None));
    assert!(!finished.is_success() && !finished.timed_out && !finished.stopped);
    assert!(finished.verdict().starts_with("exited with 3"), "{}", finished.verdict());
    assert!(run_sh("true", &Value::Null, LONG).is_success());

    let killed = run_sh("kill -SEGV $$", &Value::Null, LONG);
    assert_eq!((killed.status, killed.signal), (None, Some(11)));
}

#[test]
fn a_program_that_reads_nothing_causes_no_deadlock() {
    let input = Value::String("x".repeat(1 << 20));
    assert!(run_sh("exit 0", &input, LONG).is_success());
    assert!(run_sh("exec <&-; echo closed", &input, LONG).is_success());
    // The program writes more than a pipe holds before it reads.
    let finished = run_sh("head -c 300000 /dev/zero; wc -c", &input, LONG);
    assert!(text(&finished).ends_with(&format!("{}\n", (1 << 20) + 3)), "{}", finished.output.len());
}

#[test]
fn a_program_is_asked_to_end_at_its_limit() {
    let limit = Duration::from_millis(300);
    let finished =
        run_sh("trap 'echo tidied; exit 0' TERM; while :; do sleep 0.05; done", &Value::Null, limit);
    assert!(finished.timed_out && !finished.is_success() && finished.took >= limit, "{finished:?}");
    // The shell may also report that its own child was killed.
    assert!(finished.status == Some(0) && text(&finished).ends_with("tidied\n"), "{finished:?}");
}

#[test]
fn a_program_that_ignores_sigterm_is_killed() {
    let limit = Duration::from_millis(200);
    let finished = run_sh("trap '' TERM; while :; do sleep 0.05; done", &Value::Null, limit);
    assert_eq!((finished.timed_out, finished.signal), (true, Some(9)), "{finished:?}");
    assert!(finished.took >= limit + GRACE, "{finished:?}");
}

#[test]
fn no_process_is_left_in_the_group() {
    // The grandchildren hold the output open; one of them ignores SIGTERM. A run that waited for them would
    // end at its limit.
    let script = "sleep 1000 & (trap '' TERM; sleep 1000; sleep 1000) & echo $$";
    let finished = run_sh(script, &Value::Null, LONG);
    assert!(finished.is_success(), "{finished:?}");
    let group = text(&finished).trim().parse().unwrap();
    assert!(group > 1);
    until_gone(group);
}

#[test]
fn a_grandchild_that_has_left_the_group_delays_nothing() {
    // It says its group once it has left the program's, and keeps the program's standard error open.
    let script = r#"echo "$(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null' &)""#;
    let finished = run_sh(script, &Value::Null, LONG);
    assert!(finished.is_success(), "{finished:?}");
    let group = text(&finished).trim().parse().unwrap();
    let left = members(group);
    kill_process_group(Pid::from_raw(group).unwrap(), Signal::KILL).unwrap();
    assert_eq!(left.len(), 1, "the run has ended before it: {left:?}");
}

#[test]
fn the_end_of_endless_output_is_kept() {
    let finished = run_sh("exec yes 0123456789", &Value::Null, Duration::from_millis(300));
    assert!(finished.timed_out && finished.signal == Some(15), "{finished:?}");
    assert_eq!(finished.output.len(), OUTPUT_MAX);
    assert!(finished.output_bytes > OUTPUT_MAX as u64);

    let finished = run_sh("seq 100000; echo the end", &Value::Null, LONG);
    assert!(text(&finished).ends_with("99999\n100000\nthe end\n"));
    assert_eq!(finished.output.len(), OUTPUT_MAX);
}

#[test]
fn the_tail_is_the_end_of_pieces_of_any_size() {
    let all: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    for size in [1, 7, 4096, OUTPUT_MAX - 1, OUTPUT_MAX, OUTPUT_MAX + 1, 100_000] {
        let mut tail = Tail { bytes: Vec::new(), count: 0, len_max: OUTPUT_MAX };
        all.chunks(size).for_each(|piece| tail.push(piece));
        assert!(tail.bytes.len() <= 2 * OUTPUT_MAX);
        tail.trim(OUTPUT_MAX);
        assert!(tail.bytes == all[all.len() - OUTPUT_MAX..] && tail.count == all.len() as u64, "{size}");
    }
}

#[test]
fn a_program_inherits_three_descriptors_and_a_clean_environment() {
    let variables = [("FARHAUL_EVENT".to_string(), "post".to_string())];
    let script = "for n in /proc/$$/fd/*; do echo fd ${n##*/}; done; cat /proc/self/status; env; pwd";
    let finished = run(&sh(script), &Value::Null, &variables, LONG, None).unwrap();
    let text = text(&finished);
    let descriptors: Vec<_> = text.lines().filter(|line| line.starts_with("fd ")).collect();
    // The shell itself has the directory open that it lists.
    assert!(descriptors.len() <= 4 && descriptors.starts_with(&["fd 0", "fd 1", "fd 2"]), "{descriptors:?}");
    assert!(text.contains("SigBlk:\t0000000000000000\n"), "{text}");
    assert!(text.contains("SigIgn:\t0000000000000000\n"), "{text}");
    assert!(text.contains("\nFARHAUL_EVENT=post\n") && text.contains("\n/\n"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with("fd ") && !line.contains('\t')) {
        let Some((name, _)) = line.split_once('=') else { continue };
        // The shell sets the last three itself.
        let known = ["PATH", "HOME", "LANG", "FARHAUL_EVENT", "PWD", "SHLVL", "_", "OLDPWD"];
        assert!(known.contains(&name) || name.starts_with("LC_"), "{line}");
    }
}

#[test]
fn only_few_variables_of_the_environment_are_passed_on() {
    let ours = [("PATH", "/here"), ("LC_ALL", "C"), ("FARHAUL_TOKEN", "secret"), ("LD_PRELOAD", "x.so")];
    let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let variables = [("FARHAUL_JOB".to_string(), "7".to_string())];
    let environment = environment(ours.into_iter(), &variables);
    // Of two variables with the same name, the later one counts.
    let names: Vec<_> = environment.iter().map(|(name, _)| name.to_str().unwrap()).collect();
    assert_eq!(names, ["PATH", "PATH", "LC_ALL", "FARHAUL_JOB"]);
}

#[test]
fn a_run_can_be_stopped() {
    let stop = ProgramStop::new().unwrap();
    let other = stop.clone();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        other.stop();
    });
    let finished = run(&sh("sleep 1000"), &Value::Null, &[], LONG, Some(&stop)).unwrap();
    stopper.join().unwrap();
    assert!(finished.stopped && !finished.timed_out && finished.signal == Some(15), "{finished:?}");
    let again = run(&sh("sleep 1000"), &Value::Null, &[], LONG, Some(&stop)).unwrap();
    assert!(again.stopped, "a later run is stopped, too");
}

#[test]
fn an_error_names_the_program_that_cannot_be_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let cases = [
        (directory.path().join("none"), "no such file"),
        (directory.path().to_path_buf(), "not a file"),
        (file("plain", 0o644, "#!/bin/sh\n"), "not executable"),
        (file("open", 0o777, "#!/bin/sh\n"), "anybody may write to it"),
        (file("interpreter", 0o755, "#!/nonexistent/interpreter\n"), "no such file"),
        (PathBuf::from("bin/true"), "absolute"),
    ];
    for (program, expected) in cases {
        let error = run(&Program { program: program.clone(), args: vec![] }, &Value::Null, &[], LONG, None);
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(program.to_str().unwrap()), "{error}");
    }
    let zero = Program { program: "/bin/true".into(), args: vec!["a\0b".into()] };
    assert!(run(&zero, &Value::Null, &[], LONG, None).is_err());
}

#[test]
fn a_program_reads_a_file_that_it_is_given_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    fs::write(&path, "genome").unwrap();
    let open = || OwnedFd::from(fs::File::open(&path).unwrap());
    let (given, _other) = (open(), open());
    let number = std::os::fd::AsRawFd::as_raw_fd(&given);
    let script = format!(
        "read path; cat $path /proc/self/fd/{number}; ls -l /proc/$$/fd | grep -c {}",
        path.display()
    );
    let input = |pid| format!("/proc/{pid}/fd/{number}\n").into_bytes();
    let passed = PassedFiles { files: vec![given], input: &input };
    let watch = RunWatch { stop: None, is_wanted: &|| true, output_max: OUTPUT_MAX };
    let finished = run_with(&sh(&script), passed, &[], LONG, watch).unwrap();
    assert_eq!(text(&finished), "genomegenome1\n");
}

#[test]
fn a_program_that_nobody_wants_any_more_is_ended_with_its_group() {
    let began = Instant::now();
    let is_wanted = || began.elapsed() < Duration::from_millis(300);
    let passed = PassedFiles { files: Vec::new(), input: &|_| Vec::new() };
    let watch = RunWatch { stop: None, is_wanted: &is_wanted, output_max: OUTPUT_MAX };
    let finished = run_with(&sh("sleep 77 & echo $$; wait"), passed, &[], LONG, watch).unwrap();
    assert!(finished.stopped && began.elapsed() < LONG, "{finished:?}");
    let group: i32 = text(&finished).trim().parse().unwrap();
    until_gone(group);
}
