//! A way in for `fuzz/`: what a stream reads of a peer's words.

use farhaul_session::messages::{Inbox, Next};

use super::messages::Message;

/// One message, as it stands on the control stream behind its length; what was understood can be said again.
pub fn message(bytes: &[u8]) -> bool {
    let Ok(message) = Message::decode(bytes) else { return false };
    let mut inbox = Inbox::default();
    message.encode(inbox.buffer());
    assert!(matches!(inbox.take(), Ok(Some(Next::OfService))), "it is no message of a service");
    assert_eq!(Message::decode(inbox.last()), Ok(message), "it reads back as another message");
    true
}
