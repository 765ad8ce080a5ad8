//! Ways in for `fuzz/`: what the two ends of a tunnel accept from each other.

use farhaul_session::fuzzing::message_comes_back;

use super::messages::TunnelMessage;
use super::pieces;

/// Checks one message, as it stands on the control stream behind its length: encoding what was decoded gives the same
/// message.
pub fn message(bytes: &[u8]) -> bool {
    message_comes_back(bytes, TunnelMessage::decode, TunnelMessage::encode)
}

/// Checks a block that has come: its pieces are its content, one behind the other.
pub fn pieces(bytes: &[u8]) -> bool {
    let Ok(pieces) = pieces::parse(bytes) else { return false };
    let mut at = 0;
    for (piece, content) in &pieces {
        assert_eq!(piece.len, content.len() as u64);
        assert_eq!(*content, &bytes[at..at + content.len()]);
        at += content.len();
    }
    true
}
