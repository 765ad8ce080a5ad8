//! Large files of which there is something already. Chunks that an earlier run has brought of the source in another state: the
//! sender is told their values, and says of each that it is the same, or sends it. Chunks of another version are brought into the
//! partial file; the sender is told their marks, and answers each with what makes its own chunk of it.
//!
//! Always true: at most `TOLD_MAX` chunks of all files together wait for an answer; a file of which hardly anything can be
//! used is soon sent as if there were nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_channel::Receiver as Channel;
use farhaul_handover::Held as _;
use farhaul_session::error::{Error, Misbehaviour};
use farhaul_volume::{CHUNK, ChunkCv, Partial, Patched};

use super::super::failures::plain;
use super::super::large::Large;
use super::super::messages::{Decision, Message};
use super::super::receiver::Receiver;
use super::super::writer::Incoming;

/// Chunks whose marks (2 KiB each) may be under way: 4 GiB of file a round trip.
const TOLD_MAX: usize = 4096;
/// Chunks that are answered before it is judged whether the rest is worth the reading, and the share that must have been.
const TRIED: u64 = 64;
const WORTH: u64 = 16;

/// How many chunks wait for an answer, of all files.
#[derive(Debug, Default)]
pub(crate) struct Window {
    told: Mutex<usize>,
    room: Condvar,
}

/// What the sender was told of one file, and has not answered.
#[derive(Debug)]
pub(crate) struct Told {
    window: Arc<Window>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<u64, Waiting>,
    answered: u64,
    matched: u64,
}

/// What the sender was told of a chunk.
#[derive(Debug)]
enum Waiting {
    /// What there is in its place has this value.
    Marks(ChunkCv),
    /// It is there, if the sender's has the same value.
    Kept,
}

impl Told {
    pub(crate) fn new(window: &Arc<Window>) -> Told {
        Told { window: window.clone(), state: Mutex::default() }
    }

    /// Waits a little for room; false if there is none yet.
    fn reserve(&self) -> bool {
        let mut told = self.window.told.lock().whole();
        if *told >= TOLD_MAX {
            (told, _) = self.window.room.wait_timeout(told, Duration::from_millis(100)).whole();
        }
        let is_room = *told < TOLD_MAX;
        *told += usize::from(is_room);
        is_room
    }

    fn release(&self, count: usize) {
        *self.window.told.lock().in_any_case() -= count;
        self.window.room.notify_all();
    }

    /// Of a reserved place.
    fn tell(&self, chunk: u64, what: Waiting) {
        self.state.lock().whole().waiting.insert(chunk, what);
    }

    /// Waits for room to tell of a chunk; false if there is nobody to be told any more.
    fn wait(&self, receiver: &Receiver, file: &Incoming) -> bool {
        while !self.reserve() {
            if receiver.shared.is_stopped() || file.partial().is_none() {
                return false;
            }
        }
        true
    }

    /// The sender has the chunk of this place; false if it was not asked.
    pub(crate) fn take_kept(&self, chunk: u64) -> bool {
        let mut state = self.state.lock().whole();
        if !matches!(state.waiting.get(&chunk), Some(Waiting::Kept)) {
            return false;
        }
        state.waiting.remove(&chunk);
        drop(state);
        self.release(1);
        true
    }

    /// The answer to a chunk is here, which leaves `matched` of its bytes as they are: what the sender was told, if it was.
    pub(crate) fn take(&self, chunk: u64, matched: u64) -> Option<ChunkCv> {
        let told = {
            let mut state = self.state.lock().whole();
            let told = state.waiting.remove(&chunk)?;
            if let Waiting::Marks(_) = told {
                state.answered += 1;
                state.matched += matched;
            }
            told
        };
        self.release(1);
        if let Waiting::Marks(cv) = told { Some(cv) } else { None }
    }

    fn is_worth_it(&self) -> bool {
        let state = self.state.lock().whole();
        state.answered < TRIED || state.matched >= state.answered * CHUNK / WORTH
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let left = self.state.get_mut().map_or(0, |state| state.waiting.len());
        self.release(left);
    }
}

/// The body of a thread that tells. Nothing comes through `over`; it is closed when the session is.
pub(super) fn run(receiver: &Receiver, files: &Channel<Arc<Incoming>>, over: &Channel<Infallible>) {
    let mut buffer = Vec::new();
    loop {
        crossbeam_channel::select! {
            recv(files) -> file => match file {
                Ok(file) => receiver.tell_marks(&file, &mut buffer),
                Err(_) => return,
            },
            recv(over) -> _ => return,
        }
    }
}

