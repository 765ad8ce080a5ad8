//! The command line, defined once: help, man page and completions come from here.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand};
use farhaul::Error;
use farhaul::errors::Code;
use farhaul::options::{
    Algorithm, BackupOptions, CpuList, DeleteLimit, DeleteOptions, DeleteWhen, Durability, EarlierOptions,
    FileOptions, IntegrityOptions, ManifestOptions, NetworkOptions, OverwriteMode, OwnerOptions,
    PathAddresses, SyncOptions, TransferOptions, VerifyMode,
};
use farhaul::sisters::flows_for_cores;
use farhaul_service::config::values::ListenAddress;

use crate::values::{self, FlowCount, PathChoice};

pub mod bench;
pub mod cache;
pub mod cap;
pub mod clean;
pub mod config;
pub mod doctor;
pub mod foreign_words;
pub mod gateway;
pub mod lab;
pub mod mount;
pub mod mount_helper;
pub mod names_verbs;
pub mod network;
pub mod read_verbs;
pub mod receipt;
pub mod select;
pub mod service;
pub mod stream;
pub mod tunnel;
pub mod verify;

use network::NetworkArgs;
use select::SelectArgs;

/// Moves big data at the speed of the link, between any two machines that can reach each other.
#[derive(Parser, Debug)]
#[command(name = "farhaul", version, max_term_width = 100, after_help = EXIT_CODES, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 all done, 1 some files failed, 2 wrong usage, 3 no connection, 4 not \
authorized, 5 incompatible versions, 6 source or destination unusable, 7 connection lost (run again to go on), \
8 protocol error, 9 internal error, 10 all content arrived but some modes, times or attributes could not be set, \
11 nothing failed but some source files vanished, 130 interrupted.";

const KEY_OPTIONS: &str = "A key in the list may have restrictions in front of it, separated by commas: \
root=DIR, read-only, write-only, no-overwrite, no-delete, no-cipher-none, max-rate=RATE, memory=SIZE; diagnose lets it ask the doctor, tunnel=HOST:PORT,... lets it have tunnels to there, tunnel-listen=PORT,... lets it listen here. For example: \
root=/srv/a,read-only,max-rate=1G farhaul-ed25519 ... A line with any other restriction lets nobody in; the log says why.";

#[derive(Subcommand, Debug)]
pub enum Verb {
    Cp(Box<CpArgs>),
    Sync(Box<SyncArgs>),
    Verify(verify::VerifyArgs),
    Ls(Box<read_verbs::LsArgs>),
    Stat(Box<read_verbs::StatArgs>),
    Cat(Box<read_verbs::CatArgs>),
    Du(Box<read_verbs::DuArgs>),
    Sum(Box<read_verbs::SumArgs>),
    Mkdir(Box<names_verbs::MkdirArgs>),
    Mv(Box<names_verbs::MvArgs>),
    Rm(Box<names_verbs::RmArgs>),
    Mount(Box<mount::MountArgs>),
    Umount(mount::UmountArgs),
    Tunnel(Box<tunnel::TunnelArgs>),
    Clean(clean::CleanArgs),
    Receipt(receipt::ReceiptArgs),
    Serve(Box<ServeArgs>),
    Gateway(Box<gateway::GatewayArgs>),
    Cache(cache::CacheArgs),
    Stream(stream::StreamArgs),
    Submit(Box<service::SubmitArgs>),
    Jobs(service::JobsArgs),
    Job(service::JobArgs),
    Top(service::TopArgs),
    Open(service::OpenArgs),
    /// Wait until jobs are over; if one has failed, exit with its exit code
    Wait(service::JobIdsArgs),
    /// Pause jobs: nothing new is sent
    Pause(service::JobIdsArgs),
    /// Let paused jobs go on
    Resume(service::JobIdsArgs),
    /// Cancel jobs; what has arrived stays
    Cancel(service::JobIdsArgs),
    Retry(service::RetryArgs),
    /// Take over jobs that were stopped because the token of their owner is no longer valid
    Take(service::JobIdsArgs),
    Set(service::JobSetArgs),
    Logs(service::LogsArgs),
    History(service::HistoryArgs),
    Usage(service::UsageArgs),
    Peers(service::PeersArgs),
    Cap(cap::CapArgs),
    Token(service::TokenArgs),
    Watch(service::WatchArgs),
    Store(service::StoreArgs),
    Keygen(KeygenArgs),
    Config(config::ConfigArgs),
    Audit(config::AuditArgs),
    Lab(Box<lab::LabArgs>),
    Bench(bench::BenchArgs),
    Doctor(Box<doctor::DoctorArgs>),
    /// The far end of a transfer over SSH, on stdin and stdout
    #[command(hide = true)]
    Endpoint,
    /// What the program does that was brought to this host over SSH: it looks at itself, and goes on as one of these words
    #[command(hide = true)]
    Brought {
        /// SHA-256 of the program, in hexadecimal digits
        digest: String,
        /// The words of the command line that it goes on with
        #[arg(trailing_var_arg = true, required = true)]
        words: Vec<String>,
    },
    /// Print the completion script for a shell
    Completions {
        shell: clap_complete::Shell,
    },
    /// Print a man page
    Man {
        /// The verb to describe, such as cp or cap set; without it, farhaul as a whole
        verb: Vec<String>,
    },
}

