//! The receiver's writers: they check the content of complete blocks, write it, and finish files.
//!
//! Always true: content whose digest does not match is never written. A chunk is marked in the journal after
//! it was written. A block's credit goes back when its last piece is on its way to the disk. A whole file
//! gets its name after the wait for the disk (`receiver/settlement.rs`), or here if no wait is needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender as ChannelEnd};
use farhaul_session::inlet::CompleteBlock;
use farhaul_session::meter::Meter;
use farhaul_volume::{CHUNK, Patch, PatchOutcome, chunk_cv, whole_digest};
use farhaul_words::{Code, Error, Misbehaviour, Stage};

use super::failures::Failure;
use super::incoming_file::IncomingFile;
use super::messages::{CopyMessage, EntryContent};
use super::receiver::{CopyReceiver, WholeFile, finish_small};
use super::trailer;
use super::trailer::BlockPiece;
use crate::options::VerifyMode;

/// How often large files are synced, which bounds how much has to be read back after a reboot.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// Runs a writer thread. Files that have to wait for the disk go `to_settle`, others `to_check`, if files are
/// checked.
pub(crate) fn run(
    receiver: &CopyReceiver,
    to_settle: &ChannelEnd<WholeFile>,
    to_check: Option<&ChannelEnd<WholeFile>>,
) {
    let meter = |stage| receiver.shared.request.meter(stage);
    let mut writer = Writer {
        receiver,
        to_settle,
        to_check,
        digest: meter(Stage::Digest),
        write: meter(Stage::Write),
        finish_meter: meter(Stage::Finish),
        replies: Vec::new(),
        pieces: Vec::new(),
        scratch: Vec::new(),
        is_quick: false,
    };
    loop {
        crossbeam_channel::select! {
            recv(receiver.shared.request.arrived().bell().rings()) -> _ => match receiver.shared.request.enter() {
                Some(_pass) => writer.take_arrived(),
                None => return,
            },
            recv(receiver.queues.complete.tasks()) -> file => if let Ok(file) = file {
                match receiver.shared.request.enter() {
                    Some(_pass) => writer.settle(|writer| writer.finish(&file)),
                    None => return,
                }
            },
            recv(receiver.over) -> _ => return,
        }
    }
}

/// Runs the thread that syncs large files now and then, so that a reboot costs little. Writers go on
/// meanwhile.
pub(crate) fn checkpoints(receiver: &CopyReceiver) {
    while receiver.over.recv_timeout(CHECKPOINT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let Some(_pass) = receiver.shared.request.enter() else { return };
        let files = receiver.files.all();
        for file in files {
            if !receiver.shared.request.rest() {
                return;
            }
            if let Err(error) = file.checkpoint() {
                let failure = receiver.cannot("write it to the disk", &file.item.path, &error);
                receiver.untold.during(|| {
                    let mut replies = Vec::new();
                    receiver.give_up(&file, failure, &mut replies);
                    receiver.shared.send(&replies);
                });
                receiver.shared.request.wake_dialogue();
            }
        }
    }
}

struct Writer<'a> {
    receiver: &'a CopyReceiver,
    to_settle: &'a ChannelEnd<WholeFile>,
    to_check: Option<&'a ChannelEnd<WholeFile>>,
    digest: Arc<Meter>,
    write: Arc<Meter>,
    finish_meter: Arc<Meter>,
    replies: Vec<CopyMessage>,
    pieces: Vec<BlockPiece>,
    /// A buffer for chunks that are patched.
    scratch: Vec<u8>,
    /// Whether the last block took less than [`QUICK`].
    is_quick: bool,
}

/// Waking another writer costs more than it gains if a block takes less time than this.
const QUICK: Duration = Duration::from_micros(50);
/// The number of quick blocks in a row after which a writer looks for other work.
const QUICK_MAX: usize = 16;

