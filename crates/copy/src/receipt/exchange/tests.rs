//! Tests both ends' statements without a session, and every change that may be made to them afterwards.

use farhaul_connect::{Identity, PublicKey, keygen};
use farhaul_words::Code;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::manifest::{EntryFate, ManifestRecord, RecordKind};
use crate::options::TransferOptions;

/// Two ends with keys of their own.
struct Ends {
    sender: Identity,
    receiver: Identity,
    stranger: Identity,
}

impl Ends {
    fn new() -> Ends {
        let folder = tempfile::tempdir().unwrap();
        let identity = |name: &str| {
            keygen(&folder.path().join(name), "").unwrap();
            Identity::load(&folder.path().join(name)).unwrap()
        };
        Ends { sender: identity("a"), receiver: identity("b"), stranger: identity("c") }
    }

    fn keys(own: &Identity, peer: &Identity) -> SessionKeys {
        SessionKeys { own: own.clone(), peer: peer.public() }
    }

    fn of(&self, part: StatementSide) -> ReceiptExchange {
        let keys = match part {
            StatementSide::Sent => Ends::keys(&self.sender, &self.receiver),
            StatementSide::Received => Ends::keys(&self.receiver, &self.sender),
        };
        ReceiptExchange::new(&request(), Some(&keys), part).unwrap()
    }

    fn trusted(&self) -> [PublicKey; 2] {
        [self.sender.public(), self.receiver.public()]
    }

    /// The receipt of these two ends.
    fn receipt(&self) -> Receipt {
        let (sender, receiver) = (self.of(StatementSide::Sent), self.of(StatementSide::Received));
        let (statement, _) = said(&receiver, &tally(&[b"a", b"b"]));
        sender.hear(&statement, "", Some(&tally(&[b"b", b"a"]))).unwrap();
        let (statement, _) = said(&sender, &tally(&[b"b", b"a"]));
        receiver.hear(&statement, "", Some(&tally(&[b"a", b"b"]))).unwrap();
        assert_eq!(sender.receipt(), receiver.receipt());
        sender.receipt().unwrap()
    }
}

fn request() -> CopyRequest {
    let mut options = TransferOptions::default();
    options.integrity.receipt = Some("0123456789abcdef".repeat(2));
    let paths = vec!["/in/run7 \u{fc}\"\\\u{7f}\n".into()];
    CopyRequest::new(CopyDirection::Push, paths, options.checked().unwrap())
}

fn tally(paths: &[&[u8]]) -> ManifestTally {
    let mut tally = ManifestTally::default();
    for path in paths {
        let kind = RecordKind::File { size: 7 };
        tally.add(&ManifestRecord {
            kind,
            digest: Some([1; 32]),
            ..ManifestRecord::of_path(path, EntryFate::Sent)
        });
    }
    tally
}

fn said(end: &ReceiptExchange, tally: &ManifestTally) -> (Vec<u8>, String) {
    match end.say(Some(tally), 0) {
        CopyMessage::Receipt { statement, reason } => (statement, reason),
        other => panic!("{other:?}"),
    }
}

fn read(value: &Value) -> Result<Receipt, Error> {
    Receipt::parse(&serde_json::to_vec(value).unwrap())
}

/// Checks a document; an error comes as its code and text.
fn judged(value: &Value, trusted: &[PublicKey]) -> Result<(), (Code, String)> {
    let checked = read(value).and_then(|receipt| receipt.check(trusted, None));
    checked.map(drop).map_err(|error| (error.code(), error.to_string()))
}

#[test]
fn a_receipt_is_checked_by_the_keys_of_its_ends() {
    let ends = Ends::new();
    let receipt = ends.receipt();
    assert_eq!(Receipt::parse(&receipt.to_json()).unwrap(), receipt);
    let root = receipt.received.statement.tree_root.clone();
    assert_eq!(root, shown_root(&tally(&[b"a", b"b"]).root()));
    let checked = receipt.check(&ends.trusted(), Some(&root)).unwrap();
    assert_eq!(checked.sender, (ends.sender.public(), true));
    let checked = receipt.check(&[ends.receiver.public()], None).unwrap();
    assert_eq!((checked.sender.1, checked.receiver.1), (false, true));
    let refused = |trusted: &[PublicKey], root: Option<&str>| {
        let error = receipt.check(trusted, root).unwrap_err();
        (error.code(), error.to_string())
    };
    let (code, what) = refused(&[ends.stranger.public()], None);
    assert!(code == Code::ReceiptWrong && what.contains("by other keys"), "{what}");
    assert!(
        what.contains(&ends.stranger.fingerprint()) && what.contains(&ends.sender.fingerprint()),
        "{what}"
    );
    let (code, what) = refused(&ends.trusted(), Some(&"0".repeat(64)));
    assert!(code == Code::ReceiptWrong && what.contains("not for this manifest"), "{what}");
    assert_eq!(refused(&[], None).0, Code::Misuse);
}

