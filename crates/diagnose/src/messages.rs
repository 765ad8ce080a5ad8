//! The messages of the two ends, as values and as bytes; docs/reference/wire.md has the table.
//!
//! Always true: decoding never panics, and allocates at most as much as the bytes at hand.

use farhaul_session::codec::{ByteReader, Malformed, put_bytes, put_numbers};
use farhaul_session::messages::put_message;

/// The most bytes of an answer.
pub(crate) const ANSWER_MAX: usize = 60 << 10;

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum DiagnoseMessage {
    /// From client to server: in a consultation it asks for the findings, in a test for the far end's signs.
    Ask { op: u64 },
    /// From server to client: the answer, as JSON.
    Answer { op: u64, json: Vec<u8> },
}

impl DiagnoseMessage {
    /// Appends the message, behind its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| match self {
            DiagnoseMessage::Ask { op } => put_numbers(out, 112, &[*op]),
            DiagnoseMessage::Answer { op, json } => {
                put_numbers(out, 113, &[*op]);
                put_bytes(out, json);
            }
        });
    }

    /// Decodes a code and a body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<DiagnoseMessage, Malformed> {
        let mut reader = ByteReader(bytes);
        let message = match reader.byte()? {
            112 => DiagnoseMessage::Ask { op: reader.varint()? },
            113 => {
                let (op, json) = (reader.varint()?, reader.bytes()?);
                if json.len() > ANSWER_MAX {
                    return Err(Malformed);
                }
                DiagnoseMessage::Answer { op, json: json.to_vec() }
            }
            _ => return Err(Malformed),
        };
        if reader.0.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    /// The name in errors.
    pub(crate) fn name(&self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> Vec<DiagnoseMessage> {
        vec![DiagnoseMessage::Ask { op: 300 }, DiagnoseMessage::Answer { op: u64::MAX, json: b"{}".to_vec() }]
    }

    fn bytes(message: &DiagnoseMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn every_message_has_the_bytes_of_this_version() {
        let all: Vec<_> =
            messages().iter().map(|message| (message.name().to_string(), bytes(message))).collect();
        farhaul_vectors::compare("diagnose", &all);
    }

    #[test]
    fn every_message_comes_back() {
        for message in messages() {
            let bytes = bytes(&message);
            let body = ByteReader(&bytes).bytes().unwrap();
            assert_eq!(DiagnoseMessage::decode(body), Ok(message));
            assert_eq!(DiagnoseMessage::decode(&[body, &[0]].concat()), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = DiagnoseMessage::decode(&bytes);
        }
    }
}
