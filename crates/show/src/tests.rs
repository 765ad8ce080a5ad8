//! Both ends of a stream in this process, and peers that do not keep to the rules.

use std::sync::Arc;
use std::time::Duration;

use farhaul::errors::{Code, Misbehaviour};
use farhaul::stream::{StreamOptions, StreamReceiver, StreamSender, pair};

use crate::control::ShowControl;
use crate::counts::{StreamCounts, StreamRole};
use crate::label::{PIECE, PieceLabel};
use crate::receive::{ReceiveOptions, ReceivePlan, Reception};
use crate::sink::SinkSpec;
use crate::words::{self, Opening, ReceiverWord, SenderWord};

fn opening(deadline_ns: Option<u64>) -> Opening {
    Opening {
        version: words::VERSION,
        run: "5".repeat(32),
        deadline_ns,
        frame_max: 3 * PIECE,
        frame_len: None,
        frames: Some(10),
        in_order: true,
    }
}

/// A sender that says what it likes.
struct Peer(StreamSender);

impl Peer {
    fn say(&self, word: &SenderWord) {
        self.0.send_message(&words::bytes(word)).unwrap();
    }

    /// Opens, tells its clock, and waits until the receiver begins. Returns the frame that the receiver wants.
    fn begin(&self, opening: Opening) -> u64 {
        self.say(&SenderWord::Open(opening));
        loop {
            let bytes = self.0.message(Duration::from_secs(60)).unwrap().unwrap();
            match words::read(&bytes).unwrap() {
                ReceiverWord::Clock { asked } => self.say(&SenderWord::Clock { asked, heard: asked }),
                ReceiverWord::Begin { next } => return next,
                other => panic!("{other:?}"),
            }
        }
    }

    fn put(&self, label: &[u8], len: u64) {
        let mut block = self.0.claim().unwrap();
        block.set_len(len as usize);
        block.fill(7);
        self.0.put(block, label).unwrap();
    }

    fn put_piece(&self, frame: u64, size: u64, offset: u64, metadata: &[u8]) {
        let mut label = Vec::new();
        PieceLabel { frame, size, offset, time: 1, metadata }.encode(&mut label);
        self.put(&label, (size - offset).min(PIECE));
    }

