//! Tests with a server that breaks the protocol.

use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::exchange::{LoadedBlock, Outlet};
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_words::Misbehaviour;

use super::super::messages::{PathKind, RecordCodec, StreamRecord};
use super::super::pieces::{AnswerBlock, AnswerPiece};
use super::*;

struct Server {
    dialogue: Dialogue,
    outlet: Outlet,
}

impl Server {
    /// The client's next message; `None` if it has no more.
    fn hear(&mut self) -> Option<ReadMessage> {
        loop {
            match self.dialogue.step() {
                Ok(DialogueStep::Message(bytes)) => return Some(ReadMessage::decode(bytes).unwrap()),
                Ok(DialogueStep::Idle) => {}
                Ok(DialogueStep::Finish(_)) | Err(_) => return None,
            }
        }
    }

    fn say(&self, message: &ReadMessage) {
        self.dialogue.request.send_encoded(|out| message.encode(out));
    }

    /// Answers the client's request to open a file.
    fn open(&mut self, size: u64) {
        let Some(ReadMessage::Open { file, .. }) = self.hear() else { panic!("the client must open a file") };
        self.say(&ReadMessage::Opened { file, identity: identity(size) });
    }

    /// Sends a block of these bytes as they are.
    fn put(&self, bytes: &[u8]) {
        let mut block = self.outlet.claim(|| false).unwrap();
        block.set_len(bytes.len());
        block.copy_from_slice(bytes);
        self.outlet.put(LoadedBlock::new(block, bytes.len(), 0), || false);
    }

    fn put_piece(&self, piece: AnswerPiece, bytes: &[u8]) {
        let mut pack = AnswerBlock::new(self.outlet.claim(|| false).unwrap());
        pack.space()[..bytes.len()].copy_from_slice(bytes);
        pack.push(piece);
        let (block, len, content) = pack.close();
        self.outlet.put(LoadedBlock::new(block, len, content), || false);
    }
}

fn identity(size: u64) -> FileIdentity {
    let time = farhaul_volume::FileTime::new(0, 0);
    FileIdentity { size, mtime: time, ctime: time, inode: 1, device: 1 }
}

/// A client whose server runs `script`, and then serves to the end.
fn with_server(script: impl FnOnce(&mut Server) + Send + 'static) -> Remote {
    let opening = ReadRequest::default().opening(NetworkOptions::default()).unwrap();
    let (near, far) = connect::local_pair(&opening, &own_features()).unwrap();
    let serving = std::thread::spawn(move || {
        let (options, handle) = (far.opening.network, Handle::new());
        let (_session, dialogue) =
            Session::start(far.session, options, ContentRole::Sender, DeliveryOrder::Any, &handle).unwrap();
        let outlet = Outlet::new(dialogue.request.clone());
        let mut server = Server { dialogue, outlet };
        script(&mut server);
        while server.hear().is_some() {}
        server.dialogue.finish();
        server.dialogue.close(None);
    });
    let (link, thread) = begin(near).unwrap();
    Remote { link, base: Vec::new(), thread: Some(thread), serving: Some(serving), keys: None }
}

/// The misbehaviour that the client finds when it reads a file of a server that answers in this way.
fn found_by_a_read(answer: impl FnOnce(&Server, u64) + Send + 'static) -> Option<Misbehaviour> {
    let remote = with_server(|server| {
        server.open(1000);
        let Some(ReadMessage::Read { op, .. }) = server.hear() else { panic!("it reads") };
        answer(server, op);
    });
    let file = remote.file(b"file").unwrap();
    assert!(file.read_at(0, 100).is_err());
    drop(file);
    remote.finish().err().and_then(|error| error.misbehaviour())
}

/// The misbehaviour that the client finds in a list that consists of these bytes.
fn found_in_a_list(bytes: &'static [u8]) -> Option<Misbehaviour> {
    let remote = with_server(move |server| {
        let Some(ReadMessage::List { op, .. }) = server.hear() else { panic!("it lists") };
        server.put_piece(AnswerPiece { op, range: 0, at: 0, len: bytes.len() as u64, is_last: true }, bytes);
    });
    let mut list = remote.list(b"", Depth::One).unwrap();
    let error = list.find_map(Result::err);
    assert!(list.next().is_none());
    drop(list);
    // The list is lost, but the session goes on.
    assert!(remote.finish().is_ok());
    error.and_then(|error| error.misbehaviour())
}

