//! The caps as the engine has them: made and changed by what the node's caps say, at the rates that hold now.
//!
//! Always true: a session that has begun stays in the cap that it began in, at whatever rate that has; one that is removed has none
//! any more, so that what was in it is bounded by what that stood in.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use farhaul::{Budget, CapPlace, RateCap};
use farhaul_handover::Held as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::schedule::{next_change, rate_at};
use super::spec::{Cap, Caps, HOST, Subject, cap_of, parent_of};
use crate::config::values::Zone;

/// All of them.
#[derive(Debug)]
pub(crate) struct LiveCaps(Mutex<Tree>);

#[derive(Debug)]
struct Tree {
    /// What was said.
    caps: Caps,
    live: BTreeMap<String, Live>,
}

#[derive(Debug)]
struct Live {
    cap: RateCap,
    parent: Option<String>,
    rate_bps: Option<u64>,
    weight: f64,
}

/// How a cap is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Use {
    /// Sessions in it, and in what stands in it.
    pub(crate) sessions: u64,
    /// Bytes of IP packets that have gone through it.
    pub(crate) moved_bytes: u64,
}

impl LiveCaps {
    /// With the host's cap, which has no limit yet, so that one can be set later for what runs by then.
    pub(crate) fn new() -> LiveCaps {
        let cap = Budget::of_process().rate_cap().beside(HOST, None, Instant::now());
        let host = Live { cap, parent: None, rate_bps: None, weight: 1.0 };
        LiveCaps(Mutex::new(Tree { caps: Caps::new(), live: [(HOST.to_string(), host)].into() }))
    }

    /// From now on these hold, at the rates of this moment; yields when any of these changes.
    pub(crate) fn apply(&self, caps: &Caps, now: Timestamp) -> Option<Timestamp> {
        let mut tree = self.0.lock().in_any_case();
        let Tree { caps: said, live } = &mut *tree;
        live.retain(|name, one| {
            let stays = name == HOST || caps.contains_key(name);
            if !stays {
                one.cap.set_most(None, Instant::now());
            }
            stays
        });
        let host = Cap::default();
        let mut next: Option<Timestamp> = None;
        // Those above come first.
        for name in from_the_top(caps) {
            let cap = caps.get(name).unwrap_or(&host);
            let zone = cap.time_zone.as_ref().map_or_else(TimeZone::system, Zone::zone);
            let rate_bps = rate_at(&cap.schedule, cap.rate_bps, now, &zone);
            next = [next, next_change(&cap.schedule, now, &zone)].into_iter().flatten().min();
            let parent = parent_of(caps, name).map(ToString::to_string);
            let above = parent.as_ref().and_then(|parent| live.get(parent)).map(|above| above.cap.clone());
            match live.get_mut(name) {
                Some(one) if one.parent == parent => {
                    if one.rate_bps != rate_bps {
                        one.cap.set_most(rate_bps, Instant::now());
                        one.rate_bps = rate_bps;
                    }
                    if one.weight != cap.weight {
                        one.cap.set_weight(cap.weight, Instant::now());
                        one.weight = cap.weight;
                    }
                }
                there => {
                    if let Some(one) = there {
                        one.cap.set_most(None, Instant::now());
                    }
                    let Some(above) = above else { continue };
                    let made = above.within(name, rate_bps, Instant::now());
                    made.set_weight(cap.weight, Instant::now());
                    live.insert(name.to_string(), Live { cap: made, parent, rate_bps, weight: cap.weight });
                }
            }
        }
        said.clone_from(caps);
        next
    }

    /// The place of a session that begins.
    pub(crate) fn place(&self, subject: &Subject) -> Vec<CapPlace> {
        let tree = self.0.lock().in_any_case();
        let name = cap_of(&tree.caps, subject);
        tree.live.get(name).map(|one| one.cap.clone().into()).into_iter().collect()
    }

