//! Notes of a session: what each end has to tell the other one ahead of everything that waits in the control
//! stream, which may be megabytes of names. They say which requests an end wants to be paused, and in which of
//! these nothing changes any more at that end.
//!
//! A note has all of it, so the newest one is enough. It goes by every flow that carries control, and again
//! until the peer has seen it.
//!
//! Always true: a note that is older than one that was heard changes nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_proto::Flow;

use crate::codec::{ByteReader, Malformed, put_varint};

/// Repeated notes of the peer are answered at most this often.
const ANSWER_INTERVAL: Duration = Duration::from_millis(20);

/// What an end says of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequestNote {
    pub(crate) request: u64,
    /// The end wants the request to be paused.
    pub(crate) wants_pause: bool,
    /// Nothing changes any more at that end.
    pub(crate) is_still: bool,
}

#[derive(Default)]
pub(crate) struct Notes {
    state: Mutex<NoteState>,
    /// Grows whenever the flows have to send the note.
    turn: AtomicU64,
}

#[derive(Default)]
struct NoteState {
    /// The number of the newest note of this end; 0 before the first one.
    version: u64,
    own: Vec<RequestNote>,
    /// The newest own note that the peer is known to have seen.
    seen_there: u64,
    /// The newest note of the peer, and which note of this end the peer had seen when it sent that.
    heard: u64,
    heard_seen: u64,
    theirs: Vec<RequestNote>,
    answered: Option<Instant>,
}

impl Notes {
    /// Sets what this end says; returns whether that is new. `make` is called while no other thread can do the
    /// same, so that the last one that looks is the last one that says something.
    pub(crate) fn set_own(&self, make: impl FnOnce(u64) -> Vec<RequestNote>) -> bool {
        let mut state = self.state.lock().in_any_case();
        let next = state.version + 1;
        let own = make(next);
        let is_news = state.own != own;
        if is_news {
            (state.own, state.version) = (own, next);
            self.turn.fetch_add(1, Ordering::AcqRel);
        }
        is_news
    }

    /// Takes a note of the peer; returns whether it has something new. One that makes no sense is ignored, as is
    /// one that is too old.
    pub(crate) fn hear(&self, bytes: &[u8]) -> bool {
        let Ok(SentNote { version, seen, asks, notes }) = decode(bytes) else { return false };
        let mut state = self.state.lock().in_any_case();
        if seen > state.version || version < state.heard {
            return false;
        }
        state.seen_there = state.seen_there.max(seen);
        let is_news = version > state.heard || seen > state.heard_seen;
        if is_news {
            let ends_a_pause = state.theirs.iter().any(|before| {
                let is_it = |note: &&RequestNote| note.request == before.request;
                before.wants_pause && !notes.iter().find(is_it).is_some_and(|note| note.wants_pause)
            });
            if ends_a_pause {
                // Something may change again, so that stillness has to be found out anew.
                state.own.iter_mut().for_each(|note| note.is_still = false);
                state.version += 1;
            }
            (state.heard, state.theirs) = (version, notes);
            state.heard_seen = state.heard_seen.max(seen);
        }
        let is_recent = state.answered.is_some_and(|at| at.elapsed() < ANSWER_INTERVAL);
        if asks && (is_news || !is_recent) {
            state.answered = Some(Instant::now());
            self.turn.fetch_add(1, Ordering::AcqRel);
        }
        is_news
    }

    /// What the peer has said of a request, and which note of this end it had seen then.
    pub(crate) fn of_peer(&self, request: u64) -> (RequestNote, u64) {
        let state = self.state.lock().in_any_case();
        let found = state.theirs.iter().find(|note| note.request == request);
        (found.copied().unwrap_or_default(), state.heard_seen)
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// The note as it is to be sent now, and whether it has to be repeated until the peer has seen it.
    pub(crate) fn encode(&self) -> (Vec<u8>, bool) {
        let state = self.state.lock().in_any_case();
        let asks = state.version > state.seen_there;
        let mut out = Vec::new();
        put_varint(&mut out, state.version);
        put_varint(&mut out, state.heard);
        out.push(asks.into());
        let mut last = 0;
        for note in &state.own {
            let mut entry = Vec::new();
            put_varint(&mut entry, note.request - last);
            entry.push(u8::from(note.wants_pause) | u8::from(note.is_still) << 1);
            // Of very many paused requests, the peer hears of the first ones.
            if out.len() + entry.len() > Flow::NOTE_MAX {
                break;
            }
            last = note.request;
            out.append(&mut entry);
        }
        (out, asks)
    }
}

/// A note as it was sent.
struct SentNote {
    version: u64,
    seen: u64,
    asks: bool,
    notes: Vec<RequestNote>,
}

fn decode(bytes: &[u8]) -> Result<SentNote, Malformed> {
    let mut reader = ByteReader(bytes);
    let (version, seen, asks) = (reader.varint()?, reader.varint()?, reader.flag()?);
    let (mut notes, mut last) = (Vec::new(), 0u64);
    while !reader.is_empty() {
        last = last.checked_add(reader.varint()?).ok_or(Malformed)?;
        let flags = reader.byte()?;
        let (wants_pause, is_still) = (flags & 1 != 0, flags & 2 != 0);
        notes.push(RequestNote { request: last, wants_pause, is_still });
    }
    Ok(SentNote { version, seen, asks, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSED: RequestNote = RequestNote { request: 7, wants_pause: true, is_still: false };

    #[test]
    fn a_note_is_repeated_until_the_peer_has_seen_it_and_answers_end() {
        let (near, far) = (Notes::default(), Notes::default());
        assert!(near.set_own(|_| vec![PAUSED]) && !near.set_own(|_| vec![PAUSED]));
        let (note, asks) = near.encode();
        assert!(asks);
        let turn = far.turn();
        assert!(far.hear(&note) && far.turn() > turn);
        assert_eq!(far.of_peer(7), (PAUSED, 0));
        let still = RequestNote { wants_pause: false, is_still: true, ..PAUSED };
        assert!(far.set_own(|_| vec![still]));
        let (answer, asks) = far.encode();
        assert!(asks);
        let turn = near.turn();
        assert!(near.hear(&answer) && near.turn() > turn);
        assert_eq!(near.of_peer(7), (still, 1));
        let (last, asks) = near.encode();
        assert!(!asks);
        let turn = far.turn();
        far.hear(&last);
        assert!(far.turn() == turn && !far.encode().1, "nobody asks any more");
    }

    #[test]
    fn an_old_note_and_one_that_makes_no_sense_change_nothing() {
        let (near, far) = (Notes::default(), Notes::default());
        near.set_own(|_| vec![PAUSED]);
        let old = near.encode().0;
        near.set_own(|_| Vec::new());
        assert!(far.hear(&near.encode().0));
        assert!(!far.hear(&old));
        assert_eq!(far.of_peer(7).0, RequestNote::default());
        for senseless in [&[][..], &[1], &[1, 0], &[9, 0, 1, 7], &[9, 5, 1], &[0xff; 30]] {
            assert!(!far.hear(senseless), "{senseless:?}");
        }
    }

    #[test]
    fn of_many_requests_the_peer_hears_of_the_first_ones() {
        let (near, far) = (Notes::default(), Notes::default());
        let all = |_| (1..500).map(|request| RequestNote { request, ..PAUSED }).collect();
        near.set_own(all);
        let note = near.encode().0;
        assert!(note.len() <= Flow::NOTE_MAX);
        assert!(far.hear(&note));
        assert!(far.of_peer(50).0.wants_pause && !far.of_peer(499).0.wants_pause);
    }
}
