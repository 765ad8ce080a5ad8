//! The eyes of a folder: waits for the kernel or the clock, looks, and tells [`Folder`] what it has seen.
//!
//! How to read it: a thread of the service calls [`Watcher::turn`] again and again; each turn sleeps until
//! something is to do. Others wake it by a [`WatcherWaker`].
//!
//! Always true: hints only say where to look, a walk over everything comes at intervals, and sooner when
//! hints were lost; a folder in which nothing happens costs a walk an interval, and no more than 0.5 % of a
//! core for it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use farhaul::{Error, escape};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::Stat;

use super::config::FolderWatch;
use super::entry::{FileStatus, FileVersion, StoreChange, WatchedFile, WatchedName};
use super::events::{InotifyEvents, WatchFailure, WatchHint};
use super::folder::{FileToTake, Folder, FolderMoment, Sight, WriterPresence};
use super::names::NameFilter;
use super::tree::{self, TreeVisitor};
use super::writers::{self, FileId};

/// Between two walks, where the kernel tells of changes.
const RESCAN: Duration = Duration::from_secs(60);
/// And where it does not.
const RESCAN_BLIND: Duration = Duration::from_secs(10);
/// A walk is followed by so many times its own length without one: 0.5 % of a core, or 5 % where there is
/// nothing else to see by.
const REST: u32 = 200;
const REST_BLIND: u32 = 20;
/// But by no more than this.
const RESCAN_MAX: Duration = Duration::from_secs(3600);
/// After hints were lost, or the folder could not be read, a walk comes so soon.
const SOON: Duration = Duration::from_secs(1);
/// Looking who has files open goes over all processes: not more often than this.
const LOOKS: Duration = Duration::from_secs(1);
/// Files that are looked at together.
const LOOKS_MAX: usize = 10_000;

/// Something about a folder that its owner wants to know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// It cannot be read; nothing is taken and nothing counts as gone.
    Missing(String),
    /// Changes by other hosts are not told by the kernel: they are seen by walks only.
    Shared,
    /// The kernel tells nothing: changes are seen by walks only.
    NoEvents(String),
    /// The limit of watched directories is reached: changes in others are seen by walks only.
    WatchLimit,
    /// A directory could not be read; nothing in it counts as gone.
    Unread {
        /// Which.
        directory: String,
        /// Why.
        why: String,
    },
    /// There are more files than can be kept in mind; others wait.
    TooMany(u64),
}

impl Notice {
    /// One line for people.
    pub fn text(&self) -> String {
        match self {
            Notice::Missing(why) => format!("the folder cannot be read: {why}"),
            Notice::Shared => {
                "other hosts may write to this file system: changes are seen by walks only".into()
            }
            Notice::NoEvents(why) => {
                format!("the kernel tells of no changes ({why}): they are seen by walks only")
            }
            Notice::WatchLimit => "too many directories: changes in some are seen by walks only \
                (raise fs.inotify.max_user_watches)"
                .into(),
            Notice::Unread { directory, why } => format!("the directory {directory} cannot be read: {why}"),
            Notice::TooMany(count) => format!("too many files: {count} wait until others are gone"),
        }
    }
}

/// What a turn has brought.
#[derive(Debug, Default)]
pub struct WatcherTurn {
    /// Files to make jobs for; each is answered by [`Watcher::taken`] or [`Watcher::refused`].
    pub takes: Vec<FileToTake>,
    /// What a store has to write; those of [`Watcher::taken`] together with the job.
    pub changes: Vec<StoreChange>,
    /// What is new about the folder.
    pub notices: Vec<Notice>,
}

/// Ends the sleep of a turn.
#[derive(Debug, Clone)]
pub struct WatcherWaker(Arc<OwnedFd>);

impl WatcherWaker {
    /// A turn that is under way, or the next one, returns soon.
    pub fn wake(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// What tells the time.
pub type FolderClock = Box<dyn Fn() -> FolderMoment + Send>;

/// A folder that is watched.
pub struct Watcher {
    watch: FolderWatch,
    names: NameFilter,
    folder: Folder,
    clock: FolderClock,
    events: Option<InotifyEvents>,
    wake: WatcherWaker,
    next_walk: Duration,
    next_look: Duration,
    /// The end of the last walk that went through.
    walked: Option<Duration>,
    /// How things stand.
    notices: BTreeSet<Notice>,
}

/// What a walk has found.
struct TreeWalk<'a> {
    clock: &'a FolderClock,
    folder: &'a mut Folder,
    events: Option<&'a mut InotifyEvents>,
    unread: Vec<WatchedName>,
    notices: BTreeSet<Notice>,
}

impl TreeVisitor for TreeWalk<'_> {
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
        // One is enough to say what is wrong.
        if self.unread.is_empty() {
            self.notices.insert(Notice::Unread { directory, why: error.to_string() });
        }
        self.unread.push(name.clone());
    }
}

