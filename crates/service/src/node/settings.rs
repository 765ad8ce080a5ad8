//! The settings of the configuration that the node needs for jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use farhaul::copy::{CopyJob, Location};
use farhaul::target::{SshMessages, ThisHost};
use farhaul_session::MemoryLimits;
use farhaul_words::{Code, Error};

use super::{QueueLimits, RetentionRules, WatchSpec};
use crate::config::values::{HostPattern, SecretPlace};
use crate::config::{AccountPlaces, Config, HookEvent, JobsSection, LoadedConfig};
use crate::hooks::webhook::{AddressRules, WebhookReceiver, WebhookSettings};
use crate::hooks::{BatchBounds, Hook, HookMoment, Program, VerifyHook};
use crate::job::{JobSpec, RetryRule};
use crate::scheduler::choice::{self, JobSlots};
use farhaul_api::{JobSpan, Labels};

/// The most watched folders. Each has a thread and a descriptor of inotify, of which the kernel gives a user
/// 128.
const WATCHES_MAX: usize = 100;

/// Settings for all jobs.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// How many jobs run at a time.
    pub running: JobSlots,
    /// The most that jobs which are not over may make the node keep; further ones are refused.
    pub queue: QueueLimits,
    /// The memory of all transfers of this process, and of those of one token's jobs. It is read at the start.
    pub memory: MemoryLimits,
    /// After how many seconds a paused job gives up its session.
    pub held_session_s: u64,
    /// How long a job's session may take to begin.
    pub connect_time: Duration,
    /// Attempts and delays of jobs that do not name their own.
    pub(crate) retry: RetryRule,
    /// How much of the past is kept.
    pub kept: RetentionRules,
    /// True if the curves of runs are kept.
    pub curves: bool,
    /// How many seconds a log-in with a browser lasts.
    pub login_s: u64,
    /// The keys by which the node connects to others, by name.
    pub identities: BTreeMap<String, NodeIdentity>,
    /// Settings for other hosts; of those that fit, the first one counts.
    pub peers: Vec<PeerSettings>,
    /// The private key of jobs that nothing else gives one.
    pub identity_file: PathBuf,
    /// Programs that run when jobs begin, go on and end.
    pub hooks: Vec<Hook>,
    /// Programs that look at files before they get their names.
    pub verify_hooks: Vec<VerifyHook>,
    /// Where webhooks go, and how they are delivered.
    pub webhooks: WebhookSettings,
    /// The places that no root of a token may contain or lie in.
    pub account: AccountPlaces,
    /// The most watched folders; further ones are refused.
    pub watches_max: usize,
    /// The watched folders of the configuration, by name.
    pub watches: BTreeMap<String, WatchSpec>,
}

/// The memory that transfers may have. No other function says so.
fn memory_of(config: &Config) -> MemoryLimits {
    let serve = &config.serve;
    let process = serve.memory.map_or(MemoryLimits::of_this_host().process, |size| size.0);
    MemoryLimits { process, key: serve.memory_per_key.map_or(process / 2, |size| size.0) }
}

/// The node's rule for jobs that say nothing of their attempts.
fn retry_rule(jobs: &JobsSection) -> RetryRule {
    let (first_s, longest_s) = (jobs.retry_first.0.as_secs(), jobs.retry_longest.0.as_secs());
    RetryRule {
        attempts: jobs.retry_attempts,
        first_delay: JobSpan(first_s),
        longest_delay: JobSpan(longest_s.max(first_s)),
    }
}

impl Default for NodeSettings {
    fn default() -> NodeSettings {
        NodeSettings {
            running: JobSlots::default(),
            queue: QueueLimits::default(),
            memory: MemoryLimits::of_this_host(),
            held_session_s: 600,
            connect_time: Duration::from_secs(120),
            retry: retry_rule(&JobsSection::default()),
            kept: RetentionRules::default(),
            curves: true,
            login_s: 12 * 3600,
            identities: BTreeMap::new(),
            peers: Vec::new(),
            identity_file: farhaul::target::default_identity_path(),
            hooks: Vec::new(),
            verify_hooks: Vec::new(),
            webhooks: WebhookSettings::default(),
            account: AccountPlaces::default(),
            watches_max: WATCHES_MAX,
            watches: BTreeMap::new(),
        }
    }
}

/// How the node authenticates connections that it opens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The Ed25519 key for daemons.
    pub key_file: Option<PathBuf>,
    /// Keys for SSH.
    pub ssh_key_files: Vec<PathBuf>,
    /// ssh's configuration.
    pub ssh_config_file: Option<PathBuf>,
    /// Further options for ssh.
    pub ssh_options: Vec<String>,
    /// The program to run instead of ssh.
    pub ssh_program: Option<PathBuf>,
    /// The user name at the other host, for locations that name none.
    pub ssh_user: Option<String>,
}

