//! The options of `farhaul clean`.

use std::path::PathBuf;

use clap::Args as Group;

use crate::values;

/// Remove partial files, journals and temporary files that interrupted transfers have left below a directory
#[derive(Group, Debug)]
#[command(after_help = CLEAN_EXIT_CODES)]
pub struct CleanArgs {
    /// Directory to clean; links are not followed, other file systems are not entered
    #[arg(value_name = "DIR", value_parser = values::path_here(), required_unless_present = "cache")]
    pub directory: Option<PathBuf>,
    /// Remove the programs that others have brought here (--bring; one that runs goes on), and the chunks of far files
    /// that mounts keep, all in ~/.cache/farhaul
    #[arg(long, conflicts_with_all = ["directory", "older"])]
    pub cache: bool,
    /// Remove only files that have not changed for this long, such as 90s, 30m, 12h, 7d or 2w
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = values::age)]
    pub older: u64,
    /// Remove nothing; only say what would be removed
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print a report as one JSON object on stdout, instead of a line for each file
    #[arg(long)]
    pub json: bool,
    /// Print no summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const CLEAN_EXIT_CODES: &str = "Exit codes: 0 everything is removed, 1 something could not be removed or read, 2 wrong \
usage, 6 the directory cannot be used, 9 internal error, 130 interrupted.";
