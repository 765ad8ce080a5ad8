//! Ways in for `fuzz/`: what the two ends of a read accept from each other.

use farhaul_session::fuzzing::message_comes_back;

use super::messages::{ReadMessage, RecordCodec};
use super::pieces;

/// Checks one message, as it stands on the control stream behind its length: encoding what was decoded gives
/// the same message.
pub fn message(bytes: &[u8]) -> bool {
    message_comes_back(bytes, ReadMessage::decode, ReadMessage::encode)
}

/// Checks a stream of records: encoding what was decoded gives the same records.
pub fn records(bytes: &[u8]) -> bool {
    let (mut reader, mut writer, mut again) =
        (RecordCodec::default(), RecordCodec::default(), RecordCodec::default());
    let (mut rest, mut found) = (bytes, false);
    while let Ok(Some((record, taken))) = reader.take(rest) {
        assert!(taken > 0, "a record of nothing");
        rest = &rest[taken..];
        found = true;
        let mut written = Vec::new();
        writer.put(&mut written, &record);
        assert_eq!(
            again.take(&written),
            Ok(Some((record, written.len()))),
            "it reads back as another record"
        );
    }
    found
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
    !pieces.is_empty()
}
