//! The manifest of a transfer: what became of each entry, one JSON object a line, and the root of the
//! entries' digest tree. docs/guide/verify.md lists the fields.
//!
//! Sessions hand records over. A thread of its own turns them into text, writes that in batches, and adds the
//! records to the root (`manifest/tree.rs`). If only a root is wanted, nothing is written.
//!
//! Always true: handing a record over waits for no disk, unless [`WAITING_MAX`] records wait already. Every
//! line is whole, except that the last one lacks its line end if the run was killed.

mod manifest_copy;
mod text;
mod tree;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farhaul_handover::Held as _;
use farhaul_session::handle::Handle;
use farhaul_volume::{Algorithm, SpecialNode};
use farhaul_words::{Code, Error};

use super::failures::{Failure, is_vanished};
use super::interruptible_io::{GivenUp, TransferOutput};
use super::messages::{EntryContent, ManifestEntry};
use super::output_file;
use super::report::Report;
pub use manifest_copy::ManifestCopy;
pub use text::is_manifest_result;
pub(crate) use text::{ManifestEntryText, ManifestLine, parse, unhex};
pub(crate) use tree::{ManifestTally, shown as shown_root};

/// Version of the lines' format.
pub(crate) const MANIFEST_SCHEMA: u32 = 1;

/// The most records that may wait for the thread; beyond that the transfer waits.
const WAITING_MAX: usize = 64 << 10;
/// The same if no manifest file is written: a few MiB at a daemon.
const ROOT_WAITING_MAX: usize = 2 * BATCH;
/// How many waiting records wake the thread early. A wake-up for each record would cost more than the record.
const BATCH: usize = 4096;
const INTERVAL: Duration = Duration::from_millis(100);
/// How every manifest begins, without white space.
const HEAD: &str = "{\"manifest\":";
/// Bytes of text that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum EntryFate {
    /// Its content arrived in this run; a directory or link is in its place.
    Sent,
    /// It was there already.
    Unchanged,
    /// Another entry is in its place, which may not be overwritten.
    Kept,
    /// Its content was at the destination under another name.
    Renamed,
    Failed,
    /// It vanished from the source before it was read.
    Vanished,
    /// It is of a kind that was not asked for.
    Skipped,
    /// It was surplus at the destination and has been removed.
    Deleted,
    /// It is surplus at the destination and is still there.
    NotDeleted,
    /// A dry run would have sent it.
    WouldSend,
}

impl EntryFate {
    /// The fate of an entry that is in its place now, or in a dry run would be.
    pub(crate) fn sent(dry_run: bool) -> EntryFate {
        if dry_run { EntryFate::WouldSend } else { EntryFate::Sent }
    }
}

/// The kind of an entry, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Unknown,
    File { size: u64 },
    Directory,
    Symlink { target: Vec<u8> },
    HardLink { to: Vec<u8> },
    Special(SpecialNode),
}

/// One line of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestRecord {
    /// The path at the source.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: RecordKind,
    pub(crate) mode: u32,
    /// In seconds and nanoseconds.
    pub(crate) mtime: (i64, u32),
    pub(crate) fate: EntryFate,
    pub(crate) digest: Option<[u8; 32]>,
    /// The digest was computed by the other end, not by this one.
    pub(crate) is_told: bool,
    /// Both ends have read the file in this run, and it has the same digest at both.
    pub(crate) is_compared: bool,
    pub(crate) extra: Vec<(Algorithm, Vec<u8>)>,
    /// The error code, if the entry failed.
    pub(crate) code: Option<Code>,
    /// Why the entry failed or was skipped; for a renamed one the name that it had.
    pub(crate) note: Option<Vec<u8>>,
}

impl ManifestRecord {
    /// A record of an entry of which only the path is known.
    pub(crate) fn of_path(path: &[u8], fate: EntryFate) -> ManifestRecord {
        let (kind, path) = (RecordKind::Unknown, path.to_vec());
        let (mode, mtime, extra) = Default::default();
        let (digest, code, note) = (None, None, None);
        let (is_told, is_compared) = (false, false);
        ManifestRecord { path, kind, mode, mtime, fate, digest, is_told, is_compared, extra, code, note }
    }

