//! The node's caps: sets, removes and shows them, and keeps their rates up to date.

use farhaul_api::{CapDeed, CapEvent, CapView, Word};
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Node;
use crate::access::Caller;
use crate::caps::live_caps::CapUsage;
use crate::caps::schedule::{next_change, rate_at};
use crate::caps::spec::{self, CapRule, Caps, HOST};
use crate::clock::timestamp;
use crate::config::Config;
use crate::config::values::{HostPattern, TimeZoneName};
use crate::hub::NewsBody;
use crate::metrics::CapFigures;
use crate::store::caps;
use farhaul_api::DeedKind;
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};

/// How long rates are taken to hold without another look: the host's time zone may change meanwhile.
const SETTLED_MAX: Duration = Duration::from_secs(3600);

/// The caps of the configuration, and those that were set while the service ran.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeCaps {
    pub(super) base: Caps,
    pub(super) set: Caps,
    pub(super) assigned: Vec<PeerAssignment>,
    /// The rates that were applied last hold in this time.
    pub(super) settled: Option<Range<Timestamp>>,
}

/// A peer of the configuration that names a cap. Its traffic counts there, also if the cap itself was set
/// anew since.
#[derive(Debug, Clone)]
pub(super) struct PeerAssignment {
    cap: String,
    host: HostPattern,
    /// The key by which the peer is known when it connects as a client.
    key: Option<String>,
}

impl PeerAssignment {
    fn of_config(config: &Config) -> Vec<PeerAssignment> {
        let assigned = |(name, peer): (&String, &crate::config::PeerSection)| {
            Some(PeerAssignment {
                cap: peer.cap.clone()?,
                host: peer.host.clone().or_else(|| HostPattern::of(name))?,
                key: peer.fingerprint.as_ref().map(ToString::to_string),
            })
        };
        config.peers.iter().filter_map(assigned).collect()
    }
}

impl NodeCaps {
    fn all(&self) -> Caps {
        let mut all = self.base.clone();
        all.extend(self.set.clone());
        for PeerAssignment { cap, host, key } in &self.assigned {
            let Some(cap) = all.get_mut(cap) else { continue };
            if !cap.peers.contains(host) {
                cap.peers.push(host.clone());
            }
            if let Some(key) = key.as_ref().filter(|key| !cap.principals.contains(key)) {
                cap.principals.push(key.clone());
            }
        }
        all
    }

    /// An error if this cap cannot be removed; `all` are the caps as they are.
    fn removal(&self, name: &str, all: &Caps) -> Result<(), Error> {
        let of_config = self.base.contains_key(name);
        if !self.set.contains_key(name) {
            return Err(match of_config {
                true => Error::new(Code::NotNow, format!("the cap {name} is set in the configuration"))
                    .with_hint("remove it there, or set another rate"),
                false => no_such(name),
            });
        }
        match all.iter().find(|(_, cap)| !of_config && cap.parent.as_deref() == Some(name)) {
            Some((within, _)) => Err(Error::new(Code::NotNow, format!("the cap {within} lies in {name}"))
                .with_hint(format!("remove {within} first, or set it with another parent"))),
            None => Ok(()),
        }
    }

    /// What may be done with this cap, by a caller that may change caps or not.
    fn deeds(&self, name: &str, all: &Caps, may_change: bool) -> Vec<CapDeed> {
        match (may_change, self.removal(name, all)) {
            (false, _) => Vec::new(),
            (true, Ok(())) => vec![CapDeed::Set, CapDeed::Remove],
            (true, Err(_)) => vec![CapDeed::Set],
        }
    }
}

/// A cap with its present state, without what a caller may do.
fn view_of(name: &str, rule: &CapRule, now: Timestamp, used: CapUsage) -> CapView {
    let zone = rule.time_zone.as_ref().map_or_else(TimeZone::system, TimeZoneName::zone);
    CapView {
        name: name.into(),
        now_bps: rate_at(&rule.schedule, rule.rate_bps, now, &zone),
        next_change: next_change(&rule.schedule, rule.rate_bps, now, &zone),
        cap: rule.into(),
        sessions: used.sessions,
        moved_bytes: used.moved_bytes,
        may: Vec::new(),
    }
}

