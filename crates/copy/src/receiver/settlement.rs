//! Whole files wait here until the disk has their data, and then get their names: several at a time, since a
//! file system commits all of them at once.
//!
//! There are no timers: a thread takes the files that are waiting, and those that arrive while it waits for
//! the disk are its next batch. Writers wait if too many files are waiting. On a file system in memory, files
//! need not wait and get their names at once.
//!
//! Always true: the sender hears of a file when it has its name or has failed; a session does not end while a
//! file is in here.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd};
use farhaul_handover::permit::for_good;
use farhaul_volume::{LentFile, RelPath, UnnamedFile};
use farhaul_words::{Code, Stage};
use rustix::process::{Resource, getrlimit};

use super::super::incoming_file::{IncomingFile, IncomingKind};
use super::super::messages::CopyMessage;
use super::super::receiver::{CopyReceiver, Destination};
use crate::failures::Failure;
use crate::options::VerifyMode;

/// The number of threads that wait for the disk.
pub(super) const THREADS: usize = 4;
/// The most files that one thread takes at a time.
const BATCH_MAX: usize = 64;
/// The most files that may wait; each has a descriptor, and may hold one of its directory. Each thread takes
/// as many besides.
const WAITING_MAX: u64 = 256;
const WAITING_MIN: u64 = 4;
/// One file may wait for so many descriptors of the process.
const DESCRIPTORS_PART: u64 = 64;

/// A file that waits for the disk.
pub(crate) enum WholeFile {
    Small(Arc<IncomingFile>, UnnamedFile),
    /// It has a partial or temporary file.
    Large(Arc<IncomingFile>),
}

pub(super) fn queue() -> (ChannelEnd<WholeFile>, Channel<WholeFile>) {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let waiting = (descriptors / DESCRIPTORS_PART).clamp(WAITING_MIN, WAITING_MAX);
    crossbeam_channel::bounded(waiting as usize)
}

/// Runs one of the threads. It ends when all senders of the queue are gone, after it has settled everything.
///
/// With a check, files go there next, unless the disk has failed.
pub(super) fn run(
    receiver: &CopyReceiver,
    whole: &Channel<WholeFile>,
    to_check: Option<&ChannelEnd<WholeFile>>,
) {
    let meter = receiver.shared.request.meter(Stage::Write);
    let mut batch = Vec::new();
    while let Ok(first) = whole.recv() {
        batch.push(first);
        batch.extend(whole.try_iter().take(BATCH_MAX - 1));
        // An error in one of these is found again when the file gets its name, as the volume keeps it.
        let waited = meter.time(|| {
            let begun: Vec<_> = batch.iter().map(WholeFile::begin).collect();
            begun
                .into_iter()
                .zip(&batch)
                .map(|(begun, file)| begun.and_then(|()| file.wait()))
                .collect::<Vec<_>>()
        });
        let (count, mut replies) = (batch.len() as u64, Vec::new());
        // Once the request is over, what has no name yet gets none.
        let pass = receiver.shared.request.enter();
        for (file, waited) in batch.drain(..).zip(waited) {
            if pass.is_none() || !receiver.shared.request.rest() {
                for_good(|| drop(file));
            } else if let (Some(to_check), true) = (to_check, waited.is_ok()) {
                receiver.hand_on(to_check, file);
            } else {
                meter.time(|| file.settle(receiver, waited, &mut replies));
            }
        }
        drop(pass);
        // One send for all of them, as each send wakes the sending threads.
        receiver.shared.send(&replies);
        receiver.untold.end(count);
        receiver.shared.request.wake_dialogue();
    }
}

impl WholeFile {
    pub(super) fn path(&self) -> &RelPath {
        match self {
            WholeFile::Small(file, _) | WholeFile::Large(file) => &file.item.path,
        }
    }

    pub(super) fn size(&self) -> u64 {
        match self {
            WholeFile::Small(file, _) | WholeFile::Large(file) => file.size(),
        }
    }

    /// The digest of what has arrived, if there is one.
    pub(super) fn digest(&self, verify: VerifyMode) -> Option<[u8; 32]> {
        match self {
            _ if verify == VerifyMode::Transit => None,
            WholeFile::Small(file, _) => file.digest(),
            WholeFile::Large(file) => file.digest_so_far(),
        }
    }

