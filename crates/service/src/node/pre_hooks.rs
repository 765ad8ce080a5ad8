//! Runs programs before an attempt begins, in the attempt's own thread.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};

use super::courier::CourierBell;
use super::{Node, Signal, programs};
use crate::hooks::{self, Hook, HookMessage, ProgramStop};
use farhaul_api::JobId;

/// How long an attempt waits for the store.
const KNOWN_TIME: Duration = Duration::from_secs(10);

/// The programs to run before an attempt.
pub(super) struct PreHooks {
    pub(super) job: JobId,
    pub(super) hooks: Vec<(Hook, HookMessage)>,
    pub(super) stop: Option<ProgramStop>,
    /// Set if hooks get the files of the run.
    pub(super) renewal: Option<ManifestRenewal>,
    pub(super) to_conductor: Sender<Signal>,
}

/// An attempt is about to begin the manifest of its run anew. As long as this lives, no feed reads the
/// manifest: the feed that the store has begun for this attempt must not tell what an earlier attempt wrote.
pub(super) struct ManifestRenewal {
    job: JobId,
    manifest: PathBuf,
    renewals: Arc<Mutex<BTreeSet<JobId>>>,
    bell: CourierBell,
    /// Receives a message once the store knows of this attempt: then feeds of earlier attempts are over.
    known: Receiver<()>,
}

impl ManifestRenewal {
    /// Call it before the store hears of the attempt.
    pub(super) fn begin(node: &Node, job: JobId, manifest: PathBuf, known: Receiver<()>) -> ManifestRenewal {
        node.renewals.lock().in_any_case().insert(job);
        ManifestRenewal { job, manifest, renewals: node.renewals.clone(), bell: node.bell.clone(), known }
    }

    /// Waits until the store knows of the attempt, and removes the manifest of an earlier one.
    fn finish(self) {
        // If the store cannot be written, the job goes on after a while; hooks may then get a file twice.
        let _ = self.known.recv_timeout(KNOWN_TIME);
        if let Err(error) = std::fs::remove_file(&self.manifest)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(job = %self.job, "cannot remove {}: {error}", self.manifest.display());
        }
    }
}

impl Drop for ManifestRenewal {
    fn drop(&mut self) {
        self.renewals.lock().in_any_case().remove(&self.job);
        self.bell.ring();
    }
}

impl PreHooks {
    /// Runs the programs one after the other. If one fails, the attempt does not begin.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        if let Some(renewal) = self.renewal.take() {
            renewal.finish();
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
