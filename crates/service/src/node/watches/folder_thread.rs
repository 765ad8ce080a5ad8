//! The thread of one watched folder. It makes jobs of the files to take, and handles the files when their
//! jobs are over.
//!
//! Always true: a job and the files that it takes are stored in one transaction; a file at its source is
//! touched only when its job's report, which is in the store, confirms that it has arrived; the file's state
//! is written after the action on it, so that a process that was killed in between repeats the action, and
//! finds it done.

use super::standing::{failing_in, failing_text};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul::copy::Report;
use farhaul::options::Durability;
use farhaul::sisters::escape;
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use serde_json::json;

use super::Order;
use super::spec::names_of;
use super::standing::WatchStanding;
use crate::access::{Caller, JobPlaces};
use crate::hooks::{ErrorWords, HookMoment, WatchWords};
use crate::job::{JobHead, JobSpec};
use crate::node::manifests::ContentProof;
use crate::node::{Node, outbox, peer_of};
use crate::store::deliveries::{self, DeliveryRow};
use crate::store::history;
use crate::store::jobs::{self, JobDocument, JobFacts, JobRow, StoredDocument};
use crate::store::watches::{self, WatchRow};
use crate::watch::{
    AfterAction, AfterOutcome, Confirmation, FileFailure, FileStatus, FileToTake, FileVersion, FolderWatch,
    Notice, PastStatus, StoreChange, WatchedName, Watcher, act, leads_out,
};
use farhaul_api::{JobId, JobState};

/// The most files of one job, and the most bytes of their names, as the job keeps the names in memory and in
/// the store.
const FILES_MAX: usize = 1000;
const NAMES_BYTES_MAX: usize = 1 << 20;
/// The longest that the thread sleeps between two turns.
const TURN_MAX: Duration = Duration::from_secs(3600);
/// How soon a folder is looked at again while it lies outside its owner's reach.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(super) struct FolderThread {
    node: Arc<Node>,
    row: WatchRow,
    places: Arc<JobPlaces>,
    watcher: Watcher,
    standing: Arc<Mutex<WatchStanding>>,
    inbox: Receiver<Order>,
    /// Why no files are taken at the moment.
    trouble: Option<String>,
    /// True if its owner or a link keeps the folder from being looked at.
    is_held: bool,
    /// True if others have been told that files fail, and not yet that none fails any more.
    told_failing: bool,
    /// The folder's `failing_serial` that is shown.
    shown: Option<u64>,
}

/// A file of a job, with the version to act on; `None` if nothing must be done with it.
type JobFile = (WatchedName, Option<FileVersion>);

/// A job that is over.
struct EndedJob {
    row: JobRow,
    spec: JobSpec,
    report: Option<Report>,
}

/// True if a link leads a directory out of what the owner of the watch may reach. Who then uses the directory opens
/// it in the same way, and is judged again.
fn is_out_of_reach(watch: &FolderWatch, directory: &Path) -> bool {
    watch.reach.open(directory).is_err_and(|error| leads_out(&error))
}

impl FolderThread {
    pub(super) fn new(
        node: Arc<Node>,
        row: WatchRow,
        places: Arc<JobPlaces>,
        watcher: Watcher,
        standing: Arc<Mutex<WatchStanding>>,
        inbox: Receiver<Order>,
    ) -> FolderThread {
        // Files that fail by the store were told of in the transaction that stored them.
        let told_failing = watcher.folder().failing().len() > 0;
        let mut thread = FolderThread {
            node,
            row,
            places,
            watcher,
            standing,
            inbox,
            trouble: None,
            is_held: false,
            told_failing,
            shown: None,
        };
        thread.show();
        thread
    }

