//! Messages on the control stream, whoever they are of.

use super::codec::{Malformed, put_varint};
use crate::error::Error;

/// Longest message: its code and its body, without the length before them.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;

/// Appends what `write` writes as one message: behind its length.
pub(crate) fn put_message(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let end = out.len();
    debug_assert!(end - start <= MESSAGE_MAX, "reasons are cut and paths are bounded");
    put_varint(out, (end - start) as u64);
    let length_bytes = out.len() - end;
    out[start..].rotate_right(length_bytes);
}

/// The end of a session whose peer has said something that is no message.
pub(crate) fn senseless(_: Malformed) -> Error {
    Error::Misbehaved("a control message makes no sense".into())
}
