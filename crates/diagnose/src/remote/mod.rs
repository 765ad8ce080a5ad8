//! The client: asks for the findings of another host, and tests the way there and the way back.
//!
//! Each way is loaded three times: as a transfer loads it, without UDP, and over UDP alone at rates that go up to half
//! more than the first two have reached. The last test shows at which rate packets get lost, and how long they wait.

mod load_session;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use farhaul_connect as connect;
use farhaul_connect::HelloParams;
use farhaul_connect::features::Features;
use farhaul_connect::hello::HelloSecret;
use farhaul_copy::Location;
use farhaul_doctor::path::{self, PathFacts, PathFinding, PathStep, WayFacts};
use farhaul_doctor::target::Role;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::options::{NetworkOptions, RATE_MIN_BPS, RateOptions};
use farhaul_session::panic_guard::contained;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_words::{Carrier, Code, Error, Policy, SessionReport};
use serde::Serialize;

use self::load_session::{BothSigns, LoadCarrier, LoadSession};
use super::findings::{Consultation, PeerDiagnosis, clock_us};
use super::messages::DiagnoseMessage;
use super::request::{DiagnoseRequest, Way};

/// The time of the test that is like a transfer, and of that without UDP.
const USUAL_TIME: Duration = Duration::from_millis(2500);
const TCP_TIME: Duration = Duration::from_millis(2000);
/// The rates over UDP alone, as shares of the best rate that the tests before have reached.
const SHARES: [f64; 7] = [0.1, 0.3, 0.6, 0.85, 1.0, 1.2, 1.5];
/// How long a rate may take to show, and how long it is looked at then.
const SETTLE_TIME: Duration = Duration::from_millis(300);
const LOOK_TIME: Duration = Duration::from_millis(600);
/// The content of all tests is at most what the path carries in this time: 1 % of an hour.
const BUDGET: Duration = Duration::from_secs(36);
/// How long the far end's doctor may take.
const CONSULT_TIME: Duration = Duration::from_secs(30);

/// Which host to examine.
pub struct Examination<'a> {
    /// Where it is; the path does not matter.
    pub location: &'a Location,
    /// The rate that it is judged for, if not that of its own cards.
    pub rate_bps: Option<u64>,
    /// What it is for, if that was said.
    pub role: Option<Role>,
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
}

/// Asks the far end's doctor, then tests the way there and the way back. `tell` hears what is done.
pub fn examine(asked: &Examination<'_>, caller: &Handle, tell: &dyn Fn(&str)) -> Result<ExaminedPeer, Error> {
    contained(|| {
        let mut consultation = Consulting::begin(asked, caller)?;
        let said = consultation.ask(caller)?;
        let mut facts = PathFacts {
            clock_offset_ms: Some(said.clock_offset_ms),
            clock_doubt_ms: said.doubt_ms,
            is_translated: said.consultation.your_address.map(|address| !is_own(address)),
            ..PathFacts::default()
        };
        let mut ways = Vec::new();
        for way in Way::BOTH {
            tell(&format!("the way {}", way.name()));
            let mut test = WayTest::new(way, asked.location, caller, &said.consultation.ticket);
            test.run()?;
            facts.ways.push(test.facts);
            ways.push(test.seen);
        }
        consultation.end();
        let there = said.consultation.diagnosis.tame();
        Ok(ExaminedPeer { there, ways, path: path::judge(&facts) })
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
        let until = Instant::now() + CONSULT_TIME;
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
                DialogueStep::Idle if Instant::now() >= until => {
                    return Err(Error::new(Code::PeerSilent, "the far end's doctor does not answer"));
                }
                DialogueStep::Idle => {}
            }
        }
    }

    fn end(mut self) {
        self.dialogue.say_finished(Vec::new());
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            match self.dialogue.step_after_finish() {
                Ok(DialogueStep::Finish(_)) | Err(_) => break,
                Ok(DialogueStep::Message(_) | DialogueStep::Idle) => {}
            }
        }
        self.dialogue.close(None);
    }
}

/// The tests of one way.
struct WayTest<'a> {
    way: Way,
    location: &'a Location,
    caller: &'a Handle,
    ticket: &'a HelloSecret,
    seen: ExaminedWay,
    facts: WayFacts,
    sent_bytes: u64,
}

impl<'a> WayTest<'a> {
    fn new(way: Way, location: &'a Location, caller: &'a Handle, ticket: &'a HelloSecret) -> WayTest<'a> {
        let seen = ExaminedWay { direction: way.name().into(), ..ExaminedWay::default() };
        let facts = WayFacts { way: way.name().into(), ..WayFacts::default() };
        WayTest { way, location, caller, ticket, seen, facts, sent_bytes: 0 }
    }

    fn run(&mut self) -> Result<(), Error> {
        self.usual()?;
        // A carrier that does not come about is what the test is to find out.
        match self.without_udp() {
            Err(error) if self.caller.is_cancelled() => return Err(error),
            Err(error) => self.seen.warnings.push(format!("without UDP: {error}")),
            Ok(()) => {}
        }
        if self.facts.has_udp {
            match self.at_rates() {
                Err(error) if self.caller.is_cancelled() => return Err(error),
                Err(error) => self.seen.warnings.push(format!("over UDP alone: {error}")),
                Ok(()) => {}
            }
        }
        self.seen.steps = self.facts.steps.clone();
        let loaded = self.facts.steps.iter().map(|step| step.rtt_ms);
        self.seen.rtt_loaded_ms = loaded.fold(self.seen.rtt_mean_ms, f64::max);
        Ok(())
    }

    fn start(&self, carrier: LoadCarrier, rate: RateOptions) -> Result<LoadSession<'a>, Error> {
        LoadSession::start(self.caller, self.location, (self.way, self.ticket), carrier, rate)
    }

