//! The options of the verbs that ask a service: about jobs, history, tokens, watched folders and its store.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as Group, Command, FromArgMatches, Subcommand};
use farhaul::options::Policy;
use farhaul_api::{FinishBy, JobSpan, Scope};
use farhaul_service::{AfterAction, JobOption};

use super::select::SelectArgs;
use super::{BackupArgs, ConnectionArgs, EXIT_CODES, LikenessArgs, OUTPUT, OwnerArgs, SCP, TransferArgs};
use crate::values;

const SERVICE: &str = "Service";
const JOB: &str = "Job";
const ABOUT: &str = "The service is `farhaul serve`. This command reaches it over its Unix socket, or at the address that \
--api or FARHAUL_API names.";

/// The options that say where the service is.
#[derive(Group, Debug)]
pub struct ApiArgs {
    /// Address of the service: the path of its socket or of its state directory, or https://host:port
    /// [default: the socket of this user's own service]
    #[arg(long, value_name = "ADDRESS", env = "FARHAUL_API", help_heading = SERVICE)]
    pub api: Option<String>,
    /// File with the token for a service at https://host:port [default: ~/.config/farhaul/token]
    #[arg(long, value_name = "FILE", env = "FARHAUL_TOKEN_FILE", help_heading = SERVICE)]
    pub token_file: Option<PathBuf>,
    /// File with the certificates to trust, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = SERVICE)]
    pub ca: Option<PathBuf>,
}

