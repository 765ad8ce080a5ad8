//! The options of the verbs that change names where they are: `mkdir`, `mv`, `rm`.

use std::ffi::OsString;

use clap::Args as Group;

use super::network::NetworkArgs;
use super::{ConnectionArgs, EXIT_CODES, OUTPUT};

const LOCATIONS: &str = "A location is a local path, [user@]host:path over SSH, or fh://[user@]host[:port]/path at a daemon. A \
daemon's key needs the right to write.";

/// Make directories, here or on another host
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS}\n\n{EXIT_CODES}"))]
pub struct MkdirArgs {
    /// Directories to make
    #[arg(required = true, value_name = "LOCATION")]
    pub locations: Vec<OsString>,
    /// Make the directories above, too; a directory that is there is no error
    #[arg(short = 'p', long)]
    pub parents: bool,
    #[command(flatten)]
    pub common: NamesArgs,
}

/// Rename files and directories, here or on another host
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS} All locations are on one host; nothing is copied.\n\n{EXIT_CODES}"), override_usage = "farhaul mv [OPTIONS] <SOURCE>... <DESTINATION>")]
pub struct MvArgs {
    /// What is renamed, then its new name, or a directory that takes it
    #[arg(required = true, num_args = 2.., value_name = "LOCATION")]
    pub locations: Vec<OsString>,
    /// Replace nothing: if something has the new name, fail
    #[arg(short = 'n', long)]
    pub no_clobber: bool,
    /// Take the destination for the new name, also if a directory has it
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    #[command(flatten)]
    pub common: NamesArgs,
}

/// Remove files and directories, here or on another host
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS} The far end expands * ? and [a-z] in a path, if it may be read.\n\n{EXIT_CODES}"))]
pub struct RmArgs {
    /// What is removed; a symbolic link itself, not what it leads to
    #[arg(required = true, value_name = "LOCATION")]
    pub locations: Vec<OsString>,
    /// Remove directories with everything in them; what is mounted in them stays
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// What is not there is no error
    #[arg(short = 'f', long)]
    pub force: bool,
    #[command(flatten)]
    pub common: NamesArgs,
}

/// The options that these verbs have in common.
#[derive(Group, Debug)]
pub struct NamesArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,

    #[command(flatten)]
    pub network: NetworkArgs,

    /// Print each change that was made
    #[arg(short = 'v', long, help_heading = OUTPUT)]
    pub verbose: bool,
    /// Print errors only
    #[arg(short = 'q', long, conflicts_with = "verbose", help_heading = OUTPUT)]
    pub quiet: bool,
}
