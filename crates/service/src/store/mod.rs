//! The store: what the service knows when it begins again, in one SQLite file.
//!
//! How to read it: [`Store`] has one thread that writes and connections that read; `schema.rs` brings a file to the present
//! shape; each table has a module with the questions that are asked of it, SQL beside them.
//!
//! Two ways to write. [`Store::write`] waits until the change is on the disk: what a user is told of an accepted job is true
//! after a power cut, too. [`Store::later`] waits for nothing, and is for what happens while jobs run: changes are made in
//! their order, and one that the disk has no room for is made when it has, those behind it waiting.
//!
//! Always true: a change is made whole or not at all; changes are made in the order in which they were asked for; a killed
//! process loses none that [`Store::later`] has given to the system.

pub(crate) mod caps;
mod deferred_changes;
pub(crate) mod deliveries;
pub(crate) mod feeds;
pub(crate) mod history;
pub(crate) mod idempotency;
pub(crate) mod jobs;
pub(crate) mod log;
pub(crate) mod logins;
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
use farhaul_session::{Code, Error};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use deferred_changes::DeferredChanges;

/// Changes that wait for the thread; who asks for more waits.
const WAITING_MAX: usize = 4096;
/// Changes of [`Store::later`] that are made in one transaction.
const BATCH: usize = 256;
/// Changes that wait, beyond which [`Store::note`] is not heard.
const NOTES_MAX: u64 = 2048;
/// How often a change is tried again that the disk has refused.
const AGAIN_EVERY: Duration = Duration::from_secs(1);
/// How long somebody who reads waits for what was said before.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// How long one process waits for another that has the file locked, such as an operator's `sqlite3`.
const LOCK_TIME: Duration = Duration::from_secs(10);
/// Connections that are kept for reading.
const READERS_KEPT: usize = 4;

type ImmediateCall = Box<dyn FnOnce(&mut Connection) + Send>;
type DeferredCall = Box<dyn FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send>;

type AfterCall = Box<dyn FnOnce() + Send>;

