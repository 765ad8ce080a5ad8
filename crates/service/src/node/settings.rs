//! What the configuration says of jobs, as the node needs it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use farhaul::{CopyJob, Location};
use farhaul_session::{Code, Error};

use super::WatchSpec;
use crate::config::values::{self, HostPattern, Secret};
use crate::config::{Config, HookEvent};
use crate::hooks::webhook::{Webhook, Webhooks};
use crate::hooks::{Bounds, Hook, When};
use crate::job::{JobSpec, Labels, RetryRule, Span};
use crate::scheduler::choice::Places;
use crate::watch::After;

/// Each has a thread and a descriptor of inotify, of which the kernel gives a user 128.
const WATCHES_MAX: usize = 100;

/// What holds for all jobs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many run at a time.
    pub running: Places,
    /// Jobs that are not over; more are refused.
    pub unfinished_max: usize,
    /// A job that is held for so long gives its session back, in seconds.
    pub held_session_s: u64,
    /// Attempts and pauses of jobs that say nothing of them.
    pub retry: RetryRule,
    /// Jobs, records and manifests are kept for so long, in seconds.
    pub history_s: u64,
    /// Whether the curves of runs are kept.
    pub curves: bool,
    /// By which keys the node shows itself.
    pub identities: BTreeMap<String, Identity>,
    /// What is known of other hosts; the first that fits counts.
    pub peers: Vec<Peer>,
    /// The identity of jobs for which nothing else says one.
    pub identity_file: PathBuf,
    /// The programs that are run when jobs begin, go on and end.
    pub hooks: Vec<Hook>,
    /// How webhooks are delivered.
    pub webhooks: Webhooks,
    /// Those that the configuration names.
    pub webhook: Vec<Webhook>,
    /// Watched folders; more are refused.
    pub watches_max: usize,
    /// Folders that the configuration has watched, by their names.
    pub watches: BTreeMap<String, WatchSpec>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            running: Places::default(),
            unfinished_max: 100_000,
            held_session_s: 600,
            retry: RetryRule::default(),
            history_s: 90 * 86_400,
            curves: true,
            identities: BTreeMap::new(),
            peers: Vec::new(),
            identity_file: farhaul::default_identity_path(),
            hooks: Vec::new(),
            webhooks: Webhooks::default(),
            webhook: Vec::new(),
            watches_max: WATCHES_MAX,
            watches: BTreeMap::new(),
        }
    }
}

/// How a connection that the node opens shows who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The Ed25519 key for daemons.
    pub key_file: Option<PathBuf>,
    /// Keys for SSH.
    pub ssh_key_files: Vec<PathBuf>,
    /// ssh's configuration.
    pub ssh_config_file: Option<PathBuf>,
    /// Options for ssh.
    pub ssh_options: Vec<String>,
    /// What is run in place of ssh.
    pub ssh_program: Option<PathBuf>,
    /// The name at the other host, where a place says none.
    pub ssh_user: Option<String>,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The host in places: `hpc`, `hpc:4000`, `*.example.org`.
    pub host: HostPattern,
    /// The identity for it.
    pub identity: Option<String>,
    /// The key that its daemon must have.
    pub fingerprint: Option<String>,
    /// Jobs with it that run at a time, if another number than usual.
    pub running_max: Option<usize>,
}

impl Settings {
    /// What the configuration says. A secret that cannot be found is told to who needs it.
    pub fn of(config: &Config) -> Settings {
        let file = |secret: &Secret| secret.path().unwrap_or_else(|_| PathBuf::from(secret.to_string()));
        let count = |number: std::num::NonZeroU32| usize::try_from(number.get()).unwrap_or(usize::MAX);
        let identity = |identity: &crate::config::Identity| Identity {
            key_file: identity.key.as_ref().map(file),
            ssh_key_files: identity.ssh_identity.iter().map(file).collect(),
            ssh_config_file: identity.ssh_config.as_ref().map(|path| path.as_path().to_path_buf()),
            ssh_options: Vec::new(),
            ssh_program: identity.ssh_program.as_ref().map(|path| path.as_path().to_path_buf()),
            ssh_user: identity.ssh_user.clone(),
        };
        let peer = |(name, peer): (&String, &crate::config::Peer)| {
            Some(Peer {
                host: peer.host.clone().or_else(|| HostPattern::of(name))?,
                identity: peer.identity.clone(),
                fingerprint: peer.fingerprint.as_ref().map(ToString::to_string),
                running_max: peer.running_max.map(count),
            })
        };
        let network = |network: &crate::config::values::Network| {
            let (address, bits) = network.parts();
            format!("{address}/{bits}").parse().ok()
        };
        let jobs = &config.jobs;
        Settings {
            running: Places {
                all: count(jobs.running_max),
                per_peer: count(jobs.running_per_peer),
                per_owner: count(jobs.running_per_principal),
            },
            unfinished_max: count(jobs.queued_max),
            held_session_s: jobs.paused_release.0.as_secs(),
            retry: RetryRule {
                attempts: jobs.retry_attempts,
                first_delay: Span(jobs.retry_first.0.as_secs()),
                longest_delay: Span(jobs.retry_longest.0.as_secs().max(jobs.retry_first.0.as_secs())),
            },
            history_s: config.history.keep.0.as_secs(),
            curves: config.history.curves,
            identities: config.identities.iter().map(|(name, one)| (name.clone(), identity(one))).collect(),
            peers: config.peers.iter().filter_map(peer).collect(),
            identity_file: file(&config.serve.identity),
            hooks: config.hooks.values().flat_map(hooks).collect(),
            webhooks: Webhooks {
                allow: config.webhooks.allow_networks.iter().filter_map(network).collect(),
                authorities: config.webhooks.ca_file.as_ref().map(|path| path.as_path().to_path_buf()),
                secret_file: config.webhooks.secret_file.as_ref().map(file),
            },
            webhook: Vec::new(),
            watches_max: WATCHES_MAX,
            watches: config.watch.iter().filter_map(watch).collect(),
        }
    }

