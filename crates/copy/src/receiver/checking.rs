//! Files that a check of this host's has to accept wait here for it: whole, on the disk, and without their names.
//!
//! A thread takes a few of the files that wait, and lends them to the check. It holds no pass of the gate
//! meanwhile, so a pause does not wait for a check: the check is ended, and begins anew when the transfer goes on.
//! Writers and settling threads wait only if very many files are waiting.
//!
//! Always true: a file gets its name only if the check has accepted it and the content is still what arrived. If
//! this process is killed between the two, the file has no name, and is checked again when it has one to get.

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd};
use farhaul_handover::permit::for_good;
use farhaul_volume::{LentFile, RelPath};
use farhaul_words::Failure;
use rustix::process::{Resource, getrlimit};

use super::super::content_check::{CheckVerdict, TransferCheck, UncheckedFile};
use super::super::messages::CopyMessage;
use super::super::receiver::{CopyReceiver, Destination};
use super::settlement::WholeFile;
use crate::failures::plain;
use crate::options::VerifyMode;

/// The most files that may wait for a check: each has a descriptor, and may hold one of its directory.
const WAITING_MAX: u64 = 8192;
const WAITING_MIN: u64 = 16;
/// The files that wait may have a share of the descriptors of the process of one in so many.
const DESCRIPTORS_PART: u64 = 8;
/// The most threads of one transfer.
const THREADS_MAX: usize = 16;

pub(super) fn queue() -> (ChannelEnd<WholeFile>, Channel<WholeFile>) {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let waiting = (descriptors / DESCRIPTORS_PART).clamp(WAITING_MIN, WAITING_MAX);
    crossbeam_channel::bounded(waiting as usize)
}

pub(super) fn threads(check: &TransferCheck) -> usize {
    check.limits.threads.clamp(1, THREADS_MAX)
}

/// Runs one of the threads. It ends when all senders of the queue are gone.
pub(super) fn run(receiver: &CopyReceiver, check: &TransferCheck, whole: &Channel<WholeFile>) {
    while let Ok(first) = whole.recv() {
        let mut batch = vec![first];
        batch.extend(whole.try_iter().take(check.limits.files.max(1) - 1));
        let (count, mut replies) = (batch.len() as u64, Vec::new());
        take(receiver, check, batch, &mut replies);
        receiver.shared.send(&replies);
        receiver.untold.end(count);
        receiver.shared.request.wake_dialogue();
    }
}

/// Has some files checked, and names those that are accepted. Once the request is over, what has no name yet gets
/// none.
fn take(
    receiver: &CopyReceiver,
    check: &TransferCheck,
    batch: Vec<WholeFile>,
    replies: &mut Vec<CopyMessage>,
) {
    loop {
        let Some(pass) = receiver.shared.request.enter() else { return for_good(|| drop(batch)) };
        let lent: Vec<_> = batch.iter().map(WholeFile::lend).collect();
        drop(pass);
        let judged = judge(receiver, check, &batch, &lent);
        let Some(_pass) = receiver.shared.request.enter() else { return for_good(|| drop((lent, batch))) };
        // A pause has ended the check, which begins anew now.
        let Some(judged) = judged else { continue };
        let mut judged = judged.into_iter();
        let verdict = |(file, lent): (&WholeFile, &std::io::Result<Option<LentFile>>)| match lent {
            Ok(Some(lent)) => after(receiver, file, lent, judged.next()),
            // The file was given up meanwhile.
            Ok(None) => CheckVerdict::Accepted,
            Err(error) => CheckVerdict::Failed(format!("cannot open it: {}", plain(error))),
        };
        let verdicts: Vec<_> = batch.iter().zip(&lent).map(verdict).collect();
        drop(lent);
        for (file, verdict) in batch.into_iter().zip(verdicts) {
            match receiver.shared.request.rest() {
                true => file.settle_checked(receiver, &verdict, replies),
                false => for_good(|| drop(file)),
            }
        }
        return;
    }
}

/// Asks the check about those files that could be lent. `None` if it was ended before it had a verdict.
fn judge(
    receiver: &CopyReceiver,
    check: &TransferCheck,
    batch: &[WholeFile],
    lent: &[std::io::Result<Option<LentFile>>],
) -> Option<Vec<CheckVerdict>> {
    let places: Vec<_> = batch.iter().map(|file| directory(receiver, file.path())).collect();
    let unchecked = batch.iter().zip(lent).zip(&places).filter_map(|((file, lent), directory)| {
        Some(UncheckedFile {
            content: lent.as_ref().ok()?.as_ref()?.content(),
            path: file.path().as_bytes(),
            directory,
            size: file.size(),
            digest: file.digest(receiver.rules.verify),
        })
    });
    let unchecked: Vec<_> = unchecked.collect();
    match unchecked.is_empty() {
        true => Some(Vec::new()),
        false => check.check.judge(&unchecked, &check.sender, &|| receiver.shared.request.is_going_on()),
    }
}

/// The verdict on a file, after a look at what the program has left of it.
fn after(
    receiver: &CopyReceiver,
    file: &WholeFile,
    lent: &LentFile,
    judged: Option<CheckVerdict>,
) -> CheckVerdict {
    match judged.unwrap_or_else(|| CheckVerdict::Failed("it got no verdict".into())) {
        CheckVerdict::Refused(why) => CheckVerdict::Refused(why),
        _ if !lent.is_untouched().unwrap_or(false) => CheckVerdict::Changed,
        CheckVerdict::Accepted => accepted(receiver, file),
        other => other,
    }
}

/// The verdict on a file that the check has accepted: whatever the program may have done, what gets the name is what
/// arrived.
fn accepted(receiver: &CopyReceiver, file: &WholeFile) -> CheckVerdict {
    let is_same = match receiver.rules.verify {
        // Without digests, size and time are all there is; a file that is read back is compared by that.
        VerifyMode::Transit | VerifyMode::Readback => Ok(true),
        VerifyMode::Digest => file.still_has_content(|| receiver.shared.request.rest()),
    };
    match is_same {
        Ok(true) => CheckVerdict::Accepted,
        Ok(false) => CheckVerdict::Changed,
        Err(error) => CheckVerdict::Failed(format!("cannot read it again: {}", plain(&error))),
    }
}

/// The directory that the file's path is below.
fn directory(receiver: &CopyReceiver, path: &RelPath) -> Vec<u8> {
    let Destination::Tree(target) = &receiver.destination else { return Vec::new() };
    let directory = target.roots.of(path).real_path(&RelPath::empty());
    directory.map(|path| path.into_os_string().into_encoded_bytes()).unwrap_or_default()
}

impl WholeFile {
    /// Names the file, or removes what the check has refused.
    fn settle_checked(self, receiver: &CopyReceiver, verdict: &CheckVerdict, replies: &mut Vec<CopyMessage>) {
        match verdict.failure() {
            None => self.settle(receiver, Ok(()), replies),
            Some(failure) => self.settle_refused(receiver, failure, verdict.keeps_content(), replies),
        }
    }

    fn settle_refused(
        self,
        receiver: &CopyReceiver,
        failure: Failure,
        keeps_content: bool,
        replies: &mut Vec<CopyMessage>,
    ) {
        match self {
            WholeFile::Small(file, unnamed) => {
                drop(unnamed);
                receiver.settle(&file, Err(failure), replies);
            }
            WholeFile::Large(file) => {
                if receiver.files.take(file.item.id()).is_some() {
                    match keeps_content {
                        true => receiver.abandon(&file),
                        false => file.discard(),
                    }
                    receiver.settle(&file, Err(failure), replies);
                }
            }
        }
    }
}
