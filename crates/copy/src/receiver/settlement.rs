//! Files that are whole wait here until the disk has their data, and get their names then: several at a time, since a file system
//! commits for all of them at once.
//!
//! Nobody waits for a clock: a thread takes what is there, and what comes while it waits for the disk is the next batch. Writers wait
//! when too much is there. Where files are kept in memory none of this is needed, and they get their names at once.
//!
//! Always true: the sender hears of a file when it has its name, or has none; a session does not end while something is in here.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd};
use farhaul_session::error::Code;
use farhaul_volume::UnnamedFile;
use rustix::process::{Resource, getrlimit};

use super::super::incoming_file::{IncomingFile, IncomingKind};
use super::super::messages::CopyMessage;
use super::super::receiver::{CopyReceiver, Destination};
use crate::failures::Failure;
use crate::options::VerifyMode;

/// So many threads wait for the disk.
pub(super) const THREADS: usize = 4;
/// So many files at a time.
const BATCH_MAX: usize = 64;
/// Each that waits has a descriptor.
const WAITING_MAX: u64 = 256;
const WAITING_MIN: u64 = 4;
const DESCRIPTORS_PART: u64 = 16;

/// What waits for the disk.
pub(crate) enum WholeFile {
    Small(Arc<IncomingFile>, UnnamedFile),
    /// It has a partial file, or a temporary one.
    Large(Arc<IncomingFile>),
}

pub(super) fn queue() -> (ChannelEnd<WholeFile>, Channel<WholeFile>) {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let waiting = (descriptors / DESCRIPTORS_PART).clamp(WAITING_MIN, WAITING_MAX);
    crossbeam_channel::bounded(waiting as usize)
}

/// The body of a thread. It ends when nobody is left who could put something in, and has settled everything then.
pub(super) fn run(receiver: &CopyReceiver, whole: &Channel<WholeFile>) {
    let meter = receiver.shared.meters.meter("write");
    let mut batch = Vec::new();
    while let Ok(first) = whole.recv() {
        batch.push(first);
        batch.extend(whole.try_iter().take(BATCH_MAX - 1));
        // What goes wrong in one of these is found again when the file gets its name: the volume keeps it.
        let waited = meter.time(|| {
            let begun: Vec<_> = batch.iter().map(WholeFile::begin).collect();
            begun
                .into_iter()
                .zip(&batch)
                .map(|(begun, file)| begun.and_then(|()| file.wait()))
                .collect::<Vec<_>>()
        });
        let (count, mut replies) = (batch.len() as u64, Vec::new());
        for (file, waited) in batch.drain(..).zip(waited) {
            meter.time(|| file.settle(receiver, waited, &mut replies));
        }
        // One word for all of them: each wakes the threads that send it.
        receiver.shared.send(&replies);
        receiver.untold.end(count);
        receiver.shared.control.notify();
    }
}

impl CopyReceiver {
    /// Hands a file that is whole over to the threads that wait for the disk. It still counts as under way.
    pub(crate) fn wait_for_disk(&self, whole: &ChannelEnd<WholeFile>, file: WholeFile) {
        self.untold.begin();
        if whole.send(file).is_err() {
            // Nobody is there any more to whom it would matter.
            self.untold.end(1);
        }
    }
}

impl WholeFile {
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

    /// Gives it its name; the sender is to hear of that, or of what went wrong.
    fn settle(self, receiver: &CopyReceiver, waited: std::io::Result<()>, replies: &mut Vec<CopyMessage>) {
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
    /// Books a small file, or asks for it again for another directory where it turned out that there is no
    /// room for it: some file systems say so only when all was written.
    pub(crate) fn settle_small(
        &self,
        file: &IncomingFile,
        named: Result<(), Failure>,
        replies: &mut Vec<CopyMessage>,
    ) {
        let Destination::Tree(target) = &self.destination else { return self.settle(file, named, replies) };
        let is_refused = named.as_ref().is_err_and(|failure| failure.code == Code::NoSpace);
        // An empty file has no chunk that could be asked for.
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

    /// So many content bytes that were written count for nothing.
    fn take_back(&self, bytes: u64) {
        self.shared.content_written.fetch_sub(bytes, Relaxed);
        self.shared.handle.counts().bytes_done.fetch_sub(bytes, Relaxed);
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
        return Err(Failure::new(Code::DiskFailed, "what was written does not read back"));
    }
    unnamed.finish().map_err(cannot)
}
