//! Control frames: one byte of type, a varint length, a body. A receiver that does not know a type skips it
//! if its bit 7 is set.

use super::varint;
use crate::ack::TrainArrival;
use crate::error::{Error, TransportMisbehaviour};
use std::ops::Range;

/// The types. Padding and segments have no length: they run to the packet's end.
pub(crate) mod kind {
    pub(crate) const PADDING: u8 = 0x00;
    pub(crate) const SEGMENT: u8 = 0x01;
    pub(crate) const SEGMENT_LAST: u8 = 0x02;
    pub(crate) const PING: u8 = 0x03;
    pub(crate) const FEEDBACK: u8 = 0x04;
    pub(crate) const STREAM: u8 = 0x05;
    pub(crate) const FLOOR: u8 = 0x06;
    pub(crate) const CLOSE: u8 = 0x07;
    pub(crate) const REPORT: u8 = 0x08;
    pub(crate) const CHALLENGE: u8 = 0x09;
    pub(crate) const ANSWER: u8 = 0x0a;
    pub(crate) const ARRIVALS: u8 = 0x0b;
    pub(crate) const GIVEN_UP: u8 = 0x0c;
    pub(crate) const NOTE: u8 = 0x0d;
    pub(crate) const OPTIONAL: u8 = 0x80;
}

/// The longest reason that a close frame carries.
const REASON_MAX: usize = 256;

/// A control frame, its bytes borrowed from the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// Asks for feedback and carries nothing.
    Ping,
    /// Asks for feedback about everything above the floor.
    Report,
    /// Says what has arrived and what may be sent.
    Feedback(Feedback<'a>),
    /// A piece of the control stream.
    Stream { offset: u64, bytes: &'a [u8] },
    /// The sender knows the fate of all packets below this number.
    Floor(u64),
    /// The sender has ended the session.
    Close { code: u16, reason: &'a str },
    /// Asks for an answer with the same bytes. It goes to the address that is to be checked.
    Challenge([u8; 8]),
    /// Repeats a challenge's bytes: its sender has received the challenge at the address that it was sent to.
    Answer([u8; 8]),
    /// When the first segments arrived; see [`notes`].
    Arrivals(&'a [u8]),
    /// Blocks of which nothing more is sent; see [`given_up`].
    GivenUp(&'a [u8]),
    /// A note of the session, which overtakes the control stream.
    Note(&'a [u8]),
    /// Something optional that we do not know.
    Unknown,
}

/// A receiver's feedback to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Feedback<'a> {
    /// Largest packet number that has arrived.
    pub newest: u64,
    /// When it arrived, by the receiver's clock.
    pub arrived_us: u64,
    /// How long before the feedback left that was.
    pub delay_us: u64,
    /// Segments that arrived a second time, since the flow began.
    pub duplicates: u64,
    /// Packets marked "congestion experienced", since the flow began.
    pub ecn_ce: u64,
    /// Blocks with smaller numbers may be sent.
    pub credit: u64,
    /// Control stream bytes below this offset may be sent.
    pub max_data: u64,
    /// First packet number of the map, divided by 64.
    pub map_start: u64,
    /// The map: which packets from there on have arrived; see [`MapPieces`].
    pub map: &'a [u8],
}

/// Takes type and body of one frame that has a length.
pub(crate) fn take_raw<'a>(bytes: &mut &'a [u8]) -> Result<(u8, &'a [u8]), Error> {
    take_raw_option(bytes).ok_or(TransportMisbehaviour::MalformedFrame.into())
}

fn take_raw_option<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&kind, mut rest) = bytes.split_first()?;
    let length = usize::try_from(varint::take(&mut rest)?).ok()?;
    let (body, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((kind, body))
}

/// Takes one frame from the front of the control part of a packet.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Result<Frame<'a>, Error> {
    let (kind, body) = take_raw(bytes)?;
    let frame = match kind {
        kind::PING => Some(Frame::Ping),
        kind::REPORT => Some(Frame::Report),
        kind::FEEDBACK => feedback(body),
        kind::STREAM => stream(body),
        kind::FLOOR => varint::take(&mut { body }).map(Frame::Floor),
        kind::CLOSE => close(body),
        kind::CHALLENGE => body.try_into().ok().map(Frame::Challenge),
        kind::ANSWER => body.try_into().ok().map(Frame::Answer),
        kind::ARRIVALS => Some(Frame::Arrivals(body)),
        kind::GIVEN_UP => Some(Frame::GivenUp(body)),
        kind::NOTE => Some(Frame::Note(body)),
        _ if kind & kind::OPTIONAL != 0 => Some(Frame::Unknown),
        _ => return Err(TransportMisbehaviour::UnknownFrame.into()),
    };
    frame.ok_or(TransportMisbehaviour::MalformedFrame.into())
}

fn stream(mut body: &[u8]) -> Option<Frame<'_>> {
    let offset = varint::take(&mut body)?;
    offset.checked_add(body.len() as u64)?;
    Some(Frame::Stream { offset, bytes: body })
}

