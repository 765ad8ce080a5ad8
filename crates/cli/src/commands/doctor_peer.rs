//! `farhaul doctor --peer`: both ends and the way between them, and one verdict.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;

use farhaul::copy::LocationSpec;
use farhaul::errors::{Code, ExitCode};
use farhaul::sisters::{Examination, ExaminedWay, PeerDiagnosis, examine};
use farhaul::{Error, Handle};
use farhaul_bench::transfer::BenchTarget;
use farhaul_bench::{Monitor, peer};
use farhaul_doctor::check::Weight;
use farhaul_doctor::host::Machine;
use farhaul_doctor::limit::{self, Limit};
use farhaul_doctor::path::PathFinding;
use farhaul_doctor::{Diagnosis, Found};
use serde_json::{Value, json};

use super::cp::{daemon_target, no_ssh_options, ssh_target};
use crate::args::doctor::DoctorArgs;
use crate::signals;
use crate::ui::waiting_line::WaitingLine;
use crate::ui::{printer, units};

/// The time of each way at a host whose doctor does not answer.
const TIME: Duration = Duration::from_secs(5);
/// What is said before anything is sent.
const BEFORE: &str = "loading the way there and the way back with data that nobody keeps, for 30 s in all and with at most 1 % of what the path carries in an hour";
/// A stage that is this busy is worth a word.
const BUSY: f64 = 0.05;
/// Gains below this are none.
const GAIN: f64 = 1.05;

/// Gains beyond this are far from what was measured.
const GAIN_SHOWN: f64 = 10.0;

/// What was found out about the other host and the way there.
struct Peer {
    name: String,
    there: Option<PeerDiagnosis>,
    ways: Vec<ExaminedWay>,
    path: Vec<PathFinding>,
    /// Why something is missing.
    refusals: Vec<String>,
}

pub fn run(args: &DoctorArgs, host: &OsStr) -> Result<ExitCode, Error> {
    let target = target(args, host)?;
    if !args.json {
        printer::line(BEFORE);
    }
    let here = Diagnosis::of(&Machine, args.rate, args.role);
    let peer = ask(args, &target)?;
    let verdicts: Vec<Verdict<'_>> = peer.ways.iter().map(|way| Verdict::of(way, &here, &peer)).collect();
    if args.json {
        let verdicts: Vec<Value> = verdicts.iter().map(Verdict::json).collect();
        printer::json(&json!({
            "schema": 1,
            "here": here.json(),
            "there": peer.there,
            "path": peer.path,
            "ways": peer.ways,
            "verdicts": verdicts,
            "refused": peer.refusals,
        }))?;
    } else {
        printer::data(printer::harmless_lines(&text(args, &here, &peer, &verdicts)).as_bytes())?;
        peer.refusals.iter().for_each(|refusal| printer::line(refusal));
    }
    let theirs = peer.there.iter().flat_map(|there| &there.findings).any(|found| !found.is_note);
    let on_path = peer.path.iter().any(|found| found.weight < Weight::Note);
    let is_clean = here.faults().next().is_none() && !theirs && !on_path;
    Ok(if is_clean { ExitCode::Ok } else { ExitCode::SomeFailed })
}

fn target(args: &DoctorArgs, host: &OsStr) -> Result<BenchTarget, Error> {
    match LocationSpec::parse_host(host)? {
        LocationSpec::Ssh(spec, _) => Ok(BenchTarget::Ssh(ssh_target(&spec, &args.connection, args.json)?)),
        LocationSpec::Daemon(spec, _) => {
            no_ssh_options(&args.connection)?;
            Ok(BenchTarget::Daemon(daemon_target(&spec, &args.connection)))
        }
        LocationSpec::Local(_) | LocationSpec::Pipe => {
            Err(Error::new(Code::BadLocation, format!("{}: a peer is another host", host.display())))
        }
    }
}

