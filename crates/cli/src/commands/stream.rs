//! `farhaul stream`: sends and receives streams of frames, and shows how they stand.

use std::path::Path;
use std::sync::Arc;

use farhaul::Error;
use farhaul::copy::{Location, LocationSpec};
use farhaul::errors::{Code, ExitCode};
use farhaul::options::NetworkOptions;
use farhaul::sisters::escape;
use farhaul::target::DaemonTarget;
use farhaul_show::{
    ReceiveOptions, ReceivePlan, ShowControl, ShowDocument, ShowFigures, ShowStats, SinkSpec, StatsServer,
    StreamCounts, StreamEntry, StreamRole, StreamSendPlan, StreamServer, StreamStats, ask_stats, send_stream,
};

use super::cp;
use crate::args::stream::{StreamArgs, StreamRecvArgs, StreamSendArgs, StreamStatsArgs, StreamVerb};
use crate::signals;
use crate::ui::{log, printer};
use crate::values::{self, PathChoice};

pub fn run(args: &StreamArgs) -> Result<ExitCode, Error> {
    match &args.verb {
        StreamVerb::Send(args) => send(args),
        StreamVerb::Recv(args) => recv(args),
        StreamVerb::Stats(args) => stats(args),
    }
}

fn send(args: &StreamSendArgs) -> Result<ExitCode, Error> {
    log::to_stderr("off");
    let (show, entries) = match &args.from {
        Some(from) => one_stream(args, from)?,
        None => {
            let document = ShowDocument::load(Path::new(&args.to))?;
            (document.name, document.streams)
        }
    };
    let plan = |entry: &StreamEntry| -> Result<StreamSendPlan, Error> {
        entry.plan(args.wait, network(args, entry)?, |to| receiver(args, to))
    };
    let plans = entries.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    let counts: Vec<_> = plans
        .iter()
        .map(|plan| {
            let deadline = plan.deadline.and_then(|deadline| u64::try_from(deadline.as_nanos()).ok());
            Arc::new(StreamCounts::new(&plan.name, StreamRole::Send, deadline))
        })
        .collect();
    let control = stopped_by_signals()?;
    let figures = ShowFigures { show, streams: counts.clone() };
    let _server = StatsServer::start(figures.clone(), StreamRole::Send)?;
    let notice = |text: &str| notice(args.output.quiet, text);
    let results = std::thread::scope(|scope| {
        let running: Vec<_> = plans
            .iter()
            .zip(&counts)
            .map(|(plan, counts)| {
                let (control, notice) = (&control, &notice);
                scope.spawn(move || send_stream(plan, control, counts, notice))
            })
            .collect();
        running.into_iter().map(joined).collect::<Vec<_>>()
    });
    finish(&figures, results, args.output.json, args.output.quiet)
}

/// The one stream that the command line describes.
fn one_stream(args: &StreamSendArgs, from: &str) -> Result<(String, Vec<StreamEntry>), Error> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => {
            let (_, path) = receiver(args, &args.to)?;
            String::from_utf8_lossy(&path).trim_matches('/').to_string()
        }
    };
    if name.is_empty() {
        let what = "the stream has no name: write it behind the host, as in fh://host/tile-3";
        return Err(Error::new(Code::BadOption, what));
    }
    let entry = StreamEntry {
        name: name.clone(),
        from: from.into(),
        to: args.to.clone(),
        frame: args.frame.clone(),
        fps: args.fps,
        deadline: args.deadline.clone(),
        frames: args.frames,
        ..StreamEntry::default()
    };
    Ok((name, vec![entry]))
}

fn receiver(args: &StreamSendArgs, to: &str) -> Result<(DaemonTarget, Vec<u8>), Error> {
    let place = LocationSpec::parse(to.as_ref())?;
    match cp::location(&place, &args.connection, args.output.quiet)? {
        Location::Daemon { target, path } => Ok((target, path)),
        Location::Ssh { .. } | Location::Local(_) | Location::Pipe => {
            let what =
                format!("{to:?} is no receiver; write fh://host/name, where `farhaul stream recv` runs");
            Err(Error::new(Code::BadLocation, what))
        }
    }
}

fn network(args: &StreamSendArgs, entry: &StreamEntry) -> Result<NetworkOptions, Error> {
    let wrong = |what: String| Error::new(Code::BadOption, what).about(&entry.name);
    let named =
        entry.paths.iter().map(|path| values::path(path)).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let mut network = args.network.options();
    for path in args.paths.iter().chain(&named) {
        match path {
            PathChoice::Auto => network.auto_paths = true,
            PathChoice::Named(addresses) => network.paths.push(*addresses),
        }
    }
    Ok(network)
}