#[test]
fn what_is_signed_is_the_json_with_sorted_keys_behind_the_role() {
    let receipt = Ends::new().receipt();
    for (signed, context) in
        [(&receipt.sent, "farhaul receipt v1 sent"), (&receipt.received, "farhaul receipt v1 received")]
    {
        // `serde_json` keeps its maps sorted.
        let sorted = serde_json::to_string(&serde_json::to_value(&signed.statement).unwrap()).unwrap();
        assert_eq!(signed.statement.message(), format!("{context}\n{sorted}").into_bytes());
    }
}

#[test]
fn whatever_is_changed_is_found() {
    let ends = Ends::new();
    let whole = serde_json::to_value(ends.receipt()).unwrap();
    judged(&whole, &ends.trusted()).unwrap();
    let mut tried = 0;
    for part in ["sent", "received"] {
        let fields: Vec<_> = whole[part]["statement"].as_object().unwrap().keys().cloned().collect();
        for field in &fields {
            let old = &whole[part]["statement"][field];
            let other_key = json!(ends.stranger.public().line());
            let others = match old {
                Value::Number(number) => {
                    vec![json!(number.as_u64().unwrap() + 1), json!(0.5), json!("1"), Value::Null]
                }
                Value::String(text) => vec![
                    json!(format!("{text} ")),
                    json!(""),
                    json!(1),
                    Value::Null,
                    other_key,
                    json!("received"),
                    json!("sent"),
                    json!("pull"),
                    json!("file"),
                ],
                Value::Array(_) => vec![json!([]), json!(["/in/other"]), json!("/in/run7")],
                other => panic!("{field}: {other}"),
            };
            for other in others.into_iter().filter(|other| other != old) {
                let mut changed = whole.clone();
                changed[part]["statement"][field] = other.clone();
                let (code, _) =
                    judged(&changed, &ends.trusted()).expect_err(&format!("{part}.{field}: {other}"));
                assert!(matches!(code, Code::ReceiptWrong | Code::BadReceipt), "{field}: {code}");
                tried += 1;
            }
            let mut without = whole.clone();
            without[part]["statement"].as_object_mut().unwrap().remove(field);
            assert!(judged(&without, &ends.trusted()).is_err(), "{part} without {field}");
        }
        let mut changed = whole.clone();
        changed[part]["statement"]["more"] = json!(1);
        assert!(judged(&changed, &ends.trusted()).is_err_and(|(code, _)| code == Code::BadReceipt));
        for signature in ["", "AAAA", "%", "A"] {
            let mut changed = whole.clone();
            changed[part]["signature"] = json!(signature);
            let (code, what) = judged(&changed, &ends.trusted()).unwrap_err();
            assert!(code == Code::ReceiptWrong && what.contains("signature of the"), "{what}");
        }
    }
    assert!(tried > 100, "{tried}");
    for (field, value) in
        [("receipt", json!(2)), ("receipt", json!("1")), ("more", json!(1)), ("sent", Value::Null)]
    {
        let mut changed = whole.clone();
        changed[field] = value;
        assert!(
            judged(&changed, &ends.trusted()).is_err_and(|(code, _)| code == Code::BadReceipt),
            "{field}"
        );
    }
}

#[test]
fn a_statement_in_the_place_of_the_other_one_is_found() {
    let ends = Ends::new();
    let whole = serde_json::to_value(ends.receipt()).unwrap();
    for (from, to) in [("sent", "received"), ("received", "sent")] {
        let mut replayed = whole.clone();
        replayed[to] = whole[from].clone();
        let (code, what) = judged(&replayed, &ends.trusted()).unwrap_err();
        assert!(code == Code::ReceiptWrong && what.contains("in the place of"), "{what}");
        // The statement is replayed with its role changed; it was signed for the other role.
        replayed[to]["statement"]["role"] = json!(to);
        let (code, what) = judged(&replayed, &ends.trusted()).unwrap_err();
        assert!(code == Code::ReceiptWrong && what.contains("signature"), "{what}");
    }
    // The right key has signed the same bytes, but for the other role.
    let signed = ends.receipt().received;
    let message = String::from_utf8(signed.statement.message()).unwrap();
    let other = message.replacen(StatementSide::Received.context(), StatementSide::Sent.context(), 1);
    let signature = ends.receiver.sign(other.as_bytes()).unwrap();
    assert!(!ends.receiver.public().has_signed(signed.statement.message().as_slice(), &signature));
    // Statements of two copies do not make one receipt.
    let mut mixed = whole.clone();
    let mut another = ends.of(StatementSide::Sent);
    another.transfer = "f".repeat(32);
    let (statement, _) = said(&another, &tally(&[b"a", b"b"]));
    mixed["sent"] = serde_json::from_slice(&statement).unwrap();
    let (code, what) = judged(&mixed, &ends.trusted()).unwrap_err();
    assert!(code == Code::ReceiptWrong && what.contains("'transfer' differs"), "{what}");
}

