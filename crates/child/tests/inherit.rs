//! These tests have a process of their own, as they make descriptors inheritable and ignore signals, which
//! would disturb others.
#![allow(unsafe_code, reason = "only unsafe calls can set up what the child must not inherit")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("a shell is there");
    String::from_utf8(output.stdout).expect("a shell says text")
}

fn line<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap_or_else(|| panic!("no {key} in {text}"))
        .trim()
}

#[test]
fn a_program_starts_with_three_descriptors_and_default_signals() {
    let file = File::open("/dev/null").unwrap();
    // The copy, above the descriptors that a shell uses, is inheritable.
    // SAFETY: the descriptor is open; the calls take numbers.
    let copy = unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
        libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 50)
    };
    assert!(copy >= 50);
    let script = "cat /proc/self/status; echo; for n in /proc/$$/fd/*; do echo fd ${n##*/}; done";
    let inherited = run(Command::new("/bin/sh").args(["-c", script]));
    let leaked = format!("fd {copy}\n");
    assert!(inherited.contains(&leaked), "the test's own premise: {inherited}");
    assert_ne!(line(&inherited, "SigIgn:"), "0000000000000000", "the test's own premise");

    let mut command = Command::new("/bin/sh");
    let clean = run(farhaul_child::inherit_nothing(command.args(["-c", script])));
    // The shell holds a directory open while it expands the pattern, and `cat` is its child.
    let descriptors: Vec<_> = clean.lines().filter(|line| line.starts_with("fd ")).collect();
    assert!(!clean.contains(&leaked), "{clean}");
    assert!(descriptors.len() <= 4 && descriptors.starts_with(&["fd 0", "fd 1", "fd 2"]), "{descriptors:?}");
    assert_eq!(line(&clean, "SigIgn:"), "0000000000000000");
    assert_eq!(line(&clean, "SigBlk:"), "0000000000000000");
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let mut command = Command::new("/nonexistent/program");
    let error = farhaul_child::inherit_nothing(&mut command).spawn().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
