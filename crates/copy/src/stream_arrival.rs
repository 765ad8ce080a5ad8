//! Checks the pieces of a stream, whose length is only known at its end.
//!
//! Always true: the pieces so far are whole chunks and at most one shorter piece behind them all. Once the
//! end is known, exactly the pieces of a stream of that size are accepted.

use farhaul_volume::CHUNK;

/// A stream has less than 2^63 bytes.
const CHUNKS_MAX: u64 = 1 << 43;

#[derive(Debug, Default)]
pub(crate) struct StreamArrival {
    /// The number after that of the last chunk so far.
    behind: u64,
    /// The piece that is shorter than a chunk: its chunk number and length.
    short: Option<(u64, u32)>,
    size: Option<u64>,
}

impl StreamArrival {
    /// Notes a piece, which may come twice. Returns false if no stream can have it together with those so
    /// far.
    pub(crate) fn note(&mut self, chunk: u64, len: u32) -> bool {
        let is_whole = u64::from(len) == CHUNK;
        let fits = match self.short {
            Some((last, _)) if is_whole => chunk < last,
            Some(short) => short == (chunk, len),
            None => is_whole || chunk >= self.behind,
        };
        let is_in_size = self.size.is_none_or(|size| u64::from(len) == len_of(chunk, size));
        if !fits || !is_in_size || len == 0 || chunk >= CHUNKS_MAX {
            return false;
        }
        self.behind = self.behind.max(chunk + 1);
        self.short = self.short.or((!is_whole).then_some((chunk, len)));
        true
    }

    /// Notes the end: the stream has `size` bytes in `chunks` chunks. Returns false if that does not fit the
    /// pieces so far.
    pub(crate) fn end(&mut self, size: u64, chunks: u64) -> bool {
        let last = self.short.unwrap_or((self.behind.saturating_sub(1), CHUNK as u32));
        let fits = chunks == size.div_ceil(CHUNK)
            && chunks <= CHUNKS_MAX
            && (self.behind == 0 || u64::from(last.1) == len_of(last.0, size));
        self.size = Some(size);
        fits
    }
}

/// Bytes of a chunk in a stream of this size.
fn len_of(chunk: u64, size: u64) -> u64 {
    size.saturating_sub(chunk.saturating_mul(CHUNK)).min(CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u32 = CHUNK as u32;

    fn came(pieces: &[(u64, u32)]) -> Option<StreamArrival> {
        let mut came = StreamArrival::default();
        pieces.iter().all(|&(chunk, len)| came.note(chunk, len)).then_some(came)
    }

    #[test]
    fn only_the_last_piece_is_shorter_than_a_chunk() {
        for pieces in
            [&[(0, WHOLE), (1, 5)][..], &[(1, 5), (0, WHOLE)], &[(0, 7), (0, 7)], &[(9, WHOLE), (0, WHOLE)]]
        {
            assert!(came(pieces).is_some(), "{pieces:?}");
        }
        for pieces in [
            &[(0, 0)][..],
            &[(0, 5), (1, WHOLE)],
            &[(1, WHOLE), (0, 5)],
            &[(0, 5), (0, 6)],
            &[(0, 5), (0, WHOLE)],
            &[(0, WHOLE), (0, 5)],
            &[(1, 5), (0, 6)],
            &[(1 << 43, 5)],
            &[(u64::MAX, WHOLE)],
        ] {
            assert!(came(pieces).is_none(), "{pieces:?}");
        }
    }

    #[test]
    fn an_end_fits_what_has_come_and_what_comes_fits_the_end() {
        let (two, five) = (&[(0, WHOLE), (1, WHOLE)][..], &[(0, WHOLE), (1, 5)][..]);
        for (pieces, size, chunks, fits) in [
            (&[][..], 0, 0, true),
            (&[], 1, 0, false),
            (&[], u64::MAX, u64::MAX / CHUNK + 1, false),
            (two, 2 * CHUNK, 2, true),
            (two, 2 * CHUNK, 1, false),
            (two, 2 * CHUNK - 1, 2, false),
            (two, CHUNK, 1, false),
            (two, 10, 1, false),
            (two, 2 * CHUNK + 10, 3, true),
            (five, CHUNK + 5, 2, true),
            (five, CHUNK + 6, 2, false),
            (five, CHUNK + 4, 2, false),
            (five, 2 * CHUNK + 5, 3, false),
        ] {
            assert_eq!(came(pieces).unwrap().end(size, chunks), fits, "{pieces:?} {size} {chunks}");
        }
        let ended = || {
            let mut came = came(&[(0, WHOLE)]).unwrap();
            assert!(came.end(CHUNK + 5, 2));
            came
        };
        assert!(ended().note(1, 5) && ended().note(0, WHOLE));
        assert!(!ended().note(1, 6) && !ended().note(1, WHOLE) && !ended().note(2, 5));
    }
}