/// Asks the far end's doctor and tests the path. If the doctor does not answer, what transfers show is told.
fn ask(args: &DoctorArgs, target: &BenchTarget) -> Result<Peer, Error> {
    let handle = Handle::new();
    signals::cancel_on_signal(handle.clone())
        .map_err(|source| Error::of_host("cannot listen for signals", source))?;
    let waiting = WaitingLine::start(!args.json);
    let tell = |what: &str| waiting.tell(what);
    let name = target.host().to_owned();
    let location = target.location(Vec::new());
    let asked = Examination { location: &location, rate_bps: args.rate, role: args.role };
    match examine(&asked, &handle, &tell) {
        Ok(examined) => Ok(Peer {
            name,
            there: Some(examined.there),
            ways: examined.ways,
            path: examined.path,
            refusals: Vec::new(),
        }),
        Err(error) if matches!(error.code(), Code::Forbidden | Code::FeatureMissing) => {
            let monitor = Monitor { stop: handle.cancel_flag(), tell: &tell };
            let there = match target {
                BenchTarget::Ssh(ssh) => Some(peer::diagnosis(ssh, args.rate, args.role, &monitor)?),
                BenchTarget::Daemon(_) => None,
            };
            let missing = if there.is_some() { "the path of" } else { "the doctor of" };
            let mut refusals = vec![format!(
                "{missing} {name} cannot be examined, so this is what transfers show anyway: {error}"
            )];
            let (ways, refused) = peer::ways(target, TIME, &monitor)?;
            refusals.extend(refused);
            Ok(Peer { name, there, ways, path: Vec::new(), refusals })
        }
        Err(error) => Err(error),
    }
}

/// What limits one way, and which findings may be why.
struct Verdict<'a> {
    way: &'a ExaminedWay,
    limit: Option<&'static Limit>,
    /// The end that the limit lies at: this host's name is empty. `None` if it lies between.
    end: Option<String>,
    /// Lines of findings that may be the cause.
    causes: Vec<String>,
    /// By how much the rate can grow until another stage is the limit; `None` if nothing is known of other stages.
    gain: Option<f64>,
}

