//! `farhaul tunnel`: carries connections until it is stopped.

use std::sync::Arc;

use farhaul::copy::LocationSpec;
use farhaul::errors::{Code, ExitCode};
use farhaul::tunnel::{Failure, Forward, Forwarder, TunnelEvent};
use farhaul::{Error, Handle};
use serde_json::{Value, json};

use super::cp;
use crate::args::tunnel::TunnelArgs;
use crate::signals;
use crate::ui::{log, printer};

pub fn run(args: &TunnelArgs) -> Result<ExitCode, Error> {
    log::to_stderr("off");
    let mut forwards = Vec::new();
    for (texts, read) in [
        (&args.local, Forward::local as fn(&str) -> Result<Forward, Error>),
        (&args.remote, Forward::remote),
        (&args.dynamic, Forward::dynamic),
    ] {
        for text in texts {
            forwards.push(read(text)?);
        }
    }
    if forwards.is_empty() {
        return Err(Error::new(Code::BadOption, "a tunnel needs -L, -R or -D")
            .with_hint("such as: farhaul tunnel -L 5432:db:5432 user@host"));
    }
    let place = LocationSpec::parse_host(&args.host)?;
    let caller = Handle::new();
    signals::cancel_on_signal(caller.clone())
        .map_err(|error| Error::of_host("cannot listen for signals", error))?;
    let host = args.host.to_string_lossy().into_owned();
    let (is_json, is_quiet, stopped) = (args.json, args.quiet, caller.clone());
    let forwarder = Forwarder {
        location: cp::location(&place, &args.connection, args.quiet)?,
        network: args.network.options(),
        forwards,
        observer: Arc::new(move |event| {
            if is_json {
                // Without a reader of what was asked for, there is nothing left to do.
                if printer::json(&as_json(&event)).is_err() {
                    stopped.cancel();
                }
            } else if !is_quiet || !matches!(event, TunnelEvent::Listening { .. } | TunnelEvent::Connected) {
                printer::line(&as_line(&event, &host));
            }
        }),
    };
    match forwarder.run(&caller) {
        // Whoever stops a tunnel has had what he wanted of it.
        Err(_) if caller.is_cancelled() => Ok(ExitCode::Ok),
        Err(error) if is_json => {
            printer::json(&json!({"event": "ended", "why": why(&error)}))?;
            Err(error)
        }
        ended => ended.map(|()| ExitCode::Ok),
    }
}

fn as_line(event: &TunnelEvent, host: &str) -> String {
    match event {
        TunnelEvent::Listening { forward, port } => {
            let mut at = forward.at().clone();
            at.port = *port;
            let (here, there) = ("this host", host);
            match forward {
                Forward::Local { target, .. } => format!("{at} leads to {target}, as {there} reaches it"),
                Forward::Remote { target, .. } => {
                    format!("{at} on {there} leads to {target}, as {here} reaches it")
                }
                Forward::Dynamic { .. } => format!("{at} is a SOCKS proxy on {there}"),
            }
        }
        TunnelEvent::Connected => format!("connected to {host}"),
        TunnelEvent::Lost { error, pause } => {
            format!("error: {error} [{}]; trying again in {:.1} s", error.code(), pause.as_secs_f64())
        }
        TunnelEvent::Refused { forward, failure, .. } => {
            format!("error: {}: {} [{}]", forward.at(), failure.reason, failure.code)
        }
        TunnelEvent::NotListening { failure, .. } => {
            format!("error: {host}: {} [{}]", failure.reason, failure.code)
        }
    }
}

/// Why a session was lost, or none can be begun.
fn why(error: &Error) -> Value {
    json!({
        "code": error.code(),
        "reason": error.to_string(),
        "misbehaviour": error.misbehaviour().map(|how| how.name()),
    })
}

fn as_json(event: &TunnelEvent) -> Value {
    let way = |forward: &Forward| {
        let at = forward.at();
        json!({"way": forward.letter(), "bind": at.bind, "port": at.port, "target": forward.target().map(ToString::to_string)})
    };
    let because = |failure: &Failure| json!({"code": failure.code, "reason": failure.reason});
    match event {
        TunnelEvent::Listening { forward, port } => {
            json!({"event": "listening", "forward": way(forward), "port": port})
        }
        TunnelEvent::Connected => json!({"event": "connected"}),
        TunnelEvent::Lost { error, pause } => json!({
            "event": "lost",
            "why": why(error),
            "again_in_s": pause.as_secs_f64(),
        }),
        TunnelEvent::Refused { forward, target, failure } => json!({
            "event": "refused",
            "forward": way(forward),
            "target": target.as_ref().map(ToString::to_string),
            "why": because(failure),
        }),
        TunnelEvent::NotListening { forward, failure } => {
            json!({"event": "not-listening", "forward": way(forward), "why": because(failure)})
        }
    }
}
