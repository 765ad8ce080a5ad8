//! A farhaul on another host that ssh has started for something other than a session: questions and answers
//! go through its pipes.
//!
//! Always true: everything travels in the frames of the hello, so that a shell that prints something is told
//! apart from a farhaul that answers. Dropping it closes the far end's standard input, which ends the far
//! end.

use std::io;
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use farhaul_session::handle::Handle;
use farhaul_session::setup::ControlProcess;
use farhaul_text::printable;
use farhaul_words::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::dial_requester::{DialRequester, ThreadTask};
use super::hello;
use super::hello::HelloError;
use super::ssh::answer::{self, Answer, Wait};
use super::ssh::messages::MessageTail;
use super::ssh::{HelloOrError, SshTarget, candidate_addresses, look_up, start, why};

/// The near end of such a program's pipes.
pub struct RemoteProgram {
    // Declared before `process`, which waits for ssh; ssh ends once these are closed.
    stdin: ChildStdin,
    stdout: ChildStdout,
    process: ControlProcess,
    messages: Option<MessageTail>,
    /// The id of the ssh process.
    ssh: u32,
    target: SshTarget,
    addresses: Option<ThreadTask<Vec<SocketAddr>>>,
    /// How long the next answer may take. It is a limit only for the first one, which shows that the far end
    /// is there.
    most: Option<Duration>,
}

impl RemoteProgram {
    /// Starts `farhaul VERB` on the target. The verb goes through a shell, so it must be a constant.
    pub fn start(target: &SshTarget, verb: &'static str) -> Result<RemoteProgram, Error> {
        target.checked()?;
        let addresses = look_up(target.clone(), &Handle::new());
        let mut child = start(target, verb)?;
        let (pipes, ssh) = ((child.stdin.take(), child.stdout.take()), child.id());
        let stderr = child.stderr.take();
        let process = ControlProcess::new(child);
        let messages = stderr.map(MessageTail::begin).transpose()?;
        let (Some(stdin), Some(stdout)) = pipes else {
            return Err(Error::of_host("ssh has no pipes", io::ErrorKind::BrokenPipe.into()));
        };
        let most = Some(target.answer_wait);
        let target = target.clone();
        Ok(RemoteProgram { stdin, stdout, process, messages, ssh, target, addresses, most })
    }

    /// Sends a question and waits for its answer, unless `requester` cancels. The first answer may take as long
    /// as ssh asks its user for something.
    pub fn ask<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        question: &Q,
        requester: &dyn DialRequester,
    ) -> Result<A, Error> {
        let frame = hello::encode(question)?;
        let most = self.most.take();
        let wait = Wait { requester, host: &self.target.host, ssh: self.ssh, most };
        // It is brought before the first question.
        let brought = match most {
            Some(_) => self.target.bring.serve((&mut self.stdin, &mut self.stdout), wait),
            None => Ok(()),
        };
        let answer = match brought.and_then(|()| {
            answer::ask((&mut self.stdin, &mut self.stdout), &frame, wait).map_err(HelloOrError::Hello)
        }) {
            Ok(Answer::Frame(body)) => serde_json::from_slice(&body)
                .map_err(|error| HelloError::Malformed(printable(error.to_string().as_bytes(), 120)).into()),
            Ok(Answer::None(ending)) => Err(HelloOrError::Unanswered(ending)),
            Err(error) => Err(error),
        };
        answer
            .map_err(|error| why(&self.target, error, (&mut self.process, self.messages.as_ref()), requester))
    }

    /// The addresses at which UDP may reach the host, given the `SSH_CONNECTION` that it sees.
    pub fn addresses(
        &mut self,
        ssh_connection: Option<&str>,
        requester: &dyn DialRequester,
    ) -> Result<Vec<SocketAddr>, Error> {
        candidate_addresses(self.addresses.take(), ssh_connection, requester)
    }

    /// The host as the user named it.
    pub fn host(&self) -> &str {
        &self.target.host
    }
}
