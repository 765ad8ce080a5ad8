//! Files that change after they were listed: one that changes while it is read is listed and sent once more,
//! and with `--follow-growth` a growing file is followed until it has stopped.
//!
//! Always true: a file is announced again under an id of its own, so nothing that was sent before can get
//! mixed into it. Only growth is followed more than once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farhaul_session::producer_token::ProducerToken;
use farhaul_volume::{Entry, EntryKind, FileTime};
use farhaul_words::{Code, Error, Event};

use super::super::chunked_file::{FileJob, ReadTrouble};
use super::super::manifest::ManifestRecord;
use super::super::messages::{CopyMessage, EntryContent, ManifestEntry, RENEWAL};
use super::super::read_queue::UnstableSource;
use super::super::sender::CopySender;
use super::announcement::{file, manifest_entry};
use crate::failures::Failure;
use crate::manifest;

/// The most times that a file is announced again.
const RENEWALS_MAX: u64 = 1 << 15;

/// How long a changed file should be quiet before it is read again, and how long that is waited for.
const SETTLED: Duration = Duration::from_millis(500);
const SETTLED_MAX: Duration = Duration::from_secs(3);
/// How often a file that may still grow is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A file that may still grow, or that has changed.
pub(super) struct GrowingFile {
    job: Arc<FileJob>,
    unread: Option<ProducerToken>,
    /// The number of chunks that were sent, if it was read.
    sent: Option<u64>,
    size: u64,
    mtime: FileTime,
    ctime: FileTime,
    looked: Instant,
    /// How long it has to be quiet, and the end of the wait for that.
    quiet: Duration,
    until: Option<Instant>,
    /// When it will have been quiet for long enough.
    due: Instant,
}

impl CopySender {
    /// Settles the files that the readers have left open.
    pub(super) fn look_after(&self, watched: &mut Vec<GrowingFile>) {
        for unsettled in self.queue.take_unsettled() {
            let (job, sent, unread) = match unsettled {
                UnstableSource::Changed(job) => {
                    match self.growth.filter(|_| has_grown(&job)) {
                        Some(quiet) => watched.push(GrowingFile::new(job, None, None, quiet)),
                        None => watched.push(GrowingFile::changed(job)),
                    }
                    continue;
                }
                UnstableSource::Unsized(job) => {
                    self.renew_as_stream(&job);
                    continue;
                }
                UnstableSource::Sent(job, chunks, unread) => (job, Some(chunks), unread),
                UnstableSource::Young(job, unread) => (job, None, unread),
            };
            watched.push(GrowingFile::new(job, sent, unread, self.growth.unwrap_or_default()));
        }
        let mut index = 0;
        while index < watched.len() {
            if self.is_quiet(&mut watched[index]) {
                self.settle_watched(watched.swap_remove(index));
            } else {
                index += 1;
            }
        }
    }

    fn is_quiet(&self, watched: &mut GrowingFile) -> bool {
        if watched.due > Instant::now() && watched.looked.elapsed() < LOOK {
            return false;
        }
        watched.looked = Instant::now();
        // Whoever reads the file will meet the error.
        let Ok(Some(now)) = watched.job.source.file_now() else { return true };
        // A writer can put the modification time back, but not the ctime.
        if (size_of(&now), now.mtime, now.ctime) != (watched.size, watched.mtime, watched.ctime) {
            (watched.size, watched.mtime, watched.ctime) = (size_of(&now), now.mtime, now.ctime);
            watched.due = Instant::now() + watched.quiet;
        }
        watched.due <= Instant::now() || watched.until.is_some_and(|until| until <= Instant::now())
    }

    fn settle_watched(&self, watched: GrowingFile) {
        let GrowingFile { job, unread, sent, size, mtime, until, .. } = watched;
        let has_changed = until.is_some();
        if has_changed || (size, mtime) != (job.size, job.entry.mtime) {
            return self.renew(&job);
        }
        match sent {
            Some(chunks) => self.shared.send(&[CopyMessage::FileEnd { id: job.id, size, chunks }]),
            None => self.queue.push_whole(job, unread),
        }
    }

    /// Announces a file again as it is now, unless it has changed before.
    fn renew(&self, job: &Arc<FileJob>) {
        let give_up = |failure: Failure| self.shared.send(&[CopyMessage::FileFailed { id: job.id, failure }]);
        let entry = match job.source.file_now() {
            Ok(Some(entry)) => entry,
            Ok(None) => return give_up(Failure::new(Code::SourceChanged, "the source is no longer a file")),
            Err(error) => return give_up(ReadTrouble::of(&error).failure),
        };
        let follows = self.growth.is_some() && is_growth(&job.entry, &entry);
        let id = job.id + RENEWAL;
        if job.is_renewed && !follows || id / RENEWAL > RENEWALS_MAX {
            let why = "the source changed while it was read, and again when it was read once more";
            return give_up(Failure::new(Code::SourceChanged, why));
        }
        let how = if follows { "has grown while it was read" } else { "changed while it was read" };
        self.announce_again(job, entry, job.is_renewed || !follows, how);
    }

