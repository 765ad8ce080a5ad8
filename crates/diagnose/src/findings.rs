//! What a host's doctor says to somebody at another host.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farhaul_connect::hello::HelloSecret;
use farhaul_doctor::check::Weight;
use farhaul_doctor::host::Machine;
use farhaul_doctor::target::Role;
use farhaul_doctor::{Diagnosis, host};
use farhaul_text::printable;
use serde::{Deserialize, Serialize};

use super::messages::ANSWER_MAX;

/// The most findings that are sent or taken.
const FINDINGS_MAX: usize = 256;
/// The most bytes of all lines; what is beyond is the lightest.
const LINES_MAX: usize = ANSWER_MAX / 2;
/// The most bytes of a finding's line.
const LINE_MAX: usize = 600;
/// The most places that are named as hidden.
const PLACES_MAX: usize = 64;
/// What these find stays at home: it tells of rules, of names or of accounts.
const PRIVATE: &[&str] = &["firewall", "reverse-dns", "quota"];

/// A finding at the far end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerFinding {
    /// The check.
    pub id: String,
    /// Whether it is only worth knowing.
    pub is_note: bool,
    /// The finding in one line.
    pub line: String,
}

/// What the doctor says at the far end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerDiagnosis {
    /// The rate that it was judged for.
    pub rate_bps: u64,
    /// The findings, the heaviest first.
    pub findings: Vec<PeerFinding>,
    /// What its user may not see there.
    pub not_visible: Vec<String>,
}

/// The answer of a consultation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Consultation {
    pub(crate) diagnosis: PeerDiagnosis,
    /// The far end's time, in microseconds since 1970.
    pub(crate) clock_us: u64,
    /// The client's address as the far end sees it.
    pub(crate) your_address: Option<std::net::IpAddr>,
    /// Admits tests of the path while the consultation lasts.
    pub(crate) ticket: HelloSecret,
}

impl PeerDiagnosis {
    /// Judges this host for somebody at another one.
    pub fn of_this_host(rate_bps: Option<u64>, role: Option<Role>) -> PeerDiagnosis {
        let diagnosis = Diagnosis::of(&Machine, rate_bps, role);
        let told = diagnosis.found.iter().filter(|found| !PRIVATE.contains(&found.check.id));
        let findings = told.take(FINDINGS_MAX).map(|found| PeerFinding {
            id: found.check.id.into(),
            is_note: found.finding.weight == Weight::Note,
            line: host::without_names(&found.line()),
        });
        PeerDiagnosis {
            rate_bps: diagnosis.target.rate_bps,
            findings: findings.collect(),
            not_visible: diagnosis.denied.clone(),
        }
        .tame()
    }

    /// Makes it safe to show, and no larger than an answer.
    pub fn tame(mut self) -> PeerDiagnosis {
        self.findings.truncate(FINDINGS_MAX);
        for finding in &mut self.findings {
            finding.id = printable(finding.id.as_bytes(), 60);
            finding.line = printable(finding.line.as_bytes(), LINE_MAX);
        }
        let mut room = LINES_MAX;
        self.findings.retain(|finding| {
            let has_room = finding.line.len() <= room;
            room = room.saturating_sub(finding.line.len() + 100);
            has_room
        });
        self.not_visible.truncate(PLACES_MAX);
        self.not_visible.iter_mut().for_each(|place| *place = printable(place.as_bytes(), 120));
        self
    }
}

/// The time of this host's clock, in microseconds since 1970.
pub(crate) fn clock_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_far_end_says_is_made_safe_and_short() {
        let finding = PeerFinding { id: "x\u{1b}".into(), is_note: false, line: "a\nb".repeat(1000) };
        let said = PeerDiagnosis { findings: vec![finding; 1000], ..PeerDiagnosis::default() }.tame();
        assert!(said.findings.len() > 20 && serde_json::to_vec(&said).unwrap().len() < ANSWER_MAX);
        assert!(said.findings.iter().all(|one| one.line.len() <= LINE_MAX + 3 && !one.line.contains('\n')));
        assert!(!said.findings[0].id.contains('\u{1b}'));
    }

    #[test]
    fn this_host_says_nothing_that_names_it() {
        let said = PeerDiagnosis::of_this_host(None, None);
        assert!(said.findings.iter().all(|found| !PRIVATE.contains(&&found.id[..])));
        assert!(serde_json::to_vec(&said).unwrap().len() < ANSWER_MAX);
    }
}
