//! Frames, messages and files that both ends of a session read.

use farhaul_connect::hello::{self, FirstFrame, HelloError};
use farhaul_connect::{AuthorizedKeys, KeyBounds};
use farhaul_copy::{CopyRequest, FailedRun, VerifyJob, fuzzing};
use farhaul_net::{Link, NonblockingStream, RecvBatch, StreamLink};
use farhaul_proto::{ControlSpan, PacketHeader, PlannedPacket};
use farhaul_session::Handle;
use farhaul_session::{FlowIdentity, Packets, SegmentPayload};
use farhaul_volume::Algorithm;
use farhaul_words::Cipher;

use crate::scratch::Scratch;
use crate::target;

target!(hello, 5000, |bytes: &[u8]| {
    let mut rest = bytes;
    let _ = hello::read_frame(&mut rest);
    if let Ok(first) = hello::decode_first(bytes) {
        if let FirstFrame::Hello(hello) = &first {
            let _ = CopyRequest::of(&hello.opening);
        }
        let again = match &first {
            FirstFrame::Hello(hello) => hello::encode(&**hello),
            FirstFrame::Attach(attach) => hello::encode(attach),
        };
        comes_back(again, |body| hello::decode_first(body).is_ok());
    }
    if let Ok(reply) = hello::decode_reply(bytes) {
        comes_back(hello::encode(&reply), |body| hello::decode_reply(body).is_ok());
        if let Some(refusal) = reply.refusal {
            let error = refusal.into_error().to_string();
            assert!(!error.chars().any(char::is_control), "a refusal writes to the terminal: {error:?}");
        }
    }
});

/// What was understood must encode again, unless it becomes longer than a frame (as text that is not UTF-8
/// does).
fn comes_back<F: std::ops::Deref<Target = Vec<u8>>>(
    frame: Result<F, HelloError>,
    is_understood: impl Fn(&[u8]) -> bool,
) {
    match frame {
        Ok(frame) => assert!(is_understood(&frame[4..]), "it does not read back"),
        Err(error) => assert!(matches!(error, HelloError::TooLong(_))),
    }
}

target!(messages, 5000, fuzzing::messages);

target!(stream_message, 5000, farhaul_stream::fuzzing::message);

target!(read_message, 5000, farhaul_read::fuzzing::message);

target!(read_records, 5000, farhaul_read::fuzzing::records);

target!(read_pieces, 5000, farhaul_read::fuzzing::pieces);

target!(tunnel_message, 5000, farhaul_tunnel::fuzzing::message);

target!(tunnel_pieces, 5000, farhaul_tunnel::fuzzing::pieces);

target!(control_message, 5000, farhaul_control::fuzzing::message);

target!(control_documents, 5000, farhaul_control::fuzzing::documents);

target!(block_trailer, 5000, fuzzing::block_trailer);

target!(first_datagrams, 2000, |bytes: &[u8]| {
    if let Some((&[high, low], batch)) = bytes.split_first_chunk::<2>()
        && !batch.is_empty()
    {
        farhaul_connect::fuzzing::first_datagrams(batch, usize::from(u16::from_be_bytes([high, low])).max(1));
    }
});

target!(manifest_line, 5000, fuzzing::manifest_line);

target!(verify_list, 300, {
    let (list, root) = (Scratch::new(), Scratch::new());
    root.file(b"content");
    move |bytes: &[u8]| {
        let job = VerifyJob {
            list: list.file(bytes),
            directory: root.path().to_path_buf(),
            algorithm: Algorithm::Sha256,
            extra: true,
            metadata: true,
            modify_window_secs: 0,
            quick: false,
        };
        let _ = farhaul_copy::verify(&job, &Handle::new(), &mut |_| {});
    }
});

target!(known_hosts, 2000, {
    let scratch = Scratch::new();
    move |bytes: &[u8]| farhaul_connect::fuzzing::known_hosts(&scratch.file(bytes))
});