    /// Announces a link as a file, since the file that it names cannot have its place.
    pub(super) fn announce_link(&self, id: u64) -> Result<(), Error> {
        let job = self.table.take_as_file(id)?;
        let give_up = |failure: Failure| self.shared.send(&[CopyMessage::FileFailed { id, failure }]);
        match job.source.file_now() {
            Ok(Some(entry)) => {
                self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
                self.shared.request.handle().counts().bytes_total.fetch_add(size_of(&entry), Relaxed);
                self.announce_as(&job, entry, false);
            }
            Ok(None) => give_up(Failure::new(Code::SourceChanged, "the source is no longer a file")),
            Err(error) => give_up(ReadTrouble::of(&error).failure),
        }
        Ok(())
    }

    /// Announces a file again as a stream, which is read to its end.
    fn renew_as_stream(&self, job: &Arc<FileJob>) {
        if (job.id + RENEWAL) / RENEWAL > RENEWALS_MAX {
            let failure = Failure::new(Code::FilesFailed, "its size is never what its file system says");
            return self.shared.send(&[CopyMessage::FileFailed { id: job.id, failure }]);
        }
        let entry = Entry { kind: EntryKind::Stream { is_pipe: false }, nlink: 1, ..job.entry.clone() };
        self.announce_again(job, entry, job.is_renewed, "has another size than its file system says");
    }

    fn announce_again(&self, job: &Arc<FileJob>, entry: Entry, is_renewed: bool, how: &str) {
        if self.announce_as(job, entry, is_renewed) {
            let (path, reason) = (job.path.to_string(), how.to_string());
            self.shared.request.handle().tell(Event::EntryAgain { path, reason });
        }
    }

    /// Announces the file of `job` under its next id, as `entry` says. Returns false if the receiver has given
    /// it up meanwhile.
    fn announce_as(&self, job: &Arc<FileJob>, entry: Entry, is_renewed: bool) -> bool {
        let id = job.id + RENEWAL;
        let linked = entry.nlink > 1;
        let what = match entry.kind {
            EntryKind::File { size, sparse } => file(&entry, size, sparse, linked),
            _ => EntryContent::Stream,
        };
        let size = size_of(&entry);
        let (source, path) = (job.source.clone(), job.path.clone());
        let (digest, put, streamed) = Default::default();
        let renewed =
            FileJob { id, size, entry: entry.clone(), source, path, is_renewed, digest, put, streamed };
        // The manifest has one line for the file, as it is now.
        let (mode, mtime) = (entry.mode, (entry.mtime.secs, entry.mtime.nanos));
        let kind = manifest::RecordKind::File { size };
        let record = |old: ManifestRecord| ManifestRecord { kind, mode, mtime, ..old };
        if !self.table.renew(job.id, Arc::new(renewed), || ProducerToken::new(&self.shared.request), record) {
            return false;
        }
        self.renewals.add(job.id, id);
        // An error here was reported already when the file was listed.
        let attributes = self.taking.attributes(&what, &job.source).unwrap_or_default().taken;
        let owner = self.owners.of(entry.uid, entry.gid);
        let entry = ManifestEntry { attributes, owner, ..manifest_entry(id, Vec::new(), &entry, what) };
        self.shared.send(&[CopyMessage::Renewed { id: job.id, entry }]);
        true
    }
}

impl GrowingFile {
    fn new(
        job: Arc<FileJob>,
        sent: Option<u64>,
        unread: Option<ProducerToken>,
        quiet: Duration,
    ) -> GrowingFile {
        let Entry { mtime, ctime, .. } = job.entry;
        let size = job.size;
        let changed = UNIX_EPOCH.checked_add(Duration::new(mtime.secs.max(0) as u64, mtime.nanos));
        // A time in the future does not tell the file's age.
        let age =
            changed.and_then(|changed| SystemTime::now().duration_since(changed).ok()).unwrap_or_default();
        let looked = Instant::now();
        let due = looked + quiet.saturating_sub(age);
        GrowingFile { job, unread, sent, size, mtime, ctime, looked, quiet, until: None, due }
    }

    /// Waits until the writer of a changed file is done, for a limited time.
    fn changed(job: Arc<FileJob>) -> GrowingFile {
        let now = Instant::now();
        let (due, until) = (now + SETTLED, Some(now + SETTLED_MAX));
        GrowingFile { due, until, quiet: SETTLED, ..GrowingFile::new(job, None, None, SETTLED) }
    }
}

fn size_of(entry: &Entry) -> u64 {
    if let EntryKind::File { size, .. } = entry.kind { size } else { 0 }
}

/// Whether it is the same file with more content.
fn is_growth(before: &Entry, now: &Entry) -> bool {
    (before.dev, before.ino) == (now.dev, now.ino) && size_of(now) > size_of(before)
}

fn has_grown(job: &FileJob) -> bool {
    job.source.file_now().is_ok_and(|now| now.is_some_and(|now| is_growth(&job.entry, &now)))
}