/// Settings for another host, or for all hosts that fit a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSettings {
    /// The name of the table.
    pub name: String,
    /// The host as locations name it: `hpc`, `hpc:4000`, `*.example.org`.
    pub host: HostPattern,
    /// The identity to connect with.
    pub identity: Option<String>,
    /// The key that its daemon must have.
    pub fingerprint: Option<String>,
    /// The most jobs that run with all of its hosts together. Without it, the limit of a single peer holds
    /// for each host.
    pub running_max: Option<usize>,
}

impl NodeSettings {
    /// The settings that a configuration gives, with the places that belong to the account.
    pub fn of_loaded(loaded: &LoadedConfig) -> NodeSettings {
        NodeSettings { account: loaded.account.clone(), ..NodeSettings::of(&loaded.config) }
    }

    /// The settings that the configuration gives. A secret that does not exist causes an error only when it
    /// is used.
    pub fn of(config: &Config) -> NodeSettings {
        let file = |secret: &SecretPlace| secret.path().unwrap_or_else(|_| PathBuf::from(secret.to_string()));
        let count = |number: std::num::NonZeroU32| usize::try_from(number.get()).unwrap_or(usize::MAX);
        let identity = |identity: &crate::config::IdentitySection| NodeIdentity {
            key_file: identity.key.as_ref().map(file),
            ssh_key_files: identity.ssh_identity.iter().map(file).collect(),
            ssh_config_file: identity.ssh_config.as_ref().map(|path| path.as_path().to_path_buf()),
            ssh_options: Vec::new(),
            ssh_program: identity.ssh_program.as_ref().map(|path| path.as_path().to_path_buf()),
            ssh_user: identity.ssh_user.clone(),
        };
        let peer = |(name, peer): (&String, &crate::config::PeerSection)| {
            Some(PeerSettings {
                name: name.clone(),
                host: peer.host.clone().or_else(|| HostPattern::of(name))?,
                identity: peer.identity.clone(),
                fingerprint: peer.fingerprint.as_ref().map(ToString::to_string),
                running_max: peer.running_max.map(count),
            })
        };
        let network = |network: &crate::config::values::NetworkValue| {
            let (address, bits) = network.parts();
            format!("{address}/{bits}").parse().ok()
        };
        let jobs = &config.jobs;
        NodeSettings {
            running: JobSlots {
                all: count(jobs.running_max),
                per_peer: count(jobs.running_per_peer),
                per_owner: count(jobs.running_per_principal),
            },
            queue: QueueLimits {
                jobs: count(jobs.queued_max),
                jobs_each: count(jobs.queued_per_principal),
                bytes: jobs.queued_size_max.0,
                bytes_each: jobs.queued_size_per_principal.0,
            },
            memory: memory_of(config),
            held_session_s: jobs.paused_release.0.as_secs(),
            connect_time: jobs.connect_timeout.0,
            retry: retry_rule(jobs),
            kept: RetentionRules {
                seconds: config.history.keep.0.as_secs(),
                bytes: config.history.size_max.0,
            },
            curves: config.history.curves,
            login_s: config.api.login_time.0.as_secs(),
            identities: config.identities.iter().map(|(name, one)| (name.clone(), identity(one))).collect(),
            peers: config.peers.iter().filter_map(peer).collect(),
            identity_file: file(&config.serve.identity),
            hooks: config.hooks.values().flat_map(hooks).collect(),
            verify_hooks: config.hooks.iter().filter_map(verify_hook).collect(),
            webhooks: WebhookSettings {
                addresses: AddressRules {
                    allow: config.webhooks.allow_networks.iter().filter_map(network).collect(),
                    deny: config.webhooks.deny_networks.iter().filter_map(network).collect(),
                },
                authorities: config.webhooks.ca_file.as_ref().map(|path| path.as_path().to_path_buf()),
                secret: config.webhooks.secret_file.clone(),
                receivers: config.webhook_receivers.values().filter_map(receiver).collect(),
            },
            account: AccountPlaces::default(),
            watches_max: WATCHES_MAX,
            watches: config.watch.iter().filter_map(watch).collect(),
        }
    }

    pub(super) fn peer(&self, host: &str, port: Option<u16>) -> Option<&PeerSettings> {
        self.peers.iter().find(|peer| peer.host.fits(host, port))
    }