fn close(body: &[u8]) -> Option<Frame<'_>> {
    let (code, reason) = body.split_first_chunk::<2>()?;
    let reason = std::str::from_utf8(reason).unwrap_or("");
    Some(Frame::Close { code: u16::from_be_bytes(*code), reason })
}

fn feedback(mut body: &[u8]) -> Option<Frame<'_>> {
    let mut next = || varint::take(&mut body);
    let feedback = Feedback {
        newest: next()?,
        arrived_us: next()?,
        delay_us: next()?,
        duplicates: next()?,
        ecn_ce: next()?,
        credit: next()?,
        max_data: next()?,
        map_start: next()?,
        map: &[],
    };
    Some(Frame::Feedback(Feedback { map: body, ..feedback }))
}

pub(crate) fn put_ping(out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind::PING, 0]);
}

pub(crate) fn put_report(out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind::REPORT, 0]);
}

pub(crate) fn put_floor(out: &mut Vec<u8>, floor: u64) {
    out.push(kind::FLOOR);
    varint::put(out, varint::len(floor) as u64);
    varint::put(out, floor);
}

/// The most bytes of a note; with its head it fits into the smallest packet.
pub(crate) const NOTE_MAX: usize = 200;

pub(crate) fn put_note(out: &mut Vec<u8>, note: &[u8]) {
    out.push(kind::NOTE);
    varint::put(out, note.len() as u64);
    out.extend_from_slice(note);
}

pub(crate) fn put_challenge(out: &mut Vec<u8>, token: [u8; 8]) {
    out.extend_from_slice(&[kind::CHALLENGE, 8]);
    out.extend_from_slice(&token);
}

pub(crate) fn put_answer(out: &mut Vec<u8>, token: [u8; 8]) {
    out.extend_from_slice(&[kind::ANSWER, 8]);
    out.extend_from_slice(&token);
}

/// Puts a close frame; a long reason is cut at a character's boundary.
pub(crate) fn put_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    let reason = &reason[..reason.floor_char_boundary(REASON_MAX)];
    out.push(kind::CLOSE);
    varint::put(out, 2 + reason.len() as u64);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// The most bytes of arrivals in one frame: 64 notes, a byte or three for each number and time.
pub(crate) const ARRIVALS_MAX: usize = 2 + 16 + 64 * 4;

/// Puts the arrivals of the first segments: number and time, and for each further one the differences to the
/// last.
pub(crate) fn put_arrivals(out: &mut Vec<u8>, notes: &[TrainArrival]) {
    let mut body = Vec::with_capacity(ARRIVALS_MAX);
    let mut last = TrainArrival { number: 0, at_us: 0 };
    for &note in notes {
        varint::put(&mut body, note.number - last.number);
        varint::put(&mut body, note.at_us - last.at_us);
        last = note;
    }
    out.push(kind::ARRIVALS);
    varint::put(out, body.len() as u64);
    out.extend_from_slice(&body);
}

