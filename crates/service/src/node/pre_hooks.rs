//! The programs that are run before an attempt begins, in the attempt's own thread.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use farhaul_session::{Code, Error};

use super::{Signal, programs};
use crate::hooks::{self, Hook, HookMessage, ProgramStop};
use crate::job::JobId;

/// How long an attempt waits for the store.
const KNOWN_TIME: Duration = Duration::from_secs(10);

/// What is run before an attempt.
pub(super) struct PreHooks {
    pub(super) job: JobId,
    pub(super) hooks: Vec<(Hook, HookMessage)>,
    pub(super) stop: Option<ProgramStop>,
    /// Says that the store knows of the attempt, where hooks hear of its files: they hear nothing more of an earlier attempt's
    /// manifest, which this one is about to overwrite.
    pub(super) known: Option<Receiver<()>>,
    pub(super) to_conductor: Sender<Signal>,
}

impl PreHooks {
    /// Runs them one after the other. The first one that fails keeps the attempt from beginning.
    pub(super) fn run(&self) -> Result<(), Error> {
        if let Some(known) = &self.known {
            // A store that cannot be written holds no job up for longer: hooks may then hear of a file twice.
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
            // A conductor that has ended keeps no log either.
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
    Error::new(Code::HookFailed, format!("a pre hook has not let the job begin: {what}"))
}
