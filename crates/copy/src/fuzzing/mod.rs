//! One end of a session that talks to a list of messages instead of a peer: `fuzz/` drives it.
//!
//! The end is the same one that a far end runs (`serve_here`), with its threads, a folder and a flow on which
//! nothing arrives. The script takes the place of the control stream's bytes ([`Tap::Feed`]); blocks go
//! straight to the writers. A script is sections with [`SEPARATOR`] between them, so that a damaged section
//! leaves the others whole. First come the options, then control messages as on the wire without their
//! length, and blocks (see `block`).
//!
//! Always true: the next message comes only when the one before was handled and the other threads had a
//! moment for what it set off. The last message ends the session. [`record_session`] makes a script of the
//! messages of a real session.

mod words;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_session::FIRST;
use farhaul_session::codec::{ByteReader, Malformed, put_varint};
use farhaul_session::fuzzing::{FedFlow, FedSession, Tap, is_fed, tapped};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{Complaint, SessionMessage, put_words};
use farhaul_session::options::{MEMORY_MIN, NetworkOptions};
use farhaul_volume::{CHUNK, chunk_cv, whole_digest};
use farhaul_words::Error;

use crate::manifest::ManifestLog;
use crate::messages::{CopyMessage, Decoder, Encoder, EntryContent};
use crate::options::{
    DeleteOptions, DeleteWhen, FileOptions, IntegrityOptions, ManifestOptions, OverwriteMode, SyncOptions,
    TransferOptions, VerifyMode,
};
use crate::request::{CopyDirection, CopyRequest};
use crate::trailer;
use crate::trailer::BlockPiece;
use words::{DecodedMessage, FuzzedListener};
pub use words::{block_trailer, manifest_line, messages};

const SEPARATOR: &[u8] = b"\xff\xff";
/// A section that begins with this byte is a block; no message has this code.
const BLOCK: u8 = 0;
/// The bit in a message's code by which the next section comes together with this one.
const TOGETHER: u8 = 0x80;
/// How long other threads get for the work that a section sets off.
const MOMENT: Duration = Duration::from_micros(400);
/// How long a block may be held before its holder is taken to be waiting for another block.
const BLOCK_PATIENCE: Duration = Duration::from_millis(100);

/// The end that the script talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FuzzedEnd {
    Receiver,
    Sender,
}

struct Script {
    end: FuzzedEnd,
    sections: std::vec::IntoIter<Vec<u8>>,
    decoder: Decoder,
    encoder: Encoder,
    /// Gets the credit for blocks that were let go of.
    flow: FedFlow,
    /// The sizes of announced files, so that a block can fit them.
    sizes: HashMap<u64, u64>,
    has_begun: bool,
}

/// Runs one end with a script in `folder`, which holds only `there/`, made beforehand. Panics if any thread
/// of the session has panicked, or if something was made outside of that directory.
pub fn converse(end: FuzzedEnd, script: &[u8], folder: &Path) -> Option<Error> {
    watch_panics();
    let mut sections: Vec<Vec<u8>> = split(script);
    let flags = if sections.is_empty() { Vec::new() } else { sections.remove(0) };
    let sections = ordered(sections, flags.get(3..).unwrap_or_default());
    let request = request(end, &flags, &folder.join("there"));
    let (_peer, ours) = crate::job::local_pair(&request).ok()?;
    let flow = FedFlow::new()?;
    let mut script = Script {
        end,
        sections: sections.into_iter(),
        decoder: Decoder::default(),
        encoder: Encoder::default(),
        flow,
        sizes: HashMap::new(),
        has_begun: false,
    };
    take_panic();
    let tap = Tap::Feed(Box::new(move |shared, out, wait| script.feed(shared, out, wait)));
    let summary = tapped(tap, || crate::serve_here(ours, None, crate::ReceiverCheck::default()));
    if let Some(panic) = take_panic() {
        panic!("a thread of the session panicked: {panic}");
    }
    let made: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    assert!(made.iter().all(|name| name == "there"), "something was made outside of the directory: {made:?}");
    summary.error
}

fn split(script: &[u8]) -> Vec<Vec<u8>> {
    let mut sections = vec![Vec::new()];
    let mut rest = script;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(next) = rest.strip_prefix(SEPARATOR) {
            sections.push(Vec::new());
            rest = next;
        } else {
            sections.last_mut().expect("it is never empty").push(byte);
            rest = after;
        }
    }
    sections
}

