//! The store: everything that the service must still know after a restart, in one SQLite file.
//!
//! How to read it: [`Store`] has one thread that writes, and connections that read; `schema.rs` brings a file
//! to the present schema; each table has a module, with a function for each query and the SQL beside it.
//!
//! There are two ways to write. [`Store::write`] waits until the change is on the disk, so that the answer to
//! a user, such as that a job is accepted, stays true after a power cut. [`Store::later`] does not wait, and
//! is for what happens while jobs run. Its changes are made in order; while the disk has no room for one,
//! that change and those after it wait.
//!
//! `rows.rs` leaves out rows that cannot be read, and `check.rs` lists them.
//!
//! Always true: a change is made completely or not at all; changes are made in the order of the calls; if the
//! process is killed, no change of [`Store::later`] is lost that was already given to the kernel.

pub(crate) mod caps;
mod check;
pub(crate) mod clock;
mod copies;
mod damage;
mod deferred_changes;
pub(crate) mod deliveries;
pub(crate) mod feeds;
pub(crate) mod history;
pub(crate) mod idempotency;
pub(crate) mod jobs;
mod locks;
pub(crate) mod log;
pub(crate) mod logins;
mod rows;
mod schema;
pub(crate) mod tokens;
pub(crate) mod watches;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use deferred_changes::DeferredChanges;

/// The most changes that wait for the thread; a further caller is blocked.
const WAITING_MAX: usize = 4096;
/// The most changes of [`Store::later`] in one transaction.
const BATCH: usize = 256;
/// While more changes than this wait, [`Store::note`] drops its change.
const NOTES_MAX: u64 = 2048;
/// How often a change is tried again after the disk has refused it.
const AGAIN_EVERY: Duration = Duration::from_secs(1);
/// How long a reader waits for earlier changes.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// How long to wait for another process that has locked the file, such as an operator's `sqlite3`. While it
/// holds the lock, changes fail at once, and the lock is tried again as often as a disk that is full.
const LOCK_TIME: Duration = Duration::from_secs(1);
/// The same when the service ends.
const END_LOCK_TIME: Duration = Duration::from_secs(1);
/// How many connections are kept for reading.
const READERS_KEPT: usize = 4;

/// Yields why the change could not be made.
type ImmediateCall = Box<dyn FnOnce(&mut Connection) -> Option<Error> + Send>;
type DeferredCall = Box<dyn FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send>;

type AfterCall = Box<dyn FnOnce() + Send>;

enum Work {
    Now(ImmediateCall),
    Later(DeferredCall),
    Then(AfterCall),
    End,
    /// Limits the size of the file, in pages.
    #[cfg(test)]
    Pages(i64),
}

/// The open store.
pub(crate) struct Store {
    path: PathBuf,
    to_writer: SyncSender<Work>,
    writer: Mutex<Option<JoinHandle<()>>>,
    readers: Mutex<Vec<Connection>>,
    health: Arc<Health>,
}

/// The state of the writing thread.
#[derive(Debug, Default)]
struct Health {
    /// True if the last change could not be made, and waits.
    is_failing: AtomicBool,
    /// Why it could not be made.
    failure: Mutex<Option<Error>>,
    waiting: AtomicU64,
}

impl Health {
    fn failure(&self) -> Option<Error> {
        self.failure.lock().in_any_case().clone()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the file, makes it if it does not exist, and brings it to the present schema.
    pub(crate) fn open(path: &Path) -> Result<Store, Error> {
        copies::make_private(path)?;
        let was_killed = damage::has_log(path);
        let mut connection = connect(path, OpenFlags::default()).map_err(|error| failed(path, error))?;
        if schema::migrate(&mut connection, path)? == schema::Found::Nothing {
            damage::tell_loss(path);
        }
        // What an earlier process has left in the log is in the file itself from now on.
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if was_killed {
            damage::look(path);
        }
        let (to_writer, work) = mpsc::sync_channel(WAITING_MAX);
        let health = Arc::new(Health::default());
        let (held, to) = (health.clone(), path.to_path_buf());
        let run = move || {
            let (deferred, then) = (DeferredChanges::default(), Vec::new());
            Writer { path: to, connection, deferred, then, health: held, is_locked: false }.run(&work)
        };
        let writer = std::thread::Builder::new().name("store".into()).spawn(run).map_err(Error::no_thread)?;
        Ok(Store {
            path: path.to_path_buf(),
            to_writer,
            writer: Mutex::new(Some(writer)),
            readers: Mutex::default(),
            health,
        })
    }

    /// Runs a query.
    pub(crate) fn read<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let kept = self.readers.lock().in_any_case().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => connect(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
                .map_err(|error| failed(&self.path, error))?,
        };
        let answer = ask(&connection);
        let mut readers = self.readers.lock().in_any_case();
        if readers.len() < READERS_KEPT {
            readers.push(connection);
        }
        drop(readers);
        answer.map_err(|error| failed(&self.path, error))
    }

