//! Both ends of a consultation and of tests, within this process.

use std::net::Ipv4Addr;

use farhaul_connect::features::Features;
use farhaul_connect::hello::HelloSecret;
use farhaul_connect::{EstablishedSession, local_pair};
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::put_message;
use farhaul_session::options::NetworkOptions;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_session::test_hooks::TestHooks;
use farhaul_words::{Code, Error};

use super::findings::Consultation;
use super::load::{LoadSigns, Mover};
use super::messages::DiagnoseMessage;
use super::request::{DiagnoseRequest, Way};
use super::serve::{ConsultingRoom, DiagnoseOutcome, serve};

/// Serves one request in a thread while `client` talks with it.
fn with_server<T>(
    request: &DiagnoseRequest,
    room: Option<&ConsultingRoom>,
    client: impl FnOnce(Dialogue) -> T,
) -> (T, DiagnoseOutcome) {
    let opening = request.opening(NetworkOptions::default()).unwrap();
    let (near, far) = local_pair(&opening, &Features::default()).unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || serve(far, room, TestHooks::default(), &Handle::new()));
        let EstablishedSession { session, opening, .. } = near;
        let role = match request {
            DiagnoseRequest::Load { way: Way::To, .. } => ContentRole::Sender,
            _ => ContentRole::Receiver,
        };
        let started = Session::start(session, opening.network, role, DeliveryOrder::Any, &Handle::new());
        let said = client(started.unwrap().1);
        (said, served.join().unwrap())
    })
}

fn ask(dialogue: &mut Dialogue, op: u64) -> Result<Vec<u8>, Error> {
    let message = DiagnoseMessage::Ask { op };
    dialogue.request.send_encoded(|out| message.encode(out));
    loop {
        match dialogue.step()? {
            DialogueStep::Message(bytes) => match DiagnoseMessage::decode(bytes).unwrap() {
                DiagnoseMessage::Answer { op: answered, json } => {
                    assert_eq!(answered, op);
                    return Ok(json);
                }
                other => panic!("{other:?}"),
            },
            DialogueStep::Finish(_) => panic!("it has finished"),
            DialogueStep::Idle => {}
        }
    }
}

fn finish(mut dialogue: Dialogue) {
    dialogue.say_finished(Vec::new());
    while !matches!(dialogue.step_after_finish(), Ok(DialogueStep::Finish(_)) | Err(_)) {}
    dialogue.close(None);
}

fn consult() -> DiagnoseRequest {
    DiagnoseRequest::Consult { rate_bps: Some(10_000_000_000), role: Some("dtn".into()) }
}

#[test]
fn a_consultation_says_the_same_as_often_as_it_is_asked() {
    let ((), served) = with_server(&consult(), None, |mut dialogue| {
        let said: Vec<Consultation> =
            (1..3).map(|op| serde_json::from_slice(&ask(&mut dialogue, op).unwrap()).unwrap()).collect();
        assert_eq!(said[0].diagnosis, said[1].diagnosis);
        assert_eq!(said[0].diagnosis.rate_bps, 10_000_000_000);
        assert!(said[0].clock_us <= said[1].clock_us);
        assert!(said[0].your_address.is_none_or(|address| address == Ipv4Addr::LOCALHOST));
        finish(dialogue);
    });
    assert!(served.error.is_none() && served.tested.is_none(), "{served:?}");
}

#[test]
fn each_way_is_loaded_and_each_end_says_what_it_sees() {
    for (way, sends) in [(Way::To, false), (Way::From, true)] {
        let request = DiagnoseRequest::Load { way, ticket: HelloSecret([1; 32]) };
        let (signs, served) = with_server(&request, None, |mut dialogue| {
            let role = if sends { ContentRole::Receiver } else { ContentRole::Sender };
            let mover = Mover::start(&dialogue.request, role).unwrap();
            let mut op = 0;
            let theirs = loop {
                op += 1;
                let theirs: LoadSigns = serde_json::from_slice(&ask(&mut dialogue, op).unwrap()).unwrap();
                let arrived = if sends { mover.moved() } else { theirs.content_bytes };
                if arrived > 4 << 20 {
                    break theirs;
                }
            };
            drop(mover);
            finish(dialogue);
            theirs
        });
        assert!(served.error.is_none(), "{served:?}");
        assert_eq!(served.tested, Some(sends));
        assert_eq!(signs.content_bytes > 0, !sends);
    }
}

#[test]
fn a_test_needs_a_consultation_at_a_daemon() {
    let room = ConsultingRoom::default();
    let request = DiagnoseRequest::Load { way: Way::From, ticket: HelloSecret([9; 32]) };
    let (refused, served) = with_server(&request, Some(&room), |mut dialogue| ask(&mut dialogue, 1));
    assert!(refused.is_err());
    assert_eq!(served.error.map(|error| error.code()), Some(Code::Forbidden));
    assert_eq!(served.report.bytes, 0);
}

#[test]
fn a_second_consultation_waits_for_the_first_to_end() {
    let room = ConsultingRoom::default();
    let ((), served) = with_server(&consult(), Some(&room), |mut dialogue| {
        ask(&mut dialogue, 1).unwrap();
        let (refused, second) = with_server(&consult(), Some(&room), |mut other| ask(&mut other, 1));
        assert!(refused.is_err());
        assert_eq!(second.error.map(|error| error.code()), Some(Code::Busy));
        finish(dialogue);
    });
    assert!(served.error.is_none());
    let ((), served) = with_server(&consult(), Some(&room), |mut dialogue| {
        ask(&mut dialogue, 1).unwrap();
        finish(dialogue);
    });
    assert!(served.error.is_none(), "the place is free again");
}

#[test]
fn an_answer_from_a_client_breaks_the_protocol() {
    let (_, served) = with_server(&consult(), None, |mut dialogue| {
        let answer = DiagnoseMessage::Answer { op: 1, json: b"{}".to_vec() };
        dialogue.request.send_encoded(|out| answer.encode(out));
        while dialogue.step().is_ok() {}
    });
    assert!(served.error.is_some_and(|error| error.misbehaviour().is_some()));
    let (_, served) = with_server(&consult(), None, |mut dialogue| {
        dialogue.request.send_encoded(|out| put_message(out, |out| out.push(255)));
        while dialogue.step().is_ok() {}
    });
    assert!(served.error.is_some_and(|error| error.misbehaviour().is_some()));
}
