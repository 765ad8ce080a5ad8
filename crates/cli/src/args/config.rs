//! The options of `farhaul config` and `farhaul audit`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

/// Show or check the configuration of the service
#[derive(Group, Debug)]
#[command(after_help = LAYERS_HELP)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

#[derive(Subcommand, Debug)]
pub enum ConfigVerb {
    Show(ConfigShowArgs),
    Check(ConfigCheckArgs),
}

/// Print the configuration that is in effect, as TOML
#[derive(Group, Debug)]
#[command(after_help = LAYERS_HELP)]
pub struct ConfigShowArgs {
    /// Say after each value where it comes from: a line of a file, the environment, or the default
    #[arg(long)]
    pub origin: bool,
    /// Read this file in place of those in /etc/farhaul and in the user's configuration directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON object on stdout, with origins
    #[arg(long)]
    pub json: bool,
}

/// Print everything that is wrong, one line each; print nothing if all is well
#[derive(Group, Debug)]
#[command(after_help = LAYERS_HELP)]
pub struct ConfigCheckArgs {
    /// Read this file in place of those in /etc/farhaul and in the user's configuration directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// Check the audit log of the service
#[derive(Group, Debug)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub verb: AuditVerb,
}

#[derive(Subcommand, Debug)]
pub enum AuditVerb {
    Check(AuditCheckArgs),
}

/// Check the chain of digests in an audit log, which reveals lines that were changed or removed
#[derive(Group, Debug)]
#[command(after_help = AUDIT_EXIT_CODES)]
pub struct AuditCheckArgs {
    /// The audit log
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

const LAYERS_HELP: &str = "The configuration has layers; each overrides those before it: the defaults; /etc/farhaul/farhaul.toml and \
/etc/farhaul/conf.d/*.toml; $XDG_CONFIG_HOME/farhaul/farhaul.toml; the environment (FARHAUL_SERVE_MAX_RATE sets max_rate of \
[serve]); the options of farhaul serve.

Exit codes: 0 all is well, 2 something is wrong.";

const AUDIT_EXIT_CODES: &str =
    "Exit codes: 0 the chain is whole, 1 it is not, 2 wrong usage, 6 the file cannot be read.";