    /// The reason for which the receiver has ended the stream.
    fn refused_for(&self) -> String {
        loop {
            match self.0.message(Duration::from_secs(60)).unwrap().map(|bytes| words::read(&bytes)) {
                Some(Ok(ReceiverWord::Failed { what })) => return what,
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Receives from `peer` into `sink`, and returns how that ended.
fn received(
    sink: SinkSpec,
    memory: u64,
    peer: impl FnOnce(Peer) + Send + 'static,
) -> (Result<(), farhaul::Error>, Arc<StreamCounts>) {
    let (sender, receiver): (StreamSender, StreamReceiver) =
        pair(StreamOptions { in_order: true, ..StreamOptions::new("t") }).unwrap();
    let sending = std::thread::spawn(move || peer(Peer(sender)));
    let plan = ReceivePlan { name: "t".into(), sink };
    let options = ReceiveOptions {
        listen: Vec::new(),
        identity: None,
        authorized_keys: None,
        allow_cipher_none: false,
        memory,
        wait: Duration::ZERO,
    };
    let counts = Arc::new(StreamCounts::new("t", StreamRole::Recv, None));
    let control = ShowControl::new();
    let (give, incoming) = crossbeam_channel::bounded(1);
    give.send(receiver).unwrap();
    let mut reception = Reception::new(&plan, &control, &counts, &options);
    let result = reception.receive_all(&incoming, &|_| ());
    drop(incoming);
    sending.join().unwrap();
    (result, counts)
}

#[test]
fn what_no_honest_sender_does_ends_the_stream_with_a_code() {
    type Act = fn(&Peer);
    let cases: [(Option<u64>, Act, Misbehaviour); 12] = [
        (None, |peer| peer.put(b"no label", 5), Misbehaviour::SenselessPiece),
        (None, |peer| peer.put_piece(0, 4 * PIECE, 0, b""), Misbehaviour::WrongFrameSize),
        (
            None,
            |peer| {
                let mut label = Vec::new();
                PieceLabel { frame: 0, size: 9, offset: 0, time: 1, metadata: b"" }.encode(&mut label);
                peer.put(&label, 8);
            },
            Misbehaviour::WrongFrameSize,
        ),
        (
            None,
            |peer| {
                peer.put_piece(0, 2 * PIECE, 0, b"");
                peer.put_piece(0, 3 * PIECE, PIECE, b"");
            },
            Misbehaviour::WrongFrameSize,
        ),
        (None, |peer| peer.put_piece(10, 5, 0, b""), Misbehaviour::ImpossibleFrame),
        (
            None,
            |peer| {
                peer.put_piece(0, 5, 0, b"");
                peer.put_piece(0, 5, 0, b"");
            },
            Misbehaviour::ImpossibleFrame,
        ),
        (
            None,
            |peer| {
                peer.put_piece(0, 2 * PIECE, 0, b"");
                peer.put_piece(0, 2 * PIECE, 0, b"");
            },
            Misbehaviour::PieceTwice,
        ),
        (None, |peer| peer.0.send_message(b"{\"word\":\"fly\"}").unwrap(), Misbehaviour::SenselessShowWord),
        (None, |peer| peer.say(&SenderWord::Open(opening(None))), Misbehaviour::SenselessShowWord),
        (
            None,
            |peer| peer.say(&SenderWord::Dropped { ranges: vec![(0, 1)] }),
            Misbehaviour::SenselessShowWord,
        ),
        (
            Some(1_000_000_000),
            |peer| peer.say(&SenderWord::Dropped { ranges: vec![(0, 11)] }),
            Misbehaviour::ImpossibleFrame,
        ),
        (None, |peer| peer.put_piece(0, 5, 0, br#"{"name":"../x"}"#), Misbehaviour::BadFrameName),
    ];
    for (deadline, act, how) in cases {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("frames");
        let (result, _) = received(SinkSpec::Dir(place.clone()), 256 << 20, move |peer| {
            assert_eq!(peer.begin(opening(deadline)), 0);
            act(&peer);
            assert!(!peer.refused_for().is_empty());
        });
        let error = result.unwrap_err();
        assert_eq!((error.code(), error.misbehaviour()), (Code::Misbehaved, Some(how)), "{error}");
        let left: Vec<_> =
            std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let whole = usize::from(left.iter().any(|name| name == "frame-00000000"));
        assert_eq!(left.len(), whole, "no part of a frame stays: {left:?}");
    }
}

#[test]
fn an_opening_that_makes_no_sense_is_refused() {
    for (wrong, code) in [
        (Opening { version: 2, ..opening(None) }, Code::NoCommonVersion),
        (Opening { run: "x".into(), ..opening(None) }, Code::Misbehaved),
        (Opening { frame_max: 2 << 30, ..opening(None) }, Code::Misbehaved),
        (Opening { frame_len: Some(0), ..opening(None) }, Code::Misbehaved),
    ] {
        let (result, _) = received(SinkSpec::Null, 256 << 20, move |peer| {
            peer.say(&SenderWord::Open(wrong));
            peer.refused_for();
        });
        assert_eq!(result.unwrap_err().code(), code);
    }
}

#[test]
fn frames_that_are_kept_have_to_fit_into_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (result, _) = received(SinkSpec::File(folder.path().join("f")), 2 * PIECE, |peer| {
        peer.say(&SenderWord::Open(opening(Some(1_000_000_000))));
        peer.refused_for();
    });
    assert_eq!(result.unwrap_err().code(), Code::TooLarge);
}

#[test]
fn kept_frames_that_take_too_much_memory_are_dropped_from_the_oldest_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let (result, counts) = received(SinkSpec::File(path.clone()), 3 * PIECE, |peer| {
        // The clock is the receiver's, and the deadline an hour: only memory drops frames.
        peer.begin(Opening { deadline_ns: Some(u64::MAX), ..opening(None) });
        for frame in 0..4 {
            peer.put_piece(frame, 2 * PIECE, 0, b"");
        }
        peer.put_piece(3, 2 * PIECE, PIECE, b"");
        peer.say(&SenderWord::End { frames: 4 });
        peer.0.end().unwrap();
    });
    result.unwrap();
    let receiver = counts.stats().receiver;
    assert_eq!((receiver.on_time, receiver.late, receiver.dropped), (1, 0, 3));
    assert_eq!(std::fs::metadata(path).unwrap().len(), 2 * PIECE);
}

#[test]
fn whole_frames_do_not_wait_in_more_memory_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let (result, counts) = received(SinkSpec::File(path.clone()), 3 * PIECE, |peer| {
        peer.begin(Opening { deadline_ns: Some(u64::MAX), frames: None, ..opening(None) });
        // The first frame never comes.
        for frame in 1..20 {
            peer.put_piece(frame, PIECE, 0, b"");
        }
        peer.say(&SenderWord::End { frames: 20 });
        peer.0.end().unwrap();
    });
    result.unwrap();
    let receiver = counts.stats().receiver;
    assert_eq!((receiver.on_time, receiver.dropped), (19, 1));
    assert_eq!(std::fs::metadata(path).unwrap().len(), 19 * PIECE);
}

#[test]
fn a_sender_that_says_another_number_of_frames_is_refused() {
    let (result, _) = received(SinkSpec::Null, 256 << 20, |peer| {
        peer.begin(opening(None));
        peer.put_piece(0, 5, 0, b"");
        peer.say(&SenderWord::End { frames: 2 });
        // The receiver ends the stream in place of finishing it.
        peer.0.end().unwrap_err();
    });
    assert_eq!(result.unwrap_err().misbehaviour(), Some(Misbehaviour::ImpossibleFrame));
}

#[test]
fn a_failure_of_the_sender_is_told() {
    let (result, _) = received(SinkSpec::Null, 256 << 20, |peer| {
        peer.begin(opening(None));
        peer.say(&SenderWord::Failed { what: "the disk is gone".into() });
        assert!(peer.refused_for().contains("the disk is gone"));
    });
    let error = result.unwrap_err();
    assert!(error.code() == Code::ProgramFailed && error.to_string().contains("the disk is gone"), "{error}");
}
