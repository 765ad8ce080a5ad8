//! The options of `farhaul receipt`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args as Group, Subcommand};

use super::service::ApiArgs;

/// Print the receipt of a job, which both ends have signed, or verify a receipt
#[derive(Group, Debug)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct ReceiptArgs {
    #[command(subcommand)]
    pub verb: Option<ReceiptVerb>,
    /// Id of a job of the service; its receipt goes to stdout
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub id: Option<String>,
    /// Run of the job [default: the last one that has ended]
    #[arg(long, value_name = "N")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Subcommand, Debug)]
pub enum ReceiptVerb {
    Verify(ReceiptVerifyArgs),
}

/// Check the signatures of a receipt and, with a manifest, what the receipt covers; needs no network
#[derive(Group, Debug)]
#[command(after_help = RECEIPT_EXIT_CODES)]
pub struct ReceiptVerifyArgs {
    /// The receipt, as --receipt or farhaul receipt ID has written it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Public key (.pub) of an end that you trust; give the option twice for both ends
    #[arg(long, value_name = "FILE", required = true)]
    pub key: Vec<PathBuf>,
    /// Manifest of the same copy; its tree root must be the one in the receipt
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Print a report as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const RECEIPT_EXIT_CODES: &str = "Exit codes: 0 the receipt is valid, 1 it was changed, was signed by other keys, or covers something \
else, 2 wrong usage, 4 a key file holds no public key, 6 a file cannot be read, 9 internal error.";
