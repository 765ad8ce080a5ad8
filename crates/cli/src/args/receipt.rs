//! The options of `farhaul receipt`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

/// Check what both ends of a copy have signed (cp --receipt, sync --receipt)
#[derive(Group, Debug)]
pub struct Receipt {
    #[command(subcommand)]
    pub verb: ReceiptVerb,
}

#[derive(Subcommand, Debug)]
pub enum ReceiptVerb {
    Verify(ReceiptVerify),
}

/// Check the signatures of a receipt and, by a manifest, what it is for; needs no network
#[derive(Group, Debug)]
#[command(after_help = RECEIPT_EXIT_CODES)]
pub struct ReceiptVerify {
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
