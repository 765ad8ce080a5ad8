//! What the configuration says of jobs, as the node needs it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use farhaul::{CopyJob, Location};
use farhaul_session::{Code, Error};

use crate::config::Config;
use crate::config::values::{HostPattern, Secret};
use crate::job::{JobSpec, RetryRule, Span};
use crate::scheduler::choice::Places;

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
        }
    }

    fn peer(&self, host: &str, port: Option<u16>) -> Option<&Peer> {
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
                let known = peer.and_then(|peer| peer.fingerprint.clone());
                target.fingerprint = fingerprint.map(str::to_string).or(known);
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