/// Reorders the sections by the bytes behind the options, since moving one byte is what libFuzzer is good at.
/// Each byte says which of the remaining sections comes next or, with bit 7, is left out.
fn ordered(mut rest: Vec<Vec<u8>>, order: &[u8]) -> Vec<Vec<u8>> {
    let mut sections = Vec::new();
    for &byte in order {
        if rest.is_empty() {
            break;
        }
        let section = rest.remove(usize::from(byte & 0x7f) % rest.len());
        if byte & 0x80 == 0 {
            sections.push(section);
        }
    }
    sections.append(&mut rest);
    sections
}

/// The request that the first section chooses.
fn request(end: FuzzedEnd, flags: &[u8], there: &Path) -> CopyRequest {
    let bit = |byte: usize, bit: u8| flags.get(byte).is_some_and(|flags| flags & (1 << bit) != 0);
    let verify = match (bit(0, 0), bit(0, 1)) {
        (true, false) => VerifyMode::Transit,
        (false, true) => VerifyMode::Readback,
        _ => VerifyMode::Digest,
    };
    let overwrite = match (bit(1, 6), bit(1, 7)) {
        (false, false) => OverwriteMode::Different,
        (false, true) => OverwriteMode::Always,
        (true, false) => OverwriteMode::Older,
        (true, true) => OverwriteMode::Never,
    };
    let when = if bit(1, 1) { DeleteWhen::Before } else { DeleteWhen::After };
    let delete = bit(1, 0).then_some(DeleteOptions { when, excluded: bit(2, 5), ..DeleteOptions::default() });
    let sync = bit(0, 5).then_some(SyncOptions { checksum: bit(0, 6), detect_renames: bit(0, 7), delete });
    let manifest = bit(1, 2).then(|| ManifestOptions { unchanged: bit(1, 3), extra: Vec::new() });
    let mut options = TransferOptions {
        files: FileOptions {
            overwrite,
            delta: Some(bit(0, 3)),
            in_place: bit(0, 4),
            xattrs: bit(1, 4),
            specials: bit(1, 5),
            safe_links: bit(2, 0),
            acls: bit(2, 1),
            keep_setuid: bit(2, 2),
            no_perms: bit(3, 0),
            no_times: bit(3, 1),
            omit_dir_times: bit(3, 2),
            ..FileOptions::default()
        },
        integrity: IntegrityOptions { verify, manifest, ..IntegrityOptions::default() },
        sync,
        network: NetworkOptions { memory_bytes: MEMORY_MIN, ..NetworkOptions::default() },
        dry_run: bit(0, 2),
        ..TransferOptions::default()
    };
    options.select.by_name = end == FuzzedEnd::Sender && bit(2, 3);
    // Options that are refused would end the session at once.
    let options = options.checked().unwrap_or_else(|_| TransferOptions::default());
    let mut path = there.as_os_str().as_encoded_bytes().to_vec();
    path.push(b'/');
    let direction = if end == FuzzedEnd::Receiver { CopyDirection::Push } else { CopyDirection::Pull };
    CopyRequest {
        target_is_directory: end == FuzzedEnd::Receiver,
        single_file: bit(2, 4),
        ..CopyRequest::new(direction, vec![path], options)
    }
}

impl Script {
    fn feed(&mut self, session: &FedSession<'_>, out: &mut Vec<u8>, wait: Duration) -> usize {
        if !self.has_begun {
            self.has_begun = true;
            session.stay_cold();
            if self.end == FuzzedEnd::Sender {
                // The receiver can say nothing of an entry before the sender has announced it.
                until(Duration::from_millis(30), || session.first_handle().counts().scan_done.load(Relaxed));
            }
        }
        // Without a peer that gives credit, the sender's blocks would wait for ever.
        session.drop_filled();
        if wait.is_zero() {
            return 0;
        }
        let before = out.len();
        loop {
            let Some(section) = self.sections.next() else {
                if out.len() == before {
                    self.end(session, out);
                }
                break;
            };
            if self.section(session, &section, out) != FuzzStep::Together {
                break;
            }
        }
        out.len() - before
    }

