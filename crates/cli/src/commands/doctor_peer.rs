//! `farhaul doctor --peer`: both ends and the way between them, and one verdict.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farhaul::copy::LocationSpec;
use farhaul::errors::{Code, ExitCode};
use farhaul::sisters::{Examination, ExaminedWay, PeerDiagnosis, examine};
use farhaul::{Error, Handle};
use farhaul_bench::disk::{self, DiskConfig};
use farhaul_bench::transfer::BenchTarget;
use farhaul_bench::{FindingRow, Findings};
use farhaul_bench::{Monitor, peer};
use farhaul_doctor::check::Weight;
use farhaul_doctor::host::Machine;
use farhaul_doctor::limit::{self, Limit, Remedy};
use farhaul_doctor::path::{self, PathFinding};
use farhaul_doctor::{Diagnosis, Found};
use serde_json::{Value, json};

use super::cp::{daemon_target, no_ssh_options, ssh_target};
use crate::args::doctor::DoctorArgs;
use crate::signals;
use crate::ui::waiting_line::WaitingLine;
use crate::ui::{printer, units};

/// The time of each way at a host whose doctor does not answer.
const TIME: Duration = Duration::from_secs(5);
/// How long the other host may take to answer, if that was not said. A path on which large packets vanish lets ssh wait
/// for ever.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// A stage that is this busy is worth a word.
const BUSY: f64 = 0.05;
/// Gains below this are none.
const GAIN: f64 = 1.05;

/// The longest time of each measurement of a disk, and the most bytes. There are up to twelve.
const DISK_TIME: Duration = Duration::from_millis(500);
const DISK_BYTES: u64 = 1 << 30;

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

/// How fast this host's disk is, as far as it was to be measured: content bits a second.
#[derive(Debug, Clone, Copy, Default)]
struct OwnDisk {
    read_bps: Option<f64>,
    write_bps: Option<f64>,
}

impl OwnDisk {
    fn measured(args: &DoctorArgs) -> Result<OwnDisk, Error> {
        let bps =
            |path: &Option<PathBuf>, write: bool| path.as_ref().map(|path| disk_bps(path, write)).transpose();
        Ok(OwnDisk { read_bps: bps(&args.read, false)?, write_bps: bps(&args.write, true)? })
    }

    /// The rate that content of a way needs of this host's disk.
    fn of_way(self, direction: &str) -> Option<f64> {
        if direction == "to" { self.read_bps } else { self.write_bps }
    }
}

/// The best rate of a disk, in the ways in which a transfer may use it.
fn disk_bps(path: &Path, write: bool) -> Result<f64, Error> {
    let handle = Handle::new();
    let config = DiskConfig { path: path.into(), write, size: DISK_BYTES, time: DISK_TIME };
    let mut findings = Findings::new("disk");
    let tell = |_: &str| ();
    disk::measure(&config, &Monitor { stop: handle.cancel_flag(), tell: &tell }, &mut findings)?;
    let wanted = if write { "write" } else { "read" };
    let rates = findings.rows.iter().filter_map(|row| match row {
        FindingRow::Disk(row) if row.operation == wanted => Some(row.bps),
        _ => None,
    });
    Ok(rates.fold(0.0, f64::max))
}