#[test]
fn the_far_end_has_to_fit() {
    let ends = Ends::new();
    let found = |statement: &[u8], tally: &ManifestTally| {
        Misbehaviour::of(&ends.of(StatementSide::Sent).hear(statement, "", Some(tally)))
    };
    let (good, ours) = (said(&ends.of(StatementSide::Received), &tally(&[b"a"])).0, tally(&[b"a"]));
    assert_eq!(found(&good, &ours), None);
    assert_eq!(found(&good, &tally(&[b"b"])), Some(Misbehaviour::RootDiffers));
    assert_eq!(found(&good, &tally(&[b"a", b"b"])), Some(Misbehaviour::RootDiffers));
    // The peer signs in this end's role, has another key, or means another copy.
    let unfit = Some(Misbehaviour::ReceiptUnfit);
    assert_eq!(found(&said(&ends.of(StatementSide::Sent), &ours).0, &ours), unfit);
    let by =
        |keys: SessionKeys| ReceiptExchange::new(&request(), Some(&keys), StatementSide::Received).unwrap();
    assert_eq!(found(&said(&by(Ends::keys(&ends.stranger, &ends.sender)), &ours).0, &ours), unfit);
    assert_eq!(found(&said(&by(Ends::keys(&ends.receiver, &ends.stranger)), &ours).0, &ours), unfit);
    let mut another = ends.of(StatementSide::Received);
    another.transfer = "f".repeat(32);
    assert_eq!(found(&said(&another, &ours).0, &ours), unfit);
    let mut told = ours.clone();
    told.told = 1;
    assert_eq!(
        found(&said(&ends.of(StatementSide::Received), &told).0, &ours),
        unfit,
        "a receiver has computed all"
    );
    for statement in [&b"x"[..], b"{}", &good[..good.len() - 1]] {
        assert_eq!(found(statement, &ours), unfit);
    }
    let sender = ends.of(StatementSide::Sent);
    sender.hear(&good, "", Some(&ours)).unwrap();
    assert_eq!(Misbehaviour::of(&sender.hear(&good, "", Some(&ours))), unfit, "twice");
}

#[test]
fn an_end_that_cannot_sign_says_why() {
    let ends = Ends::new();
    let (sender, receiver) = (ends.of(StatementSide::Sent), ends.of(StatementSide::Received));
    assert!(receiver.receipt().unwrap_err().contains("has not come to its end"));
    let CopyMessage::Receipt { statement, reason } = receiver.say(None, 0) else { panic!("a receipt") };
    assert!(statement.is_empty() && receiver.has_said());
    sender.hear(&statement, &reason, Some(&tally(&[]))).unwrap();
    said(&sender, &tally(&[]));
    let why = sender.receipt().unwrap_err();
    assert!(why.contains("the far end has signed nothing: the root"), "{why}");
}

#[test]
fn many_paths_do_not_make_a_statement_too_long() {
    let mut request = request();
    request.paths =
        (0..4096u32).map(|number| format!("/{number}/{}", "\"".repeat(200)).into_bytes()).collect();
    let ends = Ends::new();
    let keys = Ends::keys(&ends.sender, &ends.receiver);
    let exchange = ReceiptExchange::new(&request, Some(&keys), StatementSide::Sent).unwrap();
    let (statement, _) = said(&exchange, &tally(&[]));
    assert!(statement.len() < 48 << 10, "{}", statement.len());
    let signed: SignedStatement = serde_json::from_slice(&statement).unwrap();
    assert!(signed.statement.paths_in_all == 4096 && signed.statement.paths.len() > 50);
    assert!(ReceiptExchange::new(&request, None, StatementSide::Sent).is_none(), "without keys");
}

proptest! {
    #[test]
    fn a_part_of_a_document_is_none(cut in 0usize..2000) {
        let text = b"{\"receipt\":1,\"received\":{\"signature\":\"\",\"statement\":{}},\"sent\":{}}";
        let error = Receipt::parse(&text[..cut.min(text.len())]).unwrap_err();
        prop_assert_eq!(error.code(), Code::BadReceipt);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Receipt::parse(&bytes);
    }
}

#[test]
fn a_document_that_says_a_thing_twice_is_none() {
    let ends = Ends::new();
    let text = String::from_utf8(ends.receipt().to_json()).unwrap();
    for (once, twice) in [
        ("\"files\": 2", "\"files\": 2, \"files\": 3"),
        ("\"receipt\": 1", "\"receipt\": 1, \"receipt\": 1"),
        ("\"sent\": {", "\"sent\": {}, \"sent\": {"),
    ] {
        assert!(text.contains(once), "{text}");
        let error = Receipt::parse(text.replacen(once, twice, 1).as_bytes()).unwrap_err();
        assert_eq!(error.code(), Code::BadReceipt, "{once}");
    }
}

#[test]
fn a_document_that_is_cut_off_says_so() {
    let text = Ends::new().receipt().to_json();
    for cut in [0, 1, 10, text.len() / 2, text.len() - 3] {
        let error = Receipt::parse(&text[..cut]).unwrap_err();
        assert!(error.code() == Code::BadReceipt && error.to_string().contains("ends too early"), "{error}");
    }
}
