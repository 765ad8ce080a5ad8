//! How to get to the hosts of a document: keys, ssh's settings, whom to trust.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use farhaul_api::JobSpan;
use farhaul_connect::{
    Bring, Bringing, DEFAULT_PORT, DaemonTarget, Prompts, SshMessages, SshTarget, ThisHost,
};
use farhaul_copy::{HostSpec, Location, LocationSpec};
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

use super::bytes;

/// How to get to a far host. Everything that is left out is as for `farhaul cp`, but nobody is asked on a terminal
/// unless [`Connection::prompts`] is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Connection {
    /// The port of a location that names none.
    pub port: Option<u16>,
    /// Files with private keys: SSH keys, or with `fh://` one key of `farhaul keygen`.
    pub identity: Vec<String>,
    /// The configuration file of ssh.
    pub ssh_config: Option<String>,
    /// Jump hosts of ssh, separated by commas.
    pub jump: Option<String>,
    /// Options of ssh, as in `ssh_config`.
    pub ssh_options: Vec<String>,
    /// The program that runs instead of `ssh`.
    pub ssh_program: Option<String>,
    /// The program at the far end of ssh. By default `farhaul`, which its shell looks up.
    pub remote_program: Option<String>,
    /// True to send this program to a far end that has none.
    pub bring: bool,
    /// How long the far end of ssh may take to answer.
    pub answer_wait: Option<JobSpan>,
    /// The fingerprint that the daemon's key must have: `SHA256:...`.
    pub fingerprint: Option<String>,
    /// True to trust a daemon that was never seen before.
    pub accept_new: bool,
    /// The file with the keys of known daemons.
    pub known_hosts: Option<String>,
    /// How long to keep trying while the daemon is busy.
    pub busy_wait: Option<JobSpan>,
    /// True to ask on the terminal of this process for what only its user knows, as ssh does.
    pub prompts: bool,
}

impl Connection {
    /// The location as something to connect to.
    pub fn locate(&self, place: &LocationSpec) -> Result<Location, Error> {
        Ok(match place {
            LocationSpec::Pipe => Location::Pipe,
            LocationSpec::Local(path) => Location::Local(path.clone()),
            LocationSpec::Ssh(host, path) => {
                Location::Ssh { target: self.ssh_target(host)?, path: path.clone() }
            }
            LocationSpec::Daemon(host, path) => {
                Location::Daemon { target: self.daemon_target(host)?, path: path.clone() }
            }
        })
    }

    fn prompts(&self) -> Prompts {
        if self.prompts { Prompts::OnTerminal } else { Prompts::Forbidden }
    }

    fn ssh_target(&self, host: &HostSpec) -> Result<SshTarget, Error> {
        if self.fingerprint.is_some() {
            let what = "`fingerprint` is for daemons (fh://); over SSH, ssh judges the host's key by its known_hosts";
            return Err(Error::new(Code::BadOption, what));
        }
        let usual = SshTarget::default();
        Ok(SshTarget {
            user: host.user.clone(),
            host: host.name.clone(),
            port: host.port.or(self.port),
            identity: self.identity.iter().map(|name| path(name)).collect::<Result<_, _>>()?,
            config_file: self.ssh_config.as_deref().map(path).transpose()?,
            jump: self.jump.clone(),
            options: self.ssh_options.clone(),
            program: self.ssh_program.as_deref().map_or(Ok(usual.program), path)?,
            remote_program: self.remote_program.clone().unwrap_or(usual.remote_program),
            answer_wait: self.answer_wait.map_or(usual.answer_wait, JobSpan::duration),
            messages: SshMessages::Kept,
            prompts: self.prompts(),
            bring: match self.bring {
                true => Bringing::Unasked(Arc::new(Bring::of_this_host()?)),
                false => Bringing::Never,
            },
            this_host: ThisHost::Allowed,
        })
    }

    fn daemon_target(&self, host: &HostSpec) -> Result<DaemonTarget, Error> {
        let of_ssh = [
            ("ssh_config", self.ssh_config.is_some()),
            ("jump", self.jump.is_some()),
            ("ssh_options", !self.ssh_options.is_empty()),
            ("ssh_program", self.ssh_program.is_some()),
            ("remote_program", self.remote_program.is_some()),
            ("bring", self.bring),
        ];
        if let Some((field, _)) = of_ssh.iter().find(|field| field.1) {
            let what = format!("connection.{field} is for SSH; no ssh runs for a daemon (fh://)");
            return Err(Error::new(Code::BadOption, what));
        }
        Ok(DaemonTarget {
            host: host.name.clone(),
            port: host.port.or(self.port).unwrap_or(DEFAULT_PORT),
            identity_file: self.identity.last().map(|name| path(name)).transpose()?,
            known_hosts_file: self.known_hosts.as_deref().map(path).transpose()?,
            fingerprint: self.fingerprint.clone(),
            accept_new: self.accept_new,
            busy_wait: self.busy_wait.map_or(DaemonTarget::default().busy_wait, JobSpan::duration),
            prompts: self.prompts(),
            this_host: ThisHost::Allowed,
        })
    }
}

/// The file that a text of the document names.
pub(super) fn path(text: &str) -> Result<PathBuf, Error> {
    Ok(OsString::from_vec(bytes(text)?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_for_the_other_way_to_a_host_is_refused() {
        let locate = |connection: &Connection, text: &str| {
            connection.locate(&super::super::location(text).unwrap()).map_err(|error| error.to_string())
        };
        let of_ssh = Connection { jump: Some("gate".into()), port: Some(7), ..Connection::default() };
        assert!(
            matches!(locate(&of_ssh, "h:x"), Ok(Location::Ssh { target, .. }) if target.port == Some(7) && target.jump.is_some())
        );
        assert!(locate(&of_ssh, "fh://h/x").unwrap_err().contains("connection.jump is for SSH"));
        let of_daemons = Connection { fingerprint: Some("SHA256:x".into()), ..Connection::default() };
        assert!(
            matches!(locate(&of_daemons, "fh://h:9/x"), Ok(Location::Daemon { target, .. }) if target.port == 9)
        );
        assert!(locate(&of_daemons, "h:x").unwrap_err().contains("is for daemons"));
    }
}
