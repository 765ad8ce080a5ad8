//! Parsers of a copy and its session, without a session around them: for messages, blocks and lines of a
//! peer.

use farhaul_session::FIRST;
use farhaul_session::codec::Malformed;
use farhaul_session::messages as session;
use farhaul_session::messages::{InboxItem, MESSAGE_MAX, MessageInbox, RequestFrames, put_words};

use super::super::manifest;
use super::super::messages::{CopyMessage, Decoder, Encoder, decode_spread, encode_spread};
use super::super::trailer;

/// A decoded message of the control stream, of the session or of the copy.
#[derive(PartialEq)]
pub(super) enum DecodedMessage {
    Session(session::SessionMessage),
    Copy(CopyMessage),
}

/// Decodes the control stream of a copy.
#[derive(Default)]
pub(super) struct FuzzedListener {
    inbox: MessageInbox,
    frames: RequestFrames,
    decoder: Decoder,
}

impl FuzzedListener {
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.inbox.buffer()
    }

    /// The next message, if a whole one has come. Messages of any request are taken as those of the copy.
    pub(super) fn next(&mut self) -> Result<Option<DecodedMessage>, Malformed> {
        loop {
            if self.frames.take()? {
                return self
                    .decoder
                    .decode(self.frames.last())
                    .map(|message| Some(DecodedMessage::Copy(message)));
            }
            match self.inbox.take()? {
                Some(InboxItem::Own(message)) => return Ok(Some(DecodedMessage::Session(message))),
                Some(InboxItem::Words(_)) => self.frames.buffer().extend_from_slice(self.inbox.words()),
                None => return Ok(None),
            }
        }
    }
}

impl DecodedMessage {
    pub(super) fn encode(&self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        match self {
            DecodedMessage::Session(message) => message.encode(out),
            DecodedMessage::Copy(message) => put_words(out, FIRST, |out| encoder.encode(message, out)),
        }
    }

    /// Whether the next message may share the beginning of this one's path.
    fn has_path(&self) -> bool {
        matches!(self, DecodedMessage::Copy(CopyMessage::Entry(_) | CopyMessage::Renewed { .. }))
    }
}

/// Decodes a control stream as a whole and in small pieces: both must give the same messages, and each
/// message must survive encoding. Returns the number of messages.
pub fn messages(bytes: &[u8]) -> usize {
    let whole = decode(bytes, bytes.len().max(1));
    let pieces = decode(bytes, 7);
    assert!(whole == pieces, "the messages depend on how they come");
    let (mut encoder, mut again) = (Encoder::default(), Vec::new());
    for (index, message) in whole.iter().enumerate() {
        if let DecodedMessage::Copy(CopyMessage::Entry(entry) | CopyMessage::Renewed { entry, .. }) = message
        {
            assert!(entry.path.len() <= MESSAGE_MAX, "a path longer than any message");
        }
        let before = again.len();
        message.encode(&mut encoder, &mut again);
        if let DecodedMessage::Session(session::SessionMessage::Finish { figures, .. }) = message {
            spread(&figures.of_service);
            // Encoding rounds figures, so they do not compare equal.
            continue;
        }
        // A text that the encoder cuts does not come back as it was.
        if again.len() - before <= 900 {
            let back = decode_after(&again[before..], &whole[..index]);
            assert!(back.as_ref() == Some(message), "it reads back as another message");
        }
    }
    whole.len()
}

/// The figures that a copy adds to those of the session.
fn spread(bytes: &[u8]) {
    let Ok(spread) = decode_spread(bytes) else { return };
    let again = encode_spread(&spread);
    // A name that the encoder cuts does not come back as it was.
    if again.len() <= 900 {
        assert!(decode_spread(&again) == Ok(spread), "it reads back as another spread");
    }
}

fn decode(bytes: &[u8], piece: usize) -> Vec<DecodedMessage> {
    let (mut listener, mut messages) = (FuzzedListener::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        listener.buffer().extend_from_slice(piece);
        loop {
            let Ok(next) = listener.next() else { return messages };
            let Some(next) = next else { break };
            messages.push(next);
        }
    }
    messages
}

/// Decodes the message of these bytes; the prefix of its path is that of an entry before it.
fn decode_after(bytes: &[u8], before: &[DecodedMessage]) -> Option<DecodedMessage> {
    let mut listener = FuzzedListener::default();
    if let Some(last) = before.iter().rev().find(|one| one.has_path()) {
        last.encode(&mut Encoder::default(), listener.buffer());
        listener.next().ok()??;
    }
    listener.buffer().extend_from_slice(bytes);
    listener.next().ok()?
}

/// Parses the trailer of a block.
pub fn block_trailer(block: &[u8]) -> bool {
    let mut pieces = Vec::new();
    let is_sound = trailer::parse(block, &mut pieces).is_ok();
    if is_sound {
        let content: usize = pieces.iter().map(|piece| piece.len as usize).sum();
        assert!(content < block.len() && pieces.len() <= trailer::PIECES_MAX);
    }
    is_sound
}

/// Parses one line of a manifest.
pub fn manifest_line(line: &[u8]) -> bool {
    manifest::parse(line).is_ok()
}
