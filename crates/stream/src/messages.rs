//! The messages of a stream, as values and as bytes; docs/reference/wire.md has the table.

use farhaul_session::codec::{ByteReader, Malformed, put_bytes, put_numbers, put_varint};
use farhaul_session::messages::{MESSAGE_MAX, put_message};

use super::MESSAGE_LEN_MAX;

/// The most blocks that one message says are given up.
pub(crate) const GIVEN_UP_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum StreamMessage {
    /// Receiver to sender: the program has let go of `count` blocks.
    Confirmed { count: u64 },
    /// Sender to receiver: `count` blocks have been put. If `is_last`, there are no more; otherwise somebody
    /// waits until they are confirmed.
    BlocksPut { count: u64, is_last: bool },
    /// Both ways: a message of the program's own.
    Word(Vec<u8>),
    /// Sender to receiver: it has given up these blocks, as their deadlines have passed. Some may have arrived.
    GivenUp(Vec<u64>),
}

const _: () =
    assert!(MESSAGE_LEN_MAX + 8 <= MESSAGE_MAX, "a program's message is one message, with code and length");

impl StreamMessage {
    /// Appends the message and the length before it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| match self {
            StreamMessage::Confirmed { count } => put_numbers(out, 49, &[*count]),
            StreamMessage::BlocksPut { count, is_last } => {
                put_numbers(out, 50, &[*count, u64::from(*is_last)])
            }
            StreamMessage::Word(bytes) => {
                out.push(51);
                put_bytes(out, bytes);
            }
            StreamMessage::GivenUp(numbers) => {
                put_numbers(out, 61, &[numbers.len() as u64]);
                numbers.iter().for_each(|&number| put_varint(out, number));
            }
        });
    }

    /// Decodes a message: its code and body, without the length.
    pub(crate) fn decode(bytes: &[u8]) -> Result<StreamMessage, Malformed> {
        let mut reader = ByteReader(bytes);
        let message = match reader.byte()? {
            49 => StreamMessage::Confirmed { count: reader.varint()? },
            50 => StreamMessage::BlocksPut { count: reader.varint()?, is_last: reader.flag()? },
            51 => StreamMessage::Word(reader.bytes()?.to_vec()),
            61 => {
                let count = reader.varint()?;
                if count > GIVEN_UP_MAX as u64 {
                    return Err(Malformed);
                }
                StreamMessage::GivenUp((0..count).map(|_| reader.varint()).collect::<Result<_, _>>()?)
            }
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    /// The message's name, for errors.
    pub(super) fn name(&self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_message_has_the_bytes_of_this_version() {
        let bytes = |name: &str, message: StreamMessage| {
            let mut out = Vec::new();
            message.encode(&mut out);
            (name.to_string(), out)
        };
        farhaul_vectors::compare(
            "stream",
            &[
                bytes("Confirmed", StreamMessage::Confirmed { count: 1 << 40 }),
                bytes("BlocksPut", StreamMessage::BlocksPut { count: 7, is_last: true }),
                bytes("Word", StreamMessage::Word(b"what a program says".to_vec())),
                bytes("GivenUp", StreamMessage::GivenUp(vec![7, 1 << 40])),
            ],
        );
    }

    #[test]
    fn messages_of_releases_are_read() {
        for (release, messages) in farhaul_vectors::of_releases("stream") {
            for (name, bytes) in messages {
                let read = StreamMessage::decode(ByteReader(&bytes).bytes().unwrap());
                let read = format!("{:?}", read.unwrap());
                assert!(read.starts_with(&name), "{release}: {name} is read as {read}");
            }
        }
    }

    #[test]
    fn every_message_comes_back() {
        let messages = [
            StreamMessage::Confirmed { count: 1 << 40 },
            StreamMessage::BlocksPut { count: 7, is_last: true },
            StreamMessage::Word(vec![9; MESSAGE_LEN_MAX]),
            StreamMessage::GivenUp(vec![u64::MAX; GIVEN_UP_MAX]),
        ];
        for message in messages {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let body = ByteReader(&bytes).bytes().unwrap();
            assert_eq!(StreamMessage::decode(body), Ok(message));
            assert_eq!(StreamMessage::decode(&[body, &[0]].concat()), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = StreamMessage::decode(&bytes);
        }
    }
}
