//! Decides, from what was seen, which file of a folder is taken, and when.
//!
//! How to read it: the caller reports what it sees ([`Folder::handle_seen`], [`Folder::handle_gone`], a scan
//! between [`Folder::begin_walk`] and [`Folder::end_walk`]) and what became of jobs; it asks which files to
//! look at ([`Folder::poll_look`]), which to take ([`Folder::poll_take`]), and what to store
//! ([`Folder::changes`]).
//!
//! Always true: a file is offered only after a look that found the version that was first seen at least
//! `settle` ago and found nobody writing, if no other version and no writer was seen in between; a version
//! that a job has had is not offered again, unless another version was seen under its name in between; a file
//! that exists is waiting, is offered, or has a row that says why not. Nothing here reads a clock or a disk.
//!
//! An offer that was not confirmed is not stored: after a crash in between, the file waits again. So a store
//! must write the job and the change of [`Folder::handle_taken`] in one transaction.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::entry::{
    FailureHistory, FileFailure, FileStatus, FileVersion, PastStatus, StoreChange, WatchedFile, WatchedName,
};
use crate::job::RetryRule;
use crate::scheduler::backoff;
use farhaul_api::JobSpan;

/// The most files of a folder that are known at a time, about 200 bytes each; further ones wait until others
/// are gone.
pub const FILES_MAX: usize = 1_000_000;
/// The most files that are remembered after they are gone; the latest ones stay.
pub const GONE_MAX: usize = 100_000;
/// How long they are remembered. A folder that is not mounted looks like one whose files are gone.
const GONE_MS: i64 = 30 * 24 * 3600 * 1000;
/// After how long a look that did not happen is asked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// When a file that has failed is taken again by itself, if the reason can pass.
const RETRY: RetryRule =
    RetryRule { attempts: u32::MAX, first_delay: JobSpan(60), longest_delay: JobSpan(3600) };

/// A moment by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderMoment {
    /// The time since any fixed moment, by a clock that does not go back and counts while the host sleeps.
    pub steady: Duration,
    /// Unix milliseconds, for people.
    pub unix_ms: i64,
}

/// Tells whether somebody has a file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterPresence {
    /// It was not checked.
    NotLooked,
    /// No process is seen to have it open.
    NoneSeen,
    /// A process has it open.
    Open,
}

/// The facts that were seen of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// The version of the file.
    pub version: FileVersion,
    /// Tells whether somebody has it open for writing.
    pub writer: WriterPresence,
}

/// A file to make a job of. The caller answers with [`Folder::handle_taken`] or [`Folder::handle_refused`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileToTake {
    /// Its path below the folder.
    pub name: WatchedName,
    /// The version that was seen.
    pub version: FileVersion,
}

/// The files of a folder.
#[derive(Debug)]
pub struct Folder {
    settle: Duration,
    files_max: usize,
    rows: BTreeMap<WatchedName, Row>,
    /// When to look at rows. A row that waits is in here once, at its `wake`.
    due: BTreeSet<(Duration, WatchedName)>,
    /// Files that are gone, oldest first.
    gone: BTreeSet<(i64, WatchedName)>,
    takes: VecDeque<WatchedName>,
    /// Files that are there, have failed, and have not arrived since.
    failing: BTreeSet<WatchedName>,
    /// When failed files are taken again by themselves. A row is in here once, at its `retry`.
    retries: BTreeSet<(Duration, WatchedName)>,
    /// Grows when what fails, or when it is tried again, may have changed.
    failing_serial: u64,
    dirty: BTreeSet<WatchedName>,
    walk: u64,
    too_many: u64,
}

#[derive(Debug)]
struct Row {
    version: FileVersion,
    status: FileStatus,
    since_ms: i64,
    /// The number of the last scan that saw it.
    walk: u64,
    /// For files that nobody has taken yet, or that have changed since.
    waiting: Option<RestingFile>,
    failing: Option<Box<FailureHistory>>,
    retry: Option<Duration>,
}

/// A file that must stay unchanged for a while.
#[derive(Debug)]
struct RestingFile {
    version: FileVersion,
    /// From when on it may be taken, if it has not changed and nobody was seen to have it open.
    ready: Duration,
    wake: Duration,
    offer: TakeDecision,
}

/// The decision about taking a waiting file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakeDecision {
    No,
    /// Its name is in `takes`.
    Queued,
    /// The caller was asked to make a job of it.
    Asked,
}

