//! The options of `farhaul cap`.

use clap::{Args as Group, Subcommand};

use super::EXIT_CODES;
use super::service::AnswerArgs;
use crate::values;

/// Limit what is moved together, by network, peer or principal, as a tree and by the time of the week
#[derive(Group, Debug)]
#[command(after_help = format!("The cap `host` is about everything; others stand in it, or in one another. A transfer is in the cap that \
is about it most closely.\n\n{EXIT_CODES}"))]
pub struct CapArgs {
    #[command(subcommand)]
    pub verb: CapVerb,
}

#[derive(Subcommand, Debug)]
pub enum CapVerb {
    /// Set one, whether there is one of this name or not
    Set {
        /// Its name
        name: String,
        /// Bits of IP packets a second, both ways, such as 8G; none for no limit of its own
        #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
        rate: Option<RateOrNone>,
        /// The cap that it stands in [default: host]
        #[arg(long, value_name = "CAP")]
        parent: Option<String>,
        /// A host whose transfers are in it: hpc, hpc:4000, *.example.org; may be repeated
        #[arg(long, value_name = "HOST")]
        peer: Vec<String>,
        /// A network whose hosts' transfers are in it: 10.0.0.0/8; may be repeated
        #[arg(long, value_name = "NETWORK")]
        network: Vec<String>,
        /// Who wants them: local, token:ID, a client's key SHA256:...; may be repeated
        #[arg(long, value_name = "WHO")]
        principal: Vec<String>,
        /// Its share of what stands above it, beside others [default: 1]
        #[arg(long, value_name = "N")]
        weight: Option<f64>,
        /// Another rate at certain times: 'mon-fri 09:00-18:00 2G'; may be repeated
        #[arg(long, value_name = "WINDOW")]
        schedule: Vec<String>,
        /// Where these times hold, such as Europe/Zurich [default: the service's]
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// List all, with the rates that hold now
    List {
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// Remove one; what was in it is in the cap that is about it then
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        shown: AnswerArgs,
    },
}

/// A rate, or none.
#[derive(Debug, Clone, Copy)]
pub struct RateOrNone(pub Option<u64>);

fn rate_or_none(text: &str) -> Result<RateOrNone, String> {
    if text == "none" { Ok(RateOrNone(None)) } else { values::rate(text).map(|rate| RateOrNone(Some(rate))) }
}