    /// The peer that a job is counted with, and how many jobs may run with it: the peer itself, or the whole
    /// table if that has a limit of its own.
    pub(crate) fn places_of<'a>(
        &'a self,
        peer: Option<&'a str>,
        host: Option<&(String, Option<u16>)>,
    ) -> Option<choice::PeerLimit<'a>> {
        let name = peer?;
        let table = host.and_then(|(name, port)| self.peer(name, *port));
        let own = table.and_then(|table| Some((table.name.as_str(), table.running_max?)));
        let (name, running_max) = own.unwrap_or((name, self.running.per_peer));
        Some(choice::PeerLimit { name, running_max })
    }

    /// Gives each location of a job the keys and options of the configuration. Callers choose among
    /// identities by name, and never bring a key.
    pub(crate) fn identify(&self, spec: &JobSpec, job: &mut CopyJob) -> Result<(), Error> {
        let (identity, fingerprint) = (spec.identity.as_deref(), spec.fingerprint.as_deref());
        let mut all = job.sources.iter_mut().chain([&mut job.destination]);
        all.try_for_each(|location| self.identify_location(identity, fingerprint, location))
    }

    /// Does this for one location.
    pub(crate) fn identify_location(
        &self,
        identity: Option<&str>,
        fingerprint: Option<&str>,
        location: &mut Location,
    ) -> Result<(), Error> {
        let (host, port) = match location {
            Location::Daemon { target, .. } => (target.host.clone(), Some(target.port)),
            Location::Ssh { target, .. } => (target.host.clone(), target.port),
            Location::Local(_) | Location::Pipe => return Ok(()),
        };
        let peer = self.peer(&host, port);
        let identity = match identity.or(peer.and_then(|peer| peer.identity.as_deref())) {
            None => NodeIdentity::default(),
            Some(name) => self.identities.get(name).cloned().ok_or_else(|| {
                let name = farhaul_text::printable(name.as_bytes(), 60);
                Error::new(Code::BadOption, format!("the configuration has no identity '{name}'"))
            })?,
        };
        match location {
            Location::Daemon { target, .. } => {
                target.identity_file = Some(identity.key_file.unwrap_or_else(|| self.identity_file.clone()));
                let known = peer.and_then(|peer| peer.fingerprint.as_deref());
                if let (Some(asked), Some(known)) = (fingerprint, known)
                    && !farhaul::sisters::is_same_fingerprint(asked, known)
                {
                    let what = format!("the configuration names another key for the daemon on {host}");
                    return Err(Error::new(Code::BadOption, what));
                }
                target.fingerprint = known.or(fingerprint).map(str::to_string);
            }
            Location::Ssh { target, .. } => {
                target.identity = identity.ssh_key_files;
                target.config_file = identity.ssh_config_file;
                target.options = identity.ssh_options;
                target.messages = SshMessages::Kept;
                if target.user.is_none() {
                    target.user = identity.ssh_user;
                }
                if let Some(program) = identity.ssh_program {
                    target.program = program;
                }
            }
            Location::Local(_) | Location::Pipe => {}
        }
        Ok(())
    }
}

/// Lets a location at a peer be no directory of this host: that is named as one, and judged as one.
pub(super) fn keep_elsewhere(location: &mut Location) {
    match location {
        Location::Daemon { target, .. } => target.this_host = ThisHost::Refused,
        Location::Ssh { target, .. } => target.this_host = ThisHost::Refused,
        Location::Local(_) | Location::Pipe => {}
    }
}

/// A watched folder of the configuration.
fn watch((name, watch): (&String, &crate::config::WatchSection)) -> Option<(String, WatchSpec)> {
    let escaped = |text: &[u8]| farhaul::sisters::escape(text);
    let spec = WatchSpec {
        settle: JobSpan(watch.settle.0.as_secs()),
        rescan: watch.rescan.map(|rescan| JobSpan(rescan.0.as_secs())),
        include: watch.include.clone(),
        exclude: watch.exclude.clone(),
        hidden: watch.hidden,
        after: watch.after.clone(),
        webhook: watch.webhook.clone(),
        labels: Labels(watch.labels.clone()),
        ..WatchSpec::new(
            escaped(watch.folder.as_ref()?.as_path().as_os_str().as_encoded_bytes()),
            escaped(watch.destination.as_ref()?.to_string().as_bytes()),
        )
    };
    Some((name.clone(), spec))
}

