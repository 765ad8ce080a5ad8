//! The options of the verbs that read files in place: `ls`, `stat`, `cat`, `du`, `sum`.

use std::ffi::OsString;

use clap::{ArgAction, Args as Group};
use farhaul::options::{Algorithm, NetworkOptions};

use super::network::NetworkArgs;
use super::{ConnectionArgs, EXIT_CODES, OUTPUT};
use crate::values;

const LOCATIONS: &str = "A location is a local path, [user@]host:path over SSH, or fh://[user@]host[:port]/path at a daemon. The \
far end expands * ? and [a-z] in a path. Nothing is written there.";

/// The text of `--help` in verbs whose `-h` is that of ls and du.
const HELP: &str = "Print help";

/// List directories, here or on another host
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS}\n\n{EXIT_CODES}"), disable_help_flag = true)]
pub struct LsArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Also print kind, permissions, size in bytes, modification time (UTC), and the target of a link
    #[arg(short = 'l', help_heading = OUTPUT)]
    pub long: bool,
    /// With -l: print sizes in KiB, MiB and so on
    #[arg(short = 'h', long, help_heading = OUTPUT)]
    pub human_readable: bool,
    /// Also list all directories below
    #[arg(short = 'R', long, help_heading = OUTPUT)]
    pub recursive: bool,
    /// Also list names that begin with a dot
    #[arg(short = 'a', long, help_heading = OUTPUT)]
    pub all: bool,
    /// List directories themselves, not their contents
    #[arg(short = 'd', long, conflicts_with = "recursive", help_heading = OUTPUT)]
    pub directory: bool,
    /// Print entries at once, in the order in which the far end finds them; by default each directory is
    /// sorted
    #[arg(short = 'U', long, help_heading = OUTPUT)]
    pub unsorted: bool,
    #[arg(long, action = ArgAction::Help, help = HELP)]
    help: Option<bool>,
}

/// Show kind, size, permissions, times, inode and device of files and directories
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS}\n\n{EXIT_CODES}"))]
pub struct StatArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Show what a symbolic link leads to, not the link
    #[arg(short = 'L', long, help_heading = OUTPUT)]
    pub dereference: bool,
}

/// Write files, or a part of each, to standard output
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS}\n\n{EXIT_CODES}"))]
pub struct CatArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Write only these bytes of each file: A-B (A and B included), A- (from A to the end), -N (the last N)
    #[arg(long, value_name = "A-B", value_parser = values::byte_range, allow_hyphen_values = true, help_heading = OUTPUT)]
    pub range: Option<values::ByteRange>,
}

/// Show how much is in directories: number of files, and bytes of content
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS} The content of a file with several names counts once.\n\n{EXIT_CODES}"), disable_help_flag = true)]
pub struct DuArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Also print a line for directories down to this many levels below
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0, help_heading = OUTPUT)]
    pub max_depth: u64,
    /// Print sizes as plain numbers of bytes
    #[arg(short = 'b', long, conflicts_with = "human_readable", help_heading = OUTPUT)]
    pub bytes: bool,
    /// Accepted for du's sake; without -b, sizes are always in KiB, MiB and so on
    #[arg(short = 'h', long, help_heading = OUTPUT)]
    pub human_readable: bool,
    /// Accepted for du's sake; without -d, each location has one line
    #[arg(short = 's', long, conflicts_with = "max_depth", help_heading = OUTPUT)]
    pub summarize: bool,
    #[arg(long, action = ArgAction::Help, help = HELP)]
    help: Option<bool>,
}

/// Print digests of files, computed at the far end, in the format of sha256sum, b3sum, md5sum and xxhsum
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS} These tools and farhaul verify can check the lists.\n\n{EXIT_CODES}"))]
pub struct SumArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Kind of digest: sha256, blake3, md5 or xxh3
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = values::algorithm, help_heading = OUTPUT)]
    pub algorithm: Algorithm,
    /// For a directory, print the digests of all files below it
    #[arg(short = 'r', long, help_heading = OUTPUT)]
    pub recursive: bool,
}

/// The options that these verbs have in common.
#[derive(Group, Debug)]
pub struct ReadArgs {
    /// Files and directories to look at
    #[arg(required = true, value_name = "LOCATION")]
    pub locations: Vec<OsString>,

    #[command(flatten)]
    pub connection: ConnectionArgs,

    #[command(flatten)]
    pub network: NetworkArgs,

    /// Print JSON objects on stdout, one a line
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print errors only
    #[arg(short = 'q', long, help_heading = OUTPUT)]
    pub quiet: bool,
}

impl ReadArgs {
    /// The network's options, for the crate `farhaul`.
    pub fn network(&self) -> NetworkOptions {
        self.network.options()
    }
}
