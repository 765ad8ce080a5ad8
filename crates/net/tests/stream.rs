//! The stream back end over real pipes and over streams that behave badly.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use farhaul_net::{Link, NonblockingStream, PollFd, RecvBatch, SendBatch, SendStatus, StreamLink, wait};
use proptest::prelude::*;

fn pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = io::pipe().expect("pipe");
    (read.into(), write.into())
}

fn pair() -> (StreamLink, StreamLink) {
    let ((one_in, other_out), (other_in, one_out)) = (pipe(), pipe());
    (StreamLink::from_fds(one_in, one_out).unwrap(), StreamLink::from_fds(other_in, other_out).unwrap())
}

/// A link, and the raw ends of its pipes: the link reads what we write.
fn raw() -> (StreamLink, std::fs::File, std::fs::File) {
    let ((link_in, our_out), (our_in, link_out)) = (pipe(), pipe());
    (StreamLink::from_fds(link_in, link_out).unwrap(), our_in.into(), our_out.into())
}

fn content(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + index * 7) as u8).collect()
}

fn fill(batch: &mut SendBatch, from: usize, lens: &[usize]) -> usize {
    batch.clear();
    for (index, &len) in lens.iter().enumerate().skip(from) {
        let Some(bytes) = batch.datagram(len) else { return index };
        bytes.copy_from_slice(&content(index, len));
    }
    lens.len()
}

/// Sends everything from one end and receives it at the other, in one thread, each when it is ready.
fn carry(from: &mut StreamLink, to: &mut StreamLink, lens: &[usize]) {
    let (mut out, mut arrived) = (SendBatch::new(256 << 10), RecvBatch::new());
    let (mut filled, mut seen) = (0, 0);
    let mut idle = 0;
    while seen < lens.len() {
        if !out.has_unsent() && filled < lens.len() {
            filled = fill(&mut out, filled, lens);
        }
        let sent = from.send(&mut out).expect("send");
        assert_eq!(sent == SendStatus::All, !out.has_unsent());
        let count = to.recv(&mut arrived).expect("recv");
        for datagram in arrived.datagrams() {
            assert!(datagram.bytes == content(seen, lens[seen]), "datagram {seen}");
            seen += 1;
        }
        idle = if count == 0 { idle + 1 } else { 0 };
        assert!(idle < 100_000, "stuck at {seen} of {}", lens.len());
    }
    assert!(from.is_flushed());
    assert_eq!(to.recv(&mut arrived).unwrap(), 0);
}

#[test]
fn datagrams_pass_through_pipes_both_ways() {
    let (mut one, mut other) = pair();
    let lens: Vec<usize> = (0..3000).map(|index| [1472, 1, 64_000, 300, 65_507][index % 5]).collect();
    carry(&mut one, &mut other, &lens);
    carry(&mut other, &mut one, &lens);
    let total = lens.iter().sum::<usize>() as u64;
    assert_eq!((one.stats().bytes_sent, one.stats().bytes_received), (total, total));
    assert_eq!(one.stats().datagrams_sent, 3000);
    assert!(one.capabilities().reliable);
}

#[test]
fn a_reader_that_stands_still_blocks_the_sender_within_bounds() {
    let (mut link, mut ours, _out) = raw();
    let mut batch = SendBatch::new(1 << 20);
    let lens = [60_000; 1000];
    let mut filled = fill(&mut batch, 0, &lens);
    while link.send(&mut batch).unwrap() == SendStatus::All {
        assert!(filled < lens.len(), "60 MB fit into a pipe");
        filled = fill(&mut batch, filled, &lens);
    }
    let held = link.stats().bytes_sent;
    assert!(held <= 2 << 20, "1 MiB of our own and 1 MiB of pipe, not {held}");
    assert!(link.stats().blocked == 1 && !link.is_flushed());
    let mut fds = Vec::new();
    link.poll_fds(false, &mut fds);
    assert_eq!(fds.len(), 2, "it waits for room by itself");
    let unsent = batch.has_unsent();
    assert!(unsent);

    // When the reader continues, a receive alone writes on what was accepted.
    let mut read = vec![0; 1 << 16];
    let mut taken = 0;
    while taken < held {
        taken += ours.read(&mut read).unwrap() as u64;
        assert_eq!(link.recv(&mut RecvBatch::new()).unwrap(), 0);
    }
    assert!(link.is_flushed());
    assert_eq!(link.send(&mut batch).unwrap(), SendStatus::All);
}