impl Row {
    /// A row that nobody waits for.
    fn new(version: FileVersion, status: FileStatus, since_ms: i64, walk: u64) -> Row {
        Row { version, status, since_ms, walk, waiting: None, failing: None, retry: None }
    }

    /// True if nobody has taken it.
    fn is_free(&self) -> bool {
        matches!(self.status, FileStatus::New | FileStatus::Settling)
    }
}

impl Folder {
    /// Begins with the rows that were stored. Files that wait begin to wait again, as nobody has seen what
    /// happened to them in the meantime.
    pub fn new(now: FolderMoment, settle: Duration, rows: impl IntoIterator<Item = WatchedFile>) -> Folder {
        let mut folder = Folder {
            settle,
            files_max: FILES_MAX,
            rows: BTreeMap::new(),
            due: BTreeSet::new(),
            gone: BTreeSet::new(),
            takes: VecDeque::new(),
            failing: BTreeSet::new(),
            retries: BTreeSet::new(),
            failing_serial: 0,
            dirty: BTreeSet::new(),
            walk: 0,
            too_many: 0,
        };
        for WatchedFile { name, version, status, since_ms, failing } in rows {
            if matches!(status, FileStatus::Gone { .. }) {
                folder.gone.insert((since_ms, name.clone()));
            }
            let failing = failing.or_else(|| failing_of_old(&status, since_ms)).map(Box::new);
            folder.rows.insert(name.clone(), Row { failing, ..Row::new(version, status, since_ms, 0) });
            folder.index_failing(now, &name);
        }
        folder
    }

