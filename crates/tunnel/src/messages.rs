//! The messages of the two ends of a tunnel, as values and as bytes; docs/reference/wire.md has the table.
//!
//! Always true: decoding never panics, and allocates at most as much as the bytes at hand.

use farhaul_session::codec::{ByteReader, Malformed, put_bytes, put_failure, put_numbers, put_varint};
use farhaul_session::messages::put_message;
use farhaul_words::Failure;

/// The most bytes of a host's name or address.
pub(crate) const HOST_MAX: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum TunnelMessage {
    /// Client to server: it opens a channel, which the server is to connect to this target.
    Open { channel: u64, room: u64, host: String, port: u16 },
    /// Answer to `Open` and `Arrived`: the channel leads to its target.
    Opened { channel: u64, room: u64 },
    /// Answer to `Open` and `Arrived`: there is no channel.
    Refused { channel: u64, failure: Failure },
    /// Both ways: bytes of the channel may be sent up to this offset.
    Room { channel: u64, until: u64 },
    /// Both ways: the connection was broken off, and what is under way is of no use.
    Reset { channel: u64 },
    /// Client to server: listen on this port; an empty `bind` is the loopback interface, `*` is all.
    Listen { listener: u64, bind: String, port: u16 },
    /// Server to client: it listens, on this port.
    Listening { listener: u64, port: u16 },
    /// Server to client: it does not listen.
    NotListening { listener: u64, failure: Failure },
    /// Server to client: it opens a channel for a connection that has come to a listener.
    Arrived { channel: u64, room: u64, listener: u64 },
}

impl TunnelMessage {
    /// Appends the message, behind its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| match self {
            TunnelMessage::Open { channel, room, host, port } => {
                put_numbers(out, 120, &[*channel, *room]);
                put_bytes(out, host.as_bytes());
                put_varint(out, u64::from(*port));
            }
            TunnelMessage::Opened { channel, room } => put_numbers(out, 121, &[*channel, *room]),
            TunnelMessage::Refused { channel, failure } => {
                put_numbers(out, 122, &[*channel]);
                put_failure(out, failure);
            }
            TunnelMessage::Room { channel, until } => put_numbers(out, 123, &[*channel, *until]),
            TunnelMessage::Reset { channel } => put_numbers(out, 124, &[*channel]),
            TunnelMessage::Listen { listener, bind, port } => {
                put_numbers(out, 125, &[*listener]);
                put_bytes(out, bind.as_bytes());
                put_varint(out, u64::from(*port));
            }
            TunnelMessage::Listening { listener, port } => {
                put_numbers(out, 126, &[*listener, u64::from(*port)]);
            }
            TunnelMessage::NotListening { listener, failure } => {
                put_numbers(out, 127, &[*listener]);
                put_failure(out, failure);
            }
            TunnelMessage::Arrived { channel, room, listener } => {
                put_numbers(out, 128, &[*channel, *room, *listener]);
            }
        });
    }

    /// Decodes a code and a body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<TunnelMessage, Malformed> {
        let mut reader = ByteReader(bytes);
        let reader = &mut reader;
        let message = match reader.byte()? {
            120 => TunnelMessage::Open {
                channel: reader.varint()?,
                room: reader.varint()?,
                host: host(reader)?,
                port: port(reader)?,
            },
            121 => TunnelMessage::Opened { channel: reader.varint()?, room: reader.varint()? },
            122 => TunnelMessage::Refused { channel: reader.varint()?, failure: reader.failure()? },
            123 => TunnelMessage::Room { channel: reader.varint()?, until: reader.varint()? },
            124 => TunnelMessage::Reset { channel: reader.varint()? },
            125 => {
                TunnelMessage::Listen { listener: reader.varint()?, bind: host(reader)?, port: port(reader)? }
            }
            126 => TunnelMessage::Listening { listener: reader.varint()?, port: port(reader)? },
            127 => TunnelMessage::NotListening { listener: reader.varint()?, failure: reader.failure()? },
            128 => TunnelMessage::Arrived {
                channel: reader.varint()?,
                room: reader.varint()?,
                listener: reader.varint()?,
            },
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    /// The name in errors.
    pub(crate) fn name(&self) -> &'static str {
        self.into()
    }
}

/// A name or an address: printable ASCII without spaces, so that it is safe to show and to look up.
fn host(reader: &mut ByteReader<'_>) -> Result<String, Malformed> {
    let bytes = reader.bytes()?;
    match bytes.len() <= HOST_MAX && bytes.iter().all(u8::is_ascii_graphic) {
        true => Ok(String::from_utf8_lossy(bytes).into_owned()),
        false => Err(Malformed),
    }
}

fn port(reader: &mut ByteReader<'_>) -> Result<u16, Malformed> {
    u16::try_from(reader.varint()?).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use farhaul_words::Code;
    use proptest::prelude::*;

    use super::*;

    fn messages() -> Vec<TunnelMessage> {
        let failure = Failure::new(Code::TargetRefused, "connection refused");
        vec![
            TunnelMessage::Open { channel: 300, room: 65_536, host: "db".into(), port: 5432 },
            TunnelMessage::Opened { channel: 300, room: 65_536 },
            TunnelMessage::Refused { channel: 300, failure: failure.clone() },
            TunnelMessage::Room { channel: 1, until: 1 << 40 },
            TunnelMessage::Reset { channel: 1 },
            TunnelMessage::Listen { listener: 2, bind: String::new(), port: 8080 },
            TunnelMessage::Listening { listener: 2, port: 8080 },
            TunnelMessage::NotListening { listener: 2, failure },
            TunnelMessage::Arrived { channel: 1, room: 65_536, listener: 2 },
        ]
    }

    fn bytes(message: &TunnelMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn every_message_has_the_bytes_of_this_version() {
        let all: Vec<_> =
            messages().iter().map(|message| (message.name().to_string(), bytes(message))).collect();
        farhaul_vectors::compare("tunnel", &all);
    }

    #[test]
    fn every_message_comes_back() {
        for message in messages() {
            let bytes = bytes(&message);
            let body = ByteReader(&bytes).bytes().unwrap();
            assert_eq!(TunnelMessage::decode(body), Ok(message));
            assert_eq!(TunnelMessage::decode(&[body, &[0]].concat()), Err(Malformed));
        }
    }

    #[test]
    fn a_host_that_cannot_be_one_is_refused() {
        for host in ["a b", "a\0", "\u{1b}[2J", &"x".repeat(256)] {
            let bytes = bytes(&TunnelMessage::Open { channel: 0, room: 0, host: host.into(), port: 1 });
            let body = ByteReader(&bytes).bytes().unwrap();
            assert_eq!(TunnelMessage::decode(body), Err(Malformed), "{host}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = TunnelMessage::decode(&bytes);
        }
    }
}
