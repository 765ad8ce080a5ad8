//! The words of a show: what the two ends tell each other beside the blocks, as messages of the stream in JSON.
//!
//! The sender opens, and the receiver says with which frame it wants to begin. docs/reference/wire.md has the table.

use farhaul::errors::Misbehaviour;
use serde::{Deserialize, Serialize};

use crate::counts::ReceiverCounts;

/// The version of words and labels.
pub(crate) const VERSION: u32 = 1;
/// The most ranges in one [`SenderWord::Dropped`], so that it fits a message.
pub(crate) const RANGES_MAX: usize = 1000;

/// What the sender says of its frames before the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) version: u32,
    /// 32 hexadecimal digits that are the same as long as the sender goes on with the same frames.
    pub(crate) run: String,
    /// The deadline of each frame in nanoseconds from its hand-over; `None`: all frames arrive, in order.
    pub(crate) deadline_ns: Option<u64>,
    /// The most bytes of a frame.
    pub(crate) frame_max: u64,
    /// The bytes of each frame but the last one, if all are equal.
    pub(crate) frame_len: Option<u64>,
    /// The number of frames, if it is known.
    pub(crate) frames: Option<u64>,
    /// Whether pieces arrive in the order in which they were sent.
    pub(crate) in_order: bool,
}

/// What the sender says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub(crate) enum SenderWord {
    Open(Opening),
    /// These frames will not arrive: each range has its first number and the number behind its last one.
    Dropped {
        ranges: Vec<(u64, u64)>,
    },
    /// The answer to [`ReceiverWord::Clock`]: the time in the question, and when it came, by the sender's clock.
    Clock {
        asked: u64,
        heard: u64,
    },
    /// There are this many frames, dropped ones among them, and no more.
    End {
        frames: u64,
    },
    /// The sender cannot go on, for this reason.
    Failed {
        what: String,
    },
}

/// What the receiver says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub(crate) enum ReceiverWord {
    /// It wants the frames from this one on.
    Begin { next: u64 },
    /// It asks for the sender's clock, and sends its own time along.
    Clock { asked: u64 },
    /// How its frames have fared so far.
    Counts(ReceiverCounts),
    /// The receiver cannot go on, for this reason.
    Failed { what: String },
}

/// Reads a word of the other end.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Misbehaviour> {
    serde_json::from_slice(bytes).map_err(|_| Misbehaviour::SenselessShowWord)
}

/// A word's bytes.
pub(crate) fn bytes(word: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(word).expect("words have only names and numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_others_are_refused() {
        let opening = Opening {
            version: VERSION,
            run: "0".repeat(32),
            deadline_ns: Some(200_000_000),
            frame_max: 6,
            frame_len: None,
            frames: Some(3),
            in_order: false,
        };
        for word in [
            SenderWord::Open(opening),
            SenderWord::Dropped { ranges: vec![(1, 2)] },
            SenderWord::Clock { asked: 1, heard: u64::MAX },
            SenderWord::End { frames: 3 },
        ] {
            assert_eq!(read::<SenderWord>(&bytes(&word)), Ok(word));
        }
        let counts = ReceiverWord::Counts(ReceiverCounts { on_time: 1, ..ReceiverCounts::default() });
        assert_eq!(read::<ReceiverWord>(&bytes(&counts)), Ok(counts));
        for text in ["", "{}", r#"{"word":"fly"}"#, r#"{"word":"begin"}"#, r#"{"word":"begin","next":-1}"#] {
            assert_eq!(read::<ReceiverWord>(text.as_bytes()), Err(Misbehaviour::SenselessShowWord), "{text}");
        }
    }

    #[test]
    fn the_longest_word_fits_a_message() {
        let ranges = vec![(u64::MAX, u64::MAX); RANGES_MAX];
        assert!(bytes(&SenderWord::Dropped { ranges }).len() <= farhaul::stream::MESSAGE_LEN_MAX);
    }
}
