//! Watched folders: adds, lists and removes them, and shows what became of their files.
//!
//! How to read it: `spec.rs` is the document that asks for a watched folder; `folder_thread.rs` is the thread
//! of each folder, which makes jobs of files and handles what becomes of them. The module `watch` of this
//! crate decides which file is taken, and when.

mod folder_thread;
mod spec;
mod standing;

use crate::access::ReachRules as _;
use farhaul_api::FailingFiles;
use farhaul_api::{WatchView, WatchedFileView};
use standing::failing_text;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use serde_json::json;

use super::Node;
use crate::access::{Caller, CallerDeed, JobPlaces};
use crate::clock::timestamp;
use crate::hub::NewsBody;
use crate::store::jobs::JobDocument;
use crate::store::watches::{self, WatchRow};
use crate::watch::{FileStatus, FolderWatch, PastStatus, WatchedFile, Watcher, WatcherWaker, leads_out};
use farhaul_api::JobId;
use farhaul_api::{CallerReach, DeedKind, Scope};

pub(super) use spec::LABEL;
pub use spec::WatchSpec;
use standing::WatchStanding;

/// The owner of the watches of the configuration, and of their jobs.
const CONFIGURATION: &str = "configuration";

/// The folders that are watched.
#[derive(Default)]
pub(super) struct WatchTable {
    all: Mutex<BTreeMap<String, RunningWatch>>,
    /// True if the service is ending, so that no further watch begins.
    is_over: AtomicBool,
}

/// One folder and its thread.
struct RunningWatch {
    row: WatchRow,
    places: Arc<JobPlaces>,
    orders: Sender<Order>,
    waker: WatcherWaker,
    standing: Arc<Mutex<WatchStanding>>,
    thread: JoinHandle<()>,
}

/// A message to the thread of a folder.
enum Order {
    /// A job is over, and the store has its end.
    Over(JobId),
    /// Somebody has a job run again that had failed.
    Again(JobId),
    /// Files that have failed must be taken again.
    Retry,
    /// Something has changed that decides whether files are taken.
    Look,
    End,
}

impl From<WatchedFile> for WatchedFileView {
    fn from(entry: WatchedFile) -> WatchedFileView {
        let job = folder_thread::job_of(&entry.status).map(ToString::to_string);
        let failing = entry.failing.as_ref();
        let past = match &entry.status {
            FileStatus::Failed { why, .. } | FileStatus::Gone { past: PastStatus::Failed { why, .. } } => {
                Some(why)
            }
            _ => None,
        };
        let is_waiting = matches!(entry.status, FileStatus::Failed { .. });
        let due_ms = failing.and_then(|failing| failing.due_ms).filter(|_| is_waiting);
        WatchedFileView {
            path: entry.name.to_string(),
            state: entry.status.name().into(),
            since: timestamp(entry.since_ms),
            bytes: entry.version.size,
            job,
            why: failing.map(|failing| &failing.why).or(past).cloned(),
            code: failing.map(|failing| failing.code.name().to_string()),
            tries: failing.map_or(0, |failing| failing.tries),
            next_try: due_ms.map(timestamp),
        }
    }
}

impl WatchTable {
    /// Tells the watch's thread that a job is over and that the store has its end.
    pub(super) fn over(&self, watch: &str, job: JobId) {
        if let Some(running) = self.all.lock().in_any_case().get(watch) {
            let _ = running.orders.send(Order::Over(job));
            running.waker.wake();
        }
    }

    /// Tells the watch's thread that somebody has a job run again that had failed.
    pub(super) fn again(&self, watch: &str, job: JobId) {
        if let Some(running) = self.all.lock().in_any_case().get(watch) {
            let _ = running.orders.send(Order::Again(job));
            running.waker.wake();
        }
    }

    /// True if others know already that files of this owner's watch fail for a reason that passes.
    pub(super) fn is_told(&self, watch: &str, owner: &str) -> bool {
        self.all.lock().in_any_case().get(watch).is_some_and(|running| {
            let standing = running.standing.lock().in_any_case();
            running.row.owner == owner && standing.failing.as_ref().is_some_and(|failing| failing.retried > 0)
        })
    }

    /// How each watch stands: the files that fail.
    pub(super) fn failing(&self) -> Vec<Option<FailingFiles>> {
        let all = self.all.lock().in_any_case();
        all.values().map(|running| running.standing.lock().in_any_case().failing.clone()).collect()
    }

    /// Tells all threads to look whether their owners' tokens are still valid.
    pub(super) fn look(&self) {
        for running in self.all.lock().in_any_case().values() {
            let _ = running.orders.send(Order::Look);
            running.waker.wake();
        }
    }

