use farhaul_session::error::Code;
use proptest::prelude::*;

use super::*;

fn identity() -> Identity {
    let (mtime, ctime) = (Time::new(-1, 5), Time::new(1_700_000_000, 999_999_999));
    Identity { size: 1 << 40, mtime, ctime, inode: 77, device: 3 }
}

fn entry(path: &[u8], kind: Kind) -> Entry {
    let target = if kind == Kind::Symlink { b"../x".to_vec() } else { Vec::new() };
    Entry { path: path.to_vec(), kind, mode: 0o644, links: 2, target, identity: identity() }
}

fn failure() -> Failure {
    Failure::new(Code::NotFound, "no such file")
}

fn messages() -> Vec<(&'static str, Message)> {
    let range = Range { offset: u64::MAX, len: 1 << 20 };
    let all = vec![
        Message::Open { file: 1, path: b"run7/\xff".to_vec() },
        Message::Close { file: 1 },
        Message::Read { op: 300, file: 1, first: 2, ranges: vec![range, Range { offset: 0, len: 1 }] },
        Message::Advise { file: 1, ranges: vec![range] },
        Message::Stat { op: 1, path: Vec::new(), follow: true },
        Message::List { op: 2, path: b"/".to_vec(), depth: 1, room: 1 << 20 },
        Message::Find { op: 3, pattern: b"*.root".to_vec(), room: 1 << 20 },
        Message::More { op: 2, room: 1 << 20 },
        Message::Digest { op: 4, file: 1, range: Some(range), algorithm: Algorithm::Sha256 },
        Message::Digest { op: 4, file: 1, range: None, algorithm: Algorithm::Blake3 },
        Message::Cancel { op: 4 },
        Message::Opened { file: 1, identity: identity() },
        Message::NotOpened { file: 1, failure: failure() },
        Message::Failed { op: 300, failure: failure() },
        Message::Stated { op: 1, entry: entry(b"link", Kind::Symlink) },
        Message::Digested { op: 4, bytes: 1 << 20, digest: vec![9; 32] },
    ];
    all.into_iter().map(|message| (message.name(), message)).collect()
}

fn records() -> Vec<Record> {
    let mut all: Vec<_> = Kind::ALL.iter().map(|&kind| Record::Entry(entry(b"tree/file", kind))).collect();
    all.push(Record::Failed { path: b"tree/closed".to_vec(), failure: failure() });
    all.push(Record::Path(b"tree/close".to_vec()));
    all.push(Record::NotEntered(Vec::new()));
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
    let (mut bytes, mut writer) = (Vec::new(), Records::default());
    records().iter().for_each(|record| writer.put(&mut bytes, record));
    all.push(("records".to_string(), bytes));
    farhaul_vectors::compare("read", &all);
}

#[test]
fn every_message_comes_back() {
    for (_, message) in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let body = Reader(&bytes).bytes().unwrap();
        assert_eq!(Message::decode(body), Ok(message));
        assert_eq!(Message::decode(&[body, &[0]].concat()), Err(Malformed));
    }
}

#[test]
fn more_ranges_than_a_message_may_have_are_refused() {
    let mut bytes = Vec::new();
    put_numbers(&mut bytes, 72, &[1, 1, 0, RANGES_MAX as u64 + 1]);
    assert_eq!(Message::decode(&bytes), Err(Malformed));
    let ranges = vec![Range { offset: u64::MAX, len: u64::MAX }; RANGES_MAX];
    let message = Message::Read { op: u64::MAX, file: u64::MAX, first: u64::MAX, ranges };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert!(bytes.len() <= farhaul_session::messages::MESSAGE_MAX);
}

#[test]
fn records_come_back_however_they_are_cut() {
    let (mut bytes, mut writer) = (Vec::new(), Records::default());
    records().iter().for_each(|record| writer.put(&mut bytes, record));
    for cut in 1..bytes.len() {
        let (mut reader, mut found, mut held) = (Records::default(), Vec::new(), Vec::new());
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
        let _ = Message::decode(&bytes);
        let mut records = Records::default();
        let mut rest = &bytes[..];
        while let Ok(Some((_, taken))) = records.take(rest) {
            rest = &rest[taken..];
        }
    }
}
