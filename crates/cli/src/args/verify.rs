//! The options of `farhaul verify`.

use std::path::PathBuf;

use clap::Args as Group;
use farhaul::options::Algorithm;

use crate::values;

/// Compare a tree with a manifest, or with a list of sha256sum, b3sum, md5sum or xxhsum -H3
#[derive(Group, Debug)]
#[command(after_help = VERIFY_EXIT_CODES)]
pub struct VerifyArgs {
    /// A manifest, as --manifest has written it, or a list of digests; - for stdin
    #[arg(value_name = "MANIFEST", value_parser = values::path_here())]
    pub list: PathBuf,
    /// Directory that the paths in the list are relative to
    #[arg(value_name = "DIR", default_value = ".", value_parser = values::path_here())]
    pub directory: PathBuf,
    /// Also report what is there but not in the list
    #[arg(long)]
    pub extra: bool,
    /// Also compare modes and modification times
    #[arg(long)]
    pub metadata: bool,
    /// Treat modification times as equal if they differ by at most this much [default: times must be equal as
    /// far as the file system can store them]
    #[arg(long, value_name = "SECONDS")]
    pub modify_window: Option<u64>,
    /// Read no files: compare only which entries exist, and sizes
    #[arg(long)]
    pub quick: bool,
    /// Algorithm of digests with 64 digits in a list that is not a manifest: sha256 or blake3
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = values::algorithm)]
    pub algorithm: Algorithm,
    /// Print a report as one JSON object on stdout, instead of a line for each difference
    #[arg(long)]
    pub json: bool,
    /// Print no summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const VERIFY_EXIT_CODES: &str = "Exit codes: 0 all is as the list says, 1 something is missing, changed, extra or cannot be \
read, 2 wrong usage, 6 the list or the directory cannot be used, 9 internal error, 130 interrupted.";
