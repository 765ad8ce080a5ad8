//! The options of the verbs that look at files where they are: `ls`, `stat`, `cat`, `du`, `sum`.

use std::ffi::OsString;

use clap::Args as Group;
use farhaul::{Algorithm, Cipher, NetworkOptions, Policy};

use super::{ConnectionArgs, EXIT_CODES, OUTPUT, TRANSFER, TestingArgs};
use crate::values;

const PLACES: &str = "A location is a local path, [user@]host:path over SSH, or fh://[user@]host[:port]/path at a daemon; * ? \
and [a-z] in a path are looked up there. Nothing is written.";

/// List directories, here or on another host
#[derive(Group, Debug)]
#[command(after_help = format!("{PLACES}\n\n{EXIT_CODES}"))]
pub struct LsArgs {
    #[command(flatten)]
    pub look: ReadArgs,
    /// Kind and permissions, size in bytes, when it was changed (UTC), where a link leads
    #[arg(short = 'l', help_heading = OUTPUT)]
    pub long: bool,
    /// Also what is in the directories in them
    #[arg(short = 'R', long, help_heading = OUTPUT)]
    pub recursive: bool,
    /// Also names that begin with a dot
    #[arg(short = 'a', long, help_heading = OUTPUT)]
    pub all: bool,
    /// Directories themselves, not what is in them
    #[arg(short = 'd', long, conflicts_with = "recursive", help_heading = OUTPUT)]
    pub directory: bool,
    /// In the order in which the far end comes upon them, and at once; else each directory is sorted
    #[arg(short = 'U', long, help_heading = OUTPUT)]
    pub unsorted: bool,
}

/// Say what there is at a path: kind, size, times, permissions, by what it is known
#[derive(Group, Debug)]
#[command(after_help = format!("{PLACES}\n\n{EXIT_CODES}"))]
pub struct StatArgs {
    #[command(flatten)]
    pub look: ReadArgs,
    /// Of a symbolic link, what it leads to
    #[arg(short = 'L', long, help_heading = OUTPUT)]
    pub dereference: bool,
}

/// Write files to standard output, or a part of one
#[derive(Group, Debug)]
#[command(after_help = format!("{PLACES}\n\n{EXIT_CODES}"))]
pub struct CatArgs {
    #[command(flatten)]
    pub look: ReadArgs,
    /// Nothing but these bytes of each file: A-B with both ends, A- from A on, -N the last N
    #[arg(long, value_name = "A-B", value_parser = values::byte_range, allow_hyphen_values = true, help_heading = OUTPUT)]
    pub range: Option<values::ByteRange>,
}

/// Say how much there is in directories: files, and bytes of content
#[derive(Group, Debug)]
#[command(after_help = format!("{PLACES} A file with several names counts once.\n\n{EXIT_CODES}"))]
pub struct DuArgs {
    #[command(flatten)]
    pub look: ReadArgs,
    /// A line also for directories so many levels below
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0, help_heading = OUTPUT)]
    pub max_depth: u64,
    /// Bytes as a plain number
    #[arg(short = 'b', long, help_heading = OUTPUT)]
    pub bytes: bool,
}

/// Print digests of files, computed where they are, as sha256sum, b3sum, md5sum and xxhsum write them
#[derive(Group, Debug)]
#[command(after_help = format!("{PLACES} The lists can be checked with those tools and with farhaul verify.\n\n{EXIT_CODES}"))]
pub struct SumArgs {
    #[command(flatten)]
    pub look: ReadArgs,
    /// sha256, blake3, md5 or xxh3
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = values::algorithm, help_heading = OUTPUT)]
    pub algorithm: Algorithm,
    /// Of all files in directories
    #[arg(short = 'r', long, help_heading = OUTPUT)]
    pub recursive: bool,
}

/// What they have in common.
#[derive(Group, Debug)]
pub struct ReadArgs {
    /// What to look at
    #[arg(required = true, value_name = "LOCATION")]
    pub locations: Vec<OsString>,

    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Highest rate in bits a second, such as 800M or 2G
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = TRANSFER)]
    pub rate: Option<u64>,
    /// How the rate is set: fair shares the path, high takes about two shares, low what others leave, fixed
    /// holds --rate whatever happens
    #[arg(long, value_name = "POLICY", default_value = "fair", help_heading = TRANSFER,
          value_parser = values::choice::<Policy>(&["fixed", "high", "fair", "low"]))]
    pub policy: Policy,
    /// Cipher of the data; none leaves file contents in the clear, which a daemon must allow
    #[arg(long, value_name = "CIPHER", default_value = "aes-128-gcm", help_heading = TRANSFER,
          value_parser = values::choice::<Cipher>(&["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "none"]))]
    pub cipher: Cipher,
    /// Largest packet in bytes [default: found by probing]
    #[arg(long, value_name = "BYTES", help_heading = TRANSFER)]
    pub mtu: Option<u16>,
    /// UDP ports that the far end may use over SSH [default: 33001-33100]
    #[arg(long, value_name = "FIRST-LAST", value_parser = values::port_range, help_heading = TRANSFER)]
    pub udp_ports: Option<(u16, u16)>,
    /// Memory for data in transit on each end [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = TRANSFER)]
    pub memory: Option<u64>,
    /// Fail rather than go on over TCP or SSH when UDP does not get through
    #[arg(long, help_heading = TRANSFER)]
    pub udp_only: bool,

    /// JSON objects on stdout, one a line
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Errors only
    #[arg(short = 'q', long, help_heading = OUTPUT)]
    pub quiet: bool,

    #[command(flatten)]
    pub testing: TestingArgs,
}

impl ReadArgs {
    /// The engine's options; what was not given keeps the engine's default. Judged by the engine.
    pub fn network(&self) -> NetworkOptions {
        let default = NetworkOptions::default();
        NetworkOptions {
            cipher: self.cipher,
            policy: self.policy,
            rate_bps: self.rate,
            mtu: self.mtu,
            memory_bytes: self.memory.unwrap_or(default.memory_bytes),
            udp_only: self.udp_only,
            udp_ports: self.udp_ports.unwrap_or(default.udp_ports),
            testing: self.testing.of_engine(),
            ..default
        }
    }
}
