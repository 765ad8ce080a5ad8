//! What the store has of a job beside its row: its head and locations, and its document.
//!
//! Always true: no document is in memory for longer than a request or the start of a transfer takes.

use std::sync::Arc;

use farhaul_words::{Code, Error};

use super::{Active, Node, places};
use crate::access::{Caller, CallerDeed, JobPlaces};
use crate::job::{JobHead, JobSpec};
use crate::store::jobs::{self, JobDocument, JobFacts, StoredDocument};
use farhaul_api::JobId;
use farhaul_api::Scope;

/// The head and the locations of a document.
pub(super) fn facts_of(spec: &JobSpec, places: JobPlaces) -> JobFacts {
    JobFacts { head: JobHead::of(spec), places: Arc::new(places) }
}

/// The form in which the store keeps a document.
pub(super) fn form_of(document: JobDocument) -> Result<StoredDocument, Error> {
    let places = places::of_spec(&document.spec)?;
    StoredDocument::of(&document, &facts_of(&document.spec, places))
}

impl Node {
    /// The head and the locations of a job in memory.
    pub(super) fn facts(&self, active: &Active) -> Result<Arc<JobFacts>, Error> {
        match &active.facts {
            Some(facts) => Ok(facts.clone()),
            None => self.stored_facts(active.row.id).map(Arc::new),
        }
    }

    /// The head and the locations of any job.
    pub(super) fn stored_facts(&self, id: JobId) -> Result<JobFacts, Error> {
        let found = self.store.read(|connection| jobs::facts(connection, id))?;
        found.ok_or_else(|| no_such(id))?.map_err(|why| jobs::unreadable(id, &why))
    }

    /// The document of a job.
    pub(super) fn stored_document(&self, id: JobId) -> Result<JobDocument, Error> {
        let found = self.store.read(|connection| jobs::document(connection, id))?;
        found.ok_or_else(|| no_such(id))?.map_err(|why| jobs::unreadable(id, &why))
    }

    /// The document of a job, for a caller who may see the job.
    pub(crate) fn document(&self, caller: &Caller, id: JobId) -> Result<JobSpec, Error> {
        self.row(caller, id)?;
        self.stored_document(id).map(|document| document.spec)
    }

    /// An error if the caller may not do this with the job. A job whose locations cannot be read is for those
    /// alone who reach everything.
    pub(super) fn may_at(&self, caller: &Caller, scope: Scope, id: JobId) -> Result<(), Error> {
        caller.may(CallerDeed::Any(scope))?;
        if caller.reaches_all() {
            return Ok(());
        }
        judge_job(caller, scope, id, &self.stored_facts(id)?.places)
    }

    /// The same for a job in memory.
    pub(super) fn may_with(&self, caller: &Caller, scope: Scope, active: &Active) -> Result<(), Error> {
        match &active.facts {
            Some(facts) => judge_job(caller, scope, active.row.id, &facts.places),
            None => self.may_at(caller, scope, active.row.id),
        }
    }
}

/// An error if the caller may not do this with a job at these places. It names none of them: who does not reach a place
/// does not hear of it.
fn judge_job(caller: &Caller, scope: Scope, id: JobId, places: &JobPlaces) -> Result<(), Error> {
    caller.may(CallerDeed::Any(scope))?;
    let hidden =
        |_| Error::new(Code::OutOfScope, format!("job {id}: the token does not reach all its places"));
    caller.may(CallerDeed::At(scope, places)).map_err(hidden)
}

/// True if the caller sees a job with these locations, in the form that the store keeps.
pub(crate) fn sees(caller: &Caller, places: Option<&str>) -> bool {
    caller.sees_all() || places.and_then(JobPlaces::of_text).is_some_and(|places| caller.sees(&places))
}

pub(super) fn no_such(id: JobId) -> Error {
    Error::new(Code::NoSuchThing, format!("no job has the id {id}"))
}
