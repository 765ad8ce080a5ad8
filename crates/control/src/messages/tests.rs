use farhaul_words::{Code, Policy};
use proptest::prelude::*;

use super::*;
use crate::commission::COMMISSION_MAX;

fn messages() -> Vec<(&'static str, ControlMessage)> {
    let within = PathPrefixes::new(["/in".into(), "/in 2/b".into()]).ok();
    let (way, path) = (ContentDirection::Write, b"in/\xff".to_vec());
    let errand =
        Errand { way, path, deletes: true, follows: false, looks_beside: false, writes_beside: true, within };
    let key = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".to_string();
    let rate = RateOptions { policy: Policy::Low, rate_bps: Some(2_000_000_000), rate_min_bps: None };
    let all = vec![
        ControlMessage::Grant { op: 1, key, errand, seconds: 600 },
        ControlMessage::Begin { op: 300, is_last: false, part: b"{\"copy\":".to_vec() },
        ControlMessage::Hold { number: 3, is_held: true },
        ControlMessage::Rate(rate),
        ControlMessage::Cancel,
        ControlMessage::Granted { op: 1, seconds: 600, token: HelloSecret([7; 32]) },
        ControlMessage::Refused {
            op: 300,
            failure: Failure::new(Code::GrantUsed, "the grant has been used"),
            hint: "ask again".into(),
        },
        ControlMessage::Event(b"{\"event\":\"resumed\"}".to_vec()),
        ControlMessage::Snapshot { hold: 3, json: b"{}".to_vec() },
        ControlMessage::Ended { op: 300, is_last: true, part: b"}".to_vec() },
        ControlMessage::Entries { op: 300, part: b"{\"manifest\":1".to_vec() },
    ];
    all.into_iter().map(|message| (message.name(), message)).collect()
}

#[test]
fn every_message_has_the_bytes_of_this_version() {
    let mut all = Vec::new();
    for (name, message) in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        all.push((name.to_string(), bytes));
    }
    farhaul_vectors::compare("control", &all);
}

#[test]
fn messages_of_releases_are_read() {
    for (release, messages) in farhaul_vectors::of_releases("control") {
        for (name, bytes) in messages {
            let read = ControlMessage::decode(ByteReader(&bytes).bytes().unwrap());
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
        assert_eq!(ControlMessage::decode(body), Ok(message));
        assert_eq!(ControlMessage::decode(&[body, &[0]].concat()), Err(Malformed));
    }
}

#[test]
fn what_is_too_long_or_unknown_is_refused() {
    let decode = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        ControlMessage::decode(&bytes).is_ok()
    };
    let grant = |way, more, key: &[u8], path: &[u8]| {
        decode(&|out| {
            put_numbers(out, 90, &[1, 600, way, more]);
            put_bytes(out, key);
            put_bytes(out, path);
        })
    };
    assert!(grant(0, 3, b"SHA256:x", &[b'p'; PATH_MAX]));
    assert!(!grant(2, 0, b"SHA256:x", b"p") && !grant(0, 4, b"SHA256:x", b"p"));
    assert!(!grant(0, 0, &[b'k'; KEY_MAX + 1], b"p") && !grant(0, 0, b"a\nb", b"p"));
    assert!(!grant(0, 0, b"k", &[b'p'; PATH_MAX + 1]) && !grant(0, 0, b"k", b"p\0"));
    let within = |directories: &[&[u8]]| {
        decode(&|out| {
            put_numbers(out, 90, &[1, 600, 0, WITHIN]);
            put_bytes(out, b"k");
            put_bytes(out, b"p");
            put_varint(out, directories.len() as u64);
            directories.iter().for_each(|directory| put_bytes(out, directory));
        })
    };
    assert!(within(&[]) && within(&[b"/in", b"/"]));
    assert!(!within(&[b"in"]) && !within(&[b"/in/.."]) && !within(&[b"/in", b""]) && !within(&[b"/i\0"]));
    let begin = |len| {
        decode(&|out| {
            put_numbers(out, 91, &[1, 1]);
            put_bytes(out, &vec![0; len]);
        })
    };
    assert!(begin(PART_MAX) && !begin(PART_MAX + 1));
    for numbers in [[4, 0, 0], [3, 0, 0], [0, 7_999, 0], [0, 10_000, 20_000]] {
        assert!(!decode(&|out| put_numbers(out, 93, &numbers)), "{numbers:?}");
    }
}

#[test]
fn a_document_has_so_many_bytes_at_most() {
    let mut parts = DocumentParts::default();
    assert_eq!(parts.take(false, &[1; 60], 100).unwrap(), None);
    assert_eq!(parts.take(true, &[2; 40], 100).unwrap().map(|whole| whole.len()), Some(100));
    assert_eq!(parts.take(false, &[1; 60], 100).unwrap(), None, "the next one");
    assert!(parts.take(true, &[2; 41], 100).is_err());
}

#[test]
fn a_document_without_end_is_refused() {
    let mut document = DocumentParts::default();
    let part = vec![b'x'; PART_MAX];
    let refused =
        (0..=COMMISSION_MAX / PART_MAX).find_map(|_| document.take(false, &part, COMMISSION_MAX).err());
    assert_eq!(document.len(), COMMISSION_MAX);
    let error = refused.expect("the last part is too much");
    assert_eq!(error.misbehaviour(), Some(farhaul_words::Misbehaviour::SenselessMessage));
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(message) = ControlMessage::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            let body = ByteReader(&again).bytes().unwrap();
            prop_assert_eq!(ControlMessage::decode(body), Ok(message));
        }
    }

    #[test]
    fn a_document_comes_back_from_its_parts(bytes in proptest::collection::vec(any::<u8>(), 0..5), times in 0usize..30_000) {
        let document = bytes.repeat(times);
        let mut taking = DocumentParts::default();
        let mut whole = None;
        for (is_last, part) in parts(&document) {
            prop_assert!(whole.is_none() && part.len() <= PART_MAX);
            whole = taking.take(is_last, &part, document.len()).unwrap();
        }
        prop_assert_eq!(whole, Some(document));
    }
}