    /// As a transfer would do it.
    fn usual(&mut self) -> Result<(), Error> {
        let (bps, signs, report) = self.loaded(LoadCarrier::Usual, USUAL_TIME)?;
        self.facts.has_udp = report.transport.is_some_and(Carrier::has_udp);
        self.facts.bps = bps;
        self.facts.rtt_min_ms = report.rtt_min_ms;
        self.note(&signs);
        self.seen = ExaminedWay::of_report(self.way.name(), bps, &report);
        Ok(())
    }

    fn without_udp(&mut self) -> Result<(), Error> {
        let (bps, _, _) = self.loaded(LoadCarrier::WithoutUdp, TCP_TIME)?;
        (self.facts.tcp_bps, self.seen.tcp_bps) = (Some(bps), Some(bps));
        Ok(())
    }

    /// Loads the way for some time. The rate is that of the second half, as the first one is needed to find it.
    fn loaded(
        &mut self,
        carrier: LoadCarrier,
        time: Duration,
    ) -> Result<(f64, BothSigns, SessionReport), Error> {
        let mut load = self.start(carrier, RateOptions::default())?;
        load.run(time / 2)?;
        let (before, at) = (load.signs()?, Instant::now());
        load.run(time / 2)?;
        let signs = load.signs()?;
        let content = signs.receiver.content_bytes.saturating_sub(before.receiver.content_bytes);
        let bps = content as f64 * 8.0 / at.elapsed().as_secs_f64();
        self.sent_bytes += signs.receiver.content_bytes;
        let report = load.finish(signs.receiver.content_bytes);
        Ok((bps, signs, report))
    }

    /// Over UDP alone, at one rate after the other.
    fn at_rates(&mut self) -> Result<(), Error> {
        let best = self.facts.tcp_bps.unwrap_or(0.0).max(self.facts.bps);
        let rate = |share: f64| {
            let rate_bps = Some(((best * share) as u64).max(RATE_MIN_BPS));
            RateOptions { policy: Policy::Fixed, rate_bps, rate_min_bps: None }
        };
        let budget = (best / 8.0 * BUDGET.as_secs_f64()) as u64;
        let mut load = self.start(LoadCarrier::UdpOnly, rate(SHARES[0]))?;
        for share in SHARES {
            let asked_bps = rate(share).rate_bps.unwrap_or_default();
            let cost = (SETTLE_TIME + LOOK_TIME).as_secs_f64() * asked_bps as f64 / 8.0;
            if self.sent_bytes + cost as u64 > budget {
                break;
            }
            self.sent_bytes += cost as u64;
            load.set_rate(rate(share))?;
            load.run(SETTLE_TIME + Duration::from_secs_f64(self.facts.rtt_min_ms.min(500.0) / 500.0))?;
            let (before, at) = (load.signs()?, Instant::now());
            load.run(LOOK_TIME)?;
            let after = load.signs()?;
            self.facts.steps.push(step(asked_bps, &before, &after, at.elapsed()));
            self.note(&after);
        }
        load.finish(0);
        Ok(())
    }

    /// Keeps what the path has done to packets; the worst of all tests counts.
    fn note(&mut self, signs: &BothSigns) {
        let (path, kept) = (&signs.sender.path, &mut self.facts.signs);
        kept.packets_sent = kept.packets_sent.max(path.packets_sent);
        kept.packets_late = kept.packets_late.max(path.packets_late);
        kept.reordering_ms = kept.reordering_ms.max(path.reordering_ms);
        kept.packets_marked = kept.packets_marked.max(path.packets_marked);
        kept.are_marks_thrown_away |= path.are_marks_thrown_away;
        kept.datagram_max = kept.datagram_max.max(path.datagram_max);
        kept.system_mtu = path.system_mtu.or(kept.system_mtu);
    }
}

fn step(asked_bps: u64, before: &BothSigns, after: &BothSigns, time: Duration) -> PathStep {
    let (then, now) = (&before.sender.path, &after.sender.path);
    let sent = now.packets_sent.saturating_sub(then.packets_sent);
    let lost = now.packets_lost.saturating_sub(then.packets_lost);
    let bytes = now.bytes_sent.saturating_sub(then.bytes_sent);
    PathStep {
        asked_bps,
        sent_bps: bytes as f64 * 8.0 / time.as_secs_f64(),
        packets_sent: sent,
        lost: lost as f64 / sent.max(1) as f64,
        full_sockets: after.receiver.full_sockets.saturating_sub(before.receiver.full_sockets),
        rtt_ms: now.rtt_ms,
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
