//! What the two ends say to each other on the control stream, as values and as bytes.
//!
//! Each message is a varint length and its body; the first byte of the body is the message's code. Paths share a
//! prefix with the path before, so a tree's manifest costs little more than its names. docs/wire.md has the table.
//!
//! Always true: decoding never panics, and a message longer than [`MESSAGE_MAX`] is refused before it is stored.

use crate::codec::{Malformed, Reader, put_bytes, put_signed, put_varint};
use crate::options::{FLOWS_MAX, PathAddresses, Policy, RateOptions, SPREAD_MAX};
use crate::report::{SpreadFigures, Stage};
use std::net::IpAddr;

use farhaul_store::{Algorithm, Attributes, Digest, Digests, Node, Time};

/// Longest message body. A path is at most 4095 bytes, a reason is cut to fit.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;
/// Longest message of a program's own.
pub(crate) const WORD_MAX: usize = 60 << 10;
/// Chunk ranges in one `Have`; what does not fit is sent again.
pub(crate) const RANGES_MAX: usize = 4096;
/// Added to an entry's kind: attributes follow.
const ATTRIBUTES: u8 = 0x40;
/// An entry that is announced again has this added to its id each time.
pub(crate) const RENEWAL: u64 = 1 << 48;
const REASON_MAX: usize = 1000;

/// One entry of the manifest. Ids count up from 0 in the order of sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestEntry {
    pub(crate) id: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) mtime_secs: i64,
    pub(crate) mtime_nanos: u32,
    pub(crate) what: What,
    /// Of files and directories, if they are asked for.
    pub(crate) attributes: Attributes,
}

impl ManifestEntry {
    pub(crate) fn mtime(&self) -> Time {
        Time { secs: self.mtime_secs, nanos: self.mtime_nanos }
    }

