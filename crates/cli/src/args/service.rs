//! The options of the verbs that ask a service: jobs, history, tokens, its store.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args as Group, Command, FromArgMatches, Subcommand};
use farhaul::Policy;
use farhaul_service::{FinishBy, JobSpan, Scope};

use super::select::SelectArgs;
use super::{ConnectionArgs, EXIT_CODES, LikenessArgs, OUTPUT, SCP, TransferArgs};
use crate::values;

const SERVICE: &str = "Service";
const JOB: &str = "Job";
const ABOUT: &str = "The service is `farhaul serve`; it is asked over its Unix socket, or at the address that --api or FARHAUL_API names.";

/// Where the service is.
#[derive(Group, Debug)]
pub struct ApiArgs {
    /// The service: path of its socket, or https://host:port [default: this user's own]
    #[arg(long, value_name = "ADDRESS", env = "FARHAUL_API", help_heading = SERVICE)]
    pub api: Option<String>,
    /// File with the token for a service at another address [default: ~/.config/farhaul/token]
    #[arg(long, value_name = "FILE", env = "FARHAUL_TOKEN_FILE", help_heading = SERVICE)]
    pub token_file: Option<PathBuf>,
    /// Certificates to trust, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = SERVICE)]
    pub ca: Option<PathBuf>,
}

/// How it is told.
#[derive(Group, Debug)]
pub struct AnswerArgs {
    #[command(flatten)]
    pub api: ApiArgs,
    /// JSON on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Errors only
    #[arg(short = 'q', long, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// Hand a copy or a sync over to the service, which does it whatever becomes of this terminal
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} The job's id goes to stdout.\n\n{EXIT_CODES}"))]
pub struct SubmitArgs {
    // First: what is read before this takes nothing away from it.
    #[command(flatten)]
    pub given: GivenOptions,
    /// Sources, then the destination
    #[arg(value_name = "LOCATION", required_unless_present = "spec", conflicts_with = "spec")]
    pub locations: Vec<OsString>,
    /// The whole job as a JSON document (- for stdin), see docs/guide/jobs.md
    #[arg(long, value_name = "FILE", help_heading = JOB)]
    pub spec: Option<PathBuf>,
    /// As farhaul sync: make the destination like what is in the source directory
    #[arg(long, help_heading = JOB)]
    pub sync: bool,
    /// 0 (last) to 9 (first)
    #[arg(long, value_name = "0-9", value_parser = clap::value_parser!(u8).range(0..=9), help_heading = JOB)]
    pub priority: Option<u8>,
    /// Do not begin before then: 22:00, or 2027-01-31T06:00:00Z
    #[arg(long, value_name = "TIME", help_heading = JOB)]
    pub not_before: Option<FinishBy>,
    /// Go as slowly as possible, and be finished by then
    #[arg(long, value_name = "TIME", help_heading = JOB)]
    pub finish_by: Option<FinishBy>,
    /// Attempts after the first one, where another one may help [default: 8]
    #[arg(long, value_name = "N", help_heading = JOB)]
    pub retry: Option<u32>,
    /// A name and a value of your own; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", help_heading = JOB)]
    pub labels: Vec<String>,
    /// An http or https address that hears of the end
    #[arg(long, value_name = "URL", help_heading = JOB)]
    pub webhook: Option<String>,
    /// Again and again, so long after the last run has begun
    #[arg(long, value_name = "TIME", conflicts_with = "cron", help_heading = JOB)]
    pub every: Option<JobSpan>,
    /// Again and again, by a cron expression such as '30 22 * * 1-5'
    #[arg(long, value_name = "EXPRESSION", help_heading = JOB)]
    pub cron: Option<String>,
    /// Where the times of --cron and --finish-by hold [default: the service's]
    #[arg(long, value_name = "ZONE", help_heading = JOB)]
    pub time_zone: Option<String>,
    /// Show yourself by this identity of the service's configuration
    #[arg(long, value_name = "NAME", help_heading = JOB)]
    pub as_identity: Option<String>,
    /// With the same key the same job is made once, within 24 hours
    #[arg(long, value_name = "KEY", help_heading = JOB)]
    pub key: Option<String>,
    /// Have both ends sign for what has arrived: farhaul receipt ID
    #[arg(long, help_heading = JOB)]
    pub with_receipt: bool,
    /// Wait for the end, and end with the job's exit code
    #[arg(long, help_heading = JOB)]
    pub wait: bool,
    /// Print the job as its document instead of submitting it; no service is asked
    #[arg(long, conflicts_with_all = ["wait", "key"], help_heading = JOB)]
    pub print: bool,

