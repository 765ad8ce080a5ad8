//! The options of `farhaul verify`.

use std::path::PathBuf;

use clap::Args as Group;
use farhaul::Algorithm;

use crate::values;

/// Check whether a tree is what a manifest says; also reads lists of sha256sum, b3sum, md5sum and xxhsum
#[derive(Group, Debug)]
#[command(after_help = VERIFY_EXIT_CODES)]
pub struct VerifyArgs {
    /// What --manifest has written, or a list of digests
    #[arg(value_name = "MANIFEST")]
    pub list: PathBuf,
    /// Where the paths of the list begin
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Say also what is there and not in the list
    #[arg(long)]
    pub extra: bool,
    /// Compare modes and modification times, too
    #[arg(long)]
    pub metadata: bool,
    /// Take modification times that are no further apart for the same [default: what the file system keeps of
    /// a time is the same]
    #[arg(long, value_name = "SECONDS")]
    pub modify_window: Option<u64>,
    /// Read no file: compare what is there, and sizes
    #[arg(long)]
    pub quick: bool,
    /// What 64 digits in a list that is no manifest are: sha256 or blake3
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = values::algorithm)]
    pub algorithm: Algorithm,
    /// One JSON report on stdout instead of a line for each difference
    #[arg(long)]
    pub json: bool,
    /// No summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const VERIFY_EXIT_CODES: &str = "Exit codes: 0 all is as the list says, 1 something is missing, changed, extra or cannot be \
read, 2 wrong usage, 6 the list or the directory cannot be used, 9 internal, 130 interrupted.";
