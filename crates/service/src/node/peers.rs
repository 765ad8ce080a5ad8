//! The other hosts that a caller may know of, and what the node knows about each.

use crate::access::ReachRules as _;
use farhaul_api::PeerView;
use std::collections::{BTreeMap, BTreeSet};

use farhaul::copy::{HostSpec, LocationSpec};
use farhaul::target::DEFAULT_PORT;
use farhaul_words::{Code, Error};

use super::{Active, Node, NodeSettings, facts, places};
use crate::access::{Caller, CallerDeed};
use crate::caps::spec::{CapRule, CapSubject, cap_of};
use crate::clock::timestamp;
use crate::store::history::{self, PeerDealings};
use crate::store::jobs;
use farhaul_api::JobState;
use farhaul_api::Scope;

/// The most peers of the history that are listed, latest first.
const PEERS_MAX: usize = 10_000;

impl Node {
    /// The peers that the caller may know of, sorted by name.
    pub(crate) fn list_peers(&self, caller: &Caller) -> Result<Vec<PeerView>, Error> {
        caller.may(CallerDeed::Any(Scope::Read))?;
        let settings = self.settings();
        let owner = (!caller.has(Scope::Admin)).then_some(caller.subject.as_str());
        let dealings = self.store.read(|connection| history::dealings(connection, owner, PEERS_MAX))?;
        let mut dealings: BTreeMap<String, PeerDealings> =
            dealings.into_iter().map(|dealing| (dealing.peer.clone(), dealing)).collect();
        let mut jobs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        if !caller.sees_all() {
            let unfinished = JobState::ALL.into_iter().filter(|state| !state.is_final()).collect();
            let wanted = jobs::JobFilter { states: unfinished, ..jobs::JobFilter::default() };
            let note = |key: &jobs::JobKey<'_>| {
                if facts::sees(caller, key.places) {
                    seen.insert(key.id);
                }
            };
            // There are no more of them than the queue may have.
            self.store.read(|connection| jobs::keys(connection, &wanted, usize::MAX, note))?;
        }
        let is_seen = |active: &&Active| caller.sees_all() || seen.contains(&active.row.id);
        for active in self.jobs().values().filter(is_seen) {
            let Some(peer) = &active.row.peer else { continue };
            let (running, unfinished) = jobs.entry(peer.clone()).or_default();
            *running += usize::from(active.transfer.is_some());
            *unfinished += 1;
        }
        let named = caller.reach.peers.keys().map(|name| name_of(name));
        let mut names: BTreeSet<String> = jobs.keys().chain(dealings.keys()).cloned().chain(named).collect();
        names.retain(|name| caller.reach.knows(name));
        if caller.reach.everything {
            let is_met = |pattern: &super::PeerSettings| names.iter().any(|name| pattern.is(name));
            let others: Vec<_> = settings.peers.iter().filter(|peer| !is_met(peer)).collect();
            names.extend(others.iter().map(|peer| peer.host.to_string()));
        }
        let known = farhaul::target::KnownHosts::load(&farhaul::target::default_known_hosts_path())?;
        let view = |name: String| {
            let (running, unfinished) = jobs.get(&name).copied().unwrap_or_default();
            let past = dealings.remove(&name).unwrap_or_default();
            PeerView { running, unfinished, ..self.peer_view(name, &settings, &known, &past) }
        };
        Ok(names.into_iter().map(view).collect())
    }

    /// One peer, by its name or, if it is a daemon, by its host.
    pub(crate) fn show_peer(&self, caller: &Caller, name: &str) -> Result<PeerView, Error> {
        let full = name_of(name);
        let all = self.list_peers(caller)?;
        let found = all.into_iter().find(|peer| peer.name == name || peer.name == full);
        found.ok_or_else(|| {
            let name = farhaul_text::printable(name.as_bytes(), 200);
            Error::new(Code::NoSuchThing, format!("no peer {name} is known"))
        })
    }

    fn peer_view(
        &self,
        name: String,
        settings: &NodeSettings,
        known: &farhaul::target::KnownHosts,
        past: &PeerDealings,
    ) -> PeerView {
        let host = host_of(&name);
        let configured = match &host {
            Some((host, port, _)) => settings.peer(host, *port),
            None => settings.peers.iter().find(|peer| peer.host.to_string() == name),
        };
        let known_keys = match &host {
            Some((host, port, true)) => known.keys_for(host, port.unwrap_or(DEFAULT_PORT)),
            Some(_) | None => Vec::new(),
        };
        let caps = self.caps();
        // A table whose host is a pattern is no peer of a session: its hosts are in the cap that has the pattern.
        let of_pattern = || {
            let has = |cap: &CapRule| cap.peers.iter().any(|pattern| pattern.to_string() == name);
            caps.iter().find(|(_, cap)| has(cap)).map(|(cap, _)| cap.clone())
        };
        let cap = if host.is_none() { of_pattern() } else { None };
        let peer = host.map(|(host, port, _)| (host, port));
        let subject = CapSubject { principal: "local".into(), peer, address: None };
        let time = |ms: Option<i64>| ms.map(timestamp);
        PeerView {
            cap: cap.unwrap_or_else(|| cap_of(&caps, &subject).to_string()),
            configured: configured.map(|peer| peer.host.to_string()),
            identity: configured.and_then(|peer| peer.identity.clone()),
            fingerprint: configured.and_then(|peer| peer.fingerprint.clone()),
            known_keys,
            running_max: configured.and_then(|peer| peer.running_max).unwrap_or(settings.running.per_peer),
            running: 0,
            unfinished: 0,
            last_ended: time(past.last_ended_ms),
            last_reached: time(past.last_reached_ms),
            transfers: past.transfers,
            failed: past.failed,
            bytes: past.bytes,
            name,
        }
    }
}

impl super::PeerSettings {
    /// True if the table is for the host of this name.
    fn is(&self, name: &str) -> bool {
        host_of(name).is_some_and(|(host, port, _)| self.host.fits(&host, port))
    }
}

/// Host, port, and whether it is a daemon. `None` if the name is not that of a peer, such as a pattern.
fn host_of(name: &str) -> Option<(String, Option<u16>, bool)> {
    let place = LocationSpec::parse_host(name.as_ref()).ok().filter(|_| name.contains("://"))?;
    let HostSpec { name, port, .. } = place.host()?.clone();
    Some((name, port, matches!(place, LocationSpec::Daemon(..))))
}

/// The name by which jobs show a host: `hpc` means the daemon on hpc.
fn name_of(text: &str) -> String {
    let whole = if text.contains("://") { text.to_string() } else { format!("fh://{text}") };
    let place = LocationSpec::parse_host(whole.as_ref()).ok();
    place.and_then(|place| places::peer_of(&[place])).unwrap_or_else(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_one_name() {
        assert_eq!(name_of("hpc"), "fh://hpc:33001");
        assert_eq!(name_of("fh://hpc"), "fh://hpc:33001");
        assert_eq!(name_of("hpc:4000"), "fh://hpc:4000");
        assert_eq!(name_of("[fd00::1]"), "fh://[fd00::1]:33001");
        assert_eq!(name_of("ssh://u@hpc"), "ssh://u@hpc");
        assert_eq!(host_of("ssh://u@hpc:22"), Some(("hpc".into(), Some(22), false)));
        assert_eq!(host_of("*.example.org"), None);
        assert_eq!(host_of("hpc"), None);
    }
}
