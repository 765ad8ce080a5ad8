//! The tables of the configuration, a row a key.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::environment::Surroundings;
use super::keys::keys;
use super::values::{
    AbsolutePath, AfterValue, ApiHostName, Cpus, DestinationUrl, Fingerprint, HostPattern, ListenAddress,
    ModeMask, NetworkValue, RateValue, SecretPlace, SizeValue, TimeSpan, TimeZoneName, WeeklyWindow,
};

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookEvent {
    /// Before a job begins; what fails here keeps it from beginning.
    Pre,
    /// When files have arrived, many at a time.
    File,
    /// When a job has ended well.
    Post,
    /// When a job has ended otherwise.
    Fail,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What fails.
    Error,
    /// And what may fail.
    Warn,
    /// And what happens.
    Info,
    /// And why.
    Debug,
    /// And everything else.
    Trace,
}

impl LogLevel {
    /// As filters of the log spell it.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

fn seconds(seconds: u64) -> TimeSpan {
    TimeSpan(Duration::from_secs(seconds))
}

const DAY: u64 = 86_400;

fn around() -> Surroundings {
    Surroundings::of_process()
}

keys! {
    /// The daemon that clients connect to: `farhaul cp ... fh://this-host/path`
    pub struct ServeSection {
        listen: Vec<ListenAddress> = vec![ListenAddress(([0; 16], 33_001).into())], Restart, "", "",
            "Addresses and ports, each for UDP and TCP; [::] takes IPv4 too";
        root: Option<AbsolutePath> = None, Restart, "none: clients reach no files", "\"/srv/data\"",
            "Directory to serve; nothing outside it can be reached";
        authorized_keys: AbsolutePath = around().authorized_keys(), Restart,
            "$XDG_CONFIG_HOME/farhaul/authorized_keys", "\"/etc/farhaul/authorized_keys\"",
            "Public keys of those who may connect, one a line, with options before them; read again when it changes";
        identity: SecretPlace = around().identity(), Restart,
            "$XDG_CONFIG_HOME/farhaul/id_ed25519", "\"/etc/farhaul/id_ed25519\"",
            "Private key of this node, made at the first start";
        read_only: bool = false, Restart, "", "",
            "Let clients read, but not write";
        mask: Option<ModeMask> = None, Restart, "the umask", "\"027\"",
            "Permissions that files and directories do not get, whatever their source has";
        memory: Option<SizeValue> = None, Restart, "half of this host's", "\"16G\"",
            "Memory for all transfers together; a client that asks for more waits or is told to try again";
        memory_per_key: Option<SizeValue> = None, Restart, "half of memory", "\"8G\"",
            "The same for the transfers of one key";
        max_rate: Option<RateValue> = None, Live, "none", "\"8G\"",
            "The most that all sessions of clients together move, both ways, in bits a second";
        cpus: Option<Cpus> = None, Restart, "all", "\"0-3,8\"",
            "Cores to run on";
        allow_cipher_none: bool = false, Restart, "", "",
            "Permit clients that ask for it to move file contents in the clear";
        allow_root: bool = false, Restart, "", "",
            "Run as root, too; a node should run as a user of its own";
        drain: TimeSpan = seconds(30), Live, "", "",
            "How long running transfers may go on when the node is told to end; 0s stops them at once";
        state: AbsolutePath = around().state(), Restart,
            "$XDG_STATE_HOME/farhaul/service", "\"/var/lib/farhaul\"",
            "Directory of the jobs' store and all else that is kept: on a local disk, not below a root that is served";
    }

    /// The API: on a Unix socket for the same user, on TCP for callers with a token
    pub struct ApiSection {
        socket: AbsolutePath = around().socket(&around().state()), Restart,
            "$XDG_RUNTIME_DIR/farhaul/api.sock, else in the state directory", "\"/run/farhaul/api.sock\"",
            "Unix socket, for the user of this process alone";
        listen: Vec<ListenAddress> = Vec::new(), Restart, "", "[\"127.0.0.1:33080\"]",
            "TCP addresses; each needs a token, and TLS beyond loopback";
        tls_cert: Option<AbsolutePath> = None, Live, "none", "\"/etc/farhaul/tls.crt\"",
            "Certificates in PEM, this node's own first";
        tls_key: Option<SecretPlace> = None, Live, "none", "\"$CREDENTIALS_DIRECTORY/tls.key\"",
            "Private key of the certificate, in PEM";
        hosts: Vec<ApiHostName> = Vec::new(), Live, "", "[\"dtn1.example.org\"]",
            "Names and addresses by which this node is called, beside localhost and those of listen; others are refused";
        login_time: TimeSpan = seconds(DAY / 2), Live, "", "",
            "How long a log-in with a browser lasts";
        max_body: SizeValue = SizeValue(1 << 20), Live, "", "",
            "The longest request";
        max_connections: NonZeroU32 = count(1024), Restart, "", "",
            "Connections at a time, event streams among them";
        requests_per_second: NonZeroU32 = count(100), Live, "", "",
            "Requests of one caller, in the mean";
        requests_burst: NonZeroU32 = count(200), Live, "", "",
            "Requests of one caller at once, after a pause";
    }

    /// Jobs: how many run, and what becomes of those that fail
    pub struct JobsSection {
        running_max: NonZeroU32 = count(16), Live, "", "",
            "Jobs that run at a time";
        running_per_peer: NonZeroU32 = count(4), Live, "", "",
            "The same with one peer";
        running_per_principal: NonZeroU32 = count(8), Live, "", "",
            "The same of one caller";
        queued_max: NonZeroU32 = count(10_000), Live, "", "",
            "Jobs that wait; further ones are refused until there is room";
        retry_attempts: u32 = 5, Live, "", "",
            "Attempts after the first, for what can be retried, where a job says nothing else";
        retry_first: TimeSpan = seconds(10), Live, "", "",
            "Delay before the second attempt; it doubles with each";
        retry_longest: TimeSpan = seconds(600), Live, "", "",
            "The longest delay between two attempts";
        paused_release: TimeSpan = seconds(600), Live, "", "",
            "A job that is paused for longer gives its place and its session to others";
    }

    /// The history: records of jobs and their curves
    pub struct HistorySection {
        keep: TimeSpan = seconds(90 * DAY), Live, "", "",
            "Older records are deleted";
        size_max: SizeValue = SizeValue(1 << 30), Live, "", "",
            "The oldest records are deleted when all together, with their curves and manifests, are larger";
        curves: bool = true, Live, "", "",
            "Keep rate, loss and round trip of each job over time, at most 600 points";
    }

    /// The log on stderr, and the audit log
    pub struct LogSection {
        level: LogLevel = LogLevel::Info, Live, "", "",
            "How much is logged: error, warn, info, debug or trace";
        json: bool = false, Restart, "", "",
            "One JSON object a line, on stdout";
        audit_file: AbsolutePath = around().state().join("audit.log"), Live,
            "audit.log in the state directory", "\"/var/log/farhaul/audit.log\"",
            "The audit log: one JSON object a line for each thing done or refused, only ever appended to";
        audit_chain: bool = false, Live, "", "",
            "Each line of it has the digest of the line before, so that one that was removed shows";
    }

    /// Figures for Prometheus
    pub struct MetricsSection {
        listen: Vec<ListenAddress> = Vec::new(), Restart, "", "[\"127.0.0.1:33090\"]",
            "Addresses of their own for /metrics, which is on the API as well; the same rules hold there";
    }

    /// Calls of other programs when jobs end
    pub struct WebhooksSection {
        secret_file: Option<SecretPlace> = None, Live, "none: they are not signed",
            "\"$CREDENTIALS_DIRECTORY/webhook\"",
            "File of the secret that they are signed with";
        allow_networks: Vec<NetworkValue> = Vec::new(), Live, "", "[\"10.0.0.0/8\"]",
            "Networks that may be called although they are private, loopback or the like";
        ca_file: Option<AbsolutePath> = None, Live, "those of the system", "\"/etc/farhaul/ca.pem\"",
            "Certificates that others are judged by, in PEM";
    }

    /// Keys and ssh options by which this node connects to others, each under a name
    pub struct IdentitySection {
        key: Option<SecretPlace> = None, Live, "none", "\"/etc/farhaul/id_project\"",
            "Private key for nodes (fh://)";
        ssh_identity: Vec<SecretPlace> = Vec::new(), Live, "", "[\"/etc/farhaul/id_ssh\"]",
            "Private keys for ssh (-i)";
        ssh_config: Option<AbsolutePath> = None, Live, "that of the user", "\"/etc/farhaul/ssh_config\"",
            "Configuration of ssh (-F)";
        ssh_program: Option<AbsolutePath> = None, Live, "ssh", "\"/usr/bin/ssh\"",
            "The program ssh (-S)";
        ssh_user: Option<String> = None, Live, "the user of this process", "\"transfer\"",
            "Name at the other host";
    }

    /// Other hosts: how to connect to them, how much at a time; of patterns that fit, the first table counts
    pub struct PeerSection {
        host: Option<HostPattern> = None, Live, "the table's name", "\"*.hpc.example.org:33001\"",
            "Host, or host and port; * stands for any text";
        identity: Option<String> = None, Live, "the key of serve, and ssh as it is", "\"project\"",
            "Name of a table of identities";
        fingerprint: Option<Fingerprint> = None, Live, "what is in known_hosts",
            "\"SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU\"",
            "The key that the host must show";
        running_max: Option<NonZeroU32> = None, Live, "running_per_peer of jobs for each", "2",
            "Jobs that run at a time with all hosts of this table together";
        cap: Option<String> = None, Live, "none", "\"campus-uplink\"",
            "Name of a cap that its hosts count in like those of peers there, and its fingerprint like a principal";
    }

    /// Limits of rate, a tree: what a cap has left goes to those below it that want more
    pub struct CapSection {
        rate: Option<RateValue> = None, Live, "none", "\"8G\"",
            "The most that it lets through, in bits a second, repairs and headers included";
        parent: Option<String> = None, Live, "the whole host", "\"host\"",
            "The cap that it lies in";
        peers: Vec<HostPattern> = Vec::new(), Live, "", "[\"*.hpc.example.org\"]",
            "Hosts whose traffic counts in it";
        networks: Vec<NetworkValue> = Vec::new(), Live, "", "[\"192.0.2.0/24\"]",
            "Networks whose traffic counts in it";
        principals: Vec<String> = Vec::new(), Live, "", "[\"SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU\"]",
            "Keys and callers whose traffic counts in it";
        weight: NonZeroU32 = count(1), Live, "", "",
            "Its share beside others of the same parent";
        schedule: Vec<WeeklyWindow> = Vec::new(), Live, "", "[\"mon-fri 09:00-18:00 2G\"]",
            "Rates by weekday and time; where none applies it is rate, where several do the last one";
        time_zone: Option<TimeZoneName> = None, Live, "that of this host", "\"Europe/Berlin\"",
            "Time zone of the schedule";
    }

    /// Programs that run when something has happened, with JSON on stdin
    pub struct HookSection {
        on: Vec<HookEvent> = Vec::new(), Live, "", "[\"post\", \"fail\"]",
            "When it runs: pre (may refuse), file (many at a time), post, fail";
        program: Option<AbsolutePath> = None, Live, "none", "\"/usr/local/bin/register-run\"",
            "The program; there is no shell";
        args: Vec<String> = Vec::new(), Live, "", "[\"--quiet\"]",
            "Its arguments";
        time_limit: TimeSpan = seconds(60), Live, "", "",
            "How long it may run; then it is killed, with all that it has started";
        batch_files: NonZeroU32 = count(1000), Live, "", "",
            "On file: the most files that one message names";
        batch_wait: TimeSpan = seconds(5), Live, "", "",
            "On file: how long the first file waits for others at most";
        labels: BTreeMap<String, String> = BTreeMap::new(), Live, "", "{ project = \"a\" }",
            "It runs only for jobs with these labels";
    }

    /// Directories whose files are sent when nobody writes to them any more
    pub struct WatchSection {
        path: Option<AbsolutePath> = None, Live, "none", "\"/instrument/out\"",
            "The directory";
        to: Option<DestinationUrl> = None, Live, "none", "\"fh://hpc.example.org/incoming\"",
            "Where its files go";
        settle: TimeSpan = seconds(30), Live, "", "",
            "A file is taken when it has not changed for so long and nobody has it open for writing";
        rescan: TimeSpan = seconds(300), Live, "", "",
            "Time between two walks over the directory, which find what the kernel has not told";
        include: Vec<String> = Vec::new(), Live, "", "[\"*.h5\"]",
            "Patterns of names that are taken; without any, all are";
        exclude: Vec<String> = Vec::new(), Live, "", "[\"*.tmp\"]",
            "Patterns of names that are not";
        after: AfterValue = AfterValue::Keep, Live, "", "",
            "Done with a file that has arrived and is synced there: keep, mark, delete, or move /DIRECTORY";
        labels: BTreeMap<String, String> = BTreeMap::new(), Live, "", "{ instrument = \"a\" }",
            "Labels of its jobs";
    }
}
