//! The options of `farhaul receipt`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

use super::service::ApiArgs;

/// Show what both ends have signed of a job, or check it (also of cp --receipt, sync --receipt)
#[derive(Group, Debug)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct ReceiptArgs {
    #[command(subcommand)]
    pub verb: Option<ReceiptVerb>,
    /// A job of the service, whose receipt goes to stdout
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Of this run of it [default: the last one that has ended]
    #[arg(long, value_name = "N")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Subcommand, Debug)]
pub enum ReceiptVerb {
    Verify(ReceiptVerifyArgs),
}

/// Check the signatures of a receipt and, by a manifest, what it is for; needs no network
#[derive(Group, Debug)]
#[command(after_help = RECEIPT_EXIT_CODES)]
pub struct ReceiptVerifyArgs {
    /// What --receipt has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The public key (.pub) of an end that is trusted; give it twice for both ends
    #[arg(long, value_name = "FILE", required = true)]
    pub key: Vec<PathBuf>,
    /// The manifest of the same copy, whose root has to be the receipt's
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// One JSON report on stdout
    #[arg(long)]
    pub json: bool,
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const RECEIPT_EXIT_CODES: &str = "Exit codes: 0 all is right, 1 the receipt was changed, is by other keys, or is for something \
else, 2 wrong usage, 4 a key file holds no public key, 6 a file cannot be read, 9 internal.";