    /// All rows, sorted by name.
    pub fn entries(&self) -> impl Iterator<Item = WatchedFile> + '_ {
        self.rows.iter().map(|(name, row)| entry(name, row))
    }

    /// One row.
    pub fn entry(&self, name: &WatchedName) -> Option<WatchedFile> {
        self.rows.get(name).map(|row| entry(name, row))
    }

    /// The files that are there, have failed, and have not arrived since; also while they are tried again.
    pub fn failing(&self) -> impl ExactSizeIterator<Item = &WatchedName> {
        self.failing.iter()
    }

    /// Grows when what is known of failing files may have changed.
    pub fn failing_serial(&self) -> u64 {
        self.failing_serial
    }

    /// What is known of a file that has failed, and when it is tried again, if it waits for that.
    pub fn failing_one(&self, name: &WatchedName) -> Option<(&FailureHistory, Option<i64>)> {
        let row = self.rows.get(name)?;
        let failing = row.failing.as_deref()?;
        Some((failing, failing.due_ms.filter(|_| row.retry.is_some())))
    }

    /// How many files were seen since the last scan began that have no row, as there are too many.
    pub fn too_many(&self) -> u64 {
        self.too_many
    }

    /// Reports that a regular file that is to be taken exists.
    pub fn handle_seen(&mut self, now: FolderMoment, name: &WatchedName, sight: Sight) {
        let Some(row) = self.rows.get_mut(name) else { return self.handle_first(now, name, sight) };
        row.walk = self.walk;
        let same = row.version == sight.version;
        match &row.status {
            FileStatus::New | FileStatus::Settling => self.handle_waiting(now, name, sight),
            FileStatus::Taken { .. } | FileStatus::Done { .. } | FileStatus::Failed { .. } if same => {}
            FileStatus::Taken { job } => {
                row.waiting = Some(RestingFile::begin(now, &sight, self.settle));
                let job = job.clone();
                self.put(now, name, FileStatus::Changed { job });
            }
            // The version that the job has is there again, as after another file was mounted over it.
            FileStatus::Changed { job } if same => {
                row.waiting = None;
                let job = job.clone();
                self.put(now, name, FileStatus::Taken { job });
            }
            FileStatus::Changed { .. } => row.waiting = Some(RestingFile::begin(now, &sight, self.settle)),
            FileStatus::Done { .. } => self.wait(now, name, FileStatus::Settling, sight),
            FileStatus::Failed { .. } => {
                // Another version has not failed yet. But nothing has arrived under this name.
                if let Some(failing) = row.failing.as_deref_mut() {
                    (failing.tries, failing.due_ms) = (0, None);
                }
                self.wait(now, name, FileStatus::Settling, sight)
            }
            FileStatus::Gone { past } if same => {
                let status = past.clone().into();
                self.put(now, name, status);
            }
            // This is another file with the name of one that was taken.
            FileStatus::Gone { past: PastStatus::Taken { job } } => {
                row.waiting = Some(RestingFile::begin(now, &sight, self.settle));
                let job = job.clone();
                self.put(now, name, FileStatus::Changed { job });
            }
            FileStatus::Gone { past: PastStatus::Done { .. } | PastStatus::Failed { .. } } => {
                row.failing = None;
                self.wait(now, name, FileStatus::New, sight);
            }
        }
    }

    fn handle_first(&mut self, now: FolderMoment, name: &WatchedName, sight: Sight) {
        if self.rows.len() >= self.files_max {
            self.too_many += 1;
            return;
        }
        let row = Row::new(sight.version, FileStatus::New, now.unix_ms, self.walk);
        self.rows.insert(name.clone(), row);
        self.dirty.insert(name.clone());
        self.wait(now, name, FileStatus::New, sight);
    }

    /// Lets a file begin to wait.
    fn wait(&mut self, now: FolderMoment, name: &WatchedName, status: FileStatus, sight: Sight) {
        self.wait_for(now, name, status, sight, self.settle);
    }

    fn wait_for(
        &mut self,
        now: FolderMoment,
        name: &WatchedName,
        status: FileStatus,
        sight: Sight,
        rest: Duration,
    ) {
        self.unschedule(name);
        let Some(row) = self.rows.get_mut(name) else { return };
        let waiting = RestingFile::begin(now, &sight, rest);
        self.due.insert((waiting.wake, name.clone()));
        row.version = sight.version;
        row.waiting = Some(waiting);
        self.put(now, name, status);
    }

    fn handle_waiting(&mut self, now: FolderMoment, name: &WatchedName, sight: Sight) {
        let Some(row) = self.rows.get_mut(name) else { return };
        let Some(waiting) = row.waiting.as_mut() else {
            // The first look since a restart.
            let status = row.status.clone();
            return self.wait(now, name, status, sight);
        };
        if waiting.version != sight.version || sight.writer == WriterPresence::Open {
            return self.wait(now, name, FileStatus::Settling, sight);
        }
        let stands_still = now.steady >= waiting.ready;
        if sight.writer == WriterPresence::NoneSeen && stands_still && waiting.offer == TakeDecision::No {
            waiting.offer = TakeDecision::Queued;
            self.due.remove(&(waiting.wake, name.clone()));
            self.takes.push_back(name.clone());
        }
    }

    /// Reports that the file does not exist, or is not to be taken.
    pub fn handle_gone(&mut self, now: FolderMoment, name: &WatchedName) {
        let Some(row) = self.rows.get(name) else { return };
        match row.status.past() {
            _ if matches!(row.status, FileStatus::Gone { .. }) => {}
            None => self.remove(name),
            Some(past) => {
                self.unschedule(name);
                if let Some(row) = self.rows.get_mut(name) {
                    row.waiting = None;
                }
                self.put(now, name, FileStatus::Gone { past });
            }
        }
    }

    /// Reports that a directory and everything in it is gone.
    pub fn handle_gone_below(&mut self, now: FolderMoment, dir: &WatchedName) {
        let below = self.rows.keys().filter(|name| name.is_below(dir)).cloned().collect::<Vec<_>>();
        for name in below {
            self.handle_gone(now, &name);
        }
    }

    /// Begins a scan of the whole folder: until its end, every existing file is reported.
    pub fn begin_walk(&mut self) {
        self.walk += 1;
        self.too_many = 0;
    }

    /// Ends a scan: files that it did not see are gone, except those in directories that could not be read.
    pub fn end_walk(&mut self, now: FolderMoment, unread: &[WatchedName]) {
        let unseen = |name: &WatchedName, row: &Row| {
            let is_gone = matches!(row.status, FileStatus::Gone { .. });
            row.walk != self.walk && !is_gone && !unread.iter().any(|dir| name.is_below(dir))
        };
        let gone: Vec<_> =
            self.rows.iter().filter(|(name, row)| unseen(name, row)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.handle_gone(now, &name);
        }
        self.forget(now);
    }

    /// Forgets files that have been gone for long, and the oldest if there are too many.
    fn forget(&mut self, now: FolderMoment) {
        while let Some((since_ms, name)) = self.gone.first().cloned() {
            let is_old = since_ms < now.unix_ms.saturating_sub(GONE_MS);
            if !is_old && self.gone.len() <= GONE_MAX {
                return;
            }
            self.remove(&name);
            self.gone.remove(&(since_ms, name));
        }
    }

    /// Reports that a job has the offered file. False if another job has the file: then this job must not be
    /// made.
    pub fn handle_taken(&mut self, now: FolderMoment, take: &FileToTake, job: &str) -> bool {
        let job = job.to_string();
        let Some(row) = self.rows.get_mut(&take.name) else {
            // The file has gone since it was offered; the job will report what it found.
            let row = Row::new(take.version, FileStatus::New, now.unix_ms, self.walk);
            self.rows.insert(take.name.clone(), row);
            self.put(now, &take.name, FileStatus::Gone { past: PastStatus::Taken { job } });
            return true;
        };
        if !row.is_free() {
            return false;
        }
        let changed = row.waiting.as_ref().is_some_and(|now| now.version != take.version);
        row.version = take.version;
        self.unschedule(&take.name);
        if changed {
            self.put(now, &take.name, FileStatus::Changed { job });
            return true;
        }
        if let Some(row) = self.rows.get_mut(&take.name) {
            row.waiting = None;
        }
        self.put(now, &take.name, FileStatus::Taken { job });
        true
    }

    /// Reports that no job can be made of the offered file now: it is offered again after it has waited once
    /// more.
    pub fn handle_refused(&mut self, now: FolderMoment, take: &FileToTake) {
        let Some(row) = self.rows.get(&take.name).filter(|row| row.is_free()) else { return };
        if let Some(version) =
            row.waiting.as_ref().filter(|one| one.offer == TakeDecision::Asked).map(|one| one.version)
        {
            let status = row.status.clone();
            self.wait(now, &take.name, status, Sight { version, writer: WriterPresence::NotLooked });
        }
    }

    /// Reports how a job has ended for a file; `Err` says why the file has not arrived. False if this job
    /// does not have the file.
    pub fn handle_result(
        &mut self,
        now: FolderMoment,
        name: &WatchedName,
        job: &str,
        result: Result<(), FileFailure>,
    ) -> bool {
        let Some(row) = self.rows.get_mut(name) else { return false };
        let status = match &row.status {
            FileStatus::Taken { job: has } | FileStatus::Changed { job: has } if has == job => &row.status,
            // This is another run of the job, which somebody has requested.
            FileStatus::Failed { job: has, .. } if has == job => &row.status,
            FileStatus::Gone {
                past: PastStatus::Taken { job: has } | PastStatus::Failed { job: has, .. },
            } if has == job => &row.status,
            FileStatus::New
            | FileStatus::Settling
            | FileStatus::Taken { .. }
            | FileStatus::Changed { .. }
            | FileStatus::Done { .. }
            | FileStatus::Failed { .. }
            | FileStatus::Gone { .. } => return false,
        };
        let job = job.to_string();
        let past = match &result {
            Ok(()) => PastStatus::Done { job },
            Err(failure) => PastStatus::Failed { job, why: failure.why.clone() },
        };
        let next = match status {
            FileStatus::Gone { .. } => Some(FileStatus::Gone { past }),
            // Whatever has arrived, there is a newer version.
            FileStatus::Changed { .. } => None,
            _ => Some(past.into()),
        };
        let failing = result.err().map(|failure| Box::new(failed(now, row, name, failure)));
        if row.failing != failing {
            row.failing = failing;
            self.dirty.insert(name.clone());
        }
        match next {
            Some(status) => self.put(now, name, status),
            None => self.settle_anew(now, name),
        }
        self.index_failing(now, name);
        true
    }

    /// Reports that a job, which had failed, runs again: it has its files once more.
    pub fn handle_job_again(&mut self, now: FolderMoment, job: &str) {
        let has_failed = |row: &Row| matches!(&row.status, FileStatus::Failed { job: has, .. } if has == job);
        let names: Vec<_> =
            self.rows.iter().filter(|(_, row)| has_failed(row)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.put(now, &name, FileStatus::Taken { job: job.into() });
        }
    }

    /// Reports that a job of the folder got through: files whose jobs have failed as a whole, for a reason that
    /// passes, are taken again now.
    pub fn handle_through(&mut self, now: FolderMoment) {
        let waits = |name: &&WatchedName| {
            self.rows.get(*name).is_some_and(|row| {
                row.retry.is_some() && row.failing.as_ref().is_some_and(|failing| failing.whole)
            })
        };
        for name in self.failing.iter().filter(waits).cloned().collect::<Vec<_>>() {
            self.take_again(now, &name);
        }
    }

    /// Reports that a job of several files has ended without saying that this one has arrived: the file is
    /// taken again. False if this job does not have the file.
    pub fn handle_unconfirmed(
        &mut self,
        now: FolderMoment,
        name: &WatchedName,
        job: &str,
        failure: FileFailure,
    ) -> bool {
        match self.rows.get(name).map(|row| &row.status) {
            Some(FileStatus::Taken { job: has } | FileStatus::Changed { job: has }) if has == job => {
                self.settle_anew(now, name);
                true
            }
            Some(_) => self.handle_result(now, name, job, Err(failure)),
            None => false,
        }
    }

    /// Lets a file that has failed be taken again, as somebody has asked for that. False if it has not failed.
    pub fn retry(&mut self, now: FolderMoment, name: &WatchedName) -> bool {
        let Some(row) = self.rows.get_mut(name).filter(|row| matches!(row.status, FileStatus::Failed { .. }))
        else {
            return false;
        };
        if let Some(failing) = row.failing.as_deref_mut() {
            failing.tries = 0;
        }
        self.take_again(now, name);
        true
    }

    /// Offers a file that has failed, if the next look shows the version that has failed. It has stood still
    /// before, so it need not do so again.
    fn take_again(&mut self, now: FolderMoment, name: &WatchedName) {
        let Some(row) = self.rows.get(name) else { return };
        let sight = Sight { version: row.version, writer: WriterPresence::NotLooked };
        self.wait_for(now, name, FileStatus::Settling, sight, Duration::ZERO);
    }

    /// Takes failed files again whose time has come. Those whose time comes soon, as their pauses go, come along: one
    /// job for many files.
    fn begin_retries(&mut self, now: FolderMoment) {
        if self.retries.first().is_none_or(|(due, _)| *due > now.steady) {
            return;
        }
        let comes = |(due, name): &&(Duration, WatchedName)| {
            let tries = self.rows.get(name).and_then(|row| row.failing.as_deref()).map_or(1, |one| one.tries);
            due.saturating_sub(now.steady) <= pause(tries, 0) / 2
        };
        let names: Vec<_> = self.retries.iter().filter(comes).map(|(_, name)| name.clone()).collect();
        for name in names {
            self.take_again(now, &name);
        }
    }

    /// Lets a file wait again, with the version that was seen last. If it has changed since, the next look
    /// shows that.
    fn settle_anew(&mut self, now: FolderMoment, name: &WatchedName) {
        let Some(row) = self.rows.get(name) else { return };
        let version = row.waiting.as_ref().map_or(row.version, |waiting| waiting.version);
        self.wait(now, name, FileStatus::Settling, Sight { version, writer: WriterPresence::NotLooked });
    }

    /// When [`Self::poll_look`] yields something next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let first = |all: &BTreeSet<(Duration, WatchedName)>| all.first().map(|(wake, _)| *wake);
        first(&self.due).into_iter().chain(first(&self.retries)).min()
    }

    /// At most `count_max` files to look at now, also for who has them open. Report each with `handle_seen`
    /// or `handle_gone`.
    pub fn poll_look(&mut self, now: FolderMoment, count_max: usize) -> Vec<WatchedName> {
        self.begin_retries(now);
        let ready = |one: &&(Duration, WatchedName)| one.0 <= now.steady;
        let names: Vec<_> =
            self.due.iter().take_while(ready).take(count_max).map(|(_, name)| name.clone()).collect();
        for name in &names {
            self.unschedule(name);
            if let Some(waiting) = self.rows.get_mut(name).and_then(|row| row.waiting.as_mut()) {
                waiting.wake = now.steady.saturating_add(LOOK_AGAIN);
                self.due.insert((waiting.wake, name.clone()));
            }
        }
        names
    }

    /// The next file to take.
    pub fn poll_take(&mut self) -> Option<FileToTake> {
        while let Some(name) = self.takes.pop_front() {
            let row = self.rows.get_mut(&name).filter(|row| row.is_free());
            // A file that has changed or gone since is not offered any more.
            let waiting =
                row.and_then(|row| row.waiting.as_mut()).filter(|one| one.offer == TakeDecision::Queued);
            if let Some(waiting) = waiting {
                waiting.offer = TakeDecision::Asked;
                return Some(FileToTake { version: waiting.version, name });
            }
        }
        None
    }

    /// The changes since the last call, for the store.
    pub fn changes(&mut self) -> Vec<StoreChange> {
        let dirty = std::mem::take(&mut self.dirty);
        let change = |name: WatchedName| match self.rows.get(&name) {
            Some(row) => StoreChange::Put(entry(&name, row)),
            None => StoreChange::Remove(name),
        };
        dirty.into_iter().map(change).collect()
    }

    /// Changes a status. No other function does.
    fn put(&mut self, now: FolderMoment, name: &WatchedName, status: FileStatus) {
        let Some(row) = self.rows.get_mut(name) else { return };
        // A file that grows is written to the store once, and not each time that it is seen.
        if row.status == status {
            return;
        }
        self.gone.remove(&(row.since_ms, name.clone()));
        row.status = status;
        row.since_ms = now.unix_ms;
        if matches!(row.status, FileStatus::Gone { .. }) {
            self.gone.insert((row.since_ms, name.clone()));
        }
        self.dirty.insert(name.clone());
        self.index_failing(now, name);
    }

    /// Brings `failing` and `retries` in line with a row.
    fn index_failing(&mut self, now: FolderMoment, name: &WatchedName) {
        let Some(row) = self.rows.get_mut(name) else { return };
        if let Some(at) = row.retry.take() {
            self.retries.remove(&(at, name.clone()));
            self.failing_serial += 1;
        }
        let Some(failing) = row.failing.as_deref().filter(|_| !matches!(row.status, FileStatus::Gone { .. }))
        else {
            self.failing_serial += u64::from(self.failing.remove(name));
            return;
        };
        self.failing.insert(name.clone());
        self.failing_serial += 1;
        if let (FileStatus::Failed { .. }, Some(due_ms)) = (&row.status, failing.due_ms) {
            // A clock that was set makes nobody wait for longer than the longest pause.
            let left = Duration::from_millis(u64::try_from(due_ms.saturating_sub(now.unix_ms)).unwrap_or(0));
            let at = now.steady.saturating_add(left.min(backoff::longest(RETRY)));
            row.retry = Some(at);
            self.retries.insert((at, name.clone()));
        }
    }

    fn unschedule(&mut self, name: &WatchedName) {
        if let Some(waiting) = self.rows.get(name).and_then(|row| row.waiting.as_ref()) {
            self.due.remove(&(waiting.wake, name.clone()));
        }
    }

    fn remove(&mut self, name: &WatchedName) {
        self.unschedule(name);
        if let Some(row) = self.rows.remove(name) {
            if let Some(at) = row.retry {
                self.retries.remove(&(at, name.clone()));
            }
            self.failing_serial += u64::from(self.failing.remove(name));
            self.dirty.insert(name.clone());
        }
    }
}

