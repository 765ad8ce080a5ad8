//! The options of `farhaul bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Group, Subcommand};
use farhaul::Cipher;
use farhaul_bench::link::DatagramDirection;

use super::{ConnectionArgs, EXIT_CODES, TransferArgs};
use crate::values;

const MEASUREMENT: &str = "Measurement";

/// Measure what this host, its disks and a link can do by themselves, and what that lets a transfer expect
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
    /// The far end, on stdin and stdout
    #[command(hide = true)]
    Endpoint,
}

/// Cipher, digest and memory copy on one core
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct CpuArgs {
    /// Time of each line of the table in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = values::seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub output: BenchOutputArgs,
}

/// A file's way off a disk and, with --write, onto it: past the page cache and through it
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct DiskArgs {
    /// A file to read; with --write, a directory to write a file in
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Write a file in the directory and read it; it has no name there, and is gone at the end whatever happens
    #[arg(long)]
    pub write: bool,
    /// Bytes of each line of the table, at most
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = values::size)]
    pub size: u64,
    /// Time of each line of the table in seconds, at most
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub output: BenchOutputArgs,
}

/// Datagrams to and from a host without the transport: plain and sealed, one flow and more
#[derive(Group, Debug)]
#[command(after_help = LINK)]
pub struct LinkArgs {
    /// [user@]host, reached over SSH
    #[arg(value_name = "HOST")]
    pub host: OsString,
    /// Time of each case in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = values::seconds, help_heading = MEASUREMENT)]
    pub seconds: f64,
    /// Highest rate in bits a second, such as 800M or 2G; a path with a long round trip is filled only with it
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = MEASUREMENT)]
    pub rate: Option<u64>,
    /// Which way the datagrams go
    #[arg(long, value_name = "WAY", default_value = "both", value_parser = direction, help_heading = MEASUREMENT)]
    pub direction: DatagramDirection,
    /// Number of flows, 1 to 16; may be repeated [default: 1 and 2]
    #[arg(long, value_name = "N", help_heading = MEASUREMENT)]
    pub flows: Vec<usize>,
    /// Size of the IP packets in bytes; may be repeated [default: 1500 and 9000, as the path allows]
    #[arg(long = "packet", value_name = "BYTES", help_heading = MEASUREMENT)]
    pub packets: Vec<usize>,
    /// Cipher of the sealed ones
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

const LINK: &str = "Without --rate at most 2 MiB are on the way at any time, and less when datagrams are lost. What --rate says is sent, \
whatever is lost.";

/// Whole transfers to or from a host, with memory or a disk at either end
#[derive(Group, Debug)]
#[command(after_help = TRANSFER)]
pub struct TransferBenchArgs {
    /// [user@]host over SSH, or fh://host[:port]
    #[arg(value_name = "HOST")]
    pub host: OsString,
    /// Write files at both ends; they are removed at the end
    #[arg(long, help_heading = MEASUREMENT)]
    pub write: bool,
    /// Directory of this host for what is written
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = MEASUREMENT)]
    pub here: PathBuf,
    /// Directory of the far end for what is written [default: the home directory]
    #[arg(long, value_name = "DIR", help_heading = MEASUREMENT)]
    pub there: Option<OsString>,
    /// A file at the sending end to read, instead of one written for it
    #[arg(long, value_name = "FILE", help_heading = MEASUREMENT)]
    pub from: Option<OsString>,
    /// Let the host send and this one receive
    #[arg(long, help_heading = MEASUREMENT)]
    pub pull: bool,
    /// Content of each case, at most
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = values::size, help_heading = MEASUREMENT)]
    pub size: u64,
    /// Time of each case in seconds, at most
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::seconds, help_heading = MEASUREMENT)]
    pub seconds: f64,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub transfer: TransferArgs,
    #[command(flatten)]
    pub output: BenchOutputArgs,
}

const TRANSFER: &str = "Without --write only memory to memory is measured, and disk to memory with --from.";

/// Random reads of a file where it is, many at a time
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct ReadBenchArgs {
    /// Bytes of each read
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = values::size, help_heading = MEASUREMENT)]
    pub size: u64,
    /// Reads under way at a time
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = MEASUREMENT)]
    pub at_once: u64,
    /// Ranges in each request
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = MEASUREMENT)]
    pub vector: u64,
    /// It ends after so many reads
    #[arg(long, value_name = "N", default_value_t = 64_000, help_heading = MEASUREMENT)]
    pub reads: u64,
    /// It ends after so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::seconds, help_heading = MEASUREMENT)]
    pub seconds: f64,
    /// Read the file from its beginning to its end meanwhile, in the same session
    #[arg(long, help_heading = MEASUREMENT)]
    pub beside: bool,
    #[command(flatten)]
    pub look: super::read_verbs::ReadArgs,
}

#[derive(Group, Debug, Default, Clone)]
pub struct BenchOutputArgs {
    /// One JSON object on stdout instead of the table
    #[arg(long, help_heading = super::OUTPUT)]
    pub json: bool,
    /// Errors only, and no table
    #[arg(short = 'q', long, help_heading = super::OUTPUT)]
    pub quiet: bool,
}

fn direction(text: &str) -> Result<DatagramDirection, String> {
    match text {
        "to" => Ok(DatagramDirection::To),
        "from" => Ok(DatagramDirection::From),
        "both" => Ok(DatagramDirection::Both),
        _ => Err(format!("'{text}' is no direction; write to, from or both")),
    }
}
