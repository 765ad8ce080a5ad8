//! Ways in for `fuzz/`: what a client and a daemon that it steers take of each other.

use farhaul_session::fuzzing::message_comes_back;

use super::commission::Commission;
use super::messages::ControlMessage;
use super::told;

/// One message, as it stands on the control stream behind its length; what was understood can be said again.
pub fn message(bytes: &[u8]) -> bool {
    message_comes_back(bytes, ControlMessage::decode, ControlMessage::encode)
}

/// What a daemon is told to copy, and what it tells of that.
pub fn documents(bytes: &[u8]) -> bool {
    let commission = Commission::read(bytes).is_ok();
    let event = told::event(bytes).is_some();
    told::snapshot(bytes).is_some() | told::ending(bytes).is_ok() | commission | event
}