impl Node {
    /// All caps: those of the configuration, and those that were set, which replace caps of the same name.
    pub(super) fn caps(&self) -> Caps {
        self.caps.lock().in_any_case().all()
    }

    /// Takes over the caps of a new configuration, and its peers that name caps.
    pub(crate) fn set_base_caps(&self, config: &Config) -> Result<(), Error> {
        let mut caps = self.caps.lock().in_any_case();
        let (base, assigned) = (spec::of_config(config), PeerAssignment::of_config(config));
        let changed = NodeCaps { base, set: caps.set.clone(), assigned, settled: None };
        spec::check(&changed.all())?;
        *caps = changed;
        self.apply_caps(&mut caps);
        drop(caps);
        self.look();
        Ok(())
    }

    /// Applies the rates of this moment to the sessions' caps, if a schedule may have changed one. Yields when
    /// to look again.
    pub(super) fn follow_schedules(&self) -> Timestamp {
        let now = timestamp(self.clock.now_ms());
        let mut caps = self.caps.lock().in_any_case();
        match &caps.settled {
            Some(settled) if settled.contains(&now) => settled.end,
            _ => self.apply_caps(&mut caps),
        }
    }

    fn apply_caps(&self, caps: &mut NodeCaps) -> Timestamp {
        let now = timestamp(self.clock.now_ms());
        let next = self.live_caps.apply(&caps.all(), now);
        let latest = now.checked_add(SETTLED_MAX).unwrap_or(now);
        let until = next.map_or(latest, |next| next.min(latest));
        caps.settled = Some(now..until);
        until
    }

    /// All caps, with the rates that hold now. The host's is always listed.
    pub(crate) fn list_caps(&self, caller: &Caller) -> Result<Vec<CapView>, Error> {
        caller.may_do(DeedKind::See)?;
        let now = timestamp(self.clock.now_ms());
        let may_change = caller.may_do(DeedKind::Caps).is_ok();
        let known = self.caps.lock().in_any_case();
        let mut caps = known.all();
        caps.entry(HOST.into()).or_default();
        let view = |(name, cap): (&String, &CapRule)| CapView {
            may: known.deeds(name, &caps, may_change).into_iter().map(Word::Known).collect(),
            ..view_of(name, cap, now, self.live_caps.usage(name))
        };
        Ok(caps.iter().map(view).collect())
    }

    /// The limit and the use of each cap.
    pub(crate) fn cap_figures(&self) -> Vec<CapFigures> {
        let now = timestamp(self.clock.now_ms());
        let figures = |(name, cap): (&String, &CapRule)| {
            let limit_bps = view_of(name, cap, now, CapUsage::default()).now_bps.map(|bps| bps as f64);
            let CapUsage { sessions, moved_bytes } = self.live_caps.usage(name);
            CapFigures { name: name.clone(), limit_bps, moved_bytes, sessions }
        };
        self.caps().iter().map(figures).collect()
    }

    /// One cap.
    pub(crate) fn show_cap(&self, caller: &Caller, name: &str) -> Result<CapView, Error> {
        let all = self.list_caps(caller)?;
        all.into_iter().find(|cap| cap.name == name).ok_or_else(|| no_such(name))
    }

