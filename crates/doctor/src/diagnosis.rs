//! All checks over one host.

use serde_json::{Value, json};

use crate::case::Case;
use crate::check::{self, Check, Effect, Finding, Weight};
use crate::host::{Host, Recorder};
use crate::target::{Role, Target};

/// A finding and the check that has made it.
pub struct Found {
    /// The check.
    pub check: &'static Check,
    /// What it has found.
    pub finding: Finding,
}

impl Found {
    /// The finding in one line: weight, subject, what is so, what to do, and the ID.
    pub fn line(&self) -> String {
        let Finding { weight, subject, what, advice, .. } = &self.finding;
        let subject = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
        format!("{}  {subject}{what}; {advice}  [{}]", weight.name(), self.check.id)
    }

    fn json(&self) -> Value {
        let Found { check, finding } = self;
        let effect = match check.effect {
            Effect::Here(_) => "here",
            Effect::WithPeer => "with-peer",
            Effect::NotByRate => "not-by-rate",
        };
        json!({
            "id": check.id,
            "weight": finding.weight,
            "subject": finding.subject,
            "what": finding.what,
            "advice": finding.advice,
            "changes": finding.changes,
            "commands": commands(finding),
            "group": check.group,
            "effect": effect,
            "sources": check.sources.iter().map(|source| source.address).collect::<Vec<_>>(),
        })
    }
}

/// A place that is not shown, for somebody who does not know places.
fn place_words(place: &str) -> String {
    match place.split('/').collect::<Vec<_>>()[..] {
        ["asked", "firewall"] => "firewalls".into(),
        ["asked", "memory"] => "slots of memory".into(),
        ["asked", "wear", disk] => format!("the wear of {disk}"),
        _ => place.into(),
    }
}

/// Everything that a person would type for a finding.
pub fn commands(finding: &Finding) -> Vec<String> {
    finding.changes.iter().map(check::Change::command).chain(finding.commands.iter().cloned()).collect()
}

/// What all checks say of a host.
pub struct Diagnosis {
    /// What it was judged for.
    pub target: Target,
    /// The findings, the heaviest first.
    pub found: Vec<Found>,
    /// The places that this user may not see.
    pub denied: Vec<String>,
    /// Whether it was judged from inside a container.
    pub is_container: bool,
}

impl Diagnosis {
    /// Judges a host for a rate and a role, or for what its cards are.
    pub fn of(host: &dyn Host, rate_bps: Option<u64>, role: Option<Role>) -> Diagnosis {
        let case = Case::of(host);
        let target = Target::of(&case, rate_bps, role);
        let mut found: Vec<Found> = check::all()
            .flat_map(|check| {
                (check.judge)(&case, &target).into_iter().map(move |finding| Found { check, finding })
            })
            .collect();
        // The sort keeps the order of the table within a weight.
        found.sort_by_key(|found| found.finding.weight);
        Diagnosis { target, found, denied: case.denied(), is_container: case.is_container() }
    }

    /// The findings that are more than notes.
    pub fn faults(&self) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(|found| found.finding.weight < Weight::Note)
    }

    /// The notes.
    pub fn notes(&self) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(|found| found.finding.weight == Weight::Note)
    }

    /// The places that are not shown, in words, if there are any.
    pub fn hidden_words(&self) -> Option<String> {
        if self.denied.is_empty() {
            return None;
        }
        let places: Vec<String> = self.denied.iter().map(|place| place_words(place)).collect();
        Some(format!("not visible to this user: {}; run it as root to see all", places.join(", ")))
    }

    /// The whole as JSON, schema 1.
    pub fn json(&self) -> Value {
        json!({
            "schema": 1,
            "target": self.target,
            "container": self.is_container,
            "findings": self.found.iter().map(Found::json).collect::<Vec<_>>(),
            "not_visible": self.denied,
        })
    }
}

/// Has every check read a host for every kind of target, so that a recorder has all that any of them needs.
pub fn read_everything(recorder: &Recorder<'_>) {
    for rate in [None, Some(1_000_000_000), Some(10_000_000_000), Some(400_000_000_000)] {
        for role in [Role::Plain, Role::Dtn, Role::Test] {
            Diagnosis::of(recorder, rate, Some(role));
        }
    }
}