    fn section(&mut self, session: &FedSession<'_>, section: &[u8], out: &mut Vec<u8>) -> FuzzStep {
        let Some((&code, rest)) = section.split_first() else { return FuzzStep::Together };
        if code == BLOCK {
            let said = out.len();
            let _ = self.block(session, rest);
            // A block alone is not a message: the next section has to come.
            return if out.len() == said { FuzzStep::Together } else { FuzzStep::Apart };
        }
        let body = [&[code & !TOGETHER], rest].concat();
        if let Ok(message) = SessionMessage::decode(&body) {
            if let SessionMessage::Finish { .. } = &message {
                // No peer will confirm the last messages, so do not wait for that.
                session.close_by_peer();
            }
            message.encode(out);
        } else if let Ok(message) = self.decoder.decode(&body) {
            if let CopyMessage::Entry(entry) | CopyMessage::Renewed { entry, .. } = &message {
                self.sizes.insert(entry.id, entry.size());
            }
            put_words(out, FIRST, |out| self.encoder.encode(&message, out));
        } else {
            return FuzzStep::Together;
        }
        if code & TOGETHER != 0 { FuzzStep::Together } else { FuzzStep::Apart }
    }

    /// Fills a block from a section. The section lists pieces: varint file, varint chunk, flags, a byte that
    /// fills the piece (for a patch, the content follows behind a varint length). Flags: 1 a piece that does
    /// not fit, 2 a wrong digest, 4 a patch, 8 the digest of a whole file whatever its size, 16 a whole chunk
    /// (of a stream, whose size is not known).
    fn block(&mut self, session: &FedSession<'_>, section: &[u8]) -> Result<(), Malformed> {
        let Some(mut block) = session.try_claim() else { return Ok(()) };
        block.set_len(block.capacity());
        let mut reader = ByteReader(section);
        let (mut pieces, mut at) = (Vec::new(), 0usize);
        while !reader.is_empty() && pieces.len() < 16 {
            let (file, chunk, flags, fill) =
                (reader.varint()?, reader.varint()?, reader.byte()?, reader.byte()?);
            let size = self.sizes.get(&file).copied().unwrap_or(0);
            let start = chunk.saturating_mul(CHUNK);
            let fitting = match size {
                0 if flags & 16 != 0 => CHUNK,
                0 => 1 + u64::from(fill),
                _ => size.saturating_sub(start).min(CHUNK),
            };
            let len = if flags & 1 == 0 { fitting as usize } else { usize::from(fill) };
            let is_patch = flags & 4 != 0;
            let content = if is_patch { reader.bytes()?.to_vec() } else { vec![fill; len] };
            if at + content.len() > CHUNK as usize {
                break;
            }
            block.tail_mut(at)[..content.len()].copy_from_slice(&content);
            let is_whole = size <= CHUNK && size > 0 || flags & 8 != 0;
            let of = if is_patch { vec![fill; len] } else { content.clone() };
            let mut digest = if is_whole { whole_digest(&of) } else { chunk_cv(&of) };
            if flags & 2 != 0 {
                digest[0] ^= 1;
            }
            pieces.push(BlockPiece { file, chunk, len: content.len() as u32, is_patch, digest });
            at += content.len();
        }
        let len = trailer::write(&mut block, at, &pieces);
        let before = self.flow.released();
        self.flow.bring(session, block, len);
        until(BLOCK_PATIENCE, || self.flow.released() != before || session.is_stopped());
        Ok(())
    }

    fn end(&mut self, session: &FedSession<'_>, out: &mut Vec<u8>) {
        let unsent = session.unsent();
        until(MOMENT, || session.unsent() != unsent);
        session.close_by_peer();
        let reason = "the script has ended".to_string();
        SessionMessage::Abort(Complaint { exit: 130, reason, ..Complaint::default() }).encode(out);
    }
}

#[derive(PartialEq, Eq)]
enum FuzzStep {
    Together,
    Apart,
}

fn until(patience: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_so() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(20));
    }
}

// ---- panics of any thread ------------------------------------------------------------------------------------------

static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Watches for panics: one in a thread of a session ends only that session, and here it must not go unseen.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Threads that run other tests have the tests' paths as names.
            let is_other = std::thread::current().name().is_some_and(|name| name.contains("::"));
            if !is_other || is_fed() {
                PANIC.lock().in_any_case().get_or_insert(panic.to_string());
            }
            before(panic);
        }));
    });
}

fn take_panic() -> Option<String> {
    PANIC.lock().in_any_case().take()
}

// ---- recording -----------------------------------------------------------------------------------------------------

