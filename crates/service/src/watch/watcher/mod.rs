//! Watches a folder: waits for the kernel or the clock, looks, and reports to [`Folder`] what it has seen.
//!
//! How to read it: a thread of the service calls [`Watcher::turn`] again and again; each turn sleeps until
//! there is something to do. Other threads wake it by a [`WatcherWaker`].
//!
//! Always true: hints only say where to look; a full scan comes at intervals, and sooner if hints were lost;
//! a folder in which nothing happens costs one scan per interval, and at most 0.5 % of a core for that.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use farhaul::Error;
use farhaul::sisters::{escape, plain};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::Stat;

use super::config::FolderWatch;
use super::entry::{FileFailure, FileStatus, FileVersion, StoreChange, WatchedFile, WatchedName};
use super::events::{InotifyEvents, WatchFailure, WatchHint};
use super::folder::{FileToTake, Folder, FolderMoment, Sight, WriterPresence};
use super::names::NameFilter;
use super::tree::{self, TreeVisitor};
use super::writers::{self, FileId};

/// The time between two scans where the kernel reports changes.
const RESCAN: Duration = Duration::from_secs(60);
/// The time between two scans where it does not.
const RESCAN_BLIND: Duration = Duration::from_secs(10);
/// After a scan, this many times its duration passes without one. This bounds scans to 0.5 % of a core, or to
/// 5 % where they are the only way to see changes.
const REST: u32 = 200;
const REST_BLIND: u32 = 20;
/// The longest time between two scans.
const RESCAN_MAX: Duration = Duration::from_secs(3600);
/// How soon a scan comes after hints were lost, or after the folder could not be read.
const SOON: Duration = Duration::from_secs(1);
/// The least time between two checks of who has files open, as a check goes over all processes.
const LOOKS: Duration = Duration::from_secs(1);
/// The most files that are looked at together.
const LOOKS_MAX: usize = 10_000;

/// A notice about a folder for its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// The folder cannot be read; nothing is taken and nothing counts as gone.
    Missing(String),
    /// Other hosts may change the folder, which the kernel does not report: only scans see changes.
    Shared,
    /// The kernel reports no changes: only scans see them.
    NoEvents(String),
    /// The limit of watched directories is reached: only scans see changes in the others.
    WatchLimit,
    /// A directory could not be read; nothing in it counts as gone.
    Unread {
        /// The directory.
        directory: String,
        /// The reason.
        why: String,
    },
    /// There are more files than can be remembered; further ones wait.
    TooMany(u64),
}

impl Notice {
    /// The notice as one line for people.
    pub fn text(&self) -> String {
        match self {
            Notice::Missing(why) => format!("the folder cannot be read: {why}"),
            Notice::Shared => "other hosts may write to this file system: only scans see changes".into(),
            Notice::NoEvents(why) => {
                format!("the kernel does not report changes ({why}): only scans see them")
            }
            Notice::WatchLimit => "too many directories: only scans see changes in some of them \
                (raise fs.inotify.max_user_watches)"
                .into(),
            Notice::Unread { directory, why } => format!("the directory {directory} cannot be read: {why}"),
            Notice::TooMany(count) => format!("too many files: {count} of them wait until others are gone"),
        }
    }
}

/// The result of a turn.
#[derive(Debug, Default)]
pub struct WatcherTurn {
    /// Files to make jobs of. Answer each with [`Watcher::taken`] or [`Watcher::refused`].
    pub takes: Vec<FileToTake>,
    /// Changes for the store.
    pub changes: Vec<StoreChange>,
    /// Notices that are new.
    pub notices: Vec<Notice>,
}

/// Ends the sleep of a turn.
#[derive(Debug, Clone)]
pub struct WatcherWaker(Arc<WakeSignal>);

#[derive(Debug)]
struct WakeSignal {
    event: OwnedFd,
    is_over: AtomicBool,
}

impl WatcherWaker {
    /// Lets the running turn, or the next one, return soon.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
    }

    /// Lets the running turn return at once, also in the middle of a scan. No further turn does anything.
    pub fn end(&self) {
        self.0.is_over.store(true, Relaxed);
        self.wake();
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Relaxed)
    }
}

/// The clock of a watcher.
pub type FolderClock = Box<dyn Fn() -> FolderMoment + Send>;

