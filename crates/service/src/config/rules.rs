//! The rules between keys, and for values that make no sense although their types allow them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use farhaul::sisters::MEMORY_MIN;
use farhaul_session::options::RATE_MIN_BPS;

use super::Config;
use super::fault::{nearest, shortened};
use super::forbidden_roots;
use super::sections::{
    ApiSection, CapSection, HookEvent, HookSection, IdentitySection, JobsSection, PeerSection,
    ReceiverSection, WatchSection,
};
use super::values::{ListenAddress, RateValue, SizeValue, TimeSpan};
use crate::caps::spec::{HOST, WEIGHTS};
use crate::watch::AfterAction;

/// A rule that is broken, and the key to change.
pub(super) struct Violation {
    pub(super) key: Vec<String>,
    pub(super) message: String,
    /// Another key; if it were not set, the rule would not be broken.
    pub(super) cause: Option<[&'static str; 2]>,
}

/// How many caps may lie in each other.
const CAP_DEPTH_MAX: usize = 8;

/// The most characters of a name that the configuration gives. The name becomes a label of metrics.
const NAME_LEN_MAX: usize = 64;

/// The most arguments of a hook.
const ARGS_MAX: usize = 64;

/// The most files in one message to a hook.
const BATCH_FILES_MAX: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

/// The most programs of one verify hook that run at a time, and the most files that one of them gets.
const AT_ONCE_MAX: NonZeroU32 = NonZeroU32::new(64).unwrap();
const FILES_EACH_MAX: NonZeroU32 = NonZeroU32::new(1000).unwrap();

const BODY_MIN: u64 = 64 << 10;
const BODY_MAX: u64 = 64 << 20;

const LOGIN_DAYS_MAX: u32 = 90;

/// All rules that are broken, in no particular order.
pub(super) fn violations(config: &Config) -> Vec<Violation> {
    let mut list = List(Vec::new());
    list.serve(config);
    list.api(&config.api);
    list.listeners(config);
    list.jobs(&config.jobs);
    list.least(&["history", "size_max"], Some(config.history.size_max), SizeValue(1 << 20));
    for (name, identity) in &config.identities {
        list.identity(name, identity);
    }
    for (name, peer) in &config.peers {
        list.peer(name, peer, config);
    }
    for (name, cap) in &config.caps {
        list.cap(name, cap, &config.caps);
    }
    for (name, hook) in &config.hooks {
        list.hook(name, hook);
    }
    for (name, receiver) in &config.webhook_receivers {
        list.receiver(name, receiver, &config.webhook_receivers);
    }
    for (name, watch) in &config.watch {
        list.watch(name, watch);
    }
    for (key, message) in forbidden_roots::faults(config) {
        list.0.push(Violation { key, message, cause: Some(["serve", "root"]) });
    }
    list.0
}

struct List(Vec<Violation>);

impl List {
    fn add(&mut self, key: &[&str], message: impl Into<String>) {
        let key = key.iter().map(|part| (*part).to_string()).collect();
        self.0.push(Violation { key, message: message.into(), cause: None });
    }

    fn least<T: PartialOrd + std::fmt::Display>(&mut self, key: &[&str], value: Option<T>, least: T) {
        if value.is_some_and(|value| value < least) {
            self.add(key, format!("must be at least {least}"));
        }
    }

    fn most<T: PartialOrd + std::fmt::Display>(&mut self, key: &[&str], value: Option<T>, most: T) {
        if value.is_some_and(|value| value > most) {
            self.add(key, format!("must be at most {most}"));
        }
    }

    fn serve(&mut self, config: &Config) {
        let serve = &config.serve;
        if serve.root.is_some() && serve.listen.is_empty() {
            self.add(&["serve", "listen"], "is empty, but there is a root to serve");
        }
        self.least(&["serve", "max_rate"], serve.max_rate, RateValue(RATE_MIN_BPS));
        self.least(&["serve", "memory"], serve.memory, SizeValue(MEMORY_MIN));
        self.least(&["serve", "memory_per_key"], serve.memory_per_key, SizeValue(MEMORY_MIN));
        if let (Some(all), Some(key)) = (serve.memory, serve.memory_per_key)
            && key > all
        {
            self.add(&["serve", "memory_per_key"], format!("is larger than memory ({all})"));
        }
    }