const CP_USAGE: &str = "farhaul cp [OPTIONS] <SOURCE>... <DESTINATION>";
const SYNC_USAGE: &str = "farhaul sync [OPTIONS] <SOURCE> <DESTINATION>";

/// Copy files and trees to or from another host; a run that was interrupted goes on where it stopped
#[derive(Group, Debug)]
#[command(after_help = format!("{LOCATIONS}\n\n{EXIT_CODES}"), override_usage = CP_USAGE)]
pub struct CpArgs {
    /// Sources, then the destination
    #[arg(required = true, value_name = "LOCATION")]
    pub locations: Vec<OsString>,

    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub transfer: TransferArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub output: OutputArgs,

    /// Compare files of the same size by content, not by time (for scp's -c see --cipher)
    #[arg(short = 'c', long, conflicts_with = "overwrite", help_heading = TRANSFER)]
    pub checksum: bool,
    /// Accepted for scp's sake; directories are always copied
    #[arg(short = 'r', long, help_heading = SCP)]
    pub recursive: bool,
    /// Keep set-user-id and set-group-id bits, too; times and other modes are always kept
    #[arg(short = 'p', help_heading = SCP)]
    pub preserve: bool,
}

/// Make a directory like another one, here or on another host: only what is new or has changed is sent
#[derive(Group, Debug)]
#[command(after_help = format!("{SYNC_LOCATIONS}\n\n{EXIT_CODES}"), override_usage = SYNC_USAGE)]
pub struct SyncArgs {
    /// The source directory, then the destination
    #[arg(required = true, value_name = "LOCATION")]
    pub locations: Vec<OsString>,

    #[command(flatten)]
    pub likeness: LikenessArgs,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub transfer: TransferArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub output: OutputArgs,

    /// Accepted for rsync's sake; directories below the source are always looked at
    #[arg(short = 'r', long, help_heading = SCP)]
    pub recursive: bool,
    /// Keep set-user-id and set-group-id bits, too; times and other modes are always kept
    #[arg(short = 'p', help_heading = SCP)]
    pub preserve: bool,
}

/// The options by which a destination is made like a source.
#[derive(Group, Debug, Default)]
pub struct LikenessArgs {
    /// Compare files of the same size by content, not by time
    #[arg(short = 'c', long, help_heading = SYNC)]
    pub checksum: bool,
    /// If the destination has a file under another name, rename it there instead of sending it again
    #[arg(long, help_heading = SYNC)]
    pub detect_renames: bool,
    /// Delete what the destination has and the source does not, after everything else is done
    #[arg(long, help_heading = SYNC)]
    pub delete: bool,
    /// Delete before anything is sent; this scans the source twice
    #[arg(long, conflicts_with = "delete_after", help_heading = SYNC)]
    pub delete_before: bool,
    /// The same as --delete
    #[arg(long, aliases = ["del", "delete-during", "delete-delay"], help_heading = SYNC)]
    pub delete_after: bool,
    /// Also delete what the rules leave out, such as --exclude
    #[arg(long, help_heading = SYNC)]
    pub delete_excluded: bool,
    /// Delete nothing if it would be more than this many files and directories, or more than this share of
    /// the destination's
    #[arg(long, value_name = "N|P%", help_heading = SYNC)]
    pub max_delete: Option<DeleteLimit>,
    /// Delete nothing if the source looks as if its disk were not mounted: it is empty, a job finds it on
    /// another disk than before, or more than half of the destination and more than 100 entries would go.
    /// Jobs do so unless told otherwise
    #[arg(long, overrides_with = "no_delete_guard", help_heading = SYNC)]
    pub delete_guard: bool,
    /// Delete also then; this is the default outside of jobs
    #[arg(long, overrides_with = "delete_guard", help_heading = SYNC)]
    pub no_delete_guard: bool,
    /// Let this run delete in spite of --delete-guard and --max-delete; of a job that repeats, its first run
    #[arg(long, help_heading = SYNC)]
    pub delete_anyway: bool,
    /// Also delete in file systems that are mounted below the destination, and in btrfs subvolumes; by
    /// default both are left alone
    #[arg(long, help_heading = SYNC)]
    pub delete_across_mounts: bool,
}

impl LikenessArgs {
    /// Returns the options, or an error if they contradict each other.
    pub fn options(&self) -> Result<SyncOptions, Error> {
        let bad = |reason: &str| Err(Error::new(Code::BadOption, reason));
        let deletes = self.delete || self.delete_before || self.delete_after || self.delete_excluded;
        if self.max_delete.is_some() && !deletes {
            return bad("--max-delete needs --delete");
        }
        if self.delete_across_mounts && !deletes {
            return bad("--delete-across-mounts needs --delete");
        }
        if (self.delete_guard || self.no_delete_guard || self.delete_anyway) && !deletes {
            return bad("--delete-guard and --delete-anyway need --delete");
        }
        let when = if self.delete_before { DeleteWhen::Before } else { DeleteWhen::After };
        let delete = deletes.then_some(DeleteOptions {
            when,
            excluded: self.delete_excluded,
            max: self.max_delete,
            across_mounts: self.delete_across_mounts,
            guard: (self.delete_guard || self.no_delete_guard).then_some(self.delete_guard),
            anyway: self.delete_anyway,
            last_root: None,
        });
        Ok(SyncOptions { checksum: self.checksum, detect_renames: self.detect_renames, delete })
    }
}