/// The notes of an arrivals frame; ends at the first one that makes no sense.
pub(crate) fn notes(mut body: &[u8]) -> impl Iterator<Item = TrainArrival> {
    let mut last = TrainArrival { number: 0, at_us: 0 };
    std::iter::from_fn(move || {
        let number = last.number.checked_add(varint::take(&mut body)?)?;
        let at_us = last.at_us.checked_add(varint::take(&mut body)?)?;
        last = TrainArrival { number, at_us };
        Some(last)
    })
}

/// The bytes of a frame of given up blocks apart from its ranges, at most.
const GIVEN_UP_OVERHEAD: usize = 1 + 4;

/// A frame of ascending, disjoint ranges of block numbers, filled up to a length.
pub(crate) struct GivenUpFrame {
    body: Vec<u8>,
    room: usize,
    end: u64,
}

impl GivenUpFrame {
    /// Begins a frame of at most `room` bytes.
    pub(crate) fn new(room: usize) -> Self {
        GivenUpFrame { body: Vec::new(), room: room.saturating_sub(GIVEN_UP_OVERHEAD), end: 0 }
    }

    /// Appends a range; `false` if it does not fit.
    pub(crate) fn push(&mut self, start: u64, end: u64) -> bool {
        let (gap, count) = (start - self.end, end - start);
        let fits = self.body.len() + varint::len(gap) + varint::len(count) <= self.room;
        if fits {
            varint::put(&mut self.body, gap);
            varint::put(&mut self.body, count);
            self.end = end;
        }
        fits
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(kind::GIVEN_UP);
        varint::put(out, self.body.len() as u64);
        out.extend_from_slice(&self.body);
    }
}

/// The ranges of a frame of given-up blocks: ascending, disjoint, none of them empty. An error ends them.
pub(crate) fn given_up(mut body: &[u8]) -> impl Iterator<Item = Result<Range<u64>, TransportMisbehaviour>> {
    let mut end = 0u64;
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let mut next = || varint::take(&mut body);
        let range = next().zip(next()).and_then(|(gap, count)| {
            let start = end.checked_add(gap)?;
            Some(start..start.checked_add(count).filter(|_| count > 0)?)
        });
        match &range {
            Some(range) => end = range.end,
            None => body = &[],
        }
        Some(range.ok_or(TransportMisbehaviour::MalformedFrame))
    })
}

/// The bytes that a stream frame adds to its content, at most.
pub(crate) const STREAM_OVERHEAD: usize = 1 + 4 + 8;

/// Puts the head of a stream frame; `len` bytes of content must follow.
pub(crate) fn put_stream_head(out: &mut Vec<u8>, offset: u64, len: usize) {
    out.push(kind::STREAM);
    varint::put(out, (varint::len(offset) + len) as u64);
    varint::put(out, offset);
}

/// The bytes of a feedback frame apart from its map, at most.
pub(crate) const FEEDBACK_OVERHEAD: usize = 1 + 4 + 8 * 8;

/// Puts a feedback frame.
pub(crate) fn put_feedback(out: &mut Vec<u8>, feedback: &Feedback<'_>) {
    let numbers = [
        feedback.newest,
        feedback.arrived_us,
        feedback.delay_us,
        feedback.duplicates,
        feedback.ecn_ce,
        feedback.credit,
        feedback.max_data,
        feedback.map_start,
    ];
    let length = numbers.iter().map(|&number| varint::len(number)).sum::<usize>() + feedback.map.len();
    out.push(kind::FEEDBACK);
    varint::put(out, length as u64);
    numbers.iter().for_each(|&number| varint::put(out, number));
    out.extend_from_slice(feedback.map);
}

/// A piece of the map, in words of 64 packets, with the lowest number in the lowest bit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MapPiece<'a> {
    /// This many words in which all packets have arrived.
    Full(u64),
    /// Words as they stand, eight bytes each, little-endian.
    Raw(&'a [[u8; 8]]),
}

/// Reads a map: a count of full words, then a count of raw words and these words, and so on in turn.
pub(crate) struct MapPieces<'a> {
    rest: &'a [u8],
    raw_next: bool,
}

