//! Entries for `fuzz/` to the code that reads packets, which is private otherwise. Not part of the API.

use crate::packet::{FrameLayout, HEADERS_MAX, Router, corrupt, destination, too_big};

/// Runs all that a link may do to a frame, as a TUN device hands it over.
pub fn frame(frame: &[u8]) -> bool {
    let _ = destination(frame);
    let Some(layout) = FrameLayout::read(frame) else { return false };
    let count = layout.count();
    assert_eq!(layout.train().count as usize, count);
    let mut headers = [0; HEADERS_MAX];
    let mut covered = 0;
    for first in 0..count.min(64) {
        let run = layout.run(first, 1, first % 2 == 0);
        let payload = layout.payload(first, 1);
        assert!(payload.end <= frame.len());
        covered += payload.len();
        assert!(layout.write_headers(frame, run, &mut headers) <= HEADERS_MAX);
    }
    if count <= 64 {
        let all = layout.run(0, count, false);
        assert_eq!(all.payload_len, covered, "the packets do not cover the whole payload");
        layout.write_headers(frame, all, &mut headers);
    }
    let router = Router { v4: [192, 0, 2, 1], v6: [0x20; 16] };
    let _ = too_big(frame, &layout, 1280, &router);
    let len = layout.write_headers(frame, layout.run(0, 1, false), &mut headers);
    corrupt(&mut [&headers[..len], &frame[layout.payload(0, 1)]].concat());
    true
}
