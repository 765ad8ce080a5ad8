//! How a transfer fares on the way to another host and back, for a host whose doctor does not answer.
//!
//! Always true: nothing is written at either end; each way is under load for no longer than configured.

use std::time::Duration;

use farhaul::Error;
use farhaul::copy::{CopyJob, Location, Report};
use farhaul::errors::Code;
use farhaul::options::TransferOptions;
use farhaul::sisters::{ExaminedWay, PeerDiagnosis};
use farhaul::target::SshTarget;
use farhaul_doctor::target::Role;

use crate::far_end::FarEnd;
use crate::messages::{EndpointAnswer, EndpointQuestion};
use crate::transfer::{BenchTarget, copy_for};
use crate::{Monitor, bps};

/// Asks the doctor of a host over SSH whose Farhaul is older than the service for that.
pub fn diagnosis(
    target: &SshTarget,
    rate_bps: Option<u64>,
    role: Option<Role>,
    watch: &Monitor<'_>,
) -> Result<PeerDiagnosis, Error> {
    let role = role.map(|role| role.name().to_owned());
    let mut far = FarEnd::start(target, watch)?;
    match far.ask(&EndpointQuestion::Diagnose { rate_bps, role })? {
        EndpointAnswer::Diagnosed(diagnosis) => Ok(diagnosis.tame()),
        other => Err(FarEnd::strange(&other)),
    }
}

/// Loads the way there and the way back. A way that may not be used is left out, and told.
pub fn ways(
    target: &BenchTarget,
    time: Duration,
    watch: &Monitor<'_>,
) -> Result<(Vec<ExaminedWay>, Vec<String>), Error> {
    let (mut ways, mut refusals) = (Vec::new(), Vec::new());
    for direction in ["to", "from"] {
        watch.begin(&format!("the way {direction} {}", target.host()))?;
        match way(target, time, watch, direction) {
            Ok(way) => ways.push(way),
            Err(error) if error.code() == Code::Forbidden => {
                refusals.push(format!("the way {direction} {}: {error}", target.host()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((ways, refusals))
}

/// Loads a way twice: for a moment to see what it carries, and then with as much as that takes the time. Only a transfer that
/// comes to its end has the figures of both ends, from which its limit is known.
fn way(
    target: &BenchTarget,
    time: Duration,
    watch: &Monitor<'_>,
    direction: &str,
) -> Result<ExaminedWay, Error> {
    let moment = time / 4;
    let first = load(target, watch, direction, 1_000_000_000_000, moment)?;
    let bytes = (first.session.bytes as f64 / moment.as_secs_f64() * (time - moment).as_secs_f64()) as u64;
    // A path that has become slower meanwhile may take twice as long, and is then cut off.
    let report = load(target, watch, direction, bytes.max(1 << 20), 2 * time)?;
    // A transfer that was ended early may report no duration.
    let seconds = if report.session.seconds > 0.0 { report.session.seconds } else { time.as_secs_f64() };
    let bps = bps(report.session.bytes, seconds);
    Ok(ExaminedWay::of_report(direction, bps, &report.session))
}

fn load(
    target: &BenchTarget,
    watch: &Monitor<'_>,
    direction: &str,
    bytes: u64,
    time: Duration,
) -> Result<Report, Error> {
    let source = format!("random:{bytes}");
    let here = |what: &str| Location::Local(what.into());
    let there = |what: &str| target.location(what.as_bytes().to_vec());
    let (from, to) = match direction {
        "to" => (here(&source), there("null:")),
        _ => (there(&source), here("null:")),
    };
    let job = CopyJob { options: TransferOptions::default(), ..CopyJob::new([from], to) };
    let (report, error) = copy_for(job, watch, Some(time));
    match error {
        // It was to be ended by the time.
        Some(error) if error.code() != Code::Interrupted || watch.check().is_err() => Err(error),
        _ => Ok(report),
    }
}
