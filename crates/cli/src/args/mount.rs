//! The options of `farhaul mount` and `farhaul umount`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args as Group;

use super::network::NetworkArgs;
use super::{ConnectionArgs, EXIT_CODES};
use crate::values;

const MOUNT: &str = "Mount";

/// Show the files of another host as files of this one, read-only
#[derive(Group, Debug)]
#[command(after_help = format!("A location is [user@]host:path over SSH, or fh://host[:port]/path at a daemon. The mount goes on in the \
background until `farhaul umount`.\n\n{EXIT_CODES}"))]
pub struct MountArgs {
    /// Directory on the other host
    #[arg(value_name = "LOCATION")]
    pub location: OsString,
    /// Directory here on which it is mounted
    #[arg(value_name = "DIR", value_parser = values::path_here())]
    pub directory: PathBuf,
    /// Stay in the foreground until the mount ends; Ctrl-C ends it
    #[arg(short = 'f', long, help_heading = MOUNT)]
    pub foreground: bool,
    /// Let other users in: each sees what your key may read, as far as modes allow it; for root, and where
    /// /etc/fuse.conf has user_allow_other
    #[arg(long, help_heading = MOUNT)]
    pub allow_other: bool,
    /// Take names, times and modes for this long as they were
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::age, help_heading = MOUNT)]
    pub metadata_time: u64,
    /// A read waits this long for a host that does not answer, then fails
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::age, help_heading = MOUNT)]
    pub read_wait: u64,
    /// Everything else, such as ls, waits this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::age, help_heading = MOUNT)]
    pub metadata_wait: u64,
    /// Keep at most this much of what was read on the disk, for the next time; 0 keeps nothing
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = values::size_or_none, help_heading = MOUNT)]
    pub cache_size: u64,
    /// Directory for that, which only you may enter [default: ~/.cache/farhaul/chunks]
    #[arg(long, value_name = "DIR", value_parser = values::path_here(), help_heading = MOUNT)]
    pub cache_dir: Option<PathBuf>,
    /// Memory for what is read ahead
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = values::size, help_heading = MOUNT)]
    pub read_ahead: u64,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print errors only
    #[arg(short = 'q', long, help_heading = MOUNT)]
    pub quiet: bool,
    /// Say on stdout when the mount is there, and let go of the terminal then
    #[arg(long, hide = true)]
    pub to_background: bool,
}

/// End a mount, also one whose process is gone
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct UmountArgs {
    /// Directory on which it is mounted
    #[arg(value_name = "DIR", value_parser = values::path_here())]
    pub directory: PathBuf,
    /// End it although it is in use: what processes have open there fails, and what waits for the other host ends
    #[arg(long)]
    pub force: bool,
}
