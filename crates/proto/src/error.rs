//! What can go wrong, and whose fault it is.

use farhaul_words::Misbehaviour;

/// Why a call failed. A lost, late or forged packet is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer, which holds the keys, did something that the protocol forbids: the session ends.
    #[error("peer broke the protocol: {0}")]
    Misbehaved(TransportMisbehaviour),
    /// The caller did something that the documentation forbids.
    #[error("misuse of the transport: {0}")]
    Misuse(&'static str),
}

/// How a peer can break the protocol. The discriminant is the code that goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[repr(u16)]
pub enum TransportMisbehaviour {
    /// A frame is cut short or holds a value that it must not hold.
    #[error("malformed frame")]
    MalformedFrame = 0x101,
    /// A frame type that is neither known nor optional.
    #[error("unknown mandatory frame")]
    UnknownFrame = 0x102,
    /// An acknowledgement of a packet number that was never sent.
    #[error("acknowledged a packet that was never sent")]
    AckOfUnsent = 0x103,
    /// A block longer than agreed, or two different lengths for one block.
    #[error("impossible block length")]
    BlockLength = 0x104,
    /// A block cut into more pieces than any sender has reason to.
    #[error("block cut into too many pieces")]
    Fragmented = 0x105,
    /// More control stream bytes than the window allows.
    #[error("control stream window exceeded")]
    ControlWindow = 0x106,
    /// More blocks granted than packet numbers can ever carry.
    #[error("impossible credit")]
    Credit = 0x107,
    /// Gave up blocks that were not granted, or the same blocks again and again.
    #[error("impossible blocks given up")]
    GivenUp = 0x108,
}

impl TransportMisbehaviour {
    /// All variants.
    pub const ALL: &[TransportMisbehaviour] = &[
        TransportMisbehaviour::MalformedFrame,
        TransportMisbehaviour::UnknownFrame,
        TransportMisbehaviour::AckOfUnsent,
        TransportMisbehaviour::BlockLength,
        TransportMisbehaviour::Fragmented,
        TransportMisbehaviour::ControlWindow,
        TransportMisbehaviour::Credit,
        TransportMisbehaviour::GivenUp,
    ];

    /// The number that tells the peer why the session ended.
    pub fn code(self) -> u16 {
        self as u16
    }
}

impl From<TransportMisbehaviour> for Error {
    fn from(how: TransportMisbehaviour) -> Self {
        Error::Misbehaved(how)
    }
}

impl From<TransportMisbehaviour> for Misbehaviour {
    fn from(how: TransportMisbehaviour) -> Misbehaviour {
        // The words' list has all of them: a test sees to it.
        Misbehaviour::of_number(how.code()).unwrap_or(Misbehaviour::MalformedFrame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transports_misbehaviours_keep_their_numbers_and_words() {
        for &how in TransportMisbehaviour::ALL {
            let here = Misbehaviour::from(how);
            assert_eq!((here.number(), here.text()), (how.code(), &how.to_string()[..]));
        }
    }
}
