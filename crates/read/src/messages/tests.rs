use farhaul_words::Code;
use proptest::prelude::*;

use super::*;

fn identity() -> FileIdentity {
    let (mtime, ctime) = (FileTime::new(-1, 5), FileTime::new(1_700_000_000, 999_999_999));
    FileIdentity { size: 1 << 40, mtime, ctime, inode: 77, device: 3 }
}

fn entry(path: &[u8], kind: PathKind) -> ListEntry {
    let target = if kind == PathKind::Symlink { b"../x".to_vec() } else { Vec::new() };
    ListEntry { path: path.to_vec(), kind, mode: 0o644, links: 2, target, identity: identity() }
}

fn failure() -> Failure {
    Failure::new(Code::NotFound, "no such file")
}

fn messages() -> Vec<(&'static str, ReadMessage)> {
    let range = FileRange { offset: u64::MAX, len: 1 << 20 };
    let all = vec![
        ReadMessage::Open { file: 1, path: b"run7/\xff".to_vec() },
        ReadMessage::Close { file: 1 },
        ReadMessage::Read {
            op: 300,
            file: 1,
            first: 2,
            ranges: vec![range, FileRange { offset: 0, len: 1 }],
        },
        ReadMessage::Advise { file: 1, ranges: vec![range] },
        ReadMessage::Stat { op: 1, path: Vec::new(), follow: true },
        ReadMessage::List { op: 2, path: b"/".to_vec(), depth: 1, room: 1 << 20 },
        ReadMessage::Find { op: 3, pattern: b"*.root".to_vec(), room: 1 << 20 },
        ReadMessage::More { op: 2, room: 1 << 20 },
        ReadMessage::Digest { op: 4, file: 1, range: Some(range), algorithm: Algorithm::Sha256 },
        ReadMessage::Digest { op: 4, file: 1, range: None, algorithm: Algorithm::Blake3 },
        ReadMessage::Cancel { op: 4 },
        ReadMessage::Opened { file: 1, identity: identity() },
        ReadMessage::NotOpened { file: 1, failure: failure() },
        ReadMessage::Failed { op: 300, failure: failure() },
        ReadMessage::Stated { op: 1, entry: entry(b"link", PathKind::Symlink) },
        ReadMessage::Digested { op: 4, bytes: 1 << 20, digest: vec![9; 32] },
    ];
    all.into_iter().map(|message| (message.name(), message)).collect()
}

fn records() -> Vec<StreamRecord> {
    let mut all: Vec<_> =
        PathKind::ALL.iter().map(|&kind| StreamRecord::Entry(entry(b"tree/file", kind))).collect();
    all.push(StreamRecord::Failed { path: b"tree/closed".to_vec(), failure: failure() });
    all.push(StreamRecord::Path(b"tree/close".to_vec()));
    all.push(StreamRecord::NotEntered(Vec::new()));
    all
}

#[test]
fn every_message_has_the_bytes_of_this_version() {
    let mut all = Vec::new();
    for (name, message) in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        all.push((name.to_string(), bytes));
    }
    let (mut bytes, mut writer) = (Vec::new(), RecordCodec::default());
    records().iter().for_each(|record| writer.put(&mut bytes, record));
    all.push(("records".to_string(), bytes));
    farhaul_vectors::compare("read", &all);
}

#[test]
fn messages_of_releases_are_read() {
    for (release, messages) in farhaul_vectors::of_releases("read") {
        for (name, bytes) in messages {
            if name == "records" {
                let (mut reader, mut rest) = (RecordCodec::default(), &bytes[..]);
                while let Some((_, taken)) = reader.take(rest).unwrap() {
                    rest = &rest[taken..];
                }
                assert_eq!(rest, b"", "{release}");
                continue;
            }
            let read = ReadMessage::decode(ByteReader(&bytes).bytes().unwrap());
            assert_eq!(read.map(|message| message.name()), Ok(name.as_str()), "{release}");
        }
    }
}

#[test]
fn every_message_comes_back() {
    for (_, message) in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let body = ByteReader(&bytes).bytes().unwrap();
        assert_eq!(ReadMessage::decode(body), Ok(message));
        assert_eq!(ReadMessage::decode(&[body, &[0]].concat()), Err(Malformed));
    }
}

#[test]
fn more_ranges_than_a_message_may_have_are_refused() {
    let mut bytes = Vec::new();
    put_numbers(&mut bytes, 72, &[1, 1, 0, RANGES_MAX as u64 + 1]);
    assert_eq!(ReadMessage::decode(&bytes), Err(Malformed));
    let ranges = vec![FileRange { offset: u64::MAX, len: u64::MAX }; RANGES_MAX];
    let message = ReadMessage::Read { op: u64::MAX, file: u64::MAX, first: u64::MAX, ranges };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert!(bytes.len() <= farhaul_session::messages::MESSAGE_MAX);
}

#[test]
fn records_come_back_however_they_are_cut() {
    let (mut bytes, mut writer) = (Vec::new(), RecordCodec::default());
    records().iter().for_each(|record| writer.put(&mut bytes, record));
    for cut in 1..bytes.len() {
        let (mut reader, mut found, mut held) = (RecordCodec::default(), Vec::new(), Vec::new());
        for part in [&bytes[..cut], &bytes[cut..]] {
            held.extend_from_slice(part);
            while let Some((record, taken)) = reader.take(&held).unwrap() {
                found.push(record);
                held.drain(..taken);
            }
        }
        assert_eq!(found, records());
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = ReadMessage::decode(&bytes);
        let mut records = RecordCodec::default();
        let mut rest = &bytes[..];
        while let Ok(Some((_, taken))) = records.take(rest) {
            rest = &rest[taken..];
        }
    }
}

#[test]
fn the_words_of_kinds_do_not_change() {
    let words = ["file", "directory", "symlink", "fifo", "socket", "char-device", "block-device"];
    assert_eq!(PathKind::ALL.map(PathKind::name), words);
}