/// The options for what the answer looks like, and those of the service's address.
#[derive(Group, Debug)]
pub struct AnswerArgs {
    #[command(flatten)]
    pub api: ApiArgs,
    /// Print JSON on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print errors only
    #[arg(short = 'q', long, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// Submit a copy or a sync as a job to the service, which runs it even when this terminal is closed
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} The job's id goes to stdout.\n\n{EXIT_CODES}"), mut_args(hide_if_not_for_jobs))]
pub struct SubmitArgs {
    // This must be the first field: parsing a field takes its options out of the matches, and this one looks
    // at all options.
    #[command(flatten)]
    pub given: GivenOptions,
    /// Sources, then the destination
    #[arg(value_name = "LOCATION", required_unless_present = "spec", conflicts_with = "spec")]
    pub locations: Vec<OsString>,
    /// The whole job as a JSON document (- for stdin), see docs/guide/jobs.md
    #[arg(long, value_name = "FILE", help_heading = JOB)]
    pub spec: Option<PathBuf>,
    /// Make the destination like the contents of the source directory, as farhaul sync does
    #[arg(long, help_heading = JOB)]
    pub sync: bool,
    /// Priority, from 0 (last) to 9 (first)
    #[arg(long, value_name = "0-9", value_parser = clap::value_parser!(u8).range(0..=9), help_heading = JOB)]
    pub priority: Option<u8>,
    /// Do not begin before this time, such as 22:00 (of the clock here) or 2027-01-31T06:00:00Z
    #[arg(long, value_name = "TIME", help_heading = JOB)]
    pub not_before: Option<FinishBy>,
    /// Finish by this time at the latest, such as 06:00 (of the service's clock) or 2027-01-31T06:00:00Z: the
    /// job is sure of the rate that it needs, and yields beyond that
    #[arg(long, value_name = "TIME", help_heading = JOB)]
    pub finish_by: Option<FinishBy>,
    /// Send only as fast as --finish-by needs
    #[arg(long, requires = "finish_by", help_heading = JOB)]
    pub smooth: bool,
    /// Accept the job also if --finish-by cannot be kept
    #[arg(long, requires = "finish_by", help_heading = JOB)]
    pub anyway: bool,
    /// How often to try again after a failure that another attempt may cure [default: 5, or what the service's
    /// configuration says]
    #[arg(long, value_name = "N", help_heading = JOB)]
    pub retry: Option<u32>,
    /// Label of the job, a name and a value of your choice; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", help_heading = JOB)]
    pub labels: Vec<String>,
    /// Address (http or https) to which the service sends a message when the job is over, and if --finish-by
    /// will not be kept
    #[arg(long, value_name = "URL", help_heading = JOB)]
    pub webhook: Option<String>,
    /// Send that message also for a dry run
    #[arg(long, requires = "webhook", help_heading = JOB)]
    pub webhook_dry_run: bool,
    /// Repeat the job: start each run this long after the start of the one before, a minute or more
    #[arg(long, value_name = "TIME", conflicts_with = "cron", group = "repetition", help_heading = JOB)]
    pub every: Option<JobSpan>,
    /// Repeat the job at the times of a cron expression such as '30 22 * * 1-5'
    #[arg(long, value_name = "EXPRESSION", group = "repetition", help_heading = JOB)]
    pub cron: Option<String>,
    /// Time zone of --cron, and of --finish-by in a job that repeats, such as Europe/Zurich [default: the
    /// service's]
    #[arg(long, value_name = "ZONE", requires = "repetition", help_heading = JOB)]
    pub time_zone: Option<String>,
    /// Log in to the other host with this identity of the service's configuration
    #[arg(long, value_name = "NAME", help_heading = JOB)]
    pub as_identity: Option<String>,
    /// Key that makes it safe to submit again: within 24 hours, one key makes one job
    #[arg(long, value_name = "KEY", help_heading = JOB)]
    pub key: Option<String>,
    /// Have both ends sign a receipt for what has arrived; farhaul receipt ID prints it. One end must be a
    /// daemon
    #[arg(long, help_heading = JOB)]
    pub with_receipt: bool,
    /// Wait until the job is over, and exit with its exit code
    #[arg(long, conflicts_with = "repetition", help_heading = JOB)]
    pub wait: bool,
    /// Print the job as a JSON document for --spec, instead of submitting it
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
    /// An option of cp, which is refused with a hint
    #[arg(long)]
    pub events: bool,
    /// An option of cp, which is refused with a hint
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Accepted for scp's sake; directories are always copied
    #[arg(short = 'r', long, help_heading = SCP)]
    pub recursive: bool,
    /// Keep set-user-id and set-group-id bits, too (needs the scope admin)
    #[arg(short = 'p', help_heading = SCP)]
    pub preserve: bool,
    /// Print JSON on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print errors only
    #[arg(short = 'q', long, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// Hides an option of cp from the help of submit if the service refuses it in a job.
fn hide_if_not_for_jobs(option: Arg) -> Arg {
    let flag = flag_of(&option);
    option.hide(JobOption::of_flag(&flag).is_some_and(|rule| rule.check(&flag).is_err()))
}

/// Returns an option as users write it: its long form, if it has one.
pub fn flag_of(option: &Arg) -> String {
    match (option.get_long(), option.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => {
            option.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default()
        }
    }
}

/// The ids of the options that the command line has.
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
    /// List only jobs in these states: queued, waiting, running, pausing, paused, retrying, done, partly_failed,
    /// failed, cancelled, stopped
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    pub state: Vec<String>,
    /// List only jobs with this label; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// List only jobs with this text in a source, the destination or a label
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// List at most this many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Keep the list on the screen and update it
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Watch and control the jobs of a service, on the whole terminal
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} Keys: up and down select a job, p pauses it, r resumes it, c cancels it, + and - change its \
priority, / filters, ? shows all keys, q quits. NO_COLOR is respected.\n\n{EXIT_CODES}"))]
pub struct TopArgs {
    /// Print one screen as text and exit; needs no terminal
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Open the page of this user's service in a browser, logged in
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} The page's address goes to stdout; a code in it logs in once, within a \
minute. If there is a graphical screen, a browser opens the page. The service needs an address for browsers: \
farhaul serve --api-listen 127.0.0.1:33080.\n\n{EXIT_CODES}"))]
pub struct OpenArgs {
    /// What the browser may do: read, submit, control, admin, separated by commas
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "admin", value_parser = scope)]
    pub scope: Vec<Scope>,
    /// Only print the address, open no browser
    #[arg(long)]
    pub print: bool,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// List the other hosts that jobs copy from or to, or show one of them
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct PeersArgs {
    /// The host to show: fh://host:port, ssh://user@host, or the name of a daemon's host
    #[arg(value_name = "PEER", value_parser = NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Show one job
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct JobArgs {
    /// Id of the job
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub id: String,
    /// Print what became of each entry, one JSON object a line
    #[arg(long)]
    pub files: bool,
    /// With --files, print only entries with these results, such as failed
    #[arg(long, value_name = "RESULTS", requires = "files")]
    pub result: Option<String>,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// The options of verbs that act on the jobs that are named.
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct JobIdsArgs {
    /// Ids of the jobs
    #[arg(required = true, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Run jobs again that have ended, and those at once that wait for their next attempt
#[derive(Group, Debug)]
pub struct RetryArgs {
    #[command(flatten)]
    pub jobs: JobIdsArgs,
    /// Let this run of a sync delete what its guard or --max-delete would stop
    #[arg(long)]
    pub delete_anyway: bool,
}

/// Change the rate, policy or priority of a job, also while it runs
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct JobSetArgs {
    /// Id of the job
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub id: String,
    /// Highest rate in bits a second, such as 800M or 2G; none removes the job's limit
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
    pub rate: Option<u64>,
    /// How the rate is set: fixed, high, fair or low
    #[arg(long, value_name = "POLICY", value_parser = values::choice::<Policy>(&["fixed", "high", "fair", "low"]))]
    pub policy: Option<Policy>,
    /// Priority, from 0 (last) to 9 (first)
    #[arg(long, value_name = "0-9", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: Option<u8>,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

fn rate_or_none(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { values::rate(text) }
}

/// Show the log of a job
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct LogsArgs {
    /// Id of the job
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub id: String,
    /// Keep printing new lines until the job is over
    #[arg(short = 'f', long)]
    pub follow: bool,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Show the transfers that have ended
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct HistoryArgs {
    /// Only transfers that ended within this time, such as 12h or 7d
    #[arg(long, value_name = "TIME")]
    pub since: Option<JobSpan>,
    /// List only transfers with this label; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// List only transfers with this host, as farhaul peers names it
    #[arg(long, value_name = "PEER")]
    pub peer: Option<String>,
    /// List only transfers that ended like this: done, partly_failed, failed, cancelled, stopped
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    pub state: Vec<String>,
    /// List only transfers with this text in the source or the destination
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// List at most this many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Print comma-separated values, with column names in the first line
    #[arg(long, conflicts_with = "json", help_heading = OUTPUT)]
    pub csv: bool,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Sum up what was moved, by host, user, day or label
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct UsageArgs {
    /// What to sum up by: peer, user, day, or label:NAME
    #[arg(long, value_name = "WHAT", default_value = "peer")]
    pub by: String,
    /// Only transfers that ended within this time, such as 12h or 7d
    #[arg(long, value_name = "TIME")]
    pub since: Option<JobSpan>,
    #[command(flatten)]
    pub answer: AnswerArgs,
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
    /// Make a token; prints its secret on stdout, this one time
    Create {
        /// What the token allows: read, submit, control, admin, separated by commas
        #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true, value_parser = scope)]
        scope: Vec<Scope>,
        /// Allow this directory of the service's host and what is below it; may be repeated. Without --root,
        /// no file of this host is allowed
        #[arg(long, value_name = "DIR")]
        root: Vec<PathBuf>,
        /// Allow this directory on this host: hpc:/dir at its daemon, ssh://user@hpc:/dir over SSH; may be
        /// repeated. Without --peer, no other host is allowed
        #[arg(long, value_name = "PEER:DIR")]
        peer: Vec<String>,
        /// Allow jobs to name this identity of the service's configuration; may be repeated. The identity that
        /// the configuration gives to a peer is allowed without it
        #[arg(long, value_name = "NAME")]
        identity: Vec<String>,
        /// Allow the whole account of the service's user: all its files, keys and peers. The scope admin needs
        /// it
        #[arg(long, conflicts_with_all = ["root", "peer", "identity"])]
        everything: bool,
        /// How long the token is valid, such as 30d [default: for ever]
        #[arg(long, value_name = "TIME")]
        expires: Option<JobSpan>,
        /// Name of the token in lists
        #[arg(long, value_name = "TEXT", default_value = "")]
        name: String,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// List all tokens
    List {
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Revoke a token; from now on it allows nothing
    Revoke {
        /// Id of the token, as list shows it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        answer: AnswerArgs,
    },
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::of_name(text).ok_or_else(|| "a scope is read, submit, control or admin".into())
}

/// Watch folders: send each file that appears in one as soon as it is complete
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT} docs/guide/watch-folder.md says more.\n\n{EXIT_CODES}"))]
pub struct WatchArgs {
    #[command(subcommand)]
    pub verb: WatchVerb,
}

#[derive(Subcommand, Debug)]
pub enum WatchVerb {
    Add(Box<WatchAddArgs>),
    /// List all watched folders
    List {
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Show a watched folder: its files by state, which of them fail and why, and when they are tried again
    Show {
        /// Id of the watch
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Show what has become of each file of a watched folder
    Files {
        /// Id of the watch
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// List only files in this state: new, settling, taken, changed, done, failed, gone
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// List at most this many
        #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
        limit: usize,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Try files again that have failed, also those that are not tried again by themselves
    Retry {
        /// Id of the watch
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Take over a watch whose owner's token is no longer valid
    Take {
        /// Id of the watch
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Stop watching a folder; jobs that have its files go on
    Remove {
        /// Id of the watch
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        answer: AnswerArgs,
    },
}

/// Watch a folder of the service's host; prints the id of the watch on stdout
#[derive(Group, Debug)]
pub struct WatchAddArgs {
    /// The folder to watch, with everything below it
    #[arg(value_name = "DIR")]
    pub folder: OsString,
    /// Location to send the files to; they keep their paths below the folder
    #[arg(long, value_name = "LOCATION", required = true)]
    pub to: OsString,
    /// Send a file when it has not changed for this long [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub settle: Option<JobSpan>,
    /// Scan the whole folder this often [default: 1m, or 10s if the kernel reports no changes there]
    #[arg(long, value_name = "TIME")]
    pub rescan: Option<JobSpan>,
    /// Send only files that match; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Leave out files and directories that match; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Also send files and directories whose names begin with a dot
    #[arg(long)]
    pub hidden: bool,
    /// What to do with a source file once it is synced at the destination: keep, mark (put
    /// FILE.farhaul-done beside it), move:DIR, delete
    #[arg(long, value_name = "WHAT", default_value_t)]
    pub after: AfterAction,
    #[command(flatten)]
    pub backup: BackupArgs,
    #[command(flatten)]
    pub owners: OwnerArgs,
    /// Label for the jobs, a name and a value of your choice; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// Address (http or https) to which the service sends a message when a job is over
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
    /// Log in to the other host with this identity of the service's configuration
    #[arg(long, value_name = "NAME")]
    pub as_identity: Option<String>,
    /// Fingerprint that the far daemon's key must have
    #[arg(long, value_name = "SHA256:...")]
    pub fingerprint: Option<String>,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Back up or check the database in which the service keeps jobs and history
#[derive(Group, Debug)]
#[command(after_help = format!("{ABOUT}\n\n{EXIT_CODES}"))]
pub struct StoreArgs {
    #[command(subcommand)]
    pub verb: StoreVerb,
}

#[derive(Subcommand, Debug)]
pub enum StoreVerb {
    /// Write a copy of the database to a file of the service's host, while the service keeps running
    Backup {
        /// File to write; it must not exist yet
        file: PathBuf,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Check the whole database for damage
    Check {
        #[command(flatten)]
        answer: AnswerArgs,
    },
}