const SYNC_LOCATIONS: &str = "A location is a local path, [user@]host:path over SSH, or fh://[user@]host[:port]/path at a \
daemon. The contents of the source directory go straight into the destination, whether or not the source ends with a slash.";
const SYNC: &str = "Sync";
const LOCATIONS: &str = "A location is a local path, [user@]host:path over SSH, fh://[user@]host[:port]/path at a \
daemon, or - for a pipe. The source dir means the directory itself, dir/ means its contents.";
const SCP: &str = "Connection (as in scp)";
const DAEMON: &str = "Daemon";
const SERVICE: &str = "Service";
const TRANSFER: &str = "Transfer";
const KEEP: &str = "Keep";
const MANIFEST: &str = "Manifest";
const OUTPUT: &str = "Output";

#[derive(Group, Debug, Default)]
pub struct ConnectionArgs {
    /// Port of the SSH server, or of the daemon with fh://
    #[arg(short = 'P', value_name = "PORT", value_parser = values::port, help_heading = SCP)]
    pub port: Option<u16>,
    /// File with the private key: an SSH key (may be repeated), or with fh:// a key of farhaul keygen
    #[arg(short = 'i', long = "identity", value_name = "FILE", help_heading = SCP)]
    pub identity: Vec<PathBuf>,
    /// Configuration file for ssh, in place of ~/.ssh/config
    #[arg(short = 'F', value_name = "FILE", help_heading = SCP)]
    pub config: Option<PathBuf>,
    /// Jump hosts to go through, separated by commas
    #[arg(short = 'J', value_name = "HOST", help_heading = SCP)]
    pub jump: Option<String>,
    /// Option for ssh, as in ssh_config; may be repeated
    #[arg(short = 'o', value_name = "OPTION", help_heading = SCP)]
    pub ssh_options: Vec<String>,
    /// Program to use instead of ssh
    #[arg(short = 'S', value_name = "PROGRAM", help_heading = SCP)]
    pub program: Option<PathBuf>,
    /// Batch mode: never ask for a password or a passphrase
    #[arg(short = 'B', help_heading = SCP)]
    pub batch: bool,
    /// Let ssh compress; this affects only data that travel inside SSH
    #[arg(short = 'C', help_heading = SCP)]
    pub compress: bool,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6", help_heading = SCP)]
    pub ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', help_heading = SCP)]
    pub ipv6: bool,
    /// Path of farhaul on the far end [default: farhaul, looked up by the shell there]
    #[arg(long, value_name = "PATH", help_heading = SCP)]
    pub remote_program: Option<String>,
    /// If the far end has no farhaul, or one too old to talk: send it this one over the same connection of ssh,
    /// once; it is kept in ~/.cache/farhaul there
    #[arg(long, help_heading = SCP)]
    pub bring: bool,

    /// How long to wait for an answer of the far end, not counting the time in which ssh asks you for
    /// something [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = values::age, help_heading = SCP)]
    pub answer_wait: Option<u64>,

    /// Fingerprint that the daemon's key must have (SHA256:...)
    #[arg(long, value_name = "FINGERPRINT", help_heading = DAEMON)]
    pub fingerprint: Option<String>,
    /// Trust a daemon that is not known yet, without asking; a key that has changed still fails
    #[arg(long, help_heading = DAEMON)]
    pub accept_new: bool,
    /// File with the keys of known daemons [default: ~/.config/farhaul/known_hosts]
    #[arg(long, value_name = "FILE", help_heading = DAEMON)]
    pub known_hosts: Option<PathBuf>,
    /// How long to keep trying while the daemon is busy, or is being restarted in the middle of a copy
    /// [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = values::age, help_heading = DAEMON)]
    pub busy_wait: Option<u64>,
}

