//! Ways in for `fuzz/`: to what reads bytes of a peer or a disk and is private otherwise. Not part of the API.

use std::path::Path;

use crate::connect::KnownHosts;
pub use crate::connect::fuzzing::first_datagrams;
pub use crate::copy::fuzzing::{End, converse, path_memory, record_session};
use crate::copy::messages::{Decoder, Encoder, Message, decode_spread, encode_spread};
use crate::copy::trailer;
use crate::session::messages::MESSAGE_MAX;

/// The control stream: in pieces as it comes and as a whole, it is the same messages; what was understood can be said
/// again. Returns how many messages there were.
pub fn messages(bytes: &[u8]) -> usize {
    let whole = decode(bytes, bytes.len().max(1));
    let pieces = decode(bytes, 7);
    assert!(whole == pieces, "the messages depend on how they come");
    let (mut encoder, mut again) = (Encoder::default(), Vec::new());
    for message in &whole {
        if let Message::Entry(entry) | Message::Renewed { entry, .. } = message {
            assert!(entry.path.len() <= MESSAGE_MAX, "a path longer than any message");
        }
        let before = again.len();
        encoder.encode(message, &mut again);
        if let Message::Finish(figures) = message {
            spread(&figures.of_service);
        }
        // What is cut at one end, and figures that lose digits, do not come back as they were.
        if matches!(message, Message::Finish(_)) || again.len() - before > 900 {
            continue;
        }
        assert_eq!(
            decode_after(&again, before, &whole, message).as_ref(),
            Some(message),
            "it reads back as another message"
        );
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

fn decode(bytes: &[u8], piece: usize) -> Vec<Message> {
    let (mut decoder, mut messages) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return messages,
            }
        }
    }
    messages
}

/// The message that begins at `from`; a path's prefix is that of an entry before it.
fn decode_after(bytes: &[u8], from: usize, before: &[Message], message: &Message) -> Option<Message> {
    let mut decoder = Decoder::default();
    let index = before.iter().position(|one| std::ptr::eq(one, message))?;
    let last =
        before[..index].iter().rev().find(|one| matches!(one, Message::Entry(_) | Message::Renewed { .. }));
    if let Some(last) = last {
        Encoder::default().encode(last, decoder.buffer());
        decoder.next().ok()??;
    }
    decoder.buffer().extend_from_slice(&bytes[from..]);
    decoder.next().ok()?
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
    crate::copy::manifest::parse(line).is_ok()
}

/// The file of servers seen before: each of its lines counts.
pub fn known_hosts(file: &Path) -> bool {
    let Ok(hosts) = KnownHosts::load(file) else { return false };
    let _ = hosts.keys_of("host:4000");
    true
}