    /// Bytes of content, as far as they are known ahead.
    pub(crate) fn size(&self) -> u64 {
        if let What::File { size, .. } = self.what { size } else { 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    File {
        size: u64,
        inode: u64,
        device: u64,
        sparse: bool,
        /// Later entries may be hard links to this one.
        linked: bool,
    },
    /// A file whose size is known only at its end (a pipe).
    Stream,
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    HardLink {
        to: u64,
    },
    Special(Node),
}

/// How an entry is there, when entries are listed ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Anything but a directory.
    Plain,
    /// A directory, whose entries come next.
    Directory,
    /// Of that directory nothing more comes.
    DirectoryEnd,
}

/// What the receiver wants of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// All of it.
    Send,
    /// All but these chunk ranges (first, count), which an earlier run brought.
    Have(Vec<(u64, u64)>),
    /// All but what an earlier run brought; and of the chunks below `old_chunks`, of which there is another version here, only
    /// what differs from the marks that follow ([`Message::Marks`]).
    Patch { have: Vec<(u64, u64)>, old_chunks: u64 },
    /// Nothing: what is there may not be overwritten, whatever it is.
    Keep,
    /// It would be sent, but this is a dry run.
    Listed,
    /// Whether all of it depends on whether its content has this digest.
    Compare([u8; 32]),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    // Sender to receiver.
    Entry(ManifestEntry),
    /// Everything below the directory `id` has been listed.
    DirectoryEnd {
        id: u64,
    },
    /// The sender could not read something; kept for the receiver's report.
    SourceFailed {
        path: Vec<u8>,
        reason: String,
    },
    /// All chunks of file `id` have been sent; `size` matters for streams.
    /// `chunks` is how many there are, those of earlier runs included; holes have none.
    FileEnd {
        id: u64,
        size: u64,
        chunks: u64,
    },
    /// File `id` cannot be completed: it changed or could not be read.
    FileFailed {
        id: u64,
        reason: String,
    },
    /// File `id` has changed: what came of it is void, and it is announced again, under an id that no entry has.
    Renewed {
        id: u64,
        entry: ManifestEntry,
    },
    /// The scan is over.
    EntriesEnd,
    /// There is something of this name, which is not sent: it is no reason to remove what the receiver has. Only said when
    /// something may be removed.
    LeftOut {
        path: Vec<u8>,
    },
    /// Ahead of the entries: what there will be, in their order, so that the rest can be removed first.
    Present {
        path: Vec<u8>,
        presence: Presence,
    },
    /// All of that has been said; without an error, so that it is all that there is.
    PresentEnd {
        is_complete: bool,
    },
    /// What came of [`Decision::Compare`].
    Compared {
        id: u64,
        is_same: bool,
    },
    // Receiver to sender.
    Decide {
        id: u64,
        decision: Decision,
    },
    /// The entry is in its place.
    Done {
        id: u64,
    },
    Failed {
        id: u64,
        path: Vec<u8>,
        reason: String,
    },
    /// The chunk's digest did not match: send it again.
    Again {
        id: u64,
        chunk: u64,
    },
    /// What there is in the place of a chunk (see [`farhaul_store::Marks`]).
    Marks {
        id: u64,
        chunk: u64,
        marks: Vec<u8>,
    },
    /// Chunks of which nothing was said are wanted whole.
    MarksEnd {
        id: u64,
    },
    /// Entries that are there already, so many from this one on: nothing of them is wanted.
    Unchanged {
        first: u64,
        count: u64,
    },
    /// Directories that got their mode and time; sent once, before `Finish`.
    DirectoriesDone {
        count: u64,
    },
    /// This was too much and has been removed (in a dry run: would be).
    Deleted {
        path: Vec<u8>,
    },
    /// This was too much and is still there.
    NotDeleted {
        path: Vec<u8>,
        reason: String,
    },
    /// For the receiver's manifest: what is there and is not taken.
    Skipped {
        path: Vec<u8>,
        reason: String,
    },
    /// Before anything is decided: the single source is called so here.
    Placed {
        name: Vec<u8>,
    },
    /// The entry is in its place: its content was there as `from`.
    Renamed {
        id: u64,
        from: Vec<u8>,
    },
    /// For the sender's manifest, before `Done` or `Unchanged`: what the sender cannot know of file `id`.
    Digests {
        id: u64,
        digests: Digests,
    },
    /// Names that are asked for, before anything else is; the last of such messages says that there are no more.
    Names {
        names: Vec<Vec<u8>>,
        is_last: bool,
    },
    // Both ways.
    /// The side has nothing more to do; its figures.
    Finish(EndFigures),
    /// The transfer ends here; the code is the exit code that the sender of this ends with.
    Abort {
        code: u8,
        reason: String,
        hint: String,
    },
    /// Flow `index` is no longer used by this side; its blocks and control bytes travel elsewhere.
    FlowDown {
        index: u16,
    },
    /// From now on the sender sets its rate so.
    Rate(RateOptions),
    /// The paths, by the bits of their numbers, that get nothing new from now on.
    PathsUnused(u64),
    /// Initiator: further path `path` begins, between these addresses.
    PathAdd {
        path: u64,
        addresses: PathAddresses,
    },
    /// Acceptor: it may, to these ports, or to the one that the session began at; or not.
    PathOpen {
        path: u64,
        is_open: bool,
        ports: Vec<u16>,
    },
    // Of sessions that carry a program's own blocks.
    /// Receiver to sender: so many blocks have been let go of.
    Confirmed {
        count: u64,
    },
    /// Sender to receiver: so many blocks have been put, and somebody waits until they are confirmed; there are no more, or
    /// there may be.
    BlocksPut {
        count: u64,
        is_last: bool,
    },
    /// Both ways: a message of the program's own.
    Word(Vec<u8>),
    /// The initiator's first word, so that the acceptor has something to wait for.
    Start,
}

impl Message {
    /// For errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Message::Entry(_) => "entry",
            Message::DirectoryEnd { .. } => "directory-end",
            Message::SourceFailed { .. } => "source-failed",
            Message::FileEnd { .. } => "file-end",
            Message::FileFailed { .. } => "file-failed",
            Message::Renewed { .. } => "renewed",
            Message::EntriesEnd => "entries-end",
            Message::LeftOut { .. } => "left-out",
            Message::Present { .. } => "present",
            Message::PresentEnd { .. } => "present-end",
            Message::Compared { .. } => "compared",
            Message::Deleted { .. } => "deleted",
            Message::NotDeleted { .. } => "not-deleted",
            Message::Skipped { .. } => "skipped",
            Message::Placed { .. } => "placed",
            Message::Renamed { .. } => "renamed",
            Message::Digests { .. } => "digests",
            Message::Names { .. } => "names",
            Message::Decide { .. } => "decide",
            Message::Done { .. } => "done",
            Message::Failed { .. } => "failed",
            Message::Again { .. } => "again",
            Message::Marks { .. } => "marks",
            Message::MarksEnd { .. } => "marks-end",
            Message::DirectoriesDone { .. } => "directories-done",
            Message::Unchanged { .. } => "unchanged",
            Message::Finish(_) => "finish",
            Message::Abort { .. } => "abort",
            Message::FlowDown { .. } => "flow-down",
            Message::Rate(_) => "rate",
            Message::PathsUnused(_) => "paths-unused",
            Message::PathAdd { .. } => "path-add",
            Message::PathOpen { .. } => "path-open",
            Message::Confirmed { .. } => "confirmed",
            Message::BlocksPut { .. } => "blocks-put",
            Message::Word(_) => "word",
            Message::Start => "start",
        }
    }
}