    pub(super) fn run(mut self) {
        self.catch_up();
        loop {
            while let Ok(order) = self.inbox.try_recv() {
                if !self.obey(order) {
                    return;
                }
            }
            if let Some(text) = self.why_not() {
                self.is_held = true;
                self.standing.lock().in_any_case().notices = vec![text];
                let goes_on = match self.inbox.recv_timeout(LOOK_AGAIN) {
                    Ok(order) => self.obey(order),
                    Err(RecvTimeoutError::Timeout) => true,
                    Err(RecvTimeoutError::Disconnected) => false,
                };
                if goes_on {
                    continue;
                }
                return;
            }
            if std::mem::take(&mut self.is_held) {
                self.retry_failed();
            }
            let turn = self.watcher.turn(TURN_MAX);
            self.write(turn.changes);
            for notice in &turn.notices {
                tracing::warn!(watch = self.row.id, "{}", notice.text());
                self.node.tell_watch(&self.row.id, json!({ "event": "notice", "text": notice.text() }));
            }
            self.take_all(turn.takes);
            self.show();
        }
    }

    /// Handles an order. Yields false for the order to end.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Over(job) => self.over(job),
            Order::Again(job) => {
                let changes = self.watcher.job_again(job.as_str());
                self.write(changes);
            }
            Order::Retry => self.retry_failed(),
            Order::Look => {}
            Order::End => return false,
        }
        true
    }

    fn retry_failed(&mut self) {
        let changes = self.watcher.retry_failed();
        self.write(changes);
    }

    /// Shows how the watch stands.
    fn show(&mut self) {
        let notices = self.watcher.notices().map(Notice::text).chain(self.trouble.clone()).collect();
        let serial = self.watcher.folder().failing_serial();
        let failing = (self.shown != Some(serial)).then(|| failing_in(self.watcher.folder()));
        self.shown = Some(serial);
        let mut standing = self.standing.lock().in_any_case();
        standing.notices = notices;
        if let Some(failing) = failing {
            standing.failing = failing;
        }
    }

    /// Stores changes, and in the same transaction what others are told if files begin to fail, or if none fails
    /// any more.
    fn write(&mut self, changes: Vec<StoreChange>) {
        if changes.is_empty() {
            return;
        }
        let deliveries = self.tell_failing(&changes);
        let is_told = !deliveries.is_empty();
        let id = self.row.id.clone();
        self.node.store.later(move |transaction| {
            watches::change(transaction, &id, &changes)?;
            deliveries.iter().try_for_each(|one| deliveries::insert(transaction, one))
        });
        if is_told {
            self.node.ring_when_stored();
        }
    }

    /// Tells the log and readers of events if files begin to fail, and if none fails any more. Yields what is told to
    /// hooks and webhooks.
    fn tell_failing(&mut self, changes: &[StoreChange]) -> Vec<DeliveryRow> {
        if (self.watcher.folder().failing().len() > 0) == self.told_failing {
            return Vec::new();
        }
        let failing = failing_in(self.watcher.folder());
        self.told_failing = failing.is_some();
        self.show();
        let id = self.row.id.clone();
        let (event, error) = match failing.as_ref().map(|failing| (failing, failing_text(failing))) {
            Some((failing, text)) => {
                tracing::warn!(watch = id, "{text}");
                self.node.tell_watch(&id, json!({ "event": "failing", "text": text, "failing": failing }));
                let code = failing.reasons.first().map_or(Code::FilesFailed.name(), |reason| &reason.code);
                (HookMoment::Failing, Some(ErrorWords { code: code.to_string(), what: text }))
            }
            None => {
                tracing::info!(watch = id, "no file of the watch fails any more");
                self.node.tell_watch(&id, json!({ "event": "recovered" }));
                (HookMoment::Recovered, None)
            }
        };
        // A message is about a job, here the one that has changed how the watch stands. If it was deleted in the
        // meantime, nobody but the log hears.
        let job = changes.iter().find_map(|change| match change {
            StoreChange::Put(entry) => job_of(&entry.status)?.parse::<JobId>().ok(),
            StoreChange::Remove(_) => None,
        });
        let Some(ended) = job.and_then(|job| self.ended(job).ok().flatten()) else { return Vec::new() };
        let watch = WatchWords {
            id,
            folder: self.row.spec.folder.clone(),
            failing: failing.as_ref().map_or(0, |failing| failing.files),
            next_try_ms: failing.and_then(|failing| failing.next_try).map(|next| next.as_millisecond()),
        };
        let head = JobHead::of(&ended.spec);
        let now_ms = self.node.clock.now_ms();
        outbox::of_watch(&self.node.settings(), (&ended.row, &head), (event, now_ms), watch, error)
    }

    // ---- taking ----------------------------------------------------------------------------------------------------

    fn take_all(&mut self, takes: Vec<FileToTake>) {
        if takes.is_empty() {
            return;
        }
        self.trouble = None;
        let mut is_taking = true;
        let (mut group, mut bytes) = (Vec::new(), 0);
        for take in takes {
            let len = take.name.to_string().len();
            if is_taking && (group.len() >= FILES_MAX || bytes + len > NAMES_BYTES_MAX) {
                is_taking = self.take(std::mem::take(&mut group));
                bytes = 0;
            }
            // These files are offered again when they have been unchanged for the settle time once more.
            if !is_taking {
                self.watcher.refused(&take);
                continue;
            }
            bytes += len;
            group.push(take);
        }
        if is_taking && !group.is_empty() {
            self.take(group);
        }
    }

    /// Why nothing is taken from the folder now, as far as its owner is the reason.
    fn why_not(&self) -> Option<String> {
        if let Err(error) = self.node.judge_watch_owner(&self.row.owner) {
            return Some(error.to_string());
        }
        let watch = match self.row.watch() {
            Ok(watch) => watch,
            Err(error) => return Some(error.to_string()),
        };
        let is_out = is_out_of_reach(&watch, &watch.folder);
        is_out.then(|| "a link leads the folder out of what its owner may reach".to_string())
    }

    /// Makes one job of these files. Yields false if that failed.
    fn take(&mut self, takes: Vec<FileToTake>) -> bool {
        let Ok(id) = JobId::new(self.node.node_ms()) else {
            takes.iter().for_each(|take| self.watcher.refused(take));
            return false;
        };
        let (mut names, mut changes) = (Vec::new(), Vec::new());
        for take in &takes {
            let (has, more) = self.watcher.taken(take, id.as_str());
            changes.extend(more);
            // A file that another job has is left out.
            if has {
                names.push(take.name.clone());
            }
        }
        if names.is_empty() {
            self.write(changes);
            return true;
        }
        let count = names.len();
        match self.node.submit_taken(&self.row, &self.places, id, &names, changes) {
            Ok(()) => {
                self.node.tell_watch(&self.row.id, json!({ "event": "taken", "job": id, "files": count }));
                true
            }
            Err(error) => {
                tracing::warn!(watch = self.row.id, %error, "cannot make a job of {count} files yet");
                self.trouble = Some(format!("cannot make a job: {error}"));
                let why = FileFailure::of_file(error.code(), "no job could be made");
                let all = names.iter().map(|name| self.watcher.unconfirmed(name, id.as_str(), why.clone()));
                let changes = all.collect::<Vec<_>>().concat();
                self.write(changes);
                false
            }
        }
    }

    // ---- what becomes of it ----------------------------------------------------------------------------------------

    /// Handles jobs that ended while this thread did not run.
    fn catch_up(&mut self) {
        let (mut open, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for entry in self.watcher.folder().entries() {
            match entry.status {
                FileStatus::Taken { job }
                | FileStatus::Changed { job }
                | FileStatus::Gone { past: PastStatus::Taken { job } } => {
                    open.insert(job);
                }
                FileStatus::Failed { job, .. } => drop(failed.insert(job)),
                FileStatus::New
                | FileStatus::Settling
                | FileStatus::Done { .. }
                | FileStatus::Gone { .. } => {}
            }
        }
        // Somebody may have retried a failed job since.
        for job in failed {
            let Ok(id) = job.parse::<JobId>() else { continue };
            match self.ended(id) {
                Ok(Some(ended)) if ended.row.state == JobState::Done => self.over(id),
                Ok(Some(ended)) if !ended.row.state.is_final() => {
                    let changes = self.watcher.job_again(&job);
                    self.write(changes);
                }
                _ => {}
            }
        }
        for job in open {
            let found = job.parse::<JobId>().ok().map(|id| (id, self.ended(id)));
            match found {
                Some((id, Ok(Some(ended)))) if ended.row.state.is_final() => self.over(id),
                Some((_, Ok(Some(_)) | Err(_))) => {}
                // The job was deleted, so nobody knows what became of its files.
                Some((_, Ok(None))) | None => self.forget(&job),
            }
        }
    }

    fn forget(&mut self, job: &str) {
        let names: Vec<WatchedName> = self
            .watcher
            .folder()
            .entries()
            .filter(|entry| matches!(&entry.status, FileStatus::Taken { job: has } | FileStatus::Changed { job: has } if has == job))
            .map(|entry| entry.name)
            .collect();
        let why = FileFailure::of_file(Code::NoSuchThing, "the job is no longer known");
        let all = names.iter().map(|name| self.watcher.unconfirmed(name, job, why.clone()));
        let changes = all.collect::<Vec<_>>().concat();
        self.write(changes);
    }

    fn ended(&self, job: JobId) -> Result<Option<EndedJob>, Error> {
        self.node
            .store
            .read(|connection| {
                let Some(row) = jobs::get(connection, job)? else { return Ok(None) };
                let record = history::of_job(connection, job, Some(row.run))?;
                let papers =
                    record.map(|record| history::papers(connection, record.id)).transpose()?.flatten();
                let report = papers.and_then(|papers| papers.report);
                let report = report.and_then(|text| serde_json::from_str::<Report>(&text).ok());
                let Some(document) = jobs::document(connection, job)? else { return Ok(None) };
                Ok(Some(document.map(|document| EndedJob { row, spec: document.spec, report })))
            })?
            .transpose()
            .map_err(|why| jobs::unreadable(job, &why))
    }

    /// Handles a job that is over: acts on the files that its report confirms.
    fn over(&mut self, job: JobId) {
        let ended = match self.ended(job) {
            Ok(Some(ended)) if ended.row.state.is_final() => ended,
            Ok(_) => return,
            Err(error) => {
                return tracing::error!(watch = self.row.id, %job, %error, "cannot read how a job ended");
            }
        };
        let mut mine: Vec<JobFile> = Vec::new();
        for name in names_of(&ended.spec) {
            let Some(entry) = self.watcher.folder().entry(&name) else { continue };
            match &entry.status {
                FileStatus::Taken { job: has } | FileStatus::Failed { job: has, .. }
                    if has == job.as_str() =>
                {
                    mine.push((name, Some(entry.version)));
                }
                FileStatus::Changed { job: has }
                | FileStatus::Gone {
                    past: PastStatus::Taken { job: has } | PastStatus::Failed { job: has, .. },
                } if has == job.as_str() => {
                    mine.push((name, None));
                }
                _ => {}
            }
        }
        if mine.is_empty() {
            return;
        }
        let options = &ended.spec.options;
        // A dry run brings nothing to a disk.
        let durable = if options.dry_run { Durability::No } else { options.integrity.durable };
        let report = ended.report.clone().unwrap_or_default();
        let (count, word) = match Confirmation::of(job.as_str(), &report, durable) {
            Ok(confirmed) if ended.row.state == JobState::Done => {
                let Some(count) = self.arrive(&ended.row, &confirmed, mine) else { return };
                (count, "done")
            }
            Ok(_) | Err(_) => (self.fail(job, &ended, &mine), "failed"),
        };
        self.node.tell_watch(&self.row.id, json!({ "event": word, "job": job, "files": count }));
    }

    /// Handles the files of a job that has ended well: acts on those whose content is known to be at the
    /// destination, by the manifest. A file that the job has left out, or of which nobody has compared the
    /// content, has not arrived. Yields how many have arrived.
    fn arrive(&mut self, row: &JobRow, confirmed: &Confirmation, mine: Vec<JobFile>) -> Option<usize> {
        let proofs = match self.node.proofs(row.id, row.run) {
            Ok(proofs) => proofs,
            Err(error) => {
                // The files stay taken until the service starts again and can read the manifest.
                tracing::error!(watch = self.row.id, job = %row.id, %error, "cannot read how a job ended");
                return None;
            }
        };
        let is_known = |(name, _): &JobFile| proofs.get(name.bytes()) == Some(&ContentProof::Known);
        let (there, others): (Vec<JobFile>, Vec<JobFile>) = mine.into_iter().partition(is_known);
        let (job, changed) = (row.id.as_str(), self.act(row.id, confirmed, &there));
        let mut changes = Vec::new();
        for (name, _) in &there {
            changes.extend(match changed.contains(name) {
                // This version has arrived, but there is a newer one, which is taken again.
                true => {
                    let why = FileFailure::of_file(Code::SourceChanged, "it has changed since");
                    self.watcher.unconfirmed(name, job, why)
                }
                false => self.watcher.ended(name, job, Ok(())),
            });
        }
        for (name, _) in &others {
            let why = match proofs.get(name.bytes()) {
                Some(ContentProof::Unread) => "the job has not compared its content with the destination's",
                _ => {
                    "the job has left it out: it was gone, is not a file that can be taken, or another \
                      file has its place and may not be replaced"
                }
            };
            changes.extend(self.watcher.ended(name, job, Err(FileFailure::of_file(Code::FilesFailed, why))));
        }
        changes.extend(self.watcher.through());
        self.write(changes);
        Some(there.len())
    }

    /// Acts on files that have arrived, as the watch says. Yields those that have changed since.
    fn act(&self, job: JobId, confirmed: &Confirmation, mine: &[JobFile]) -> BTreeSet<WatchedName> {
        let mut changed = BTreeSet::new();
        let Ok(watch) = self.row.watch() else { return changed };
        let target = match &watch.after {
            AfterAction::Keep => return changed,
            AfterAction::Mark | AfterAction::Delete => watch.folder.clone(),
            AfterAction::Move(to) => watch.folder.join(to),
        };
        if is_out_of_reach(&watch, &watch.folder) || is_out_of_reach(&watch, &target) {
            let text = "the files are left as they are: a link leads out of what the watch's owner may reach";
            let event = json!({ "event": "watch", "watch": self.row.id, "text": text });
            self.node.said(job, ("warning", text, &event.to_string()));
            return changed;
        }
        let files: Vec<(WatchedName, FileVersion)> =
            mine.iter().filter_map(|(name, version)| Some((name.clone(), (*version)?))).collect();
        let acted = act(&watch, confirmed, &files);
        for ((name, _), result) in files.iter().zip(acted) {
            let text = match result {
                Ok(
                    AfterOutcome::Left
                    | AfterOutcome::Marked
                    | AfterOutcome::Moved(_)
                    | AfterOutcome::Deleted
                    | AfterOutcome::Gone,
                ) => continue,
                Ok(AfterOutcome::Changed) => {
                    changed.insert(name.clone());
                    format!("{} stays: it has changed, or somebody is writing to it", escape(name.bytes()))
                }
                Err(error) => error.to_string(),
            };
            let event = json!({ "event": "watch", "watch": self.row.id, "path": name, "text": text });
            self.node.said(job, ("warning", &text, &event.to_string()));
        }
        changed
    }

    /// Handles a job without a confirmation. Files that its report names have failed; if there are such
    /// files, the others are taken again by another job. Yields how many files have failed.
    fn fail(&mut self, job: JobId, ended: &EndedJob, mine: &[JobFile]) -> usize {
        let report = ended.report.clone().unwrap_or_default();
        let failed = report.failed.iter().map(|entry| (&entry.path, entry.code, &entry.reason));
        let not_taken = report.not_taken.iter().map(|entry| (&entry.path, Code::FilesFailed, &entry.reason));
        let named: Vec<(&String, Code, &String)> = failed.chain(not_taken).collect();
        let reason_of = |name: &WatchedName| {
            let name = name.to_string();
            let is_it = |path: &str| {
                name == path || name.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
            };
            let found = named.iter().find(|(path, ..)| is_it(path));
            found.map(|(_, code, reason)| FileFailure::of_file(*code, reason.as_str()))
        };
        let is_partial = ended.row.state != JobState::Cancelled
            && report.complete
            && mine.iter().any(|(name, _)| reason_of(name).is_some());
        let all = self.failure_of_all(&ended.row, &report);
        let (mut count, mut changes) = (0, Vec::new());
        for (name, _) in mine {
            changes.extend(match reason_of(name) {
                None if is_partial => self.watcher.unconfirmed(name, job.as_str(), all.clone()),
                reason => {
                    count += 1;
                    self.watcher.ended(name, job.as_str(), Err(reason.unwrap_or_else(|| all.clone())))
                }
            });
        }
        if is_partial {
            changes.extend(self.watcher.through());
        }
        self.write(changes);
        count
    }

    /// Why a job that has failed as a whole has brought none of its files.
    fn failure_of_all(&self, row: &JobRow, report: &Report) -> FileFailure {
        if row.state == JobState::Cancelled {
            // Whoever has cancelled the job does not want it again.
            let why = "the job was cancelled".to_string();
            return FileFailure { code: Code::Interrupted, why, passes: false, whole: true };
        }
        let error = row.error.as_ref();
        let code = error.and_then(|error| Code::of_name(&error.code)).unwrap_or(Code::FilesFailed);
        let why = report.error.clone().or_else(|| error.map(|error| error.text.clone()));
        let why = why.unwrap_or_else(|| format!("job {} has not confirmed it", row.id));
        FileFailure { whole: true, ..FileFailure::of_file(code, why) }
    }
}

