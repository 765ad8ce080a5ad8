//! Tests `farhaul config` and `farhaul audit` through the binary: what is written to which stream, and exit
//! codes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn farhaul(home: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    command.args(arguments).env_clear().env("HOME", home).envs(environment.iter().copied());
    command.stdin(Stdio::null()).output().expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("farhaul.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn what_holds_is_shown_with_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let path =
        file(folder.path(), "[serve]\nmax_rate = \"8G\"\n[webhooks]\nsecret_file = \"/etc/farhaul/hook\"\n");
    let show = ["config", "show", "--origin", "--config", &path];
    let output = farhaul(folder.path(), &show, &[("FARHAUL_SERVE_READ_ONLY", "yes")]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    for line in [
        format!("max_rate = \"8G\"  # {path}:2"),
        "read_only = true  # environment FARHAUL_SERVE_READ_ONLY".into(),
        "drain = \"30s\"  # default".into(),
        format!("secret_file = \"/etc/farhaul/hook\"  # {path}:4"),
    ] {
        assert!(text(&output.stdout).lines().any(|shown| shown == line), "{line}");
    }
    let output = farhaul(folder.path(), &["config", "show", "--json", "--config", &path], &[]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["values"]["serve.max_rate"]["origin"]["line"], 2);
    assert_eq!(farhaul(folder.path(), &["config", "check", "--config", &path], &[]).status.code(), Some(0));
}

#[test]
fn all_that_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "[serve]\nmax_rte = \"8G\"\nroot = \"srv\"\n");
    let lines = [
        format!("{path}:2: serve.max_rte: there is no such key; did you mean max_rate?"),
        format!("{path}:3: serve.root: expected an absolute path without \"..\", found \"srv\""),
    ];
    let output = farhaul(folder.path(), &["config", "check", "--config", &path], &[]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), ""));
    assert_eq!(text(&output.stdout).lines().collect::<Vec<_>>(), lines);
    let output = farhaul(folder.path(), &["config", "show", "--config", &path], &[]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    assert_eq!(text(&output.stderr).lines().collect::<Vec<_>>(), lines.map(|line| format!("error: {line}")));
    let output = farhaul(folder.path(), &["config", "check", "--json", "--config", &path], &[]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["ok"]), (Some(2), &false.into()));
    assert_eq!(
        (&json["faults"][0]["key"], &json["faults"][1]["origin"]["line"]),
        (&"serve.max_rte".into(), &3.into())
    );
}

#[test]
fn a_chain_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let first = "{\"time\":\"2026-01-01T00:00:00.000Z\",\"caller\":\"a\"}";
    std::fs::write(&log, format!("{first}\n{{\"time\":\"x\",\"previous\":\"00\"}}\n")).unwrap();
    let log = log.to_str().unwrap();
    let output = farhaul(folder.path(), &["audit", "check", log], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), format!("{log}:2: the line before it was changed or removed\n"));
    std::fs::write(log, format!("{first}\n")).unwrap();
    assert_eq!(farhaul(folder.path(), &["audit", "check", "--json", log], &[]).status.code(), Some(0));
    assert_eq!(farhaul(folder.path(), &["audit", "check", "/nonexistent"], &[]).status.code(), Some(6));
}

/// Starts the daemon from a shell as the service manager does: with descriptor 3, and the daemon's own pid in
/// the environment.
fn handed_over(home: &Path, environment: &str) -> (Option<i32>, String) {
    let script =
        format!("exec 3</dev/null; export {environment}; exec \"$0\" serve --root /nonexistent/root");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_farhaul")]).env_clear().env("HOME", home);
    // Tests may run as root.
    shell.env("FARHAUL_SERVE_ALLOW_ROOT", "true");
    let output = shell.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), text(&output.stderr).to_string())
}

#[test]
fn what_the_service_manager_hands_over_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (code, stderr) = handed_over(folder.path(), "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=udp");
    assert!(
        code == Some(2) && stderr.contains("passes a socket udp, which is not of the kind for that name"),
        "{code:?} {stderr}"
    );
    for wrong in [
        "LISTEN_PID=$$ LISTEN_FDS=many",
        "LISTEN_PID=$$ LISTEN_FDS=2",
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=a:b",
    ] {
        let (code, stderr) = handed_over(folder.path(), wrong);
        assert!(code == Some(2) && stderr.starts_with("error: cannot take the sockets"), "{code:?} {stderr}");
    }
    // The sockets are for another process.
    let (code, stderr) = handed_over(folder.path(), "LISTEN_PID=1 LISTEN_FDS=1 LISTEN_FDNAMES=udp");
    assert!(code == Some(6) && stderr.contains("/nonexistent/root"), "{code:?} {stderr}");
}