    /// Makes a change in one transaction, and waits until it is on the disk. Earlier changes are made first;
    /// if they cannot be made, this one fails, too.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = mpsc::sync_channel(1);
        let path = self.path.clone();
        let work = move |connection: &mut Connection| {
            let made = in_transaction(connection, WriteDurability::Disk, change);
            let made = made.map_err(|error| failed(&path, error));
            let failure = made.as_ref().err().cloned();
            let _ = answer.send(made);
            failure
        };
        let gone = || Error::new(Code::HostFailed, "the store's thread has ended");
        self.to_writer.send(Work::Now(Box::new(work))).map_err(|_| gone())?;
        match answered.recv() {
            Ok(answer) => answer,
            // Earlier changes wait, and must be made first.
            Err(_) => Err(self.health.failure().unwrap_or_else(gone)),
        }
    }

    /// Makes the changes that wait, if the disk takes them. Later changes are not made. A process that ends
    /// calls this, as a thread that holds the store to the end would keep it from being dropped.
    pub(crate) fn end(&self) {
        self.readers.lock().in_any_case().clear();
        let _ = self.to_writer.send(Work::End);
        if let Some(writer) = self.writer.lock().in_any_case().take() {
            let _ = writer.join();
        }
    }

    /// Makes a change soon, in the order of all changes. The closure may be called again if the disk has
    /// refused the change.
    pub(crate) fn later(
        &self,
        change: impl FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) {
        self.health.waiting.fetch_add(1, Relaxed);
        // If the thread has ended, the service is ending, too, and nothing can be done.
        let _ = self.to_writer.send(Work::Later(Box::new(change)));
    }

    /// As [`Store::later`], for changes that may be lost: the change is dropped while too many wait.
    pub(crate) fn note(&self, change: impl FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static) {
        if self.health.waiting.load(Relaxed) < NOTES_MAX {
            self.later(change);
        }
    }

    /// Waits until earlier changes are in the store, but not for a disk that has no room.
    pub(crate) fn settle(&self) {
        let (tell, told) = mpsc::sync_channel(1);
        self.then(move || {
            let _ = tell.try_send(());
        });
        let _ = told.recv_timeout(SETTLE_TIME);
    }

    /// Makes this call once all earlier changes are made, however long that takes.
    pub(crate) fn then(&self, call: impl FnOnce() + Send + 'static) {
        let _ = self.to_writer.send(Work::Then(Box::new(call)));
    }

    /// True if changes wait because the store cannot be written.
    pub(crate) fn is_failing(&self) -> bool {
        self.health.is_failing.load(Relaxed)
    }

    /// Why changes wait, if they do.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.health.failure().filter(|_| self.is_failing())
    }

    /// How many changes wait.
    pub(crate) fn pending(&self) -> u64 {
        self.health.waiting.load(Relaxed)
    }

    /// Writes a copy of the whole store, as it is at one moment, to a new file that only this user can read.
    /// Meanwhile the store can be used.
    pub(crate) fn backup(&self, to: &Path) -> Result<(), Error> {
        self.read(|connection| Ok(copies::write(connection, to)))?
    }

    /// Lists the faults of the file, and the rows that cannot be read; the list is empty if there are none.
    pub(crate) fn check(&self) -> Result<Vec<String>, Error> {
        self.read(|connection| {
            let mut found = Vec::new();
            for question in ["PRAGMA integrity_check(100)", "PRAGMA foreign_key_check"] {
                let mut statement = connection.prepare(question)?;
                let columns = statement.column_count();
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    let cells = (0..columns).map(|at| row.get_ref(at).map(|cell| text(&cell)));
                    found.push(cells.collect::<rusqlite::Result<Vec<_>>>()?.join(" "));
                }
            }
            found.retain(|line| line != "ok");
            found.extend(check::unreadable(connection)?);
            Ok(found)
        })
    }
}

