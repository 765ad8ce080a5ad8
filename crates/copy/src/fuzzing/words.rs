//! What a copy and its session read of a peer's words, of blocks and of lines, without a session around it.

use farhaul_session::codec::Malformed;
use farhaul_session::messages as session;
use farhaul_session::messages::{Inbox, MESSAGE_MAX, Next};

use super::super::manifest;
use super::super::messages::{Decoder, Encoder, Message, decode_spread, encode_spread};
use super::super::trailer;

/// A message of whoever may say something on a control stream.
#[derive(PartialEq)]
enum Heard {
    Session(session::Message),
    Copy(Message),
}

impl Heard {
    fn new(next: Next, inbox: &Inbox, decoder: &mut Decoder) -> Result<Heard, Malformed> {
        match next {
            Next::Own(message) => Ok(Heard::Session(message)),
            Next::OfService => decoder.decode(inbox.last()).map(Heard::Copy),
        }
    }

    fn encode(&self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        match self {
            Heard::Session(message) => message.encode(out),
            Heard::Copy(message) => encoder.encode(message, out),
        }
    }

    /// Whether the next path may share something with this one's.
    fn has_path(&self) -> bool {
        matches!(self, Heard::Copy(Message::Entry(_) | Message::Renewed { .. }))
    }
}

/// The control stream: in pieces as it comes and as a whole, it is the same messages; what was understood can be
/// said again. Returns how many messages there were.
pub fn messages(bytes: &[u8]) -> usize {
    let whole = decode(bytes, bytes.len().max(1));
    let pieces = decode(bytes, 7);
    assert!(whole == pieces, "the messages depend on how they come");
    let (mut encoder, mut again) = (Encoder::default(), Vec::new());
    for (index, message) in whole.iter().enumerate() {
        if let Heard::Copy(Message::Entry(entry) | Message::Renewed { entry, .. }) = message {
            assert!(entry.path.len() <= MESSAGE_MAX, "a path longer than any message");
        }
        let before = again.len();
        message.encode(&mut encoder, &mut again);
        if let Heard::Session(session::Message::Finish(figures)) = message {
            spread(&figures.of_service);
            // Figures lose digits.
            continue;
        }
        // What is cut at one end does not come back as it was.
        if again.len() - before <= 900 {
            let back = decode_after(&again[before..], &whole[..index]);
            assert!(back.as_ref() == Some(message), "it reads back as another message");
        }
    }
    whole.len()
}

/// What a copy adds to its figures.
fn spread(bytes: &[u8]) {
    let Ok(spread) = decode_spread(bytes) else { return };
    let again = encode_spread(&spread);
    // A name that is cut does not come back as it was.
    if again.len() <= 900 {
        assert!(decode_spread(&again) == Ok(spread), "it reads back as another spread");
    }
}

fn decode(bytes: &[u8], piece: usize) -> Vec<Heard> {
    let (mut inbox, mut decoder, mut messages) = (Inbox::default(), Decoder::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        inbox.buffer().extend_from_slice(piece);
        loop {
            let Ok(next) = inbox.take() else { return messages };
            let Some(next) = next else { break };
            let Ok(message) = Heard::new(next, &inbox, &mut decoder) else { return messages };
            messages.push(message);
        }
    }
    messages
}

/// The message of these bytes; a path's prefix is that of an entry before it.
fn decode_after(bytes: &[u8], before: &[Heard]) -> Option<Heard> {
    let (mut inbox, mut decoder) = (Inbox::default(), Decoder::default());
    if let Some(last) = before.iter().rev().find(|one| one.has_path()) {
        last.encode(&mut Encoder::default(), inbox.buffer());
        let next = inbox.take().ok()??;
        Heard::new(next, &inbox, &mut decoder).ok()?;
    }
    inbox.buffer().extend_from_slice(bytes);
    let next = inbox.take().ok()??;
    Heard::new(next, &inbox, &mut decoder).ok()
}

/// The end of a block.
pub fn block_trailer(block: &[u8]) -> bool {
    let mut pieces = Vec::new();
    let is_sound = trailer::parse(block, &mut pieces).is_ok();
    if is_sound {
        let content: usize = pieces.iter().map(|piece| piece.len as usize).sum();
        assert!(content < block.len() && pieces.len() <= trailer::PIECES_MAX);
    }
    is_sound
}

/// One line of a manifest.
pub fn manifest_line(line: &[u8]) -> bool {
    manifest::parse(line).is_ok()
}
