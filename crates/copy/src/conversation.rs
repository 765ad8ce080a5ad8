//! The messages that this end of a copy sends to the other one.

use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use farhaul_session::request::Request;

use super::messages::{CopyMessage, Encoder};

/// The request of a copy, and the copy's own messages to the peer.
///
/// Always true: messages are encoded in the order in which they are sent, since a path is encoded by its
/// difference to the path before. So the encoder is only locked while the session takes messages.
pub(crate) struct Conversation {
    pub(crate) request: Arc<Request>,
    encoder: Mutex<Encoder>,
}

impl Conversation {
    pub(crate) fn new(request: Arc<Request>) -> Arc<Conversation> {
        Arc::new(Conversation { request, encoder: Mutex::default() })
    }

    /// Encodes the messages and sends them, as `Request::send` does.
    pub(crate) fn send(&self, messages: &[CopyMessage]) {
        self.request.send_encoded(|out| {
            let mut encoder = self.encoder.lock().whole();
            for message in messages {
                encoder.encode(message, out);
            }
        });
    }
}
