//! Encodes and decodes every message, and decodes bytes that are no message.

use farhaul_session::codec::{ByteReader, Malformed, put_bytes};
use farhaul_volume::{Algorithm, Border, Digest};
use farhaul_words::Code;
use proptest::prelude::*;

use super::super::report::SpreadFigures;
use super::*;

fn entry(id: u64, path: &str, what: EntryContent) -> CopyMessage {
    let attributes = match what {
        EntryContent::Directory => {
            vec![(b"user.a".to_vec(), b"\0".to_vec()), (b"user.b".to_vec(), Vec::new())]
        }
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
        owner: None,
    };
    CopyMessage::Entry(entry)
}

fn owned(message: CopyMessage) -> CopyMessage {
    let CopyMessage::Entry(entry) = message else { unreachable!() };
    let owner = EntryOwner { uid: 1005, gid: 100, user: b"anna".to_vec(), group: Vec::new() };
    CopyMessage::Entry(ManifestEntry { owner: Some(owner), ..entry })
}

fn all() -> Vec<CopyMessage> {
    let ctime = FileTime::new(-3, 999_999_999);
    let file = EntryContent::File { size: 1 << 40, inode: 9, device: 3, ctime, sparse: true, linked: true };
    let ctime = FileTime::default();
    let small =
        EntryContent::File { size: 1 << 20, inode: 9, device: 3, ctime, sparse: false, linked: false };
    let CopyMessage::Entry(renewed) = entry(1 << 48 | 1, "tree/a", file.clone()) else { unreachable!() };
    vec![
        entry(0, "tree", EntryContent::Directory),
        entry(1, "tree/a", file),
        entry(1, "tree/aa", small),
        entry(2, "tree/abc", EntryContent::Symlink { target: b"../x".to_vec() }),
        entry(3, "other", EntryContent::HardLink { to: 1 }),
        entry(4, "", EntryContent::Stream),
        entry(5, "pipe", EntryContent::Special(SpecialNode::Fifo)),
        owned(entry(5, "mine", EntryContent::Directory)),
        owned(entry(5, "mine/too", EntryContent::Stream)),
        entry(6, "sd", EntryContent::Special(SpecialNode::BlockDevice { major: 8, minor: 70_000 })),
        CopyMessage::DirectoryEnd { id: 0 },
        CopyMessage::SourceFailed {
            path: b"\xff".to_vec(),
            failure: Failure::new(Code::PermissionDenied, "permission denied"),
        },
        CopyMessage::FileEnd { id: 1, size: 1 << 40, chunks: 7 },
        CopyMessage::FileFailed { id: 1, failure: Failure::new(Code::SourceChanged, "changed") },
        CopyMessage::Renewed { id: 1, entry: renewed },
        CopyMessage::EntriesEnd,
        CopyMessage::LeftOut { path: b"a/b".to_vec() },
        CopyMessage::Present { path: b"a".to_vec(), presence: Presence::Directory },
        CopyMessage::Present { path: b"a/b".to_vec(), presence: Presence::Plain },
        CopyMessage::Present { path: b"a".to_vec(), presence: Presence::DirectoryUnlisted },
        CopyMessage::Present { path: b"a".to_vec(), presence: Presence::DirectoryEnd },
        CopyMessage::PresentEnd { is_complete: true },
        CopyMessage::Compared { id: 1, is_same: true },
        CopyMessage::Decide { id: 1, decision: Decision::Compare([7; 32]) },
        CopyMessage::Decide { id: 1, decision: Decision::Keep },
        CopyMessage::Placed { name: b"new\xff".to_vec() },
        CopyMessage::Skipped { path: b"tree/dev".to_vec(), reason: "a device".into() },
        CopyMessage::Renamed { id: 7, from: b"old/name".to_vec() },
        CopyMessage::Digests {
            id: 4,
            digests: Digests { tree: Digest([3; 32]), extra: vec![(Algorithm::Md5, vec![9; 16])] },
        },
        CopyMessage::Deleted { path: b"too/much".to_vec() },
        CopyMessage::Left { path: b"disk".to_vec(), border: Border::MountPoint },
        CopyMessage::Left { path: b"disk/x".to_vec(), border: Border::Beyond },
        CopyMessage::Replaced { path: b"x".to_vec(), was: EntrySort::Symlink, by: EntrySort::Directory },
        CopyMessage::Replaced { path: b"y".to_vec(), was: EntrySort::Device, by: EntrySort::File },
        CopyMessage::NotDeleted { path: b"x".to_vec(), failure: Failure::new(Code::FilesFailed, "busy") },
        CopyMessage::SourceRoot(SourceRoot { file_system: 1 << 40, inode: 2 }),
        CopyMessage::DeletionStopped {
            cause: DeletionStopCause::Most,
            entries: 900,
            of: 1000,
            names: vec![b"a".to_vec(), b"b/\xff".to_vec()],
        },
        CopyMessage::Names { names: vec![b"a".to_vec(), b"b\xff".to_vec()], is_last: true },
        CopyMessage::Paths { paths: vec![b"run7/*".to_vec(), b"/b\xff".to_vec()], is_last: false },
        CopyMessage::Decide { id: 1, decision: Decision::Have(vec![(0, 5), (9, 1)]) },
        CopyMessage::Unchanged { first: 2, count: 700 },
        CopyMessage::Decide { id: 3, decision: Decision::Send },
        CopyMessage::Done { id: 1 },
        CopyMessage::Failed {
            id: 2,
            path: b"a/b".to_vec(),
            failure: Failure::new(Code::NoSpace, "no space left"),
        },
        CopyMessage::NotSet { path: b"a/\xff".to_vec(), reason: "not permitted".into() },
        CopyMessage::AsFile { id: 3 },
        CopyMessage::Again { id: 1, chunk: 77 },
        CopyMessage::Decide { id: 5, decision: Decision::Patch { have: vec![(1, 2)], old_chunks: 9 } },
        CopyMessage::Marks { id: 5, chunk: 3, marks: vec![7; 2048] },
        CopyMessage::MarksEnd { id: 5 },
        CopyMessage::Kept { id: 5, chunk: 4, cv: ChunkCv([9; 32]) },
        CopyMessage::Same { id: 5, chunk: 4 },
        CopyMessage::DirectoriesDone { count: 3, new: None },
        CopyMessage::DirectoriesDone { count: 3, new: Some(2) },
        CopyMessage::Parted { path: b"a/b".to_vec() },
        CopyMessage::BackedUp { path: b"a/old".to_vec() },
        CopyMessage::Receipt { statement: b"{}".to_vec(), reason: String::new() },
        CopyMessage::Receipt { statement: Vec::new(), reason: "no root".into() },
    ]
}

