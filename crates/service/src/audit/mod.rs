//! The audit log: who did what, one JSON object per line, in a file of its own that is only ever appended to.
//!
//! How to read it: [`Audit::open`] opens the log, [`Audit::note`] writes a line, [`Audit::reopen`] goes on in
//! a new file after logrotate has moved the old one. [`check`] checks a chain. A thread syncs the file at
//! most once a second.
//!
//! Always true: a line is written in one call and has a bounded length, and so have all files together
//! (`older_files.rs`). Lines that cannot be written are
//! counted and reported in the log; the file notes their number as soon as it can be written again. Nothing
//! else stops for them.

mod chain;
mod line;
mod older_files;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul_handover::Held as _;
use rustix::fs::{Mode, OFlags, fchmod, open};
use rustix::process::geteuid;

pub use chain::{CheckedChain, check};
pub use line::{AuditEntry, AuditOutcome};

use older_files::SizeLimit;

/// How long after it was written a line is on the disk, at the latest.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Tells whether each line has the digest of the line before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// Lines have it.
    Kept,
    /// Lines do not have it.
    Off,
}

/// The audit log, shared by all that write to it.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    shared: Arc<Shared>,
    syncing: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    writer: Mutex<Writer>,
    /// Wakes the thread: there is something to sync, or the log is being closed.
    wake: Condvar,
    lost: AtomicU64,
    syncs: AtomicU64,
}

#[derive(Debug)]
struct Writer {
    file: Arc<File>,
    /// The bytes of the file, and how many it may have.
    size: u64,
    limit: SizeLimit,
    /// Files that were full and are not synced yet.
    full: Vec<Arc<File>>,
    chain: Chain,
    /// The digest of the last line, for the chain.
    previous: Option<blake3::Hash>,
    /// True if the file ends within a line: a full disk has cut it off, or somebody else has.
    is_torn: bool,
    /// How many lines were lost since the last one was written.
    lost_now: u64,
    is_dirty: bool,
    is_ending: bool,
}

impl Audit {
    /// Opens the file, or makes it, readable and writable for this user alone (mode 0600).
    /// All files together have about `size_max` bytes at most.
    pub fn open(path: &Path, chain: Chain, size_max: u64) -> Result<Audit, Error> {
        let (file, end) = open_file(path)?;
        let writer = Writer {
            file: Arc::new(file),
            size: end.size,
            limit: SizeLimit::of(size_max),
            full: Vec::new(),
            chain,
            previous: end.last,
            is_torn: end.is_torn,
            lost_now: 0,
            is_dirty: false,
            is_ending: false,
        };
        let shared = Arc::new(Shared {
            writer: Mutex::new(writer),
            wake: Condvar::new(),
            lost: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        });
        let thread = std::thread::Builder::new().name("audit".into());
        let syncing = thread.spawn({
            let shared = shared.clone();
            move || shared.sync_until_the_end()
        });
        let syncing = Some(syncing.map_err(Error::no_thread)?);
        Ok(Audit { path: path.to_path_buf(), shared, syncing })
    }

    /// Writes one line. `now_ms` is unix time in milliseconds.
    pub fn note(&self, now_ms: i64, entry: &AuditEntry<'_>) {
        let mut writer = self.shared.writer.lock().in_any_case();
        if writer.lost_now > 0 {
            let count = writer.lost_now.to_string();
            let lost = AuditEntry {
                caller: "farhaul",
                address: None,
                action: "audit.lost",
                target: "",
                outcome: AuditOutcome::Failed,
                code: None,
                details: &[("lines", &count)],
            };
            if writer.put(now_ms, &lost).is_ok() {
                writer.lost_now = 0;
                tracing::warn!(lines = count, "the audit log can be written again");
            }
        }
        self.make_room(&mut writer);
        match writer.put(now_ms, entry) {
            Ok(()) => {}
            Err(error) => {
                if writer.lost_now == 0 {
                    tracing::error!(file = %self.path.display(), "the audit log cannot be written, lines are lost: {error}");
                }
                writer.lost_now += 1;
                self.shared.lost.fetch_add(1, Relaxed);
            }
        }
        if !std::mem::replace(&mut writer.is_dirty, true) {
            self.shared.wake.notify_one();
        }
    }

    /// Begins a new file if this one is full. If that cannot be done, this one goes on.
    fn make_room(&self, writer: &mut Writer) {
        if !writer.limit.is_reached(writer.size) {
            return;
        }
        match older_files::make_older(&self.path).and_then(|()| open_file(&self.path)) {
            Ok((file, end)) => {
                let full = std::mem::replace(&mut writer.file, Arc::new(file));
                writer.full.push(full);
                (writer.size, writer.is_torn) = (end.size, end.is_torn);
            }
            Err(error) => {
                tracing::error!(file = %self.path.display(), %error, "the audit log has no room, and grows on");
                writer.limit.put_off(writer.size);
            }
        }
    }