impl RestingFile {
    fn begin(now: FolderMoment, sight: &Sight, rest: Duration) -> RestingFile {
        let ready = now.steady.saturating_add(rest);
        RestingFile { version: sight.version, ready, wake: ready, offer: TakeDecision::No }
    }
}

/// The pause before a file that has failed so many times in a row is taken again.
fn pause(tries: u32, seed: u64) -> Duration {
    backoff::pause(RETRY, tries.max(1).saturating_add(1), seed).unwrap_or(backoff::longest(RETRY))
}

/// What is known of a file for which a job has failed. The files of a job come back together.
fn failed(now: FolderMoment, row: &Row, name: &WatchedName, failure: FileFailure) -> FailureHistory {
    let before = row.failing.as_deref();
    let tries = before.map_or(0, |before| before.tries).saturating_add(1);
    let FileFailure { code, why, passes, whole } = failure;
    let seed = match &row.status {
        FileStatus::Taken { job } | FileStatus::Failed { job, .. } => backoff::seed(job),
        _ => backoff::seed(&name.to_string()),
    };
    let due = || now.unix_ms.saturating_add(i64::try_from(pause(tries, seed).as_millis()).unwrap_or(0));
    let since_ms = before.map_or(now.unix_ms, |before| before.since_ms);
    FailureHistory { code, why, tries, since_ms, due_ms: passes.then(due), whole: whole && passes }
}

/// For a row of an earlier version of the service, which kept no code.
fn failing_of_old(status: &FileStatus, since_ms: i64) -> Option<FailureHistory> {
    let FileStatus::Failed { why, .. } = status else { return None };
    let (code, why) = (farhaul::errors::Code::FilesFailed, why.clone());
    Some(FailureHistory { code, why, tries: 1, since_ms, due_ms: None, whole: false })
}

fn entry(name: &WatchedName, row: &Row) -> WatchedFile {
    WatchedFile {
        name: name.clone(),
        version: row.version,
        status: row.status.clone(),
        since_ms: row.since_ms,
        failing: row.failing.as_deref().cloned(),
    }
}

#[cfg(test)]
mod tests;