/// What one end knows at the end of a transfer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EndFigures {
    pub(crate) cpu_us: u64,
    pub(crate) peak_rss_bytes: u64,
    pub(crate) segments_duplicate: u64,
    pub(crate) segments_sent: u64,
    pub(crate) segments_retransmitted: u64,
    pub(crate) segments_proactive: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) wire_bytes_sent: u64,
    pub(crate) content_bytes_sent: u64,
    pub(crate) content_bytes_resent: u64,
    pub(crate) rtt_min_us: u64,
    pub(crate) rtt_mean_us: u64,
    pub(crate) stages: Vec<Stage>,
    pub(crate) warnings: Vec<String>,
    /// What has arrived in each directory of a destination that has several.
    pub(crate) spread: Vec<SpreadFigures>,
}

/// Writes messages, remembering the last path for the next one's prefix.
#[derive(Default)]
pub(crate) struct Encoder {
    last_path: Vec<u8>,
    body: Vec<u8>,
}

impl Encoder {
    pub(crate) fn encode(&mut self, message: &Message, out: &mut Vec<u8>) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        self.encode_body(message, &mut body);
        debug_assert!(body.len() <= MESSAGE_MAX, "reasons are cut and paths are bounded");
        put_bytes(out, &body);
        self.body = body;
    }

    fn encode_body(&mut self, message: &Message, out: &mut Vec<u8>) {
        match message {
            Message::Entry(entry) => self.encode_entry(entry, out),
            Message::DirectoryEnd { id } => put_numbers(out, 2, &[*id]),
            Message::SourceFailed { path, reason } => {
                out.push(3);
                put_bytes(out, path);
                put_reason(out, reason);
            }
            Message::FileEnd { id, size, chunks } => put_numbers(out, 4, &[*id, *size, *chunks]),
            Message::FileFailed { id, reason } => {
                put_numbers(out, 5, &[*id]);
                put_reason(out, reason);
            }
            Message::Renewed { id, entry } => {
                put_numbers(out, 11, &[*id]);
                self.encode_entry(entry, out);
            }
            Message::EntriesEnd => out.push(6),
            Message::LeftOut { path } => {
                out.push(7);
                put_bytes(out, path);
            }
            Message::Present { path, presence } => {
                out.push(8);
                put_bytes(out, path);
                out.push(match presence {
                    Presence::Plain => 0,
                    Presence::Directory => 1,
                    Presence::DirectoryEnd => 2,
                });
            }
            Message::PresentEnd { is_complete } => out.extend_from_slice(&[9, u8::from(*is_complete)]),
            Message::Compared { id, is_same } => put_numbers(out, 10, &[*id, u64::from(*is_same)]),
            Message::Decide { id, decision } => {
                put_numbers(out, 16, &[*id]);
                match decision {
                    Decision::Send => out.push(0),
                    Decision::Listed => out.push(3),
                    Decision::Keep => out.push(8),
                    Decision::Compare(digest) => {
                        out.push(4);
                        out.extend_from_slice(digest);
                    }
                    Decision::Have(ranges) => {
                        out.push(2);
                        put_ranges(out, ranges);
                    }
                    Decision::Patch { have, old_chunks } => {
                        out.push(5);
                        put_ranges(out, have);
                        put_varint(out, *old_chunks);
                    }
                }
            }
            Message::Done { id } => put_numbers(out, 17, &[*id]),
            Message::Failed { id, path, reason } => {
                put_numbers(out, 18, &[*id]);
                put_bytes(out, path);
                put_reason(out, reason);
            }
            Message::Again { id, chunk } => put_numbers(out, 19, &[*id, *chunk]),
            Message::DirectoriesDone { count } => put_numbers(out, 20, &[*count]),
            Message::Unchanged { first, count } => put_numbers(out, 29, &[*first, *count]),
            Message::Deleted { path } => {
                out.push(21);
                put_bytes(out, path);
            }
            Message::NotDeleted { path, reason } => {
                out.push(22);
                put_bytes(out, path);
                put_reason(out, reason);
            }
            Message::Names { names, is_last } => {
                put_numbers(out, 23, &[u64::from(*is_last), names.len() as u64]);
                names.iter().for_each(|name| put_bytes(out, name));
            }
            Message::Marks { id, chunk, marks } => {
                put_numbers(out, 24, &[*id, *chunk]);
                put_bytes(out, marks);
            }
            Message::MarksEnd { id } => put_numbers(out, 25, &[*id]),
            Message::Skipped { path, reason } => {
                out.push(12);
                put_bytes(out, path);
                put_reason(out, reason);
            }
            Message::Renamed { id, from } => {
                put_numbers(out, 26, &[*id]);
                put_bytes(out, from);
            }
            Message::Digests { id, digests } => {
                put_numbers(out, 27, &[*id]);
                out.extend_from_slice(&digests.tree.0);
                put_varint(out, digests.extra.len() as u64);
                for (algorithm, digest) in &digests.extra {
                    put_bytes(out, algorithm.name().as_bytes());
                    put_bytes(out, digest);
                }
            }
            Message::Placed { name } => {
                out.push(28);
                put_bytes(out, name);
            }
            Message::Start => out.push(35),
            Message::Rate(rate) => {
                let policy = match rate.policy {
                    Policy::Fair => 0,
                    Policy::High => 1,
                    Policy::Low => 2,
                    Policy::Fixed => 3,
                };
                put_numbers(out, 36, &[policy, rate.rate_bps.unwrap_or(0), rate.rate_min_bps.unwrap_or(0)]);
            }
            Message::Finish(figures) => encode_figures(figures, out),
            Message::Abort { code, reason, hint } => {
                out.extend_from_slice(&[33, *code]);
                put_reason(out, reason);
                put_reason(out, hint);
            }
            Message::FlowDown { index } => put_numbers(out, 34, &[u64::from(*index)]),
            Message::PathsUnused(paths) => put_numbers(out, 48, &[*paths]),
            Message::PathAdd { path, addresses } => {
                put_numbers(out, 52, &[*path]);
                put_address(out, addresses.local);
                put_address(out, addresses.remote);
            }
            Message::PathOpen { path, is_open, ports } => {
                put_numbers(out, 53, &[*path, u64::from(*is_open), ports.len() as u64]);
                ports.iter().for_each(|&port| put_varint(out, port.into()));
            }
            Message::Confirmed { count } => put_numbers(out, 49, &[*count]),
            Message::BlocksPut { count, is_last } => put_numbers(out, 50, &[*count, u64::from(*is_last)]),
            Message::Word(bytes) => {
                out.push(51);
                put_bytes(out, bytes);
            }
        }
    }

    fn encode_entry(&mut self, entry: &ManifestEntry, out: &mut Vec<u8>) {
        out.push(1);
        put_varint(out, entry.id);
        let shared = entry.path.iter().zip(&self.last_path).take_while(|(a, b)| a == b).count();
        put_varint(out, shared as u64);
        put_bytes(out, &entry.path[shared..]);
        self.last_path.clone_from(&entry.path);
        put_varint(out, u64::from(entry.mode));
        put_signed(out, entry.mtime_secs);
        put_varint(out, u64::from(entry.mtime_nanos));
        let more = if entry.attributes.is_empty() { 0 } else { ATTRIBUTES };
        match &entry.what {
            What::File { size, inode, device, sparse, linked } => {
                out.push(more | u8::from(*sparse) << 1 | u8::from(*linked) << 2);
                put_varint(out, *size);
                put_varint(out, *inode);
                put_varint(out, *device);
            }
            What::Stream => out.push(more | 1),
            What::Directory => out.push(more | 8),
            What::Symlink { target } => {
                out.push(more | 9);
                put_bytes(out, target);
            }
            What::HardLink { to } => {
                out.push(more | 10);
                put_varint(out, *to);
            }
            What::Special(node) => {
                let (kind, major, minor) = match *node {
                    Node::Fifo => (0, 0, 0),
                    Node::Socket => (1, 0, 0),
                    Node::CharDevice { major, minor } => (2, major, minor),
                    Node::BlockDevice { major, minor } => (3, major, minor),
                };
                out.push(more | 11);
                [kind, major, minor].into_iter().for_each(|number| put_varint(out, u64::from(number)));
            }
        }
        if more != 0 {
            put_varint(out, entry.attributes.len() as u64);
            for (name, value) in &entry.attributes {
                put_bytes(out, name);
                put_bytes(out, value);
            }
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, code: u8, numbers: &[u64]) {
    out.push(code);
    for &number in numbers {
        put_varint(out, number);
    }
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[(u64, u64)]) {
    let ranges = &ranges[..ranges.len().min(RANGES_MAX)];
    put_varint(out, ranges.len() as u64);
    for &(first, count) in ranges {
        put_varint(out, first);
        put_varint(out, count);
    }
}

fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let mut end = reason.len().min(REASON_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(out, &reason.as_bytes()[..end]);
}

fn encode_figures(figures: &EndFigures, out: &mut Vec<u8>) {
    let numbers = figures_numbers(figures);
    put_numbers(out, 32, &numbers);
    put_varint(out, figures.stages.len() as u64);
    for stage in &figures.stages {
        put_reason(out, &stage.name);
        put_reason(out, &stage.end);
        put_varint(out, (stage.busy * 1e6) as u64);
    }
    let warnings = &figures.warnings[..figures.warnings.len().min(16)];
    put_varint(out, warnings.len() as u64);
    for warning in warnings {
        put_reason(out, warning);
    }
    if figures.spread.is_empty() {
        return;
    }
    put_varint(out, figures.spread.len() as u64);
    for directory in &figures.spread {
        put_reason(out, &directory.directory);
        put_varint(out, directory.files);
        put_varint(out, directory.bytes);
    }
}

fn figures_numbers(figures: &EndFigures) -> [u64; 13] {
    [
        figures.cpu_us,
        figures.peak_rss_bytes,
        figures.segments_duplicate,
        figures.segments_sent,
        figures.segments_retransmitted,
        figures.segments_proactive,
        figures.packets_sent,
        figures.packets_lost,
        figures.wire_bytes_sent,
        figures.content_bytes_sent,
        figures.content_bytes_resent,
        figures.rtt_min_us,
        figures.rtt_mean_us,
    ]
}

fn decode_figures(reader: &mut Reader<'_>) -> Result<EndFigures, Malformed> {
    let mut numbers = [0; 13];
    for number in &mut numbers {
        *number = reader.varint()?;
    }
    let mut figures = EndFigures {
        cpu_us: numbers[0],
        peak_rss_bytes: numbers[1],
        segments_duplicate: numbers[2],
        segments_sent: numbers[3],
        segments_retransmitted: numbers[4],
        segments_proactive: numbers[5],
        packets_sent: numbers[6],
        packets_lost: numbers[7],
        wire_bytes_sent: numbers[8],
        content_bytes_sent: numbers[9],
        content_bytes_resent: numbers[10],
        rtt_min_us: numbers[11],
        rtt_mean_us: numbers[12],
        ..EndFigures::default()
    };
    for _ in 0..reader.varint()?.min(64) {
        let (name, end) = (reader.text()?, reader.text()?);
        figures.stages.push(Stage { name, end, busy: reader.varint()? as f64 / 1e6 });
    }
    for _ in 0..reader.varint()?.min(16) {
        figures.warnings.push(reader.text()?);
    }
    let directories = if reader.is_empty() { 0 } else { reader.varint()? };
    for _ in 0..directories.min(SPREAD_MAX as u64) {
        let (directory, files) = (reader.text()?, reader.varint()?);
        figures.spread.push(SpreadFigures { directory, files, bytes: reader.varint()? });
    }
    Ok(figures)
}

/// Turns the bytes of the control stream into messages.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been decoded.
    used: usize,
    last_path: Vec<u8>,
}