/// Records a script of what a real peer says that sends `source` (or takes it) with the options that `flags`
/// choose. The files' content should be the byte `fill` again and again, as the script's blocks carry that.
/// Also returns the bytes themselves.
pub fn record_session(
    end: FuzzedEnd,
    flags: &[u8],
    fill: u8,
    source: &Path,
    target: &Path,
) -> (Vec<u8>, Vec<u8>) {
    let (there, near) = if end == FuzzedEnd::Receiver { (target, source) } else { (source, target) };
    let request = request(end, flags, there);
    let options = request.options.clone();
    let near_path = near.join("");
    let side = match end {
        FuzzedEnd::Receiver => {
            crate::local_origin(&[near_path], &options, None, None).map(crate::CopySide::Send)
        }
        FuzzedEnd::Sender => {
            let wish =
                crate::DestinationWish { is_directory: true, is_name: false, dry_run: options.dry_run };
            crate::local_target(&near_path, wish, &request.paths, &[], None)
                .map(|target| crate::CopySide::Receive(crate::Destination::Tree(Box::new(target))))
        }
    };
    let side = side.expect("the recorded folders are usable");
    let (peer, ours) = crate::job::local_pair(&request).expect("a pair of sockets");
    let names = options.select.by_name.then(|| vec![b"small".to_vec(), b"folder".to_vec()]);
    // An end that has asked for a manifest has to write one.
    let folder = tempfile::tempdir().expect("a directory can be made");
    let log = options.integrity.manifest.is_some().then(|| {
        ManifestLog::create(&folder.path().join("m"), false, &Handle::new()).expect("it can be written")
    });
    let terms = crate::Terms { names, log, ..crate::Terms::default() };
    let peer = std::thread::spawn(move || {
        let agreed = crate::AgreedCopy::new(peer, request);
        crate::run(agreed, side, &terms, &Handle::new()).error
    });
    let said = Rc::new(RefCell::new(Vec::new()));
    let record = said.clone();
    let tap = Tap::Listen(Box::new(move |bytes| record.borrow_mut().extend_from_slice(bytes)));
    let error = tapped(tap, || crate::serve_here(ours, None, crate::ReceiverCheck::default())).error;
    let bytes = said.take();
    let peers = peer.join().expect("the peer does not panic");
    assert!(error.is_none() && peers.is_none(), "the recorded session failed: {error:?} {peers:?}");
    (script(flags, fill, &bytes), bytes)
}

fn script(flags: &[u8], fill: u8, bytes: &[u8]) -> Vec<u8> {
    let mut script = flags.to_vec();
    let mut listener = FuzzedListener::default();
    listener.buffer().extend_from_slice(bytes);
    while let Some(next) = listener.next().expect("a real peer says what makes sense") {
        if next == DecodedMessage::Session(SessionMessage::Start) {
            continue;
        }
        script.extend_from_slice(SEPARATOR);
        // Each section is encoded by itself, so that it does not need the one before.
        let mut framed = Vec::new();
        let message = match next {
            DecodedMessage::Session(message) => {
                message.encode(&mut framed);
                script.extend_from_slice(ByteReader(&framed[1..]).bytes().expect("it was just written"));
                continue;
            }
            DecodedMessage::Copy(message) => message,
        };
        Encoder::default().encode(&message, &mut framed);
        script.extend_from_slice(ByteReader(&framed).bytes().expect("it was just written"));
        let CopyMessage::Entry(entry) = &message else { continue };
        let chunks = match entry.what {
            EntryContent::File { size, .. } => size.div_ceil(CHUNK),
            _ => 0,
        };
        for chunk in 0..chunks {
            script.extend_from_slice(SEPARATOR);
            script.push(BLOCK);
            put_varint(&mut script, entry.id);
            put_varint(&mut script, chunk);
            script.extend_from_slice(&[0, fill]);
        }
    }
    script
}

// ---- beside the session --------------------------------------------------------------------------------------------

/// Reads a file of the path memory; a path that was read can be noted again.
pub fn path_memory(file: &Path) -> bool {
    use farhaul_session::path_memory::{keep, recall};
    let peer = IpAddr::from([192, 0, 2, 1]);
    let Some(path) = recall(file, [peer]) else { return false };
    keep(file, peer, path).expect("the folder can be written");
    assert_eq!(recall(file, [peer]), Some(path));
    true
}