#[test]
fn frames_that_arrive_byte_by_byte_are_whole_in_the_end() {
    let (mut link, _ours, mut out) = raw();
    let mut batch = RecvBatch::new();
    let mut bytes = vec![0, 3, 1, 2, 3, 1, 4];
    bytes.extend(content(5, 260));
    let mut seen = Vec::new();
    for byte in bytes {
        out.write_all(&[byte]).unwrap();
        link.recv(&mut batch).unwrap();
        seen.extend(batch.datagrams().map(|one| one.bytes.to_vec()));
    }
    assert_eq!(seen, [vec![1, 2, 3], content(5, 260)]);
}

#[test]
fn hostile_lengths_are_invalid_data() {
    for prefix in [[0, 0], [0xff, 0xe4], [0xff, 0xff]] {
        let (mut link, _ours, mut out) = raw();
        out.write_all(&prefix).unwrap();
        let error = link.recv(&mut RecvBatch::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{prefix:?}");
    }
}

#[test]
fn the_end_comes_after_the_last_frame_and_cuts_off_half_ones() {
    for half in [&b""[..], &[0], &[0, 9, 1, 2]] {
        let (mut link, _ours, mut out) = raw();
        let mut batch = RecvBatch::new();
        out.write_all(&[0, 2, 7, 7, 0, 1, 8]).unwrap();
        out.write_all(half).unwrap();
        drop(out);
        assert_eq!(link.recv(&mut batch).unwrap(), 2);
        for _ in 0..3 {
            assert_eq!(link.recv(&mut batch).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
        let mut fds = Vec::new();
        link.poll_fds(false, &mut fds);
        wait(&mut fds, None).unwrap();
        assert!(fds.iter().any(PollFd::is_ready), "an end wakes the sleeper");
    }
}

#[test]
fn a_reader_that_went_away_is_an_error_of_the_sender() {
    let (mut link, ours, _out) = raw();
    drop(ours);
    let mut batch = SendBatch::new(0);
    batch.datagram(10).unwrap();
    assert_eq!(link.send(&mut batch).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn sockets_work_as_well_as_pipes() {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let link = |socket: std::os::unix::net::UnixStream| {
        StreamLink::from_fds(socket.try_clone().unwrap().into(), socket.into()).unwrap()
    };
    carry(&mut link(one), &mut link(other), &[1472; 2000]);
}

/// A stream that takes and gives as many bytes at a time as `steps` says (0 would block), and holds bytes
/// back until it is flushed, as TLS does.
struct Awkward {
    written: Arc<Mutex<Vec<u8>>>,
    held: Vec<u8>,
    reads: VecDeque<u8>,
    steps: Vec<usize>,
    at: Cell<usize>,
    fd: OwnedFd,
}

impl Awkward {
    fn new(reads: &[u8], steps: &[usize]) -> (Awkward, Arc<Mutex<Vec<u8>>>) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (fd, _) = pipe();
        let stream = Awkward {
            written: written.clone(),
            held: Vec::new(),
            reads: reads.iter().copied().collect(),
            steps: steps.to_vec(),
            at: Cell::new(0),
            fd,
        };
        (stream, written)
    }

    fn step(&self) -> io::Result<usize> {
        let at = self.at.replace(self.at.get() + 1);
        match self.steps[at % self.steps.len()] {
            0 if at.is_multiple_of(2) => Err(ErrorKind::WouldBlock.into()),
            0 => Err(ErrorKind::Interrupted.into()),
            size => Ok(size),
        }
    }
}

impl Read for Awkward {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.step()?.min(buffer.len());
        self.reads.read(&mut buffer[..size])
    }
}

impl Write for Awkward {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.step()?.min(bytes.len());
        self.held.extend_from_slice(&bytes[..size]);
        Ok(size)
    }
    fn flush(&mut self) -> io::Result<()> {
        let size = self.step()?.min(self.held.len());
        self.written.lock().unwrap().extend(self.held.drain(..size));
        if self.held.is_empty() { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
    }
}

impl NonblockingStream for Awkward {
    fn read_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
    fn write_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
    fn wants_write(&self) -> bool {
        !self.held.is_empty()
    }
}

fn frames(lens: &[usize]) -> Vec<u8> {
    let frame =
        |(index, len): (usize, &usize)| [&(*len as u16).to_be_bytes()[..], &content(index, *len)].concat();
    lens.iter().enumerate().flat_map(frame).collect()
}

fn steps() -> impl Strategy<Value = Vec<usize>> {
    // The last steps give something, so that every run ends.
    prop::collection::vec(prop_oneof![Just(0_usize), 1..5_usize, 1..70_000_usize], 0..12).prop_map(
        |mut steps| {
            steps.extend([1, 4096, 65_536]);
            steps
        },
    )
}

fn lens() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1..40_usize, Just(1472), 1..=65_507_usize], 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_partial_writes_give_the_same_bytes(lens in lens(), steps in steps()) {
        let (stream, written) = Awkward::new(&[], &steps);
        let mut link = StreamLink::new(Box::new(stream));
        let mut batch = SendBatch::new(512 << 10);
        let mut filled = 0;
        while filled < lens.len() || batch.has_unsent() || !link.is_flushed() {
            if !batch.has_unsent() {
                filled = fill(&mut batch, filled, &lens);
            }
            let _ = link.send(&mut batch).unwrap();
        }
        prop_assert!(*written.lock().unwrap() == frames(&lens));
    }

    #[test]
    fn any_partial_reads_give_the_same_datagrams(lens in lens(), steps in steps()) {
        let (stream, _) = Awkward::new(&frames(&lens), &steps);
        let mut link = StreamLink::new(Box::new(stream));
        let mut batch = RecvBatch::new();
        let mut seen = 0;
        let end = loop {
            match link.recv(&mut batch) {
                Ok(_) => for one in batch.datagrams() {
                    prop_assert!(*one.bytes == content(seen, lens[seen]));
                    seen += 1;
                },
                Err(error) => break error.kind(),
            }
        };
        prop_assert_eq!((seen, end), (lens.len(), ErrorKind::UnexpectedEof));
    }

    #[test]
    fn any_bytes_give_frames_or_an_error_and_never_more_bytes_than_came(
        bytes in prop::collection::vec(any::<u8>(), 0..100_000), small in any::<bool>(), steps in steps(),
    ) {
        // Random prefixes mean long frames; zeroed high bytes make short ones.
        let bytes: Vec<u8> = bytes.iter().map(|&byte| if small { byte % 3 } else { byte }).collect();
        let (stream, _) = Awkward::new(&bytes, &steps);
        let mut link = StreamLink::new(Box::new(stream));
        let mut batch = RecvBatch::new();
        let (mut count, mut sum) = (0, 0);
        let end = loop {
            match link.recv(&mut batch) {
                Ok(arrived) => {
                    count += arrived;
                    sum += batch.datagrams().map(|one| one.bytes.len()).sum::<usize>();
                }
                Err(error) => break error.kind(),
            }
        };
        prop_assert!(sum + 2 * count <= bytes.len());
        prop_assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::InvalidData));
    }
}
