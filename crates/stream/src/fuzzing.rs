//! A way in for `fuzz/`: what a stream reads of a peer's words.

use farhaul_session::messages::Frames;

use super::messages::Message;

/// One message, as it stands on the control stream behind its length; what was understood can be said again.
pub fn message(bytes: &[u8]) -> bool {
    let Ok(message) = Message::decode(bytes) else { return false };
    let mut frames = Frames::default();
    message.encode(frames.buffer());
    assert_eq!(frames.take(), Ok(true), "it is no whole message");
    assert_eq!(Message::decode(frames.last()), Ok(message), "it reads back as another message");
    true
}
