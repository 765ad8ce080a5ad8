//! The options of `farhaul cap`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args as Group, Subcommand};

use super::EXIT_CODES;
use super::service::AnswerArgs;
use crate::values;

/// Limit the rate of several transfers together, by network, peer or principal and by the time of the week
#[derive(Group, Debug)]
#[command(after_help = format!("The cap `host` covers everything. Every other cap lies within it, or within another cap. A transfer is in \
the cap that covers it most closely: by principal, then by peer, then by the narrowest network.\n\n{EXIT_CODES}"))]
pub struct CapArgs {
    #[command(subcommand)]
    pub verb: CapVerb,
}

#[derive(Subcommand, Debug)]
pub enum CapVerb {
    /// Make a cap, or change the one of this name; what is not given stays as it is
    Set {
        /// Name of the cap
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Highest rate in bits of IP packets a second, both directions added, such as 8G; none removes the
        /// limit
        #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
        rate: Option<RateOrNone>,
        /// The cap that this one lies within [default: host]
        #[arg(long, value_name = "CAP")]
        parent: Option<String>,
        /// Cover transfers with this host, such as hpc, hpc:4000 or *.example.org; may be repeated
        #[arg(long, value_name = "HOST")]
        peer: Vec<String>,
        /// Cover transfers with hosts of this network, such as 10.0.0.0/8; may be repeated
        #[arg(long, value_name = "NETWORK")]
        network: Vec<String>,
        /// Cover transfers that this principal asked for: local, token:ID, or a client's key SHA256:...; may
        /// be repeated
        #[arg(long, value_name = "WHO")]
        principal: Vec<String>,
        /// Weight of this cap when members share the cap above it [default: 1]
        #[arg(long, value_name = "N")]
        weight: Option<f64>,
        /// Another rate at certain times, such as 'mon-fri 09:00-18:00 2G'; may be repeated
        #[arg(long, value_name = "WINDOW")]
        schedule: Vec<String>,
        /// Time zone of --schedule, such as Europe/Zurich [default: the service's]
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// List all caps, with the rates that hold now
    List {
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Remove a cap; its transfers move to the cap that covers them then
    Remove {
        /// Name of the cap
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        answer: AnswerArgs,
    },
}

/// A rate, or none.
#[derive(Debug, Clone, Copy)]
pub struct RateOrNone(pub Option<u64>);

fn rate_or_none(text: &str) -> Result<RateOrNone, String> {
    if text == "none" { Ok(RateOrNone(None)) } else { values::rate(text).map(|rate| RateOrNone(Some(rate))) }
}