impl Decoder {
    /// Where the control stream's bytes are to be appended.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.used);
        self.used = 0;
        &mut self.buffer
    }

    /// The next whole message, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Malformed> {
        let mut reader = Reader(&self.buffer[self.used..]);
        let Ok(len) = reader.varint() else {
            // Either more bytes are needed, or this is no number at all.
            return if self.buffer.len() - self.used >= 10 { Err(Malformed) } else { Ok(None) };
        };
        if len > MESSAGE_MAX as u64 {
            return Err(Malformed);
        }
        let Ok(body) = reader.take(len as usize) else { return Ok(None) };
        let message = decode_body(body, &mut self.last_path)?;
        self.used = self.buffer.len() - reader.0.len();
        Ok(Some(message))
    }
}

fn decode_body(body: &[u8], last_path: &mut Vec<u8>) -> Result<Message, Malformed> {
    let mut reader = Reader(body);
    let message = match reader.byte()? {
        1 => Message::Entry(decode_entry(&mut reader, last_path)?),
        2 => Message::DirectoryEnd { id: reader.varint()? },
        3 => Message::SourceFailed { path: reader.bytes()?.to_vec(), reason: reader.text()? },
        4 => Message::FileEnd { id: reader.varint()?, size: reader.varint()?, chunks: reader.varint()? },
        5 => Message::FileFailed { id: reader.varint()?, reason: reader.text()? },
        6 => Message::EntriesEnd,
        7 => Message::LeftOut { path: reader.bytes()?.to_vec() },
        8 => Message::Present { path: reader.bytes()?.to_vec(), presence: decode_presence(&mut reader)? },
        9 => Message::PresentEnd { is_complete: decode_flag(&mut reader)? },
        11 => {
            let id = reader.varint()?;
            // An entry as in a message of its own.
            if reader.byte()? != 1 {
                return Err(Malformed);
            }
            Message::Renewed { id, entry: decode_entry(&mut reader, last_path)? }
        }
        10 => Message::Compared { id: reader.varint()?, is_same: decode_flag(&mut reader)? },
        12 => Message::Skipped { path: reader.bytes()?.to_vec(), reason: reader.text()? },
        16 => Message::Decide { id: reader.varint()?, decision: decode_decision(&mut reader)? },
        17 => Message::Done { id: reader.varint()? },
        18 => {
            Message::Failed { id: reader.varint()?, path: reader.bytes()?.to_vec(), reason: reader.text()? }
        }
        19 => Message::Again { id: reader.varint()?, chunk: reader.varint()? },
        20 => Message::DirectoriesDone { count: reader.varint()? },
        21 => Message::Deleted { path: reader.bytes()?.to_vec() },
        22 => Message::NotDeleted { path: reader.bytes()?.to_vec(), reason: reader.text()? },
        23 => {
            let is_last = decode_flag(&mut reader)?;
            let mut names = Vec::new();
            for _ in 0..reader.varint()? {
                names.push(reader.bytes()?.to_vec());
            }
            Message::Names { names, is_last }
        }
        24 => {
            Message::Marks { id: reader.varint()?, chunk: reader.varint()?, marks: reader.bytes()?.to_vec() }
        }
        25 => Message::MarksEnd { id: reader.varint()? },
        26 => Message::Renamed { id: reader.varint()?, from: reader.bytes()?.to_vec() },
        27 => Message::Digests { id: reader.varint()?, digests: decode_digests(&mut reader)? },
        28 => Message::Placed { name: reader.bytes()?.to_vec() },
        29 => Message::Unchanged { first: reader.varint()?, count: reader.varint()? },
        35 => Message::Start,
        36 => Message::Rate(decode_rate(&mut reader)?),
        32 => Message::Finish(decode_figures(&mut reader)?),
        33 => Message::Abort { code: reader.byte()?, reason: reader.text()?, hint: reader.text()? },
        48 => Message::PathsUnused(reader.varint()?),
        52 => {
            let path = reader.varint()?;
            let (local, remote) = (decode_address(&mut reader)?, decode_address(&mut reader)?);
            Message::PathAdd { path, addresses: PathAddresses { local, remote } }
        }
        53 => {
            let (path, is_open) = (reader.varint()?, reader.varint()? == 1);
            let count = reader.varint()?;
            if count > FLOWS_MAX as u64 {
                return Err(Malformed);
            }
            let port = |_| u16::try_from(reader.varint()?).map_err(|_| Malformed);
            Message::PathOpen { path, is_open, ports: (0..count).map(port).collect::<Result<_, _>>()? }
        }
        49 => Message::Confirmed { count: reader.varint()? },
        50 => Message::BlocksPut { count: reader.varint()?, is_last: decode_flag(&mut reader)? },
        51 => Message::Word(reader.bytes()?.to_vec()),
        34 => Message::FlowDown { index: u16::try_from(reader.varint()?).map_err(|_| Malformed)? },
        _ => return Err(Malformed),
    };
    if reader.is_empty() { Ok(message) } else { Err(Malformed) }
}