    /// Goes on in the file that is at the path now. If that cannot be opened, the old file stays in use.
    pub fn reopen(&self) -> Result<(), Error> {
        let (file, end) = open_file(&self.path)?;
        let mut writer = self.shared.writer.lock().in_any_case();
        let old = std::mem::replace(&mut writer.file, Arc::new(file));
        (writer.is_torn, writer.size) = (end.is_torn, end.size);
        drop(writer);
        // Syncs the lines that the thread has not synced yet.
        old.sync_data()
            .map_err(|error| Error::with_source(Code::of_files(&error), "cannot sync the audit log", error))
    }

    /// Sets whether the following lines are chained.
    pub fn set_chain(&self, chain: Chain) {
        self.shared.writer.lock().in_any_case().chain = chain;
    }

    /// Sets how many bytes all files together may have.
    pub fn set_size_max(&self, size_max: u64) {
        self.shared.writer.lock().in_any_case().limit = SizeLimit::of(size_max);
    }

    /// How many lines could not be written since the start.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Audit {
    /// Syncs all lines.
    fn drop(&mut self) {
        self.shared.writer.lock().in_any_case().is_ending = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.syncing.take() {
            // A join fails only if the thread has panicked, and the panic was reported.
            let _ = thread.join();
        }
    }
}

impl Writer {
    fn put(&mut self, now_ms: i64, entry: &AuditEntry<'_>) -> io::Result<()> {
        let previous = match self.chain {
            Chain::Kept => {
                Some(self.previous.map_or_else(|| "none".to_string(), |hash| hash.to_hex().to_string()))
            }
            Chain::Off => None,
        };
        let text = line::written(now_ms, entry, previous.as_deref());
        // Ends the line that was cut off, in the same write.
        let mut bytes = Vec::with_capacity(text.len() + 2);
        if self.is_torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'\n');
        let written = loop {
            match rustix::io::write(self.file.as_fd(), &bytes) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        self.size = self.size.saturating_add(written as u64);
        if written == bytes.len() {
            self.is_torn = false;
            self.previous = Some(blake3::hash(text.as_bytes()));
            return Ok(());
        }
        // A part of the line was written. Only if that part is the end of an older line does the file end
        // with a line end.
        self.is_torn = !(self.is_torn && written == 1);
        Err(io::ErrorKind::StorageFull.into())
    }
}

impl Shared {
    fn sync_until_the_end(&self) {
        loop {
            let mut writer = self.writer.lock().in_any_case();
            while !writer.is_dirty && !writer.is_ending {
                writer = self.wake.wait(writer).in_any_case();
            }
            let is_ending = writer.is_ending;
            let file = std::mem::take(&mut writer.is_dirty).then(|| writer.file.clone());
            let files: Vec<_> = std::mem::take(&mut writer.full).into_iter().chain(file).collect();
            drop(writer);
            // Syncs without the lock, so that a slow disk delays nobody who writes a line.
            if let Some(error) = files.iter().find_map(|file| file.sync_data().err()) {
                tracing::error!("the audit log cannot be synced: {error}");
            }
            self.syncs.fetch_add(1, Relaxed);
            if is_ending {
                return;
            }
            self.pause();
        }
    }

    /// Waits for [`SYNC_EVERY`], or less if the log is being closed.
    fn pause(&self) {
        let until = Instant::now() + SYNC_EVERY;
        let mut writer = self.writer.lock().in_any_case();
        while !writer.is_ending {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            writer = self.wake.wait_timeout(writer, left).in_any_case().0;
        }
    }
}

/// The end of a file.
struct FileEnd {
    size: u64,
    is_torn: bool,
    last: Option<blake3::Hash>,
}

fn open_file(path: &Path) -> Result<(File, FileEnd), Error> {
    let failed = |error: io::Error| {
        Error::with_source(
            Code::of_files(&error),
            format!("cannot open the audit log {}", path.display()),
            error,
        )
        .with_hint("name another file with `audit_file` in [log]")
    };
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::from_raw_mode(0o600))
        .map_err(|errno| failed(errno.into()))?;
    let meta = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
    let file = File::from(file);
    let refused = |reason: &str| {
        Error::new(Code::BadState, format!("the audit log {} {reason}", path.display()))
            .with_hint("name another file with `audit_file` in [log]")
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(refused("is not a regular file"));
    }
    if meta.st_uid != geteuid().as_raw() {
        return Err(refused("belongs to another user"));
    }
    if meta.st_mode & 0o077 != 0 {
        fchmod(&file, Mode::from_raw_mode(0o600)).map_err(|errno| failed(errno.into()))?;
    }
    let end = chain::end_of(&file).map_err(failed)?;
    Ok((file, end))
}

#[cfg(test)]
mod tests;