/// When the service tells a program of a job; a verify hook is told of files, whoever sends them.
fn moment(event: HookEvent) -> Option<HookMoment> {
    match event {
        HookEvent::Pre => Some(HookMoment::Pre),
        HookEvent::Verify => None,
        HookEvent::File => Some(HookMoment::File),
        HookEvent::Late => Some(HookMoment::Late),
        HookEvent::Post => Some(HookMoment::Post),
        HookEvent::Fail => Some(HookMoment::Fail),
        HookEvent::Failing => Some(HookMoment::Failing),
        HookEvent::Recovered => Some(HookMoment::Recovered),
    }
}

/// The table of a hook that looks at files.
fn verify_hook((name, hook): (&String, &crate::config::HookSection)) -> Option<VerifyHook> {
    let number = |number: std::num::NonZeroU32| usize::try_from(number.get()).unwrap_or(usize::MAX);
    let program = hook.program.as_ref().filter(|_| hook.on.contains(&HookEvent::Verify))?;
    Some(VerifyHook {
        name: name.clone(),
        program: Program { program: program.as_path().to_path_buf(), args: hook.args.clone() },
        limit: hook.time_limit.0,
        at_once: number(hook.at_once),
        files: number(hook.files_each),
        quarantine: hook.quarantine.as_ref().map(|path| path.as_path().to_path_buf()),
    })
}

fn receiver(receiver: &crate::config::ReceiverSection) -> Option<WebhookReceiver> {
    Some(WebhookReceiver {
        on: receiver.on.iter().copied().filter_map(moment).collect(),
        url: receiver.url.clone()?,
        secret: receiver.secret_file.clone(),
        labels: receiver.labels.clone(),
        dry_run: receiver.dry_run,
    })
}