fn decode_entry(reader: &mut Reader<'_>, last_path: &mut Vec<u8>) -> Result<ManifestEntry, Malformed> {
    let id = reader.varint()?;
    let shared = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let rest = reader.bytes()?;
    if shared > last_path.len() {
        return Err(Malformed);
    }
    last_path.truncate(shared);
    last_path.extend_from_slice(rest);
    let mode = reader.u32()?;
    let mtime_secs = reader.signed()?;
    let mtime_nanos = reader.u32()?;
    if mtime_nanos >= 1_000_000_000 {
        return Err(Malformed);
    }
    let kind = reader.byte()?;
    let what = match kind & !ATTRIBUTES {
        1 => What::Stream,
        8 => What::Directory,
        9 => What::Symlink { target: reader.bytes()?.to_vec() },
        10 => What::HardLink { to: reader.varint()? },
        11 => What::Special(decode_node(reader)?),
        flags if flags & !0b110 == 0 => What::File {
            size: reader.varint()?,
            inode: reader.varint()?,
            device: reader.varint()?,
            sparse: flags & 2 != 0,
            linked: flags & 4 != 0,
        },
        _ => return Err(Malformed),
    };
    let mut attributes = Attributes::new();
    if kind & ATTRIBUTES != 0 {
        for _ in 0..reader.varint()? {
            attributes.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
        }
    }
    Ok(ManifestEntry { id, path: last_path.clone(), mode, mtime_secs, mtime_nanos, what, attributes })
}