    /// `to` is the path of the file that a hard link leads to.
    pub(crate) fn of_entry(entry: &ManifestEntry, fate: EntryFate, to: Option<Vec<u8>>) -> ManifestRecord {
        let kind = match &entry.what {
            EntryContent::File { size, .. } => RecordKind::File { size: *size },
            EntryContent::Stream => RecordKind::File { size: 0 },
            EntryContent::Directory => RecordKind::Directory,
            EntryContent::Symlink { target } => RecordKind::Symlink { target: target.clone() },
            EntryContent::HardLink { .. } => RecordKind::HardLink { to: to.unwrap_or_default() },
            EntryContent::Special(node) => RecordKind::Special(*node),
        };
        let mtime = (entry.mtime_secs, entry.mtime_nanos);
        ManifestRecord { kind, mode: entry.mode, mtime, ..ManifestRecord::of_path(&entry.path, fate) }
    }

    /// Marks the entry as failed, or as vanished: then nobody could do anything about it.
    pub(crate) fn failed(self, failure: &Failure) -> ManifestRecord {
        if is_vanished(failure) {
            return ManifestRecord { fate: EntryFate::Vanished, digest: None, ..self };
        }
        let code = Some(failure.code);
        ManifestRecord { fate: EntryFate::Failed, digest: None, code, ..self.because(&failure.reason) }
    }

    pub(crate) fn because(self, reason: &str) -> ManifestRecord {
        ManifestRecord { note: Some(reason.as_bytes().to_vec()), ..self }
    }
}

/// Takes the records of one transfer and writes its manifest.
#[derive(Debug)]
pub(crate) struct ManifestLog {
    /// The manifest's name in error messages, if one is written.
    name: String,
    /// The most records that may wait.
    waiting_max: usize,
    state: Mutex<State>,
    /// `more` wakes the thread when there is work; `room` wakes the others when records may be added.
    more: Condvar,
    room: Condvar,
    /// The name that the single source has at the destination.
    renamed: OnceLock<Vec<u8>>,
    /// Mode bits that the destination takes off everything.
    mask: OnceLock<u32>,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
    /// The sum over the records that the thread has seen; `None` in a dry run, which brings nothing.
    tally: Option<Mutex<ManifestTally>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<ManifestRecord>,
    /// The last line of the manifest, once no more records come.
    end: Option<Vec<u8>>,
    /// The thread is working on records.
    is_busy: bool,
    /// Somebody waits until the thread has seen all records.
    is_awaited: bool,
    /// The thread has given up.
    is_broken: bool,
}

impl ManifestLog {
    /// Begins a manifest file, replacing an existing one. It gets the root of the digest tree, unless this is
    /// a dry run. No write waits for a reader once `handle` is cancelled.
    pub(crate) fn create(path: &Path, is_dry_run: bool, handle: &Handle) -> Result<Arc<ManifestLog>, Error> {
        let mut file = create_file(path, handle)?;
        file.write_all(&text::begin(now())).map_err(|error| cannot_begin(path, &error))?;
        ManifestLog::start(Some(Box::new(file)), (path.display().to_string(), WAITING_MAX), !is_dry_run)
    }

    /// Begins a manifest whose text goes to `out`, in pieces.
    pub(crate) fn told(mut out: Box<dyn Write + Send>, is_dry_run: bool) -> Result<Arc<ManifestLog>, Error> {
        out.write_all(&text::begin(now())).map_err(Error::io("cannot send the manifest".to_string()))?;
        ManifestLog::start(Some(out), ("for the other end".into(), ROOT_WAITING_MAX), !is_dry_run)
    }

    /// Computes the root only.
    pub(crate) fn of_root() -> Result<Arc<ManifestLog>, Error> {
        ManifestLog::start(None, (String::new(), ROOT_WAITING_MAX), true)
    }