    /// Whether a session's cap depends on where its far end is.
    pub(crate) fn needs_address(&self) -> bool {
        self.0.lock().in_any_case().caps.values().any(|cap| !cap.networks.is_empty())
    }

    /// How the cap of this name is used.
    pub(crate) fn usage(&self, name: &str) -> Use {
        let cap = self.0.lock().in_any_case().live.get(name).map(|one| one.cap.clone());
        cap.map_or(Use::default(), |cap| {
            let usage = cap.usage();
            Use { sessions: usage.sessions, moved_bytes: usage.moved_bytes }
        })
    }
}

/// The names of all caps, each behind the one that it stands in.
fn from_the_top(caps: &Caps) -> Vec<&str> {
    let depth = |name: &str| {
        let mut depth = 0;
        let mut at = name;
        // They were judged to be a tree.
        while let Some(parent) = parent_of(caps, at)
            && depth < 64
        {
            (at, depth) = (parent, depth + 1);
        }
        depth
    };
    let mut names: Vec<&str> = caps.keys().map(String::as_str).collect();
    if !caps.contains_key(HOST) {
        names.push(HOST);
    }
    names.sort_by_key(|name| depth(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::values::{HostPattern, Window, Written as _};

    fn subject(host: &str) -> Subject {
        Subject { principal: "local".into(), peer: Some((host.into(), Some(33_001))), address: None }
    }

    fn cap(parent: Option<&str>, rate_bps: u64, peer: &str) -> Cap {
        let peers = HostPattern::read(peer).into_iter().collect();
        Cap { rate_bps: Some(rate_bps), parent: parent.map(Into::into), peers, ..Cap::default() }
    }

    fn rate(live: &LiveCaps, host: &str) -> Option<u64> {
        let places = live.place(&subject(host));
        places[0].cap.join(Instant::now()).unwrap().bps()
    }

    #[test]
    fn sessions_are_bounded_by_their_cap_and_by_what_it_stands_in() {
        let live = LiveCaps::new();
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        assert_eq!(rate(&live, "hpc"), None);
        let mut caps: Caps = [
            ("a-leaf".to_string(), cap(Some("campus"), 5_000_000, "hpc")),
            ("campus".to_string(), cap(None, 3_000_000, "nobody")),
        ]
        .into();
        assert_eq!(live.apply(&caps, now), None);
        assert_eq!((rate(&live, "hpc"), rate(&live, "other")), (Some(3_000_000), None));
        caps.insert(HOST.into(), Cap { rate_bps: Some(2_000_000), ..Cap::default() });
        live.apply(&caps, now);
        assert_eq!((rate(&live, "hpc"), rate(&live, "other")), (Some(2_000_000), Some(2_000_000)));
        // What runs is freed of a cap that is removed.
        let held = live.place(&subject("hpc"))[0].cap.join(Instant::now()).unwrap();
        caps.clear();
        live.apply(&caps, now);
        assert_eq!((held.bps(), rate(&live, "hpc")), (None, None));
    }

    #[test]
    fn a_schedule_changes_the_rate_of_what_runs() {
        let live = LiveCaps::new();
        let zone = Zone::read("UTC");
        let window = Window::read("fri 09:00-18:00 2M").unwrap();
        let cap =
            Cap { rate_bps: Some(8_000_000), schedule: vec![window], time_zone: zone, ..Cap::default() };
        let caps: Caps = [(HOST.to_string(), cap)].into();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(live.apply(&caps, at("2026-11-27T08:59:00Z")), Some(at("2026-11-27T09:00:00Z")));
        let held = live.place(&subject("hpc"))[0].cap.join(Instant::now()).unwrap();
        assert_eq!(held.bps(), Some(8_000_000));
        assert_eq!(live.apply(&caps, at("2026-11-27T09:00:00Z")), Some(at("2026-11-27T18:00:00Z")));
        assert_eq!(held.bps(), Some(2_000_000));
        live.apply(&caps, at("2026-11-27T18:00:00Z"));
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert_eq!(held.bps(), Some(8_000_000));
    }
}
