//! The options of `farhaul bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Group, Subcommand};
use farhaul::options::Cipher;
use farhaul_bench::link::DatagramDirection;

use super::{ConnectionArgs, EXIT_CODES, TransferArgs};
use crate::values;

const MEASUREMENT: &str = "Measurement";

/// Measure this host, its disks and a link, each by itself, and estimate how fast a transfer can be
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub part: BenchVerb,
}

#[derive(Subcommand, Debug)]
pub enum BenchVerb {
    Cpu(CpuArgs),
    Disk(DiskArgs),
    Link(Box<LinkArgs>),
    Transfer(Box<TransferBenchArgs>),
    Read(Box<ReadBenchArgs>),
    /// The far end of a measurement over SSH, on stdin and stdout
    #[command(hide = true)]
    Endpoint,
}

/// Measure ciphers, digest and memory copy on one core
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct CpuArgs {
    /// Time for each line of the table, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = values::seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub output: BenchOutputArgs,
}

/// Measure reading from a disk and, with --write, writing to it: with the page cache and without
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct DiskArgs {
    /// A file to read, or with --write a directory to write a file in
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Write a file in the directory and read it; the file has no name and is always gone at the end
    #[arg(long)]
    pub write: bool,
    /// Most bytes to move for each line of the table
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = values::size)]
    pub size: u64,
    /// Longest time for each line of the table, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub output: BenchOutputArgs,
}

/// Measure datagrams to and from a host, without the transport: plain and sealed, with one flow and several
#[derive(Group, Debug)]
#[command(after_help = LINK_HELP)]
pub struct LinkArgs {
    /// The other host, [user@]host, reached over SSH
    #[arg(value_name = "HOST")]
    pub host: OsString,
    /// Time for each case, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = values::seconds, help_heading = MEASUREMENT)]
    pub seconds: f64,
    /// Send at this rate in bits a second, such as 800M or 2G; a path with a long round trip needs it to be
    /// filled
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = MEASUREMENT)]
    pub rate: Option<u64>,
    /// Which way the datagrams go: to, from or both
    #[arg(long, value_name = "WAY", default_value = "both", value_parser = direction, help_heading = MEASUREMENT)]
    pub direction: DatagramDirection,
    /// Number of flows, 1 to 16; may be repeated [default: 1 and 2]
    #[arg(long, value_name = "N", help_heading = MEASUREMENT)]
    pub flows: Vec<usize>,
    /// Size of the IP packets in bytes; may be repeated [default: 1500, and 9000 if the path allows it]
    #[arg(long = "packet", value_name = "BYTES", help_heading = MEASUREMENT)]
    pub packets: Vec<usize>,
    /// Cipher of the sealed datagrams
    #[arg(long, value_name = "CIPHER", default_value = "aes-128-gcm", help_heading = MEASUREMENT,
          value_parser = values::choice::<Cipher>(&["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"]))]
    pub cipher: Cipher,
    /// UDP ports that the far end may use
    #[arg(long, value_name = "FIRST-LAST", default_value = "33001-33100", value_parser = values::port_range,
          help_heading = MEASUREMENT)]
    pub udp_ports: (u16, u16),
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub output: BenchOutputArgs,
}

const LINK_HELP: &str = "Without --rate, at most 2 MiB are on the way at any time, and less when datagrams are lost. With --rate, the rate \
stays the same whatever is lost.";

/// Measure whole transfers to or from a host, with memory or a disk at either end
#[derive(Group, Debug)]
#[command(after_help = TRANSFER_HELP)]
pub struct TransferBenchArgs {
    /// The other host: [user@]host over SSH, or fh://host[:port]
    #[arg(value_name = "HOST")]
    pub host: OsString,
    /// Also measure with files that are written at both ends and removed afterwards
    #[arg(long, help_heading = MEASUREMENT)]
    pub write: bool,
    /// Directory on this host for the files of --write
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = MEASUREMENT)]
    pub here: PathBuf,
    /// Directory on the far end for the files of --write [default: the home directory]
    #[arg(long, value_name = "DIR", help_heading = MEASUREMENT)]
    pub there: Option<OsString>,
    /// File at the sending end to read, instead of one that is written for the measurement
    #[arg(long, value_name = "FILE", help_heading = MEASUREMENT)]
    pub from: Option<OsString>,
    /// Let the other host send and this one receive
    #[arg(long, help_heading = MEASUREMENT)]
    pub pull: bool,
    /// Most content to move for each case
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = values::size, help_heading = MEASUREMENT)]
    pub size: u64,
    /// Longest time for each case, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::seconds, help_heading = MEASUREMENT)]
    pub seconds: f64,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub transfer: TransferArgs,
    #[command(flatten)]
    pub output: BenchOutputArgs,
}

const TRANSFER_HELP: &str =
    "Without --write, only memory to memory is measured, and with --from also disk to memory.";

/// Measure random reads of a file at the far end, many at a time
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct ReadBenchArgs {
    /// Bytes in each range that is read
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = values::size, help_heading = MEASUREMENT)]
    pub size: u64,
    /// Ranges that are under way at a time
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = MEASUREMENT)]
    pub at_once: u64,
    /// Ranges in each request
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = MEASUREMENT)]
    pub vector: u64,
    /// End after this many ranges have been read
    #[arg(long, value_name = "N", default_value_t = 64_000, help_heading = MEASUREMENT)]
    pub reads: u64,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::seconds, help_heading = MEASUREMENT)]
    pub seconds: f64,
    /// Meanwhile read the file from beginning to end in the same session
    #[arg(long, help_heading = MEASUREMENT)]
    pub beside: bool,
    #[command(flatten)]
    pub read: super::read_verbs::ReadArgs,
}

#[derive(Group, Debug, Default, Clone)]
pub struct BenchOutputArgs {
    /// Print one JSON object on stdout instead of the table
    #[arg(long, help_heading = super::OUTPUT)]
    pub json: bool,
    /// Print errors only, and no table
    #[arg(short = 'q', long, help_heading = super::OUTPUT)]
    pub quiet: bool,
}

fn direction(text: &str) -> Result<DatagramDirection, String> {
    match text {
        "to" => Ok(DatagramDirection::To),
        "from" => Ok(DatagramDirection::From),
        "both" => Ok(DatagramDirection::Both),
        _ => Err(format!("'{text}' is not a direction; write to, from or both")),
    }
}