/// A watched folder.
pub struct Watcher {
    watch: FolderWatch,
    names: NameFilter,
    folder: Folder,
    clock: FolderClock,
    events: Option<InotifyEvents>,
    wake: WatcherWaker,
    next_walk: Duration,
    next_look: Duration,
    /// When the last complete scan ended.
    walked: Option<Duration>,
    /// The notices that hold now.
    notices: BTreeSet<Notice>,
}

/// Collects what a scan finds.
struct TreeWalk<'a> {
    clock: &'a FolderClock,
    waker: &'a WatcherWaker,
    folder: &'a mut Folder,
    events: Option<&'a mut InotifyEvents>,
    unread: Vec<WatchedName>,
    notices: BTreeSet<Notice>,
}

impl TreeVisitor for TreeWalk<'_> {
    fn goes_on(&self) -> bool {
        !self.waker.is_over()
    }

    fn directory(&mut self, name: &WatchedName, directory: &OwnedFd) {
        let Some(events) = &mut self.events else { return };
        match events.watch(name, directory) {
            Ok(()) => {}
            Err(WatchFailure::Limit) => drop(self.notices.insert(Notice::WatchLimit)),
            Err(WatchFailure::Other) => {
                self.notices.insert(Notice::NoEvents("a directory cannot be watched".into()));
            }
        }
    }

    fn file(&mut self, name: &WatchedName, version: FileVersion) {
        self.folder.handle_seen((self.clock)(), name, Sight { version, writer: WriterPresence::NotLooked });
    }

    fn unread(&mut self, name: &WatchedName, error: io::Error) {
        let directory = match name.bytes() {
            b"" => ".".into(),
            bytes => escape(bytes),
        };
        // One of them is enough to say what is wrong.
        if self.unread.is_empty() {
            self.notices.insert(Notice::Unread { directory, why: plain(&error) });
        }
        self.unread.push(name.clone());
    }
}