impl<'a> MapPieces<'a> {
    pub(crate) fn new(map: &'a [u8]) -> Self {
        MapPieces { rest: map, raw_next: false }
    }

    /// The next piece; `Err` when the map is malformed.
    pub(crate) fn next_piece(&mut self) -> Result<Option<MapPiece<'a>>, TransportMisbehaviour> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let count = varint::take(&mut self.rest).ok_or(TransportMisbehaviour::MalformedFrame)?;
        let raw = self.raw_next;
        self.raw_next = !raw;
        if !raw {
            return Ok(Some(MapPiece::Full(count)));
        }
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(8));
        let (words, rest) = length
            .and_then(|length| self.rest.split_at_checked(length))
            .ok_or(TransportMisbehaviour::MalformedFrame)?;
        self.rest = rest;
        Ok(Some(MapPiece::Raw(words.as_chunks::<8>().0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(bytes: &[u8]) -> Result<Frame<'_>, Error> {
        let mut rest = bytes;
        let frame = take(&mut rest)?;
        assert!(rest.is_empty());
        Ok(frame)
    }

    #[test]
    fn every_frame_has_the_bytes_of_this_version() {
        let bytes = |name: &str, put: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            put(&mut out);
            (name.to_string(), out)
        };
        let arrived =
            [(3, 70), (4, 70_000), (9, 70_001)].map(|(number, at_us)| TrainArrival { number, at_us });
        let given_up = |out: &mut Vec<u8>| {
            let mut frame = GivenUpFrame::new(15);
            assert!(frame.push(3, 4) && frame.push(9, 1000));
            frame.put(out);
        };
        let stream = |out: &mut Vec<u8>| {
            put_stream_head(out, 300, 3);
            out.extend_from_slice(b"abc");
        };
        farhaul_vectors::compare(
            "frames",
            &[
                bytes("Ping", &put_ping),
                bytes("Report", &put_report),
                bytes("Challenge", &|out| put_challenge(out, *b"12345678")),
                bytes("Answer", &|out| put_answer(out, *b"87654321")),
                bytes("Arrivals", &|out| put_arrivals(out, &arrived)),
                bytes("Note", &|out| put_note(out, &[2, 1, 1, 7, 3])),
                bytes("GivenUp", &given_up),
                bytes("Floor", &|out| put_floor(out, 1 << 39)),
                bytes("Close", &|out| put_close(out, 7, "\u{f6}ff")),
                bytes("Stream", &stream),
            ],
        );
    }

    #[test]
    fn frames_of_releases_are_read() {
        for (release, frames) in farhaul_vectors::of_releases("frames") {
            for (name, bytes) in frames {
                let read = format!("{:?}", one(&bytes).unwrap());
                let kind = read.split(|sign: char| !sign.is_alphanumeric()).next();
                assert_eq!(kind, Some(name.as_str()), "{release}");
            }
        }
    }

    #[test]
    fn each_frame_comes_back() {
        let mut out = Vec::new();
        put_ping(&mut out);
        assert_eq!(one(&out), Ok(Frame::Ping));
        out.clear();
        put_report(&mut out);
        assert_eq!(one(&out), Ok(Frame::Report));
        out.clear();
        put_challenge(&mut out, *b"12345678");
        assert_eq!(one(&out), Ok(Frame::Challenge(*b"12345678")));
        out.clear();
        put_answer(&mut out, *b"87654321");
        assert_eq!(one(&out), Ok(Frame::Answer(*b"87654321")));
        out.clear();
        let arrived =
            [(3, 70), (4, 70_000), (9, 70_001)].map(|(number, at_us)| TrainArrival { number, at_us });
        put_arrivals(&mut out, &arrived);
        let Ok(Frame::Arrivals(body)) = one(&out) else { panic!("an arrivals frame") };
        assert_eq!(notes(body).collect::<Vec<_>>(), arrived);
        out.clear();
        let mut frame = GivenUpFrame::new(15);
        assert!(
            frame.push(3, 4)
                && frame.push(9, 1000)
                && frame.push(1000, 1001)
                && !frame.push(1 << 30, 1 << 31)
        );
        frame.put(&mut out);
        assert!(out.len() <= 15);
        let Ok(Frame::GivenUp(body)) = one(&out) else { panic!("a frame of given up blocks") };
        assert_eq!(given_up(body).collect::<Vec<_>>(), [Ok(3..4), Ok(9..1000), Ok(1000..1001)]);
        out.clear();
        put_floor(&mut out, 1 << 39);
        assert_eq!(one(&out), Ok(Frame::Floor(1 << 39)));
        out.clear();
        put_close(&mut out, 7, "öff");
        assert_eq!(one(&out), Ok(Frame::Close { code: 7, reason: "öff" }));
        out.clear();
        put_stream_head(&mut out, 300, 3);
        out.extend_from_slice(b"abc");
        assert_eq!(one(&out), Ok(Frame::Stream { offset: 300, bytes: b"abc" }));
    }

    #[test]
    fn optional_frames_are_skipped_and_mandatory_ones_are_not() {
        assert_eq!(one(&[0xf0, 2, 1, 2]), Ok(Frame::Unknown));
        assert_eq!(one(&[0x70, 2, 1, 2]), Err(TransportMisbehaviour::UnknownFrame.into()));
        assert_eq!(one(&[kind::CLOSE, 1, 1]), Err(TransportMisbehaviour::MalformedFrame.into()));
        assert_eq!(one(&[kind::CHALLENGE, 2, 1, 1]), Err(TransportMisbehaviour::MalformedFrame.into()));
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused_once() {
        let malformed = [Err(TransportMisbehaviour::MalformedFrame)];
        for body in [&[5][..], &[5, 0], &[5, 0x40], &[5, 0, 1, 1]] {
            assert_eq!(given_up(body).collect::<Vec<_>>(), malformed, "{body:?}");
        }
        let most = [0xff; 16];
        let end = 2 * varint::MAX;
        assert_eq!(given_up(&most).collect::<Vec<_>>(), [Ok(varint::MAX..end)]);
        assert_eq!(given_up(&[0xff; 48]).last(), Some(malformed[0].clone()), "their sum is too large");
        assert_eq!(given_up(&[]).count(), 0);
    }

    #[test]
    fn a_long_reason_is_cut() {
        let mut out = Vec::new();
        put_close(&mut out, 1, &"ä".repeat(1000));
        let Ok(Frame::Close { reason, .. }) = one(&out) else { panic!("a close frame") };
        assert_eq!(reason.len(), REASON_MAX);
    }

    proptest! {
        #[test]
        fn feedback_comes_back(numbers: [u32; 8], map in proptest::collection::vec(any::<u8>(), 0..40)) {
            let n = numbers.map(u64::from);
            let feedback = Feedback { newest: n[0], arrived_us: n[1], delay_us: n[2], duplicates: n[3], ecn_ce: n[4], credit: n[5],
                max_data: n[6], map_start: n[7], map: &map };
            let mut out = Vec::new();
            put_feedback(&mut out, &feedback);
            prop_assert!(out.len() <= FEEDBACK_OVERHEAD + map.len());
            prop_assert_eq!(one(&out), Ok(Frame::Feedback(feedback)));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while !rest.is_empty() && take(&mut rest).is_ok() {}
            let mut pieces = MapPieces::new(&bytes);
            while let Ok(Some(_)) = pieces.next_piece() {}
            prop_assert!(notes(&bytes).count() <= bytes.len() / 2);
            let ranges: Vec<_> = given_up(&bytes).collect();
            prop_assert!(ranges.len() <= bytes.len() / 2 + 1);
            let errors = ranges.iter().filter(|range| range.is_err()).count();
            prop_assert!(errors == 0 || (errors == 1 && ranges[ranges.len() - 1].is_err()));
            let sound: Vec<_> = ranges.into_iter().flatten().collect();
            prop_assert!(sound.iter().all(|range| !range.is_empty()));
            prop_assert!(sound.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
