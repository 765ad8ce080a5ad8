//! How the two ways to dial differ: which key of the server is accepted, and how its failures are told.

use farhaul_words::{Code, Error, Misbehaviour};
use tokio::runtime::Runtime;

use super::attempt::{DialedConnection, Route};
use super::{DaemonTarget, PinnedTarget, printable_host};
use crate::EstablishedSession;
use crate::dial_requester::{DialRequester, ThreadTask, is_wanted};
use crate::early_session::{FirstUse, UnansweredHello};
use crate::known_hosts::{KnownHosts, default_known_hosts_path, host_name};
use crate::race::RaceFailure;
use crate::tls::KeyPin;
use crate::trust;
use crate::trust::{Consent, TrustVerdict};

/// Decides on the keys of a server.
pub(super) trait ServerTrust {
    /// The keys that the first try accepts.
    fn first_pin(&self) -> KeyPin;

    /// The keys that the next try accepts, after one that failed with the keys in `pin`; `None` if the failure
    /// is not about a key, or if no other key will be accepted.
    fn next_pin(&self, failure: &RaceFailure, pin: &KeyPin) -> Result<Option<KeyPin>, Error>;

    /// The error of a failure after which the server is not asked again.
    fn error(&self, failure: RaceFailure, route: &Route<'_>) -> Error;
}

/// The trust of a user: in the file of known servers, in the command line, and in the user's own answer.
pub(super) struct KnownServer<'a> {
    target: &'a DaemonTarget,
    known: KnownHosts,
    /// The server's name in the file.
    name: String,
    /// Shows a question to the user.
    ask: &'a dyn Fn(&str) -> Consent,
    requester: &'a dyn DialRequester,
}

impl<'a> KnownServer<'a> {
    pub(super) fn load(
        target: &'a DaemonTarget,
        ask: &'a dyn Fn(&str) -> Consent,
        requester: &'a dyn DialRequester,
    ) -> Result<KnownServer<'a>, Error> {
        let path = target.known_hosts_file.clone().unwrap_or_else(default_known_hosts_path);
        let name = host_name(target.bare_host(), target.port);
        // The file may be a pipe whose writer is silent.
        let known = ThreadTask::begin(requester, move || KnownHosts::load(&path))?.wait(requester)??;
        Ok(KnownServer { target, known, name, ask, requester })
    }

    fn keys(&self) -> Vec<String> {
        self.known.keys_of(&self.name)
    }

    /// Remembers the key of a server that was never seen before: now, or once its reply has come.
    pub(super) fn remember(
        mut self,
        connection: DialedConnection,
        runtime: Runtime,
    ) -> Result<EstablishedSession, Error> {
        let DialedConnection { mut established, key, unanswered } = connection;
        let is_first_use = self.keys().is_empty();
        match unanswered {
            Some(unanswered) => {
                let KnownServer { known, name, .. } = self;
                let first_use = is_first_use.then_some(FirstUse { known, name, key });
                let unanswered = UnansweredHello { first_use, ..unanswered };
                established.session.pending = Some(unanswered.listen(runtime)?);
            }
            None if is_first_use => self.known.append(&self.name, &key)?,
            None => {}
        }
        Ok(established)
    }
}

impl ServerTrust for KnownServer<'_> {
    fn first_pin(&self) -> KeyPin {
        trust::first_pin(&self.keys(), self.target)
    }

    fn next_pin(&self, failure: &RaceFailure, pin: &KeyPin) -> Result<Option<KeyPin>, Error> {
        let key = match failure {
            // Nothing says which of the two is the right one.
            RaceFailure::TwoKeys(..) if self.target.fingerprint.is_none() && self.keys().is_empty() => {
                return Ok(None);
            }
            RaceFailure::ServerKey(key) | RaceFailure::TwoKeys(key, _) => key,
            _ => return Ok(None),
        };
        let verdict = trust::judge(&self.known, &self.name, self.target, key, self.ask);
        // Without an answer the key is refused, but that is not why this ends.
        is_wanted(self.requester)?;
        match verdict {
            TrustVerdict::Trust => pin_to(key.clone(), pin).map(Some),
            TrustVerdict::Refuse(error) => Err(error),
        }
    }

    fn error(&self, failure: RaceFailure, route: &Route<'_>) -> Error {
        failure.into_error(route.host, route.port, route.identity, route.is_udp_only())
    }
}

/// The pin for this key. Fails if the same key was the pin before: then the server has several keys.
fn pin_to(key: String, before: &KeyPin) -> Result<KeyPin, Error> {
    let pin = KeyPin::OneOf(vec![key]);
    if pin == *before { Err(Error::from(Misbehaviour::KeyChanged)) } else { Ok(pin) }
}

/// The trust of a daemon that was told which key the other daemon has.
impl ServerTrust for PinnedTarget {
    fn first_pin(&self) -> KeyPin {
        KeyPin::OneOf(vec![self.key.clone()])
    }

    fn next_pin(&self, _: &RaceFailure, _: &KeyPin) -> Result<Option<KeyPin>, Error> {
        Ok(None)
    }

    fn error(&self, failure: RaceFailure, route: &Route<'_>) -> Error {
        let Route { host, port, identity, .. } = *route;
        match failure {
            RaceFailure::ServerKey(key) | RaceFailure::TwoKeys(key, _) => {
                let what =
                    format!("port {port} of {} has the key {key}, not {}", printable_host(host), self.key);
                let hint =
                    "nothing was sent; somebody may be in between, or the name leads elsewhere from here";
                Error::new(Code::HostKeyWrong, what).with_hint(hint)
            }
            RaceFailure::ClientKey => {
                let (host, key) = (printable_host(host), identity.fingerprint());
                let what = format!("the daemon on {host} knows of no grant for {key}");
                let hint = "it may have expired long ago, or the daemon has been started anew: run the command again";
                Error::new(Code::GrantRefused, what).with_hint(hint)
            }
            other => other.into_error(host, port, identity, route.is_udp_only()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_changes_its_key_misbehaves() {
        let one = pin_to("SHA256:one".into(), &KeyPin::Any).unwrap();
        assert!(pin_to("SHA256:other".into(), &one).is_ok());
        let again = pin_to("SHA256:one".into(), &one);
        assert_eq!(Misbehaviour::of(&again), Some(Misbehaviour::KeyChanged));
    }
}
