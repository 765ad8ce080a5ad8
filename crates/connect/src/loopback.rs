//! Both ends of a session over ssh in one process, for tests of this crate and of services.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use farhaul_session::Handle;
use farhaul_words::Error;

use super::{AdmissionReply, EstablishedSession, HelloParams, SshTarget, endpoint, ssh_connect};

/// The client's end, the far end, and the directory that both need.
pub type BothEnds = (Result<EstablishedSession, Error>, Result<EstablishedSession, Error>, tempfile::TempDir);

/// A program that stands in for ssh. It answers `-G` with a name, and otherwise runs `body`.
pub(crate) fn fake_ssh(folder: &Path, body: &str) -> SshTarget {
    let program = folder.join("ssh");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = -G ]; then echo user x; echo hostname 127.0.0.1; exit 0; fi\n{body}\n"
    );
    let mut file = File::create(&program).unwrap();
    file.write_all(script.as_bytes()).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(file);
    SshTarget { host: "alias".into(), program, ..SshTarget::default() }
}

/// Runs both ends, joined by a stand-in for ssh that copies bytes.
pub fn both_ends_of(params: HelloParams) -> BothEnds {
    let folder = tempfile::tempdir().unwrap();
    let (to, from) = (folder.path().join("to"), folder.path().join("from"));
    for fifo in [&to, &from] {
        assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    }
    let target = fake_ssh(
        folder.path(),
        &format!("exec 3<&0\ncat <&3 >{} &\nexec cat {} 3<&-", to.display(), from.display()),
    );
    let far = std::thread::spawn(move || {
        let stdin = File::open(to).unwrap();
        let stdout = OpenOptions::new().write(true).open(from).unwrap();
        let connection = "127.0.0.1 50000 127.0.0.1 22".to_string();
        endpoint::establish(stdin.into(), stdout.into(), Some(connection), None, &|_| {
            Ok(AdmissionReply::default())
        })
    });
    let near = ssh_connect(&target, params, &Handle::new());
    (near, far.join().unwrap(), folder)
}