    #[command(flatten)]
    pub api: ApiArgs,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub transfer: TransferArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub likeness: LikenessArgs,
    /// Accepted as in scp; directories are copied anyway
    #[arg(short = 'r', help_heading = SCP)]
    pub recursive: bool,
    /// Keep set-user-id and set-group-id bits too (needs the scope admin)
    #[arg(short = 'p', help_heading = SCP)]
    pub preserve: bool,
    /// JSON on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Errors only
    #[arg(short = 'q', long, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// The options that stand on the command line, by their ids.
#[derive(Debug, Clone, Default)]
pub struct GivenOptions(pub Vec<String>);

impl Group for GivenOptions {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for GivenOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenOptions, clap::Error> {
        let is_given = |id: &str| {
            matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
        };
        let ids = matches.ids().map(|id| id.as_str()).filter(|id| is_given(id));
        Ok(GivenOptions(ids.map(str::to_string).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = GivenOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

/// List jobs, the newest first
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct JobsArgs {
    /// Only those in these states: queued, waiting, running, paused, retrying, done, partly_failed, failed, cancelled
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    pub state: Vec<String>,
    /// Only those with this label; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// Only those with this text in a source, the destination or a label
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Go on showing them as they change
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// Watch the jobs of a service on the whole terminal, and steer them
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} Keys: up and down select a job, p pauses it, r resumes it, c cancels it, + and - change its \
priority, / filters, ? shows all keys, q quits. NO_COLOR is respected.\n\n{EXIT_CODES}"))]
pub struct TopArgs {
    /// Print one screen as text and end; needs no terminal
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Open the page of this user's service in a browser, logged in
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} The page's address goes to stdout, with a code in it that logs in once, within a \
minute; where there is a screen, a browser is opened with it. The service needs an address for browsers: \
farhaul serve --api-listen 127.0.0.1:33080.\n\n{EXIT_CODES}"))]
pub struct OpenArgs {
    /// What the log-in allows: read, submit, control, admin, separated by commas
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "admin", value_parser = scope)]
    pub scope: Vec<Scope>,
    /// Only print the address
    #[arg(long)]
    pub print: bool,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// List the other hosts that jobs deal with, or show one
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct PeersArgs {
    /// One of them: fh://host:port, ssh://user@host, or the host of a daemon
    #[arg(value_name = "PEER")]
    pub name: Option<String>,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// Show one job
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct JobArgs {
    /// The job's id
    pub id: String,
    /// What became of each entry, as lines of JSON
    #[arg(long)]
    pub files: bool,
    /// With --files: only those with these results, such as failed
    #[arg(long, value_name = "RESULTS", requires = "files")]
    pub result: Option<String>,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// What is done with jobs that are named.
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct JobIdsArgs {
    /// Ids of jobs
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// Change a job, also while it runs
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct JobSetArgs {
    /// The job's id
    pub id: String,
    /// Highest rate in bits a second, such as 800M or 2G; none for no limit of its own
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
    pub rate: Option<u64>,
    /// How the rate is set: fixed, high, fair or low
    #[arg(long, value_name = "POLICY", value_parser = values::choice::<Policy>(&["fixed", "high", "fair", "low"]))]
    pub policy: Option<Policy>,
    /// 0 (last) to 9 (first)
    #[arg(long, value_name = "0-9", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: Option<u8>,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

fn rate_or_none(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { values::rate(text) }
}

/// Show what has happened to a job
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct LogsArgs {
    /// The job's id
    pub id: String,
    /// Go on until the job is over
    #[arg(short = 'f', long)]
    pub follow: bool,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// Show what has ended
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct HistoryArgs {
    /// Within this time: 12h, 7d
    #[arg(long, value_name = "TIME")]
    pub since: Option<JobSpan>,
    /// Only with this label; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// Only with this peer, as jobs show it
    #[arg(long, value_name = "PEER")]
    pub peer: Option<String>,
    /// Only those that ended so: done, partly_failed, failed, cancelled
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    pub state: Vec<String>,
    /// Only those with this text in the source or the destination
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Comma-separated values, with a line of names
    #[arg(long, conflicts_with = "json", help_heading = OUTPUT)]
    pub csv: bool,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// Sum up what was moved
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct UsageArgs {
    /// peer, user, day, or label:NAME
    #[arg(long, value_name = "WHAT", default_value = "peer")]
    pub by: String,
    /// Within this time: 12h, 7d
    #[arg(long, value_name = "TIME")]
    pub since: Option<JobSpan>,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// Make, list and revoke tokens for the service
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct TokenArgs {
    #[command(subcommand)]
    pub verb: TokenVerb,
}

#[derive(Subcommand, Debug)]
pub enum TokenVerb {
    /// Make one; its secret goes to stdout, this once
    Create {
        /// What it allows: read, submit, control, admin, separated by commas
        #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true, value_parser = scope)]
        scope: Vec<Scope>,
        /// Only this directory of the service's host, and what is in it; may be repeated
        #[arg(long, value_name = "DIR")]
        root: Vec<PathBuf>,
        /// Only this directory at this peer (hpc:/dir at its daemon, ssh://user@hpc:/dir); may be repeated. With --root and without --peer no peer is reached
        #[arg(long, value_name = "PEER:DIR")]
        peer: Vec<String>,
        /// Good for so long, such as 30d [default: for ever]
        #[arg(long, value_name = "TIME")]
        expires: Option<JobSpan>,
        /// What it is called
        #[arg(long, value_name = "TEXT", default_value = "")]
        name: String,
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// List all
    List {
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// From now on one is worth nothing
    Revoke {
        /// Its id, as list shows it
        id: String,
        #[command(flatten)]
        shown: AnswerArgs,
    },
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::of_name(text).ok_or_else(|| "a scope is read, submit, control or admin".into())
}

/// Watch folders: what appears in one is sent when it is whole
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} docs/guide/watch-folder.md says more.\n\n{EXIT_CODES}"))]
pub struct WatchArgs {
    #[command(subcommand)]
    pub verb: WatchVerb,
}

#[derive(Subcommand, Debug)]
pub enum WatchVerb {
    Add(Box<WatchAddArgs>),
    /// List all
    List {
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// Show what has become of each file of a folder
    Files {
        /// The watch's id
        id: String,
        /// Only those of this state: new, settling, taken, changed, done, failed, gone
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// At most so many
        #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
        limit: usize,
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// Take files again that have failed
    Retry {
        /// The watch's id
        id: String,
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// Do not watch a folder any more; jobs that have its files go on
    Remove {
        /// The watch's id
        id: String,
        #[command(flatten)]
        shown: AnswerArgs,
    },
}

/// Watch a folder of the service's host; the watch's id goes to stdout
#[derive(Group, Debug)]
pub struct WatchAddArgs {
    /// The folder; everything below it is watched
    #[arg(value_name = "DIR")]
    pub folder: OsString,
    /// Where its files go, under the names that they have below the folder
    #[arg(long, value_name = "LOCATION", required = true)]
    pub to: OsString,
    /// Take a file when it has not changed for so long [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub settle: Option<JobSpan>,
    /// Look through the whole folder so often [default: 1m, or 10s where the kernel tells of no changes]
    #[arg(long, value_name = "TIME")]
    pub rescan: Option<JobSpan>,
    /// Only files that match; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// No files and no directories that match; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Take names that begin with a dot, too
    #[arg(long)]
    pub hidden: bool,
    /// What becomes of a file that stands at the destination, synced: leave, marker, move:DIR, delete
    #[arg(long, value_name = "WHAT", default_value = "leave")]
    pub after: String,
    /// A name and a value for its jobs; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// An http or https address that hears of the end of each job
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
    /// Show yourself by this identity of the service's configuration
    #[arg(long, value_name = "NAME")]
    pub as_identity: Option<String>,
    /// The key that the far daemon must have
    #[arg(long, value_name = "SHA256:...")]
    pub fingerprint: Option<String>,
    #[command(flatten)]
    pub shown: AnswerArgs,
}

/// Look after the service's store
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct StoreArgs {
    #[command(subcommand)]
    pub verb: StoreVerb,
}

#[derive(Subcommand, Debug)]
pub enum StoreVerb {
    /// Write a copy of it to a file of the service's host, while all goes on
    Backup {
        /// A file that is not there yet
        file: PathBuf,
        #[command(flatten)]
        shown: AnswerArgs,
    },
    /// Look through all of it
    Check {
        #[command(flatten)]
        shown: AnswerArgs,
    },
}