impl Writer<'_> {
    /// Does `work` and sends its replies to the sender; the session does not end in between.
    fn settle(&mut self, work: impl FnOnce(&mut Self)) {
        let receiver = self.receiver;
        let is_news = receiver.untold.during(|| {
            work(self);
            let is_news = !self.replies.is_empty();
            receiver.shared.send(&std::mem::take(&mut self.replies));
            is_news
        });
        // A block in the middle of a file means nothing to the conversing thread, unless that waits for the
        // last writer to end the session.
        if is_news || receiver.files.is_empty() {
            receiver.shared.request.wake_dialogue();
        }
    }

    /// Handles blocks that have arrived: several if they take next to no time; else one, and wakes another
    /// writer for the next.
    fn take_arrived(&mut self) {
        let inlet = self.receiver.shared.request.arrived();
        for _ in 0..QUICK_MAX {
            if !self.receiver.shared.request.rest() {
                return;
            }
            let Some(block) = inlet.take() else { return };
            if !self.is_quick {
                inlet.ring();
            }
            let started = Instant::now();
            self.settle(|writer| writer.block(block));
            self.is_quick = started.elapsed() < QUICK;
            if !self.is_quick {
                break;
            }
        }
        inlet.ring();
    }

    fn block(&mut self, arrived: CompleteBlock) {
        let mut pieces = std::mem::take(&mut self.pieces);
        if trailer::parse(&arrived.block[..arrived.len], &mut pieces).is_err() {
            self.receiver.shared.request.fail(Error::from(Misbehaviour::SenselessTrailer));
            return;
        }
        let arrived = Arc::new(arrived);
        let mut at = 0;
        for piece in &pieces {
            let range = at..at + piece.len as usize;
            at = range.end;
            self.piece(piece, &arrived, range);
        }
        self.pieces = pieces;
    }

    fn piece(&mut self, piece: &BlockPiece, arrived: &Arc<CompleteBlock>, range: std::ops::Range<usize>) {
        // A file that has failed meanwhile is no longer in the table; its remaining pieces are dropped.
        let file = self.receiver.files.get(piece.file);
        let Some(file) = file else { return };
        let data = &arrived.block[range.clone()];
        if !file.fits(piece) {
            let what = format!("a piece of {} lies beyond the file", file.item.path);
            self.receiver.shared.request.fail(Error::misbehaved(Misbehaviour::PieceBeyondFile, what));
            return;
        }
        if piece.is_patch {
            return self.patch(&file, piece, data);
        }
        if !self.matches(&file, piece, data) {
            return self.again(&file, piece.chunk);
        }
        if file.is_whole() {
            return self.whole(&file, data, piece.digest);
        }
        match file.write(piece, arrived, range, (&self.write, self.receiver.shared.request.handle())) {
            Ok(true) => {
                self.count(piece.len);
                if file.is_complete() {
                    self.receiver.queues.complete.put(file);
                }
            }
            Ok(false) => {}
            Err(failure) => self.fail(&file, failure),
        }
    }

    /// Makes a chunk from the old content that the sender was told of.
    fn patch(&mut self, file: &Arc<IncomingFile>, piece: &BlockPiece, data: &[u8]) {
        let Some(told) = &file.told else { return };
        let len = file.chunk_len(piece.chunk);
        let Some(patch) = Patch::parse(data, len as usize) else {
            let what = format!("a patch of {} makes no sense", file.item.path);
            self.receiver.shared.request.fail(Error::misbehaved(Misbehaviour::SenselessPatch, what));
            return;
        };
        let matched = len.saturating_sub(u64::from(piece.len));
        let had = told.take(piece.chunk, matched);
        let Some(patched) = file.patch(piece, &patch, had, &mut self.scratch, &self.write) else { return };
        match patched {
            Ok(PatchOutcome::Written) => {
                self.count(piece.len);
                self.receiver.shared.request.counts().content_matched.fetch_add(matched, Ordering::Relaxed);
                self.receiver.shared.request.handle().counts().found(matched);
                if file.is_complete() {
                    self.receiver.queues.complete.put(file.clone());
                }
            }
            Ok(PatchOutcome::There) => {}
            Ok(PatchOutcome::Differs) => self.again(file, piece.chunk),
            Err(error) => self.fail(file, Failure::cannot("write", &error)),
        }
    }

    /// Asks again for a piece that does not match its digest, unless that has failed too often.
    fn again(&mut self, file: &Arc<IncomingFile>, chunk: u64) {
        if file.may_ask_again() {
            self.replies.push(CopyMessage::Again { id: file.item.id(), chunk });
        } else {
            self.fail(file, Failure::new(Code::Damaged, "its content does not match its digest"));
        }
    }

    /// Whether the piece is what the sender read, by its digest.
    fn matches(&self, file: &IncomingFile, piece: &BlockPiece, data: &[u8]) -> bool {
        if self.receiver.rules.verify == VerifyMode::Transit {
            return true;
        }
        let is_whole = matches!(file.item.entry.what, EntryContent::File { size, .. } if size <= CHUNK);
        self.digest.time(|| match is_whole {
            true => whole_digest(data) == piece.digest,
            false => chunk_cv(data) == piece.digest,
        })
    }

    fn whole(&mut self, file: &Arc<IncomingFile>, data: &[u8], digest: [u8; 32]) {
        if self.receiver.files.take(file.item.id()).is_none() {
            return;
        }
        file.set_digest(digest, self.receiver.rules);
        let written = self.write.clone().time(|| file.write_whole(self.receiver, data));
        if written.is_ok() {
            self.count(data.len() as u32);
        }
        let named = match written {
            Ok(Some(unnamed)) if unnamed.needs_a_disk() => {
                return self.receiver.hand_on(self.to_settle, WholeFile::Small(file.clone(), unnamed));
            }
            Ok(Some(unnamed)) if let Some(to_check) = self.to_check => {
                return self.receiver.hand_on(to_check, WholeFile::Small(file.clone(), unnamed));
            }
            Ok(Some(unnamed)) => self.write.clone().time(|| finish_small(self.receiver, file, unnamed)),
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        self.receiver.settle_small(file, named, &mut self.replies);
    }

    fn count(&self, len: u32) {
        self.receiver.shared.request.counts().content_written.fetch_add(u64::from(len), Ordering::Relaxed);
        self.receiver.shared.request.handle().moved(len.into());
    }

    fn fail(&mut self, file: &Arc<IncomingFile>, failure: Failure) {
        self.receiver.give_up(file, failure, &mut self.replies);
    }

    /// Names a complete file, or hands it over to wait for the disk.
    fn finish(&mut self, file: &Arc<IncomingFile>) {
        if file.needs_a_disk() {
            return self.receiver.hand_on(self.to_settle, WholeFile::Large(file.clone()));
        }
        if let Some(to_check) = self.to_check {
            return self.receiver.hand_on(to_check, WholeFile::Large(file.clone()));
        }
        let result = self.finish_meter.clone().time(|| file.complete(self.receiver));
        if self.receiver.files.take(file.item.id()).is_some() {
            self.receiver.settle(file, result, &mut self.replies);
        }
    }
}