pub fn run(args: &DoctorArgs, host: &OsStr) -> Result<ExitCode, Error> {
    let target = target(args, host)?;
    if !args.json {
        printer::line(&format!(
            "loading the way there and the way back with data that nobody keeps, for at most {} s in all and with at most 1 % of \
             what the path carries in an hour",
            args.peer_time
        ));
    }
    let here = Diagnosis::of(&Machine, args.rate, args.role);
    let disk = OwnDisk::measured(args)?;
    let peer = ask(args, &target)?;
    let verdicts: Vec<Verdict<'_>> =
        peer.ways.iter().map(|way| Verdict::of(way, &here, &peer, disk)).collect();
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
        LocationSpec::Ssh(spec, _) => {
            let mut ssh = ssh_target(&spec, &args.connection, args.json)?;
            if args.connection.answer_wait.is_none() {
                ssh.answer_wait = ANSWER_WAIT;
            }
            Ok(BenchTarget::Ssh(ssh))
        }
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
    let time = Duration::from_secs(args.peer_time);
    let asked = Examination { location: &location, rate_bps: args.rate, role: args.role, time };
    match examine(&asked, &handle, &tell) {
        Ok(examined) => Ok(Peer {
            name,
            there: Some(examined.there),
            ways: examined.ways,
            path: examined.path,
            refusals: examined.unfinished,
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
        // A host that is reached and does not answer: most often its shell asks for something, else the path is at fault.
        Err(error) if error.code() == Code::PeerCannotStart => Err(error.with_hint(
            "`ssh HOST true` has to end by itself; if it hangs as well, large packets may vanish on the way: \
             `ping -M do -s 1400 HOST` shows that, and --peer fh://HOST needs no ssh",
        )),
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
    /// The stages that would limit the way next, with how busy they are.
    behind: Vec<(String, f64)>,
    /// By how much the rate can grow until another stage is the limit; `None` if nothing is known of other stages.
    gain: Option<f64>,
    /// What this host's disk carries, if that was measured.
    disk_bps: Option<f64>,
}

impl<'a> Verdict<'a> {
    fn of(way: &'a ExaminedWay, here: &Diagnosis, peer: &Peer, disk: OwnDisk) -> Verdict<'a> {
        let disk_bps = disk.of_way(&way.direction);
        let (limit_id, behind, gain) = ranked(way, disk_bps);
        let limit = limit::find(&limit_id);
        let is_here = match (limit_id.contains("sender"), limit_id.contains("receiver")) {
            (true, _) => Some(way.direction == "to"),
            (_, true) => Some(way.direction == "from"),
            _ => None,
        };
        let mut checks: BTreeSet<&str> = limit.iter().flat_map(|limit| limit.checks).copied().collect();
        checks.extend(peer.path.iter().filter(|found| found.id == "udp-blocked").map(|_| "firewall"));
        let mut causes = Vec::new();
        if is_here.is_none() {
            let found = peer.path.iter().filter(|found| found.way.is_empty() || found.way == way.direction);
            let found = found.filter(|found| found.weight < Weight::Note);
            causes.extend(found.map(|found| format!("{}; expected: {}", found.line(), path::gain(found.id))));
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
        Verdict { way, limit, end, causes, behind, gain, disk_bps }
    }

    /// Whether this host's disk is slower than the way.
    fn is_of_disk(&self) -> bool {
        self.disk_bps.is_some_and(|disk| disk < self.way.bps)
    }

    /// What limits the way, in words.
    fn limit_words(&self) -> String {
        match self.disk_bps.filter(|_| self.is_of_disk()) {
            Some(disk) => format!("this host's disk, which carries {}", units::rate(disk)),
            None if self.way.bottleneck.is_empty() => "nothing in particular".into(),
            None => self.way.bottleneck.clone(),
        }
    }

    /// What removing the limit brings, in words.
    fn gain_words(&self) -> Option<String> {
        let gain = self.gain?;
        let (stage, busy) = self.behind.first()?;
        let now = self.disk_bps.filter(|_| self.is_of_disk()).unwrap_or(self.way.bps);
        let (bps, busy) = (units::rate(now * gain), busy * 100.0);
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
            "limit_id": self.limit.map_or("", |limit| limit.id),
            "end": match &self.end {
                None => "path",
                Some(name) if name.is_empty() => "here",
                Some(_) => "there",
            },
            "behind": self.behind,
            "disk_bps": self.disk_bps,
            "gain": self.gain,
            "causes": self.causes,
            "remedies": self.limit.map_or(&[][..], |limit| limit.remedies),
            "explain": self.limit.map(|limit| format!("farhaul doctor explain {}", limit.id)),
        })
    }
}

/// The limit's ID, the stages behind it, and by how much the rate can grow until the next one is the limit. The way was
/// loaded from memory to memory, so that this host's disk counts as a stage beside it.
fn ranked(way: &ExaminedWay, disk_bps: Option<f64>) -> (String, Vec<(String, f64)>, Option<f64>) {
    let (disk, id) = match way.direction.as_str() {
        "to" => ("disk here", "slow-sender-disk"),
        _ => ("disk here", "slow-receiver-disk"),
    };
    match disk_bps.filter(|bps| *bps > 0.0) {
        Some(bps) if bps < way.bps => {
            let busy = bps / way.bps;
            let next = limit::find(&way.limit_id).map_or("path", |limit| limit.id);
            let mut stages = vec![(next.to_owned(), busy)];
            stages.extend(way.busiest.first().map(|(stage, share)| (stage.clone(), share * busy)));
            (id.into(), stages, Some(1.0 / busy))
        }
        Some(bps) => {
            let mut stages = behind(way);
            stages.push((disk.to_owned(), way.bps / bps));
            stages.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            stages.truncate(2);
            let gain = gain(way, stages.first().map_or(0.0, |(_, busy)| *busy));
            (way.limit_id.clone(), stages, gain)
        }
        None => {
            let stages = behind(way);
            let gain = stages.first().and_then(|(_, busy)| gain(way, *busy));
            (way.limit_id.clone(), stages, gain)
        }
    }
}

/// The busiest stages behind the limit. If a stage is the limit, it is the busiest.
fn behind(way: &ExaminedWay) -> Vec<(String, f64)> {
    let is_of_network =
        way.limit_id == "slow-network" || way.limit_id == "rate-limit" || way.limit_id.is_empty();
    let skipped = usize::from(!is_of_network);
    way.busiest.iter().skip(skipped).filter(|(_, busy)| *busy >= BUSY).take(2).cloned().collect()
}

/// By how much the rate can grow until the next stage, which is this busy now, is always busy.
fn gain(way: &ExaminedWay, next: f64) -> Option<f64> {
    let now = match way.limit_id.as_str() {
        "" | "slow-network" | "rate-limit" => 1.0,
        _ => way.busiest.first()?.1.max(0.01),
    };
    (next > 0.0).then(|| (now / next).max(1.0))
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
    out.push_str(&format!("  limited by {}", verdict.limit_words()));
    out.push_str(&verdict.limit.map_or("\n".into(), |limit| format!("  [{}]\n", limit.id)));
    let behind: Vec<String> =
        verdict.behind.iter().map(|(stage, busy)| format!("{stage} {:.0} % busy", busy * 100.0)).collect();
    if !behind.is_empty() {
        out.push_str(&format!("  behind it: {}\n", behind.join(", ")));
    }
    verdict.causes.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    if let Some(limit) = verdict.limit {
        for Remedy { what, gain } in limit.remedies {
            out.push_str(&format!("  do: {what}; expected: {gain}\n"));
        }
        if let Some(gain) = verdict.gain_words() {
            out.push_str(&format!("  all of that together: {gain}\n"));
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
        assert!(ranked(&of_network, None).2.is_some_and(|gain| (gain - 2.5).abs() < 1e-9));
        let of_core =
            way("slow-sender-core", &[("sender seal", 0.9), ("receiver open", 0.6), ("sender read", 0.01)]);
        assert_eq!(behind(&of_core), [("receiver open".to_owned(), 0.6)]);
        assert!(ranked(&of_core, None).2.is_some_and(|gain| (gain - 1.5).abs() < 1e-9));
        assert_eq!(ranked(&way("slow-network", &[]), None).2, None);
    }

    #[test]
    fn this_hosts_disk_is_a_stage_beside_the_way() {
        let of_network = ExaminedWay {
            direction: "to".into(),
            ..way("slow-network", &[("receiver open", 0.4), ("sender seal", 0.3)])
        };
        // A quarter of what the way carries: the disk is the limit, and then the network.
        let (id, behind, gain) = ranked(&of_network, Some(0.25e9));
        assert_eq!(
            (id.as_str(), behind[0].clone(), gain),
            ("slow-sender-disk", ("slow-network".into(), 0.25), Some(4.0))
        );
        assert_eq!(behind[1], ("receiver open".into(), 0.1));
        // Twice of what it carries: the disk comes next.
        let (id, behind, gain) = ranked(&of_network, Some(2e9));
        assert_eq!(
            (id.as_str(), behind[0].clone(), gain),
            ("slow-network", ("disk here".into(), 0.5), Some(2.0))
        );
        let back = ExaminedWay { direction: "from".into(), ..of_network };
        assert_eq!(ranked(&back, Some(0.5e9)).0, "slow-receiver-disk");
    }
}
