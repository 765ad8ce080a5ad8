//! Entries for `fuzz/`: how a client and a daemon that it steers read each other's messages.

use farhaul_session::fuzzing::message_comes_back;

use super::commission::Commission;
use super::copy_status;
use super::messages::ControlMessage;

/// Decodes one message, as it stands on the control stream behind its length. A message that was understood
/// must encode again.
pub fn message(bytes: &[u8]) -> bool {
    message_comes_back(bytes, ControlMessage::decode, ControlMessage::encode)
}

/// Reads a daemon's commission, and a daemon's reports of a copy.
pub fn documents(bytes: &[u8]) -> bool {
    let commission = Commission::read(bytes).is_ok();
    let event = copy_status::event(bytes).is_some();
    copy_status::snapshot(bytes).is_some() | copy_status::ending(bytes, false).is_ok() | commission | event
}