fn recv(args: &StreamRecvArgs) -> Result<ExitCode, Error> {
    log::to_stderr("off");
    if args.name.len() != args.to.len() {
        let what = format!(
            "there are {} streams and {} places: give each --name its --to",
            args.name.len(),
            args.to.len()
        );
        return Err(Error::new(Code::BadOption, what));
    }
    let plan = |(name, to): (&String, &String)| -> Result<ReceivePlan, Error> {
        Ok(ReceivePlan { name: name.clone(), sink: SinkSpec::parse(to)? })
    };
    let plans = args.name.iter().zip(&args.to).map(plan).collect::<Result<Vec<_>, _>>()?;
    let outputs = plans.iter().filter(|plan| plan.sink == SinkSpec::Pipe(None)).count();
    if outputs + usize::from(args.output.json) > 1 {
        return Err(Error::new(
            Code::BadOption,
            "standard output can take one stream, or the figures of --json",
        ));
    }
    let options = ReceiveOptions {
        listen: args.listen.clone(),
        identity: args.identity.clone(),
        authorized_keys: args.authorized_keys.clone(),
        allow_cipher_none: args.allow_cipher_none,
        memory: args.memory,
        wait: args.wait,
    };
    let server = StreamServer::listen(options, &args.name)?;
    let counts: Vec<_> =
        plans.iter().map(|plan| Arc::new(StreamCounts::new(&plan.name, StreamRole::Recv, None))).collect();
    let control = stopped_by_signals()?;
    let figures = ShowFigures { show: args.name[0].clone(), streams: counts.clone() };
    let _server = StatsServer::start(figures.clone(), StreamRole::Recv)?;
    let quiet = args.output.quiet;
    let addresses: Vec<_> = server.local_addrs().iter().map(ToString::to_string).collect();
    notice(
        quiet,
        &format!(
            "waiting for {} on {} (key {})",
            args.name.join(", "),
            addresses.join(" and "),
            server.fingerprint()
        ),
    );
    let notice = |text: &str| notice(quiet, text);
    let results = std::thread::scope(|scope| {
        let running: Vec<_> = plans
            .iter()
            .zip(&counts)
            .map(|(plan, counts)| {
                let (control, notice, server) = (&control, &notice, &server);
                scope.spawn(move || server.receive(plan, control, counts, notice))
            })
            .collect();
        let listened = server.run(|| running.iter().all(|thread| thread.is_finished()));
        if listened.is_err() {
            control.abort();
        }
        let results: Vec<_> = running.into_iter().map(joined).collect();
        listened.map(|()| results)
    })?;
    finish(&figures, results, args.output.json, quiet)
}

fn joined(
    thread: std::thread::ScopedJoinHandle<'_, Result<StreamStats, Error>>,
) -> Result<StreamStats, Error> {
    thread.join().unwrap_or_else(|_| Err(Error::bug("a stream")))
}

/// The first signal ends the show in order; a later one ends the process at once.
fn stopped_by_signals() -> Result<ShowControl, Error> {
    let control = ShowControl::new();
    let stopped = control.clone();
    signals::end_on_signal(move || stopped.stop())
        .map_err(|error| Error::of_host("cannot listen for signals", error))?;
    Ok(control)
}

fn notice(quiet: bool, text: &str) {
    if !quiet {
        printer::line(text);
    }
}

/// Prints the figures and the errors. The first error decides the exit code.
fn finish(
    figures: &ShowFigures,
    results: Vec<Result<StreamStats, Error>>,
    json: bool,
    quiet: bool,
) -> Result<ExitCode, Error> {
    let stats = figures.stats();
    if !quiet {
        stats.streams.iter().for_each(|stream| printer::line(&line(stream)));
    }
    let mut code = ExitCode::Ok;
    for (result, stream) in results.into_iter().zip(&stats.streams) {
        if let Err(error) = result {
            if code == ExitCode::Ok || code == ExitCode::Interrupted {
                code = error.exit_code();
            }
            if error.code() != Code::Interrupted {
                printer::error(&error.about(&stream.name), None);
                printer::code(&error);
            }
        }
    }
    if json {
        print_json(&stats)?;
    }
    Ok(code)
}

fn stats(args: &StreamStatsArgs) -> Result<ExitCode, Error> {
    let show = match args.show.ends_with(".toml") {
        true => ShowDocument::load(Path::new(&args.show))?.name,
        false => args.show.clone(),
    };
    for stats in ask_stats(&show)? {
        if args.json {
            print_json(&stats)?;
        } else {
            let lines: String = stats.streams.iter().map(|stream| line(stream) + "\n").collect();
            printer::data(lines.as_bytes())?;
        }
    }
    Ok(ExitCode::Ok)
}

fn print_json(stats: &ShowStats) -> Result<(), Error> {
    let text = serde_json::to_string(stats).map_err(|error| Error::bug(error.to_string()))?;
    printer::data(format!("{}\n", printer::harmless_json(&text)).as_bytes())
}

/// How a stream stands, in one line.
fn line(stream: &StreamStats) -> String {
    let StreamStats { name, role, peer, deadline_ms, receiver, sessions, segments_repaired, rtt_ms, .. } =
        stream;
    let shown = |text: &String| escape(text.as_bytes());
    let (name, peer) = (shown(name), shown(peer));
    let way = match (role, peer.is_empty()) {
        (_, true) => "waits".to_string(),
        (StreamRole::Send, false) => format!("to {peer}"),
        (StreamRole::Recv, false) => format!("from {peer}"),
    };
    let fared = match deadline_ms {
        Some(deadline) => format!(
            "{} on time (deadline {deadline} ms), {} late, {} dropped",
            receiver.on_time, receiver.late, receiver.dropped
        ),
        None => format!("{} arrived", receiver.on_time),
    };
    let delay = format!(
        "delay {:.1} ms mean, {:.1} ms longest, +-{:.1}",
        receiver.delay_ms_mean, receiver.delay_ms_max, receiver.clock_error_ms
    );
    let again = if *sessions > 1 { format!(", {sessions} connections") } else { String::new() };
    format!(
        "{name} {way}: {} frames, {fared}; {delay}; {segments_repaired} segments repaired, round trip {rtt_ms:.1} ms{again}",
        stream.frames
    )
}
