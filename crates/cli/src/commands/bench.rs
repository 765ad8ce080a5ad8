//! `farhaul bench`: turns the command line into a measurement, and its findings into a table or JSON.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use farhaul::copy::{HostSpec, LocationSpec};
use farhaul::errors::{Code, ErrorDetail, ExitCode};
use farhaul::{Error, Handle};
use farhaul_bench::transfer::BenchTarget;
use farhaul_bench::{Findings, Monitor, cpu, disk, link, read, transfer};

use super::cp::{daemon_target, ssh_target};
use crate::args::ConnectionArgs;
use crate::args::bench::{BenchArgs, BenchOutputArgs, BenchVerb, LinkArgs, ReadBenchArgs, TransferBenchArgs};
use crate::exit;
use crate::signals;
use crate::ui::waiting_line::WaitingLine;
use crate::ui::{findings, log, printer};

pub fn run(args: &BenchArgs) -> ExitCode {
    log::to_stderr("off");
    match &args.part {
        BenchVerb::Cpu(args) => {
            let config = cpu::CpuConfig { time: time(args.seconds) };
            show("cpu", &args.output, |watch, findings| cpu::measure(&config, watch, findings))
        }
        BenchVerb::Disk(args) => {
            let (path, write, size) = (args.path.clone(), args.write, args.size);
            let config = disk::DiskConfig { path, write, size, time: time(args.seconds) };
            show("disk", &args.output, |watch, findings| disk::measure(&config, watch, findings))
        }
        BenchVerb::Link(args) => {
            show("link", &args.output, |watch, findings| link::measure(&link_config(args)?, watch, findings))
        }
        BenchVerb::Transfer(args) => show("transfer", &args.output, |watch, findings| {
            transfer::measure(&transfer_config(args)?, watch, findings)
        }),
        BenchVerb::Read(args) => {
            let output = BenchOutputArgs { json: args.read.json, quiet: args.read.quiet };
            show("read", &output, |watch, findings| read::measure(&read_config(args)?, watch, findings))
        }
        BenchVerb::Endpoint => farhaul_bench::serve(),
    }
}

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Measures, then shows the findings. There may be some even when there is an error.
fn show(
    bench: &str,
    output: &BenchOutputArgs,
    measure: impl FnOnce(&Monitor<'_>, &mut Findings) -> Result<(), Error>,
) -> ExitCode {
    let mut findings = Findings::new(bench);
    let outcome = watched(output, |watch| measure(watch, &mut findings));
    findings.ok = outcome.is_ok();
    findings.error = outcome.as_ref().err().map(text_of);
    findings.error_detail = exit::corrected(outcome.as_ref().err().map(ErrorDetail::from));
    if !output.quiet {
        findings.warnings.iter().for_each(|warning| printer::warning(warning));
    }
    let shown = match (output.json, output.quiet) {
        (true, _) => printer::json(&findings),
        (false, false) if !findings.rows.is_empty() => printer::data(findings::table(&findings).as_bytes()),
        (false, _) => Ok(()),
    };
    match outcome.and(shown) {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            complain(&error);
            error.exit_code()
        }
    }
}

/// Measures, while a line on the terminal says what is measured now. Ctrl-C ends the measurement.
fn watched(
    output: &BenchOutputArgs,
    measure: impl FnOnce(&Monitor<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let handle = Handle::new();
    signals::cancel_on_signal(handle.clone())
        .map_err(|source| Error::of_host("cannot listen for signals", source))?;
    let waiting = WaitingLine::start(!output.quiet);
    let tell = |what: &str| waiting.tell(what);
    measure(&Monitor { stop: handle.cancel_flag(), tell: &tell })
}

/// The usual text of this error says how to go on. A measurement cannot be continued, so it gets a text of
/// its own.
fn text_of(error: &Error) -> String {
    match error.code() {
        Code::Interrupted => "interrupted".into(),
        _ => error.to_string(),
    }
}

fn complain(error: &Error) {
    match error.code() {
        Code::Interrupted => printer::line("error: interrupted"),
        _ => printer::error(error, None),
    }
}

fn link_config(args: &LinkArgs) -> Result<link::LinkConfig, Error> {
    let LocationSpec::Ssh(host, _) = LocationSpec::parse_host(&args.host)? else {
        return Err(Error::new(
            Code::BadLocation,
            format!(
                "{}: raw datagrams need a host that is reached over SSH; write [user@]host",
                args.host.display()
            ),
        ));
    };
    Ok(link::LinkConfig {
        target: ssh_target(&host, &args.connection, args.output.quiet)?,
        time: time(args.seconds),
        rate_bps: args.rate,
        direction: args.direction,
        flows: args.flows.clone(),
        packets: args.packets.clone(),
        cipher: args.cipher,
        udp_ports: args.udp_ports,
    })
}

fn read_config(args: &ReadBenchArgs) -> Result<read::ReadConfig, Error> {
    let [location] = &args.read.locations[..] else {
        return Err(Error::new(
            Code::BadLocation,
            "farhaul bench read measures one file; name only one location",
        ));
    };
    Ok(read::ReadConfig {
        location: super::cp::location(
            &LocationSpec::parse(location)?,
            &args.read.connection,
            args.read.quiet,
        )?,
        network: args.read.network(),
        len: args.size,
        at_once: args.at_once,
        vector: args.vector,
        reads: args.reads,
        time: time(args.seconds),
        beside: args.beside,
    })
}

fn transfer_config(args: &TransferBenchArgs) -> Result<transfer::TransferConfig, Error> {
    if !args.transfer.spread.is_empty() {
        return Err(Error::new(Code::BadOption, "--spread is for cp and sync"));
    }
    let place = LocationSpec::parse_host(&args.host)?;
    let target = match &place {
        LocationSpec::Ssh(host, _) => {
            BenchTarget::Ssh(ssh_target(host, &args.connection, args.output.quiet)?)
        }
        LocationSpec::Daemon(host, _) => daemon(host, &args.connection)?,
        LocationSpec::Local(_) | LocationSpec::Pipe => unreachable!("a host was parsed"),
    };
    let there = args.there.as_ref().map_or(b".".to_vec(), |path| path.as_bytes().to_vec());
    Ok(transfer::TransferConfig {
        target,
        direction: if args.pull {
            transfer::TransferDirection::Pull
        } else {
            transfer::TransferDirection::Push
        },
        write: args.write,
        here: args.here.clone(),
        there,
        from: args.from.as_ref().map(|path| path.as_bytes().to_vec()),
        size: args.size,
        time: time(args.seconds),
        options: args.transfer.options()?.checked()?,
    })
}

fn daemon(host: &HostSpec, connection: &ConnectionArgs) -> Result<BenchTarget, Error> {
    super::cp::no_ssh_options(connection)?;
    Ok(BenchTarget::Daemon(daemon_target(host, connection)))
}
