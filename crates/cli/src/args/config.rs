//! The options of `farhaul config` and `farhaul audit`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

/// Show or check the configuration of the service
#[derive(Group, Debug)]
#[command(after_help = LAYERS)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

#[derive(Subcommand, Debug)]
pub enum ConfigVerb {
    Show(ConfigShowArgs),
    Check(ConfigCheckArgs),
}

/// Print the values that hold, as TOML
#[derive(Group, Debug)]
#[command(after_help = LAYERS)]
pub struct ConfigShowArgs {
    /// Say behind each value where it comes from: a line of a file, the environment, or the default
    #[arg(long)]
    pub origin: bool,
    /// Read this file in place of those in /etc/farhaul and in the user's configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One JSON object on stdout, with origins
    #[arg(long)]
    pub json: bool,
}

/// Say all that is wrong, a line each; say nothing if all is well
#[derive(Group, Debug)]
#[command(after_help = LAYERS)]
pub struct ConfigCheckArgs {
    /// Read this file in place of those in /etc/farhaul and in the user's configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// Look after the audit log of the service
#[derive(Group, Debug)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub verb: AuditVerb,
}

#[derive(Subcommand, Debug)]
pub enum AuditVerb {
    Check(AuditCheckArgs),
}

/// Check the chain of digests of an audit log: a line that was changed or removed shows
#[derive(Group, Debug)]
#[command(after_help = AUDIT_EXIT_CODES)]
pub struct AuditCheckArgs {
    /// The audit log
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

const LAYERS: &str = "Layers, each stronger than the one before: the defaults; /etc/farhaul/farhaul.toml and \
/etc/farhaul/conf.d/*.toml; $XDG_CONFIG_HOME/farhaul/farhaul.toml; the environment (FARHAUL_SERVE_MAX_RATE is max_rate of \
[serve]); the options of serve.

Exit codes: 0 all is well, 2 something is wrong.";

const AUDIT_EXIT_CODES: &str =
    "Exit codes: 0 the chain is whole, 1 it is not, 2 wrong usage, 6 the file cannot be read.";