impl Watcher {
    /// Begins to watch; `rows` are those of the store about this folder. The folder need not exist yet.
    pub fn new(
        watch: FolderWatch,
        rows: impl IntoIterator<Item = WatchedFile>,
        clock: FolderClock,
    ) -> Result<Watcher, Error> {
        let watch = watch.checked()?;
        let cannot = || Error::io(format!("cannot watch {}", watch.folder.display()));
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| cannot()(error.into()))?;
        Ok(Watcher {
            names: NameFilter::new(&watch)?,
            folder: Folder::new(clock(), watch.settle(), rows),
            next_walk: Duration::ZERO,
            next_look: Duration::ZERO,
            walked: None,
            events: None,
            wake: WatcherWaker(Arc::new(WakeSignal { event: wake, is_over: AtomicBool::new(false) })),
            notices: BTreeSet::new(),
            watch,
            clock,
        })
    }

    /// A waker for this watcher.
    pub fn waker(&self) -> WatcherWaker {
        self.wake.clone()
    }

    /// The facts that are known about each file.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The notices that hold now.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.iter()
    }

    /// Reports that a job has the offered file; see [`Folder::handle_taken`]. The changes must be stored in
    /// one transaction with the job.
    pub fn taken(&mut self, take: &FileToTake, job: &str) -> (bool, Vec<StoreChange>) {
        let has = self.folder.handle_taken((self.clock)(), take, job);
        (has, self.folder.changes())
    }

    /// Reports that no job can be made of the offered file now.
    pub fn refused(&mut self, take: &FileToTake) {
        self.folder.handle_refused((self.clock)(), take);
    }

    /// Reports how a job has ended for a file; see [`Folder::handle_result`].
    pub fn ended(
        &mut self,
        name: &WatchedName,
        job: &str,
        result: Result<(), FileFailure>,
    ) -> Vec<StoreChange> {
        self.folder.handle_result((self.clock)(), name, job, result);
        self.folder.changes()
    }

    /// Reports that a job has ended without saying that a file has arrived; see
    /// [`Folder::handle_unconfirmed`].
    pub fn unconfirmed(&mut self, name: &WatchedName, job: &str, failure: FileFailure) -> Vec<StoreChange> {
        self.folder.handle_unconfirmed((self.clock)(), name, job, failure);
        self.folder.changes()
    }

    /// Reports that a job that had failed runs again; see [`Folder::handle_job_again`].
    pub fn job_again(&mut self, job: &str) -> Vec<StoreChange> {
        self.folder.handle_job_again((self.clock)(), job);
        self.folder.changes()
    }

    /// Reports that a job got through; see [`Folder::handle_through`].
    pub fn through(&mut self) -> Vec<StoreChange> {
        self.folder.handle_through((self.clock)());
        self.folder.changes()
    }

    /// Lets files that have failed be taken again.
    pub fn retry_failed(&mut self) -> Vec<StoreChange> {
        let now = (self.clock)();
        let is_failed = |entry: &WatchedFile| matches!(entry.status, FileStatus::Failed { .. });
        let failed: Vec<WatchedName> =
            self.folder.entries().filter(is_failed).map(|entry| entry.name).collect();
        for name in failed {
            self.folder.retry(now, &name);
        }
        self.folder.changes()
    }

    /// Sleeps until there is something to do, at most `wait_max`, and does it.
    pub fn turn(&mut self, wait_max: Duration) -> WatcherTurn {
        let before = self.notices.clone();
        self.sleep(wait_max);
        if self.wake.is_over() {
            return WatcherTurn::default();
        }
        let hints = self.events.as_mut().map(InotifyEvents::hints).unwrap_or_default();
        self.follow(hints);
        if (self.clock)().steady >= self.next_walk {
            self.walk();
        }
        self.look();
        WatcherTurn {
            takes: std::iter::from_fn(|| self.folder.poll_take()).collect(),
            changes: self.folder.changes(),
            notices: self.notices.difference(&before).cloned().collect(),
        }
    }

    fn sleep(&self, wait_max: Duration) {
        let now = (self.clock)().steady;
        let look = self.folder.poll_timeout().map_or(Duration::MAX, |due| due.max(self.next_look));
        let wait = self.next_walk.min(look).saturating_sub(now).min(wait_max);
        let mut wanted = vec![PollFd::new(&self.wake.0.event, PollFlags::IN)];
        wanted.extend(
            self.events.as_ref().map(|events| PollFd::from_borrowed_fd(events.descriptor(), PollFlags::IN)),
        );
        // `poll` can fail by an interruption or for lack of kernel memory: then the turn is short.
        let _ = poll(&mut wanted, Timespec::try_from(wait).ok().as_ref());
        let _ = rustix::io::read(&self.wake.0.event, &mut [0; 8]);
    }

    fn follow(&mut self, hints: Vec<WatchHint>) {
        if hints.is_empty() {
            return;
        }
        let Ok(root) = self.watch.reach.open(&self.watch.folder) else {
            return self.walk_soon();
        };
        let mut files = BTreeSet::new();
        for hint in hints {
            match hint {
                WatchHint::File(name) => drop(files.insert(name)),
                WatchHint::Appeared(name) => self.walk_from(&root, &name),
                WatchHint::Vanished(name) => self.folder.handle_gone_below((self.clock)(), &name),
                WatchHint::Lost => self.walk_soon(),
            }
        }
        files.retain(|name| self.names.takes(name.bytes()));
        for name in files {
            self.look_at(&root, &name);
        }
    }

    fn walk_soon(&mut self) {
        // A folder that loses hints all the time must not be scanned all the time.
        let earliest = self.walked.map_or(Duration::ZERO, |walked| walked + SOON);
        self.next_walk = self.next_walk.min(earliest.max((self.clock)().steady));
    }

    /// Scans a directory that has appeared, with everything in it.
    fn walk_from(&mut self, root: &OwnedFd, name: &WatchedName) {
        // A directory above may be excluded, too. But its parent is watched, so that one is not.
        if !self.names.enters(name.bytes()) {
            return;
        }
        let mut walk = TreeWalk {
            clock: &self.clock,
            waker: &self.wake,
            folder: &mut self.folder,
            events: self.events.as_mut(),
            unread: Vec::new(),
            notices: BTreeSet::new(),
        };
        tree::walk(root, name, &self.names, &mut walk);
        let notices = walk.notices;
        self.notices.extend(notices);
    }

    /// Scans the whole folder.
    fn walk(&mut self) {
        let begin = (self.clock)();
        let root = match self.watch.reach.open(&self.watch.folder) {
            Ok(root) => root,
            Err(error) => {
                self.notices = BTreeSet::from([Notice::Missing(plain(&error))]);
                self.events = None;
                self.next_walk = begin.steady + RESCAN_BLIND;
                return;
            }
        };
        let mut notices = BTreeSet::new();
        self.begin_events(&root, &mut notices);
        self.folder.begin_walk();
        let mut walk = TreeWalk {
            clock: &self.clock,
            waker: &self.wake,
            folder: &mut self.folder,
            events: self.events.as_mut(),
            unread: Vec::new(),
            notices,
        };
        tree::walk(&root, &WatchedName::new(""), &self.names, &mut walk);
        let TreeWalk { unread, mut notices, .. } = walk;
        // A scan that was cut off says nothing of what it has not seen.
        if self.wake.is_over() {
            return;
        }
        let end = (self.clock)();
        self.folder.end_walk(end, &unread);
        if self.folder.too_many() > 0 {
            notices.insert(Notice::TooMany(self.folder.too_many()));
        }
        let is_blind = self.events.is_none() || notices.contains(&Notice::WatchLimit);
        self.notices = notices;
        self.walked = Some(end.steady);
        self.next_walk =
            end.steady + pause(self.watch.rescan_s, is_blind, end.steady.saturating_sub(begin.steady));
    }

    fn begin_events(&mut self, root: &OwnedFd, notices: &mut BTreeSet<Notice>) {
        if tree::is_shared(root) {
            self.events = None;
            notices.insert(Notice::Shared);
            return;
        }
        if self.events.is_none() {
            match InotifyEvents::new() {
                Ok(events) => self.events = Some(events),
                Err(error) => drop(notices.insert(Notice::NoEvents(error.to_string()))),
            }
        }
    }

    /// Reports a file without checking who writes it. If it cannot be looked at, it stays as it is until the
    /// next scan.
    fn look_at(&mut self, root: &OwnedFd, name: &WatchedName) {
        let looked = tree::look(root, name);
        // The clock is read after the look: then the file counts as unchanged for no longer than it was.
        let now = (self.clock)();
        match looked {
            Ok(Some(stat)) => {
                let sight = Sight { version: FileVersion::of(&stat), writer: WriterPresence::NotLooked };
                self.folder.handle_seen(now, name, sight);
            }
            Ok(None) => self.folder.handle_gone(now, name),
            Err(_) => {}
        }
    }

    /// Looks at the files that may be taken now.
    fn look(&mut self) {
        let now = (self.clock)();
        if now.steady < self.next_look {
            return;
        }
        let names = self.folder.poll_look(now, LOOKS_MAX);
        if names.is_empty() {
            return;
        }
        self.next_look = now.steady + LOOKS;
        let Ok(root) = self.watch.reach.open(&self.watch.folder) else {
            return self.walk_soon();
        };
        let id = |stat: &Stat| -> FileId { (stat.st_dev, stat.st_ino) };
        let ids = names
            .iter()
            .filter_map(|name| tree::look(&root, name).ok().flatten())
            .map(|stat| id(&stat))
            .collect();
        // Writers are looked for before the version is read: a writer that has closed the file in between has
        // changed the version.
        let open = writers::open_for_writing(&ids);
        for name in names {
            let looked = tree::look(&root, &name);
            let now = (self.clock)();
            match looked {
                Ok(Some(stat)) => {
                    let writer = match (ids.contains(&id(&stat)), open.contains(&id(&stat))) {
                        (false, _) => WriterPresence::NotLooked,
                        (true, true) => WriterPresence::Open,
                        (true, false) => WriterPresence::NoneSeen,
                    };
                    self.folder.handle_seen(now, &name, Sight { version: FileVersion::of(&stat), writer });
                }
                Ok(None) => self.folder.handle_gone(now, &name),
                Err(_) => {}
            }
        }
    }
}

/// The time from one scan to the next.
fn pause(rescan_s: Option<u32>, is_blind: bool, took: Duration) -> Duration {
    let (usual, rest) = if is_blind { (RESCAN_BLIND, REST_BLIND) } else { (RESCAN, REST) };
    let wanted = rescan_s.map_or(usual, |seconds| Duration::from_secs(seconds.into()));
    wanted.max(took.saturating_mul(rest).min(RESCAN_MAX))
}

#[cfg(test)]
mod tests;