fn decode_node(reader: &mut Reader<'_>) -> Result<Node, Malformed> {
    let (kind, major, minor) = (reader.varint()?, reader.u32()?, reader.u32()?);
    Ok(match kind {
        0 => Node::Fifo,
        1 => Node::Socket,
        2 => Node::CharDevice { major, minor },
        3 => Node::BlockDevice { major, minor },
        _ => return Err(Malformed),
    })
}

/// Only what this end's own user could have asked for.
fn decode_rate(reader: &mut Reader<'_>) -> Result<RateOptions, Malformed> {
    let policy = match reader.varint()? {
        0 => Policy::Fair,
        1 => Policy::High,
        2 => Policy::Low,
        3 => Policy::Fixed,
        _ => return Err(Malformed),
    };
    let mut limit = || reader.varint().map(|bps| (bps > 0).then_some(bps));
    RateOptions { policy, rate_bps: limit()?, rate_min_bps: limit()? }.checked().map_err(|_| Malformed)
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => put_bytes(out, &v4.octets()),
        IpAddr::V6(v6) => put_bytes(out, &v6.octets()),
    }
}

fn decode_address(reader: &mut Reader<'_>) -> Result<IpAddr, Malformed> {
    let bytes = reader.bytes()?;
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).map_err(|_| Malformed)
}