    /// Sets the cap of this name, also for running sessions.
    pub(crate) fn set_cap(&self, caller: &Caller, name: &str, cap: CapRule) -> Result<CapView, Error> {
        caller.may_do(DeedKind::Caps)?;
        let named = name.to_string();
        self.change_caps(|caps| {
            caps.set.insert(named.clone(), cap.clone());
            let (named, cap) = (named.clone(), cap.clone());
            Ok(move |transaction: &rusqlite::Transaction<'_>, now_ms| {
                caps::set(transaction, &named, &cap, now_ms)
            })
        })?;
        let view = self.show_cap(caller, name)?;
        // All who read events see this, whatever they may do.
        let seen = CapView { may: Vec::new(), ..view.clone() };
        self.hub.tell(NewsBody::Cap { text: serde_json::to_string(&seen).unwrap_or_default() });
        Ok(view)
    }

    /// Removes a cap. Its sessions move to the cap that fits them then.
    pub(crate) fn remove_cap(&self, caller: &Caller, name: &str) -> Result<(), Error> {
        caller.may_do(DeedKind::Caps)?;
        let named = name.to_string();
        self.change_caps(|caps| {
            caps.removal(&named, &caps.all())?;
            caps.set.remove(&named);
            let named = named.clone();
            Ok(move |transaction: &rusqlite::Transaction<'_>, _| caps::remove(transaction, &named))
        })?;
        let gone = CapEvent { name: name.into(), removed: true };
        self.hub.tell(NewsBody::Cap { text: serde_json::to_string(&gone).unwrap_or_default() });
        Ok(())
    }

    fn change_caps<W>(&self, change: impl FnOnce(&mut NodeCaps) -> Result<W, Error>) -> Result<(), Error>
    where
        W: FnOnce(&rusqlite::Transaction<'_>, i64) -> rusqlite::Result<()> + Send + 'static,
    {
        let now_ms = self.clock.now_ms();
        let mut caps = self.caps.lock().in_any_case();
        let mut changed = caps.clone();
        let write = change(&mut changed)?;
        spec::check(&changed.all())?;
        self.store.write(move |transaction| write(transaction, now_ms))?;
        *caps = changed;
        self.apply_caps(&mut caps);
        drop(caps);
        self.look();
        Ok(())
    }
}

fn no_such(name: &str) -> Error {
    let name = farhaul_text::printable(name.as_bytes(), 80);
    Error::new(Code::NoSuchThing, format!("no cap is called {name}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;
    use crate::caps::spec::{CapSubject, cap_of};
    use crate::config::values::{Fingerprint, RateValue, TextValue as _};
    use crate::config::{CapSection as CapTable, PeerSection as PeerTable};

    #[test]
    fn a_peer_is_in_the_cap_that_its_table_names_also_when_that_is_set_anew() {
        let key = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
        let mut config = Config::default();
        config
            .caps
            .insert("uplink".into(), CapTable { rate: Some(RateValue(8_000_000)), ..CapTable::default() });
        let hpc = PeerTable {
            host: HostPattern::read("*.hpc.example.org"),
            fingerprint: Fingerprint::read(key),
            cap: Some("uplink".into()),
            ..PeerTable::default()
        };
        config.peers.insert("hpc".into(), hpc);
        config.peers.insert("near".into(), PeerTable { cap: Some("uplink".into()), ..PeerTable::default() });
        config.peers.insert("other".into(), PeerTable::default());
        let fixture = Fixture::new();
        let node = fixture.node();
        node.set_base_caps(&config).unwrap();
        let in_cap = |principal: &str, host: &str| {
            let peer = Some((host.to_string(), Some(33_001)));
            cap_of(&node.caps(), &CapSubject { principal: principal.into(), peer, ..CapSubject::default() })
                .to_string()
        };
        let all = || {
            [("local", "dtn.hpc.example.org"), ("local", "near"), (key, "192.0.2.1"), ("local", "other")]
                .map(|(principal, host)| in_cap(principal, host))
        };
        assert_eq!(all(), ["uplink", "uplink", "uplink", HOST]);
        let set = CapRule { rate_bps: Some(9_000_000), ..CapRule::default() };
        node.set_cap(&Caller::local(), "uplink", set).unwrap();
        assert_eq!(all(), ["uplink", "uplink", "uplink", HOST]);
        assert_eq!(node.show_cap(&Caller::local(), "uplink").unwrap().now_bps, Some(9_000_000));
        config.peers.clear();
        node.set_base_caps(&config).unwrap();
        assert_eq!(all(), [HOST; 4]);
    }
}
