//! The options of `farhaul gateway`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as Group;
use farhaul::options::CpuList;
use farhaul_gateway::{GatewayPlace, Revalidation};

use super::network::NetworkArgs;
use super::{ConnectionArgs, EXIT_CODES};
use crate::values;

const READERS: &str = "Readers";
const CACHE: &str = "Cache";
const WATCH: &str = "What others see";

/// Let programs that speak HTTP read files of another host
#[derive(Group, Debug)]
#[command(after_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub struct GatewayArgs {
    /// Where readers connect: unix:PATH for this user alone, or ADDRESS:PORT; may be repeated
    #[arg(long, value_name = "PLACE", value_parser = place, required = true)]
    pub listen: Vec<GatewayPlace>,
    /// The directory that is served: [user@]host:path over SSH, fh://[user@]host[:port]/path at a daemon, or a local one
    #[arg(long, value_name = "LOCATION")]
    pub to: OsString,
    /// Let everybody read who can reach an address that is listened on
    #[arg(long, conflicts_with = "tokens", help_heading = READERS)]
    pub public: bool,
    /// File with NAME:SECRET in each line: who shows a secret may read. It must be private (chmod 600)
    #[arg(long, value_name = "FILE", help_heading = READERS)]
    pub tokens: Option<PathBuf>,
    /// Host name under which readers may call this gateway, beside this host's own; may be repeated
    #[arg(long, value_name = "HOST", help_heading = READERS)]
    pub name: Vec<String>,
    /// File with the certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = READERS)]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key for --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = READERS)]
    pub tls_key: Option<PathBuf>,
    /// The most connections of readers [default: 10000, or as many as the limit on open files allows]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help_heading = READERS)]
    pub max_connections: Option<u32>,

    /// Keep what was read in this directory, which only you may enter; several gateways may use one
    #[arg(long, value_name = "DIR", value_parser = values::path_here(), help_heading = CACHE)]
    pub cache: Option<PathBuf>,
    /// Keep at most this much
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = values::size, requires = "cache", help_heading = CACHE)]
    pub cache_size: u64,
    /// When to ask the far host whether a file is still the same: always (for each request), a time such as 10s after
    /// it was last asked, or never. Whether it may be read is asked every 30 s at least
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = revalidation, help_heading = CACHE)]
    pub revalidate: Revalidation,
    /// Another gateway to the same place that is asked before the far host, as http://HOST:PORT; may be repeated
    #[arg(long, value_name = "URL", requires_all = ["own_url", "cache"], help_heading = CACHE)]
    pub sibling: Vec<String>,
    /// The address of this gateway in the others' lists of siblings
    #[arg(long, value_name = "URL", requires = "sibling", help_heading = CACHE)]
    pub own_url: Option<String>,

    /// Write a line of JSON for each answer to this file
    #[arg(long, value_name = "FILE", value_parser = values::file_to_write(), help_heading = WATCH)]
    pub access_log: Option<PathBuf>,
    /// Give metrics for Prometheus at http://ADDRESS:PORT/metrics, without a log-in
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = WATCH)]
    pub metrics: Option<SocketAddr>,
    /// Run only on these cores, such as 0-3,8
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuList>,

    #[command(flatten)]
    pub connection: ConnectionArgs,

    #[command(flatten)]
    pub network: NetworkArgs,

    /// Print errors only
    #[arg(short = 'q', long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more about what happens
    #[arg(short = 'v', long)]
    pub verbose: bool,
}

const HELP: &str = "It runs until it is stopped (Ctrl-C). Nothing is written at the far end. For example:\n\n  \
farhaul gateway --listen unix:$XDG_RUNTIME_DIR/fh.sock --to archive:/data\n  \
curl --unix-socket $XDG_RUNTIME_DIR/fh.sock http://localhost/run7/a.dat";

fn place(text: &str) -> Result<GatewayPlace, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("a socket needs a path, such as unix:/run/user/1000/fh.sock".into()),
        Some(path) => Ok(GatewayPlace::Socket(path.into())),
        None => text.parse::<SocketAddr>().map(GatewayPlace::Tcp).map_err(|_| {
            "this is neither unix:PATH nor ADDRESS:PORT, such as 127.0.0.1:8080 or [::]:8080".into()
        }),
    }
}

fn revalidation(text: &str) -> Result<Revalidation, String> {
    match text {
        "always" => Ok(Revalidation::Always),
        "never" => Ok(Revalidation::Never),
        _ => match values::age(text) {
            Ok(seconds) => Ok(Revalidation::After(Duration::from_secs(seconds))),
            Err(_) => Err("this is not always, never or a time such as 10s or 1h".into()),
        },
    }
}