    fn start(
        file: Option<Box<dyn Write + Send>>,
        (name, waiting_max): (String, usize),
        has_root: bool,
    ) -> Result<Arc<ManifestLog>, Error> {
        let log = Arc::new(ManifestLog {
            waiting_max,
            name,
            tally: has_root.then(Mutex::default),
            state: Mutex::default(),
            more: Condvar::new(),
            room: Condvar::new(),
            renamed: OnceLock::new(),
            mask: OnceLock::new(),
            thread: Mutex::default(),
        });
        let writer = log.clone();
        let thread = std::thread::Builder::new().name("manifest".into()).spawn(move || writer.write(file));
        *log.thread.lock().whole() = Some(thread.map_err(Error::no_thread)?);
        Ok(log)
    }

    /// Says that the first component of all paths is `name` at the destination. Call it before the first
    /// record.
    pub(crate) fn set_renamed(&self, name: &[u8]) {
        let _ = self.renamed.set(name.to_vec());
    }

    /// Says which bits the destination takes off all modes. Call it before the first record.
    pub(crate) fn set_mask(&self, mask: u32) {
        let _ = self.mask.set(mask);
    }

    pub(crate) fn add(&self, record: ManifestRecord) {
        let mut state = self.state.lock().whole();
        while state.waiting.len() >= self.waiting_max && !state.is_broken {
            state = self.room.wait(state).whole();
        }
        if state.is_broken {
            return;
        }
        state.waiting.push(record);
        if state.waiting.len().is_multiple_of(BATCH) {
            self.more.notify_one();
        }
    }

    /// The tally of all records so far; `None` if no root is computed, or if the thread has failed.
    pub(crate) fn tally(&self) -> Option<ManifestTally> {
        let mut state = self.state.lock().whole();
        state.is_awaited = true;
        self.more.notify_one();
        while (state.is_busy || !state.waiting.is_empty()) && !state.is_broken {
            (state, _) = self.room.wait_timeout(state, Duration::from_secs(1)).whole();
            // A thread that has panicked cannot set the flag itself.
            state.is_broken |= self.thread.lock().whole().as_ref().is_none_or(JoinHandle::is_finished);
        }
        state.is_awaited = false;
        let is_whole = !state.is_broken;
        drop(state);
        self.tally.as_ref().filter(|_| is_whole).map(|tally| tally.lock().whole().clone())
    }

    /// Writes the waiting records and the end of the manifest; returns the root, if one was computed.
    pub(crate) fn finish(&self, report: &Report) -> Result<Option<[u8; 32]>, Error> {
        self.state.lock().whole().end = Some(text::end(report));
        self.more.notify_one();
        let thread = self.thread.lock().whole().take();
        let written = thread.map_or(Ok(()), |thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that writes it has ended too early")))
        });
        written.map_err(|error| cannot_go_on(&self.name, error))?;
        Ok(self.tally.as_ref().map(|tally| tally.lock().whole().root()))
    }

    fn write(&self, mut file: Option<Box<dyn Write + Send>>) -> io::Result<()> {
        let mut out = Vec::with_capacity(if file.is_some() { WRITE_BYTES + (16 << 10) } else { 0 });
        let mut records = Vec::new();
        loop {
            let end = self.wait_for_more(&mut records);
            let renamed = self.renamed.get().map(Vec::as_slice);
            let mask = self.mask.get().copied().unwrap_or(0);
            let at = now();
            if let Some(tally) = &self.tally {
                let mut tally = tally.lock().whole();
                records.iter().for_each(|record| tally.add(record));
            }
            if let Some(file) = &mut file {
                for record in &records {
                    text::line(record, renamed, mask, at, &mut out);
                    if out.len() >= WRITE_BYTES {
                        self.put(file, &mut out)?;
                    }
                }
                out.extend(end.as_deref().unwrap_or_default());
                self.put(file, &mut out)?;
            }
            records.clear();
            if end.is_some() {
                return Ok(());
            }
        }
    }

    /// Moves the waiting records into `records`, which is empty; returns the end once it is set.
    fn wait_for_more(&self, records: &mut Vec<ManifestRecord>) -> Option<Vec<u8>> {
        let mut state = self.state.lock().whole();
        state.is_busy = false;
        self.room.notify_all();
        let is_hurried = state.is_awaited && !state.waiting.is_empty();
        if state.waiting.len() < BATCH && state.end.is_none() && !is_hurried {
            (state, _) = self.more.wait_timeout(state, INTERVAL).whole();
        }
        std::mem::swap(&mut state.waiting, records);
        state.is_busy = !records.is_empty();
        self.room.notify_all();
        state.end.take()
    }

    fn put(&self, file: &mut dyn Write, out: &mut Vec<u8>) -> io::Result<()> {
        let written = file.write_all(out);
        out.clear();
        if written.is_err() {
            let mut state = self.state.lock().whole();
            state.is_broken = true;
            state.waiting = Vec::new();
            self.room.notify_all();
        }
        written
    }
}