    /// Lends the content to somebody who reads it. Returns `None` if the file was given up.
    pub(super) fn lend(&self) -> std::io::Result<Option<LentFile>> {
        match self {
            WholeFile::Small(_, unnamed) => unnamed.lend().map(Some),
            WholeFile::Large(file) => file.lend(),
        }
    }

    /// Whether the content has the digest of what arrived.
    pub(super) fn still_has_content(&self, goes_on: impl Fn() -> bool) -> std::io::Result<bool> {
        match self {
            WholeFile::Small(file, unnamed) => {
                file.digest().map_or(Ok(true), |digest| unnamed.still_has(&digest))
            }
            WholeFile::Large(file) => file.still_has_content(goes_on),
        }
    }

    fn begin(&self) -> std::io::Result<()> {
        match self {
            WholeFile::Small(_, unnamed) => unnamed.begin(),
            WholeFile::Large(file) => file.begin(),
        }
    }

    fn wait(&self) -> std::io::Result<()> {
        match self {
            WholeFile::Small(_, unnamed) => unnamed.wait(),
            WholeFile::Large(file) => file.wait(),
        }
    }

    /// Names the file, and adds the sender's message about that or about the failure.
    pub(super) fn settle(
        self,
        receiver: &CopyReceiver,
        waited: std::io::Result<()>,
        replies: &mut Vec<CopyMessage>,
    ) {
        match self {
            WholeFile::Small(file, unnamed) => {
                let named = waited
                    .map_err(|error| receiver.cannot("write it to the disk", &file.item.path, &error))
                    .and_then(|()| finish_small(receiver, &file, unnamed));
                receiver.settle_small(&file, named, replies);
            }
            WholeFile::Large(file) => {
                let named = file.complete(receiver);
                if receiver.files.take(file.item.id()).is_some() {
                    receiver.settle(&file, named, replies);
                }
            }
        }
    }
}

impl CopyReceiver {
    /// Hands a whole file to the threads that wait for the disk, or to those that have it checked. The file still
    /// counts as untold. For a thread that holds a pass.
    pub(crate) fn hand_on(&self, whole: &ChannelEnd<WholeFile>, file: WholeFile) {
        self.untold.begin();
        // The threads that name files may wait at the gate themselves.
        let unsent = self.shared.request.outside(|| whole.send(file).err());
        if unsent.is_some() {
            // The threads are gone with the session, and so is whoever waits for the file.
            for_good(|| drop(unsent));
            self.untold.end(1);
        }
    }

    /// Books a small file. If its directory has no room for it, asks for the file again for another
    /// directory: some file systems report that only after everything was written.
    pub(crate) fn settle_small(
        &self,
        file: &IncomingFile,
        named: Result<(), Failure>,
        replies: &mut Vec<CopyMessage>,
    ) {
        let Destination::Tree(target) = &self.destination else { return self.settle(file, named, replies) };
        let is_refused = named.as_ref().is_err_and(|failure| failure.code == Code::NoSpace);
        // An empty file has no chunk that could be requested.
        if is_refused && file.size() > 0 && target.roots.assign_elsewhere(&file.item.path) {
            let again = Arc::new(IncomingFile::new(file.item.clone(), IncomingKind::Whole));
            if self.files.admit(&again).is_ok() {
                self.take_back(file.size());
                replies.push(CopyMessage::Again { id: file.item.id(), chunk: 0 });
                return;
            }
        }
        self.settle(file, named, replies);
    }

    /// Takes content bytes that were written off the counts again.
    fn take_back(&self, bytes: u64) {
        self.shared.request.counts().content_written.fetch_sub(bytes, Relaxed);
        self.shared.request.handle().counts().bytes_done.fetch_sub(bytes, Relaxed);
    }
}

/// Gives a small file its name.
pub(crate) fn finish_small(
    receiver: &CopyReceiver,
    file: &IncomingFile,
    unnamed: UnnamedFile,
) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| receiver.cannot("write", &file.item.path, &error);
    if receiver.rules.verify == VerifyMode::Readback
        && let Some(digest) = file.digest()
        && !unnamed.reads_back(&digest).map_err(cannot)?
    {
        return Err(Failure::new(Code::DiskFailed, "the content does not read back as it was written"));
    }
    receiver.keep_old(&file.item.path)?;
    unnamed.finish().map_err(cannot)
}