/// A table of hooks becomes one hook for each of its events.
fn hooks(hook: &crate::config::HookSection) -> Vec<Hook> {
    let one = |event: &HookEvent| {
        Some(Hook {
            on: moment(*event)?,
            program: hook.program.as_ref()?.as_path().to_path_buf(),
            args: hook.args.clone(),
            limit_s: u32::try_from(hook.time_limit.0.as_secs()).unwrap_or(u32::MAX),
            labels: hook.labels.clone(),
            dry_run: hook.dry_run,
            batch: BatchBounds {
                count: usize::try_from(hook.batch_files.get()).unwrap_or(usize::MAX),
                wait_s: u32::try_from(hook.batch_wait.0.as_secs()).unwrap_or(u32::MAX),
                ..BatchBounds::default()
            },
        })
    };
    hook.on.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul::copy::LocationSpec;
    use farhaul::target::Prompts;
    use farhaul_api::JobKind;

    #[test]
    fn targets_get_the_identity_of_the_job_then_of_the_peer_then_the_nodes_own() {
        let identity = |file: &str| NodeIdentity { key_file: Some(file.into()), ..NodeIdentity::default() };
        let peer = |host: &str, name: &str, fingerprint: Option<&str>| PeerSettings {
            name: name.into(),
            host: HostPattern::of(host).unwrap(),
            identity: Some(name.into()),
            fingerprint: fingerprint.map(Into::into),
            running_max: None,
        };
        let settings = NodeSettings {
            identities: [("a".to_string(), identity("/a")), ("b".to_string(), identity("/b"))].into(),
            peers: vec![peer("hpc:4000", "a", Some("SHA256:x")), peer("*.example.org", "b", None)],
            identity_file: "/own".into(),
            ..NodeSettings::default()
        };
        let ask = |destination: &str, name: Option<&str>| {
            let mut spec = JobSpec::new(JobKind::Copy, vec!["/x".into()], destination.into());
            spec.identity = name.map(Into::into);
            let mut job = spec.copy_job(0).unwrap();
            settings.identify(&spec, &mut job)?;
            match job.destination {
                Location::Daemon { target, .. } => {
                    assert_eq!(target.prompts, Prompts::Forbidden);
                    Ok((target.identity_file.unwrap().display().to_string(), target.fingerprint))
                }
                _ => panic!("the location must be a daemon"),
            }
        };
        let file = |answer: Result<(String, Option<String>), Error>| answer.unwrap().0;
        assert_eq!(ask("fh://hpc:4000/x", None).unwrap(), ("/a".to_string(), Some("SHA256:x".to_string())));
        assert_eq!(file(ask("fh://hpc/x", None)), "/own");
        assert_eq!(file(ask("fh://dtn.example.org/x", None)), "/b");
        assert_eq!(file(ask("fh://dtn.example.org/x", Some("a"))), "/a");
        assert_eq!(ask("fh://hpc/x", Some("none")).unwrap_err().code(), Code::BadOption);
        // A caller may name the key of a daemon, but cannot replace the one that the configuration names.
        let ask = |destination: &str, fingerprint: &str| {
            let spec = JobSpec::new(JobKind::Copy, vec!["/x".into()], destination.into());
            let mut location = spec.copy_job(0).unwrap().destination;
            settings.identify_location(None, Some(fingerprint), &mut location)?;
            match location {
                Location::Daemon { target, .. } => Ok::<_, Error>(target.fingerprint.unwrap()),
                _ => panic!("the location must be a daemon"),
            }
        };
        assert_eq!(ask("fh://hpc/x", "SHA256:y").unwrap(), "SHA256:y");
        assert_eq!(ask("fh://hpc:4000/x", "x").unwrap(), "SHA256:x");
        assert_eq!(ask("fh://hpc:4000/x", "SHA256:y").unwrap_err().code(), Code::BadOption);
    }

    #[test]
    fn jobs_with_the_hosts_of_a_table_are_counted_together_if_it_says_how_many_run() {
        let peer = |name: &str, host: &str, running_max| PeerSettings {
            name: name.into(),
            host: HostPattern::of(host).unwrap(),
            identity: None,
            fingerprint: None,
            running_max,
        };
        let settings = NodeSettings {
            peers: vec![peer("hpc", "*.hpc", Some(9)), peer("other", "other", None)],
            ..NodeSettings::default()
        };
        let counted = |place: &str| {
            let places =
                [LocationSpec::parse("/a".as_ref()).unwrap(), LocationSpec::parse(place.as_ref()).unwrap()];
            let peer = super::super::peer_of(&places);
            let host = peer.as_deref().and_then(super::super::places::host_of_peer);
            let found = settings.places_of(peer.as_deref(), host.as_ref());
            found.map(|found| (found.name.to_string(), found.running_max))
        };
        let usual = settings.running.per_peer;
        assert_eq!(counted("fh://a.hpc/x"), Some(("hpc".into(), 9)));
        assert_eq!(counted("u@b.hpc:x"), Some(("hpc".into(), 9)));
        assert_eq!(counted("fh://other/x"), Some(("fh://other:33001".into(), usual)));
        assert_eq!(counted("fh://third/x"), Some(("fh://third:33001".into(), usual)));
        assert_eq!(counted("/x"), None);
    }

    #[test]
    fn the_pages_on_hooks_and_watches_are_read() {
        let pages = [
            include_str!("../../../../docs/guide/hooks.md"),
            include_str!("../../../../docs/guide/watch-folder.md"),
        ]
        .concat();
        let blocks = pages.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("farhaul.toml");
        std::fs::write(&file, blocks.collect::<String>()).unwrap();
        let surroundings = crate::config::Surroundings {
            system_folder: folder.path().join("etc"),
            listed_home: None,
            home: folder.path().join("home"),
            environment: BTreeMap::new(),
        };
        let loaded = crate::config::ConfigSources::new(surroundings, Some(file)).load();
        let config = loaded.unwrap_or_else(|faults| panic!("{:?}", faults.list())).config;
        let settings = NodeSettings::of(&config);
        let hooks = settings.hooks.iter().map(|hook| hook.clone().checked().unwrap());
        let all: Vec<_> = hooks.map(|hook| (hook.on, hook.limit_s)).collect();
        assert_eq!(
            all,
            [
                (HookMoment::Post, 60),
                (HookMoment::File, 60),
                (HookMoment::Fail, 60),
                (HookMoment::Late, 60),
                (HookMoment::Post, 60),
                (HookMoment::Fail, 60),
                (HookMoment::Pre, 10)
            ]
        );
        let batches = settings.hooks.iter().map(|hook| (hook.batch.count, hook.batch.wait_s));
        let usual = (1000, 5);
        assert_eq!(batches.collect::<Vec<_>>(), [usual, (200, 30), usual, usual, usual, usual, usual]);
        assert_eq!((settings.webhooks.addresses.allow.len(), settings.webhooks.secret.is_some()), (1, true));
        assert!(settings.webhooks.authorities.is_some());
        let camera = settings.watches["camera"].clone().checked().unwrap();
        assert_eq!(
            (camera.settle, camera.after),
            (JobSpan(10), crate::watch::AfterAction::Move("sent".into()))
        );
    }

    #[test]
    fn ssh_asks_nobody() {
        let spec = JobSpec::new(JobKind::Copy, vec!["u@h:/x".into()], "/y".into());
        let mut job = spec.copy_job(0).unwrap();
        NodeSettings::default().identify(&spec, &mut job).unwrap();
        let Location::Ssh { target, .. } = &job.sources[0] else {
            panic!("the source must be reached over ssh")
        };
        assert_eq!((target.prompts, target.messages), (Prompts::Forbidden, SshMessages::Kept));
    }
}
