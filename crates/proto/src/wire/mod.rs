//! Encoding and decoding, nothing else: the clear header, the segment frame, control frames, varints.
//!
//! Always true: decoding arbitrary bytes never panics and never allocates more than a small multiple of them.
//! The layout is the one that docs/reference/wire.md describes.

pub(crate) mod frame;
mod header;
mod segment;
pub(crate) mod varint;

pub use header::{HEADER_LEN, PacketHeader, TAG_LEN, is_ours};
pub use segment::{PacketParts, SEGMENT_FRAME_LEN, Segment, split};

/// What a packet adds to the payload of a segment: header, segment frame, tag.
pub const SEGMENT_OVERHEAD: usize = HEADER_LEN + SEGMENT_FRAME_LEN + TAG_LEN;
