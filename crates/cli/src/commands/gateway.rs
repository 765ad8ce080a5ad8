//! `farhaul gateway`: serves files of another host by HTTP until it is stopped.

use std::path::Path;

use farhaul::Error;
use farhaul::copy::{Location, LocationSpec};
use farhaul::errors::{Code, ExitCode};
use farhaul_gateway::{
    Access, GatewayCache, GatewayConfig, GatewayPlace, HostNames, SiblingList, Tokens, serve,
};
use tokio::sync::watch;

use super::cp;
use super::mount::cache_place;
use crate::args::gateway::GatewayArgs;
use crate::signals;
use crate::ui::{log, printer};

pub fn run(args: &GatewayArgs) -> Result<ExitCode, Error> {
    log::to_stderr(match (args.quiet, args.verbose) {
        (true, _) => "error",
        (_, true) => "debug",
        _ => "warn",
    });
    let place = LocationSpec::parse(&args.to)?;
    if place == LocationSpec::Pipe || place.is_made() || place.is_sink() {
        return Err(Error::new(Code::BadLocation, "a pipe or null:, zero: or random: has no files to serve"));
    }
    let to = cp::location(&place, &args.connection, args.quiet)?;
    let config = GatewayConfig {
        cache: args.cache.as_ref().map(|directory| cache(args, directory, &to)),
        to,
        network: args.network.options(),
        listen: args.listen.clone(),
        access: access(args)?,
        names: HostNames::new(args.name.clone()),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        revalidation: args.revalidate,
        siblings: args.own_url.clone().map(|own| SiblingList { own, others: args.sibling.clone() }),
        metrics: args.metrics,
        access_log: args.access_log.clone(),
        connections_max: args.max_connections.and_then(|count| usize::try_from(count).ok()),
    };
    let (tell, stop) = watch::channel(false);
    signals::end_on_signal(move || {
        let _ = tell.send(true);
    })
    .map_err(Error::no_thread)?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    serve(config, stop, |bound| {
        if args.quiet {
            return;
        }
        let sockets = args.listen.iter().filter_map(|place| match place {
            GatewayPlace::Socket(path) => Some(format!("unix:{}", path.display())),
            GatewayPlace::Tcp(_) => None,
        });
        let places = sockets.chain(bound.iter().map(|address| format!("{scheme}://{address}/")));
        let to = farhaul::sisters::escape(args.to.as_encoded_bytes());
        printer::line(&format!("serving {to} at {}", places.collect::<Vec<_>>().join(" and ")));
    })?;
    Ok(ExitCode::Ok)
}

fn cache(args: &GatewayArgs, directory: &Path, to: &Location) -> GatewayCache {
    let (place, base) = cache_place(to);
    GatewayCache { directory: directory.to_path_buf(), size: args.cache_size, place, base }
}

/// Who may read. Without a word about it, nobody may over TCP.
fn access(args: &GatewayArgs) -> Result<Access, Error> {
    if args.public {
        return Ok(Access::Public);
    }
    if let Some(path) = &args.tokens {
        return Tokens::load(path).map(Access::Tokens);
    }
    match args.listen.iter().any(|place| matches!(place, GatewayPlace::Tcp(_))) {
        true => Err(Error::new(Code::BadOption, "it is not said who may read at the addresses of `listen`")
            .with_hint(
                "give it `tokens` with a file of secrets, or `public` if everybody may read these files",
            )),
        false => Ok(Access::Tokens(Tokens::default())),
    }
}
