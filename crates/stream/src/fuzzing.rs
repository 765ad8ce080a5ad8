//! An entry for `fuzz/`: how a stream reads a peer's messages.

use farhaul_session::fuzzing::message_comes_back;

use super::messages::StreamMessage;

/// Decodes one message, as it stands on the control stream behind its length. A message that was understood
/// must encode again.
pub fn message(bytes: &[u8]) -> bool {
    message_comes_back(bytes, StreamMessage::decode, StreamMessage::encode)
}