#[derive(Group, Debug, Default)]
pub struct TransferArgs {
    /// When to replace a file that exists: different = if size or time differ, content = if the content
    /// differs, older = if it is older than the source
    #[arg(long, value_name = "WHEN", default_value = "different", help_heading = TRANSFER,
          value_parser = values::choice::<OverwriteMode>(&["always", "older", "different", "content", "never"]))]
    pub overwrite: OverwriteMode,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Lowest rate in bits a second: never go below it, even if other traffic suffers
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = TRANSFER)]
    pub min_rate: Option<u64>,
    /// Highest rate in kilobits a second, as in scp
    #[arg(short = 'l', value_name = "KBITS", value_parser = values::kilobits, conflicts_with = "rate",
          help_heading = TRANSFER)]
    pub limit: Option<u64>,
    /// How the receiver checks what has arrived: transit = the seal of each packet (with --cipher none its
    /// checksum), digest = also a digest of each file, readback = also reads each file back
    #[arg(long, value_name = "HOW", default_value = "digest", help_heading = TRANSFER,
          value_parser = values::choice::<VerifyMode>(&["transit", "digest", "readback"]))]
    pub verify: VerifyMode,
    /// Number of flows on each path (at most 16 over all paths); auto = as many as this host's cores can feed
    /// [default: 1]
    #[arg(long, value_name = "N|auto", value_parser = values::flows, help_heading = TRANSFER)]
    pub flows: Option<FlowCount>,
    /// Use the path between this address of this host and that address of the far end; repeat the option to
    /// use several paths at once, each at its own rate; auto = the path of the connection itself and one for
    /// each further subnet that both hosts share
    #[arg(long = "path", value_name = "LOCAL=REMOTE|auto", value_parser = values::path, help_heading = TRANSFER)]
    pub paths: Vec<PathChoice>,
    /// Use these directories, each on a device of its own, as one: the files of a location in one of them are
    /// spread over all; repeat the option if the other end has other directories
    #[arg(long, value_name = "DIR,DIR...", value_parser = values::directories, help_heading = TRANSFER)]
    pub spread: Vec<values::DirectoryList>,
    /// A file that DIR has, and the destination lacks, becomes a hard link to it if size, time and mode are the
    /// same; a relative DIR begins at the destination; repeat the option for more directories
    #[arg(long, value_name = "DIR", conflicts_with = "compare_dest", help_heading = TRANSFER)]
    pub link_dest: Vec<OsString>,
    /// What DIR has, and the destination lacks, is left out if it is the same, so that only what differs arrives
    #[arg(long, value_name = "DIR", help_heading = TRANSFER)]
    pub compare_dest: Vec<OsString>,
    #[command(flatten)]
    pub backup: BackupArgs,
    /// Run only on these cores of this host, such as 0-3,8
    #[arg(long, value_name = "LIST", help_heading = TRANSFER)]
    pub cpus: Option<CpuList>,
    /// Report success only when the data are on the disk: end = sync everything at the end, file = sync each
    /// file before it counts as arrived; without a value, end
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "end",
          value_parser = values::choice::<Durability>(&["end", "file"]), help_heading = TRANSFER)]
    pub durable: Option<Durability>,
    /// Send changed files whole, not only the parts that differ
    #[arg(short = 'W', long, overrides_with = "no_whole_file", help_heading = TRANSFER)]
    pub whole_file: bool,
    /// Send only the parts of a file that differ, even if both ends are on this host
    #[arg(long, overrides_with = "whole_file", help_heading = TRANSFER)]
    pub no_whole_file: bool,
    /// Take names with one inode number as one file (hard links) on every file system. Without this option,
    /// that is done on file systems that are known to keep inode numbers, and not on others (FUSE, CIFS)
    #[arg(long, overrides_with = "no_hard_links", help_heading = TRANSFER)]
    pub hard_links: bool,
    /// Copy each name of a file with several names (hard links) as a file of its own
    #[arg(long, overrides_with = "hard_links", help_heading = TRANSFER)]
    pub no_hard_links: bool,
    /// Update large files in place instead of in a copy beside them; if the run is interrupted, a file is
    /// partly old and partly new
    #[arg(long, help_heading = TRANSFER)]
    pub inplace: bool,
    /// Also send what is appended to a file during the transfer, until the file has not grown for this long;
    /// without a value, 5s
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s",
          value_parser = values::age, help_heading = TRANSFER)]
    pub follow_growth: Option<u64>,
    /// Give every file its final name by a rename: a program that watches the directory with inotify gets one
    /// event for each complete file, moved_to, and never create
    #[arg(long, conflicts_with = "inplace", help_heading = TRANSFER)]
    pub announce: bool,
    /// Treat modification times as equal if they differ by at most this much [default: times must be equal as
    /// far as the destination can store them]
    #[arg(long, value_name = "SECONDS", help_heading = TRANSFER)]
    pub modify_window: Option<u64>,
    /// Show what would be done, but change nothing
    #[arg(long, help_heading = TRANSFER)]
    pub dry_run: bool,
    /// Write a manifest: a line of JSON for each entry with what became of it; farhaul verify compares a tree
    /// with it
    #[arg(long, value_name = "FILE", value_parser = values::file_to_write(), help_heading = MANIFEST)]
    pub manifest: Option<PathBuf>,
    /// Write a receipt that both ends have signed; farhaul receipt verify checks it. Works only from or to a
    /// daemon, and implies --durable
    #[arg(long, value_name = "FILE", value_parser = values::file_to_write(), help_heading = MANIFEST)]
    pub receipt: Option<PathBuf>,
    /// More digests in the manifest besides Farhaul's own: sha256, md5, xxh3 or blake3, separated by commas;
    /// for them the receiver reads the arrived files once more
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = values::algorithm,
          help_heading = MANIFEST)]
    pub checksum_extra: Vec<Algorithm>,
    /// Put digests of files that were there already into manifest and receipt, too; the receiver reads these
    /// files
    #[arg(long, help_heading = MANIFEST)]
    pub checksum_unchanged: bool,

    #[command(flatten)]
    pub files: FileOptions,
    #[command(flatten)]
    pub owners: OwnerArgs,
}

/// Whom the entries at the destination belong to. Only root may give files to others.
#[derive(Group, Debug, Default)]
pub struct OwnerArgs {
    /// Keep owners, by their names where the receiver knows them (as root, not at a daemon)
    #[arg(long, help_heading = KEEP)]
    pub owner: bool,
    /// Keep groups in the same way; without root only those that the receiving user is in
    #[arg(long, help_heading = KEEP)]
    pub group: bool,
    /// Keep the numbers of owners and groups, whatever their names are
    #[arg(long, help_heading = KEEP)]
    pub numeric_ids: bool,
    /// Give all entries to USER, to GROUP, or to both; names and numbers are those of the receiver
    #[arg(long, value_name = "USER:GROUP", help_heading = KEEP)]
    pub chown: Option<String>,
    /// Other owners for some: FROM is a name, a pattern, a number, a range of numbers, or nothing for owners
    /// without a name; the first match counts. Implies --owner
    #[arg(long, value_name = "FROM:TO,...", help_heading = KEEP)]
    pub usermap: Option<String>,
    /// The same for groups. Implies --group
    #[arg(long, value_name = "FROM:TO,...", help_heading = KEEP)]
    pub groupmap: Option<String>,
}

