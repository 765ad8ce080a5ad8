//! The tables of the configuration, one row per key.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::environment::Surroundings;
use super::keys::keys;
use super::values::{
    AbsolutePath, ApiHostName, Cpus, DestinationUrl, Fingerprint, HostPattern, ListenAddress, ModeMask,
    NetworkValue, RateValue, SecretPlace, SizeValue, TimeSpan, TimeZoneName, WeeklyWindow,
};
use crate::hooks::webhook::WebhookUrl;
use crate::watch::AfterAction;

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookEvent {
    /// Before a job begins; if the hook fails, the job does not begin.
    Pre,
    /// Before a file that has arrived at this host gets its name; the hook may refuse the file.
    Verify,
    /// When files have arrived; many files at a time.
    File,
    /// When a deadline will not be kept.
    Late,
    /// When a job has ended well.
    Post,
    /// When a job has failed or was cancelled.
    Fail,
    /// When files of a watched folder begin to fail.
    Failing,
    /// When no file of a watched folder fails any more.
    Recovered,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Also things that may go wrong.
    Warn,
    /// Also what happens.
    Info,
    /// Also the reasons.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The name of the level in a filter of the log.
    pub fn name(self) -> &'static str {
        self.into()
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
            "Public keys of those who may connect, one per line, each after its options; read again when the file changes";
        identity: SecretPlace = around().identity(), Restart,
            "$XDG_CONFIG_HOME/farhaul/id_ed25519", "\"/etc/farhaul/id_ed25519\"",
            "Private key of this node, made at the first start";
        read_only: bool = false, Restart, "", "",
            "Let clients read, but not write";
        mask: Option<ModeMask> = None, Restart, "the umask", "\"027\"",
            "Permissions that files and directories do not get, whatever their source has";
        memory: Option<SizeValue> = None, Restart, "half of this host's", "\"16G\"",
            "Memory for all transfers together, those of jobs included; who asks for more waits or is told to try again";
        memory_per_key: Option<SizeValue> = None, Restart, "half of memory", "\"8G\"",
            "Memory for the transfers of one key together, and for those of the jobs of one token";
        max_rate: Option<RateValue> = None, Live, "none", "\"8G\"",
            "The highest rate of all client sessions together, both directions added, in bits per second";
        cpus: Option<Cpus> = None, Restart, "all", "\"0-3,8\"",
            "Cores to run on";
        allow_cipher_none: bool = false, Restart, "", "",
            "Permit clients that ask for it to move file contents in the clear";
        allow_root: bool = false, Restart, "", "",
            "Allow the node to run as root; it is better to give it a user of its own";
        drain: TimeSpan = seconds(30), Live, "", "",
            "How long running transfers may go on when the node is told to stop; 0s stops them at once";
        state: AbsolutePath = around().state(), Restart,
            "$XDG_STATE_HOME/farhaul/service", "\"/var/lib/farhaul\"",
            "Directory of the job store and of all else that the service keeps: on a local disk, not below the served root";
    }

    /// The API: on a Unix socket for the same user, on TCP for callers with a token
    pub struct ApiSection {
        socket: AbsolutePath = around().socket(&around().state()), Restart,
            "$XDG_RUNTIME_DIR/farhaul/api.sock, else in the state directory", "\"/run/farhaul/api.sock\"",
            "Unix socket, only for the user of this process";
        listen: Vec<ListenAddress> = Vec::new(), Restart, "", "[\"127.0.0.1:33080\"]",
            "TCP addresses; callers need a token, and an address beyond loopback needs TLS";
        tls_cert: Option<AbsolutePath> = None, Live, "none", "\"/etc/farhaul/tls.crt\"",
            "Certificates in PEM, this node's own first";
        tls_key: Option<SecretPlace> = None, Live, "none", "\"$CREDENTIALS_DIRECTORY/tls.key\"",
            "Private key of the certificate, in PEM";
        hosts: Vec<ApiHostName> = Vec::new(), Live, "", "[\"dtn1.example.org\"]",
            "Names and addresses that requests may call this node by, beside localhost and those of listen";
        login_time: TimeSpan = seconds(DAY / 2), Live, "", "",
            "How long a log-in with a browser lasts";
        max_body: SizeValue = SizeValue(1 << 20), Live, "", "",
            "The largest body of a request";
        max_connections: NonZeroU32 = count(1024), Restart, "", "",
            "The most connections of callers that have shown a token or a log-in, event streams included";
        requests_per_second: NonZeroU32 = count(100), Live, "", "",
            "The most requests of one caller per second, on average";
        requests_burst: NonZeroU32 = count(200), Live, "", "",
            "The most requests of one caller at once, after a pause";
    }

    /// Jobs: how many run, and what becomes of those that fail
    pub struct JobsSection {
        running_max: NonZeroU32 = count(16), Live, "", "",
            "The most jobs that run at a time";
        running_per_peer: NonZeroU32 = count(4), Live, "", "",
            "The most jobs that run at a time with one peer";
        running_per_principal: NonZeroU32 = count(8), Live, "", "",
            "The most jobs of one caller that run at a time";
        queued_max: NonZeroU32 = count(10_000), Live, "", "",
            "The most jobs that wait; further ones are refused until there is room";
        queued_per_principal: NonZeroU32 = count(5000), Live, "", "",
            "The same for the jobs of one token";
        queued_size_max: SizeValue = SizeValue(1 << 30), Live, "", "",
            "The most bytes of the documents of all jobs that wait or run";
        queued_size_per_principal: SizeValue = SizeValue(256 << 20), Live, "", "",
            "The same for the jobs of one token";
        retry_attempts: u32 = 5, Live, "", "",
            "Attempts after the first, if the failure can be retried and the job does not say otherwise";
        retry_first: TimeSpan = seconds(10), Live, "", "",
            "Delay before the second attempt; it doubles with each further one";
        retry_longest: TimeSpan = seconds(600), Live, "", "",
            "The longest delay between two attempts";
        connect_timeout: TimeSpan = seconds(120), Live, "", "",
            "The longest time until a session of a job has begun; the attempt fails after it";
        paused_release: TimeSpan = seconds(600), Live, "", "",
            "A job that is paused for longer than this frees its slot and its session for others";
    }

    /// The history: records of jobs and their curves
    pub struct HistorySection {
        keep: TimeSpan = seconds(90 * DAY), Live, "", "",
            "Records older than this are deleted";
        size_max: SizeValue = SizeValue(1 << 30), Live, "", "",
            "The oldest records are deleted when all records, with their curves and manifests, take more space than this";
        curves: bool = true, Live, "", "",
            "Keep rate, loss and round trip of each job over time, at most 600 points";
    }

    /// The log on stderr, and the audit log
    pub struct LogSection {
        level: LogLevel = LogLevel::Info, Live, "", "",
            "How much is logged: error, warn, info, debug or trace";
        json: bool = false, Restart, "", "",
            "Log to stdout, as one JSON object per line";
        audit_file: AbsolutePath = around().state().join("audit.log"), Live,
            "audit.log in the state directory", "\"/var/log/farhaul/audit.log\"",
            "The audit log: one JSON object per line for each thing done or refused; a line is never changed";
        audit_size_max: SizeValue = SizeValue(1 << 30), Live, "", "",
            "The most that the audit log takes, with three older files: one that has a quarter of it becomes an older one";
        audit_chain: bool = false, Live, "", "",
            "Put the digest of the line before into each line of the audit log, so that a removed line shows";
    }

    /// Metrics for Prometheus
    pub struct MetricsSection {
        listen: Vec<ListenAddress> = Vec::new(), Restart, "", "[\"127.0.0.1:33090\"]",
            "Further addresses that serve only /metrics, under the rules of the API's addresses; the API has it, too";
    }

    /// Webhooks: HTTP calls to other programs when jobs end
    pub struct WebhooksSection {
        secret_file: Option<SecretPlace> = None, Live, "none: webhooks are not signed",
            "\"$CREDENTIALS_DIRECTORY/webhook\"",
            "File with the secret from which each webhook's URL has the secret that signs messages to it";
        allow_networks: Vec<NetworkValue> = Vec::new(), Live, "", "[\"10.0.0.0/8\"]",
            "Networks that webhooks may call although they are private or the like; this host itself only by its very address";
        deny_networks: Vec<NetworkValue> = Vec::new(), Live, "", "[\"192.0.2.7\"]",
            "Networks that webhooks may not call, such as a public address that a gateway forwards to this host";
        ca_file: Option<AbsolutePath> = None, Live, "those of the system", "\"/etc/farhaul/ca.pem\"",
            "Certificates of the authorities that webhooks trust, in PEM";
    }

    /// Receivers of webhooks that hear of all jobs, or have a secret of their own
    pub struct ReceiverSection {
        url: Option<WebhookUrl> = None, Live, "none", "\"https://lims.example.org/jobs\"",
            "Where its messages go";
        on: Vec<HookEvent> = vec![HookEvent::Post, HookEvent::Fail, HookEvent::Failing, HookEvent::Recovered],
            Live, "", "",
            "When it is called: late, post, fail, failing, recovered; [] if only jobs that name its url call it";
        secret_file: Option<SecretPlace> = None, Live, "the secret of the url", "\"$CREDENTIALS_DIRECTORY/lims\"",
            "File with the secret that signs all messages to its url, also those of jobs that name the url";
        labels: BTreeMap<String, String> = BTreeMap::new(), Live, "", "{ project = \"a\" }",
            "Call it only for jobs with all these labels";
        dry_run: bool = false, Live, "", "",
            "Call it for dry runs, too";
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
            "User name at the other host";
    }

    /// Other hosts: how to connect, how many jobs at a time. If several tables fit, the first by name counts
    pub struct PeerSection {
        host: Option<HostPattern> = None, Live, "the table's name", "\"*.hpc.example.org:33001\"",
            "Host, or host and port; * stands for any text";
        identity: Option<String> = None, Live, "the key of serve, and ssh as it is", "\"project\"",
            "Name of the table of identities that has the keys for the host";
        fingerprint: Option<Fingerprint> = None, Live, "what is in known_hosts",
            "\"SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU\"",
            "Fingerprint of the key that the host must have";
        running_max: Option<NonZeroU32> = None, Live, "running_per_peer of jobs for each", "2",
            "The most jobs that run at a time with all hosts of this table together";
        cap: Option<String> = None, Live, "none", "\"campus-uplink\"",
            "Name of the cap for its hosts and its fingerprint, as if that cap listed them in peers and principals";
    }

    /// Caps on the rate, as a tree: rate that some members of a cap do not use goes to its other members
    pub struct CapSection {
        rate: Option<RateValue> = None, Live, "none", "\"8G\"",
            "The highest rate of all its members together, in bits per second, repairs and headers included";
        parent: Option<String> = None, Live, "the whole host", "\"host\"",
            "The cap that it lies in";
        peers: Vec<HostPattern> = Vec::new(), Live, "", "[\"*.hpc.example.org\"]",
            "Hosts whose traffic counts in it";
        networks: Vec<NetworkValue> = Vec::new(), Live, "", "[\"192.0.2.0/24\"]",
            "Networks whose traffic counts in it";
        principals: Vec<String> = Vec::new(), Live, "", "[\"SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU\"]",
            "Keys and callers whose traffic counts in it";
        weight: f64 = 1.0, Live, "", "",
            "Its share of the parent's rate, relative to the parent's other members: 0.01 to 100";
        schedule: Vec<WeeklyWindow> = Vec::new(), Live, "", "[\"mon-fri 09:00-18:00 2G\"]",
            "Rates by weekday and time; if several apply the last one counts, if none applies the key rate does";
        time_zone: Option<TimeZoneName> = None, Live, "that of this host", "\"Europe/Berlin\"",
            "Time zone of the schedule";
    }

    /// Programs that run when something has happened, with JSON on stdin
    pub struct HookSection {
        on: Vec<HookEvent> = Vec::new(), Live, "", "[\"post\", \"fail\"]",
            "When it runs: pre (may refuse the job), verify (may refuse a file), file, late, post, fail, failing, recovered";
        program: Option<AbsolutePath> = None, Live, "none", "\"/usr/local/bin/register-run\"",
            "The program; there is no shell";
        args: Vec<String> = Vec::new(), Live, "", "[\"--quiet\"]",
            "Its arguments";
        time_limit: TimeSpan = seconds(60), Live, "", "",
            "How long it may run before it is killed, with all processes that it has started";
        at_once: NonZeroU32 = count(4), Live, "", "",
            "For verify: how many of the program run at a time, for all transfers together";
        files_each: NonZeroU32 = count(1), Live, "", "",
            "For verify: the most files of one run of the program; with more than one it answers in lines of JSON";
        quarantine: Option<AbsolutePath> = None, Live, "none: what is refused is removed", "\"/var/lib/farhaul-quarantine\"",
            "For verify: directory that takes the files that the program refuses";
        batch_files: NonZeroU32 = count(1000), Live, "", "",
            "For file: the most files in one message";
        batch_wait: TimeSpan = seconds(5), Live, "", "",
            "For file: the longest time that the first file of a message waits for others";
        labels: BTreeMap<String, String> = BTreeMap::new(), Live, "", "{ project = \"a\" }",
            "Run it only for jobs with all these labels";
        dry_run: bool = false, Live, "", "",
            "Run it for dry runs, too, and say so in its messages";
    }

    /// Watched folders, whose files are sent when nobody writes to them any more
    pub struct WatchSection {
        folder: Option<AbsolutePath> = None, Live, "none", "\"/instrument/out\"",
            "The folder to watch";
        destination: Option<DestinationUrl> = None, Live, "none", "\"fh://hpc.example.org/incoming\"",
            "Where its files go";
        settle: TimeSpan = seconds(30), Live, "", "",
            "A file is taken when it has not changed for this long and nobody has it open for writing";
        rescan: Option<TimeSpan> = None, Live, "1m, or 10s where the kernel reports no changes", "\"5m\"",
            "Time between two scans of the folder, which find changes that the kernel did not report";
        include: Vec<String> = Vec::new(), Live, "", "[\"*.h5\"]",
            "Patterns of names that are taken; without any, all files are taken";
        exclude: Vec<String> = Vec::new(), Live, "", "[\"*.tmp\"]",
            "Patterns of names that are not taken";
        hidden: bool = false, Live, "", "",
            "Also take names that begin with a dot";
        after: AfterAction = AfterAction::Keep, Live, "", "",
            "What to do with a file once it is synced at the destination: keep, mark, delete or move:DIRECTORY";
        labels: BTreeMap<String, String> = BTreeMap::new(), Live, "", "{ instrument = \"a\" }",
            "Labels of its jobs";
        webhook: Option<String> = None, Live, "none", "\"https://lims.example.org/arrived\"",
            "Address that gets a message at the end of each of its jobs";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_levels_do_not_change() {
        assert_eq!(
            [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace]
                .map(LogLevel::name),
            ["error", "warn", "info", "debug", "trace"]
        );
    }
}
