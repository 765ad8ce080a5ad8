//! A farhaul on another host that ssh has started for something else than a session: questions and answers on its pipes.
//!
//! Always true: everything travels in the frames of the hello, so a shell that prints something is told apart from a
//! farhaul that answers; dropped, it closes the far end's standard input, which is how that end knows.

use std::io;
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout};
use std::thread::JoinHandle;

use farhaul_session::error::Error;
use farhaul_session::setup::ControlProcess;
use farhaul_text::printable;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hello;
use super::hello::HelloError;
use super::ssh::{SshTarget, candidate_addresses, look_up, start, why};

/// The near end of such a program's pipes.
pub struct RemoteProgram {
    // Before `process`: it waits for ssh, which ends once these are closed.
    stdin: ChildStdin,
    stdout: ChildStdout,
    process: ControlProcess,
    target: SshTarget,
    addresses: Option<JoinHandle<Vec<SocketAddr>>>,
}

impl RemoteProgram {
    /// Starts `farhaul VERB` on the target. The verb is for a shell, so it must be a constant.
    pub fn start(target: &SshTarget, verb: &'static str) -> Result<RemoteProgram, Error> {
        target.checked()?;
        let addresses = look_up(target.clone());
        let mut child = start(target, verb)?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let process = ControlProcess::new(child);
        let (Some(stdin), Some(stdout)) = pipes else {
            return Err(Error::of_host("ssh has no pipes", io::ErrorKind::BrokenPipe.into()));
        };
        Ok(RemoteProgram { stdin, stdout, process, target: target.clone(), addresses })
    }

    /// Sends a question and waits for its answer. The first may last as long as ssh asks its user for something.
    pub fn ask<Q: Serialize, A: DeserializeOwned>(&mut self, question: &Q) -> Result<A, Error> {
        // A far end that could not start has closed its pipe; what it printed instead says more than this error.
        let written = hello::write_frame(&mut self.stdin, question);
        let answer = hello::read_frame(&mut self.stdout).and_then(|body| {
            written?;
            serde_json::from_slice(&body)
                .map_err(|error| HelloError::Malformed(printable(error.to_string().as_bytes(), 120)))
        });
        answer.map_err(|error| why(&self.target, error.into(), &mut self.process))
    }

    /// Where the host may be reached by UDP, given the `SSH_CONNECTION` that it sees.
    pub fn addresses(&mut self, ssh_connection: Option<&str>) -> Vec<SocketAddr> {
        candidate_addresses(self.addresses.take(), ssh_connection)
    }

    /// As the user named it.
    pub fn host(&self) -> &str {
        &self.target.host
    }
}
