//! The options of `farhaul stream`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Group, Subcommand};

use super::network::NetworkArgs;
use super::{ConnectionArgs, EXIT_CODES, listen_address};
use crate::values::{self, PathChoice};

const FRAMES: &str = "Frames";

/// Send frames of a detector, a camera or a renderer as they are made: in order and complete, or each on time
#[derive(Group, Debug)]
pub struct StreamArgs {
    #[command(subcommand)]
    pub verb: StreamVerb,
}

#[derive(Subcommand, Debug)]
pub enum StreamVerb {
    Send(Box<StreamSendArgs>),
    Recv(Box<StreamRecvArgs>),
    Stats(StreamStatsArgs),
}

const SEND_HELP: &str = "A source is file:F (cut into frames), dir:D or dir:PATTERN (each file is a frame), pipe:P or - (cut by \
--frame), or test:WIDTHxHEIGHT (a picture that moves). A receiver is fh://host[:port]/name, where `farhaul stream recv` runs. For example:\n\n  \
farhaul stream send --name tile-3 --from test:1920x1080 --fps 24 fh://host/tile-3\n  \
farhaul stream send show.toml";

/// Send one stream, or all streams of a SHOW.toml
#[derive(Group, Debug)]
#[command(after_help = format!("{SEND_HELP}\n\n{EXIT_CODES}"))]
pub struct StreamSendArgs {
    /// File that describes the streams, or with --from the receiver of one stream
    #[arg(value_name = "SHOW.toml|RECEIVER")]
    pub to: String,
    /// Where the frames of one stream come from
    #[arg(long, value_name = "SOURCE", help_heading = FRAMES)]
    pub from: Option<String>,
    /// Name of the stream [default: the one in the receiver's address]
    #[arg(long, value_name = "NAME", requires = "from", help_heading = FRAMES)]
    pub name: Option<String>,
    /// Size of the frames that a file or a pipe is cut into; prefixed = before each frame of a pipe comes its length,
    /// four bytes, little-endian [default for files: 1M]
    #[arg(long, value_name = "SIZE|prefixed", requires = "from", help_heading = FRAMES)]
    pub frame: Option<String>,
    /// Frames a second [default: as fast as it goes]
    #[arg(long, value_name = "NUMBER", requires = "from", help_heading = FRAMES)]
    pub fps: Option<f64>,
    /// Each frame arrives within this time of its hand-over, or is dropped whole [default: all arrive, in order]
    #[arg(long, value_name = "TIME", requires = "from", help_heading = FRAMES)]
    pub deadline: Option<String>,
    /// Send this many frames at most
    #[arg(long, value_name = "COUNT", requires = "from", help_heading = FRAMES)]
    pub frames: Option<u64>,
    /// How long to wait for a receiver that is not there, or has gone
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time, help_heading = FRAMES)]
    pub wait: Duration,
    /// Use the path between this address of this host and that address of the far end; repeat the option to use several
    #[arg(long = "path", value_name = "LOCAL=REMOTE|auto", value_parser = values::path, requires = "from", help_heading = FRAMES)]
    pub paths: Vec<PathChoice>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub output: StreamOutputArgs,
}

/// Receive streams, until they are over
#[derive(Group, Debug)]
#[command(after_help = format!("Keys are those of `farhaul serve`. For example:\n\n  farhaul stream recv --name tile-3 --to dir:tile-3\n\n{EXIT_CODES}"))]
pub struct StreamRecvArgs {
    /// Name of a stream; may be repeated, each with its --to
    #[arg(long, value_name = "NAME", required = true)]
    pub name: Vec<String>,
    /// Where its frames go: file:F (one after another), dir:D (a file for each), pipe:P or - (standard output), or null
    #[arg(long, value_name = "SINK", required = true)]
    pub to: Vec<String>,
    /// Address and port to listen on, UDP and TCP; may be repeated [default: [::]:33001]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub listen: Vec<SocketAddr>,
    /// File with this end's private key [default: ~/.config/farhaul/id_ed25519, made if it does not exist]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// File with the public keys that are let in, one a line [default: ~/.config/farhaul/authorized_keys]
    #[arg(long, value_name = "FILE")]
    pub authorized_keys: Option<PathBuf>,
    /// Let senders send unencrypted
    #[arg(long)]
    pub allow_cipher_none: bool,
    /// Memory for each stream
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = values::size)]
    pub memory: u64,
    /// How long to wait for a sender that has gone
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub wait: Duration,
    #[command(flatten)]
    pub output: StreamOutputArgs,
}

/// Show how the streams of a running `farhaul stream` stand
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct StreamStatsArgs {
    /// Name of the show or of the stream, or the SHOW.toml
    #[arg(value_name = "SHOW")]
    pub show: String,
    /// Print one JSON object a line, one for each process
    #[arg(long)]
    pub json: bool,
}

#[derive(Group, Debug)]
pub struct StreamOutputArgs {
    /// Print the figures of all streams at the end as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    farhaul_show::time(text)
        .ok_or_else(|| format!("'{text}' is not a length of time; write one such as 500ms, 30s or 5m"))
}
