//! What the configuration says of jobs, as the node needs it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use farhaul::{CopyJob, Location};
use farhaul_session::{Code, Error};

use crate::hooks::Hook;
use crate::hooks::webhook::{Webhook, Webhooks};
use crate::job::JobSpec;
use crate::scheduler::choice::Places;

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
    /// Jobs, records and manifests are kept for so many days.
    pub history_days: u64,
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
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            running: Places::default(),
            unfinished_max: 100_000,
            held_session_s: 600,
            history_days: 365,
            identities: BTreeMap::new(),
            peers: Vec::new(),
            identity_file: farhaul::default_identity_path(),
            hooks: Vec::new(),
            webhooks: Webhooks::default(),
            webhook: Vec::new(),
            watches_max: WATCHES_MAX,
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
}

/// Another host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// The name in places: `hpc`, `hpc:4000`, `*.example.org`.
    pub host: String,
    /// The identity for it.
    pub identity: Option<String>,
    /// The key that its daemon must have.
    pub fingerprint: Option<String>,
}

impl Peer {
    fn is_for(&self, host: &str, port: Option<u16>) -> bool {
        let named = port.map(|port| format!("{host}:{port}"));
        [Some(host), named.as_deref()].into_iter().flatten().any(|name| match self.host.strip_prefix('*') {
            Some(end) => name.ends_with(end),
            None => name == self.host,
        })
    }
}

impl Settings {
    fn peer(&self, host: &str, port: Option<u16>) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.is_for(host, port))
    }

    /// Gives the job's targets the keys and options that the configuration has for them. A caller chooses among identities by
    /// their names, and never brings one.
    pub(crate) fn identify(&self, spec: &JobSpec, job: &mut CopyJob) -> Result<(), Error> {
        for location in job.sources.iter_mut().chain([&mut job.destination]) {
            let (host, port) = match location {
                Location::Daemon { target, .. } => (target.host.clone(), Some(target.port)),
                Location::Ssh { target, .. } => (target.host.clone(), target.port),
                Location::Local(_) | Location::Pipe => continue,
            };
            let peer = self.peer(&host, port);
            let name = spec.identity.as_ref().or(peer.and_then(|peer| peer.identity.as_ref()));
            let identity = match name {
                None => Identity::default(),
                Some(name) => self.identities.get(name).cloned().ok_or_else(|| {
                    let name = farhaul_text::printable(name.as_bytes(), 60);
                    Error::new(Code::BadOption, format!("the configuration has no identity '{name}'"))
                })?,
            };
            match location {
                Location::Daemon { target, .. } => {
                    target.batch = true;
                    target.identity_file =
                        Some(identity.key_file.unwrap_or_else(|| self.identity_file.clone()));
                    let known = peer.and_then(|peer| peer.fingerprint.clone());
                    target.fingerprint = spec.fingerprint.clone().or(known);
                }
                Location::Ssh { target, .. } => {
                    target.identity = identity.ssh_key_files;
                    target.config_file = identity.ssh_config_file;
                    target.options = identity.ssh_options;
                    // Nobody is there to be asked for a password.
                    target.options.push("BatchMode=yes".into());
                    if let Some(program) = identity.ssh_program {
                        target.program = program;
                    }
                }
                Location::Local(_) | Location::Pipe => {}
            }
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
            host: host.into(),
            identity: Some(name.into()),
            fingerprint: fingerprint.map(Into::into),
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