fn text(cell: &rusqlite::types::ValueRef<'_>) -> String {
    use rusqlite::types::ValueRef;
    match cell {
        ValueRef::Null => "-".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) | ValueRef::Blob(text) => farhaul_text::printable(text, 200),
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread that writes.
struct Writer {
    path: PathBuf,
    connection: Connection,
    deferred: DeferredChanges,
    /// Calls to make when no change waits any more.
    then: Vec<AfterCall>,
    health: Arc<Health>,
    /// True if another process held the lock at the last change.
    is_locked: bool,
}

impl Writer {
    fn run(mut self, work: &Receiver<Work>) {
        self.work_off(work);
        // Then the file alone is the store. A log beside it would undo that somebody puts a copy in its place.
        let _ = self.connection.busy_timeout(END_LOCK_TIME);
        let whole = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        if whole != Ok(0) {
            tracing::debug!("the store keeps its log of changes beside it");
        }
    }

    fn work_off(&mut self, work: &Receiver<Work>) {
        loop {
            let next = match self.deferred.is_empty() {
                true => work.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => work.recv_timeout(AGAIN_EVERY),
            };
            match next {
                Ok(Work::Now(change)) => {
                    self.make_deferred();
                    // The change may not overtake others that wait. Dropping it tells the caller.
                    if self.deferred.is_empty() {
                        self.make(change);
                    }
                }
                Ok(Work::Then(call)) => {
                    self.then.push(call);
                    self.make_deferred();
                }
                #[cfg(test)]
                Ok(Work::Pages(pages)) => self.set_pages(pages),
                Ok(Work::Later(change)) => {
                    self.deferred.push(change);
                    let mut behind = None;
                    while self.deferred.len() < BATCH && behind.is_none() {
                        match work.try_recv() {
                            Ok(Work::Later(change)) => self.deferred.push(change),
                            Ok(other) => behind = Some(other),
                            Err(_) => break,
                        }
                    }
                    self.make_deferred();
                    match behind {
                        Some(Work::Now(change)) if self.deferred.is_empty() => self.make(change),
                        Some(Work::Then(call)) => {
                            self.then.push(call);
                            self.make_deferred();
                        }
                        Some(Work::End) => return,
                        #[cfg(test)]
                        Some(Work::Pages(pages)) => self.set_pages(pages),
                        Some(Work::Now(_) | Work::Later(_)) | None => {}
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.make_deferred(),
                Ok(Work::End) | Err(RecvTimeoutError::Disconnected) => {
                    self.make_deferred();
                    return;
                }
            }
        }
    }

    #[cfg(test)]
    fn set_pages(&mut self, pages: i64) {
        self.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    }

    fn make(&mut self, change: ImmediateCall) {
        let failure = change(&mut self.connection);
        self.note_lock(failure.as_ref());
    }

    /// Who has waited for a lock in vain does not wait for it again until it is released: requests and jobs wait
    /// for this thread.
    fn note_lock(&mut self, failure: Option<&Error>) {
        let is_locked = failure.is_some_and(|error| error.code() == Code::StoreLocked);
        if is_locked != self.is_locked {
            let time = if is_locked { Duration::ZERO } else { LOCK_TIME };
            let _ = self.connection.busy_timeout(time);
            self.is_locked = is_locked;
        }
    }

    fn make_deferred(&mut self) {
        if self.deferred.is_empty() && self.then.is_empty() {
            return;
        }
        let made = self.deferred.make(&mut self.connection).map_err(|error| failed(&self.path, error));
        self.note_lock(made.as_ref().err());
        *self.health.failure.lock().in_any_case() = made.as_ref().err().cloned();
        self.health.waiting.store(self.deferred.len() as u64, Relaxed);
        if made.is_ok() {
            self.then.drain(..).for_each(|call| call());
        }
        let was_failing = self.health.is_failing.swap(made.is_err(), Relaxed);
        match made {
            Err(error) if !was_failing => {
                tracing::error!(%error, "the store cannot be written: new jobs are refused, running ones go on");
            }
            Ok(()) if was_failing => tracing::info!("the store can be written again"),
            Ok(()) | Err(_) => {}
        }
    }
}

/// How durable a change must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteDurability {
    /// It survives a power cut.
    Disk,
    /// It survives a kill of this process.
    System,
}

fn in_transaction<T>(
    connection: &mut Connection,
    durability: WriteDurability,
    change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let level = if durability == WriteDurability::Disk { "FULL" } else { "NORMAL" };
    connection.pragma_update(None, "synchronous", level)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let answer = change(&transaction)?;
    transaction.commit()?;
    Ok(answer)
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_TIME)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    if !flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY) {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    }
    Ok(connection)
}

/// True if the change itself is at fault, and not the disk or another process.
fn is_fault_of_change(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
        )
    )
}

fn failed(path: &Path, error: rusqlite::Error) -> Error {
    let what = format!("the store {}: {error}", path.display());
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::new(
            Code::NoSpace,
            format!("the store {} cannot be written: its disk is full", path.display()),
        )
        .with_hint("free space on its disk; running jobs go on"),
        Some(ErrorCode::SystemIoFailure) => Error::new(Code::DiskFailed, what),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::new(Code::StoreBroken, what),
        Some(ErrorCode::PermissionDenied | ErrorCode::CannotOpen | ErrorCode::ReadOnly) => {
            Error::new(Code::PermissionDenied, what)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let who = locks::holder(path).map_or_else(|| "another program".into(), |who| who.to_string());
            let what = format!("{who} has locked the store {}", path.display());
            Error::new(Code::StoreLocked, what)
                .with_hint("end what that program does with the store; running jobs go on")
        }
        _ => Error::new(Code::Bug, what),
    }
}

#[cfg(test)]
mod shapes;
#[cfg(test)]
mod tests;
