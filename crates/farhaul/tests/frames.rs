//! Runs the example `frames` as two processes: one listens on a port, or ssh starts it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const FRAMES: u64 = 150;

/// Returns the path of the example, which cargo builds beside the tests.
fn example() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples/frames");
    assert!(path.exists(), "cargo build -p farhaul --examples makes {}", path.display());
    path
}

struct RunningProcess(Child);

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a command that runs the example with `folder` as its home and no other variables than PATH.
fn command(folder: &Path) -> Command {
    let mut command = Command::new(example());
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("HOME", folder).env("FRAMES_KEYS", folder);
    command
}

fn send(folder: &Path, args: &[&str], ssh: Option<&Path>) -> Output {
    let mut command = command(folder);
    command.arg("send").args(args).arg(FRAMES.to_string());
    if let Some(ssh) = ssh {
        command.env("FRAMES_SSH", ssh);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(&format!("sent {FRAMES} frames")));
    output
}

#[test]
fn frames_arrive_in_another_process_that_listens() {
    let folder = tempfile::tempdir().unwrap();
    farhaul::target::keygen(&folder.path().join("sender"), "detector").unwrap();
    let authorized = folder.path().join("sender.pub");
    let mut receiving = command(folder.path());
    receiving.args(["receive", "127.0.0.1:0", authorized.to_str().unwrap()]);
    let receiving = receiving.stdout(Stdio::piped()).spawn().unwrap();
    let mut receiving = RunningProcess(receiving);
    let mut lines = BufReader::new(receiving.0.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    let [_, address, fingerprint] = first.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{first}")
    };
    send(folder.path(), &[address, fingerprint], None);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(receiving.0.wait().unwrap().success());
    assert!(rest.contains(&format!("received {FRAMES} frames")), "{rest}");
}

#[test]
fn frames_arrive_in_a_program_that_ssh_starts() {
    let folder = tempfile::tempdir().unwrap();
    // This stand-in for ssh says that the host is this one, and runs the remote command here.
    let ssh = folder.path().join("ssh");
    let script = "#!/bin/sh\n\
        if [ \"$1\" = -G ]; then echo user x; echo hostname 127.0.0.1; exit 0; fi\n\
        while [ \"$1\" != -- ]; do shift; done\n\
        SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$3\"\n";
    std::fs::write(&ssh, script).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = send(folder.path(), &["ssh:detector", example().to_str().unwrap()], Some(&ssh));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains(&format!("received {FRAMES} frames")), "{told}");
}