    pub(super) fn peer(&self, host: &str, port: Option<u16>) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.host.fits(host, port))
    }

    /// Gives the job's targets the keys and options that the configuration has for them. A caller chooses among identities by
    /// their names, and never brings one.
    pub(crate) fn identify(&self, spec: &JobSpec, job: &mut CopyJob) -> Result<(), Error> {
        let (identity, fingerprint) = (spec.identity.as_deref(), spec.fingerprint.as_deref());
        let mut all = job.sources.iter_mut().chain([&mut job.destination]);
        all.try_for_each(|location| self.identify_location(identity, fingerprint, location))
    }

    /// The same for one place.
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
            None => Identity::default(),
            Some(name) => self.identities.get(name).cloned().ok_or_else(|| {
                let name = farhaul_text::printable(name.as_bytes(), 60);
                Error::new(Code::BadOption, format!("the configuration has no identity '{name}'"))
            })?,
        };
        match location {
            Location::Daemon { target, .. } => {
                target.batch = true;
                target.identity_file = Some(identity.key_file.unwrap_or_else(|| self.identity_file.clone()));
                let known = peer.and_then(|peer| peer.fingerprint.as_deref());
                if let (Some(asked), Some(known)) = (fingerprint, known)
                    && !farhaul::is_same_fingerprint(asked, known)
                {
                    let what = format!("the configuration says that the daemon on {host} has another key");
                    return Err(Error::new(Code::BadOption, what));
                }
                target.fingerprint = known.or(fingerprint).map(str::to_string);
            }
            Location::Ssh { target, .. } => {
                target.identity = identity.ssh_key_files;
                target.config_file = identity.ssh_config_file;
                target.options = identity.ssh_options;
                // Nobody is there to be asked for a password.
                target.options.push("BatchMode=yes".into());
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

/// A folder of the configuration.
fn watch((name, watch): (&String, &crate::config::Watch)) -> Option<(String, WatchSpec)> {
    let escaped = |text: &[u8]| farhaul::escape(text);
    let spec = WatchSpec {
        settle: Span(watch.settle.0.as_secs()),
        rescan: Some(Span(watch.rescan.0.as_secs())),
        include: watch.include.clone(),
        exclude: watch.exclude.clone(),
        after: match &watch.after {
            values::After::Keep => After::Leave,
            values::After::Mark => After::Mark,
            values::After::Delete => After::Delete,
            values::After::Move(to) => After::Move(to.as_path().to_path_buf()),
        },
        labels: Labels(watch.labels.clone()),
        ..WatchSpec::new(
            escaped(watch.path.as_ref()?.as_path().as_os_str().as_encoded_bytes()),
            escaped(watch.to.as_ref()?.to_string().as_bytes()),
        )
    };
    Some((name.clone(), spec))
}

/// A program of the configuration is one for each of the events that it is for.
fn hooks(hook: &crate::config::Hook) -> Vec<Hook> {
    let when = |event: &HookEvent| match event {
        HookEvent::Pre => When::Pre,
        HookEvent::File => When::File,
        HookEvent::Post => When::Post,
        HookEvent::Fail => When::Fail,
    };
    let one = |event: &HookEvent| {
        Some(Hook {
            on: when(event),
            program: hook.program.as_ref()?.as_path().to_path_buf(),
            args: hook.args.clone(),
            limit_s: u32::try_from(hook.time_limit.0.as_secs()).unwrap_or(u32::MAX),
            labels: hook.labels.clone(),
            batch: Bounds::default(),
        })
    };
    hook.on.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Kind;

    #[test]
    fn targets_get_the_identity_of_the_job_then_of_the_peer_then_the_nodes_own() {
        let identity = |file: &str| Identity { key_file: Some(file.into()), ..Identity::default() };
        let peer = |host: &str, name: &str, fingerprint: Option<&str>| Peer {
            host: HostPattern::of(host).unwrap(),
            identity: Some(name.into()),
            fingerprint: fingerprint.map(Into::into),
            running_max: None,
        };
        let settings = Settings {
            identities: [("a".to_string(), identity("/a")), ("b".to_string(), identity("/b"))].into(),
            peers: vec![peer("hpc:4000", "a", Some("SHA256:x")), peer("*.example.org", "b", None)],
            identity_file: "/own".into(),
            ..Settings::default()
        };
        let ask = |destination: &str, name: Option<&str>| {
            let mut spec = JobSpec::new(Kind::Copy, vec!["/x".into()], destination.into());
            spec.identity = name.map(Into::into);
            let mut job = spec.copy_job(0).unwrap();
            settings.identify(&spec, &mut job)?;
            match job.destination {
                Location::Daemon { target, .. } => {
                    assert!(target.batch);
                    Ok((target.identity_file.unwrap().display().to_string(), target.fingerprint))
                }
                _ => panic!("a daemon was named"),
            }
        };
        let file = |answer: Result<(String, Option<String>), Error>| answer.unwrap().0;
        assert_eq!(ask("fh://hpc:4000/x", None).unwrap(), ("/a".to_string(), Some("SHA256:x".to_string())));
        assert_eq!(file(ask("fh://hpc/x", None)), "/own");
        assert_eq!(file(ask("fh://dtn.example.org/x", None)), "/b");
        assert_eq!(file(ask("fh://dtn.example.org/x", Some("a"))), "/a");
        assert_eq!(ask("fh://hpc/x", Some("none")).unwrap_err().code(), Code::BadOption);
        // A caller may say the key of a daemon, and cannot have another one trusted than the configuration says.
        let ask = |destination: &str, fingerprint: &str| {
            let spec = JobSpec::new(Kind::Copy, vec!["/x".into()], destination.into());
            let mut location = spec.copy_job(0).unwrap().destination;
            settings.identify_location(None, Some(fingerprint), &mut location)?;
            match location {
                Location::Daemon { target, .. } => Ok::<_, Error>(target.fingerprint.unwrap()),
                _ => panic!("a daemon was named"),
            }
        };
        assert_eq!(ask("fh://hpc/x", "SHA256:y").unwrap(), "SHA256:y");
        assert_eq!(ask("fh://hpc:4000/x", "x").unwrap(), "SHA256:x");
        assert_eq!(ask("fh://hpc:4000/x", "SHA256:y").unwrap_err().code(), Code::BadOption);
    }

    #[test]
    fn the_pages_on_hooks_and_watches_are_read() {
        let pages =
            [include_str!("../../../../docs/hooks.md"), include_str!("../../../../docs/watch.md")].concat();
        let blocks = pages.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("farhaul.toml");
        std::fs::write(&file, blocks.collect::<String>()).unwrap();
        let surroundings = crate::config::Surroundings {
            system_folder: folder.path().join("etc"),
            home: folder.path().join("home"),
            environment: BTreeMap::new(),
        };
        let loaded = crate::config::Sources::new(surroundings, Some(file)).load();
        let config = loaded.unwrap_or_else(|faults| panic!("{:?}", faults.list())).config;
        let settings = Settings::of(&config);
        let hooks = settings.hooks.iter().map(|hook| hook.clone().checked().unwrap());
        let all: Vec<_> = hooks.map(|hook| (hook.on, hook.limit_s)).collect();
        assert_eq!(
            all,
            [(When::Post, 60), (When::File, 60), (When::Post, 60), (When::Fail, 60), (When::Pre, 10)]
        );
        assert_eq!((settings.webhooks.allow.len(), settings.webhooks.secret_file.is_some()), (1, true));
        assert!(settings.webhooks.authorities.is_some());
        let camera = settings.watches["camera"].clone().checked().unwrap();
        assert_eq!((camera.settle, camera.after), (Span(10), After::Move("/camera/sent".into())));
    }

    #[test]
    fn ssh_asks_nobody() {
        let spec = JobSpec::new(Kind::Copy, vec!["u@h:/x".into()], "/y".into());
        let mut job = spec.copy_job(0).unwrap();
        Settings::default().identify(&spec, &mut job).unwrap();
        let Location::Ssh { target, .. } = &job.sources[0] else { panic!("ssh was named") };
        assert_eq!(target.options, ["BatchMode=yes"]);
    }
}