/// Decodes what an encoder has written, message by message.
fn decode(decoder: &mut Decoder, mut bytes: &[u8]) -> Vec<CopyMessage> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let mut reader = ByteReader(bytes);
        messages.push(decoder.decode(reader.bytes().unwrap()).unwrap());
        bytes = reader.rest();
    }
    messages
}

#[test]
fn every_message_has_the_bytes_of_this_version() {
    let mut encoder = Encoder::default();
    let mut bytes = |message: &CopyMessage| {
        let text = format!("{message:?}");
        let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_string();
        let mut out = Vec::new();
        encoder.encode(message, &mut out);
        (name, out)
    };
    farhaul_vectors::compare("copy", &all().iter().map(&mut bytes).collect::<Vec<_>>());
}

#[test]
fn messages_of_releases_are_read() {
    for (release, messages) in farhaul_vectors::of_releases("copy") {
        let mut decoder = Decoder::default();
        for (name, bytes) in messages {
            let read = format!("{:?}", decode(&mut decoder, &bytes));
            assert!(read.starts_with(&format!("[{name}")), "{release}: {name} is read as {read}");
        }
    }
}

#[test]
fn every_message_comes_back() {
    let messages = all();
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    for message in &messages {
        encoder.encode(message, &mut bytes);
    }
    assert_eq!(decode(&mut Decoder::default(), &bytes), messages);
}

#[test]
fn what_has_arrived_in_each_directory_comes_back() {
    let nvme = SpreadFigures { directory: "/nvme1".into(), files: 3, bytes: 1 << 40 };
    for spread in [vec![], vec![nvme.clone()], vec![nvme; 2]] {
        let bytes = encode_spread(&spread);
        assert_eq!(decode_spread(&bytes), Ok(spread));
        assert_eq!(decode_spread(&[&bytes[..], &[7]].concat()), Err(Malformed));
    }
}

#[test]
fn a_prefix_that_was_never_sent_is_refused() {
    let mut body = vec![1, 0, 9];
    put_bytes(&mut body, b"x");
    assert_eq!(Decoder::default().decode(&body), Err(Malformed));
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Decoder::default().decode(&bytes);
    }
}