/// The job that has a file, or had it last.
pub(super) fn job_of(status: &FileStatus) -> Option<&str> {
    match status {
        FileStatus::New | FileStatus::Settling => None,
        FileStatus::Taken { job }
        | FileStatus::Changed { job }
        | FileStatus::Done { job }
        | FileStatus::Failed { job, .. }
        | FileStatus::Gone {
            past: PastStatus::Taken { job } | PastStatus::Done { job } | PastStatus::Failed { job, .. },
        } => Some(job),
    }
}

impl Node {
    /// Accepts a job for files of a watched folder. The job and its files are stored in one transaction.
    fn submit_taken(
        &self,
        watch: &WatchRow,
        places: &Arc<JobPlaces>,
        id: JobId,
        names: &[WatchedName],
        changes: Vec<StoreChange>,
    ) -> Result<(), Error> {
        self.judge_watch_owner(&watch.owner)?;
        let names = names.iter().map(ToString::to_string).collect();
        let spec = watch.spec.job(&watch.id, names).checked()?;
        let now_ms = self.clock.now_ms();
        let mut row = self.accepted(&watch.owner, &spec, peer_of(&places.0), now_ms)?;
        row.id = id;
        let facts = JobFacts { head: JobHead::of(&spec), places: places.clone() };
        let document = JobDocument { spec, reach: watch.reach.clone() };
        let stored = StoredDocument::of(&document, &facts)?;
        drop(document);
        row.kept_bytes = stored.bytes();
        let kept = self.accounts.keep(&row.owner, row.kept_bytes, self.settings().queue)?;
        crate::state_dir::room_for_a_job(&self.folder)?;
        let mut all = self.jobs();
        self.has_room(&all, &watch.owner)?;
        row.position = self.next_position(now_ms);
        let (written, watch) = (row.clone(), watch.id.clone());
        self.store.write(move |transaction| {
            jobs::insert(transaction, &written, &stored)?;
            watches::change(transaction, &watch, &changes)
        })?;
        self.begin(&mut all, (row, kept), facts, &Caller::local());
        drop(all);
        self.look();
        Ok(())
    }
}
