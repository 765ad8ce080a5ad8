//! The options of `farhaul clean`.

use std::path::PathBuf;

use clap::Args as Group;

use crate::values;

/// Remove what interrupted transfers have left below a directory and nobody has gone on with
#[derive(Group, Debug)]
#[command(after_help = CLEAN_EXIT_CODES)]
pub struct CleanArgs {
    /// Where to look; links are not followed, other file systems not entered
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Only what has not been changed for so long: 90s, 30m, 12h, 7d, 2w
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = values::age)]
    pub older: u64,
    /// Remove nothing, say only what would be
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// One JSON report on stdout instead of a line for each file
    #[arg(long)]
    pub json: bool,
    /// No summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const CLEAN_EXIT_CODES: &str = "Exit codes: 0 all that was to go is gone, 1 something could not be removed or looked into, 2 wrong \
usage, 6 the directory cannot be used, 9 internal, 130 interrupted.";