impl OwnerArgs {
    /// Returns the options, or an error if they contradict each other.
    pub fn options(&self) -> Result<OwnerOptions, Error> {
        let bad = |reason: &str| Err(Error::new(Code::BadOption, reason));
        let (user, group) = match &self.chown {
            None => ("", ""),
            Some(whole) => whole.split_once(':').unwrap_or((whole, "")),
        };
        if self.chown.is_some() && user.is_empty() && group.is_empty() {
            return bad("--chown takes USER, USER:GROUP or :GROUP");
        }
        if [user, group].iter().any(|name| name.contains([',', ':'])) {
            return bad("--chown takes one user and one group: USER, USER:GROUP or :GROUP");
        }
        if !user.is_empty() && self.usermap.is_some() || !group.is_empty() && self.groupmap.is_some() {
            return bad("--chown contradicts --usermap or --groupmap: leave one of them out");
        }
        let map = |name: &str, map: &Option<String>| match name.is_empty() {
            true => map.clone().unwrap_or_default(),
            false => format!("*:{name}"),
        };
        Ok(OwnerOptions {
            user: self.owner,
            group: self.group,
            numeric: self.numeric_ids,
            user_map: map(user, &self.usermap),
            group_map: map(group, &self.groupmap),
        })
    }
}

/// How what is replaced or deleted at the destination is kept.
#[derive(Group, Debug, Default)]
pub struct BackupArgs {
    /// Keep what is replaced or deleted at the destination under another name
    #[arg(short = 'b', long, help_heading = TRANSFER)]
    pub backup: bool,
    /// Keep it in DIR, under the path that it had below the destination; a relative DIR begins at the
    /// destination. Implies --backup
    #[arg(long, value_name = "DIR", help_heading = TRANSFER)]
    pub backup_dir: Option<OsString>,
    /// End of its other name [default: ~, or none with --backup-dir]
    #[arg(long, value_name = "END", help_heading = TRANSFER)]
    pub suffix: Option<OsString>,
}

impl BackupArgs {
    /// Returns the options, or an error if they contradict each other.
    pub fn options(&self) -> Result<Option<BackupOptions>, Error> {
        let bad = |reason: &str| Err(Error::new(Code::BadOption, reason));
        if !self.backup && self.backup_dir.is_none() {
            return match self.suffix.is_some() {
                true => bad("--suffix needs --backup or --backup-dir"),
                false => Ok(None),
            };
        }
        if self.backup_dir.as_ref().is_some_and(|dir| dir.is_empty()) {
            return bad("--backup-dir must not be empty");
        }
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        let usual = || BackupOptions::default_suffix(self.backup_dir.is_some()).to_vec();
        Ok(Some(BackupOptions {
            dir: self.backup_dir.as_ref().map(bytes).unwrap_or_default(),
            suffix: self.suffix.as_ref().map_or_else(usual, bytes),
        }))
    }
}

#[derive(Group, Debug, Default)]
pub struct OutputArgs {
    /// Print a report as one JSON object on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print events on stdout as they happen, one JSON object a line; the last line is the report
    #[arg(long, conflicts_with = "json", help_heading = OUTPUT)]
    pub events: bool,
    /// Print errors only
    #[arg(short = 'q', long, conflicts_with = "verbose", help_heading = OUTPUT)]
    pub quiet: bool,
    /// Print a line for each file
    #[arg(short = 'v', long, help_heading = OUTPUT)]
    pub verbose: bool,
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map(|ListenAddress(address)| address)
}

