//! The client: asks for the findings of another host, and tests the way there and the way back.
//!
//! How to read it: [`examine`] holds the consultation and loads each way (`way_test.rs`) by sessions (`load_session.rs`).
//!
//! Always true: it ends within its time, whatever the far end does (`time_limit.rs`); and how much is sent follows from
//! what this end has measured itself, so that a far end that lies cannot raise it.

mod load_session;
mod time_limit;
mod way_test;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use farhaul_connect as connect;
use farhaul_connect::HelloParams;
use farhaul_connect::features::Features;
use farhaul_copy::Location;
use farhaul_doctor::hops;
use farhaul_doctor::path::{self, PathFacts, PathFinding, PathStep};
use farhaul_doctor::target::Role;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_words::{Carrier, Code, Error, SessionReport};
use serde::Serialize;

use self::time_limit::TimeLimit;
use self::way_test::WayTest;
use super::findings::{Consultation, PeerDiagnosis, clock_us};
use super::messages::DiagnoseMessage;
use super::request::{DiagnoseRequest, Way};

/// The share of the time in which several ways are looked for.
const HOPS_SHARE: u32 = 10;
/// How long the far end may take to hear that the examination is over.
const END_TIME: Duration = Duration::from_secs(2);

/// Which host to examine.
pub struct Examination<'a> {
    /// Where it is; the path does not matter.
    pub location: &'a Location,
    /// The rate that it is judged for, if not that of its own cards.
    pub rate_bps: Option<u64>,
    /// What it is for, if that was said.
    pub role: Option<Role>,
    /// How long it takes at most once the far end is reached; half of it is for each way.
    pub time: Duration,
}

/// One way between the hosts, under load.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExaminedWay {
    /// "to" or "from" the other host.
    pub direction: String,
    /// Content bits a second, as a transfer from memory to memory reaches them.
    pub bps: f64,
    /// The same without UDP; `None` if that was not possible.
    pub tcp_bps: Option<f64>,
    /// The share of packets that were lost then, 0 to 1.
    pub lost: f64,
    /// The smallest round trip, which is that of the idle path.
    pub rtt_min_ms: f64,
    /// The mean round trip of a transfer.
    pub rtt_mean_ms: f64,
    /// The longest round trip, when more was sent than the path carries.
    pub rtt_loaded_ms: f64,
    /// "udp", "tcp" or "ssh".
    pub transport: String,
    /// The limit in words.
    pub bottleneck: String,
    /// The ID under which it is explained; empty if nothing has limited it.
    pub limit_id: String,
    /// The three busiest stages of both ends, such as "receiver open", with their busy shares, 0 to 1.
    pub busiest: Vec<(String, f64)>,
    /// Warnings of the transfer.
    pub warnings: Vec<String>,
    /// What was seen at each rate over UDP alone.
    pub steps: Vec<PathStep>,
}

impl ExaminedWay {
    /// What the report of a transfer says of the way.
    pub fn of_report(direction: &str, bps: f64, report: &SessionReport) -> ExaminedWay {
        ExaminedWay {
            direction: direction.into(),
            bps,
            lost: report.loss_fraction,
            rtt_min_ms: report.rtt_min_ms,
            rtt_mean_ms: report.rtt_mean_ms,
            rtt_loaded_ms: report.rtt_mean_ms,
            transport: report.transport.map_or("", Carrier::name).into(),
            bottleneck: report.bottleneck.clone(),
            limit_id: report.limit_id.clone(),
            busiest: busiest(report),
            warnings: report.warnings.clone(),
            ..ExaminedWay::default()
        }
    }
}

/// The other host and the way there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExaminedPeer {
    /// What its doctor says.
    pub there: PeerDiagnosis,
    /// The way there, and the way back.
    pub ways: Vec<ExaminedWay>,
    /// What was found on the path.
    pub path: Vec<PathFinding>,
    /// Tests that did not come to their end, and why.
    pub unfinished: Vec<String>,
}

