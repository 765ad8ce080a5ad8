//! The far end: a consultation answers with the findings of this host's doctor, and a test sends or drops content.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use farhaul_connect::EstablishedSession;
use farhaul_connect::hello::{HelloSecret, Refusal};
use farhaul_doctor::target::Role;
use farhaul_handover::Held as _;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_session::setup::Setup;
use farhaul_session::test_hooks::TestHooks;
use farhaul_words::{Code, Error, SessionReport};

use super::findings::{Consultation, PeerDiagnosis, clock_us};
use super::load::{LoadSigns, Mover, signs};
use super::messages::DiagnoseMessage;
use super::request::{DiagnoseRequest, Way};

/// The longest time of a consultation, with all its tests.
const CONSULT_MAX: Duration = Duration::from_secs(120);
/// The longest time of one test.
pub(crate) const LOAD_MAX: Duration = Duration::from_secs(15);

/// A daemon's one place for somebody who asks its doctor.
#[derive(Debug, Default)]
pub struct ConsultingRoom(Mutex<Option<Occupied>>);

#[derive(Debug)]
struct Occupied {
    ticket: HelloSecret,
    /// The number of the newest test, which is the only one that goes on.
    test: u64,
}

impl ConsultingRoom {
    fn enter(&self) -> Result<(Occupant<'_>, HelloSecret), Error> {
        let mut place = self.0.lock().in_any_case();
        if place.is_some() {
            let what = "somebody else is asking this daemon's doctor, which has one place";
            return Err(Error::new(Code::Busy, what).with_hint("try again in a minute"));
        }
        let ticket = HelloSecret::random()?;
        *place = Some(Occupied { ticket: ticket.clone(), test: 0 });
        Ok((Occupant(self), ticket))
    }

    /// Begins a test for the holder of a ticket. It ends the one before, which may not have noticed yet that its client is
    /// gone.
    fn test(&self, ticket: &HelloSecret) -> Result<Tested<'_>, Error> {
        match &mut *self.0.lock().in_any_case() {
            Some(one) if one.ticket == *ticket => {
                one.test += 1;
                Ok(Tested { room: self, number: one.test })
            }
            _ => Err(Error::new(Code::Forbidden, "a path is tested only while its consultation lasts")),
        }
    }
}

/// Leaves the room when dropped.
struct Occupant<'a>(&'a ConsultingRoom);

impl Drop for Occupant<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().in_any_case() = None;
    }
}

/// A test within a consultation.
struct Tested<'a> {
    room: &'a ConsultingRoom,
    number: u64,
}

impl Tested<'_> {
    /// Fails once the consultation is over or another test has begun.
    fn must_go_on(&self) -> Result<(), Error> {
        match &*self.room.0.lock().in_any_case() {
            Some(one) if one.test == self.number => Ok(()),
            _ => Err(Error::new(
                Code::Busy,
                "the next test of this path has begun, or its consultation is over",
            )),
        }
    }
}

/// How a served session has ended.
#[derive(Debug)]
pub struct DiagnoseOutcome {
    /// The session's report.
    pub report: SessionReport,
    /// Why it ended early, if it did.
    pub error: Option<Error>,
    /// True if it was a test of the path, and whether content went out from here.
    pub tested: Option<bool>,
}

/// Serves a consultation, or a test of the path. A daemon has a room for consultations; over ssh, nobody else comes.
pub fn serve(
    established: EstablishedSession,
    room: Option<&ConsultingRoom>,
    testing: TestHooks,
    handle: &Handle,
) -> DiagnoseOutcome {
    handle.begin();
    let served = contained(|| run(established, room, testing, handle)).flatten();
    let served = served.unwrap_or_else(|error| DiagnoseOutcome {
        report: SessionReport::default(),
        error: Some(error),
        tested: None,
    });
    handle.end(served.error.is_none(), served.error.as_ref());
    served
}

fn run(
    established: EstablishedSession,
    room: Option<&ConsultingRoom>,
    testing: TestHooks,
    handle: &Handle,
) -> Result<DiagnoseOutcome, Error> {
    let request = DiagnoseRequest::of(&established.opening).map_err(Refusal::into_error)?;
    let mut network = established.opening.network;
    network.testing = testing;
    let setup = established.session;
    match request {
        DiagnoseRequest::Consult { rate_bps, role } => {
            let mut dialogue = start(setup, network, ContentRole::Sender, handle)?;
            let entered = room.map(ConsultingRoom::enter).transpose();
            let result = entered.and_then(|entered| {
                let ticket = match &entered {
                    Some((_, ticket)) => ticket.clone(),
                    None => HelloSecret::random()?,
                };
                let role = role.as_deref().and_then(Role::of_name);
                consult(&mut dialogue, rate_bps, role, ticket)
            });
            Ok(end(dialogue, result, 0, None))
        }
        DiagnoseRequest::Load { way, ticket } => {
            let role = if way == Way::To { ContentRole::Receiver } else { ContentRole::Sender };
            let mut dialogue = start(setup, network, role, handle)?;
            let mut moved = 0;
            let result = room.map(|room| room.test(&ticket)).transpose().and_then(|tested| {
                let mover = Mover::start(&dialogue.request, role)?;
                let result = test(&mut dialogue, &mover, tested.as_ref());
                moved = mover.moved();
                result
            });
            Ok(end(dialogue, result, moved, Some(role == ContentRole::Sender)))
        }
    }
}