    /// Ends all threads, and waits for them.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
        let all = std::mem::take(&mut *self.all.lock().in_any_case());
        all.values().for_each(RunningWatch::tell_end);
        for running in all.into_values() {
            let _ = running.thread.join();
        }
    }
}

impl RunningWatch {
    fn tell_end(&self) {
        let _ = self.orders.send(Order::End);
        self.waker.end();
    }
}

impl Node {
    /// Begins to watch the folders that an earlier process watched, and those of the configuration. If a
    /// folder cannot be watched, that is logged, and the watch stays in the store.
    pub(super) fn begin_watches(&self) -> Result<(), Error> {
        let owned: Vec<WatchRow> =
            self.store.read(watches::all)?.into_iter().filter(|row| row.owner != CONFIGURATION).collect();
        self.follow_configuration();
        for row in owned {
            let id = row.id.clone();
            if let Err(error) = self.begin_watch(row) {
                tracing::error!(watch = id, %error, "cannot watch a folder");
            }
        }
        Ok(())
    }

    /// Follows the configuration: begins new watches, replaces those that have changed, and ends those that
    /// it does not name any more.
    pub(super) fn follow_configuration(&self) {
        let settings = self.settings();
        let stored = self.store.read(watches::all).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read which folders are watched");
            Vec::new()
        });
        let mut changed = Vec::new();
        for row in stored.iter().filter(|row| row.owner == CONFIGURATION) {
            if settings.watches.get(&row.id) != Some(&row.spec) {
                self.end_watch(&row.id);
                changed.push(row.id.as_str());
            }
            if !settings.watches.contains_key(&row.id) {
                let id = row.id.clone();
                self.store.later(move |transaction| watches::remove(transaction, &id));
            }
        }
        for (name, spec) in &settings.watches {
            let running = self.watches.all.lock().in_any_case();
            if running.get(name).is_some_and(|there| there.row.owner == CONFIGURATION) {
                continue;
            }
            drop(running);
            if let Err(error) = self.follow_one(name, spec.clone()) {
                tracing::error!(watch = name, %error, "cannot watch a folder of the configuration");
            }
            // The reason may have gone with the old settings.
            if changed.contains(&name.as_str()) {
                self.order_retry(name);
            }
        }
    }

    fn follow_one(&self, name: &str, spec: WatchSpec) -> Result<(), Error> {
        let spec = spec.checked()?;
        let (id, owner, created_ms) = (name.to_string(), CONFIGURATION.to_string(), self.clock.now_ms());
        let row = WatchRow { id, owner, spec, reach: CallerReach::everything(), created_ms };
        let written = row.clone();
        if !self.store.write(move |transaction| watches::put(transaction, &written))? {
            let what = format!("another watch has the id {name}");
            return Err(Error::new(Code::AlreadyExists, what)
                .with_hint(format!("give [watch.{name}] another name in the configuration")));
        }
        self.begin_watch(row)?;
        self.tell_watch(name, json!({ "event": "added" }));
        Ok(())
    }

    /// Ends a watch. Its thread has ended when this returns. Yields false if there is no such watch.
    fn end_watch(&self, id: &str) -> bool {
        let running = self.watches.all.lock().in_any_case().remove(id);
        let Some(running) = running else { return false };
        running.tell_end();
        let _ = running.thread.join();
        true
    }

    fn begin_watch(&self, row: WatchRow) -> Result<(), Error> {
        let Some(node) = self.me.upgrade().filter(|node| !node.watches.is_over.load(Relaxed)) else {
            return Err(Error::new(Code::NotNow, "the service is ending"));
        };
        let places = Arc::new(row.spec.places()?);
        let entries = self.store.read(|connection| watches::entries(connection, &row.id))?;
        let clock = self.clock.clone();
        let now = move || crate::watch::FolderMoment { steady: clock.since_boot(), unix_ms: clock.now_ms() };
        let watcher = Watcher::new(row.watch()?, entries, Box::new(now))?;
        let (waker, standing) = (watcher.waker(), Arc::default());
        let (orders, inbox) = mpsc::channel();
        let eyes = folder_thread::FolderThread::new(
            node,
            row.clone(),
            places.clone(),
            watcher,
            Arc::clone(&standing),
            inbox,
        );
        let mut all = self.watches.all.lock().in_any_case();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || eyes.run());
        let thread = thread.map_err(Error::no_thread)?;
        let id = row.id.clone();
        all.insert(id, RunningWatch { row, places, orders, waker, standing, thread });
        Ok(())
    }

    /// Begins to watch a folder for this caller.
    pub(crate) fn add_watch(&self, caller: &Caller, spec: WatchSpec) -> Result<WatchView<WatchSpec>, Error> {
        let spec = spec.checked()?;
        let used = spec.job("0", vec!["x".into()]).used()?;
        caller.may_do(DeedKind::Watch)?;
        caller.may(CallerDeed::With(Scope::Submit, &spec.places()?, &used))?;
        super::outbox::check_webhook(spec.webhook.as_deref())?;
        let now_ms = self.clock.now_ms();
        // Faults of its jobs are reported now.
        let example = spec.job("0", vec!["x".into()]);
        self.prepared(&JobDocument { spec: example, reach: caller.reach.clone() }, None, now_ms)?;
        let row = WatchRow {
            id: JobId::new(self.node_ms()).map_err(Error::no_random_numbers)?.to_string(),
            owner: caller.subject.clone(),
            reach: caller.reach.clone(),
            created_ms: now_ms,
            spec,
        };
        judge_folder(&row.watch()?)?;
        let most = self.settings().watches_max;
        {
            let all = self.watches.all.lock().in_any_case();
            if all.len() >= most {
                let what = format!("{} folders are watched; no further one is accepted", all.len());
                return Err(Error::new(Code::TooMany, what));
            }
            let own = all.values().filter(|there| there.row.owner == row.owner).count();
            if crate::node::accounts::is_limited(&row.owner) && own >= most.div_ceil(2) {
                let what = format!("{own} folders of {} are watched; no further one is accepted", row.owner);
                return Err(Error::new(Code::TooMany, what));
            }
            let is_same = |there: &&RunningWatch| there.row.spec.is_same_as(&row.spec);
            if let Some(there) = all.values().find(is_same) {
                let what = format!(
                    "watch {} already takes files from this folder to this destination",
                    there.row.id
                );
                return Err(Error::new(Code::AlreadyExists, what));
            }
        }
        let (id, written) = (row.id.clone(), row.clone());
        self.store.write(move |transaction| watches::insert(transaction, &written))?;
        if let Err(error) = self.begin_watch(row) {
            let gone = id.clone();
            self.store.write(move |transaction| watches::remove(transaction, &gone))?;
            return Err(error);
        }
        self.tell_watch(&id, json!({ "event": "added" }));
        self.watch_view(caller, &id)
    }

    /// Ends a watch. Its jobs go on.
    pub(crate) fn remove_watch(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        self.judge_watch(caller, Scope::Control, id)?;
        if self.settings().watches.contains_key(id) {
            let what = format!("watch {id} is set in the configuration");
            return Err(
                Error::new(Code::NotNow, what).with_hint("remove it there, and reload the configuration")
            );
        }
        self.tell_watch(id, json!({ "event": "removed" }));
        if !self.end_watch(id) {
            return Err(no_such(id));
        }
        let id = id.to_string();
        self.store.write(move |transaction| watches::remove(transaction, &id))
    }

    fn order_retry(&self, id: &str) {
        if let Some(running) = self.watches.all.lock().in_any_case().get(id) {
            let _ = running.orders.send(Order::Retry);
            running.waker.wake();
        }
    }

    /// Takes files that have failed again.
    pub(crate) fn retry_watch(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        self.judge_watch(caller, Scope::Control, id)?;
        self.judge_watch_act(caller, id)?;
        self.order_retry(id);
        Ok(())
    }

    /// An error if the caller may not make somebody else's watch go on. Its jobs run as their owner's, so who
    /// makes it go on must reach as far, and be allowed its options.
    fn judge_watch_act(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        let all = self.watches.all.lock().in_any_case();
        let row = all.get(id).map(|one| one.row.clone()).ok_or_else(|| no_such(id))?;
        drop(all);
        self.judge_watch_owner(&row.owner)?;
        if caller.subject == row.owner {
            return Ok(());
        }
        let used = row.spec.job("0", vec!["x".into()]).used()?;
        caller.may(CallerDeed::With(Scope::Control, &row.spec.places()?, &used))?;
        if row.reach.and(&caller.reach) == row.reach {
            return Ok(());
        }
        let what = format!("the jobs of watch {id} run as {}, who reaches further than the token", row.owner);
        Err(Error::new(Code::OutOfScope, what))
    }

    /// An error if nothing may be done any more for the owner of a watch, as its token is not valid.
    pub(super) fn judge_watch_owner(&self, owner: &str) -> Result<(), Error> {
        self.judge_owner(owner)
            .map_err(|error| error.with_hint("an admin can take it over: farhaul watch take ID"))
    }

    /// Takes over a watch whose owner's token is not valid any more.
    pub(crate) fn take_watch(&self, caller: &Caller, id: &str) -> Result<WatchView<WatchSpec>, Error> {
        self.judge_watch(caller, Scope::Admin, id)?;
        let all = self.watches.all.lock().in_any_case();
        let mut row = all.get(id).map(|one| one.row.clone()).ok_or_else(|| no_such(id))?;
        drop(all);
        if self.judge_owner(&row.owner).is_ok() {
            let what = format!("watch {id} belongs to {}, whose token is valid", row.owner);
            return Err(Error::new(Code::NotNow, what));
        }
        (row.owner, row.reach) = (caller.subject.clone(), caller.reach.clone());
        let written = row.clone();
        self.store.write(move |transaction| watches::set_owner(transaction, &written))?;
        self.end_watch(id);
        self.begin_watch(row)?;
        self.order_retry(id);
        self.tell_watch(id, json!({ "event": "taken over", "by": caller.subject }));
        self.watch_view(caller, id)
    }

    /// The files that fail, for each watched folder.
    pub(crate) fn watches_failing(&self) -> Vec<Option<FailingFiles>> {
        self.watches.failing()
    }

    /// The watches that the caller may see.
    pub(crate) fn list_watches(&self, caller: &Caller) -> Result<Vec<WatchView<WatchSpec>>, Error> {
        caller.may(CallerDeed::Any(Scope::Read))?;
        let all = self.watches.all.lock().in_any_case();
        let seen: Vec<String> =
            all.iter().filter(|(_, one)| caller.sees(&one.places)).map(|(id, _)| id.clone()).collect();
        drop(all);
        // A watch that was removed in the meantime is left out.
        Ok(seen.iter().filter_map(|id| self.watch_view_of(id).ok()).collect())
    }

    /// One watch.
    pub(crate) fn watch_view(&self, caller: &Caller, id: &str) -> Result<WatchView<WatchSpec>, Error> {
        self.judge_watch(caller, caller_sees(caller), id)?;
        self.watch_view_of(id)
    }

    /// At most `count` files of the watch, after the one with this path.
    pub(crate) fn watch_files(
        &self,
        caller: &Caller,
        id: &str,
        state: Option<&str>,
        after: &str,
        count: usize,
    ) -> Result<Vec<WatchedFileView>, Error> {
        self.judge_watch(caller, Scope::Read, id)?;
        let files = self.store.read(|connection| watches::list(connection, id, state, after, count))?;
        Ok(files.into_iter().map(WatchedFileView::from).collect())
    }

    /// An error if the caller may not do this with a watch. It names no place of the watch.
    fn judge_watch(&self, caller: &Caller, scope: Scope, id: &str) -> Result<(), Error> {
        let places = self.watch_places(id)?;
        caller.may(CallerDeed::Any(scope))?;
        let what = format!("watch {id}: the token does not reach all its places");
        caller.may(CallerDeed::At(scope, &places)).map_err(|_| Error::new(Code::OutOfScope, what))
    }

    fn watch_places(&self, id: &str) -> Result<Arc<JobPlaces>, Error> {
        let all = self.watches.all.lock().in_any_case();
        all.get(id).map(|one| one.places.clone()).ok_or_else(|| no_such(id))
    }

    fn watch_view_of(&self, id: &str) -> Result<WatchView<WatchSpec>, Error> {
        let files = self.store.read(|connection| watches::counts(connection, id))?;
        let all = self.watches.all.lock().in_any_case();
        let one = all.get(id).ok_or_else(|| no_such(id))?;
        let standing = one.standing.lock().in_any_case();
        let failing = standing.failing.clone();
        // What fails is a notice, too, so that who reads only these hears of it.
        let notices = failing.iter().map(failing_text).chain(standing.notices.iter().cloned()).collect();
        Ok(WatchView {
            id: id.into(),
            owner: one.row.owner.clone(),
            created: timestamp(one.row.created_ms),
            spec: one.row.spec.clone(),
            files: files.into_iter().collect(),
            failing,
            notices,
        })
    }

    /// Tells readers of events that may see the folder what has happened.
    fn tell_watch(&self, id: &str, mut what: serde_json::Value) {
        let places = self.watch_places(id);
        if let Ok(places) = places {
            what["id"] = json!(id);
            self.hub.tell(NewsBody::Watch { places, text: what.to_string() });
        }
    }
}

/// An error if what is there now cannot be watched. A folder that is not there yet may come.
fn judge_folder(watch: &FolderWatch) -> Result<(), Error> {
    let folder = watch.folder.display();
    match watch.reach.open(&watch.folder) {
        Err(error) if leads_out(&error) => Err(Error::new(Code::OutOfScope, format!("{folder}: {error}"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            let what = format!("{folder} is not a directory, so it cannot be watched");
            Err(Error::new(Code::NotADirectory, what))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whoever has made a watch may see it, even with a token that cannot read.
fn caller_sees(caller: &Caller) -> Scope {
    if caller.has(Scope::Read) { Scope::Read } else { Scope::Control }
}

fn no_such(id: &str) -> Error {
    Error::new(
        Code::NoSuchThing,
        format!("no watch has the id {}", farhaul_text::printable(id.as_bytes(), 40)),
    )
}

#[cfg(test)]
mod tests;