impl Receiver {
    fn tell_marks(&self, file: &Incoming, buffer: &mut Vec<u8>) {
        let (Some(partial), Some(told)) = (file.partial(), &file.told) else { return };
        let id = file.item.id();
        let marked = if self.rules.delta { partial.old_chunks() } else { 0 };
        let old_chunks = marked.max(partial.kept_end());
        let decision = Decision::Patch { have: partial.have_ranges(), old_chunks };
        let kept = partial.kept();
        drop(partial);
        self.shared.send(&[Message::Decide { id, decision }]);
        for (chunk, cv) in kept {
            if !told.wait(self, file) {
                return;
            }
            told.tell(chunk, Waiting::Kept);
            self.shared.send(&[Message::Kept { id, chunk, cv }]);
        }
        let meter = self.shared.meters.meter("compare");
        for chunk in 0..marked {
            if !told.is_worth_it() {
                tracing::debug!(path = %file.item.path, chunk, "the version that is here is of no use");
                break;
            }
            if !told.wait(self, file) {
                return;
            }
            // Not held while nothing happens: what is complete is to be finished, what has failed to be let go.
            let Some(partial) = file.partial() else { return told.release(1) };
            match meter.time(|| partial.marks(chunk, buffer)) {
                Ok(Some(marks)) => {
                    told.tell(chunk, Waiting::Marks(marks.cv));
                    self.shared.send(&[Message::Marks { id, chunk, marks: marks.bytes }]);
                }
                Ok(None) => told.release(1),
                Err(error) => {
                    told.release(1);
                    tracing::debug!(path = %file.item.path, chunk, error = plain(&error), "cannot compare");
                    break;
                }
            }
        }
        self.shared.send(&[Message::MarksEnd { id }]);
    }

    /// Whether there is something that has to be compared with what the sender has.
    pub(super) fn is_compared(&self, partial: &Partial) -> bool {
        partial.kept_end() > 0 || self.rules.delta && partial.old_chunks() > 0
    }

    /// The sender's chunk is the one that was kept.
    pub(super) fn same(
        &self,
        id: u64,
        chunk: u64,
        replies: &mut Vec<Message>,
        finish: &crossbeam_channel::Sender<Arc<Incoming>>,
    ) -> Result<(), Error> {
        // What is said of a file that has failed meanwhile is of no more use.
        let Some(file) = self.files.get(id) else { return Ok(()) };
        if !file.told.as_ref().is_some_and(|told| told.take_kept(chunk)) {
            return Err(Error::misbehaved(
                Misbehaviour::SameAsNothing,
                format!("chunk {chunk} of file {id} is the same as nothing"),
            ));
        }
        let Some(partial) = file.partial() else { return Ok(()) };
        let kept = partial.keep(chunk);
        drop(partial);
        match kept {
            Ok(Patched::Written) => {
                let len = Large::bytes_of(&[(chunk, 1)], file.item.entry.size());
                self.counts.bytes_resumed.fetch_add(len, Relaxed);
                self.shared.handle.counts().bytes_done.fetch_add(len, Relaxed);
                if file.is_complete() {
                    let _ = finish.send(file);
                }
            }
            Ok(Patched::There | Patched::Differs) => {}
            Err(error) => {
                if self.files.take(id).is_some() {
                    self.abandon(&file);
                    self.settle(&file, Err(format!("cannot write: {}", plain(&error))), replies);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_answers_is_bounded_whatever_becomes_of_the_files() {
        let window = Arc::new(Window::default());
        let (first, second) = (Told::new(&window), Told::new(&window));
        for chunk in 0..TOLD_MAX as u64 {
            assert!(first.reserve());
            first.tell(chunk, Waiting::Marks(ChunkCv([1; 32])));
        }
        assert!(!second.reserve());
        assert_eq!(first.take(5, 0), Some(ChunkCv([1; 32])));
        assert_eq!(first.take(5, 0), None, "answered twice");
        assert!(second.reserve() && !second.reserve());
        drop(first);
        assert_eq!(*window.told.lock().unwrap(), 1);
    }

    #[test]
    fn a_version_of_no_use_is_left_after_some_chunks() {
        let told = Told::new(&Arc::default());
        for chunk in 0..TRIED {
            assert!(told.is_worth_it());
            assert!(told.reserve());
            told.tell(chunk, Waiting::Marks(ChunkCv([0; 32])));
            told.take(chunk, if chunk == 0 { CHUNK } else { 0 });
        }
        assert!(!told.is_worth_it());
        for chunk in 0..4 {
            assert!(told.reserve());
            told.tell(chunk, Waiting::Marks(ChunkCv([0; 32])));
            told.take(chunk, CHUNK);
        }
        assert!(told.is_worth_it());
    }
}