/// Asks the far end's doctor, then tests the way there and the way back. `tell` hears what is done. What was measured
/// before the time was over is judged; only without the far end's findings it fails.
pub fn examine(asked: &Examination<'_>, caller: &Handle, tell: &dyn Fn(&str)) -> Result<ExaminedPeer, Error> {
    contained(|| {
        let mut consultation = Consulting::begin(asked, caller)?;
        let limit = TimeLimit::start(asked.time, caller)?;
        let said = consultation.ask(limit.handle()).map_err(|error| limit.reason(error))?;
        let mut facts = PathFacts {
            clock_offset_ms: Some(said.clock_offset_ms),
            clock_doubt_ms: said.doubt_ms,
            is_translated: said.consultation.your_address.map(|address| !is_own(address)),
            ..PathFacts::default()
        };
        if let Some(peer) = consultation.dialogue.peer_ip() {
            tell("several ways");
            let round_trip = Duration::from_secs_f64(said.doubt_ms * 2e-3);
            facts.several_ways = hops::several_ways(peer, round_trip, asked.time / HOPS_SHARE);
        }
        let (mut ways, mut unfinished) = (Vec::new(), Vec::new());
        for (way, until) in Way::BOTH.into_iter().zip([limit.half(), limit.end()]) {
            tell(&format!("the way {}", way.name()));
            let mut test =
                WayTest::new(way, asked.location, limit.handle(), &said.consultation.ticket, until);
            if let Err(error) = test.run() {
                let error = limit.reason(error);
                if caller.is_cancelled() || !limit.is_over() {
                    return Err(error);
                }
                unfinished.push(format!("the way {}: {error}", way.name()));
            }
            if test.has_begun() {
                facts.ways.push(test.facts);
                ways.push(test.seen);
            }
        }
        consultation.end();
        let there = said.consultation.diagnosis.tame();
        Ok(ExaminedPeer { there, ways, path: path::judge(&facts), unfinished })
    })
    .flatten()
}

/// Whether an address is one of this host.
fn is_own(address: std::net::IpAddr) -> bool {
    UdpSocket::bind((address.to_canonical(), 0)).is_ok()
}

/// Opens a session of this service.
fn open(
    caller: &Handle,
    location: &Location,
    request: &DiagnoseRequest,
    network: NetworkOptions,
    role: ContentRole,
    udp: bool,
    handle: &Handle,
) -> Result<Dialogue, Error> {
    let opening = request.opening(network)?;
    let params = HelloParams { opening, features: Features::default(), udp, early: false };
    let established = match location {
        Location::Ssh { target, .. } => connect::ssh_connect(target, params, caller)?,
        Location::Daemon { target, .. } => connect::daemon_connect(target, params, caller)?,
        Location::Local(_) | Location::Pipe => {
            return Err(Error::new(Code::BadLocation, "a peer is another host"));
        }
    };
    let network = established.opening.network;
    Ok(Session::start(established.session, network, role, DeliveryOrder::Any, handle)?.1)
}

/// The session that has the far end's findings, and its place there.
struct Consulting {
    dialogue: Dialogue,
}

struct Said {
    consultation: Consultation,
    clock_offset_ms: f64,
    doubt_ms: f64,
}

impl Consulting {
    fn begin(asked: &Examination<'_>, caller: &Handle) -> Result<Consulting, Error> {
        let role = asked.role.map(|role| role.name().to_owned());
        let request = DiagnoseRequest::Consult { rate_bps: asked.rate_bps, role };
        let network = NetworkOptions::default();
        let role = ContentRole::Receiver;
        let dialogue = open(caller, asked.location, &request, network, role, true, &Handle::new())?;
        Ok(Consulting { dialogue })
    }

    /// Asks twice, as the first answer takes as long as the diagnosis does: the second one tells the time.
    fn ask(&mut self, caller: &Handle) -> Result<Said, Error> {
        self.ask_once(1, caller)?;
        let before = clock_us();
        let consultation = self.ask_once(2, caller)?;
        let after = clock_us();
        let middle = (before + after) as f64 / 2.0;
        let clock_offset_ms = (consultation.clock_us as f64 - middle) / 1e3;
        let doubt_ms = after.saturating_sub(before) as f64 / 2e3;
        Ok(Said { consultation, clock_offset_ms, doubt_ms })
    }

    fn ask_once(&mut self, asked: u64, caller: &Handle) -> Result<Consultation, Error> {
        let ask = DiagnoseMessage::Ask { op: asked };
        self.dialogue.request.send_encoded(|out| ask.encode(out));
        loop {
            match self.dialogue.step()? {
                DialogueStep::Message(bytes) => match DiagnoseMessage::decode(bytes).map_err(senseless)? {
                    DiagnoseMessage::Answer { op, json } if op == asked => {
                        return serde_json::from_slice(&json).map_err(|_| unexpected("answer"));
                    }
                    other => return Err(unexpected(other.name())),
                },
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Idle if caller.is_cancelled() => return Err(Error::interrupted()),
                DialogueStep::Idle => {}
            }
        }
    }

    fn end(mut self) {
        self.dialogue.say_finished(Vec::new());
        let until = Instant::now() + END_TIME;
        while Instant::now() < until {
            match self.dialogue.step_after_finish() {
                Ok(DialogueStep::Finish(_)) | Err(_) => break,
                Ok(DialogueStep::Message(_) | DialogueStep::Idle) => {}
            }
        }
        self.dialogue.close(None);
    }
}

/// The stages that would limit the transfer next.
fn busiest(session: &SessionReport) -> Vec<(String, f64)> {
    let stages = session.stages.iter().filter(|stage| !stage.name.starts_with("wait-"));
    let mut stages: Vec<(String, f64)> =
        stages.map(|stage| (format!("{} {}", stage.end, stage.name), stage.busy)).collect();
    stages.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    stages.truncate(3);
    stages
}