enum Work {
    Now(ImmediateCall),
    Later(DeferredCall),
    Then(AfterCall),
    End,
    /// The disk has so much room from now on.
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

/// How the writing thread fares.
#[derive(Debug, Default)]
struct Health {
    /// The last change could not be made, and waits.
    is_failing: AtomicBool,
    waiting: AtomicU64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the file, makes it if there is none, and brings it to the present shape.
    pub(crate) fn open(path: &Path) -> Result<Store, Error> {
        let mut connection = connect(path, OpenFlags::default()).map_err(|error| failed(path, error))?;
        schema::migrate(&mut connection, path)?;
        let (to_writer, work) = mpsc::sync_channel(WAITING_MAX);
        let health = Arc::new(Health::default());
        let held = health.clone();
        let run = move || {
            Writer { connection, deferred: DeferredChanges::default(), then: Vec::new(), health: held }
                .run(&work)
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

    /// Asks something.
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

    /// Changes something, in one transaction, and waits until that is on the disk. All that was asked for before is made
    /// first; if that cannot be, nor is this.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = mpsc::sync_channel(1);
        let work = move |connection: &mut Connection| {
            let _ = answer.send(in_transaction(connection, WriteDurability::Disk, change));
        };
        let gone = || Error::new(Code::HostFailed, "the store's thread has ended");
        self.to_writer.send(Work::Now(Box::new(work))).map_err(|_| gone())?;
        match answered.recv() {
            Ok(answer) => answer.map_err(|error| failed(&self.path, error)),
            // What waits for room on the disk goes first.
            Err(_) if self.health.is_failing.load(Relaxed) => Err(no_room(&self.path)),
            Err(_) => Err(gone()),
        }
    }

    /// Changes something soon, in the order of all changes; it may be called again if the disk has refused it.
    pub(crate) fn later(
        &self,
        change: impl FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) {
        self.health.waiting.fetch_add(1, Relaxed);
        // Nobody hears it if the thread has ended, and the service with it.
        let _ = self.to_writer.send(Work::Later(Box::new(change)));
    }

    /// As [`Store::later`] for what may be missed: nothing is done while too much waits.
    pub(crate) fn note(&self, change: impl FnMut(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static) {
        if self.health.waiting.load(Relaxed) < NOTES_MAX {
            self.later(change);
        }
    }

    /// Waits until all that was said before is in the store, but not for a disk that has no room.
    pub(crate) fn settle(&self) {
        let (tell, told) = mpsc::sync_channel(1);
        self.then(move || {
            let _ = tell.try_send(());
        });
        let _ = told.recv_timeout(SETTLE_TIME);
    }

    /// Calls this when all that was asked for before is made, however long that takes.
    pub(crate) fn then(&self, call: impl FnOnce() + Send + 'static) {
        let _ = self.to_writer.send(Work::Then(Box::new(call)));
    }

    /// Whether changes wait for room on the disk.
    pub(crate) fn is_failing(&self) -> bool {
        self.health.is_failing.load(Relaxed)
    }

    /// How many changes wait.
    pub(crate) fn pending(&self) -> u64 {
        self.health.waiting.load(Relaxed)
    }

    /// Writes a copy of the whole store to a new file, of one moment, while all goes on.
    pub(crate) fn backup(&self, to: &Path) -> Result<(), Error> {
        let what = || format!("cannot write the backup {}", to.display());
        if to.exists() {
            return Err(Error::new(Code::AlreadyExists, format!("{}: is there already", to.display())));
        }
        let name =
            to.to_str().ok_or_else(|| Error::new(Code::BadPath, format!("{}: no UTF-8", to.display())))?;
        self.read(|connection| connection.execute("VACUUM INTO ?1", [name]).map(|_| ()))
            .map_err(|error| error.about(&what()))?;
        let file = std::fs::File::open(to).map_err(Error::io(what()))?;
        file.sync_all().map_err(Error::io(what()))
    }

    /// Says what is wrong with the file, if anything is.
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
    /// What was asked for is made, if the disk takes it.
    fn drop(&mut self) {
        let _ = self.to_writer.send(Work::End);
        if let Some(writer) = self.writer.lock().in_any_case().take() {
            let _ = writer.join();
        }
    }
}

/// The thread that writes.
struct Writer {
    connection: Connection,
    deferred: DeferredChanges,
    /// To be called when nothing is deferred.
    then: Vec<AfterCall>,
    health: Arc<Health>,
}

impl Writer {
    fn run(mut self, work: &Receiver<Work>) {
        loop {
            let next = match self.deferred.is_empty() {
                true => work.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => work.recv_timeout(AGAIN_EVERY),
            };
            match next {
                Ok(Work::Now(change)) => {
                    self.make_deferred();
                    // Dropped unmade if it may not overtake what waits: who asked sees that.
                    if self.deferred.is_empty() {
                        change(&mut self.connection);
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
                        Some(Work::Now(change)) if self.deferred.is_empty() => change(&mut self.connection),
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

    fn make_deferred(&mut self) {
        let made = self.deferred.make(&mut self.connection);
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

/// Whether a change waits until it is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteDurability {
    /// It is there after a power cut.
    Disk,
    /// It is there after this process is killed.
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

/// Whether the change itself is at fault, and not the disk or another process.
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
        )
    )
}

fn no_room(path: &Path) -> Error {
    Error::new(Code::NoSpace, format!("the store {} cannot be written", path.display()))
        .with_hint("free space on its disk; jobs that run go on")
}

fn failed(path: &Path, error: rusqlite::Error) -> Error {
    let what = format!("the store {}: {error}", path.display());
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => no_room(path),
        Some(ErrorCode::SystemIoFailure) => Error::new(Code::DiskFailed, what),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::new(Code::StoreBroken, what),
        Some(ErrorCode::PermissionDenied | ErrorCode::CannotOpen | ErrorCode::ReadOnly) => {
            Error::new(Code::PermissionDenied, what)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::new(Code::Busy, what).with_hint("another program has it open and writes to it")
        }
        _ => Error::new(Code::Bug, what),
    }
}

#[cfg(test)]
mod shapes;
#[cfg(test)]
mod tests;