fn decode_flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn decode_digests(reader: &mut Reader<'_>) -> Result<Digests, Malformed> {
    let tree = Digest(reader.array()?);
    let mut extra = Vec::new();
    for _ in 0..reader.varint()? {
        let algorithm = Algorithm::from_name(&reader.text()?).ok_or(Malformed)?;
        let digest = reader.bytes()?.to_vec();
        if digest.len() != algorithm.bytes() || extra.len() == Algorithm::ALL.len() {
            return Err(Malformed);
        }
        extra.push((algorithm, digest));
    }
    Ok(Digests { tree, extra })
}

fn decode_presence(reader: &mut Reader<'_>) -> Result<Presence, Malformed> {
    Ok(match reader.byte()? {
        0 => Presence::Plain,
        1 => Presence::Directory,
        2 => Presence::DirectoryEnd,
        _ => return Err(Malformed),
    })
}

fn decode_decision(reader: &mut Reader<'_>) -> Result<Decision, Malformed> {
    Ok(match reader.byte()? {
        0 => Decision::Send,
        3 => Decision::Listed,
        8 => Decision::Keep,
        4 => Decision::Compare(reader.array()?),
        2 => Decision::Have(decode_ranges(reader)?),
        5 => Decision::Patch { have: decode_ranges(reader)?, old_chunks: reader.varint()? },
        _ => return Err(Malformed),
    })
}