/// Serve files to clients with an authorized key, over UDP and TCP on one port number; also runs jobs
#[derive(Group, Debug)]
#[command(after_help = format!("{KEY_OPTIONS}\n\n{EXIT_CODES}"))]
pub struct ServeArgs {
    /// Address and port to listen on, UDP and TCP; may be repeated [default: [::]:33001]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub listen: Vec<SocketAddr>,
    /// Directory to serve; clients can reach nothing outside it. Without this option they reach no files
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// File with the public keys of those who may connect, one a line; restrictions may stand before a key
    /// [default: ~/.config/farhaul/authorized_keys]
    #[arg(long, value_name = "FILE")]
    pub authorized_keys: Option<PathBuf>,
    /// File with this daemon's private key, which farhaul keygen -f has made [default:
    /// ~/.config/farhaul/id_ed25519, which the first start makes]
    #[arg(short = 'i', long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Let clients read, but not write
    #[arg(long)]
    pub read_only: bool,
    /// Memory for all transfers together; when it is used up, further clients wait or have to try again
    /// [default: half of this host's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<u64>,
    /// Memory for all transfers of one key [default: half of --memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub memory_per_key: Option<u64>,
    /// Highest rate of all transfers together, both directions added, in bits a second, such as 8G; keys
    /// share it evenly [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<u64>,
    /// Permission bits that files and directories never get, whatever their source has, such as 027 [default:
    /// the umask]
    #[arg(long, value_name = "BITS", value_parser = values::mask)]
    pub mask: Option<u32>,
    /// Run only on these cores, such as 0-3,8
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuList>,
    /// Allow clients to use --cipher none: contents travel unencrypted, and with --verify transit somebody on
    /// the way could change them unnoticed
    #[arg(long)]
    pub allow_cipher_none: bool,
    /// Configuration file to read in place of those of the system and the user, see farhaul config
    #[arg(long, value_name = "FILE", help_heading = SERVICE)]
    pub config: Option<PathBuf>,
    /// Directory in which the service keeps jobs and their history [default: ~/.local/state/farhaul/service]
    #[arg(long, value_name = "DIR", help_heading = SERVICE)]
    pub state: Option<PathBuf>,
    /// Unix socket of the API, which only this user can use [default: farhaul/api.sock in XDG_RUNTIME_DIR, or
    /// api.sock in --state]
    #[arg(long, value_name = "PATH", help_heading = SERVICE)]
    pub api_socket: Option<PathBuf>,
    /// Address and port at which the API can be reached as well, by callers with a token; may be repeated.
    /// From other hosts it can be reached only with --tls-cert
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, help_heading = SERVICE)]
    pub api_listen: Vec<SocketAddr>,
    /// File with the certificate chain of the API, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = SERVICE)]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key for --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = SERVICE)]
    pub tls_key: Option<PathBuf>,
    /// Host name under which browsers and programs may call the API; may be repeated
    #[arg(long, value_name = "NAME", help_heading = SERVICE)]
    pub api_host: Vec<String>,
    /// Allow farhaul serve to run as root, with all of root's rights
    #[arg(long, env = "FARHAUL_ALLOW_ROOT", value_parser = clap::builder::FalseyValueParser::new(), help_heading = SERVICE)]
    pub allow_root: bool,
    /// Write the log to stdout as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Log only errors
    #[arg(short = 'q', long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log more
    #[arg(short = 'v', long)]
    pub verbose: bool,
}

/// Make an Ed25519 key pair for daemons and their clients
#[derive(Group, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct KeygenArgs {
    /// File for the private key; the public key goes to the same name with .pub appended [default:
    /// ~/.config/farhaul/id_ed25519]
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Comment in the public key [default: user@host]
    #[arg(short = 'C', long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Print nothing
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl Verb {
    /// Returns whether the process comes to hold private keys or the secrets of sessions.
    pub fn holds_keys(&self) -> bool {
        match self {
            Verb::Cp(_)
            | Verb::Sync(_)
            | Verb::Ls(_)
            | Verb::Stat(_)
            | Verb::Cat(_)
            | Verb::Du(_)
            | Verb::Sum(_)
            | Verb::Mkdir(_)
            | Verb::Mv(_)
            | Verb::Rm(_)
            | Verb::Mount(_)
            | Verb::Tunnel(_)
            | Verb::Serve(_)
            | Verb::Gateway(_)
            | Verb::Stream(_)
            | Verb::Endpoint
            | Verb::Brought { .. }
            | Verb::Keygen(_)
            | Verb::Submit(_)
            | Verb::Jobs(_)
            | Verb::Job(_)
            | Verb::Top(_)
            | Verb::Wait(_)
            | Verb::Pause(_)
            | Verb::Resume(_)
            | Verb::Cancel(_)
            | Verb::Retry(_)
            | Verb::Take(_)
            | Verb::Set(_)
            | Verb::Logs(_)
            | Verb::History(_)
            | Verb::Usage(_)
            | Verb::Peers(_)
            | Verb::Cap(_)
            | Verb::Open(_)
            | Verb::Token(_)
            | Verb::Watch(_)
            | Verb::Store(_) => true,
            Verb::Verify(_)
            | Verb::Umount(_)
            | Verb::Clean(_)
            | Verb::Cache(_)
            | Verb::Receipt(_)
            | Verb::Config(_)
            | Verb::Audit(_)
            | Verb::Lab(_)
            | Verb::Bench(_)
            | Verb::Doctor(_)
            | Verb::Completions { .. }
            | Verb::Man { .. } => false,
        }
    }

    /// Returns the cores on which the user wants the process to run.
    pub fn cpus(&self) -> Option<&CpuList> {
        match self {
            Verb::Cp(args) => args.transfer.cpus.as_ref(),
            Verb::Sync(args) => args.transfer.cpus.as_ref(),
            Verb::Serve(args) => args.cpus.as_ref(),
            Verb::Gateway(args) => args.cpus.as_ref(),
            Verb::Bench(bench::BenchArgs { part: bench::BenchVerb::Transfer(args) }) => {
                args.transfer.cpus.as_ref()
            }
            _ => None,
        }
    }
}

impl TransferArgs {
    /// The options of the crate `farhaul`. Options that were not given keep its default, and it judges the
    /// values.
    pub fn options(&self) -> Result<TransferOptions, Error> {
        let files = FileOptions {
            overwrite: self.overwrite,
            delta: (self.whole_file || self.no_whole_file).then_some(self.no_whole_file),
            in_place: self.inplace,
            hard_links: (self.hard_links || self.no_hard_links).then_some(self.hard_links),
            follow_growth_secs: self.follow_growth,
            announce: self.announce,
            modify_window_secs: self.modify_window.unwrap_or(0),
            ..self.files
        };
        let wants_digests = self.checksum_unchanged || !self.checksum_extra.is_empty();
        let manifest = (self.manifest.is_some() || wants_digests).then(|| ManifestOptions {
            unchanged: self.checksum_unchanged,
            extra: self.checksum_extra.clone(),
        });
        let bytes = |paths: &[OsString]| paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        Ok(TransferOptions {
            network: self.network(),
            files,
            earlier: EarlierOptions { link: bytes(&self.link_dest), compare: bytes(&self.compare_dest) },
            integrity: IntegrityOptions {
                verify: self.verify,
                durable: self.durable.unwrap_or_default(),
                manifest,
                receipt: None,
            },
            dry_run: self.dry_run,
            owners: self.owners.options()?,
            backup: self.backup.options()?,
            ..TransferOptions::default()
        })
    }