impl<'a> Verdict<'a> {
    fn of(way: &'a ExaminedWay, here: &Diagnosis, peer: &Peer) -> Verdict<'a> {
        let limit = limit::find(&way.limit_id);
        let is_here = match (way.limit_id.contains("sender"), way.limit_id.contains("receiver")) {
            (true, _) => Some(way.direction == "to"),
            (_, true) => Some(way.direction == "from"),
            _ => None,
        };
        let checks: BTreeSet<&str> = limit.iter().flat_map(|limit| limit.checks).copied().collect();
        let mut causes = Vec::new();
        if is_here.is_none() {
            let found = peer.path.iter().filter(|found| found.way.is_empty() || found.way == way.direction);
            causes.extend(found.filter(|found| found.weight < Weight::Note).map(PathFinding::line));
        }
        if is_here != Some(false) {
            let found = here.found.iter().filter(|found| checks.contains(found.check.id));
            causes.extend(found.map(|found| format!("here: {}", found.line())));
        }
        if is_here != Some(true) {
            let found = peer.there.iter().flat_map(|there| &there.findings);
            let found = found.filter(|found| checks.contains(found.id.as_str()));
            causes.extend(found.map(|found| format!("{}: {}", peer.name, found.line)));
        }
        let end = is_here.map(|is_here| if is_here { String::new() } else { peer.name.clone() });
        Verdict { way, limit, end, causes, gain: gain(way) }
    }

    /// The stages that would limit the way next: without the one that does now.
    fn behind(&self) -> Vec<(String, f64)> {
        behind(self.way)
    }

    /// What removing the limit brings, in words.
    fn gain_words(&self) -> Option<String> {
        let gain = self.gain?;
        let (stage, busy) = self.behind().into_iter().next()?;
        let (bps, busy) = (units::rate(self.way.bps * gain), busy * 100.0);
        Some(match gain {
            ..GAIN => format!("next to nothing by itself, as {stage} is {busy:.0} % busy"),
            GAIN_SHOWN.. => format!(
                "up to {GAIN_SHOWN:.0} times as fast and more: {stage} comes next, now {busy:.0} % busy"
            ),
            _ => format!(
                "at most {gain:.1} times as fast ({bps}), until {stage} is the limit, now {busy:.0} % busy"
            ),
        })
    }

    fn json(&self) -> Value {
        json!({
            "direction": self.way.direction,
            "limit_id": self.way.limit_id,
            "end": match &self.end {
                None => "path",
                Some(name) if name.is_empty() => "here",
                Some(_) => "there",
            },
            "behind": self.behind(),
            "gain": self.gain,
            "causes": self.causes,
            "remedies": self.limit.map_or(&[][..], |limit| limit.remedies),
            "explain": self.limit.map(|limit| format!("farhaul doctor explain {}", limit.id)),
        })
    }
}

/// The busiest stages behind the limit. If a stage is the limit, it is the busiest.
fn behind(way: &ExaminedWay) -> Vec<(String, f64)> {
    let is_of_network =
        way.limit_id == "slow-network" || way.limit_id == "rate-limit" || way.limit_id.is_empty();
    let skipped = usize::from(!is_of_network);
    way.busiest.iter().skip(skipped).filter(|(_, busy)| *busy >= BUSY).take(2).cloned().collect()
}

/// By how much the rate can grow until the next stage is always busy.
fn gain(way: &ExaminedWay) -> Option<f64> {
    let now = match way.limit_id.as_str() {
        "" | "slow-network" | "rate-limit" => 1.0,
        _ => way.busiest.first()?.1.max(0.01),
    };
    let (_, next) = behind(way).into_iter().next()?;
    Some((now / next).max(1.0))
}

fn text(args: &DoctorArgs, here: &Diagnosis, peer: &Peer, verdicts: &[Verdict<'_>]) -> String {
    let name = &peer.name;
    let listed = |lines: Vec<String>| match lines.is_empty() {
        true => "  nothing to mend\n".into(),
        false => lines.iter().map(|line| format!("  {line}\n")).collect::<String>(),
    };
    let mut out = String::new();
    if let Some(there) = &peer.there {
        let path = peer.path.iter().filter(|found| args.notes || found.weight < Weight::Note);
        let path = path.map(PathFinding::line).collect();
        let theirs = there.findings.iter().filter(|found| args.notes || !found.is_note);
        let theirs = theirs.map(|found| found.line.clone()).collect();
        out.push_str(&format!("the path:\n{}{name}:\n{}", listed(path), listed(theirs)));
    }
    let ours = here.faults().chain(here.notes().filter(|_| args.notes)).map(Found::line).collect();
    out.push_str(&format!("here:\n{}", listed(ours)));
    verdicts.iter().for_each(|verdict| of_way(&mut out, verdict, name));
    out
}

fn of_way(out: &mut String, verdict: &Verdict<'_>, name: &str) {
    let way = verdict.way;
    out.push_str(&format!(
        "{} {name}: {}, {:.1} ms idle, {:.1} ms under load, {:.2} % lost, over {}\n",
        way.direction,
        units::rate(way.bps),
        way.rtt_min_ms,
        way.rtt_loaded_ms,
        way.lost * 100.0,
        way.transport
    ));
    let limit = if way.bottleneck.is_empty() { "nothing in particular" } else { &way.bottleneck };
    out.push_str(&format!("  limited by {limit}"));
    out.push_str(&verdict.limit.map_or("\n".into(), |limit| format!("  [{}]\n", limit.id)));
    let behind: Vec<String> =
        verdict.behind().iter().map(|(stage, busy)| format!("{stage} {:.0} % busy", busy * 100.0)).collect();
    if !behind.is_empty() {
        out.push_str(&format!("  behind it: {}\n", behind.join(", ")));
    }
    verdict.causes.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    if let Some(limit) = verdict.limit {
        out.push_str(&format!("  do: {}\n", limit.remedies.join("; ")));
        if let Some(gain) = verdict.gain_words() {
            out.push_str(&format!("  that brings: {gain}\n"));
        }
    }
    way.warnings.iter().for_each(|warning| out.push_str(&format!("  {warning}\n")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(limit_id: &str, busiest: &[(&str, f64)]) -> ExaminedWay {
        let busiest = busiest.iter().map(|(stage, busy)| ((*stage).to_owned(), *busy)).collect();
        ExaminedWay { limit_id: limit_id.into(), bps: 1e9, busiest, ..ExaminedWay::default() }
    }

    #[test]
    fn the_stage_behind_the_limit_bounds_what_a_remedy_brings() {
        let of_network = way("slow-network", &[("receiver open", 0.4), ("sender seal", 0.3)]);
        assert_eq!(behind(&of_network).len(), 2);
        assert!(gain(&of_network).is_some_and(|gain| (gain - 2.5).abs() < 1e-9));
        let of_core =
            way("slow-sender-core", &[("sender seal", 0.9), ("receiver open", 0.6), ("sender read", 0.01)]);
        assert_eq!(behind(&of_core), [("receiver open".to_owned(), 0.6)]);
        assert!(gain(&of_core).is_some_and(|gain| (gain - 1.5).abs() < 1e-9));
        assert_eq!(gain(&way("slow-network", &[])), None);
    }
}