fn decode_ranges(reader: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, Malformed> {
    let count = reader.varint()?;
    if count > RANGES_MAX as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| Ok((reader.varint()?, reader.varint()?))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(id: u64, path: &str, what: What) -> Message {
        let attributes = match what {
            What::Directory => vec![(b"user.a".to_vec(), b"\0".to_vec()), (b"user.b".to_vec(), Vec::new())],
            _ => Attributes::new(),
        };
        let entry = ManifestEntry {
            id,
            path: path.into(),
            mode: 0o644,
            mtime_secs: -5,
            mtime_nanos: 7,
            what,
            attributes,
        };
        Message::Entry(entry)
    }

    fn all() -> Vec<Message> {
        let file = What::File { size: 1 << 40, inode: 9, device: 3, sparse: true, linked: true };
        let Message::Entry(renewed) = entry(1 << 48 | 1, "tree/a", file.clone()) else { unreachable!() };
        vec![
            entry(0, "tree", What::Directory),
            entry(1, "tree/a", file),
            entry(2, "tree/abc", What::Symlink { target: b"../x".to_vec() }),
            entry(3, "other", What::HardLink { to: 1 }),
            entry(4, "", What::Stream),
            entry(5, "pipe", What::Special(Node::Fifo)),
            entry(6, "sd", What::Special(Node::BlockDevice { major: 8, minor: 70_000 })),
            Message::DirectoryEnd { id: 0 },
            Message::SourceFailed { path: b"\xff".to_vec(), reason: "permission denied".into() },
            Message::FileEnd { id: 1, size: 1 << 40, chunks: 7 },
            Message::FileFailed { id: 1, reason: "changed".into() },
            Message::Renewed { id: 1, entry: renewed },
            Message::EntriesEnd,
            Message::LeftOut { path: b"a/b".to_vec() },
            Message::Present { path: b"a".to_vec(), presence: Presence::Directory },
            Message::Present { path: b"a/b".to_vec(), presence: Presence::Plain },
            Message::Present { path: b"a".to_vec(), presence: Presence::DirectoryEnd },
            Message::PresentEnd { is_complete: true },
            Message::Compared { id: 1, is_same: true },
            Message::Decide { id: 1, decision: Decision::Compare([7; 32]) },
            Message::Decide { id: 1, decision: Decision::Keep },
            Message::Placed { name: b"new\xff".to_vec() },
            Message::Skipped { path: b"tree/dev".to_vec(), reason: "a device".into() },
            Message::Renamed { id: 7, from: b"old/name".to_vec() },
            Message::Digests {
                id: 4,
                digests: Digests { tree: Digest([3; 32]), extra: vec![(Algorithm::Md5, vec![9; 16])] },
            },
            Message::Deleted { path: b"too/much".to_vec() },
            Message::NotDeleted { path: b"x".to_vec(), reason: "busy".into() },
            Message::Names { names: vec![b"a".to_vec(), b"b\xff".to_vec()], is_last: true },
            Message::Decide { id: 1, decision: Decision::Have(vec![(0, 5), (9, 1)]) },
            Message::Unchanged { first: 2, count: 700 },
            Message::Decide { id: 3, decision: Decision::Send },
            Message::Done { id: 1 },
            Message::Failed { id: 2, path: b"a/b".to_vec(), reason: "no space left".into() },
            Message::Again { id: 1, chunk: 77 },
            Message::Decide { id: 5, decision: Decision::Patch { have: vec![(1, 2)], old_chunks: 9 } },
            Message::Marks { id: 5, chunk: 3, marks: vec![7; 2048] },
            Message::MarksEnd { id: 5 },
            Message::DirectoriesDone { count: 3 },
            Message::Start,
            Message::Finish(EndFigures {
                cpu_us: 5,
                stages: vec![Stage { name: "read".into(), end: "sender".into(), busy: 0.5 }],
                warnings: vec!["small buffers".into()],
                spread: vec![SpreadFigures { directory: "/nvme1".into(), files: 3, bytes: 1 << 40 }],
                ..EndFigures::default()
            }),
            Message::Abort { code: 6, reason: "no such directory".into(), hint: "make it".into() },
            Message::FlowDown { index: 3 },
            Message::PathsUnused(0b101),
            Message::PathAdd {
                path: 1,
                addresses: PathAddresses {
                    local: "192.0.2.1".parse().unwrap(),
                    remote: "2001:db8::1".parse().unwrap(),
                },
            },
            Message::PathOpen { path: 1, is_open: true, ports: vec![33001, 65535] },
            Message::Confirmed { count: 1 << 40 },
            Message::BlocksPut { count: 7, is_last: true },
            Message::Word(vec![9; 60 << 10]),
            Message::Rate(RateOptions { policy: Policy::Low, rate_bps: Some(1_000_000), rate_min_bps: None }),
        ]
    }

    #[test]
    fn every_message_comes_back_however_the_bytes_are_cut() {
        let messages = all();
        let mut encoder = Encoder::default();
        let mut bytes = Vec::new();
        for message in &messages {
            encoder.encode(message, &mut bytes);
        }
        for step in [1, 3, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut back = Vec::new();
            for piece in bytes.chunks(step) {
                decoder.buffer().extend_from_slice(piece);
                while let Some(message) = decoder.next().unwrap() {
                    back.push(message);
                }
            }
            assert_eq!(back, messages);
        }
    }

    #[test]
    fn a_message_too_long_is_refused_at_its_length() {
        let mut decoder = Decoder::default();
        put_varint(decoder.buffer(), MESSAGE_MAX as u64 + 1);
        assert_eq!(decoder.next(), Err(Malformed));
    }

    #[test]
    fn a_prefix_that_was_never_sent_is_refused() {
        let mut body = vec![1, 0, 9];
        put_bytes(&mut body, b"x");
        let mut decoder = Decoder::default();
        put_bytes(decoder.buffer(), &body);
        assert_eq!(decoder.next(), Err(Malformed));
    }

    #[test]
    fn a_rate_that_a_user_could_not_ask_for_is_refused() {
        for numbers in [[4, 0, 0], [3, 0, 0], [0, 7_999, 0], [0, 10_000, 20_000]] {
            let mut body = Vec::new();
            put_numbers(&mut body, 36, &numbers);
            let mut decoder = Decoder::default();
            put_bytes(decoder.buffer(), &body);
            assert_eq!(decoder.next(), Err(Malformed), "{numbers:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut decoder = Decoder::default();
            decoder.buffer().extend_from_slice(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}
