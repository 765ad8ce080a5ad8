//! The options of `farhaul doctor`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Group, Subcommand};
use farhaul_doctor::remedy::UndoFile;
use farhaul_doctor::target::Role;

use crate::values;

const REMEDIES: &str = "Remedies";
const RECORDINGS: &str = "Recordings";

/// Say why this host is slow for transfers, what to do about it, and do it if asked
#[derive(Group, Debug)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct DoctorArgs {
    #[command(subcommand)]
    pub verb: Option<DoctorVerb>,
    /// Judge the host for this rate in bits a second, such as 10G or 100G [default: the speed of its fastest link]
    #[arg(long = "for", value_name = "RATE", value_parser = values::rate)]
    pub rate: Option<u64>,
    /// Judge it as a plain host, as a data transfer node, or as a host that measures paths [default: dtn from 10G on,
    /// else plain]
    #[arg(long, value_name = "plain|dtn|test", value_parser = role)]
    pub role: Option<Role>,
    /// Look at both ends and the way between them: the doctor of this host is asked ([user@]host over SSH, or
    /// fh://host[:port] at a daemon), and the path there and back is tested
    #[arg(long, value_name = "HOST")]
    pub peer: Option<OsString>,
    /// With --peer: end after this time in all, once the host is reached; half of it is for each way
    #[arg(long, value_name = "TIME", value_parser = peer_time, default_value = "30s", requires = "peer")]
    pub peer_time: u64,
    /// With --peer: measure how fast this file is read, so that the verdict of the way there knows this host's disk
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub read: Option<PathBuf>,
    /// With --peer: measure how fast a nameless file is written in this directory, so that the verdict of the way back
    /// knows this host's disk
    #[arg(long, value_name = "DIR", requires = "peer")]
    pub write: Option<PathBuf>,
    /// Also show what is only worth knowing
    #[arg(long)]
    pub notes: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Set what these checks advise, or without IDs all whose effect can be measured here; as another user than root,
    /// print the commands
    #[arg(long, value_name = "ID", num_args = 0.., conflicts_with = "peer", help_heading = REMEDIES)]
    pub apply: Option<Vec<String>>,
    /// Keep also what brings nothing in the measurement here
    #[arg(long, requires = "apply", help_heading = REMEDIES)]
    pub keep: bool,
    /// Set it again at each start of the host: by sysctl.d, tmpfiles.d and a udev rule
    #[arg(long, requires = "apply", help_heading = REMEDIES)]
    pub persist: bool,
    /// Set the earlier values again of what these checks have changed
    #[arg(long, value_name = "ID", num_args = 0.., conflicts_with_all = ["apply", "peer"], help_heading = REMEDIES)]
    pub undo: Option<Vec<String>>,
    /// With --undo: everything
    #[arg(long, requires = "undo", help_heading = REMEDIES)]
    pub all: bool,
    /// Keep the earlier values in this file
    #[arg(long, value_name = "FILE", default_value = UndoFile::PATH, help_heading = REMEDIES)]
    pub undo_file: PathBuf,
    /// Judge the recording in this directory in place of this host
    #[arg(long, value_name = "DIR", conflicts_with_all = ["apply", "undo", "record", "peer"], help_heading = RECORDINGS)]
    pub from: Option<PathBuf>,
    /// Record in this directory what the checks read, without serial numbers, addresses and names, and judge nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["apply", "undo", "peer"], help_heading = RECORDINGS)]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub connection: super::ConnectionArgs,
}

#[derive(Subcommand, Debug)]
pub enum DoctorVerb {
    Explain(ExplainArgs),
}

/// Explain a check, or a limit that the report of a transfer names: what, why, on whose word, how to set, undo and measure it
#[derive(Group, Debug)]
#[command(after_help = "Exit codes: 0 it is explained, 2 there is no such ID.")]
pub struct ExplainArgs {
    /// The ID of a check, such as socket-buffers, or of a limit, such as slow-receiver-disk; without it, list all IDs
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// A consultation at a daemon lasts two minutes at most.
fn peer_time(text: &str) -> Result<u64, String> {
    let seconds = values::age(text)?;
    let is_fit = (5..=110).contains(&seconds);
    is_fit.then_some(seconds).ok_or_else(|| format!("'{text}' is not from 5s to 110s"))
}

fn role(text: &str) -> Result<Role, String> {
    Role::of_name(text).ok_or_else(|| format!("'{text}' is not a role; write plain, dtn or test"))
}

const HELP: &str = "Nothing is changed without --apply, and the earlier values are on the disk before. What a change brings is measured in turns \
with the earlier values: what is worse is taken back, and so is what brings nothing, unless --keep says otherwise. What cannot be \
measured here is set only by its ID.

Exit codes: 0 nothing is wrong, or all that was asked for is done; 1 something is wrong, or could not be set or undone; 2 wrong \
usage; 6 a recording or the undo file cannot be used.";
