//! Ways in for `fuzz/`: what a client and a daemon that it steers take of each other.

use farhaul_session::fuzzing::message_comes_back;

use super::commission::Commission;
use super::copy_status;
use super::messages::ControlMessage;

/// One message, as it stands on the control stream behind its length; what was understood can be said again.
pub fn message(bytes: &[u8]) -> bool {
    message_comes_back(bytes, ControlMessage::decode, ControlMessage::encode)
}

/// What a daemon is told to copy, and what it tells of that.
pub fn documents(bytes: &[u8]) -> bool {
    let commission = Commission::read(bytes).is_ok();
    let event = copy_status::event(bytes).is_some();
    copy_status::snapshot(bytes).is_some() | copy_status::ending(bytes).is_ok() | commission | event
}
