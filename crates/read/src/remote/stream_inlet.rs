//! The bytes of a stream on their way from the session to the caller that reads it.
//!
//! Always true: bytes that wait for the caller lie in one buffer, however small the pieces were in which they came.

use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, bounded};
use farhaul_handover::Held as _;
use farhaul_words::{Error, Failure};

use super::client_session::ClientSession;

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// How the stream has ended.
    end: Option<Result<(), Failure>>,
}

/// The session's end.
pub(super) struct StreamInlet {
    waiting: Arc<Mutex<Waiting>>,
    bell: Sender<()>,
}

/// The caller's end.
pub(super) struct StreamOutlet {
    waiting: Arc<Mutex<Waiting>>,
    /// It also says that the session is gone.
    bell: Receiver<()>,
}

pub(super) fn stream() -> (StreamInlet, StreamOutlet) {
    let waiting = Arc::<Mutex<Waiting>>::default();
    let (ring, bell) = bounded(1);
    (StreamInlet { waiting: waiting.clone(), bell: ring }, StreamOutlet { waiting, bell })
}

impl StreamInlet {
    pub(super) fn put(&self, bytes: &[u8]) {
        self.waiting.lock().whole().bytes.extend_from_slice(bytes);
        self.ring();
    }

    /// Nothing more comes.
    pub(super) fn end(&self, how: Result<(), Failure>) {
        self.waiting.lock().whole().end.get_or_insert(how);
        self.ring();
    }

    fn ring(&self) {
        // If it has rung and nobody has heard it yet, that is enough. The caller may be gone.
        let _ = self.bell.try_send(());
    }
}

impl StreamOutlet {
    /// Waits for the next bytes; `None` after the last.
    pub(super) fn next(&self, session: &ClientSession) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(next) = self.take() {
                return next.map_err(Error::from);
            }
            session.wait(&self.bell)?;
        }
    }

    /// The bytes that wait, or the end behind them; `None` if more may come.
    pub(super) fn take(&self) -> Option<Result<Option<Vec<u8>>, Failure>> {
        let mut waiting = self.waiting.lock().whole();
        if !waiting.bytes.is_empty() {
            return Some(Ok(Some(std::mem::take(&mut waiting.bytes))));
        }
        waiting.end.clone().map(|end| end.map(|()| None))
    }
}
