//! A way in for `fuzz/`: what a stream reads of a peer's words.

use farhaul_session::fuzzing::message_comes_back;

use super::messages::StreamMessage;

/// One message, as it stands on the control stream behind its length; what was understood can be said again.
pub fn message(bytes: &[u8]) -> bool {
    message_comes_back(bytes, StreamMessage::decode, StreamMessage::encode)
}