fn create_file(path: &Path, handle: &Handle) -> Result<TransferOutput, Error> {
    // Whoever forgets the name behind --manifest names his first source there.
    output_file::may_be_replaced(path, "manifest", HEAD)?;
    let may_be_emptied = |file: &File| output_file::may_be_emptied(file, "manifest", HEAD);
    TransferOutput::create(path, &may_be_emptied, handle).map_err(|error| cannot_begin(path, &error))
}

fn cannot_begin(path: &Path, error: &io::Error) -> Error {
    if GivenUp::is(error) {
        return Error::interrupted();
    }
    let why = super::plain(error);
    Error::new(Code::of_files(error), format!("cannot write the manifest {}: {why}", path.display()))
}

fn cannot_go_on(name: &str, error: io::Error) -> Error {
    match GivenUp::is(&error) {
        true => Error::interrupted(),
        false => Error::io(format!("cannot write the manifest {name}"))(error),
    }
}

/// The time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_records_are_written_between_the_first_line_and_the_last() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("m");
        let log = ManifestLog::create(&path, false, &Handle::new()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..50_000 {
                        log.add(ManifestRecord::of_path(
                            format!("{thread}/{number}").as_bytes(),
                            EntryFate::Sent,
                        ));
                    }
                });
            }
        });
        log.finish(&Report::default()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("{\"manifest\":1,") && lines[200_001].starts_with("{\"end\":"));
        assert_eq!(lines.len(), 200_002);
        let paths: std::collections::HashSet<_> = lines[1..200_001].iter().collect();
        assert_eq!(paths.len(), 200_000);
    }

    #[test]
    fn the_root_is_there_as_soon_as_it_is_asked_for_and_no_file_is_needed() {
        let log = ManifestLog::of_root().unwrap();
        let file = |number: u32| ManifestRecord {
            kind: RecordKind::File { size: 1 },
            ..ManifestRecord::of_path(number.to_string().as_bytes(), EntryFate::Sent)
        };
        for number in 0..10_000 {
            log.add(file(number));
        }
        assert_eq!(log.tally().map(|tally| (tally.files, tally.unread)), Some((10_000, 10_000)));
        log.add(file(10_000));
        let tally = log.tally().unwrap();
        assert_eq!(tally.files, 10_001);
        assert_eq!(log.finish(&Report::default()).unwrap(), Some(tally.root()));
        let temp = tempfile::tempdir().unwrap();
        let dry = ManifestLog::create(&temp.path().join("m"), true, &Handle::new()).unwrap();
        assert!(dry.tally().is_none() && dry.finish(&Report::default()).unwrap().is_none());
    }

    #[test]
    fn a_manifest_that_cannot_be_written_holds_nobody_up() {
        assert!(
            matches!(ManifestLog::create(Path::new("/nonexistent/m"), false, &Handle::new()), Err(error) if error.code() == Code::NotFound)
        );
        let log = ManifestLog::create(Path::new("/dev/full"), false, &Handle::new());
        assert!(log.is_err(), "even the first line cannot be written");
        let temp = tempfile::tempdir().unwrap();
        let log = ManifestLog::create(&temp.path().join("m"), false, &Handle::new()).unwrap();
        log.state.lock().unwrap().is_broken = true;
        for _ in 0..2 * WAITING_MAX {
            log.add(ManifestRecord::of_path(b"a", EntryFate::Sent));
        }
        log.finish(&Report::default()).unwrap();
    }
}