target!(authorized_keys, 2000, {
    let scratch = Scratch::new();
    move |bytes: &[u8]| {
        let bounds = KeyBounds { root: vec!["/srv".into()], ..KeyBounds::default() };
        let keys = AuthorizedKeys::load(&scratch.file(bytes), bounds);
        assert!(keys.is_err() || keys.is_ok_and(|keys| keys.len() <= bytes.len() / 50));
    }
});

target!(path_memory, 2000, {
    let scratch = Scratch::new();
    move |bytes: &[u8]| fuzzing::path_memory(&scratch.file(bytes))
});

target!(failed_run, 2000, {
    let scratch = Scratch::new();
    move |bytes: &[u8]| drop(FailedRun::read(&scratch.file(bytes)))
});

/// A stream that returns its bytes in reads of the lengths that its first bytes say.
struct Pieces {
    lengths: Vec<u8>,
    bytes: Vec<u8>,
    at: usize,
    reads: usize,
    null: std::fs::File,
}

impl std::io::Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = usize::from(self.lengths[self.reads % self.lengths.len()]);
        self.reads += 1;
        if length == 0 && self.reads % 2 == 1 {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let length = length.max(1).min(buffer.len()).min(self.bytes.len() - self.at);
        buffer[..length].copy_from_slice(&self.bytes[self.at..][..length]);
        self.at += length;
        Ok(length)
    }
}

impl std::io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl NonblockingStream for Pieces {
    fn read_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.null)
    }

    fn write_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.null)
    }
}

target!(stream_frames, 2000, {
    let mut batch = RecvBatch::new();
    move |bytes: &[u8]| {
        let Some((lengths, frames)) = bytes.split_first_chunk::<4>() else { return };
        let null = std::fs::File::open("/dev/null").expect("every system has it");
        let pieces = Pieces { lengths: lengths.to_vec(), bytes: frames.to_vec(), at: 0, reads: 0, null };
        let mut link = StreamLink::new(Box::new(pieces));
        // The frames as a simple reader finds them.
        let mut rest = frames;
        for _ in 0..4 * frames.len() + 16 {
            let Ok(_) = link.recv(&mut batch) else { break };
            for datagram in batch.datagrams() {
                let (length, after) = rest.split_first_chunk::<2>().expect("a frame that was not sent");
                let (frame, after) = after.split_at(usize::from(u16::from_be_bytes(*length)));
                assert_eq!(datagram.bytes, frame);
                rest = after;
            }
        }
    }
});

// The first byte is the cipher and the case. The rest is a stranger's datagram, or control bytes of a peer
// that holds the keys.
target!(datagram, 2000, |bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let cipher =
        [Cipher::Aes128Gcm, Cipher::None, Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm][usize::from(how) % 4];
    let end = |is_initiator, send_id, recv_id| {
        Packets::new(&[7; 32], &FlowIdentity { index: 0, send_id, recv_id, is_initiator }, cipher, 22)
    };
    let (mut peer, mut ours) = (end(true, 1, 2), end(false, 2, 1));
    if how & 4 == 0 {
        let header = PacketHeader { flow_id: 1, number: u64::from(how) }.encode();
        let mut forged = [&header[..], bytes].concat();
        assert!(ours.open(&mut forged).is_none(), "a forged datagram was opened");
        return;
    }
    let control = ControlSpan { start: 0, len: bytes.len() as u32 };
    let planned = PlannedPacket { number: 5, control, segment: None, padding: 0 };
    let mut datagram = vec![0; peer.datagram_len(&planned)];
    peer.seal(&planned, bytes, SegmentPayload::Sealed(&[]), &mut datagram);
    let mut damaged = datagram.clone();
    let at = usize::from(how) * 31 % damaged.len();
    damaged[at] ^= 0x10;
    assert!(ours.open(&mut damaged).is_none(), "a damaged datagram was opened");
    if let Some(opened) = ours.open(&mut datagram) {
        assert_eq!(opened.number, 5);
        assert!(bytes.starts_with(opened.control));
        assert!(
            opened
                .segment
                .is_none_or(|(segment, payload)| segment.len as usize == payload.len() && segment.len > 0)
        );
    }
});