fn start(
    setup: Setup,
    network: NetworkOptions,
    role: ContentRole,
    handle: &Handle,
) -> Result<Dialogue, Error> {
    Ok(Session::start(setup, network, role, DeliveryOrder::Any, handle)?.1)
}

fn end(
    mut dialogue: Dialogue,
    result: Result<(), Error>,
    bytes: u64,
    tested: Option<bool>,
) -> DiagnoseOutcome {
    if let Err(error) = &result {
        dialogue.abort(error);
    }
    let figures = SessionFigures { ours: dialogue.figures(), theirs: Default::default() };
    let (report, error) = (dialogue.report(&figures, bytes), result.err());
    dialogue.close(error.as_ref());
    DiagnoseOutcome { report, error, tested }
}

/// Answers what is asked until the client wants no more or the time is over.
fn converse(
    dialogue: &mut Dialogue,
    time: Duration,
    must_go_on: impl Fn() -> Result<(), Error>,
    mut answer: impl FnMut(&Dialogue) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let until = Instant::now() + time;
    loop {
        must_go_on()?;
        let op = match dialogue.step()? {
            DialogueStep::Message(bytes) => match DiagnoseMessage::decode(bytes).map_err(senseless)? {
                DiagnoseMessage::Ask { op } => op,
                other => return Err(unexpected(other.name())),
            },
            DialogueStep::Finish(_) => {
                dialogue.finish();
                return Ok(());
            }
            DialogueStep::Idle if Instant::now() >= until => {
                let seconds = time.as_secs();
                return Err(Error::new(Code::Busy, format!("the doctor's time of {seconds} s is over")));
            }
            DialogueStep::Idle => continue,
        };
        let said = DiagnoseMessage::Answer { op, json: answer(dialogue)? };
        dialogue.request.send_encoded(|out| said.encode(out));
    }
}

fn consult(
    dialogue: &mut Dialogue,
    rate_bps: Option<u64>,
    role: Option<Role>,
    ticket: HelloSecret,
) -> Result<(), Error> {
    // Whoever asks again gets the same again, so that asking costs one diagnosis.
    let mut made: Option<PeerDiagnosis> = None;
    converse(
        dialogue,
        CONSULT_MAX,
        || Ok(()),
        |dialogue| {
            let diagnosis = made.get_or_insert_with(|| PeerDiagnosis::of_this_host(rate_bps, role)).clone();
            json(&Consultation {
                diagnosis,
                clock_us: clock_us(),
                your_address: dialogue.peer_ip(),
                ticket: ticket.clone(),
            })
        },
    )
}

fn test(dialogue: &mut Dialogue, mover: &Mover, tested: Option<&Tested<'_>>) -> Result<(), Error> {
    let must_go_on = || tested.map_or(Ok(()), Tested::must_go_on);
    converse(dialogue, LOAD_MAX, must_go_on, |dialogue| json::<LoadSigns>(&signs(dialogue, mover)))
}

fn json<T: serde::Serialize>(answer: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(answer).map_err(|_| Error::bug("an answer of the doctor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_has_one_consultation_and_one_test_at_a_time() {
        let room = ConsultingRoom::default();
        let (occupant, ticket) = room.enter().unwrap();
        assert!(room.enter().is_err_and(|error| error.code() == Code::Busy));
        let forged = room.test(&HelloSecret([0; 32]));
        assert!(forged.is_err_and(|error| error.code() == Code::Forbidden));
        let test = room.test(&ticket).unwrap();
        assert!(test.must_go_on().is_ok());
        let next = room.test(&ticket).unwrap();
        assert!(test.must_go_on().is_err() && next.must_go_on().is_ok());
        drop(occupant);
        assert!(next.must_go_on().is_err());
        assert!(room.test(&ticket).is_err_and(|error| error.code() == Code::Forbidden));
        let (_, other) = room.enter().unwrap();
        assert!(other != ticket);
    }
}
