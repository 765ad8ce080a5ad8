//! Runs programs before an attempt begins, in the attempt's own thread.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use farhaul_session::{Code, Error};

use super::{Signal, programs};
use crate::hooks::{self, Hook, HookMessage, ProgramStop};
use crate::job::JobId;

/// How long an attempt waits for the store.
const KNOWN_TIME: Duration = Duration::from_secs(10);

/// The programs to run before an attempt.
pub(super) struct PreHooks {
    pub(super) job: JobId,
    pub(super) hooks: Vec<(Hook, HookMessage)>,
    pub(super) stop: Option<ProgramStop>,
    /// Set if hooks get the files of the run. It receives a message once the store knows of this attempt:
    /// from then on no feed reads the manifest of an earlier attempt, which this one is about to overwrite.
    pub(super) known: Option<Receiver<()>>,
    pub(super) to_conductor: Sender<Signal>,
}

impl PreHooks {
    /// Runs the programs one after the other. If one fails, the attempt does not begin.
    pub(super) fn run(&self) -> Result<(), Error> {
        if let Some(known) = &self.known {
            // If the store cannot be written, the job goes on after a while; hooks may then get a file twice.
            let _ = known.recv_timeout(KNOWN_TIME);
        }
        for (hook, message) in &self.hooks {
            let input = serde_json::to_value(message)
                .map_err(|error| Error::bug(format!("a hook's message: {error}")))?;
            let ran =
                hooks::run(&hook.program(), &input, &message.variables(), hook.limit(), self.stop.as_ref());
            let finished = ran.map_err(|error| refused(error.what()))?;
            let text = programs::line(hook.on, &hook.program, &finished);
            let event = programs::event(&message.delivery, &finished);
            let said = Signal::Said { job: self.job, level: programs::level(&finished), text, event };
            // If the conductor has ended, nobody writes the log any more.
            let _ = self.to_conductor.send(said);
            if finished.stopped {
                return Err(Error::interrupted());
            }
            if !finished.is_success() {
                let why = programs::last_line(&finished).unwrap_or_else(|| finished.verdict());
                return Err(refused(&format!("{}: {why}", hook.program.display())));
            }
        }
        Ok(())
    }
}

fn refused(what: &str) -> Error {
    Error::new(Code::HookFailed, format!("a pre hook has kept the job from beginning: {what}"))
}
