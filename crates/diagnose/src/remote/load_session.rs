//! One test of the path, as the client sees it.

use std::time::{Duration, Instant};

use farhaul_connect::hello::HelloSecret;
use farhaul_copy::Location;
use farhaul_session::content_role::ContentRole;
use farhaul_session::handle::Handle;
use farhaul_session::messages::{EndFigures, senseless, unexpected};
use farhaul_session::options::{NetworkOptions, RateOptions};
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep};
use farhaul_words::{Error, PathSigns, SessionReport};

use super::open;
use crate::load::{LoadSigns, Mover, signs};
use crate::messages::DiagnoseMessage;
use crate::request::{DiagnoseRequest, Way};

/// How often a test is looked at while it runs.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// What both ends of a test see.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BothSigns {
    pub(super) sender: LoadSigns,
    pub(super) receiver: LoadSigns,
}

/// How the packets of a test travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadCarrier {
    /// As those of any transfer.
    Usual,
    UdpOnly,
    WithoutUdp,
}

/// A running test.
pub(super) struct LoadSession<'a> {
    way: Way,
    caller: &'a Handle,
    handle: Handle,
    dialogue: Dialogue,
    mover: Mover,
    asked: u64,
    answered: u64,
    /// The newest answer.
    answer: LoadSigns,
    seen: Vec<PathSigns>,
}

impl<'a> LoadSession<'a> {
    pub(super) fn start(
        caller: &'a Handle,
        location: &Location,
        (way, ticket): (Way, &HelloSecret),
        carrier: LoadCarrier,
        rate: RateOptions,
    ) -> Result<LoadSession<'a>, Error> {
        let network = NetworkOptions {
            policy: rate.policy,
            rate_bps: rate.rate_bps,
            udp_only: carrier == LoadCarrier::UdpOnly,
            ..NetworkOptions::default()
        };
        let request = DiagnoseRequest::Load { way, ticket: ticket.clone() };
        let role = if way == Way::To { ContentRole::Sender } else { ContentRole::Receiver };
        let handle = Handle::new();
        let is_udp_wanted = carrier != LoadCarrier::WithoutUdp;
        let dialogue = open(caller, location, &request, network, role, is_udp_wanted, &handle)?;
        let mover = Mover::start(&dialogue.request, role)?;
        Ok(LoadSession {
            way,
            caller,
            handle,
            dialogue,
            mover,
            asked: 0,
            answered: 0,
            answer: LoadSigns::default(),
            seen: Vec::new(),
        })
    }

    /// Lets it run for some time.
    pub(super) fn run(&mut self, time: Duration) -> Result<(), Error> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step()?;
        }
        Ok(())
    }

    pub(super) fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
        self.handle.set_rate(rate)
    }

    /// Lets it run for some time, and notes meanwhile what the sender sees.
    pub(super) fn watch(&mut self, time: Duration) -> Result<(), Error> {
        let (until, mut next) = (Instant::now() + time, Instant::now());
        while Instant::now() < until {
            self.step()?;
            if Instant::now() < next {
                continue;
            }
            next += WATCH_EVERY;
            match self.way {
                Way::To => self.seen.push(self.dialogue.path_signs()),
                // An answer comes late under load, and says what was so when the far end was asked.
                Way::From => self.ask(),
            }
        }
        Ok(())
    }

    /// What the sender has seen since the test began, each at a later time.
    pub(super) fn seen(&self) -> &[PathSigns] {
        &self.seen
    }

    /// What this end sees now.
    pub(super) fn own_signs(&self) -> LoadSigns {
        signs(&self.dialogue, &self.mover)
    }

    fn ask(&mut self) {
        self.asked += 1;
        let ask = DiagnoseMessage::Ask { op: self.asked };
        self.dialogue.request.send_encoded(|out| ask.encode(out));
    }

    /// What both ends see now.
    pub(super) fn signs(&mut self) -> Result<BothSigns, Error> {
        self.ask();
        while self.answered < self.asked {
            self.step()?;
        }
        let (ours, theirs) = (self.own_signs(), self.answer);
        Ok(match self.way {
            Way::To => BothSigns { sender: ours, receiver: theirs },
            Way::From => BothSigns { sender: theirs, receiver: ours },
        })
    }

    fn step(&mut self) -> Result<(), Error> {
        if self.caller.is_cancelled() {
            return Err(Error::interrupted());
        }
        match self.dialogue.step()? {
            DialogueStep::Message(bytes) => match DiagnoseMessage::decode(bytes).map_err(senseless)? {
                DiagnoseMessage::Answer { op, json } if op == self.answered + 1 && op <= self.asked => {
                    let signs: LoadSigns = serde_json::from_slice(&json).map_err(|_| unexpected("answer"))?;
                    self.answered = op;
                    self.answer = signs.tame();
                    if self.way == Way::From {
                        self.seen.push(self.answer.path);
                    }
                    Ok(())
                }
                other => Err(unexpected(other.name())),
            },
            DialogueStep::Finish(_) => Err(unexpected("finish")),
            DialogueStep::Idle => Ok(()),
        }
    }

    /// Ends the test, and returns the report of both ends, or of this one if the far end does not answer in time.
    pub(super) fn finish(mut self, bytes: u64, time: Duration) -> SessionReport {
        self.dialogue.say_finished(Vec::new());
        let end = Instant::now() + time;
        let mut theirs = EndFigures::default();
        while Instant::now() < end && !self.caller.is_cancelled() {
            match self.dialogue.step_after_finish() {
                Ok(DialogueStep::Finish(figures)) => {
                    theirs = figures;
                    break;
                }
                Err(_) => break,
                Ok(DialogueStep::Message(_) | DialogueStep::Idle) => {}
            }
        }
        let figures = SessionFigures { ours: self.dialogue.figures(), theirs };
        let report = self.dialogue.report(&figures, bytes);
        drop(self.mover);
        self.dialogue.close(None);
        report
    }
}