#[test]
fn a_block_whose_end_makes_no_sense_ends_the_session() {
    for bytes in [&b""[..], b"abc", b"\xff\xff\xff\xff", b"x\x00\x00\x00\x00\x01\x00\x00\x00"] {
        let found = found_by_a_read(|server, _| server.put(bytes));
        assert_eq!(found, Some(Misbehaviour::SenselessPieces), "{bytes:?}");
    }
}

#[test]
fn what_was_never_asked_for_ends_the_session() {
    let unasked = Some(Misbehaviour::UnaskedAnswer);
    let piece = |op| AnswerPiece { op, range: 0, at: 0, len: 1, is_last: true };
    assert_eq!(found_by_a_read(move |server, op| server.put_piece(piece(op + 1), b"x")), unasked);
    assert_eq!(
        found_by_a_read(move |server, op| server.put_piece(AnswerPiece { at: 100, ..piece(op) }, b"x")),
        unasked
    );
    let messages: [fn(u64) -> ReadMessage; 6] = [
        |op| ReadMessage::Digested { op, bytes: 1, digest: vec![0; 32] },
        |op| ReadMessage::Digested { op: op + 1, bytes: 1, digest: vec![0; 32] },
        |op| ReadMessage::Failed { op: op + 1, failure: Failure::new(Code::NotFound, "") },
        |_| ReadMessage::Opened { file: 0, identity: identity(1) },
        |_| ReadMessage::NotOpened { file: 7, failure: Failure::new(Code::NotFound, "") },
        |op| {
            let entry = ListEntry {
                path: Vec::new(),
                kind: PathKind::File,
                mode: 0,
                links: 1,
                target: Vec::new(),
                identity: identity(1),
            };
            ReadMessage::Stated { op, entry }
        },
    ];
    for message in messages {
        assert_eq!(found_by_a_read(move |server, op| server.say(&message(op))), unasked, "{:?}", message(0));
    }
}

#[test]
fn what_a_client_says_is_no_answer() {
    let found = found_by_a_read(|server, op| server.say(&ReadMessage::Cancel { op }));
    assert_eq!(found, Some(Misbehaviour::UnexpectedMessage));
}

#[test]
fn a_list_of_what_is_no_record_is_an_error() {
    for bytes in [&b"\x01\x09"[..], b"\x02", b"\x03\x00\x05\x00", b"\xff\xff\xff\xff\x7f", b"\x01"] {
        assert_eq!(found_in_a_list(bytes), Some(Misbehaviour::SenselessRecords), "{bytes:?}");
    }
    let mut path = Vec::new();
    RecordCodec::default().put(&mut path, &StreamRecord::Path(b"found".to_vec()));
    assert_eq!(
        found_in_a_list(path.leak()),
        Some(Misbehaviour::SenselessRecords),
        "a path where entries are asked for"
    );
}

#[test]
fn what_comes_of_an_operation_that_was_cancelled_is_passed_over() {
    let remote = with_server(|server| {
        server.open(1000);
        let Some(ReadMessage::Read { op, .. }) = server.hear() else { panic!("it reads") };
        assert_eq!(server.hear(), Some(ReadMessage::Cancel { op }));
        server.put_piece(AnswerPiece { op, range: 0, at: 0, len: 1, is_last: true }, b"x");
        server.say(&ReadMessage::Failed { op, failure: Failure::new(Code::NotFound, "") });
        let Some(ReadMessage::Stat { op, .. }) = server.hear() else { panic!("it goes on") };
        server.say(&ReadMessage::Failed { op, failure: Failure::new(Code::NotFound, "gone") });
    });
    let file = remote.file(b"file").unwrap();
    let mut queue = file.queue();
    queue.submit(super::super::messages::FileRange { offset: 0, len: 10 }).unwrap();
    drop(queue);
    assert!(remote.stat(b"").is_err_and(|error| error.code() == Code::NotFound));
    drop(file);
    remote.finish().unwrap();
}
