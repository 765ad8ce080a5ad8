//! The options of `farhaul cache`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

use crate::values;

/// Look at what a gateway or mounts keep of far files, and change it
#[derive(Group, Debug)]
pub struct CacheArgs {
    #[command(subcommand)]
    pub verb: CacheVerb,
}

#[derive(Subcommand, Debug)]
pub enum CacheVerb {
    Ls(CacheFilesArgs),
    Stat(CacheWholeArgs),
    Pin(CachePinArgs),
    Drop(CacheDropArgs),
    Verify(CacheVerifyArgs),
}

#[derive(Group, Debug)]
pub struct CacheDirectory {
    /// Directory of the cache [default: that of mounts, ~/.cache/farhaul/chunks]
    #[arg(long, value_name = "DIR", value_parser = values::path_here())]
    pub cache: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// List the files of which something is here
#[derive(Group, Debug)]
#[command(after_help = NAMES)]
pub struct CacheFilesArgs {
    /// Only files of these names, or below them
    #[arg(value_name = "NAME")]
    pub names: Vec<OsString>,
    #[command(flatten)]
    pub directory: CacheDirectory,
}

/// Say how much is here
#[derive(Group, Debug)]
pub struct CacheWholeArgs {
    #[command(flatten)]
    pub directory: CacheDirectory,
}

/// Keep files, also what of them comes later, until they are unpinned; without a name, list what is pinned
#[derive(Group, Debug)]
#[command(after_help = NAMES)]
pub struct CachePinArgs {
    /// Names of files, or of directories above them
    #[arg(value_name = "NAME")]
    pub names: Vec<OsString>,
    /// End the pins of these names
    #[arg(long, requires = "names")]
    pub remove: bool,
    #[command(flatten)]
    pub directory: CacheDirectory,
}

/// Remove what is here of files
#[derive(Group, Debug)]
#[command(after_help = NAMES)]
pub struct CacheDropArgs {
    /// Names of files, or of directories above them
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<OsString>,
    /// Remove nothing; only say what would be removed
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub directory: CacheDirectory,
}

/// Read everything, and remove what is not whole; the next reader fetches it again
#[derive(Group, Debug)]
#[command(
    after_help = "Exit codes: 0 all is whole, 1 something was not, 2 wrong usage, 6 the directory cannot be used."
)]
pub struct CacheVerifyArgs {
    /// Remove nothing; only say what is not whole
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub directory: CacheDirectory,
}

const NAMES: &str =
    "A name is written as `farhaul cache ls` prints it: HOST:PATH, or HOST:PORT:PATH at a daemon.";