    fn network(&self) -> NetworkOptions {
        let common = self.network.options();
        NetworkOptions {
            rate_bps: common.rate_bps.or(self.limit),
            rate_min_bps: self.min_rate,
            flows: match self.flows {
                Some(FlowCount::Auto) => flows_for_cores(self.paths.len()),
                Some(FlowCount::Number(flows)) => flows,
                None => common.flows,
            },
            paths: self.paths.iter().filter_map(addresses_of).collect(),
            auto_paths: self.paths.contains(&PathChoice::Auto),
            ..common
        }
    }
}

fn addresses_of(path: &PathChoice) -> Option<PathAddresses> {
    match path {
        PathChoice::Named(addresses) => Some(*addresses),
        PathChoice::Auto => None,
    }
}

impl ConnectionArgs {
    /// All settings for ssh that `SshTarget` has no field for, as `-o` options.
    pub fn ssh_options(&self, quiet: bool) -> Vec<String> {
        let mut options = self.ssh_options.clone();
        let switches = [
            (self.compress, "Compression=yes"),
            (self.ipv4, "AddressFamily=inet"),
            (self.ipv6, "AddressFamily=inet6"),
            (quiet, "LogLevel=QUIET"),
        ];
        options.extend(switches.iter().filter(|(on, _)| *on).map(|(_, option)| (*option).to_string()));
        options
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use farhaul::options::{Cipher, Policy, SelectOptions, SpreadOptions};

    use super::select::RuleOption;
    use super::*;

    fn cp(arguments: &str) -> Result<CpArgs, clap::Error> {
        let words = ["farhaul", "cp"].into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words)?.verb {
            Verb::Cp(cp) => Ok(*cp),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clap_finds_no_fault_with_the_definitions() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_crate_farhaul() {
        assert_eq!(cp("a b").unwrap().transfer.options().unwrap(), TransferOptions::default());
    }

    #[test]
    fn every_transfer_option_arrives() {
        let text = "--overwrite never --verify readback --cipher chacha20-poly1305 --policy low --rate 2G --min-rate 1M --flows 4 \
                    --path 10.0.0.1=10.0.0.2 --path [fd00::1]=fd00::2 --path fe80::1%lo=[fe80::2%lo] \
                    --mtu 9000 --memory 1G --durable=file -W --follow-growth=1m --no-hard-links --announce --modify-window 2 --no-perms --no-times --omit-dir-times --dry-run --udp-only --udp-ports 5000-5005 \
                    --manifest m --checksum-extra sha256,md5 --checksum-unchanged -XA --specials --devices -L --safe-links -K --link-dest ../monday --link-dest /b \
                    --backup-dir ../old --suffix .1 --group --numeric-ids --chown anna --groupmap *:7 a b";
        let expected = TransferOptions {
            network: NetworkOptions {
                cipher: Cipher::ChaCha20Poly1305,
                policy: Policy::Low,
                rate_bps: Some(2_000_000_000),
                rate_min_bps: Some(1_000_000),
                flows: 4,
                paths: vec![
                    PathAddresses::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
                    PathAddresses::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()),
                    PathAddresses {
                        local: "fe80::1".parse().unwrap(),
                        remote: "fe80::2".parse().unwrap(),
                        interface: "lo".try_into().ok(),
                    },
                ],
                auto_paths: false,
                further_paths: 0,
                mtu: Some(9000),
                memory_bytes: 1 << 30,
                udp_only: true,
                udp_ports: (5000, 5005),
                testing: farhaul::sisters::TestHooks::default(),
            },
            files: FileOptions {
                overwrite: OverwriteMode::Never,
                delta: Some(false),
                in_place: false,
                hard_links: Some(false),
                follow_growth_secs: Some(60),
                announce: true,
                modify_window_secs: 2,
                no_perms: true,
                no_times: true,
                omit_dir_times: true,
                keep_setuid: false,
                xattrs: true,
                acls: true,
                specials: true,
                devices: true,
                follow: true,
                safe_links: true,
                no_links: false,
                keep_dirlinks: true,
            },
            integrity: IntegrityOptions {
                verify: VerifyMode::Readback,
                durable: Durability::File,
                manifest: Some(ManifestOptions {
                    unchanged: true,
                    extra: vec![Algorithm::Sha256, Algorithm::Md5],
                }),
                receipt: None,
            },
            select: SelectOptions::default(),
            spread: SpreadOptions::default(),
            sync: None,
            earlier: EarlierOptions {
                link: vec![b"../monday".to_vec(), b"/b".to_vec()],
                compare: Vec::new(),
            },
            owners: OwnerOptions {
                user: false,
                group: true,
                numeric: true,
                user_map: "*:anna".into(),
                group_map: "*:7".into(),
            },
            backup: Some(BackupOptions { dir: b"../old".to_vec(), suffix: b".1".to_vec() }),
            dry_run: true,
        };
        assert_eq!(cp(text).unwrap().transfer.options().unwrap(), expected);
    }

    #[test]
    fn every_listed_name_is_one_of_the_crate_farhaul() {
        for (option, names) in [
            ("--overwrite", "always older different content never"),
            ("--policy", "fixed high fair low"),
            ("--cipher", "aes-128-gcm aes-256-gcm chacha20-poly1305 none"),
            ("--verify", "transit digest readback"),
        ] {
            for name in names.split(' ') {
                assert!(cp(&format!("{option} {name} a b")).is_ok(), "{option} {name}");
            }
            assert!(cp(&format!("{option} other a b")).is_err(), "{option}");
        }
    }

    #[test]
    fn scp_habits_work() {
        let cp = cp("-rpCqB -P 2222 -i k1 -i k2 -F conf -J jump -o A=b -oC=d -l 8000 -S myssh -4 a.txt h:")
            .unwrap();
        assert_eq!(cp.connection.port, Some(2222));
        assert_eq!(cp.connection.identity, [PathBuf::from("k1"), PathBuf::from("k2")]);
        assert_eq!(cp.transfer.options().unwrap().network.rate_bps, Some(8_000_000));
        let options = cp.connection.ssh_options(cp.output.quiet);
        let expected = "A=b C=d Compression=yes AddressFamily=inet LogLevel=QUIET";
        assert_eq!(options.join(" "), expected);
    }

    /// As scp does it: a script puts its options before those of its user.
    #[test]
    fn of_an_option_that_comes_twice_the_last_one_counts() {
        let cp = cp("-v -v -P 1 --rate 1M -vv -P 2 --rate 2M --dry-run --dry-run a b").unwrap();
        assert_eq!(cp.connection.port, Some(2));
        assert_eq!(cp.transfer.options().unwrap().network.rate_bps, Some(2_000_000));
        assert!(cp.transfer.dry_run);
    }

    #[test]
    fn contradictory_or_invalid_arguments_are_refused() {
        for text in [
            "",
            "-4 -6 a b",
            "-q -v a b",
            "-l 5 --rate 5k a b",
            "-P 0 a b",
            "--mtu 70000 a b",
            "--manifest - a b",
        ] {
            assert!(cp(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_kept_has_the_names_of_rsync() {
        let of = |text: &str| cp(text).unwrap().transfer.options();
        let backup = |dir: &str, suffix: &str| Some(BackupOptions { dir: dir.into(), suffix: suffix.into() });
        for (text, kept) in [
            ("a b", None),
            ("-b a b", backup("", "~")),
            ("--backup --suffix .old a b", backup("", ".old")),
            ("--backup-dir /x a b", backup("/x", "")),
            ("-b --backup-dir x --suffix ~ a b", backup("x", "~")),
        ] {
            assert_eq!(of(text).unwrap().backup, kept, "{text}");
        }
        assert!(of("--suffix .old a b").is_err() && of("--backup-dir= a b").is_err());
    }

    #[test]
    fn chown_is_a_map_of_all_owners() {
        let of = |text: &str| cp(text).unwrap().transfer.options().map(|options| options.owners);
        let map = |text: &str| of(text).map(|owners| (owners.user_map, owners.group_map));
        for (text, users, groups) in [
            ("--chown anna a b", "*:anna", ""),
            ("--chown anna:7 a b", "*:anna", "*:7"),
            ("--chown anna: a b", "*:anna", ""),
            ("--chown :staff a b", "", "*:staff"),
            ("--chown anna --groupmap 1:2 a b", "*:anna", "1:2"),
        ] {
            assert_eq!(map(text).unwrap(), (users.into(), groups.into()), "{text}");
        }
        for text in ["--chown : a b", "--chown= a b", "--chown a:b:c a b", "--chown a --usermap 1:2 a b"] {
            assert!(of(text).is_err(), "{text}");
        }
        assert!(of("--owner a b").unwrap().user && !of("--owner a b").unwrap().group);
    }

    #[test]
    fn rules_keep_their_order_across_options() {
        let cp = Cli::try_parse_from([
            "farhaul",
            "cp",
            "--exclude",
            "a",
            "--include=b",
            "-v",
            "--filter",
            "- c",
            "--exclude",
            "- d",
            "--exclude-from",
            "-",
            "--include",
            "-e",
            "x",
            "y",
        ]);
        let Verb::Cp(cp) = cp.unwrap().verb else { panic!("a cp") };
        let rules: Vec<_> =
            cp.select.rules.0.iter().map(|(option, text)| (*option, text.to_str().unwrap())).collect();
        let expected = [
            (RuleOption::Exclude, "a"),
            (RuleOption::Include, "b"),
            (RuleOption::Filter, "- c"),
            (RuleOption::Exclude, "- d"),
            (RuleOption::ExcludeFrom, "-"),
            (RuleOption::Include, "-e"),
        ];
        assert_eq!(rules, expected);
        assert_eq!(cp.locations, ["x", "y"]);
    }

    #[test]
    fn a_pipe_is_a_location() {
        assert_eq!(cp("- h:x").unwrap().locations, ["-", "h:x"]);
        assert_eq!(cp("-q h:x -").unwrap().locations, ["h:x", "-"]);
    }
}