    fn api(&mut self, api: &ApiSection) {
        match (&api.tls_cert, &api.tls_key) {
            (Some(_), None) => self.add(&["api", "tls_cert"], "needs tls_key beside it"),
            (None, Some(_)) => self.add(&["api", "tls_key"], "needs tls_cert beside it"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.least(&["api", "max_body"], Some(api.max_body), SizeValue(BODY_MIN));
        self.most(&["api", "max_body"], Some(api.max_body), SizeValue(BODY_MAX));
        let minute = Duration::from_secs(60);
        self.least(&["api", "login_time"], Some(api.login_time), TimeSpan(minute));
        self.most(&["api", "login_time"], Some(api.login_time), TimeSpan(LOGIN_DAYS_MAX * 24 * 60 * minute));
        if api.requests_burst < api.requests_per_second {
            let least = api.requests_per_second;
            self.add(&["api", "requests_burst"], format!("must be at least requests_per_second ({least})"));
        }
    }

    /// No other host has to send its token unencrypted, and no address is listened on twice.
    fn listeners(&mut self, config: &Config) {
        let has_tls = config.api.tls_cert.is_some() && config.api.tls_key.is_some();
        let tables = [
            ("serve", &config.serve.listen),
            ("api", &config.api.listen),
            ("metrics", &config.metrics.listen),
        ];
        let mut taken: BTreeMap<SocketAddr, &str> = BTreeMap::new();
        for (table, addresses) in tables {
            for ListenAddress(address) in addresses {
                let key = [table, "listen"];
                // With port 0 the system chooses a different port each time.
                if address.port() != 0
                    && let Some(other) = taken.insert(*address, table)
                {
                    self.add(&key, format!("{address} is listened on already, by listen of {other}"));
                }
                if table != "serve" && !address.ip().to_canonical().is_loopback() && !has_tls {
                    self.add(
                        &key,
                        format!("{address} can be reached from other hosts: set tls_cert and tls_key of api"),
                    );
                }
            }
        }
    }

    fn jobs(&mut self, jobs: &JobsSection) {
        self.least(&["jobs", "retry_first"], Some(jobs.retry_first), TimeSpan(Duration::from_secs(1)));
        if jobs.retry_longest < jobs.retry_first {
            let first = jobs.retry_first;
            self.add(&["jobs", "retry_longest"], format!("is shorter than retry_first ({first})"));
        }
    }

    /// Names become labels, parts of API paths and words on the command line.
    fn name(&mut self, section: &str, name: &str) {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:*[]".contains(&byte);
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(fits) {
            let message = format!("a name has 1 to {NAME_LEN_MAX} letters, digits, '-', '_', '.' and ':'");
            self.add(&[section, name], message);
        }
    }

    /// The value of this key must be the name of a table in `section`.
    fn refers<T>(
        &mut self,
        key: &[&str],
        name: Option<&String>,
        section: &str,
        tables: &BTreeMap<String, T>,
    ) {
        let Some(name) = name.filter(|name| !tables.contains_key(*name)) else { return };
        let meant = nearest(name, tables.keys().map(String::as_str))
            .map_or(String::new(), |name| format!("; did you mean {name:?}?"));
        self.add(key, format!("there is no [{section}.{}]{meant}", shortened(name)));
    }

    fn identity(&mut self, name: &str, identity: &IdentitySection) {
        self.name("identities", name);
        let IdentitySection { key, ssh_identity, ssh_config, ssh_program, ssh_user } = identity;
        let has_ssh =
            !ssh_identity.is_empty() || ssh_config.is_some() || ssh_program.is_some() || ssh_user.is_some();
        if key.is_none() && !has_ssh {
            self.add(&["identities", name], "has neither a key nor anything for ssh");
        }
        if let Some(user) = ssh_user {
            let is_plain = |character: char| character.is_ascii_graphic() && !"@:/".contains(character);
            if user.is_empty() || user.starts_with('-') || !user.chars().all(is_plain) {
                self.add(&["identities", name, "ssh_user"], "is not the name of a user");
            }
        }
    }

    fn peer(&mut self, name: &str, peer: &PeerSection, config: &Config) {
        self.name("peers", name);
        self.refers(&["peers", name, "identity"], peer.identity.as_ref(), "identities", &config.identities);
        self.refers(&["peers", name, "cap"], peer.cap.as_ref(), "caps", &config.caps);
        let pattern = |name: &str, peer: &PeerSection| {
            peer.host.as_ref().map_or_else(|| name.to_ascii_lowercase(), ToString::to_string)
        };
        let own = pattern(name, peer);
        let mut earlier = config.peers.iter().take_while(|(other, _)| *other != name);
        if let Some((other, _)) = earlier.find(|(other, peer)| pattern(other, peer) == own) {
            self.add(&["peers", name, "host"], format!("is also the host of [peers.{other}]"));
        }
    }

    fn cap(&mut self, name: &str, cap: &CapSection, caps: &BTreeMap<String, CapSection>) {
        self.name("caps", name);
        self.least(&["caps", name, "rate"], cap.rate, RateValue(RATE_MIN_BPS));
        for window in &cap.schedule {
            self.least(&["caps", name, "schedule"], window.rate, RateValue(RATE_MIN_BPS));
        }
        if !WEIGHTS.contains(&cap.weight) {
            let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
            self.add(&["caps", name, "weight"], format!("must be between {least} and {most}"));
        }
        // The host's cap is there in any case.
        let parent = cap.parent.as_ref().filter(|parent| *parent != HOST);
        self.refers(&["caps", name, "parent"], parent, "caps", caps);
        let mut above = cap.parent.as_ref();
        let mut depth = 1;
        while let Some(parent) = above {
            if parent == name {
                return self.add(&["caps", name, "parent"], "makes the cap lie in itself");
            }
            depth += 1;
            if depth > CAP_DEPTH_MAX {
                // If the caps above form a circle, it is reported there.
                return self
                    .add(&["caps", name, "parent"], format!("lies in more than {CAP_DEPTH_MAX} others"));
            }
            above = caps.get(parent).and_then(|cap| cap.parent.as_ref());
        }
    }

    fn hook(&mut self, name: &str, hook: &HookSection) {
        self.name("hooks", name);
        if hook.program.is_none() {
            self.add(&["hooks", name, "program"], "a hook needs a program");
        }
        if hook.on.is_empty() {
            self.add(
                &["hooks", name, "on"],
                "a hook needs to know when it runs: pre, verify, file, late, post, fail, failing or recovered",
            );
        }
        if hook.args.len() > ARGS_MAX {
            self.add(&["hooks", name, "args"], format!("has more than {ARGS_MAX}"));
        }
        if hook.args.iter().any(|word| word.contains('\0')) {
            self.add(&["hooks", name, "args"], "has a NUL character, which no argument can have");
        }
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(86_400));
        self.span(&["hooks", name, "time_limit"], hook.time_limit.0, least, most);
        self.span(&["hooks", name, "batch_wait"], hook.batch_wait.0, least, Duration::from_secs(3600));
        self.most(&["hooks", name, "batch_files"], Some(hook.batch_files), BATCH_FILES_MAX);
        self.most(&["hooks", name, "at_once"], Some(hook.at_once), AT_ONCE_MAX);
        self.most(&["hooks", name, "files_each"], Some(hook.files_each), FILES_EACH_MAX);
        self.verify_hook(name, hook);
    }

    /// A hook that looks at files runs for all that arrive: a rule that left some out would let them pass.
    fn verify_hook(&mut self, name: &str, hook: &HookSection) {
        if !hook.on.contains(&HookEvent::Verify) {
            return;
        }
        if hook.on.len() > 1 {
            self.add(&["hooks", name, "on"], "verify stands alone: give its program a table of its own");
        }
        if !hook.labels.is_empty() {
            self.add(&["hooks", name, "labels"], "is not for verify, which runs for every file that arrives");
        }
        if hook.dry_run {
            self.add(&["hooks", name, "dry_run"], "is not for verify, as nothing arrives in a dry run");
        }
    }

    fn receiver(
        &mut self,
        name: &str,
        receiver: &ReceiverSection,
        receivers: &BTreeMap<String, ReceiverSection>,
    ) {
        self.name("webhook_receivers", name);
        let Some(url) = &receiver.url else {
            return self.add(&["webhook_receivers", name, "url"], "a receiver needs a url");
        };
        if receiver
            .on
            .iter()
            .any(|event| matches!(event, HookEvent::Pre | HookEvent::Verify | HookEvent::File))
        {
            self.add(&["webhook_receivers", name, "on"], "a receiver hears of all but pre, verify and file");
        }
        // Which secret signs must not depend on the order of tables.
        let is_same = |other: &ReceiverSection| {
            other.secret_file.is_some()
                && other.secret_file != receiver.secret_file
                && other.url.as_ref().is_some_and(|other| other.audience() == url.audience())
        };
        let mut earlier = receivers.iter().take_while(|(other, _)| *other != name);
        if receiver.secret_file.is_some()
            && let Some((other, _)) = earlier.find(|(_, other)| is_same(other))
        {
            let message = format!("is not that of [webhook_receivers.{other}], which has the same url");
            self.add(&["webhook_receivers", name, "secret_file"], message);
        }
    }

    fn watch(&mut self, name: &str, watch: &WatchSection) {
        self.name("watch", name);
        if watch.folder.is_none() {
            self.add(&["watch", name, "folder"], "a watch needs a folder");
        }
        if watch.destination.is_none() {
            self.add(&["watch", name, "destination"], "a watch needs a destination");
        }
        let day = Duration::from_secs(86_400);
        self.span(&["watch", name, "settle"], watch.settle.0, Duration::from_secs(1), day);
        if let Some(rescan) = watch.rescan {
            self.span(&["watch", name, "rescan"], rescan.0, Duration::from_secs(1), day);
        }
        if let (AfterAction::Move(target), Some(folder)) = (&watch.after, &watch.folder)
            && folder.as_path().join(target) == folder.as_path()
        {
            self.add(&["watch", name, "after"], "moves files to the directory that they are in");
        }
    }

    fn span(&mut self, key: &[&str], value: Duration, least: Duration, most: Duration) {
        self.least(key, Some(TimeSpan(value)), TimeSpan(least));
        self.most(key, Some(TimeSpan(value)), TimeSpan(most));
    }
}