impl Watcher {
    /// Begins to watch; `rows` are those that the store has of this folder. The folder itself need not be
    /// there yet.
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
            folder: Folder::new(watch.settle(), rows),
            next_walk: Duration::ZERO,
            next_look: Duration::ZERO,
            walked: None,
            events: None,
            wake: WatcherWaker(Arc::new(wake)),
            notices: BTreeSet::new(),
            watch,
            clock,
        })
    }

    /// What ends a turn's sleep.
    pub fn waker(&self) -> WatcherWaker {
        self.wake.clone()
    }

    /// What is known of each file.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// How things stand.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.iter()
    }

    /// A job has what was offered; see [`Folder::handle_taken`]. The changes are to be stored together with
    /// the job.
    pub fn taken(&mut self, take: &FileToTake, job: &str) -> (bool, Vec<StoreChange>) {
        let has = self.folder.handle_taken((self.clock)(), take, job);
        (has, self.folder.changes())
    }

    /// No job can be made of what was offered now.
    pub fn refused(&mut self, take: &FileToTake) {
        self.folder.handle_refused((self.clock)(), take);
    }

    /// A job has ended for a file; see [`Folder::handle_result`].
    pub fn ended(&mut self, name: &WatchedName, job: &str, result: Result<(), String>) -> Vec<StoreChange> {
        self.folder.handle_result((self.clock)(), name, job, result);
        self.folder.changes()
    }

    /// A job has ended and does not say of a file that it has arrived; see [`Folder::handle_unconfirmed`].
    pub fn unconfirmed(&mut self, name: &WatchedName, job: &str, why: &str) -> Vec<StoreChange> {
        self.folder.handle_unconfirmed((self.clock)(), name, job, why);
        self.folder.changes()
    }

    /// Has files that have failed be taken again.
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

    /// Sleeps until something is to do, `wait_max` at most, and does it.
    pub fn turn(&mut self, wait_max: Duration) -> WatcherTurn {
        let before = self.notices.clone();
        self.sleep(wait_max);
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
        let mut wanted = vec![PollFd::new(&*self.wake.0, PollFlags::IN)];
        wanted.extend(
            self.events.as_ref().map(|events| PollFd::from_borrowed_fd(events.descriptor(), PollFlags::IN)),
        );
        // What fails here is an interruption, or a lack of memory in the kernel: the turn is a short one.
        let _ = poll(&mut wanted, Timespec::try_from(wait).ok().as_ref());
        let _ = rustix::io::read(&*self.wake.0, &mut [0; 8]);
    }

    fn follow(&mut self, hints: Vec<WatchHint>) {
        if hints.is_empty() {
            return;
        }
        let Ok(root) = tree::open_root(&self.watch.folder) else { return self.walk_soon() };
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
        // A folder that overflows all the time is not walked all the time.
        let earliest = self.walked.map_or(Duration::ZERO, |walked| walked + SOON);
        self.next_walk = self.next_walk.min(earliest.max((self.clock)().steady));
    }

    /// A directory that has appeared, with all that is in it by now.
    fn walk_from(&mut self, root: &OwnedFd, name: &WatchedName) {
        // One above it may be left out, too; its own parent is watched, so that is in.
        if !self.names.enters(name.bytes()) {
            return;
        }
        let mut walk = TreeWalk {
            clock: &self.clock,
            folder: &mut self.folder,
            events: self.events.as_mut(),
            unread: Vec::new(),
            notices: BTreeSet::new(),
        };
        tree::walk(root, name, &self.names, &mut walk);
        let notices = walk.notices;
        self.notices.extend(notices);
    }

    /// Everything.
    fn walk(&mut self) {
        let begin = (self.clock)();
        let root = match tree::open_root(&self.watch.folder) {
            Ok(root) => root,
            Err(error) => {
                self.notices = BTreeSet::from([Notice::Missing(error.to_string())]);
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
            folder: &mut self.folder,
            events: self.events.as_mut(),
            unread: Vec::new(),
            notices,
        };
        tree::walk(&root, &WatchedName::new(""), &self.names, &mut walk);
        let TreeWalk { unread, mut notices, .. } = walk;
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

    /// Tells of a file without an eye on who writes it. What cannot be looked at stays as it is until a walk.
    fn look_at(&mut self, root: &OwnedFd, name: &WatchedName) {
        let looked = tree::look(root, name);
        // Read after the look: what changed before it has stood still since then at most.
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

    /// The looks that may take files.
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
        let Ok(root) = tree::open_root(&self.watch.folder) else { return self.walk_soon() };
        let id = |stat: &Stat| -> FileId { (stat.st_dev, stat.st_ino) };
        let ids = names
            .iter()
            .filter_map(|name| tree::look(&root, name).ok().flatten())
            .map(|stat| id(&stat))
            .collect();
        // Who writes is looked for before the version is: one who has closed the file since has changed the
        // version.
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

/// How long after a walk the next one comes.
fn pause(rescan_s: Option<u32>, is_blind: bool, took: Duration) -> Duration {
    let (usual, rest) = if is_blind { (RESCAN_BLIND, REST_BLIND) } else { (RESCAN, REST) };
    let wanted = rescan_s.map_or(usual, |seconds| Duration::from_secs(seconds.into()));
    wanted.max(took.saturating_mul(rest).min(RESCAN_MAX))
}

#[cfg(test)]
mod tests;
